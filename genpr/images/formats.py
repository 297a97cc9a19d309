"""Image files as bytes, before Pillow sees them: their format, what they are made of, and the work to decode them.

The first bytes of a file decide its format, and its name decides nothing: that is Pillow's habit too, and wrong names
are common. Deciding here which plugin reads a file keeps all others, Ghostscript behind EPS among them, out of reach.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from genpr.errors import printable

_T = TypeVar("_T")

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"MM*\0", b"II\0*")
_ACCEPTED: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    *((magic, "TIFF") for magic in _TIFF),
)
_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "PDF"),
    (b"%!", "PostScript (EPS)"),
    (b"\xc5\xd0\xd3\xc6", "PostScript (EPS)"),
    (b"8BPS", "Photoshop (PSD)"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\1\0", "Windows icon (ICO)"),
    (b"\0\0\2\0", "Windows cursor (CUR)"),
    (b"icns", "macOS icon (ICNS)"),
    (b"DDS ", "DirectDraw (DDS)"),
    (b"v/1\1", "OpenEXR"),
    (b"#?RADIANCE", "Radiance HDR"),
    (b"qoif", "QOI"),
    (b"gimp xcf", "GIMP (XCF)"),
    (b"SIMPLE  =", "FITS"),
)
_PNM = re.compile(rb"P(?:[1-6]|[Ff]\s)[\s#]?")


# Parsers in Python take a microsecond or more for a piece of a few bytes, and keep many of them. Files of images have
# some dozens of pieces, and at most one for every few hundred bytes of pixels.
MOST_PIECES = 2**18  # a 1-kilobyte chunk for all of 89 megapixels

# Chunks besides the critical ones (those with a capital first letter) that change pixels, flags or the first frame.
_KEPT_CHUNKS = frozenset({b"tRNS", b"eXIf", b"acTL", b"fcTL", b"fdAT"})
_CHUNK_NAME = re.compile(rb"[a-z][A-Za-z]{3}")

_MARKER = re.compile(rb"\xff([^\xff])")  # after any number of fill bytes
_START_OF_SCAN, _END_OF_IMAGE, _APP1, _COMMENT = 0xDA, 0xD9, 0xE1, 0xFE
# All of APP1 to APP15 and comments, but for APP14, which like APP0 says what the colors are.
_DROPPED_SEGMENTS = frozenset({*range(_APP1, 0xF0), _COMMENT}) - {0xEE}
_NO_SEGMENT = frozenset({0x00, 0x01, *range(0xD0, 0xDA), 0xFF})
_EMPTY_COMMENT = b"\xff\xfe\0\2"  # in place of what is dropped, so that no new marker arises there
JPEG_END = b"\xff\xd9"
_SCAN = re.compile(rb"\xff\xda")
_NEXT_MARKER = re.compile(rb"\xff([^\x00\x01\xff\xd0-\xd7])")  # that ends the coded data of a scan

# Times the pixel limit that the passes over an image may come to. What is allowed takes about 4 s for each format at
# the default limit: a pass of a progressive JPEG costs 2 ns a pixel, a TIFF 10, AV1 20.
_PASSES = {"JPEG": 20, "TIFF": 2, "AVIF": 3}
_LEAST_TILE = 2**10  # pixels that a smaller TIFF tile counts as, for its fixed cost of 10 microseconds
LEAST_PASS = 2**12  # pixels that a pass over a smaller image counts as, for its fixed cost
_ANIMATION = 2  # flag of an extended WebP
_WIDTH, _HEIGHT, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 322, 323  # TIFF tags
_INTEGER_SIZES = {1: 1, 3: 2, 4: 4, 6: 1, 8: 2, 9: 4, 16: 8, 17: 8}  # bytes by TIFF type


class TooManyPiecesError(Exception):
    """Parsing a file takes too long; the message says why."""

    def __init__(self, reason: str = f"it is made of more than {MOST_PIECES:,} pieces") -> None:
        super().__init__(reason)


def counted(pieces: Iterable[_T]) -> Iterator[_T]:
    """Pass pieces on, up to a number that no image has.

    Raises:
        TooManyPiecesError: There are more.
    """
    for number, piece in enumerate(pieces):
        if number == MOST_PIECES:
            raise TooManyPiecesError
        yield piece


def image_format(data: bytes) -> str | None:
    """Name of the accepted format of a file ("PNG", "JPEG", ...), or `None`."""
    for magic, name in _ACCEPTED:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if _brands(data) & {b"avif", b"avis"}:
        return "AVIF"
    return "PPM" if _PNM.match(data) else None


def codec_name(data: bytes) -> str | None:
    """The format of a file, and of WebP whether it is the lossless one."""
    name = image_format(data)
    return "WEBP lossless" if name == "WEBP" and b"VP8L" in data[12:64] else name


def refusal(data: bytes) -> tuple[str, str]:
    """Error code and reason for a file that `image_format` does not accept."""
    for magic, name in _REFUSED:
        if data.startswith(magic):
            return "format-not-allowed", f"it is {name}, which is not accepted"
    if _brands(data):
        brand = data[8:12].decode("ascii", "replace")
        return (
            "format-not-allowed",
            f"it is of the HEIF or MP4 family ({printable(brand)}), which is not accepted",
        )
    start = data[:2048]
    if re.search(rb"<svg[\s>]", start):
        return "format-not-allowed", "it is SVG, which is not accepted"
    return "image-unreadable", _guess(data, start)


def _guess(data: bytes, start: bytes) -> str:
    if not data:
        return "it is empty (0 bytes); was the disk full when it was written?"
    if data.startswith(b"version https://git-lfs"):
        return "not an image; it is a Git LFS pointer; run `git lfs pull`"
    if start.lstrip()[:5].lower() in {b"<html", b"<!doc"}:
        return "not an image; it looks like HTML, such as the error page of a failed download"
    if not any(start):
        return "not an image; it begins with zeros only, like an interrupted copy or download"
    return f"not an image of a known format; it begins with {start[:12]!r}"


def _brands(data: bytes) -> set[bytes]:
    """Major and compatible brands of a file of the ISO media family (AVIF, HEIC, MP4); empty for others."""
    if data[4:8] != b"ftyp":
        return set()
    size = min(int.from_bytes(data[:4], "big"), 256)
    return {data[8:12], *(data[at : at + 4] for at in range(16, size, 4))}


def ends_early(data: bytes, format_name: str) -> bool:
    """Whether a file that failed to decode was cut short, by its own structure; a guess for the message."""
    match format_name:
        case "PNG":
            return read_png_chunks(data)[1] == "truncated"
        case "JPEG":
            return JPEG_END not in data
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


def jpeg_without_metadata(data: bytes) -> tuple[bytes, bytes | None]:
    """A JPEG without what pixels do not depend on, and its EXIF block if it has one.

    Pillow would join EXIF segments one by one (quadratic in their number), parse them, and keep a list of all segments.
    genpr needs none of these but the orientation.

    Raises:
        TooManyPiecesError: There are very many segments.
    """
    view = memoryview(data)
    kept: list[bytes | memoryview] = []
    exif: list[memoryview] = []
    kept_to = 0
    for marker, start, body, end in counted(_jpeg_segments(data)):
        if marker in _DROPPED_SEGMENTS and end <= len(data):
            if start > kept_to:
                kept.extend((view[kept_to:start], _EMPTY_COMMENT))
            kept_to = end
            if marker == _APP1 and data.startswith(b"Exif\0\0", body):
                exif.append(view[body + 6 : end])
    if kept_to == 0:
        return data, None
    return b"".join((*kept, view[kept_to:])), b"Exif\0\0" + b"".join(exif) if exif else None


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Segments up to the start of the first scan, as Pillow and libjpeg find them.

    Yields:
        Marker; where it begins, with the fill bytes before it; where its content begins, after the length; and where it
        ends, which may lie beyond the file.
    """
    marker, at, size = 0, 2, len(data)
    while marker != _START_OF_SCAN and at + 4 <= size:
        start = at
        marker = data[at + 1]
        if data[at] != 0xFF or marker in _NO_SEGMENT:  # fill bytes, or others between segments
            match = _MARKER.search(data, at)
            if match is None:
                return
            start = at + len(data[at : match.start()].rstrip(b"\xff"))
            marker, at = match[1][0], match.end() - 2
            if marker in _NO_SEGMENT:
                at += 2
                continue
        at += 4
        end = at - 2 + max(2, data[at - 2] << 8 | data[at - 1]) if at <= size else at
        yield marker, start, at, end
        at = end


def read_png_chunks(data: bytes) -> tuple[bytes, str | None]:
    """A PNG without the chunks that pixels do not depend on, and whether it is "truncated" or "corrupt".

    Dropped are color profiles and texts, which Pillow would unfold. Before the pixels, a chunk with a wrong checksum
    stays: damage may have changed its name, and Pillow refuses it.

    Damage is that of the structure and of the checksums of the pixels: Pillow stops reading when it has all rows, and
    compares the checksums of all other chunks only. So it misses about one flipped bit in a hundred.

    Raises:
        TooManyPiecesError: There are very many chunks.
    """
    view = memoryview(data)
    kept: list[memoryview] = []
    kept_to = chunks = 0
    is_before_pixels = True
    damage = None
    end, kind = 8, b""
    while end + 12 <= len(data) and kind != b"IEND":
        start, kind = end, data[end + 4 : end + 8]
        end += 12 + int.from_bytes(data[start : start + 4], "big")
        if chunks == MOST_PIECES:
            raise TooManyPiecesError
        chunks += 1
        if end > len(data):
            kind = b""  # it is no whole chunk
            break
        checksum = int.from_bytes(data[end - 4 : end], "big")
        if kind == b"IDAT":
            is_before_pixels = False
            if zlib.crc32(view[start + 4 : end - 4]) != checksum:
                damage = "corrupt"
        elif (
            kind[:1].islower()
            and kind not in _KEPT_CHUNKS
            and _CHUNK_NAME.fullmatch(kind)
            and (not is_before_pixels or zlib.crc32(view[start + 4 : end - 4]) == checksum)
        ):
            kept.append(view[kept_to:start])
            kept_to = end
    if damage is None and kind != b"IEND":
        damage = "truncated"
    return b"".join((*kept, view[kept_to:])) if kept_to else data, damage


@dataclass(frozen=True, slots=True)
class Workload:
    """Pixels that a decoder fills, by the file's own structure.

    The size that an image claims says little of the work behind it: libtiff fills whole tiles, a JPEG is gone through
    once per scan, AV1 frames may be larger than the image that is made of them, and an animation has canvases.

    Attributes:
        largest: In memory at once, or 0 where that is the size of the image.
        total: In all passes, scans, tiles and frames, or 0 where that is the size of the image.
    """

    largest: int = 0
    total: int = 0

    def limit_of(self, format_name: str, max_pixels: int) -> int | None:
        """The limit that is exceeded if an image may have `max_pixels`; None if all is well."""
        if self.largest > max_pixels:
            return max_pixels
        passes = max_pixels * _PASSES.get(format_name, 1)
        return passes if self.total > passes else None


def workload(data: bytes, format_name: str) -> Workload:
    """What decoding a TIFF, GIF or WebP takes; what cannot be found out is left to the decoder."""
    match format_name:
        case "TIFF":
            return _tiff_tiles(data)
        case "GIF":
            return Workload(largest=_gif_canvas(data))
        case "WEBP":
            return Workload(largest=_webp_canvases(data))
        case _:
            return Workload()


def jpeg_passes(data: bytes, size: tuple[int, int], *, components: int, at: int) -> int:
    """Pixels times scans of a JPEG.

    Args:
        data: The file.
        size: (width, height).
        components: Of a sequential JPEG, since libjpeg reads one scan of all of these and no more; 0 if progressive.
        at: Where the data of the first scan begin.

    Raises:
        TooManyPiecesError: There are very many scans.
    """
    header = 6 + 2 * components
    if components and data[at - header : at - header + 3] == header.to_bytes(2, "big") + bytes([components]):
        return 0
    pixels = max(size[0] * size[1], LEAST_PASS)
    scans = 1 + len(_SCAN.findall(data, at))
    if scans > _PASSES["JPEG"]:  # some may be of other pictures in the file
        scans = 1 + sum(marker == _START_OF_SCAN for marker in counted(_markers(data, at)))
    return pixels * scans


def _markers(data: bytes, at: int) -> Iterator[int]:
    """Markers of the segments between coded data, up to the end of the image."""
    while (found := _NEXT_MARKER.search(data, at)) and found[1][0] != _END_OF_IMAGE:
        yield found[1][0]
        at = found.end() + max(2, int.from_bytes(data[found.end() : found.end() + 2], "big"))


def _tiff_tiles(data: bytes) -> Workload:
    """The tiles that libtiff fills for the first page. Of repeated tags the largest value counts."""
    order = "little" if data.startswith(b"II") else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], order)  # type: ignore[arg-type]

    # Pillow finds the page, libtiff reads its entries, and the two differ in what they take for a BigTIFF.
    page = number(8, 8) if data[2:3] == b"+" else number(4, 4)
    is_big = number(2, 2) == 43
    count_size, entry_size, value_at, room = (8, 20, 12, 8) if is_big else (2, 12, 8, 4)
    first = page + count_size
    entries = min(number(page, count_size), max(0, len(data) - first) // entry_size)
    found: dict[int, int] = {}
    for entry in range(first, first + entries * entry_size, entry_size):
        tag, size = number(entry, 2), _INTEGER_SIZES.get(number(entry + 2, 2), 0)
        if tag in {_WIDTH, _HEIGHT, _TILE_WIDTH, _TILE_HEIGHT}:
            at = entry + value_at if size <= room else number(entry + value_at, room)
            found[tag] = max(number(at, size), found.get(tag, 0))
    if not (found.get(_TILE_WIDTH) and found.get(_TILE_HEIGHT)):
        return Workload()
    tile = found[_TILE_WIDTH] * found[_TILE_HEIGHT]
    columns = -(-found.get(_WIDTH, 0) // found[_TILE_WIDTH])
    rows = -(-found.get(_HEIGHT, 0) // found[_TILE_HEIGHT])
    return Workload(tile, max(tile, _LEAST_TILE) * columns * rows)


def _gif_canvas(data: bytes) -> int:
    """Pixels of the screen, widened to hold the first frame. Pillow fills that frame while it opens the file."""
    width, height = (int.from_bytes(data[at : at + 2], "little") for at in (6, 8))
    at = 13 + (3 << (data[10] & 7) + 1 if len(data) > 10 and data[10] & 128 else 0)
    while (kind := data[at : at + 1]) not in {b"", b";", b","}:
        at += 1
        if kind == b"!":
            at += 1
            while size := int.from_bytes(data[at : at + 1], "little"):
                at += size + 1
            at += 1
    if kind == b",":
        left, top, wide, high = (
            int.from_bytes(data[each : each + 2], "little") for each in range(at + 1, at + 9, 2)
        )
        width, height = max(width, left + wide), max(height, top + high)
    return width * height


def _webp_canvases(data: bytes) -> int:
    """Pixels of an animated WebP times three, as its decoder keeps two more copies of the whole; else 0."""
    if data[12:16] != b"VP8X" or len(data) < 30 or not data[20] & _ANIMATION:
        return 0
    width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    return 3 * width * height
