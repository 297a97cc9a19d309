"""Text files of users: there, of a sane size, in UTF-8, or refused with the reason."""

from __future__ import annotations

import csv
import os
from pathlib import Path

from genpr.errors import DataError, UsageError
from genpr.limits import TEXT_BYTES, check_lines, csv_rows, read_bytes
from genpr.storage import open_regular

_FIELD_LIMIT = 2**24


def shown(text: object, most: int = 60) -> str:
    r"""Fit for a message on one line: nothing that a terminal obeys, and cut.

    Example:
        >>> print(shown("a\x1b[31m" + "b" * 99, most=12))
        a\x1b[31mbbb…
    """
    raw = str(text)
    whole = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in raw[: most + 1])
    return whole if len(raw) <= most else f"{whole[:most]}…"


def text_of(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file, without a byte order mark.

    Args:
        path: The file.
        what: What it should hold, for messages ("answers").

    Raises:
        UsageError: There is no such file ("path-not-found").
        DataError: It cannot be read ("unreadable"), is too large, or is not UTF-8 ("not-text").
    """
    path = Path(path)
    if not _is_file(path):
        raise UsageError(
            f"there is no file {shown(path)!r} with {what}", code="path-not-found", path=str(path)
        )
    try:
        with open_regular(path) as file:
            data = read_bytes(file, TEXT_BYTES, name=str(path), what=what, code="not-text")
        check_lines(data)
    except DataError:  # which is a ValueError
        raise
    except ValueError as error:
        raise DataError(f"{shown(path)} cannot be read: {error}", code="not-text", path=str(path)) from error
    except OSError as error:
        raise DataError(
            f"{shown(path)} cannot be read ({error.strerror})", code="unreadable", path=str(path)
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{shown(path)} is not text in UTF-8 (byte {error.start:,}); was it saved in another encoding, such as GBK "
            "or that of a spreadsheet, or is it another kind of file?",
            code="not-text",
            path=str(path),
        ) from error


def rows_of(text: str, origin: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Rows of a CSV that hold anything, with the number of the line that each ends on.

    Raises:
        DataError: It is no CSV ("bad-csv").
    """
    before = csv.field_size_limit(_FIELD_LIMIT)
    try:
        found = csv_rows(text, delimiter, strict=True)
        return [(number, row) for number, row in found if any(cell.strip() for cell in row)]
    except (csv.Error, ValueError) as error:
        raise DataError(
            f"{shown(origin)} is no CSV ({shown(error)}); is a quote missing, or is it another kind of file?",
            code="bad-csv",
            path=origin,
        ) from error
    finally:
        csv.field_size_limit(before)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False
