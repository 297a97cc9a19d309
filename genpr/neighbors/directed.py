"""Pairs found by a search, seen from one of the two: the others of every row, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genpr.neighbors.cross import Ties
from genpr.neighbors.pairs import Pairs
from genpr.neighbors.verify import sq_distances_at
from genpr.neighbors.workers import Workers

_VERIFIED = 4096  # pairs per piece of work


@dataclass(frozen=True, slots=True)
class Directed:
    """Rows and others within their reach, grouped by row, with bounds on the squared distances; all (p,).

    Attributes:
        row: Ascending.
        other: A row of the same set.
        sq_lower: Lower bound on the squared distance.
        sq_upper: Upper bound.
        size: (n,) others per row.
    """

    row: Tensor
    other: Tensor
    sq_lower: Tensor
    sq_upper: Tensor
    size: Tensor

    @classmethod
    def of(cls, pairs: Pairs, sq_reach: Tensor) -> Directed:
        """Every pair from both ends, where it may be within the reach (n,) of that end."""
        row, other = torch.cat([pairs.i, pairs.j]), torch.cat([pairs.j, pairs.i])
        in_reach = (pairs.sq_lower.repeat(2) <= sq_reach[row]).nonzero()[:, 0]
        # By row, then by other: an order that does not depend on where a pair was found.
        order = in_reach[(row[in_reach] * len(sq_reach) + other[in_reach]).argsort()]
        row = row[order]
        return cls(
            row,
            other[order],
            pairs.sq_lower.repeat(2)[order],
            pairs.sq_upper.repeat(2)[order],
            row.bincount(minlength=len(sq_reach)),
        )

    def within(self, sq_reach: Tensor) -> Directed:
        """The pairs that may be within a smaller reach (n,)."""
        at = (self.sq_lower <= sq_reach[self.row]).nonzero()[:, 0]
        row = self.row[at]
        size = row.bincount(minlength=len(self.size))
        return Directed(row, self.other[at], self.sq_lower[at], self.sq_upper[at], size)

    def places(self, values: Tensor, k: int) -> Tensor:
        """Where the k smallest `values` (p,) of each row are, ascending, (n, k); p where a row has fewer."""
        order = values.argsort(stable=True)
        order = order[self.row[order].argsort(stable=True)]
        order = torch.cat([order, order.new_full((1,), len(order))])
        rank = torch.arange(k, device=order.device)
        place = (self.size.cumsum(dim=0) - self.size)[:, None] + rank
        return order[place.where(rank < self.size[:, None], len(order) - 1)]

    def smallest(self, values: Tensor, k: int) -> Tensor:
        """The k smallest `values` (p,) of each row, ascending, (n, k); infinite where a row has fewer."""
        return padded(values, torch.inf)[self.places(values, k)]

    def decided(self, features: Tensor, ks: Sequence[int], workers: Workers) -> Directed:
        """With bounds that put the k-th smallest lower bound of each row at the k-th squared distance, for all `ks`.

        It lies between the k-th smallest lower and the k-th smallest upper bound. An other whose own bounds are both
        on one side of this gap needs no verification: its lower bound, in its place, leaves the value the same.
        """
        lowest, highest = self.smallest(self.sq_lower, max(ks)), self.smallest(self.sq_upper, max(ks))
        is_open = torch.zeros_like(self.row, dtype=torch.bool)
        for k in ks:
            is_open |= (self.sq_lower <= highest[self.row, k - 1]) & (
                self.sq_upper >= lowest[self.row, k - 1]
            )
        return self._verified(features, is_open, workers)

    def in_degrees(self, features: Tensor, sq_radii: Tensor, ties: Ties, workers: Workers) -> Tensor:
        """In how many balls of others each row lies: (a, n) int64 for radii (a, n) within the reach, exactly."""
        inside = torch.le if ties == "closed" else torch.lt
        is_open = torch.zeros_like(self.row, dtype=torch.bool)
        for radii in sq_radii:
            of_row = radii[self.row]
            is_open |= inside(self.sq_lower, of_row) & ~inside(self.sq_upper, of_row)
        sq = self._verified(features, is_open, workers).sq_lower
        reached = [self.other[inside(sq, radii[self.row])] for radii in sq_radii]
        return torch.stack([others.bincount(minlength=len(self.size)) for others in reached])

    def verified(self, features: Tensor, workers: Workers) -> Directed:
        """With all squared distances by the definition."""
        return self._verified(features, torch.ones_like(self.row, dtype=torch.bool), workers)

    def _verified(self, features: Tensor, is_open: Tensor, workers: Workers) -> Directed:
        at = is_open.nonzero()[:, 0]
        split = zip(torch.split(self.row[at], _VERIFIED), torch.split(self.other[at], _VERIFIED), strict=True)
        found = workers.map_shared(lambda part: (sq_distances_at(features, features, *part),), list(split))
        sq_lower, sq_upper = self.sq_lower.clone(), self.sq_upper.clone()
        sq_lower[at] = sq_upper[at] = torch.cat([sq for (sq,) in found])
        return replace(self, sq_lower=sq_lower, sq_upper=sq_upper)


def padded(values: Tensor, value: float) -> Tensor:
    """`values` (p,) with one more `value`, for places that point behind the last."""
    return torch.cat([values, values.new_full((1,), value)])
