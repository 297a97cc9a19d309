"""Nearest candidates on CPUs by FAISS, which multiplies and selects in one pass over the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from genpr.neighbours.bounds import Placed
from genpr.neighbours.engine import Nearest, Pairs
from genpr.neighbours.torch_tiles import TorchTiles, listed

_QUERIES = 4096  # per search: they are copied


@dataclass(frozen=True, slots=True)
class FaissCpu:
    """FAISS for the nearest rows, torch tiles for membership.

    With -1 appended to the queries, an inner product with the augmented rows is a key but for a constant per
    query, so an inner product search returns the rows of smallest lower bound, each with its own slack.

    Args:
        tiles: How membership tiles are cut.
    """

    tiles: TorchTiles = field(default_factory=TorchTiles)

    def nearest(self, points: Placed, count: int) -> Nearest:
        """See `Engine.nearest`."""
        import faiss  # after torch: the other order can load two OpenMP runtimes

        base = points.augmented.numpy()
        keys = torch.empty(len(points), count, dtype=torch.float64)
        index = torch.empty(len(points), count, dtype=torch.int64)
        for start in range(0, len(points), _QUERIES):
            rows = slice(start, start + _QUERIES)
            queries = points.augmented[rows].clone()
            queries[:, -1] = -1
            found, found_index = faiss.knn(
                queries.numpy(), base, count + 1, metric=faiss.METRIC_INNER_PRODUCT
            )
            others = _without_self(torch.from_numpy(found_index), start)
            keys[rows] = torch.from_numpy(found).gather(1, others).double()
            keys[rows] -= points.half_floors[rows, None].double()
            index[rows] = torch.from_numpy(found_index).gather(1, others)
        return listed(points, keys, index)

    def close_pairs(
        self, rows: Placed, columns: Placed, row_sq_reach: Tensor | None, column_sq_reach: Tensor | None
    ) -> Iterator[Pairs]:
        """See `Engine.close_pairs`."""
        return self.tiles.close_pairs(rows, columns, row_sq_reach, column_sq_reach)


def _without_self(index: Tensor, start: int) -> Tensor:
    """Positions of all but the row itself in each list, or of all but the last where it is not listed."""
    rows = torch.arange(start, start + len(index))
    is_self = index == rows[:, None]
    is_self[:, -1] |= ~is_self.any(dim=1)
    return (~is_self).nonzero()[:, 1].view(len(index), -1)
