"""The warnings that a set of fakes raises, and no others."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from image_files import noise

import genpr
from genpr.evaluation.notices_of_score import image_notices
from genpr.evaluation.result import result_of
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet, ImageFacts

SUSPICIONS = {
    *("near-copies", "copying", "shrinkage", "degenerate-manifold", "outlier-dominance", "missing-modes"),
    *("duplicates", "near-duplicates", "copied-reals", "same-input"),
}


@pytest.fixture(scope="module")
def images():
    """Features of ten clusters, as of ten kinds of images: 2 x 1,500 x 24."""
    rng = np.random.default_rng(3)
    centers = 2.5 * rng.normal(size=(10, 24))
    kinds = np.arange(3000) % 10
    return np.split(centers[kinds] + rng.normal(size=(3000, 24)), 2)


def messages_of(result):
    return {item.code: item.message for item in result.notices}


def codes(real, fake, **options):
    result = genpr.score(real, fake, device="cpu", control=False, intervals=False, **options)
    return {item.code for item in result.notices} & SUSPICIONS, result


def test_two_halves_of_one_set_raise_no_warning(images):
    assert codes(*images)[0] == set()


def test_noise_raises_no_warning(images, rng):
    real, other = images
    found, result = codes(real, other + 2 * rng.normal(size=other.shape))
    assert found == set()
    assert result["precision"] < 0.2


def test_sets_without_overlap_are_a_warning(images):
    real, other = images
    for fakes, is_apart in ((other + 1000, True), (np.concatenate([other + 1000, other[:1]]), False)):
        result = codes(real, fakes)[1]
        assert ("no-overlap" in messages_of(result)) == is_apart
    fid_alone = codes(real, other + 1000, metrics=["fd"])[1]
    assert "no-overlap" not in messages_of(fid_alone)


def test_near_duplicates_explain_zeros_instead_of_missing_overlap():
    rng = np.random.default_rng(5)
    real, fake = (np.repeat(rng.normal(size=(60, 64)), 10, axis=0) for _ in range(2))
    real, fake = (rows + 1e-4 * rng.normal(size=rows.shape) for rows in (real, fake))
    found, result = codes(real, fake)
    assert result["precision"] == result["coverage"] == 0
    assert result.notices[0].code == "near-duplicates"
    assert "near-duplicates" in found
    assert "no-overlap" not in messages_of(result)


def test_shrinkage_is_reported(images):
    real, other = images
    kinds = other.reshape(-1, 10, 24)
    shrunk = kinds.mean(axis=0) + 0.7 * (kinds - kinds.mean(axis=0))
    found, result = codes(real, shrunk.reshape(other.shape))
    assert found == {"shrinkage"}
    assert "0.70 times as large" in messages_of(result)["shrinkage"]
    # Of fewer fakes, whose balls are larger, density and recall show it.
    found, result = codes(real, 0.5 * (kinds[:80] + kinds.mean(axis=0)).reshape(-1, 24))
    assert found == {"shrinkage"}
    assert "while recall is" in messages_of(result)["shrinkage"]


def test_missing_modes_are_reported(images):
    real, other = images
    kept = np.arange(len(other)) % 10 >= 3
    found, result = codes(real, other[kept])
    assert found == {"missing-modes"}
    modes = genpr.find_modes(real, other[kept])
    assert [item for item in result.notices if item.code == "missing-modes"] == list(modes.notices[:1])
    assert sum(each.real_share for each in modes.missing) == pytest.approx(0.3, abs=0.1)
    shown = messages_of(result)["missing-modes"].split("modes: ")[1].split(", ")
    assert {int(row.removeprefix("row ")) % 10 for row in shown} <= {0, 1, 2}


def test_memorized_images_are_reported(images, rng):
    real, other = images
    fake = other.copy()
    fake[:150] = real[200:350] + 0.01 * rng.normal(size=(150, 24))
    found, result = codes(real, fake)
    assert found == {"near-copies"}
    share, shown = messages_of(result)["near-copies"].split(": ")
    assert share.startswith("10.0% of the fakes")
    for pair in shown.split(", "):
        copy, copied = (int(row.strip("row ()")) for row in pair.split(" (", 1))
        assert copied == copy + 200


def test_duplicates_are_reported_and_count_once(images):
    real, other = images
    assert codes(real, np.repeat(other[:150], 10, axis=0))[0] == {"duplicates"}
    fake = np.concatenate([other[:300], np.repeat(other[:1], 1200, axis=0)])
    assert "missing-modes" not in codes(real, fake)[0], "of repeats, one counts"


LAWS = {
    "2 d": lambda rng, n: rng.normal(size=(n, 2)),
    "8 d": lambda rng, n: rng.normal(size=(n, 8)),
    "64 d": lambda rng, n: rng.normal(size=(n, 64)),
    "hubs": lambda rng, n: rng.exponential(size=(n, 200)),
    "heavy tails": lambda rng, n: rng.standard_t(2, size=(n, 16)),
    "uneven": lambda rng, n: rng.normal(size=(n, 8)) * np.exp(1.5 * rng.normal(size=(n, 1))),
    "scales": lambda rng, n: np.geomspace(1e-3, 1, n)[rng.permutation(n), None] * rng.normal(size=(n, 8)),
    "plane": lambda rng, n: rng.normal(size=(n, 2)) @ np.random.default_rng(5).normal(size=(2, 50)),
    "lattice": lambda rng, n: rng.integers(0, 3, size=(n, 8)),
}


@pytest.mark.parametrize("law", LAWS)
def test_independent_draws_raise_no_warning(law, rng):
    for n, m in ((100, 100), (400, 100)):
        found, _ = codes(LAWS[law](rng, n), LAWS[law](rng, m), metrics=["precision", "coverage"])
        assert "near-duplicates" not in found


def test_groups_of_almost_equal_images_are_near_duplicates(images, rng):
    real, other = images
    groups = real[:300].repeat(5, axis=0) + 0.01 * rng.normal(size=(1500, 24))
    assert "near-duplicates" in codes(groups, other)[0]


def test_outlier_among_the_reals_is_reported(images, rng):
    real, other = images
    real = real.copy()
    real[5] = 40
    fake = other.copy()
    fake[:300] = 40 + rng.normal(size=(300, 24))
    found, result = codes(real, fake)
    assert found == {"outlier-dominance"}
    assert messages_of(result)["outlier-dominance"].endswith("20.4% of all: row 5")


def test_missing_intervals_of_small_sets_are_reported(rng):
    """Notices about requested intervals that cannot be computed."""

    def notices_of(*sides, **options):
        result = genpr.score(*sides, device="cpu", control=False, **options)
        return [(item.level, item.message) for item in result.notices if item.code == "no-intervals"]

    real, fake = rng.normal(size=(30, 2)), rng.normal(size=(10, 2))
    needed = "no interval for density, coverage: intervals need halves, and half of 10 images is too few"
    assert notices_of(real, fake) == [("note", needed)]
    assert notices_of(real, fake, k=4) == notices_of(real, rng.normal(size=(12, 2))) == []


def test_held_out_reals_show_copying(images, rng):
    real, other = images
    fake = real + 0.8 * rng.normal(size=real.shape)
    found, result = codes(real, fake, held_out=other)
    assert found == {"copying"}
    assert result["c_t"] < -3
    assert codes(real, other, held_out=images[1][::-1].copy())[1].metrics["c_t"].null == 0


def test_record_names_the_held_out_reals(images):
    real, other = images
    first, second = (
        genpr.score(real[:500], other[:500], held_out=other[:n], metrics=["c_t", "precision"], control=False)
        for n in (200, 300)
    )
    assert first.held_out.n == 200
    assert result_of(json.loads(first.to_json())) == first
    with pytest.raises(genpr.DataError, match="held-out reals of b differ from those of a"):
        genpr.compare({"a": first, "b": second})
    assert codes(real[:99], other[:99])[1].held_out is None


OPTIONS = {"extractor": "pixels", "device": "cpu", "control": False, "intervals": False, "k": 1}
INFO = ExtractorInfo("inception", 3, "none", None, comparable=True, cache_key="0" * 64)


def test_codecs_and_sizes_are_reported_with_and_without_a_cache(write_images):
    sizes = [(50, 40)] * 6 + [(50, 8), (8, 50)]
    real = write_images("real", [noise(*size, seed) for seed, size in enumerate(sizes)])
    fake = write_images("fake", [noise(50, 40, seed) for seed in range(8, 16)], "{}.jpg")
    for how in ("embedded", "cached"):
        result = genpr.score(real, fake, **OPTIONS)
        assert ("all-cached" in messages_of(result)) == (how == "cached")
        assert messages_of(result)["codec-mismatch"].startswith(
            "most reals are lossless, and most fakes are JPEG"
        )
        (mixed,) = [item.message for item in result.notices if item.code == "size-mix"]
        assert mixed == "real images have 3 different sizes: 40 x 50 (6), 8 x 50 (1), 50 x 8 (1)"


def test_small_images_are_reported_for_trained_networks():
    facts = ImageFacts.from_counts(Counter(), Counter({(31, 200): 7, (32, 200): 1193}))
    fake = FeatureSet(torch.randn(1200, 3), "fakes/", INFO, facts=facts)
    real = replace(fake, features=torch.randn(1200, 3), facts=ImageFacts())
    (small,) = [item for item in image_notices(real, fake) if item.code == "upscaled"]
    assert small.level == "warning"
    assert small.message.startswith("7 of 1,200 fake images have a side below 32 pixels; ")
    for trained in ("efficientnet-lite0", "inception@bfloat16", "timm:resnet18@bfloat16"):
        assert is_upscaled(trained, real, fake)
    for other in ("gabor", "pixels@bfloat16", "net.py:load", "inception-of-another-program"):
        assert not is_upscaled(other, real, fake)


def is_upscaled(name, *sides):
    info = replace(INFO, name=name, comparable=False)
    return "upscaled" in {
        item.code for item in image_notices(*(replace(side, extractor=info) for side in sides))
    }


def of_images(sizes, flags=None, n=1200):
    facts = ImageFacts.from_counts(Counter(), Counter(sizes))
    return FeatureSet(torch.randn(n, 3), "x/", INFO, facts=facts, flags=flags or {})


@pytest.mark.parametrize(
    ("real", "fake", "is_reported"),
    [
        ({(32, 32): 1200}, {(64, 64): 1200}, True),
        ({(32, 32): 1100, (40, 40): 100}, {(64, 64): 1200}, True),
        ({(32, 32): 1200}, {(32, 64): 1200}, True),
        ({(32, 32): 1200}, {(32, 32): 1200}, False),
        ({(500, 375): 1000, (375, 500): 200}, {(256, 256): 1200}, False),
        ({(500, 300 + at): 1200 - 10 * at for at in range(20)}, {(256, 256): 1200}, False),
        ({(32, 32): 900} | {(40, at): 1 for at in range(300)}, {(64, 64): 1200}, False),
        ({}, {(256, 256): 1200}, False),
    ],
    ids=["one-size", "nearly-one", "shape", "equal", "mixed", "many", "many-rare", "unknown"],
)
def test_sets_of_different_sizes_are_reported(real, fake, is_reported):
    codes = [item.code for item in image_notices(of_images(real), of_images(fake))]
    assert codes.count("size-mismatch") == is_reported


def test_sizes_of_files_and_arrays_are_compared_after_preparation(rng, write_images):
    small, large = (rng.integers(0, 256, (30, side, side, 3), dtype=np.uint8) for side in (32, 64))
    folder = write_images("real", small)
    tensor = torch.from_numpy(large).permute(0, 3, 1, 2)
    for fake, prepare, expected in (
        (write_images("fake", large), "none", True),
        (large, "none", True),
        (tensor, "none", True),
        ([tensor], "none", True),
        (tensor, "resize:32", False),
    ):
        result = genpr.score(folder, fake, prepare=prepare, **OPTIONS)
        assert ("size-mismatch" in messages_of(result)) == expected


@pytest.mark.parametrize(("count", "is_reported"), [(300, False), (301, True)])
def test_values_of_another_range_are_reported_for_over_a_quarter(count, is_reported):
    fake = of_images({}, {"unscaled": count})
    assert [item.code for item in image_notices(of_images({}), fake)].count("unscaled") == is_reported


@pytest.mark.parametrize(("count", "is_reported"), [(1199, False), (1200, True)])
def test_12_bits_are_reported_if_no_image_has_larger_values(count, is_reported):
    fake = of_images({}, {"16bit-scaled": 1200, "16bit-unscaled": count})
    assert [item.code for item in image_notices(of_images({}), fake)].count("16bit-unscaled") == is_reported


def test_values_of_another_range_are_reported_from_the_cache_and_for_held_out_reals(rng, write_images):
    pixels = rng.random((3, 30, 8, 8, 3)).round(1)
    real = write_images("real", (pixels[0] * 255).astype(np.uint8))
    fake, kept = (
        write_images(name, each.astype(np.uint8)) for name, each in zip("fk", pixels[1:], strict=True)
    )
    for _ in ("embedded", "cached"):
        result = genpr.score(real, fake, held_out=kept, **OPTIONS | {"metrics": ["precision", "c_t"]})
        roles = [item.message.split()[3] for item in result.notices if item.code == "unscaled"]
        assert roles == ["fake", "held-out"]


# The order of classes ----------------------------------------------------------------------------------------


def probabilities(labels, rng, classes=20):
    logits = rng.normal(size=(len(labels), classes)) + 6.0 * np.eye(classes)[labels]
    logits = np.exp(logits)
    return logits / logits.sum(axis=1, keepdims=True)


def score_in_parts(p):
    """The definition in float64."""
    parts = [p[start : start + CHUNK] for start in range(0, len(p), CHUNK)]
    scores = [np.exp((part * np.log(part / part.mean(axis=0))).sum(axis=1).mean()) for part in parts]
    return np.mean(scores)


CHUNK = 200


@pytest.fixture
def inception_score_of(change_protocol):
    """Score probabilities under adm, with small parts and no numbers of images."""
    space = "inception-softmax"
    change_protocol("adm", extractor=space, inception_score_split_size=CHUNK, n_real=None, n_fake=None)

    def score(p):
        info = ExtractorInfo(space, p.shape[1], "none", None, comparable=True, cache_key="0" * 64)
        sets = (FeatureSet(torch.from_numpy(p), "s", info) for _ in range(2))
        return genpr.score(*sets, protocol="adm", metrics=["is"], control=False, device="cpu")

    return score


def test_class_ordered_samples_are_reported_with_both_scores(inception_score_of, rng):
    p = probabilities(np.sort(np.arange(5 * CHUNK) % 20), rng)
    text = messages_of(inception_score_of(p))["class-ordered-samples"]
    shuffled = score_in_parts(p[np.random.RandomState(2020).permutation(len(p))])
    assert f"is {score_in_parts(p):.4g} in parts of 200" in text
    assert f"{shuffled:.4g} in the same parts of shuffled images" in text
    assert shuffled > 3 * score_in_parts(p)


def test_randomly_ordered_samples_and_single_parts_are_not_reported(inception_score_of, rng):
    labels = np.arange(2 * CHUNK) % 20
    for _ in range(6):
        random = probabilities(rng.permutation(labels), rng)
        assert "class-ordered-samples" not in messages_of(inception_score_of(random))
    ends = np.concatenate([random, random[random.argmax(axis=1) == 3][:8]])  # a part of 8 of one class
    ordered = probabilities(np.arange(2 * CHUNK - 1) // 20, rng)  # one whole part
    for p in (ends, ordered):
        assert "class-ordered-samples" not in messages_of(inception_score_of(p))


# Vendi -------------------------------------------------------------------------------------------------------


def test_few_images_for_vendi_are_reported(rng):
    rows = rng.normal(size=(20_000, 3))
    few, enough = (messages_of(codes(rows[:10], rows[:n], metrics=["vendi"])[1]) for n in (19_999, 20_000))
    assert "vendi of 19,999" in few["vendi-not-converged"]
    assert "vendi-not-converged" not in enough
