"""The expectation of clipped coverage before its calibration, from the hypergeometric distribution."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import hypergeom


def clipped_coverage_curve(n_real: int, good: ArrayLike, k: int) -> NDArray:
    """Mean over balls of min(1, fakes in it / k) for `good` fakes of the real distribution and others far away."""
    good, t = np.atleast_1d(good)[:, None], np.arange(1, k + 1)
    total = n_real + good - 1
    fewer = hypergeom.cdf(t - 1, total, good, np.minimum(k + t - 1, total))
    return 1.0 - np.where(t > good, 1.0, fewer).mean(axis=1)
