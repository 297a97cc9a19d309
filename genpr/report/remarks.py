"""What stands behind a single value, in words."""

from __future__ import annotations

from genpr.evaluation.result import Result
from genpr.metrics.value import MetricValue

CHOSEN = {
    "fixed": "one for all detections",
    "labelled": "chosen on labelled images",
    "prompts": "chosen on these images by what was asked for, each half's on the other half",
}
"""How thresholds were chosen, in words."""


def features_of(result: Result) -> str | None:
    """What made the features, in words; None where there are none, as between answers and what was expected."""
    if result.extractor is not None:
        return result.extractor.name
    return (
        None
        if result.entities is not None and set(result.families) <= {"entity"}
        else "features of an unknown extractor"
    )


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
