"""What a curve must look like, as margins: by how much it passes, with the noise of the draws behind it.

A margin is at least 0 where the criterion holds. "All of" is the smallest margin, "any of" the largest, so that the
margin of a whole cell names the one point that decides it.

References:
    Räisä, van Breugel, van der Schaar 2025, "Position: All Current Generative Fidelity and Diversity Metrics are
    Flawed", ICML (the criteria and their thresholds).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

_TOLERANCE = 0.05  # of values that should be 1 or 0, or should not change
_FALL = 0.2  # least that counts as a difference
_SLACK = 0.1  # by which another point may pass the highest or lowest one
_HALF_FALL = 0.1
_ROUNDING = 1e-12  # .95 - .95 need not be 0


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric along a grid.

    Attributes:
        x: (g,) values of the grid, ascending.
        mean: (g,) means over the repeats; NaN where the metric gave none.
        se: (g,) their standard errors; NaN for a single repeat.
        scenario: Which scenario of the check.
        setting: The setting in words.
    """

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    se: NDArray[np.float64]
    scenario: str = ""
    setting: str = ""

    def near(self, x: float) -> int:
        """The point nearest to `x`, the lower of two."""
        distance = np.abs(self.x - x)
        return int(np.argmax(distance <= distance.min() * (1 + 1e-9)))

    def quantile(self, q: float) -> int:
        """The point nearest to quantile `q` of the grid, the lower of two."""
        return self.near(float(np.quantile(self.x, q)))


@dataclass(frozen=True, slots=True)
class Margin:
    """By how much a criterion holds.

    Attributes:
        value: At least 0 where it does.
        se: Standard error of the values it rests on, over repeats; the choice of a largest value is not in it.
        what: What was compared, in words.
        setting: Where, in words.
    """

    value: float
    se: float
    what: str
    setting: str = ""

    @property
    def holds(self) -> bool:
        """Whether the criterion holds."""
        return self.value >= -_ROUNDING

    def at(self, setting: str) -> Margin:
        """The same, said of a setting."""
        return replace(self, setting=setting)


def all_of(*margins: Margin) -> Margin:
    """The smallest."""
    return min(margins, key=_order)


def any_of(*margins: Margin) -> Margin:
    """The largest."""
    return max(margins, key=_order)


def close(curve: Curve, i: int, target: float) -> Margin:
    """Whether a value is `target`."""
    value = float(curve.mean[i])
    return _margin(_TOLERANCE - abs(value - target), f"{_at(curve, i)} should be {target:g}", curve, i)


def bell(curve: Curve, mid: int) -> Margin:
    """Whether the curve is highest in the middle, higher than at both ends, and lowest at one of them."""
    v, last = curve.mean, len(curve.x) - 1
    low = int(v.argmin())
    return all_of(
        _falls(curve, mid, 0, _FALL),
        _falls(curve, mid, last, _FALL),
        _highest(curve, mid),
        any_of(*(_lowest(curve, end, low) for end in (0, last))),
    )


def high_low(curve: Curve) -> Margin:
    """Whether the curve falls from its highest to its lowest, from left to right."""
    return _high_low(curve, 0, len(curve.x) - 1)


def low_high(curve: Curve) -> Margin:
    """Whether the curve rises from its lowest to its highest, from left to right."""
    return _high_low(curve, len(curve.x) - 1, 0)


def high_low_mid(curve: Curve, q: float) -> Margin:
    """`high_low`, and a part of the fall has happened at quantile `q` of the grid."""
    return all_of(high_low(curve), _falls(curve, 0, curve.quantile(q), _HALF_FALL))


def flat(curve: Curve, first: int = 0) -> Margin:
    """Whether the curve changes nowhere, from point `first` on."""
    v = curve.mean[first:]
    top, low = first + int(v.argmax()), first + int(v.argmin())
    what = f"should not change: {_at(curve, top)}, {_at(curve, low)}"
    return _margin(_TOLERANCE - float(curve.mean[top] - curve.mean[low]), what, curve, top, low)


def converged(curve: Curve) -> Margin:
    """Whether the curve does not change in the upper half of its grid."""
    return flat(curve, int(np.argmax(curve.x >= np.quantile(curve.x, 0.5))))


def _high_low(curve: Curve, high: int, low: int) -> Margin:
    return all_of(
        _falls(curve, high, low, _FALL), _highest(curve, high), _lowest(curve, low, int(curve.mean.argmin()))
    )


def _falls(curve: Curve, high: int, low: int, least: float) -> Margin:
    what = f"{_at(curve, high)} should be {least:g} above {_at(curve, low)}"
    return _margin(float(curve.mean[high] - curve.mean[low]) - least, what, curve, high, low)


def _highest(curve: Curve, i: int) -> Margin:
    top = int(curve.mean.argmax())
    what = f"{_at(curve, i)} should be the highest, but for {_SLACK:g}; highest is {_at(curve, top)}"
    return _margin(_SLACK - float(curve.mean[top] - curve.mean[i]), what, curve, top, i)


def _lowest(curve: Curve, i: int, low: int) -> Margin:
    what = f"{_at(curve, i)} should be the lowest, but for {_SLACK:g}; lowest is {_at(curve, low)}"
    return _margin(_SLACK - float(curve.mean[i] - curve.mean[low]), what, curve, i, low)


def _margin(value: float, what: str, curve: Curve, *points: int) -> Margin:
    """A margin of the values at `points`, which are independent draws; a value that is none fails."""
    if not np.isfinite(curve.mean).all():
        return Margin(-math.inf, math.nan, "the metric gave no finite value somewhere", curve.setting)
    distinct = sorted(set(points))
    if len(distinct) == 1 and len(points) > 1:
        return Margin(value, 0.0, what, curve.setting)  # a value less itself
    se = math.sqrt(float((curve.se[distinct] ** 2).sum()))
    return Margin(value, se, what, curve.setting)


def _order(margin: Margin) -> float:
    return margin.value


def _at(curve: Curve, i: int) -> str:
    return f"{curve.mean[i]:.3f} at {curve.x[i]:.3g}"
