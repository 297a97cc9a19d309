"""Find all pairs of rows that may be within reach of each other, tile by tile, by the bounds of a frame."""

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
from genpr.memory import tile_budget
from genpr.neighbors.bounds import NO_FLOOR, bounds_by_product, bounds_of_differences
from genpr.neighbors.device_profile import profile_of
from genpr.neighbors.distance import free_for_less, sq_distances_at
from genpr.neighbors.engine import (
    ONE_PROCESS,
    Engine,
    PerThread,
    Tiles,
    Workers,
    plain_arithmetic,
)
from genpr.neighbors.engine_cuda import CodedSearch
from genpr.neighbors.index import IndexedPoints, ViewSearch
from genpr.runtime import is_out_of_memory


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
        """All pairs of all parts; without parts, no pairs on `device`."""
        if not parts:
            none = torch.empty(0, dtype=torch.int64, device=device)
            return cls(none, none, none.double(), none.double())
        fields = ("i", "j", "sq_lower", "sq_upper")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in fields))

    def all_gather(self, communicator: Communicator) -> list[Pairs]:
        """The pairs of every process, by rank."""
        fields = (communicator.all_gather(part) for part in (self.i, self.j, self.sq_lower, self.sq_upper))
        return [Pairs(*parts) for parts in zip(*fields, strict=True)]


_BYTES_PER_HELD = 64  # of pairs that are held, while they are joined
_INFINITE = 0x7FF << 52  # the bits of an infinite float64


@dataclass(slots=True)
class ClosestPairs:
    """The closest pairs found so far."""

    sq_reach: Tensor  # (n,) float64, within which the row has k others; -inf for rows that need none
    smallest: Tensor  # (n, k) float64, ascending: smallest upper bounds to distinct rows found
    _waiting: list[Pairs] = field(default_factory=list)
    _kept: list[Pairs] = field(default_factory=list)

    @classmethod
    def empty(cls, sq_reach: Tensor, k: int) -> ClosestPairs:
        """No pairs yet."""
        n = len(sq_reach)
        return cls(sq_reach, torch.full((n, k), torch.inf, dtype=torch.float64, device=sq_reach.device))

    def add(self, pairs: Pairs) -> None:
        """Add pairs, none of which was added before."""
        self._waiting.append(pairs)
        profile = profile_of(self.sq_reach.device)
        held = sum(map(len, self._waiting))
        if held < profile.min_held:
            return
        worth = min(profile.held_per_row * len(self.sq_reach), profile.max_held)
        if held >= min(worth, tile_budget(self.sq_reach.device) // _BYTES_PER_HELD):
            self._settle()

    def pairs(self) -> Pairs:
        """The added pairs that are still within reach of one of their rows."""
        self._settle()
        parts = [in_reach(part, self.sq_reach) for part in self._kept]
        self._kept.clear()
        return Pairs.joined(parts, self.sq_reach.device)

    def _settle(self) -> None:
        pairs = in_reach(Pairs.joined(self._waiting, self.sq_reach.device), self.sq_reach)
        self._waiting.clear()
        if pairs.i.is_cuda:
            _keep_smallest_of_all(self.smallest, torch.cat([pairs.i, pairs.j]), pairs.sq_upper.repeat(2))
        else:
            for rows in (pairs.i, pairs.j):
                _keep_smallest(self.smallest, rows, pairs.sq_upper)
        torch.minimum(self.sq_reach, self.smallest[:, -1], out=self.sq_reach)
        self._kept.append(in_reach(pairs, self.sq_reach))


def in_reach(pairs: Pairs, sq_reach: Tensor) -> Pairs:
    """The pairs of one set that may be within the reach of one of their rows."""
    return pairs.select(pairs.sq_lower <= torch.maximum(sq_reach[pairs.i], sq_reach[pairs.j]))


def bounds_of_pairs(x: Tensor, y: Tensor, i: Tensor, j: Tensor, engine: Engine) -> tuple[Tensor, Tensor]:
    """Tight bounds on the squared distances between rows `i` of `x` and `j` of `y`: lower and upper, (p,) float64."""
    if bounds := bounds_by_product(x, y, i, j):
        return bounds
    lower, upper = bounds_of_differences(engine.sq_differences(x, y, i, j), x.shape[1])
    unknown = upper.isinf().nonzero()[:, 0]
    lower[unknown] = upper[unknown] = sq_distances_at(x, y, i[unknown], j[unknown])
    return lower, upper


def _keep_smallest(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Merge `values` (p,) into the ascending rows of `table` (n, k) given by `rows` (p,), in place.

    Values may be rounded up a little, so that row and value fit into one integer, which sorts far faster than two keys.
    """
    k = table.shape[1]
    smaller = values < table[rows, -1]
    rows, values = rows[smaller], values[smaller]
    touched = torch.unique(rows)
    bits = len(table).bit_length()  # of a row number
    known = _keys(touched.repeat_interleave(k), table[touched].flatten(), bits)
    keys = torch.cat([_keys(rows, values, bits), known]).sort().values
    first = torch.searchsorted(keys, touched << 63 - bits)
    nearest = keys[first[:, None] + torch.arange(k, device=table.device)]
    table[touched] = ((nearest & (1 << 63 - bits) - 1) << bits).view(torch.float64)


def _keep_smallest_of_all(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """As `_keep_smallest`, in one sort of all values, without a synchronization with the GPU."""
    (n, k), bits = table.shape, len(table).bit_length()
    every = torch.arange(n, device=table.device)
    known = _keys(every.repeat_interleave(k, output_size=n * k), table.flatten(), bits)
    keys = torch.cat([_keys(rows, values, bits), known]).sort().values
    first = torch.searchsorted(keys, every << 63 - bits)
    nearest = keys[first[:, None] + every[:k]]
    table.copy_(((nearest & (1 << 63 - bits) - 1) << bits).view(torch.float64))


def _keys(rows: Tensor, values: Tensor, bits: int) -> Tensor:
    """(p,) int64 that sort by row, then by value: the bits of positive float64 numbers sort as the numbers."""
    of_value = (values + 0.0).view(torch.int64)
    rounded_up = (of_value >> bits) + (of_value & (1 << bits) - 1).clamp(max=1)
    return (rows << 63 - bits) + rounded_up.clamp(max=_INFINITE >> bits)


Result = TypeVar("Result")

# All columns of a tile share one threshold, so their reaches must be similar: within this factor.
_BAND_RATIO = 1.5
_BAND_RATIO_OF_CODES = 1.1  # a tile of codes has many bands, each of which costs one comparison
# The rows with the largest reach of a cell form a separate block, or they would increase the reach of all.
_FAR_SHARE = 0.1
_MIN_BLOCK = 1024
_MAX_BEYOND = 4096  # one row in this many may exceed the range of codes; all of its pairs are verified

Advance = Callable[[int], None]
"""Progress callback, called with the number of pairs processed since the last call."""

_Bands = list[Tensor]
"""Columns of a tile, in parts of similar reach; only a `CodedView` allows more than one."""


def no_advance(_pairs: int) -> None:
    """Ignore progress."""


def sweep_within(
    points: IndexedPoints,
    sq_reach: Tensor,
    engine: Engine,
    workers: Workers,
    consume: Callable[[Pairs], Result],
    advance: Advance = no_advance,
) -> Iterator[Result]:
    """Yield results of `consume` on all pairs of `points` that may be within the reach of one of their rows, each once.

    Several processes divide the pairs among them; the caller gathers the results.
    """
    # Each tile holds memory for one thread.
    tiles = PerThread(partial(engine.tiles, points.view.width, points.device))
    # Half of the products inside a block are redundant.
    profile, communicator = profile_of(points.device), workers.communicator
    limit = min(tiles.own.rows, max(profile.min_block_rows, len(points) // profile.blocks))
    blocks = shared_blocks(points, sq_reach, limit, workers)
    numbers = communicator.share(range(len(blocks)))
    place = torch.empty(len(points), dtype=torch.int64, device=points.device)
    for number, block in enumerate(blocks):
        place[block] = number
    order, bands = sq_reach.argsort(), band_numbers(sq_reach, _band_ratio(points))
    found = PerThread(lambda: _PendingPairs(points, points, sq_reach, sq_reach))
    if points.is_coded:
        order = torch.cat(blocks)
        sizes = band_sizes(bands[order])

    def search(number: int) -> list[Result]:
        block = blocks[number]
        if points.is_coded:
            chunks = split_bands(order, sizes, sum(map(len, blocks[:number])), tiles.own.columns)
        else:
            wanted = _within_reach(points, sq_reach, points, sq_reach, block) & (place >= number)
            wanted[block] = True
            chunks = ([chunk] for chunk in split_by_band(order[wanted[order]], bands, tiles.own.columns))
        is_last = not points.is_coded or workers.count > 1 or number == numbers[-1]
        return [
            consume(_in_one_direction(pairs, place))
            for pairs in _search(block, chunks, tiles.own, found.own, is_last)
        ]

    left = len(points)
    results = workers.map(search, numbers)
    for number, block in enumerate(blocks):
        if number % communicator.size == communicator.rank:
            yield from next(results)
        left -= len(block)
        advance(len(block) * left + len(block) * (len(block) - 1) // 2)


def sweep_between(
    rows: IndexedPoints,
    columns: IndexedPoints,
    row_sq_reach: Tensor,
    column_sq_reach: Tensor,
    engine: Engine,
    workers: Workers,
    consume: Callable[[Pairs], Result],
    advance: Advance = no_advance,
) -> Iterator[Result]:
    """Yield results of `consume` on all pairs of a row and a column that may be within the reach of one of the two.

    Several processes divide the rows among them.
    """
    rows, columns = in_common_codes(rows, columns)
    tiles = PerThread(partial(engine.tiles, rows.view.width, rows.device))
    columns.cells  # noqa: B018 - computed once, before threads ask for them
    order, bands = column_sq_reach.argsort(), band_numbers(column_sq_reach, _band_ratio(rows))
    blocks, communicator = shared_blocks(rows, row_sq_reach, tiles.own.rows, workers), workers.communicator
    numbers = communicator.share(range(len(blocks)))
    found = PerThread(lambda: _PendingPairs(rows, columns, row_sq_reach, column_sq_reach))
    sizes = band_sizes(bands[order]) if rows.is_coded else []

    def search(number: int) -> list[Result]:
        block = blocks[number]
        if rows.is_coded:
            chunks = split_bands(order, sizes, 0, tiles.own.columns)
        else:
            wanted = _within_reach(columns, column_sq_reach, rows, row_sq_reach, block)
            chunks = ([chunk] for chunk in split_by_band(order[wanted[order]], bands, tiles.own.columns))
        is_last = not rows.is_coded or workers.count > 1 or number == numbers[-1]
        return [consume(pairs) for pairs in _search(block, chunks, tiles.own, found.own, is_last)]

    results = workers.map(search, numbers)
    for number, block in enumerate(blocks):
        if number % communicator.size == communicator.rank:
            yield from next(results)
        advance(len(block) * len(columns))


def shared_blocks(points: IndexedPoints, sq_reach: Tensor, limit: int, workers: Workers) -> list[Tensor]:
    """The blocks of `blocks_of` on rank 0, since memory and rounding may differ on other machines."""
    return workers.from_rank0(blocks_of(points, sq_reach, limit))


def blocks_of(points: IndexedPoints, sq_reach: Tensor, limit: int) -> list[Tensor]:
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
    columns: IndexedPoints, column_sq_reach: Tensor, rows: IndexedPoints, row_sq_reach: Tensor, block: Tensor
) -> Tensor:
    if rows.cells is None or columns.cells is None:
        return torch.ones(len(columns), dtype=torch.bool, device=columns.device)
    sq_reach = column_sq_reach.clamp(min=float(row_sq_reach[block].max()))
    reach = sq_reach.clamp(min=0).sqrt() * rows.frame.scale
    return columns.cells.within_reach(reach, rows.cells, block)


def _search(
    block: Tensor, chunks: Iterable[_Bands], tiles: Tiles, found: _PendingPairs, is_last: bool
) -> Iterator[Pairs]:
    """Pairs of `block` with `chunks` of columns, and those `found` before; unless `is_last`, a few are kept for later."""
    rows, columns, profile = found.rows, found.columns, profile_of(block.device)
    search = rows.view.search(block, tiles)
    for bands in chunks:
        farthest = torch.stack([found.column_sq_reach[band].amax() for band in bands])
        reach = torch.maximum(found.row_sq_reach[block], farthest[:, None])
        lowest = (reach * (-0.5 * rows.frame.scale**2)).clamp_(min=NO_FLOOR)
        i, j, keys, doubts = _above(search, lowest, columns, bands)
        found.add(block[i], torch.cat(bands)[j], keys, doubts)
        if found.size >= profile.portion:
            yield from found.portions()
    if is_last:
        yield from found.portions()


def _in_one_direction(pairs: Pairs, place: Tensor) -> Pairs:
    """The pairs of one set in one direction, by the number `place` (n,) of the block of each row."""
    i, j = place[pairs.i], place[pairs.j]
    return pairs.select((i < j) | ((i == j) & (pairs.i < pairs.j)))


def _above(
    search: ViewSearch | CodedSearch, lowest: Tensor, columns: IndexedPoints, bands: _Bands
) -> tuple[Tensor, ...]:
    """Pairs whose key may be at least `lowest` (b, r); in two halves if memory does not suffice."""
    try:
        return search.above(lowest, columns.view, *bands)
    except Exception as error:
        if sum(map(len, bands)) < 2 or not is_out_of_memory(error):
            raise
    free_for_less(columns.device)
    if len(bands) > 1:
        half = len(bands) // 2
        parts = (lowest[:half], bands[:half]), (lowest[half:], bands[half:])
    else:
        half = len(bands[0]) // 2
        parts = (lowest, [bands[0][:half]]), (lowest, [bands[0][half:]])
    first, second = (_above(search, low, columns, group) for low, group in parts)
    i, j, *others = second
    shifted = i, j + sum(map(len, parts[0][1])), *others
    return tuple(torch.cat(both) for both in zip(first, shifted, strict=True))


class _PendingPairs:
    """Pairs found in some tiles, collected until there is a portion of them."""

    def __init__(
        self, rows: IndexedPoints, columns: IndexedPoints, row_sq_reach: Tensor, column_sq_reach: Tensor
    ) -> None:
        self.rows, self.columns = rows, columns
        # These shrink during the sweep.
        self.row_sq_reach, self.column_sq_reach = row_sq_reach, column_sq_reach
        self._parts: list[tuple[Tensor, ...]] = []
        self.size = 0

    def add(self, i: Tensor, j: Tensor, keys: Tensor, doubts: Tensor) -> None:
        """Add rows, columns, keys, and doubts of the keys."""
        self._parts.append((i, j, keys, doubts))
        self.size += len(i)

    def portions(self) -> Iterator[Pairs]:
        """The pairs added since the last call that are still in reach."""
        parts, self._parts, self.size = self._parts, [], 0
        if not parts:
            return
        everything = [torch.cat(part) for part in zip(*parts, strict=True)]
        del parts
        most = profile_of(everything[0].device).max_pairs
        for part in zip(*(torch.split(each, most) for each in everything), strict=True):
            yield from self._in_reach(part)

    def _in_reach(self, part: tuple[Tensor, ...]) -> Iterator[Pairs]:
        """The pairs of a part that are in reach; in two halves if memory does not suffice."""
        try:
            pairs = self._bounded(*part)
        except Exception as error:
            if len(part[0]) < 2 or not is_out_of_memory(error):
                raise
            pairs = None
        if pairs is not None:
            yield pairs
            return
        free_for_less(part[0].device)
        for half in zip(*(each.tensor_split(2) for each in part), strict=True):
            yield from self._in_reach(half)

    def _bounded(self, i: Tensor, j: Tensor, keys: Tensor, doubts: Tensor) -> Pairs:
        sq_lower = self.rows.sq_lower(keys + doubts)
        at = (sq_lower <= torch.maximum(self.row_sq_reach[i], self.column_sq_reach[j])).nonzero()[:, 0]
        near, other = i[at], j[at]
        sq_upper = self.rows.sq_lower((keys - doubts)[at]) + self.rows.sq_gap(near, self.columns, other)
        return Pairs(near, other, sq_lower[at], sq_upper)


def band_numbers(sq_reach: Tensor, ratio: float = _BAND_RATIO) -> Tensor:
    """Numbers of the bands of similar reach, within a factor `ratio`, that rows belong to."""
    band = (sq_reach.log() / math.log(ratio)).floor_()
    return torch.where(sq_reach > 0, band, -torch.inf)


def split_by_band(columns: Tensor, bands: Tensor, limit: int) -> Iterator[Tensor]:
    """Cut columns in ascending order of reach into chunks of at most `limit` and of similar reach."""
    for band in torch.split(columns, band_sizes(bands[columns])):
        yield from torch.split(band, limit)


def _band_ratio(points: IndexedPoints) -> float:
    return _BAND_RATIO_OF_CODES if points.is_coded else _BAND_RATIO


def band_sizes(bands: Tensor) -> list[int]:
    """Number of consecutive columns in each of their `bands` (c,)."""
    _, sizes = torch.unique_consecutive(bands, return_counts=True)
    counts: list[int] = sizes.tolist()
    return counts


def split_bands(columns: Tensor, sizes: Sequence[int], start: int, limit: int) -> Iterator[_Bands]:
    """Cut columns from `start` on, in bands of `sizes`, into lists of at most `limit` columns, band by band."""
    end, room, parts = 0, limit, _Bands()
    for size in sizes:
        end += size
        while start < end:
            parts.append(columns[start : min(end, start + room)])
            start += len(parts[-1])
            room -= len(parts[-1])
            if not room:
                yield parts
                room, parts = limit, _Bands()
    if parts:
        yield parts


def in_common_codes(rows: IndexedPoints, columns: IndexedPoints) -> tuple[IndexedPoints, IndexedPoints]:
    """Two sets of one frame, both with float32 codes if float16 cannot represent some of their rows."""
    if rows.frame.codes != torch.float16:
        return rows, columns
    beyond = torch.cat([rows.view.slack.isinf(), columns.view.slack.isinf()])
    if int(beyond.sum()) <= len(beyond) // _MAX_BEYOND:
        return rows, columns
    return rows.recoded(torch.float32), columns.recoded(torch.float32)


class PairConsumer(Protocol):
    """Consumer of pairs of a row and a column as they are found, called from several threads."""

    @property
    def reaches(self) -> tuple[Tensor, Tensor]:
        """Squared reach of each row and each column, (n,) and (m,) float64; -inf reaches nothing."""

    def consume(self, pairs: Pairs) -> None:
        """Process pairs, none twice: all that may be within the reach of one of the two, and perhaps others."""


def scan_pairs(
    rows: IndexedPoints,
    columns: IndexedPoints,
    consumers: Sequence[PairConsumer],
    *,
    engine: Engine = ONE_PROCESS,
    advance: Advance = no_advance,
) -> None:
    """Find the pairs of a row and a column within the reach of any of `consumers`, in one pass for all of them."""
    of_rows, of_columns = zip(*(consumer.reaches for consumer in consumers), strict=True)

    def consume(pairs: Pairs) -> None:
        for consumer in consumers:
            consumer.consume(pairs)

    reaches = torch.stack(of_rows).amax(dim=0), torch.stack(of_columns).amax(dim=0)
    inputs = {"features": rows, "queries": columns}
    with plain_arithmetic(rows.device), engine.workers(rows.device, **inputs) as workers:
        deque(sweep_between(rows, columns, *reaches, engine, workers, consume, advance), maxlen=0)
