"""Small line plots as SVG text, for a page that must work alone: no library, no script, no other file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 260, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 8, 20, 30
_TOP_VALUE = 1.1
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000", "#6a3d9a")
_DASHES = ("", "6 3", "2 2", "8 3 2 3")


@dataclass(frozen=True, slots=True)
class Line:
    """One curve.

    Attributes:
        name: For people who point at it.
        style: Which colour and dash; lines of one style look alike in all plots.
        x: Ascending.
        y: As many; gaps where a value is not finite.
    """

    name: str
    style: int
    x: Sequence[float]
    y: Sequence[float]


def plot(title: str, x_label: str, lines: Sequence[Line], *, log_x: bool = False) -> str:
    """Lines over a common axis; values above 1.1 are drawn at the upper edge.

    Args:
        title: What is shown.
        x_label: Below the axis.
        lines: At least one point among them.
        log_x: Logarithmic axis; all x positive.
    """
    low, high = min(min(line.x) for line in lines), max(max(line.x) for line in lines)
    parts = [
        (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
            f'aria-label="{escape(title)}">'
        ),
        f'<text x="{_LEFT}" y="13" class="title">{escape(title)}</text>',
        *_axes(low, high, x_label),
    ]
    for line in lines:
        points = [_place(x, low, high, log_x=log_x) for x in line.x]
        parts += [
            f'<polyline points="{run}" {stroke(line.style)}><title>{escape(line.name)}</title></polyline>'
            for run in _runs(points, line.y)
        ]
    return "".join([*parts, "</svg>"])


def sample(style: int) -> str:
    """A short piece of line, for a legend."""
    return (
        '<svg width="30" height="10" aria-hidden="true">'
        f'<polyline points="1,5 29,5" {stroke(style)}></polyline></svg>'
    )


def stroke(style: int) -> str:
    """The attributes of a line: colours repeat with other dashes."""
    dash = _DASHES[style // len(_COLOURS) % len(_DASHES)]
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="none" stroke="{_COLOURS[style % len(_COLOURS)]}" stroke-width="1.5"{pattern}'


def _axes(low: float, high: float, x_label: str) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for value in (0.0, 0.5, 1.0):
        y = _height(value)
        parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}" class="rule"></line>')
        parts.append(f'<text x="{_LEFT - 4}" y="{y + 3:.1f}" class="tick end">{value:g}</text>')
    parts.append(f'<text x="{_LEFT}" y="{bottom + 13}" class="tick">{low:g}</text>')
    parts.append(f'<text x="{right}" y="{bottom + 13}" class="tick end">{high:g}</text>')
    middle = (_LEFT + right) // 2
    return [*parts, f'<text x="{middle}" y="{bottom + 24}" class="tick middle">{escape(x_label)}</text>']


def _place(x: float, low: float, high: float, *, log_x: bool) -> float:
    if high == low:
        share = 0.5
    elif log_x:
        share = math.log(x / low) / math.log(high / low)
    else:
        share = (x - low) / (high - low)
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def _height(value: float) -> float:
    share = min(max(value, 0.0), _TOP_VALUE) / _TOP_VALUE
    return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def _runs(points: Sequence[float], values: Sequence[float]) -> list[str]:
    """The points of a polyline, one text for each stretch of finite values; a lone point becomes a dash."""
    runs: list[list[str]] = [[]]
    for x, y in zip(points, values, strict=True):
        if math.isfinite(y):
            runs[-1].append(f"{x:g},{_height(y):g}")
        elif runs[-1]:
            runs.append([])
    return [" ".join(run if len(run) > 1 else run * 2) for run in runs if run]
