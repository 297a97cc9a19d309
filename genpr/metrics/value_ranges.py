"""Whether numbers that were read can be values of a metric. Importing this module does not import torch."""

from __future__ import annotations

import math

from genpr.metrics.registry import ALL_METRICS

_ROUNDING = 1e-6  # of shares that are means of float32
_LARGEST = 1e100  # beyond it, sums and axes of plots overflow


def check_value(name: str, value: float | None, what: str = "value") -> None:
    """Raise unless `value` is None or can be a value of the metric `name`.

    Raises:
        ValueError: It is no such value.
    """
    if value is None:
        return
    low, high = 0.0, 1.0  # also of F-scores, which logs hold beside metrics
    if name in ALL_METRICS:
        metric = ALL_METRICS[name]
        low = -math.inf if metric.lower is None else metric.lower
        high = math.inf if metric.upper is None else metric.upper
    if not (math.isfinite(value) and abs(value) <= _LARGEST and low <= value <= high + _ROUNDING):
        within = (
            f"between {low:g} and {high:g}"
            if math.isfinite(high)
            else "finite" + ", and at least 0" * (low == 0)
        )
        raise ValueError(f"the {what} of {name} is {value:g}, and must be {within}")


def check_interval(name: str, interval: tuple[float, float] | None) -> None:
    """Raise unless `interval` is None or goes from a lower finite number to a higher one.

    Raises:
        ValueError: It does not.
    """
    if interval is None:
        return
    if not -_LARGEST <= interval[0] <= interval[1] <= _LARGEST:
        raise ValueError(
            f"the interval of {name} goes from {interval[0]:g} to {interval[1]:g}, and must go upwards"
        )
