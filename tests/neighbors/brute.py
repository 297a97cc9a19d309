"""The definition in its plainest form, one row against all: what the fast search must equal, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from genpr.neighbors.distance import sq_distances


def kth_sq_distances(features: Tensor, ks: Sequence[int]) -> Tensor:
    """Squared distance from each row of (n, d) to its k-th nearest other row, (len(ks), n) float64."""
    columns = []
    for i, row in enumerate(features):
        others = torch.cat([features[:i], features[i + 1 :]])
        ordered = sq_distances(row.expand_as(others), others).sort().values
        columns.append(ordered[[k - 1 for k in ks]])
    return torch.stack(columns, dim=1)


def inside(centers: Tensor, sq_radii: Tensor, queries: Tensor, *, closed: bool = True) -> Tensor:
    """Which of the balls around (n, d) `centers` contain which of the (m, d) `queries`: (m, n) bool."""
    within = torch.le if closed else torch.lt
    return torch.stack([within(sq_distances(row.expand_as(centers), centers), sq_radii) for row in queries])
