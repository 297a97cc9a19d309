"""Metrics along an axis, such as psi or the steps of a training run, with intervals and what a perfect generator scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from genpr.checkpoints.sweep import warnings_of
from genpr.evaluation.result import Result
from genpr.metrics.registry import DEFAULT_METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET = "#222222", "#888888"
# Told apart with any colour vision: Okabe & Ito 2008.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
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
"""For `genpr.report.plots.drawing.drawing`."""
_MOST_DENSITY = 2.5  # drawn; shrunken fakes have any
_REACH = 0.35  # of a dotted line to both sides of what stands by itself
_MARKS = "^vsX*"  # of warnings
_ROW = 0.05  # height of a row of them, over that of the picture above 0


def draw_metrics(axes: Axes, label: str, results: Mapping[float, Result]) -> None:
    """Precision, recall, density and coverage as lines with their 95 % intervals; dotted, a perfect generator.

    Args:
        axes: Where to draw.
        label: Of the axis.
        results: By place on it, in ascending order; at least one.
    """
    names = [name for name in DEFAULT_METRICS if all(name in result.metrics for result in results.values())]
    for name, colour in zip(names, COLOURS, strict=False):
        draw_metric(axes, name, colour, results)
    highest = 1.1 * max((result[name] for result in results.values() for name in names), default=1.0)
    top = max(1.05, min(highest, _MOST_DENSITY))
    rows = _draw_warnings(axes, results, _ROW * top)
    axes.set(xlabel=label, ylim=(-_ROW * top * (rows + 0.4 * bool(rows)), top))
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])
    cut = f"; cut at {_MOST_DENSITY:g}" if highest > _MOST_DENSITY else ""
    below = "; below 0: warnings" if rows else ""
    axes.set_title(f"dotted: a perfect generator{cut}{below}", fontsize=9, loc="left")


def put_legend(axes: Axes, *, columns: int) -> None:
    """Below the axis, where it hides nothing."""
    axes.legend(frameon=False, fontsize=8, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.12))


def draw_metric(
    axes: Axes, name: str, colour: str, results: Mapping[float, Result], *, is_ordered: bool = True
) -> None:
    """One metric along the axis: values, 95 % intervals where they are known, and dotted, a perfect generator.

    Args:
        axes: Where to draw.
        name: Of the metric, which all results have.
        colour: Of everything that is drawn.
        results: By place on the axis; at least one.
        is_ordered: Whether lines may join the values; else each has its interval to itself.
    """
    found = {place: result.metrics[name] for place, result in results.items()}
    values = [metric.value for metric in found.values()]
    low, high = zip(
        *(metric.interval or (metric.value, metric.value) for metric in found.values()), strict=True
    )
    line: dict[str, Any] = {"linewidth": 1.4} if is_ordered else {"linestyle": "none"}
    axes.plot(list(found), values, color=colour, marker="o", markersize=3, label=name, **line)
    if is_ordered:
        axes.fill_between(list(found), low, high, color=colour, alpha=0.18, linewidth=0)
    else:
        axes.vlines(list(found), low, high, color=colour, linewidth=1.4)
    nulls = {place: metric.null for place, metric in found.items() if metric.null is not None}
    dotted: dict[str, Any] = {"linewidth": 0.9, "linestyle": ":"}
    if is_ordered:
        axes.plot(list(nulls), list(nulls.values()), color=colour, **dotted)
    else:
        ends = [place - _REACH for place in nulls], [place + _REACH for place in nulls]
        axes.hlines(list(nulls.values()), *ends, color=colour, **dotted)


def _draw_warnings(axes: Axes, results: Mapping[float, Result], height: float) -> int:
    """Marks below zero for each score that something is wrong with, one row per code; the number of rows."""
    codes = dict.fromkeys(code for result in results.values() for code in warnings_of(result))
    for row, code in enumerate(codes, start=1):
        places = [place for place, result in results.items() if code in warnings_of(result)]
        mark = _MARKS[(row - 1) % len(_MARKS)]
        axes.scatter(places, [-height * row] * len(places), marker=mark, color=INK, s=18, label=code)
    if codes:
        axes.axhline(0, color=QUIET, linewidth=0.8)
    return len(codes)
