"""Crops and resizes of decoded images by Pillow, in 8 bits, as in the data tools of published models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling

Size = tuple[int, int]  # width and height


def prepare_pixels(
    pixels: NDArray[np.uint8], rule: str, side: int, *, check_size: Callable[[Size], object]
) -> NDArray[np.uint8]:
    """Pixels (side, side, 3) of an image (h, w, 3); `check_size` is called with the largest intermediate (width, height).

    Rules: "center-crop" is `center_crop_arr` of openai/guided-diffusion (guided_diffusion/image_datasets.py); "square-crop" is
    "center-crop" of NVlabs/stylegan3's and NVlabs/edm2's dataset_tool.py; "resize" is one bicubic resize of both sides.
    """
    image = Image.fromarray(pixels)
    if rule == "center-crop":
        *halved, last = _scaled_sizes(image.size, side)
        check_size(last)
        for size in halved:
            image = image.resize(size, Resampling.BOX)
        image = _center(image.resize(last, Resampling.BICUBIC), side)
    elif rule == "square-crop":
        image = _center(image, min(image.size)).resize((side, side), Resampling.LANCZOS)
    else:
        check_size((side, image.height))  # Pillow changes the width first
        image = image.resize((side, side), Resampling.BICUBIC)
    return np.array(image)


def _scaled_sizes(size: Size, side: int) -> list[Size]:
    """The successive sizes of ADM's crop: halves while the shorter side is at least 2 * side, then `side`."""
    sizes = []
    while min(size) >= 2 * side:
        size = (size[0] // 2, size[1] // 2)
        sizes.append(size)
    scale = side / min(size)
    return [*sizes, (round(size[0] * scale), round(size[1] * scale))]


def _center(image: Image.Image, side: int) -> Image.Image:
    """The central (side, side) crop; if the margin is odd, one more pixel is cut off at the right and at the bottom."""
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))
