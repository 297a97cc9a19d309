"""Clusters of reals that no fake covers, clusters of fakes that lie off the reals' manifold, and missing modes.

Both sets together are clustered. In each cluster the reals that no fake covers (coverage's definition) and the fakes in no
real's ball (precision's) are counted. If both sets are of one distribution, every way to call n of all images real is
equally likely: the statistic is recomputed for random labelings, and the observed one is ranked among them. The
largest statistic over all groups corrects for their number.

References:
    Westfall & Young 1993, "Resampling-Based Multiple Testing" (largest statistic).
    Phipson & Smyth 2010, "Permutation P-values Should Never Be Zero".
    Johnson, Douze & Jégou 2021, "Billion-scale similarity search with GPUs" (FAISS, whose k-means finds the centers).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import FeatureError, count_of
from genpr.metrics.blocks import Blocks, mean_of
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.engine import PairProgress, progress_counter
from genpr.neighbors.index import choose_projection
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_k,
    check_same_width,
    choose_device,
    entry_point,
)

_PER_CLUSTER, _MAX_CLUSTERS = 4, 50  # clusters: root of the smaller set's quarter
_FITTED = 200  # images per cluster that its center is found from
_UNEQUAL = 4  # images used of the larger set, in multiples of the smaller
_BLOCK = 4096  # rows that are copied at a time
_FIRST, _RANKED = 200, 499  # labelings that scale the statistics, and those for their ranks
_RARE = 1e-4  # share of the balls that may reach beyond a list
_STEPS = 20
_KINDS, _KINDS_FITTED = 20, 5000  # clusters of the reals alone, and images that their centers are found from
_MIN_SHARE, _MAX_STARVED = 0.01, 0.2  # of the reals in a cluster; of its expected share of the fakes
_BY_CHANCE = 1e-6  # probability that so few fakes are of a kind
MIN_IMAGES = 50
"""Minimum of images of each set."""
LEVEL = 0.05
"""Significance level of the adjusted p."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Labels = Sequence[str | None] | None
Counts = tuple[Integers, Integers]
"""Of each group (g,): flagged images, and images that could be."""


@dataclass(frozen=True, slots=True)
class ModeCluster:
    """A cluster of one set, with its images that the other set does not cover."""

    size: int  # images of this side in it
    flagged: int  # of these, uncovered reals or fakes outside
    expected: float  # how many would be flagged if both sides were of one distribution
    others: int  # images of the other side in it
    p: float  # probability that any cluster of either kind is as extreme if both sets are of one distribution
    rows: tuple[int, ...]  # the flagged images, those nearest to their mean first: the first is their medoid
    classes: tuple[tuple[str, int], ...] = ()  # number by class, most frequent first; empty if unknown

    @property
    def excess(self) -> float:
        """Share of the flagged beyond the expected one."""
        return (self.flagged - self.expected) / self.size if self.size else 0.0

    @property
    def is_significant(self) -> bool:
        """Whether the excess is statistically significant."""
        return self.p <= LEVEL and self.excess > 0


@dataclass(frozen=True, slots=True)
class Modes:
    """Clusters of both sets; significant ones first, by excess share."""

    uncovered: tuple[ModeCluster, ...]  # clusters by their uncovered reals
    outside: tuple[ModeCluster, ...]  # the same clusters by their fakes outside
    n_real: int  # reals that were used
    n_fake: int  # fakes that were used
    uncovered_k: int  # k of the balls of reals that were searched for fakes
    outside_k: int  # k of the balls in which the fakes themselves should lie
    seed: int  # of the clusters and the labelings


@entry_point
def modes_of(
    real: Features,
    fake: Features,
    *,
    uncovered_k: int = 5,
    outside_k: int = 3,
    clusters: int | None = None,
    real_labels: Labels = None,
    fake_labels: Labels = None,
    most: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: PairProgress | None = None,
) -> Modes:
    """Find uncovered and outside clusters of (m, d) fakes against (n, d) reals, at least 50 images each and more than any k.

    Of a set more than 4 times as large as the other, or than `most`, a random part is used; row indices refer to the whole set.
    There are sqrt(min(n, m) / 4) `clusters`, from 2 to 50, unless their number is given. Labels name the class of each
    image, None for those in no class.
    """
    where = choose_device(real, device)
    ks = check_k(uncovered_k), check_k(outside_k)
    sides = [_checked(real, "real", max(ks)), _checked(fake, "fake", max(ks))]
    check_same_width(*sides)
    check_count(seed, "seed", minimum=0)
    smaller = min(*map(len, sides), most or len(sides[0]))
    most = min(_UNEQUAL * smaller, most or max(map(len, sides)))
    mixed = _Mixed.from_features(*sides, most=most, seed=seed)
    is_real = mixed.is_real
    n, m = int(is_real.sum()), int((~is_real).sum())
    count = max(2, min(_MAX_CLUSTERS, round(math.sqrt(smaller / _PER_CLUSTER))))
    if clusters is not None:
        count = check_count(clusters, "clusters", minimum=2, maximum=smaller // 2)
    length = max(list_length(n, m, k) for k in ks)
    near = JointNeighbors.from_features(mixed.features, length, device=where, progress=progress)
    mean = mean_of(mixed.features)
    fitted = mixed.features[: _FITTED * count].double() - mean  # the first are of both sets at random
    cluster_of = nearest_centers(mixed.features, mean, fitted_centers(fitted, count, seed=seed))[0].numpy()

    def counts(is_real: Flags) -> Counts:
        flags = near.uncovered(is_real, ks[0]), near.outside(is_real, ks[1])
        flagged = [np.bincount(cluster_of[each], minlength=count) for each in flags]
        size = [np.bincount(cluster_of[each], minlength=count) for each in (is_real, ~is_real)]
        return np.concatenate(flagged), np.concatenate(size)

    expected, p = excess_by_relabeling(is_real, counts, seed=seed)
    uncovered, outside = near.uncovered(is_real, ks[0]), near.outside(is_real, ks[1])
    of_reals = mixed.described(cluster_of, is_real, uncovered, real_labels, expected[:count], p[:count])
    of_fakes = mixed.described(cluster_of, ~is_real, outside, fake_labels, expected[count:], p[count:])
    return Modes(of_reals, of_fakes, n, m, *ks, seed)


def _checked(features: Features, name: str, k: int) -> Tensor:
    side, least = check_features(features, name).cpu(), max(MIN_IMAGES, k + 1)
    if len(side) < least:
        text = f"{name} has {count_of(len(side), 'image')}, but at least {least:,} are needed to find modes; use more images"
        raise FeatureError(text, code="too-few")
    return side


@dataclass(frozen=True, slots=True)
class _Mixed:
    """Images of both sets in one order: which are real, and which row of its own set each is."""

    features: Tensor
    is_real: Flags
    rows: Integers

    @classmethod
    def from_features(cls, real: Tensor, fake: Tensor, *, most: int, seed: int) -> _Mixed:
        """At most `most` images of each set, chosen and ordered at random."""
        generator = torch.Generator().manual_seed(seed)
        chosen = [
            torch.randperm(len(side), generator=generator)[:most].sort().values for side in (real, fake)
        ]
        total = sum(map(len, chosen))
        # Written in place to avoid a second copy.
        features = torch.empty(
            total, real.shape[1], dtype=torch.promote_types(real.dtype, fake.dtype), device="cpu"
        )
        places = torch.split(torch.randperm(total, generator=generator), [len(rows) for rows in chosen])
        is_real, rows = np.zeros(total, dtype=bool), np.empty(total, dtype=np.int64)
        is_real[places[0].numpy()] = True
        for side, picked, place in zip((real, fake), chosen, places, strict=True):
            rows[place.numpy()] = picked.numpy()
            for own, at in zip(torch.split(picked, _BLOCK), torch.split(place, _BLOCK), strict=True):
                features[at] = side[own].to(features.dtype)
        return cls(features, is_real, rows)

    def described(
        self, cluster_of: Integers, of_side: Flags, flags: Flags, labels: Labels, expected: Floats, p: Floats
    ) -> tuple[ModeCluster, ...]:
        """Clusters with a flagged image."""
        clusters = []
        for cluster in np.unique(cluster_of[flags]).tolist():
            at = np.flatnonzero(flags & (cluster_of == cluster))
            flagged = self.features[torch.from_numpy(at)]
            mean = mean_of(flagged)
            _, sq = nearest_centers(flagged, mean, torch.zeros_like(mean)[None])
            rows = self.rows[at[sq.argsort(stable=True).numpy()]].tolist()
            names = Counter(name for row in rows if labels and (name := labels[row]) is not None)
            classes = tuple(sorted(names.items(), key=lambda entry: (-entry[1], entry[0])))
            size, others = (int((side & (cluster_of == cluster)).sum()) for side in (of_side, ~of_side))
            of_cluster = float(expected[cluster]), others, float(p[cluster])
            clusters.append(ModeCluster(size, len(rows), *of_cluster, tuple(rows), classes))
        return tuple(sorted(clusters, key=lambda each: (not each.is_significant, -each.excess)))


@dataclass(frozen=True, slots=True)
class JointNeighbors:
    """The L nearest others of each of n images of two sets together, which do not depend on which are real.

    Given a labeling, the ball of a real reaches to its k-th real in that list, and the fakes before it are in the ball.
    """

    index: NDArray[np.int32]  # (n, L), nearest first
    tied: NDArray[np.int32]  # (n, L), the last place in the list that is as far as each

    @classmethod
    def from_features(
        cls, features: Tensor, length: int, *, device: torch.device, progress: PairProgress | None = None
    ) -> JointNeighbors:
        """Search once for L = `length` neighbors, at most n - 1."""
        n, features = len(features), features.to(device)
        neighborhood = Neighborhood.from_points(
            choose_projection(features, length).place(features),
            [BallKind(1)],
            keep=length,
            counts_degrees=False,
            advance=progress_counter(n * (n - 1) // 2, progress),
        )
        sq = neighborhood.lists.sq.cpu().numpy()
        last = np.broadcast_to(np.arange(length, dtype=np.int32), sq.shape).copy()
        for place in range(length - 2, -1, -1):
            same = sq[:, place] == sq[:, place + 1]
            last[same, place] = last[same, place + 1]
        return cls(neighborhood.lists.index.cpu().numpy().astype(np.int32), last)

    def uncovered(self, is_real: Flags, k: int) -> Flags:
        """Reals whose closed ball of k others holds no fake: (n,) bool, false for fakes.

        Those whose first k neighbors are all real, and what else is as far as the last of them.
        """
        flags = is_real.copy()
        for place in range(k):
            flags &= is_real[self.index[:, place]]
        rows = np.flatnonzero(flags)
        rows = rows[self.tied[rows, k - 1] > k - 1]
        within = np.arange(self.index.shape[1]) <= self.tied[rows, k - 1][:, None]
        flags[rows] = ~(within & ~is_real[self.index[rows]]).any(axis=1)
        return flags

    def outside(self, is_real: Flags, k: int) -> Flags:
        """Fakes in no real's closed ball of k others: (n,) bool, false for reals.

        A ball that reaches beyond the list holds all fakes in it, and those beyond count as in none.
        """
        flags = ~is_real
        rows = np.flatnonzero(is_real)
        left = np.full(len(rows), k)  # reals that the ball still has to reach
        limit = np.full(len(rows), -1)  # place in the list of the last that is as far as its k-th real
        for place in range(self.index.shape[1]):
            other = self.index[rows, place]
            real = is_real[other]
            flags[other[~real]] = False
            left -= real
            reached = left == 0
            limit[reached] = self.tied[rows[reached], place]
            going = (left > 0) | (limit > place)
            rows, left, limit = rows[going], left[going], limit[going]
            if not len(rows):
                break
        return flags


def list_length(n_real: int, n_fake: int, k: int) -> int:
    """Least length of lists of which all but one in 10,000 hold k reals."""
    share, most = n_real / (n_real + n_fake), n_real + n_fake - 1
    for length in range(k, most):
        if sum(math.comb(length, i) * share**i * (1 - share) ** (length - i) for i in range(k)) <= _RARE:
            return length
    return most


def excess_by_relabeling(
    is_real: Flags, count: Callable[[Flags], Counts], *, seed: int
) -> tuple[Floats, Floats]:
    """Test all groups of `count`, which do not depend on the labeling, at once and one-sided.

    By group (g,): flagged images on average, and the chance p that any group is as far beyond that, if both sets are of
    one distribution.
    """
    rng = np.random.default_rng(seed)
    # The scale comes from separate labelings, so that the ranked ones and the true one are exchangeable.
    first = [count(rng.permutation(is_real)) for _ in range(_FIRST)]
    flagged, size = (np.array(counts, dtype=np.float64).sum(axis=0) for counts in zip(*first, strict=True))
    # One more image, flagged at the overall rate: with a rate of 0, a single flagged image would be infinitely extreme.
    overall = max(float(flagged.sum()), 1.0) / max(float(size.sum()), 1.0)
    rate: Floats = (flagged + overall) / (size + 1)
    spread = spread_of(first, rate)

    def surprises(flagged: Integers, size: Integers) -> Floats:
        return surprise(flagged, rate * size, spread)

    largest = np.array([surprises(*count(rng.permutation(is_real))).max() for _ in range(_RANKED)])
    true_flagged, true_size = count(is_real)
    p = (1 + (largest[:, None] >= surprises(true_flagged, true_size)).sum(axis=0)) / (1 + _RANKED)
    return rate * true_size, np.where(true_flagged > 0, p, 1.0)


def spread_of(draws: list[Counts], rate: Floats | float) -> Floats:
    """Variance of flagged counts over that of independent ones of so rare a kind, at least 1: (g,)."""
    flagged, size = (np.array(counts, dtype=np.float64) for counts in zip(*draws, strict=True))
    mean = rate * size
    usual = mean.sum(axis=0)
    # One more labeling with the average variance avoids 0 / 0 in groups without a flagged image.
    extra = usual.mean() / len(draws) + 1e-12
    ratio: Floats = (((flagged - mean) ** 2).sum(axis=0) + extra) / (usual + extra)
    return np.maximum(ratio, 1.0 + 1e-3)


def surprise(flagged: Integers, mean: Floats, spread: Floats) -> Floats:
    """Minus the logarithm of the chance that a negative binomial count is so large: (g,); 0 where none is flagged."""
    from scipy.special import betainc

    size = np.maximum(mean, 1e-12) / (spread - 1)
    chance = betainc(np.maximum(flagged, 1), size, 1 - 1 / spread)
    chance = np.where(flagged > 0, chance, 1.0)
    with np.errstate(divide="ignore"):  # beyond float64 all are equally extreme
        return -np.log(chance)


def fitted_centers(rows: Tensor, count: int, *, seed: int) -> Tensor:
    """Centers (count, d) float64 of clusters of (p, d) rows near 0, by FAISS's k-means on one thread."""
    # Without a scale, squares of large features overflow float32, in which FAISS computes.
    scale = torch.maximum(rows.amax(), -rows.amin()).clamp(min=torch.finfo(torch.float64).tiny)
    scaled = torch.div(rows, scale, out=torch.empty_like(rows, dtype=torch.float32)).numpy()
    import faiss  # after torch: the other order can load two OpenMP runtimes

    means = faiss.Kmeans(
        scaled.shape[1],
        count,
        niter=_STEPS,
        seed=seed % 2**31,  # FAISS takes a C int
        min_points_per_centroid=1,
        max_points_per_centroid=len(scaled),
    )
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # sums of products depend on how threads divide them
    try:
        means.train(scaled)
    finally:
        faiss.omp_set_num_threads(threads)
    return torch.from_numpy(means.centroids).double() * scale


def nearest_centers(
    features: Tensor, mean: Tensor, centers: Tensor, *, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cluster of each of the features (n, d), or of `rows`, and squared distance to its center, which is relative to `mean`."""
    labels, distances = [torch.empty(0, dtype=torch.int64)], [mean[:0]]
    for block in Blocks(features, mean.device, rows=rows):
        moved = block - mean
        sq = moved.square().sum(dim=1, keepdim=True) + centers.square().sum(dim=1) - 2 * moved @ centers.T
        distance, label = sq.min(dim=1)
        labels.append(label)
        distances.append(distance)
    return torch.cat(labels), torch.cat(distances)


@dataclass(frozen=True, slots=True)
class MissingKind:
    """A cluster of the reals that hardly any fake falls into."""

    real_share: float  # of the reals in it
    fake_share: float  # of the fakes in it
    row: int  # the real nearest to its center


@dataclass(frozen=True, slots=True)
class RealKinds:
    """Kinds of images among n reals: 20 clusters by k-means, to count fakes in."""

    center: Tensor  # mean of the reals, (d,) float64
    centers: Tensor  # of the clusters, relative to it, (c, d) float64
    shares: Tensor  # of the reals in each cluster, (c,) float64
    rows: Tensor  # the real nearest to the center of each cluster, (c,) int64

    @classmethod
    def fit(cls, real: Tensor, *, seed: int = 0) -> RealKinds | None:
        """Cluster the reals; None if there are too few."""
        n = len(real)
        if n < 10 * _KINDS:
            return None
        center = mean_of(real)
        # A real attracts the center that is fitted to it, so other reals are counted, as fakes are.
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        count = min(_KINDS_FITTED, n // 2)
        fitted, counted = order[:count], order[count:].sort().values
        centers = fitted_centers(real[fitted].double().sub_(center), _KINDS, seed=seed)
        label, sq = nearest_centers(real, center, centers, rows=counted)
        nearest = [sq.where(label == cluster, torch.inf).argmin() for cluster in range(len(centers))]
        shares = label.bincount(minlength=len(centers)).double() / len(counted)
        return cls(center, centers, shares, counted[torch.stack(nearest)])

    def missing(self, fake: Tensor, *, fake_rows: Tensor | None = None) -> tuple[MissingKind, ...]:
        """Clusters of at least 1 % of the reals with at most a fifth of their expected share of the fakes, largest first.

        The probability of so few fakes must be below one in a million.
        """
        from scipy.special import bdtr

        m = len(fake if fake_rows is None else fake_rows)
        label, _ = nearest_centers(fake, self.center, self.centers, rows=fake_rows)
        kinds = []
        counts = label.bincount(minlength=len(self.centers))
        for ours, theirs, row in zip(
            *(each.tolist() for each in (self.shares, counts, self.rows)), strict=True
        ):
            is_starved = ours >= _MIN_SHARE and theirs / m <= _MAX_STARVED * ours
            if is_starved and bdtr(theirs, m, ours) < _BY_CHANCE:  # P(a binomial count is no larger)
                kinds.append(MissingKind(ours, theirs / m, row))
        return tuple(sorted(kinds, key=lambda kind: -kind.real_share))
