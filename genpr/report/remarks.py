"""What stands behind a single value, in words."""

from __future__ import annotations

from genpr.result import Result
from genpr.values import MetricValue


def remarks_of(result: Result, metric: MetricValue) -> list[str]:
    """The exact value beside an emulated one, the spread, other features than the score's, the variant."""
    found = []
    if metric.exact_value is not None:
        found.append(f"{result.distances} arithmetic; the exact value is {metric.exact_value:.4f}")
    if metric.spread is not None:
        found.append(f"standard deviation {metric.spread:.4g} over {metric.spread_over}")
    if metric.extractor is not None and result.extractor and metric.extractor != result.extractor.name:
        found.append(f"on {metric.extractor} features")
    if metric.variant is not None:
        found.append(metric.variant)
    return found
