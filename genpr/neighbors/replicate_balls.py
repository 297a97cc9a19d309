"""The balls of every row in every half of its set, as bits: what the distance of a pair is looked up in.

Whether a row's k-th nearest other row within a half lies beyond q others of the whole set is known as soon as fewer
than k of these q belong to the half. So the nearest others of a row, in order, tell its balls in all halves: for every
q, one bit per half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genpr.neighbors.balls import Ball, sq_radii_of
from genpr.neighbors.engine import Engine
from genpr.neighbors.frame import Placed
from genpr.neighbors.halves import Halves, packed, unpacked
from genpr.neighbors.lists import NeighbourLists
from genpr.neighbors.longer_lists import longer_lists
from genpr.neighbors.workers import Workers

_ROWS = 2048  # per piece of work


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the balls of one kind reach, over all halves, as `near_sq_distances`.

    Attributes:
        least: (n,) float64, up to which a row's balls hold everything, in each half that it belongs to.
        most: (n,) float64, beyond which they hold nothing; -inf for a row that belongs to no half.
        sq_medians: (B,) float64, ascending: squared median radii of the halves; none if balls are not clipped.
        within: (B + 1, w) int64: the halves whose median is not among the q smallest.
    """

    least: Tensor
    most: Tensor
    sq_medians: Tensor
    within: Tensor


class ListedPairs(NamedTuple):
    """Rows (p,), others of their set (p,), and their `near_sq_distances` (p,) float64."""

    row: Tensor
    other: Tensor
    sq: Tensor

    @classmethod
    def within(cls, sq_reach: Tensor | None, rows: Tensor, index: Tensor, sq: Tensor) -> ListedPairs:
        """Those of lists (r, L) of `rows` (r,) that `sq_reach` (r,) reaches; none without it."""
        if sq_reach is None:
            return cls(rows[:0], rows[:0], sq[:0, 0])
        row, place = (sq <= sq_reach[:, None]).nonzero(as_tuple=True)
        return cls(rows[row], index[row, place], sq[row, place])


@dataclass(frozen=True, slots=True)
class ReplicateBalls:
    """Balls of n rows in all halves.

    Every row has a run of entries, one for each of its nearest others, as long as some half's ball may reach farther,
    and a last one that is infinitely far.

    Attributes:
        halves: Who belongs where.
        start: (n,) int64, the first entry of each row.
        last: (n,) int64, its last.
        sq: (e,) float64, ascending within a row.
        bits: By k, (e, w) int64: the halves in which fewer than k of the row's entries before this one belong to the
            half, and the row itself does.
        reaches: By kind of ball.
        near: Listed pairs of rows of which the second may lie in a ball of the first in some half; none unless asked
            for.
    """

    halves: Halves
    start: Tensor
    last: Tensor
    sq: Tensor
    bits: Mapping[int, Tensor]
    reaches: Mapping[Ball, Reach]
    near: ListedPairs

    @classmethod
    def of(
        cls,
        points: Placed,
        lists: NeighbourLists,
        halves: Halves,
        balls: Sequence[Ball],
        engine: Engine,
        workers: Workers,
        *,
        pairs: bool = False,
    ) -> ReplicateBalls:
        """Read from `lists`; rows whose list is too short for some half are searched again.

        Args:
            points: n rows.
            lists: Of these.
            halves: Each of more than k rows, for the k of every ball.
            balls: At least one.
            engine: What multiplies.
            workers: Who works.
            pairs: Whether to keep `near`, which takes as much memory as the lists.
        """
        ks, clipped = sorted({ball.k for ball in balls}), {ball.k for ball in balls if ball.clipped}
        rows = torch.arange(len(points), device=points.device)
        runs: list[_Runs] = []

        def read(piece: tuple[Tensor, Tensor, Tensor]) -> _Runs:
            return _Runs.of(*piece, halves, ks, clipped, pairs=pairs)

        while len(rows):
            each, others, sq = (torch.split(of, _ROWS) for of in (rows, lists.index, lists.sq))
            found = list(workers.map(read, zip(each, others, sq, strict=True)))
            runs += found
            rows = torch.cat([run.short for run in found])
            if len(rows):
                lists = longer_lists(points, rows, 2 * lists.length, engine, workers)
        return cls._joined(runs, halves, balls)

    @classmethod
    def _joined(cls, runs: list[_Runs], halves: Halves, balls: Sequence[Ball]) -> ReplicateBalls:
        rows = torch.cat([run.rows for run in runs])
        place = rows.argsort()
        size = torch.cat([run.size for run in runs])
        last = size.cumsum(dim=0) - 1
        bits = {k: torch.cat([run.bits[k] for run in runs]) for k in runs[0].bits}
        reaches = {}
        for ball in balls:
            of_k = torch.cat([run.reach[ball.k] for run in runs], dim=1)[:, place]
            radii = torch.cat([run.sq_radii[ball.k] for run in runs])[place] if ball.clipped else None
            reaches[ball] = _reach(ball, of_k, radii, halves)
        sq = torch.cat([run.sq for run in runs])
        near = ListedPairs(*(torch.cat(part) for part in zip(*(run.near for run in runs), strict=True)))
        return cls(halves, (last - size + 1)[place], last[place], sq, bits, reaches, near)

    def entries(self, rows: Tensor, near: Tensor, *, strict: bool) -> Tensor:
        """The entry of `rows` (p,) whose bits tell which of their balls hold something at `near` (p,) float64.

        As many entries come before it as are nearer than `near`, or, of `strict` balls, no farther.
        """
        nearer = torch.le if strict else torch.lt
        place, last = self.start.index_select(0, rows), self.last.index_select(0, rows)
        step = 1 << int((self.last - self.start).max()).bit_length()
        while step:
            ahead = torch.minimum(place + step, last)
            before = self.sq.index_select(0, (ahead - 1).clamp_(min=0))
            place = torch.where(nearer(before, near), ahead, place)
            step //= 2
        return place


@dataclass(frozen=True, slots=True)
class _Runs:
    """Entries of some rows.

    Attributes:
        rows: (r,) whose lists were long enough.
        short: Those whose lists were not.
        size: (r,) entries of each.
        sq: (e,) float64.
        bits: By k, (e, w) int64.
        reach: By k, (2, r) float64: least and most.
        sq_radii: By k, (r, B) float64, infinite where the row does not belong to the half.
        near: The rows and those of their lists that are within their reach, if they are to be kept.
    """

    rows: Tensor
    short: Tensor
    size: Tensor
    sq: Tensor
    bits: dict[int, Tensor]
    reach: dict[int, Tensor]
    sq_radii: dict[int, Tensor]
    near: ListedPairs

    @classmethod
    def of(
        cls,
        rows: Tensor,
        index: Tensor,
        sq: Tensor,
        halves: Halves,
        ks: list[int],
        clipped: set[int],
        *,
        pairs: bool,
    ) -> _Runs:
        """From lists (c, L) of `rows` (c,)."""
        own = halves.member[rows]
        tables = _tables(index, own, halves.member, ks)
        length = (tables[ks[-1]] != 0).any(dim=2).sum(dim=1)
        enough = (length <= index.shape[1]).nonzero()[:, 0]
        short = rows[length > index.shape[1]]
        rows, own, length = rows[enough], own[enough], length[enough]
        sq = torch.cat([sq, sq.new_full((len(sq), 1), torch.inf)], dim=1)[enough]
        tables = {k: table[enough] for k, table in tables.items()}
        reach = {k: _least_and_most(table, own, sq) for k, table in tables.items()}
        radii = {k: _sq_radii(tables[k], sq, halves.count) for k in clipped}
        near = ListedPairs.within(reach[ks[-1]][1] if pairs else None, rows, index[enough], sq[:, :-1])
        rank = torch.arange(sq.shape[1], device=sq.device)
        kept = rank <= length[:, None]
        sq = sq.masked_fill(rank == length[:, None], torch.inf)[kept]
        bits = {k: table[kept] for k, table in tables.items()}
        return cls(rows, short, length + 1, sq, bits, reach, radii, near)


def _tables(index: Tensor, own: Tensor, member: Tensor, ks: list[int]) -> dict[int, Tensor]:
    """By k, (c, L + 1, w): the halves in which fewer than k of the first q others of the lists belong to the half."""
    (rows, length), words = index.shape, member.shape[1]
    tables = {k: own.new_empty(length + 1, rows, words) for k in ks}
    met = own.new_zeros(ks[-1], rows, words)  # plane t: the halves of which more than t were met
    for q in range(length + 1):
        for k, table in tables.items():
            torch.bitwise_and(own, ~met[k - 1], out=table[q])
        if q < length:
            one = member.index_select(0, index[:, q])
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


def _reach(ball: Ball, of_k: Tensor, sq_radii: Tensor | None, halves: Halves) -> Reach:
    least, most = of_k
    if sq_radii is None:
        return Reach(least, most, least[:0], halves.member[:0])
    medians = torch.stack([sq_radii_of(ball, radii[radii.isfinite()]).max() for radii in sq_radii.T])
    ordered, order = medians.sort()
    rank = order.argsort()
    within = packed((rank >= torch.arange(len(rank) + 1, device=rank.device)[:, None]).cpu().numpy())
    return Reach(least.clamp(max=ordered[0]), most.clamp(max=ordered[-1]), ordered, within.to(rank.device))
