"""A precision-recall curve as what it is: the lower edge of what classifiers can do.

At each slope l in [0, inf], precision(l) is the least of l * (share of reals called fake) + (share of fakes called
real) over some classifiers, and recall(l) = precision(l) / l. A minimum of finitely many straight lines is known by its
knots. They are kept, and because precision and F-scores are monotone between them and areas have a closed form there,
the largest F-score along the curve and the area under it are exact and not those of a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genpr.errors import UsageError

_ANGLES = 1001  # of the slopes shown beside the knots, as published
_MOST_PRODUCTS = 2**22

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A precision-recall curve, from recall alone to precision alone.

    Attributes:
        slopes: (p,) float64, ascending from 0 to inf: what a share of reals is worth in shares of fakes.
        precision: (p,) float64, not decreasing.
        recall: (p,) float64, not increasing.
    """

    slopes: Floats
    precision: Floats
    recall: Floats

    @property
    def max_precision(self) -> float:
        """Precision where recall does not count: without a split, the share of fakes in the real manifold."""
        return float(self.precision[-1])

    @property
    def max_recall(self) -> float:
        """Recall where precision does not count: without a split, the share of reals in the fake manifold."""
        return float(self.recall[0])

    @property
    def f8(self) -> float:
        """The largest F-score in which recall counts 8 times as much: a number for diversity."""
        return self.f_score(8.0)

    @property
    def f1_8(self) -> float:
        """The largest F-score in which precision counts 8 times as much: a number for fidelity."""
        return self.f_score(1 / 8)

    def f_score(self, beta: float = 1.0) -> float:
        """The largest F-score along the curve; recall counts `beta` times as much as precision.

        Raises:
            UsageError: `beta` is not positive ("bad-beta").
        """
        return float(f_scores(self.precision, self.recall, beta).max())

    def area(self) -> float:
        """Area under precision over recall, 1 for equal distributions: exact between the knots.

        There precision is A + B l and recall B + A / l; the integral over recall is A^2 (1/l - 1/l') + A B log(l'/l).
        """
        left, right = self.slopes[1:-2], self.slopes[2:-1]
        at_left, at_right = self.precision[1:-2], self.precision[2:-1]
        b = (at_right - at_left) / (right - left)
        a = at_left - b * left
        inner = a**2 * (1 / left - 1 / right) + a * b * np.log(right / left)
        # Before the first positive slope recall is constant, after the last finite one precision is.
        return float(inner.sum() + self.precision[-2] * self.recall[-2])


def f_scores(precision: ArrayLike, recall: ArrayLike, beta: float = 1.0) -> Floats:
    """F-scores of pairs of values, element by element; 0 where both are 0.

    Raises:
        UsageError: `beta` is not positive ("bad-beta").
    """
    if not 0 < beta < np.inf:
        raise UsageError(f"beta must be positive, not {beta!r}", code="bad-beta")
    p, r = np.broadcast_arrays(np.asarray(precision, np.float64), np.asarray(recall, np.float64))
    below = beta**2 * p + r
    above = (1 + beta**2) * p * r
    scores: Floats = np.divide(above, below, out=np.zeros(p.shape), where=below > 0)
    return scores


def curve_of_errors(lost: Floats, passed: Floats, *, ends: tuple[float, float] | None = None) -> Curve:
    """The curve of some classifiers, which includes those that call everything real or everything fake.

    Args:
        lost: (c,) share of reals that each calls fake.
        passed: (c,) share of fakes that each calls real.
        ends: Precision at slope inf and recall at slope 0, where these are not what the classifiers achieve there.
    """
    lost, passed = _lower_hull(lost, passed)
    knots = (passed[:-1] - passed[1:]) / (lost[1:] - lost[:-1])
    angles = np.linspace(0, np.pi / 2, _ANGLES + 2)[1:-1]
    slopes = np.unique(np.concatenate([np.tan(angles), knots[knots > 0]]))
    precision = np.empty(len(slopes))
    step = max(1, _MOST_PRODUCTS // len(lost))
    for start in range(0, len(slopes), step):
        chunk = slice(start, start + step)
        precision[chunk] = (slopes[chunk, None] * lost + passed).min(axis=1)
    last, first = ends or (passed[0], lost[-1])
    columns = (
        np.concatenate([[0.0], slopes, [np.inf]]),
        np.concatenate([[0.0], precision, [last]]),
        np.concatenate([[first], precision / slopes, [0.0]]),
    )
    for column in columns:
        column.flags.writeable = False
    return Curve(*columns)


def _lower_hull(lost: Floats, passed: Floats) -> tuple[Floats, Floats]:
    """The classifiers that are best at some slope, by ascending `lost` and descending `passed`."""
    hull: list[tuple[float, float]] = []
    order = np.lexsort((passed, lost))
    for point in zip(lost[order].tolist(), passed[order].tolist(), strict=True):
        if hull and point[1] >= hull[-1][1]:
            continue
        while len(hull) > 1 and _is_above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    points = np.array(hull)
    return points[:, 0], points[:, 1]


def _is_above(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether `middle` is on or above the line between its neighbours."""
    return (middle[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (middle[0] - left[0])
