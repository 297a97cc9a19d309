"""Missed and invented modes: kinds of reals that no fake covers, and kinds of fakes that lie off the reals' manifold.

Both sets together are clustered, without regard to which image is real. In each cluster the reals that no fake covers
(coverage's definition) and the fakes in no real's ball (precision's) are counted, and held against what they would be
if real and fake were drawn from one distribution. Clusters of both kinds are tested together.

Under the null hypothesis real and fake images are drawn from one distribution. Given all images, without regard to
which are real, every way to call n of them real is then equally likely. A statistic is recomputed for random ways; the
observed one ranks among them as one of them. Groups that were formed without looking at who is real need no correction,
images whose neighbors are shared need none, and the largest statistic over all groups accounts for their number
(Westfall & Young 1993). Nothing is assumed of the distribution or its dimension.

References:
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (covered).
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models" (outside).
    Westfall & Young 1993, "Resampling-Based Multiple Testing" (largest statistic).
    Phipson & Smyth 2010, "Permutation P-values Should Never Be Zero".
    Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
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

from genpr.errors import FeatureError, UsageError
from genpr.metrics.clusters import fitted_centers, mean_of, nearest_centers
from genpr.metrics.joint import JointNeighbors, list_length
from genpr.metrics.null import balls_hit
from genpr.metrics.real_manifold import PairProgress
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_k,
    check_same_width,
    choose_device,
)

_PER_CLUSTER, _MOST_CLUSTERS = 4, 50  # clusters: root of the smaller set's quarter
_FITTED = 200  # images per cluster that its center is found from
_UNEQUAL = 4  # times as many images as the smaller set has that are used of the larger
_BLOCK = 4096  # rows that are copied at a time
_FIRST, _RANKED = 200, 499  # relabelings that scale the statistics, and those among which they rank
_DIVISIONS = 200
LEAST_IMAGES = 50
"""Of each set, to see kinds of images in it."""
LEVEL = 0.05
"""Adjusted p up to which more is said than that chance may do it."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Of each group (g,): flagged images, and images that could be."""


@dataclass(frozen=True, slots=True)
class ModeCluster:
    """A cluster of one side, with those of its images that the other side does not reach.

    Attributes:
        size: Images of this side in it.
        flagged: Of these, uncovered reals or fakes outside.
        expected: How many would be flagged if both sides were of one distribution.
        others: Images of the other side in it.
        p: Adjusted for all clusters of both kinds: chance that any of them is as surprising without any difference.
        rows: The flagged images, those nearest to their mean first: the first is their medoid by squared distances.
        classes: How many of them are of each class, most first; empty where classes are not known.
    """

    size: int
    flagged: int
    expected: float
    others: int
    p: float
    rows: tuple[int, ...]
    classes: tuple[tuple[str, int], ...] = ()

    @property
    def excess(self) -> float:
        """Share of the flagged beyond the expected one."""
        return (self.flagged - self.expected) / self.size if self.size else 0.0

    @property
    def is_significant(self) -> bool:
        """Whether chance alone does not explain it."""
        return self.p <= LEVEL and self.excess > 0


@dataclass(frozen=True, slots=True)
class ClassShare:
    """A class of the reals.

    Attributes:
        name: What it is called.
        size: Reals of it.
        uncovered: Of these, covered by no fake.
        expected: Uncovered ones, were the fakes of a perfect generator.
        p: Chance of so many, adjusted for the number of classes (Holm).
    """

    name: str
    size: int
    uncovered: int
    expected: float
    p: float

    @property
    def excess(self) -> float:
        """Share of the uncovered beyond the expected one."""
        return (self.uncovered - self.expected) / self.size

    @property
    def is_significant(self) -> bool:
        """Whether chance alone does not explain it."""
        return self.p <= LEVEL and self.excess > 0


@dataclass(frozen=True, slots=True)
class Modes:
    """What a generator misses and what it invents.

    Attributes:
        missed: Clusters by their uncovered reals: significant ones first, by how far their share is beyond expectation.
        invented: The same clusters by their fakes outside.
        classes: Of the reals, in the same order; empty where they are not known.
        n_real: Reals that were used.
        n_fake: Fakes that were used.
        uncovered_k: k of the balls in which fakes were looked for.
        outside_k: k of the balls in which the fakes themselves should lie.
        uncovered_null: Share of the reals that a perfect generator leaves uncovered.
        seed: Of the clusters and the labelings.
    """

    missed: tuple[ModeCluster, ...]
    invented: tuple[ModeCluster, ...]
    classes: tuple[ClassShare, ...]
    n_real: int
    n_fake: int
    uncovered_k: int
    outside_k: int
    uncovered_null: float
    seed: int


def modes_of(
    real: Features,
    fake: Features,
    *,
    uncovered_k: int = 5,
    outside_k: int = 3,
    clusters: int | None = None,
    real_labels: Sequence[str | None] | None = None,
    fake_labels: Sequence[str | None] | None = None,
    most: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: PairProgress | None = None,
) -> Modes:
    """Find missed and invented modes.

    Of a set more than 4 times as large as the other a random part of that size is used; rows are those of the whole.

    Args:
        real: (n, d), n at least 50 and more than both k.
        fake: (m, d), likewise.
        uncovered_k: k of coverage's balls around reals.
        outside_k: k of precision's.
        clusters: Their number; None takes sqrt(min(n, m) / 4), from 2 to 50.
        real_labels: Class of each real; None for those without one, which are in no class.
        fake_labels: Class of each fake; only names what is found.
        most: Images of each side that are used, chosen at random; None for no limit.
        seed: Of the clusters, the labelings and the part of a larger set.
        device: As in `manifold_metrics`.
        progress: Called with the pairs of rows done with and their number.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or of different width.
        UsageError: A number is out of range, or there is not one label per row ("bad-labels").

    Example:
        >>> rng = np.random.default_rng(0)
        >>> kinds = 9 * rng.normal(size=(4, 8))[np.arange(400) % 4]
        >>> real, fake = (kinds + rng.normal(size=(400, 8)) for _ in range(2))
        >>> found = modes_of(real, fake[np.arange(400) % 4 != 2], clusters=4)
        >>> [(cluster.flagged, cluster.rows[0] % 4) for cluster in found.missed if cluster.is_significant]
        [(100, 2)]
    """
    where = choose_device(real, device)
    sides = [check_features(real, "real").cpu(), check_features(fake, "fake").cpu()]
    uncovered_k, outside_k = check_k(uncovered_k), check_k(outside_k)
    for side, name in zip(sides, ("real", "fake"), strict=True):
        _check_enough(side, name, max(uncovered_k, outside_k))
    check_same_width(*sides)
    check_count(seed, "seed", least=0)
    labels = [_checked(each, side) for each, side in zip((real_labels, fake_labels), sides, strict=True)]
    smaller = min(map(len, sides))
    smaller = smaller if most is None else min(smaller, check_count(most, "most", least=LEAST_IMAGES))
    mixed = Mixed.of(*sides, most=min(_UNEQUAL * smaller, most or max(map(len, sides))), seed=seed)
    n, m = int(mixed.is_real.sum()), int((~mixed.is_real).sum())
    count = (
        max(2, min(_MOST_CLUSTERS, round(math.sqrt(smaller / _PER_CLUSTER))))
        if clusters is None
        else check_count(clusters, "clusters", least=2, most=smaller // 2)
    )
    length = max(list_length(n, m, uncovered_k), list_length(n, m, outside_k))
    near = JointNeighbors.of(mixed.features, length, device=where, progress=progress)
    cells = _cells(mixed.features, count, seed)
    return _Found(mixed, cells, near, (uncovered_k, outside_k), labels, seed).modes(count)


@dataclass(frozen=True)
class _Found:
    """Everything that the report is made from."""

    mixed: Mixed
    cells: NDArray[np.int64]
    near: JointNeighbors
    ks: tuple[int, int]
    labels: list[list[str | None] | None]
    seed: int

    def modes(self, count: int) -> Modes:
        """With `count` clusters."""

        def counts(is_real: Flags) -> Counts:
            flags = self.near.uncovered(is_real, self.ks[0]), self.near.outside(is_real, self.ks[1])
            flagged = [np.bincount(self.cells[each], minlength=count) for each in flags]
            size = [np.bincount(self.cells[each], minlength=count) for each in (is_real, ~is_real)]
            return np.concatenate(flagged), np.concatenate(size)

        is_real, rows = self.mixed.is_real, self.mixed.rows
        found = excess_by_relabeling(is_real, counts, seed=self.seed)
        uncovered, outside = self.near.uncovered(is_real, self.ks[0]), self.near.outside(is_real, self.ks[1])
        labels = None if self.labels[0] is None else [self.labels[0][row] for row in rows[is_real]]
        classes, null = ranked_classes(
            self.near, is_real, uncovered[is_real], labels, k=self.ks[0], seed=self.seed
        )
        return Modes(
            self._ranked(found, range(count), uncovered),
            self._ranked(found, range(count, 2 * count), outside),
            classes,
            int(is_real.sum()),
            int((~is_real).sum()),
            *self.ks,
            null,
            self.seed,
        )

    def _ranked(self, found: Excess, groups: range, flags: Flags) -> tuple[ModeCluster, ...]:
        """Clusters with a flagged image."""
        clusters = []
        for cell, group in enumerate(groups):
            if found.flagged[group]:
                rows, classes = self._described(np.flatnonzero(flags & (self.cells == cell)))
                size = int(found.size[group])
                everything = int((self.cells == cell).sum())
                facts = int(found.flagged[group]), float(found.expected[group]), everything - size
                clusters.append(ModeCluster(size, *facts, float(found.p[group]), rows, classes))
        return tuple(sorted(clusters, key=lambda each: (not each.is_significant, -each.excess)))

    def _described(self, at: NDArray[np.int64]) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
        """Rows in their own set of some images of one side, nearest to their mean first, and their classes."""
        part = self.mixed.features[torch.from_numpy(at)]
        mean = mean_of(part)
        _, sq = nearest_centers(part, mean, torch.zeros_like(mean)[None])
        rows = self.mixed.rows[at[sq.argsort(stable=True).numpy()]].tolist()
        labels = self.labels[0 if self.mixed.is_real[at[0]] else 1]
        names = Counter(name for row in rows if labels is not None and (name := labels[row]) is not None)
        return tuple(rows), tuple(sorted(names.items(), key=lambda entry: (-entry[1], entry[0])))


def _cells(features: Tensor, count: int, seed: int) -> NDArray[np.int64]:
    """Cluster of each row, found from the first ones, which are of both sets at random."""
    mean = mean_of(features)
    fitted = features[: _FITTED * count].double() - mean
    label, _ = nearest_centers(features, mean, fitted_centers(fitted, count, seed=seed))
    cells: NDArray[np.int64] = label.numpy()
    return cells


def _check_enough(side: Tensor, name: str, k: int) -> None:
    least = max(LEAST_IMAGES, k + 1)
    if len(side) < least:
        raise FeatureError(
            f"{name} has {len(side):,} images, but at least {least:,} are needed to see kinds of them; is this the "
            "full set?",
            code="too-few",
        )


def _checked(labels: Sequence[str | None] | None, side: Tensor) -> list[str | None] | None:
    if labels is None:
        return None
    found = [None if label is None else str(label) for label in labels]
    if len(found) != len(side):
        raise UsageError(
            f"there must be one label per image, but there are {len(found):,} labels of {len(side):,} images",
            code="bad-labels",
        )
    return found


@dataclass(frozen=True, slots=True)
class Mixed:
    """Images of two sets.

    Attributes:
        features: (n, d).
        is_real: (n,) bool, which set each is of.
        rows: (n,) int64, which row of that set.
    """

    features: Tensor
    is_real: NDArray[np.bool_]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, real: Tensor, fake: Tensor, *, most: int, seed: int) -> Mixed:
        """All images of both sets, of each at most `most`, chosen and ordered at random.

        Args:
            real: (n, d).
            fake: (m, d).
            most: Of each set.
            seed: Of choice and order.
        """
        generator = torch.Generator().manual_seed(seed)
        parts = [torch.randperm(len(side), generator=generator)[:most].sort().values for side in (real, fake)]
        total = sum(map(len, parts))
        # Written in place: there never is a second copy.
        features = torch.empty(
            total, real.shape[1], dtype=torch.promote_types(real.dtype, fake.dtype), device="cpu"
        )
        places = torch.split(torch.randperm(total, generator=generator), [len(part) for part in parts])
        is_real, rows = np.zeros(total, dtype=bool), np.empty(total, dtype=np.int64)
        is_real[places[0].numpy()] = True
        for side, part, place in zip((real, fake), parts, places, strict=True):
            rows[place.numpy()] = part.numpy()
            for own, at in zip(torch.split(part, _BLOCK), torch.split(place, _BLOCK), strict=True):
                features[at] = side[own].to(features.dtype)
        return cls(features, is_real, rows)


def ranked_classes(
    near: JointNeighbors,
    is_real: Flags,
    uncovered: Flags,
    labels: Sequence[str | None] | None,
    *,
    k: int,
    seed: int,
) -> tuple[tuple[ClassShare, ...], float]:
    """Significant classes first, by how far their share is beyond expectation; and that share.

    Only the reals have classes, so relabeling both sets would leave some reals without one. Whatever its class, a real is
    uncovered by a perfect generator with the chance that the null of coverage gives. How much counts of a class scatter,
    which depends on how many neighbors its images share, is seen when the reals are divided at random as the two sets are.

    Args:
        near: Neighbors of all images.
        is_real: (n + m,) bool.
        uncovered: (n,) bool, of the reals.
        labels: Class of each real; None for those without one, and instead of all where they are not known.
        k: Of coverage's balls.
        seed: Of the divisions.
    """
    n, m = int(is_real.sum()), int((~is_real).sum())
    null = 1.0 - balls_hit(n, m, k)
    names = sorted({label for label in labels or () if label is not None})
    if labels is None or not names:
        return (), null
    place: dict[str | None, int] = {name: index for index, name in enumerate(names)}
    number = np.array(
        [place.get(label, len(names)) for label in labels]
    )  # one more for those without a class
    size = np.bincount(number, minlength=len(names))[: len(names)]
    flagged = np.bincount(number[uncovered], minlength=len(names))[: len(names)]
    spread = _spread(near, is_real, number, m, k=k, seed=seed)[: len(names)]
    p = holm(np.exp(-surprise(flagged, (null * size).astype(np.float64), spread)))
    found = [
        ClassShare(name, int(own), int(count), null * int(own), float(chance))
        for name, own, count, chance in zip(names, size, flagged, p, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: (not each.is_significant, -each.excess))), null


def _spread(
    near: JointNeighbors, is_real: Flags, number: NDArray[np.int64], m: int, *, k: int, seed: int
) -> NDArray[np.float64]:
    """Of each class, by reals that are called fake at random, one in as many as are fake of all: (c,)."""
    rng = np.random.default_rng(seed)
    n, count = len(number), int(number.max()) + 1
    rows, others = near.nearest_of(is_real, k)
    reals, own = np.flatnonzero(is_real), np.zeros(len(is_real), dtype=np.int64)
    own[reals] = number
    kept = max(round(n * n / (n + m)), 1)

    def counted() -> Counts:
        is_kept = np.zeros(len(is_real), dtype=bool)
        is_kept[rng.permutation(reals)[:kept]] = True
        flags = is_kept[rows] & is_kept[others].all(axis=1)
        return (
            np.bincount(own[rows[flags]], minlength=count),
            np.bincount(own[rows[is_kept[rows]]], minlength=count),
        )

    found = [counted() for _ in range(_DIVISIONS)]
    flagged, size = (np.array(part).sum(axis=0) for part in zip(*found, strict=True))
    return spread_of(found, float(flagged.sum()) / max(float(size.sum()), 1.0))


@dataclass(frozen=True, slots=True)
class Excess:
    """Groups held against random labelings.

    Attributes:
        flagged: (g,) images.
        size: (g,) images that could be flagged.
        expected: (g,) flagged images on average.
        p: (g,) chance that any group is as far beyond it, if both sets are of one distribution.
    """

    flagged: NDArray[np.int64]
    size: NDArray[np.int64]
    expected: Floats
    p: Floats


def excess_by_relabeling(is_real: Flags, count: Callable[[Flags], Counts], *, seed: int) -> Excess:
    """Test all groups of `count` at once, one-sided.

    Args:
        is_real: (n,) bool, the true labeling.
        count: Counts of groups that do not depend on the labeling.
        seed: Of the labelings.
    """
    rng = np.random.default_rng(seed)
    # The scale comes from other labelings than those ranked among, so that these and the true one are alike.
    rate, spread = _rates([count(rng.permutation(is_real)) for _ in range(_FIRST)])
    ranked = [_largest(*count(rng.permutation(is_real)), rate, spread) for _ in range(_RANKED)]
    flagged, size = count(is_real)
    own = surprise(flagged, rate * size, spread)
    p = (1 + (np.array(ranked)[:, None] >= own).sum(axis=0)) / (1 + _RANKED)
    return Excess(flagged, size, rate * size, np.where(flagged > 0, p, 1.0))


def spread_of(found: list[Counts], rate: Floats | float) -> Floats:
    """Variance of flagged counts over that of independent ones of so rare a kind, at least 1: (g,)."""
    flagged, size = (np.array(part, dtype=np.float64) for part in zip(*found, strict=True))
    mean = rate * size
    usual = mean.sum(axis=0)
    # One more labeling that is as usual keeps groups without a flagged image from dividing by zero.
    extra = usual.mean() / len(found) + 1e-12
    ratio: Floats = (((flagged - mean) ** 2).sum(axis=0) + extra) / (usual + extra)
    return np.maximum(ratio, 1.0 + 1e-3)


def surprise(flagged: NDArray[np.int64], mean: Floats, spread: Floats) -> Floats:
    """Minus the logarithm of the chance that a negative binomial count is so large: (g,); 0 where none is flagged."""
    from scipy.special import betainc

    size = np.maximum(mean, 1e-12) / (spread - 1)
    chance = betainc(np.maximum(flagged, 1), size, 1 - 1 / spread)
    chance = np.where(flagged > 0, chance, 1.0)
    with np.errstate(divide="ignore"):  # beyond float64 all are equally surprising
        return -np.log(chance)


def holm(p: Floats) -> Floats:
    """Adjusted p values (g,): the least level at which all of them together allow to reject each."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def _rates(found: list[Counts]) -> tuple[Floats, Floats]:
    flagged, size = (np.array(part, dtype=np.float64).sum(axis=0) for part in zip(*found, strict=True))
    # One more image that is flagged as often as all are: a rate of 0 would make a single one infinitely surprising.
    overall = max(float(flagged.sum()), 1.0) / max(float(size.sum()), 1.0)
    rate: Floats = (flagged + overall) / (size + 1)
    return rate, spread_of(found, rate)


def _largest(flagged: NDArray[np.int64], size: NDArray[np.int64], rate: Floats, spread: Floats) -> float:
    return float(surprise(flagged, rate * size, spread).max())
