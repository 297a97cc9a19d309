"""A sweep as a picture: what is traded for what, and each metric along the axis."""

from __future__ import annotations

import io
from typing import Any, Literal

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from genpr.goal import Goal
from genpr.result import MetricValue
from genpr.sweep import Sweep, SweepPoint, warnings_of

_INK, _QUIET = "#222222", "#888888"
# Told apart with any colour vision: Okabe & Ito 2008.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _QUIET,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "genpr",  # the same sweep gives the same file
}
_MOST_LABELS = 12
_NEAR_TOP = 0.95
_MOST_DENSITY = 2.5  # drawn; shrunken fakes have any
_MARKS = "^vsX*"  # of warnings


def sweep_plot(sweep: Sweep, goal: Goal, *, form: Literal["png", "svg"]) -> bytes:
    """Left, precision against recall with intervals and the settings beside the points; right, metrics along the axis.

    Returns:
        The file; the same for the same sweep.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 5.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_tradeoff(left, sweep, goal)
        _draw_metrics(right, sweep)
        buffer = io.BytesIO()
        undated = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(buffer, format=form, dpi=160, metadata=undated)
    return buffer.getvalue()


def _draw_tradeoff(axes: Axes, sweep: Sweep, goal: Goal) -> None:
    points, front = sweep.points, sweep.front
    axes.step(
        [point.tradeoff[0] for point in front],
        [point.tradeoff[1] for point in front],
        where="pre",
        color=_QUIET,
        linewidth=1,
        zorder=1,
        label="front",
    )
    recalls, precisions = zip(*(point.tradeoff for point in points), strict=True)
    metrics = [(point.result.metrics["recall"], point.result.metrics["precision"]) for point in points]
    axes.errorbar(
        recalls,
        precisions,
        xerr=_arms([recall for recall, _ in metrics]),
        yerr=_arms([precision for _, precision in metrics]),
        fmt="none",
        ecolor=_QUIET,
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
            color=_INK,
            zorder=4,
        )
    _draw_chosen(axes, sweep, goal)
    recall, precision = (points[0].result.metrics[name].null for name in ("recall", "precision"))
    if recall is not None and precision is not None:
        axes.scatter(recall, precision, marker="+", color=_INK, s=80, label="perfect generator", zorder=3)
    axes.set(xlabel="recall (diversity)", ylabel="precision (fidelity)", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.set_title(f"{sweep.axis} beside each point, 95 % intervals", fontsize=9, loc="left")
    _put_legend(axes, columns=2)


def _draw_chosen(axes: Axes, sweep: Sweep, goal: Goal) -> None:
    best = sweep.best(goal)
    others = [point.tradeoff for point in sweep.contenders(goal) or () if point != best]
    if others:
        recalls, precisions = zip(*others, strict=True)
        label = "not told from the best"
        axes.scatter(
            recalls,
            precisions,
            s=160,
            facecolors="none",
            edgecolors=_QUIET,
            linewidths=0.9,
            zorder=5,
            label=label,
        )
    for point, marker, size, name in (
        (sweep.knee, "D", 90, "knee"),
        (best, "o", 160, f"best: {goal}"),
    ):
        if point is not None:
            axes.scatter(
                *point.tradeoff,
                marker=marker,
                s=size,
                facecolors="none",
                edgecolors=_INK,
                linewidths=1.2,
                zorder=5,
                label=name,
            )


def _draw_metrics(axes: Axes, sweep: Sweep) -> None:
    """Shares and densities only: other metrics have other units."""
    settings = [point.setting for point in sweep.points]
    names = [
        name
        for name in ("precision", "recall", "density", "coverage")
        if all(name in point.result.metrics for point in sweep.points)
    ]
    for name, colour in zip(names, _COLOURS, strict=False):
        found = [point.result.metrics[name] for point in sweep.points]
        values = [metric.value for metric in found]
        axes.plot(settings, values, color=colour, linewidth=1.4, marker="o", markersize=3, label=name)
        ends = [metric.interval or (metric.value, metric.value) for metric in found]
        axes.fill_between(
            settings,
            [low for low, _ in ends],
            [high for _, high in ends],
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
        _draw_null(axes, sweep.points, name, colour)
    _draw_warnings(axes, sweep)
    top = max(point.result.metrics[name].value for point in sweep.points for name in names)
    axes.set(xlabel=sweep.axis, ylim=(0, max(1.05, min(1.1 * top, _MOST_DENSITY))))
    cut = f"; cut at {_MOST_DENSITY:g}" if 1.1 * top > _MOST_DENSITY else ""
    axes.set_title(f"dotted: a perfect generator{cut}", fontsize=9, loc="left")
    _put_legend(axes, columns=3)


def _draw_null(axes: Axes, points: tuple[SweepPoint, ...], name: str, colour: str) -> None:
    known = [
        (point.setting, null) for point in points if (null := point.result.metrics[name].null) is not None
    ]
    if known:
        settings, nulls = zip(*known, strict=True)
        axes.plot(settings, nulls, color=colour, linewidth=0.9, linestyle=":")


def _draw_warnings(axes: Axes, sweep: Sweep) -> None:
    """A tick below each setting that something is wrong with."""
    codes = dict.fromkeys(code for point in sweep.points for code in warnings_of(point.result))
    for place, code in enumerate(codes):
        settings = [point.setting for point in sweep.points if code in warnings_of(point.result)]
        mark, height = _MARKS[place % len(_MARKS)], 0.02 + 0.04 * place
        axes.scatter(
            settings, [height] * len(settings), marker=mark, color=_INK, s=22, label=f"warning: {code}"
        )


def _put_legend(axes: Axes, *, columns: int) -> None:
    """Below the axis, where it hides nothing."""
    axes.legend(frameon=False, fontsize=8, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.12))


def _arms(metrics: list[MetricValue]) -> tuple[list[float], list[float]]:
    """How far intervals reach below and above their values; 0 where none is known."""
    ends = [metric.interval or (metric.value, metric.value) for metric in metrics]
    below = [max(0.0, metric.value - low) for metric, (low, _) in zip(metrics, ends, strict=True)]
    above = [max(0.0, high - metric.value) for metric, (_, high) in zip(metrics, ends, strict=True)]
    return below, above


def _labelled(count: int) -> list[int]:
    """Places of the points that are labelled: all of a few, else some of them, both ends included."""
    if count <= _MOST_LABELS:
        return list(range(count))
    return sorted({round(step * (count - 1) / (_MOST_LABELS - 1)) for step in range(_MOST_LABELS)})
