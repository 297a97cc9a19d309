"""Maximum mean discrepancy between two feature sets: the kernel distance (KID) and CMMD.

References:
    Gretton et al. 2012, "A Kernel Two-Sample Test" (the unbiased and the biased estimate, eq. 3 and 5).
    Bińkowski et al. 2018, "Demystifying MMD GANs" (KID: cubic polynomial kernel, unbiased, over subsets).
    Jayasumana et al. 2024, "Rethinking FID: Towards a Better Evaluation Metric for Image Generation" (CMMD).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from genpr.metrics.blocks import Blocks, check_no_zero_rows, held_on
from genpr.metrics.influence import Influence, SquaredDistance
from genpr.metrics.real_manifold import checked_pair
from genpr.validation import Features, check_count, choose_device, entry_point

_DRAWN_AT_ONCE = 2**14  # indices; a GPU computes while the next are drawn
_SUMMED_AT_ONCE = 1000  # subsets, which bounds the arrays of (rows, subsets)
_ELEMENTWISE = 100  # the cubic kernel of a dot product takes as long as this many of its columns
_CMMD_SIGMA = 10.0
SUBSET_SIZE = 1000  # as in Bińkowski et al. 2018 and later work
_CMMD_SCALE = 1000.0

_Rows: TypeAlias = "Blocks | list[Tensor]"
_Kernel = Callable[[Tensor], Tensor]
"""Elementwise, of dot products that it may overwrite: a tile is large, and a new one costs as much as the sums."""

_Show = Callable[[int, int, Tensor], None]
"""Called with a first row, a first column, and the tile of a kernel matrix that begins there, which it may overwrite."""


class KernelDistance(NamedTuple):
    """Mean and standard deviation of the squared MMD over the subsets, and the rows in each."""

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
        subsets: Number of pairs of subsets.
        subset_size: Rows in each, at least 2; fewer if a set has fewer, see the result.
            The variance depends on it, the expectation of the mean does not.
        seed: Seed of the draws, below 2^32.
        device: "auto" is the GPU that holds the input, else the best device available.

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
    return _kernel_distance(real, fake, (subsets, subset_size, seed), device, None)


@entry_point
def kernel_influence(
    real: Features,
    fake: Features,
    *,
    subsets: int = 100,
    subset_size: int = SUBSET_SIZE,
    seed: int = 2020,
    device: str | torch.device = "auto",
) -> tuple[KernelDistance, Influence]:
    """`kernel_distance` with the influence of each image on the mean over these subsets."""
    sums: list[_SubsetMarginals] = []
    found = _kernel_distance(real, fake, (subsets, subset_size, seed), device, sums)
    return found, _influence_over_subsets(found.mean, sums, (len(real), len(fake)))


def _kernel_distance(
    real: Features,
    fake: Features,
    drawing: tuple[int, int, int],
    device: str | torch.device,
    marginals: list[_SubsetMarginals] | None,
) -> KernelDistance:
    subsets, subset_size, seed = drawing
    count = check_count(subsets, "subsets", minimum=1)
    size = check_count(subset_size, "subset_size", minimum=2)
    check_count(seed, "seed", minimum=0, maximum=2**32 - 1)
    real, fake, where = _checked_pair(real, fake, device)
    size = min(size, len(real), len(fake))
    drawn = _drawn_rows((len(real), len(fake)), size, count, seed, where)
    kernel = partial(_cubic, d=real.shape[1])
    sides = Blocks(real, where, is_tile=True), Blocks(fake, where, is_tile=True)
    part = min(count, _SUMMED_AT_ONCE)
    if _is_cheaper_at_once(len(real), len(fake), real.shape[1], size=size, count=part):
        parts = iter(lambda: list(islice(drawn, part)), [])
        sums = torch.cat(
            [_sums_at_once(sides, torch.stack(some, dim=1), kernel, marginals) for some in parts]
        )
    else:
        sums = _sums_by_subset(sides, drawn, kernel, marginals)
    among_reals, among_fakes, diagonals, across = sums.cpu().unbind(dim=1)
    within = among_reals + among_fakes - diagonals
    values = within / (size * (size - 1)) - 2 * across / size**2
    return KernelDistance(float(values.mean()), float(values.std(correction=0)), size)


@entry_point
def cmmd(real: Features, fake: Features, *, device: str | torch.device = "auto") -> float:
    """CMMD: 1000 times the biased squared MMD of normalized embeddings, Gaussian kernel of sigma 10.

    Meant for CLIP ViT-L/14-336 embeddings. Rows are divided by their Euclidean norm, which has no effect
    if the extractor has done so. All pairs count, also a row with itself, as in the authors' code; no (n,
    m) array is made. Returns at least 0.
    """
    return _cmmd(real, fake, device, has_marginals=False)[0]


@entry_point
def cmmd_influence(
    real: Features, fake: Features, *, device: str | torch.device = "auto"
) -> tuple[float, Influence]:
    """`cmmd` with the influence of each image."""
    value, seen = _cmmd(real, fake, device, has_marginals=True)
    assert seen is not None
    n, m = len(seen.real), len(seen.fake)
    reals = 2 * (seen.real / n - seen.across_real / m)
    fakes = 2 * (seen.fake / m - seen.across_fake / n)
    among_reals, among_fakes, across = seen.second_order()
    second_order = 2 * among_reals / n**2 + 2 * among_fakes / m**2 + 4 * across / (n * m)
    phis = [_CMMD_SCALE * (side - side.mean()) for side in (reals, fakes)]
    # A row with itself has a kernel of 1, other pairs have less.
    bias = -_CMMD_SCALE * float(seen.real.sum() / (n * n * (n - 1)) + seen.fake.sum() / (m * m * (m - 1)))
    squared = SquaredDistance(value, value - bias)
    return value, Influence(
        phis[0], phis[1], second_order=_CMMD_SCALE**2 * second_order, bias=bias, squared=squared
    )


def _cmmd(
    real: Features, fake: Features, device: str | torch.device, *, has_marginals: bool
) -> tuple[float, _Marginals | None]:
    real, fake, where = _checked_pair(real, fake, device)
    check_no_zero_rows(real, "real")
    check_no_zero_rows(fake, "fake")
    n, m = len(real), len(fake)
    seen = _Marginals.zeros(n, m, where) if has_marginals else None
    reals = Blocks(real, where, is_tile=True, is_unit=True).kept()
    fakes = Blocks(fake, where, is_tile=True, is_unit=True).kept()
    among_reals, among_fakes, across = map(float, _three_sums(reals, fakes, _gaussian_less_one, seen))
    value = among_reals / n**2 + among_fakes / m**2 - 2 * (across / (n * m))
    return max(0.0, _CMMD_SCALE * value), seen


@dataclass(slots=True, eq=False)
class _Marginals:
    """Row and column sums of the three kernel matrices and sums of their squares, without the diagonals; sums of the diagonals.

    For double-centered matrices: of a matrix K, K_ij less the average contributions of i and j. A constant is subtracted
    from each matrix before it is squared. Centering removes it, and without it the squares of an uncentered kernel, which may be
    10^6 times as large, would leave no digits.
    """

    real: Tensor  # (n,) sums over the other reals
    fake: Tensor  # (m,) sums over the other fakes
    across_real: Tensor  # (n,) sums over the fakes
    across_fake: Tensor  # (m,) sums over the reals
    diagonals: Tensor  # (2,) of reals and of fakes
    squares: Tensor  # (3,) among reals, among fakes, and across, less `constants`
    constants: dict[int, Tensor]  # of the same three, by number

    @classmethod
    def zeros(cls, n: int, m: int, device: torch.device) -> _Marginals:
        """Before the first tile."""
        zeros = partial(torch.zeros, dtype=torch.float64, device=device)
        return cls(zeros(n), zeros(m), zeros(n), zeros(m), zeros(2), zeros(3), {})

    def add_reals(self, i: int, j: int, tile: Tensor) -> None:
        """The tile (a, b) of reals from `i` and reals from `j`, which stands for (b, a) too; it is overwritten."""
        self._add_own(0, self.real, i, j, tile)

    def add_fakes(self, i: int, j: int, tile: Tensor) -> None:
        """The tile (a, b) of fakes from `i` and fakes from `j`, which stands for (b, a) too; it is overwritten."""
        self._add_own(1, self.fake, i, j, tile)

    def add_across(self, i: int, j: int, tile: Tensor) -> None:
        """The tile (a, b) of reals from `i` and fakes from `j`; it is overwritten."""
        self.across_real[i : i + len(tile)] += tile.sum(dim=1)
        self.across_fake[j : j + tile.shape[1]] += tile.sum(dim=0)
        self.squares[2] += _square_sum(_less_constant(tile, self.constants, 2))

    def _add_own(self, which: int, sums: Tensor, i: int, j: int, tile: Tensor) -> None:
        sums[i : i + len(tile)] += tile.sum(dim=1)
        if i == j:
            own = tile.diagonal()
            sums[i : i + len(tile)] -= own
            self.diagonals[which] += own.sum()
        else:
            sums[j : j + tile.shape[1]] += tile.sum(dim=0)
        total = _square_sum(_less_constant(tile, self.constants, which))
        self.squares[which] += total - tile.diagonal().square().sum() if i == j else 2 * total

    def second_order(self) -> tuple[float, float, float]:
        """Mean squares of the double-centered kernels: of two reals, of two fakes, and of a real and a fake."""
        found = []
        for which, sums in enumerate((self.real, self.fake)):
            n = len(sums)
            means = sums / max(n - 1, 1)
            mean = means.mean()
            # Of a mean over n - 1 others, a row's own part is (n - 2) / (n - 1).
            of_rows = 2 * (n - 1) ** 2 / max(n - 2, 1) * (means - mean).square().sum()
            rest = self.squares[which] - n * (n - 1) * (mean - self.constants[which]) ** 2 - of_rows
            found.append(float(rest) / max(n * (n - 3), 1))
        n, m = len(self.across_real), len(self.across_fake)
        rows, columns = self.across_real / m, self.across_fake / n
        mean = rows.mean()
        rest = self.squares[2] - n * m * (mean - self.constants[2]) ** 2
        rest = rest - m * (rows - mean).square().sum() - n * (columns - mean).square().sum()
        found.append(float(rest) / max((n - 1) * (m - 1), 1))
        among_reals, among_fakes, across = (max(each, 0.0) for each in found)
        return among_reals, among_fakes, across


class _SubsetMarginals(NamedTuple):
    """A pair of subsets: its rows, and sums over its tiles."""

    real_rows: Tensor
    fake_rows: Tensor
    seen: _Marginals


def _influence_over_subsets(
    value: float, subsets: list[_SubsetMarginals], sizes: tuple[int, int]
) -> Influence:
    """Influence on the mean over subsets, whose rows are part of the definition: an image counts as often as it was drawn."""
    (n, m), count, size = sizes, len(subsets), len(subsets[0].real_rows)
    device = subsets[0].seen.real.device
    phis = [torch.zeros(rows, dtype=torch.float64, device=device) for rows in sizes]
    own = torch.zeros(3, dtype=torch.float64)
    with_itself = torch.zeros((), dtype=torch.float64, device=device)
    # What pairs of a row with itself would add, times the increase of V2 over that of V1 by the choice of subsets. The slope of V
    # is then that of V1, and not one of the noise of this choice, which does not grow with the distance.
    first = [(1 / size - 1 / rows) / count + 1 / rows for rows in sizes]
    across_sets = (1 / size**2 - 1 / (n * m)) / count + 1 / (n * m)
    factors = [
        ((1 / size**2 - 1 / rows**2) / count + 1 / rows**2 + across_sets) / sum(first) for rows in sizes
    ]
    for real_rows, fake_rows, seen in subsets:
        sides = (real_rows, seen.real, seen.across_real), (fake_rows, seen.fake, seen.across_fake)
        for phi, (rows, within, across) in zip(phis, sides, strict=True):
            # What a row adds to all of its pairs is a part (size - 2) / (size - 1) of its mean over the others, centered.
            moves = 2 * (within / max(size - 2, 1) - across / size)
            phi[rows] += (moves - moves.mean()) * (len(phi) / (count * size))
        for factor, diagonal, within in zip(factors, seen.diagonals, (seen.real, seen.fake), strict=True):
            with_itself += factor * (diagonal / size - within.mean() / (size - 1)) / count
        own += torch.tensor(seen.second_order(), dtype=torch.float64) / count
    pairs = size * (size - 1)
    shares = pairs / (n * (n - 1)), pairs / (m * (m - 1)), size**2 / (n * m)
    weights = 2 / pairs, 2 / pairs, 4 / size**2
    parts = zip(own.tolist(), shares, weights, strict=True)
    second_order = sum(each * weight * ((1 - share) / count + share) for each, share, weight in parts)
    return Influence(
        phis[0],
        phis[1],
        second_order=second_order,
        squared=SquaredDistance(value + float(with_itself), value),
    )


def _is_cheaper_at_once(n: int, m: int, d: int, *, size: int, count: int) -> bool:
    """Whether all pairs of rows, summed by subset, take less time than the pairs of each subset."""
    pairs = n * (n + 1) / 2 + m * (m + 1) / 2 + n * m
    return pairs * (d + _ELEMENTWISE + 3 * count) < count * size * (2 * size + 1) * (d + _ELEMENTWISE)


def _sums_by_subset(
    sides: tuple[Blocks, Blocks],
    drawn: Iterator[Tensor],
    kernel: _Kernel,
    marginals: list[_SubsetMarginals] | None,
) -> Tensor:
    """`_subset_sums` (count, 4) of the subsets (2, size) of reals and fakes, from one subset after the other."""
    sums = []
    for subset in drawn:
        reals, fakes = (
            replace(side, rows=rows.to(side.features.device)).kept()
            for side, rows in zip(sides, subset, strict=True)
        )
        seen = None if marginals is None else _Marginals.zeros(len(subset[0]), len(subset[1]), subset.device)
        sums.append(_subset_sums(reals, fakes, kernel, seen))
        if marginals is not None and seen is not None:
            marginals.append(_SubsetMarginals(subset[0], subset[1], seen))
    return torch.stack(sums)


def _sums_at_once(
    sides: tuple[Blocks, Blocks], drawn: Tensor, kernel: _Kernel, marginals: list[_SubsetMarginals] | None
) -> Tensor:
    """`_subset_sums` (count, 4) of the subsets (2, count, size), from the kernel of each pair of rows once."""
    reals, fakes = (side.kept() for side in sides)
    diagonals = [torch.cat([kernel(block.square().sum(dim=1)) for block in side]) for side in (reals, fakes)]
    seen = _SumsBySubset(drawn, diagonals, has_rows=marginals is not None)
    _own_pair_sum(reals, kernel, partial(seen.add, 0))
    _own_pair_sum(fakes, kernel, partial(seen.add, 1))
    _pair_sum(reals, fakes, kernel, partial(seen.add, 2))
    if marginals is not None:
        marginals.extend(seen.marginals())
    return seen.sums()


class _SumsBySubset:
    """Sums over the pairs within each of many subsets, from tiles of the kernel matrices of all rows."""

    def __init__(self, drawn: Tensor, diagonals: list[Tensor], *, has_rows: bool) -> None:
        self._drawn, self._diagonals = drawn, diagonals
        zeros = partial(torch.zeros, dtype=torch.float64, device=drawn.device)
        count = drawn.shape[1]
        # (rows, count): 1 where a row is in a subset.
        self._members = [
            zeros(count, len(diagonal)).scatter_(1, rows, 1.0).T.contiguous()
            for diagonal, rows in zip(diagonals, drawn, strict=True)
        ]
        self._totals, self._squares = zeros(3, count), zeros(3, count)
        self._constants = dict[int, Tensor]()
        self._rows: list[tuple[Tensor, Tensor]] = []
        if has_rows:
            # (rows, count): sums of each row over the subset of its own side, and over that of the other side.
            within, across = ([torch.zeros_like(side) for side in self._members] for _ in range(2))
            self._rows = [(within[0], within[0]), (within[1], within[1]), (across[0], across[1])]

    def add(self, which: int, i: int, j: int, tile: Tensor) -> None:
        """A tile of the kernel of reals (0), of fakes (1), or of reals and fakes (2), as for `_Marginals`; it is overwritten."""
        sides = (0, 0), (1, 1), (0, 1)
        at_left, at_right = slice(i, i + tile.shape[0]), slice(j, j + tile.shape[1])
        left = self._members[sides[which][0]][at_left]
        right = self._members[sides[which][1]][at_right]
        times = 2 if which < 2 and i != j else 1
        of_left = tile @ right
        self._totals[which] += times * (of_left * left).sum(dim=0)
        if not self._rows:
            return
        to_left, to_right = self._rows[which]
        to_left[at_left] += of_left
        if which == 2 or i != j:
            to_right[at_right] += tile.T @ left
        squares = _less_constant(tile, self._constants, which).square_()
        self._squares[which] += times * ((squares @ right) * left).sum(dim=0)

    def sums(self) -> Tensor:
        """As `_subset_sums`, for each subset: (count, 4)."""
        diagonals = [
            diagonal @ members for diagonal, members in zip(self._diagonals, self._members, strict=True)
        ]
        return torch.stack([*self._totals[:2], diagonals[0] + diagonals[1], self._totals[2]], dim=1)

    def marginals(self) -> Iterator[_SubsetMarginals]:
        """The sums of one subset after the other."""
        for at, (real_rows, fake_rows) in enumerate(self._drawn.unbind(dim=1)):
            own = [
                diagonal[rows] for diagonal, rows in zip(self._diagonals, (real_rows, fake_rows), strict=True)
            ]
            squares = self._squares[:, at].clone()
            for which, each in enumerate(own):
                squares[which] -= (each - self._constants[which]).square().sum()
            seen = _Marginals(
                real=self._rows[0][0][real_rows, at] - own[0],
                fake=self._rows[1][0][fake_rows, at] - own[1],
                across_real=self._rows[2][0][real_rows, at],
                across_fake=self._rows[2][1][fake_rows, at],
                diagonals=torch.stack([each.sum() for each in own]),
                squares=squares,
                constants=self._constants,
            )
            yield _SubsetMarginals(real_rows, fake_rows, seen)


def _less_constant(tile: Tensor, constants: dict[int, Tensor], which: int) -> Tensor:
    """The tile less the constant of its matrix, in place: an entry of the first tile, off the diagonal if there is one."""
    if which not in constants:
        constants[which] = tile[0, -1].clone()
    return tile.sub_(constants[which])


def _square_sum(tile: Tensor) -> Tensor:
    """The sum of squares, row by row as in `_total`."""
    norms: Tensor = torch.linalg.vector_norm(tile, dim=1)
    return norms.square().sum()


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


def _subset_sums(reals: _Rows, fakes: _Rows, kernel: _Kernel, seen: _Marginals | None) -> Tensor:
    """Sums (4,) over pairs of reals, pairs of fakes, each row with itself, and pairs of a real and a fake."""
    diagonals = (kernel(block.square().sum(dim=1)).sum() for side in (reals, fakes) for block in side)
    among_reals, among_fakes, across = _three_sums(reals, fakes, kernel, seen)
    return torch.stack([among_reals, among_fakes, reduce(torch.add, diagonals), across])


def _three_sums(
    reals: _Rows, fakes: _Rows, kernel: _Kernel, seen: _Marginals | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over pairs of reals, pairs of fakes, and pairs of a real and a fake."""
    return (
        _own_pair_sum(reals, kernel, seen.add_reals if seen else None),
        _own_pair_sum(fakes, kernel, seen.add_fakes if seen else None),
        _pair_sum(reals, fakes, kernel, seen.add_across if seen else None),
    )


def _pair_sum(left: _Rows, right: _Rows, kernel: _Kernel, show: _Show | None) -> Tensor:
    """Sum over all pairs of rows of a kernel that is a function of their dot product, a tile at a time."""
    sums, i = list[Tensor](), 0
    for x in left:
        j = 0
        for y in right:
            tile = kernel(x @ y.T)
            sums.append(_total(tile))
            if show is not None:
                show(i, j, tile)
            j += len(y)
        i += len(x)
    return reduce(torch.add, sums)


def _own_pair_sum(rows: _Rows, kernel: _Kernel, show: _Show | None) -> Tensor:
    """`_pair_sum` of a set with itself, from the tiles on and above the diagonal."""
    total, start = torch.zeros((), dtype=torch.float64), 0
    for i, x in enumerate(rows):
        at = start
        for j in range(i, len(rows)):
            y = x if i == j else rows[j]
            tile = kernel(x @ y.T)
            total = total + (_total(tile) if i == j else 2 * _total(tile))
            if show is not None:
                show(start, at, tile)
            at += len(y)
        start += len(x)
    return total


def _total(tile: Tensor) -> Tensor:
    """The sum of a tile, row by row: threads share rows, so that their number does not change the order."""
    return tile.sum(dim=1).sum()


def _cubic(dots: Tensor, *, d: int) -> Tensor:
    base = dots.div_(d).add_(1)
    return (base * base).mul_(base)


def _gaussian_less_one(dots: Tensor) -> Tensor:
    """exp(-|x - y|^2 / (2 sigma^2)) - 1 of unit rows, whose squared distance is 2 - 2 x . y.

    The constant 1 cancels in the MMD and would cost digits.
    """
    return dots.clamp_(max=1).sub_(1).div_(_CMMD_SIGMA**2).expm1_()
