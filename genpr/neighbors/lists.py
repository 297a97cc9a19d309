"""The nearest others of every row, with distances as good as float32: what resampling looks up, and no decision.

Counts are decided by `verify`. Intervals compare many distances many times, and need them equal only where the
vectors are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.engine import Engine
from genpr.neighbors.verify import sq_distances_at


@dataclass(frozen=True, slots=True)
class NeighbourLists:
    """The L nearest other rows of each of n rows.

    Attributes:
        index: (n, L) int64, nearest first; which of several equally far is arbitrary.
        sq: (n, L) float64, `near_sq_distances`, ascending.
    """

    index: Tensor
    sq: Tensor

    @classmethod
    def none(cls, features: Tensor) -> NeighbourLists:
        """Lists without entries, of (n, d) `features`."""
        index = torch.empty(len(features), 0, dtype=torch.int64, device=features.device)
        return cls(index, index.double())

    def apart_from_rows(self) -> Tensor:
        """Squared distance from each row's nearest other to that one's nearest, were the row not there: (n,) float64.

        Needs lists of two.
        """
        nearest, rows = self.index[:, 0], torch.arange(len(self.index), device=self.index.device)
        is_mutual = self.index[nearest, 0] == rows
        return self.sq[nearest, 1].where(is_mutual, self.sq[nearest, 0])

    @property
    def length(self) -> int:
        """L."""
        return self.index.shape[1]


def near_sq_distances(x: Tensor, y: Tensor, i: Tensor, j: Tensor, engine: Engine) -> Tensor:
    """Squared distances between rows `i` of `x` and rows `j` of `y`, computed in float32: (p,) float64.

    The same for the same two vectors in either order. What is beyond float32 is computed in float64.
    """
    sq = engine.sq_differences(x, y, i, j).double()
    beyond = (~sq.isfinite()).nonzero()[:, 0]
    sq[beyond] = sq_distances_at(x, y, i[beyond], j[beyond])
    return sq
