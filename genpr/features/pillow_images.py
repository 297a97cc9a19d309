"""Between tensors and Pillow images, and the middle of a resized image without the rest."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image
from torch import Tensor

_MOST_RESIZED = 2**26  # pixels of an image that only the middle is used of; more is reached from 1,300:1 on


def resized_middle(image: Tensor, resized: tuple[int, int], size: int, filter_: Image.Resampling) -> Tensor:
    """The square middle of a resized image, as torchvision's `Resize` and `CenterCrop` on Pillow images.

    Args:
        image: uint8 (3, h, w).
        resized: (h, w) of the whole image after resizing, in pixels.
        size: Side of the square, at most as long as either side.
        filter_: Pillow's filter.

    Returns:
        float32 (3, size, size) on the image's device.
    """
    height, width = resized
    top, left = round((height - size) / 2), round((width - size) / 2)  # as torchvision, halves to even
    pillow = to_pillow(image)
    if height * width > _MOST_RESIZED:  # a line of 65,535 pixels would become 3 gigapixels
        x, y = pillow.width / width, pillow.height / height
        first_x, last_x = _reach(left, size, width, x)
        first_y, last_y = _reach(top, size, height, y)
        box = (first_x * x, first_y * y, last_x * x, last_y * y)
        whole = pillow.resize((last_x - first_x, last_y - first_y), filter_, box=box)
        left, top = left - first_x, top - first_y
    else:
        whole = pillow.resize((width, height), filter_)
    return from_pillow(whole.crop((left, top, left + size, top + size)), image.device)


def _reach(start: int, size: int, side: int, scale: float) -> tuple[int, int]:
    """Where a part of a resized side begins and ends, with the neighbours that filters of up to 4 pixels blend in."""
    margin = math.ceil(4 / min(scale, 1)) + 4
    return max(0, start - margin), min(side, start + size + margin)


def to_pillow(image: Tensor) -> Image.Image:
    """A Pillow image of uint8 (3, h, w)."""
    return Image.fromarray(image.cpu().permute(1, 2, 0).contiguous().numpy())


def from_pillow(image: Image.Image, device: torch.device) -> Tensor:
    """An RGB image as float32 (3, h, w)."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return pixels.to(torch.float32, memory_format=torch.contiguous_format).to(device)
