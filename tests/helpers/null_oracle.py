"""The expectation of clipped coverage before its calibration, from the hypergeometric distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

Floats = NDArray[np.float64]


def clipped_coverage_null(n_real: int, n_fake: int, k: int) -> float:
    """Expected clipped coverage before its calibration: the mean over balls of min(1, fakes in it / k)."""
    return float(_clipped_coverage(n_real, np.array([n_fake]), k)[0])


def clipped_coverage_curve(n_real: int, n_fake: int, k: int) -> Floats:
    """The same when only so many fakes are good and the rest far away: (n_fake + 1,) by the number of good fakes."""
    return _clipped_coverage(n_real, np.arange(n_fake + 1), k)


def _clipped_coverage(n_real: int, good: NDArray[np.int64], k: int) -> Floats:
    good, t = good[:, None], np.arange(1, k + 1)
    total = n_real + good - 1
    fewer = hypergeom.cdf(t - 1, total, good, np.minimum(k + t - 1, total))
    return 1.0 - np.where(t > good, 1.0, fewer).mean(axis=1)
