"""Nulls that genpr does not compute: oracles of those that it does, and of the numbers in docs/metrics.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, gammaincinv, ndtr
from scipy.stats import hypergeom

Floats = NDArray[np.float64]

NODES = 16, 16, 40
"""Of the norm of a real, of the mass of its ball, of the norm of a fake; more change the result by less than 5e-5."""
_REACH = 5.0  # standard deviations to which the integrals go
_HALVINGS = 36


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


def mutual_pair_share(nearest_index: ArrayLike) -> float:
    """Null of authenticity: 1 - the share of points that are the nearest neighbor of their own nearest neighbor.

    Args:
        nearest_index: (n,) row of the nearest other point of each point.
    """
    nearest = np.asarray(nearest_index)
    return 1.0 - float((nearest[nearest] == np.arange(len(nearest))).mean())


def authenticity_limit(d: int) -> float:
    """Null of authenticity for many points of any density in d dimensions: 1 - 1 / (2 - I_{3/4}((d + 1) / 2, 1 / 2)).

    The chance that a point and its nearest neighbor are mutual is the volume of a ball over that of its union with a
    ball as large around a point on its surface. It is 1/3 on a line and tends to 1/2; the number of points that makes
    them "many" grows exponentially with d, and hubness brings the null of feature sets to .6 and more.
    """
    return float(1.0 - 1.0 / (2.0 - betainc((d + 1) / 2, 0.5, 0.75)))


def gaussian_precision_null(n: int, d: int, k: int, nodes: tuple[int, int, int] = NODES) -> float:
    """Null of precision for n reals of N(0, I_d), semi-analytically.

    The squared norm of a real is chi-squared, the mass m of its ball Beta(k, n - k), which sets its radius; the chance
    that the ball contains a fake of given norm is a spherical cap. Averaged over reals this is p, and the fake is in no
    ball with chance (1 - p)^n, as if balls were independent. They are nearly so in high dimension only: simulated
    values lie .012 above at d = 8 and n = 1000, and within .002 from d = 64 on.

    Args:
        n: Number of reals, n > k.
        d: Dimension, at least 8.
        k: Neighbors that set a ball's radius.
        nodes: Of the three integrals.
    """
    (share_a, weight_a), (share_m, weight_m), (share_b, weight_b) = map(_normal_nodes, nodes)
    a = np.sqrt(2.0 * gammaincinv(d / 2, share_a))[:, None, None]
    b = np.sqrt(2.0 * gammaincinv(d / 2, share_b))
    mass = betaincinv(k, n - k, share_m)
    sq_radius = _sq_radius_of_mass(mass, a, b, weight_b, d)
    p = np.einsum("a,m,amb->b", weight_a, weight_m, _cap_share(a, sq_radius[:, :, None], b, d))
    return float(1.0 - weight_b @ np.exp(n * np.log1p(-p)))


def _normal_nodes(count: int) -> tuple[Floats, Floats]:
    """Shares in (0, 1) and their weights, for the mean over quantiles: dense in both tails, where nulls are made."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    z = _REACH * nodes
    weights = weights * np.exp(-(z**2) / 2)
    return ndtr(z), weights / weights.sum()


def _sq_radius_of_mass(mass: Floats, a: Floats, b: Floats, weight_b: Floats, d: int) -> Floats:
    """Squared radius at which a ball at norm `a` (p, 1, 1) has each `mass` (q,), by bisection: (p, q)."""
    low = np.zeros((len(a), len(mass)))
    high = np.full_like(low, (a.max() + b.max()) ** 2)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_small = _cap_share(a, middle[:, :, None], b, d) @ weight_b < mass
        low, high = np.where(is_small, middle, low), np.where(is_small, high, middle)
    return (low + high) / 2


def _cap_share(a: Floats, sq_radius: Floats, b: Floats, d: int) -> Floats:
    """Share of the sphere of norm `b` that lies within a radius of a point of norm `a`; all broadcast."""
    cosine = np.clip((a**2 + b**2 - sq_radius) / (2 * a * b), -1.0, 1.0)
    half = 0.5 * betainc((d - 1) / 2, 0.5, 1.0 - cosine**2)
    share: Floats = np.where(cosine >= 0, half, 1.0 - half)
    return share
