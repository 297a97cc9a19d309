"""How many candidates have a higher score than a relevant one, and how many the same: counted tile by tile."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from genpr.metrics.progress import PairProgress, tally
from genpr.metrics.retrieval.places import Counts
from genpr.metrics.retrieval.scorers import Scorer, Tile
from genpr.neighbors.engine import plain_arithmetic


def counted_places(
    scorer: Scorer, query: Counts, candidate: Counts, progress: PairProgress | None = None
) -> tuple[Counts, Counts]:
    """Place each relevant candidate in the ranking of its query.

    Args:
        scorer: What ranks.
        query: (p,) int64, ascending.
        candidate: (p,) int64, relevant to it.
        progress: Called with the pairs that are done with and their number.

    Returns:
        Candidates of a higher score, (p,) int64, and of the same one, itself among them, (p,) int64.

    Raises:
        DataError: One of them is not ranked by its query ("relevant-not-in-pool").
    """
    scorer.refuse_outside(query, candidate)
    rows, columns = torch.from_numpy(query), torch.from_numpy(candidate)
    own = scorer.exact(rows, columns)
    counter = _Counter(scorer, rows.to(own.device), own)
    # Of each query its first relevant one, then its second, and so on: each is compared with a whole row of scores.
    ordinal = np.arange(len(query)) - np.searchsorted(query, query)
    tick = tally(int(scorer.pool.sum()), progress)
    with plain_arithmetic(own.device):
        for tile in scorer.tiles():
            start, stop = np.searchsorted(query, [tile.rows.start, tile.rows.stop])
            for turn in range(int(ordinal[start:stop].max(initial=-1)) + 1):
                items = start + np.flatnonzero(ordinal[start:stop] == turn)
                counter.count(tile, torch.from_numpy(items).to(own.device))
            tick(tile.values.numel() if tile.ranked is None else int(tile.ranked.sum()))
    return counter.above.cpu().numpy(), counter.tied.cpu().numpy()


class _Counter:
    """Counts so far.

    Attributes:
        above: (p,) int64.
        tied: (p,) int64.
    """

    def __init__(self, scorer: Scorer, query: Tensor, own: Tensor) -> None:
        self._scorer, self._query, self._own = scorer, query, own
        self._threshold = scorer.in_tile_units(query, own)
        self.above = torch.zeros_like(query)
        self.tied = torch.zeros_like(query)

    def count(self, tile: Tile, items: Tensor) -> None:
        """Compare relevant ones (i,), each of another query of the tile, with all of it."""
        row = self._query[items] - tile.rows.start
        values = tile.values if len(row) == len(tile.values) else tile.values[row]
        low, high = self._bounds(items, values.dtype)
        over, at_least = values > high[:, None], values >= low[:, None]
        if tile.ranked is not None:
            over &= tile.ranked[row]
            at_least &= tile.ranked[row]
        above = _row_counts(over)
        self.above[items] += above
        if not self._scorer.slack:
            self.tied[items] += _row_counts(at_least) - above
        else:
            self._verify(items, at_least.logical_xor_(over).nonzero(), tile.first)

    def _bounds(self, items: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Between which values of a tile a pair is open, (i,) each."""
        threshold, slack = self._threshold[items], self._scorer.slack
        if not slack:
            return threshold, threshold
        low, high = (threshold - slack).to(dtype), (threshold + slack).to(dtype)
        return torch.nextafter(low, torch.full_like(low, -torch.inf)), torch.nextafter(
            high, torch.full_like(high, torch.inf)
        )

    def _verify(self, items: Tensor, near: Tensor, first: int) -> None:
        """Decide open pairs by the definition: (o, 2), the place among `items` and the column."""
        item = items[near[:, 0]]
        scores, own = self._scorer.exact(self._query[item], first + near[:, 1]), self._own[item]
        self.above.index_add_(0, item, (scores > own).long())
        self.tied.index_add_(0, item, (scores == own).long())


def _row_counts(flags: Tensor) -> Tensor:
    """How many of each row of (i, w) bool are set; numpy counts ten times as fast as torch sums."""
    if flags.is_cuda:
        return flags.sum(dim=1)
    return torch.from_numpy(np.count_nonzero(flags.numpy(), axis=1))
