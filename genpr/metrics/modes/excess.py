"""Which groups of images are flagged more often than chance does: a test that holds for all groups at once.

Under the null hypothesis real and fake images are drawn from one distribution. Given all images, without regard to
which are real, every way to call n of them real is then equally likely. A statistic is recomputed for random ways; the
observed one ranks among them as one of them. Groups that were formed without looking at who is real need no correction,
images whose neighbours are shared need none, and the largest statistic over all groups accounts for their number
(Westfall & Young 1993). Nothing is assumed of the distribution or its dimension.

References:
    Westfall & Young 1993, "Resampling-Based Multiple Testing" (largest statistic).
    Phipson & Smyth 2010, "Permutation P-values Should Never Be Zero".
    Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05
"""Adjusted p up to which more is said than that chance may do it."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Of each group (g,): flagged images, and images that could be."""

_FIRST, _RANKED = 200, 499  # relabellings that scale the statistics, and those among which they rank


@dataclass(frozen=True, slots=True)
class Excess:
    """Groups held against random labellings.

    Attributes:
        flagged: (g,) images.
        size: (g,) images that could be flagged.
        expected: (g,) flagged images on average.
        p: (g,) chance that any group is as far beyond it, if both sets are of one distribution.
    """

    flagged: NDArray[np.int64]
    size: NDArray[np.int64]
    expected: Floats
    p: Floats


def excess_by_relabelling(is_real: Flags, count: Callable[[Flags], Counts], *, seed: int) -> Excess:
    """Test all groups of `count` at once, one-sided.

    Args:
        is_real: (n,) bool, the true labelling.
        count: Counts of groups that do not depend on the labelling.
        seed: Of the labellings.
    """
    rng = np.random.default_rng(seed)
    # The scale comes from other labellings than those ranked among, so that these and the true one are alike.
    rate, spread = _rates([count(rng.permutation(is_real)) for _ in range(_FIRST)])
    ranked = [_largest(*count(rng.permutation(is_real)), rate, spread) for _ in range(_RANKED)]
    flagged, size = count(is_real)
    own = surprise(flagged, rate * size, spread)
    p = (1 + (np.array(ranked)[:, None] >= own).sum(axis=0)) / (1 + _RANKED)
    return Excess(flagged, size, rate * size, np.where(flagged > 0, p, 1.0))


def spread_of(found: list[Counts], rate: Floats | float) -> Floats:
    """Variance of flagged counts over that of independent ones of so rare a kind, at least 1: (g,)."""
    flagged, size = (np.array(part, dtype=np.float64) for part in zip(*found, strict=True))
    mean = rate * size
    usual = mean.sum(axis=0)
    # One more labelling that is as usual keeps groups without a flagged image from dividing by zero.
    extra = usual.mean() / len(found) + 1e-12
    ratio: Floats = (((flagged - mean) ** 2).sum(axis=0) + extra) / (usual + extra)
    return np.maximum(ratio, 1.0 + 1e-3)


def surprise(flagged: NDArray[np.int64], mean: Floats, spread: Floats) -> Floats:
    """Minus the logarithm of the chance that a negative binomial count is so large: (g,); 0 where none is flagged."""
    from scipy.special import betainc

    size = np.maximum(mean, 1e-12) / (spread - 1)
    chance = betainc(np.maximum(flagged, 1), size, 1 - 1 / spread)
    chance = np.where(flagged > 0, chance, 1.0)
    with np.errstate(divide="ignore"):  # beyond float64 all are equally surprising
        return -np.log(chance)


def holm(p: Floats) -> Floats:
    """Adjusted p values (g,): the least level at which all of them together allow to reject each."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def _rates(found: list[Counts]) -> tuple[Floats, Floats]:
    flagged, size = (np.array(part, dtype=np.float64).sum(axis=0) for part in zip(*found, strict=True))
    # One more image that is flagged as often as all are: a rate of 0 would make a single one infinitely surprising.
    overall = max(float(flagged.sum()), 1.0) / max(float(size.sum()), 1.0)
    rate: Floats = (flagged + overall) / (size + 1)
    return rate, spread_of(found, rate)


def _largest(flagged: NDArray[np.int64], size: NDArray[np.int64], rate: Floats, spread: Floats) -> float:
    return float(surprise(flagged, rate * size, spread).max())
