"""Candidate pairs by float32 matrix products in tiles, on CPU and CUDA tensors alike."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbours.bounds import Placed
from genpr.neighbours.engine import Nearest, Pairs
from genpr.runtime import memory_budget

# Products, masks, and the indices of all pairs if all of them are close, with room to spare.
_BYTES_PER_PAIR = 64
_MAX_PAIRS = 2**18


@dataclass(frozen=True, slots=True)
class TorchTiles:
    """Tiles of products small enough for the memory budget; their size never changes a result.

    Args:
        tile_rows: Rows per tile; None chooses by the memory budget.
        tile_columns: Columns per tile; None chooses by the memory budget.
    """

    tile_rows: int | None = None
    tile_columns: int | None = None

    def nearest(self, points: Placed, count: int) -> Nearest:
        """See `Engine.nearest`."""
        keys, index = [], []
        row_tiles, column_tiles = self._tiles(points, points)
        for rows in row_tiles:
            best = torch.empty(rows.stop - rows.start, 0, dtype=torch.float32, device=points.device)
            best_index = best.long()
            for columns in column_tiles:
                tile = _keys(points, rows, points, columns)
                _exclude_self(tile, rows, columns)
                tile, tile_index = tile.topk(min(count, tile.shape[1]), dim=1)
                best = torch.cat([best, tile], dim=1)
                best_index = torch.cat([best_index, tile_index + columns.start], dim=1)
                best, order = best.topk(min(count, best.shape[1]), dim=1)
                best_index = best_index.gather(1, order)
            keys.append(best)
            index.append(best_index)
        return listed(points, torch.cat(keys), torch.cat(index))

    def close_pairs(
        self, rows: Placed, columns: Placed, row_sq_reach: Tensor | None, column_sq_reach: Tensor | None
    ) -> Iterator[Pairs]:
        """See `Engine.close_pairs`."""
        if row_sq_reach is None and column_sq_reach is None:
            return
        row_threshold = _lowest_key(row_sq_reach, rows.scale)
        column_threshold = _lowest_key(column_sq_reach, rows.scale)
        row_tiles, column_tiles = self._tiles(rows, columns)
        for some_rows in row_tiles:
            for some_columns in column_tiles:
                keys = _keys(rows, some_rows, columns, some_columns)
                close = torch.zeros((), dtype=torch.bool, device=keys.device)
                if row_threshold is not None:
                    close = keys >= row_threshold[some_rows, None]
                if column_threshold is not None:
                    close = (keys >= column_threshold[some_columns]).logical_or_(close)
                found = close.nonzero()
                for start in range(0, len(found), _MAX_PAIRS):
                    i, j = found[start : start + _MAX_PAIRS].unbind(dim=1)
                    yield _pairs(rows, columns, i + some_rows.start, j + some_columns.start, keys[i, j])

    def _tiles(self, rows: Placed, columns: Placed) -> tuple[list[slice], list[slice]]:
        side = math.isqrt(memory_budget(rows.device) // _BYTES_PER_PAIR)
        return _slices(len(rows), self.tile_rows or side), _slices(len(columns), self.tile_columns or side)


def listed(points: Placed, keys: Tensor, index: Tensor) -> Nearest:
    """Rows `index` (n, c) of `points`, with the bounds that follow from their `keys` (n, c)."""
    sq_lower = points.sq_lower(keys)
    sq_slack = points.sq_slack(torch.arange(len(points), device=points.device))
    return Nearest(index, sq_lower, sq_lower + 2 * (sq_slack[:, None] + sq_slack[index]))


def _slices(n: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _keys(x: Placed, rows: slice, y: Placed, columns: slice) -> Tensor:
    """The tile of keys that `bounds` defines: large where rows are close."""
    keys = x.coordinates[rows] @ y.coordinates[columns].T
    keys -= x.half_floors[rows, None]
    keys -= y.half_floors[columns]
    return keys


def _exclude_self(tile: Tensor, rows: slice, columns: slice) -> None:
    start, stop = max(rows.start, columns.start), min(rows.stop, columns.stop)
    if start < stop:
        self_index = torch.arange(start, stop, device=tile.device)
        tile[self_index - rows.start, self_index - columns.start] = -torch.inf


def _lowest_key(sq_reach: Tensor | None, scale: float) -> Tensor | None:
    """The float32 key that no pair within reach falls below: rounding goes downwards."""
    if sq_reach is None:
        return None
    keys = (sq_reach * (-0.5 * scale**2)).float()
    return keys.nextafter(torch.full_like(keys, -torch.inf))


def _pairs(x: Placed, y: Placed, i: Tensor, j: Tensor, keys: Tensor) -> Pairs:
    sq_lower = x.sq_lower(keys)
    return Pairs(i, j, sq_lower, sq_lower + 2 * (x.sq_slack(i) + y.sq_slack(j)))
