"""Both sets on one plane: their two principal components, and a part of the images as points on it.

    S = 1/2 (1/n sum over reals of (x - c)(x - c)' + 1/m sum over fakes of (y - c)(y - c)'),    c = 1/2 (mean_r + mean_f)

The axes are the two leading eigenvectors of S, so that each set weighs the same however many images it has.

References:
    Pearson 1901, "On Lines and Planes of Closest Fit to Systems of Points in Space".
    Bro, Acar & Kolda 2008, "Resolving the Sign Ambiguity in the Singular Value Decomposition".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.blocks import double_blocks
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_rows,
    check_same_width,
    choose_device,
)

_FITTED = 10_000  # rows of a set that the axes are found from
_PANEL = 512  # columns whose products are found at a time
_EPS = torch.finfo(torch.float64).eps
_ALIKE = 1e-6  # of the largest component of an axis, within which rounding could choose another


@dataclass(frozen=True, eq=False, slots=True)
class Projection:
    """Points on the plane of the two principal components; reals first, each side in the order of its rows.

    Attributes:
        places: (p, 2) float64 in units of the features, relative to the middle between both means.
        is_real: (p,) bool.
        rows: (p,) int64, the row of each point in its own set.
        explained: (2,) float64, share of the variance along each axis: of all variance of both sets, each weighing the same.
        n_real: Reals that there are.
        n_fake: Fakes that there are.
    """

    places: NDArray[np.float64]
    is_real: NDArray[np.bool_]
    rows: NDArray[np.int64]
    explained: NDArray[np.float64]
    n_real: int
    n_fake: int


def project(
    real: Features,
    fake: Features,
    *,
    most: int = 2000,
    seed: int = 0,
    device: str | torch.device = "auto",
) -> Projection:
    """A random part of both sets on the plane of their two principal components.

    The axes are those of all rows of a set of up to 10,000, and of 10,000 random ones of a larger set: all rows of sets
    of 50,000 moved points by 1 and 4 % of the spread along the axes (512 columns, no axis far ahead of the next). They do
    not depend on which points are drawn nor, but for rounding, on the order of rows or the number of threads. The
    largest component of an axis is positive. Where features do not vary in a second direction, all points are 0 there.

    Time is that of up to 20,000 rows times d², memory two (d, d) matrices and blocks, however long the sets.

    Args:
        real: (n, d) features of real images.
        fake: (m, d) features of generated images by the same extractor.
        most: Points to draw, at least 2: half of each side, or more of one where the other has fewer.
        seed: Of the random parts.
        device: Where to compute; "auto" is where a GPU tensor lies, else the best device here.

    Raises:
        FeatureError: Malformed, non-finite or empty features, or sets of different width.
        UsageError: most or seed is impossible.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(300, 8)) * [9, 3, 1, 1, 1, 1, 1, 1]
        >>> points = project(real, real + 1, most=100)
        >>> points.places.shape, int(points.is_real.sum())
        ((100, 2), 50)
        >>> bool(points.explained[0] > 0.7)
        True
    """
    sides = [check_features(real, "real"), check_features(fake, "fake")]
    check_same_width(*sides)
    for side, name in zip(sides, ("real", "fake"), strict=True):
        check_rows(side, name, k=0)
    shares = _shares(len(sides[0]), len(sides[1]), check_count(most, "most", least=2))
    where = choose_device(sides[0], device)
    rng = np.random.default_rng(check_count(seed, "seed", least=0))
    orders = [torch.from_numpy(rng.permutation(len(side))).to(side.device) for side in sides]
    plane = _plane(sides, [order[:_FITTED].sort().values for order in orders], where)

    rows = [order[:share].sort().values for order, share in zip(orders, shares, strict=True)]
    places = [_places(side, each, plane, where) for side, each in zip(sides, rows, strict=True)]
    return Projection(
        places=torch.cat(places).cpu().numpy(),
        is_real=np.repeat([True, False], shares),
        rows=torch.cat([each.cpu() for each in rows]).numpy(),
        explained=plane.explained,
        n_real=len(sides[0]),
        n_fake=len(sides[1]),
    )


class _Plane(NamedTuple):
    """Where the axes lie: `center` (d,) is the middle between both means, `axes` (2, d) are orthonormal or zero."""

    center: Tensor
    axes: Tensor
    explained: NDArray[np.float64]


def _shares(n: int, m: int, most: int) -> tuple[int, int]:
    """Points of either side."""
    reals = min(n, max(most - most // 2, most - m))
    return reals, min(m, most - reals)


def _plane(sides: Sequence[Tensor], rows: Sequence[Tensor], device: torch.device) -> _Plane:
    means = []
    for side, part in zip(sides, rows, strict=True):
        total = torch.zeros(side.shape[1], dtype=torch.float64, device=device)
        for block in double_blocks(side, device, rows=part):
            total += block.sum(dim=0)
        means.append(total / len(part))
    center = (means[0] + means[1]) / 2
    values, axes, variance = _leading(sides, rows, center)
    is_noise = values <= max(sum(map(len, rows)), len(center)) * _EPS * values.max()
    values[is_noise], axes[is_noise] = 0, 0
    explained = values.cpu().numpy() / (variance or 1.0)
    return _Plane(center, _signed(axes), explained)


def _leading(sides: Sequence[Tensor], rows: Sequence[Tensor], center: Tensor) -> tuple[Tensor, Tensor, float]:
    """Both variances (2,), largest first, axes (2, d) and the sum of all variances."""
    d, device = len(center), center.device
    is_wide = sum(map(len, rows)) < d
    scatter = torch.zeros(d, d, dtype=torch.float64, device=device)
    scaled = []
    for side, part in zip(sides, rows, strict=True):
        for block in double_blocks(side, device, rows=part):
            centered = block - center
            if is_wide:
                scaled.append(centered / (2 * len(part)) ** 0.5)
            else:
                _add_products(scatter, centered, weight=0.5 / len(part))
    if not is_wide:
        variance = float(scatter.trace())
        values, vectors = _two_largest(scatter)
        return values, vectors.T.contiguous(), variance
    factor = torch.cat(scaled)  # fewer rows than columns: their products are the smaller matrix
    values, vectors = _two_largest(factor @ factor.T)
    axes = (vectors.T @ factor) / values.clamp(min=torch.finfo(torch.float64).tiny).sqrt()[:, None]
    return values, axes, float(factor.square().sum())


def _add_products(scatter: Tensor, centered: Tensor, *, weight: float) -> None:
    """Add those of the columns of a block (b, d) to the lower half of (d, d); the upper one is the same, and half the work."""
    for start in range(0, len(scatter), _PANEL):
        columns = slice(start, start + _PANEL)
        scatter[start:, columns].addmm_(centered[:, start:].T, centered[:, columns], alpha=weight)


def _two_largest(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues (2,), in order, and eigenvectors (s, 2) of a symmetric matrix (s, s); zeros where s is 1.

    Only the lower half of the matrix is read, and it is used up.
    """
    from scipy.linalg import eigh

    size = len(matrix)
    count = min(2, size)
    columnwise = matrix.cpu().numpy().T  # as LAPACK wants it, so that nothing is copied
    found, columns = eigh(columnwise, lower=False, overwrite_a=True, subset_by_index=(size - count, size - 1))
    values = torch.zeros(2, dtype=torch.float64)
    vectors = torch.zeros(size, 2, dtype=torch.float64)
    values[:count] = torch.from_numpy(found[::-1].clip(min=0))
    vectors[:, :count] = torch.from_numpy(columns[:, ::-1].copy())
    return values.to(matrix.device), vectors.to(matrix.device)


def _signed(axes: Tensor) -> Tensor:
    """The same axes; of the components that are largest, the first one is positive."""
    sizes = axes.abs()
    is_largest = sizes >= (1 - _ALIKE) * sizes.max(dim=1, keepdim=True).values
    first = axes.gather(1, is_largest.int().argmax(dim=1, keepdim=True))
    return torch.where(first < 0, -axes, axes)


def _places(features: Tensor, rows: Tensor, plane: _Plane, device: torch.device) -> Tensor:
    """(p, 2); each from its own row alone, in an order of summation that does not depend on the others."""
    places = []
    for block in double_blocks(features, device, rows=rows):
        centered = block - plane.center
        places.append(torch.stack([(centered * axis).sum(dim=1) for axis in plane.axes], dim=1))
    return torch.cat(places)
