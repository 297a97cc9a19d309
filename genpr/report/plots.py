"""Plots of precision against recall and of single metrics as `<svg>` elements for pages, and plots of sweeps.

Figures use `matplotlib.figure.Figure` without pyplot, and matplotlib's defaults with the settings below, independent of the
user's configuration.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from genpr.checkpoints.criterion import Point, pareto_front
from genpr.checkpoints.rank import Objective
from genpr.evaluation.result import Result
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.registry import DEFAULT_METRICS
from genpr.metrics.value import MetricValue
from genpr.report.text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from genpr.checkpoints.sweep import Sweep

INK, QUIET, GRID, PAPER = "#222222", "#666666", "#dddddd", "#fffffe"
THIS, CONTROL, OTHER = "#0060a0", "#b04a00", "#6b6b6c"
_VARIABLES = {
    INK: "ink",
    QUIET: "quiet",
    GRID: "rule",
    PAPER: "paper",
    THIS: "this",
    CONTROL: "control",
    OTHER: "other",
}
"""Colors that become CSS variables, which differ between light and dark mode."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "svg.fonttype": "none",  # keep text as text, in the font of the page
    "svg.hashsalt": "genpr",  # the same result gives the same file
}
"""Settings of matplotlib."""
_ON_PAGE = STYLE | {"font.size": 10, "axes.facecolor": "none", "figure.facecolor": "none"}


@contextmanager
def drawing(style: Mapping[Any, Any]) -> Iterator[None]:
    """Draw and save figures in this block with the defaults of matplotlib and `style`, then restore the settings."""
    from matplotlib import rc_context, rcParamsDefault

    # Reading the backend may import one, and only pyplot needs it.
    defaults = {name: rcParamsDefault[name] for name in rcParamsDefault if not name.startswith("backend")}
    with rc_context({**defaults, **style}):
        yield


@contextmanager
def _figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    with drawing(_ON_PAGE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots()


def inline_svg(figure: Figure, *, name: str, label: str) -> str:
    """A figure as an `<svg>` element for an HTML page.

    Colors become CSS variables of the page, `name` is a prefix of all ids, and `label` is the text for screen readers. Text
    from users must be drawn with `parse_math=False`, so that mathtext does not parse it.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Remove the style sheet, which would apply to the whole page, and RDF, which is not HTML.
    for tag in ("metadata", "style"):
        before, *others = text.split(f"<{tag}")
        text = before + "".join(other.partition(f"</{tag}>")[2] for other in others)
    text = re.sub(r"<defs>\s*</defs>", "", text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', text)
    text = re.sub(r"font: (\S+) [^;\"]+", r"font-size: \1; font-family: inherit", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    head, _, body = text.partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    opening = f'<svg {view.group() if view else ""} role="img" aria-label="{escape(label)}"'
    return f"{opening}>{body.strip()}"


def has_plane(result: Result) -> bool:
    """Whether a result has precision and recall."""
    return all(name in result.metrics for name in F_SCORE_METRICS)


def plane(results: Sequence[tuple[int, Result]]) -> str:
    """Precision against recall of one or several results with their intervals and numbers, as an `<svg>` element."""
    with _figure(5.2, 5.9 if len(results) > 1 else 5.2) as (figure, axes):
        _draw_plane(axes, [(str(number), result) for number, result in results])
        position: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        axes.legend(frameon=False, fontsize=9, ncols=2, **position)  # above the axes
        values = "; ".join(
            f"{number}: precision {result['precision']:.3f}, recall {result['recall']:.3f}"
            for number, result in results
        )
        return inline_svg(figure, name="plane", label=f"Precision against recall. {values}")


def _draw_plane(axes: Axes, results: Sequence[tuple[str, Result]]) -> None:
    """The results with labels and, if there are several, the Pareto front; null and control of the first result."""
    (_, first), *others = results
    if others:
        _draw_front(axes, [result.tradeoff for _, result in results])
    _draw_point(axes, first, THIS, "o", size=8, label="first result" if others else "this result")
    for index, (_, result) in enumerate(others):
        _draw_point(axes, result, OTHER, "s", size=5, label=None if index else "other results")
    for point, labels in _labels_by_point(results).items() if others else ():
        # Labels above and to the right, or on the other side if a reference value is there.
        is_free = all(
            max(abs(x - point[0]), abs(y - point[1])) > 2 * _NEAR for x, y in _references(first).values()
        )
        position: dict[str, Any] = (
            {"xytext": (7, 6)} if is_free else {"xytext": (-7, -6), "ha": "right", "va": "top"}
        )
        axes.annotate(labels, point, textcoords="offset points", color=INK, zorder=8, **position)
    _finish_plane(axes, first)


_NEAR = 0.045  # distance below which labels of points would overlap


def _labels_by_point(results: Sequence[tuple[str, Result]]) -> dict[Point, str]:
    """The labels by point; points close together share one label at the first of them."""
    found: dict[Point, str] = {}
    for label, result in results:
        x, y = result.tradeoff
        first = next((each for each in found if max(abs(each[0] - x), abs(each[1] - y)) < _NEAR), None)
        if first is None:
            found[x, y] = label
        else:
            found[first] += f", {label}"
    return found


def _references(result: Result) -> dict[str, Point]:
    """Recall and precision of a perfect generator and of one half of the reals against the other, where known."""
    nulls = {name: result.metrics[name].null for name in F_SCORE_METRICS}
    values: Mapping[str, float] = {} if result.control is None else result.control.values
    found: dict[str, Mapping[str, float | None]] = {"perfect generator": nulls, "real v. real": values}
    points = dict[str, Point]()
    for label, known in found.items():
        precision, recall = (known.get(name) for name in F_SCORE_METRICS)
        if precision is not None and recall is not None:
            points[label] = recall, precision
    return points


def _finish_plane(axes: Axes, result: Result) -> None:
    """Lines of equal F1, the values of a perfect generator and of the control, and both axes."""
    for level in (0.2, 0.4, 0.6, 0.8):
        recalls = np.linspace(level / (2 - level), 1, 100)
        axes.plot(recalls, level * recalls / (2 * recalls - level), color=GRID, linewidth=0.8, zorder=0)
        quiet: dict[str, Any] = {"ha": "right", "fontsize": 8, "color": QUIET}
        axes.annotate(f"F1 {level:g}", (1, level / (2 - level)), (-2, 3), textcoords="offset points", **quiet)
    markers: dict[str, dict[str, Any]] = {
        "perfect generator": {
            "marker": "+",
            "markersize": 13,
            "markeredgewidth": 1.6,
            "color": INK,
            "zorder": 6,
        },
        "real v. real": {
            "marker": "D",
            "markersize": 7,
            "markerfacecolor": PAPER,
            "color": CONTROL,
            "zorder": 4,
        },
    }
    for label, (recall, precision) in _references(result).items():
        axes.plot([recall], [precision], linestyle="none", label=label, **markers[label])
    axes.set(
        xlabel="recall (diversity)", ylabel="precision (fidelity)", xlim=(-0.02, 1.04), ylim=(-0.02, 1.04)
    )
    axes.set_aspect("equal")


def _draw_point(
    axes: Axes, result: Result, color: str, marker: str, *, size: int, label: str | None = None
) -> None:
    """A result with both of its intervals."""
    y, x = (result.metrics[name] for name in F_SCORE_METRICS)
    x_arms, y_arms = ([[arm] for arm in _arms_of(metric)] for metric in (x, y))
    look: dict[str, Any] = {"fmt": marker, "color": color, "markersize": size, "elinewidth": 1.4, "zorder": 5}
    axes.errorbar([x.value], [y.value], xerr=x_arms, yerr=y_arms, label=label, **look)


def _draw_front(axes: Axes, points: Sequence[Point]) -> None:
    """The Pareto front of (recall, precision) as a step line to both axes."""
    front = [points[index] for index in pareto_front(points)]
    recalls, precisions = zip((0.0, front[0][1]), *front, (front[-1][0], 0.0), strict=True)
    axes.step(recalls, precisions, where="pre", color=QUIET, linewidth=1, zorder=1, label="Pareto front")


def _arms_of(metric: MetricValue) -> tuple[float, float]:
    """Distances from the value to both ends of its interval; 0 without an interval."""
    low, high = metric.interval or (metric.value, metric.value)
    return max(0.0, metric.value - low), max(0.0, high - metric.value)


_NUMBER = re.compile(r"(?<==)-\d+(?:\.\d+)?|\d+(?:\.\d+)?", re.ASCII)
_WORD = re.compile(r"(?<![A-Za-z])([A-Za-z]+)[^A-Za-z0-9]*$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis with one position per result."""

    label: str  # the quantity on the axis, in characters that mathtext does not parse
    positions: tuple[float, ...]  # all different
    is_ordered: bool  # positions are values of a parameter and not a count, so lines may join points


def axis_of(names: Sequence[str]) -> Axis:
    """The axis of results: the only number in which their names differ, else a count from 1.

    Example:
        >>> axis_of(["step-00400.json", "step-00800.json"])
        Axis(label='step', positions=(400.0, 800.0), is_ordered=True)
        >>> axis_of(["gan.json", "diffusion.json"])
        Axis(label='result', positions=(1.0, 2.0), is_ordered=False)
    """
    counted = Axis("result", tuple(float(number) for number in range(1, len(names) + 1)), is_ordered=False)
    texts = [_NUMBER.split(name) for name in names]
    if any(text != texts[0] for text in texts):
        return counted
    columns = list(zip(*(_NUMBER.findall(name) for name in names), strict=True))
    varying = [index for index, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) != 1:
        return counted
    positions = tuple(float(number) for number in columns[varying[0]])
    if len(set(positions)) < len(positions) or not all(map(math.isfinite, positions)):
        return counted
    word = _WORD.search(texts[0][varying[0]])
    return Axis("number in the name" if word is None else word[1].lower()[:30], positions, is_ordered=True)


def short_names(names: Sequence[str], *, longest: int = 60) -> list[str]:
    """Names that are safe to show, shortened, and all different."""
    short = [shown(name, longest=longest) for name in names]
    if len(set(short)) == len(short):
        return short
    return [f"{number} {each}" for number, each in enumerate(short, 1)]


def draw_metric(
    axes: Axes, name: str, color: str, results: Mapping[float, Result], *, is_ordered: bool = True
) -> None:
    """One metric by position on the axis with 95 % intervals, and a dotted line for a perfect generator."""
    found = {position: result.metrics[name] for position, result in results.items()}
    values = [metric.value for metric in found.values()]
    arms = list(zip(*map(_arms_of, found.values()), strict=True))
    look: dict[str, Any] = {"color": color, "fmt": "o-" if is_ordered else "o", "markersize": 3}
    axes.errorbar(list(found), values, yerr=arms, linewidth=1.4, elinewidth=0.9, label=name, **look)
    nulls = {at: metric.known_null for at, metric in found.items() if metric.known_null is not None}
    axes.plot(list(nulls), list(nulls.values()), ":" if is_ordered else "_", color=color, linewidth=0.9)


def metric_curve(name: str, results: Sequence[Result], axis: Axis) -> str:
    """One metric of all results with intervals and the value of a perfect generator, as an `<svg>` element."""
    placed = dict(sorted(zip(axis.positions, results, strict=True)))
    with _figure(3.0, 2.3) as (figure, axes):
        from matplotlib.ticker import MaxNLocator

        draw_metric(axes, name, THIS, placed, is_ordered=axis.is_ordered)
        axes.set_xlabel(axis.label)
        axes.margins(x=0.06, y=0.12)
        if not axis.is_ordered:
            axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        values = ", ".join(f"{position:g}: {result[name]:.4g}" for position, result in placed.items())
        return inline_svg(figure, name=f"curve-{name}", label=f"{name} by {axis.label}. {values}")


# Distinguishable with any color vision: Okabe & Ito 2008.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MAX_DENSITY = 2.5  # end of the y axis; density is unbounded


def draw_metrics(axes: Axes, label: str, results: Mapping[float, Result]) -> None:
    """Precision, recall, density and coverage by position on an axis, in ascending order."""
    names = [name for name in DEFAULT_METRICS if all(name in result.metrics for result in results.values())]
    for name, color in zip(names, COLORS, strict=False):
        draw_metric(axes, name, color, results)
    highest = 1.1 * max((result[name] for result in results.values() for name in names), default=1.0)
    top = max(1.05, min(highest, _MAX_DENSITY))
    axes.set(xlabel=label, ylabel="value of the metric", ylim=(0, top))
    limited = f"; y axis ends at {_MAX_DENSITY:g}" if highest > _MAX_DENSITY else ""
    axes.set_title(f"dotted: perfect generator{limited}", fontsize=9, loc="left")


def put_legend(axes: Axes, *, columns: int) -> None:
    """Put the legend below the axes."""
    axes.legend(frameon=False, fontsize=8, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.12))


def sweep_plot(sweep: Sweep, objective: Objective, *, form: Literal["png", "svg"]) -> bytes:
    """Left, precision against recall with the setting of each point; right, metrics along the axis.

    The file is the same for the same sweep.
    """
    points, best = sweep.points, sweep.best(objective)
    tied = [point.tradeoff for point in sweep.contenders(objective) or () if point != best]
    rings = [(tied, "o", QUIET, "statistically tied with the best")]
    rings.append(([best.tradeoff] if best else [], "o", INK, f"best: {objective}"))
    with drawing(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.6, 5.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_plane(left, [(f"{point.setting:g}", point.result) for point in points])
        for ringed, marker, color, label in rings:
            if ringed:
                recalls, precisions = zip(*ringed, strict=True)
                look: dict[str, Any] = {"facecolors": "none", "edgecolors": color, "zorder": 7}
                left.scatter(recalls, precisions, marker=marker, s=160, label=label, **look)
        left.set_title(f"labels: {sweep.axis}; bars: 95 % intervals", fontsize=9, loc="left")
        draw_metrics(right, sweep.axis, {point.setting: point.result for point in points})
        put_legend(left, columns=2)
        put_legend(right, columns=3)
        buffer = io.BytesIO()
        made_by = {"Date": None, "Creator": "genpr"} if form == "svg" else {"Software": "genpr"}
        figure.savefig(buffer, format=form, dpi=160, metadata=made_by)
    return buffer.getvalue()
