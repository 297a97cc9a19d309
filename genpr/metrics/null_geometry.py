"""Nulls that depend on the distribution: of precision, of recall and of authenticity.

A perfect generator does not score precision 1. Add one of its fakes to the n reals: it lies in the ball of a real
exactly when it is among the k nearest neighbours of that real in the joint set. So the null of precision is the chance
that a point is among the k nearest neighbours of at least one other point, the share of points of in-degree at least 1
in the k-NN graph of n + 1 points. It falls with the hubness of the features: 1 - 4^-k on a curve, 1 - e^-k on a sphere
of high dimension, .477 for 10,000 points of a Gaussian in 1,000 dimensions and k = 5.

The k-NN graph of the reals themselves, which is known once their radii are, estimates it for free (leave-one-out).

References:
    Alaa et al. 2022, "How Faithful is your Synthetic Data?" (authenticity).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genpr.errors import FeatureError, UsageError
from genpr.validation import check_count

_LEAST_DIMENSION = 8
_REACH = 5.0  # standard deviations to which the integrals go
# More nodes and a longer reach change the result by less than 5e-5.
_NODES = 16, 16, 40  # of the norm of a real, of the mass of its ball, of the norm of a fake
_LIMIT_NODES = 400
_HALVINGS = 36

Floats = NDArray[np.float64]


def share_reached(in_degrees: ArrayLike) -> float:
    """Leave-one-out null: share of points that lie in the ball of at least one other point of their set.

    Of the graph of n reals it is the null of precision at n reals. The null of recall at m fakes is the same share on a
    graph of m reals, the same number if n = m: precision depends on the number of reals alone, recall on that of the
    fakes.

    Args:
        in_degrees: (n,) in how many balls of other points each point lies; an array or a tensor on the CPU.

    Raises:
        FeatureError: It is not such an array ("not-in-degrees").
    """
    degrees = np.asarray(in_degrees)
    if degrees.ndim != 1 or len(degrees) == 0 or degrees.dtype.kind not in "iu" or degrees.min() < 0:
        raise FeatureError(
            f"in-degrees are one count per point, but came as {degrees.dtype} of shape {degrees.shape}",
            code="not-in-degrees",
        )
    return float((degrees >= 1).mean())


def mutual_pair_share(nearest_index: ArrayLike) -> float:
    """Null of authenticity: 1 - the share of points that are the nearest neighbour of their own nearest neighbour.

    A fake is authentic when its nearest real has another real nearer than it, that is unless both are the nearest
    neighbour of each other in the set of the reals and this fake. Among the reals themselves that is so for the pairs
    of mutual nearest neighbours, which makes their share the exact calibrator, at these sizes and in these features.

    Args:
        nearest_index: (n,) row of the nearest other point of each point; an array or a tensor on the CPU.

    Raises:
        FeatureError: It is not such an array ("not-neighbours").
    """
    nearest = np.asarray(nearest_index)
    is_one = nearest.ndim == 1 and len(nearest) > 1 and nearest.dtype.kind in "iu"
    rows = np.arange(len(nearest)) if is_one else nearest
    if not is_one or nearest.min() < 0 or nearest.max() >= len(nearest) or (nearest == rows).any():
        raise FeatureError(
            "nearest_index must give for each point the row of another point, "
            f"but came as {nearest.dtype} of shape {nearest.shape}",
            code="not-neighbours",
        )
    return 1.0 - float((nearest[nearest] == rows).mean())


def authenticity_limit(d: int) -> float:
    """Null of authenticity for many points of any density in d dimensions: 1 - 1 / (2 - I_{3/4}((d + 1) / 2, 1 / 2)).

    The chance that a point and its nearest neighbour are mutual is the volume of a ball over that of its union with a
    ball as large around a point on its surface. It is 1/3 on a line and tends to 1/2; the number of points that makes
    them "many" grows exponentially with d, and hubness brings the null of feature sets to .6 and more.

    Raises:
        UsageError: d is out of range ("bad-option").
    """
    from scipy.special import betainc

    d = check_count(d, "d", least=1)
    return float(1.0 - 1.0 / (2.0 - betainc((d + 1) / 2, 0.5, 0.75)))


def gaussian_precision_null(n: int, d: int, k: int) -> float:
    """Null of precision for n reals of N(0, I_d), semi-analytically.

    The squared norm of a real is chi-squared, the mass m of its ball Beta(k, n - k), which sets its radius; the chance
    that the ball contains a fake of given norm is a spherical cap. Averaged over reals this is p, and the fake is in no
    ball with chance (1 - p)^n, as if balls were independent. They are nearly so in high dimension only: simulated
    values lie .012 above at d = 8 and n = 1000, and within .002 from d = 64 on.

    Args:
        n: Number of reals, n > k.
        d: Dimension, at least 8.
        k: Neighbours that set a ball's radius.

    Raises:
        UsageError: A number is out of range ("bad-option").
    """
    from scipy.special import betaincinv, gammaincinv

    n, d = check_count(n, "n", least=2), check_count(d, "d", least=_LEAST_DIMENSION)
    k = check_count(k, "k", least=1, most=n - 1)
    (share_a, weight_a), (share_m, weight_m), (share_b, weight_b) = map(_normal_nodes, _NODES)
    a = np.sqrt(2.0 * gammaincinv(d / 2, share_a))[:, None, None]
    b = np.sqrt(2.0 * gammaincinv(d / 2, share_b))
    mass = betaincinv(k, n - k, share_m)
    sq_radius = _sq_radius_of_mass(mass, a, b, weight_b, d)
    p = np.einsum("a,m,amb->b", weight_a, weight_m, _cap_share(a, sq_radius[:, :, None], b, d))
    return float(1.0 - weight_b @ np.exp(n * np.log1p(-p)))


def coordinates_precision_null(n: int, kurtosis: float, k: int) -> float:
    """Null of precision for n reals of independent coordinates, as their number grows without end.

    The squared distance of a real to another point is then, up to scale, the sum of a part of that point, which is
    N(0, kurtosis - 1) and the same for all reals, and a part of the pair, N(0, 4). Points with a low own part are in
    many balls, and the others in none: hubness, which vanishes only for kurtosis 1. The limit is approached slowly; for
    Gaussian coordinates see `gaussian_precision_null`.

    Args:
        n: Number of reals, n > k.
        kurtosis: Fourth central moment of a coordinate over its squared variance: at least 1, 3 for a Gaussian.
        k: Neighbours that set a ball's radius.

    Raises:
        UsageError: A number is out of range ("bad-option").
    """
    from scipy.special import ndtr, ndtri

    n = check_count(n, "n", least=2)
    k = check_count(k, "k", least=1, most=n - 1)
    if not 1 <= kurtosis < np.inf:
        raise UsageError(f"kurtosis must be a number of at least 1, not {kurtosis!r}", code="bad-option")
    shares, weights = _normal_nodes(_LIMIT_NODES)
    own = np.sqrt(kurtosis - 1) * ndtri(shares)
    radius = np.sqrt(kurtosis + 3) * ndtri(k / n)
    return float(1.0 - weights @ np.exp(n * np.log1p(-ndtr((radius - own) / 2))))


def _normal_nodes(count: int) -> tuple[Floats, Floats]:
    """Shares in (0, 1) and their weights, for the mean over quantiles: dense in both tails, where nulls are made."""
    from scipy.special import ndtr

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
    from scipy.special import betainc

    cosine = np.clip((a**2 + b**2 - sq_radius) / (2 * a * b), -1.0, 1.0)
    half = 0.5 * betainc((d - 1) / 2, 0.5, 1.0 - cosine**2)
    share: Floats = np.where(cosine >= 0, half, 1.0 - half)
    return share
