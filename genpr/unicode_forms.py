"""Unicode normalization in linear time."""

from __future__ import annotations

import unicodedata
from typing import Literal

_SHORT = 1_000  # characters, which cannot take long
_MOST_MARKS = 30  # in a row, as in the stream-safe text format of UAX 15
_JOINER = "\u034f"  # combining grapheme joiner: ends a run of marks


def normalize(form: Literal["NFC", "NFKC"], text: str) -> str:
    """As `unicodedata.normalize`, whose time is quadratic in the number of combining marks in a row.

    In a text of more than 1,000 characters, a joiner is inserted after each 30 marks in a row.
    """
    if len(text) > _SHORT and not text.isascii():
        text = _with_short_runs(text)
    return unicodedata.normalize(form, text)


def _with_short_runs(text: str) -> str:
    # Some characters, such as U+0F73, are no marks and are replaced by marks.
    marks = {c for c in set(text) if unicodedata.combining(unicodedata.normalize("NFKD", c)[0])}
    if not marks:
        return text
    parts: list[str] = []
    run = 0
    for c in text:
        run = run + 1 if c in marks else 0
        if run > _MOST_MARKS:
            parts.append(_JOINER)
            run = 1
        parts.append(c)
    return "".join(parts)
