"""Text from users, such as file names, made safe to show: nothing in it is obeyed, broken or endless."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

LONGEST = 400


def shown(text: object, *, longest: int = LONGEST) -> str:
    """Text that no page, terminal or encoder obeys.

    What is not printable (control characters, lone surrogates, marks that turn the direction of writing) is written as its
    escape; of what is longer than `longest` characters the middle is left out. Markup is left as it is: escaping that is the
    template's part.
    """
    raw = str(text)
    if len(raw) > longest:
        raw = f"{raw[: longest // 2]}…{raw[-(longest // 2) :]}"
    return escaped(raw)


def escaped(text: str) -> str:
    r"""All of a text, on one line: what is not printable as its escape.

    Example:
        >>> print(escaped("red\x1b[31m.png"))
        red\x1b[31m.png
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cut(name: str, width: int, *, gap: str = "…") -> str:
    """A name made safe to show, its middle left out where it is wider than `width` columns.

    Example:
        >>> cut("a-long-name-of-a-class", 9)
        'a-lo…lass'
    """
    whole = shown(name)
    if cell_len(whole) <= width:
        return whole
    tail = (width - len(gap)) // 2
    head = chop_cells(whole, width - len(gap) - tail)[0]
    end = whole[-tail:] if tail else ""
    while cell_len(end) > tail:
        end = end[1:]
    return f"{head}{gap}{end}"
