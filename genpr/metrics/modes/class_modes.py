"""Classes of the reals by how many of their images no fake covers.

Only the reals have classes, so relabelling both sets would leave some reals without one. Whatever its class, a real is
uncovered by a perfect generator with the chance that the null of coverage gives. How much counts of a class scatter,
which hangs on how many neighbours its images share, is seen when the reals are divided at random as the two sets are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genpr.metrics.joint import JointNeighbours
from genpr.metrics.modes.excess import LEVEL, Counts, holm, spread_of, surprise
from genpr.metrics.null import balls_hit

_LABELLINGS = 200

Flags = NDArray[np.bool_]


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


def ranked_classes(
    near: JointNeighbours,
    is_real: Flags,
    uncovered: Flags,
    labels: Sequence[str | None] | None,
    *,
    k: int,
    seed: int,
) -> tuple[tuple[ClassShare, ...], float]:
    """Significant classes first, by how far their share is beyond expectation; and that share.

    Args:
        near: Neighbours of all images.
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
    near: JointNeighbours, is_real: Flags, number: NDArray[np.int64], m: int, *, k: int, seed: int
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

    found = [counted() for _ in range(_LABELLINGS)]
    flagged, size = (np.array(part).sum(axis=0) for part in zip(*found, strict=True))
    return spread_of(found, float(flagged.sum()) / max(float(size.sum()), 1.0))
