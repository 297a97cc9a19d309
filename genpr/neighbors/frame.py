"""Where and in which coordinates a search looks at a data set. A frame affects speed, never a result."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.cells import Cells
from genpr.neighbors.code_view import CodeView
from genpr.neighbors.engine import plain_arithmetic
from genpr.neighbors.float_view import FloatView
from genpr.neighbors.grid import Grid

_SAMPLE = 256


@dataclass(frozen=True, slots=True)
class Frame:
    """An origin, a scale, and optionally a few directions and a partition of space. See `bounds`.

    Attributes:
        centre: (d,) float32. |x|^2 + |y|^2 - 2 <x, y> cancels when a common offset is large next to the spread.
        scale: A power of two that brings typical norms near 1, so that squares neither overflow nor vanish.
        basis: (d, w - 1) float64, orthonormal columns, or None to keep all d coordinates.
        centres: (c, w) float64 coordinates of the centres of cells (Voronoi), c = 0 for no cells.
        grid: What makes integers of all coordinates, or None for float32. There are no directions or cells then.
    """

    centre: Tensor
    scale: float
    basis: Tensor | None
    centres: Tensor
    grid: Grid | None = None

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

    def tensors(self) -> dict[str, Tensor]:
        """What `restored` needs, beside `numbers`."""
        named = {"centre": self.centre, "centres": self.centres}
        if self.basis is not None:
            named["basis"] = self.basis
        if self.grid is not None:
            named |= {"outer": self.grid.outer, "inner": self.grid.inner}
        return named

    def numbers(self) -> dict[str, float]:
        """What `restored` needs, beside `tensors`."""
        numbers = {"scale": self.scale}
        if self.grid is not None:
            coarse, fine = self.grid.shares
            numbers |= {"step": self.grid.step, "coarse": coarse, "fine": fine}
        return numbers

    @classmethod
    def restored(cls, tensors: dict[str, Tensor], numbers: dict[str, float]) -> Frame:
        """From `tensors` and `numbers`."""
        grid = None
        if "step" in numbers:
            shares = numbers["coarse"], numbers["fine"]
            grid = Grid(tensors["outer"], tensors["inner"], numbers["step"], shares)
        return cls(tensors["centre"], numbers["scale"], tensors.get("basis"), tensors["centres"], grid)

    def place(self, features: Tensor) -> Placed:
        """What a search sees of (n, d) float32 or float16 `features`, which are kept, not copied."""
        view: FloatView | CodeView
        with plain_arithmetic(features.device):
            if self.grid is None:
                view = FloatView.of(features, self.centre, self.scale, self.basis)
            else:
                view = CodeView.of(features, self.centre, self.scale, self.grid)
            return Placed.seen(self, features, view)


@dataclass(frozen=True, slots=True)
class Placed:
    """Features with their place in a frame, ready for the bounds.

    Attributes:
        frame: The frame.
        features: (n, d) float32 or float16, the original values, on which every decision rests.
        view: What a search sees of them. All sets in one frame have views of one kind.
        cells: The cells of the rows, where the frame has any.
    """

    frame: Frame
    features: Tensor
    view: FloatView | CodeView
    cells: Cells | None

    @classmethod
    def restored(cls, frame: Frame, features: Tensor, tensors: dict[str, Tensor]) -> Placed:
        """From the features and the tensors of a view."""
        view: FloatView | CodeView
        if frame.grid is None:
            view = FloatView.restored(features, frame.centre, frame.scale, frame.basis, tensors)
        else:
            view = CodeView.restored(frame.grid, tensors)
        return cls.seen(frame, features, view)

    @classmethod
    def seen(cls, frame: Frame, features: Tensor, view: FloatView | CodeView) -> Placed:
        """With the cells, which follow from coordinates that are kept."""
        if isinstance(view, CodeView) or view.augmented is None:
            return cls(frame, features, view, None)
        return cls(frame, features, view, Cells.of(view.coordinates, view.slack, frame.centres))

    def __len__(self) -> int:
        return len(self.features)

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.features.device

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
        return self.view.gap(rows, others.view, columns) / self.frame.scale**2


def evenly_spaced(n: int, count: int, device: torch.device) -> Tensor:
    """At most `count` rows of n, as indices."""
    count = min(n, count)
    return torch.arange(count, device=device) * n // count


def _power_of_two_near(value: float) -> float:
    exponent = round(math.log2(value))
    return 2.0 ** min(max(exponent, -126), 126)  # what float32 can multiply by exactly
