"""Coordinates of a set, whose products bound squared distances; all sets of a search have those of one projection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from genpr.neighbors.bounds import (
    NO_FLOOR,
    basis_tolerance,
    bounds_of_pairs,
    represent,
    slack_factor,
    sq_norms_of,
)
from genpr.neighbors.distance import blocks_of
from genpr.neighbors.engine import ENGINE, Tiles, profile_of

FindKeys = Callable[[Tensor, "Coordinates", Sequence[Tensor]], tuple[Tensor, Tensor, Tensor, Tensor]]
"""Finds every pair of a block with a key of at least `lowest`, (b, r) float64 for b bands of the columns of other coordinates.

Returns positions in the block and in all bands, keys, and their doubts.
"""


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

    joins_bands: ClassVar[bool]  # whether a tile may have columns of several bands of similar reach

    @abstractmethod
    def at(self, rows: Tensor) -> Tensor:
        """Q of `rows` (p,): (p, w), in any type."""

    def queries(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32 for `rows` (p,): its inner products with `columns` are keys."""
        floors = self.half_floors[rows, None]
        return torch.cat([self.at(rows).float(), -floors, torch.ones_like(floors)], dim=1)

    def columns(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32. See `queries`."""
        out = self.queries(rows)
        out[:, -1], out[:, -2] = out[:, -2].clone(), 1
        return out

    @property
    def values(self) -> Tensor:
        """All q, (n, w)."""
        return self.at(torch.arange(len(self.slack), device=self.slack.device))

    def sq_lower(self, keys: Tensor) -> Tensor:
        """Lower bounds on squared distances in the unit of the features, float64, from `keys`."""
        return keys.double() * (-2.0 / self.scale**2)

    def sq_gap(self, rows: Tensor, others: Coordinates, columns: Tensor) -> Tensor:
        """Upper minus lower bounds of `rows` with `columns` of `others`, in the unit of the features, (p,) float64."""
        gap = 2 * (self.slack[rows] + others.slack[columns])
        if self.residual is not None and others.residual is not None:
            gap = gap + 4 * self.residual[rows] * others.residual[columns]
        return gap / self.scale**2

    @abstractmethod
    def keys_of(self, block: Tensor, tiles: Tiles) -> FindKeys:
        """A function that finds the large keys of the rows of `block`."""

    @abstractmethod
    def nearest(
        self, block: Tensor, others: Coordinates, columns: Tensor, count: int, tiles: Tiles
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Some `count` of `columns` (c,) of `others` near each row of `block`: (r, count), and bounds on squared distances."""


@dataclass(frozen=True, slots=True)
class ProjectedCoordinates(Coordinates):
    """Coordinates in a few directions, or all of them, in float32."""

    # q, -half_floors and 1, (n, w + 2) float32; None without directions: recomputing q costs no more than reading it
    augmented: Tensor | None

    joins_bands = False  # the threshold of a row is part of it

    @classmethod
    def from_features(
        cls, features: Tensor, center: Tensor, scale: float, basis: Tensor | None
    ) -> ProjectedCoordinates:
        """Coordinates of (n, d) `features` in the directions of (d, w - 1) `basis`, or all coordinates."""
        (n, width), device, augmented, tolerance = features.shape, features.device, None, 0.0
        if basis is not None:
            width = basis.shape[1] + 1
            augmented = torch.empty(n, width + 2, dtype=torch.float32, device=device)
            tolerance = basis_tolerance(basis)
        slack, residual = torch.empty(2, n, dtype=torch.float64, device=device)
        half_floors = torch.empty(n, dtype=torch.float32, device=device)

        def put(block: slice) -> None:
            some = represent(features[block], center, scale, basis, tolerance)
            slack[block], residual[block] = some.slack, some.residual
            floors = sq_norms_of(some.coordinates) - some.slack
            half_floors[block] = floors.clamp_(min=NO_FLOOR).div_(2).float()
            if augmented is not None:
                augmented[block, :-2] = some.coordinates

        with ENGINE.search(device) as search:
            deque(search.map(put, blocks_of(features)), maxlen=0)
        if augmented is not None:
            augmented[:, -2], augmented[:, -1] = -half_floors, 1
        return cls(features, center, scale, width, half_floors, slack, residual, augmented)

    def at(self, rows: Tensor) -> Tensor:
        """Q of `rows` (p,): (p, w) float32."""
        return self.queries(rows)[:, :-2]

    def queries(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32 for `rows` (p,): its inner products with `columns` are keys."""
        if self.augmented is not None:
            return self.augmented[rows]
        out = torch.empty(len(rows), self.width + 2, dtype=torch.float32, device=self.features.device)
        shift = self.center * -self.scale
        count = max(1, min(len(rows), profile_of(out.device).recomputed // self.width))
        reused = self.features.new_empty(count, self.width)  # fresh memory costs more than the arithmetic
        for start in range(0, len(rows), count):
            block = rows[start : start + count]
            torch.index_select(self.features, 0, block, out=reused[: len(block)])
            # The same as (x - center) * scale, since a power of two commutes with rounding, in one pass.
            torch.add(shift, reused[: len(block)], alpha=self.scale, out=out[start : start + count, :-2])
        too_far = self.slack[rows].isinf()
        if too_far.any():
            out[:, :-2][too_far] = 0
        out[:, -2], out[:, -1] = -self.half_floors[rows], 1
        return out

    def keys_of(self, block: Tensor, tiles: Tiles) -> FindKeys:
        """Finds keys above a threshold, which is a column of the product, so that only signs have to be found.

        The threshold is a term of the product of w + 2 terms and adds to its error: a doubt relative to its size.
        """
        left, doubt = self.queries(block), min(slack_factor(self.width + 8), 1.0)
        floors = left[:, -2].double()

        def find(
            lowest: Tensor, others: Coordinates, bands: Sequence[Tensor]
        ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            (band,) = bands
            lifted = floors - lowest[0] * (1 + doubt)
            rounded = lifted.float()
            up = rounded.nextafter(torch.full_like(rounded, torch.inf))
            left[:, -2] = rounded.where(rounded >= lifted, up)  # instead of the floors
            lifted = left[:, -2].double() - floors
            i, j, products = tiles.non_negative(left, others.columns(band))
            return i, j, products.double() - lifted[i], doubt * lifted[i].abs()

        return find

    def nearest(
        self, block: Tensor, others: Coordinates, columns: Tensor, count: int, tiles: Tiles
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Those with the largest keys, and bounds by the features."""
        keys = self.queries(block) @ others.columns(columns).T
        near = columns[keys.topk(count, dim=1).indices]
        i = block.repeat_interleave(count)
        sq_lower, sq_upper = bounds_of_pairs(self.features, others.features, i, near.flatten())
        return near, sq_lower.view(near.shape), sq_upper.view(near.shape)
