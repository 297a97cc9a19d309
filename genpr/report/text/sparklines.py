"""Series of scores as one line of bars each, where there is no room for a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from genpr.metrics.value import MetricValue
from genpr.report.text.layout import can_show, number, wrapped

BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
"""From the least to the most; the second where stdout cannot show the first."""

_MOST_BARS = 32  # that leave room for a name and two numbers
_MISSING = " "

Ends = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One metric along an axis.

    Attributes:
        name: Of the metric.
        values: In order; None where there is none.
        intervals: Both ends, of each; None where unknown.
        null: What a perfect generator scores; None where unknown.
    """

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[Ends | None, ...]
    null: float | None = None

    @classmethod
    def of(cls, name: str, metrics: Sequence[MetricValue | None]) -> Self:
        """From what was scored at each place."""
        nulls = [each.null for each in metrics if each is not None and each.null is not None]
        return cls(
            name,
            tuple(None if each is None else each.value for each in metrics),
            tuple(None if each is None else each.interval for each in metrics),
            max(nulls, default=None),
        )

    @property
    def known(self) -> list[float]:
        """The values that there are."""
        return [value for value in self.values if value is not None]

    @property
    def is_flat(self) -> bool:
        """Whether one value lies in every interval, so that nothing shows that the series moves at all."""
        ends = [end for value, end in zip(self.values, self.intervals, strict=True) if value is not None]
        known = [end for end in ends if end is not None]
        return (
            bool(known) and len(known) == len(ends) and max(e[0] for e in known) <= min(e[1] for e in known)
        )


def sparklines(series: Sequence[Series], *, along: str) -> list[str]:
    """A line for each series with its smallest and largest value, below one that says what the bars mean.

    Bars start at 0 (or at the least value below it) and are full at the null or at the largest value, whichever is more: so
    a full bar is as good as a perfect generator's, and small differences look small. What its intervals cannot tell from a
    constant is drawn as one.

    Args:
        series: Of equal length; those with fewer than two values are left out.
        along: What the bars follow, for the line above.
    """
    shown = [each for each in series if len(each.known) > 1]
    if not shown:
        return []
    each_of = math.ceil(len(shown[0].values) / _MOST_BARS)
    places = f", a bar for each {each_of}" if each_of > 1 else ""
    name, width = max(len(each.name) for each in shown), max(len(bars(each)) for each in shown)
    lines = [
        f"{each.name:<{name}}  {bars(each):<{width}}  {number(min(each.known))} to {number(max(each.known))}"
        f"{', level within its intervals' if each.is_flat else ''}"
        for each in shown
    ]
    full = "the most" if all(each.null is None for each in shown) else "the null, or the most if that is more"
    return [wrapped(f"along {along}{places}; a full bar: {full}"), *lines]


def bars(series: Series) -> str:
    """One character for each value, or for the mean of a few where there are many; a space where there is none."""
    marks = BARS if can_show(BARS) else ASCII_BARS
    known = series.known
    if not known:
        return _MISSING * len(series.values)
    low, high = min(0.0, *known), max(series.null or 0.0, *known)
    each_of = math.ceil(len(series.values) / _MOST_BARS)
    if series.is_flat:
        level = sum(known) / len(known)
        values = tuple(None if value is None else level for value in series.values)
    else:
        values = series.values
    parts = [values[start : start + each_of] for start in range(0, len(values), each_of)]
    return "".join(_bar(part, low, high, marks) for part in parts)


def _bar(values: Sequence[float | None], low: float, high: float, marks: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return _MISSING
    share = (sum(known) / len(known) - low) / (high - low) if high > low else 0.0
    return marks[min(int(share * len(marks)), len(marks) - 1)]
