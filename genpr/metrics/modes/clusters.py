"""Clusters of images by k-means on their features: the same on any number of threads.

References:
    Johnson, Douze & Jégou 2021, "Billion-scale similarity search with GPUs" (FAISS, whose k-means finds the centres).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from genpr.metrics.blocks import double_blocks

_STEPS = 20


def mean_of(features: Tensor) -> Tensor:
    """Mean (d,) float64 of (n, d) features, n at least 1."""
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    for block in double_blocks(features, total.device):
        total += block.sum(dim=0)
    return total / len(features)


def fitted_centres(part: Tensor, count: int, *, seed: int) -> Tensor:
    """Centres of clusters, by FAISS's k-means.

    Args:
        part: (p, d) float64 relative to some mean of the features, p at least `count`.
        count: Number of clusters.
        seed: Of the rows that it starts from.

    Returns:
        (count, d) float64.
    """
    import faiss  # after torch: the other order can load two OpenMP runtimes

    # Without a scale, squares of large features overflow float32, in which FAISS computes.
    scale = part.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    rows = (part / scale).float().contiguous().numpy()
    means = faiss.Kmeans(
        rows.shape[1],
        count,
        niter=_STEPS,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=len(rows),
    )
    with _one_thread():
        means.train(rows)
    return torch.from_numpy(means.centroids).double() * scale


def nearest_centres(
    features: Tensor, mean: Tensor, centres: Tensor, *, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cluster of each row of (n, d) features, or of those named, and its squared distance to the centre: two of (n,).

    Args:
        features: (n, d).
        mean: (d,) float64 that the centres are relative to.
        centres: (c, d) float64.
        rows: Indices; None for all.
    """
    labels, distances = [torch.empty(0, dtype=torch.int64)], [mean[:0]]
    for block in double_blocks(features, mean.device, rows=rows):
        moved = block - mean
        sq = moved.square().sum(dim=1, keepdim=True) + centres.square().sum(dim=1) - 2 * moved @ centres.T
        distance, label = sq.min(dim=1)
        labels.append(label)
        distances.append(distance)
    return torch.cat(labels), torch.cat(distances)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums of products depend on who computes which part of them."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
