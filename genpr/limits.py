"""Limits on untrusted input: how much is read, decompressed and parsed, with the reason for each limit.

A small file can take much memory: compressed data expand, and parsed text takes up to 30 times its size as Python
objects. So sizes are estimated from the data before they are processed. Functions raise `ValueError`, or `DataError` if they
have a parameter for the error code.
"""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from genpr.errors import DataError, short

UNPACKED_BYTES = 64 * 2**20
"""Decompressed data up to this size are accepted at any ratio, since they fit into the memory of any machine."""

UNPACKED_RATIO = 200
"""Maximum decompressed bytes per compressed byte above that size. Photographs hardly shrink in an archive."""

STREAMED_RATIO = 1032
"""The same for data that are processed in small pieces: the maximum of deflate, which black images in an .npz file reach."""

TEXT_BYTES = 2**29
"""Maximum size of a text file: five million lines of a hundred characters."""

ARCHIVED_TEXT_BYTES = 2**28
"""Maximum size of a text in an archive: five times the dataset.json of ImageNet."""

RESULT_BYTES = 2**28
"""Maximum size of a file of results: thousands of results with all replicates."""

SMALL_TEXT_BYTES = 2**24
"""Maximum size of a text about one image or one data set: a class, a prompt, or the files of a saved data set."""

PARSED_BYTES = 3 * 2**30
"""Maximum memory of the objects parsed from one file, as estimated: 9 million labels in a CSV file, 25 million in an .npy file, 100 MB of
JSON lines of 30 characters. Estimates are upper bounds; such inputs take about half of it."""

ARCHIVED_PARSED_BYTES = 2**30
"""The same for text from an archive, which may be compressed by a factor of 200, and for results. A dataset.json of ImageNet (1.3 million
labels) takes 0.4 GB."""

_PIECE_BYTES = 2**20
_LINE_CHARACTERS = 2**24  # of a CSV; the parser would hold several copies of a longer one
_LINE_ENDS = "\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
# Memory of Python objects with their entry in a list, rounded up from CPython 3.11 to 3.14.
_LIST, _EMPTY_LIST, _DICT, _EMPTY_DICT, _ENTRY = 112, 80, 184, 96, 40
_NUMBER, _STRING, _LINE, _ROW, _LABEL = 42, 80, 120, 160, 100
_MAX_PER_CHARACTER = 100  # of JSON; `{[]` is the densest


def is_bomb(size: int, compressed: int, *, ratio: int = UNPACKED_RATIO) -> bool:
    """Whether the ratio of decompressed to compressed bytes is that of a decompression bomb."""
    return size > UNPACKED_BYTES and size > ratio * compressed


def read_bytes(file: IO[bytes], max_bytes: int, *, name: str, what: str, code: str) -> bytes:
    """Read the rest of a file or stream, at most `max_bytes`."""
    size = _size_of(file)
    # Python allocates as many bytes as are requested.
    pieces, total = [file.read(size + 1) if size <= max_bytes else b""], size
    if size <= max_bytes:
        total = len(pieces[0])
        while total <= max_bytes and (piece := file.read(min(_PIECE_BYTES, max_bytes + 1 - total))):
            pieces.append(piece)
            total += len(piece)
    if total > max_bytes:
        found = f"{size:,}" if size > max_bytes else f"more than {max_bytes:,}"
        text = f"{name} has {found} bytes, and {what} may have {max_bytes:,}; check that it is the right file, or divide it"
        raise DataError(text, code=code, path=name)
    return b"".join(pieces)


def _size_of(file: IO[bytes]) -> int:
    """Bytes of a regular file; 0 for a stream, whose size is not known."""
    try:
        status = os.fstat(file.fileno())
    except (AttributeError, OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON text, for `pairs` of `parse_json`; a repeated key is an error."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {short(key)!r} occurs twice")
        found[key] = value
    return found


def parse_json(
    data: bytes | str,
    *,
    max_bytes: int = PARSED_BYTES,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a JSON text."""
    if isinstance(data, bytes) and len(data) * (1 if data.isascii() else 4) > max_bytes:
        raise too_large(len(data) * (1 if data.isascii() else 4), max_bytes)
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
    check_json(text, max_bytes)
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def check_json(text: str, max_bytes: int = PARSED_BYTES) -> None:
    """Refuse JSON, or JSON lines, that would take too much memory as Python objects."""
    if _MAX_PER_CHARACTER * len(text) <= max_bytes:
        return
    # The text and its strings.
    needed = 2 * sys.getsizeof(text) + _LINE * text.count("\n")
    for outside, quotes in _outside_strings(text):
        lists, dicts = outside.count("[]"), outside.count("{}")
        needed += lists * _EMPTY_LIST + (outside.count("[") - lists) * _LIST
        needed += dicts * _EMPTY_DICT + (outside.count("{") - dicts) * _DICT
        needed += outside.count(",") * _NUMBER + outside.count(":") * _ENTRY + quotes * _STRING // 2
        if needed > max_bytes:
            raise too_large(needed, max_bytes)


def _outside_strings(text: str) -> Iterator[tuple[str, int]]:
    """JSON in pieces without the content of strings, each with the number of its quotation marks."""
    inside, rest = False, ""
    for start in range(0, len(text), _PIECE_BYTES):
        piece = rest + text[start : start + _PIECE_BYTES]
        # A backslash at the end is moved to the next piece, with the character that it escapes.
        is_cut = (len(piece) - len(piece.rstrip("\\"))) % 2
        piece, rest = piece[: len(piece) - is_cut], "\\" * is_cut
        if "\\" in piece:
            piece = piece.replace("\\\\", "").replace('\\"', "")
        parts = piece.split('"')
        yield "".join(parts[inside::2]), len(parts) - 1
        inside ^= len(parts) % 2 == 0


def check_lines(text: bytes) -> None:
    """Refuse UTF-8 text that would take too much memory as a list of lines."""
    lines = sum(text.count(end.encode()) for end in _LINE_ENDS)
    needed = 2 * sys.getsizeof(text) + lines * _LINE
    if needed > PARSED_BYTES:
        raise too_large(needed, PARSED_BYTES, f" as {lines:,} lines")


def csv_rows(text: str, delimiter: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV, each with the number of its last line; empty lines are skipped."""
    for start in range(0, len(text), _LINE_CHARACTERS):
        window = start, start + _LINE_CHARACTERS
        if window[1] <= len(text) and text.find("\n", *window) < 0 and text.find("\r", *window) < 0:
            raise ValueError(f"it has a line of more than {_LINE_CHARACTERS:,} characters")
    ends = text.count("\n") + text.count("\r") - text.count("\r\n")
    needed = ends * _ROW + (ends + text.count(delimiter)) * _STRING + sys.getsizeof(text)
    if needed > PARSED_BYTES:
        raise too_large(needed, PARSED_BYTES, f" as {ends:,} lines")
    # Not io.StringIO, which takes four bytes per character.
    data = io.BytesIO(text.encode("utf-8", "surrogateescape"))
    lines = csv.reader(
        io.TextIOWrapper(data, "utf-8", "surrogateescape", newline=""), delimiter=delimiter, strict=strict
    )
    for row in lines:
        if row:
            yield lines.line_num, row


def check_label_count(count: int, itemsize: int, max_bytes: int = PARSED_BYTES) -> None:
    """Refuse an array of labels that would take too much memory as text."""
    needed = count * (_LABEL + 2 * itemsize)
    if needed > max_bytes:
        raise too_large(needed, max_bytes, f" as {count:,} labels")


def too_large(needed: int, max_bytes: int, detail: str = "") -> ValueError:
    """The error for input that would take too much memory."""
    return ValueError(
        f"it would take about {needed / 1e9:.1f} GB of memory{detail}, and the limit is {max_bytes / 1e9:.1f} GB; check that it is "
        "the right file, or divide it"
    )
