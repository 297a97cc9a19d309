"""The look of everything printed: 80 columns, no frames, plain when the output is not a terminal, and nothing that it obeys."""

from __future__ import annotations

import io
import os
import sys
from textwrap import fill

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from genpr.report.safe_text import cut, escaped

WIDTH = 80

_FILLER = "\x00"  # never in plain text
_IN_ASCII = str.maketrans({"─": "-", "±": "+-", "…": "...", "×": "x", "²": "^2"})


def number(value: float) -> str:
    """Four decimals for shares, fewer for distances, which may be of any size."""
    size = abs(value)
    if 0 < size < 0.001:
        return f"{value:.1e}"
    return f"{value:.4f}" if size < 10 else f"{value:.2f}" if size < 1e6 else f"{value:.4g}"


def can_show(text: str) -> bool:
    """Whether the encoding of stdout holds every character."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def plain(text: str) -> str:
    """On one line, without what a terminal obeys, and in characters that stdout holds: others are written as escapes."""
    safe = escaped(text)
    return safe if can_show(safe) else safe.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode()


def shortened(name: str, width: int) -> str:
    """A plain name for one cell of at most `width` columns."""
    return cut(plain(name), width, gap=plain("…"))


def wrapped(text: str, *, first: str = "", others: str = "  ") -> str:
    """A plain paragraph.

    Args:
        text: Names in it may hold anything.
        first: Begins the first line.
        others: Begins the others.
    """
    safe = plain(text)
    wide = {c for c in safe if cell_len(c) == 2}  # textwrap counts characters, a terminal columns
    for c in wide:
        safe = safe.replace(c, c + _FILLER)
    lines = fill(safe, WIDTH - bool(wide), initial_indent=first, subsequent_indent=others)
    return lines.replace(_FILLER, "")


class _PlainTable(Table):
    """Whatever the cells hold is shown, and not obeyed."""

    def add_row(self, *cells: str) -> None:  # type: ignore[override]
        super().add_row(*map(plain, cells))


def plain_table(*columns: str) -> Table:
    """With these headings and no frame."""
    table = _PlainTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, header_style="bold"
    )
    for column in columns:
        table.add_column(plain(column))
    return table


def render(table: Table) -> str:
    """As text; in colour only where stdout is a terminal that wants it."""
    terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=WIDTH, force_terminal=terminal, no_color=not terminal, markup=False, emoji=False
    )
    console.print(table)
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    text = "\n".join(lines).strip("\n")
    return text if can_show(text) else text.translate(_IN_ASCII)
