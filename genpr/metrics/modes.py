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
from genpr.metrics.class_modes import ClassShare, ranked_classes
from genpr.metrics.clusters import fitted_centres, mean_of, nearest_centres
from genpr.metrics.excess import LEVEL, Counts, Excess, excess_by_relabelling
from genpr.metrics.features import (
    Features,
    check_count,
    check_features,
    check_k,
    check_same_width,
    choose_device,
)
from genpr.metrics.joint import JointNeighbours, list_length
from genpr.metrics.progress import PairProgress

_PER_CLUSTER, _MOST_CLUSTERS = 4, 50  # clusters: root of the smaller set's quarter
_FITTED = 200  # images per cluster that its centre is found from
_UNEQUAL = 4  # times as many images as the smaller set has that are used of the larger
_LEAST = 50

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
    real_labels: Sequence[str] | None = None,
    fake_labels: Sequence[str] | None = None,
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
        real_labels: Class of each real.
        fake_labels: Class of each fake; only names what is found.
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
    rows = [_part(len(side), _UNEQUAL * min(map(len, sides)), seed) for side in sides]
    n, m = map(len, rows)
    most = min(n, m) // 2
    count = (
        max(2, min(_MOST_CLUSTERS, round(math.sqrt(min(n, m) / _PER_CLUSTER))))
        if clusters is None
        else check_count(clusters, "clusters", least=2, most=most)
    )
    joint = torch.cat(
        [side if len(at) == len(side) else side[at] for side, at in zip(sides, rows, strict=True)]
    )
    length = max(list_length(n, m, uncovered_k), list_length(n, m, outside_k))
    near = JointNeighbours.of(joint, length, device=where, progress=progress)
    cells = _cells(joint, count, seed)
    is_real = np.arange(n + m) < n
    return _Found(joint, cells, near, is_real, (uncovered_k, outside_k), rows, labels, seed).modes(count)


@dataclass(frozen=True)
class _Found:
    """Everything that the report is made from: both sets in one, reals first."""

    joint: Tensor
    cells: NDArray[np.int64]
    near: JointNeighbours
    is_real: Flags
    ks: tuple[int, int]
    rows: list[Tensor]
    labels: list[list[str] | None]
    seed: int

    def modes(self, count: int) -> Modes:
        """With `count` clusters."""

        def counts(is_real: Flags) -> Counts:
            flags = self.near.uncovered(is_real, self.ks[0]), self.near.outside(is_real, self.ks[1])
            flagged = [np.bincount(self.cells[each], minlength=count) for each in flags]
            size = [np.bincount(self.cells[each], minlength=count) for each in (is_real, ~is_real)]
            return np.concatenate(flagged), np.concatenate(size)

        found = excess_by_relabelling(self.is_real, counts, seed=self.seed)
        uncovered = self.near.uncovered(self.is_real, self.ks[0])
        outside = self.near.outside(self.is_real, self.ks[1])
        n, m = map(len, self.rows)
        classes, null = ranked_classes(
            self.near, self.is_real, uncovered[:n], self._labels_of(0), k=self.ks[0], seed=self.seed
        )
        return Modes(
            self._ranked(found, range(count), uncovered),
            self._ranked(found, range(count, 2 * count), outside),
            classes,
            n,
            m,
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
        """Rows of their own set of joint rows of one side, nearest to their mean first, and their classes."""
        part = self.joint[torch.from_numpy(at)]
        mean = mean_of(part)
        _, sq = nearest_centres(part, mean, torch.zeros_like(mean)[None])
        side = int(at[0] >= len(self.rows[0]))
        own = at[sq.argsort(stable=True).numpy()] - side * len(self.rows[0])
        labels = self._labels_of(side)
        names = [] if labels is None else [labels[row] for row in own.tolist()]
        classes = sorted(Counter(names).items(), key=lambda entry: (-entry[1], entry[0]))
        return tuple(self.rows[side][torch.from_numpy(own)].tolist()), tuple(classes)

    def _labels_of(self, side: int) -> list[str] | None:
        """Of the rows that are used."""
        labels = self.labels[side]
        return None if labels is None else [labels[row] for row in self.rows[side].tolist()]


def _cells(joint: Tensor, count: int, seed: int) -> NDArray[np.int64]:
    """Cluster of each row."""
    order = torch.randperm(len(joint), generator=torch.Generator().manual_seed(seed))
    mean = mean_of(joint)
    fitted = joint[order[: _FITTED * count].sort().values].double() - mean
    label, _ = nearest_centres(joint, mean, fitted_centres(fitted, count, seed=seed))
    cells: NDArray[np.int64] = label.numpy()
    return cells


def _part(n: int, most: int, seed: int) -> Tensor:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return torch.arange(n) if n <= most else order[:most].sort().values


def _check_enough(side: Tensor, name: str, k: int) -> None:
    least = max(_LEAST, k + 1)
    if len(side) < least:
        raise FeatureError(
            f"{name} has {len(side):,} images, but at least {least:,} are needed to see kinds of them; is this the "
            "full set?",
            code="too-few",
        )


def _checked(labels: Sequence[str] | None, side: Tensor) -> list[str] | None:
    if labels is None:
        return None
    found = [str(label) for label in labels]
    if len(found) != len(side):
        raise UsageError(
            f"there must be one label per image, but there are {len(found):,} labels of {len(side):,} images",
            code="bad-labels",
        )
    return found
