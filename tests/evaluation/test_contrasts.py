"""How sure the difference of two results is: in the comparison, its table and its JSON."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import genpr
from genpr.evaluation.compare import compare

NAMES = ("precision", "recall", "density", "coverage")


@pytest.fixture(scope="module")
def real():
    return np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def fakes():
    rng = np.random.default_rng(1)
    return {
        "good": rng.normal(size=(80, 4)),
        "alike": rng.normal(size=(80, 4)),
        "narrow": 0.2 * rng.normal(size=(80, 4)),
    }


@pytest.fixture(scope="module")
def scores(real, fakes):
    return {name: genpr.score(real, fake, control=False) for name, fake in fakes.items()}


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
def test_otherwise_they_are_not(scores, real, fakes, how):
    rng = np.random.default_rng(5)
    reals = {
        "other reals": rng.normal(size=(80, 4)),
        "other order": real[::-1].copy(),  # the same set, but halves are drawn by place
        "other number": rng.normal(size=(90, 4)),
    }.get(how, real)
    other = genpr.score(reals, fakes["narrow"], seed=int(how == "other seed"), control=False)
    comparison = compare({"good": scores["good"], "other": other}, force=True)
    for metric in NAMES:
        found = comparison.contrast("other", metric)
        value, half = by_hand(other, scores["good"], metric, paired=False)
        assert found.pairing == "unpaired"
        assert (found.interval.low, found.interval.high) == pytest.approx((value - half, value + half))


def test_what_can_be_told_apart_and_what_cannot(scores):
    comparison = compare(scores)
    verdicts = {
        name: {metric: comparison.contrast(name, metric).verdict for metric in NAMES}
        for name in ("alike", "narrow")
    }
    assert verdicts["narrow"]["recall"] == verdicts["narrow"]["density"] == "distinguishable"
    assert set(verdicts["alike"].values()) == {"not distinguishable"}
    assert (
        comparison.contrast("narrow", "recall").interval.high
        < 0
        < comparison.contrast("narrow", "density").interval.low
    )
