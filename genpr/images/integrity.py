"""Damage that Pillow does not notice, and whether damage it did notice means that a file was cut short."""

from __future__ import annotations

import zlib

_JPEG_END = b"\xff\xd9"


def missed_damage(data: bytes, format_name: str, *, header_end: int) -> str | None:
    """What is wrong with a file although Pillow may decode it: "truncated", "corrupt" or nothing (`None`).

    Pillow stops reading when it has all rows. So it misses about one flipped bit in a hundred of a PNG, whose
    chunks have checksums, and in some modes the lost end of a JPEG.

    Args:
        data: The file.
        format_name: Its format.
        header_end: Where Pillow stopped parsing; in a JPEG the end marker of an embedded preview lies before.
    """
    if format_name == "PNG":
        return _png_damage(data)
    if format_name == "JPEG" and data.rfind(_JPEG_END, header_end) < 0:
        return "truncated"
    return None


def _png_damage(data: bytes) -> str | None:
    """Compare the checksums of the pixel chunks; Pillow does so for all others."""
    at = 8
    while at + 12 <= len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        end = at + 12 + size
        if end > len(data):
            return "truncated"
        if kind == b"IDAT":
            body = memoryview(data)[at + 4 : end - 4]
            if zlib.crc32(body) != int.from_bytes(data[end - 4 : end], "big"):
                return "corrupt"
        elif kind == b"IEND":
            return None
        at = end
    return "truncated"


def ends_early(data: bytes, format_name: str) -> bool:
    """Whether a file that failed to decode was cut short, by its own structure; a guess for the message."""
    match format_name:
        case "PNG":
            return _png_damage(data) == "truncated"
        case "JPEG":
            return _JPEG_END not in data
        case "GIF":
            return not data.endswith(b";")
        case "WEBP":
            return int.from_bytes(data[4:8], "little") + 8 > len(data)
        case "BMP":
            return int.from_bytes(data[2:6], "little") > len(data)
        case "TIFF":
            first_directory = int.from_bytes(data[4:8], "little" if data.startswith(b"II") else "big")
            return len(data) < 8 or first_directory >= len(data)
        case "AVIF":
            return _boxes_end(data) > len(data)
        case _:
            return False


def _boxes_end(data: bytes) -> int:
    """Where the last top-level box of an ISO media file says it ends."""
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16], "big")
        if size < 8:
            return len(data) if size == 0 else at  # 0 means "to the end of the file"
        at += size
    return at
