"""Emulated float16 distances of two published tools, available only through protocols that name them.

Many published values were computed by these tools. Near distance 250 adjacent float16 numbers differ by 1/8, so ties
are frequent, and closed balls count them as inside, which raises the values a little. Both emulations round where the tool
rounds, and sum exactly where it sums in float32, in an order that depends on its GPU and libraries. So they reproduce its
values to about the third decimal, not to the bit.

Results of the emulations do not depend on tiles or devices: inner products are summed in float64, where the order of
summation matters only if the sum is within about 1e-13, relatively, of the middle between two float16 numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.errors import UsageError
from genpr.memory import tile_budget
from genpr.neighbors.counts import CrossCounts
from genpr.neighbors.engine import plain_arithmetic
from genpr.neighbors.search import Advance, no_advance

_MAX_SIDE, _MIN_SIDE = 2048, 16
_BYTES_PER_PAIR = 32  # the product in float64, its rounded values, and the comparison
_CHUNK_ELEMENTS = 2**20
_SAFELY_FINITE = 60000.0  # the largest float16 is 65504; the difference covers rounding

Finish = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Computes distances from inner products (r, c) float64 and squared norms (r, 1) and (1, c) in the precision of the tool."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """How a tool computes distances."""

    name: str  # its name in protocols
    finish: Finish  # the distances that the tool compares, (r, c) float32, from inner products and norms
    # rows and columns of a block of the tool, all of which is recomputed in float32 if any of its
    # distances overflows; None leaves them infinite
    block: int | None


def _squared_in_three_steps(products: Tensor, row_norms: Tensor, column_norms: Tensor) -> Tensor:
    """max(|u|^2 - 2 u.v + |v|^2, 0), rounded after every operation.

    A doubled product beyond 65504 is infinite, and the distance is 0, as in the tool.
    """
    doubled = products.float().to(row_norms.dtype).mul_(2)
    return torch.sub(row_norms, doubled).add_(column_norms).clamp_min_(0).float()


def _root_of_one_sum(products: Tensor, row_norms: Tensor, column_norms: Tensor) -> Tensor:
    """sqrt(max(|u|^2 - 2 u.v + |v|^2, 0)): one sum rounded once, and its root rounded again."""
    sums = (row_norms.double() + column_norms.double()).sub_(products, alpha=2)
    return sums.float().to(row_norms.dtype).clamp_min_(0).sqrt_().float()


_ADM = Emulation("adm-float16", _squared_in_three_steps, block=10_000)
"""`evaluations/evaluator.py` of openai/guided-diffusion at 22e0df8, the ADM evaluator; its k is 3.

Reproduced: features, their squares, squared norms, products, and both sums of |u|^2 - 2 u.v + |v|^2 rounded to
float16, in this order, so that distances between two sets depend on which is first (the real one); blocks of 10,000 by
10,000 that fall back to float32; radii as the (k+1)-th smallest of a row, the row itself counted wherever it ranks;
closed balls. Its two values agree with a float32 port to 0.001 (precision) and 0.0024 (recall), in which direction
this emulation moves them too.
Not reproduced: the order in which TensorFlow adds up norms, in float16 or float32, and TF32 in blocks that fell back.
"""

_STYLEGAN3 = Emulation("stylegan3-float16", _root_of_one_sum, block=None)
"""`metrics/precision_recall.py` of NVlabs/stylegan3 at c233a91, and of stylegan2-ada and stylegan-xl; its k is 3.

Reproduced: features, their squares and squared norms rounded to float16; Euclidean distances as the matrix form of
`torch.cdist` finds them, one product of vectors widened by the norms, its root, both rounded to float16; radii as the
(k+1)-th smallest of a row, the row itself counted wherever it ranks, again in float16; closed balls. Squared norms and
distances beyond 65504 are infinite, as are the radii that they set: such a ball holds everything.
Not reproduced: the order of sums, and values of 32768 and more, for which the tool may find NaN instead of infinity.
"""

EMULATIONS = {emulation.name: emulation for emulation in (_ADM, _STYLEGAN3)}


def find_emulation(name: str) -> Emulation:
    """The emulation of this name."""
    if name not in EMULATIONS:
        known = ", ".join(EMULATIONS)
        raise UsageError(f"unknown emulation {name!r}; known: {known}", code="unknown-emulation")
    return EMULATIONS[name]


def emulated_radii(
    emulation: Emulation,
    features: Tensor,
    ks: Sequence[int],
    *,
    side: int | None = None,
    advance: Advance = no_advance,
) -> Tensor:
    """The radius of each row, (len(ks), n) float32: the (k+1)-th smallest of all its distances, including to itself.

    The unit is that of the tool: squared for "adm-float16".
    """
    if not ks:
        return torch.empty(0, len(features), dtype=torch.float32, device=features.device)
    most = max(ks) + 1
    # NaN sorts last, so it is never among the smallest while there are other values.
    shape = len(features), most
    smallest = torch.full(shape, torch.nan, dtype=torch.float32, device=features.device)
    with plain_arithmetic(features.device):
        points = _Rounded(features)
        for rows, columns, distances in _tiles(emulation, points, points, side):
            nearest = distances.topk(min(most, distances.shape[1]), largest=False).values
            smallest[rows] = torch.cat([smallest[rows], nearest], dim=1).topk(most, largest=False).values
            advance(_count(rows) * _count(columns))
    return smallest.sort(dim=1).values.T[list(ks)].contiguous()


def emulated_counts(
    emulation: Emulation,
    real: Tensor,
    fake: Tensor,
    *,
    real_radii: Tensor,
    fake_radii: Tensor,
    side: int | None = None,
    advance: Advance = no_advance,
) -> CrossCounts:
    """Count memberships in closed balls, for all sets of radii in one pass over real x fake."""
    a, b = len(real_radii), len(fake_radii)
    per_real = torch.zeros(a + b, len(real), dtype=torch.int64, device=real.device)
    per_fake = torch.zeros(a + b, len(fake), dtype=torch.int64, device=real.device)
    with plain_arithmetic(real.device):
        for rows, columns, distances in _tiles(emulation, _Rounded(real), _Rounded(fake), side):
            reaches = [*real_radii[:, rows, None], *fake_radii[:, None, columns]]
            for reach, of_reals, of_fakes in zip(reaches, per_real, per_fake, strict=True):
                inside = distances <= reach
                of_reals[rows] += inside.sum(dim=1)
                of_fakes[columns] += inside.sum(dim=0)
            advance(_count(rows) * _count(columns))
    return CrossCounts(per_fake[:a], per_real[:a], per_real[a:], per_fake[a:])


class _Rounded:
    """A feature set in the precision of a tool, float16 or float32."""

    def __init__(self, features: Tensor) -> None:
        self.features = features
        self._norms: dict[torch.dtype, Tensor] = {}

    def __len__(self) -> int:
        return len(self.features)

    def values(self, rows: slice, dtype: torch.dtype) -> Tensor:
        """(r, d) float64: rounded to `dtype`, then widened."""
        return self.features[rows].to(dtype).double()

    def norms(self, dtype: torch.dtype) -> Tensor:
        """(n,) squared norms in `dtype`: squares, and their sums, rounded to it."""
        if dtype not in self._norms:
            n, d = self.features.shape
            norms = torch.empty(n, dtype=dtype, device=self.features.device)
            for rows in _cuts(slice(0, n), max(1, _CHUNK_ELEMENTS // d)):
                squares = self.features[rows].to(dtype).square().double()
                # 11 bits, no smaller than 2^-24: the sum of thousands of such squares is exact in float64.
                norms[rows] = squares.sum(dim=1).float().to(dtype)
            self._norms[dtype] = norms
        return self._norms[dtype]


@dataclass(frozen=True, slots=True)
class _Between:
    """Distances of `emulation` from rows of `left` to rows of `right`."""

    emulation: Emulation
    left: _Rounded
    right: _Rounded

    def products(self, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
        """Inner products (r, c) float64 of the features rounded to `dtype`."""
        return self.left.values(rows, dtype) @ self.right.values(columns, dtype).T

    def distances(self, products: Tensor, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
        """Distances (r, c) float32 from these products."""
        row_norms, column_norms = self.left.norms(dtype)[rows, None], self.right.norms(dtype)[None, columns]
        return self.emulation.finish(products, row_norms, column_norms)

    def precision(self, rows: slice, columns: slice, side: int) -> torch.dtype:
        """The precision of a block: float32 if a distance overflows float16 and the tool checks for that, else float16."""
        half = torch.float16
        if self.emulation.block is None:
            return half
        largest = torch.stack([self.left.norms(half)[rows].max(), self.right.norms(half)[columns].max()])
        if not largest.isfinite().all():
            return torch.float32
        if float(largest.double().sqrt().sum()) ** 2 < _SAFELY_FINITE:
            return half
        for part in _cuts(rows, side):
            for others in _cuts(columns, side):
                products = self.products(part, others, half)
                if not self.distances(products, part, others, half).isfinite().all():
                    return torch.float32
        return half


_Tile = tuple[slice, slice, Tensor]


def _tiles(emulation: Emulation, left: _Rounded, right: _Rounded, side: int | None) -> Iterator[_Tile]:
    """All distances from rows of `left` to rows of `right`: rows, columns, and (r, c) float32.

    Within one set each inner product is used for both directions.
    """
    itself, between = left is right, _Between(emulation, left, right)
    side = side or _side(left.features)
    block = emulation.block or max(len(left), len(right))
    for row_block in _cuts(slice(0, len(left)), block):
        for column_block in _cuts(slice(row_block.start if itself else 0, len(right)), block):
            dtype = between.precision(row_block, column_block, side)
            mirrored_dtype = dtype
            if itself and column_block != row_block:
                mirrored_dtype = between.precision(column_block, row_block, side)
            for rows in _cuts(row_block, side):
                for columns in _cuts(column_block, side):
                    if itself and columns.start < rows.start:
                        continue
                    products = {
                        each: between.products(rows, columns, each) for each in {dtype, mirrored_dtype}
                    }
                    yield rows, columns, between.distances(products[dtype], rows, columns, dtype)
                    if itself and columns != rows:
                        mirrored = products[mirrored_dtype].T.contiguous()
                        yield columns, rows, between.distances(mirrored, columns, rows, mirrored_dtype)


def _side(features: Tensor) -> int:
    """Rows and columns of a tile within the memory budget."""
    budget, side = tile_budget(features.device), _MAX_SIDE
    while side > _MIN_SIDE and side * (side * _BYTES_PER_PAIR + 16 * features.shape[1]) > budget:
        side //= 2
    return side


def _cuts(whole: slice, size: int) -> Iterator[slice]:
    """Cut a slice into slices of at most `size`."""
    for start in range(whole.start, whole.stop, size):
        yield slice(start, min(start + size, whole.stop))


def _count(rows: slice) -> int:
    count: int = rows.stop - rows.start
    return count
