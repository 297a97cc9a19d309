"""Comparison of results of one recipe, or of any if forced, with an interval for each difference."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from raising import raising
from scipy import stats

import genpr
from genpr.cli.main import run
from genpr.errors import DataError, UsageError
from genpr.evaluation import result
from genpr.evaluation.compare import compare
from genpr.metrics.metric import MetricValue
from genpr.metrics.uncertainty import halved, interval_of
from genpr.report.score_tables import score_table

NAMES = ("calibrated_precision", "calibrated_recall", "precision", "recall", "density", "coverage")


@pytest.fixture(scope="module")
def real():
    return np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def fakes():
    drawn = np.random.default_rng(1).normal(size=(3, 80, 4))
    return {"good": drawn[0], "alike": drawn[1], "narrow": 0.4 * drawn[2]}


@pytest.fixture(scope="module")
def scores(real, fakes):
    return {name: genpr.score(real, fake, control=False) for name, fake in fakes.items()}


def test_results_of_the_same_reals_are_compared(scores):
    comparison = compare(scores)
    assert comparison.differences == ()
    assert comparison.metrics == NAMES
    assert scores["good"].fingerprint == scores["narrow"].fingerprint


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"k": 4}, "k of precision is 4 in other and 3 in good"),
        ({"ties": "strict"}, "ties of precision is strict in other and closed in good"),
    ],
)
def test_other_recipe_is_an_error_that_names_the_difference_unless_forced(
    scores, real, options, what, tmp_path, capsys
):
    other = genpr.score(real, real[::-1] * 0.9, **options)
    assert other.fingerprint != scores["good"].fingerprint
    with raising(DataError, "not-alike", what):
        compare({"good": scores["good"], "other": other})
    forced = compare({"good": scores["good"], "other": other}, force=True)
    assert any(what in difference for difference in forced.differences)
    files = [str(tmp_path / name) for name in ("good.json", "other.json")]
    for path, scored in zip(files, (scores["good"], other), strict=True):
        Path(path).write_text(scored.to_json())
    assert run(["compare", *files]) == 3
    assert what in capsys.readouterr().err
    assert run(["compare", *files, "--force"]) == 0
    assert f"not scored alike: {what.split(' is ')[0]}" in capsys.readouterr().out


def test_different_reals_and_numbers_are_errors_that_name_the_difference(scores, real):
    other = genpr.score(real[:50], real[:40])
    with pytest.raises(DataError) as caught:
        compare({"good": scores["good"], "other": other})
    message = str(caught.value)
    assert "the real set of other" in message
    assert "50 real images in other, 80 in good" in message
    assert "40 fake images in other, 80 in good" in message


@pytest.mark.parametrize("field", ["weights_sha256", "resize", "cache_key"])
def test_every_part_of_an_extractor_is_in_the_fingerprint(field):
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
    result = genpr.score(images, images, extractor="gabor", device="cpu")
    changed = replace(result.extractors["gabor"], **{field: "other"})
    other = replace(result, extractors={"gabor": changed})
    assert other.fingerprint != result.fingerprint
    with pytest.raises(DataError, match="other in second"):
        compare({"first": result, "second": other})


def test_metrics_are_compared_where_both_have_them(scores, real):
    part = genpr.score(real, real * 0.8, metrics=["recall", "coverage"])
    assert compare({"good": scores["good"], "part": part}).metrics == ("recall", "coverage")
    with raising(DataError, "no-common-metric"):
        compare({"part": part, "other": genpr.score(real, real, metrics=["density"])})


def by_hand(one, other, metric, *, paired):
    """Value and half width of the interval of `one` minus `other`."""
    a, b = (np.array(each.metrics[metric].replicates) for each in (one, other))

    def sq_error(replicates):
        return np.mean(((replicates[::2] - replicates[1::2]) / 2) ** 2)

    error = math.sqrt(sq_error(a - b) if paired else sq_error(a) + sq_error(b))
    n = min(each.metrics[metric].n_counted for each in (one, other))
    unseen = (1 - 0.025 ** (1 / n)) * max(1, one[metric], other[metric])  # what n images may not have shown
    return one[metric] - other[metric], max(stats.t.ppf(0.975, 1 / (2 / len(a) + 1 / 50)) * error, unseen)


@pytest.mark.parametrize("metric", NAMES)
@pytest.mark.parametrize("name", ["alike", "narrow"])
def test_scores_on_the_same_reals_are_paired(scores, name, metric):
    found = compare(scores).contrast(name, metric)
    value, half = by_hand(scores[name], scores["good"], metric, paired=True)
    assert found.pairing == "paired"
    assert found.value == pytest.approx(value, abs=1e-15)
    assert (found.interval.low, found.interval.high) == pytest.approx((value - half, value + half))
    if (name, metric) == ("alike", "density"):  # where no least width is met, and no replicate is the same
        assert half != pytest.approx(by_hand(scores[name], scores["good"], metric, paired=False)[1], rel=1e-3)


@pytest.mark.parametrize("how", ["other reals", "other order", "other seed", "other number"])
def test_scores_of_other_reals_seeds_or_numbers_are_not_paired(scores, real, fakes, how):
    rng = np.random.default_rng(5)
    reals = {
        "other reals": rng.normal(size=(80, 4)),
        "other order": real[::-1].copy(),  # the same set, but halves are drawn by index
        "other number": rng.normal(size=(90, 4)),
    }.get(how, real)
    other = genpr.score(reals, fakes["narrow"], seed=int(how == "other seed"), control=False)
    comparison = compare({"good": scores["good"], "other": other}, force=True)
    for metric in NAMES:
        found = comparison.contrast("other", metric)
        if found is None:
            assert other.metrics[metric].interval is None
            assert metric == "density"  # which has no interval above 2
            assert other[metric] > 2
            continue
        value, half = by_hand(other, scores["good"], metric, paired=False)
        assert found.pairing == "unpaired"
        assert (found.interval.low, found.interval.high) == pytest.approx((value - half, value + half))


def test_differences_are_distinguishable_if_the_interval_excludes_zero(scores):
    comparison = compare(scores)
    alike = [comparison.contrast("alike", metric) for metric in NAMES]
    recall, density = (comparison.contrast("narrow", metric) for metric in ("recall", "density"))
    assert {found.verdict for found in alike} == {"not distinguishable"}
    assert recall.verdict == density.verdict == "distinguishable"
    assert recall.interval.high < 0 < density.interval.low


def ranked(hits, seed=0):
    """A metric like those of `genpr align`."""
    values = torch.as_tensor(hits, dtype=torch.float64)
    replicates = halved(lambda weights: weights @ values / weights.sum(dim=1), len(values), seed=seed)
    end = interval_of(float(values.mean()), replicates, n=len(values))
    facts = {"interval": (end.low, end.high), "replicates": tuple(replicates.tolist())}
    return MetricValue(float(values.mean()), None, n_counted=len(values), chance=0.01, pool=100, **facts)


@pytest.fixture(scope="module")
def mixed():
    """A result with metrics of two families."""
    real, fake = np.random.default_rng(0).normal(size=(2, 120, 4))
    plain = genpr.score(real, fake, control=False)
    return replace(plain, metrics={**plain.metrics, "retrieval.r_precision": ranked([1, 0] * 50)})


def test_results_round_trip_through_json(mixed):
    record = json.loads(mixed.to_json())
    assert result.result_of(record) == mixed
    assert record["families"]["retrieval"] == ["retrieval.r_precision"]
    assert list(record["families"]) == ["manifold", "retrieval"]


def test_table_has_values_of_chance_and_pools(mixed):
    text = score_table(mixed)
    row = next(line for line in text.splitlines() if line.startswith("retrieval.r_precision"))
    assert row.split()[:2] == ["retrieval.r_precision", "0.5000"]
    assert any(line.endswith("  0.0100   100") for line in text.splitlines())
    assert "chance: the value of random guessing\npool: number of ranked candidates" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_other_families_are_compared_and_ranked(mixed):
    better = replace(mixed, metrics={**mixed.metrics, "retrieval.r_precision": ranked([1, 1, 1, 0] * 25)})
    found = genpr.compare({"one": mixed, "other": better}).contrast("other", "retrieval.r_precision")
    assert (found.value, found.verdict, found.pairing) == (0.25, "distinguishable", "paired")
    ranking = genpr.rank_results({"one": mixed, "other": better}, by="retrieval.r_precision")
    assert ranking.winner == "other"
    assert genpr.rank_results({"one": mixed, "other": better}, by="manifold.recall").by == "manifold.recall"


def test_manifold_is_the_family_of_plain_names(mixed, rng):
    assert mixed["manifold.recall"] == mixed["recall"]
    sides = rng.normal(size=(2, 60, 4))
    assert list(genpr.score(*sides, metrics=["manifold.recall"], control=False).metrics) == ["recall"]


@pytest.mark.parametrize("name", ["label.gan_test", "retrieval.mrr", "entity.recall"])
def test_metrics_of_other_families_need_more_than_features(name):
    features = np.ones((20, 4))
    with pytest.raises(UsageError, match=r"cannot be computed from features alone"):
        genpr.score(features, features, metrics=[name])
