"""Ball memberships between halves of two sets, for all halves as the pairs of the sets are found.

Every pair that may be within the largest ball of one of its two rows is looked at once; no list of pairs is kept.
What bounds settle needs no distance: a pair that is nearer than the smallest ball of a row over all halves, or
farther than the largest. For the others, the distance is looked up among the row's nearest others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from genpr.neighbors.bounds import slack_factor
from genpr.neighbors.choose import choose_engine
from genpr.neighbors.engine import Engine, plain_arithmetic
from genpr.neighbors.halves import Hits, counted
from genpr.neighbors.lists import near_sq_distances
from genpr.neighbors.pairs import Pairs
from genpr.neighbors.replicate_sides import Asked, Found, ResampledSet, Side, proven_reach
from genpr.neighbors.workers import Communicator, Workers

_LISTED = 2**16  # pairs of a set with itself per piece of work
_MASSES, _PARTS = 2**16, 16  # pairs of a portion, and in how many parts more than that are taken


class ReplicateCounter:
    """Counts memberships between the halves of the reals and those of the fakes, half b with half b.

    The balls of a half are those of the half alone: each reaches the k-th nearest other row of the half. Distances are
    `near_sq_distances`, equal for equal vectors. What is asked about a set's own rows is counted beforehand.

    Args:
        real: The reals; each half has more rows than any k that is asked for.
        fake: The fakes, placed in the same frame, with as many halves.
        asked: What to count.
        engine: What finds balls and takes differences; None chooses by device.

    Attributes:
        reaches: How far the largest ball of each real and each fake reaches over all halves, (n,) and (m,).
    """

    def __init__(
        self,
        real: ResampledSet,
        fake: ResampledSet,
        asked: Sequence[Asked],
        *,
        engine: Engine | None = None,
    ) -> None:
        self._real, self._fake, self._asked = real.points, fake.points, asked
        self._engine = engine = engine or choose_engine(real.points.device)
        with (
            plain_arithmetic(real.points.device),
            Workers(real.points.device, engine.communicator()) as workers,
        ):
            whole = [
                Side.of(name, this, other, asked, engine, workers)
                for name, this, other in (("real", real, fake), ("fake", fake, real))
            ]
            self._sides = [side.towards("other") for side in whole]
            alone = [side.towards("own") for side in whole]
            self._tallies = _Tallies([*self._sides, *alone])
            for side in alone:
                _look_within(side, self._tallies, workers)
        of_real, of_fake = map(proven_reach, self._sides)
        self.reaches = of_real, of_fake

    def look(self, pairs: Pairs) -> None:
        """Count pairs, no pair twice."""
        owners = pairs.i, pairs.j
        x, y = self._real.features, self._fake.features
        lower, upper = _near_bounds(pairs.sq_lower, pairs.sq_upper, x.shape[1])
        is_open = torch.zeros_like(lower, dtype=torch.bool)
        for side, owner in zip(self._sides, owners, strict=True):
            is_open |= _undecided(side, owner, lower, upper)
        at = is_open.nonzero()[:, 0]
        # One distance costs less than a better bound and a second look.
        lower[at] = upper[at] = near_sq_distances(x, y, pairs.i[at], pairs.j[at], self._engine)
        for side, owner, other in zip(self._sides, owners, reversed(owners), strict=True):
            _count(side, owner, other, lower, upper, self._tallies.own)

    def counts(self) -> dict[Asked, Tensor]:
        """Of all pairs looked at: (most, B) int64 for each that was asked."""
        totals = self._tallies.totals(self._engine.communicator())
        return {each: totals[each] for each in self._asked}


def _look_within(side: Side, tallies: _Tallies, workers: Workers) -> None:
    """Count the listed pairs of a set with itself; their distances are known."""
    if side.balls is None:
        return

    def look(pairs: tuple[Tensor, Tensor, Tensor]) -> None:
        row, other, sq = pairs
        _count(side, row, other, sq, sq, tallies.own)

    parts = list(zip(*(torch.split(part, _LISTED) for part in side.balls.near), strict=True))
    deque(workers.map(look, workers.communicator.share(parts)), maxlen=0)


def _near_bounds(sq_lower: Tensor, sq_upper: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Bounds on `near_sq_distances` from bounds on the distances themselves; see `bounds_of_differences`."""
    factor, tiny = slack_factor(d + 8), d * 2.0**-124
    return sq_lower * (1 - factor) - tiny, (sq_upper + tiny) * (1 + 2 * factor)


def _undecided(side: Side, owner: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Which pairs (p,) may be neither in all balls of some kind around `owner` (p,) nor in none."""
    is_open = torch.zeros_like(lower, dtype=torch.bool)
    if side.balls is None:
        return is_open
    at = (lower <= side.most.index_select(0, owner)).nonzero()[:, 0]
    owner, lower, upper = owner[at], lower[at], upper[at]
    for ball, _ in side.kinds():
        reach = side.balls.reaches[ball]
        is_inside = upper < reach.least.index_select(0, owner)
        is_outside = lower > reach.most.index_select(0, owner)
        is_open[at] |= (lower < upper) & ~is_inside & ~is_outside
    return is_open


def _count(side: Side, owner: Tensor, other: Tensor, lower: Tensor, upper: Tensor, tally: _Tally) -> None:
    """Count pairs of the balls around `owner` (p,) with `other` (p,) rows; distances are known where they matter."""
    if side.balls is None:
        return
    at = (lower <= side.most.index_select(0, owner)).nonzero()[:, 0]
    owner, other, lower, upper = owner[at], other[at], lower[at], upper[at]
    for ball, ties in side.kinds():
        reach = side.balls.reaches[ball]
        at = (lower <= reach.most.index_select(0, owner)).nonzero()[:, 0]
        found = Found(side, ball, ties, owner[at], other[at], upper[at])
        for each in side.asked:
            if (each.ball, each.ties) == (ball, ties):
                tally.add(each, found)


class _Tally:
    """What one thread has counted."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.hits = dict[Asked, Hits]()
        self.pairs = dict[Asked, Tensor]()
        for side in sides:
            for each in side.asked:
                if each.count == "pairs":
                    self.pairs[each] = counted(side.member.member[:0])
                else:
                    counted_rows = side.member if each.count == "owners" else side.others
                    self.hits[each] = Hits(counted_rows.member, each.most)

    def add(self, each: Asked, found: Found) -> None:
        """Count pairs."""
        counts_others = each.count == "others"
        for part in _parts(found.other, 1 if each.count == "pairs" else _PARTS):
            if each.count == "pairs":
                at = part
            else:
                rows = (found.other if counts_others else found.owner).index_select(0, part)
                fresh = self.hits[each].open(rows)
                at, rows = part[fresh], rows[fresh]
            bits = found.bits(at)
            if not counts_others:
                bits &= found.side.others.member.index_select(0, found.other[at])
            if each.count == "pairs":
                self.pairs[each] += counted(bits)
            else:
                self.hits[each].add(rows, bits)


def _parts(pairs: Tensor, count: int) -> list[Tensor]:
    """All positions of `pairs` (p,), masses of them in `count` parts that are spread over all.

    The first parts tell most rows all they can learn, and the others are passed over.
    """
    everything = torch.arange(len(pairs), device=pairs.device)
    count = count if len(pairs) > _MASSES else 1
    return [everything[start::count] for start in range(count)]


class _Tallies:
    """One for each thread, since what they find is counted where it is found."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self._sides = sides
        self._local, self._all = threading.local(), list[_Tally]()

    @property
    def own(self) -> _Tally:
        if not hasattr(self._local, "tally"):
            self._local.tally = _Tally(self._sides)
            self._all.append(self._local.tally)
        tally: _Tally = self._local.tally
        return tally

    def totals(self, communicator: Communicator) -> dict[Asked, Tensor]:
        """What was asked, (most, B) int64, as all ranks counted it."""
        first, *rest = self._all or [self.own]
        totals = dict[Asked, Tensor]()
        for side in self._sides:
            for each in side.asked:
                if each.count == "pairs":
                    sums = communicator.all_reduce_sum(
                        first.pairs[each] + sum(tally.pairs[each] for tally in rest)
                    )
                    totals[each] = sums[None, : side.member.count]
                    continue
                hits = first.hits[each]
                for tally in rest:
                    hits.merge(tally.hits[each].planes)
                others = communicator.all_gather(hits.planes)
                for planes in others[: communicator.rank] + others[communicator.rank + 1 :]:
                    hits.merge(planes)
                halves = side.member if each.count == "owners" else side.others
                totals[each] = torch.stack([halves.totals(plane & halves.member) for plane in hits.planes])
        return totals
