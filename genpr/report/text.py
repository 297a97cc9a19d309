"""Text for terminals, pages and tables: escaped user strings, numbers, paragraphs and plain tables."""

from __future__ import annotations

import io
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Literal

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
_MAX_FIRST = 20  # columns of names in tables that do not fit otherwise

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


def wrapped(text: str, *, first: str = "", others: str = "  ") -> str:
    """A plain paragraph of at most 80 columns; its first line begins with `first`, the others with `others`."""
    safe = printable(text)
    wide = {c for c in safe if cell_len(c) == 2}  # textwrap counts characters, a terminal columns
    for c in wide:
        safe = safe.replace(c, c + _FILLER)
    lines = fill(safe, WIDTH - bool(wide), initial_indent=first, subsequent_indent=others)
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
    ends: tuple[float, float] | None, between: str = " - ", missing: str = "-", *, as_values: bool = False
) -> str:
    """Both ends with three decimals, or in the format of `number`, also where three decimals would show little of them."""
    if ends is None:
        return missing
    is_tiny = 0 < max(map(abs, ends)) < (0.001 if ends[0] == 0 else 0.01)
    return between.join(map(number if as_values or is_tiny else "{:.3f}".format, ends))


def plus_minus(value: float | None, ends: tuple[float, float] | None, digits: int | None = 2) -> str:
    """A value with half the width of its interval; without `digits`, in the format of `number`."""
    if value is None:
        return "-"
    shown = number if digits is None else f"{{:.{digits}f}}".format
    return shown(value) + ("" if ends is None else f" ±{shown((ends[1] - ends[0]) / 2)}")


def percent(share: float) -> str:
    """Whole percents; "0 %" and "100 %" only for exactly 0 and 1."""
    if 0 < share < 0.005:
        return "less than 1 %"
    return "more than 99 %" if 0.995 <= share < 1 else f"{share:.0%}".replace("%", " %")


def and_more(count: int) -> list[str]:
    """A line with the number of entries that are left out, if there are any."""
    return [f"and {count:,} more (all in --json)"] if count > 0 else []


def listing(rows: Sequence[Mapping[str, object]], details: Sequence[str]) -> str:
    """Records with equal keys: short values in columns, and the `details` on separate lines below."""
    heads = [key for key in rows[0] if key not in details]
    cells = [["-" if row[head] is None else printable(str(row[head])) for head in heads] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    first, *lines = (
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        for row in (heads, *cells)
    )
    parts = [first, "─" * len(first)]
    for line, row in zip(lines, rows, strict=True):
        texts = [str(row[key]) for key in details if row[key] is not None]
        parts += [line, *(wrapped(text, first="   ", others="     ") for text in texts)]
    return "\n".join(part.rstrip() for part in parts)


def head_lines(name: str) -> list[str]:
    """The name of a metric as the head of a column: a long one on two lines, broken after an underscore."""
    first, underscore, rest = name.partition("_")
    return [first + underscore, rest] if underscore and len(name) > _MAX_HEAD else [name]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with explanations, for terminals and pages."""

    title: str  # the heading on a page
    heads: Sequence[str]  # of the columns; those of numbers are broken by `head_lines`
    rows: Sequence[Sequence[str]]  # cells may contain any text
    lines: Sequence[str] = ()  # sentences below the table
    texts: Collection[int] = (0,)  # columns of text, which are left-aligned and folded to fit

    @classmethod
    def of(
        cls,
        title: str,
        records: Sequence[Mapping[str, str]],
        lines: Sequence[str] = (),
        *,
        texts: Collection[str] = (),
    ) -> Table:
        """A table of records by column, without columns in which all cells are "-"; `texts` are further columns of text."""
        known = [head for head in (records or [{}])[0] if any(each[head] != "-" for each in records)]
        columns = {0, *(index for index, head in enumerate(known) if head in texts)}
        return cls(title, known, [[each[head] for head in known] for each in records], lines, columns)

    def __str__(self) -> str:
        """As text of 80 columns; if there are too many numbers, in parts, of which all but the first leave out rows without values."""
        cells = [
            [
                cut(cell, _MAX_CELL) if index in self.texts else printable(cell)
                for index, cell in enumerate(row)
            ]
            for row in self.rows
        ]
        parts = self._parts(cells)
        drawn = [self._drawn(part, cells, is_first=part is parts[0]) for part in parts]
        return "\n".join(["\n\n".join(drawn), *map(wrapped, self.lines)])

    def _parts(self, cells: Sequence[Sequence[str]]) -> list[list[int]]:
        """The columns of each part. Only a single column of text is repeated, and folded between words."""
        columns = list(zip(self.heads, *cells, strict=True))
        words = [word for cell in columns[0] for word in cell.split()]
        parts: list[list[int]] = [[0]]
        room = left = WIDTH - min(_MAX_FIRST, max(map(cell_len, words), default=0))
        for index, (head, *column) in enumerate(columns[1:], start=1):
            width = 2 + max(map(cell_len, [*head_lines(head), *column]))
            if width > left and len(parts[-1]) > 1 and set(self.texts) == {0}:
                parts.append([0])
                left = room
            parts[-1].append(index)
            left -= width
        return parts

    def _drawn(self, part: Sequence[int], cells: Sequence[Sequence[str]], *, is_first: bool) -> str:
        """Some columns."""
        made = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        for index in part:
            head, is_text = self.heads[index], index in self.texts
            lines = "\n".join(map(printable, [head] if is_text else head_lines(head)))
            justify: Literal["left", "right"] = "left" if is_text else "right"
            no_wrap = not is_text and cell_len(head) <= _MAX_FIRST  # a longer one is a name
            made.add_column(lines, justify=justify, overflow="fold", no_wrap=no_wrap)
        for row in cells:
            if is_first or any(row[index] != "-" for index in part[1:]):
                made.add_row(*(row[index] for index in part))
        buffer = io.StringIO()
        # In a notebook, rich would display the table instead of writing it to the file.
        plain: dict[str, Any] = {
            "force_jupyter": False,
            "force_terminal": False,
            "markup": False,
            "emoji": False,
        }
        Console(file=buffer, width=WIDTH, **plain).print(made)
        return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()).strip("\n")
