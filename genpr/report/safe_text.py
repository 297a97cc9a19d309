"""Text from users, such as file names, made safe to show: nothing in it is obeyed, broken or endless."""

from __future__ import annotations

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
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in raw)
