"""How many pixels a decoder fills for a file, by the file's own structure and before any plugin of Pillow sees it.

The size that an image claims says little of the work behind it: libtiff fills whole tiles, a JPEG is gone through once
per scan, AV1 frames may be larger than the image that is made of them, and an animation has canvases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from genpr.images.av1 import avif_frames
from genpr.images.pieces import counted

# Times the pixel limit that the passes over an image may come to. What is allowed takes about 4 s for each format at
# the default limit: a pass of a progressive JPEG costs 2 ns a pixel, a TIFF 10, AV1 20.
_PASSES = {"JPEG": 20, "TIFF": 2, "AVIF": 3}
_LEAST_TILE = 2**10  # pixels that a smaller TIFF tile counts as, for its fixed cost of 10 microseconds
_LEAST_PASS = 2**12  # pixels that a pass over a smaller image counts as, for its fixed cost
_ANIMATION = 2  # flag of an extended WebP
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_SCAN = re.compile(rb"\xff\xda")
_NEXT_MARKER = re.compile(rb"\xff+([^\x00\x01\xff\xd0-\xd7])")  # that ends the coded data of a scan
_WIDTH, _HEIGHT, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 322, 323  # TIFF tags
_INTEGER_SIZES = {1: 1, 3: 2, 4: 4, 6: 1, 8: 2, 9: 4, 16: 8, 17: 8}  # bytes by TIFF type


@dataclass(frozen=True, slots=True)
class Workload:
    """Pixels that a decoder fills.

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


_NO_MORE = Workload()


def workload(data: bytes, format_name: str) -> Workload:
    """What decoding a file takes, but for the scans of a JPEG; what cannot be found out is left to the decoder.

    Raises:
        ValueError: An AVIF has frames larger than it says, or none where it says.
    """
    match format_name:
        case "TIFF":
            return _tiff_tiles(data)
        case "GIF":
            return Workload(largest=_gif_canvas(data))
        case "WEBP":
            return Workload(largest=_webp_canvases(data))
        case "AVIF":
            sizes = [width * height for width, height in avif_frames(data)]
            return Workload(max(sizes), sum(max(size, _LEAST_PASS) for size in sizes))
        case _:
            return _NO_MORE


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
    pixels = max(size[0] * size[1], _LEAST_PASS)
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
