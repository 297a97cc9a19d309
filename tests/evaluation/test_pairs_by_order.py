"""Pairs by the numbers in names, and the check whether one set starts at another image."""

import tarfile

import numpy as np
import pytest
import torch
from raising import raising
from scipy.linalg import sqrtm

import genpr
from genpr.errors import BadImagesError, DataError, UsageError, WeightsError
from genpr.evaluation.options import ReconstructOptions
from genpr.evaluation.reconstruction import pair_sources, reconstruct_with
from genpr.images.source import choose_rows

ORDER = {"metrics": ["psnr"], "device": "cpu", "pair": "order"}


@pytest.fixture
def pairs(rng):
    """12 images with noisy reconstructions."""
    real = rng.integers(0, 200, (12, 12, 14, 3), dtype=np.uint8)
    return real, real + rng.integers(0, 20, real.shape, dtype=np.uint8)


def psnrs(real, fake):
    return 10 * np.log10(255**2 / ((real.astype(float) - fake) ** 2).mean((1, 2, 3)))


def measured(real, fake, **options):
    return reconstruct_with(real, fake, ReconstructOptions(**ORDER | options))


def codes(found):
    return [each.code for each in found.result.notices]


def write(write_images, folder, images, form, start=0):
    """Images with the numbers from `start`, in a form such as "{}.png"; their folders may be part of it."""
    path = None
    for number, image in enumerate(images, start):
        head, _, name = f"{folder}/{form.format(number)}".rpartition("/")
        path = write_images(head, {0: image}, name.replace("{", "{{"))
    return path


@pytest.mark.parametrize("form", ["{}.png", "{:06d}.png", "256_recon{}.png", "{}-recon.png"])
def test_validation_images_against_numbered_reconstructions(form, write_images, pairs, tmp_path):
    """bytetriper/RAE#11: ILSVRC2012_val_00000001.JPEG and those after it, against 0.png to 11.png of a sampling script."""
    write(write_images, "val", pairs[0], "ILSVRC2012_val_{:08d}.png", start=1)
    write(write_images, "recon", pairs[1], form)
    found = measured(tmp_path / "val", tmp_path / "recon")
    np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs), rtol=1e-13)
    assert found.result.reconstruction.paired_by == "order"
    assert "mismatched-pairs" not in codes(found)
    assert found.sources[0].names[9:11] == ("ILSVRC2012_val_00000010.png", "ILSVRC2012_val_00000011.png")
    with raising(BadImagesError, "bad-pairs"):
        measured(tmp_path / "val", tmp_path / "recon", pair="name")


class QuarterMeans:
    """Means of the channels in the four quarters of an image."""

    name, dim = "quarter-means", 12

    def __call__(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float(), 2).flatten(1)


def test_rfid_against_validation_images_of_any_size(write_images, rng, tmp_path):
    """bytetriper/RAE#11: rFID of numbered reconstructions against center crops of the validation set."""
    real = rng.integers(20, 220, (40, 16, 24, 3), dtype=np.uint8)
    crops = real[:, :, 4:20]
    fake = (crops + rng.integers(-9, 20, crops.shape)).astype(np.uint8)
    write(write_images, "val", real, "ILSVRC2012_val_{:08d}.png", start=1)
    write(write_images, "recon", fake, "{}.png")
    options = {"metrics": ["rfid", "psnr"], "inception": QuarterMeans(), "prepare": "center-crop:16"}
    found = measured(tmp_path / "val", tmp_path / "recon", **options)
    features = [
        each.astype(float).reshape(40, 2, 8, 2, 8, 3).mean((2, 4)).reshape(40, 12) for each in (crops, fake)
    ]
    shift = np.subtract(*(each.mean(axis=0) for each in features))
    covariances = [np.cov(each, rowvar=False) for each in features]
    root = sqrtm(covariances[0] @ covariances[1]).real
    expected = shift @ shift + np.trace(sum(covariances) - 2 * root)
    assert found.result["reconstruction.rfid"] == pytest.approx(expected, rel=1e-6)
    assert found.result["reconstruction.psnr"] == pytest.approx(psnrs(crops, fake).mean())


def test_validation_images_in_folders_by_class_are_in_the_order_of_an_image_folder(
    write_images, pairs, tmp_path
):
    """openai/guided-diffusion#161: images in folders by class, and reconstructions with the index of a loader as their name."""
    for row, image in enumerate(pairs[0]):
        number = (7 * row) % 12 + 1  # numbers of one class are apart
        write_images(f"val/n{row // 4:08d}", {0: image}, f"ILSVRC2012_val_{number:08d}.png")
    order = sorted(range(12), key=lambda row: (row // 4, (7 * row) % 12))
    write(write_images, "recon", pairs[1][order], "{:06d}.png")
    found = measured(tmp_path / "val", tmp_path / "recon")
    np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs)[order], rtol=1e-13)
    assert not {"mismatched-pairs", "name-order"} & {*codes(found)}


def test_archives_and_arrays_are_paired_with_folders(write_images, pairs, tmp_path):
    """An .npz of samples has no names: its order is that of the numbers."""
    write(write_images, "val", pairs[0], "{}.png", start=1)
    write(write_images, "recon", pairs[1], "{}.png", start=0)
    with tarfile.open(tmp_path / "recon.tar", "w") as tar:
        for number in (10, 2, 11, 0, 1, 3, 4, 5, 6, 7, 9, 8):
            tar.add(tmp_path / "recon" / f"{number}.png", f"{number}.png")
    np.savez(tmp_path / "recon.npz", arr_0=pairs[1])
    for source in (tmp_path / "recon.tar", tmp_path / "recon.npz", pairs[1]):
        found = measured(tmp_path / "val", source)
        np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs), rtol=1e-13)
        assert "mismatched-pairs" not in codes(found)
    with raising(DataError, "pair-names"):
        measured(tmp_path / "val", pairs[1], pair="name")


def test_subset_is_of_pairs_in_numeric_order(write_images, pairs, tmp_path):
    for folder, images in zip(("val", "recon"), pairs, strict=True):
        write(write_images, folder, images, "{}.png")
    found = measured(tmp_path / "val", tmp_path / "recon", max_images=5)
    rows = [int(name[:-4]) for name in found.sources[0].names]
    assert rows == sorted(rows)
    assert found.sources[1].names == found.sources[0].names
    np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs)[rows], rtol=1e-13)
    assert "mismatched-pairs" not in codes(found)


@pytest.mark.parametrize(
    ("files", "code", "bad"),
    [
        (["0.png", "1.png", "cat.png"], "no-number", {"cat.png"}),
        (["a.png", "b.png", "c.png"], "no-number", {"a.png", "b.png", "c.png"}),
        (["0.png", "1.png", "01.png"], "repeated-number", {"1.png", "01.png"}),
        (["img_0.png", "img_1.png", "mask_2.png"], "other-series", {"mask_2.png"}),
        (["0.png", "1.png", "1_cropped.png"], "other-series", {"1_cropped.png"}),
    ],
)
def test_names_without_a_place_in_numeric_order_are_an_error(files, code, bad, write_images, pairs, tmp_path):
    for name, image in zip(files, pairs[0], strict=False):
        write_images("val", {0: image}, name)
    for sides in ((tmp_path / "val", pairs[1][:3]), (pairs[1][:3], tmp_path / "val")):
        with pytest.raises(BadImagesError) as refused:
            measured(*sides)
        assert refused.value.code == "bad-pairs"
        assert {each.path for each in refused.value.bad} == bad
        assert {each.code for each in refused.value.bad} == {code}


def test_one_number_may_be_in_several_folders_and_have_any_length(write_images, pairs, tmp_path):
    long = "9" * 200  # longer than any integer of 64 bits
    for folder, images in zip(("val", "recon"), pairs, strict=True):
        write_images(f"{folder}/0", {0: images[0]}, f"{long}0.png")
        write_images(f"{folder}/0", {0: images[1]}, "8.png")
        write_images(f"{folder}/1", {0: images[2]}, "8.png")
    found = measured(tmp_path / "val", tmp_path / "recon")
    assert found.sources[0].names == ("0/8.png", f"0/{long}0.png", "1/8.png")
    np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs)[[1, 0, 2]], rtol=1e-13)


def test_numbers_beyond_the_limit_of_integers():
    """A list of names may have any length: 5,000 digits are more than `int` takes."""

    class Names:
        name, is_in_files = "names", True

        def __init__(self, names):
            self._names = names

        def __len__(self):
            return len(self._names)

        def names(self):
            return iter(self._names)

    long = Names(["1" + "0" * 5000 + ".png", "9" * 5000 + ".png"])
    real, _, paired_by = pair_sources(long, long, "order")
    assert (list(real.rows), paired_by) == ([1, 0], "order")


@pytest.mark.parametrize("sizes", [(12, 11), (11, 12)])
def test_different_numbers_of_images_are_an_error(sizes, write_images, pairs, tmp_path):
    for folder, images, size in zip(("val", "recon"), pairs, sizes, strict=True):
        write(write_images, folder, images[:size], "{}.png")
    with raising(DataError, "pair-count"):
        measured(tmp_path / "val", tmp_path / "recon")


def test_unknown_way_of_pairing_is_an_error(pairs):
    with raising(UsageError, "bad-option"):
        genpr.reconstruct(*pairs, pair="number")


def shift_in(found):
    return [
        each.message
        for each in found.result.notices
        if each.code == "mismatched-pairs" and "offset" in each.message
    ]


@pytest.mark.parametrize("shift", [1, -1])
@pytest.mark.parametrize("options", [{}, {"max_images": 6}])
def test_set_that_starts_at_another_image_is_reported_with_both_errors(
    shift, options, rng, tmp_path, write_images
):
    """As where a script counts from 1, or leaves out the first image; frames of a video are like their neighbors."""
    frames = 100 + np.cumsum(rng.normal(0, 3, (40, 12, 14, 3)), axis=0)
    frames = frames.clip(0, 240).astype(np.uint8)
    noisy = frames + rng.integers(0, 3, frames.shape, dtype=np.uint8)
    real, fake = (frames[1:], noisy[:-1]) if shift > 0 else (frames[:-1], noisy[1:])
    write(write_images, "val", real, "{}.png")
    write(write_images, "recon", fake, "{}.png")
    (message,) = shift_in(measured(tmp_path / "val", tmp_path / "recon", **options))
    assert f"offset {shift:+}" in message
    numbers = [
        float(word.strip(",;")) for word in message.split() if word.strip(",;").replace(".", "", 1).isdigit()
    ]
    # The first, the last and 24 random rows, each with the next one: all rows whose next one is read.
    chosen = {0, 37, *choose_rows(38, 24, ReconstructOptions().seed).tolist()}
    near = chosen | {row + 1 for row in chosen}
    assert numbers[0] == sum(row + 1 in near for row in near)
    right = ((frames.astype(float) - noisy) ** 2).mean()
    wrong = ((real.astype(float) - fake) ** 2).mean()
    assert numbers[1] == pytest.approx(right, rel=0.1)
    assert numbers[2] == pytest.approx(wrong, rel=0.2)


def test_right_pairs_and_unrelated_images_have_no_better_offset(rng):
    frames = (100 + np.cumsum(rng.normal(0, 3, (40, 12, 14, 3)), axis=0)).clip(0, 240).astype(np.uint8)
    assert not shift_in(measured(frames, frames + rng.integers(0, 3, frames.shape, dtype=np.uint8)))
    for _ in range(20):
        real, fake = rng.integers(0, 255, (2, 30, 8, 8, 3), dtype=np.uint8)
        assert not shift_in(measured(real, fake))
    one = frames[:1]
    assert not shift_in(measured(one, one))


def test_images_of_other_sizes_and_damaged_ones_take_no_part_in_the_check(write_images, pairs, tmp_path):
    for folder, images in zip(("val", "recon"), pairs, strict=True):
        write(write_images, folder, [image[: 12 - row % 2] for row, image in enumerate(images)], "{}.png")
    assert not shift_in(measured(tmp_path / "val", tmp_path / "recon"))
    (tmp_path / "recon" / "0.png").write_bytes(b"none")
    found = measured(tmp_path / "val", tmp_path / "recon", on_bad="skip", max_bad=0.2)
    assert len(found.values["psnr"]) == 11


def test_weights_are_missing_before_any_image_is_read(pairs):
    """The check of the order reads images, too."""

    class Images:
        def __len__(self):
            return len(pairs[0])

        def __getitem__(self, row):
            assert row == 0, "an image was read after the first, which shows whether this is a data set"
            return pairs[0][row]

    with raising(WeightsError, "weights-missing"):
        genpr.reconstruct(Images(), Images(), pair="order", metrics=["lpips"])
