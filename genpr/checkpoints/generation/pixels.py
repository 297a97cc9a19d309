"""What a generator returns, checked and turned into uint8 (n, 3, h, w)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from genpr.errors import DataError
from genpr.images.float_range import ImageRange, levels_of


def to_uint8(
    output: object, *, expected: int, image_range: ImageRange | None, who: str
) -> tuple[Tensor, float]:
    """Turn what a generator returned into images.

    Args:
        output: A tensor or array (n, c, h, w) or (n, h, w, c) with 1 or 3 channels, uint8 or float. Where both layouts
            fit, a tensor is taken as the first and an array as the second. One channel is repeated.
        expected: Images that there should be.
        image_range: What black and white are in float images; uint8 images need none.
        who: Names the generator and its setting in messages.

    Returns:
        uint8 (n, 3, h, w) on the CPU, and the share of values that were more than one level of 255 outside of the range.

    Raises:
        DataError: It is something else, or holds NaN or infinite values.
    """
    images = _channels_first(output, expected, who)
    clamped = 0.0
    if images.dtype != torch.uint8:
        images, clamped = _levels(images, image_range, who)
    # Outside of inference mode, so that whoever gets the images may use them as any other tensor.
    with torch.inference_mode(False):
        return images.expand(-1, 3, -1, -1).to("cpu", copy=True).contiguous(), clamped


def _channels_first(output: object, expected: int, who: str) -> Tensor:
    if isinstance(output, np.ndarray) and output.dtype in (np.uint8, np.float16, np.float32, np.float64):
        images, axes = torch.from_numpy(np.ascontiguousarray(output)), (3, 1)
    elif isinstance(output, Tensor):
        images, axes = output.detach(), (1, 3)
    else:
        raise _wrong_type(output, who)
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise _wrong_type(output, who)
    axis = next((axis for axis in axes if images.ndim == 4 and images.shape[axis] in {1, 3}), None)
    if axis is None or 0 in images.shape[1:]:
        raise DataError(
            f"{who} must return images (n, 3, h, w) or (n, h, w, 3), or gray ones with 1 channel, but returned shape "
            f"{tuple(images.shape)}",
            code="generator-shape",
        )
    if len(images) != expected:
        raise DataError(
            f"{who} was given {expected} latents and must return as many images, but returned {len(images)}",
            code="generator-count",
        )
    return images if axis == 1 else images.permute(0, 3, 1, 2)


def _wrong_type(output: object, who: str) -> DataError:
    came = type(output).__name__
    if isinstance(output, np.ndarray | Tensor):
        came = f"one of {output.dtype}"
        hint = "uint8 takes 0..255, and floats need a declared image_range"
    elif isinstance(output, tuple | list):
        hint = "return the images alone, as one batch"
    else:
        hint = "return its images alone"
    return DataError(
        f"{who} must return one tensor or array of uint8 or float images, but returned {came}; {hint}",
        code="generator-type",
    )


def _levels(images: Tensor, image_range: ImageRange | None, who: str) -> tuple[Tensor, float]:
    """Float images as uint8, and the share of values that were cut off."""
    if image_range is None:
        low, high = images.amin().item(), images.amax().item()
        raise DataError(
            f"{who} returned {str(images.dtype).removeprefix('torch.')} images with values {low:.4g} to {high:.4g}; "
            "declare their range, such as image_range=(-1, 1), or return uint8",
            code="generator-range",
        )
    if not images.isfinite().all():
        raise DataError(
            f"{who} returned NaN or infinite values; its weights may be damaged, training has diverged, or it "
            "overflows in low precision",
            code="generator-non-finite",
        )
    return levels_of(images, image_range)
