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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from genpr.distributed import Communicator
from genpr.memory import tile_budget
from genpr.neighbors.balls import BallKind
from genpr.neighbors.bounds import bounds_of_differences
from genpr.neighbors.counts import sq_middle
from genpr.neighbors.distance import near_sq_distances
from genpr.neighbors.engine import ENGINE, Engine, PerThread, Search, Workers, plain_arithmetic
from genpr.neighbors.halves import Halves, Hits, counted, packed, unpacked
from genpr.neighbors.index import IndexedPoints
from genpr.neighbors.nearest import NeighborLists, extended_lists
from genpr.neighbors.search import Pairs
from genpr.validation import Ties

_BYTES_PER_ENTRY = 1024  # for each listed neighbor while a GPU counts those of a row in all halves
_ROWS = 2048  # at a time on a CPU
_COLUMNS = 8  # halves of which radii are sorted at once


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the balls of one kind reach, over all halves, as `near_sq_distances`."""

    least: Tensor  # (n,) float64, below which all of a row's balls contain a point, in each half that it belongs to
    most: Tensor  # (n,) float64, above which no ball contains a point; -inf for a row that belongs to no half
    sq_medians: Tensor  # (B,) float64, ascending: squared median radii of the halves
    within: Tensor  # (B + 1, w) int64: the halves whose median is not among the q smallest


class NeighborPairs(NamedTuple):
    """Rows (p,), others of their set (p,), and their `near_sq_distances` (p,) float64."""

    row: Tensor
    other: Tensor
    sq: Tensor


@dataclass(frozen=True, slots=True)
class ReplicateBalls:
    """Balls of n rows in all halves.

    Every row has consecutive entries, one for each of its nearest others, as long as some half's ball may reach farther,
    and a last one that is infinitely far.
    """

    halves: Halves  # membership of rows in halves
    start: Tensor  # (n,) int64, the first entry of each row
    last: Tensor  # (n,) int64, the last entry of each row
    longest: int  # most entries of a row but for the last
    sq_before: Tensor  # (e,) float64, of the entry before, ascending within a row
    # by k, (e, w) int64: the halves in which fewer than k of the row's entries before this one belong to the
    # half, and the row itself does
    bits: Mapping[int, Tensor]
    reaches: Mapping[BallKind, Reach]  # by kind of ball
    near: NeighborPairs  # listed pairs whose second row may be in a ball of the first in some half

    @classmethod
    def from_lists(
        cls,
        points: IndexedPoints,
        lists: NeighborLists,
        halves: Halves,
        balls: Sequence[BallKind],
        search: Search,
        *,
        pairs: bool = False,
    ) -> ReplicateBalls:
        """Read from `lists`; rows whose list is too short for some half are searched again."""
        ks, clipped = sorted({ball.k for ball in balls}), {ball.k for ball in balls if ball.clipped}
        rows = torch.arange(len(points), device=points.device)
        blocks: list[_Entries] = []

        def read(block: tuple[Tensor, Tensor, Tensor]) -> _Entries:
            return _Entries.from_lists(*block, halves, ks, clipped, pairs=pairs)

        while len(rows):
            step = rows_at_once(lists.index.shape[1], rows.device)
            split = (torch.split(each, step) for each in (rows, lists.index, lists.sq))
            added = list(search.workers.map(read, zip(*split, strict=True)))
            blocks += added
            rows = torch.cat([block.short for block in added])
            if len(rows):
                lists = extended_lists(points, rows, 2 * lists.index.shape[1], search)
        return cls._joined(blocks, halves, balls)

    @classmethod
    def _joined(cls, blocks: list[_Entries], halves: Halves, balls: Sequence[BallKind]) -> ReplicateBalls:
        rows = torch.cat([block.rows for block in blocks])
        place = rows.argsort()
        size = torch.cat([block.size for block in blocks])
        last = size.cumsum(dim=0) - 1
        bits = {k: torch.cat([block.bits[k] for block in blocks]) for k in blocks[0].bits}
        reaches = {}
        for ball in balls:
            of_k = torch.cat([block.reach[ball.k] for block in blocks], dim=1)[:, place]
            radii = torch.cat([block.sq_radii[ball.k] for block in blocks])[place] if ball.clipped else None
            reaches[ball] = _reach(ball, of_k, radii, halves)
        sq_before = torch.cat([block.sq for block in blocks]).roll(1)
        near = NeighborPairs(*map(torch.cat, zip(*(block.near for block in blocks), strict=True)))
        start, longest = last - size + 1, int(size.max()) - 1
        return cls(halves, start[place], last[place], longest, sq_before, bits, reaches, near)

    def entries(self, rows: Tensor, near: Tensor, *, strict: bool) -> Tensor:
        """The entry of `rows` (p,) whose bits are the halves in which their balls hold a row at `near` (p,) float64.

        As many entries come before it as are nearer than `near`, or, of `strict` balls, no farther.
        """
        nearer = torch.le if strict else torch.lt
        place, last = self.start.index_select(0, rows), self.last.index_select(0, rows)
        step = 1 << self.longest.bit_length()
        while step:
            ahead = torch.minimum(place + step, last)
            place = torch.where(nearer(self.sq_before.index_select(0, ahead), near), ahead, place)
            step //= 2
        return place


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of some rows."""

    rows: Tensor  # (r,) rows with lists that are long enough
    short: Tensor  # rows with lists that are too short
    size: Tensor  # (r,) entries of each
    sq: Tensor  # (e,) float64
    bits: dict[int, Tensor]  # by k, (e, w) int64
    reach: dict[int, Tensor]  # by k, (2, r) float64: least and most
    sq_radii: dict[int, Tensor]  # by k, (r, B) float64, infinite where the row does not belong to the half
    near: NeighborPairs  # the rows and their listed neighbors within reach, if kept

    @classmethod
    def from_lists(
        cls,
        rows: Tensor,
        index: Tensor,
        sq: Tensor,
        halves: Halves,
        ks: list[int],
        clipped: set[int],
        *,
        pairs: bool,
    ) -> _Entries:
        """From lists (c, L) of `rows` (c,)."""
        own = halves.masks[rows]
        tables = tables_of_lists(index, own, halves.masks, ks)
        length = (tables[ks[-1]] != 0).any(dim=2).sum(dim=1)
        enough = (length <= index.shape[1]).nonzero()[:, 0]
        short = rows[length > index.shape[1]]
        rows, own, length = rows[enough], own[enough], length[enough]
        sq = torch.cat([sq, sq.new_full((len(sq), 1), torch.inf)], dim=1)[enough]
        tables = {k: table[enough] for k, table in tables.items()}
        reach = {k: _least_and_most(table, own, sq) for k, table in tables.items()}
        radii = {k: _sq_radii(tables[k], sq, halves.count) for k in clipped}
        near = NeighborPairs(rows[:0], rows[:0], sq[:0, 0])
        if pairs:
            row, place = (sq[:, :-1] <= reach[ks[-1]][1][:, None]).nonzero(as_tuple=True)
            near = NeighborPairs(rows[row], index[enough][row, place], sq[row, place])
        rank = torch.arange(sq.shape[1], device=sq.device)
        kept = (rank <= length[:, None]).nonzero(as_tuple=True)
        sq = sq.masked_fill(rank == length[:, None], torch.inf)[kept]
        bits = {k: table[kept] for k, table in tables.items()}
        return cls(rows, short, length + 1, sq, bits, reach, radii, near)


def rows_at_once(length: int, device: torch.device) -> int:
    """Rows whose lists of this length are read at once."""
    if device.type == "cpu":
        return _ROWS
    return max(1, tile_budget(device) // ((length + 1) * _BYTES_PER_ENTRY))


def tables_of_lists(index: Tensor, own: Tensor, masks: Tensor, ks: list[int]) -> dict[int, Tensor]:
    """By k, (c, L + 1, w): the halves in which fewer than k of the first q others of the lists belong to the half."""
    (rows, length), words = index.shape, masks.shape[1]
    if index.device.type != "cpu":  # for all others at once, a number for each half
        narrow = torch.int8 if max(length, *ks) < 128 else torch.int32
        counts = unpacked(masks[index]).view(torch.int8).cumsum(dim=1, dtype=narrow)
        return {k: torch.cat([own[:, None], packed(counts < k) & own[:, None]], dim=1) for k in ks}
    tables = {k: own.new_empty(length + 1, rows, words) for k in ks}
    met = own.new_zeros(ks[-1], rows, words)  # plane t: the halves with more than t hits
    for q in range(length + 1):
        for k, table in tables.items():
            torch.bitwise_and(own, ~met[k - 1], out=table[q])
        if q < length:
            one = masks.index_select(0, index[:, q])
            met[1:] |= met[:-1] & one
            met[0] |= one
    return {k: table.transpose(0, 1) for k, table in tables.items()}


def _least_and_most(table: Tensor, own: Tensor, sq: Tensor) -> Tensor:
    """(2, c): the last distance (c, L + 1) at which all halves of a row hold, and at which any does."""
    full = (table == own[:, None]).all(dim=2).sum(dim=1)
    held = (table != 0).any(dim=2).sum(dim=1)
    ends = torch.stack([full, held], dim=1) - 1
    return sq.gather(1, ends.clamp(min=0)).masked_fill(held[:, None] == 0, -torch.inf).T


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


def _reach(ball: BallKind, of_k: Tensor, sq_radii: Tensor | None, halves: Halves) -> Reach:
    least, most = of_k
    if sq_radii is None:
        return Reach(least, most, least[:0], halves.masks[:0])
    medians = _sq_medians(sq_radii, halves.size)
    ordered, order = medians.sort()
    rank = order.argsort()
    within = packed(rank >= torch.arange(len(rank) + 1, device=rank.device)[:, None])
    return Reach(least.clamp(max=ordered[0]), most.clamp(max=ordered[-1]), ordered, within)


@dataclass(frozen=True, slots=True)
class CountRequest:
    """What to count in every replicate, that is in a half of the reals and a half of the fakes."""

    balls: Literal["real", "fake"]  # the owners
    ball: BallKind
    count: Literal["owners", "others", "pairs"]  # "owners": how many balls hold at least t rows
    most: int = 1  # count for t = 1 to `most`; 1 for pairs
    ties: Ties = "closed"  # whether a row on the sphere is inside: "closed" yes, "strict" no
    # rows that are counted: those of the other set, or, with "own", the other rows of the same set. Own rows
    # at exactly the radius of a ball are not counted beyond the listed neighbors
    rows: Literal["other", "own"] = "other"


@dataclass(frozen=True, slots=True)
class ResampledSet:
    """A set of n rows, its neighbor lists, and its halves."""

    points: IndexedPoints
    lists: NeighborLists
    halves: Halves


@dataclass(frozen=True, slots=True)
class Side:
    """One set as the owner of balls."""

    points: IndexedPoints  # the set
    own: Halves  # halves of the set
    others: Halves  # halves of the set whose rows its balls may hold
    requests: tuple[CountRequest, ...]  # counts of its balls and those rows
    kinds: tuple[tuple[BallKind, Ties], ...]  # of these balls, each with the rule for its sphere
    balls: ReplicateBalls | None  # of these kinds, possibly others too; None without requests
    most: Tensor  # how far the largest of them reaches, (n,) float64


def _sides(
    name: str,
    this: ResampledSet,
    other: ResampledSet,
    requests: Sequence[CountRequest],
    search: Search,
) -> tuple[Side, Side]:
    """`this` set, called `name`, as the owner of requested balls: for rows of the `other` set, and for its own rows."""
    mine = [each for each in dict.fromkeys(requests) if each.balls == name]
    of_others = tuple(each for each in mine if each.rows == "other")
    of_own = tuple(each for each in mine if each.rows == "own")
    balls = None
    if mine:
        kinds = sorted({each.ball for each in mine})
        balls = ReplicateBalls.from_lists(
            this.points, this.lists, this.halves, kinds, search, pairs=bool(of_own)
        )
    sides = []
    for some, halves in ((of_others, other.halves), (of_own, this.halves)):
        most = torch.full((len(this.points),), -torch.inf, dtype=torch.float64, device=this.points.device)
        kinds_of = dict[tuple[BallKind, Ties], None]()
        for each in some:
            assert balls is not None
            most = torch.maximum(most, balls.reaches[each.ball].most)
            kinds_of[each.ball, each.ties] = None
        owned = balls if some else None
        sides.append(Side(this.points, this.halves, halves, some, tuple(kinds_of), owned, most))
    return sides[0], sides[1]


def proven_reach(side: Side) -> Tensor:
    """Squared radii (n,) float64 that contain, by the definition, all rows within reach by `near_sq_distances`."""
    upper = bounds_of_differences(side.most, side.points.features.shape[1])[1]
    return upper.masked_fill(side.most == -torch.inf, -torch.inf)


class BallPairs:
    """Pairs of the owner of a ball of one kind and a row that may be in it."""

    def __init__(
        self, side: Side, ball: BallKind, ties: Ties, owner: Tensor, other: Tensor, near: Tensor
    ) -> None:
        assert side.balls is not None
        self.side, self.owner, self.other = side, owner, other
        self._balls, self._ball, self._strict = side.balls, ball, ties == "strict"
        self._reach, self._near = side.balls.reaches[ball], near
        self._place = side.balls.start.index_select(0, owner)
        at = _places(near >= self._reach.least.index_select(0, owner))
        self._place[at] = side.balls.entries(owner[at], near[at], strict=self._strict)

    def bits(self, at: Tensor) -> Tensor:
        """The halves in which the ball of the owner contains the distance of the other, for some pairs (q,)."""
        bits = self._balls.bits[self._ball.k].index_select(0, self._place[at])
        if len(self._reach.sq_medians):
            rank = torch.searchsorted(self._reach.sq_medians, self._near[at], right=self._strict)
            bits &= self._reach.within.index_select(0, rank)
        return bits


_LISTED = 2**16  # pairs of a set with itself at a time
_MASSES, _BATCHES = 2**16, 16  # pairs of a batch, and number of batches of more pairs than that
_BYTES_PER_PAIR = 512  # of those that a GPU counts at once


def _at_once(few: int, device: torch.device) -> int:
    """Pairs at a time: `few` on a CPU."""
    return few if device.type == "cpu" else tile_budget(device) // _BYTES_PER_PAIR


def _places(mask: Tensor) -> Tensor | slice:
    """Indices where (p,) `mask` holds; on a GPU all of them, which is faster than a synchronization."""
    return mask.nonzero()[:, 0] if mask.device.type == "cpu" else slice(None)


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
        self._real, self._fake, self._requests = real.points, fake.points, requests
        self._communicator, self._waiting = engine.communicator(), list[Pairs]()
        with engine.search(real.points.device, requests=requests) as search:
            of_real, real_alone = _sides("real", real, fake, requests, search)
            of_fake, fake_alone = _sides("fake", fake, real, requests, search)
            self._sides = [of_real, of_fake]
            self._all_sides = [*self._sides, real_alone, fake_alone]
            self._per_thread = PerThread(partial(_ThreadCounts, self._all_sides))
            for side in (real_alone, fake_alone):
                if side.balls is not None:
                    _count_within(side, side.balls.near, self._per_thread, search.workers)
        self.reaches = proven_reach(of_real), proven_reach(of_fake)

    def consume(self, pairs: Pairs) -> None:
        """Count pairs, no pair twice; a GPU waits until they are many."""
        if pairs.i.device.type == "cpu":
            self._count(pairs)
            return
        self._waiting.append(pairs)
        if sum(len(some.i) for some in self._waiting) >= _at_once(0, pairs.i.device):
            self._count_waiting()

    def _count_waiting(self) -> None:
        pairs, most = Pairs(*map(torch.cat, zip(*self._waiting, strict=True))), _at_once(0, self._real.device)
        self._waiting.clear()
        for start in range(0, len(pairs.i), most):
            self._count(pairs.at(slice(start, start + most)))

    def _count(self, pairs: Pairs) -> None:
        owners = pairs.i, pairs.j
        x, y = self._real.features, self._fake.features
        lower = bounds_of_differences(pairs.sq_lower, x.shape[1])[0]  # as of the distance itself
        upper = bounds_of_differences(pairs.sq_upper, x.shape[1])[1]
        is_open = torch.zeros_like(lower, dtype=torch.bool)
        for side, owner in zip(self._sides, owners, strict=True):
            is_open |= _undecided(side, owner, lower, upper)
        at = is_open.nonzero()[:, 0]
        # One distance costs less than a better bound and a second test.
        lower[at] = upper[at] = near_sq_distances(x, y, pairs.i[at], pairs.j[at])
        for side, owner, other in zip(self._sides, owners, reversed(owners), strict=True):
            _count(side, owner, other, lower, upper, self._per_thread.own)

    def counts(self) -> dict[CountRequest, Tensor]:
        """Counts over all consumed pairs: (most, B) int64 for each request."""
        if self._waiting:
            with plain_arithmetic(self._real.device):
                self._count_waiting()
        totals = _totals(self._all_sides, self._per_thread, self._communicator)
        return {each: totals[each] for each in self._requests}


def _count_within(
    side: Side, near: NeighborPairs, per_thread: PerThread[_ThreadCounts], workers: Workers
) -> None:
    """Count the listed pairs of a set with itself; their distances are known."""

    def consume(pairs: tuple[Tensor, Tensor, Tensor]) -> None:
        row, other, sq = pairs
        _count(side, row, other, sq, sq, per_thread.own)

    step = _at_once(_LISTED, near.row.device)
    batches = list(zip(*(torch.split(each, step) for each in near), strict=True))
    deque(workers.map(consume, workers.communicator.share(batches)), maxlen=0)


def _undecided(side: Side, owner: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Which pairs (p,) may be neither in all balls of some kind around `owner` (p,) nor in none."""
    is_open = torch.zeros_like(lower, dtype=torch.bool)
    if side.balls is None:
        return is_open
    at = _places(lower <= side.most.index_select(0, owner))
    owner, lower, upper = owner[at], lower[at], upper[at]
    for ball, _ in side.kinds:
        reach = side.balls.reaches[ball]
        is_inside = upper < reach.least.index_select(0, owner)
        is_outside = lower > reach.most.index_select(0, owner)
        is_open[at] |= (lower < upper) & ~is_inside & ~is_outside
    return is_open


def _count(
    side: Side, owner: Tensor, other: Tensor, lower: Tensor, upper: Tensor, counts: _ThreadCounts
) -> None:
    """Count pairs of the balls around `owner` (p,) with `other` (p,) rows; distances are known where they matter."""
    if side.balls is None:
        return
    at = (lower <= side.most.index_select(0, owner)).nonzero()[:, 0]
    owner, other, lower, upper = owner[at], other[at], lower[at], upper[at]
    for ball, ties in side.kinds:
        reach = side.balls.reaches[ball]
        may = _places(lower <= reach.most.index_select(0, owner))
        pairs = BallPairs(side, ball, ties, owner[may], other[may], upper[may])
        for each in side.requests:
            if (each.ball, each.ties) == (ball, ties):
                counts.add(each, pairs)


class _ThreadCounts:
    """What one thread has counted."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.hits = dict[CountRequest, Hits]()
        self.pairs = dict[CountRequest, Tensor]()
        for side in sides:
            for each in side.requests:
                if each.count == "pairs":
                    self.pairs[each] = counted(side.own.masks[:0])
                else:
                    counted_rows = side.own if each.count == "owners" else side.others
                    self.hits[each] = Hits(counted_rows.masks, each.most)

    def add(self, each: CountRequest, pairs: BallPairs) -> None:
        """Count pairs."""
        counts_others = each.count == "others"
        everything = torch.arange(len(pairs.other), device=pairs.other.device)
        # The first batches settle most rows, which are skipped in later ones.
        masses = _at_once(_MASSES, everything.device)
        step = _BATCHES if len(everything) > masses and each.count != "pairs" else 1
        for start in range(step):
            at = everything[start::step]
            if each.count != "pairs":
                rows = (pairs.other if counts_others else pairs.owner).index_select(0, at)
                fresh = self.hits[each].unsettled(rows)
                at, rows = at[fresh], rows[fresh]
            bits = pairs.bits(at)
            if not counts_others:
                bits &= pairs.side.others.masks.index_select(0, pairs.other[at])
            if each.count == "pairs":
                self.pairs[each] += counted(bits)
            else:
                self.hits[each].add(rows, bits)


def _totals(
    sides: Sequence[Side], per_thread: PerThread[_ThreadCounts], communicator: Communicator
) -> dict[CountRequest, Tensor]:
    """Counts by request, (most, B) int64, over all ranks."""
    first, *rest = per_thread.all or [per_thread.own]
    totals = dict[CountRequest, Tensor]()
    for side in sides:
        for each in side.requests:
            if each.count == "pairs":
                sums = communicator.all_reduce_sum(
                    first.pairs[each] + sum(thread.pairs[each] for thread in rest)
                )
                totals[each] = sums[None, : side.own.count]
                continue
            hits = first.hits[each]
            for thread in rest:
                hits.merge(thread.hits[each].planes)
            others = communicator.all_gather(hits.planes)
            for planes in others[: communicator.rank] + others[communicator.rank + 1 :]:
                hits.merge(planes)
            halves = side.own if each.count == "owners" else side.others
            totals[each] = torch.stack([halves.totals(plane & halves.masks) for plane in hits.planes])
    return totals
