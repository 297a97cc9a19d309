"""The audit as one HTML page without other files: the matrices, and every curve as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from genpr.audit.checks import CHECKS, Check, Setting
from genpr.audit.criteria import SOURCE, Kind
from genpr.audit.matrix import (
    KINDS,
    Cell,
    Matrix,
    agreement,
    cell_text,
    changing,
    changing_count,
    difference,
    legend,
    of_kind,
    run_text,
)
from genpr.audit.runner import Results

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


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #ccc; padding: 2px 8px; text-align: center; }
th:first-child, td:first-child { text-align: left; } td { white-space: nowrap; }
td.pass { background: #d8eedd; } td.fail { background: #f7dcd6; } td.open { font-style: italic; }
figure { display: inline-block; margin: 0 8px 8px 0; } svg .title { font-size: 12px; font-weight: 600; }
svg .tick { font-size: 10px; fill: #555; } svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .rule { stroke: #ddd; } .legend span { margin-right: 1.2em; white-space: nowrap; }
"""


def html_page(matrix: Matrix, results: Results) -> str:
    """The whole page; point at a cell to see what decides it."""
    title = "Audit of fidelity and diversity metrics"
    lines = "".join(f"<li>{escape(line)}</li>" for line in legend(matrix))
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>The sanity checks of {escape(SOURCE)}: {escape(run_text(results.run, matrix.seeds))}.</p><ul>{lines}</ul>",
    ]
    for kind in KINDS:
        if metrics := of_kind(matrix, kind):
            parts += [f"<h2>{kind.capitalize()}</h2>", _matrix(matrix, metrics)]
    parts += [*_published(matrix), *_changing(matrix)]
    parts.append("<h2>Curves</h2><p>Means over the draws. Values above 1.1 are drawn at the upper edge.</p>")
    judged = {demand.check for demand in matrix.demands}
    parts += [_check(CHECKS[name], matrix, results) for name in CHECKS if name in judged]
    return "\n".join([*parts, "</body></html>\n"])


def _matrix(matrix: Matrix, metrics: Sequence[str]) -> str:
    rows = []
    for demand in matrix.demands:
        cells = "".join(_cell(matrix.cells.get((demand.name, metric))) for metric in metrics)
        rows.append(f"<tr><td>{escape(demand.name)}</td>{cells}</tr>")
    totals = "".join(f"<td>{matrix.passes(metric)} of {len(matrix.of(metric))}</td>" for metric in metrics)
    # Long names may break, so that all columns fit a screen.
    heads = "".join(f"<th>{escape(metric).replace('_', '_<wbr>')}</th>" for metric in metrics)
    return f"<table><tr><th>check</th>{heads}</tr>{''.join(rows)}<tr><td>passed</td>{totals}</tr></table>"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td>-</td>"
    classes = ("pass" if cell.passes else "fail") + (" open" if cell.is_open or cell.changes else "")
    return f'<td class="{classes}" title="{escape(cell.reason)}">{escape(cell_text(cell))}</td>'


def _published(matrix: Matrix) -> list[str]:
    rows = agreement(matrix)
    if not rows:
        return []
    counts = "".join(
        f"<li>{escape(metric)} ({escape(column)}): {same} of {count} cells as published</li>"
        for metric, column, same, count in rows
    )
    differences = "".join(f"<li>{escape(difference(cell))}</li>" for cell in matrix.differing)
    return ["<h2>Against the published matrix</h2>", f"<ul>{counts}</ul>", f"<ul>{differences}</ul>"]


def _changing(matrix: Matrix) -> list[str]:
    if len(matrix.seeds) == 1:
        return []
    cells = "".join(f"<li>{escape(changing(cell, matrix.seeds))}</li>" for cell in matrix.changing)
    title = "Cells whose outcome changes with the seed"
    return [f"<h2>{title}</h2><p>{escape(changing_count(matrix))}</p>", f"<ul>{cells}</ul>"]


def _check(check: Check, matrix: Matrix, results: Results) -> str:
    parts = [f"<h3>{escape(check.name)}: {escape(check.title)}</h3>"]
    for kind in KINDS:
        metrics = of_kind(matrix, kind)
        figures = [_figure(check, setting, kind, metrics, results) for setting in check.settings]
        if any(figures):
            parts += [f'<p class="legend">{kind}: {_legend(metrics)}</p>', *figures]
    return "\n".join(parts)


def _figure(check: Check, setting: Setting, kind: Kind, metrics: Sequence[str], results: Results) -> str:
    curves = [(metric, results.curve(check.name, setting, metric)) for metric in metrics]
    lines = [
        Line(metric, style, tuple(curve.x), tuple(curve.mean))
        for style, (metric, curve) in enumerate(curves)
        if curve is not None
    ]
    if not lines:
        return ""
    title = f"{kind}, {setting}" if str(setting) else kind
    return f"<figure>{plot(title, check.x_label, lines, log_x=check.log_x)}</figure>"


def _legend(metrics: Sequence[str]) -> str:
    return "".join(f"<span>{sample(style)} {escape(metric)}</span>" for style, metric in enumerate(metrics))
