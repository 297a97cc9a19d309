"""Cosines of features in tiles, and ranks of relevant candidates among all or among pools.

A score of features is float64, summed in one order (`genpr.neighbors.distance`), and no (q, c) array is ever held: a float32
product decides for nearly all pairs, and those that its rounding leaves open are computed by the definition. So copies of a
candidate have its score, to the last bit, at any index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.memory import tile_budget
from genpr.neighbors.distance import blocks_of, of_pairs, products, sq_distances, square_roots
from genpr.neighbors.engine import PairProgress, plain_arithmetic, progress_counter

Counts: TypeAlias = NDArray[np.int64]
Tile: TypeAlias = tuple[slice, int, Tensor]
"""Some queries, the first of some candidates, and their values (b, w)."""

_ROUNDING = 2.0**-24
_WIDE = 512  # minimum of rows for which separate tiles of columns pay off


class FeaturePairs:
    """Cosines of rows of `left` (n, d) and `right` (m, d), both float32 on one device.

    A tile holds x . y / (|x| |y|) in float32. Both factors are rounded once, and the product of d terms errs by d u, so it is
    within `slack` = 1.1 (d + 4) u of the exact number, u = 2^-24, for up to a million features.
    """

    def __init__(self, left: Tensor, right: Tensor, budget: int | None = None) -> None:
        self.left, self.right = left, right
        self.shape, self.device = (len(left), len(right)), left.device
        self.slack = 1.1 * (left.shape[1] + 4) * _ROUNDING
        self._budget = budget or tile_budget(left.device)
        self._left_norm, self._right_norm = _norms(left), _norms(right)

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Cosines of rows `i` (p,) and `j` (p,): (p,) float64."""
        i, j = i.to(self.device), j.to(self.device)
        return of_pairs(products, self.left, self.right, i, j) / self._left_norm[i] / self._right_norm[j]

    def tiles(self) -> Iterator[Tile]:
        """All pairs, each once."""
        (n, m), d, budget = self.shape, self.left.shape[1], self._budget
        most_rows = max(1, budget // (12 * d))
        columns = max(1, min(m, most_rows, budget // (8 * min(n, _WIDE))))
        rows = max(1, min(n, most_rows, budget // (8 * columns)))
        for first in range(0, m, columns):
            right = _scaled(self.right[first : first + columns], self._right_norm[first : first + columns]).T
            for start in range(0, n, rows):
                block = slice(start, min(start + rows, n))
                yield block, first, _scaled(self.left[block], self._left_norm[block]) @ right


def _norms(features: Tensor) -> Tensor:
    """Euclidean norms of the rows, (n,) float64."""
    zero = features.new_zeros(1, features.shape[1])
    sq = torch.cat([sq_distances(features[block], zero) for block in blocks_of(features)])
    return square_roots(sq)


def _scaled(rows: Tensor, by: Tensor) -> Tensor:
    """Rows divided by a number each, rounded once; zeros stay."""
    return (rows.double() / torch.where(by > 0, by, 1.0)[:, None]).float()


class ScoreMatrix:
    """Given scores (q, c), with the methods of `FeaturePairs`."""

    slack = 0.0

    def __init__(self, scores: Tensor, budget: int | None = None) -> None:
        self._scores, self.shape, self.device = scores, (len(scores), scores.shape[1]), scores.device
        self._budget = budget or tile_budget(scores.device)

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Scores (p,) of pairs."""
        return self._scores[i.to(self.device), j.to(self.device)]

    def tiles(self) -> Iterator[Tile]:
        """All pairs, each once."""
        n, m = self.shape
        length = max(1, self._budget // (m * (self._scores.itemsize + 4)))
        for start in range(0, n, length):
            rows = slice(start, min(start + length, n))
            yield rows, 0, self._scores[rows]


Scorer: TypeAlias = FeaturePairs | ScoreMatrix


class RankCounter:
    """Counts candidates before each of p relevant ones (`above`) and those with its score, itself included (`tied`).

    `query` (p,) int64 ascends, and `candidate` (p,) is relevant to it.
    """

    def __init__(self, scorer: Scorer, query: Counts, candidate: Counts) -> None:
        self._scorer, self._host_query = scorer, query
        self._query = torch.from_numpy(query).to(scorer.device)
        self._own = scorer.exact(self._query, torch.from_numpy(candidate))
        self.above, self.tied = torch.zeros_like(self._query), torch.zeros_like(self._query)
        # Of each query its first relevant one, then its second, and so on: each is compared with a whole row of scores.
        self._turn = np.arange(len(query)) - np.searchsorted(query, query)

    def count_all(self, progress: PairProgress | None) -> None:
        """Against all candidates."""
        advance = progress_counter(self._scorer.shape[0] * self._scorer.shape[1], progress)
        with plain_arithmetic():
            for rows, first, values in self._scorer.tiles():
                for items in self._items(rows):
                    self._count(items, rows.start, first, values)
                advance(values.numel())

    def count_pools(self, pools: Tensor, progress: PairProgress | None, budget: int | None) -> None:
        """Against the candidates of each query, (q, p) int64 on the CPU, -1 for none, by the definition."""
        advance = progress_counter(int((pools >= 0).sum()), progress)
        length = max(1, (budget or tile_budget(torch.device("cpu"))) // (pools.shape[1] * 32))
        for start in range(0, len(pools), length):
            block = pools[start : start + length]
            row, column = (block >= 0).nonzero(as_tuple=True)
            scores = self._scorer.exact(start + row, block[row, column])
            row = row.to(scores.device)
            for items in self._items(slice(start, start + len(block))):
                item_of = torch.full((len(block),), -1, device=scores.device)
                item_of[self._query[items] - start] = items
                item = item_of[row]
                self._decide(item[item >= 0], scores[item >= 0])
            advance(len(row))

    def _items(self, rows: slice) -> Iterator[Tensor]:
        """Relevant ones of some queries, at most one of each at a time."""
        start, stop = np.searchsorted(self._host_query, [rows.start, rows.stop])
        turns = self._turn[start:stop]
        for turn in range(int(turns.max(initial=-1)) + 1):
            yield torch.from_numpy(start + np.flatnonzero(turns == turn)).to(self._query.device)

    def _count(self, items: Tensor, start: int, first: int, values: Tensor) -> None:
        """Compare relevant ones (i,) with all of a tile."""
        row = self._query[items] - start
        values = values if len(row) == len(values) else values[row]
        low = high = self._own[items]
        if slack := self._scorer.slack:
            low, high = (low - slack).to(values.dtype), (high + slack).to(values.dtype)
            low = torch.nextafter(low, torch.full_like(low, -torch.inf))
            high = torch.nextafter(high, torch.full_like(high, torch.inf))
        over, at_least = values > high[:, None], values >= low[:, None]
        above = _row_counts(over)
        self.above[items] += above
        if slack:
            near = at_least.logical_xor_(over).nonzero()
            item = items[near[:, 0]]
            self._decide(item, self._scorer.exact(self._query[item], first + near[:, 1]))
        else:
            self.tied[items] += _row_counts(at_least) - above

    def _decide(self, item: Tensor, scores: Tensor) -> None:
        """Count pairs (o,) of a relevant one and a score by the definition."""
        own = self._own[item]
        self.above.index_add_(0, item, (scores > own).long())
        self.tied.index_add_(0, item, (scores == own).long())


def _row_counts(flags: Tensor) -> Tensor:
    """How many of each row of (i, w) bool are set; numpy counts ten times as fast as torch sums."""
    if flags.is_cuda:
        return flags.sum(dim=1)
    return torch.from_numpy(np.count_nonzero(flags.numpy(), axis=1))
