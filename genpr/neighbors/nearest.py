"""Exact k nearest rows, within one set and between two: bounds select candidates, the definition decides.

1. Products with rows of the same block and rows near the center give every row an upper bound on the distance to its
   k-th neighbor: its reach.
2. One sweep over half of all pairs finds those within reach. Float32 differences, computed for batches of these pairs,
   shrink the reach during the sweep.
3. Pairs that bounds leave undecided, about one per row, are computed by the definition.

In small sets, 1 and 2 cost less together: products with all other rows give the reach, and the pairs within.

`NeighborLists` are for resampling; no decision uses them. Their distances have the precision of float32. Intervals compare
distances many times, and need equal distances only for equal vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from genpr.neighbors.bounds import bounds_of_pairs, tight_bounds_of_pairs, widened
from genpr.neighbors.coordinates import Coordinates, Index, count_of, part_of
from genpr.neighbors.distance import (
    blocks_of,
    near_sq_distances,
    of_pairs,
    sq_differences_by_parts,
    sq_distances,
)
from genpr.neighbors.engine import (
    ENGINE,
    SHARE_OF_WHOLE,
    Advance,
    Engine,
    PerThread,
    Search,
    in_steps,
    is_whole,
    kth_smallest,
    no_advance,
    places,
    profile_of,
)
from genpr.neighbors.index import IndexedPoints, evenly_spaced
from genpr.neighbors.search import ClosestPairs, Pairs, shared_blocks, sweep
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
    """Rows and others within their reach, with bounds on the squared distances, grouped by row; all (p,)."""

    row: Tensor  # ascending
    other: Tensor  # a row of the same set, or of another
    sq_lower: Tensor  # lower bound on the squared distance
    sq_upper: Tensor  # upper bound
    size: Tensor  # (n,) others per row
    # Rows with similar numbers of pairs (None: all rows), and the positions of these, (r, c); p where a row has fewer
    tables: tuple[tuple[Tensor | None, Tensor], ...]

    @classmethod
    def grouped(cls, pairs: Pairs, n: int) -> DirectedPairs:
        """Pairs of a row i of n and another row j, in any order."""
        return cls.from_sorted(pairs.at(pairs.i.argsort(stable=True)), n)

    @classmethod
    def from_sorted(cls, pairs: Pairs, n: int) -> DirectedPairs:
        """Pairs of ascending rows."""
        size = _counted(pairs.i, n)
        return cls(*pairs, size, tuple(_tables(size, len(pairs.i))))

    def nearest(self, k: int) -> DirectedPairs:
        """The pairs that may be among the `k` nearest of their row, or as near."""
        at = places(self.sq_lower <= self._kth(self.sq_upper[None], k)[0].index_select(0, self.row))
        pairs = Pairs(self.row, self.other, self.sq_lower, self.sq_upper)
        return DirectedPairs.from_sorted(pairs.at(at), len(self.size))

    def positions(self, values: Tensor, k: int) -> Tensor:
        """Positions of the k smallest `values` (p,) of each row, ascending, those of lower others first if equal, (n, k); p where a row has fewer."""
        order = self.other.argsort()
        order = order.index_select(0, values.index_select(0, order).argsort(stable=True))
        order = order.index_select(0, self.row.index_select(0, order).argsort(stable=True))
        rank = torch.arange(k, device=self.size.device)
        place = (self.size.cumsum(dim=0) - self.size)[:, None] + rank
        return pad(order, (0, 1), value=len(order))[place.where(rank < self.size[:, None], len(order))]

    def _kth(self, values: Tensor, k: int) -> Tensor:
        """The k-th smallest of `values` (b, p) of each row, (b, n); infinite where a row has fewer."""
        kth = values.new_full((len(values), len(self.size)), torch.inf)
        values = pad(values, (0, 1), value=torch.inf)
        for rows, at in self.tables:
            if at.shape[1] >= k:
                of_rows = values.index_select(1, at.flatten()).view(-1, at.shape[1])
                found = kth_smallest(of_rows, k).view(len(values), -1)
                kth = found if rows is None else kth.index_copy_(1, rows, found)
        return kth

    def resolved(self, steps: Sequence[BoundsOfPairs], ks: Sequence[int]) -> tuple[DirectedPairs, KthBounds]:
        """The pairs with better bounds, and bounds on the k-th squared distance of each row by k, infinite where a row has fewer pairs.

        Each step bounds those pairs again that may be at the k-th distance; the last bounds may be equal. As one pair of each row is
        at this distance, all steps but the last are left out where there are hardly more.
        """
        pairs, found = self, self._limits(ks)
        for step in steps:
            may = torch.zeros_like(self.row, dtype=torch.bool)
            for bounds in found.values():
                least, most = bounds.index_select(1, self.row)
                may |= (pairs.sq_lower <= most) & (pairs.sq_upper >= least)
            at = places(may)
            if step is not steps[-1] and len(at) <= _FEW_OPEN * len(self.size) * len(ks):
                continue
            sq_lower, sq_upper = step(self.row.index_select(0, at), self.other.index_select(0, at))
            pairs = replace(
                pairs,
                sq_lower=pairs.sq_lower.index_copy(0, at, sq_lower),
                sq_upper=pairs.sq_upper.index_copy(0, at, sq_upper),
            )
            found = pairs._limits(ks, is_exact=sq_lower is sq_upper)
        return pairs, found

    def _limits(self, ks: Sequence[int], *, is_exact: bool = False) -> KthBounds:
        """If all pairs that may be at the k-th distance have equal bounds, both results are equal, too."""
        both = self.sq_lower[None] if is_exact else torch.stack([self.sq_lower, self.sq_upper])
        return {k: self._kth(both, k).expand(2, -1) for k in ks}

    def of_rows(self, rows: Tensor) -> DirectedPairs:
        """The pairs of some `rows` (r,), ascending, as rows 0 to r - 1."""
        number = torch.arange(len(rows), device=rows.device)
        row = torch.full_like(self.size, -1).index_copy_(0, rows, number).index_select(0, self.row)
        pairs = Pairs(row, self.other, self.sq_lower, self.sq_upper)
        return DirectedPairs.from_sorted(pairs.at(places(row >= 0)), len(rows))

    def in_degrees(self, sq_radii: Tensor, ties: Ties, verify: BoundsOfPairs) -> Tensor:
        """Number of balls of other rows that contain each row: (a, n) int64 for radii (a, n) within the reach."""
        inside = torch.le if ties == "closed" else torch.lt
        is_open = torch.zeros_like(self.row, dtype=torch.bool)
        for radii in sq_radii:
            of_row = radii.index_select(0, self.row)
            is_open |= inside(self.sq_lower, of_row) & ~inside(self.sq_upper, of_row)
        at = places(is_open)
        exact, _ = verify(self.row.index_select(0, at), self.other.index_select(0, at))
        sq = self.sq_lower.index_copy(0, at, exact)
        contained = inside(sq, sq_radii.index_select(1, self.row)).long()
        return contained.new_zeros(len(sq_radii), len(self.size)).index_add_(1, self.other, contained)


BoundsOfPairs = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Lower and upper bounds on the squared distances of rows (p,) and others (p,), which may be equal: (p,) float64 each."""
KthBounds = dict[int, Tensor]
"""By k, lower and upper bounds on the squared distance of each row to its k-th neighbor, (2, n) float64."""


def exactly(x: Tensor, y: Tensor, search: Search | None = None) -> BoundsOfPairs:
    """The definition for pairs of rows of `x` and of `y`, whose computation processes and threads share in a search."""

    def of(i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        exact = partial(of_pairs, sq_distances)
        sq = exact(x, y, i, j) if search is None else search.map_pairs(exact, x, y, i, j)
        return sq, sq

    return of


def tightly(x: Tensor, y: Tensor, search: Search) -> BoundsOfPairs:
    """Tight bounds for pairs of rows of `x` and of `y`, equal on all processes that share a search."""

    def of(i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        return tight_bounds_of_pairs(x, y, i, j, search.map_pairs(sq_differences_by_parts, x, y, i, j))

    return of


def _counted(rows: Tensor, n: int) -> Tensor:
    """How often each of n rows occurs in `rows` (p,), without a synchronization with a GPU."""
    return rows.new_zeros(n).index_add_(0, rows, torch.ones_like(rows))


def _tables(size: Tensor, count: int) -> Iterator[tuple[Tensor | None, Tensor]]:
    """The `tables` of `count` pairs of rows that have `size` (n,) of them: at most four times as many positions as pairs."""
    first = size.cumsum(dim=0) - size
    while most := int(size.max()):
        rows = places(size > (most // _RAGGED if most > _NARROW else 0))
        starts, sizes = (each.index_select(0, rows)[:, None] for each in (first, size))
        rank = torch.arange(most, device=size.device)
        is_all = len(rows) == len(size)
        yield None if is_all else rows, (starts + rank).where(rank < sizes, count)
        if is_all:
            break
        size = size.index_fill(0, rows, 0)


# Tables hold rows with at most four times as many pairs as the shortest, or with at most 16
_RAGGED, _NARROW = 4, 16
# Pairs of a row that may be at its k-th distance, of which the definition costs less than better bounds of all
_FEW_OPEN = 1.25
_MARGIN = 7  # rows beyond the k nearest that are read for a first reach
_FIRST_ROWS = 384, 1024  # minimum and maximum rows that are searched for them
_USUAL = 4  # times the median slack: columns with more do not give a first reach of all pairs
_PARTS = 8  # for each of the k nearest, parts of the columns, of which the largest keys are compared
# For larger k, this many times as many rows around the center of a cluster are searched.
_MAX_FEW_NEIGHBORS, _AROUND = 12, 64
_SPREAD_ROWS = 2048  # columns that are searched for rows with too few others in their block
# In many dimensions the rows nearest to the center are near to all others (hubs: Radovanovic et al. 2010). Unless they are
# searched first, the sweep finds half of all its pairs in their block.
_CENTRAL = 128
_MASSES = 2**15  # pairs at once
_SPREAD_JOINED, _SPREAD_SHARE = 4096, 32  # columns for a first reach in large tiles: 4,096 or one row in 32
_MANY = 64  # pairs of a row, beyond 4 k, from which on differences reduce them


def near_pairs(
    rows: IndexedPoints,
    k: int,
    search: Search,
    points: IndexedPoints | None = None,
    own: Tensor | None = None,
) -> tuple[DirectedPairs, Tensor]:
    """Pairs of each row with its `k` nearest other rows or `points` and all that are as near, with bounds.

    With `own` (n,), rows are themselves among the points, there, and are not their own neighbors. Of rows of one set with k copies,
    the second result holds these, (n, k) int64, and -1 for all other rows; they have no pairs. With `points` it is (n, 0).
    """
    if own is not None or _compares_all(rows, points, search):
        return _among_all(rows, k, search, points, own)
    sq_reach, copies = _first_reach(rows, k, search, points)
    pairs = _closest_pairs(rows, k, sq_reach, search, points)
    if points is None:
        there, back = (
            pairs.at(places(pairs.sq_lower <= sq_reach.index_select(0, at))) for at in (pairs.i, pairs.j)
        )
        both = there, Pairs(back.j, back.i, back.sq_lower, back.sq_upper)
        pairs = Pairs(*map(torch.cat, zip(*both, strict=True)))
    return DirectedPairs.grouped(pairs, len(rows.features)), copies


def _compares_all(rows: IndexedPoints, points: IndexedPoints | None, search: Search) -> bool:
    """Whether `near_pairs` costs less if it holds the keys of all pairs."""
    if search.engine.plan is not None:
        return search.engine.plan == "all pairs"
    coordinates, profile = rows.coordinates, profile_of(rows.features.device)
    if coordinates.residual is not None:  # the coordinates were chosen for a sweep
        return False
    n, total = len(rows.features), len((points or rows).features)
    of_pair = profile.per_term * coordinates.width + profile.per_pair
    swept = min(total, profile.first_columns) + total / (2 if points is None else 1)
    held = total * SHARE_OF_WHOLE if points is None and is_whole(n) else total
    return (
        n * (held * of_pair + total * profile.per_key)
        <= n * (swept * of_pair + profile.per_row) + profile.per_sweep
    )


def _among_all(
    rows: IndexedPoints, k: int, search: Search, points: IndexedPoints | None, own: Tensor | None
) -> tuple[DirectedPairs, Tensor]:
    """`near_pairs` from the keys of each row with all others, which are held: its reach, and the pairs within."""
    others, coordinates, device = rows if points is None else points, rows.coordinates, rows.features.device
    n, d, total = len(rows.features), rows.features.shape[1], len(others.features)
    if points is None:
        own = torch.arange(n, device=device)
    count, every = min(k + _MARGIN, total - (own is not None)), slice(0, total)
    unknown = others.coordinates.unknown(every)
    usual = None if coordinates.residual is not None else _Usual.of(others.coordinates)
    most, terms = profile_of(device).max_pairs, n * total * coordinates.width
    some = n if points is None and is_whole(n) else search.rows_per_thread(n, total, coordinates.width)
    tiles = PerThread(partial(search.engine.tiles, coordinates.width, device, some, total, whole=True))

    def near(block: slice) -> tuple[Tensor, ...]:
        with search.together():
            # The same object, so that half of the products suffice
            columns = block if points is None and block == every else every
            keys = coordinates.keys_of(block, tiles.own)(others.coordinates, columns)
            if own is not None:
                keys.scatter_(1, own[block, None], -torch.inf)

            def reach_of(some: Index, keys: Tensor) -> tuple[Tensor, Tensor]:
                nearest = coordinates.nearest(keys, some, others.coordinates, every, unknown, count)
                return _reach_of(rows, some, k, nearest, has_copies=points is None)

            if usual is None:
                sq_reach, copies = reach_of(block, keys)
            else:
                sq_reach, is_near = usual.reach(keys, block, coordinates, k)
                copies = keys.new_full((len(keys), k if points is None else 0), -1, dtype=torch.int64)
                at = places(is_near) if points is None else copies[0]
                if len(at):  # perhaps copies
                    sq_reach[at], copies[at] = reach_of(part_of(block, at), keys.index_select(0, at))
        wide = widened(sq_reach, d)  # so that they hold the nearest by `near_sq_distances`, too
        at, j, keys = tiles.own.at_least(keys, coordinates.lowest(wide))
        i, sq_lower = part_of(block, at), coordinates.sq_lower(keys)
        pairs = Pairs(i, j, sq_lower, sq_lower + coordinates.sq_gap(i, others.coordinates, j))
        if coordinates.residual is not None or len(i) > (_MANY + 4 * k) * len(sq_reach):
            closest = ClosestPairs.empty(wide, k, is_within=False)
            for some in map(slice, range(0, len(i), most), range(most, len(i) + most, most)):
                bounds = bounds_of_pairs(rows.features, others.features, i[some], j[some])
                closest.add(Pairs(at[some], j[some], *bounds))
                closest.pairs()
            found = closest.pairs()
            pairs = Pairs(part_of(block, found.i), *found[1:])
        if own is None:
            pairs = _without_crowds(pairs, rows.features, others.features, k)
        return *pairs, copies

    def in_parts(block: slice) -> tuple[Tensor, ...]:
        def part(some: slice) -> tuple[Tensor, ...]:
            return near(slice(block.start + some.start, block.start + some.stop))

        size = block.stop - block.start
        return tuple(map(torch.cat, zip(*in_steps(part, size, size, device), strict=True)))

    step, found = search.agreed(tiles.own.rows), list[tuple[Tensor, ...]]()
    blocks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    for block, of_block in zip(blocks, search.map_shared(in_parts, blocks, terms), strict=True):
        found.append(of_block)
        if points is None:  # each pair counts once, as in a sweep
            search.advance(block.stop * (n - 1) // 2 - block.start * (n - 1) // 2)
        else:
            search.advance((block.stop - block.start) * total)
    *pairs, copies = map(torch.cat, zip(*found, strict=True))
    return DirectedPairs.from_sorted(Pairs(*pairs), n), copies


@dataclass(frozen=True, slots=True)
class _Usual:
    """Columns whose coordinates are about as precise as most."""

    others: Tensor  # columns with larger slack, or unknown
    slack: float  # the largest of the usual ones

    @classmethod
    def of(cls, columns: Coordinates) -> _Usual:
        """Of all rows of `columns`."""
        slack = columns.slack
        middle = kth_smallest(slack[None], (len(slack) + 1) // 2)
        is_usual = (slack <= _USUAL * middle) & slack.isfinite()
        return cls(places(~is_usual), float(slack.where(is_usual, 0).amax()))

    def reach(self, keys: Tensor, block: Index, rows: Coordinates, k: int) -> tuple[Tensor, Tensor]:
        """Squared reach (r,) of a `block` of rows from their `keys` (r, c), and whether others may be copies.

        One column of each part has its largest key, so k of these are at least as near as the k-th largest of these keys.
        """
        if len(self.others):
            left_out = keys.index_select(1, self.others)
            keys.index_fill_(1, self.others, -torch.inf)
        size = max(1, keys.shape[1] // (_PARTS * k))
        parts = keys.shape[1] // size
        largest = keys[:, : size * parts].view(len(keys), size, parts).amax(dim=1)
        least = -kth_smallest(-largest, k)
        if len(self.others):
            keys.index_copy_(1, self.others, left_out)
        sq_lower = rows.sq_lower(least)
        return sq_lower + (rows.slack[block] + self.slack) * (2 / rows.scale**2), sq_lower <= 0


def _reach_of(
    rows: IndexedPoints, block: Index, k: int, nearest: tuple[Tensor, Tensor, Tensor], *, has_copies: bool
) -> tuple[Tensor, Tensor]:
    """Squared reach (r,) of the rows of a `block` with some `nearest` others, and their k copies. See `near_pairs`."""
    near, sq_lower, sq_upper = nearest
    sq_upper, order = sq_upper.sort(dim=1)
    sq_reach, copies = sq_upper[:, k - 1].clone(), torch.full_like(near[:, : k * has_copies], -1)
    may = places(sq_lower.gather(1, order[:, k - 1, None])[:, 0] <= 0) if has_copies else near[:0, 0]
    for some in blocks_of(rows.features, len(may) * k):
        at = may[some.start // k : some.stop // k]
        others = near[at].gather(1, order[at, :k])
        same = rows.features[others] == rows.features[part_of(block, at), None]
        at, others = (each[same.all(dim=2).all(dim=1)] for each in (at, others))
        sq_reach[at], copies[at] = -torch.inf, others
    return sq_reach, copies


def _closest_pairs(
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
        return pairs if is_within else _without_crowds(pairs, x, y, k)

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


def _first_reach(
    rows: IndexedPoints, k: int, search: Search, points: IndexedPoints | None = None
) -> tuple[Tensor, Tensor]:
    """An upper bound on each row's k-th squared distance, (n,) float64, from a few of the other rows or of the `points`.

    Among themselves, rows with k copies are settled: their reach is -inf, and the copies are the second result,
    (n, k) int64, which holds -1 for all other rows; with `points` it is (n, 0).
    """
    others, coordinates, device = rows if points is None else points, rows.coordinates, rows.features.device
    n, total, is_wide = len(rows.features), len(others.features), not profile_of(device).has_directions
    few = min(max(_FIRST_ROWS[0], total // 16), _FIRST_ROWS[1])
    limit, some = n, max(few, k + _MARGIN)
    if is_wide:  # a large tile gives every row a reach that about 60 rows are within
        some = max(_SPREAD_JOINED, total // _SPREAD_SHARE, 64 * k)
    elif points is None:
        limit, some = few, max(_SPREAD_ROWS, 2 * k)
        # Of coordinates relative to the center, squared and halved, nearly
        norms = coordinates.half_floors + coordinates.slack
        central = norms.topk(min(_CENTRAL, total), largest=False).indices
    spread = evenly_spaced(total, some, device)
    unknown_spread = others.coordinates.unknown(spread)
    most = min(total, max(some, few, _AROUND * k) + _CENTRAL)
    tiles = PerThread(partial(search.engine.tiles, coordinates.width, device, limit, most, whole=True))

    def reach_of(block: Index) -> tuple[Tensor, Tensor]:
        own = part_of(block, torch.arange(count_of(block), device=device))
        columns = spread if is_wide else _near(own, rows, points, k, spread)
        if points is None and not is_wide:
            columns = torch.unique(torch.cat([columns, central]))
        keys = coordinates.keys_of(block, tiles.own)(others.coordinates, columns)
        if points is None:
            keys.masked_fill_(columns == own[:, None], -torch.inf)
        unknown = unknown_spread if columns is spread else others.coordinates.unknown(columns)
        count = min(k + _MARGIN, len(columns))
        nearest = coordinates.nearest(keys, block, others.coordinates, columns, unknown, count)
        return _reach_of(rows, block, k, nearest, has_copies=points is None)

    blocks = shared_blocks(rows, torch.zeros_like(coordinates.slack), min(limit, tiles.own.rows), search)
    sq_reach, copies = map(
        torch.cat, zip(*search.map_shared(reach_of, blocks, n * most * coordinates.width), strict=True)
    )
    if rows.clusters is None:
        return sq_reach, copies
    place = torch.cat([block for block in blocks if isinstance(block, Tensor)]).argsort()
    return sq_reach[place], copies[place]


def _near(block: Tensor, rows: IndexedPoints, points: IndexedPoints | None, k: int, spread: Tensor) -> Tensor:
    """At least k of the other rows or of the `points` that are probably near to a `block` of one cluster."""
    clusters = rows.clusters
    if points is not None:
        if clusters is None or points.clusters is None:
            return spread
        members = places(points.clusters.label == clusters.label[block[0]])
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
        is_kept, kept = points.earlier_copies < k, None
        if search.agreed(len(is_kept) - int(is_kept.sum())) >= _SURPLUS:
            # From rank 0, so that all ranks use the same points.
            (kept,) = search.broadcast([places(is_kept)])
            points = points.projection.place(points.features[kept])
        near = near_pairs(queries, k, search, points)[0].nearest(k)
        x, y, exact = queries.features, points.features, partial(of_pairs, sq_distances)
        sq = search.map_pairs(exact, x, y, near.row, near.other)
    at = near.positions(sq, k)
    index = near.other[at]
    return index if kept is None else kept[index], sq[at]


def _without_crowds(pairs: Pairs, x: Tensor, y: Tensor, k: int) -> Pairs:
    """The same pairs, or the k nearest of each row if many points are at one distance, as on a lattice, which no bounds can order."""
    if len(pairs.i) < _CROWD:
        return pairs
    rows, number = torch.unique(pairs.i, return_inverse=True)
    if len(pairs.i) < 2 * k * len(rows):
        return pairs
    sq = of_pairs(sq_distances, x, y, pairs.i, pairs.j)
    near = DirectedPairs.grouped(Pairs(number, pairs.j, sq, sq), len(rows))
    at = near.positions(near.sq_lower, k)
    at = at[at < len(near.row)]
    sq = near.sq_lower[at]
    return Pairs(rows[near.row[at]], near.other[at], sq, sq)


def extended_lists(points: IndexedPoints, rows: Tensor, length: int, search: Search) -> NeighborLists:
    """The `length` nearest others of `rows` (r,), or all others if there are not as many."""
    x, length = points.features, min(length, len(points.features) - 1)
    queries = points.projection.place(x[rows])
    near, _ = near_pairs(queries, length, search, points, rows)
    sq = search.map_pairs(near_sq_distances, queries.features, x, near.row, near.other)
    at = near.positions(sq, length)
    return NeighborLists(near.other[at], sq[at])
