"""The figures of a score's page: the plane of precision and recall, and histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from genpr.evaluation.result import Result
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.report.plots.drawing import drawing
from genpr.report.plots.inline_svg import CONTROL, GRID, INK, OTHER, PAPER, QUIET, STYLE, THIS, inline_svg
from genpr.report.plots.tradeoff_plot import arms_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OUTER = 0.005  # of the values on either side, which would squeeze a histogram
_BINS = 40


def plane(result: Result, earlier: Sequence[Result] = ()) -> str:
    """Precision against recall: this result with its intervals, a perfect generator, the control, and other results.

    Args:
        result: With precision and recall.
        earlier: Others; numbered from 1 on, those without precision and recall left out.

    Returns:
        An `<svg>` element.
    """
    with drawing(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.2, 5.2), layout="constrained")
        axes = figure.subplots()
        draw_f_lines(axes)
        for number, other in enumerate(earlier, 1):
            if has_plane(other):
                draw_point(axes, other, OTHER, "s", size=5)
                axes.annotate(str(number), other.tradeoff, (7, 6), textcoords="offset points", color=OTHER)
        draw_references(axes, result)
        draw_point(axes, result, THIS, "o", size=9, label="this result, 95 % intervals")
        axes.set(
            xlabel="recall (diversity)", ylabel="precision (fidelity)", xlim=(-0.02, 1.04), ylim=(-0.02, 1.04)
        )
        axes.set_aspect("equal")
        axes.legend(
            frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2, ncols=2
        )
        values = ", ".join(f"{name} {result[name]:.3f}" for name in F_SCORE_METRICS)
        return inline_svg(figure, name="plane", label=f"Plane of precision and recall; this result: {values}")


def has_plane(result: Result) -> bool:
    """Whether it has a point in that plane."""
    return all(name in result.metrics for name in F_SCORE_METRICS)


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
    with drawing(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.2, 3.2), layout="constrained")
        axes = figure.subplots()
        for legend, values in samples:
            colour = CONTROL if legend == "fakes" else THIS  # as on the map
            counts = np.histogram(np.clip(values, low, high), edges)[0]
            axes.stairs(100 * counts / len(values), edges, color=colour, linewidth=1.6, label=legend)
            axes.stairs(100 * counts / len(values), edges, color=colour, alpha=0.15, fill=True)
        if mark is not None:
            axes.axvline(mark[0], color=QUIET, linewidth=1, linestyle="--", label=mark[1])
        axes.set(xlabel=x_label, ylabel="% of images", xlim=(low, high))
        axes.set_ylim(bottom=0)
        axes.legend(
            frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2, ncols=3
        )
        medians = "; ".join(f"{legend}: median {np.median(values):.3g}" for legend, values in samples)
        return inline_svg(figure, name=name, label=f"Histogram of {x_label}; {medians}")


def histogram_range(samples: Sequence[NDArray[np.floating]], mark: float | None) -> tuple[float, float]:
    """From where to where bins reach: all but the outermost 0.5 % on each side, and the mark; never of zero width."""
    ends = [np.quantile(values, [_OUTER, 1 - _OUTER]) for values in samples]
    marks = [] if mark is None else [mark]
    low, high = (
        float(min([*(end[0] for end in ends), *marks])),
        float(max([*(end[1] for end in ends), *marks])),
    )
    if high > low:
        return low, high
    width = max(abs(low), 1.0) * 0.05
    return low - width, high + width


def draw_f_lines(axes: Axes) -> None:
    """Where the harmonic mean of both is the same."""
    for level in (0.2, 0.4, 0.6, 0.8):
        recalls = np.linspace(level / (2 - level), 1, 100)
        axes.plot(recalls, level * recalls / (2 * recalls - level), color=GRID, linewidth=0.8, zorder=0)
        axes.annotate(
            f"F1 {level:g}",
            (1, level / (2 - level)),
            (-2, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=QUIET,
        )


def draw_references(axes: Axes, result: Result) -> None:
    """What a perfect generator scores, and what the reals do against each other."""
    precision, recall = (result.metrics[name].null for name in F_SCORE_METRICS)
    if recall is not None and precision is not None:
        axes.plot(
            [recall],
            [precision],
            "+",
            color=INK,
            markersize=13,
            markeredgewidth=1.6,
            label="perfect generator",
            zorder=6,
        )
    values: Mapping[str, float] = {} if result.control is None else result.control.values
    if all(name in values for name in F_SCORE_METRICS):
        precision, recall = (values[name] for name in F_SCORE_METRICS)
        axes.plot(
            [recall],
            [precision],
            "D",
            color=CONTROL,
            markerfacecolor=PAPER,
            markersize=7,
            label="reals against reals",
            zorder=4,
        )


def draw_point(
    axes: Axes, result: Result, colour: str, marker: str, *, size: int, label: str | None = None
) -> None:
    """A result with both of its intervals."""
    metrics = [result.metrics[name] for name in reversed(F_SCORE_METRICS)]
    x_arms, y_arms = ([[arm] for arm in arms_of(metric)] for metric in metrics)
    axes.errorbar(
        [metrics[0].value],
        [metrics[1].value],
        xerr=x_arms,
        yerr=y_arms,
        fmt=marker,
        color=colour,
        markersize=size,
        elinewidth=1.4,
        label=label,
        zorder=5,
    )
