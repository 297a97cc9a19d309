"""Float images of a declared range as uint8, the only kind that genpr embeds."""

from __future__ import annotations

import warnings

from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.images.arrays import MOST_OUTSIDE, ImageRange, checked_range, levels_of


def declared_range(*, normalize: bool, image_range: ImageRange | None) -> ImageRange | None:
    """The range of float images, from torchmetrics' way to say it or from genpr's.

    Raises:
        UsageError: It is said in both ways, or is none ("image-range").
    """
    if normalize and image_range is not None:
        raise UsageError("normalize=True says image_range=(0, 1); give one of the two", code="image-range")
    return (0.0, 1.0) if normalize else checked_range(image_range)


def as_uint8(images: Tensor, image_range: ImageRange | None) -> Tensor:
    """Images as uint8; uint8 ones as they are.

    Floats are rounded half up (see `genpr.images.arrays`); truncation, which torchmetrics' own metrics use, makes
    every image half a level darker.

    Args:
        images: (n, 3, h, w), uint8 or floats.
        image_range: The floats that are black and white; values beyond it are cut off, with a Python warning if
            they are more than a tenth.

    Raises:
        DataError: Floats without a range, or not finite.
    """
    if not isinstance(images, Tensor) or not images.is_floating_point():
        return images  # the source that takes them says what is wrong with anything else
    if image_range is None:
        raise DataError(
            f"images are {images.dtype}, and only their maker knows which values are black and white; declare it: "
            "normalize=True for values in 0..1, else image_range=(-1, 1) or whatever it is",
            code="image-range",
        )
    if not images.isfinite().all():
        raise DataError("images hold NaN or infinite values; did the generator diverge?", code="non-finite")
    levels, outside = levels_of(images.detach(), image_range)
    if outside > MOST_OUTSIDE:
        low, high = image_range
        # The same words each time, so that Python shows them once and not at every batch.
        warnings.warn(
            f"more than {MOST_OUTSIDE:.0%} of the values of images lie outside of their declared range {low:g} to {high:g} "
            "and were cut off; check it (normalize, image_range). A generator in training may also overshoot that much for a "
            "while",
            stacklevel=2,
        )
    return levels
