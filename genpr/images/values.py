"""Images that are not 8-bit RGB: files of other types and numbers of bands, and the options `value_range` and `bands`."""

from __future__ import annotations

import io
import logging
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from genpr.images import formats
from genpr.images.arrays import read_header
from genpr.images.formats import ReadLimitedFile, TooManyPiecesError, UnsupportedImageError
from genpr.images.policy import MAX_BANDS, DecodePolicy

Values = NDArray[Any]
_COMPRESSION, _EXTRA_SAMPLES = 259, 338
_GRAY, _RGB, _SEPARATED = 1, 2, 5
# None, LZW, Deflate, PackBits and Zstandard, whose output imagecodecs limits; tifffile's own Deflate does not.
_COMPRESSIONS = {1, 5, 8, 32773, 32946, 50000}
_BITS_PER_PIXEL = 64  # four bands of 16 bits, and more of smaller images
_PART = 2**20  # values that are converted at once
_TAG_BYTES = 2**23  # that tifffile reads, and turns into objects of eight times the size
_DARK = 16  # the level of 4095 in a range of 16 bits
_SILENT = logging.NullHandler()  # one, which a logger adds once


class ValuesError(Exception):
    """The values of an intact image do not fit the options; the message says why."""


def pixels_of_values(values: Values, policy: DecodePolicy, flags: set[str]) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) of values (h, w) or (h, w, bands), or all bands (h, w, bands); adds flags of the conversion to `flags`.

    Values of other types than uint8 become levels floor(x * scale + offset + 0.5) from 0 to 255, where 0 and 255 are the ends of
    the range, as in `genpr.images.arrays.to_levels`, with the same bits for float32.
    """
    values = values[..., None] if values.ndim == 2 else values
    bands = values.shape[2]
    if bands > MAX_BANDS:
        raise ValuesError(f"it has {bands} bands; at most {MAX_BANDS} are read")
    if policy.chosen:
        if max(policy.chosen) >= bands:
            raise ValuesError(f"there is no band {max(policy.chosen) + 1}: it has {bands}")
        values = values[..., list(policy.chosen)]
    elif policy.bands is None and bands not in {1, 3}:
        raise ValuesError(f"it has {bands} bands; choose three with --bands, such as 3,2,1")
    pixels: NDArray[np.uint8] = values
    if values.dtype != np.uint8:
        pixels = _levels(values, policy, flags)
    elif policy.ranges:
        flags.add("8bit-values")
    if pixels.shape[2] == 1 and policy.bands != "all":
        pixels = np.repeat(pixels, 3, axis=2)
    return np.require(pixels, requirements=["C", "W"])


def _levels(values: Values, policy: DecodePolicy, flags: set[str]) -> NDArray[np.uint8]:
    _, width, bands = values.shape
    if values.dtype.kind not in "iuf" or not policy.ranges:
        declare = "declare the values of black and white with --value-range, such as 0:4095"
        raise ValuesError(f"its values are of type {values.dtype}, whose range is unknown; {declare}")
    if len(policy.ranges) not in {1, bands}:
        raise ValuesError(f"--value-range has {len(policy.ranges)} ranges, but it has {bands} bands")
    kind: Any = np.float32 if values.dtype.kind == "f" and values.dtype.itemsize <= 4 else np.float64
    low, high = np.transpose(policy.ranges)
    exact = 255 / (high - low)
    scale, offset = exact.astype(kind), (0.5 - low * exact).astype(kind)
    pixels, above, below = np.empty(values.shape, np.uint8), 0, 0
    step = max(1, _PART // (width * bands))
    for top in range(0, len(values), step):
        part: Values = values[top : top + step].astype(kind)
        if not np.isfinite(part).all():
            raise ValuesError("it has NaN or infinite values; replace them, such as by the value of black")
        with np.errstate(over="ignore"):
            part = part * scale + offset
        above += (part > 256.5).sum()
        below += (part < -0.5).sum()
        pixels[top : top + step] = part.clip(0, 255)
    is_found = (2 * above > values.size, 2 * below > values.size, pixels.max() <= _DARK)
    flags.update(np.compress(is_found, ["above-range", "below-range", "dark-range"]).tolist())
    return pixels


def values_of_pillow(image: Image.Image, policy: DecodePolicy) -> Values | None:
    """The values of a loaded image that are not converted to RGB; None for those that are."""
    is_deep = image.mode[0] in "FI"
    if not policy.reads_values or not (is_deep or policy.bands is not None):
        return None
    if not is_deep and image.mode not in {"L", "LA", "RGB", "RGBA", "CMYK"}:  # such as a palette
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    return np.asarray(image)


def values_of_npy(data: bytes) -> Values:
    """The array of an .npy file with one image, (h, w) or (h, w, bands)."""
    header = read_header(io.BytesIO(data))
    shape, order = header.shape, "F" if header.fortran else "C"
    if len(shape) not in {2, 3} or 0 in shape or (len(shape) == 3 and shape[2] > MAX_BANDS):
        ways = "transpose (bands, h, w), or read the slices of volumes by a pattern in quotes, 'folder/*.npy'"
        raise ValuesError(f"its shape {shape} is not (h, w) or (h, w, bands) of an image; {ways}")
    values = np.frombuffer(data, header.dtype, offset=header.size)
    return values.reshape(shape, order=order)  # type: ignore[call-overload,no-any-return]


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
    if mode == "RGB" or policy.bands is not None:
        return values
    if values[..., -1].min() < np.iinfo(values.dtype).max:
        flags.add("alpha-dropped")
    return values[..., :-1]


def needs_tifffile(data: bytes, tags: dict[int, int], policy: DecodePolicy) -> bool:
    """Whether Pillow does not give the values of a TIFF with these tags as they are stored."""
    parts = ((formats.BITS, 1), (formats.SAMPLE_FORMAT, 1), (formats.SAMPLES, 1), (formats.PHOTOMETRIC, -1))
    form = bits, kind, samples, _ = tuple(tags.get(tag, default) for tag, default in parts)
    if bits <= 8 and kind == 1 and (samples in {1, 3} or policy.bands is None):
        return False  # as without options
    forms = {(16, 1, 1, _GRAY), (8, 1, 4, _SEPARATED)}
    if data.startswith(b"II"):  # Pillow does not swap the bytes of compressed floats
        forms.add((32, 3, 1, _GRAY))
    if tags.get(_EXTRA_SAMPLES) == 2:  # alpha by which colors are not multiplied
        forms.add((8, 1, 4, _RGB))
    return form not in forms


def values_of_tiff(data: bytes, tags: dict[int, int], size: tuple[int, int], policy: DecodePolicy) -> Values:
    """The values of the first page of a TIFF with these checked tags, by tifffile."""
    bits, samples = tags.get(formats.BITS, 1), tags.get(formats.SAMPLES, 1)
    compression, n_bits = tags.get(_COMPRESSION, 1), size[0] * size[1] * samples * bits
    is_known = compression in _COMPRESSIONS and bits in {8, 16, 32, 64}
    if not is_known or tags.get(formats.PHOTOMETRIC) not in {_GRAY, _RGB, _SEPARATED}:
        raise UnsupportedImageError(f"{bits}-bit values in TIFF compression {compression}, or unusual colors")
    if n_bits > _BITS_PER_PIXEL * policy.max_pixels:
        raise TooManyPiecesError(f"it has {n_bits:,} bits")
    if not all(map(find_spec, ["tifffile"] if compression == 1 else ["tifffile", "imagecodecs"])):
        raise ValuesError(f"it has {formats.TIFF_LAYOUT}; install 'genpr[tiff]' to read them")
    import tifffile

    logging.getLogger("tifffile").addHandler(_SILENT)  # it would print about damaged tags
    opened = ReadLimitedFile(data, _TAG_BYTES)
    with tifffile.TiffFile(opened) as file:
        page: Any = file.pages.first
        found = page.imagewidth, page.imagelength, page.samplesperpixel, page.bitspersample, page.compression
        if found != (*size, samples, bits, compression) or page.imagedepth != 1:
            raise ValueError("its tags are ambiguous")
        if len(page.dataoffsets) > formats.MAX_PIECES:
            raise TooManyPiecesError
        pieces, sizes = zip(page.dataoffsets, page.databytecounts, strict=True), page.databytecounts
        is_short = compression == 1 and 8 * sum(sizes) < n_bits
        if is_short or not all(size and start + size <= len(data) for start, size in pieces):
            raise ValueError("a part of its pixels is missing")
        opened.bytes_left += 4 * len(data)  # in addition to those of the tags
        values: Values = page.asarray(maxworkers=1)
        return np.moveaxis(values, 0, -1) if page.planarconfig == 2 and samples > 1 else values
