"""Every pair of rows that may be within reach of each other, found tile by tile by the bounds of a frame."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from genpr.distributed import Communicator
from genpr.neighbors.bounds import NO_FLOOR, bounds_by_product, bounds_of_differences
from genpr.neighbors.distance import sq_distances_at
from genpr.neighbors.engine import (
    ONE_PROCESS,
    Engine,
    PerThread,
    Tiles,
    Workers,
    plain_arithmetic,
)
from genpr.neighbors.index import Placed, ViewSearch
from genpr.notices import emit_notice
from genpr.runtime import empty_device_cache, is_out_of_memory


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a row i and a column j with bounds on their squared distances, all (p,)."""

    i: Tensor
    j: Tensor
    sq_lower: Tensor
    sq_upper: Tensor

    def __len__(self) -> int:
        return len(self.i)

    def select(self, mask: Tensor) -> Pairs:
        """The pairs where (p,) bool `mask` holds."""
        return self.part(mask.nonzero()[:, 0])

    def part(self, index: Tensor | slice) -> Pairs:
        """The pairs at `index`."""
        return Pairs(self.i[index], self.j[index], self.sq_lower[index], self.sq_upper[index])

    @classmethod
    def joined(cls, parts: list[Pairs], device: torch.device | None = None) -> Pairs:
        """All pairs of all parts; where there are none, no pairs on `device`."""
        if not parts:
            none = torch.empty(0, dtype=torch.int64, device=device)
            return cls(none, none, none.double(), none.double())
        fields = ("i", "j", "sq_lower", "sq_upper")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in fields))

    def all_gather(self, communicator: Communicator) -> list[Pairs]:
        """The pairs of every process, by rank."""
        fields = (communicator.all_gather(part) for part in (self.i, self.j, self.sq_lower, self.sq_upper))
        return [Pairs(*parts) for parts in zip(*fields, strict=True)]


_INFINITE = 0x7FF << 52  # the bits of an infinite float64

# Pairs wait until they are worth a merge: at least so many, some per row, and never more than memory should hold.
_HELD_PORTION, _PER_ROW, _HELD_MOST = 2**16, 16, 2**22


@dataclass(slots=True)
class Closest:
    """The closest pairs met so far."""

    sq_reach: Tensor  # (n,) float64, within it the row has k others; -inf for rows that need none
    smallest: Tensor  # (n, k) float64, ascending: least upper bounds to distinct rows met
    _waiting: list[Pairs] = field(default_factory=list)
    _kept: list[Pairs] = field(default_factory=list)

    @classmethod
    def within(cls, sq_reach: Tensor, k: int) -> Closest:
        """Nothing met yet."""
        n = len(sq_reach)
        return cls(sq_reach, torch.full((n, k), torch.inf, dtype=torch.float64, device=sq_reach.device))

    def meet(self, pairs: Pairs) -> None:
        """Take note of pairs, none of them met before."""
        self._waiting.append(pairs)
        if sum(map(len, self._waiting)) >= min(max(_HELD_PORTION, _PER_ROW * len(self.sq_reach)), _HELD_MOST):
            self._settle()

    def pairs(self) -> Pairs:
        """Of all pairs met, those that still are within reach of one of the two."""
        self._settle()
        return in_reach(Pairs.joined(self._kept, self.sq_reach.device), self.sq_reach)

    def _settle(self) -> None:
        pairs = in_reach(Pairs.joined(self._waiting, self.sq_reach.device), self.sq_reach)
        self._waiting.clear()
        for rows in (pairs.i, pairs.j):
            _keep_smallest(self.smallest, rows, pairs.sq_upper)
        nearer = (self.smallest[:, -1] < self.sq_reach).nonzero()[:, 0]
        self.sq_reach[nearer] = self.smallest[nearer, -1]
        self._kept.append(in_reach(pairs, self.sq_reach))


def in_reach(pairs: Pairs, sq_reach: Tensor) -> Pairs:
    """The pairs of one set that may be within the reach of one of the two."""
    return pairs.select(pairs.sq_lower <= torch.maximum(sq_reach[pairs.i], sq_reach[pairs.j]))


def bounds_of_pairs(x: Tensor, y: Tensor, i: Tensor, j: Tensor, engine: Engine) -> tuple[Tensor, Tensor]:
    """The tightest bounds short of the definition, between rows `i` of `x` and `j` of `y`: two of (p,) float64."""
    if bounds := bounds_by_product(x, y, i, j):
        return bounds
    lower, upper = bounds_of_differences(engine.sq_differences(x, y, i, j), x.shape[1])
    unknown = upper.isinf().nonzero()[:, 0]
    lower[unknown] = upper[unknown] = sq_distances_at(x, y, i[unknown], j[unknown])
    return lower, upper


def _keep_smallest(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Merge `values` (p,) into the ascending rows of `table` (n, k) that `rows` (p,) names, in place.

    They may be rounded up a little, so that row and value fit into one integer, which sorts far faster than two.
    """
    k = table.shape[1]
    smaller = values < table[rows, -1]
    rows, values = rows[smaller], values[smaller]
    touched = torch.unique(rows)
    bits = len(table).bit_length()  # that the number of a row takes
    known = _keys(touched.repeat_interleave(k), table[touched].flatten(), bits)
    keys = torch.cat([_keys(rows, values, bits), known]).sort().values
    first = torch.searchsorted(keys, touched << 63 - bits)
    nearest = keys[first[:, None] + torch.arange(k, device=table.device)]
    table[touched] = ((nearest & (1 << 63 - bits) - 1) << bits).view(torch.float64)


def _keys(rows: Tensor, values: Tensor, bits: int) -> Tensor:
    """(p,) int64 that order first by row, then by value: its bits as a float64 order as it does, if it is positive."""
    of_value = (values + 0.0).view(torch.int64)
    rounded_up = (of_value >> bits) + (of_value & (1 << bits) - 1).clamp(max=1)
    return (rows << 63 - bits) + rounded_up.clamp(max=_INFINITE >> bits)


Result = TypeVar("Result")

# One threshold serves all columns of a tile, so their reaches must be alike: within this factor.
_ALIKE = 1.5
# The rows of largest reach of a cell are a block of their own, or they would widen the reach of all.
_FAR_SHARE = 0.1
_MIN_BLOCK = 1024
_FEWEST_ROWS, _BLOCKS = 512, 16
# Pairs that are worth the work per portion, and that memory should hold at once.
_PORTION, _MOST = 2**16, 2**19

Advance = Callable[[int], None]
"""Told of progress: how many more pairs are done with."""

_Above = tuple[Tensor, Tensor, Tensor, Tensor]


def no_advance(_pairs: int) -> None:
    """Ignore progress."""


def sweep_within(
    points: Placed,
    sq_reach: Tensor,
    engine: Engine,
    workers: Workers,
    look: Callable[[Pairs], Result],
    advance: Advance = no_advance,
) -> Iterator[Result]:
    """Look at every pair of `points`, once, whose distance may be within the reach of one of the two.

    Several processes share the pairs, no two have the same: the caller gathers what they find.
    """
    # Tiles hold memory that only one thread can use at a time.
    tiles = PerThread(partial(engine.tiles, points.view.width, points.device))
    # Of the pairs inside a block, half are computed for nothing.
    limit = min(tiles.own.rows, max(_FEWEST_ROWS, len(points) // _BLOCKS))
    blocks = shared_blocks(points, sq_reach, limit, workers)
    place = torch.empty(len(points), dtype=torch.int64, device=points.device)
    for number, block in enumerate(blocks):
        place[block] = number
    order, bands = sq_reach.argsort(), bands_of(sq_reach)

    def search(number: int) -> list[Result]:
        block = blocks[number]
        wanted = _within_reach(points, sq_reach, points, sq_reach, block) & (place >= number)
        wanted[block] = True
        chunks = alike(order[wanted[order]], bands, tiles.own.columns)
        found = _search(points, block, sq_reach, points, chunks, sq_reach, tiles.own)
        return [look(pairs.select((pairs.i < pairs.j) | (place[pairs.j] > number))) for pairs in found]

    left, communicator = len(points), workers.communicator
    looked = workers.map(search, communicator.share(range(len(blocks))))
    for number, block in enumerate(blocks):
        if number % communicator.size == communicator.rank:
            yield from next(looked)
        left -= len(block)
        advance(len(block) * left + len(block) * (len(block) - 1) // 2)


def sweep_between(
    rows: Placed,
    columns: Placed,
    row_sq_reach: Tensor,
    column_sq_reach: Tensor,
    engine: Engine,
    workers: Workers,
    look: Callable[[Pairs], Result],
    advance: Advance = no_advance,
) -> Iterator[Result]:
    """Look at every pair of a row and a column whose distance may be within the reach of one of the two.

    Several processes share the rows.
    """
    tiles = PerThread(partial(engine.tiles, rows.view.width, rows.device))
    columns.cells  # noqa: B018 - computed once, before threads ask for them
    order, bands = column_sq_reach.argsort(), bands_of(column_sq_reach)

    def search(block: Tensor) -> list[Result]:
        wanted = _within_reach(columns, column_sq_reach, rows, row_sq_reach, block)
        chunks = alike(order[wanted[order]], bands, tiles.own.columns)
        found = _search(rows, block, row_sq_reach, columns, chunks, column_sq_reach, tiles.own)
        return [look(pairs) for pairs in found]

    blocks, communicator = shared_blocks(rows, row_sq_reach, tiles.own.rows, workers), workers.communicator
    looked = workers.map(search, communicator.share(blocks))
    for number, block in enumerate(blocks):
        if number % communicator.size == communicator.rank:
            yield from next(looked)
        advance(len(block) * len(columns))


def shared_blocks(points: Placed, sq_reach: Tensor, limit: int, workers: Workers) -> list[Tensor]:
    """The blocks of `blocks_of` on rank 0, since memory and rounding may differ on other machines."""
    return workers.from_rank0(blocks_of(points, sq_reach, limit))


def blocks_of(points: Placed, sq_reach: Tensor, limit: int) -> list[Tensor]:
    """All rows, in blocks of at most `limit`, each of one cell and of similar reach."""
    order = sq_reach.argsort(stable=True)
    if points.cells is None:
        return list(torch.split(order, limit))
    label = points.cells.label[order]
    order = order[label.argsort(stable=True)]
    blocks: list[Tensor] = []
    for cell in torch.split(order, label.bincount().tolist()):
        near = len(cell) - int(len(cell) * _FAR_SHARE) if len(cell) > _MIN_BLOCK else len(cell)
        for part in (cell[:near], cell[near:]):
            blocks += part.chunk(-(-len(part) // limit)) if len(part) else []
    return blocks


def _within_reach(
    columns: Placed, column_sq_reach: Tensor, rows: Placed, row_sq_reach: Tensor, block: Tensor
) -> Tensor:
    if rows.cells is None or columns.cells is None:
        return torch.ones(len(columns), dtype=torch.bool, device=columns.device)
    sq_reach = column_sq_reach.clamp(min=float(row_sq_reach[block].max()))
    reach = sq_reach.clamp(min=0).sqrt() * rows.frame.scale
    return columns.cells.within_reach(reach, rows.cells, block)


def _search(
    rows: Placed,
    block: Tensor,
    row_sq_reach: Tensor,
    columns: Placed,
    chunks: Iterable[Tensor],
    column_sq_reach: Tensor,
    tiles: Tiles,
) -> Iterator[Pairs]:
    """Pairs of `block` with `chunks` of columns."""
    search, found = rows.view.search(block, tiles), _Found(rows, columns)
    for chunk in chunks:
        reach = row_sq_reach[block].clamp(min=float(column_sq_reach[chunk].max()))
        lowest = (reach * (-0.5 * rows.frame.scale**2)).clamp_(min=NO_FLOOR)
        i, j, keys, doubts = _above(search, lowest, columns, chunk)
        found.add(block[i], chunk[j], keys, doubts)
        if found.size >= _PORTION:
            yield from found.portions(row_sq_reach, column_sq_reach)
    yield from found.portions(row_sq_reach, column_sq_reach)


def _above(search: ViewSearch, lowest: Tensor, columns: Placed, chunk: Tensor) -> _Above:
    """Pairs whose key may be at least `lowest`, in halves where there is too little memory for all of them."""
    try:
        return search.above(lowest, columns.view, chunk)
    except Exception as error:
        if len(chunk) < 2 or not is_out_of_memory(error):
            raise
    empty_device_cache(columns.device.type)
    emit_notice("oom-smaller-tiles", device=columns.device)
    half = len(chunk) // 2
    i, j, keys, doubts = _above(search, lowest, columns, chunk[:half])
    more_i, more_j, more_keys, more_doubts = _above(search, lowest, columns, chunk[half:])
    return (
        torch.cat([i, more_i]),
        torch.cat([j, more_j + half]),
        torch.cat([keys, more_keys]),
        torch.cat([doubts, more_doubts]),
    )


class _Found:
    """Pairs found in some tiles, until they are worth the work per portion."""

    def __init__(self, rows: Placed, columns: Placed) -> None:
        self._rows, self._columns = rows, columns
        self._parts: list[tuple[Tensor, ...]] = []
        self.size = 0

    def add(self, i: Tensor, j: Tensor, keys: Tensor, doubts: Tensor) -> None:
        """Rows, columns, keys, and the doubts about these."""
        self._parts.append((i, j, keys, doubts))
        self.size += len(i)

    def portions(self, row_sq_reach: Tensor, column_sq_reach: Tensor) -> Iterator[Pairs]:
        """What was added since the last call and is still in reach."""
        parts, self._parts, self.size = self._parts, [], 0
        if not parts:
            return
        everything = [torch.cat(part) for part in zip(*parts, strict=True)]
        del parts
        for i, j, keys, doubts in zip(*(torch.split(part, _MOST) for part in everything), strict=True):
            sq_lower = self._rows.sq_lower(keys + doubts)
            at = (sq_lower <= torch.maximum(row_sq_reach[i], column_sq_reach[j])).nonzero()[:, 0]
            near, other = i[at], j[at]
            sq_upper = self._rows.sq_lower((keys - doubts)[at]) + self._rows.sq_gap(
                near, self._columns, other
            )
            yield Pairs(near, other, sq_lower[at], sq_upper)


def bands_of(sq_reach: Tensor) -> Tensor:
    """Numbers of bands of similar reach, ascending with it."""
    band = (sq_reach.log() / math.log(_ALIKE)).floor_()
    return torch.where(sq_reach > 0, band, -torch.inf)


def alike(columns: Tensor, bands: Tensor, limit: int) -> Iterator[Tensor]:
    """Cut columns in ascending order of reach into chunks of at most `limit` and of similar reach."""
    _, sizes = torch.unique_consecutive(bands[columns], return_counts=True)
    for band in torch.split(columns, sizes.tolist()):
        yield from torch.split(band, limit)


class Visitor(Protocol):
    """What looks at pairs of a row and a column as they are found, on several threads at once."""

    @property
    def reaches(self) -> tuple[Tensor, Tensor]:
        """How far each row and each column reaches: (n,) and (m,) float64; -inf reaches nothing."""

    def look(self, pairs: Pairs) -> None:
        """Look at pairs, no pair twice: all that may be within the reach of one of the two, and perhaps others."""


def visit(
    rows: Placed,
    columns: Placed,
    visitors: Sequence[Visitor],
    *,
    engine: Engine = ONE_PROCESS,
    advance: Advance = no_advance,
) -> None:
    """Find the pairs of a row and a column that any of `visitors` wants to see, once for all of them."""
    of_rows, of_columns = zip(*(visitor.reaches for visitor in visitors), strict=True)

    def look(pairs: Pairs) -> None:
        for visitor in visitors:
            visitor.look(pairs)

    reaches = torch.stack(of_rows).amax(dim=0), torch.stack(of_columns).amax(dim=0)
    with plain_arithmetic(rows.device), Workers(rows.device, engine.communicator()) as workers:
        deque(sweep_between(rows, columns, *reaches, engine, workers, look, advance), maxlen=0)
