"""Text for terminals, pages and tables: escaped user strings, numbers, paragraphs and plain tables."""

from __future__ import annotations

import io
import os
import random
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Literal

from genpr.errors import printable

_state = random.getstate()  # rich draws a number when it is imported
from rich import box  # noqa: E402
from rich.cells import cell_len, chop_cells  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table as RichTable  # noqa: E402

random.setstate(_state)

WIDTH = 80
_MAX_LENGTH = 400
_MAX_HEAD = 12

_MAX_CELL = 40

_FILLER = "\x00"  # never in plain text


def shown(text: object, *, longest: int = _MAX_LENGTH) -> str:
    """Text on one line with escapes for unprintable characters (control characters, lone surrogates, direction marks).

    The middle of texts longer than `longest` characters is left out. Markup is kept; jinja2 escapes it.
    """
    raw = str(text)
    if len(raw) > longest:
        raw = f"{raw[: longest // 2]}…{raw[-(longest // 2) :]}"
    return printable(raw)


def cut(name: str, width: int) -> str:
    """A name with escapes for unprintable characters, its middle left out if it is wider than `width` columns."""
    whole = shown(name)
    if cell_len(whole) <= width:
        return whole
    tail = (width - 1) // 2
    head = chop_cells(whole, width - 1 - tail)[0]
    end = whole[-tail:] if tail else ""
    while cell_len(end) > tail:
        end = end[1:]
    return f"{head}…{end}"


def wrapped(text: str, *, first: str = "", others: str = "  ", width: int = WIDTH) -> str:
    """A plain paragraph of at most `width` columns; its first line begins with `first`, the others with `others`."""
    safe = printable(text)
    wide = {c for c in safe if cell_len(c) == 2}  # textwrap counts characters, a terminal columns
    for c in wide:
        safe = safe.replace(c, c + _FILLER)
    lines = fill(safe, width - bool(wide), initial_indent=first, subsequent_indent=others)
    return lines.replace(_FILLER, "")


def capital(text: str) -> str:
    """The text with an upper-case first letter."""
    return text[:1].upper() + text[1:]


def number(value: float | None, missing: str = "-") -> str:
    """Four decimals for values below 10, fewer for larger ones."""
    if value is None:
        return missing
    size = abs(value)
    if 0 < size < 0.001:
        return f"{value:.1e}"
    return f"{value:.4f}" if size < 10 else f"{value:.2f}" if size < 1e6 else f"{value:.4g}"


def interval(
    ends: tuple[float, float] | None,
    between: str = " - ",
    missing: str = "-",
    *,
    as_values: bool = False,
) -> str:
    """Both ends with three decimals, or in the format of `number`, also where three decimals would show little of them."""
    if ends is None:
        return missing
    is_tiny = 0 < max(map(abs, ends)) < (0.001 if ends[0] == 0 else 0.01)
    return between.join(map(number if as_values or is_tiny else "{:.3f}".format, ends))


def plus_minus(value: float | None, ends: tuple[float, float] | None, digits: int = 2) -> str:
    """A value with half the width of its interval."""
    if value is None:
        return "-"
    half = "" if ends is None else f" ±{(ends[1] - ends[0]) / 2:.{digits}f}"
    return f"{value:.{digits}f}{half}"


def percent(share: float) -> str:
    """Whole percents; "0 %" and "100 %" only for exactly 0 and 1."""
    if 0 < share < 0.005:
        return "less than 1 %"
    return "more than 99 %" if 0.995 <= share < 1 else f"{share:.0%}".replace("%", " %")


def and_more(count: int, what: str = "more (all in --json)") -> list[str]:
    """A line with the number of entries that are left out, if there are any."""
    return [f"and {count:,} {what}"] if count > 0 else []


def head_lines(name: str) -> list[str]:
    """The name of a metric as the head of a column: a long one on two lines, broken after an underscore."""
    first, underscore, rest = name.partition("_")
    return [first + underscore, rest] if underscore and len(name) > _MAX_HEAD else [name]


def head_width(name: str) -> int:
    """Columns of `head_lines`."""
    return max(map(len, head_lines(name)))


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    texts: Collection[int] = (0,),
    sections: Collection[int] = (),
    whole: Literal["numbers", "all", "none"] = "numbers",
) -> str:
    """A table of 80 columns without a frame, in color if stdout is a terminal with color.

    `texts` are the indices of text columns, which are left-aligned and folded to fit. A rule follows the rows in `sections`.
    Cells of `whole` are never folded over two lines. Heads of
    number columns are broken by `head_lines`.
    """
    made = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, header_style="bold"
    )
    text_columns = {index % len(heads) for index in texts}
    broken = [[head] if index in text_columns else head_lines(head) for index, head in enumerate(heads)]
    most = max(map(len, broken))
    for index, lines in enumerate(broken):
        is_text = index in text_columns
        head = "\n".join([""] * (most - len(lines)) + [printable(line) for line in lines])
        no_wrap = whole == "all" or (whole == "numbers" and not is_text)
        made.add_column(head, justify="left" if is_text else "right", overflow="fold", no_wrap=no_wrap)
    for index, row in enumerate(rows):
        made.add_row(*map(printable, row), end_section=index in sections)
    terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=WIDTH,
        force_terminal=terminal,
        force_jupyter=False,  # in a notebook, rich would display the table instead of writing it to the file
        no_color=not terminal,
        markup=False,
        emoji=False,
    )
    console.print(made)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()).strip("\n")


@dataclass(frozen=True, slots=True)
class Table:
    """A table with explanations, for terminals and pages."""

    title: str  # the heading on a page
    heads: Sequence[str]  # of the columns
    rows: Sequence[Sequence[str]]  # cells may contain any text
    lines: Sequence[str] = ()  # sentences below the table
    texts: Collection[int] = (0,)  # columns of text
    sections: Collection[int] = ()  # rows before a rule

    def __str__(self) -> str:
        """As text of 80 columns."""
        rows = [
            [cut(cell, _MAX_CELL) if index in self.texts else cell for index, cell in enumerate(row)]
            for row in self.rows
        ]
        text = table(self.heads, rows, texts=self.texts, sections=self.sections)
        return "\n".join([text, *map(wrapped, self.lines)])
