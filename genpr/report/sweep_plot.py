"""Sweeps and training runs as pictures: precision against recall, and metrics along an axis such as psi or steps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from genpr.checkpoints.criterion import Objective
from genpr.checkpoints.sweep import Sweep, warnings_of
from genpr.evaluation.result import Result
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.registry import DEFAULT_METRICS
from genpr.metrics.value import MetricValue
from genpr.report.drawing import drawing
from genpr.report.plots import arms_of, draw_front, draw_metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET = "#222222", "#888888"
# Distinguishable with any color vision: Okabe & Ito 2008.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "genpr",  # the same numbers give the same file
}
"""Settings of matplotlib for `genpr.report.drawing.drawing`."""
_MOST_DENSITY = 2.5  # drawn; shrunken fakes have any
_MARKS = "^vsX*"  # of warnings
_ROW = 0.05  # height of a row of them, over that of the picture above 0


def draw_metrics(axes: Axes, label: str, results: Mapping[float, Result]) -> None:
    """Precision, recall, density and coverage as lines with their 95 % intervals; dotted, a perfect generator.

    Args:
        axes: Where to draw.
        label: Of the axis.
        results: By position on it, in ascending order; at least one.
    """
    names = [name for name in DEFAULT_METRICS if all(name in result.metrics for result in results.values())]
    for name, color in zip(names, COLORS, strict=False):
        draw_metric(axes, name, color, results)
    highest = 1.1 * max((result[name] for result in results.values() for name in names), default=1.0)
    top = max(1.05, min(highest, _MOST_DENSITY))
    rows = _draw_warnings(axes, results, _ROW * top)
    axes.set(xlabel=label, ylim=(-_ROW * top * (rows + 0.4 * bool(rows)), top))
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])
    limited = f"; cut at {_MOST_DENSITY:g}" if highest > _MOST_DENSITY else ""
    below = "; below 0: warnings" if rows else ""
    axes.set_title(f"dotted: a perfect generator{limited}{below}", fontsize=9, loc="left")


def put_legend(axes: Axes, *, columns: int) -> None:
    """Put the legend below the axis, where it hides nothing."""
    axes.legend(frameon=False, fontsize=8, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.12))


def _draw_warnings(axes: Axes, results: Mapping[float, Result], height: float) -> int:
    """Marks below zero for each score with a warning, one row per code; the number of rows."""
    codes = dict.fromkeys(code for result in results.values() for code in warnings_of(result))
    for row, code in enumerate(codes, start=1):
        found = [position for position, result in results.items() if code in warnings_of(result)]
        mark = _MARKS[(row - 1) % len(_MARKS)]
        axes.scatter(found, [-height * row] * len(found), marker=mark, color=INK, s=18, label=code)
    if codes:
        axes.axhline(0, color=QUIET, linewidth=0.8)
    return len(codes)


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
    draw_front(axes, [point.tradeoff for point in points], color=QUIET)
    recalls, precisions = zip(*(point.tradeoff for point in points), strict=True)
    precision, recall = ([point.result.metrics[name] for point in points] for name in F_SCORE_METRICS)
    x_arms, y_arms = (list(zip(*map(arms_of, metrics), strict=True)) for metrics in (recall, precision))
    bars: dict[str, Any] = {"fmt": "none", "ecolor": QUIET, "elinewidth": 0.8, "zorder": 2}
    axes.errorbar(recalls, precisions, xerr=x_arms, yerr=y_arms, **bars)
    colors = colormaps["viridis"]([index / max(1, len(points) - 1) for index in range(len(points))])
    axes.scatter(recalls, precisions, c=colors, s=28, zorder=3)
    for index in _labeled(len(points)):
        position, is_high = points[index].tradeoff, points[index].tradeoff[1] > _NEAR_TOP
        look: dict[str, Any] = {"textcoords": "offset points", "color": INK, "zorder": 4}
        axes.annotate(f"{points[index].setting:g}", position, xytext=(6, -13 if is_high else 5), **look)
    _draw_chosen(axes, sweep, objective)
    right, top = (_end_of_axis(metrics) for metrics in (recall, precision))
    nulls = [points[0].result.metrics[name].null for name in F_SCORE_METRICS]
    if nulls[0] is not None and nulls[1] is not None:
        outside = ", outside" if nulls[1] > right or nulls[0] > top else ""
        label = f"perfect: ({nulls[1]:.2f}, {nulls[0]:.2f}){outside}"
        axes.scatter(nulls[1], nulls[0], marker="+", color=INK, s=80, label=label, zorder=3)
    axes.set(xlabel="recall (diversity)", ylabel="precision (fidelity)", xlim=(0, right), ylim=(0, top))
    axes.set_title(f"{sweep.axis} beside each point, 95 % intervals", fontsize=9, loc="left")
    put_legend(axes, columns=2)


def _end_of_axis(metrics: Sequence[MetricValue]) -> float:
    """1, or less where everything is far below."""
    highest = max((metric.interval or (0.0, metric.value))[1] for metric in metrics)
    return 1.02 if highest > _FAR_BELOW else max(1.25 * highest, 0.02)


def _draw_chosen(axes: Axes, sweep: Sweep, objective: Objective) -> None:
    """Rings around the best setting, those tied with it, and the knee."""
    best = sweep.best(objective)
    tied = [point.tradeoff for point in sweep.contenders(objective) or () if point != best]
    rings = [(tied, "o", 160, QUIET, 0.9, "statistically tied with the best")]
    rings.append(([sweep.knee.tradeoff] if sweep.knee else [], "D", 90, INK, 1.2, "knee"))
    rings.append(([best.tradeoff] if best else [], "o", 160, INK, 1.2, f"best: {objective}"))
    for points, marker, size, color, width, label in rings:
        if points:
            look: dict[str, Any] = {
                "facecolors": "none",
                "edgecolors": color,
                "linewidths": width,
                "zorder": 5,
            }
            recalls, precisions = zip(*points, strict=True)
            axes.scatter(recalls, precisions, marker=marker, s=size, label=label, **look)


def _labeled(count: int) -> list[int]:
    """Indices of the points that are labeled: all of a few, else some of them, both ends included."""
    if count <= _MOST_LABELS:
        return list(range(count))
    return sorted({round(step * (count - 1) / (_MOST_LABELS - 1)) for step in range(_MOST_LABELS)})
