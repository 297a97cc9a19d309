"""One decode policy: encoded bytes in, 8-bit RGB out, or the reason why not.

A file is decoded in full, so that damage is found. Frame 0 of animations and stacks is used, alpha is dropped
and hidden colors kept, EXIF orientation is ignored: what the loaders of the reference implementations do, unless
the user chose otherwise. Each of these leaves a flag, to be counted and reported. What cannot be detected is bit
errors inside JPEG data: they decode.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, cast

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, ImageFile, features
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from genpr.errors import GenprError, ImageError, printable
from genpr.images.avif import avif_workload
from genpr.images.formats import (
    JPEG_END,
    TooManyPiecesError,
    Workload,
    ends_early,
    image_format,
    jpeg_passes,
    jpeg_without_metadata,
    read_png_chunks,
    refusal,
    workload,
)
from genpr.images.item import ImageData
from genpr.images.policy import FLAGS, MAX_PIXELS, DecodePolicy

__all__ = [
    "FLAGS",
    "MAX_PIXELS",
    "DecodePolicy",
    "Decoded",
    "content_sha256",
    "decode",
    "decoder_versions",
    "rgb_of_image",
]

# Pixels that a decoder may fill for a small image, however low the limit; they fit anywhere.
_LEAST_LIMIT = 2**24
_LONGEST_SIDE = 2**20  # pixels; decoders hold several rows at once, and resizing stretches them
_SMALL_FILE = 2**16  # bytes, which cannot be read in very many pieces
_MOST_READS = 1_100_000  # of Pillow's parsers, several to a piece; 89 megapixels of noise as GIF take 850,000
_READ_AGAIN = 4  # times that the same bytes may be read on average, besides these:
_BYTES_READ = 2**26
_PYTHON_CODECS = {"bmp_rle", "ppm", "ppm_plain"}  # Pillow decodes these in Python, one value after another
_MOST_PYTHON_PIXELS = 2**20  # that they decode in about a second
_MOST_COMMENTS = 1000  # of a plain PPM; Pillow copies a block of the file for each
_PART_PIXELS = 2**22  # pixels that are converted at once, as several copies of a large image fill the memory
_BOMB = "; a decompression bomb? If it is genuine, raise max_pixels"
_QUIET = ("ignore", None, Warning, re.compile(r"PIL\."), 0)

_BITS_PER_SAMPLE, _PHOTOMETRIC, _ORIENTATION, _PLANAR = 258, 262, 274, 284  # TIFF tags
_WHITE_IS_ZERO = 0
_SEPARATE_PLANES = 2
_EXIF_LONG = 4

_Color = tuple[int, int, int]

_CONVERTED = {"1", "L", "P", "LA", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
_UNKNOWN_RANGE = {"F": "32-bit float", "I": "32-bit integer"}


class UnsupportedPixelsError(Exception):
    """The pixels have no agreed meaning as 8-bit RGB; the message says why."""


class PillowGuard:
    """Makes Pillow's process-wide switches strict and silent; the first thread in sets, the last one out restores them.

    Two of them reach into every decode. `ImageFile.LOAD_TRUNCATED_IMAGES`, which training code likes to set, fills
    what is missing of a file with gray. And broken metadata makes Pillow warn, which raises where warnings are
    errors. Neither can be set for one thread only (`warnings.catch_warnings` is not safe between threads before
    Python 3.14), so all decoding threads share one guard, which counts them.

    What another thread changes meanwhile is set again when the next decode begins. The filter silences
    warnings from Pillow's own modules only, and is taken out of the very lists it was put into, so it stays
    behind nowhere, however other threads nest their `catch_warnings`.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._lenient = False
        self._muted: list[list[Any]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if ImageFile.LOAD_TRUNCATED_IMAGES:
                ImageFile.LOAD_TRUNCATED_IMAGES, self._lenient = False, True
            filters = cast("list[Any]", warnings.filters)
            if not filters or filters[0] is not _QUIET:
                filters.insert(0, _QUIET)
                self._muted.append(filters)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            if self._lenient:
                ImageFile.LOAD_TRUNCATED_IMAGES, self._lenient = True, False
            # A copy made meanwhile by `catch_warnings` holds the filter too, if it is still in use.
            for filters in (*self._muted, cast("list[Any]", warnings.filters)):
                for entry in [*filters]:
                    if entry is _QUIET:
                        filters.remove(entry)
            self._muted.clear()


pillow_guard = PillowGuard()


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


class _StoredTiff(TiffImageFile):
    """A TIFF as it is stored. Pillow turns TIFFs, and only TIFFs, by their orientation while loading."""

    def load_end(self) -> None:
        self._size = self.im.size


# Used directly and not through `Image.open`: that one warns above `MAX_IMAGE_PIXELS`, a setting of the whole process, and
# refuses twice as much, whatever limit the caller chose. The JPEG plugin reads an MPO as its first picture.
_PLUGINS: dict[str, type[ImageFile.ImageFile]] = {
    "AVIF": AvifImageFile,
    "BMP": BmpImageFile,
    "GIF": GifImageFile,
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "PPM": PpmImageFile,
    "TIFF": _StoredTiff,
    "WEBP": WebPImageFile,
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded image.

    Attributes:
        pixels: RGB, (h, w, 3), C-contiguous and writable (as `torch.from_numpy` wants it).
        flags: What was done on the way, a subset of `FLAGS` in their order.
    """

    pixels: NDArray[np.uint8]
    flags: tuple[str, ...]


def decode(data: ImageData, *, name: str, policy: DecodePolicy) -> Decoded:
    """Decode one image completely. Safe to call from several threads.

    Args:
        data: The bytes of a file; pixels (h, w, 3), which are passed through (copied only if they are not
            C-contiguous or not writable); or a loaded Pillow image, whose other frames are not looked at.
        name: Its label, for messages.
        policy: Limits, and what becomes of transparency and orientation.

    Raises:
        ImageError: With `path=name` and one of the codes image-unreadable, format-not-allowed,
            image-too-large, image-truncated, image-corrupt, mode-unsupported.
    """
    if isinstance(data, np.ndarray):
        return _pass_through(data, name, policy)
    if isinstance(data, Image.Image):
        return _convert(data, name, policy)
    format_name = image_format(data)
    if format_name is None:
        code, reason = refusal(data)
        raise _error(name, reason, code)
    with pillow_guard:
        try:
            return _decode_file(data, format_name, name, policy)
        except (GenprError, MemoryError):
            raise
        except UnsupportedPixelsError as error:
            raise _unsupported(name, error) from error
        except TooManyPiecesError as error:
            raise _error(
                name, f"{error}, which take too long to parse; save it again", "image-too-large"
            ) from error
        except Image.DecompressionBombError as error:
            raise _error(name, f"Pillow refuses it ({error})", "image-too-large") from error
        except Exception as error:  # damaged files make plugins raise nearly anything
            raise _damaged(data, format_name, name, error) from error


def _decode_file(data: bytes, format_name: str, name: str, policy: DecodePolicy) -> Decoded:
    exif = damage = None
    if format_name == "PNG":
        data, damage = read_png_chunks(data)
    elif format_name == "JPEG":
        data, exif = jpeg_without_metadata(data)
    elif format_name != "AVIF":
        _check_work(workload(data, format_name), format_name, name, policy)
    is_metered = len(data) > _SMALL_FILE or format_name == "TIFF"  # whose tags may be the same bytes
    image = _PLUGINS[format_name](MeteredFile(data) if is_metered else io.BytesIO(data))
    if exif is not None:
        image.info["exif"] = exif
    if format_name == "AVIF":  # whose boxes libavif has read by now, and says best what is wrong with them
        _check_work(avif_workload(data), format_name, name, policy)
    _check_size(image.size, name, policy)
    _check_python_codec(image, data)
    header_end = image.fp.tell() if image.fp else 0
    if isinstance(image, JpegImageFile):
        components = 0 if "progressive" in image.info else image.layers
        passes = jpeg_passes(data, image.size, components=components, at=header_end)
        _check_work(Workload(total=passes), format_name, name, policy)
    depth = depth_of(image)
    if (
        format_name == "JPEG" and data.rfind(JPEG_END, header_end) < 0
    ):  # that of an embedded preview lies before
        damage = "truncated"
    if damage:
        raise _damaged(data, format_name, name, ValueError(f"{damage} data"))
    image.load()
    pixels, flags = rgb_pixels(image, depth, policy)
    try:  # last, as it may move on to the second frame
        has_frames = bool(getattr(image, "is_animated", False))
    except TooManyPiecesError:
        raise
    except Exception:  # noqa: BLE001 - a second frame that cannot be parsed is a second frame
        has_frames = True
    if has_frames:
        flags.add("multi-frame")
    return Decoded(pixels, tuple(sorted(flags, key=FLAGS.index)))


def loaded(image: Image.Image, *, name: str) -> Image.Image:
    """A Pillow image that someone else opened, with its pixels read.

    Raises:
        ImageError: They cannot be read.
    """
    with pillow_guard:
        try:
            image.load()
        except MemoryError:
            raise
        except Exception as error:  # as in `decode`
            raise _error(name, f"cannot be loaded ({printable(str(error))})", "image-corrupt") from error
    return image


def rgb_of_image(image: Image.Image, *, name: str) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) of a Pillow image that someone else opened, by the default rules for files.

    Raises:
        ImageError: Its mode is refused, or it was not loaded yet and loading failed.
    """
    return _convert(loaded(image, name=name), name, DecodePolicy()).pixels


def _convert(image: Image.Image, name: str, policy: DecodePolicy) -> Decoded:
    """Pixels of a loaded image that someone else opened."""
    _check_size(image.size, name, policy)
    with pillow_guard:
        try:
            depth = Depth(16) if image.mode.startswith("I;16") else Depth()
            pixels, flags = rgb_pixels(image, depth, policy)
        except MemoryError:
            raise
        except UnsupportedPixelsError as error:
            raise _unsupported(name, error) from error
        except Exception as error:  # as in `decode`
            raise _error(name, f"cannot be converted ({printable(str(error))})", "image-corrupt") from error
    return Decoded(pixels, tuple(sorted(flags, key=FLAGS.index)))


def content_sha256(data: ImageData) -> str:
    """Hex sha256 that identifies an image: of a file's bytes, or of pixels with their shape."""
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    if isinstance(data, Image.Image):
        data = rgb_of_image(data, name="image")
    digest = hashlib.sha256(f"genpr uint8 pixels {data.shape}\n".encode())  # no image file begins so
    digest.update(np.ascontiguousarray(data).data)
    return digest.hexdigest()


@cache
def decoder_versions() -> dict[str, str]:
    """Versions of what turns bytes into pixels; lossy decoders change pixels between versions."""
    versions = {"pillow": PIL.__version__}
    for library in ("libjpeg_turbo", "webp", "avif"):
        if found := features.version(library):
            versions[library] = str(found)
    return versions


@dataclass(frozen=True, slots=True)
class Depth:
    """How channel values are stored.

    Attributes:
        bits: Significant bits of a value: at most 8, or 12 or 16.
        inverted: Gray values count from white, and Pillow has not turned them round.
    """

    bits: int = 8
    inverted: bool = False


def depth_of(image: ImageFile.ImageFile) -> Depth:
    """How an opened image stores its values; to be called before loading.

    Raises:
        UnsupportedPixelsError: Pillow would misread the file.
    """
    if isinstance(image, TiffImageFile):
        return _depth_of_tiff(image)
    args = image.tile[0].args if image.tile else None
    if isinstance(image, PngImageFile):
        return Depth(16) if isinstance(args, str) and args.endswith(";16B") else Depth()
    if isinstance(image, PpmImageFile) and image.mode != "F":
        # Pillow scales every maxval to the full range of the mode it chooses.
        wide = image.mode == "I" or (isinstance(args, tuple) and args[1] > 255)
        return Depth(16) if wide else Depth()
    return Depth()


def _depth_of_tiff(image: TiffImageFile) -> Depth:
    tags = image.tag_v2
    bits = max(tags.get(_BITS_PER_SAMPLE, (1,)))
    if image.mode in {"I", "F"} or bits not in {12, 16}:
        return Depth()
    if tags.get(_PLANAR) == _SEPARATE_PLANES and len(image.getbands()) > 1:
        # Uncompressed ones come out as noise, without an error (Pillow 13 takes each plane as 8-bit).
        raise UnsupportedPixelsError(f"a {bits}-bit TIFF in separate color planes, which Pillow misreads")
    return Depth(bits, inverted=image.mode.startswith("I;16") and tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)


def rgb_pixels(image: Image.Image, depth: Depth, policy: DecodePolicy) -> tuple[NDArray[np.uint8], set[str]]:
    """Convert a loaded image to 8-bit RGB.

    The rule is `image.convert("RGB")`, as every loader does it, except where that ruins an image in silence: it
    saturates 16-bit gray, and turns float and 32-bit integer images black or white.

    Args:
        image: In any mode.
        depth: How its file stores values.
        policy: What becomes of transparency and orientation.

    Returns:
        Pixels (h, w, 3), writable, and those flags that report values changed or left out.

    Raises:
        UnsupportedPixelsError: The mode has no agreed meaning as 8-bit RGB.
    """
    is_deep_gray = image.mode.startswith("I;16") or (image.mode == "I" and depth.bits == 16)
    convert = _scaled_gray if is_deep_gray else _converted
    pixels, flags = convert(image, depth, policy.background)
    if isinstance(image, TiffImageFile):
        orientation: Any = image.tag_v2.get(_ORIENTATION)
    else:
        exif = image.info.get("exif")
        orientation = _exif_orientation(exif) if exif and isinstance(exif, bytes) else None
    if orientation in range(2, 9):  # 1 is upright, and others are broken
        if policy.exif == "apply":
            pixels = _turned(pixels, orientation)
        else:
            flags.add("exif-orientation")
    return pixels, flags


def _converted(
    image: Image.Image, depth: Depth, background: _Color | None
) -> tuple[NDArray[np.uint8], set[str]]:
    """Pixels by Pillow's own conversion, a few million at once."""
    if image.mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[image.mode])
    if image.mode in _UNKNOWN_RANGE:
        raise UnsupportedPixelsError(
            f"{_UNKNOWN_RANGE[image.mode]} pixels (mode {image.mode}), whose range is unknown"
        )
    if image.mode not in _CONVERTED:
        raise UnsupportedPixelsError(f"pixels of mode {image.mode}")
    flags = {"16bit-scaled"} if depth.bits > 8 else set()
    if image.mode == "CMYK":
        flags.add("cmyk-converted")
    width, height = image.size
    pixels = np.empty((height, width, 3), np.uint8)
    step = max(1, _PART_PIXELS // max(1, width))
    for top in range(0, max(1, height), step):
        end = min(top + step, height)
        part = image if step >= height else image.crop((0, top, width, end))
        rows = pixels[top:end]
        if not image.has_transparency_data:
            rows[:] = np.asarray(part if part.mode == "RGB" else part.convert("RGB"))
            continue
        rgba = np.asarray(part if part.mode == "RGBA" else part.convert("RGBA"))
        rows[:] = rgba[..., :3] if background is None else _laid_on(background, rgba)
        if background is None and rgba[..., 3].min() < 255:
            flags.add("alpha-dropped")
    return pixels, flags


def _scaled_gray(
    image: Image.Image, depth: Depth, background: _Color | None
) -> tuple[NDArray[np.uint8], set[str]]:
    """Keep the high 8 bits, as readers of 16-bit color do."""
    values = np.asarray(image)
    flags = {"16bit-scaled"}
    gray = (values >> max(depth.bits - 8, 0)).astype(np.uint8)
    pixels = np.repeat((255 - gray if depth.inverted else gray)[..., None], 3, axis=2)
    hidden = values == image.info.get("transparency", -1)
    if background is not None:
        pixels[hidden] = background
    elif hidden.any():
        flags.add("alpha-dropped")
    return pixels, flags


def _laid_on(background: _Color, rgba: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pixels (h, w, 4) over a color, each value rounded to the nearest level."""
    alpha = rgba[..., 3:].astype(np.uint16)
    mixed = rgba[..., :3] * alpha + np.array(background, np.uint16) * (255 - alpha)  # at most 255 * 255
    return ((mixed.astype(np.uint32) + 127) // 255).astype(np.uint8)


def _turned(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) turned upright by their EXIF orientation, 2 to 8: mirrored, rotated, or both."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in {3, 4, 7, 8}:
        pixels = pixels[::-1]
    if orientation in {2, 3, 6, 7}:
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _exif_orientation(exif: bytes) -> int | None:
    """The value of the orientation tag of an EXIF block, whatever it is; None if there is none.

    `Image.getexif` would parse all of the block, warn about every flaw in it and raise for some.
    """
    body = exif.removeprefix(b"Exif\0\0")
    if body[:2] not in {b"II", b"MM"}:
        return None

    def number(at: int, size: int) -> int:
        return int.from_bytes(body[at : at + size], "little" if body[:1] == b"I" else "big")

    first = number(4, 4) + 2
    for entry in range(first, min(first + 12 * number(first - 2, 2), len(body)), 12):
        if number(entry, 2) == _ORIENTATION:
            return number(entry + 8, 4 if number(entry + 2, 2) == _EXIF_LONG else 2)
    return None


def _pass_through(pixels: NDArray[np.uint8], name: str, policy: DecodePolicy) -> Decoded:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        facts = f"needs uint8 pixels (h, w, 3), got {pixels.dtype} {pixels.shape}"
        raise _error(name, facts, "mode-unsupported")
    _check_size((pixels.shape[1], pixels.shape[0]), name, policy)
    return Decoded(np.require(pixels, requirements=["C", "W"]), ())


def _check_size(size: tuple[int, int], name: str, policy: DecodePolicy) -> None:
    width, height = size
    if width * height > policy.max_pixels:
        facts = (
            f"{width} x {height} = {width * height:,} pixels, more than the limit of {policy.max_pixels:,}"
        )
        raise _error(name, f"{facts}{_BOMB}", "image-too-large")
    if max(size) > _LONGEST_SIDE:
        facts = f"{width} x {height} pixels, with a side longer than the {_LONGEST_SIDE:,} that are read"
        raise _error(name, f"{facts}; cut it into pieces", "image-too-large")


def _check_work(work: Workload, format_name: str, name: str, policy: DecodePolicy) -> None:
    limit = work.limit_of(format_name, max(policy.max_pixels, _LEAST_LIMIT))
    if limit is not None:
        filled = max(work.largest, work.total)
        facts = f"its decoder would fill {filled:,} pixels in all, more than the limit of {limit:,}"
        raise _error(name, f"{facts}{_BOMB}", "image-too-large")


def _check_python_codec(image: ImageFile.ImageFile, data: bytes) -> None:
    """Refuse what Pillow would decode in Python for many seconds.

    Raises:
        TooManyPiecesError: There are too many pixels, or comments between them.
    """
    codec = image.tile[0].codec_name if image.tile else ""
    if codec not in _PYTHON_CODECS:
        return
    pixels = image.size[0] * image.size[1]
    is_plain_bitmap = codec == "ppm_plain" and image.mode == "1"  # of one digit for each pixel, which is fast
    if pixels > _MOST_PYTHON_PIXELS and not is_plain_bitmap:
        raise TooManyPiecesError(f"it has {pixels:,} pixels in a form that Pillow decodes one by one")
    if codec == "ppm_plain" and data.count(b"#") > _MOST_COMMENTS:
        raise TooManyPiecesError(f"it has more than {_MOST_COMMENTS:,} comments")


def _damaged(data: bytes, format_name: str, name: str, error: Exception) -> ImageError:
    reason = printable(str(error)) or type(error).__name__
    if "truncated" in reason.lower() or "not enough image data" in reason or ends_early(data, format_name):
        message = (
            f"the {format_name} file ends early, after {len(data):,} bytes; an interrupted copy or download?"
        )
        return _error(name, message, "image-truncated")
    return _error(name, f"the {format_name} file is damaged ({reason})", "image-corrupt")


def _unsupported(name: str, reason: Exception) -> ImageError:
    return _error(name, f"has {reason}; convert it to 8-bit RGB yourself", "mode-unsupported")


def _error(name: str, message: str, code: str) -> ImageError:
    return ImageError(f"{printable(name)}: {message}", code=code, path=name)
