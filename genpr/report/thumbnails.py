"""Pictures made small enough for a page."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

_QUALITY = 85


def thumbnail(pixels: NDArray[np.uint8], side: int = 96) -> bytes:
    """A JPEG file of at most `side` x `side` pixels, in the proportions of the picture; smaller pictures stay as they are.

    Args:
        pixels: (h, w, 3) uint8.
        side: Of the square that it fits into.
    """
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()
