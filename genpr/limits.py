"""Limits on untrusted input: how much is read and decompressed, with the reason for each limit.

A small file can take much memory: compressed data expand, and parsed text takes up to 50 times its size as Python objects. So
sizes are checked before data are processed. Functions raise `ValueError`, or `DataError` if they have a parameter for the
error code.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from typing import IO, Any

from genpr.errors import DataError, short

UNPACKED_BYTES = 64 * 2**20
"""Decompressed data up to this size are accepted at any ratio, since they fit into the memory of any machine."""

UNPACKED_RATIO = 200
"""Maximum decompressed bytes per compressed byte above that size. Photographs hardly shrink in an archive."""

STREAMED_RATIO = 1032
"""The same for data that are processed in small pieces: the maximum of deflate, which black images in an .npz file reach."""

TEXT_BYTES = 2**27
"""Maximum size of a text file: 1.3 million lines of a hundred characters, or 4 million labels by name."""

ARCHIVED_TEXT_BYTES = 2**26
"""Maximum size of a text in an archive, which may be compressed by a factor of 200; the dataset.json of ImageNet has 50 MB."""

RESULT_BYTES = 2**26
"""Maximum size of a file of results: thousands of results with all replicates."""

SMALL_TEXT_BYTES = 2**24
"""Maximum size of a text about one image or one data set: a class, a prompt, or the files of a saved data set."""

_PIECE_BYTES = 2**20


def is_bomb(size: int, compressed: int, *, ratio: int = UNPACKED_RATIO) -> bool:
    """Whether the ratio of decompressed to compressed bytes is that of a decompression bomb."""
    return size > UNPACKED_BYTES and size > ratio * compressed


def read_bytes(file: IO[bytes], max_bytes: int, *, name: str, what: str, code: str) -> bytes:
    """Read the rest of a file or stream, at most `max_bytes`."""
    size = _size_of(file)
    pieces, total = list[bytes](), size if size > max_bytes else 0
    # Python allocates as many bytes as are requested.
    while total <= max_bytes and (piece := file.read(min(_PIECE_BYTES, max_bytes + 1 - total))):
        pieces.append(piece)
        total += len(piece)
    if total > max_bytes:
        length = f"{size:,}" if size > max_bytes else f"more than {max_bytes:,}"
        text = f"{name} has {length} bytes, and {what} may have {max_bytes:,}; check that it is the right file, or divide it"
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
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise ValueError(f"the key {short(key)!r} occurs twice")
        entries[key] = value
    return entries


def parse_json(data: bytes | str, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a JSON text of limited size."""
    try:
        return json.loads(data, object_pairs_hook=pairs)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
