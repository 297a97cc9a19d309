"""Keep the closest pairs of a set while more and more of them are met."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from genpr.neighbors.bounds import bounds_by_product, bounds_of_differences
from genpr.neighbors.engine import Engine
from genpr.neighbors.pairs import Pairs
from genpr.neighbors.verify import sq_distances_at

_INFINITE = 0x7FF << 52  # the bits of an infinite float64

# Pairs wait until they are worth a merge: at least so many, some per row, and never more than memory should hold.
_PORTION, _PER_ROW, _MOST = 2**16, 16, 2**22


@dataclass(slots=True)
class Closest:
    """The closest pairs met so far.

    Attributes:
        sq_reach: (n,) float64, within it the row has k others; -inf for rows that need none. It is the caller's,
            and shrinks in place.
        smallest: (n, k) float64, ascending: least upper bounds to distinct rows met.
    """

    sq_reach: Tensor
    smallest: Tensor
    _waiting: list[Pairs] = field(default_factory=list)
    _kept: list[Pairs] = field(default_factory=list)

    @classmethod
    def within(cls, sq_reach: Tensor, k: int) -> Closest:
        """Nothing met yet."""
        n = len(sq_reach)
        return cls(sq_reach, torch.full((n, k), torch.inf, dtype=torch.float64, device=sq_reach.device))

    def meet(self, pairs: Pairs) -> None:
        """Take note of pairs, none of them met before."""
        self._waiting.append(pairs)
        if sum(map(len, self._waiting)) >= min(max(_PORTION, _PER_ROW * len(self.sq_reach)), _MOST):
            self._settle()

    def pairs(self) -> Pairs:
        """Of all pairs met, those that still are within reach of one of the two."""
        self._settle()
        return in_reach(Pairs.joined(self._kept, self.sq_reach.device), self.sq_reach)

    def _settle(self) -> None:
        pairs = in_reach(Pairs.joined(self._waiting, self.sq_reach.device), self.sq_reach)
        self._waiting.clear()
        for rows in (pairs.i, pairs.j):
            _keep_smallest(self.smallest, rows, pairs.sq_upper)
        nearer = (self.smallest[:, -1] < self.sq_reach).nonzero()[:, 0]
        self.sq_reach[nearer] = self.smallest[nearer, -1]
        self._kept.append(in_reach(pairs, self.sq_reach))


def in_reach(pairs: Pairs, sq_reach: Tensor) -> Pairs:
    """The pairs of one set that may be within the reach of one of the two."""
    return pairs.select(pairs.sq_lower <= torch.maximum(sq_reach[pairs.i], sq_reach[pairs.j]))


def bounds_of_pairs(x: Tensor, y: Tensor, i: Tensor, j: Tensor, engine: Engine) -> tuple[Tensor, Tensor]:
    """The tightest bounds short of the definition, between rows `i` of `x` and `j` of `y`: two of (p,) float64."""
    if bounds := bounds_by_product(x, y, i, j):
        return bounds
    lower, upper = bounds_of_differences(engine.sq_differences(x, y, i, j), x.shape[1])
    unknown = upper.isinf().nonzero()[:, 0]
    lower[unknown] = upper[unknown] = sq_distances_at(x, y, i[unknown], j[unknown])
    return lower, upper


def _keep_smallest(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Merge `values` (p,) into the ascending rows of `table` (n, k) that `rows` (p,) names, in place.

    They may be rounded up a little, so that row and value fit into one integer, which sorts far faster than two.
    """
    k = table.shape[1]
    smaller = values < table[rows, -1]
    rows, values = rows[smaller], values[smaller]
    touched = torch.unique(rows)
    bits = len(table).bit_length()  # that the number of a row takes
    known = _keys(touched.repeat_interleave(k), table[touched].flatten(), bits)
    keys = torch.cat([_keys(rows, values, bits), known]).sort().values
    first = torch.searchsorted(keys, touched << 63 - bits)
    nearest = keys[first[:, None] + torch.arange(k, device=table.device)]
    table[touched] = ((nearest & (1 << 63 - bits) - 1) << bits).view(torch.float64)


def _keys(rows: Tensor, values: Tensor, bits: int) -> Tensor:
    """(p,) int64 that order first by row, then by value: its bits as a float64 order as it does, if it is positive."""
    of_value = (values + 0.0).view(torch.int64)
    rounded_up = (of_value >> bits) + (of_value & (1 << bits) - 1).clamp(max=1)
    return (rows << 63 - bits) + rounded_up.clamp(max=_INFINITE >> bits)
