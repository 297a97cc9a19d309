"""The audit as one page of HTML that needs no other file: matrices, and every curve behind them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from genpr.audit.checks import CHECKS, Check
from genpr.audit.demands import Kind
from genpr.audit.draws import Setting
from genpr.audit.matrix import Cell, Matrix, cell_text
from genpr.audit.published import SOURCE
from genpr.audit.report import (
    KINDS,
    agreement,
    changing,
    changing_count,
    difference,
    legend,
    of_kind,
    run_text,
)
from genpr.audit.results import Results
from genpr.audit.svg import Line, plot, sample

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
