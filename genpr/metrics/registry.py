"""All metrics by name.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from genpr.errors import UsageError, some
from genpr.metrics.ball_metrics import NEIGHBOR_METRICS
from genpr.metrics.conditional_metrics import CONDITIONAL_METRICS
from genpr.metrics.distribution_metrics import DISTRIBUTION_METRICS
from genpr.metrics.metric import BallMetric, HeldOutMetric, Metric, NeighborMetric, PairwiseMetric
from genpr.neighbors.balls import Ball

M = TypeVar("M", bound=Metric)

_ROUNDING = 1e-6  # of shares that are means of float32
_LARGEST = 1e100  # beyond it, sums and axes of plots overflow


def _by_name(metrics: Sequence[M]) -> Mapping[str, M]:
    return MappingProxyType({metric.name: metric for metric in metrics})


METRICS: Mapping[str, Metric] = _by_name([*NEIGHBOR_METRICS, *DISTRIBUTION_METRICS])
"""Those computed from features alone, by name, in display order."""

CONDITIONAL: Mapping[str, Metric] = _by_name(CONDITIONAL_METRICS)
"""Those that compare with labels, prompts or entities."""

ALL_METRICS: Mapping[str, Metric] = MappingProxyType({**METRICS, **CONDITIONAL})
"""Every metric that a result may hold."""

NEIGHBORS: Mapping[str, NeighborMetric] = _by_name(NEIGHBOR_METRICS)
"""Those that count neighbors."""

BALLS: Mapping[str, BallMetric] = _by_name(
    [each for each in NEIGHBOR_METRICS if isinstance(each, BallMetric)]
)
"""Those that follow from ball memberships."""

PAIRWISE: Mapping[str, PairwiseMetric] = _by_name(
    [each for each in NEIGHBOR_METRICS if isinstance(each, PairwiseMetric)]
)
"""Those with a search of their own."""

HELD_OUT = frozenset(name for name, metric in METRICS.items() if isinstance(metric, HeldOutMetric))
"""Those that compare with reals that were held out of training."""

DEFAULT_METRICS = tuple(name for name, metric in METRICS.items() if metric.is_default)
"""Precision, recall, density and coverage."""


def needed_balls(ks: Mapping[str, int]) -> tuple[list[Ball], list[Ball]]:
    """The balls around reals and around fakes that the ball metrics in `ks`, k by metric, need, each once, ascending."""
    from genpr.validation import check_k  # imports torch

    if unknown := sorted(ks.keys() - NEIGHBORS.keys()):
        raise UsageError(
            f"unknown metrics: {some(unknown)}; known: {', '.join(BALLS)}", code="unknown-metric"
        )
    real, fake = set[Ball](), set[Ball]()
    for name, given in ks.items():
        k = check_k(given)
        if name not in BALLS:
            continue
        real.update(BALLS[name].real_balls(k))
        fake.update(BALLS[name].fake_balls(k))
    return sorted(real), sorted(fake)


def check_value(name: str, value: float | None, what: str = "value") -> None:
    """Raise unless `value` is None or can be a value of the metric `name`."""
    if value is None:
        return
    low, high = 0.0, 1.0  # also of F-scores, which logs hold beside metrics
    if name in ALL_METRICS:
        metric = ALL_METRICS[name]
        low = -math.inf if metric.lower is None else metric.lower
        high = math.inf if metric.upper is None else metric.upper
    if not (math.isfinite(value) and abs(value) <= _LARGEST and low <= value <= high + _ROUNDING):
        raise ValueError(f"the {what} of {name} is {value:g}, and must be a number from {low:g} to {high:g}")


def check_interval(name: str, interval: tuple[float, float] | None) -> None:
    """Raise unless `interval` is None or goes from a lower finite number to a higher one."""
    if interval is not None and not -_LARGEST <= interval[0] <= interval[1] <= _LARGEST:
        raise ValueError(f"the interval of {name} goes from {interval[0]:g} to {interval[1]:g}, not upwards")
