"""Maximum mean discrepancy between two feature sets: the kernel distance (KID) and CMMD.

References:
    Gretton et al. 2012, "A Kernel Two-Sample Test" (the unbiased and the biased estimate, eq. 3 and 5).
    Bińkowski et al. 2018, "Demystifying MMD GANs" (KID: cubic polynomial kernel, unbiased, over subsets).
    Jayasumana et al. 2024, "Rethinking FID: Towards a Better Evaluation Metric for Image Generation" (CMMD).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genpr.metrics.blocks import check_no_zero_rows, double_blocks, unit_blocks
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_same_width,
    check_two_rows,
    choose_device,
    entry_point,
)

_TILE_ROWS = 1024  # a tile of the kernel matrix has at most so many rows and columns
_CMMD_SIGMA = 10.0
SUBSET_SIZE = 1000  # of Bińkowski et al. 2018, and of everyone since
_CMMD_SCALE = 1000.0

_Blocks = Callable[[], Iterator[Tensor]]
_Kernel = Callable[[Tensor], Tensor]
"""Elementwise, of dot products that it may overwrite: a tile is large, and a new one costs as much as the sums."""


class KernelDistance(NamedTuple):
    """Mean and standard deviation of the squared MMD over the subsets, and the rows that each really had."""

    mean: float
    std: float
    subset_size: int


@entry_point
def kernel_distance(
    real: Features,
    fake: Features,
    *,
    subsets: int = 100,
    subset_size: int = SUBSET_SIZE,
    seed: int = 2020,
    device: str | torch.device = "auto",
) -> KernelDistance:
    """Kernel distance (KID): unbiased squared MMD with kernel (x . y / d + 1)^3, averaged over random subsets.

    Subsets are those of torch-fidelity: one `numpy.random.RandomState(seed)` draws
    `choice(n, subset_size, replace=False)` from the reals and then from the fakes, for one subset after the other.

    Args:
        real: (n, d) features of real images, n >= 2.
        fake: (m, d) features of generated images by the same extractor, m >= 2.
        subsets: How many pairs of subsets.
        subset_size: Rows in each, at least 2; less where a set has less, and the result says how many it was.
            The variance depends on it, the expectation of the mean does not.
        seed: Of the drawing, below 2^32.
        device: "auto" is where the tensors are if that is a GPU, else the best device here.

    Returns:
        Mean and standard deviation (over the number of subsets, not one less), not multiplied by 1000. The mean may
        be slightly negative, as the estimate is unbiased.

    Raises:
        FeatureError: Malformed, non-finite, too few rows, or different widths.
        UsageError: subsets, subset_size or seed is impossible.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(500, 8)), rng.normal(size=(400, 8))
        >>> near, far = kernel_distance(real, fake), kernel_distance(real, fake + 1)
        >>> near.subset_size, abs(near.mean) < 0.01 < far.mean
        (400, True)
    """
    count = check_count(subsets, "subsets", least=1)
    size = check_count(subset_size, "subset_size", least=2)
    rng = np.random.RandomState(check_count(seed, "seed", least=0, most=2**32 - 1))
    real, fake, where = _checked_pair(real, fake, device)
    size = min(size, len(real), len(fake))
    values = torch.empty(count, dtype=torch.float64)
    for i in range(count):
        real_rows = torch.from_numpy(rng.choice(len(real), size, replace=False))
        fake_rows = torch.from_numpy(rng.choice(len(fake), size, replace=False))
        values[i] = _unbiased_sq_mmd(
            partial(double_blocks, real, where, rows=real_rows, most_rows=_TILE_ROWS),
            partial(double_blocks, fake, where, rows=fake_rows, most_rows=_TILE_ROWS),
            size,
            partial(_cubic, d=real.shape[1]),
        )
    return KernelDistance(float(values.mean()), float(values.std(correction=0)), size)


@entry_point
def cmmd(real: Features, fake: Features, *, device: str | torch.device = "auto") -> float:
    """CMMD: 1000 times the biased squared MMD of normalized embeddings, Gaussian kernel of sigma 10.

    Meant for CLIP ViT-L/14-336 embeddings. Rows are divided by their Euclidean norm, which changes nothing
    where the extractor has done so. All pairs count, also a row with itself, as in the authors' code; no (n,
    m) array is made. Returns at least 0.
    """
    real, fake, where = _checked_pair(real, fake, device)
    check_no_zero_rows(real, "real")
    check_no_zero_rows(fake, "fake")
    n, m = len(real), len(fake)
    reals = partial(unit_blocks, real, where, most_rows=_TILE_ROWS)
    fakes = partial(unit_blocks, fake, where, most_rows=_TILE_ROWS)
    among_reals = _own_pair_sum(reals, _gaussian_less_one) / n**2
    among_fakes = _own_pair_sum(fakes, _gaussian_less_one) / m**2
    across = _pair_sum(reals, fakes, _gaussian_less_one) / (n * m)
    return max(0.0, _CMMD_SCALE * (among_reals + among_fakes - 2 * across))


def _checked_pair(
    real: Features, fake: Features, device: str | torch.device
) -> tuple[Tensor, Tensor, torch.device]:
    checked_real, checked_fake = check_features(real, "real"), check_features(fake, "fake")
    check_same_width(checked_real, checked_fake)
    check_two_rows(checked_real, "real")
    check_two_rows(checked_fake, "fake")
    return checked_real, checked_fake, choose_device(real, device)


def _unbiased_sq_mmd(reals: _Blocks, fakes: _Blocks, n: int, kernel: _Kernel) -> float:
    """Of two sets of n rows each: the diagonals, a row with itself, do not count."""
    diagonals = sum(
        float(kernel(block.square().sum(dim=1)).sum()) for side in (reals, fakes) for block in side()
    )
    within = _own_pair_sum(reals, kernel) + _own_pair_sum(fakes, kernel) - diagonals
    return within / (n * (n - 1)) - 2 * _pair_sum(reals, fakes, kernel) / n**2


def _pair_sum(left: _Blocks, right: _Blocks, kernel: _Kernel) -> float:
    """Sum over all pairs of rows of a kernel that is a function of their dot product, a tile at a time."""
    return sum(_total(kernel(x @ y.T)) for x in left() for y in right())


def _own_pair_sum(rows: _Blocks, kernel: _Kernel) -> float:
    """`_pair_sum` of a set with itself, from the tiles on and above the diagonal."""
    total = 0.0
    for i, x in enumerate(rows()):
        for j, y in enumerate(rows()):
            if j >= i:
                total += (1 if i == j else 2) * _total(kernel(x @ y.T))
    return total


def _total(tile: Tensor) -> float:
    """The sum of a tile, row by row: threads share rows, so that their number does not change the order."""
    return float(tile.sum(dim=1).sum())


def _cubic(dots: Tensor, *, d: int) -> Tensor:
    base = dots.div_(d).add_(1)
    return (base * base).mul_(base)


def _gaussian_less_one(dots: Tensor) -> Tensor:
    """exp(-|x - y|^2 / (2 sigma^2)) - 1 of unit rows, whose squared distance is 2 - 2 x . y.

    The ones cancel in the MMD; left out, they take no digits away.
    """
    return dots.clamp_(max=1).sub_(1).div_(_CMMD_SIGMA**2).expm1_()
