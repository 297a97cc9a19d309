"""Simultaneous bounds for many scores agree with those of two, and do not favor chance winners."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from raising import raising
from scipy import stats

from genpr.errors import UsageError
from genpr.metrics.uncertainty import Resampled, against_best, difference, on_front, standard_error

HALVES = 100


def score(value, replicates, **changed) -> Resampled:
    known = {"n": 10**6, "seed": 0, "n_real": 100, "real_identity": "abc"}
    return Resampled(float(value), torch.as_tensor(replicates, dtype=torch.float64), **{**known, **changed})


def scores_of(rng, values, *, error=0.01, shared=0.02, **changed) -> list[Resampled]:
    """Scores whose differences have a standard error near sqrt(2) `error`."""
    common = shared * rng.normal(size=HALVES)
    noise = math.sqrt(2) * error * rng.normal(size=(len(values), HALVES))
    return [score(value, value + common + own, **changed) for value, own in zip(values, noise, strict=True)]


def left(found) -> list[int]:
    return [place for place, is_in in enumerate(found.contenders) if is_in]


@pytest.mark.parametrize("lead", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("apart", [{}, {"real_identity": "other"}, {"seed": 1}, {"real_identity": None}])
def test_two_scores_are_compared_as_by_difference(rng, lead, apart):
    a, b = scores_of(rng, [0.7, 0.7 + lead])
    b = replace(b, **apart)
    found, usual = against_best([a, b]), difference(a, b)
    other = found.intervals[1 - found.winner]
    expected = usual if found.winner == 1 else difference(b, a)
    assert (other.low, other.high) == pytest.approx(
        (expected.interval.low, expected.interval.high), abs=1e-14
    )
    assert found.contenders.count(True) == (2 if usual.verdict == "not distinguishable" else 1)
    assert found.quantile == pytest.approx(stats.t.ppf(0.975, 25))


def test_shares_of_few_images_account_for_unseen_kinds(rng):
    """A kind of image that is absent in 100 images may have a share of 4 %."""
    common = rng.normal(size=HALVES)
    values = (0.98, 0.99, 1.0)
    for n, contenders in (
        (100, (True, True, True)),
        (10**6, (False, False, True)),
        (None, (False, False, True)),
    ):
        found = against_best([score(value, value + 0.1 * common, n=n) for value in values])
        assert found.contenders == contenders


def test_single_score_is_the_winner(rng):
    (only,) = scores_of(rng, [0.7])
    found = against_best([only])
    assert (found.winner, found.contenders) == (0, (True,))
    assert (found.intervals[0].low, found.intervals[0].high) == (0, 0)


@pytest.mark.parametrize("count", [3, 8, 20])
def test_quantile_of_independent_scores_is_that_of_the_studentized_range(rng, count):
    found = against_best(scores_of(rng, [0.7] * count))
    expected = stats.studentized_range.ppf(0.95, count, 25) / math.sqrt(2)
    assert found.quantile == pytest.approx(expected, rel=0.04)


def test_correlated_errors_need_less_than_independent_ones(rng):
    """Of three scores, two are almost equal, so there is only one difference to bound."""
    one, two = scores_of(rng, [0.7, 0.7])
    twin = replace(
        two, replicates=two.replicates + 1e-6 * torch.randn(HALVES, generator=torch.manual_seed(0))
    )
    assert against_best([one, two, twin]).quantile == pytest.approx(2.37, abs=0.2)
    copies = against_best([one, two, *[two] * 30])
    assert copies.quantile == pytest.approx(stats.t.ppf(0.975, 25), rel=0.06)
    assert all(copies.contenders)


def test_variation_of_shared_reals_cancels(rng):
    values = [0.7, 0.7, 0.6, 0.69]
    noisy, calm = (scores_of(np.random.default_rng(3), values, shared=shared) for shared in (5.0, 0.0))
    for one, other in zip(against_best(noisy).intervals, against_best(calm).intervals, strict=True):
        assert one.low == pytest.approx(other.low, abs=1e-3)
        assert one.high == pytest.approx(other.high, abs=1e-3)


def test_scores_far_below_are_excluded_and_near_ones_are_contenders(rng):
    found = against_best(scores_of(rng, [0.5, 0.71, 0.7, 0.7, 0.3]))
    assert found.winner == 1
    assert left(found) == [1, 2, 3]
    assert found.intervals[4].high < 0
    assert found.intervals[4].low < -0.41 < found.intervals[4].high


def test_excluded_scores_reduce_the_quantile(rng):
    """One score is 3.4 standard errors below: not enough for 20 scores, but enough for the remaining ones."""
    scores = scores_of(rng, [0.7, 0.7, *[0.1] * 18], shared=0.0)
    found = against_best(scores)
    error = standard_error(scores[0].replicates - scores[1].replicates)
    assert found.quantile > 3.5
    near = [replace(scores[0], value=0.7 + 3.4 * error), *scores[1:]]
    found = against_best(near)
    assert left(found) == [0]
    assert 0 in found.intervals[1]
    alone = against_best(near[:2])
    assert left(alone) == [0]
    too_near = [replace(scores[0], value=0.7 + 2.5 * error), *scores[1:]]
    assert left(against_best(too_near)) == [0, 1]


def test_scores_with_other_numbers_of_replicates_are_not_compared():
    for scores in ([], [score(0.5, torch.linspace(0, 1, n)) for n in (4, 6)]):
        with raising(UsageError, "bad-option"):
            against_best(scores)


# Two metrics ---------------------------------------------------------------------------------------------------


def front_of(rng, pairs, **options):
    first, second = zip(*pairs, strict=True)
    return on_front(scores_of(rng, first, **options), scores_of(rng, second, **options))


def test_only_scores_clearly_below_in_both_are_off_the_front(rng):
    pairs = {
        "precise": (0.9, 0.3),
        "diverse": (0.3, 0.9),
        "below both": (0.2, 0.2),
        "below the precise in one": (0.7, 0.3),
        "hardly below the precise": (0.895, 0.295),
        "below the diverse": (0.1, 0.7),
    }
    assert front_of(rng, pairs.values()) == (True, True, False, True, True, False)
