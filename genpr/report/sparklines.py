"""Series of scores as one line of bars each, where there is no room for a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from genpr.metrics.value import MetricValue
from genpr.report.text import can_show, number, wrapped

BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
"""From the least to the most; the second where stdout cannot show the first."""

_MOST_BARS = 32  # that leave room for a name and two numbers

Ends = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One metric along an axis.

    Attributes:
        name: Of the metric.
        values: In order; None where there is none.
        intervals: Both ends of each; None where unknown.
        null: What a perfect generator scores; None where unknown.
    """

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[Ends | None, ...]
    null: float | None = None

    @classmethod
    def of(cls, name: str, metrics: Sequence[MetricValue | None]) -> Series:
        """From what was scored at each position."""
        nulls = [each.null for each in metrics if each is not None and each.null is not None]
        values = tuple(None if each is None else each.value for each in metrics)
        return cls(
            name,
            values,
            tuple(None if each is None else each.interval for each in metrics),
            max(nulls, default=None),
        )

    @property
    def known(self) -> list[float]:
        """The values that there are."""
        return [value for value in self.values if value is not None]

    @property
    def is_flat(self) -> bool:
        """Whether one value lies in every interval, so that the series may be constant."""
        ends = [end for value, end in zip(self.values, self.intervals, strict=True) if value is not None]
        known = [end for end in ends if end is not None]
        is_complete = bool(known) and len(known) == len(ends)
        return is_complete and max(low for low, _ in known) <= min(high for _, high in known)


def sparklines(series: Sequence[Series], *, along: str) -> list[str]:
    """A line for each series with its smallest and largest value, below one that says what the bars mean.

    Bars start at 0 (or at the least value below it) and are full at the null or at the largest value, whichever is more, so
    small differences look small. A series whose intervals share a value is drawn as a constant.

    Args:
        series: Of equal length; those with fewer than two values are left out.
        along: What the bars follow, for the line above.
    """
    found = [each for each in series if len(each.known) > 1]
    if not found:
        return []
    per_bar = math.ceil(len(found[0].values) / _MOST_BARS)
    name, width = max(len(each.name) for each in found), max(len(bars(each)) for each in found)
    lines = [
        f"{each.name:<{name}}  {bars(each):<{width}}  {number(min(each.known))} to {number(max(each.known))}"
        + ", constant within its intervals" * each.is_flat
        for each in found
    ]
    full = "the most" if all(each.null is None for each in found) else "the null, or the most if that is more"
    part = f", a bar for each {per_bar}" if per_bar > 1 else ""
    return [wrapped(f"along {along}{part}; a full bar: {full}"), *lines]


def bars(series: Series) -> str:
    """One character for each value, or for the mean of a few where there are many; a space where there is none."""
    marks, known = BARS if can_show(BARS) else ASCII_BARS, series.known
    if not known:
        return " " * len(series.values)
    low, high = min(0.0, *known), max(series.null or 0.0, *known)
    mean = sum(known) / len(known)
    values = [None if value is None else mean if series.is_flat else value for value in series.values]
    per_bar = math.ceil(len(values) / _MOST_BARS)
    text = ""
    for start in range(0, len(values), per_bar):
        part = [value for value in values[start : start + per_bar] if value is not None]
        share = (sum(part) / len(part) - low) / (high - low) if part and high > low else 0.0
        text += marks[min(int(share * len(marks)), len(marks) - 1)] if part else " "
    return text
