"""Exact distances to the k-th nearest other row: bounds propose, the definition decides.

1. Some near rows of the same block, by products, give every row a reach that its k-th neighbour lies within.
2. One sweep over half of all pairs finds those within reach. Float32 differences, computed in portions for the
   pairs found, shrink the reach while the sweep goes on.
3. What the differences leave undecided, about one pair per row, is computed by the definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbours.choose import choose_engine
from genpr.neighbours.closest import Closest, bounds_of_pairs, in_reach
from genpr.neighbours.engine import Engine, plain_arithmetic
from genpr.neighbours.frame import Placed, evenly_spaced
from genpr.neighbours.sweep import Pairs, Tick, blocks_of, no_tick, sweep_within
from genpr.neighbours.verify import sq_distances_at
from genpr.neighbours.workers import Workers

_MARGIN = 7  # rows looked at beyond k for a first reach
_FIRST_ROWS = 384, 1024  # others among which a row looks for them, at most so many
_SPREAD_ROWS = 2048  # columns looked at for rows that have too few others in their block
_MASSES = 2**15  # pairs at once
_VERIFIED = 4096  # pairs per piece of work


def kth_sq_distances(
    points: Placed, ks: Sequence[int], *, engine: Engine | None = None, tick: Tick = no_tick
) -> Tensor:
    """Squared distance from each row to its k-th nearest other row, exactly.

    A row is never its own neighbour; copies of it are.

    Args:
        points: n rows.
        ks: Each from 1 to n - 1.
        engine: What multiplies; None chooses by device.
        tick: Told how many of the n (n - 1) / 2 pairs are done with, now and then.

    Returns:
        (len(ks), n) float64.
    """
    if not ks:
        return torch.empty(0, len(points), dtype=torch.float64, device=points.device)
    engine = engine or choose_engine(points.device)
    with plain_arithmetic(points.device), Workers(points.device) as workers:
        sq_reach, copies = _first_reach(points, max(ks), engine, workers)
        near = _Directed.of(_closest(points, max(ks), sq_reach, engine, workers, tick), sq_reach)
        table = near.smallest(near.decided(points, ks, workers), max(ks))
        table[copies[:, 0] >= 0] = 0
        return table[:, [k - 1 for k in ks]].T.contiguous()


def nearest_neighbours(points: Placed, k: int, *, engine: Engine | None = None) -> tuple[Tensor, Tensor]:
    """The `k` nearest other rows of each row, nearest first, exactly; which of several equally far is arbitrary.

    Args:
        points: n rows.
        k: From 1 to n - 1.
        engine: As in `kth_sq_distances`.

    Returns:
        Indices (n, k) int64 and squared distances (n, k) float64.
    """
    engine = engine or choose_engine(points.device)
    with plain_arithmetic(points.device), Workers(points.device) as workers:
        sq_reach, copies = _first_reach(points, k, engine, workers)
        near = _Directed.of(_closest(points, k, sq_reach, engine, workers), sq_reach)
        sq = _verified(points, near.row, near.other, workers)
        listed = near.places(sq, k)
        settled = copies[:, 0] >= 0
        index = _padded(near.other, -1)[listed].where(~settled[:, None], copies)
        return index, _padded(sq, torch.inf)[listed].masked_fill(settled[:, None], 0)


def _first_reach(points: Placed, k: int, engine: Engine, workers: Workers) -> tuple[Tensor, Tensor]:
    """An upper bound on each row's k-th squared distance, (n,) float64, from rows of its own block.

    Rows with k copies are settled: their reach is -inf, and the copies are the second result, (n, k) int64, which
    holds -1 for all other rows.
    """
    n = len(points)
    sq_reach = torch.full((n,), torch.inf, dtype=torch.float64, device=points.device)
    copies = torch.full((n, k), -1, dtype=torch.int64, device=points.device)
    limit = min(
        engine.tiles(points.view.width, points.device).rows, max(_FIRST_ROWS[0], n // 16), _FIRST_ROWS[1]
    )
    spread = evenly_spaced(n, max(_SPREAD_ROWS, 2 * k), points.device)

    def look(block: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return block, *_look(points, block, block if len(block) > k else spread, k, engine)

    blocks = blocks_of(points, torch.zeros_like(sq_reach), limit)
    for block, near, sq_lower, sq_upper in workers.map(look, blocks):
        sq_reach[block] = sq_upper
        at = (sq_lower <= 0).nonzero()[:, 0]
        at = at[(points.features[near[at]] == points.features[block[at], None]).all(dim=2).all(dim=1)]
        sq_reach[block[at]], copies[block[at]] = -torch.inf, near[at]
    return sq_reach, copies


def _look(
    points: Placed, rows: Tensor, columns: Tensor, k: int, engine: Engine
) -> tuple[Tensor, Tensor, Tensor]:
    """The k nearest met among some `columns` (c,), (r, k), and bounds on the distance to the last, twice (r,)."""
    count = min(k + _MARGIN, len(columns))
    near = columns[engine.largest(points.view.left(rows), points.view.right(columns), count)]
    i = rows.repeat_interleave(count)
    sq_lower, sq_upper = bounds_of_pairs(points.features, points.features, i, near.flatten(), engine)
    sq_upper = sq_upper.view(near.shape).masked_fill(near == rows[:, None], torch.inf)
    sq_upper, order = sq_upper.sort(dim=1)
    last = sq_lower.view(near.shape).gather(1, order[:, k - 1, None])[:, 0]
    return near.gather(1, order[:, :k]), last, sq_upper[:, k - 1]


def _closest(
    points: Placed, k: int, sq_reach: Tensor, engine: Engine, workers: Workers, tick: Tick = no_tick
) -> Pairs:
    """Every pair within the reach of one of the two; `sq_reach` shrinks in place as they are met."""
    x, closest = points.features, Closest.within(sq_reach, k)

    def sharpen(pairs: Pairs) -> Pairs:
        pairs = in_reach(pairs, sq_reach)
        pairs = Pairs(pairs.i, pairs.j, *bounds_of_pairs(x, x, pairs.i, pairs.j, engine))
        if len(pairs) < max(_MASSES, len(sq_reach) // 8):
            return pairs
        # Near copies: thousands per row, of which few are as near as others of the same portion allow.
        portion = Closest.within(sq_reach, k)
        portion.meet(pairs)
        return portion.pairs()

    for pairs in sweep_within(points, sq_reach, engine, workers, sharpen, tick):
        closest.meet(pairs)
    return closest.pairs()


def _verified(points: Placed, i: Tensor, j: Tensor, workers: Workers) -> Tensor:
    """Squared distances by the definition, (p,) float64."""
    x = points.features
    parts = zip(torch.split(i, _VERIFIED), torch.split(j, _VERIFIED), strict=True)
    return torch.cat(list(workers.map(lambda part: sq_distances_at(x, x, *part), parts)))


@dataclass(frozen=True, slots=True)
class _Directed:
    """Rows and others within their reach, grouped by row, with bounds on the squared distances; all (p,)."""

    row: Tensor
    other: Tensor
    sq_lower: Tensor
    sq_upper: Tensor
    size: Tensor  # (n,) others per row

    @classmethod
    def of(cls, pairs: Pairs, sq_reach: Tensor) -> _Directed:
        row, other = torch.cat([pairs.i, pairs.j]), torch.cat([pairs.j, pairs.i])
        in_reach = (pairs.sq_lower.repeat(2) <= sq_reach[row]).nonzero()[:, 0]
        order = in_reach[row[in_reach].argsort()]
        row = row[order]
        return cls(
            row,
            other[order],
            pairs.sq_lower.repeat(2)[order],
            pairs.sq_upper.repeat(2)[order],
            row.bincount(minlength=len(sq_reach)),
        )

    def places(self, values: Tensor, k: int) -> Tensor:
        """Where the k smallest `values` (p,) of each row are, ascending, (n, k); p where a row has fewer."""
        order = values.argsort()
        order = order[self.row[order].argsort(stable=True)]
        order = torch.cat([order, order.new_full((1,), len(order))])
        rank = torch.arange(k, device=order.device)
        place = (self.size.cumsum(dim=0) - self.size)[:, None] + rank
        return order[place.where(rank < self.size[:, None], len(order) - 1)]

    def smallest(self, values: Tensor, k: int) -> Tensor:
        """The k smallest `values` (p,) of each row, ascending, (n, k); infinite where a row has fewer."""
        return _padded(values, torch.inf)[self.places(values, k)]

    def decided(self, points: Placed, ks: Sequence[int], workers: Workers) -> Tensor:
        """Values (p,) whose k-th smallest of each row is the k-th squared distance, for each of `ks`.

        It lies between the k-th smallest lower and the k-th smallest upper bound. An other whose own bounds are both
        on one side of this gap needs no verification: its lower bound, in its place, leaves the value the same.
        """
        lowest, highest = self.smallest(self.sq_lower, max(ks)), self.smallest(self.sq_upper, max(ks))
        is_open = torch.zeros_like(self.row, dtype=torch.bool)
        for k in ks:
            is_open |= (self.sq_lower <= highest[self.row, k - 1]) & (
                self.sq_upper >= lowest[self.row, k - 1]
            )
        at = is_open.nonzero()[:, 0]
        sq = self.sq_lower.clone()
        sq[at] = _verified(points, self.row[at], self.other[at], workers)
        return sq


def _padded(values: Tensor, value: float) -> Tensor:
    return torch.cat([values, values.new_full((1,), value)])
