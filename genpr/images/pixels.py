"""From a Pillow image to 8-bit RGB: what each mode means, and which are refused.

The rule is `image.convert("RGB")`, as every loader does it, except where that ruins an image in silence: it
saturates 16-bit gray, and turns float and 32-bit integer images black or white.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from genpr.images.plugins import Depth, UnsupportedPixelsError

_CONVERTED = {"1", "L", "P", "LA", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
_PART_PIXELS = 2**22
_UNKNOWN_RANGE = {"F": "32-bit float", "I": "32-bit integer"}


Colour = tuple[int, int, int]


def rgb_pixels(
    image: Image.Image, depth: Depth, background: Colour | None = None
) -> tuple[NDArray[np.uint8], set[str]]:
    """Convert a loaded image.

    Args:
        image: In any mode.
        depth: How its file stores values.
        background: The colour behind transparent pixels; None leaves transparency out.

    Returns:
        Pixels (h, w, 3), writable, and those flags that tell of values changed or left out.

    Raises:
        UnsupportedPixelsError: The mode has no agreed meaning as 8-bit RGB.
    """
    if image.mode.startswith("I;16") or (image.mode == "I" and depth.bits == 16):
        return _scaled_gray(image, depth, background)
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
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top, part in _parts(image):
        rows = pixels[top : top + part.height]
        if not image.has_transparency_data:
            rows[:] = np.asarray(part if part.mode == "RGB" else part.convert("RGB"))
            continue
        rgba = np.asarray(part if part.mode == "RGBA" else part.convert("RGBA"))
        rows[:] = rgba[..., :3] if background is None else _laid_on(background, rgba)
        if background is None and rgba[..., 3].min() < 255:
            flags.add("alpha-dropped")
    return pixels, flags


def _parts(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """A large image in rows of some megabytes, each with its first row: several copies of all of it fill the memory."""
    height = max(1, _PART_PIXELS // max(1, image.width))
    if height >= image.height:
        yield 0, image
        return
    for top in range(0, image.height, height):
        yield top, image.crop((0, top, image.width, min(top + height, image.height)))


def turned(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) turned upright by their EXIF orientation, 1 to 8: mirrored, rotated, or both."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in {3, 4, 7, 8}:
        pixels = pixels[::-1]
    if orientation in {2, 3, 6, 7}:
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _laid_on(background: Colour, rgba: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pixels (h, w, 4) over a colour, each value rounded to the nearest level."""
    alpha = rgba[..., 3:].astype(np.uint16)
    mixed = rgba[..., :3] * alpha + np.array(background, np.uint16) * (255 - alpha)  # at most 255 * 255
    return ((mixed.astype(np.uint32) + 127) // 255).astype(np.uint8)


def _scaled_gray(
    image: Image.Image, depth: Depth, background: Colour | None
) -> tuple[NDArray[np.uint8], set[str]]:
    """Keep the high 8 bits, as readers of 16-bit colour do."""
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
