"""Text files of users: found, read within limits as UTF-8, and split into the rows of a CSV."""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path

from genpr.errors import DataError, UsageError, short
from genpr.images.archive import damage_reported
from genpr.limits import TEXT_BYTES, check_lines, csv_rows, read_bytes
from genpr.storage import open_regular

_LONGEST_CELL = 2**24
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def is_file(path: Path) -> bool:
    """Whether there is such a file; False for a name that no file can have."""
    with suppress(OSError, ValueError):  # too long, or with a NUL
        return path.is_file()
    return False


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; False for a name that no folder can have."""
    with suppress(OSError, ValueError):
        return path.is_dir()
    return False


def read_text(
    path: Path, what: str, *, most: int = TEXT_BYTES, damaged: str = "not-text", encoding: str = "not-text"
) -> str:
    """The text of a UTF-8 file, without a byte order mark.

    Args:
        path: The file.
        what: What it should hold, for messages ("answers").
        most: Limit in bytes.
        damaged: Error code for a file that is too large.
        encoding: Error code for a file that is not UTF-8.

    Raises:
        UsageError: There is no such file ("path-not-found").
        DataError: It cannot be read ("unreadable"), is too large, or is not UTF-8.
    """
    if not is_file(path):
        raise UsageError(
            f"there is no file {short(str(path), 60)!r} with {what}", code="path-not-found", path=str(path)
        )
    with damage_reported(path, f"file with {what}", code=damaged), open_regular(path) as file:
        data = read_bytes(file, most, name=str(path), what=what, code=damaged)
        check_lines(data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        likely = "UTF-16" if data[:2] in _UTF16_MARKS else "another encoding, such as GBK, or no text file"
        raise DataError(
            f"{path} is not UTF-8 (byte {error.start + 1:,} is {data[error.start]:#04x}); it seems to be {likely}; save it as "
            "UTF-8",
            code=encoding,
            path=str(path),
        ) from error


def read_csv(text: str, origin: str, delimiter: str, *, code: str = "bad-csv") -> list[tuple[int, list[str]]]:
    """The rows of a CSV text, each with the number of the line that it ends on; empty lines are left out.

    Raises:
        DataError: It is no CSV (`code`).
    """
    rows: list[tuple[int, list[str]]] = []
    limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        rows.extend(csv_rows(text, delimiter, strict=True))  # keeps the rows before an error
    except (csv.Error, ValueError) as error:
        place = f"line {rows[-1][0]:,}" if rows else "the first line"
        raise DataError(
            f"{origin} is no CSV ({error}, after {place}); is a quotation mark missing, or is it another kind of file?",
            code=code,
            path=origin,
        ) from error
    finally:
        csv.field_size_limit(limit)
    return rows
