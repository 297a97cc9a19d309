"""Plots of precision against recall and of single metrics as `<svg>` elements for pages, and plots of sweeps.

Figures use `matplotlib.figure.Figure` without pyplot, and matplotlib's defaults with the settings below, independent of the
user's configuration.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from genpr.checkpoints.rank import Point, pareto_front
from genpr.evaluation.result import Result
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.metric import MetricValue
from genpr.metrics.registry import DEFAULT_METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from genpr.checkpoints.sweep import Objective, Sweep

INK, QUIET, GRID, PAPER = "#222222", "#666666", "#dddddd", "#fffffe"
THIS, CONTROL, OTHER = "#0060a0", "#b04a00", "#6b6b6c"
_VARIABLES = {INK: "ink", QUIET: "quiet", GRID: "rule", PAPER: "paper"}
_VARIABLES |= {THIS: "this", CONTROL: "control", OTHER: "other"}
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
def _figure(width: float, height: float, style: Mapping[Any, Any] = _ON_PAGE) -> Iterator[Figure]:
    """A figure that is drawn and saved in this block with the defaults of matplotlib and `style`."""
    from matplotlib import style as styles
    from matplotlib.figure import Figure

    with styles.context(["default", dict(style)]):
        yield Figure(figsize=(width, height), layout="constrained")


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


def plane(results: Sequence[tuple[int, Result]]) -> str:
    """Precision against recall of one or several results with their intervals and numbers, as an `<svg>` element."""
    with _figure(5.2, 5.9 if len(results) > 1 else 5.2) as figure:
        axes = figure.subplots()
        _draw_plane(axes, [(str(number), result) for number, result in results])
        position: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        axes.legend(frameon=False, fontsize=9, ncols=2, **position)  # above the axes
        values = "; ".join(
            f"{number}: precision {result['precision']:.3f}, recall {result['recall']:.3f}"
            for number, result in results
        )
        return inline_svg(figure, name="plane", label=f"Precision against recall. {values}")


_REFERENCES: dict[str, dict[str, Any]] = {
    "perfect generator": {"marker": "+", "ms": 13, "mew": 1.6, "color": INK, "zorder": 6},
    "real v. real": {"marker": "D", "ms": 7, "mfc": PAPER, "color": CONTROL, "zorder": 4},
}
_NEAR = 0.045  # distance below which labels of points would overlap


def _draw_plane(axes: Axes, results: Sequence[tuple[str, Result]]) -> None:
    """The results with labels and, if there are several, the Pareto front; null and control of the first result.

    Points close together share one label at the first of them. Lines have equal F1.
    """
    (_, first), *others = results
    if others:
        points = [result.tradeoff for _, result in results]
        front = [points[index] for index in pareto_front(points)]
        recalls, precisions = zip((0.0, front[0][1]), *front, (front[-1][0], 0.0), strict=True)
        axes.step(recalls, precisions, where="pre", color=QUIET, linewidth=1, zorder=1, label="Pareto front")
    labels: dict[Point, str] = {}
    for index, (label, result) in enumerate(results):
        kind = (
            None if index > 1 else "other results" if index else "first result" if others else "this result"
        )
        look: dict[str, Any] = (
            {"fmt": "s", "color": OTHER, "ms": 5} if index else {"fmt": "o", "color": THIS, "ms": 8}
        )
        y, x = (result.metrics[name] for name in F_SCORE_METRICS)
        x_arms, y_arms = ([[arm] for arm in _arms_of(metric)] for metric in (x, y))
        axes.errorbar(
            [x.value], [y.value], xerr=x_arms, yerr=y_arms, label=kind, elinewidth=1.4, zorder=5, **look
        )
        near = (at for at in labels if max(abs(at[0] - x.value), abs(at[1] - y.value)) < _NEAR)
        at = next(near, (x.value, y.value))
        labels[at] = f"{labels[at]}, {label}" if at in labels else label
    for at, text in labels.items() if others else ():
        axes.annotate(text, at, (7, 6), textcoords="offset points", color=INK, zorder=8)
    for level in (0.2, 0.4, 0.6, 0.8):
        xs = np.linspace(level / (2 - level), 1, 100)
        axes.plot(xs, level * xs / (2 * xs - level), color=GRID, linewidth=0.8, zorder=0)
        quiet: dict[str, Any] = {"ha": "right", "fontsize": 8, "color": QUIET}
        axes.annotate(f"F1 {level:g}", (1, level / (2 - level)), (-2, 3), textcoords="offset points", **quiet)
    nulls = {name: first.metrics[name].known_null for name in F_SCORE_METRICS}
    control = {} if first.control is None else first.control.values
    for (label, look), known in zip(_REFERENCES.items(), (nulls, control), strict=True):
        precision, recall = (known.get(name) for name in F_SCORE_METRICS)
        if precision is not None and recall is not None:
            axes.plot([recall], [precision], linestyle="none", label=label, **look)
    ends = (-0.02, 1.04)
    axes.set(xlabel="recall (diversity)", ylabel="precision (fidelity)", xlim=ends, ylim=ends, aspect="equal")


def _arms_of(metric: MetricValue) -> tuple[float, float]:
    """Distances from the value to both ends of its interval; 0 without an interval."""
    low, high = metric.interval or (metric.value, metric.value)
    return max(0.0, metric.value - low), max(0.0, high - metric.value)


def draw_metric(
    axes: Axes, name: str, color: str, results: Mapping[float, Result], *, marks: str = "o-"
) -> None:
    """One metric by position on the axis with 95 % intervals, and a dotted line for a perfect generator."""
    found = {position: result.metrics[name] for position, result in results.items()}
    values = [metric.value for metric in found.values()]
    arms = list(zip(*map(_arms_of, found.values()), strict=True))
    look: dict[str, Any] = {"color": color, "fmt": marks, "markersize": 3, "label": name}
    axes.errorbar(list(found), values, yerr=arms, linewidth=1.4, elinewidth=0.9, **look)
    nulls = {at: metric.known_null for at, metric in found.items() if metric.known_null is not None}
    axes.plot(list(nulls), list(nulls.values()), ":", color=color, linewidth=0.9)


def metric_curve(name: str, results: Sequence[Result]) -> str:
    """One metric by the number of the result with intervals and the value of a perfect generator, as an `<svg>` element."""
    with _figure(3.0, 2.3) as figure:
        from matplotlib.ticker import MaxNLocator

        axes = figure.subplots()
        draw_metric(axes, name, THIS, dict(enumerate(results, 1)), marks="o")
        axes.set_xlabel("result")
        axes.margins(x=0.06, y=0.12)
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        values = ", ".join(f"{number}: {result[name]:.4g}" for number, result in enumerate(results, 1))
        return inline_svg(figure, name=f"curve-{name}", label=f"{name} by result. {values}")


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


def sweep_plot(sweep: Sweep, objective: Objective) -> bytes:
    """A PNG file: left, precision against recall with the setting of each point; right, metrics along the axis.

    The file is the same for the same sweep.
    """
    points, best = sweep.points, sweep.best(objective)
    tied = [point for point in sweep.contenders(objective) or () if point != best]
    rings = {"statistically tied with the best": (tied, QUIET)}
    rings[f"best: {objective}"] = ([] if best is None else [best], INK)
    with _figure(9.6, 5.0, STYLE) as figure:
        left, right = figure.subplots(1, 2)
        _draw_plane(left, [(f"{point.setting:g}", point.result) for point in points])
        for label, (ringed, color) in rings.items():
            if ringed:
                recalls, precisions = zip(*(point.result.tradeoff for point in ringed), strict=True)
                look: dict[str, Any] = {"facecolors": "none", "edgecolors": color, "zorder": 7}
                left.scatter(recalls, precisions, s=160, label=label, **look)
        left.set_title(f"labels: {sweep.axis}; bars: 95 % intervals", fontsize=9, loc="left")
        draw_metrics(right, sweep.axis, {point.setting: point.result for point in points})
        put_legend(left, columns=2)
        put_legend(right, columns=3)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=160, metadata={"Software": "genpr"})
    return buffer.getvalue()
