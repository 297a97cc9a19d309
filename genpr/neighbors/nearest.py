"""Exact k nearest rows, within one set and between two: bounds select candidates, the definition decides.

1. Products with rows of the same block and rows near the center give every row an upper bound on the distance to its
   k-th neighbor: its reach.
2. One sweep over half of all pairs finds those within reach. Float32 differences, computed for batches of these pairs,
   shrink the reach during the sweep.
3. Pairs that differences leave undecided, about one per row, are computed by the definition.

`NeighborLists` are for resampling; no decision uses them. Their distances have the precision of float32. Intervals compare
distances many times, and need equal distances only for equal vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from genpr.neighbors.bounds import bounds_of_differences, bounds_of_pairs
from genpr.neighbors.distance import blocks_of, near_sq_distances, of_pairs, sq_distances
from genpr.neighbors.engine import ENGINE, Advance, Engine, Search, no_advance, profile_of
from genpr.neighbors.index import IndexedPoints, evenly_spaced
from genpr.neighbors.search import ClosestPairs, Pairs, row_blocks, sweep
from genpr.validation import Ties


@dataclass(frozen=True, slots=True)
class NeighborLists:
    """The L nearest other rows of each of n rows."""

    index: Tensor  # (n, L) int64, nearest first, in any order if equally far
    sq: Tensor  # (n, L) float64, `near_sq_distances`, ascending

    @classmethod
    def none(cls, features: Tensor) -> NeighborLists:
        """Lists without entries, of (n, d) `features`."""
        index = torch.empty(len(features), 0, dtype=torch.int64, device=features.device)
        return cls(index, index.double())

    def leave_one_out_sq_distances(self) -> Tensor:
        """Squared distance from each row's nearest neighbor to its own nearest neighbor without the row: (n,) float64.

        Needs lists of length 2.
        """
        nearest, rows = self.index[:, 0], torch.arange(len(self.index), device=self.index.device)
        is_mutual = self.index[nearest, 0] == rows
        return self.sq[nearest, 1].where(is_mutual, self.sq[nearest, 0])


@dataclass(frozen=True, slots=True)
class DirectedPairs:
    """Rows and others within their reach, grouped by row, with bounds on the squared distances; all (p,)."""

    row: Tensor  # ascending
    other: Tensor  # a row of the same set
    sq_lower: Tensor  # lower bound on the squared distance
    sq_upper: Tensor  # upper bound
    size: Tensor  # (n,) others per row

    @classmethod
    def from_pairs(cls, pairs: Pairs, sq_reach: Tensor) -> DirectedPairs:
        """Every pair in both directions, if it may be within the reach (n,) of its first row."""
        i, j, n = pairs.i, pairs.j, len(sq_reach)
        there = (pairs.sq_lower <= sq_reach[i]).nonzero()[:, 0]
        back = (pairs.sq_lower <= sq_reach[j]).nonzero()[:, 0]
        row, other = torch.cat([i[there], j[back]]), torch.cat([j[there], i[back]])
        order = (row * n + other).argsort()  # an order that does not depend on where a pair was found
        row, at = row[order], torch.cat([there, back])[order]
        return cls(row, other[order], pairs.sq_lower[at], pairs.sq_upper[at], row.bincount(minlength=n))

    def within(self, sq_reach: Tensor) -> DirectedPairs:
        """The pairs that may be within a smaller reach (n,)."""
        at = (self.sq_lower <= sq_reach[self.row]).nonzero()[:, 0]
        row = self.row[at]
        size = row.bincount(minlength=len(self.size))
        return DirectedPairs(row, self.other[at], self.sq_lower[at], self.sq_upper[at], size)

    def positions(self, values: Tensor, k: int) -> Tensor:
        """Positions of the k smallest `values` (p,) of each row, ascending, (n, k); p where a row has fewer."""
        order = values.argsort(stable=True)
        order = order[self.row[order].argsort(stable=True)]
        rank = torch.arange(k, device=order.device)
        place = (self.size.cumsum(dim=0) - self.size)[:, None] + rank
        place = place.where(rank < self.size[:, None], len(order))
        return pad(order, (0, 1), value=len(order))[place]

    def smallest(self, values: Tensor, k: int) -> Tensor:
        """The k smallest `values` (p,) of each row, ascending, (n, k); infinite where a row has fewer."""
        return pad(values, (0, 1), value=torch.inf)[self.positions(values, k)]

    def resolved(self, features: Tensor, ks: Sequence[int], search: Search) -> DirectedPairs:
        """Verify pairs until the k-th smallest lower bound of each row is the k-th squared distance, for all `ks`.

        It lies between the k-th smallest lower and the k-th smallest upper bound. A pair whose bounds are both
        on one side of this interval needs no verification: its lower bound does not change the value.
        """
        lowest, highest = self.smallest(self.sq_lower, max(ks)), self.smallest(self.sq_upper, max(ks))
        is_open = torch.zeros_like(self.row, dtype=torch.bool)
        for k in ks:
            is_open |= (self.sq_lower <= highest[self.row, k - 1]) & (
                self.sq_upper >= lowest[self.row, k - 1]
            )
        return self._verified(features, is_open, search)

    def in_degrees(self, features: Tensor, sq_radii: Tensor, ties: Ties, search: Search) -> Tensor:
        """Number of balls of other rows that contain each row: (a, n) int64 for radii (a, n) within the reach."""
        inside = torch.le if ties == "closed" else torch.lt
        is_open = torch.zeros_like(self.row, dtype=torch.bool)
        for radii in sq_radii:
            of_row = radii[self.row]
            is_open |= inside(self.sq_lower, of_row) & ~inside(self.sq_upper, of_row)
        sq = self._verified(features, is_open, search).sq_lower
        contained = [self.other[inside(sq, radii[self.row])] for radii in sq_radii]
        return torch.stack([others.bincount(minlength=len(self.size)) for others in contained])

    def _verified(self, features: Tensor, is_open: Tensor, search: Search) -> DirectedPairs:
        at = is_open.nonzero()[:, 0]
        sq_lower, sq_upper = self.sq_lower.clone(), self.sq_upper.clone()
        exact = search.map_pairs(
            partial(of_pairs, sq_distances), features, features, self.row[at], self.other[at]
        )
        sq_lower[at] = sq_upper[at] = exact
        return replace(self, sq_lower=sq_lower, sq_upper=sq_upper)


_MARGIN = 7  # rows beyond k that are computed for a first reach
_FIRST_ROWS = 384, 1024  # minimum and maximum rows that are searched for them
# For larger k, this many times as many rows around the center of a cluster are searched.
_MAX_FEW_NEIGHBORS, _AROUND = 12, 64
_SPREAD_ROWS = 2048  # columns that are searched for rows with too few others in their block
# In many dimensions the rows nearest to the center are near to all others (hubs: Radovanovic et al. 2010). Unless they are
# searched first, the sweep finds half of all its pairs in their block.
_CENTRAL, _CENTRAL_OF = 128, 2**14
_CENTRAL_ELEMENTS = 2**21  # elements at once
_MASSES = 2**15  # pairs at once
_SPREAD_JOINED, _SPREAD_SHARE = 4096, 32  # columns for a first reach in large tiles: 4,096 or one row in 32


def closest_pairs(
    rows: IndexedPoints, k: int, sq_reach: Tensor, search: Search, points: IndexedPoints | None = None
) -> Pairs:
    """All pairs within the reach of one of their `rows`, which shrinks in place to the distance of its k nearest.

    Pairs are those of `rows` with each other, or of a row and one of the `points`.
    """
    others, n, is_within = rows if points is None else points, len(rows.features), points is None
    x, y, least = rows.features, others.features, profile_of(rows.features.device).differences_from * n

    def sharpen(pairs: Pairs) -> Pairs:
        if least:
            if len(pairs.i) < max(_MASSES, least):
                return pairs
            before, pairs = len(pairs.i), shrunk(closest.in_reach(pairs))
            if 2 * len(pairs.i) < before:
                return pairs
        else:
            pairs = closest.in_reach(pairs)
        pairs = Pairs(pairs.i, pairs.j, *bounds_of_pairs(x, y, pairs.i, pairs.j))
        # Near copies give thousands of pairs per row, most of them farther than k others of the same batch.
        pairs = pairs if len(pairs.i) < max(_MASSES, n // 8) else shrunk(pairs)
        if is_within or len(pairs.i) < max(_CROWD, 2 * k * len(torch.unique(pairs.i))):
            return pairs
        # Many points at one distance, as on a lattice, which no bounds can order.
        return _first_k(pairs, of_pairs(sq_distances, x, y, pairs.i, pairs.j), k)

    def shrunk(pairs: Pairs) -> Pairs:
        batch = ClosestPairs.empty(sq_reach, k, is_within=is_within)
        batch.add(pairs)
        return batch.pairs()

    nothing = torch.full(
        (len(others.features),), -torch.inf, dtype=torch.float64, device=rows.features.device
    )
    closest = ClosestPairs.empty(sq_reach, k, is_within=is_within)
    for pairs in sweep(rows, sq_reach, search, sharpen, None if is_within else (others, nothing)):
        closest.add(pairs)
    found, communicator = closest.pairs(), search.communicator
    if communicator.size == 1:
        return found
    # A pair that a rank left out is beyond the reach given by k other pairs, which the rank kept. So the pairs of all ranks
    # that are within reach are those of a single process.
    closest = ClosestPairs.empty(sq_reach, k, is_within=is_within)
    for of_rank in zip(*map(communicator.all_gather, found), strict=True):
        closest.add(Pairs(*of_rank))
    return closest.pairs()


def first_reach(
    rows: IndexedPoints, k: int, search: Search, points: IndexedPoints | None = None
) -> tuple[Tensor, Tensor]:
    """An upper bound on each row's k-th squared distance, (n,) float64, from a few of the other rows or of the `points`.

    Among themselves, rows with k copies are settled: their reach is -inf, and the copies are the second result,
    (n, k) int64, which holds -1 for all other rows; with `points` it is (n, 0).
    """
    others, coordinates, device = rows if points is None else points, rows.coordinates, rows.features.device
    joins, total = coordinates.joins_bands, len(others.features)
    tiles = search.engine.tiles(coordinates.width, device)
    few = min(max(_FIRST_ROWS[0], total // 16), _FIRST_ROWS[1])
    if joins:  # a large tile gives every row a reach that about 60 rows are within
        spread = evenly_spaced(total, max(_SPREAD_JOINED, total // _SPREAD_SHARE, 64 * k), device)
        limit = max(1, tiles.rows * tiles.columns // len(spread))
    elif points is not None:
        spread, limit = evenly_spaced(total, max(few, k + _MARGIN), device), tiles.rows
    else:
        spread, limit = evenly_spaced(total, max(_SPREAD_ROWS, 2 * k), device), min(tiles.rows, few)
        central = _central(rows)

    def reach_of(block: Tensor) -> tuple[Tensor, Tensor]:
        columns = spread if joins else _near(block, rows, points, k, spread)
        if points is None and not joins:
            columns = torch.unique(torch.cat([columns, central]))
        count = min(k + _MARGIN, len(columns))
        near, sq_lower, sq_upper = coordinates.nearest(block, others.coordinates, columns, count, tiles)
        if points is not None:
            return sq_upper.sort(dim=1).values[:, k - 1], near[:, :0]
        sq_upper, order = sq_upper.masked_fill(near == block[:, None], torch.inf).sort(dim=1)
        sq_reach, near = sq_upper[:, k - 1], near.gather(1, order[:, :k])
        may = (sq_lower.gather(1, order[:, k - 1, None])[:, 0] <= 0).nonzero()[:, 0]
        copies = torch.full_like(near, -1)
        for some in blocks_of(rows.features, len(may) * k):
            at = may[some.start // k : some.stop // k]
            at = at[(rows.features[near[at]] == rows.features[block[at], None]).all(dim=2).all(dim=1)]
            sq_reach[at], copies[at] = -torch.inf, near[at]
        return sq_reach, copies

    blocks = search.broadcast(row_blocks(rows, torch.zeros_like(coordinates.slack), limit))
    reaches, copies = zip(*search.map_shared(reach_of, blocks), strict=True)
    place = torch.cat(blocks).argsort()
    return torch.cat(reaches)[place], torch.cat(copies)[place]


def _central(points: IndexedPoints) -> Tensor:
    """Indices of rows near the center, from a sample if there are many rows."""
    sample = evenly_spaced(len(points.features), _CENTRAL_OF, points.features.device)
    norms = torch.empty(len(sample), dtype=torch.float32, device=points.features.device)
    step = max(1, _CENTRAL_ELEMENTS // points.features.shape[1])
    for start in range(0, len(sample), step):
        block = slice(start, start + step)
        moved = points.features[sample[block]].float() - points.projection.center
        norms[block] = moved.square_().sum(dim=1)
    return sample[norms.topk(min(_CENTRAL, len(sample)), largest=False).indices]


def _near(block: Tensor, rows: IndexedPoints, points: IndexedPoints | None, k: int, spread: Tensor) -> Tensor:
    """At least k of the other rows or of the `points` that are probably near to a `block` of one cluster."""
    clusters = rows.clusters
    if points is not None:
        if clusters is None or points.clusters is None:
            return spread
        members = (points.clusters.label == clusters.label[block[0]]).nonzero()[:, 0]
        return spread if len(members) < k else members[evenly_spaced(len(members), len(spread), block.device)]
    if k > _MAX_FEW_NEIGHBORS and clusters is not None:
        label = int(clusters.label[block[0]])
        if label < len(clusters.sq_distances):
            return (
                clusters.sq_distances[label].topk(min(_AROUND * k, len(rows.features)), largest=False).indices
            )
    return block if len(block) > k else spread


_CROWD = 2**15  # pairs of one batch from which on they are reduced at once
_SURPLUS = 256  # copies beyond the k-th from which on the search leaves them out


def nearest_between(
    queries: IndexedPoints,
    points: IndexedPoints,
    k: int,
    *,
    engine: Engine = ENGINE,
    advance: Advance = no_advance,
) -> tuple[Tensor, Tensor]:
    """Indices and squared distances (m, k) of the points nearest to each query; the lower index if equally far.

    Point i is not excluded for query i. If very many points are exactly as far from a query as its k-th nearest, as on
    a lattice, each of them costs a distance by the definition; copies of a point beyond the k-th cost nothing.
    """
    with engine.search(points.features.device, advance, queries=queries, features=points, k=k) as search:
        some = _without_surplus(points.features, k)
        # From rank 0, so that all ranks use the same points.
        kept = next(iter(search.broadcast([] if some is None else [some])), None)
        if kept is not None:
            points = points.projection.place(points.features[kept])
        sq_reach, _ = first_reach(queries, k, search, points)
        pairs = closest_pairs(queries, k, sq_reach, search, points)
        x, y, exact = queries.features, points.features, partial(of_pairs, sq_distances)
        pairs = _first_k(pairs, search.map_pairs(exact, x, y, pairs.i, pairs.j), k)
    index, sq = pairs.j.view(-1, k), pairs.sq_lower.view(-1, k)
    return index if kept is None else kept[index], sq


def _without_surplus(features: Tensor, k: int) -> Tensor | None:
    """The rows of (n, d) `features` with fewer than k earlier copies, ascending; None if only a few have more.

    Copies are found by equal projections; copies whose projections round differently are kept.
    """
    n, d = features.shape
    direction = torch.rand(d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    direction = direction.to(features.device)
    projection = torch.cat([features[block].double() @ direction for block in blocks_of(features)])
    value, order = projection.sort(stable=True)
    follows = torch.zeros(n, dtype=torch.bool, device=features.device)
    same = (value[1:] == value[:-1]).nonzero()[:, 0]
    for some in blocks_of(features, len(same)):
        at = same[some]
        follows[at + 1] = (features[order[at]] == features[order[at + 1]]).all(dim=1)
    place = torch.arange(n, device=features.device)
    first = place.where(~follows, torch.zeros_like(place)).cummax(dim=0).values
    surplus = place - first >= k
    if int(surplus.sum()) < _SURPLUS:
        return None
    return order[~surplus].sort().values


def _first_k(pairs: Pairs, sq: Tensor, k: int) -> Pairs:
    """The first k pairs of each row, ordered by exact squared distances `sq` (p,), then by points."""
    order = pairs.j.argsort()
    order = order[sq[order].argsort(stable=True)]
    order = order[pairs.i[order].argsort(stable=True)]
    rows = pairs.i[order]
    rank = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
    order = order[rank < k]
    return Pairs(pairs.i[order], pairs.j[order], sq[order], sq[order])


_ROWS, _COLUMNS = 512, 4096  # per product
_MAX_ELEMENTS, _MIN_WIDTH = 2**26, 64  # up to this size a GPU computes all distances


def extended_lists(points: IndexedPoints, rows: Tensor, length: int, search: Search) -> NeighborLists:
    """The `length` nearest others of `rows` (r,), or all others if there are not as many."""
    x, length = points.features, min(length, len(points.features) - 1)
    everything = torch.arange(len(x), device=x.device)
    if x.device.type != "cpu" and len(rows) * len(x) * max(x.shape[1], _MIN_WIDTH) <= _MAX_ELEMENTS:
        sq = near_sq_distances(x, x, rows.repeat_interleave(len(x)), everything.repeat(len(rows)))
        sq, order = sq.view(len(rows), len(x)).scatter_(1, rows[:, None], torch.inf).sort(dim=1, stable=True)
        return NeighborLists(order[:, :length], sq[:, :length])
    queries = points.projection.place(x[rows])
    blocks = torch.split(everything[: len(rows)], _ROWS)
    reaches = search.map_shared(
        lambda block: (_first_reach_of_rows(points, rows, queries, block, length),), blocks
    )
    sq_reach = torch.cat([reach for (reach,) in reaches])
    nothing = sq_reach.new_full((len(points.features),), -torch.inf)

    def distances_of(pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        others = (rows[pairs.i] != pairs.j).nonzero()[:, 0]
        i, j = pairs.i[others], pairs.j[others]
        return i, j, near_sq_distances(queries.features, x, i, j)

    batches = [(rows[:0], rows[:0], sq_reach[:0])]  # a rank may have no pairs
    batches += sweep(queries, sq_reach, search, distances_of, (points, nothing))
    own = (torch.cat(each) for each in zip(*batches, strict=True))
    i, j, sq = (torch.cat(search.communicator.all_gather(each)) for each in own)
    # Of equally far points, the first is listed, whichever thread came first.
    nearest = _first_k(Pairs(i, j, sq, sq), sq, length)
    return NeighborLists(nearest.j.view(-1, length), nearest.sq_lower.view(-1, length))


def _first_reach_of_rows(
    points: IndexedPoints, rows: Tensor, queries: IndexedPoints, block: Tensor, length: int
) -> Tensor:
    """Upper bounds on the squared distances to the `length`-th nearest others of a `block` of `rows`: (b,) float64.

    Products only select candidates; the distances to any candidates are bounds.
    """
    left, own = queries.coordinates.queries(block), rows[block]
    keys, near = left.new_empty(len(block), 0), block.new_empty(len(block), 0)
    for columns in torch.split(torch.arange(len(points.features), device=rows.device), _COLUMNS):
        products = left @ points.coordinates.columns(columns).T
        products[own[:, None] == columns] = -torch.inf
        keys = torch.cat([keys, products], dim=1)
        near = torch.cat([near, columns.expand(len(block), -1)], dim=1)
        keys, best = keys.topk(min(length, keys.shape[1]), dim=1)
        near = near.gather(1, best)
    sq = near_sq_distances(points.features, points.features, own.repeat_interleave(length), near.flatten())
    sq = sq.view(near.shape).max(dim=1).values
    return bounds_of_differences(sq, points.features.shape[1])[1]
