"""Where and in which coordinates float32 serves a data set best. A frame affects speed, never a result."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbours.bounds import NO_FLOOR, basis_tolerance, represent
from genpr.neighbours.cells import Cells
from genpr.neighbours.workers import Workers

_SAMPLE = 256
# Rows are projected in pieces that stay in the cache of a CPU core, in float64.
_CPU_PIECE = 2**19
_GPU_PIECE = 2**25
# Coordinates up to this many bytes per set are kept; more are computed again whenever a tile needs them.
_KEPT_BYTES = 192 * 2**20


@dataclass(frozen=True, slots=True)
class Frame:
    """An origin, a scale, and optionally a few directions and a partition of space. See `bounds`.

    Attributes:
        centre: (d,) float32. |x|^2 + |y|^2 - 2 <x, y> cancels when a common offset is large next to the spread.
        scale: A power of two that brings typical norms near 1, so that squares neither overflow nor vanish.
        basis: (d, w - 1) float64, orthonormal columns, or None to keep all d coordinates.
        centres: (c, w) float64 coordinates of the centres of cells (Voronoi), c = 0 for no cells.
    """

    centre: Tensor
    scale: float
    basis: Tensor | None
    centres: Tensor

    @classmethod
    def around(cls, features: Tensor) -> Frame:
        """With all coordinates, where (n, d) `features` are: at the median of evenly spaced rows.

        No outlier can move a median far.
        """
        sample = features[evenly_spaced(len(features), _SAMPLE, features.device)].float()
        # Sorting finds the median without the nondeterministic CUDA kernel of torch.median.
        centre = sample.sort(dim=0).values[(len(sample) - 1) // 2]
        norms = (sample.double() - centre).square_().sum(dim=1).sqrt()
        moved = norms[norms > 0]
        typical = moved.sort().values[len(moved) // 2] if len(moved) else centre.double().norm()
        scale = _power_of_two_near(1.0 / float(typical)) if typical > 0 else 1.0
        none = torch.empty(0, features.shape[1], dtype=torch.float64, device=features.device)
        return cls(centre, scale, None, none)

    @property
    def width(self) -> int:
        """Coordinates per row, w."""
        return len(self.centre) if self.basis is None else self.basis.shape[1] + 1

    def place(self, features: Tensor) -> Placed:
        """Coordinates and slack of (n, d) float32 or float16 `features`, which are kept, not copied."""
        n, width, device = len(features), self.width, features.device
        kept = n * width * 4 <= _KEPT_BYTES or self.basis is not None
        augmented = torch.empty(n, width + 2, dtype=torch.float32, device=device) if kept else None
        slack, residual = torch.empty(2, n, dtype=torch.float64, device=device)
        half_floors = torch.empty(n, dtype=torch.float32, device=device)
        tolerance = 0.0 if self.basis is None else basis_tolerance(self.basis)

        def put(rows: slice) -> None:
            piece = represent(features[rows], self.centre, self.scale, self.basis, tolerance)
            slack[rows], residual[rows] = piece.slack, piece.residual
            half_floors[rows] = _half_floors(piece.coordinates, piece.slack)
            if augmented is not None:
                augmented[rows, :-2] = piece.coordinates

        with Workers(device) as workers:
            deque(workers.map(put, _pieces(features)), maxlen=0)
        if augmented is not None:
            augmented[:, -2], augmented[:, -1] = -half_floors, 1
        return Placed.restored(self, features, augmented, half_floors, slack, residual)


@dataclass(frozen=True, slots=True)
class Placed:
    """Features with their place in a frame, ready for the bounds.

    Attributes:
        frame: The frame.
        features: (n, d) float32 or float16, the original values, on which every decision rests.
        augmented: The coordinates q, -half_floors and 1, (n, w + 2) float32; None where they are too many to keep.
        half_floors: Half of |q|^2 - slack, (n,) float32.
        slack: (n,) float64, infinite for rows that the frame cannot hold; their coordinates are zero.
        residual: (n,) float64, at least the norm of what the coordinates leave out.
        cells: The cells of the rows, where the frame has any.
    """

    frame: Frame
    features: Tensor
    augmented: Tensor | None
    half_floors: Tensor
    slack: Tensor
    residual: Tensor
    cells: Cells | None

    @classmethod
    def restored(
        cls,
        frame: Frame,
        features: Tensor,
        augmented: Tensor | None,
        half_floors: Tensor,
        slack: Tensor,
        residual: Tensor,
    ) -> Placed:
        """From everything but the cells, which follow."""
        cells = None if augmented is None else Cells.of(augmented[:, :-2], slack, frame.centres)
        return cls(frame, features, augmented, half_floors, slack, residual, cells)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.features.device

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
        out = torch.empty(len(rows), self.frame.width + 2, dtype=torch.float32, device=self.device)
        for piece in _pieces(self.features, len(rows)):
            torch.sub(self.features[rows[piece]], self.frame.centre, out=out[piece, :-2])
        out[:, :-2] *= self.frame.scale
        out[:, :-2][self.slack[rows].isinf()] = 0
        out[:, -2], out[:, -1] = -self.half_floors[rows], 1
        return out

    def right(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32. See `left`."""
        out = self.left(rows)
        out[:, -1], out[:, -2] = out[:, -2].clone(), 1
        return out

    def sq_lower(self, keys: Tensor) -> Tensor:
        """Lower bounds on squared distances in the unit of the features, float64, from `keys`."""
        return keys.double() * (-2.0 / self.frame.scale**2)

    def sq_gap(self, rows: Tensor, others: Placed, columns: Tensor) -> Tensor:
        """What separates the upper bounds of pairs from the lower ones, in the unit of the features.

        Args:
            rows: (p,) rows of this set.
            others: A set in the same frame.
            columns: Rows of `others`, broadcastable with `rows`.
        """
        slack = self.slack[rows] + others.slack[columns]
        lost = self.residual[rows] * others.residual[columns]
        return (2 * slack + 4 * lost) / self.frame.scale**2


def evenly_spaced(n: int, count: int, device: torch.device) -> Tensor:
    """At most `count` rows of n, as indices."""
    count = min(n, count)
    return torch.arange(count, device=device) * n // count


def _pieces(features: Tensor, n: int | None = None) -> list[slice]:
    elements = _CPU_PIECE if features.device.type == "cpu" else _GPU_PIECE
    step = max(1, elements // features.shape[1])
    n = len(features) if n is None else n
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _half_floors(coordinates: Tensor, slack: Tensor) -> Tensor:
    floors = coordinates.double().square_().sum(dim=1) - slack
    return floors.clamp_(min=NO_FLOOR).div_(2).float()


def _power_of_two_near(value: float) -> float:
    exponent = round(math.log2(value))
    return 2.0 ** min(max(exponent, -126), 126)  # what float32 can multiply by exactly
