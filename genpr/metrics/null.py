"""Nulls: what a perfect generator scores at these numbers of images.

A perfect generator draws from the distribution of the reals. Then the n - 1 other reals and the m fakes around a real come
in any order, nearest first, with equal chance, whatever the distribution (without ties) and its dimension. How many fakes
come before the k-th real, and so lie in its ball, has a negative hypergeometric distribution, of which coverage, its
complement, clipped coverage and witnessed diversity are expectations. Density is 1 on average at any sizes.

The null of precision depends on the distribution: a fake lies in the ball of a real exactly when it is among the k nearest
neighbors of that real in the joint set, so the null is the share of points of in-degree at least 1 in the k-NN graph of
n + 1 points, 1 - 4^-k on a curve and 1 - e^-k on a sphere of high dimension. The graph of the reals estimates it.

References:
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (density and coverage).
    Salvy et al. 2026, "Enhanced Generative Model Evaluation with Clipped Density and Coverage" (the calibration).
    Cheema and Urner 2023, "Precision Recall Cover" (cover).
    Schilling 1986, "Multivariate Two-Sample Tests Based on Nearest Neighbors".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_BLOCK_ELEMENTS = 2**20

Floats = NDArray[np.float64]


def balls_hit(n_real: int, n_fake: int, k: int, *, at_least: int = 1) -> float:
    """Chance that the closed k-NN ball of a real contains at least `at_least` fakes of a perfect generator.

    This is the null of coverage; with the sizes swapped, that of complement precision; with k' neighbors and at least k,
    that of covers. For one fake it is 1 - prod_{i=1..k} (n - i) / (n + m - i).
    """
    if at_least > n_fake:
        return 0.0
    fewer = _shares_of_balls(n_real, np.array([n_fake]), k, at_least).sum()
    return float(max(0.0, 1.0 - fewer))


def nn_accuracy_null(n_real: int, n_fake: int) -> float:
    """Null of the leave-one-out accuracy of a nearest-neighbor classifier of reals and fakes.

    The share of all n + m images whose nearest other image is of the same set (Schilling 1986).
    """
    n, m = n_real, n_fake
    return (n * (n - 1) + m * (m - 1)) / ((n + m) * (n + m - 1))


def calibrated_clipped_coverage(raw: ArrayLike, n_real: int, n_fake: int, k: int, *, most: int = 1) -> Floats:
    """Shares (p,) of good fakes, at most `most`, at which clipped coverage is expected to be `raw` (p,).

    `raw` is the mean over reals of min(1, fakes in the ball / k). Salvy et al. (2026) return the index of the first point
    of the curve of that expectation that reaches `raw`, over n_fake + 1: a step function, in which the null itself becomes
    n_fake / (n_fake + 1). Here the curve is inverted linearly between its points, and is 1 from the null on. Both differ by
    at most 2 / n_fake.
    """
    good = np.arange(most * n_fake + 1)
    # As the difference to 1, which is precise however small.
    wanted, curve = 1.0 - np.asarray(raw, dtype=np.float64), _shortfall(n_real, good, k)
    low = np.searchsorted(-curve[:-1], -wanted, side="right") - 1
    # Computed again, since NumPy sums one column in another order than a table, and a single value must keep its last bit.
    at_low, at_high = (_shortfall(n_real, good[low + step], k) for step in (0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):  # from the null on
        between = (at_low - wanted) / (at_low - at_high)
    good_fakes: Floats = np.where(wanted > curve[-1], low + between, good[-1])
    return good_fakes / n_fake


def _shares_of_balls(n: int, m: NDArray[np.int64], k: int, count: int) -> Floats:
    """Chance that exactly j of m fakes come before the k-th other real, for j = 0..count - 1: (count, len(m)).

    In logarithms: for none it is the chance that the first k neighbors are all reals, and each further fake brings
    the factor (j + k) / (j + 1) * (m - j) / (n - 1 - k + m - j).
    """
    m = m.astype(np.float64)
    i = np.arange(k)[:, None]
    steps = np.empty((count, len(m)))
    steps[0] = np.log1p(-m / (n + m - 1 - i)).sum(axis=0)
    j = np.arange(count - 1)[:, None]
    left = np.maximum(m - j, 0)
    with np.errstate(divide="ignore"):  # no fake is left: the logarithm of 0, whose exponential is 0
        steps[1:] = np.log((j + k) / (j + 1.0) * left / (n - 1 - k + np.maximum(left, 1)))
    return np.exp(np.cumsum(steps, axis=0))


def _shortfall(n: int, m: NDArray[np.int64], k: int) -> Floats:
    """1 - E[min(1, fakes in a ball / k)], (len(m),); strictly decreasing in m, precise however small."""
    out = np.empty(len(m))
    missing = 1.0 - np.arange(k)[:, None] / k
    length = max(1, _BLOCK_ELEMENTS // k)
    for start in range(0, len(m), length):
        block = slice(start, start + length)
        out[block] = (_shares_of_balls(n, m[block], k, k) * missing).sum(axis=0)
    return out
