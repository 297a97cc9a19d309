"""The figures of pages, each as an `<svg>` element: planes of precision and recall, histograms, curves and heat maps."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genpr.checkpoints.criterion import Point, pareto_front
from genpr.evaluation.per_class import ClassScore, ClassScores, relative_of
from genpr.evaluation.result import Result
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.value import MetricValue
from genpr.report.drawing import CONTROL, GRID, INK, OTHER, PAPER, QUIET, STYLE, THIS, drawing, inline_svg
from genpr.report.text import cut, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@contextmanager
def _figure(width: float, height: float, style: Mapping[Any, Any] = STYLE) -> Iterator[tuple[Figure, Axes]]:
    with drawing(style):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots()


def _put_legend(axes: Axes, columns: int) -> None:
    """Above the axes, where it hides nothing."""
    axes.legend(
        frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=columns
    )


def has_plane(result: Result) -> bool:
    """Whether a result has precision and recall."""
    return all(name in result.metrics for name in F_SCORE_METRICS)


def plane(result: Result, earlier: Sequence[Result] = ()) -> str:
    """Precision against recall: this result with its intervals, a perfect generator, the control, and other results.

    Args:
        result: With precision and recall.
        earlier: Others; numbered from 1 on, those without precision and recall left out.

    Returns:
        An `<svg>` element.
    """
    with _figure(5.2, 5.2) as (figure, axes):
        for number, other in enumerate(earlier, 1):
            if has_plane(other):
                _draw_point(axes, other, OTHER, "s", size=5)
                axes.annotate(str(number), other.tradeoff, (7, 6), textcoords="offset points", color=OTHER)
        _draw_point(axes, result, THIS, "o", size=9, label="this result, 95 % intervals")
        _finish_plane(axes, result)
        values = ", ".join(f"{name} {result[name]:.3f}" for name in F_SCORE_METRICS)
        return inline_svg(figure, name="plane", label=f"Plane of precision and recall; this result: {values}")


def numbered_plane(results: Sequence[tuple[int, Result]]) -> str:
    """Precision against recall of results with their intervals and numbers, and their Pareto front.

    Args:
        results: With precision and recall, each with its number, at least one. Null and control are those of the first.

    Returns:
        An `<svg>` element.
    """
    (_, first), *others = results
    points = [result.tradeoff for _, result in results]
    with _figure(5.2, 5.9) as (figure, axes):
        draw_front(axes, points, color=QUIET, to_axes=True)
        _draw_point(axes, first, THIS, "o", size=8, label="the first, 95 % intervals")
        for index, (_, result) in enumerate(others):
            _draw_point(axes, result, OTHER, "s", size=5, label=None if index else "the others")
        _draw_numbers(axes, [number for number, _ in results], points)
        _finish_plane(axes, first)
        values = "; ".join(
            f"{number}: precision {result['precision']:.3f}, recall {result['recall']:.3f}"
            for number, result in results
        )
        return inline_svg(figure, name="plane", label=f"Plane of precision and recall. {values}")


def _finish_plane(axes: Axes, result: Result) -> None:
    """Lines of equal F1, what a perfect generator and the control score, and both axes."""
    for level in (0.2, 0.4, 0.6, 0.8):
        recalls = np.linspace(level / (2 - level), 1, 100)
        axes.plot(recalls, level * recalls / (2 * recalls - level), color=GRID, linewidth=0.8, zorder=0)
        place, away = (1, level / (2 - level)), (-2, 3)
        quiet: dict[str, Any] = {"ha": "right", "fontsize": 8, "color": QUIET}
        axes.annotate(f"F1 {level:g}", place, away, textcoords="offset points", **quiet)
    nulls = [result.metrics[name].null for name in F_SCORE_METRICS]
    if nulls[0] is not None and nulls[1] is not None:
        cross: dict[str, Any] = {"markersize": 13, "markeredgewidth": 1.6, "color": INK, "zorder": 6}
        axes.plot([nulls[1]], [nulls[0]], "+", label="perfect generator", **cross)
    values: Mapping[str, float] = {} if result.control is None else result.control.values
    if all(name in values for name in F_SCORE_METRICS):
        precision, recall = (values[name] for name in F_SCORE_METRICS)
        diamond: dict[str, Any] = {"markersize": 7, "markerfacecolor": PAPER, "color": CONTROL, "zorder": 4}
        axes.plot([recall], [precision], "D", label="reals against reals", **diamond)
    axes.set(
        xlabel="recall (diversity)", ylabel="precision (fidelity)", xlim=(-0.02, 1.04), ylim=(-0.02, 1.04)
    )
    axes.set_aspect("equal")
    _put_legend(axes, 2)


def _draw_point(
    axes: Axes, result: Result, color: str, marker: str, *, size: int, label: str | None = None
) -> None:
    """A result with both of its intervals."""
    y, x = (result.metrics[name] for name in F_SCORE_METRICS)
    x_arms, y_arms = ([[arm] for arm in arms_of(metric)] for metric in (x, y))
    look: dict[str, Any] = {"fmt": marker, "color": color, "markersize": size, "elinewidth": 1.4, "zorder": 5}
    axes.errorbar([x.value], [y.value], xerr=x_arms, yerr=y_arms, label=label, **look)


def draw_front(axes: Axes, points: Sequence[Point], *, color: str, to_axes: bool = False) -> None:
    """The Pareto front: the border of all (recall, precision) that some point reaches.

    Args:
        axes: Where to draw.
        points: At least one.
        color: Of the line.
        to_axes: Continue the border to both axes.
    """
    front = [points[index] for index in pareto_front(points)]
    if to_axes:
        front = [(0.0, front[0][1]), *front, (front[-1][0], 0.0)]
    recalls, precisions = zip(*front, strict=True)
    axes.step(recalls, precisions, where="pre", color=color, linewidth=1, zorder=1, label="front")


def arms_of(metric: MetricValue) -> tuple[float, float]:
    """How far the interval extends below and above the value; 0 where none is known."""
    low, high = metric.interval or (metric.value, metric.value)
    return max(0.0, metric.value - low), max(0.0, high - metric.value)


_NEAR = 0.045  # of the plane: numbers of points so near each other would overlap
_AWAY = 0.06  # the middle of a number from its point
_DIRECTIONS = (
    (0, 1),
    (-1, 1),
    (1, 1),
    (1, -1),
    (-1, -1),
    (0, -1),
)  # right and up; the first of equally empty ones


def _draw_numbers(axes: Axes, numbers: Sequence[int], points: Sequence[Point]) -> None:
    """Beside the points, where most room is; those of points that lie together stand in one row."""

    def distance(one: Point, other: Point) -> float:
        return max(abs(one[0] - other[0]), abs(one[1] - other[1]))

    groups: dict[int, list[int]] = {}  # by their first point
    for index, point in enumerate(points):
        first = next((each for each in groups if distance(points[each], point) < _NEAR), index)
        groups.setdefault(first, []).append(index)
    for first, group in groups.items():
        x, y = points[first]
        others = [point for index, point in enumerate(points) if index != first]
        crowds = [
            sum(
                max(0.0, 2 * _AWAY - distance((x + right * _AWAY, y + up * _AWAY), point)) for point in others
            )
            for right, up in _DIRECTIONS
        ]
        right, up = _DIRECTIONS[crowds.index(min(crowds))]
        aligned: dict[str, Any] = {
            "ha": ("right", "center", "left")[right + 1],
            "va": ("top", "center", "bottom")[up + 1],
        }
        text = ", ".join(str(numbers[index]) for index in group)
        axes.annotate(
            text, (x, y), (7 * right, 6 * up), textcoords="offset points", color=INK, zorder=8, **aligned
        )


_OUTER = 0.005  # of the values at either end, which would squeeze a histogram
_BINS = 40


def histogram(
    samples: Sequence[tuple[str, NDArray[np.floating]]],
    *,
    name: str,
    x_label: str,
    mark: tuple[float, str] | None = None,
) -> str:
    """Shares of images per bin, for one or two samples over the same bins.

    Args:
        samples: (legend, values) each; values are finite, and there is at least one.
        name: Of the figure, for its ids.
        x_label: Below the axis.
        mark: A value to draw a line at, and what it means.

    Returns:
        An `<svg>` element.
    """
    low, high = histogram_range([values for _, values in samples], None if mark is None else mark[0])
    edges = np.linspace(low, high, _BINS + 1)
    with _figure(5.2, 3.2) as (figure, axes):
        for legend, values in samples:
            color = CONTROL if legend == "fakes" else THIS  # as on the map
            shares = 100 * np.histogram(np.clip(values, low, high), edges)[0] / len(values)
            axes.stairs(shares, edges, color=color, linewidth=1.6, label=legend)
            axes.stairs(shares, edges, color=color, alpha=0.15, fill=True)
        if mark is not None:
            axes.axvline(mark[0], color=QUIET, linewidth=1, linestyle="--", label=mark[1])
        axes.set(xlabel=x_label, ylabel="% of images", xlim=(low, high))
        axes.set_ylim(bottom=0)
        _put_legend(axes, 3)
        medians = "; ".join(f"{legend}: median {np.median(values):.3g}" for legend, values in samples)
        return inline_svg(figure, name=name, label=f"Histogram of {x_label}; {medians}")


def histogram_range(samples: Sequence[NDArray[np.floating]], mark: float | None) -> tuple[float, float]:
    """The range of all bins: without the outermost 0.5 % at each end, with the mark, never of zero width."""
    ends = [float(end) for values in samples for end in np.quantile(values, [_OUTER, 1 - _OUTER])]
    ends += [] if mark is None else [mark]
    low, high = min(ends), max(ends)
    if high > low:
        return low, high
    width = max(abs(low), 1.0) * 0.05
    return low - width, high + width


_HEAT_STYLE = STYLE | {"font.size": 9, "axes.spines.top": True, "axes.spines.right": True}
_MOST_ROWS, _WORST, _BEST = 40, 28, 10
_NAME_WIDTH = 28
_MIDDLE = 0.179  # luminance on which black and white are seen equally well, at a contrast of 4.58


def class_heat_map(scores: ClassScores) -> str:
    """Classes down, the worst first, and metrics across: the value as text, the value over the null as color.

    Of many classes, the worst and the best are drawn.

    Returns:
        An `<svg>` element for an HTML page, the same for the same scores.
    """
    metrics = list(scores.macro)
    classes: list[ClassScore | None] = list(scores.classes)
    hidden = max(0, len(classes) - _WORST - _BEST) if len(classes) > _MOST_ROWS else 0
    if hidden:
        classes = [*classes[:_WORST], None, *classes[-_BEST:]]
    # Cells are drawn with the fonts of the reader: a glyph that is missing here need not be missing there.
    with warnings.catch_warnings(), _figure(7.2, 0.9 + 0.24 * len(classes), _HEAT_STYLE) as (figure, axes):
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        for row, found in enumerate(classes):
            for column, name in enumerate(metrics if found is not None else []):
                _draw_cell(axes, column, row, found[name], min(1.0, relative_of(found.metrics[name])))  # type: ignore[index, union-attr]
        axes.set(xlim=(-0.5, len(metrics) - 0.5), ylim=(len(classes) - 0.5, -0.5))
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(metrics)), metrics)
        names = [
            f"({hidden:,} between)" if found is None else cut(found.label, _NAME_WIDTH) for found in classes
        ]
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("color: value over that of a perfect generator,\nfrom 0 (dark) to 1 and more (light)")
        worst = cut(scores.classes[0].label, _NAME_WIDTH)
        label = f"Heat map of {len(scores.classes):,} classes by {', '.join(metrics)}; the worst is {worst}"
        return inline_svg(figure, name="classes", label=label)


def _draw_cell(axes: Axes, column: int, row: int, value: float, share: float) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    color = colormaps["cividis"](share)
    axes.add_artist(
        Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=color, edgecolor="#ffffff", linewidth=1)
    )
    axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink_on(color), fontsize=8)


def ink_on(color: tuple[float, ...]) -> str:
    """Black or white, whichever has more contrast on an sRGB color: at least 4.5, as WCAG 2 requires (level AA)."""
    return "#000000" if luminance(color) > _MIDDLE else "#ffffff"


def luminance(color: tuple[float, ...]) -> float:
    """Relative luminance of an sRGB color, 0 to 1 (WCAG 2)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_WORD = re.compile(r"(?<![A-Za-z])([A-Za-z]+)[^A-Za-z0-9]*$", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_ .-]{1,30}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis with one position per result.

    Attributes:
        label: What is varied, in characters that mathtext does not parse.
        positions: One number per result, all different.
        is_ordered: Whether the numbers mean something, and are not just counted; only then may lines join values.
    """

    label: str
    positions: tuple[float, ...]
    is_ordered: bool


def axis_of(
    names: Sequence[str], *, axis: str | None = None, settings: Sequence[float] | None = None
) -> Axis:
    """The axis of results: what was given, else the one number in which their names differ, else a count from 1.

    Args:
        names: Of the results, all different.
        axis: What `settings` are of.
        settings: One number per result.

    Example:
        >>> axis_of(["step-00400.json", "step-00800.json"])
        Axis(label='step', positions=(400.0, 800.0), is_ordered=True)
        >>> axis_of(["gan.json", "diffusion.json"])
        Axis(label='result', positions=(1.0, 2.0), is_ordered=False)
    """
    word, positions = "setting", tuple(float(each) for each in settings or ())
    if len(set(positions)) != len(names):
        word, positions = _numbers_in(names)
    if not positions:
        return Axis("result", tuple(float(number) for number in range(1, len(names) + 1)), is_ordered=False)
    label = axis or word
    return Axis(label if _PLAIN.fullmatch(label) else "setting", positions, is_ordered=True)


def _numbers_in(names: Sequence[str]) -> tuple[str, tuple[float, ...]]:
    """The word before the one number in which the names differ, and the numbers; none where more differs."""
    texts = [_NUMBER.split(name) for name in names]
    if any(text != texts[0] for text in texts):
        return "", ()
    columns = list(zip(*(_NUMBER.findall(name) for name in names), strict=True))
    varying = [index for index, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) != 1:
        return "", ()
    positions = tuple(float(number) for number in columns[varying[0]])
    if len(set(positions)) < len(positions) or not all(map(math.isfinite, positions)):
        return "", ()
    word = _WORD.search(texts[0][varying[0]])
    return ("number in the name" if word is None else word[1].lower()), positions


def short_names(names: Sequence[str], *, longest: int = 60) -> list[str]:
    """Names that are safe to show, not too long, and still all different."""
    short = [shown(name, longest=longest) for name in names]
    return (
        short
        if len(set(short)) == len(short)
        else [f"{number} {each}" for number, each in enumerate(short, 1)]
    )


_REACH = 0.35  # of a dotted line to both directions of a single value


def draw_metric(
    axes: Axes, name: str, color: str, results: Mapping[float, Result], *, is_ordered: bool = True
) -> None:
    """One metric along the axis: values, 95 % intervals where they are known, and dotted, a perfect generator.

    Args:
        axes: Where to draw.
        name: Of the metric, which all results have.
        color: Of everything that is drawn.
        results: By position on the axis; at least one.
        is_ordered: Whether lines may join the values.
    """
    found = {position: result.metrics[name] for position, result in results.items()}
    values = [metric.value for metric in found.values()]
    ends = [metric.interval or (metric.value, metric.value) for metric in found.values()]
    low, high = zip(*ends, strict=True)
    nulls = {position: metric.null for position, metric in found.items() if metric.null is not None}
    dotted: dict[str, Any] = {"color": color, "linewidth": 0.9, "linestyle": ":"}
    line: dict[str, Any] = {"linewidth": 1.4} if is_ordered else {"linestyle": "none"}
    axes.plot(list(found), values, color=color, marker="o", markersize=3, label=name, **line)
    if is_ordered:
        axes.fill_between(list(found), low, high, color=color, alpha=0.18, linewidth=0)
        axes.plot(list(nulls), list(nulls.values()), **dotted)
    else:
        axes.vlines(list(found), low, high, color=color, linewidth=1.4)
        reach = [each - _REACH for each in nulls], [each + _REACH for each in nulls]
        axes.hlines(list(nulls.values()), *reach, **dotted)


def metric_curve(name: str, results: Sequence[Result], axis: Axis) -> str:
    """One metric over the results, with intervals and what a perfect generator scores.

    Args:
        name: Of the metric, which all of them have.
        results: At least one.
        axis: Their positions.

    Returns:
        An `<svg>` element.
    """
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
