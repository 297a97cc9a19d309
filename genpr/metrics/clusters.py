"""Clusters of images by k-means, kinds of reals that fakes lack, and single features in which two sets differ.

References:
    Johnson, Douze & Jégou 2021, "Billion-scale similarity search with GPUs" (FAISS, whose k-means finds the centers).
    Kolmogorov 1933; Smirnov 1939 (largest difference of two distribution functions).
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
_COMPARED = 2000  # rows per side, among which a distance of .3 is far beyond chance
_ALARM = 0.3
_FEW_AXES = 0.05  # more than this share of odd axes, and distances see them too
_REPEATED, _VARIED = 0.1, 0.5  # shares of distinct values, on a lattice and off it


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
class OddAxes:
    """Single features in which the sets differ although distances hardly can."""

    axes: tuple[int, ...]  # features whose distribution functions differ by more than .3, the worst first
    largest: float  # the largest such difference
    is_lattice: bool  # whether one side takes few distinct values where the other takes many


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


def odd_axes(real: Tensor, fake: Tensor, *, seed: int = 0) -> OddAxes:
    """Features in which a part of the two sets differ beyond chance (Kolmogorov-Smirnov distance over .3)."""
    ours, theirs = (_part(features, seed) for features in (real, fake))
    distance = ks_distances(ours, theirs)
    # Of d features, one is this far off in one of a million comparisons of two sets from one source.
    n, m, d = len(ours), len(theirs), real.shape[1]
    by_chance = math.sqrt(math.log(2 * d / _CHANCE) / 2 * (1 / n + 1 / m))
    odd = (distance > max(_ALARM, by_chance)).nonzero()[:, 0]
    order = odd[distance[odd].argsort(descending=True)]
    distinct = [_distinct_share(part) for part in (ours, theirs)]
    few, many = torch.minimum(*distinct), torch.maximum(*distinct)
    lattice = (few < _REPEATED) & (many > _VARIED)
    axes = tuple(order.tolist()) if len(order) <= max(1, _FEW_AXES * real.shape[1]) else ()
    return OddAxes(axes, float(distance.max()), bool(lattice.double().mean() > _VARIED))


def ks_distances(real: Tensor, fake: Tensor) -> Tensor:
    """Largest difference of the distribution functions of each feature: (d,) float64 for (n, d) and (m, d)."""
    ordered = [part.T.contiguous().sort(dim=1).values for part in (real, fake)]
    pooled = torch.cat(ordered, dim=1)
    below = [torch.searchsorted(part, pooled, right=True).double() / part.shape[1] for part in ordered]
    return (below[0] - below[1]).abs().amax(dim=1)


def _part(features: Tensor, seed: int) -> Tensor:
    rows = torch.randperm(len(features), generator=torch.Generator().manual_seed(seed))[:_COMPARED]
    return features[rows.sort().values].float()


def _distinct_share(rows: Tensor) -> Tensor:
    ordered = rows.sort(dim=0).values
    return ((ordered[1:] != ordered[:-1]).sum(dim=0) + 1).double() / len(rows)


def _chance_of_at_most(count: int, total: int, share: float) -> float:
    """Of a binomial number, that it is no larger."""
    from scipy.special import bdtr

    chance = float(bdtr(count, total, share))
    return chance if math.isfinite(chance) else 1.0
