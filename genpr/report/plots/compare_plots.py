"""The figures of a comparison's page: all results in the plane of precision and recall, and each metric over the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genpr.checkpoints.criterion import Point
from genpr.evaluation.result import Result
from genpr.report.plots.drawing import drawing
from genpr.report.plots.inline_svg import INK, OTHER, QUIET, STYLE, THIS, inline_svg
from genpr.report.plots.page_plots import draw_f_lines, draw_point, draw_references
from genpr.report.plots.result_axis import Axis
from genpr.report.plots.tradeoff_plot import draw_front

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_TICKS = 12
_NEAR = 0.045  # of the plane: numbers of points so near each other would overlap
_AWAY = 0.06  # the middle of a number from its point
_SIDES = (
    (0, 1),
    (-1, 1),
    (1, 1),
    (1, -1),
    (-1, -1),
    (0, -1),
)  # right and up; the first of equally empty ones


def numbered_plane(results: Sequence[tuple[int, Result]]) -> str:
    """Precision against recall of results with their intervals and numbers, and the front of those that none beats.

    Args:
        results: With precision and recall, each with its number, at least one. What a perfect generator scores and the
            control are those of the first.

    Returns:
        An `<svg>` element.
    """
    points = [result.tradeoff for _, result in results]
    with drawing(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.2, 5.9), layout="constrained")
        axes = figure.subplots()
        draw_f_lines(axes)
        draw_front(axes, points, colour=QUIET, to_axes=True)
        draw_references(axes, results[0][1])
        for place, (_, result) in enumerate(results):
            is_first = place == 0
            draw_point(
                axes,
                result,
                THIS if is_first else OTHER,
                "o" if is_first else "s",
                size=8 if is_first else 5,
                label=(None, "the first, 95 % intervals", "the others")[1 if is_first else 2 * (place == 1)],
            )
        _draw_numbers(axes, [number for number, _ in results], points)
        axes.set(
            xlabel="recall (diversity)", ylabel="precision (fidelity)", xlim=(-0.02, 1.04), ylim=(-0.02, 1.04)
        )
        axes.set_aspect("equal")
        axes.legend(
            frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2, ncols=2
        )
        values = "; ".join(
            f"{number}: precision {result['precision']:.3f}, recall {result['recall']:.3f}"
            for number, result in results
        )
        return inline_svg(figure, name="plane", label=f"Plane of precision and recall. {values}")


def metric_curve(name: str, results: Sequence[Result], axis: Axis) -> str:
    """One metric over the results, with intervals and what a perfect generator scores.

    Args:
        name: Of the metric, which all of them have.
        results: At least one.
        axis: Where they lie.

    Returns:
        An `<svg>` element.
    """
    from genpr.report.plots.metric_curves import draw_metric

    placed = dict(sorted(zip(axis.places, results, strict=True)))
    with drawing(STYLE):
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(3.0, 2.3), layout="constrained")
        axes = figure.subplots()
        draw_metric(axes, name, THIS, placed, is_ordered=axis.is_ordered)
        axes.set_xlabel(axis.label)
        axes.margins(x=0.06, y=0.12)
        if not axis.is_ordered:
            axes.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True))
        values = ", ".join(f"{place:g}: {result[name]:.4g}" for place, result in placed.items())
        return inline_svg(figure, name=f"curve-{name}", label=f"{name} by {axis.label}. {values}")


def _draw_numbers(axes: Axes, numbers: Sequence[int], points: Sequence[Point]) -> None:
    """Beside the points, where most room is; those of points that lie together stand in one row."""
    groups: list[list[int]] = []
    for place, point in enumerate(points):
        near = (group for group in groups if _distance(points[group[0]], point) < _NEAR)
        group = next(near, None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    for group in groups:
        x, y = points[group[0]]
        others = [point for place, point in enumerate(points) if place != group[0]]
        right, up = min(_SIDES, key=lambda side: _crowd((x + side[0] * _AWAY, y + side[1] * _AWAY), others))
        axes.annotate(
            ", ".join(str(numbers[place]) for place in group),
            (x, y),
            (7 * right, 6 * up),
            textcoords="offset points",
            ha=("right", "center", "left")[right + 1],
            va=("top", "center", "bottom")[up + 1],
            color=INK,
            zorder=8,
        )


def _crowd(centre: Point, points: Sequence[Point]) -> float:
    """How much a label at `centre` would cover."""
    return sum(max(0.0, 2 * _AWAY - _distance(centre, point)) for point in points)


def _distance(one: Point, other: Point) -> float:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))
