"""Maximum mean discrepancy between two feature sets: the kernel distance (KID) and CMMD.

References:
    Gretton et al. 2012, "A Kernel Two-Sample Test" (the unbiased and the biased estimate, eq. 3 and 5).
    Bińkowski et al. 2018, "Demystifying MMD GANs" (KID: cubic polynomial kernel, unbiased, over subsets).
    Jayasumana et al. 2024, "Rethinking FID: Towards a Better Evaluation Metric for Image Generation" (CMMD).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from genpr.metrics.blocks import Blocks, check_no_zero_rows, held_on
from genpr.metrics.influence import Influence, SquaredDistance
from genpr.neighbors.engine import products_with_itself
from genpr.validation import Features, check_count, checked_pair, choose_device, entry_point

_DRAWN_AT_ONCE = 2**14  # indices; a GPU computes while the next are drawn
_SUMMED_AT_ONCE = 1000  # subsets, which bounds the arrays of (rows, subsets)
_ELEMENTWISE = 100  # the cubic kernel of a dot product takes as long as this many of its columns
_CMMD_SIGMA = 10.0
SUBSET_SIZE = 1000  # as in Bińkowski et al. 2018 and later work
_CMMD_SCALE = 1000.0

_Rows: TypeAlias = "Blocks | list[Tensor]"
_Kernel = Callable[[Tensor], Tensor]
"""Elementwise, of dot products that it may overwrite: a tile is large, and a new one costs as much as the sums."""


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
    return kernel_influence(
        real,
        fake,
        subsets=subsets,
        subset_size=subset_size,
        seed=seed,
        device=device,
        has_influence=False,
    )[0]


def kernel_influence(
    real: Features,
    fake: Features,
    *,
    subsets: int = 100,
    subset_size: int = SUBSET_SIZE,
    seed: int = 2020,
    device: str | torch.device = "auto",
    has_influence: bool = True,
) -> tuple[KernelDistance, Influence | None]:
    """`kernel_distance` with the influence of each image on the mean over these subsets."""
    count = check_count(subsets, "subsets", minimum=1)
    size = check_count(subset_size, "subset_size", minimum=2)
    check_count(seed, "seed", minimum=0, maximum=2**32 - 1)
    real, fake, where = _checked_pair(real, fake, device)
    size = min(size, len(real), len(fake))
    kernel = partial(_cubic, d=real.shape[1])
    sides = Blocks(real, where, is_tile=True), Blocks(fake, where, is_tile=True)
    sums, seen, at_once = list[Tensor](), list[tuple[Tensor, _Marginals]](), min(count, _SUMMED_AT_ONCE)
    # Whether all pairs of rows, summed by subset, take less time than the pairs of each subset.
    n, m, work = len(real), len(fake), real.shape[1] + _ELEMENTWISE
    drawn = _drawn_rows((n, m), size, count, seed, where)
    pairs_of_all = n * (n + 1) / 2 + m * (m + 1) / 2 + n * m
    is_at_once = pairs_of_all * (work + 3 * at_once) < at_once * size * (2 * size + 1) * work
    while some := list(islice(drawn, at_once if is_at_once else 1)):
        rows = torch.stack(some, dim=1)
        if is_at_once:
            pairs = _PairSums([side.kept() for side in sides], kernel, rows, has_rows=has_influence)
        else:
            chosen = [
                replace(side, rows=own[0].to(side.features.device))
                for side, own in zip(sides, rows, strict=True)
            ]
            pairs = _PairSums([side.kept() for side in chosen], kernel, has_rows=has_influence)
        sums.append(pairs.sums())
        if has_influence:
            seen.append((rows, pairs.marginals()))
    among_reals, among_fakes, diagonals, across = torch.cat(sums).cpu().unbind(dim=1)
    within = among_reals + among_fakes - diagonals
    values = within / (size * (size - 1)) - 2 * across / size**2
    distance = KernelDistance(float(values.mean()), float(values.std(correction=0)), size)
    return distance, _influence_over_subsets(distance.mean, seen, (n, m), count) if has_influence else None


@entry_point
def cmmd(real: Features, fake: Features, *, device: str | torch.device = "auto") -> float:
    """CMMD: 1000 times the biased squared MMD of normalized embeddings, Gaussian kernel of sigma 10.

    Meant for CLIP ViT-L/14-336 embeddings. Rows are divided by their Euclidean norm, which has no effect
    if the extractor has done so. All pairs count, also a row with itself, as in the authors' code; no (n,
    m) array is made. Returns at least 0.
    """
    return cmmd_influence(real, fake, device=device, has_influence=False)[0]


def cmmd_influence(
    real: Features,
    fake: Features,
    *,
    device: str | torch.device = "auto",
    has_influence: bool = True,
) -> tuple[float, Influence | None]:
    """`cmmd` with the influence of each image."""
    real, fake, where = _checked_pair(real, fake, device)
    check_no_zero_rows(real, "real")
    check_no_zero_rows(fake, "fake")
    n, m = len(real), len(fake)
    sides = [Blocks(side, where, is_tile=True, is_unit=True).kept() for side in (real, fake)]
    pairs = _PairSums(sides, _gaussian_less_one, has_rows=has_influence)
    totals = pairs.totals[:, 0].tolist()
    value = max(0.0, _CMMD_SCALE * (totals[0] / n**2 + totals[1] / m**2 - 2 * (totals[2] / (n * m))))
    if not has_influence:
        return value, None
    seen = pairs.marginals()
    reals = 2 * (seen.real / n - seen.across_real / m)[0]
    fakes = 2 * (seen.fake / m - seen.across_fake / n)[0]
    among_reals, among_fakes, across = seen.second_order()[:, 0].tolist()
    second_order = 2 * among_reals / n**2 + 2 * among_fakes / m**2 + 4 * across / (n * m)
    phis = [_CMMD_SCALE * (side - side.mean()) for side in (reals, fakes)]
    # A row with itself has a kernel of 1, other pairs have less.
    bias = -_CMMD_SCALE * float(seen.real.sum() / (n * n * (n - 1)) + seen.fake.sum() / (m * m * (m - 1)))
    squared = SquaredDistance(value, value - bias)
    return value, Influence(
        phis[0], phis[1], second_order=_CMMD_SCALE**2 * second_order, bias=bias, squared=squared
    )


_SIDES = (0, 0), (1, 1), (0, 1)  # of pairs of reals, pairs of fakes, and pairs of a real and a fake


class _PairSums:
    """Sums over pairs of reals, pairs of fakes, and pairs of a real and a fake: of all rows, or of each of many subsets.

    Tiles of the three kernel matrices (0, 1, 2) are computed once for all subsets.
    """

    def __init__(
        self, sides: Sequence[_Rows], kernel: _Kernel, drawn: Tensor | None = None, *, has_rows: bool
    ) -> None:
        """Add up the pairs of the rows `drawn` (2, count, size), or of all; `has_rows` for `marginals`."""
        self._diagonals = [torch.cat([kernel(block.square().sum(dim=1)) for block in side]) for side in sides]
        zeros = partial(torch.zeros, dtype=torch.float64, device=self._diagonals[0].device)
        sizes, count = [len(diagonal) for diagonal in self._diagonals], 1 if drawn is None else drawn.shape[1]
        # (rows, count): 1 where a row is in a subset.
        self._drawn, self._members = drawn, None
        if drawn is not None:
            self._members = [
                zeros(count, n).scatter_(1, rows, 1.0).T.contiguous()
                for n, rows in zip(sizes, drawn, strict=True)
            ]
        self.totals, self._squares = zeros(3, count), zeros(3, count)  # the latter less `_constants`
        self._constants = dict[int, Tensor]()
        self._rows = list[tuple[Tensor, Tensor]]()
        if has_rows:
            # (rows, count): sums of each row over the subset of its own side, and over that of the other side.
            within, across = ([zeros(n, count) for n in sizes] for _ in range(2))
            self._rows = [(within[0], within[0]), (within[1], within[1]), (across[0], across[1])]
        for which, (a, b) in enumerate(_SIDES):
            for i, j, tile in _tiles(sides[a], sides[b], kernel):
                self._add(which, slice(i, i + tile.shape[0]), slice(j, j + tile.shape[1]), tile)

    def _add(self, which: int, rows: slice, columns: slice, tile: Tensor) -> None:
        """Add a tile, which stands for its transpose, too, if it is off the diagonal of one set; it is overwritten."""
        a, b = _SIDES[which]
        left, right = (
            (None, None) if self._members is None else (self._members[a][rows], self._members[b][columns])
        )
        is_mirrored = a == b and rows.start != columns.start
        of_rows = _weighted_sums(tile, right)
        self.totals[which] += (1 + is_mirrored) * _weighted_total(of_rows, left)
        if not self._rows:
            return
        to_rows, to_columns = self._rows[which]
        to_rows[rows] += of_rows
        if a != b or is_mirrored:
            to_columns[columns] += _weighted_sums(tile.T, left)
        # Centering removes any constant. Without this one, an entry off the diagonal, the squares of an uncentered kernel, which
        # may be 10^6 times as large, would leave no digits.
        constant = self._constants.setdefault(which, tile[0, -1].clone())
        squares = _weighted_sums(tile.sub_(constant).square_(), right)
        self._squares[which] += (1 + is_mirrored) * _weighted_total(squares, left)

    def sums(self) -> Tensor:
        """Sums (count, 4) over pairs of reals, pairs of fakes, each row with itself, and pairs of a real and a fake."""
        if self._members is None:
            of_reals, of_fakes = (diagonal.sum()[None] for diagonal in self._diagonals)
        else:
            of_reals, of_fakes = (
                diagonal @ members for diagonal, members in zip(self._diagonals, self._members, strict=True)
            )
        return torch.stack([*self.totals[:2], of_reals + of_fakes, self.totals[2]], dim=1)

    def marginals(self) -> _Marginals:
        """Those of the drawn rows of all subsets, or of all rows."""
        sides: list[Tensor] = [diagonal[None] for diagonal in self._diagonals]
        sums = [to.T for to in (self._rows[0][0], self._rows[1][0], *self._rows[2])]
        if self._drawn is not None:
            sides = [diagonal[rows] for diagonal, rows in zip(self._diagonals, self._drawn, strict=True)]
            sums = [each.gather(1, self._drawn[at % 2]) for at, each in enumerate(sums)]
        squares = self._squares.clone()
        for which, own in enumerate(sides):
            squares[which] -= (own - self._constants[which]).square().sum(dim=1)
        return _Marginals(
            real=sums[0] - sides[0],
            fake=sums[1] - sides[1],
            across_real=sums[2],
            across_fake=sums[3],
            diagonals=torch.stack([each.sum(dim=1) for each in sides]),
            squares=squares,
            constants=self._constants,
        )


def _tiles(left: _Rows, right: _Rows, kernel: _Kernel) -> Iterator[tuple[int, int, Tensor]]:
    """First row, first column, and tile of a kernel matrix; of one set with itself, those on and above the diagonal."""
    i, itself = 0, left is right
    for at, x in enumerate(left):
        j = i if itself else 0
        for other in range(at if itself else 0, len(right)):
            y = x if itself and other == at else right[other]
            yield i, j, kernel(products_with_itself(x) if y is x else x @ y.T)
            j += len(y)
        i += len(x)


def _weighted_sums(tile: Tensor, members: Tensor | None) -> Tensor:
    """Sums (r, count) of a tile (r, c) over the columns of each subset (c, count), or over all."""
    # Row by row: threads share rows, so that their number does not change the order.
    return tile.sum(dim=1, keepdim=True) if members is None else tile @ members


def _weighted_total(sums: Tensor, members: Tensor | None) -> Tensor:
    """Totals (count,) of `sums` (r, count) over the rows of each subset (r, count), or over all."""
    return (sums if members is None else sums * members).sum(dim=0)


@dataclass(frozen=True, slots=True, eq=False)
class _Marginals:
    """Row and column sums of the three kernel matrices of pairs of sets, and sums of squares, without the diagonals.

    For double-centered matrices: of a matrix K, K_ij less the average contributions of i and j.
    """

    real: Tensor  # (count, n) sums over the other reals
    fake: Tensor  # (count, m) sums over the other fakes
    across_real: Tensor  # (count, n) sums over the fakes
    across_fake: Tensor  # (count, m) sums over the reals
    diagonals: Tensor  # (2, count) of reals and of fakes
    squares: Tensor  # (3, count) among reals, among fakes, and across, less `constants`
    constants: Mapping[int, Tensor]  # of the same three, by number

    def second_order(self) -> Tensor:
        """Mean squares (3, count) of the double-centered kernels: of two reals, of two fakes, and of a real and a fake."""
        squares = []
        for which, sums in enumerate((self.real, self.fake)):
            n = sums.shape[1]
            means = sums / max(n - 1, 1)
            mean = means.mean(dim=1)
            # Of a mean over n - 1 others, a row's own part is (n - 2) / (n - 1).
            of_rows = 2 * (n - 1) ** 2 / max(n - 2, 1) * (means - mean[:, None]).square().sum(dim=1)
            rest = self.squares[which] - n * (n - 1) * (mean - self.constants[which]) ** 2 - of_rows
            squares.append(rest / max(n * (n - 3), 1))
        n, m = self.across_real.shape[1], self.across_fake.shape[1]
        rows, columns = self.across_real / m, self.across_fake / n
        mean = rows.mean(dim=1)
        rest = self.squares[2] - n * m * (mean - self.constants[2]) ** 2
        rest = rest - m * (rows - mean[:, None]).square().sum(dim=1)
        rest = rest - n * (columns - mean[:, None]).square().sum(dim=1)
        squares.append(rest / max((n - 1) * (m - 1), 1))
        return torch.stack(squares).clamp_(min=0.0).cpu()


def _influence_over_subsets(
    value: float, batches: Sequence[tuple[Tensor, _Marginals]], sizes: tuple[int, int], count: int
) -> Influence:
    """Influence on the mean over subsets, whose rows are part of the definition: an image counts as often as it was drawn."""
    (n, m), size, device = sizes, batches[0][0].shape[2], batches[0][0].device
    phis = [torch.zeros(rows, dtype=torch.float64, device=device) for rows in sizes]
    own, with_itself = torch.zeros(3, dtype=torch.float64), 0.0
    # What pairs of a row with itself would add, times the increase of V2 over that of V1 by the choice of subsets. The slope of V
    # is then that of V1, and not one of the noise of this choice, which does not grow with the distance.
    first = [(1 / size - 1 / rows) / count + 1 / rows for rows in sizes]
    across_sets = (1 / size**2 - 1 / (n * m)) / count + 1 / (n * m)
    factors = [
        ((1 / size**2 - 1 / rows**2) / count + 1 / rows**2 + across_sets) / sum(first) for rows in sizes
    ]
    for drawn, seen in batches:
        sides = zip(drawn, (seen.real, seen.fake), (seen.across_real, seen.across_fake), strict=True)
        for phi, (rows, within, across) in zip(phis, sides, strict=True):
            # What a row adds to all of its pairs is a part (size - 2) / (size - 1) of its mean over the others, centered.
            moves = 2 * (within / max(size - 2, 1) - across / size)
            moves = (moves - moves.mean(dim=1, keepdim=True)) * (len(phi) / (count * size))
            for some, each in zip(rows, moves, strict=True):
                phi[some] += each
        parts = [
            factor * (diagonal / size - within.mean(dim=1) / (size - 1)) / count
            for factor, diagonal, within in zip(factors, seen.diagonals, (seen.real, seen.fake), strict=True)
        ]
        # One subset after the other, so that their division into batches does not change the order.
        for each in torch.stack(parts, dim=1).flatten().tolist():
            with_itself += each
        for each in seen.second_order().T:
            own += each / count
    pairs = size * (size - 1)
    shares = pairs / (n * (n - 1)), pairs / (m * (m - 1)), size**2 / (n * m)
    weights = 2 / pairs, 2 / pairs, 4 / size**2
    orders = zip(own.tolist(), shares, weights, strict=True)
    second_order = sum(each * weight * ((1 - share) / count + share) for each, share, weight in orders)
    return Influence(
        phis[0],
        phis[1],
        second_order=second_order,
        squared=SquaredDistance(value + with_itself, value),
    )


def _checked_pair(
    real: Features, fake: Features, device: str | torch.device
) -> tuple[Tensor, Tensor, torch.device]:
    checked, where = checked_pair(real, fake, k=1), choose_device(real, device)
    return held_on(checked[0], where), held_on(checked[1], where), where


def _drawn_rows(
    sizes: tuple[int, int], size: int, count: int, seed: int, device: torch.device
) -> Iterator[Tensor]:
    """Rows (2, size) of reals and fakes for one subset after the other."""
    rng, length = np.random.RandomState(seed), max(1, _DRAWN_AT_ONCE // size)
    for start in range(0, count, length):
        some = range(min(length, count - start))
        drawn = np.array([[rng.choice(n, size, replace=False) for n in sizes] for _ in some])
        yield from torch.from_numpy(drawn).to(device)


def _cubic(dots: Tensor, *, d: int) -> Tensor:
    base = dots.div_(d).add_(1)
    return (base * base).mul_(base)


def _gaussian_less_one(dots: Tensor) -> Tensor:
    """exp(-|x - y|^2 / (2 sigma^2)) - 1 of unit rows, whose squared distance is 2 - 2 x . y.

    The constant 1 cancels in the MMD and would cost digits.
    """
    return dots.clamp_(max=1).sub_(1).div_(_CMMD_SIGMA**2).expm1_()
