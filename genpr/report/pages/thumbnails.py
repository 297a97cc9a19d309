"""Small copies of pictures for a page."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 128
"""Longest side of a thumbnail, in pixels; smaller pictures stay as they are."""

_QUALITY = 88


def thumbnail(pixels: NDArray[np.uint8], side: int = SIDE) -> bytes:
    """A picture as a JPEG file, no side longer than `side`.

    Args:
        pixels: (h, w, 3) uint8, RGB.
        side: In pixels.

    Example:
        >>> len(thumbnail(np.zeros((256, 512, 3), np.uint8))) < 2000
        True
    """
    buffer = io.BytesIO()
    Image.fromarray(made_small(pixels, side)).save(
        buffer, "JPEG", quality=_QUALITY, subsampling=0
    )  # colours of small pictures are detail, too
    return buffer.getvalue()


def made_small(pixels: NDArray[np.uint8], side: int = SIDE) -> NDArray[np.uint8]:
    """The pixels of a picture with no side longer than `side`; of a smaller picture, its own.

    Example:
        >>> made_small(np.zeros((256, 512, 3), np.uint8)).shape
        (64, 128, 3)
    """
    if max(pixels.shape[:2]) <= side:
        return pixels
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)
