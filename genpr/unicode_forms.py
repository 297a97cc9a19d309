"""Unicode normalization in linear time."""

from __future__ import annotations

import unicodedata
from typing import Literal

_MAX_MARKS = 30  # consecutive ones, as in the stream-safe text format of UAX 15
_JOINER = "\u034f"  # combining grapheme joiner, which ends a sequence of marks


def normalize(form: Literal["NFC", "NFKC"], text: str) -> str:
    """As `unicodedata.normalize`, whose time is quadratic in the number of consecutive combining marks.

    In a text of more than 1,000 characters, a joiner is inserted after every 30 consecutive marks.
    """
    if len(text) <= 1_000 or text.isascii():
        return unicodedata.normalize(form, text)
    # Some characters that are not marks, such as U+0F73, are replaced by marks.
    marks = {c for c in set(text) if unicodedata.combining(unicodedata.normalize("NFKD", c)[0])}
    parts: list[str] = []
    run = 0
    for c in text if marks else ():
        run = run + 1 if c in marks else 0
        if run > _MAX_MARKS:
            parts.append(_JOINER)
            run = 1
        parts.append(c)
    return unicodedata.normalize(form, "".join(parts) if marks else text)
