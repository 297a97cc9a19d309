"""From sources to results: real images, roles of real and fake, and records."""

import contextlib
import gc
import shutil
import threading
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
from feature_files import save
from raising import raised, raising

import genpr
from genpr.checkpoints.rank import criterion_of
from genpr.errors import DataError, FeatureError, UsageError, WeightsError
from genpr.metrics.registry import METRICS


def scored(real, fake, **options):
    return genpr.score(real, fake, extractor="pixels", device="cpu", **options)


def codes(result):
    return {item.code for item in result.notices}


# Real images ------------------------------------------------------------------------------------------------


def test_halves_of_real_digits_agree_and_a_missing_digit_reduces_recall_only(digits):
    pixels, labels = (each[:400] for each in digits)
    features = genpr.embed(pixels[..., None].repeat(3, axis=3), genpr.load_extractor("gabor", device="cpu"))
    odd = np.arange(len(pixels)) % 2 == 1
    sets = {"odd": features[odd], "even": features[~odd], "even without 4": features[~odd & (labels != 4)]}
    pairs = [("odd", "even"), ("odd", "even without 4"), ("even without 4", "odd")]
    options = {"control": False, "intervals": False, "device": "cpu"}
    whole, without, swapped = (genpr.score(*map(sets.get, pair), **options) for pair in pairs)
    assert min(whole["precision"], whole["recall"], whole["coverage"]) > 0.85
    assert whole["density"] == pytest.approx(1, abs=0.2)
    assert without["recall"] < whole["recall"] - 0.04
    assert without["precision"] > whole["precision"] - 0.02
    assert without["coverage"] < whole["coverage"] - 0.04
    assert swapped["precision"] == without["recall"], "swapping the sets swaps the scores, to the last count"
    assert swapped["recall"] == without["precision"]


# One evaluator, many fakes ----------------------------------------------------------------------------------


def test_evaluator_equals_score_and_embeds_reals_once(write_images, rng):
    real = write_images("real", rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8))
    fakes = [write_images(f"fake{i}", rng.integers(0, 200, (20, 8, 8, 3), dtype=np.uint8)) for i in range(2)]
    stages = []
    evaluator = genpr.Evaluator(
        real, extractor="pixels", device="cpu", cache=False, progress=lambda stage, *_: stages.append(stage)
    )
    results = [evaluator.score(fake) for fake in fakes]
    assert [stage for stage, _ in groupby(stages)] == ["real", "neighbors"] + ["fake", "neighbors"] * 2
    assert stages.count("real") == 30
    assert stages.count("fake") == 40
    for fake, result in zip(fakes, results, strict=True):
        assert scored(real, fake, cache=False).to_flat_dict() == result.to_flat_dict()


def test_weights_that_change_after_embedding_the_reals_are_an_error(rng):
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, 4))
    network.dim, network.prepare = 4, lambda image: image.float()
    images = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    evaluator = genpr.Evaluator(images, extractor=network, device="cpu", control=False, intervals=False)
    evaluator.score(images)
    with torch.no_grad():
        network[2].bias += 1
    with raising(FeatureError, "other-extractor"):
        evaluator.score(images)


# Sources ----------------------------------------------------------------------------------------------------


def test_all_kinds_of_sources_give_the_same_score(write_images, tmp_path, rng):
    pixels = rng.integers(0, 256, (2, 25, 8, 8, 3), dtype=np.uint8)
    real, fake = write_images("real", pixels[0]), write_images("fake", pixels[1])
    quick = {"control": False, "intervals": False}
    expected = scored(real, fake, **quick).to_flat_dict()
    shutil.make_archive(str(tmp_path / "fake"), "zip", fake)
    shutil.make_archive(str(tmp_path / "fake"), "tar", fake)
    np.savez(tmp_path / "fake.npz", arr_0=pixels[1])
    np.savez_compressed(tmp_path / "fake2.npz", arr_0=pixels[1])
    tensor = torch.from_numpy(pixels[1]).permute(0, 3, 1, 2)
    sources = [
        *(tmp_path / name for name in ("fake.zip", "fake.tar", "fake.npz", "fake2.npz")),
        pixels[1],
        tensor,
        (part for part in tensor.split(7)),
        str(fake),
    ]
    for source in sources:
        assert scored(real, source, **quick).to_flat_dict() == expected, source


def test_features_of_another_extractor_are_an_error(tmp_path):
    features, key = torch.randn(20, 4), {"cache_key": "1" * 64}
    a = save(tmp_path / "a.safetensors", features, **key)
    for changed in (
        {"name": "inception", "cache_key": None},
        {"weights_sha256": "ab" * 32, "cache_key": None},
        {"resize": "other", "cache_key": None},
        {"cache_key": "2" * 64},
    ):
        b = save(tmp_path / "b.safetensors", features, **changed)
        with raising(FeatureError, "other-extractor"):
            genpr.score(a, b)
    with raising(FeatureError, "other-extractor"):
        genpr.score(save(tmp_path / "c.safetensors", features, name="my.py:net"), a, extractor="gabor")
    assert "unlabeled-features" not in codes(genpr.score(a, a))


@pytest.mark.parametrize("reverse", [False, True])
def test_features_against_images_are_an_error_before_anything_is_embedded(write_images, rng, reverse):
    images = write_images("a", rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8))
    pair, stages = (images, rng.normal(size=(20, 4))), []
    with raising(FeatureError, "features-against-images"):
        scored(*pair[:: -1 if reverse else 1], progress=lambda *args: stages.append(args))
    assert not stages


@pytest.mark.parametrize("kind", ["file", "array", "tensor"])
def test_gray_images_without_channels_are_images_and_not_features(tmp_path, kind, rng):
    images = rng.integers(0, 256, (60, 28, 28), dtype=np.uint8)
    np.save(tmp_path / "gray.npy", images)
    source = {"file": tmp_path / "gray.npy", "array": images, "tensor": torch.from_numpy(images)}[kind]
    color = np.repeat(images[..., None], 3, axis=3)
    options = {"extractor": "pixels", "control": False, "intervals": False, "k": 3}
    found, expected = (genpr.score(each[:30], each[30:], **options) for each in (images, color))
    assert found.metrics == expected.metrics
    assert genpr.score(source, source, **options).real.n == 60


def test_missing_weights_of_fakes_are_reported_before_any_real_is_read(write_images, rng):
    real, fake = (write_images(name, rng.integers(0, 256, (10, 8, 8, 3), dtype=np.uint8)) for name in "rf")
    next(Path(real).iterdir()).write_bytes(b"")
    with raising(WeightsError, "weights-missing"):
        genpr.score(real, fake, extractor="gabor", metrics=["precision", "is"], control=False)


def test_too_few_images_are_an_error_before_embedding(write_images, rng):
    stages = []
    few, folder, more = (
        write_images(str(n), rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)) for n in (3, 5, 6)
    )
    reals, fakes = r"real \(.*\) has 5 images, but at least 6", r"fake \(.*\) has 3 images, but at least 4"
    for sides, text in (((folder, few), reals), ((more, few), fakes)):
        with raising(DataError, "too-few-images", text):
            scored(*sides, progress=lambda *args: stages.append(args))
    assert not stages
    assert scored(folder, folder, k=4)["precision"] == 1, "n = k + 1 is enough"


# Options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code"),
    [
        *(({"metrics": names}, "unknown-metric") for names in (["presicion"], [])),
        *(({"k": 0}, "bad-k"), ({"ties": "open"}, "bad-ties"), ({"protocol": "magic"}, "unknown-protocol")),
        *(({"device": "abacus"}, "unknown-device"), ({"max_pixels": 0}, "bad-option")),
    ],
)
def test_invalid_options_are_errors(rng, options, code):
    with raising(UsageError, code):
        genpr.score(rng.normal(size=(20, 4)), rng.normal(size=(20, 4)), **options)


@pytest.mark.parametrize(
    ("name", "called"),
    [
        *(
            ("mifid", "fid, authenticity, c_t"),
            ("memorization", "authenticity, c_t"),
            ("MMD", "kid, kd, cmmd"),
        ),
        *(("prdc", "precision, recall, density, coverage"), ("cov", "coverage"), ("presicion", "precision")),
    ],
)
def test_metrics_of_other_packages_are_refused_with_the_names_here(rng, name, called):
    features = rng.normal(size=(20, 4))
    for metrics in ([name], ["recall", name]):
        error = raised(UsageError, genpr.score, features, features, metrics=metrics)
        assert error.code == "unknown-metric"
        assert f"(similar: {called}" in str(error)
    assert f"(similar: {called}" in str(raised(UsageError, criterion_of, name))
    assert set(called.split(", ")) <= METRICS.keys()


# The record -------------------------------------------------------------------------------------------------


def test_notices_report_duplicates_copies_and_sizes(write_images, rng):
    pixels = rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    real = write_images("real", pixels)
    copies = write_images("copies", np.concatenate([pixels[:5], pixels[:5], pixels[10:12]]))
    result = genpr.score(real, copies, extractor="gabor", device="cpu", cache=False)
    assert codes(result) == {"not-comparable", "small-sample", "unequal-n", "copied-reals", "duplicates"}
    assert (result.n_shared, result.fake.n_duplicates, result.real.n_duplicates) == (12, 5, 0)
    (copied,) = (item.message for item in result.notices if item.code == "copied-reals")
    assert copied.startswith("12 of 12 fakes")
    assert "warning [copied-reals]: 12 of 12 fakes" in str(result)
    assert codes(scored(copies, copies)) >= {"same-input", "duplicates"}
    assert "same-input" in codes(scored(real, real))
    assert "duplicates" not in codes(scored(real, real))
    assert codes(scored(real, real)) >= {"all-cached"}


def test_notices_of_sizes_name_the_smaller_sets_and_apply_to_them(rng):
    few, many = rng.normal(size=(300, 4)), rng.normal(size=(1100, 4))
    found = {}
    for name, sides in {"few fakes": (many, few), "few reals": (few, many), "few": (few, few[:290])}.items():
        result = genpr.score(*sides, device="cpu", control=False, intervals=False)
        found[name] = {item.code: item for item in result.notices}
    small = [found[name]["small-sample"].message for name in ("few fakes", "few reals", "few")]
    assert ["300 fakes" in text for text in small] == [True, False, False]
    assert ["300 reals" in text for text in small] == [False, True, True]
    assert "290 fakes" in small[2]
    assert "calibrated_recall" in found["few reals"]["unequal-n"].hint
    assert "calibrated_recall" not in found["few fakes"]["unequal-n"].hint


def test_same_images_are_recognized_under_any_path(write_images, rng, tmp_path, monkeypatch):
    real = write_images("real", rng.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8))
    (tmp_path / "link").symlink_to(real, target_is_directory=True)
    (tmp_path / "hard").mkdir()
    for path in real.iterdir():
        (tmp_path / "hard" / f"other-{path.name}").hardlink_to(path)
    monkeypatch.chdir(tmp_path)
    for other in (tmp_path / "link", tmp_path / "hard", "real/../real/"):
        result = scored(real, other)
        assert "same-input" in codes(result), other
        assert (result["precision"], result["recall"]) == (1, 1)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux lists")
def test_repeated_scores_leak_no_files_or_threads_and_equal_those_of_a_new_evaluator(tmp_path, rng):
    real, *fakes = paths = [tmp_path / f"{number}.npz" for number in range(4)]
    for path in paths:
        np.savez(path, rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8))
    options = {"extractor": "pixels", "device": "cpu", "intervals": False, "control": False}
    evaluator, found, held = genpr.Evaluator(real, **options), [], set()
    for fake in fakes:
        found.append(evaluator.score(fake).metrics)
        gc.collect()
        files = []
        for link in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):  # that of the folder itself, which was just listed
                files.append(str(link.readlink()))
        held.add((*sorted(files), threading.active_count()))
    assert len(held) == 1
    for number in (0, 2):
        assert genpr.Evaluator(real, **options).score(fakes[number]).metrics == found[number]
    assert found[0] != found[2]


def test_images_left_out_of_held_out_reals_and_modes_are_reported(write_images, rng):
    pixels = rng.integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)
    folder = write_images("damaged", pixels)
    (folder / "x.png").write_bytes(b"\x89PNG")
    options = {"extractor": "pixels", "device": "cpu", "on_bad": "skip", "max_bad": 0.1}
    for role, found in (
        ("held-out", genpr.score(pixels, pixels, held_out=folder, metrics=["c_t"], control=False, **options)),
        ("real", genpr.find_modes(folder, pixels, **options)),
        ("fake", genpr.find_modes(pixels, folder, **options)),
    ):
        messages = [item.message for item in found.notices if item.code == "skipped"]
        assert [message.split(" images")[0] for message in messages] == [f"1 of 61 {role}"]


def test_pooled_features_that_are_not_flat_are_no_images(rng):
    with raising(FeatureError, "feature-shape", "flatten"):
        genpr.score(rng.normal(size=(30, 4, 1, 1)), rng.normal(size=(30, 4)))


@pytest.mark.parametrize("suffix", ["", ".npz", ".safetensors"])
@pytest.mark.parametrize("side", ["real", "fake", "held_out"])
def test_names_that_no_file_can_have_are_missing_paths(rng, suffix, side):
    sides = dict.fromkeys(("real", "fake"), rng.normal(size=(9, 2)))
    with raising(UsageError, "path-not-found"):
        genpr.score(**sides | {side: "x" * 5000 + suffix})
