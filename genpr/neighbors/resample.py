"""Ball memberships between halves of two sets, for all halves as the pairs of the sets come.

Every pair that may be within the largest ball of one of its two rows is visited once; no list of pairs is kept.
Bounds settle pairs that are nearer than the smallest ball of a row over all halves, or farther than the largest,
without a distance. For the others, the distance is looked up among the row's nearest others, as bits.

Whether a row's k-th nearest other row within a half lies beyond q others of the whole set is known as soon as fewer
than k of these q belong to the half. So the nearest others of a row, in order, determine its balls in all halves: for every
q, one bit per half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from genpr.memory import tile_budget
from genpr.neighbors.balls import BallKind, CountRequest
from genpr.neighbors.bounds import bounds_of_differences
from genpr.neighbors.counts import sq_middle
from genpr.neighbors.distance import near_sq_distances
from genpr.neighbors.engine import ENGINE, Engine, PerThread, Search, places, plain_arithmetic
from genpr.neighbors.halves import Halves, Hits, counted, packed, unpacked
from genpr.neighbors.index import IndexedPoints
from genpr.neighbors.nearest import NeighborLists, extended_lists
from genpr.neighbors.search import Pairs
from genpr.validation import Ties

BYTES_PER_ENTRY = 1024  # for each listed neighbor while a GPU counts those of a row in all halves
ROWS = 2048  # at a time on a CPU
_COLUMNS = 8  # halves of which radii are sorted at once


def at_once(few: int, size: int, device: torch.device) -> int:
    """Items that are processed together: `few` on a CPU, on a GPU what has room in a tile at `size` bytes each."""
    return few if device.type == "cpu" else max(1, tile_budget(device) // size)


@dataclass(frozen=True, slots=True)
class ResampledSet:
    """A set of n rows, its neighbor lists, and its halves."""

    points: IndexedPoints
    lists: NeighborLists
    halves: Halves
    _balls: dict[tuple[CountRequest, ...], ReplicateBalls] = field(default_factory=dict)

    def balls(self, requests: Sequence[CountRequest], search: Search) -> ReplicateBalls:
        """The balls that are requested, the last of which are kept for the next score."""
        key = tuple(requests)
        if key not in self._balls:
            self._balls.clear()
            self._balls[key] = ReplicateBalls.from_lists(self, requests, search)
        return self._balls[key]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the balls of one kind reach, over all halves, as `near_sq_distances`."""

    least: Tensor  # (n,) float64, below which all of a row's balls contain a point, in each half that it belongs to
    most: Tensor  # (n,) float64, above which no ball contains a point; -inf for a row that belongs to no half
    sq_medians: Tensor  # (B,) float64, ascending: squared median radii of the halves
    within: Tensor  # (B + 1, w) int64: the halves whose median is not among the q smallest


@dataclass(frozen=True, slots=True)
class ReplicateBalls:
    """Balls of n rows in all halves.

    Every row has consecutive entries, one for each of its nearest others, as long as some half's ball may reach farther,
    and a last one that is infinitely far.
    """

    start: Tensor  # (n,) int64, the first entry of each row
    last: Tensor  # (n,) int64, the last entry of each row
    longest: int  # most entries of a row but for the last
    sq_before: Tensor  # (e,) float64, of the entry before, ascending within a row
    # by k, (e, w) int64: the halves in which fewer than k of the row's entries before this one belong to the
    # half, and the row itself does
    bits: Mapping[int, Tensor]
    reaches: Mapping[BallKind, Reach]  # by kind of ball
    near: Pairs  # listed pairs whose second row may be in a ball of the first in some half: see `_Entries`

    @classmethod
    def from_lists(cls, of: ResampledSet, requests: Sequence[CountRequest], search: Search) -> ReplicateBalls:
        """Those that are requested, read from lists; rows whose list is too short for some half are searched again."""
        points, lists, halves, balls = of.points, of.lists, of.halves, {each.ball for each in requests}
        ks, clipped = sorted({ball.k for ball in balls}), {ball.k for ball in balls if ball.clipped}
        pairs = any(each.rows == "own" for each in requests)
        read = partial(_Entries.from_lists, halves=halves, ks=ks, clipped=clipped, pairs=pairs)
        rows, blocks = torch.arange(len(points.features), device=points.features.device), list[_Entries]()
        while len(rows):
            step = at_once(ROWS, (lists.index.shape[1] + 1) * BYTES_PER_ENTRY, rows.device)
            split = (torch.split(each, step) for each in (rows, lists.index, lists.sq))
            added = list(search.map(read, zip(*split, strict=True)))
            blocks += added
            rows = torch.cat([block.short for block in added])
            if len(rows):
                lists = extended_lists(points, rows, 2 * lists.index.shape[1], search)
        place = torch.cat([block.rows for block in blocks]).argsort()
        size = torch.cat([block.size for block in blocks])
        last = size.cumsum(dim=0) - 1
        bits = torch.cat([block.bits for block in blocks], dim=1)
        reach = torch.cat([block.reach for block in blocks], dim=1)[:, place]
        reaches = dict[BallKind, Reach]()
        for ball in balls:
            least, most = reach[ks.index(ball.k)].unbind(dim=1)
            if not ball.clipped:
                reaches[ball] = Reach(least, most, least[:0], halves.masks[:0])
                continue
            sq_radii = torch.cat([block.sq_radii[ball.k] for block in blocks])[place]
            medians, order = _sq_medians(sq_radii, halves.size).sort()
            rank = order.argsort()
            within = packed(rank >= torch.arange(len(rank) + 1, device=rank.device)[:, None])
            reaches[ball] = Reach(least.clamp(max=medians[0]), most.clamp(max=medians[-1]), medians, within)
        return cls(
            (last - size + 1)[place],
            last[place],
            int(size.max()) - 1,
            torch.cat([block.sq for block in blocks]).roll(1),
            dict(zip(ks, bits, strict=True)),
            reaches,
            Pairs(*map(torch.cat, zip(*(block.near for block in blocks), strict=True))),
        )

    def entries(self, ball: BallKind, rows: Tensor, near: Tensor, *, strict: bool) -> Tensor:
        """The entry of `rows` (p,) whose bits are the halves in which their balls hold a row at `near` (p,) float64.

        As many entries come before it as are nearer than `near`, or, of `strict` balls, no farther. For rows that are in
        all balls it is the first.
        """
        nearer, entries = torch.le if strict else torch.lt, self.start.index_select(0, rows)
        at = _places(near >= self.reaches[ball].least.index_select(0, rows))
        place, last, near = entries[at], self.last.index_select(0, rows[at]), near[at]
        step = 1 << self.longest.bit_length()
        while step:
            ahead = torch.minimum(place + step, last)
            place = torch.where(nearer(self.sq_before.index_select(0, ahead), near), ahead, place)
            step //= 2
        entries[at] = place
        return entries

    def bits_of(self, ball: BallKind, entries: Tensor, near: Tensor, *, strict: bool) -> Tensor:
        """The halves in which balls contain rows at `near` (q,) that belong to `entries` (q,): (q, w) int64."""
        bits, reach = self.bits[ball.k].index_select(0, entries), self.reaches[ball]
        if len(reach.sq_medians):
            rank = torch.searchsorted(reach.sq_medians, near, right=strict)
            bits &= reach.within.index_select(0, rank)
        return bits


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of some rows, for K values of k."""

    rows: Tensor  # (r,) rows with lists that are long enough
    short: Tensor  # rows with lists that are too short
    size: Tensor  # (r,) entries of each
    sq: Tensor  # (e,) float64
    bits: Tensor  # (K, e, w) int64
    reach: Tensor  # (K, r, 2) float64: least and most
    sq_radii: dict[int, Tensor]  # by k, (r, B) float64, infinite where the row does not belong to the half
    near: Pairs  # if kept, the rows and their listed neighbors within reach, with their `near_sq_distances` as bounds

    @classmethod
    def from_lists(
        cls,
        listed: tuple[Tensor, Tensor, Tensor],
        *,
        halves: Halves,
        ks: list[int],
        clipped: set[int],
        pairs: bool,
    ) -> _Entries:
        """From rows (c,) and their lists (c, L), indices and distances."""
        rows, index, sq = listed
        own = halves.masks[rows]
        tables = tables_of_lists(index, own, halves.masks, ks)
        held = (tables != 0).any(dim=3).sum(dim=2)
        is_enough = held[-1] <= index.shape[1]
        enough, short = places(is_enough), rows[~is_enough]
        rows, index, own = rows[enough], index[enough], own[enough]
        held, tables = held[:, enough], tables[:, enough]
        sq = pad(sq[enough], (0, 1), value=torch.inf)
        # The last distances at which all halves of a row hold, and at which any does.
        ends = torch.stack([(tables == own[:, None]).all(dim=3).sum(dim=2), held], dim=2) - 1
        reach = sq.expand(len(ks), -1, -1).gather(2, ends.clamp(min=0))
        reach.masked_fill_(held[:, :, None] == 0, -torch.inf)
        radii = {k: _sq_radii(tables[ks.index(k)], sq, halves.count) for k in clipped}
        near = Pairs(rows[:0], rows[:0], sq[:0, 0], sq[:0, 0])
        if pairs:
            row, place = (sq[:, :-1] <= reach[-1, :, 1:]).nonzero(as_tuple=True)
            near = Pairs(rows[row], index[row, place], sq[row, place], sq[row, place])
        rank, length = torch.arange(sq.shape[1], device=sq.device), held[-1, :, None]
        row, place = (rank <= length).nonzero(as_tuple=True)
        sq = sq.masked_fill(rank == length, torch.inf)[row, place]
        return cls(rows, short, held[-1] + 1, sq, tables[:, row, place], reach, radii, near)


def tables_of_lists(index: Tensor, own: Tensor, masks: Tensor, ks: list[int]) -> Tensor:
    """(K, c, L + 1, w): by k, the halves in which fewer than k of the first q others of the lists belong to the half."""
    (rows, length), words = index.shape, masks.shape[1]
    if index.device.type != "cpu":  # for all others at once, a number for each half
        narrow = torch.int8 if max(length, *ks) < 128 else torch.int32
        counts = unpacked(masks[index]).view(torch.int8).cumsum(dim=1, dtype=narrow)
        fewer = torch.stack([packed(counts < k) for k in ks]) & own[:, None]
        return torch.cat([own[:, None].expand(len(ks), -1, -1, -1), fewer], dim=2)
    tables = own.new_empty(len(ks), length + 1, rows, words)
    met = own.new_zeros(ks[-1], rows, words)  # plane t: the halves with more than t hits
    for q in range(length + 1):
        for k, table in zip(ks, tables, strict=True):
            torch.bitwise_and(own, ~met[k - 1], out=table[q])
        if q < length:
            one = masks.index_select(0, index[:, q])
            met[1:] |= met[:-1] & one
            met[0] |= one
    return tables.transpose(1, 2)


def _sq_radii(table: Tensor, sq: Tensor, count: int) -> Tensor:
    """(c, B), infinite where the row does not belong to the half."""
    held = unpacked(table).sum(dim=1)[:, :count]
    return sq.gather(1, (held - 1).clamp(min=0)).masked_fill(held == 0, torch.inf)


def _sq_medians(sq_radii: Tensor, size: int) -> Tensor:
    """(B,) squared median radii of `size` rows, at most the largest, from (n, B), infinite for all other rows."""
    places, columns = ((size - 1) // 2, size // 2, size - 1), list[Tensor]()
    for some in torch.split(sq_radii, _COLUMNS, dim=1):
        ordered = some.sort(dim=0).values
        columns.append(torch.stack([ordered[at] for at in places]))
    low, high, largest = torch.cat(columns, dim=1)
    return torch.minimum(sq_middle(low, high), largest)


@dataclass(frozen=True, slots=True)
class Side:
    """One set as the owner of balls that hold rows of the other set, or its own."""

    requests: list[CountRequest]  # counts of these balls and rows
    kinds: list[tuple[BallKind, Ties]]  # of these balls, each with the rule for its sphere
    own: Halves  # halves of the set
    others: Halves  # halves of the set whose rows its balls may hold
    balls: ReplicateBalls  # of these kinds, possibly others too
    most: Tensor  # how far the largest of them reaches, (n,) float64


_LISTED = 2**16  # pairs of a set with itself at a time
_MASSES, _BATCHES = 2**16, 16  # pairs of a batch, and number of batches of more pairs than that
_BYTES_PER_PAIR = 512  # of those that a GPU counts at once


def _places(mask: Tensor) -> Tensor | slice:
    """Indices where (p,) `mask` holds; on a GPU all of them, which is faster than a synchronization."""
    return places(mask) if mask.device.type == "cpu" else slice(None)


class ReplicateCounter:
    """Counts memberships between the halves of the reals and those of the fakes, half b with half b.

    The balls of a half are those of the half alone: each reaches the k-th nearest other row of the half. Distances are
    `near_sq_distances`, equal for equal vectors. Requests about a set's own rows are counted in advance.
    """

    def __init__(
        self,
        real: ResampledSet,
        fake: ResampledSet,
        requests: Sequence[CountRequest],
        *,
        engine: Engine = ENGINE,
    ) -> None:
        self._real, self._fake = real.points, fake.points
        self._communicator, self._waiting = engine.communicator(), list[Pairs]()
        self._sides = dict[tuple[str, str], Side]()  # by owners of balls and rows that these hold
        self._per_thread = PerThread(partial(_ThreadCounts, self._sides.values()))
        reaches = list[Tensor]()
        with engine.search(real.points.features.device, requests=requests) as search:
            for owners, this, other in (("real", real, fake), ("fake", fake, real)):
                mine = [each for each in dict.fromkeys(requests) if each.balls == owners]
                balls = this.balls(mine, search) if mine else None
                most = this.lists.sq.new_full((len(this.points.features),), -torch.inf)
                for rows, halves in (("other", other.halves), ("own", this.halves)):
                    some = [each for each in mine if each.rows == rows]
                    if balls is not None and some:
                        reach = torch.stack([balls.reaches[each.ball].most for each in some]).amax(dim=0)
                        kinds = list(dict.fromkeys((each.ball, each.ties) for each in some))
                        self._sides[owners, rows] = Side(some, kinds, this.halves, halves, balls, reach)
                        most = reach if rows == "other" else most
                # A squared radius that contains, by the definition, all rows within reach by `near_sq_distances`
                upper = bounds_of_differences(most, this.points.features.shape[1])[1]
                reaches.append(upper.masked_fill(most == -torch.inf, -torch.inf))
            for (_, rows), side in self._sides.items():
                if rows == "own":  # its listed pairs, whose distances are known
                    step, near = at_once(_LISTED, _BYTES_PER_PAIR, side.most.device), side.balls.near
                    batches = [near.at(slice(at, at + step)) for at in range(0, len(near.i), step)]
                    count = partial(self._count_side, side)
                    deque(search.map(count, self._communicator.share(batches)), maxlen=0)
        self.reaches = reaches[0], reaches[1]

    def consume(self, pairs: Pairs) -> None:
        """Count pairs, no pair twice; a GPU waits until they are many."""
        if pairs.i.device.type == "cpu":
            self._count(pairs)
            return
        self._waiting.append(pairs)
        if sum(len(some.i) for some in self._waiting) >= at_once(1, _BYTES_PER_PAIR, pairs.i.device):
            self._count_waiting()

    def _count_waiting(self) -> None:
        pairs = Pairs(*map(torch.cat, zip(*self._waiting, strict=True)))
        self._waiting.clear()
        most = at_once(1, _BYTES_PER_PAIR, pairs.i.device)
        for start in range(0, len(pairs.i), most):
            self._count(pairs.at(slice(start, start + most)))

    def _count(self, pairs: Pairs) -> None:
        x, y = self._real.features, self._fake.features
        lower = bounds_of_differences(pairs.sq_lower, x.shape[1])[0]  # as of the distance itself
        upper = bounds_of_differences(pairs.sq_upper, x.shape[1])[1]
        sides = (("real", pairs.i, pairs.j), ("fake", pairs.j, pairs.i))
        # Pairs that may be neither in all balls of some kind around a row nor in none
        is_open = torch.zeros_like(lower, dtype=torch.bool)
        for owners, owner, _ in sides:
            if side := self._sides.get((owners, "other")):
                at = _places(lower <= side.most.index_select(0, owner))
                of, low, high = owner[at], lower[at], upper[at]
                for ball, _ in side.kinds:
                    reach = side.balls.reaches[ball]
                    is_inside = high < reach.least.index_select(0, of)
                    is_outside = low > reach.most.index_select(0, of)
                    is_open[at] |= (low < high) & ~is_inside & ~is_outside
        at = places(is_open)
        # One distance costs less than a better bound and a second test.
        lower[at] = upper[at] = near_sq_distances(x, y, pairs.i[at], pairs.j[at])
        for owners, owner, other in sides:
            if side := self._sides.get((owners, "other")):
                self._count_side(side, Pairs(owner, other, lower, upper))

    def _count_side(self, side: Side, pairs: Pairs) -> None:
        """Count pairs of the owner of balls with another row; distances are known where they matter."""
        pairs = pairs.at(places(pairs.sq_lower <= side.most.index_select(0, pairs.i)))
        for ball, ties in side.kinds:
            may = _places(pairs.sq_lower <= side.balls.reaches[ball].most.index_select(0, pairs.i))
            rows, others, near = pairs.i[may], pairs.j[may], pairs.sq_upper[may]
            entries = side.balls.entries(ball, rows, near, strict=ties == "strict")
            for each in side.requests:
                if (each.ball, each.ties) == (ball, ties):
                    self._add(each, side, rows, others, near, entries)

    def _add(
        self, each: CountRequest, side: Side, owner: Tensor, other: Tensor, near: Tensor, entries: Tensor
    ) -> None:
        """Count pairs at distances `near` (p,), whose bits are those of `entries` (p,)."""
        counts, everything = self._per_thread.own, torch.arange(len(other), device=other.device)
        # The first batches settle most rows, which are skipped in later ones.
        masses = at_once(_MASSES, _BYTES_PER_PAIR, everything.device)
        step = _BATCHES if len(everything) > masses and each.count != "pairs" else 1
        for start in range(step):
            at = everything[start::step]
            if each.count != "pairs":
                hits = counts.hits[each]
                rows = (other if each.count == "others" else owner).index_select(0, at)
                fresh = places(~hits.settled.index_select(0, rows))
                at, rows = at[fresh], rows[fresh]
            bits = side.balls.bits_of(each.ball, entries[at], near[at], strict=each.ties == "strict")
            if each.count != "others":
                bits &= side.others.masks.index_select(0, other[at])
            if each.count == "pairs":
                counts.pairs[each] += counted(bits)
            else:
                hits.add(rows, bits)

    def counts(self) -> dict[CountRequest, Tensor]:
        """Counts over all consumed pairs, on all ranks: (most, B) int64 for each request."""
        if self._waiting:
            with plain_arithmetic():
                self._count_waiting()
        first, *rest = self._per_thread.all or [self._per_thread.own]
        communicator, totals = self._communicator, dict[CountRequest, Tensor]()
        for side in self._sides.values():
            for each in side.requests:
                halves = side.own if each.count == "owners" else side.others
                if each.count == "pairs":
                    pairs = first.pairs[each] + sum(thread.pairs[each] for thread in rest)
                    totals[each] = communicator.all_reduce_sum(pairs)[None, : halves.count]
                    continue
                hits = first.hits[each]
                for thread in rest:
                    hits.merge(thread.hits[each].planes)
                others = communicator.all_gather(hits.planes)
                for planes in others[: communicator.rank] + others[communicator.rank + 1 :]:
                    hits.merge(planes)
                of_planes = [counted(plane & halves.masks)[: halves.count] for plane in hits.planes]
                totals[each] = torch.stack(of_planes)
        return totals


class _ThreadCounts:
    """What one thread has counted."""

    def __init__(self, sides: Iterable[Side]) -> None:
        self.hits = dict[CountRequest, Hits]()
        self.pairs = dict[CountRequest, Tensor]()
        for side in sides:
            for each in side.requests:
                if each.count == "pairs":
                    self.pairs[each] = counted(side.own.masks[:0])
                else:
                    counted_rows = side.own if each.count == "owners" else side.others
                    self.hits[each] = Hits(counted_rows.masks, each.most)
