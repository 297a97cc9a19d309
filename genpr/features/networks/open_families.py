"""What the open families of models share: their way of showing images, and their errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial

from PIL import Image
from torch import Tensor

from genpr.errors import UsageError, WeightsError
from genpr.features.networks.network import Color
from genpr.features.resize import ResizeRule, resized_middle


def pillow_rule(family: str, interpolation: str, *, crop: float = 1.0, squash: bool = False) -> ResizeRule:
    """The rule of torchvision's `Resize` and `CenterCrop` on 8-bit Pillow images, such as "timm-bicubic-0.95".

    Args:
        family: First part of the rule's name.
        interpolation: "bilinear", "bicubic", "lanczos" and so on.
        crop: Share of the resized image's (shorter) side that is kept.
        squash: Resize to a square, instead of the shorter side only.

    Raises:
        UsageError: Pillow has no such interpolation, or nothing would be cropped but added.
    """
    name = f"{family}-{interpolation}-{crop}{'-squash' if squash else ''}"
    if interpolation.upper() not in Image.Resampling.__members__ or not 0 < crop <= 1:
        raise UsageError(f"resize rule {name!r} is not supported", code="unsupported-model")
    resize = partial(
        _resize_and_crop, filter_=Image.Resampling[interpolation.upper()], crop=crop, squash=squash
    )
    shape = "to a square" if squash else "to the shorter side"
    return ResizeRule(
        name,
        resize,
        exact_on_device=False,
        summary=f"Pillow {interpolation} on 8-bit RGB {shape}, then center crop",
    )


def _resize_and_crop(
    image: Tensor, side: int, *, filter_: Image.Resampling, crop: float, squash: bool
) -> Tensor:
    height, width = image.shape[1:]
    scaled = int(side / crop)  # as timm rounds it
    shorter = min(height, width)
    if squash:
        height = width = scaled
    else:  # torchvision truncates
        height, width = scaled * height // shorter, scaled * width // shorter
    return resized_middle(image, (height, width), side, filter_)


def gray_levels(color: Sequence[float]) -> Color:
    """Red, green and blue in 0..255, given in 0..1."""
    red, green, blue = color
    return red * 255, green * 255, blue * 255


def misfit(name: str, error: Exception) -> WeightsError:
    """The error for weights that are not of the model `name`."""
    reason = " ".join(str(error).split())
    return WeightsError(f"the weights are not of {name}: {reason[:500]}", code="weights-mismatch")


def unknown_model(library: str, model: str, known: Iterable[str], where: str) -> UsageError:
    """The error for a model that `library` does not have."""
    close = get_close_matches(model, list(known), n=3)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    return UsageError(f"{library} has no model {model!r}{meant}; see {where}", code="unknown-model")
