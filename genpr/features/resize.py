"""The resize rules of published protocols, each under its own name.

The rule is part of an extractor: scores of one network under two rules are not comparable. All rules take one
uint8 image of any size, squash it to a square, and return float32 that is never rounded back to 8 bits. They
run on the CPU, touch no shared state and may be called from any thread.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


def tf1_bilinear(image: Tensor, size: int) -> Tensor:
    """Resize as TensorFlow 1's ResizeBilinear did, which the published FID and pool3 numbers are built on.

    Output pixel i looks at input position i * (old / new), without the half-pixel shift, and blends the two
    neighbours there without antialiasing. The arithmetic is TensorFlow's, in float32 and in its order: along
    the width first, then along the height.

    Args:
        image: uint8 (3, h, w).
        size: Side of the square output.

    Returns:
        float32 (3, size, size), values in 0..255.
    """
    top, bottom, below = _taps(image.shape[1], size)
    left, right, beside = _taps(image.shape[2], size)
    # Rows are shared between neighbouring outputs, so each one is stretched once and only if it is used.
    used, rows = torch.unique(torch.cat((top, bottom)), return_inverse=True)
    lines = image.index_select(1, used).contiguous()
    lines = _blend(lines.index_select(2, left).float(), lines.index_select(2, right).float(), beside)
    return _blend(lines.index_select(1, rows[:size]), lines.index_select(1, rows[size:]), below[:, None])


def bicubic_antialias(image: Tensor, size: int) -> Tensor:
    """Resize with torch's antialiased bicubic filter on float32, which equals Pillow's mode-F bicubic.

    Args:
        image: uint8 (3, h, w).
        size: Side of the square output.

    Returns:
        float32 (3, size, size), clamped to 0..255 (the filter overshoots at edges).
    """
    resized = F.interpolate(
        image.float()[None], (size, size), mode="bicubic", align_corners=False, antialias=True
    )
    return resized[0].clamp_(0, 255)


@lru_cache(maxsize=512)
def _taps(old: int, new: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each output position: the input index before it, the one after it, and the weight of the latter."""
    position = torch.arange(new, dtype=torch.float32) * torch.tensor(old / new, dtype=torch.float32)
    before = position.long()
    return before, (before + 1).clamp_max(old - 1), position - before


def _blend(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """`start + (end - start) * weight`, in this order of rounding; overwrites `end`."""
    return end.sub_(start).mul_(weight).add_(start)
