"""Coordinates of a set, whose products bound squared distances; all sets of a search have those of one projection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from genpr.memory import fits
from genpr.neighbors.bounds import (
    NO_FLOOR,
    basis_tolerance,
    bounds_of_pairs,
    represent,
    represent_half,
)
from genpr.neighbors.distance import blocks_of
from genpr.neighbors.engine import ENGINE, PerThread, Tiles, in_steps, places, profile_of

Index = Tensor | slice
"""Some rows: their indices (p,), or consecutive rows from a start to a stop, which are read without a copy."""


@overload
def part_of(rows: Index, at: Tensor) -> Tensor: ...
@overload
def part_of(rows: Tensor, at: Index) -> Tensor: ...
@overload
def part_of(rows: Index, at: slice) -> Index: ...
def part_of(rows: Index, at: Index) -> Index:
    """The `rows` at positions."""
    if isinstance(rows, Tensor):
        return rows.index_select(0, at) if isinstance(at, Tensor) and at.ndim == 1 else rows[at]
    return at + rows.start if isinstance(at, Tensor) else slice(rows.start + at.start, rows.start + at.stop)


def count_of(rows: Index) -> int:
    """Number of `rows`."""
    return len(rows) if isinstance(rows, Tensor) else rows.stop - rows.start


Keys = Callable[["Coordinates", Index], Tensor]
"""The keys of a block of rows with columns of other coordinates, (r, c) float32."""


@dataclass(frozen=True, slots=True)
class Coordinates(ABC):
    """Coordinates q of n rows, and their floors. See `bounds`."""

    features: Tensor  # (n, d) float32 or float16, the original values
    center: Tensor  # (d,) float32
    scale: float  # as in `Projection`
    width: int  # coordinates per row, w
    half_floors: Tensor  # half of |q|^2 - slack, (n,) float32
    slack: Tensor  # (n,) float64, infinite for rows that q cannot represent; these are zero
    residual: Tensor | None  # (n,) float64, at least the norm of the part outside of q; None if there is none

    @abstractmethod
    def at(self, rows: Index) -> Tensor:
        """Q of `rows`: (p, w), in any type."""

    @abstractmethod
    def keys_of(self, block: Index, tiles: Tiles) -> Keys:
        """A function that computes the keys of the rows of `block`."""

    @property
    def values(self) -> Tensor:
        """All q, (n, w)."""
        return self.at(slice(0, len(self.slack)))

    def lowest(self, sq_reach: Tensor) -> Tensor:
        """The least keys of pairs within a reach in the unit of the features, float32: what reaches a number reaches its rounded value."""
        return (sq_reach * (-0.5 * self.scale**2)).clamp_(min=NO_FLOOR).float()

    def sq_lower(self, keys: Tensor) -> Tensor:
        """Lower bounds on squared distances in the unit of the features, float64, from `keys`."""
        return keys.double() * (-2.0 / self.scale**2)

    def sq_gap(self, rows: Tensor, others: Coordinates, columns: Tensor) -> Tensor:
        """Upper minus lower bounds of `rows` with `columns` of `others`, in the unit of the features, (p,) float64."""
        gap = (self.slack.take(rows) + others.slack.take(columns)).mul_(2 / self.scale**2)
        if self.residual is not None and others.residual is not None:
            gap += self.residual.take(rows) * others.residual.take(columns) * (4 / self.scale**2)
        return gap

    def unknown(self, columns: Index) -> Tensor:
        """Those of `columns` (c,), by position, that coordinates cannot represent."""
        return places(self.slack[columns].isinf())

    def nearest(
        self, keys: Tensor, block: Index, others: Coordinates, columns: Index, unknown: Tensor, count: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The `count` of `columns` of `others` with the largest `keys` (r, c) for each row of `block`, and both bounds: (r, count).

        `unknown` columns are near to all rows by their keys, and tell nothing.
        """
        if len(unknown):
            keys = keys.index_fill(1, unknown, -torch.inf)
        values, at = keys.topk(count, dim=1)
        near, rows = part_of(columns, at), part_of(block, torch.arange(len(keys), device=keys.device))
        if self.residual is not None:
            i = rows.repeat_interleave(count)
            bounds = bounds_of_pairs(self.features, others.features, i, near.flatten())
            sq_lower, sq_upper = (bound.view(near.shape) for bound in bounds)
        else:
            sq_lower = self.sq_lower(values)
            sq_upper = sq_lower + self.sq_gap(rows[:, None], others, near)
        return near, sq_lower, sq_upper.masked_fill_(values == -torch.inf, torch.inf)


@dataclass(frozen=True, slots=True)
class ProjectedCoordinates(Coordinates):
    """Coordinates in a few directions, and the length of the rest, in float32."""

    augmented: Tensor  # q, 1 and -half_floors, (n, w + 2) float32

    @classmethod
    def from_features(
        cls, features: Tensor, center: Tensor, scale: float, basis: Tensor
    ) -> ProjectedCoordinates:
        """Coordinates of (n, d) `features` in the directions of (d, w - 1) `basis`."""
        n, device = len(features), features.device
        width, tolerance = basis.shape[1] + 1, basis_tolerance(basis)
        augmented = torch.empty(n, width + 2, dtype=torch.float32, device=device)
        slack, residual = torch.empty(2, n, dtype=torch.float64, device=device)
        half_floors = torch.empty(n, dtype=torch.float32, device=device)

        shape = next(blocks_of(features)).stop, features.shape[1]
        memory = PerThread(
            lambda: (augmented.new_empty(shape), augmented.new_empty(shape, dtype=torch.float64))
        )

        def put(block: slice) -> None:
            out = augmented[block, :-2]
            some = represent(features[block], center, scale, basis, tolerance, out, memory.own)
            assert some.residual is not None
            slack[block], residual[block] = some.slack, some.residual
            half_floors[block] = some.half_floors

        with ENGINE.search(device) as search:
            deque(search.map(put, blocks_of(features)), maxlen=0)
        augmented[:, -2], augmented[:, -1] = 1, -half_floors
        return cls(features, center, scale, width, half_floors, slack, residual, augmented)

    def at(self, rows: Index) -> Tensor:
        """Q of `rows`: (p, w) float32."""
        return self.columns(rows)[:, :-2]

    def columns(self, rows: Index) -> Tensor:
        """(p, w + 2) float32 for `rows`: inner products with `queries` are keys."""
        return part_of(self.augmented, rows)

    def queries(self, rows: Index) -> Tensor:
        """(p, w + 2) float32 for `rows`. See `columns`."""
        columns = self.columns(rows)
        return torch.cat([columns[:, :-2], columns[:, -2:].flip(1)], dim=1)

    def keys_of(self, block: Index, tiles: Tiles) -> Keys:
        """Computes keys as products of `queries` with `columns`."""
        left = self.queries(block)

        def keys(others: Coordinates, columns: Index) -> Tensor:
            assert isinstance(others, ProjectedCoordinates)
            return tiles.products(left, others.columns(columns))

        return keys


_KEPT = 2**23  # elements that a CPU keeps; with more, recomputing costs no more than reading them


@dataclass(frozen=True, slots=True)
class RoundedCoordinates(Coordinates):
    """All coordinates, rounded. See `bounds.represent_half`, or `bounds` for float32."""

    # (n, d) float16 or float32; (0, d) if they are not kept but recomputed for each tile
    rounded_rows: Tensor

    @classmethod
    def from_features(
        cls, features: Tensor, center: Tensor, scale: float, dtype: torch.dtype
    ) -> RoundedCoordinates:
        """Of (n, d) `features`, rounded to `dtype`."""
        (n, d), device = features.shape, features.device
        kept = n * d <= _KEPT if device.type == "cpu" else fits(n * d * dtype.itemsize, device)
        rounded_rows = torch.empty(n if kept else 0, d, dtype=dtype, device=device)
        slack = torch.empty(n, dtype=torch.float64, device=device)
        half_floors = torch.empty(n, dtype=torch.float32, device=device)

        def put(block: slice) -> None:
            some, out = features[block], rounded_rows[block] if kept else None
            if dtype == torch.float16:
                found = represent_half(some, center, scale, out)
            else:
                found = represent(some, center, scale, None, out=out)
            slack[block], half_floors[block] = found.slack, found.half_floors

        deque(in_steps(put, n, profile_of(device).elements // d, device), maxlen=0)
        return cls(features, center, scale, d, half_floors, slack, None, rounded_rows)

    def at(self, rows: Index) -> Tensor:
        """Rounded `rows`: (p, d)."""
        if len(self.rounded_rows):
            return part_of(self.rounded_rows, rows)
        (_, d), device, count = self.features.shape, self.features.device, count_of(rows)
        out = torch.empty(count, d, dtype=torch.float32, device=device)
        shift = self.center * -self.scale
        step = max(1, min(count, profile_of(device).recomputed // d))
        reused = self.features.new_empty(step, d)  # fresh memory costs more than the arithmetic
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            some = part_of(rows, part)
            if isinstance(some, slice):
                moved = self.features[some]
            else:
                moved = torch.index_select(self.features, 0, some, out=reused[: len(some)])
            # The same as (x - center) * scale, since a power of two commutes with rounding, in one pass.
            torch.add(shift, moved, alpha=self.scale, out=out[part])
        too_far = self.slack[rows].isinf()
        return out.masked_fill_(too_far[:, None], 0).to(self.rounded_rows.dtype)

    def keys_of(self, block: Index, tiles: Tiles) -> Keys:
        """Computes keys as products of rounded rows, less the floors."""
        rows, floors = self.at(block), self.half_floors[block][:, None]

        def keys(others: Coordinates, columns: Index) -> Tensor:
            products = tiles.products(
                rows, rows if others is self and columns is block else others.at(columns)
            )
            return products.sub_(others.half_floors[columns]).sub_(floors)

        return keys
