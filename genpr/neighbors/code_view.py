"""Rows as small integers: what a search sees of them, with the bounds of `grid`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.engine import Tiles
from genpr.neighbors.grid import SHIFT, Grid, coarse_of
from genpr.neighbors.pieces import pieces_of
from genpr.neighbors.workers import Workers

_MOST_BIAS = 2.0**100  # far above every threshold, and far below what overflows


@dataclass(frozen=True, slots=True)
class CodeView:
    """Integer coordinates of n rows, and their floors as left and as right factors. See `grid`.

    Attributes:
        grid: What they are coordinates of.
        codes: (n, w) int8.
        slacks: (2, n) float64, infinite for rows that the grid cannot hold; their coordinates are zero.
        half_floors: (2, n) float32.
        bias: (n,) float32, in units of the grid: takes the shift of left factors back, and subtracts the half floor.
    """

    grid: Grid
    codes: Tensor
    slacks: Tensor
    half_floors: Tensor
    bias: Tensor

    @classmethod
    def of(cls, features: Tensor, centre: Tensor, scale: float, grid: Grid) -> CodeView:
        """Put (n, d) `features` on the grid."""
        n, device = len(features), features.device
        codes = torch.empty(n, grid.width, dtype=torch.int8, device=device)
        slacks = torch.empty(2, n, dtype=torch.float64, device=device)
        half_floors = torch.empty(2, n, dtype=torch.float32, device=device)
        bias = torch.empty(n, dtype=torch.float32, device=device)

        def put(rows: slice) -> None:
            piece = grid.place(features[rows], centre, scale)
            codes[rows], slacks[:, rows], half_floors[:, rows] = piece.codes, piece.slacks, piece.half_floors
            shift = SHIFT * piece.codes.sum(dim=1, dtype=torch.int32).double()
            bias[rows] = -shift - (piece.half_floors[1].double() / grid.unit).clamp_(min=-_MOST_BIAS)

        with Workers(device) as workers:
            deque(workers.map(put, pieces_of(features)), maxlen=0)
        return cls(grid, codes, slacks, half_floors, bias)

    def tensors(self) -> dict[str, Tensor]:
        """What `restored` needs beside the grid."""
        return {name: getattr(self, name) for name in ("codes", "slacks", "half_floors", "bias")}

    @classmethod
    def restored(cls, grid: Grid, tensors: dict[str, Tensor]) -> CodeView:
        """From `tensors`."""
        return cls(grid, *(tensors[name] for name in ("codes", "slacks", "half_floors", "bias")))

    @property
    def width(self) -> int:
        """Coordinates per row, w."""
        return self.codes.shape[1]

    def left(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32 for `rows` (p,): its inner products with `right` are keys, as far as float32 goes."""
        coarse = (coarse_of(self.codes[rows]).float() - SHIFT) * self.grid.unit
        floors = self.half_floors[0, rows, None]
        return torch.cat([coarse, -floors, torch.ones_like(floors)], dim=1)

    def right(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32. See `left`."""
        floors = self.half_floors[1, rows, None]
        return torch.cat([self.codes[rows].float(), torch.ones_like(floors), -floors], dim=1)

    def gap(self, rows: Tensor, others: object, columns: Tensor) -> Tensor:
        """What separates upper from lower bounds: `rows` of this view with `columns` of `others`, (p,) float64."""
        assert isinstance(others, CodeView)
        return 2 * (self.slacks[0, rows] + others.slacks[1, columns])

    def search(self, block: Tensor, tiles: Tiles) -> CodeSearch:
        """Ask which keys of the rows of `block` are large."""
        return CodeSearch(self, block, tiles)


class CodeSearch:
    """Integer products above a threshold per row."""

    def __init__(self, view: CodeView, block: Tensor, tiles: Tiles) -> None:
        self._left, self._unit, self._tiles = coarse_of(view.codes[block]), view.grid.unit, tiles
        self._half_floors = view.half_floors[0, block].double()

    def above(self, lowest: Tensor, columns: object, chunk: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As in `float_view`; no doubt is left."""
        assert isinstance(columns, CodeView)
        thresholds = ((lowest + self._half_floors) / self._unit).clamp_(min=-_MOST_BIAS)
        factors = self._left, columns.codes[chunk], columns.bias[chunk]
        i, j, value = self._tiles.at_least(*factors, _rounded_down(thresholds))
        keys = value.double() * self._unit - self._half_floors[i]
        return i, j, keys, torch.zeros_like(keys)


def _rounded_down(values: Tensor) -> Tensor:
    rounded = values.float()
    return rounded.where(rounded <= values, rounded.nextafter(torch.full_like(rounded, -torch.inf)))
