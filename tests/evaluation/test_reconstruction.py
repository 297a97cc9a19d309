"""Pairs of images and their reconstructions: who belongs to whom, what is refused, and the means."""

import shutil
import tarfile
import unicodedata
import zipfile

import numpy as np
import pytest
import torch
from lpips_state import lpips_state, replaced_lpips
from PIL import Image

import genpr
from genpr.errors import BadImagesError, DataError, UsageError, WeightsError
from genpr.evaluation.compare import compare
from genpr.evaluation.reconstruction import reconstruct_with
from genpr.evaluation.reconstruction_options import ReconstructOptions
from genpr.evaluation.result import result_of
from genpr.features.networks.lpips import LEAST_SIDE, PerceptualDistance
from genpr.features.weights import Weights

PIXELS = {"metrics": ["psnr", "ssim"], "device": "cpu"}


@pytest.fixture
def pairs(rng):
    """30 images with reconstructions, the later the worse, and the first identical."""
    real = rng.integers(100, 140, (30, 16, 20, 3), dtype=np.uint8)
    noise = rng.normal(size=real.shape) * np.arange(30)[:, None, None, None] / 4
    return real, np.clip(real + np.rint(noise), 0, 255).astype(np.uint8)


def save(folder, pixels, name="{:03d}.png", rows=None):
    for row in range(len(pixels)) if rows is None else rows:
        path = folder / name.format(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[row]).save(path, lossless=True)
    return folder


def psnrs(real, fake):
    with np.errstate(divide="ignore"):
        return 10 * np.log10(255**2 / ((real.astype(float) - fake) ** 2).mean((1, 2, 3)))


def measured(real, fake, **options):
    return reconstruct_with(real, fake, ReconstructOptions(**PIXELS | options))


def test_psnr_is_the_mean_over_pairs_that_differ(pairs):
    found = measured(*pairs)
    expected = psnrs(*pairs)
    finite = expected[np.isfinite(expected)]
    np.testing.assert_allclose(found.values["psnr"], expected, rtol=1e-13)
    metric = found.result.metrics["reconstruction.psnr"]
    assert metric.value == pytest.approx(finite.mean(), rel=1e-13)
    assert found.result.reconstruction.n_identical == np.isinf(expected).sum() > 0
    assert metric.n_counted == len(finite)
    half = 2.05 * finite.std(ddof=1) / np.sqrt(len(finite))  # Student's, which halves of pairs estimate
    assert (metric.value - metric.interval[0], metric.interval[1] - metric.value) == pytest.approx(
        (half, half), rel=0.2
    )
    assert measured(*(each[:9] for each in pairs)).result.metrics["reconstruction.psnr"].interval is None
    codes = {item.code for item in found.result.notices}
    assert "identical-pairs" in codes
    assert "unlike-pairs" not in codes


def test_no_value_where_all_pairs_are_identical(pairs):
    result = genpr.reconstruct(pairs[0], pairs[0], **PIXELS)
    assert result.undefined == ("reconstruction.psnr",)
    assert result["reconstruction.ssim"] == 1


def test_files_are_paired_by_name_whatever_their_order_and_suffix(tmp_path, pairs):
    real = save(tmp_path / "real", pairs[0], "class {0}/{0:03d}.png")
    fake = save(tmp_path / "fake", pairs[1], "class {0}/{0:03d}.webp")
    with tarfile.open(tmp_path / "fake.tar", "w") as tar:
        for path in sorted(fake.rglob("*.webp"), reverse=True):
            tar.add(path, path.relative_to(fake))
    names = sorted((str(path.relative_to(fake)) for path in fake.rglob("*.webp")), reverse=True)
    (fake / "list.txt").write_text("\n".join(names))
    with zipfile.ZipFile(tmp_path / "real.zip", "w") as file:
        for path in real.rglob("*.png"):
            file.write(path, path.relative_to(real))
    whole = measured(*pairs)
    by_name = {f"class {row}/{row:03d}": value for row, value in enumerate(whole.values["psnr"])}
    for sides in (
        (real, fake),
        (real, tmp_path / "fake.tar"),
        (tmp_path / "real.zip", fake),
        (real, fake / "list.txt"),
    ):
        found = measured(*sides, metrics=["psnr", "clip_i", "dino_i"], clip="pixels", dino="gabor")
        stems = [name[:-4] for name in found.sides[0].names]
        assert dict(zip(stems, found.values["psnr"], strict=True)) == by_name
        assert stems == [name[:-5] for name in found.sides[1].names]
        assert found.result.reconstruction.paired_by == "name"
        one = genpr.load_extractor("pixels", device="cpu")
        embedded = [genpr.embed(torch.from_numpy(each).permute(0, 3, 1, 2), one).double() for each in pairs]
        cosines = dict(zip(by_name, torch.cosine_similarity(*embedded).tolist(), strict=True))
        ours = dict(zip(stems, found.values["clip_i"], strict=True))
        assert ours == pytest.approx(cosines, abs=1e-12)


def test_a_hundred_names_without_partner_are_all_told(tmp_path):
    pixels = np.zeros((120, 2, 2, 3), np.uint8)
    real, fake = save(tmp_path / "real", pixels), save(tmp_path / "fake", pixels)
    for row in range(50):
        (fake / f"{row:03d}.png").rename(fake / f"x{row:03d}.png")
    shutil.copy(real / "119.png", real / "119.webp")
    with pytest.raises(BadImagesError) as refused:
        measured(real, fake)
    assert refused.value.code == "bad-pairs"
    told = {(bad.path, bad.code) for bad in refused.value.bad}
    assert told == {
        *((f"{x}{row:03d}.png", "no-partner") for row in range(50) for x in ("", "x")),
        *((f"119.{suffix}", "ambiguous-name") for suffix in ("png", "webp")),
    }


@pytest.mark.parametrize(
    ("cut", "kind", "code"),
    [
        (lambda fake: fake[1:], DataError, "pair-count"),
        (lambda fake: fake[:, 1:], BadImagesError, "bad-images"),
    ],
)
def test_arrays_need_equal_numbers_and_sizes(pairs, cut, kind, code):
    with pytest.raises(kind) as refused:
        genpr.reconstruct(pairs[0], cut(pairs[1]), **PIXELS)
    assert refused.value.code == code
    if kind is BadImagesError:
        assert [bad.path for bad in refused.value.bad] == [f"[{row}]" for row in range(30)]
        assert {bad.code for bad in refused.value.bad} == {"sizes-differ"}


def test_composed_and_decomposed_names_are_equal(tmp_path, pairs):
    real = save(tmp_path / "real", pairs[0], unicodedata.normalize("NFC", "é/ü{}.png"))
    fake = save(tmp_path / "fake", pairs[1], unicodedata.normalize("NFD", "é/ü{}.png"))
    assert measured(real, fake).result.reconstruction.n_pairs == 30


def test_what_has_no_pixels_or_names_only_on_one_side_is_refused(tmp_path, pairs):
    with pytest.raises(DataError) as refused:
        genpr.reconstruct(save(tmp_path / "real", pairs[0]), pairs[1], **PIXELS)
    assert refused.value.code == "pair-names"
    for sides, code in (((np.ones((5, 3)),) * 2, "needs-images"), ((iter([pairs[0]]), pairs[1]), "one-shot")):
        with pytest.raises(UsageError) as refused:
            genpr.reconstruct(*sides, **PIXELS)
        assert refused.value.code == code
    with pytest.raises(BadImagesError) as refused:
        genpr.reconstruct(pairs[0][:, :10], pairs[1][:, :10], **PIXELS)
    assert {bad.code for bad in refused.value.bad} == {"image-too-small"}
    small = genpr.reconstruct(pairs[0][:, :10], pairs[1][:, :10], metrics=["psnr"], device="cpu")
    assert small.reconstruction.n_pairs == 30


def test_an_order_that_is_off_by_one_is_noticed(pairs, rng):
    for shift in (1, -1):
        result = genpr.reconstruct(pairs[0], np.roll(pairs[1], shift, 0), **PIXELS)
        (found,) = (item for item in result.notices if item.code == "unlike-pairs")
        assert found.level == "warning"


def test_sizes_may_differ_between_pairs_and_batches_do_not_matter(tmp_path, pairs):
    real, fake = tmp_path / "real", tmp_path / "fake"
    for row, (a, b) in enumerate(zip(*pairs, strict=True)):
        side = 12 + row % 3
        save(real, [a[:side]], f"{row:03d}.png")
        save(fake, [b[:side]], f"{row:03d}.png")
    whole = measured(real, fake)
    np.testing.assert_array_equal(measured(real, fake, batch_size=2).values["ssim"], whole.values["ssim"])
    assert whole.values["psnr"][1] == pytest.approx(psnrs(pairs[0][1:2, :13], pairs[1][1:2, :13])[0])


def test_a_damaged_image_takes_its_partner_along(tmp_path, pairs):
    real, fake = save(tmp_path / "real", pairs[0]), save(tmp_path / "fake", pairs[1])
    (real / "003.png").write_bytes(b"")
    (fake / "007.png").write_bytes((fake / "007.png").read_bytes()[:60])
    save(fake, pairs[1][:, :15], rows=[11])
    with pytest.raises(BadImagesError) as refused:
        measured(real, fake)
    assert [(bad.path, bad.code) for bad in refused.value.bad] == [("003.png", "image-unreadable")]
    (real / "003.png").write_bytes((real / "000.png").read_bytes())
    with pytest.raises(BadImagesError) as refused:
        measured(real, fake)
    assert [bad.path for bad in refused.value.bad] == ["007.png", "011.png"]
    (real / "003.png").write_bytes(b"")
    options = {"metrics": ["psnr", "rfid", "clip_i"], "inception": "gabor", "clip": "pixels"}
    found = measured(real, fake, on_bad="skip", max_bad=0.1, **options)
    kept = np.delete(np.arange(30), [3, 7, 11])
    np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs)[kept], rtol=1e-13)
    alone = measured(*(each[kept] for each in pairs), **options)
    assert found.result["reconstruction.rfid"] == alone.result["reconstruction.rfid"]
    np.testing.assert_array_equal(found.values["clip_i"], alone.values["clip_i"])
    assert [len(side.skipped) for side in (found.result.real, found.result.fake)] == [1, 2]


def test_a_part_is_of_pairs(pairs):
    found = measured(*pairs, max_images=11, metrics=["psnr", "clip_i"], clip="pixels")
    rows = [int(name[1:-1]) for name in found.sides[1].names]
    assert len(rows) == 11
    np.testing.assert_allclose(found.values["psnr"], psnrs(*pairs)[rows], rtol=1e-13)


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
    comparison = compare(dict(zip("ab", results, strict=True)))
    contrast = comparison.contrast("b", "reconstruction.ssim")
    assert contrast.pairing == "paired"
    assert contrast.verdict == "distinguishable"


def test_lpips_with_weights_from_a_folder(tmp_path, pairs, monkeypatch):
    folder = replaced_lpips(tmp_path, monkeypatch)
    large = [np.kron(each[:4], np.ones((1, 3, 3, 1), np.uint8)) for each in pairs]
    options = {"metrics": ["lpips"], "lpips_net": "alex", "weights": folder}
    found = measured(*large, **options)
    weights = (Weights(tensors, "") for tensors in lpips_state("alex"))
    distance = PerceptualDistance("alex", *weights, torch.device("cpu"))
    images = [torch.from_numpy(each).permute(0, 3, 1, 2) for each in large]
    np.testing.assert_allclose(found.values["lpips"], distance(*images).numpy(), rtol=1e-5)
    assert found.result.metrics["reconstruction.lpips"].extractor == "lpips-alex"
    assert found.result.extractors["lpips-alex"].weights_sha256
    assert found.result.comparable
    with pytest.raises(BadImagesError):
        measured(*(each[:, :30] for each in large), **options)
    with pytest.raises(WeightsError) as missing:
        measured(*large, metrics=["lpips", "rfid"], lpips_net="alex", weights=folder / "lpips_v0.1_alex.pth")
    assert "alexnet-owt" in missing.value.path or "inception" in missing.value.path


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_the_least_side_is_the_smallest_that_the_network_takes(net):
    distance = PerceptualDistance(net, *(Weights(each, "") for each in lpips_state(net)), torch.device("cpu"))
    side = LEAST_SIDE[net]
    assert distance(*torch.zeros(2, 1, 3, side, side, dtype=torch.uint8)) == 0
    with pytest.raises(RuntimeError):
        distance(*torch.zeros(2, 1, 3, side - 1, 40, dtype=torch.uint8))


def test_missing_weights_are_told_before_any_image_is_read(tmp_path, pairs):
    real, fake = save(tmp_path / "real", pairs[0]), save(tmp_path / "fake", pairs[1])
    (real / "000.png").write_bytes(b"")
    for metrics in (None, ["lpips"], ["rfid"], ["clip_i"]):
        with pytest.raises(WeightsError) as refused:
            genpr.reconstruct(real, fake, **{} if metrics is None else {"metrics": metrics})
        assert refused.value.code == "weights-missing"
    for name, metrics in (
        ("vgg16-397923af.pth", "rfid"),
        ("lpips_v0.1_vgg.pth", "rfid"),
        ("x.pth", "psnr"),
        ("x.pth", "lpips"),
    ):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(UsageError) as unused:
            genpr.reconstruct(real, fake, metrics=[metrics], weights=tmp_path / name)
        assert unused.value.code == "weights-unused"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"metrics": ["mse"]}, "unknown-metric"),
        ({"metrics": []}, "unknown-metric"),
        ({"clip": "clap"}, "unknown-extractor"),
    ],
)
def test_impossible_options_are_refused(pairs, options, code):
    with pytest.raises(UsageError) as refused:
        genpr.reconstruct(*pairs, **options)
    assert refused.value.code == code
