"""Checks of image files before Pillow parses them: the format, and parts that must not be parsed.

The first bytes of a file determine its format, as in Pillow; names of files are often wrong. genpr chooses the
plugin, so that no other plugin, such as Ghostscript for EPS, can be reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal
from zlib import crc32

_ACCEPTED: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),  # not BigTIFF, which Pillow and libtiff read differently
    (b"MM\0*", "TIFF"),
)
# Text can begin in the same way, such as a list of files in "P1/" or "BM/".
_PNM = re.compile(rb"P[1-6Ff][\s#]")
_BMP = re.compile(rb"BM.{12}.\0\0\0", re.DOTALL)  # then the size of the second header

# Parsers in Python take a microsecond or more for a piece of a few bytes, and keep many pieces. Image files have
# dozens of pieces, and at most one per few hundred bytes of pixels.
MAX_PNG_PROFILES = 100  # each of which Pillow decompresses, to a megabyte at most
MAX_PIECES = 2**18  # a 1-kilobyte chunk for all of 89 megapixels

_MARKER = re.compile(rb"\xff([^\0\xff])")  # after any number of fill bytes
_START_OF_SCAN, _APP1, _COMMENT = 0xDA, 0xE1, 0xFE
# APP1 to APP15 and comments, except APP14, which defines the colors as APP0 does.
_DROPPED_SEGMENTS = frozenset({*range(_APP1, 0xF0), _COMMENT}) - {0xEE}
_NO_SEGMENT = frozenset({0x01, *range(0xD0, 0xDA)})
_EMPTY_COMMENT = b"\xff\xfe\0\2"  # replaces dropped segments, so that no new marker arises there
JPEG_END, JPEG_SCAN = b"\xff\xd9", b"\xff\xda"
_TILE_WIDTH, _TILE_HEIGHT, _SHORT, _LONG = 322, 323, 3, 4  # TIFF tags and types


class TooManyPiecesError(Exception):
    """Parsing a file takes too long; the message says why."""

    def __init__(self, reason: str = f"it is made of more than {MAX_PIECES:,} pieces") -> None:
        super().__init__(reason)


def image_format(data: bytes) -> str | None:
    """Name of the accepted format of a file ("PNG", "JPEG", ...), or `None`."""
    for magic, name in _ACCEPTED:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":  # the major and the compatible brands of the ISO media family
        size = min(int.from_bytes(data[:4], "big"), 256)
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, size, 4))}
        return "AVIF" if brands & {b"avif", b"avis"} else None
    if _BMP.match(data):
        return "BMP"
    return "PPM" if _PNM.match(data) else None


def codec_name(data: bytes) -> str | None:
    """The format of a file; lossless WebP is a separate format."""
    name = image_format(data)
    return "WEBP lossless" if name == "WEBP" and b"VP8L" in data[12:64] else name


def guess(data: bytes) -> str:
    """A description of a file that is not an image of an accepted format."""
    start = data[:2048]
    if not data:
        return "it is empty (0 bytes); write it again, and check for a full disk"
    if data.startswith(b"version https://git-lfs"):
        return "not an image; it is a Git LFS pointer; run `git lfs pull`"
    if start.lstrip()[:5].lower() in {b"<html", b"<!doc"}:
        return "not an image; it looks like HTML, such as the error page of a failed download"
    if not any(start):
        return "not an image; it begins with zeros only, like an interrupted copy or download"
    return f"not an image of an accepted format; it begins with {start[:12]!r}"


def jpeg_without_metadata(data: bytes) -> tuple[bytes, bytes | None]:
    """A JPEG without the segments that pixels do not depend on, and its EXIF block, if any.

    Pillow would join EXIF segments one by one (quadratic in their number), and allocate the sizes that their tags claim.
    Segments up to the first scan are found as in Pillow and libjpeg, which skip bytes between them.
    """
    kept: list[bytes] = []
    exif: list[bytes] = []
    at, kept_to = 2, 0
    for _ in range(MAX_PIECES):
        match = _MARKER.search(data, at)
        if match is None or match[1][0] == _START_OF_SCAN:
            break
        marker, at = match[1][0], match.end()
        if marker in _NO_SEGMENT:
            continue
        body, at = at + 2, at + max(2, int.from_bytes(data[at : at + 2], "big"))
        if marker in _DROPPED_SEGMENTS and at <= len(data):
            kept += data[kept_to : match.start()], _EMPTY_COMMENT
            kept_to = at
            if marker == _APP1 and data.startswith(b"Exif\0\0", body):
                exif.append(data[body + 6 : at])
    else:
        raise TooManyPiecesError
    if not kept_to:
        return data, None
    return b"".join((*kept, data[kept_to:])), b"Exif\0\0" + b"".join(exif) if exif else None


def check_png(data: bytes) -> None:
    """Refuse a truncated PNG, a wrong checksum of pixels, and very many color profiles.

    Pillow stops reading when it has all rows, and decompresses every profile.
    """
    view, at, profiles = memoryview(data), 8, 0
    for _ in range(MAX_PIECES):
        kind, end = data[at + 4 : at + 8], at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise ValueError("its end is missing")
        if kind == b"IEND":
            return
        if kind == b"IDAT" and crc32(view[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise ValueError("its pixels have a wrong checksum")
        profiles += kind == b"iCCP"
        if profiles > MAX_PNG_PROFILES:
            raise TooManyPiecesError(f"it has more than {MAX_PNG_PROFILES} color profiles")
        at = end
    raise TooManyPiecesError


def tiff_entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Tag, type and value of the entries on the first page of a TIFF, or in an EXIF block, if they are small integers."""
    order: Literal["little", "big"] = "little" if data.startswith(b"II") else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], order)

    first = number(4, 4) + 2
    for entry in range(first, min(first + 12 * number(first - 2, 2), len(data)), 12):
        kind = number(entry + 2, 2)
        yield number(entry, 2), kind, number(entry + 8, 4 if kind == _LONG else 2)


def tiff_tile(data: bytes) -> tuple[int, int]:
    """Width and height of the tiles of the first page of a TIFF, or 0 without tiles; libtiff decodes whole tiles.

    The largest value of repeated tags counts, since Pillow and libtiff use different ones.
    """
    sides = {_TILE_WIDTH: 0, _TILE_HEIGHT: 0}
    for tag, kind, value in tiff_entries(data):
        if tag in sides and kind not in {_SHORT, _LONG}:
            raise ValueError(f"a side of its tiles is of type {kind}")
        if tag in sides:
            sides[tag] = max(sides[tag], value)
    return sides[_TILE_WIDTH], sides[_TILE_HEIGHT]
