"""The nearest rows of one set to each row of another, exactly: bounds propose, the definition decides.

1. Products with some of the points give every query a reach within which k points lie.
2. One sweep over queries x points finds the pairs within reach; tighter bounds, computed in portions for the pairs
   found, shrink the reach while the sweep goes on. Each query belongs to one block, so only one worker shrinks it.
3. What is left, little more than k pairs per query, is computed by the definition and put in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from genpr.neighbors.choose import choose_engine
from genpr.neighbors.closest import bounds_of_pairs
from genpr.neighbors.engine import Engine, plain_arithmetic
from genpr.neighbors.frame import Placed, evenly_spaced
from genpr.neighbors.pairs import Pairs
from genpr.neighbors.pieces import pieces_of
from genpr.neighbors.sweep import Tick, no_tick, shared_blocks, sweep_between
from genpr.neighbors.verify import sq_distances_at
from genpr.neighbors.workers import Workers

_MARGIN = 7  # points looked at beyond k for a first reach
_FIRST_POINTS = 384, 1024  # points among which a query looks for them, at most so many
_PORTION, _PER_QUERY = (
    2**16,
    4,
)  # pairs that are worth a merge: at least so many, and so many times k per query
_CROWD = 2**15  # pairs of one portion that should be settled where they are found
_SURPLUS = 256  # copies beyond the k-th that are worth a search without them
_VERIFIED = 4096  # pairs per piece of work


def nearest_between(
    queries: Placed, points: Placed, k: int, *, engine: Engine | None = None, tick: Tick = no_tick
) -> tuple[Tensor, Tensor]:
    """The `k` points nearest to each query, nearest first; of equally far ones, those of lower index.

    The two sets are different ones: point i may well be the nearest to query i. Where very many points are exactly
    as far from a query as its k-th nearest, on a lattice for instance, every one of them costs a distance by the
    definition; copies of a point beyond k cost nothing.

    Args:
        queries: m rows.
        points: n rows in the same frame.
        k: From 1 to n.
        engine: What multiplies; None chooses by device.
        tick: Told how many of the m n pairs are done with, now and then.

    Returns:
        Indices (m, k) int64 and squared distances (m, k) float64.
    """
    engine = engine or choose_engine(points.device)
    with plain_arithmetic(points.device), Workers(points.device, engine.communicator()) as workers:
        found = _without_surplus(points.features, k)
        # As on rank 0, so that all ranks count the same points.
        found_there = workers.from_rank0([] if found is None else [found])
        kept = found_there[0] if found_there else None
        if kept is not None:
            points = points.frame.place(points.features[kept])
        sq_reach = _first_reach(queries, points, k, engine, workers)
        index, sq = _swept(queries, points, k, sq_reach, engine, workers, tick)
        return index if kept is None else kept[index], sq


def _without_surplus(features: Tensor, k: int) -> Tensor | None:
    """The rows of (n, d) `features` with fewer than k earlier copies, ascending; None if they are nearly all.

    Equal rows have equal projections, or at worst ones of different rounding, and then they merely stay.
    """
    n, d = features.shape
    direction = torch.rand(d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    direction = direction.to(features.device)
    projection = torch.cat([features[piece].double() @ direction for piece in pieces_of(features)])
    value, order = projection.sort(stable=True)
    follows = torch.zeros(n, dtype=torch.bool, device=features.device)
    same = (value[1:] == value[:-1]).nonzero()[:, 0]
    for piece in pieces_of(features, len(same)):
        at = same[piece]
        follows[at + 1] = (features[order[at]] == features[order[at + 1]]).all(dim=1)
    place = torch.arange(n, device=features.device)
    first = place.where(~follows, torch.zeros_like(place)).cummax(dim=0).values
    surplus = place - first >= k
    if int(surplus.sum()) < _SURPLUS:
        return None
    return order[~surplus].sort().values


def _first_reach(queries: Placed, points: Placed, k: int, engine: Engine, workers: Workers) -> Tensor:
    """An upper bound on each query's k-th squared distance, (m,) float64, from points of its cell or of all."""
    n = len(points)
    limit = engine.tiles(points.view.width, points.device).rows
    few = max(min(max(_FIRST_POINTS[0], n // 16), _FIRST_POINTS[1]), k + _MARGIN)
    spaced = evenly_spaced(n, few, points.device)

    def look(block: Tensor) -> tuple[Tensor]:
        columns = _of_cell(queries, points, block, few)
        columns = spaced if len(columns) < k else columns
        count = min(k + _MARGIN, len(columns))
        near = columns[engine.largest(queries.view.left(block), points.view.right(columns), count)]
        i = block.repeat_interleave(count)
        _, sq_upper = bounds_of_pairs(queries.features, points.features, i, near.flatten(), engine)
        return (sq_upper.view(near.shape).sort(dim=1).values[:, k - 1],)

    sq_reach = torch.full((len(queries),), torch.inf, dtype=torch.float64, device=queries.device)
    blocks = shared_blocks(queries, torch.zeros_like(sq_reach), limit, workers)
    for block, (sq_upper,) in zip(blocks, workers.map_shared(look, blocks), strict=True):
        sq_reach[block] = sq_upper
    return sq_reach


def _of_cell(queries: Placed, points: Placed, block: Tensor, few: int) -> Tensor:
    """At most `few` points of the cell that the queries of `block` lie in."""
    if queries.cells is None or points.cells is None:
        return block[:0]
    members = (points.cells.label == queries.cells.label[block[0]]).nonzero()[:, 0]
    return members[evenly_spaced(len(members), few, members.device)]


def _swept(
    queries: Placed,
    points: Placed,
    k: int,
    sq_reach: Tensor,
    engine: Engine,
    workers: Workers,
    tick: Tick,
) -> tuple[Tensor, Tensor]:
    """Indices and squared distances (m, k); `sq_reach` shrinks in place."""
    x, y = queries.features, points.features
    nothing = torch.full((len(points),), -torch.inf, dtype=torch.float64, device=points.device)

    def sharpen(pairs: Pairs) -> Pairs:
        pairs = pairs.select(pairs.sq_lower <= sq_reach[pairs.i])
        pairs = Pairs(pairs.i, pairs.j, *bounds_of_pairs(x, y, pairs.i, pairs.j, engine))
        pairs = _within_kth(pairs, sq_reach, k)
        if len(pairs) < max(_CROWD, 2 * k * len(torch.unique(pairs.i))):
            return pairs
        # Crowds at one distance, as on a lattice, which no bounds can tell apart.
        pairs = _first_k(pairs, sq_distances_at(x, y, pairs.i, pairs.j), k)
        return _within_kth(pairs, sq_reach, k)

    nearest = _Nearest(queries, points, k, sq_reach, workers)
    for pairs in sweep_between(queries, points, sq_reach, nothing, engine, workers, sharpen, tick):
        nearest.meet(pairs)
    return nearest.decided()


@dataclass(slots=True)
class _Nearest:
    """The pairs met so far of which some may be among the k nearest points of a query."""

    queries: Placed
    points: Placed
    k: int
    sq_reach: Tensor
    workers: Workers
    _kept: list[Pairs] = field(default_factory=list)
    _waiting: int = 0

    def meet(self, pairs: Pairs) -> None:
        """Take note of pairs, none of them met before."""
        self._kept.append(pairs)
        self._waiting += len(pairs)
        worth = max(_PORTION, _PER_QUERY * self.k * len(self.queries))
        if self._waiting < worth:
            return
        left = _within_kth(self._joined(), self.sq_reach, self.k)
        if len(left) > worth // 2:  # ties that no bounds can tell apart
            left = self._exactly(left)
        self._kept, self._waiting = [left], 0

    def decided(self) -> tuple[Tensor, Tensor]:
        """Indices and squared distances (m, k), once all pairs within reach were met."""
        communicator, shape = self.workers.communicator, (-1, self.k)
        pairs = self._exactly(_within_kth(self._joined(), self.sq_reach, self.k))
        if communicator.size > 1:  # each query belongs to one rank
            pairs = Pairs.joined(pairs.all_gather(communicator))
            pairs = pairs.part(pairs.i.argsort(stable=True))
        return pairs.j.view(shape), pairs.sq_lower.view(shape)

    def _joined(self) -> Pairs:
        return Pairs.joined(self._kept, self.sq_reach.device)

    def _exactly(self, pairs: Pairs) -> Pairs:
        x, y = self.queries.features, self.points.features
        parts = zip(torch.split(pairs.i, _VERIFIED), torch.split(pairs.j, _VERIFIED), strict=True)
        sq = torch.cat(list(self.workers.map(lambda part: sq_distances_at(x, y, *part), parts)))
        return _first_k(pairs, sq, self.k)


def _within_kth(pairs: Pairs, sq_reach: Tensor, k: int) -> Pairs:
    """The pairs that may be among the k nearest of their queries, whose reach (m,) shrinks in place.

    Pairs left out before lie beyond a reach that k pairs still here explain, so these k suffice.
    """
    if len(pairs) == 0:
        return pairs
    order = _in_order(pairs.i, pairs.sq_upper)
    i, sq_upper = pairs.i[order], pairs.sq_upper[order]
    is_kth = _ranks(i) == k - 1
    rows = i[is_kth]
    sq_reach[rows] = torch.minimum(sq_reach[rows], sq_upper[is_kth])
    return pairs.select(pairs.sq_lower <= sq_reach[pairs.i])


def _first_k(pairs: Pairs, sq: Tensor, k: int) -> Pairs:
    """The k first pairs of each query in order of exact squared distances `sq` (p,), then of points."""
    by_point = pairs.j.argsort()
    order = by_point[_in_order(pairs.i[by_point], sq[by_point])]
    order = order[_ranks(pairs.i[order]) < k]
    return Pairs(pairs.i[order], pairs.j[order], sq[order], sq[order])


def _in_order(rows: Tensor, values: Tensor) -> Tensor:
    """The order by rows, then by values; pairs that agree in both keep theirs."""
    order = values.argsort(stable=True)
    return order[rows[order].argsort(stable=True)]


def _ranks(rows: Tensor) -> Tensor:
    """The how-manieth of its row each entry of ascending (p,) `rows` is, from 0."""
    place = torch.arange(len(rows), device=rows.device)
    return place - torch.searchsorted(rows, rows)
