"""What a search engine must offer.

An engine only proposes: it delivers pairs of rows with bounds on their distance, and promises which pairs it
left out. Every decision is taken in `search`, on distances by the definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from genpr.neighbours.bounds import Placed
from genpr.runtime import state_guard


@dataclass(frozen=True, slots=True)
class Nearest:
    """For each row some other rows, with bounds on the squared distances, in ascending order of the lower ones.

    Attributes:
        index: (n, c) int64.
        sq_lower: (n, c) float64. A row that is not listed has a lower bound no smaller than the last one listed.
        sq_upper: (n, c) float64.
    """

    index: Tensor
    sq_lower: Tensor
    sq_upper: Tensor


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
        return Pairs(self.i[mask], self.j[mask], self.sq_lower[mask], self.sq_upper[mask])


class Engine(Protocol):
    """Proposes pairs by cheap bounds, in bounded memory."""

    def nearest(self, points: Placed, count: int) -> Nearest:
        """For each row the `count` < n other rows of smallest lower bound; a row is excluded by its index."""
        ...

    def close_pairs(
        self, rows: Placed, columns: Placed, row_sq_reach: Tensor | None, column_sq_reach: Tensor | None
    ) -> Iterator[Pairs]:
        """Every pair whose lower bound is within the reach of its row, or of its column, or of both.

        Args:
            rows: n points.
            columns: m points in the same frame.
            row_sq_reach: (n,) float64, or None for no reach at all.
            column_sq_reach: (m,) float64, or None.

        Yields:
            Portions of bounded size; pairs out of reach may be among them.
        """
        ...


@contextmanager
def plain_arithmetic(device: torch.device) -> Iterator[None]:
    """Float32 products as IEEE 754 means them, on which all bounds rest.

    A user may have switched on TF32, bfloat16 products on CPUs ("medium" precision), or autocast.
    """
    with state_guard(), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield
