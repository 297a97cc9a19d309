"""Pillow's plugins, one per accepted format: those that decode in Python made faster, to the same values.

The plugin classes are used directly and not through `Image.open`: that one warns above `MAX_IMAGE_PIXELS`, a
setting of the whole process, and refuses twice as much, whatever limit the caller chose.
"""

from __future__ import annotations

import io
import re
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from PIL.Image import getmodebands

from genpr.images.formats import TooManyPiecesError

_MOST_READS = 2**20  # of Pillow's parsers, several to a piece; 89 megapixels of noise as GIF take 850,000
_READ_AGAIN = 4  # times that the same bytes may be read on average, besides these:
_BYTES_READ = 2**26
_PART = 2**20  # values
_END_OF_LINE, _END_OF_BITMAP, _MOVE = 0, 1, 2
_COMMENT = re.compile(rb"#[^\r\n]*[\r\n]?")


class MeteredFile(io.BytesIO):
    """A file whose reads and bytes read are limited, for Pillow's parsers.

    `read` raises `TooManyPiecesError`, which is no `OSError`: Pillow takes these for damaged metadata and goes on.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads_left = _MOST_READS
        self._bytes_left = _BYTES_READ + _READ_AGAIN * len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """As of `io.BytesIO`."""
        data = super().read(size)
        self._reads_left -= 1
        self._bytes_left -= len(data)
        if self._reads_left < 0:
            raise TooManyPiecesError(f"it is read in more than {_MOST_READS:,} pieces")
        if self._bytes_left < 0:
            raise TooManyPiecesError("many of its parts are the same bytes")
        return data


class _StoredTiff(TiffImagePlugin.TiffImageFile):
    """A TIFF as it is stored. Pillow turns TIFFs, and only TIFFs, by their orientation while loading."""

    def load_end(self) -> None:
        self._size = self.im.size


class FastBmp(BmpImagePlugin.BmpImageFile):
    """A BMP whose runs genpr expands.

    Runs of zeros that fill up the rows cost Pillow a step per pixel, so that a file of a few kilobytes takes it 12 s.
    """

    def load(self) -> Any:  # noqa: ANN401 - Pillow's own type is private
        """Read the pixels."""
        if self.tile and self.tile[0].codec_name == "bmp_rle" and self.fp is not None:
            tile = self.tile[0]
            _, is_rle4, direction = cast("tuple[str, bool, int]", tile.args)
            self.fp.seek(tile.offset)
            values = _expanded(self.fp.read(), tile.offset, self.size, is_rle4=is_rle4)
            raw_mode = "L" if self.mode in {"1", "L"} else "P"
            self.tile = [tile._replace(codec_name="raw", offset=0, args=(raw_mode, 0, direction))]
            self.fp = io.BytesIO(values)
        return super().load()


def _expanded(data: bytes, offset: int, size: tuple[int, int], *, is_rle4: bool) -> bytearray:
    """Values of all pixels, row after row; `offset` is where in the file `data` begins, which runs are aligned to."""
    width, height = size
    n_values = width * height
    values = bytearray()
    at = column = 0
    while len(values) < n_values and at + 2 <= len(data):
        count, value = data[at : at + 2]
        at += 2
        if count:
            count = min(count, max(0, width - column))
            pair = bytes((value >> 4, value & 15)) if is_rle4 else bytes((value, value))
            values += (pair * (count // 2 + 1))[:count]
            column += count
        elif value == _END_OF_LINE:
            values += bytes(-len(values) % width)
            column = 0
        elif value == _END_OF_BITMAP:
            break
        elif value == _MOVE:
            if at + 2 > len(data):
                break
            values += bytes(min(n_values - len(values), data[at] + data[at + 1] * width))
            at += 2
            column = len(values) % width
        else:
            count = min(n_values - len(values), value)
            stored = data[at : at + ((count + 1) // 2 if is_rle4 else count)]
            at += len(stored)
            if is_rle4:
                stored = bytes(half for byte in stored for half in (byte >> 4, byte & 15))[:count]
            values += stored
            if len(stored) < count:
                break
            column += value
            at += (offset + at) % 2
    return values


class FastPpm(PpmImagePlugin.PpmImageFile):
    """A binary PPM whose values genpr scales to the full range, or a plain one without its comments.

    Pillow removes one comment at a time and copies what follows it.
    """

    def load(self) -> Any:  # noqa: ANN401 - as above
        """Read the pixels."""
        if self.tile and self.tile[0].codec_name == "ppm" and self.fp is not None:
            tile = self.tile[0]
            raw_mode, largest = cast("tuple[str, int]", tile.args)
            n_values = self.size[0] * self.size[1] * getmodebands(self.mode)
            self.fp.seek(tile.offset)
            values = _scaled(self.fp.read(n_values * (1 if largest < 256 else 2)), largest, self.mode)
            args = ("I;32" if self.mode == "I" else raw_mode, 0, 1)
            self.tile = [tile._replace(codec_name="raw", offset=0, args=args)]
            self.fp = io.BytesIO(values)
        elif self.tile and self.tile[0].codec_name == "ppm_plain" and self.fp is not None:
            self.fp.seek(self.tile[0].offset)
            self.fp = io.BytesIO(_COMMENT.sub(b"", self.fp.read()))
            self.tile = [self.tile[0]._replace(offset=0)]
        return super().load()


def _scaled(data: bytes, largest: int, mode: str) -> bytes:
    """Values of 0 to `largest`, stored in one or two bytes, scaled to the range of a mode."""
    stored = np.dtype(np.uint8 if largest < 256 else ">u2")
    kept, top = (np.dtype("<i4"), 65535) if mode == "I" else (np.dtype(np.uint8), 255)
    by_value = np.rint(
        np.arange(2 ** (8 * stored.itemsize)) / largest * top
    )  # halves to even, as `round` does
    table = np.minimum(by_value, top).astype(kept)
    values: NDArray[np.unsignedinteger] = np.frombuffer(data, stored, len(data) // stored.itemsize)
    scaled = np.empty(len(values), kept)
    for start in range(0, len(values), _PART):  # numpy makes 8-byte indices
        part = slice(start, start + _PART)
        np.take(table, values[part], out=scaled[part])
    return scaled.tobytes()


# The JPEG plugin reads an MPO as its first picture, which is the one to use.
PLUGINS: dict[str, type[ImageFile.ImageFile]] = {
    "AVIF": AvifImagePlugin.AvifImageFile,
    "BMP": FastBmp,
    "GIF": GifImagePlugin.GifImageFile,
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "PPM": FastPpm,
    "TIFF": _StoredTiff,
    "WEBP": WebPImagePlugin.WebPImageFile,
}
