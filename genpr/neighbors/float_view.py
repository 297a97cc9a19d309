"""Rows as float32 coordinates: what a search sees of them, with the bounds of `bounds`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.bounds import NO_FLOOR, basis_tolerance, represent, slack_factor
from genpr.neighbors.engine import Tiles
from genpr.neighbors.pieces import pieces_of
from genpr.neighbors.workers import Workers

# Coordinates up to this many bytes per set are kept; more are computed again whenever a tile needs them.
_KEPT_BYTES = 192 * 2**20


@dataclass(frozen=True, slots=True)
class FloatView:
    """Coordinates q of n rows, and their floors. See `bounds`.

    Attributes:
        features: (n, d) float32 or float16, the original values.
        centre: (d,) float32.
        scale: As in `Frame`.
        width: Coordinates per row, w.
        augmented: q, -half_floors and 1, (n, w + 2) float32; None where they are too many to keep.
        half_floors: Half of |q|^2 - slack, (n,) float32.
        slack: (n,) float64, infinite for rows that the frame cannot hold; their coordinates are zero.
        residual: (n,) float64, at least the norm of what the coordinates leave out.
    """

    features: Tensor
    centre: Tensor
    scale: float
    width: int
    augmented: Tensor | None
    half_floors: Tensor
    slack: Tensor
    residual: Tensor

    @classmethod
    def of(cls, features: Tensor, centre: Tensor, scale: float, basis: Tensor | None) -> FloatView:
        """Coordinates of (n, d) `features` in the directions of (d, w - 1) `basis`, or all of them."""
        n, device = len(features), features.device
        width = _width(centre, basis)
        kept = n * width * 4 <= _KEPT_BYTES or basis is not None
        augmented = torch.empty(n, width + 2, dtype=torch.float32, device=device) if kept else None
        slack, residual = torch.empty(2, n, dtype=torch.float64, device=device)
        half_floors = torch.empty(n, dtype=torch.float32, device=device)
        tolerance = 0.0 if basis is None else basis_tolerance(basis)

        def put(rows: slice) -> None:
            piece = represent(features[rows], centre, scale, basis, tolerance)
            slack[rows], residual[rows] = piece.slack, piece.residual
            half_floors[rows] = _half_floors(piece.coordinates, piece.slack)
            if augmented is not None:
                augmented[rows, :-2] = piece.coordinates

        with Workers(device) as workers:
            deque(workers.map(put, pieces_of(features)), maxlen=0)
        if augmented is not None:
            augmented[:, -2], augmented[:, -1] = -half_floors, 1
        return cls(features, centre, scale, width, augmented, half_floors, slack, residual)

    def tensors(self) -> dict[str, Tensor]:
        """What `restored` needs beside features, centre and scale."""
        named = {"half_floors": self.half_floors, "slack": self.slack, "residual": self.residual}
        return named if self.augmented is None else {**named, "augmented": self.augmented}

    @classmethod
    def restored(
        cls, features: Tensor, centre: Tensor, scale: float, basis: Tensor | None, tensors: dict[str, Tensor]
    ) -> FloatView:
        """From `tensors`."""
        width = _width(centre, basis)
        rest = (tensors["half_floors"], tensors["slack"], tensors["residual"])
        return cls(features, centre, scale, width, tensors.get("augmented"), *rest)

    @property
    def coordinates(self) -> Tensor:
        """q, (n, w) float32; kept for every frame with a basis."""
        if self.augmented is None:
            raise AssertionError("the coordinates of this set are too many to keep")
        return self.augmented[:, :-2]

    def left(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32 for `rows` (p,): its inner products with `right` are keys."""
        if self.augmented is not None:
            return self.augmented[rows]
        out = torch.empty(len(rows), self.width + 2, dtype=torch.float32, device=self.features.device)
        for piece in pieces_of(self.features, len(rows)):
            torch.sub(self.features[rows[piece]], self.centre, out=out[piece, :-2])
        out[:, :-2] *= self.scale
        out[:, :-2][self.slack[rows].isinf()] = 0
        out[:, -2], out[:, -1] = -self.half_floors[rows], 1
        return out

    def right(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32. See `left`."""
        out = self.left(rows)
        out[:, -1], out[:, -2] = out[:, -2].clone(), 1
        return out

    def gap(self, rows: Tensor, others: object, columns: Tensor) -> Tensor:
        """What separates upper from lower bounds: `rows` of this view with `columns` of `others`, (p,) float64."""
        assert isinstance(others, FloatView)
        slack = self.slack[rows] + others.slack[columns]
        return 2 * slack + 4 * self.residual[rows] * others.residual[columns]

    def search(self, block: Tensor, tiles: Tiles) -> FloatSearch:
        """Ask which keys of the rows of `block` are large."""
        return FloatSearch(self.left(block), min(slack_factor(self.width + 8), 1.0), tiles)


class FloatSearch:
    """Keys above a threshold, which is a column of the product itself: what is left is to find signs.

    The threshold takes part in a product of w + 2 terms, and so in its error: a doubt relative to its size.
    """

    def __init__(self, left: Tensor, doubt: float, tiles: Tiles) -> None:
        self._left, self._floors, self._doubt, self._tiles = left, left[:, -2].double(), doubt, tiles

    def above(self, lowest: Tensor, columns: object, chunk: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Every pair whose key may be at least `lowest` (r,) float64, for `chunk` (c,) of the columns.

        Returns:
            Positions of rows and columns, keys, and the doubt about these, each (p,).
        """
        assert isinstance(columns, FloatView)
        # The left factor is this search's own; its column of floors makes place for the thresholds.
        self._left[:, -2] = _rounded_up(self._floors - lowest * (1 + self._doubt))
        lifted = self._left[:, -2].double() - self._floors
        i, j, product = self._tiles.non_negative(self._left, columns.right(chunk))
        return i, j, product.double() - lifted[i], self._doubt * lifted[i].abs()


def _width(centre: Tensor, basis: Tensor | None) -> int:
    return len(centre) if basis is None else basis.shape[1] + 1


def _half_floors(coordinates: Tensor, slack: Tensor) -> Tensor:
    floors = coordinates.double().square_().sum(dim=1) - slack
    return floors.clamp_(min=NO_FLOOR).div_(2).float()


def _rounded_up(values: Tensor) -> Tensor:
    rounded = values.float()
    return rounded.where(rounded >= values, rounded.nextafter(torch.full_like(rounded, torch.inf)))
