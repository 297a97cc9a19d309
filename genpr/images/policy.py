"""What may be chosen about decoding, and what is told about it. Needs no Pillow, so that `--help` stays fast."""

from __future__ import annotations

from dataclasses import dataclass

# Stable order: cache files store flags as bits, so new ones go to the end.
FLAGS = ("multi-frame", "16bit-scaled", "cmyk-converted", "alpha-dropped", "exif-orientation")

# Where Pillow begins to warn (a quarter of a gigabyte of RGB). Twice as much, which it still opens, includes
# the common 100-megapixel bombs, while generative models make images of a few megapixels.
MAX_PIXELS = 89_478_485


@dataclass(frozen=True)
class DecodePolicy:
    """What the user may choose about decoding.

    Attributes:
        max_pixels: Images with more pixels (width times height) are refused before any pixel is decoded.
    """

    max_pixels: int = MAX_PIXELS
