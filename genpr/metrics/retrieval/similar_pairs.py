"""The most similar row of another set, and the most similar pairs of all, exactly and without an (n, m) array.

Float32 tiles propose, with a slack that covers their rounding; what they leave open is computed by the definition of
`genpr.metrics.retrieval.similarities`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genpr.metrics.retrieval.similarities import FeaturePairs
from genpr.neighbors.engine import plain_arithmetic
from genpr.neighbors.sweep import Tick, no_tick


def most_similar(
    pairs: FeaturePairs, budget: int, *, own: Tensor | None = None, tick: Tick = no_tick
) -> tuple[Tensor, Tensor]:
    """The right row with the largest cosine to each left one, the first of equal ones.

    Args:
        pairs: n left rows, m right ones, compared by cosine.
        budget: Bytes for a tile.
        own: (n,) int64, the right row that each left one is itself, which does not count; then m is at least 2. None if
            they are different sets.
        tick: Told how many pairs are done with, now and then.

    Returns:
        Indices (n,) int64 and cosines (n,) float64.
    """
    n = len(pairs.left)
    near = torch.full((n,), -torch.inf, device=pairs.device)
    best = torch.full((n,), -torch.inf, dtype=torch.float64, device=pairs.device)
    index = torch.full((n,), len(pairs.right), device=pairs.device)
    with plain_arithmetic(pairs.device):
        for rows, first, values in pairs.tiles(budget):
            if own is not None:
                _leave_out(values, own[rows] - first)
            near[rows] = torch.maximum(near[rows], values.max(dim=1).values)
            # The best is at most the slack above what its tile says, and any other at most that below.
            low = near[rows].double() - 2 * pairs.slack
            row, column = (values.double() >= low[:, None]).nonzero(as_tuple=True)
            row, column = row + rows.start, column + first
            _improve(best, index, row, column, pairs.exact(row, column))
            tick(values.numel())
    return index, best


def _leave_out(values: Tensor, column: Tensor) -> None:
    """Put values (b, w) at `column` (b,) of each row, where the tile has it, below all others."""
    row = ((column >= 0) & (column < values.shape[1])).nonzero()[:, 0]
    values[row, column[row]] = -torch.inf


def _improve(best: Tensor, index: Tensor, row: Tensor, column: Tensor, cosine: Tensor) -> None:
    """Let pairs (o,) take the place of what was best of their rows, in place."""
    before = best.clone()
    best.scatter_reduce_(0, row, cosine, "amax")
    index[best > before] = torch.iinfo(torch.int64).max
    is_best = cosine == best[row]
    index.scatter_reduce_(0, row[is_best], column[is_best], "amin")


class BestPairs(NamedTuple):
    """The pairs of largest cosine, best first, equal ones in any order; no pair that is left out has a cosine as large.

    Attributes:
        cosine: (k,) float64.
        left: (k,) int64.
        right: (k,) int64.
    """

    cosine: Tensor
    left: Tensor
    right: Tensor

    def joined(self, cosine: Tensor, left: Tensor, right: Tensor) -> BestPairs:
        """With more pairs, which come from any device."""
        return BestPairs(
            torch.cat([self.cosine, cosine.cpu()]),
            torch.cat([self.left, left.cpu()]),
            torch.cat([self.right, right.cpu()]),
        )

    def select(self, rows: Tensor) -> BestPairs:
        """Those of `rows`, bool or int64."""
        return BestPairs(self.cosine[rows], self.left[rows], self.right[rows])


def best_pairs(
    pairs: FeaturePairs, least: float, *, most: int, budget: int, tick: Tick = no_tick
) -> BestPairs:
    """Every pair with a cosine of `least` or more; or if these are more than `most`, the best of them.

    Of pairs that tie for the last places none is kept, so that what is kept depends on neither order nor tiles.

    Args:
        pairs: Left and right rows, compared by cosine.
        least: The cosine asked for.
        most: Pairs kept, at most.
        budget: Bytes for a tile.
        tick: Told how many pairs are done with, now and then.
    """
    no_row = torch.empty(0, dtype=torch.int64)
    kept = BestPairs(torch.empty(0, dtype=torch.float64), no_row, no_row)
    with plain_arithmetic(pairs.device):
        for rows, first, values in pairs.tiles(budget):
            row, column = _open_pairs(values, least, pairs.slack, most).unbind(dim=1)
            row, column = row + rows.start, column + first
            kept = kept.joined(pairs.exact(row, column), row, column)
            if len(kept.cosine) > most:
                beyond = kept.cosine.sort(descending=True).values[most]
                least = max(least, float(torch.nextafter(beyond, beyond.new_tensor(torch.inf))))
            kept = kept.select(kept.cosine >= least)
            tick(values.numel())
    return kept.select(kept.cosine.sort(descending=True).indices)


def _open_pairs(values: Tensor, least: float, slack: float, most: int) -> Tensor:
    """Which pairs of a tile (b, w) may reach `least` and be among its best `most`: (o, 2)."""
    open_ = values.double() >= least - slack
    if int(open_.sum()) > most:
        # At least `most` pairs have a cosine no more than the slack below this value.
        open_ = values.double() >= float(values.flatten().topk(most).values[-1]) - 2 * slack
    return open_.nonzero()
