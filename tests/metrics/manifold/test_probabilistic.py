"""P-precision and P-recall against a plain double loop, and as published."""

import math

import feature_cases
import numpy as np
import oracle
import pytest

from genpr.errors import FeatureError, UsageError
from genpr.metrics import blocks
from genpr.metrics.probabilistic import probabilistic_precision_recall


def in_support(of: np.ndarray, samples: np.ndarray, k: int, scale: float) -> float:
    """Mean over the samples, pair by pair."""
    radius = scale * np.sqrt(oracle.kth_sq_distances(of, [k])[0]).mean()
    total = 0.0
    for sample in samples:
        outside = 1.0
        for row in of:
            distance = math.sqrt(oracle.sq_distance(sample, row))
            outside *= min(1.0, distance / radius) if radius > 0 else float(distance > 0)
        total += 1 - outside
    return total / len(samples)


CASES = (
    *("integers", "off_center", "duplicates", "near_duplicates", "fakes_copy_reals", "outlier_in_both"),
    *("all_identical", "collapsed_fakes", "one_column", "tiny_values", "huge_values"),
)


@pytest.mark.parametrize("case", CASES)
def test_equals_the_double_loop(case, monkeypatch):
    monkeypatch.setattr(blocks, "_TILE_ROWS", 37)
    real, fake = (features[:70] for features in feature_cases.make(case))
    found = probabilistic_precision_recall(real, fake)
    expected = in_support(real, fake, 4, 1.2), in_support(fake, real, 4, 1.2)
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_options_are_used(rng):
    real, fake = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(0.5, 1, (50, 3)).astype(np.float32)
    found = probabilistic_precision_recall(real, fake, k=2)
    assert found == pytest.approx((in_support(real, fake, 2, 1.2), in_support(fake, real, 2, 1.2)), rel=1e-12)
    exchanged = probabilistic_precision_recall(fake, real, k=2)
    assert exchanged == pytest.approx(found[::-1], rel=1e-12)
    assert abs(found.precision - found.recall) > 0.01


@pytest.mark.parametrize(
    ("d", "published"), [(1, 0.93), (8, 0.74), (64, 0.98)], ids=["1 column", "8 columns", "64 columns"]
)
def test_the_same_distribution_scores_below_1(d, published, rng):
    for value in probabilistic_precision_recall(*rng.normal(size=(2, 1000, d))):
        assert value == pytest.approx(published, abs=0.025)


def test_impossible_input_is_refused(rng):
    real = rng.normal(size=(9, 2))
    with pytest.raises(UsageError, match="k must be"):
        probabilistic_precision_recall(real, real, k=0)
    with pytest.raises(FeatureError, match="fake needs at least k \\+ 1 = 5 rows"):
        probabilistic_precision_recall(real, real[:4])
    with pytest.raises(FeatureError, match="same extractor"):
        probabilistic_precision_recall(real, real[:, :1])
