"""The look of everything printed: tables without a margin, 80 columns, plain when the output is not a terminal."""

from __future__ import annotations

import io
import os
import sys
from textwrap import fill

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 80


def number(value: float) -> str:
    """Four decimals for shares, fewer for distances, which may be of any size."""
    size = abs(value)
    if 0 < size < 0.001:
        return f"{value:.1e}"
    return f"{value:.4f}" if size < 10 else f"{value:.2f}" if size < 1e6 else f"{value:.4g}"


def wrapped(text: str) -> str:
    """A paragraph; names may hold what a terminal would obey."""
    return fill("".join(c if c.isprintable() else "?" for c in text), WIDTH, subsequent_indent="  ")


def plain_table(*columns: str) -> Table:
    """With these headings and no frame."""
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, header_style="bold"
    )
    for column in columns:
        table.add_column(column)
    return table


def render(table: Table) -> str:
    """As text; in colour only where stdout is a terminal that wants it."""
    terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    buffer = io.StringIO()
    console = Console(file=buffer, width=WIDTH, force_terminal=terminal, no_color=not terminal, markup=False)
    console.print(table)
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "\n".join(lines).strip("\n")
