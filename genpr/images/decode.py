"""Decode image files to 8-bit RGB, with one policy for all formats.

A file is decoded completely, so that damage is found. Frame 0 of animations and stacks is used, alpha is dropped and hidden
colors are kept, and EXIF orientation is ignored, as in the loaders of the reference implementations.
Each of these sets a flag, which is counted and reported. Bit errors inside JPEG data decode, so they are not detected.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from threading import Lock
from typing import Any, cast

import numpy as np
import PIL
from numpy.lib import format as npy
from numpy.typing import NDArray
from packaging.version import Version
from PIL import Image, ImageFile, features
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from genpr.errors import GenprError, ImageError, short
from genpr.images import formats
from genpr.images.formats import ReadLimitedFile, TooManyPiecesError, UnsupportedImageError
from genpr.images.item import ImageData
from genpr.images.policy import FLAGS, MAX_PIXELS, DecodePolicy
from genpr.images.prepare import prepare_pixels
from genpr.images.values import (
    Values,
    ValuesError,
    needs_tifffile,
    pixels_of_values,
    values_of_npy,
    values_of_pillow,
    values_of_png,
    values_of_tiff,
)

_MIN_PIXEL_LIMIT = 2**24  # pixels that all passes over a JPEG may have, however low the limit
_MAX_SCANS = 40  # the same as a multiple of the limit; about 8 s at the default limit
_MIN_PASS_PIXELS = 2**12  # pixels that a pass over a smaller JPEG counts as, for its fixed cost
_MIN_TILE_PIXELS = 2**10  # pixels that a smaller TIFF tile counts as, for its fixed cost
_MAX_SIDE = 2**20  # pixels; decoders hold several rows at once, and resizing stretches them
_SMALL_FILE = 2**16  # bytes, which cannot be read in very many pieces
_PYTHON_CODECS = {"bmp_rle", "ppm", "ppm_plain"}  # Pillow decodes these in Python, one value after another
_MAX_PYTHON_PIXELS = 2**20  # decoded in about a second
_MAX_COMMENTS = 1000  # of a GIF, and of a plain PPM, of which Pillow copies a block for each
_PART_PIXELS = 2**22  # pixels that are converted at once, since conversion takes several copies
_QUIET = ("ignore", None, Warning, re.compile(r"PIL\."), 0)

_ORIENTATION, _WHITE_IS_ZERO = 274, 0  # a TIFF tag, and a value of `formats.PHOTOMETRIC`
_TIFF_LAYOUT_ERRORS = {"unknown pixel mode", "string index out of range"}

_Converted = tuple[NDArray[np.uint8], set[str]]

_CONVERTED = {"1", "L", "P", "LA", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
_UNKNOWN_RANGE = {"F": "32-bit float", "I": "32-bit integer"}


class PillowGuard:
    """Makes Pillow's process-wide settings strict and silent; the first thread sets and the last thread restores them.

    With `LOAD_TRUNCATED_IMAGES` missing parts of a file are gray. Without `MAX_IMAGE_PIXELS` the parsers of GIF, TIFF and WebP
    allocate any size that a file claims, and with another limit they refuse images within that of genpr. Broken metadata make Pillow warn. `warnings.catch_warnings` is not thread-safe
    before Python 3.14, so the filter is removed from exactly the lists it was added to.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._restored = ExitStack()
        self._muted: list[list[Any]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if ImageFile.LOAD_TRUNCATED_IMAGES:
                ImageFile.LOAD_TRUNCATED_IMAGES = False
                self._restored.callback(setattr, ImageFile, "LOAD_TRUNCATED_IMAGES", True)
            if Image.MAX_IMAGE_PIXELS != MAX_PIXELS:
                self._restored.callback(setattr, Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
                Image.MAX_IMAGE_PIXELS = MAX_PIXELS
            filters = cast("list[Any]", warnings.filters)
            if not filters or filters[0] is not _QUIET:
                filters.insert(0, _QUIET)
                self._muted.append(filters)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            self._restored.close()
            # A copy made by `catch_warnings` in the meantime holds the filter, too.
            for filters in (*self._muted, cast("list[Any]", warnings.filters)):
                while _QUIET in filters:
                    filters.remove(_QUIET)
            self._muted.clear()


pillow_guard = PillowGuard()


class _GifWithoutComments(GifImageFile):
    """A GIF whose comments are skipped. Pillow before 13 joins their blocks one by one, in quadratic time."""

    _n_comments = 0

    def data(self) -> bytes | None:
        file = cast("io.BytesIO", self.fp)
        file.seek(-2, io.SEEK_CUR)
        is_comment = io.BytesIO.read(file, 2) == b"!\xfe"  # not counted as a piece
        self._n_comments += is_comment
        if self._n_comments > _MAX_COMMENTS:
            raise TooManyPiecesError("it has very many comments")
        block = super().data()
        while is_comment and block:
            block = super().data()
        return block


class _StoredTiff(TiffImageFile):
    """A TIFF as it is stored. Pillow applies the orientation of TIFFs, and only of TIFFs, while loading."""

    def load_end(self) -> None:
        self._size = self.im.size


# Used directly and not through `Image.open`, which warns above `MAX_IMAGE_PIXELS`, a setting of the whole process, and
# refuses twice as many pixels, whatever limit the caller chose. The JPEG plugin reads the first picture of an MPO.
_PLUGINS: dict[str, type[ImageFile.ImageFile]] = {
    "AVIF": AvifImageFile,
    "BMP": BmpImageFile,
    "GIF": _GifWithoutComments,
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "PPM": PpmImageFile,
    "TIFF": _StoredTiff,
    "WEBP": WebPImageFile,
    "WEBP lossless": WebPImageFile,
}


def _plugin(format_name: str) -> type[ImageFile.ImageFile] | None:
    """The class of Pillow or of an installed plugin that reads a format."""
    if format_name in formats.PLUGINS:
        _, package, oldest, module, name = formats.PLUGINS[format_name]
        if Version(decoder_versions().get(package, "0")) >= Version(oldest):
            with suppress(ImportError):
                plugin: type[ImageFile.ImageFile] = getattr(import_module(module), name)
                return plugin
    return _PLUGINS.get(format_name)


def readable_format(data: bytes) -> str | None:
    """Name of the format of a file that can be decoded here, by Pillow or by an installed plugin; None for others."""
    name = formats.image_format(data) or formats.unread_format(data)
    return name if name and _plugin(name) is not None else None


@dataclass(frozen=True, slots=True)
class Decoded:
    """Pixels (h, w, 3), or (h, w, bands) of all bands, C-contiguous and writable, and the flags in the order of `FLAGS`."""

    pixels: NDArray[np.uint8]
    flags: tuple[str, ...]


def decode(data: ImageData, *, name: str, policy: DecodePolicy) -> Decoded:
    """Decode one image completely, or raise an `ImageError` with `path=name`; thread-safe.

    Pixels (h, w, 3) are passed through, and copied only if they are not C-contiguous or not writable. Arrays (h, w) and
    (h, w, bands) are values of black to white. `policy.prepare` is applied last.
    """
    flags = set[str]()
    if policy.reads_values and isinstance(data, bytes) and data.startswith(npy.MAGIC_PREFIX):
        with _errors_named(name, f"the array file is damaged, after {len(data):,} bytes"):
            data = values_of_npy(data)
    if isinstance(data, np.ndarray):
        if data.ndim not in {2, 3} or 0 in data.shape:
            facts = f"needs pixels (h, w) or (h, w, 3), got {data.dtype} {data.shape}"
            raise _error(name, facts, "image-unsupported")
        _check_size((data.shape[1], data.shape[0]), name, policy)
        with _errors_named(name, "cannot be converted"):
            pixels = pixels_of_values(data, policy, flags)
    elif isinstance(data, Image.Image):
        pixels, flags = _convert(data, name, policy)
    else:
        format_name = readable_format(data)
        if format_name is None:
            code, found_instead = formats.unaccepted(data, name)
            raise _error(name, found_instead, code)
        damage = f"the {format_name} file is damaged or cut short, after {len(data):,} bytes"
        with _errors_named(name, damage):
            pixels, flags = _decode_file(data, format_name, name, policy)
    if "16bit-scaled" in flags:
        flags |= {"16bit-unscaled"} if pixels.max() < 16 else set()
    elif (not policy.ranges or "8bit-values" in flags) and _is_unscaled(pixels):
        flags.add("unscaled")
    if policy.preparation is not None:
        rule, side = policy.preparation
        check = partial(_check_size, name=name, policy=policy, what=f"{rule}:{side} makes it ")
        if min(pixels.shape[:2]) < side:
            flags.add("enlarged")
        with pillow_guard:  # a crop applies the limit, too
            pixels = prepare_pixels(pixels, rule, side, check_size=check)
    return Decoded(pixels, tuple(sorted(flags, key=FLAGS.index)))


def _is_unscaled(pixels: NDArray[np.uint8]) -> bool:
    """Whether all values are those of floats of 0..1 that were cast to uint8, 0 and 1, or of -1..1, 0, 1 and 255."""
    # 255 becomes 0; a few pixels decide for nearly all images.
    if (pixels[::8, ::8] + np.uint8(1)).max() > 2 or (pixels + np.uint8(1)).max() > 2:
        return False
    return bool((pixels == 1).any() or not pixels.any())


@contextmanager
def _errors_named(name: str, damage: str) -> Iterator[None]:
    """Convert all errors of Pillow to `ImageError`."""
    with pillow_guard:
        try:
            yield
        except (GenprError, MemoryError):
            raise
        except ValuesError as error:
            raise _error(name, str(error), "image-values") from error
        except UnsupportedImageError as error:
            text = f"has {error}; this is not supported, convert it to an 8-bit RGB PNG"
            raise _error(name, text, "image-unsupported") from error
        except TooManyPiecesError as error:
            text = f"{error}, which take too long to parse; save it again"
            raise _error(name, text, "image-too-large") from error
        except Image.DecompressionBombError as error:
            raise _error(name, f"Pillow refuses it ({error})", "image-too-large") from error
        except Exception as error:  # damaged files make plugins raise almost any error
            reason = short(str(error), 200) or type(error).__name__  # which may repeat a part of the file
            if reason.startswith("Unsupported"):  # such as "Unsupported BMP compression (4)"
                raise _error(name, f"{reason}; convert it to PNG", "image-unsupported") from error
            raise _error(name, f"{damage} ({reason})", "image-corrupt") from error


def _decode_file(data: bytes, format_name: str, name: str, policy: DecodePolicy) -> _Converted:
    exif = None
    if format_name == "JPEG":
        data, exif, size = formats.jpeg_without_metadata(data)
    elif format_name == "AVIF":
        data = formats.avif_without_exif(data)
    elif format_name == "PNG":
        formats.check_png(data)  # before Pillow, which takes ten times as long per chunk
    elif format_name == "TIFF":
        tags = formats.check_tiff(data, name, any_values=policy.reads_values)
        if policy.reads_values and needs_tifffile(data, tags, policy):
            _check_size(size := (tags.get(256, 0), tags.get(257, 0)), name, policy)
            _check_tiles(formats.tiff_tile(data), size, name, policy)
            flags = {"multi-frame"} if tags[formats.NEXT_PAGE] else set()
            flags |= {"exif-orientation"} if tags.get(_ORIENTATION) in range(2, 9) else set()
            return pixels_of_values(values_of_tiff(data, tags, size, policy), policy, flags), flags
    elif format_name == "JPEG XL":
        _check_size(formats.jpeg_xl_size(data), name, policy)
    is_metered = len(data) > _SMALL_FILE or format_name == "TIFF"  # whose tags may be the same bytes
    try:
        plugin: Any = _plugin(format_name)
        image = plugin(ReadLimitedFile(data) if is_metered else io.BytesIO(data))
    except SyntaxError as error:
        if str(error) in _TIFF_LAYOUT_ERRORS:
            raise UnsupportedImageError(formats.TIFF_LAYOUT) from error
        raise
    if exif is not None:
        image.info["exif"] = exif
    _check_size(image.size, name, policy)
    if image.tile and image.tile[0].codec_name in _PYTHON_CODECS:  # Pillow would decode it for many seconds
        n_pixels = image.size[0] * image.size[1]
        if n_pixels > _MAX_PYTHON_PIXELS:
            raise TooManyPiecesError(f"it has {n_pixels:,} pixels in a form that Pillow decodes one by one")
        if format_name == "PPM" and data.count(b"#") > max(_MAX_COMMENTS, n_pixels):
            raise TooManyPiecesError("it has very many comments")
    if format_name == "JPEG":
        if image.size != size:  # lines of libjpeg would be longer than Pillow before 13 has room for
            raise ValueError("its frame header is ambiguous")
        _check_jpeg(image, data, name, policy)
    elif format_name == "TIFF":
        _check_tiles(formats.tiff_tile(data), image.size, name, policy)
        is_safe = int(PIL.__version__.partition(".")[0]) >= formats.SAFE_PILLOW
        if not is_safe and (found := formats.unsafe_in_tiff(data)):
            need = f"for which genpr needs Pillow {formats.SAFE_PILLOW} or later, and {PIL.__version__} is installed"
            raise UnsupportedImageError(f"{found}, {need}")
    # Whether values have 16 significant bits, which loading hides.
    args, is_deep = image.tile[0].args if image.tile else None, False
    if isinstance(image, TiffImageFile):
        stored = image.tag_v2
        is_deep = max(stored.get(formats.BITS, (1,))) == 16 and image.mode not in {"I", "F"}
        is_planar = stored.get(formats.PLANAR) == formats.SEPARATE_PLANES and len(image.getbands()) > 1
        is_inverted = image.mode.startswith("I;16") and stored.get(formats.PHOTOMETRIC) == _WHITE_IS_ZERO
        if is_deep and (is_planar or is_inverted):
            raise UnsupportedImageError("TIFF pixels of 16 bits in a form that Pillow misreads")
    elif format_name == "PNG":
        is_deep = isinstance(args, str) and args.endswith(";16B")
    elif format_name in formats.PLUGINS:
        is_deep = image.mode.startswith("I;16")
    elif format_name == "PPM" and image.mode != "F":
        # Pillow scales every maxval to the full range of the chosen mode.
        is_deep = image.mode == "I" or (isinstance(args, tuple) and args[1] > 255)
    image.load()
    dropped, values = set[str](), values_of_pillow(image, policy)
    if policy.reads_values and is_deep:
        values = _deep_values(image, data, args, policy, dropped)
    pixels, flags = rgb_pixels(image, 16 if is_deep else 8, policy, values)
    flags |= dropped
    try:  # last, since it may move to the second frame
        has_frames = bool(getattr(image, "is_animated", False))
    except TooManyPiecesError:
        raise
    except Exception:  # noqa: BLE001 - a second frame that cannot be parsed is a second frame
        has_frames = True
    if has_frames:
        flags.add("multi-frame")
    return pixels, flags


def _deep_values(
    image: Image.Image, data: bytes, args: object, policy: DecodePolicy, flags: set[str]
) -> Values:
    """The values of a loaded file of more than 8 bits; `args` are those of its decoder."""
    is_gray = image.mode.startswith("I")
    if image.format == "PNG" and not is_gray:
        return values_of_png(data, str(args).partition(";")[0], policy, flags)
    if image.format not in {"PNG", "PPM", "TIFF"} or not is_gray:
        raise ValuesError(f"it is a {image.format} of more than 8 bits, which is not read; save it as TIFF")
    values = np.asarray(image)
    if image.format == "PPM" and isinstance(args, tuple):  # which Pillow scales to 16 bits
        values = np.rint(values * (args[-1] / 65535)).astype(np.uint16)
    return values


def _check_jpeg(image: ImageFile.ImageFile, data: bytes, name: str, policy: DecodePolicy) -> None:
    """Refuse a JPEG without its end, or with very many scans, each of which is a pass over all pixels."""
    at = image.fp.tell() if image.fp else 0
    if data.rfind(formats.JPEG_END, at) < 0:  # an embedded preview is before it
        raise ValueError("its end is missing")
    passes = max(image.size[0] * image.size[1], _MIN_PASS_PIXELS) * (1 + data.count(formats.JPEG_SCAN, at))
    limit = _MAX_SCANS * max(policy.max_pixels, _MIN_PIXEL_LIMIT)
    if passes > limit:
        raise _too_large(name, f"its decoder would fill {passes:,} pixels in all scans", limit)


def load_pillow(image: Image.Image, *, name: str) -> Image.Image:
    """Load the pixels of a Pillow image of the user; a copy if the user may reuse its memory."""
    with _errors_named(name, "cannot be loaded"):
        image.load()
        return image if isinstance(image, ImageFile.ImageFile) else image.copy()


def _convert(image: Image.Image, name: str, policy: DecodePolicy) -> _Converted:
    """Pixels of a Pillow image of the user."""
    _check_size(image.size, name, policy)
    with _errors_named(name, "cannot be loaded"):
        bits = 16 if image.mode.startswith("I;16") else 8
        return rgb_pixels(image, bits, policy, values_of_pillow(image, policy))


def content_sha256(data: ImageData) -> str:
    """Hex sha256 that identifies an image: of a file's bytes, or of pixels with their shape."""
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    if isinstance(data, Image.Image):
        data, _ = _convert(data, "image", DecodePolicy())
    digest = hashlib.sha256(f"genpr {data.dtype.name} pixels {data.shape}\n".encode())  # as no file begins
    digest.update(np.ascontiguousarray(data, data.dtype.newbyteorder("=")).data)
    return digest.hexdigest()


@cache
def decoder_versions() -> dict[str, str]:
    """Versions of the decoders; lossy decoders change pixels between versions."""
    versions = {"pillow": PIL.__version__}
    for library in ("libjpeg_turbo", "webp", "avif"):
        if version := features.version(library):
            versions[library] = str(version)
    for _, package, *_ in formats.PLUGINS.values():
        with suppress(PackageNotFoundError):
            versions[package] = package_version(package)
    return versions


def rgb_pixels(image: Image.Image, bits: int, policy: DecodePolicy, values: Values | None) -> _Converted:
    """Pixels (h, w, 3) of a loaded image in 8-bit RGB, writable, and the flags of the conversion.

    This is `image.convert("RGB")`, as in other loaders, except where that gives wrong pixels: it saturates 16-bit
    gray, and makes float and 32-bit integer images black or white. `values`, if any, are converted instead.
    """
    flags = {"16bit-scaled"} if bits > 8 and values is None else set[str]()
    if values is not None:
        pixels = pixels_of_values(values, policy, flags)
    elif image.mode.startswith("I;16") or (image.mode == "I" and bits == 16):
        values = np.asarray(image)
        # The high 8 bits, as other readers of 16-bit color do.
        pixels = np.repeat((values >> (bits - 8)).astype(np.uint8)[..., None], 3, axis=2)
        if (values == image.info.get("transparency", -1)).any():
            flags.add("alpha-dropped")
    else:
        pixels = _converted(image, flags)
        flags |= {"8bit-values"} if policy.ranges else set()
    if isinstance(image, TiffImageFile):
        orientation: Any = image.tag_v2.get(_ORIENTATION)
    else:
        exif = image.info.get("exif")
        orientation = _exif_orientation(exif) if exif and isinstance(exif, bytes) else None
    if orientation in range(2, 9):  # 1 is upright; other values are invalid
        flags.add("exif-orientation")
    return pixels, flags


def _converted(image: Image.Image, flags: set[str]) -> NDArray[np.uint8]:
    """Pixels by Pillow's conversion, a few million at once; adds flags of the conversion to `flags`."""
    if image.mode in _UNKNOWN_RANGE:
        raise UnsupportedImageError(f"{_UNKNOWN_RANGE[image.mode]} pixels, whose range is unknown")
    if image.mode not in _CONVERTED:
        raise UnsupportedImageError(f"pixels of mode {image.mode}")
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
        rows[:] = rgba[..., :3]
        if rgba[..., 3].min() < 255:
            flags.add("alpha-dropped")
    return pixels


def _exif_orientation(exif: bytes) -> int | None:
    """The first orientation tag of an EXIF block; `Image.getexif` would parse all of it and may warn or raise."""
    body = exif.removeprefix(b"Exif\0\0")
    entries = formats.tiff_entries(body) if body.startswith((b"II", b"MM")) else ()
    return next((value for tag, _, value in entries if tag == _ORIENTATION), None)


def _check_size(size: tuple[int, int], name: str, policy: DecodePolicy, *, what: str = "") -> None:
    width, height = size
    if width * height > policy.max_pixels:
        facts = f"{what}{width} x {height} = {width * height:,} pixels"
        raise _too_large(name, facts, policy.max_pixels)
    if max(size) > _MAX_SIDE:
        facts = f"{what}{width} x {height} pixels"
        longest = f"a side longer than {_MAX_SIDE:,}; cut it into pieces"
        raise _error(name, f"{facts}, with {longest}", "image-too-large")


def _check_tiles(tile: tuple[int, int], size: tuple[int, int], name: str, policy: DecodePolicy) -> None:
    """Refuse a TIFF whose tiles, which are decoded completely, have far more pixels than an image may have."""
    if not all(tile):
        return
    columns, rows = (-(-side // step) for side, step in zip(size, tile, strict=True))
    pixels, limit = tile[0] * tile[1], max(policy.max_pixels, _MIN_PIXEL_LIMIT)
    if pixels > limit or columns * rows * max(pixels, _MIN_TILE_PIXELS) > 2 * limit:
        raise _too_large(name, f"{columns * rows:,} tiles of {pixels:,} pixels", limit)


def _too_large(name: str, facts: str, limit: int) -> ImageError:
    hint = "raise max_pixels if the image is genuine and not a decompression bomb"
    return _error(name, f"{facts}, more than the limit of {limit:,}; {hint}", "image-too-large")


def _error(name: str, message: str, code: str) -> ImageError:
    return ImageError(f"{name}: {message}", code=code, path=name)
