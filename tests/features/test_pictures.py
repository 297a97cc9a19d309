"""Reading the scored images again, for display."""

import numpy as np
import pytest
import torch
from archives import tar_of, zip_of
from image_files import encode
from PIL import Image

import genpr
from genpr.errors import UsageError
from genpr.features.inputs import pictures_of
from genpr.images.source import choose_rows

OPTIONS = {"extractor": "pixels", "control": False, "intervals": False, "device": "cpu"}


@pytest.fixture
def pixels(rng):
    return rng.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)


def sources_of(pixels, write_images):
    """The same images in all kinds of sources."""
    folder = write_images("images", pixels)
    root = folder.parent
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    (root / "a.zip").write_bytes(zip_of(files))
    (root / "a.tar").write_bytes(tar_of(files))
    np.savez_compressed(root / "a.npz", pixels)
    np.save(root / "a.npy", pixels)
    tensor = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    files = [root / name for name in ("a.zip", "a.tar", "a.npz", "a.npy")]
    return [folder, str(folder), *files, pixels, tensor, list(tensor), list(tensor.split(4))]


def test_scored_images_can_be_read_again_from_every_source(pixels, write_images):
    for source in sources_of(pixels, write_images):
        # A subset, so that rows differ from indices in the source.
        found = genpr.Evaluator(source, max_images=7, **OPTIONS).evidence(source)
        pictures = pictures_of(source, found.fake.names, identities=found.fake.identities)
        indices = [int(name.strip("[]").removesuffix(".png")) for name in found.fake.names]
        assert len(indices) == 7
        got = pictures.read([6, 0, 3, 3])
        assert sorted(got) == [0, 3, 6]
        for row, image in got.items():
            np.testing.assert_array_equal(image, pixels[indices[row]])
        assert pictures.read([]) == {}
        assert sorted(pictures.read(range(7))) == list(range(7))  # and once more


def test_changed_and_missing_images_are_left_out(pixels, write_images):
    folder = write_images("images", pixels)
    found = genpr.Evaluator(folder, **OPTIONS).evidence(folder).real
    Image.fromarray(pixels[0]).save(folder / "00004.png")
    (folder / "00005.png").unlink()
    (folder / "00006.png").write_bytes(b"no image")
    pictures = pictures_of(folder, found.names, identities=found.identities)
    assert sorted(pictures.read(range(9))) == [0, 1, 2, 3, 7, 8]
    unchecked = pictures_of(folder, found.names)
    assert sorted(unchecked.read(range(9))) == [0, 1, 2, 3, 4, 7, 8]


@pytest.mark.filterwarnings("ignore:Duplicate")
def test_equal_names_are_distinguished_by_content(pixels, tmp_path):
    path = tmp_path / "twice.zip"
    path.write_bytes(zip_of([("x.png", encode(image)) for image in pixels]))
    found = genpr.Evaluator(path, max_images=7, **OPTIONS).evidence(path).fake
    got = pictures_of(path, found.names, identities=found.identities).read([5, 2])
    whole = list(pictures_of(path, ["x.png"] * 9).read(range(9)).values())
    np.testing.assert_array_equal(whole, pixels)
    rows = [next(i for i, image in enumerate(pixels) if (image == got[row]).all()) for row in (2, 5)]
    assert rows == choose_rows(9, 7, 0)[[2, 5]].tolist()


def test_features_and_iterators_have_no_images(pixels, tmp_path, rng):
    features = rng.normal(size=(9, 4))
    np.save(tmp_path / "features.npy", features)
    tensor = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    for source in (features, torch.from_numpy(features), tmp_path / "features.npy", iter([tensor])):
        assert pictures_of(source, ["row 0"]) is None
    with pytest.raises(UsageError, match="does not exist"):
        pictures_of(tmp_path / "missing", ["0.png"])
