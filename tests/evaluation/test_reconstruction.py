"""Pairs of images and their reconstructions: pairing, errors and values."""

import shutil
import tarfile
import unicodedata
import zipfile

import numpy as np
import pytest
import torch
from image_files import encode
from lpips_state import lpips_state, replaced_lpips
from raising import raising

import genpr
from genpr.errors import BadImagesError, DataError, UsageError, WeightsError
from genpr.evaluation.compare import compare
from genpr.evaluation.options import ReconstructOptions
from genpr.evaluation.reconstruction import pair_sources, reconstruct_with
from genpr.evaluation.result import result_of
from genpr.features.networks.lpips import MIN_SIDE, PerceptualDistance
from genpr.features.weights import Weights
from genpr.images.source import open_source

PIXELS = {"metrics": ["psnr", "reconstruction.ssim"], "device": "cpu"}


@pytest.fixture
def pairs(rng):
    """30 images with reconstructions of decreasing quality, the first of which is identical."""
    real = rng.integers(100, 140, (30, 16, 20, 3), dtype=np.uint8)
    noise = rng.normal(size=real.shape) * np.arange(30)[:, None, None, None] / 4
    return real, np.clip(real + np.rint(noise), 0, 255).astype(np.uint8)


@pytest.fixture
def folders(write_images, pairs):
    return [write_images(*each, "{:03d}.png") for each in zip(("real", "fake"), pairs, strict=True)]


def psnrs(real, fake):
    with np.errstate(divide="ignore"):
        return 10 * np.log10(255**2 / ((real.astype(float) - fake) ** 2).mean((1, 2, 3)))


def measured(real, fake, **options):
    return reconstruct_with(real, fake, ReconstructOptions(**PIXELS | options))


def bad_in(real, fake, **options):
    """Code of the error, and paths and codes of the images that it names."""
    with pytest.raises(BadImagesError) as refused:
        measured(real, fake, **options)
    return refused.value.code, {(bad.path, bad.code) for bad in refused.value.bad}


def test_psnr_is_the_mean_over_pairs_that_differ(pairs):
    found, expected = measured(*pairs), psnrs(*pairs)
    finite = expected[np.isfinite(expected)]
    np.testing.assert_allclose(found.values["psnr"], expected, rtol=1e-13)
    metric = found.result.metrics["reconstruction.psnr"]
    assert metric.value == pytest.approx(finite.mean(), rel=1e-13)
    assert metric.n_counted == len(finite)
    assert found.result.reconstruction.n_identical == np.isinf(expected).sum() > 0
    half = 2.05 * finite.std(ddof=1) / np.sqrt(len(finite))  # Student's interval, which halves estimate
    assert np.subtract(metric.interval, metric.value) == pytest.approx([-half, half], rel=0.2)
    codes = {item.code for item in found.result.notices}
    assert "identical-pairs" in codes
    assert "mismatched-pairs" not in codes
    few = measured(*(each[:9] for each in pairs), batch_size=2)
    np.testing.assert_array_equal(few.values["psnr"], found.values["psnr"][:9])
    assert few.result.metrics["reconstruction.psnr"].interval is None


def test_an_interval_stays_within_the_bounds_of_its_metric():
    black = np.zeros((12, 16, 16, 3), np.uint8)
    white = np.where(np.arange(12)[:, None, None, None] == 0, np.uint8(1), ~black)
    low, high = genpr.reconstruct(black, white, **PIXELS).metrics["reconstruction.psnr"].interval
    assert low == 0 < high


def test_no_value_if_all_pairs_are_identical(pairs):
    result = genpr.reconstruct(pairs[0], pairs[0], **PIXELS)
    assert result.undefined == ("reconstruction.psnr",)
    assert result["reconstruction.ssim"] == 1
    same = genpr.reconstruct(*(each[:1].repeat(9, 0) for each in pairs), **PIXELS)
    assert [item.code for item in same.notices] == ["identical-pairs"]


def test_files_are_paired_by_name_regardless_of_order_and_suffix(tmp_path, pairs, write_images):
    # macOS decomposes characters, and other systems do not.
    real = write_images("real", pairs[0], "cläss {0}/{0:03d}.png")
    decomposed = unicodedata.normalize("NFD", "cläss {0}/{0:03d}.webp")
    fake = write_images("fake", pairs[1], decomposed)
    names = sorted((str(path.relative_to(fake)) for path in fake.rglob("*.webp")), reverse=True)
    with tarfile.open(tmp_path / "fake.tar", "w") as tar:
        for name in names:
            tar.add(fake / name, name)
    (fake / "list.txt").write_text("\n".join(names))
    with zipfile.ZipFile(tmp_path / "real.zip", "w") as file:
        for path in real.rglob("*.png"):
            file.write(path, path.relative_to(real))
    options = {"metrics": ["psnr", "clip_i", "dino_i"], "clip": "pixels", "dino": "gabor"}
    whole = measured(*pairs, **options)
    one = genpr.load_extractor("pixels", device="cpu")
    embedded = [genpr.embed(torch.from_numpy(each).permute(0, 3, 1, 2), one).double() for each in pairs]
    cosines = torch.cosine_similarity(*embedded).numpy()
    np.testing.assert_allclose(whole.values["clip_i"], cosines, rtol=0, atol=1e-12)
    zipped = tmp_path / "real.zip"
    for sides in ((real, fake), (real, tmp_path / "fake.tar"), (zipped, fake), (real, fake / "list.txt")):
        found = measured(*sides, **options)
        rows = [int(name[-7:-4]) for name in found.sources[0].names]
        assert rows == [int(name[-8:-5]) for name in found.sources[1].names]
        assert found.result.reconstruction.paired_by == "name"
        parts = pair_sources(*map(open_source, map(str, sides)))[:2]
        assert [list(part.names()) for part in parts] == [[item.name for item in part] for part in parts]
        for name, values in whole.values.items():
            np.testing.assert_array_equal(found.values[name], values[rows], name)


def test_names_without_a_partner_are_listed(write_images):
    pixels = np.zeros((120, 2, 2, 3), np.uint8)
    real, fake = write_images("real", pixels, "{:03d}.png"), write_images("fake", pixels[:50], "x{:03d}.png")
    write_images("fake", {row: pixels[row] for row in range(50, 120)}, "{:03d}.png")
    shutil.copy(real / "119.png", real / "119.webp")
    assert bad_in(real, fake) == (
        "bad-pairs",
        {
            *((f"{x}{row:03d}.png", "no-partner") for row in range(50) for x in ("", "x")),
            *((f"119.{suffix}", "ambiguous-name") for suffix in ("png", "webp")),
        },
    )


def test_images_that_cannot_be_compared_are_errors(pairs, folders):
    real, fake = pairs
    for sides in ((real, fake[1:]), (real[1:], fake)):
        with raising(DataError, "pair-count"):
            genpr.reconstruct(*sides, **PIXELS)
    with raising(DataError, "too-few-images"):
        genpr.reconstruct(real[:1], fake[:1], metrics=["rfid"], inception="gabor", device="cpu")
    with raising(DataError, "pair-names"):
        genpr.reconstruct(folders[0], fake, **PIXELS)
    for sides, code in (((np.ones((5, 3)),) * 2, "needs-images"), ((iter([real]), fake), "one-shot")):
        with raising(UsageError, code):
            genpr.reconstruct(*sides, **PIXELS)
    names = [f"[{row}]" for row in range(30)]
    for sides in ((real, fake[:, 1:]), (real[:, 1:], fake), (real, fake[:, :, 1:])):
        assert bad_in(*sides) == ("bad-images", {(name, "sizes-differ") for name in names})
    prepared = measured(real, fake[:, 1:], prepare="center-crop:12").result
    assert (prepared.reconstruction.n_pairs, prepared.fake.decoder["prepare"]) == (30, "center-crop:12")
    small = [each[:, :10] for each in pairs]
    assert bad_in(*small) == ("bad-images", {(name, "image-too-small") for name in names})
    for least, metrics in ((10, ["psnr"]), (11, ["ssim"])):
        found = measured(*(each[:, :least] for each in pairs), metrics=metrics)
        assert found.result.reconstruction.n_pairs == 30


def test_pair_with_an_unusable_image_is_left_out(pairs, folders, write_images):
    real, fake = folders
    (fake / "007.png").write_bytes((fake / "007.png").read_bytes()[:60])
    write_images("fake", {11: pairs[1][11, 1:]}, "{:03d}.png")
    assert bad_in(real, fake)[1] == {("007.png", "image-corrupt"), ("011.png", "sizes-differ")}
    (real / "003.png").write_bytes(b"")
    options = {"metrics": ["psnr", "rfid", "clip_i"], "inception": "gabor", "clip": "pixels"}
    found = measured(real, fake, on_bad="skip", max_bad=0.1, **options)
    kept = np.delete(np.arange(30), [3, 7, 11])
    np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs)[kept], rtol=1e-13)
    alone = measured(*(each[kept] for each in pairs), **options)
    assert found.result["reconstruction.rfid"] == alone.result["reconstruction.rfid"]
    np.testing.assert_array_equal(found.values["clip_i"], alone.values["clip_i"])
    assert [len(side.skipped) for side in (found.result.real, found.result.fake)] == [1, 2]


@pytest.mark.parametrize("shift", [1, -1])
def test_order_that_is_off_by_one_is_reported(pairs, shift):
    options = {"metrics": "psnr", "device": "cpu"}
    sides = pairs[0], np.roll(pairs[1], shift, 0)
    whole, *parts = (genpr.reconstruct(*sides, batch_size=size, **options).notices for size in (64, 7, 1))
    assert {item.level for item in whole if item.code == "mismatched-pairs"} == {"warning"}
    assert parts == [whole, whole]


def test_sizes_may_differ_between_pairs_and_batch_size_changes_nothing(write_images, pairs):
    cut = [[image[: 12 + row // 7 % 3] for row, image in enumerate(each)] for each in pairs]
    sides = [write_images(*each) for each in zip(("real", "fake"), cut, strict=True)]
    whole, small = (measured(*sides, batch_size=size) for size in (64, 2))
    expected = [psnrs(real[None], fake[None])[0] for real, fake in zip(*cut, strict=True)]
    for found in (whole, small):
        np.testing.assert_allclose(found.values["psnr"], expected, rtol=1e-13)
        np.testing.assert_array_equal(found.values["ssim"], whole.values["ssim"])


def test_subset_is_of_pairs(pairs):
    found = measured(*pairs, max_images=11, metrics=["psnr", "clip_i"], clip="pixels")
    rows = [int(name[1:-1]) for name in found.sources[1].names]
    assert len(rows) == 11
    np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs)[rows], rtol=1e-13)
    whole = measured(*pairs, metrics=["clip_i"], clip="pixels")
    np.testing.assert_array_equal(found.values["clip_i"], whole.values["clip_i"][rows])


def test_rfid_is_the_frechet_distance_of_all_pairs(pairs):
    result = genpr.reconstruct(*pairs, metrics=["rfid"], inception="gabor", device="cpu")
    score = genpr.score(*pairs, metrics=["fd"], extractor="gabor", device="cpu", control=False)
    assert result["reconstruction.rfid"] == score["fd"]
    assert result.metrics["reconstruction.rfid"].interval is None
    assert result.metrics["reconstruction.rfid"].extractor == "gabor"
    assert "small-sample" in {item.code for item in result.notices}


def test_results_are_records_and_compare_on_the_same_pairs(pairs, rng):
    worse = np.clip(pairs[1] + rng.normal(0, 9, pairs[1].shape), 0, 255).astype(np.uint8)
    results = [genpr.reconstruct(pairs[0], fake, **PIXELS) for fake in (pairs[1], worse)]
    assert result_of(results[0].to_dict()) == results[0]
    contrast = compare(dict(zip("ab", results, strict=True))).contrast("b", "reconstruction.ssim")
    assert (contrast.pairing, contrast.verdict) == ("paired", "distinguishable")


def distance_of(net):
    return PerceptualDistance(net, *(Weights(each, "") for each in lpips_state(net)), torch.device("cpu"))


def test_lpips_with_weights_from_a_folder_or_file(tmp_path, pairs, monkeypatch):
    folder = replaced_lpips(tmp_path, monkeypatch)
    large = [np.kron(each[:4], np.ones((1, 3, 3, 1), np.uint8)) for each in pairs]
    options = {"metrics": ["lpips"], "lpips_net": "alex", "weights": folder}
    found = measured(*large, **options)
    images = [torch.from_numpy(each).permute(0, 3, 1, 2) for each in large]
    np.testing.assert_allclose(found.values["lpips"], distance_of("alex")(*images).numpy(), rtol=1e-5)
    assert found.result.metrics["reconstruction.lpips"].extractor == "lpips-alex"
    assert found.result.extractors["lpips-alex"].weights_sha256
    assert found.result.comparable
    assert bad_in(*(each[:, :30] for each in large), **options)[0] == "bad-images"
    # A file of LPIPS is not taken for that of another network.
    monkeypatch.setenv("GENPR_CACHE", str(tmp_path))
    options["weights"] = folder / "lpips_v0.1_alex.pth"
    (tmp_path / "weights").mkdir()
    shutil.move(folder / "alexnet-owt-7be5be79.pth", tmp_path / "weights")
    again = measured(*large, **options | {"metrics": ["lpips", "clip_i"], "clip": "pixels"})
    np.testing.assert_array_equal(again.values["lpips"], found.values["lpips"])
    with raising(WeightsError, "weights-missing"):
        measured(*large, **options | {"metrics": ["lpips", "rfid"]})


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_minimum_side_is_the_smallest_that_the_network_accepts(net):
    distance, side = distance_of(net), MIN_SIDE[net]
    assert distance(*torch.zeros(2, 1, 3, side, side, dtype=torch.uint8)) == 0
    with pytest.raises(RuntimeError):
        distance(*torch.zeros(2, 1, 3, side - 1, 40, dtype=torch.uint8))


@pytest.mark.parametrize("metrics", [None, ["lpips"], ["rfid"], ["clip_i"]])
def test_missing_weights_are_reported_before_any_image_is_read(folders, metrics):
    (folders[0] / "000.png").write_bytes(b"")
    with raising(WeightsError, "weights-missing"):
        genpr.reconstruct(*folders, metrics=metrics)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"metrics": []}, "unknown-metric"),
        ({"metrics": 1}, "unknown-metric"),
        ({"lpips_net": "squeeze"}, "bad-option"),
        ({"clip": "clap"}, "unknown-extractor"),
        ({"metrics": ["rfid"], "weights": "vgg16-397923af.pth"}, "weights-unused"),
        ({"metrics": ["rfid"], "weights": "lpips_v0.1_vgg.pth"}, "weights-unused"),
        ({"metrics": ["psnr"], "weights": __file__}, "weights-unused"),
        ({"metrics": ["lpips"], "weights": __file__}, "weights-unused"),
    ],
)
def test_invalid_options_are_errors(pairs, options, code):
    with raising(UsageError, code):
        genpr.reconstruct(*pairs, **options)


@pytest.mark.parametrize("padded", [False, True])
def test_tables_in_another_order_than_their_numbers_are_a_warning(tmp_path, pairs, padded):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    numbers = [f"{part:03}" if padded else str(part) for part in range(12)]
    for folder, names in (("a", [f"{part:03}" for part in range(12)]), ("b", numbers)):
        (tmp_path / folder).mkdir()
        for part, name in enumerate(names):
            rows = [{"bytes": encode(pairs[0][part])}, {"bytes": encode(pairs[1][part])}]
            parquet.write_table(table({"image": rows}), tmp_path / folder / f"{name}.parquet")
    found = genpr.reconstruct(
        f"{tmp_path}/a/*.parquet", f"{tmp_path}/b/*.parquet", metrics=["psnr"], device="cpu"
    )
    assert found.reconstruction.paired_by == "order"
    assert [item.code for item in found.notices].count("name-order") == (not padded)
