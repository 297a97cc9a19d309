import math

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from raising import raising

from genpr.errors import FeatureError, UsageError
from genpr.metrics import real_manifold
from genpr.metrics.manifold import (
    KNNManifold,
    PrecisionRecall,
    ball_scores,
    manifold_metrics,
    precision_recall,
)
from genpr.metrics.real_manifold import RealManifold
from genpr.neighbors.balls import Ball


def _column(*values):
    return np.array(values, dtype=np.float64)[:, None]


# Fixtures of one dimension whose answers follow by hand. A point on the sphere counts with closed balls only.
_HAND_A = _column(0, 1, 3, 7), _column(0.5, 2, 10)
_HAND_B = _column(0, 1, 2), _column(3, 3.5, 5.5)
_SAME = np.full((8, 3), 0.1), np.full((6, 3), 0.1)


@pytest.mark.parametrize(
    ("sets", "k", "ties", "expected"),
    [
        (_HAND_A, 1, "strict", (1, 1, 4 / 3, 1)),
        (_HAND_A, 1, "closed", (1, 1, 5 / 3, 1)),
        (_HAND_B, 1, "strict", (0, 0, 0, 0)),
        (_HAND_B, 1, "closed", (1 / 3, 0, 1 / 3, 1 / 3)),
        (_SAME, 3, "strict", (0, 0, 0, 0)),
        (_SAME, 3, "closed", (1, 1, 8 / 3, 1)),
    ],
    ids=["A strict", "A closed", "B strict", "B closed", "identical strict", "identical closed"],
)
def test_values_that_follow_by_hand(sets, k, ties, expected):
    assert manifold_metrics(*sets, k=k, ties=ties) == expected
    assert precision_recall(*sets, k=k, ties=ties) == expected[:2]


@pytest.mark.parametrize("case", feature_cases.names())
@pytest.mark.parametrize("ties", ["closed", "strict"])
def test_every_count_is_the_oracles(case, ties):
    real, fake = feature_cases.make(case)
    for k in (3, 5):
        expected = oracle.manifold_metrics(real, fake, k, ties)
        assert manifold_metrics(real, fake, k=k, ties=ties) == expected
        assert precision_recall(real, fake, k=k, ties=ties) == expected[:2]


@pytest.mark.parametrize("case", feature_cases.names())
def test_swapping_the_sets_swaps_precision_and_recall(case):
    real, fake = feature_cases.make(case)
    precision, recall = precision_recall(real, fake)
    assert precision_recall(fake, real) == (recall, precision)


@pytest.mark.parametrize("case", feature_cases.names())
def test_counts_move_with_the_rows(case, rng):
    real, fake = feature_cases.make(case)
    counts, order = KNNManifold.fit(real).count(fake), rng.permutation(len(fake))
    assert KNNManifold.fit(rng.permutation(real)).count(fake[order]).tolist() == counts[order].tolist()


def test_collapsed_fakes_have_precision_and_no_recall_and_the_reverse(rng):
    wide, narrow = rng.normal(0, 3, (500, 8)), rng.normal(0, 0.1, (500, 8))
    assert precision_recall(wide, narrow, k=3) == (1, 0)
    assert precision_recall(narrow, wide, k=3) == (0, 1)


@pytest.mark.slow
def test_perfect_generator_scores_what_theory_says():
    """One draw at the size and width of the table in the README of prdc; coverage and density are closed forms."""
    rng = np.random.default_rng(3)
    real, fake = rng.standard_normal((2, 10_000, 1000), dtype=np.float32)
    metrics = manifold_metrics(real, fake, k=5)
    n = m = 10_000
    coverage = 1 - math.prod((n - i) / (n + m - i) for i in range(1, 6))
    assert coverage == pytest.approx(0.968773, abs=1e-6)
    assert metrics.precision == pytest.approx(0.476, abs=0.04)
    assert metrics.recall == pytest.approx(0.476, abs=0.04)
    assert metrics.density == pytest.approx(1, abs=0.15)
    assert metrics.coverage == pytest.approx(coverage, abs=0.015)


def test_f_score_is_the_weighted_harmonic_mean():
    assert PrecisionRecall(0.5, 1.0).f_score() == pytest.approx(2 / 3)
    assert PrecisionRecall(0.5, 1.0).f_score(beta=2) == pytest.approx(5 / 6)
    assert PrecisionRecall(1.0, 0.5).f_score(beta=2) == pytest.approx(5 / 9)
    assert PrecisionRecall(0.0, 0.0).f_score() == 0
    for beta in (0, -1, math.nan):
        with pytest.raises(UsageError, match="beta must be positive"):
            PrecisionRecall(0.5, 0.5).f_score(beta)


class TestKNNManifold:
    def test_contains_and_counts_by_hand(self):
        queries = _column(-1, -1.5, 0.5, 2, 5, 11, 12)
        manifold = KNNManifold.fit(_HAND_A[0], k=1)
        assert manifold.radii.tolist() == [1, 1, 2, 4]
        assert manifold.sq_radii.tolist() == [1, 1, 4, 16]
        assert manifold.count(queries).tolist() == [1, 0, 2, 2, 2, 1, 0]
        assert manifold.contains(queries).tolist() == [True, False, True, True, True, True, False]
        strict = KNNManifold.fit(_HAND_A[0], k=1, ties="strict")
        assert strict.count(queries).tolist() == [0, 0, 2, 1, 1, 0, 0]

    @pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
    def test_does_not_change_with_the_array_it_was_fitted_to(self, rng, convert):
        points = rng.normal(size=(50, 3)).astype(np.float32)
        queries = points.copy()  # ties: their answers rest on the features themselves
        manifold = KNNManifold.fit(convert(points))
        before = manifold.count(queries)
        points[:] = 99
        assert torch.equal(manifold.count(queries), before)
        assert manifold.features.tolist() == queries.tolist()
        with pytest.raises(AttributeError):
            manifold.side = None


class TestRealSide:
    def test_unknown_metrics_and_unfitted_ks_are_refused(self, rng):
        side = RealManifold.fit(rng.normal(size=(20, 3)), balls=[Ball(3)])
        with raising(UsageError, "unknown-metric", "unknown metrics: f1; known: precision, recall"):
            ball_scores(side, rng.normal(size=(20, 3)), ks={"f1": 3})
        with raising(UsageError, "k-not-fitted", "k = 5 was not fitted, only k = 3"):
            ball_scores(side, rng.normal(size=(20, 3)), ks={"density": 5})


GOOD = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize("score", [manifold_metrics, precision_recall])
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        *(({"k": k}, "bad-k", "k must be an integer of at least 1") for k in (0, 2.5, True)),
        *(({"ties": ties}, "bad-ties", "ties must be 'closed'") for ties in ("open", None, 1)),
    ],
)
def test_impossible_options_are_refused(score, options, code, message):
    with raising(UsageError, code, message):
        score(GOOD, GOOD, **options)


@pytest.mark.parametrize(
    ("real", "fake", "code", "message"),
    [
        (GOOD[:3], GOOD, "too-few", "real needs at least k \\+ 1 = 4 rows, found 3"),
        (GOOD, GOOD[:3], "too-few", "fake needs at least k \\+ 1 = 4 rows, found 3"),
        (GOOD, GOOD[:, :2], "width-mismatch", "real has 3 features per image but fake has 2"),
        (GOOD, np.where(np.eye(20, 3) == 1, np.nan, GOOD), "non-finite", "fake features must be finite"),
    ],
    ids=["few reals", "few fakes", "widths", "not finite"],
)
def test_impossible_sets_are_refused_before_anything_is_computed(real, fake, code, message, monkeypatch):
    monkeypatch.setattr(real_manifold.Neighborhood, "of", lambda *_, **__: pytest.fail("computed"))
    for score in (manifold_metrics, precision_recall):
        with raising(FeatureError, code, message):
            score(real, fake, k=3)


def test_one_row_more_than_k_is_enough():
    assert precision_recall(GOOD[:4], GOOD[:4]) == (1, 1)
