"""Clusters of images by k-means, and kinds of reals that fakes lack.

References:
    Johnson, Douze & Jégou 2021, "Billion-scale similarity search with GPUs" (FAISS, whose k-means finds the centers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.metrics.blocks import double_blocks, mean_of

_STEPS = 20
_CELLS, _FITTED = 20, 5000
_LEAST_SHARE, _STARVED = 0.01, 0.2  # of the reals in a cell; of its fair part that it gets
_CHANCE = 1e-6


def fitted_centers(part: Tensor, count: int, *, seed: int) -> Tensor:
    """Centers (count, d) float64 of clusters of (p, d) rows near 0, by FAISS's k-means on one thread."""
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
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # sums of products depend on who computes which part of them
    try:
        means.train(rows)
    finally:
        faiss.omp_set_num_threads(threads)
    return torch.from_numpy(means.centroids).double() * scale


def nearest_centers(
    features: Tensor, mean: Tensor, centers: Tensor, *, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cluster of each of the features (n, d), or of `rows`, and squared distance to its center, which is relative to `mean`."""
    labels, distances = [torch.empty(0, dtype=torch.int64)], [mean[:0]]
    for block in double_blocks(features, mean.device, rows=rows):
        moved = block - mean
        sq = moved.square().sum(dim=1, keepdim=True) + centers.square().sum(dim=1) - 2 * moved @ centers.T
        distance, label = sq.min(dim=1)
        labels.append(label)
        distances.append(distance)
    return torch.cat(labels), torch.cat(distances)


@dataclass(frozen=True, slots=True)
class MissingKind:
    """A cell of the reals that hardly any fake falls into."""

    real_share: float  # of the reals in it
    fake_share: float  # of the fakes in it
    row: int  # the real nearest to its center


@dataclass(frozen=True, slots=True)
class RealKinds:
    """Kinds of images among n reals: the cells of a k-means clustering (20), to count fakes in."""

    center: Tensor  # mean of the reals, (d,) float64
    centers: Tensor  # of the cells, relative to it, (c, d) float64
    shares: Tensor  # of the reals in each cell, (c,) float64
    rows: Tensor  # the real nearest to the center of each cell, (c,) int64

    @classmethod
    def of(cls, real: Tensor, *, seed: int = 0) -> RealKinds | None:
        """Cluster the reals; None if there are too few."""
        n = len(real)
        if n < 10 * _CELLS:
            return None
        center = mean_of(real)
        # A real pulls the center that it is fitted to towards itself; others are counted, as fakes are.
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        fitted, counted = order[: min(_FITTED, n // 2)], order[min(_FITTED, n // 2) :].sort().values
        centers = fitted_centers(real[fitted].double() - center, _CELLS, seed=seed)
        label, sq = nearest_centers(real, center, centers, rows=counted)
        nearest = [sq.where(label == cell, torch.inf).argmin() for cell in range(len(centers))]
        shares = label.bincount(minlength=len(centers)).double() / len(counted)
        return cls(center, centers, shares, counted[torch.stack(nearest)])

    def missing(self, fake: Tensor, *, fake_rows: Tensor | None = None) -> tuple[MissingKind, ...]:
        """Cells of at least 1 % of the reals that get at most a fifth of their part of the fakes, largest first.

        So few fakes must be a chance below one in a million.
        """
        m = len(fake if fake_rows is None else fake_rows)
        label, _ = nearest_centers(fake, self.center, self.centers, rows=fake_rows)
        found = []
        for ours, theirs, row in zip(
            self.shares.tolist(),
            label.bincount(minlength=len(self.centers)).tolist(),
            self.rows.tolist(),
            strict=True,
        ):
            is_starved = ours >= _LEAST_SHARE and theirs / m <= _STARVED * ours
            if is_starved and _chance_of_at_most(theirs, m, ours) < _CHANCE:
                found.append(MissingKind(ours, theirs / m, row))
        return tuple(sorted(found, key=lambda kind: -kind.real_share))


def _chance_of_at_most(count: int, total: int, share: float) -> float:
    """Of a binomial number, that it is no larger."""
    from scipy.special import bdtr

    chance = float(bdtr(count, total, share))
    return chance if math.isfinite(chance) else 1.0
