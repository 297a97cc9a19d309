"""Images side by side: equal latents are stated only if genpr sampled them, and files are checked to be the scored ones."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from genpr.checkpoints.sampler import Sampler
from genpr.errors import DataError, UsageError
from genpr.features.feature_set import FeatureSet
from genpr.report.compare_page import side_by_side
from genpr.report.page import thumbnail

SAME = "Each row shares one latent and the same noise."


def levels(latents, *, psi):
    """One gray level per image, by the first coordinate."""
    gray = (128 + 60 * psi * latents[:, :1].clamp(-2, 2)).to(torch.uint8)
    return gray[:, :, None, None].expand(-1, 3, 8, 8).contiguous()


def sampler(*, n=20, seed=0, latent_dim=4, **options):
    return Sampler.of(levels, n=n, seed=seed, latent_dim=latent_dim, **options)


def gray(data):
    return int(np.asarray(Image.open(io.BytesIO(data)))[..., 0].mean().round())


def test_rows_have_the_same_latents():
    drawn = sampler()
    gallery = side_by_side({"half": drawn.images(0.5), "whole": drawn.images(1.0)}, rows=3)
    assert (gallery.title, gallery.sentence) == ("The same latents", SAME)
    assert [name for name, _ in gallery.groups] == ["latent 0", "latent 1", "latent 2"]
    for row, (_, pictures) in enumerate(gallery.groups):
        assert [each.caption for each in pictures] == ["1 half", "2 whole"]
        for psi, picture in zip((0.5, 1.0), pictures, strict=True):
            level = int(levels(drawn.latents[row : row + 1], psi=psi)[0, 0, 0, 0])
            assert abs(gray(picture.data) - level) <= 2
    noisy = side_by_side({"a": drawn.images(0.5), "b": sampler(batch_size=5).images(0.5)}, rows=1)
    assert noisy.sentence == "Each row shares one latent, with different noise."


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"latent_dim": 5}, {"n": 21}, {"labels": list(range(20))}], ids=str
)
def test_different_latents_are_not_stated_as_the_same(other):
    def labeled(latents, *, psi, labels=None):
        return levels(latents, psi=psi)

    drawn = Sampler.of(labeled, **{"n": 20, "seed": 0, "latent_dim": 4} | other)
    gallery = side_by_side({"a": sampler().images(1.0), "b": drawn.images(1.0)}, rows=2)
    assert gallery.title == "Side by side"
    assert "not the same latent" in gallery.sentence


def test_files_have_no_stated_latents(write_images, rng):
    pixels = rng.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    folders = {"a": str(write_images("a", pixels)), "b": str(write_images("b", pixels[:7]))}
    gallery = side_by_side(folders, rows=3)
    assert gallery.title == "Side by side"
    assert "not recorded" in gallery.sentence
    # evenly over the seven names that both have
    assert [name for name, _ in gallery.groups] == ["00000.png", "00002.png", "00004.png"]
    assert [each.data for each in gallery.pictures[:2]] == [thumbnail(pixels[0])] * 2


def test_rows_that_are_not_readable_in_all_sources_are_left_out(write_images, rng):
    folder = write_images("a", rng.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8))
    (folder / "00002.png").write_bytes(b"no picture")
    gallery = side_by_side({"a": str(folder), "b": str(folder)}, rows=4)
    assert [name for name, _ in gallery.groups] == ["00000.png", "00001.png", "00003.png"]
    assert "1 of 4 rows are left out" in gallery.sentence


@pytest.mark.parametrize(
    ("other", "error", "code"),
    [
        (np.zeros((3, 5), np.float32), UsageError, "bad-samples"),
        (FeatureSet(torch.zeros(3, 5), source="fakes.npy"), UsageError, "bad-samples"),
        (iter([np.zeros((2, 8, 8, 3), np.uint8)]), UsageError, "bad-samples"),
        ("folder", DataError, "no-common-names"),
    ],
    ids=["features", "feature set", "iterator", "names"],
)
def test_sources_without_images_are_errors(other, error, code, write_images):
    if isinstance(other, str):
        other = str(write_images("other", np.zeros((3, 8, 8, 3), np.uint8)))
    with pytest.raises(error) as caught:
        side_by_side({"a": np.zeros((3, 8, 8, 3), np.uint8), "<b>": other})
    assert caught.value.code == code
