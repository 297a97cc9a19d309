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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.blocks import double_blocks, mean_of
from genpr.validation import Features, check_count, check_features, check_rows, check_same_width

_FITTED = 10_000  # rows of a set that the axes are found from
_CPU = torch.device("cpu")
_ALIKE = 1e-6  # of the largest component of an axis, within which rounding could choose another

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Projection:
    """Points on the plane of the two principal components; reals first, each side in the order of its rows."""

    places: Floats  # (p, 2) in units of the features, relative to the middle between both means
    is_real: NDArray[np.bool_]  # (p,)
    rows: NDArray[np.int64]  # (p,) the row of each point in its own set
    explained: Floats  # (2,) share of the variance along each axis, each set weighing the same
    n_real: int  # reals that there are
    n_fake: int  # fakes that there are


def project(real: Features, fake: Features, *, most: int = 2000, seed: int = 0) -> Projection:
    """A random part of both sets on the plane of their two principal components.

    Of `most` points half are of each side, or more of one where the other has fewer. The axes are those of up to 10,000
    random rows of each set: all rows of sets of 50,000 moved points by 1 and 4 % of the spread along the axes. They do
    not depend on which points are drawn nor, but for rounding, on the order of rows or the number of threads. The
    largest component of an axis is positive. Where features do not vary in a second direction, all points are 0 there.
    """
    sides = [check_features(real, "real"), check_features(fake, "fake")]
    check_same_width(*sides)
    for side, name in zip(sides, ("real", "fake"), strict=True):
        check_rows(side, name, k=0)
    n, m = map(len, sides)
    most = check_count(most, "most", least=2)
    reals = min(n, max(most - most // 2, most - m))
    shares = reals, min(m, most - reals)
    rng = np.random.default_rng(check_count(seed, "seed", least=0))
    orders = [torch.from_numpy(rng.permutation(len(side))).to(side.device) for side in sides]
    fitted = [order[:_FITTED].sort().values for order in orders]
    center = (mean_of(sides[0], rows=fitted[0]) + mean_of(sides[1], rows=fitted[1])) / 2
    axes, explained = _axes(sides, fitted, center)
    rows = [order[:share].sort().values for order, share in zip(orders, shares, strict=True)]
    places = [
        # Each from its own row alone, in an order of summation that does not depend on the others.
        torch.stack([((block - center) * axis).sum(dim=1) for axis in axes], dim=1)
        for side, each in zip(sides, rows, strict=True)
        for block in double_blocks(side, _CPU, rows=each)
    ]
    return Projection(
        places=torch.cat(places).numpy(),
        is_real=np.repeat([True, False], shares),
        rows=torch.cat([each.cpu() for each in rows]).numpy(),
        explained=explained,
        n_real=n,
        n_fake=m,
    )


def _axes(sides: Sequence[Tensor], rows: Sequence[Tensor], center: Tensor) -> tuple[Tensor, Floats]:
    """Orthonormal axes (2, d), or zeros, and their shares of all variance."""
    from scipy.linalg.blas import dsyrk

    d, count = len(center), sum(map(len, rows))
    scatter, factors = np.zeros((d, d) if count >= d else (0, 0), order="F"), []
    for side, part in zip(sides, rows, strict=True):
        for block in double_blocks(side, _CPU, rows=part):
            centered = (block - center).numpy()
            if count < d:
                factors.append(centered / (2 * len(part)) ** 0.5)
            else:  # only the upper half, which is half the work
                scatter = dsyrk(0.5 / len(part), centered.T, beta=1.0, c=scatter, overwrite_c=True)
    if count < d:  # fewer rows than columns: their products are the smaller matrix
        factor = np.concatenate(factors)
        variance = float(np.square(factor).sum())
        values, vectors = _two_largest(np.asfortranarray(factor @ factor.T))
        axes = (vectors.T @ factor) / np.sqrt(np.maximum(values, np.finfo(float).tiny))[:, None]
    else:
        variance = float(scatter.trace())
        values, vectors = _two_largest(scatter)
        axes = vectors.T
    is_noise = values <= max(count, d) * np.finfo(float).eps * values.max()
    values[is_noise], axes[is_noise] = 0, 0
    # Of the components that are largest, the first one is positive.
    sizes = np.abs(axes)
    first = (sizes >= (1 - _ALIKE) * sizes.max(axis=1, keepdims=True)).argmax(axis=1)
    signs = np.where(axes[[0, 1], first] < 0, -1.0, 1.0)
    return torch.from_numpy(axes * signs[:, None]), values / (variance or 1.0)


def _two_largest(matrix: Floats) -> tuple[Floats, Floats]:
    """The largest eigenvalues (2,) and eigenvectors (s, 2) of a symmetric matrix, whose upper half is used up."""
    from scipy.linalg import eigh

    size = len(matrix)
    values, vectors = np.zeros(2), np.zeros((size, 2))
    count = min(2, size)
    found, columns = eigh(matrix, lower=False, overwrite_a=True, subset_by_index=(size - count, size - 1))
    values[:count], vectors[:, :count] = found[::-1].clip(min=0), columns[:, ::-1]
    return values, vectors
