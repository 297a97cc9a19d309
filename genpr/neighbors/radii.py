"""Exact distances to the k-th nearest other row: bounds propose, the definition decides.

1. Some near rows of the same block and of the centre, by products, give every row a reach that its k-th neighbour lies
   within.
2. One sweep over half of all pairs finds those within reach. Float32 differences, computed in portions for the
   pairs found, shrink the reach while the sweep goes on.
3. What the differences leave undecided, about one pair per row, is computed by the definition.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from genpr.neighbors.choose import choose_engine
from genpr.neighbors.closest import Closest, bounds_of_pairs, in_reach
from genpr.neighbors.directed import Directed, padded
from genpr.neighbors.engine import Engine, plain_arithmetic
from genpr.neighbors.frame import Placed, evenly_spaced
from genpr.neighbors.pairs import Pairs
from genpr.neighbors.sweep import Tick, no_tick, shared_blocks, sweep_within
from genpr.neighbors.workers import Workers

_MARGIN = 7  # rows looked at beyond k for a first reach
_FIRST_ROWS = 384, 1024  # others among which a row looks for them, at most so many
# For more neighbours than a few, so many times as many rows around the centre of a cell are looked at.
_FEW, _AROUND = 12, 64
_SPREAD_ROWS = 2048  # columns looked at for rows that have too few others in their block
# In many dimensions the rows nearest to the centre are near to all others (hubs: Radovanovic et al. 2010). Unless each row
# has looked at them first, the sweep meets half of all its pairs in the block that they are in.
_CENTRAL, _CENTRAL_OF = 128, 2**14
_CENTRAL_ELEMENTS = 2**21  # numbers at once
_MASSES = 2**15  # pairs at once


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
    with plain_arithmetic(points.device), Workers(points.device, engine.communicator()) as workers:
        near, copies = near_others(points, max(ks), engine, workers, tick)
        decided = near.decided(points.features, ks, workers)
        table = decided.smallest(decided.sq_lower, max(ks))
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
    with plain_arithmetic(points.device), Workers(points.device, engine.communicator()) as workers:
        near, copies = near_others(points, k, engine, workers)
        sq = near.verified(points.features, workers).sq_lower
        listed = near.places(sq, k)
        settled = copies[:, 0] >= 0
        index = padded(near.other, -1)[listed].where(~settled[:, None], copies)
        return index, padded(sq, torch.inf)[listed].masked_fill(settled[:, None], 0)


def near_others(
    points: Placed, k: int, engine: Engine, workers: Workers, tick: Tick = no_tick
) -> tuple[Directed, Tensor]:
    """For each row, the others that may be among its `k` nearest, or no farther than these.

    Returns:
        The others; and for rows with k copies, which have none there, these copies: (n, k) int64, -1 for all others.
    """
    sq_reach, copies = _first_reach(points, k, engine, workers)
    return Directed.of(_closest(points, k, sq_reach, engine, workers, tick), sq_reach), copies


def _first_reach(points: Placed, k: int, engine: Engine, workers: Workers) -> tuple[Tensor, Tensor]:
    """An upper bound on each row's k-th squared distance, (n,) float64, from rows of its own block and of the centre.

    Rows with k copies are settled: their reach is -inf, and the copies are the second result, (n, k) int64, which
    holds -1 for all other rows.
    """
    n = len(points)
    sq_reach = torch.full((n,), torch.inf, dtype=torch.float64, device=points.device)
    copies = torch.full((n, k), -1, dtype=torch.int64, device=points.device)
    limit = min(
        engine.tiles(points.view.width, points.device).rows, max(_FIRST_ROWS[0], n // 16), _FIRST_ROWS[1]
    )
    spaced = evenly_spaced(n, max(_SPREAD_ROWS, 2 * k), points.device)
    central = _central(points)

    def look(block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        columns = torch.unique(torch.cat([_around(points, block, k, spaced), central]))
        return _look(points, block, columns, k, engine)

    blocks = shared_blocks(points, torch.zeros_like(sq_reach), limit, workers)
    for block, (near, sq_lower, sq_upper) in zip(blocks, workers.map_shared(look, blocks), strict=True):
        sq_reach[block] = sq_upper
        at = (sq_lower <= 0).nonzero()[:, 0]
        at = at[(points.features[near[at]] == points.features[block[at], None]).all(dim=2).all(dim=1)]
        sq_reach[block[at]], copies[block[at]] = -torch.inf, near[at]
    return sq_reach, copies


def _central(points: Placed) -> Tensor:
    """Rows near the centre of all, as indices; of many rows some stand for all."""
    some = evenly_spaced(len(points), _CENTRAL_OF, points.device)
    norms = torch.empty(len(some), device=points.device)
    step = max(1, _CENTRAL_ELEMENTS // points.features.shape[1])
    for start in range(0, len(some), step):
        part = slice(start, start + step)
        norms[part] = (points.features[some[part]].float() - points.frame.centre).square_().sum(dim=1)
    return some[norms.topk(min(_CENTRAL, len(some)), largest=False).indices]


def _around(points: Placed, block: Tensor, k: int, spaced: Tensor) -> Tensor:
    """Rows (c,), c > k, that are likely to hold near neighbours of a `block` of one cell."""
    cells = points.cells
    if k > _FEW and cells is not None and (label := int(cells.label[block[0]])) < len(cells.sq_distances):
        return cells.sq_distances[label].topk(min(_AROUND * k, len(points)), largest=False).indices
    return block if len(block) > k else spaced


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
    return _of_all(closest.pairs(), sq_reach, k, workers)


def _of_all(pairs: Pairs, sq_reach: Tensor, k: int, workers: Workers) -> Pairs:
    """Those of all ranks together that are within reach, which shrinks in place: the same as of one rank alone.

    What a rank left out is beyond a reach that k other pairs explain, and these it kept.
    """
    if workers.communicator.size == 1:
        return pairs
    closest = Closest.within(sq_reach, k)
    for part in pairs.all_gather(workers.communicator):
        closest.meet(part)
    return closest.pairs()
