"""A score class by class as a heat map."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genpr.evaluation.per_class import ClassScore, ClassScores, relative_of
from genpr.report.plots.drawing import drawing
from genpr.report.plots.inline_svg import STYLE, inline_svg
from genpr.report.safe_text import cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = STYLE | {"font.size": 9, "axes.spines.top": True, "axes.spines.right": True}
_MOST_ROWS, _WORST, _BEST = 40, 28, 10
_NAME_WIDTH = 28
_MIDDLE = 0.179  # luminance on which black and white are seen equally well, at a contrast of 4.58


def class_heat_map(scores: ClassScores) -> str:
    """Classes down, the worst first, and metrics across: the value as text, value over null as colour.

    Of many classes, the worst and the best are drawn.

    Returns:
        An `<svg>` element for an HTML page, without XML prologue; the same for the same scores.
    """
    metrics = list(scores.macro)
    classes: list[ClassScore | None] = list(scores.classes)
    if len(classes) > _MOST_ROWS:
        classes = [*classes[:_WORST], None, *classes[-_BEST:]]
    # Cells are drawn with the fonts of whoever looks: a glyph that is missing here is not missing there.
    with drawing(_STYLE), warnings.catch_warnings():
        from matplotlib.figure import Figure

        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure = Figure(figsize=(7.2, 0.9 + 0.24 * len(classes)), layout="constrained")
        _draw(figure.subplots(), classes, metrics, len(scores.classes))
        worst = cut(scores.classes[0].label, _NAME_WIDTH)
        label = f"Heat map of {len(scores.classes):,} classes by {', '.join(metrics)}; the worst is {worst}"
        return inline_svg(figure, name="classes", label=label)


def _draw(axes: Axes, classes: Sequence[ClassScore | None], metrics: Sequence[str], total: int) -> None:
    shares = [
        [np.nan if found is None else min(1.0, relative_of(found.metrics[name])) for name in metrics]
        for found in classes
    ]
    for row, found in enumerate(classes):
        for column, name in enumerate(metrics):
            if found is not None:
                _draw_cell(axes, (column, row), found[name], shares[row][column])
    axes.set(xlim=(-0.5, len(metrics) - 0.5), ylim=(len(classes) - 0.5, -0.5))
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(metrics)), metrics)
    hidden = total - sum(found is not None for found in classes)
    names = [f"({hidden:,} between)" if found is None else cut(found.label, _NAME_WIDTH) for found in classes]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("colour: value over that of a perfect generator,\nfrom 0 (dark) to 1 and more (light)")


def _draw_cell(axes: Axes, place: tuple[int, int], value: float, share: float) -> None:
    from matplotlib import colormaps

    column, row = place
    colour = colormaps["cividis"](share)
    axes.add_artist(_box(column, row, colour))
    axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink_on(colour), fontsize=8)


def ink_on(colour: tuple[float, ...]) -> str:
    """Black or white, whichever has more contrast on an sRGB colour: at least 4.5, as WCAG 2 asks for (level AA)."""
    return "#000000" if luminance(colour) > _MIDDLE else "#ffffff"


def luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance of an sRGB colour, 0 to 1 (WCAG 2)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _box(column: int, row: int, colour: Any) -> Any:  # noqa: ANN401 - matplotlib's colours
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="#ffffff", linewidth=1)
