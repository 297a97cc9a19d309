"""Pairs of rows with what is known of their distances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.workers import Communicator


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
        return self.part(mask.nonzero()[:, 0])

    def part(self, index: Tensor | slice) -> Pairs:
        """The pairs at `index`."""
        return Pairs(self.i[index], self.j[index], self.sq_lower[index], self.sq_upper[index])

    @classmethod
    def joined(cls, parts: list[Pairs], device: torch.device | None = None) -> Pairs:
        """All pairs of all parts; where there are none, no pairs on `device`."""
        if not parts:
            none = torch.empty(0, dtype=torch.int64, device=device)
            return cls(none, none, none.double(), none.double())
        fields = ("i", "j", "sq_lower", "sq_upper")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in fields))

    def all_gather(self, communicator: Communicator) -> list[Pairs]:
        """The pairs of every process, by rank."""
        fields = (communicator.all_gather(part) for part in (self.i, self.j, self.sq_lower, self.sq_upper))
        return [Pairs(*parts) for parts in zip(*fields, strict=True)]
