"""Pillow's plugins, one per accepted format, and the facts about a file that only its plugin knows.

The plugin classes are used directly and not through `Image.open`: that one warns above `MAX_IMAGE_PIXELS`, a
setting of the whole process, and refuses twice as much, whatever limit the caller chose.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

from PIL import (
    AvifImagePlugin,
    GifImagePlugin,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from PIL.Image import Image

from genpr.images.pieces import MeteredFile, TooManyPiecesError
from genpr.images.slow_plugins import FastBmp, FastPpm

_BITS_PER_SAMPLE, _PHOTOMETRIC, _ORIENTATION, _PLANAR = 258, 262, 274, 284  # TIFF tags
_WHITE_IS_ZERO = 0
_SEPARATE_PLANES = 2
_EXIF_LONG = 4
_SMALL_FILE = 2**16  # bytes, which cannot be read in so many pieces


class UnsupportedPixelsError(Exception):
    """The pixels have no agreed meaning as 8-bit RGB; the message says why."""


class _StoredTiff(TiffImagePlugin.TiffImageFile):
    """A TIFF as it is stored. Pillow turns TIFFs, and only TIFFs, by their orientation while loading."""

    def load_end(self) -> None:
        self._size = self.im.size


# The JPEG plugin reads an MPO as its first picture, which is the one to use.
_PLUGINS: dict[str, type[ImageFile.ImageFile]] = {
    "AVIF": AvifImagePlugin.AvifImageFile,
    "BMP": FastBmp,
    "GIF": GifImagePlugin.GifImageFile,
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "PPM": FastPpm,
    "TIFF": _StoredTiff,
    "WEBP": WebPImagePlugin.WebPImageFile,
}


@dataclass(frozen=True, slots=True)
class Depth:
    """How channel values are stored.

    Attributes:
        bits: Significant bits of a value: at most 8, or 12 or 16.
        inverted: Gray values count from white, and Pillow has not turned them round.
    """

    bits: int = 8
    inverted: bool = False


def open_image(data: bytes, format_name: str) -> ImageFile.ImageFile:
    """Parse the header of a file; no pixel is decoded."""
    is_metered = len(data) > _SMALL_FILE or format_name == "TIFF"  # whose tags may be the same bytes
    return _PLUGINS[format_name](MeteredFile(data) if is_metered else io.BytesIO(data))


def depth_of(image: ImageFile.ImageFile) -> Depth:
    """How an opened image stores its values; to be asked before loading.

    Raises:
        UnsupportedPixelsError: Pillow would misread the file.
    """
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return _depth_of_tiff(image)
    args = image.tile[0].args if image.tile else None
    if isinstance(image, PngImagePlugin.PngImageFile):
        return Depth(16) if isinstance(args, str) and args.endswith(";16B") else Depth()
    if isinstance(image, PpmImagePlugin.PpmImageFile) and image.mode != "F":
        # Pillow scales every maxval to the full range of the mode it chooses.
        wide = image.mode == "I" or (isinstance(args, tuple) and args[1] > 255)
        return Depth(16) if wide else Depth()
    return Depth()


def _depth_of_tiff(image: TiffImagePlugin.TiffImageFile) -> Depth:
    tags = image.tag_v2
    bits = max(tags.get(_BITS_PER_SAMPLE, (1,)))
    if image.mode in {"I", "F"} or bits not in {12, 16}:
        return Depth()
    if tags.get(_PLANAR) == _SEPARATE_PLANES and len(image.getbands()) > 1:
        # Uncompressed ones come out as noise, without an error (Pillow 13 takes each plane as 8-bit).
        raise UnsupportedPixelsError(f"a {bits}-bit TIFF in separate colour planes, which Pillow misreads")
    return Depth(bits, inverted=image.mode.startswith("I;16") and tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)


def is_animated(image: ImageFile.ImageFile) -> bool:
    """Whether there are more frames or pages than the first; to be asked last, as it may move on to the second."""
    try:
        return bool(getattr(image, "is_animated", False))
    except TooManyPiecesError:
        raise
    except Exception:  # noqa: BLE001 - a second frame that cannot be parsed is a second frame
        return True


def orientation_of(image: Image) -> int:
    """Orientation 1 to 8 by the image's TIFF or EXIF tag; 1 if it has none or a broken one."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        value = image.tag_v2.get(_ORIENTATION, 1)
    else:
        exif = image.info.get("exif", b"")
        value = _exif_orientation(exif) if isinstance(exif, bytes) else 1
    return value if value in range(1, 9) else 1


def _exif_orientation(exif: bytes) -> int:
    """The orientation tag of an EXIF block, 1 if it cannot be found.

    `Image.getexif` would parse all of the block, warn about every flaw in it and raise for some.
    """
    body = exif.removeprefix(b"Exif\0\0")
    if body[:2] not in {b"II", b"MM"}:
        return 1

    def number(at: int, size: int) -> int:
        return int.from_bytes(body[at : at + size], "little" if body[:1] == b"I" else "big")

    first = number(4, 4) + 2
    for entry in range(first, min(first + 12 * number(first - 2, 2), len(body)), 12):
        if number(entry, 2) == _ORIENTATION:
            return number(entry + 8, 4 if number(entry + 2, 2) == _EXIF_LONG else 2)
    return 1
