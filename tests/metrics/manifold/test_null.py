"""Nulls: tabulated values, identities between them, and small simulations with sets of different size."""

import math

import numpy as np
import pytest
from null_oracle import clipped_coverage_curve
from scipy.stats import hypergeom

from genpr.metrics.null import balls_hit, calibrated_clipped_coverage, nn_accuracy_null

# n, m: expected coverage at k = 1, 3, 5, 10; least k for .95; clipped coverage at k = 5; precision cover at 3, 9.
TABLE = [
    (100, 100, 0.502513, 0.878759, 0.971070, 0.999270, 5, 0.760153, 0.972023),
    (1000, 1000, 0.500250, 0.875375, 0.968984, 0.999050, 5, 0.754522, 0.967768),
    (50000, 50000, 0.500005, 0.875008, 0.968755, 0.999024, 5, 0.753919, 0.967295),
    (50000, 10000, 0.166669, 0.421308, 0.598143, 0.838524, 17, 0.199346, 0.999996),
    (5000, 50000, 0.909107, 0.999250, 0.999994, 1.0, 2, 0.999801, 0.071175),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}x{row[1]}")
def test_nulls_equal_tabulated_values(row):
    n, m, at_1, at_3, at_5, at_10, least, clipped, cover = row
    found = [balls_hit(n, m, k) for k in (1, 3, 5, 10)]
    found += [*clipped_coverage_curve(n, m, 5), balls_hit(m, n, 9, at_least=3)]
    assert found == pytest.approx([at_1, at_3, at_5, at_10, clipped, cover], abs=6e-7)
    assert balls_hit(n, m, least) > 0.95 >= balls_hit(n, m, least - 1)


@pytest.mark.parametrize(("n", "m"), [(20, 7), (7, 20), (300, 1000), (1000, 300), (2, 1), (9, 9)])
def test_counts_in_balls_are_hypergeometric(n, m):
    for k in {1, min(5, n - 1), n - 1}:
        for t in (1, 2, 4, m, m + 1):
            expected = hypergeom.sf(t - 1, n + m - 1, m, min(k + t - 1, n + m - 1)) if t <= m else 0.0
            assert balls_hit(n, m, k, at_least=t) == pytest.approx(expected, abs=1e-11)
        product = 1 - math.prod((n - i) / (n + m - i) for i in range(1, k + 1))
        assert balls_hit(n, m, k) == pytest.approx(product, abs=1e-13)
        mean = np.mean([balls_hit(n, m, k, at_least=t) for t in range(1, k + 1)])
        assert clipped_coverage_curve(n, m, k)[0] == pytest.approx(mean, abs=1e-12)


def _neighbors(points, k):
    """(n, n) squared distances without the diagonal, and each row's k-th smallest."""
    sq = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(sq, np.inf)
    return sq, np.partition(sq, k - 1, axis=1)[:, k - 1]


def _fakes_in_balls(rng, n, m, k):
    """(n,) fakes in each real ball for one draw in three dimensions; skewed, so that no symmetry helps."""
    real, fake = rng.exponential(size=(n, 3)), rng.exponential(size=(m, 3))
    _, sq_radii = _neighbors(real, k)
    return (((real[:, None] - fake[None]) ** 2).sum(axis=2) <= sq_radii[:, None]).sum(axis=1)


@pytest.mark.parametrize(("n", "m", "k"), [(60, 150, 3), (150, 60, 5)])
def test_nulls_equal_simulated_balls(n, m, k, rng):
    hits = np.array([_fakes_in_balls(rng, n, m, k) for _ in range(200)])
    values = {
        "one": ((hits >= 1).mean(axis=1), balls_hit(n, m, k)),
        "four": ((hits >= 4).mean(axis=1), balls_hit(n, m, k, at_least=4)),
        "clipped": (np.minimum(1, hits / k).mean(axis=1), clipped_coverage_curve(n, m, k)[0]),
        "density": (hits.sum(axis=1) / (k * m), 1.0),
    }
    for name, (seen, expected) in values.items():
        error = seen.std() / math.sqrt(len(seen))
        assert abs(seen.mean() - expected) < 4 * error, name
    # Sensitive enough: the null of swapped sizes is far away.
    one = values["one"][0]
    assert abs(one.mean() - balls_hit(m, n, k)) > 20 * one.std() / math.sqrt(len(one))


def test_null_of_nn_accuracy_equals_a_simulation(rng):
    n, m = 120, 40
    seen = []
    for _ in range(200):
        sq, _ = _neighbors(rng.normal(size=(n + m, 2)), 1)
        is_real = np.arange(n + m) < n
        seen.append((is_real[sq.argmin(axis=1)] == is_real).mean())
    expected = nn_accuracy_null(n, m)
    assert expected == pytest.approx((n * (n - 1) + m * (m - 1)) / ((n + m) * (n + m - 1)))
    assert abs(np.mean(seen) - expected) < 4 * np.std(seen) / math.sqrt(len(seen))
    assert nn_accuracy_null(n, n) == pytest.approx((n - 1) / (2 * n - 1), abs=1e-15)
    assert nn_accuracy_null(m, n) == expected


@pytest.mark.parametrize(
    ("n", "m", "k"), [(90, 40, 4), (40, 90, 5), (500, 500, 5), (30, 2000, 2), (50, 1, 3)]
)
def test_calibration_inverts_the_curve(n, m, k):
    curve = clipped_coverage_curve(n, np.arange(m + 1), k)
    good = calibrated_clipped_coverage(curve, n, m, k)
    assert good == pytest.approx(np.arange(m + 1) / m, abs=1e-9)
    fine = calibrated_clipped_coverage(np.linspace(0, 1, 1001), n, m, k)
    assert (np.diff(fine) >= 0).all()
    assert fine[0] == 0
    assert fine[-1] == 1
    halfway = calibrated_clipped_coverage([(curve[m // 2] + curve[m // 2 + 1]) / 2], n, m, k)
    assert halfway == pytest.approx((m // 2 + 0.5) / m, abs=1e-9)
