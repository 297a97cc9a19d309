"""The demands of each check on a metric, as margins, and the published pass/fail matrix.

A margin is at least 0 if the criterion holds; the margin of a cell is that of its deciding point.

If fakes are wider than reals, two values of diversity are acceptable: 1, because all reals are covered (marked H), or 0, because
few fakes are near the reals (marked L). A metric may use either, but not both within a cell.

References:
    Räisä, van Breugel, van der Schaar 2025, "Position: All Current Generative Fidelity and Diversity Metrics are
    Flawed", ICML (the criteria and their thresholds); the tables printed by its public code
    (vanderschaarlab/position-fidelity-diversity-metrics-flawed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from genpr.audit.checks import CUBE_OVERLAP, REAL_PLANE_MODES, REALS_ROUNDED

_TOLERANCE = 0.05  # for values that should be 1 or 0, or constant
_FALL = 0.2  # minimum that counts as a difference
_SLACK = 0.1  # by which another point may exceed the highest or lowest one
_HALF_FALL = 0.1
_ROUNDING = 1e-12  # .95 - .95 need not be 0


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric along a grid: values x ascending, means over the repeats, and their standard errors, each (g,).

    A mean is NaN if the metric returned no finite value, a standard error is NaN for a single repeat.
    """

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    se: NDArray[np.float64]
    scenario: str = ""
    setting: str = ""

    def near(self, x: float) -> int:
        """The point nearest to `x`, the lower one of two."""
        distance = np.abs(self.x - x)
        return int(np.argmax(distance <= distance.min() * (1 + 1e-9)))


@dataclass(frozen=True, slots=True)
class Margin:
    """The margin of a criterion, at least 0 if it holds, with the standard error of its values."""

    value: float
    se: float  # without the choice of a largest value
    what: str
    setting: str = ""

    @property
    def holds(self) -> bool:
        """Whether the criterion holds."""
        return self.value >= -_ROUNDING


def all_of(*margins: Margin) -> Margin:
    """The smallest margin."""
    return min(margins, key=lambda margin: margin.value)


def close(curve: Curve, i: int, target: float) -> Margin:
    """Whether a value is `target`."""
    value = float(curve.mean[i])
    return _margin(_TOLERANCE - abs(value - target), f"{_location(curve, i)} should be {target:g}", curve, i)


def bell(curve: Curve, mid: int) -> Margin:
    """Whether the curve is highest in the middle, higher than at both ends, and lowest at one of them."""
    last = len(curve.x) - 1
    return all_of(
        _falls(curve, mid, 0, _FALL),
        _falls(curve, mid, last, _FALL),
        _highest(curve, mid),
        max((_lowest(curve, end) for end in (0, last)), key=lambda margin: margin.value),
    )


def high_low(curve: Curve) -> Margin:
    """Whether the curve falls from its highest to its lowest, from left to right."""
    return _from_to(curve, 0, len(curve.x) - 1)


def low_high(curve: Curve) -> Margin:
    """Whether the curve rises from its lowest to its highest, from left to right."""
    return _from_to(curve, len(curve.x) - 1, 0)


def high_low_mid(curve: Curve, q: float) -> Margin:
    """`high_low`, and the curve has fallen in part at quantile `q` of the grid."""
    point = curve.near(float(np.quantile(curve.x, q)))
    return all_of(high_low(curve), _falls(curve, 0, point, _HALF_FALL))


def flat(curve: Curve, first: int = 0) -> Margin:
    """Whether the curve is constant from point `first` on."""
    v = curve.mean[first:]
    top, low = first + int(v.argmax()), first + int(v.argmin())
    what = f"should not change: {_location(curve, top)}, {_location(curve, low)}"
    return _margin(_TOLERANCE - float(curve.mean[top] - curve.mean[low]), what, curve, top, low)


def converged(curve: Curve) -> Margin:
    """Whether the curve does not change in the upper half of its grid."""
    return flat(curve, int(np.argmax(curve.x >= np.quantile(curve.x, 0.5))))


def _from_to(curve: Curve, high: int, low: int) -> Margin:
    return all_of(_falls(curve, high, low, _FALL), _highest(curve, high), _lowest(curve, low))


def _falls(curve: Curve, high: int, low: int, least: float) -> Margin:
    what = f"{_location(curve, high)} should be {least:g} above {_location(curve, low)}"
    return _margin(float(curve.mean[high] - curve.mean[low]) - least, what, curve, high, low)


def _highest(curve: Curve, i: int) -> Margin:
    top = int(curve.mean.argmax())
    what = f"{_location(curve, i)} should be the highest within {_SLACK:g}, but {_location(curve, top)} is"
    return _margin(_SLACK - float(curve.mean[top] - curve.mean[i]), what, curve, top, i)


def _lowest(curve: Curve, i: int) -> Margin:
    low = int(curve.mean.argmin())
    what = f"{_location(curve, i)} should be the lowest within {_SLACK:g}, but {_location(curve, low)} is"
    return _margin(_SLACK - float(curve.mean[i] - curve.mean[low]), what, curve, i, low)


def _margin(value: float, what: str, curve: Curve, *points: int) -> Margin:
    """The margin of values at `points`, which are independent draws; NaN fails."""
    if not np.isfinite(curve.mean).all():
        return Margin(-math.inf, math.nan, "the metric has a point without a finite value", curve.setting)
    distinct = sorted(set(points))
    if len(distinct) == 1 and len(points) > 1:
        return Margin(value, 0.0, what, curve.setting)  # a value less itself
    se = math.sqrt(float((curve.se[distinct] ** 2).sum()))
    return Margin(value, se, what, curve.setting)


def _location(curve: Curve, i: int) -> str:
    return f"{curve.mean[i]:.3f} at {curve.x[i]:.3g}"


Kind = Literal["fidelity", "diversity"]
Mark = Literal["T", "F", "H", "L"]
Criterion = Callable[[Curve], Margin]
Ways = Mapping[Mark, Criterion]
"""Criteria by the mark of a pass: "T", or "H" and "L" if either is accepted."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One row of the matrix: the criteria of a check for both kinds of metrics."""

    check: str
    desideratum: str  # "bounds", "property", or one of D2, D3, D5 of the paper
    fidelity: Ways
    diversity: Ways

    @property
    def name(self) -> str:
        """Both parts."""
        return f"{self.check} / {self.desideratum}"


def _true(criterion: Criterion) -> Ways:
    return {"T": criterion}


def _both(check: str, desideratum: str, criterion: Criterion) -> Demand:
    return Demand(check, desideratum, _true(criterion), _true(criterion))


def _values(
    first: float | None = None, last: float | None = None, *, one_at: float | None = None
) -> Criterion:
    """The values at the ends, and a value of 1 at some x, if they are given."""

    def criterion(curve: Curve) -> Margin:
        targets = {0: first, len(curve.x) - 1: last} | ({} if one_at is None else {curve.near(one_at): 1.0})
        return all_of(*(close(curve, i, target) for i, target in targets.items() if target is not None))

    return criterion


def _bell(x: float) -> Criterion:
    return lambda curve: bell(curve, curve.near(x))


def _peak(check: str, x: float) -> tuple[Demand, Demand]:
    return _both(check, "bounds", _values(0, 0, one_at=x)), _both(check, "property", _bell(x))


def _loss(check: str, q: float) -> tuple[Demand, Demand]:
    """Lost modes, which lower diversity but not fidelity."""
    bounds = Demand(check, "bounds", _true(_values(1, 1)), _true(_values(1)))
    return bounds, Demand(check, "property", _true(flat), _true(lambda curve: high_low_mid(curve, q)))


def _size(check: str, desideratum: str) -> tuple[Demand, Demand]:
    return _both(check, desideratum, converged), _both(check, "property", _values(last=CUBE_OVERLAP))


def _rounded(of_reals: tuple[float, float], of_fakes: tuple[float, float]) -> Criterion:
    """The values at both ends, by which side was rounded."""

    def criterion(curve: Curve) -> Margin:
        return _values(*(of_reals if curve.scenario == REALS_ROUNDED else of_fakes))(curve)

    return criterion


DEMANDS: tuple[Demand, ...] = (
    *_peak("mean", 0),
    *_peak("mean+outlier", 0),
    Demand(
        "std",
        "bounds",
        _true(_values(1, 0, one_at=1)),
        {"H": _values(0, 1, one_at=1), "L": _values(0, 0, one_at=1)},
    ),
    Demand("std", "property", _true(high_low), {"H": low_high, "L": _bell(1)}),
    *_loss("simultaneous", 0.95),
    *_loss("sequential", 0.5),
    Demand(
        "invention",
        "bounds",
        _true(_values(1, one_at=REAL_PLANE_MODES)),
        _true(_values(last=1, one_at=REAL_PLANE_MODES)),
    ),
    Demand("invention", "property", _true(high_low), _true(low_high)),
    *_peak("hypersphere", 1),
    *_size("cube-n", "D3"),
    *_size("cube-n-fake", "D2"),
    _both("sphere-torus", "bounds", _values(last=0)),
    _both("sphere-torus", "property", converged),
    _both("collapse", "bounds", _values(1)),
    Demand("collapse", "property", _true(high_low), {"H": flat, "L": high_low}),
    _both("scaling", "bounds", _values(0, 0)),
    _both("scaling", "D5", flat),
    *_peak("pareto", 0),
    _both("disjoint", "bounds", _values(0, 0)),
    _both("disjoint", "property", flat),
    Demand(
        "discrete",
        "bounds",
        _true(_rounded((0, 0), (1, 1))),
        {"H": _rounded((1, 1), (0, 0)), "L": _rounded((0, 0), (0, 0))},
    ),
    _both("discrete", "property", flat),
)
"""In the order of the published tables."""


SOURCE = "Räisä, van Breugel, van der Schaar 2025, ICML"

_PUBLISHED = {
    "precision": ("I-Prec", "FTFFFTFTFTTTFFFFTFTTFTFFFTFFFF"),
    "recall": ("I-Rec", "FTFFFHFFFTTTFFFFFFTFFFTFTTFFFF"),
    "density": ("Dens", "TTFTFTTFTTTTFFFFTFTTTTTTTTFFFF"),
    "coverage": ("Cov", "TTTTFFTTTTFFFFFFFFFFTFTTTTFFFF"),
    "symmetric_precision": ("symPrec", "FTFFFFFFFFFFTTFFFFTTFTTTTTFFFF"),
    "symmetric_recall": ("symRec", "FTFTFFFFFTFFTTFFFFFFFFTTTTFFFF"),
    "p_precision": ("P-Prec", "FTFTFTFTFTFTFFFFTFTTFTTTFTFFFF"),
    "p_recall": ("P-Rec", "FTFTFHFTFTFTFFFFFFTFFFTTFTFFFF"),
}
"""The published column of a metric, and one mark per row of the matrix, in the order of `DEMANDS`.

The published "C-Prec" and "C-Rec" are the reverse of the definition, so they are not compared with the covers of genpr.
"""

COLUMN_OF = {metric: column for metric, (column, _) in _PUBLISHED.items()}


def published_mark(metric: str, row: int) -> Mark | None:
    """The published mark of a metric in row `row` of the matrix; None if it was not audited."""
    return cast("Mark", _PUBLISHED[metric][1][row]) if metric in _PUBLISHED else None
