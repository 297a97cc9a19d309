"""A sweep as a picture: what is traded for what, and each metric along the axis."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from genpr.checkpoints.criterion import Objective
from genpr.checkpoints.sweep import Sweep
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.value import MetricValue
from genpr.report.plots.drawing import drawing
from genpr.report.plots.metric_curves import INK, QUIET, STYLE, draw_metrics, put_legend
from genpr.report.plots.tradeoff_plot import arms_of, draw_front

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LABELS = 12
_NEAR_TOP = 0.95
_FAR_BELOW = 0.5


def sweep_plot(sweep: Sweep, objective: Objective, *, form: Literal["png", "svg"]) -> bytes:
    """Left, precision against recall with intervals and the settings beside the points; right, metrics along the axis.

    Returns:
        The file; the same for the same sweep.
    """
    with drawing(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.6, 5.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_tradeoff(left, sweep, objective)
        draw_metrics(right, sweep.axis, {point.setting: point.result for point in sweep.points})
        put_legend(right, columns=3)
        buffer = io.BytesIO()
        undated = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(buffer, format=form, dpi=160, metadata=undated)
    return buffer.getvalue()


def _draw_tradeoff(axes: Axes, sweep: Sweep, objective: Objective) -> None:
    from matplotlib import colormaps

    points = sweep.points
    draw_front(axes, [point.tradeoff for point in points], colour=QUIET)
    recalls, precisions = zip(*(point.tradeoff for point in points), strict=True)
    precision, recall = ([point.result.metrics[name] for point in points] for name in F_SCORE_METRICS)
    axes.errorbar(
        recalls,
        precisions,
        xerr=list(zip(*(arms_of(metric) for metric in recall), strict=True)),
        yerr=list(zip(*(arms_of(metric) for metric in precision), strict=True)),
        fmt="none",
        ecolor=QUIET,
        elinewidth=0.8,
        zorder=2,
    )
    colours = colormaps["viridis"]([place / max(1, len(points) - 1) for place in range(len(points))])
    axes.scatter(recalls, precisions, c=colours, s=28, zorder=3)
    for place in _labelled(len(points)):
        axes.annotate(
            f"{points[place].setting:g}",
            points[place].tradeoff,
            xytext=(6, -13 if points[place].tradeoff[1] > _NEAR_TOP else 5),
            textcoords="offset points",
            color=INK,
            zorder=4,
        )
    _draw_chosen(axes, sweep, objective)
    limits = [_end_of_axis(recall), _end_of_axis(precision)]
    _draw_perfect(axes, points[0].result.metrics, limits)
    axes.set(
        xlabel="recall (diversity)", ylabel="precision (fidelity)", xlim=(0, limits[0]), ylim=(0, limits[1])
    )
    axes.set_title(f"{sweep.axis} beside each point, 95 % intervals", fontsize=9, loc="left")
    put_legend(axes, columns=2)


def _end_of_axis(metrics: list[MetricValue]) -> float:
    """1, or less where everything is far below: points that lie on each other show nothing."""
    highest = max((metric.interval or (0.0, metric.value))[1] for metric in metrics)
    return 1.02 if highest > _FAR_BELOW else max(1.25 * highest, 0.02)


def _draw_perfect(axes: Axes, metrics: Mapping[str, MetricValue], limits: list[float]) -> None:
    precision, recall = (metrics[name].null for name in F_SCORE_METRICS)
    if recall is None or precision is None:
        return
    label = f"perfect: ({recall:.2f}, {precision:.2f})"
    if recall > limits[0] or precision > limits[1]:
        label += ", outside"
    axes.scatter(recall, precision, marker="+", color=INK, s=80, label=label, zorder=3)


def _draw_chosen(axes: Axes, sweep: Sweep, objective: Objective) -> None:
    best = sweep.best(objective)
    others = [point.tradeoff for point in sweep.contenders(objective) or () if point != best]
    if others:
        recalls, precisions = zip(*others, strict=True)
        label = "not told from the best"
        axes.scatter(
            recalls,
            precisions,
            s=160,
            facecolors="none",
            edgecolors=QUIET,
            linewidths=0.9,
            zorder=5,
            label=label,
        )
    for point, marker, size, name in (
        (sweep.knee, "D", 90, "knee"),
        (best, "o", 160, f"best: {objective}"),
    ):
        if point is not None:
            axes.scatter(
                *point.tradeoff,
                marker=marker,
                s=size,
                facecolors="none",
                edgecolors=INK,
                linewidths=1.2,
                zorder=5,
                label=name,
            )


def _labelled(count: int) -> list[int]:
    """Places of the points that are labelled: all of a few, else some of them, both ends included."""
    if count <= _MOST_LABELS:
        return list(range(count))
    return sorted({round(step * (count - 1) / (_MOST_LABELS - 1)) for step in range(_MOST_LABELS)})
