"""Images that are not 8-bit RGB: files of other types and numbers of bands, and the options `value_range` and `bands`."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from genpr.images.arrays import read_header
from genpr.images.formats import (
    BITS,
    MAX_PIECES,
    NEXT_PAGE,
    PHOTOMETRIC,
    SAMPLE_FORMAT,
    SAMPLES,
    TIFF_LAYOUT,
    TooManyPiecesError,
    UnsupportedImageError,
)
from genpr.images.policy import MAX_BANDS, DecodePolicy

Values = NDArray[Any]
NPY_START = b"\x93NUMPY"
_WIDTH, _HEIGHT, _COMPRESSION, _EXTRA_SAMPLES = 256, 257, 259, 338
_UNASSOCIATED_ALPHA, _GRAY, _RGB, _SEPARATED = 2, 1, 2, 5
# None, LZW, Deflate, PackBits and Zstandard, whose output imagecodecs limits; tifffile's own Deflate does not.
_COMPRESSIONS = {1, 5, 8, 32773, 32946, 50000}
_BYTES_PER_PIXEL = 32  # 16 bands of 16 bits
_PART = 2**20  # values that are converted at once
_RAW_MODES = {"L", "LA", "RGB", "RGBA", "CMYK"}
_DARK = 16  # the level of 4095 in a range of 16 bits
_EXTRA = "install 'genpr[tiff]' to read them"


class ValuesError(Exception):
    """The values of an intact image do not fit the options; the message says why."""


def pixels_of_values(values: Values, policy: DecodePolicy) -> tuple[NDArray[np.uint8], set[str]]:
    """Pixels (h, w, 3) of values (h, w) or (h, w, bands), or all bands (h, w, bands), and the flags of the conversion.

    Values of other types than uint8 become levels floor(x * scale + offset + 0.5) from 0 to 255, where 0 and 255 are the ends of
    the range, as in `genpr.images.arrays.to_levels`, with the same bits for float32.
    """
    values, flags = values[..., None] if values.ndim == 2 else values, set[str]()
    bands = values.shape[2]
    if bands > MAX_BANDS:
        raise ValuesError(f"it has {bands} bands; at most {MAX_BANDS} are read")
    if policy.chosen:
        if max(policy.chosen) >= bands:
            raise ValuesError(f"there is no band {max(policy.chosen) + 1}: it has {bands}")
        values = values[..., list(policy.chosen)]
    elif policy.bands is None and bands not in {1, 3}:
        raise ValuesError(f"it has {bands} bands; choose three with --bands, such as 3,2,1")
    if values.dtype == np.uint8:
        pixels = values
        if policy.ranges:
            flags.add("8bit-values")
    elif values.dtype.kind not in "iuf" or not policy.ranges:
        declare = "declare the values of black and white with --value-range, such as 0:4095"
        raise ValuesError(f"its values are of type {values.dtype}, whose range is unknown; {declare}")
    else:
        pixels = _levels(values, policy, flags)
    if pixels.shape[2] == 1 and policy.bands != "all":
        pixels = np.repeat(pixels, 3, axis=2)
    return np.require(pixels, requirements=["C", "W"]), flags


def _levels(values: Values, policy: DecodePolicy, flags: set[str]) -> NDArray[np.uint8]:
    height, width, bands = values.shape
    if len(policy.ranges) not in {1, bands}:
        raise ValuesError(f"--value-range has {len(policy.ranges)} ranges, but it has {bands} bands")
    kind = np.float32 if values.dtype.kind == "f" and values.dtype.itemsize <= 4 else np.float64
    scales = [255 / (high - low) for low, high in policy.ranges]
    scale = np.array(scales, kind)
    offset = np.array([0.5 - low * each for (low, _), each in zip(policy.ranges, scales, strict=True)], kind)
    pixels, above, below = np.empty(values.shape, np.uint8), 0, 0
    step = max(1, _PART // (width * bands))
    for top in range(0, height, step):
        part = values[top : top + step].astype(kind)
        if not np.isfinite(part).all():
            raise ValuesError(
                "it has values that are NaN or infinite; replace them, such as by the value of black"
            )
        with np.errstate(over="ignore"):
            levels = part * scale + offset
        above += int((levels > 256.5).sum())
        below += int((levels < -0.5).sum())
        pixels[top : top + step] = levels.clip(0, 255)
    found = {
        "above-range": 2 * above > values.size,
        "below-range": 2 * below > values.size,
        "dark-range": pixels.max() <= _DARK,
    }
    flags.update(flag for flag, is_found in found.items() if is_found)
    return pixels


def values_of_pillow(image: Image.Image, policy: DecodePolicy) -> Values | None:
    """The values of a loaded image that are not converted to RGB; None for those that are."""
    is_deep = image.mode == "F" or image.mode.startswith("I")
    if policy.reads_values and (is_deep or (policy.bands is not None and image.mode in _RAW_MODES)):
        return np.asarray(image)
    return None


def values_of_npy(data: bytes) -> Values:
    """The array of an .npy file with one image, (h, w) or (h, w, bands)."""
    file = io.BytesIO(data)
    header = read_header(file)
    if header.dtype.hasobject or header.dtype.kind not in "iuf":
        raise ValuesError(f"its values are of type {header.dtype}")
    if header.total_bytes != len(data):
        raise ValueError(f"shape {header.shape} declares {header.total_bytes:,} bytes, not {len(data):,}")
    shape = header.shape
    if len(shape) not in {2, 3} or 0 in shape or (len(shape) == 3 and shape[2] > MAX_BANDS):
        bands = "transpose (bands, h, w) with x.transpose(1, 2, 0)"
        slices = (
            "read the slices of volumes (slices, h, w) as images with a pattern in quotes, 'folder/*.npy'"
        )
        raise ValuesError(
            f"its shape {shape} is not (h, w) or (h, w, bands) of an image; {bands}, or {slices}"
        )
    order = "F" if header.fortran else "C"
    values: Values = np.frombuffer(data, header.dtype, offset=header.size).reshape(shape, order=order)  # type: ignore[call-overload]
    return values


def values_of_png(data: bytes, mode: str, policy: DecodePolicy, flags: set[str]) -> Values:
    """The values of a checked PNG of 16 bits with color or alpha, which Pillow reduces to 8 bits; `mode` is LA, RGB or RGBA."""

    def read(mode: str, layout: str) -> Values:
        image = PngImageFile(io.BytesIO(data))
        image._mode, image.tile = mode, [tile._replace(args=layout) for tile in image.tile]
        return np.asarray(image).astype(np.uint16)

    if mode == "LA":  # as the four bytes of a pixel
        values = read("RGBA", "RGBA")
        values = values[..., ::2] << 8 | values[..., 1::2]
    else:  # the first byte of each value, and the second
        values = read(mode, f"{mode};16B") << 8 | read(mode, f"{mode};16L")
    if policy.bands is None and mode in {"LA", "RGBA"}:
        if values[..., -1].min() < np.iinfo(values.dtype).max:
            flags.add("alpha-dropped")
        values = values[..., :-1]
    return values


def needs_tifffile(data: bytes, tags: Mapping[int, int], policy: DecodePolicy) -> bool:
    """Whether Pillow does not give the values of a TIFF with these tags as they are stored."""
    bits, samples, kind = tags.get(BITS, 1), tags.get(SAMPLES, 1), tags.get(SAMPLE_FORMAT, 1)
    colors = tags.get(PHOTOMETRIC)
    if bits <= 8 and kind == 1 and (samples in {1, 3} or policy.bands is None):
        return False  # as without options
    if bits == 8 and kind == 1 and samples == 4:
        is_rgba = colors == _RGB and tags.get(_EXTRA_SAMPLES) == _UNASSOCIATED_ALPHA
        return not (is_rgba or colors == _SEPARATED)
    # Pillow does not swap the bytes of compressed floats.
    by_pillow = {(16, 1), (32, 3)} if data.startswith(b"II") else {(16, 1)}
    return samples != 1 or colors != _GRAY or (bits, kind) not in by_pillow


def tiff_size(tags: Mapping[int, int]) -> tuple[int, int]:
    """Width and height by the tags."""
    return tags.get(_WIDTH, 0), tags.get(_HEIGHT, 0)


def values_of_tiff(data: bytes, tags: Mapping[int, int], policy: DecodePolicy, flags: set[str]) -> Values:
    """The values of the first page of a TIFF with these checked tags, by tifffile."""
    width, height = tiff_size(tags)
    bits, samples = tags.get(BITS, 1), tags.get(SAMPLES, 1)
    if tags.get(PHOTOMETRIC) not in {_GRAY, _RGB, _SEPARATED}:
        raise UnsupportedImageError(
            "TIFF pixels whose values are not those of black as 0, or of red, green and blue"
        )
    compression = tags.get(_COMPRESSION, 1)
    if compression not in _COMPRESSIONS or bits not in {8, 16, 32, 64}:
        raise UnsupportedImageError(f"{bits}-bit values in TIFF compression {compression}")
    if not 1 <= samples <= MAX_BANDS:
        raise ValuesError(f"it has {samples} bands; at most {MAX_BANDS} are read")
    if width * height * samples * bits > 8 * _BYTES_PER_PIXEL * policy.max_pixels:
        raise TooManyPiecesError(f"it has {width * height * samples:,} values of {bits} bits")
    if find_spec("tifffile") is None or (compression != 1 and find_spec("imagecodecs") is None):
        raise ValuesError(f"it has {TIFF_LAYOUT}; {_EXTRA}")
    import tifffile

    logging.getLogger("tifffile").addHandler(logging.NullHandler())  # it would print about damaged tags
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page: Any = file.pages.first
        found = page.imagewidth, page.imagelength, page.samplesperpixel, page.bitspersample, page.compression
        if found != (width, height, samples, bits, compression) or page.imagedepth != 1:
            raise ValueError("its tags are ambiguous")
        if len(page.dataoffsets) > MAX_PIECES:
            raise TooManyPiecesError
        pieces = list(zip(page.dataoffsets, page.databytecounts, strict=True))
        is_short = compression == 1 and sum(page.databytecounts) * 8 < width * height * samples * bits
        if is_short or not all(size and start + size <= len(data) for start, size in pieces):
            raise ValueError("a part of its pixels is missing")
        values: Values = page.asarray(maxworkers=1)
        if page.planarconfig == 2 and samples > 1:
            values = np.moveaxis(values, 0, -1)
    if tags[NEXT_PAGE]:
        flags.add("multi-frame")
    return values
