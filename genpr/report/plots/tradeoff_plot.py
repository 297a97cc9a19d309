"""What drawings of precision against recall have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genpr.checkpoints.criterion import Point, pareto_front
from genpr.metrics.value import MetricValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_front(axes: Axes, points: Sequence[Point], *, colour: str, to_axes: bool = False) -> None:
    """The border of all that some point reaches in both recall and precision, through the points that no other one beats.

    Args:
        axes: Where to draw.
        points: At least one.
        colour: Of the line.
        to_axes: Draw also how the border goes on to both axes, where nothing is between it and them.
    """
    front = [points[place] for place in pareto_front(points)]
    if to_axes:
        front = [(0.0, front[0][1]), *front, (front[-1][0], 0.0)]
    recalls, precisions = zip(*front, strict=True)
    axes.step(recalls, precisions, where="pre", color=colour, linewidth=1, zorder=1, label="front")


def arms_of(metric: MetricValue) -> tuple[float, float]:
    """How far the interval reaches below and above the value; 0 where none is known."""
    low, high = metric.interval or (metric.value, metric.value)
    return max(0.0, metric.value - low), max(0.0, high - metric.value)
