"""JPEG and PNG files without the metadata that pixels do not depend on, which Pillow would parse, copy and unfold.

Pillow joins EXIF segments one by one (quadratic in their number) and parses them, unfolds every colour profile and
text of a PNG, and keeps a list of all segments and chunks. genpr needs none of these but the orientation.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from genpr.images.pieces import MOST_PIECES, counted, too_many_pieces

# Chunks besides the critical ones (those with a capital first letter) that change pixels, flags or the first frame.
_KEPT_CHUNKS = frozenset({b"tRNS", b"eXIf", b"acTL", b"fcTL", b"fdAT"})
_CHUNK_NAME = re.compile(rb"[a-z][A-Za-z]{3}")
_MARKER = re.compile(rb"\xff+([^\xff])")
_START_OF_SCAN, _APP1, _COMMENT = 0xDA, 0xE1, 0xFE
_DROPPED_SEGMENTS = frozenset({*range(_APP1, 0xF0), _COMMENT}) - {
    0xEE
}  # APP0 and APP14 say what the colors are
_NO_SEGMENT = frozenset({0x00, 0x01, *range(0xD0, 0xDA), 0xFF})
_EMPTY_COMMENT = b"\xff\xfe\0\2"  # in place of what is dropped, so that no new marker arises there


class Segment(NamedTuple):
    """A segment of a JPEG.

    Attributes:
        marker: Its kind, the byte after 0xFF.
        start: Where its marker begins, with the fill bytes before it.
        body: Where its content begins, after the length.
        end: Where it ends, which may lie beyond the file.
    """

    marker: int
    start: int
    body: int
    end: int


def segments(data: bytes) -> list[Segment]:
    """Segments of a JPEG up to the start of its first scan, as Pillow and libjpeg find them.

    Raises:
        TooManyPiecesError: There are very many.
    """
    found: list[Segment] = []
    marker, at, size = 0, 2, len(data)
    while marker != _START_OF_SCAN and at + 4 <= size:
        start = at
        marker = data[at + 1]
        if data[at] != 0xFF or marker in _NO_SEGMENT:  # fill bytes, or others between segments
            match = _MARKER.search(data, at)
            if match is None:
                break
            marker, start, at = match[1][0], match.start(), match.end() - 2
            if marker in _NO_SEGMENT:
                at += 2
                continue
        at += 4
        end = at - 2 + max(2, data[at - 2] << 8 | data[at - 1]) if at <= size else at
        found.append(Segment(marker, start, at, end))
        at = end
        if len(found) > MOST_PIECES:
            raise too_many_pieces()
    return found


def chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name, start and end of each chunk of a PNG up to its last; the end may lie beyond that of the file."""
    at = 8
    kind = b""
    while at + 12 <= len(data) and kind != b"IEND":
        start, kind = at, data[at + 4 : at + 8]
        at += 12 + int.from_bytes(data[at : at + 4], "big")
        yield kind, start, at


def without_metadata(data: bytes, format_name: str) -> tuple[bytes, bytes | None]:
    """A file that decodes to the same pixels, and its EXIF block if that was taken out."""
    match format_name:
        case "JPEG":
            return _jpeg_without_metadata(data)
        case "PNG":
            return _png_without_metadata(data), None
        case _:
            return data, None


def _jpeg_without_metadata(data: bytes) -> tuple[bytes, bytes | None]:
    view = memoryview(data)
    kept: list[bytes | memoryview] = []
    exif: list[memoryview] = []
    kept_to = 0
    for marker, start, body, end in segments(data):
        if marker in _DROPPED_SEGMENTS and end <= len(data):
            if start > kept_to:
                kept.extend((view[kept_to:start], _EMPTY_COMMENT))
            kept_to = end
            if marker == _APP1 and data.startswith(b"Exif\0\0", body):
                exif.append(view[body + 6 : end])
    if kept_to == 0:
        return data, None
    return b"".join((*kept, view[kept_to:])), b"Exif\0\0" + b"".join(exif) if exif else None


def _png_without_metadata(data: bytes) -> bytes:
    """Before the pixels, a chunk with a wrong checksum stays: damage may have changed its name, and Pillow refuses it."""
    view = memoryview(data)
    kept: list[memoryview] = []
    kept_to = 0
    is_before_pixels = True
    for kind, start, end in counted(chunks(data)):
        if end > len(data):
            break
        if kind == b"IDAT":
            is_before_pixels = False
        elif kind[:1].islower() and kind not in _KEPT_CHUNKS and _CHUNK_NAME.fullmatch(kind):
            checksum = int.from_bytes(data[end - 4 : end], "big")
            if not is_before_pixels or zlib.crc32(view[start + 4 : end - 4]) == checksum:
                kept.append(view[kept_to:start])
                kept_to = end
    return b"".join((*kept, view[kept_to:])) if kept_to else data
