"""Float images of a declared range as levels of 0 to 255: one rule, so that the same floats are the same images everywhere.

Floats are scaled to 0..255 and rounded half up: floor(x * scale + offset + 0.5). That is what the field does when it
saves images: StyleGAN's `(x * 127.5 + 128).clamp(0, 255).to(uint8)` for -1..1, and torchvision's `save_image`,
`x.mul(255).add(0.5).clamp(0, 255).to(uint8)` for 0..1. Both are met bit by bit.

What lies outside of the range is cut off, as both do it too: networks without a last tanh overshoot. Where more than a
tenth of the values does (`MOST_OUTSIDE`), the range is doubted, and whoever takes the images warns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING

from genpr.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

ImageRange = tuple[float, float]
"""The floats that are black and white."""

MOST_OUTSIDE = 0.1
"""Share of values outside of the declared range above which it is doubted."""


def checked_range(image_range: Sequence[float] | None) -> ImageRange | None:
    """The declared range of float images as two floats.

    Raises:
        UsageError: It is not two finite numbers, the lower first ("image-range").
    """
    if image_range is None:
        return None
    values = tuple(image_range) if isinstance(image_range, Sequence) else ()
    is_pair = len(values) == 2 and all(_is_number(value) for value in values)
    if not is_pair or not values[0] < values[1]:
        raise UsageError(
            f"image_range must be two numbers, black and white, the lower first, such as (-1, 1), not {image_range!r}",
            code="image-range",
        )
    return float(values[0]), float(values[1])


def levels_of(images: Tensor, image_range: ImageRange) -> tuple[Tensor, float]:
    """Floats of any shape, all finite, as uint8, cut off at both ends of the range.

    Returns:
        The levels, and the share of values that were more than one level of 255 outside of the range.
    """
    import torch

    if images.dtype in (torch.float16, torch.bfloat16):
        images = images.float()  # in half precision, scaling alone would lose levels
    low, high = image_range
    scale = 255 / (high - low)
    levels = images * scale + (0.5 - low * scale)
    outside = ((levels < -0.5) | (levels > 256.5)).double().mean().item()
    return levels.clamp(0, 255).to(torch.uint8), outside


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
