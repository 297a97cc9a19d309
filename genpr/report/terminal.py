"""Results as text: tables that fit 80 columns, plain when the output is not a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from genpr.report.meaning import MEANING
from genpr.result import Result, SideSummary

_WIDTH = 80


def score_table(result: Result) -> str:
    """Metric, value, k and meaning, then what was compared with what."""
    table = _table("metric", "value", "k", "what it means")
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, metric in result.metrics.items():
        table.add_row(name, f"{metric.value:.4f}", str(metric.k), MEANING[name])
    return _render(table) + "\n" + _footer(result)


def comparison_table(results: Mapping[str, Result], captions: Mapping[str, str]) -> str:
    """One row per named fake set, with a caption that says what its numbers show."""
    metrics = list(next(iter(results.values())).metrics)
    table = _table("fakes", *metrics, "what it shows")
    for name, result in results.items():
        table.add_row(name, *(f"{result[metric]:.2f}" for metric in metrics), captions[name])
    for column in table.columns[1:-1]:
        column.justify = "right"
    return _render(table)


def listing_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Records with equal keys as a table, one column per key."""
    table = _table(*rows[0])
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    return _render(table)


def _footer(result: Result) -> str:
    if result.extractor is None:
        features = "features of an unknown extractor"
    else:
        features = f"{result.extractor.name} ({result.extractor.dim}-d, resize {result.extractor.resize})"
    comparable = "" if result.comparable else "\nnot comparable with published numbers"
    return (
        f"real  {_side(result.real)}\nfake  {_side(result.fake)}\n"
        f"{features}, protocol {result.protocol}, {result.ties} balls, {result.device}{comparable}"
    )


def _side(side: SideSummary) -> str:
    skipped = f", {len(side.skipped):,} left out" if side.skipped else ""
    source = "".join(c if c.isprintable() else "?" for c in side.source)  # names may hold line breaks
    return f"{side.n:,} images of {source}{skipped}"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def _render(table: Table) -> str:
    """As text; in colour only where stdout is a terminal that wants it."""
    terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    buffer = io.StringIO()
    Console(file=buffer, width=_WIDTH, force_terminal=terminal, no_color=not terminal).print(table)
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "\n".join(lines).strip("\n")
