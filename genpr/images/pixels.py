"""From a Pillow image to 8-bit RGB: what each mode means, and which are refused.

The rule is `image.convert("RGB")`, as every loader does it, except where that ruins an image in silence: it
saturates 16-bit gray, and turns float and 32-bit integer images black or white.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from genpr.images.plugins import Depth, UnsupportedPixelsError

_CONVERTED = {"1", "L", "P", "LA", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
_UNKNOWN_RANGE = {"F": "32-bit float", "I": "32-bit integer"}


def rgb_pixels(image: Image.Image, depth: Depth) -> tuple[NDArray[np.uint8], set[str]]:
    """Convert a loaded image.

    Args:
        image: In any mode.
        depth: How its file stores values.

    Returns:
        Pixels (h, w, 3), writable, and those flags that tell of values changed or left out.

    Raises:
        UnsupportedPixelsError: The mode has no agreed meaning as 8-bit RGB.
    """
    if image.mode.startswith("I;16") or (image.mode == "I" and depth.bits == 16):
        return _scaled_gray(image, depth)
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
    if image.has_transparency_data:
        rgba = np.asarray(image if image.mode == "RGBA" else image.convert("RGBA"))
        if rgba[..., 3].min() < 255:
            flags.add("alpha-dropped")
        return rgba[..., :3].copy(), flags
    return np.array(image if image.mode == "RGB" else image.convert("RGB")), flags


def _scaled_gray(image: Image.Image, depth: Depth) -> tuple[NDArray[np.uint8], set[str]]:
    """Keep the high 8 bits, as readers of 16-bit colour do."""
    values = np.asarray(image)
    flags = {"16bit-scaled"}
    if (values == image.info.get("transparency", -1)).any():
        flags.add("alpha-dropped")
    gray = (values >> max(depth.bits - 8, 0)).astype(np.uint8)
    return np.repeat((255 - gray if depth.inverted else gray)[..., None], 3, axis=2), flags
