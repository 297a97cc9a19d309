"""Maximum mean discrepancy between two feature sets: the kernel distance (KID) and CMMD.

References:
    Gretton et al. 2012, "A Kernel Two-Sample Test" (the unbiased and the biased estimate, eq. 3 and 5).
    Bińkowski et al. 2018, "Demystifying MMD GANs" (KID: cubic polynomial kernel, unbiased, over subsets).
    Jayasumana et al. 2024, "Rethinking FID: Towards a Better Evaluation Metric for Image Generation" (CMMD).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from genpr.metrics.blocks import Blocks, check_no_zero_rows, held_on
from genpr.metrics.real_manifold import checked_pair
from genpr.validation import Features, check_count, choose_device, entry_point

_DRAWN_AT_ONCE = 2**14  # indices; a GPU computes while the next are drawn
_CMMD_SIGMA = 10.0
SUBSET_SIZE = 1000  # of Bińkowski et al. 2018, and of everyone since
_CMMD_SCALE = 1000.0

_Rows: TypeAlias = "Blocks | list[Tensor]"
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
        >>> near, far = (kernel_distance(real, each, subsets=20) for each in (fake, fake + 1))
        >>> near.subset_size, abs(near.mean) < 0.01 < far.mean
        (400, True)
    """
    count = check_count(subsets, "subsets", minimum=1)
    size = check_count(subset_size, "subset_size", minimum=2)
    check_count(seed, "seed", minimum=0, maximum=2**32 - 1)
    real, fake, where = _checked_pair(real, fake, device)
    size = min(size, len(real), len(fake))
    drawn = _drawn_rows((len(real), len(fake)), size, count, seed, where)
    kernel = partial(_cubic, d=real.shape[1])
    sums = torch.empty(count, 4, dtype=torch.float64, device=where)
    for i, (real_rows, fake_rows) in enumerate(drawn):
        reals = Blocks(real, where, real_rows.to(real.device), is_tile=True).kept()
        fakes = Blocks(fake, where, fake_rows.to(fake.device), is_tile=True).kept()
        sums[i] = _subset_sums(reals, fakes, kernel)
    among_reals, among_fakes, diagonals, across = sums.cpu().unbind(dim=1)
    within = among_reals + among_fakes - diagonals
    values = within / (size * (size - 1)) - 2 * across / size**2
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
    reals = Blocks(real, where, is_tile=True, is_unit=True).kept()
    fakes = Blocks(fake, where, is_tile=True, is_unit=True).kept()
    among_reals = float(_own_pair_sum(reals, _gaussian_less_one)) / n**2
    among_fakes = float(_own_pair_sum(fakes, _gaussian_less_one)) / m**2
    across = float(_pair_sum(reals, fakes, _gaussian_less_one)) / (n * m)
    return max(0.0, _CMMD_SCALE * (among_reals + among_fakes - 2 * across))


def _checked_pair(
    real: Features, fake: Features, device: str | torch.device
) -> tuple[Tensor, Tensor, torch.device]:
    checked, where = checked_pair(real, fake, k=1), choose_device(real, device)
    return held_on(checked[0], where), held_on(checked[1], where), where


def _drawn_rows(
    sizes: tuple[int, int], size: int, count: int, seed: int, device: torch.device
) -> Iterator[Tensor]:
    """Rows (2, size) of reals and fakes for one subset after the other."""
    rng = np.random.RandomState(seed)
    step = max(1, _DRAWN_AT_ONCE // size)
    for start in range(0, count, step):
        drawn = [[rng.choice(n, size, replace=False) for n in sizes] for _ in range(min(step, count - start))]
        yield from torch.from_numpy(np.array(drawn)).to(device)


def _subset_sums(reals: _Rows, fakes: _Rows, kernel: _Kernel) -> Tensor:
    """Sums (4,) over pairs of reals, pairs of fakes, each row with itself, and pairs of a real and a fake."""
    diagonals = (kernel(block.square().sum(dim=1)).sum() for side in (reals, fakes) for block in side)
    own = _own_pair_sum(reals, kernel), _own_pair_sum(fakes, kernel)
    return torch.stack([*own, reduce(torch.add, diagonals), _pair_sum(reals, fakes, kernel)])


def _pair_sum(left: _Rows, right: _Rows, kernel: _Kernel) -> Tensor:
    """Sum over all pairs of rows of a kernel that is a function of their dot product, a tile at a time."""
    return reduce(torch.add, (_total(kernel(x @ y.T)) for x in left for y in right))


def _own_pair_sum(rows: _Rows, kernel: _Kernel) -> Tensor:
    """`_pair_sum` of a set with itself, from the tiles on and above the diagonal."""
    total = torch.zeros((), dtype=torch.float64)
    for i, x in enumerate(rows):
        total = total + _total(kernel(x @ x.T))
        for j in range(i + 1, len(rows)):
            total = total + 2 * _total(kernel(x @ rows[j].T))
    return total


def _total(tile: Tensor) -> Tensor:
    """The sum of a tile, row by row: threads share rows, so that their number does not change the order."""
    return tile.sum(dim=1).sum()


def _cubic(dots: Tensor, *, d: int) -> Tensor:
    base = dots.div_(d).add_(1)
    return (base * base).mul_(base)


def _gaussian_less_one(dots: Tensor) -> Tensor:
    """exp(-|x - y|^2 / (2 sigma^2)) - 1 of unit rows, whose squared distance is 2 - 2 x . y.

    The ones cancel in the MMD; left out, they take no digits away.
    """
    return dots.clamp_(max=1).sub_(1).div_(_CMMD_SIGMA**2).expm1_()
