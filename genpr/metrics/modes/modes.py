"""Missed and invented modes: kinds of reals that no fake covers, and kinds of fakes that lie off the reals' manifold.

Both sets together are clustered, without regard to which image is real. In each cluster the reals that no fake covers
(coverage's definition) and the fakes in no real's ball (precision's) are counted, and held against what they would be
if real and fake were drawn from one distribution (`excess`). Clusters of both kinds are tested together.

References:
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (covered).
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models" (outside).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import FeatureError, UsageError
from genpr.metrics.joint import JointNeighbours, list_length
from genpr.metrics.mixed import Mixed
from genpr.metrics.modes.class_modes import ClassShare, ranked_classes
from genpr.metrics.modes.clusters import fitted_centres, mean_of, nearest_centres
from genpr.metrics.modes.excess import LEVEL, Counts, Excess, excess_by_relabelling
from genpr.metrics.progress import PairProgress
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_k,
    check_same_width,
    choose_device,
)

_PER_CLUSTER, _MOST_CLUSTERS = 4, 50  # clusters: root of the smaller set's quarter
_FITTED = 200  # images per cluster that its centre is found from
_UNEQUAL = 4  # times as many images as the smaller set has that are used of the larger
LEAST_IMAGES = 50
"""Of each side, to see kinds of them."""

Flags = NDArray[np.bool_]


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
        seed: Of the clusters and the labellings.
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
        seed: Of the clusters, the labellings and the part of a larger set.
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
    near = JointNeighbours.of(mixed.features, length, device=where, progress=progress)
    cells = _cells(mixed.features, count, seed)
    return _Found(mixed, cells, near, (uncovered_k, outside_k), labels, seed).modes(count)


@dataclass(frozen=True)
class _Found:
    """Everything that the report is made from."""

    mixed: Mixed
    cells: NDArray[np.int64]
    near: JointNeighbours
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
        found = excess_by_relabelling(is_real, counts, seed=self.seed)
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
        _, sq = nearest_centres(part, mean, torch.zeros_like(mean)[None])
        rows = self.mixed.rows[at[sq.argsort(stable=True).numpy()]].tolist()
        labels = self.labels[0 if self.mixed.is_real[at[0]] else 1]
        names = Counter(name for row in rows if labels is not None and (name := labels[row]) is not None)
        return tuple(rows), tuple(sorted(names.items(), key=lambda entry: (-entry[1], entry[0])))


def _cells(features: Tensor, count: int, seed: int) -> NDArray[np.int64]:
    """Cluster of each row, found from the first ones, which are of both sets at random."""
    mean = mean_of(features)
    fitted = features[: _FITTED * count].double() - mean
    label, _ = nearest_centres(features, mean, fitted_centres(fitted, count, seed=seed))
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
