"""Find all pairs of rows that may be within reach of each other, tile by tile, by the bounds of a projection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from genpr.memory import ALWAYS_HELD, tile_budget
from genpr.neighbors.coordinates import Index, count_of, part_of
from genpr.neighbors.engine import PerThread, Search, Tiles, in_steps, places, profile_of
from genpr.neighbors.index import IndexedPoints


class Pairs(NamedTuple):
    """Pairs of a row i and a column j with bounds on their squared distances, all (p,)."""

    i: Tensor
    j: Tensor
    sq_lower: Tensor
    sq_upper: Tensor

    def at(self, index: Index) -> Pairs:
        """The pairs at `index`."""
        return Pairs(*(part_of(each, index) for each in self))


_BYTES_PER_HELD = 64  # of pairs that are held, while they are joined
_INFINITE = 0x7FF << 52  # the bits of an infinite float64


@dataclass(slots=True)
class ClosestPairs:
    """The closest pairs found so far."""

    sq_reach: Tensor  # (n,) float64, within which the row has k others; -inf for rows that need none
    smallest: Tensor  # (n, k) float64, ascending: smallest upper bounds to distinct rows found
    is_within: bool  # whether pairs are those of one set, and count for both of their rows
    _kept: list[Pairs]
    _waiting: list[Pairs] = field(default_factory=list)
    _held: int = 0  # pairs that wait

    @classmethod
    def empty(cls, sq_reach: Tensor, k: int, *, is_within: bool = True) -> ClosestPairs:
        """No pairs yet."""
        none = torch.empty(0, dtype=torch.int64, device=sq_reach.device)
        smallest = sq_reach.new_full((len(sq_reach), k), torch.inf)
        return cls(sq_reach, smallest, is_within, [Pairs(none, none, none.double(), none.double())])

    def add(self, pairs: Pairs) -> None:
        """Add pairs, none of which was added before."""
        self._waiting.append(pairs)
        self._held += len(pairs.i)
        profile = profile_of(self.sq_reach.device)
        if self._held < profile.min_held:
            return
        held = self._held * _BYTES_PER_HELD
        is_worth = self._held >= min(profile.held_per_row * len(self.sq_reach), profile.max_held)
        if is_worth or (held > ALWAYS_HELD and held >= tile_budget(self.sq_reach.device)):
            self.pairs()

    def pairs(self) -> Pairs:
        """The added pairs that are still within reach of one of their rows, after it shrank to the k nearest added."""
        if self._waiting:
            pairs = self.in_reach(Pairs(*map(torch.cat, zip(*self._waiting, strict=True))))
            self._waiting.clear()
            self._held = 0
            rows = torch.cat([pairs.i, pairs.j]) if self.is_within else pairs.i
            _keep_smallest(self.smallest, rows, pairs.sq_upper.repeat(1 + self.is_within))
            torch.minimum(self.sq_reach, self.smallest[:, -1], out=self.sq_reach)
            self._kept.append(pairs)
        self._kept = list(map(self.in_reach, self._kept))
        self._kept = [Pairs(*map(torch.cat, zip(*self._kept, strict=True)))]
        return self._kept[0]

    def in_reach(self, pairs: Pairs) -> Pairs:
        """The pairs that may be within the reach of one of their rows."""
        reach = self.sq_reach.index_select(0, pairs.i)
        if self.is_within:
            reach = torch.maximum(reach, self.sq_reach.index_select(0, pairs.j))
        return pairs.at(places(pairs.sq_lower <= reach))


def _keep_smallest(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Merge `values` (p,) into the ascending rows of `table` (n, k) given by `rows` (p,), in place.

    Values may be rounded up a little, so that row and value fit into one integer, which sorts far faster than two keys.
    """
    (n, k), bits = table.shape, len(table).bit_length()  # of a row number
    if table.is_cuda:  # all rows, without a synchronization with the GPU
        touched = torch.arange(n, device=table.device)
    else:
        at = places(values < table[:, -1].index_select(0, rows))
        rows, values = rows.index_select(0, at), values.index_select(0, at)
        touched = torch.unique(rows)
    rows = torch.cat([rows, touched.repeat_interleave(k, output_size=len(touched) * k)])
    # The bits of positive float64 numbers sort as the numbers.
    of_value = (torch.cat([values, table[touched].flatten()]) + 0.0).view(torch.int64)
    rounded_up = (of_value >> bits) + (of_value & (1 << bits) - 1).clamp(max=1)
    keys = ((rows << 63 - bits) + rounded_up.clamp(max=_INFINITE >> bits)).sort().values
    first = torch.searchsorted(keys, touched << 63 - bits)
    nearest = keys[first[:, None] + torch.arange(k, device=table.device)]
    table[touched] = ((nearest & (1 << 63 - bits) - 1) << bits).view(torch.float64)


Result = TypeVar("Result")

# The rows with the largest reach of a cluster form a separate block, or they would increase the reach of all.
_FAR_SHARE = 0.1
_MIN_BLOCK = 1024
_MAX_BEYOND = 4096  # one row in this many may exceed the range of rounded rows; all of its pairs are verified


def sweep(
    rows: IndexedPoints,
    sq_reach: Tensor,
    search: Search,
    consume: Callable[[Pairs], Result],
    others: tuple[IndexedPoints, Tensor] | None = None,
) -> Iterator[Result]:
    """Yield results of `consume` on all pairs that may be within the reach of one of their two rows, each once.

    Pairs are those of `rows` with each other: block after block of them with the same and with later blocks. With `others`, a set
    and its squared reach, they are those of a row and a row of that set. Several processes divide the blocks among them; the
    caller gathers the results.
    """
    columns, column_sq_reach = (rows, sq_reach) if others is None else others
    if others is not None and rows.projection.rounding == torch.float16:
        rows, columns = in_common_rounding(rows, columns)
    n, device = len(rows.features), rows.features.device
    # Each tile holds memory for one thread.
    tiles = PerThread(partial(search.engine.tiles, rows.coordinates.width, device, n, len(columns.features)))
    profile, limit = profile_of(device), tiles.own.rows
    if others is None:  # half of the products inside a block are redundant
        limit = min(limit, max(profile.min_block_rows, n // profile.blocks))
    else:
        limit = min(limit, search.rows_per_thread(n, len(columns.features), rows.coordinates.width))
    blocks = shared_blocks(rows, sq_reach, limit, search)
    numbers, starts = search.communicator.share(range(len(blocks))), [0, *accumulate(map(count_of, blocks))]
    order = place = None
    if others is None and rows.clusters is not None:
        order = torch.cat([block for block in blocks if isinstance(block, Tensor)])
        place = torch.empty_like(order).scatter_(0, order, torch.arange(n, device=device))
    elif others is None:
        place = torch.arange(n, device=device)
    terms = float(n * len(columns.features) * rows.coordinates.width)
    collects = not search.divides(len(numbers), terms)
    # Reaches shrink during the sweep.
    scanners = PerThread(partial(_Scanner, rows, columns, sq_reach, column_sq_reach, place, search))

    def scan(number: int) -> list[Result]:
        block, some = blocks[number], slice(starts[number] if others is None else 0, len(columns.features))
        tested: Index = some if order is None else order[some]
        if isinstance(block, Tensor) and rows.clusters is not None and columns.clusters is not None:
            reach = column_sq_reach.clamp(min=float(sq_reach[block].max())).clamp(min=0).sqrt()
            wanted = columns.clusters.within_reach(reach * rows.projection.scale, rows.clusters, block)
            if others is None:
                wanted[block] = True
            tested = places(wanted) if order is None else order[some][wanted[order[some]]]
        is_last = not collects or number == numbers[-1]
        return list(map(consume, scanners.own.scan(block, tested, tiles.own, is_last)))

    results, left = search.map(scan, numbers, terms), n
    for number, block in enumerate(blocks):
        if number % search.communicator.size == search.communicator.rank:
            yield from next(results)
        size = count_of(block)
        left -= size
        search.advance(
            size * left + size * (size - 1) // 2 if others is None else size * len(columns.features)
        )


def row_blocks(points: IndexedPoints, sq_reach: Tensor, limit: int) -> list[Index]:
    """All rows, in blocks of at most `limit`: consecutive rows, or rows of one cluster and of similar reach."""
    n = len(points.features)
    if points.clusters is None:
        return [slice(start, min(start + limit, n)) for start in range(0, n, limit)]
    order = sq_reach.argsort(stable=True)
    label = points.clusters.label[order]
    order = order[label.argsort(stable=True)]
    blocks: list[Index] = []
    for members in torch.split(order, label.bincount().tolist()):
        near = len(members) - int(len(members) * _FAR_SHARE) if len(members) > _MIN_BLOCK else len(members)
        for some in (members[:near], members[near:]):
            blocks += some.chunk(-(-len(some) // limit)) if len(some) else []
    return blocks


def shared_blocks(points: IndexedPoints, sq_reach: Tensor, limit: int, search: Search) -> list[Index]:
    """Those of rank 0 on every rank, since memory and rounding may differ on other machines."""
    blocks = row_blocks(points, sq_reach, search.agreed(limit))
    if points.clusters is None:
        return blocks
    return [*search.broadcast([block for block in blocks if isinstance(block, Tensor)])]


@dataclass(slots=True)
class _Scanner:
    """Finds the pairs of blocks of rows, and collects those of several tiles until there are enough for a batch."""

    rows: IndexedPoints
    columns: IndexedPoints
    row_sq_reach: Tensor
    column_sq_reach: Tensor
    # (n,) of each row in all blocks, where rows are searched among themselves: a pair is found by the row that comes first
    place: Tensor | None
    search: Search
    waiting: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    held: int = 0  # pairs that wait

    @property
    def device(self) -> torch.device:
        """Where pairs are found."""
        return self.row_sq_reach.device

    def scan(self, block: Index, columns: Index, tiles: Tiles, is_last: bool) -> Iterator[Pairs]:
        """Pairs of `block` with `columns`, and those kept; unless `is_last`, a few are kept for later."""
        keys_of_block, most = self.rows.coordinates.keys_of(block, tiles), profile_of(self.device).min_pairs
        lowest = self.rows.coordinates.lowest
        of_columns, is_same = lowest(self.column_sq_reach), self.row_sq_reach is self.column_sq_reach
        of_rows = of_columns[block] if is_same else lowest(self.row_sq_reach[block])

        def find(some: slice) -> None:
            tile = part_of(columns, some)
            with self.search.together():
                keys = keys_of_block(self.columns.coordinates, tile)
            i, j, keys = tiles.at_least(keys, of_rows, of_columns[tile])
            self.waiting.append((part_of(block, i), part_of(tile, j), keys))
            self.held += len(i)

        for _ in in_steps(find, count_of(columns), tiles.columns, self.device):
            if self.held >= most:
                yield from self._in_reach()
        if is_last and self.held:
            yield from self._in_reach()

    def _in_reach(self) -> Iterator[Pairs]:
        """The pairs found since the last call that are still in reach, in batches."""
        i, j, keys = map(torch.cat, zip(*self.waiting, strict=True))
        self.waiting.clear()
        self.held = 0

        def in_reach(batch: slice) -> Pairs:
            row, column = i[batch], j[batch]
            sq_lower = self.rows.coordinates.sq_lower(keys[batch])
            near = sq_lower <= torch.maximum(
                self.row_sq_reach.index_select(0, row), self.column_sq_reach.index_select(0, column)
            )
            if self.place is not None:
                near &= self.place.index_select(0, row) < self.place.index_select(0, column)
            at = places(near)
            row, column, sq_lower = (each.index_select(0, at) for each in (row, column, sq_lower))
            gap = self.rows.coordinates.sq_gap(row, self.columns.coordinates, column)
            return Pairs(row, column, sq_lower, sq_lower + gap)

        return in_steps(in_reach, len(i), profile_of(self.device).max_pairs, self.device)


def in_common_rounding(rows: IndexedPoints, columns: IndexedPoints) -> tuple[IndexedPoints, IndexedPoints]:
    """Two sets in float16, both rounded to float32 if float16 cannot represent some of their rows."""
    beyond = torch.cat([rows.coordinates.slack.isinf(), columns.coordinates.slack.isinf()])
    if int(beyond.sum()) <= len(beyond) // _MAX_BEYOND:
        return rows, columns
    projection = replace(rows.projection, rounding=torch.float32)
    return projection.place(rows.features), projection.place(columns.features)


class PairConsumer(Protocol):
    """Consumer of pairs of a row and a column as they are found, called from several threads."""

    @property
    def reaches(self) -> tuple[Tensor, Tensor]:
        """Squared reach of each row and each column, (n,) and (m,) float64; -inf reaches nothing."""

    def consume(self, pairs: Pairs) -> None:
        """Process pairs, none twice: all that may be within the reach of one of the two, and perhaps others."""
