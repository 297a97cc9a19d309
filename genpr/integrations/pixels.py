"""Float images of a declared range as uint8, the only kind that genpr embeds."""

from __future__ import annotations

from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.images.float_range import ImageRange, checked_range, cut_to_uint8, scaled


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

    Floats are rounded half up (see `genpr.images.float_range`); truncation, which torchmetrics' own metrics use, makes
    every image half a level darker.

    Args:
        images: (n, 3, h, w), uint8 or floats.
        image_range: The floats that are black and white; values beyond it by half a level are taken as its ends.

    Raises:
        DataError: Floats without a range, beyond it, or not finite.
    """
    if not isinstance(images, Tensor) or not images.is_floating_point():
        return images  # the source that takes them says what is wrong with anything else
    if image_range is None:
        raise DataError(
            f"images are {images.dtype}, and only their maker knows which values are black and white; declare it: "
            "normalize=True for values in 0..1, else image_range=(-1, 1) or whatever it is",
            code="image-range",
        )
    low, high = image_range
    levels = scaled(images.detach(), image_range)
    if levels.isnan().any():
        raise DataError("images hold NaN; did the generator diverge?", code="non-finite")
    if levels.numel() and (levels.min() < 0 or levels.max() > 256):
        raise DataError(
            f"images have values from {images.min():.4g} to {images.max():.4g}, beyond the declared range {low:g} to "
            f"{high:g}; if the generator overshoots, clamp them first: images.clamp({low:g}, {high:g})",
            code="image-range",
        )
    return cut_to_uint8(levels)
