"""The definition of the squared distance: float64, one fixed order of summation, the same bits on every device.

All decisions use this function, both for radii and for queries, so that an exact copy of a
k-th neighbor lies exactly on the sphere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from genpr.neighbors.engine import in_steps, places, profile_of

_MIN_PART, _MAX_PART = 8, 64  # width of parts of rows whose squared distances are added in float64


def sq_distances(x: Tensor, y: Tensor, memory: Tensor | None = None) -> Tensor:
    """Squared distances (p,) float64 between row i of `x` and of `y`, (p, d) float32: the definition.

    The d squares are added by pairwise halving over d padded with zeros to a power of two: element i and
    element i + half, until one is left. Squares and sums are separate elementwise operations, so that no
    device fuses them into a differently rounded one, and no library chooses an order. `memory`, at least (p, d) float64, is
    overwritten.
    """
    terms = _as_float64(x, memory).sub_(y)
    terms.mul_(terms)
    return _summed(terms)


def products(x: Tensor, y: Tensor, memory: Tensor | None = None) -> Tensor:
    """Inner products (p,) float64 of row i of `x` and of `y`, (p, d) float32, summed in the same order."""
    return _summed(_as_float64(x, memory).mul_(y))


def _as_float64(x: Tensor, memory: Tensor | None) -> Tensor:
    return x.double() if memory is None else memory[: len(x)].copy_(x)


def _summed(terms: Tensor) -> Tensor:
    """Sums (p,) of the rows of (p, d), which are overwritten, in the one order."""
    while (width := terms.shape[1]) > 1:
        half = 1 << (width - 1).bit_length() - 1
        rest = width - half  # more would be padding: zeros
        terms.narrow(1, 0, rest).add_(terms.narrow(1, half, rest))
        terms = terms.narrow(1, 0, half)
    return terms[:, 0].clone()


def square_roots(values: Tensor) -> Tensor:
    """Correctly rounded square roots, the same on every device; torch on the CPU is off by an ulp in 1 % of the cases."""
    return torch.from_numpy(np.sqrt(values.cpu().numpy())).to(values.device)


def sq_differences_at(x: Tensor, y: Tensor, i: Tensor, j: Tensor, held: list[Tensor] | None = None) -> Tensor:
    """Squared distances between rows `i` of `x` and `j` of `y`, (p,) float32 throughout, summed in any order."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or y.dtype != torch.float32:
        return of_pairs(
            lambda left, right, _: left.float().sub_(right).square_().sum(dim=1), x, y, i, j, held
        )
    import faiss  # after torch: the other order can load two OpenMP runtimes

    # Several times faster than torch, since no rows are copied. Arrays must live until FAISS is done.
    out = torch.empty(len(i), dtype=torch.float32, device=x.device)
    arrays = [each.contiguous().numpy() for each in (x, i, y, j)]
    pointers = map(faiss.swig_ptr, (*arrays, out.numpy()))
    faiss.pairwise_indexed_L2sqr(x.shape[1], len(i), *pointers)  # type: ignore[attr-defined]
    return out


def part_width(x: Tensor, y: Tensor) -> int:
    """Width of the parts of rows in `sq_differences_by_parts`: a divisor of d, or d where there is no suitable one."""
    d = x.shape[1]
    if x.device.type != "cpu" or x.dtype != torch.float32 or y.dtype != torch.float32:
        return d
    return next((width for width in range(_MAX_PART, _MIN_PART - 1, -1) if d % width == 0), d)


def sq_differences_by_parts(
    x: Tensor, y: Tensor, i: Tensor, j: Tensor, held: list[Tensor] | None = None
) -> Tensor:
    """`sq_differences_at` as (p,) float64: sums of float32 distances between parts of rows, which have far smaller errors."""
    (_, d), width = x.shape, part_width(x, y)
    parts = torch.arange(d // width, device=x.device)
    if len(parts) == 1:
        return sq_differences_at(x, y, i, j, held).double()
    left, right = (each.contiguous().view(-1, width) for each in (x, y))

    def of(some: slice) -> Tensor:
        of_i, of_j = ((each[some, None] * len(parts) + parts).flatten() for each in (i, j))
        return sq_differences_at(left, right, of_i, of_j).view(-1, len(parts)).sum(dim=1, dtype=torch.float64)

    return torch.cat(list(in_steps(of, len(i), profile_of(x.device).elements // len(parts), x.device)))


def near_sq_distances(x: Tensor, y: Tensor, i: Tensor, j: Tensor, held: list[Tensor] | None = None) -> Tensor:
    """Squared distances between rows `i` of `x` and rows `j` of `y`, computed in float32: (p,) float64.

    Equal for equal vectors, in either order. Distances beyond the range of float32 are computed in float64.
    """
    if x.device.type == "cpu":
        sq = sq_differences_at(x, y, i, j)
    else:  # the order of a reduction depends on the number of rows there
        sq = of_pairs(lambda left, right, _: _summed(left.float().sub_(right).square_()), x, y, i, j)
    sq = sq.double()
    beyond = places(~sq.isfinite())
    if len(beyond):
        sq[beyond] = of_pairs(sq_distances, x, y, i[beyond], j[beyond], held)
    return sq


def of_pairs(
    function: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    x: Tensor,
    y: Tensor,
    i: Tensor,
    j: Tensor,
    held: list[Tensor] | None = None,
) -> Tensor:
    """`function` of rows `i` of `x` and rows `j` of `y`, such as `sq_distances`, (p,), in bounded memory.

    On a CPU, memory for rows and float64 terms is reused, by later calls too if they get the same `held`; fresh memory costs several
    times as much as a distance.
    """
    device, (_, d) = x.device, x.shape
    held = [] if held is None else held

    def of(some: slice) -> Tensor:
        rows, others = i[some], j[some]
        if device.type != "cpu":
            return function(x[rows], y[others], None)
        if not held or len(held[0]) < len(rows):
            held[:] = (each.new_empty(len(rows), d) for each in (x, y, x.new_empty(0, dtype=torch.float64)))
        left, right, memory = held
        torch.index_select(x, 0, rows, out=left[: len(rows)])
        torch.index_select(y, 0, others, out=right[: len(rows)])
        return function(left[: len(rows)], right[: len(rows)], memory)

    return torch.cat(list(in_steps(of, len(i), profile_of(device).elements // d, device)))


def blocks_of(features: Tensor, n: int | None = None) -> Iterator[slice]:
    """Blocks of all rows of (n, d) `features`, or of `n` rows as wide as these."""
    step = max(1, profile_of(features.device).elements // features.shape[1])
    n = len(features) if n is None else n
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
