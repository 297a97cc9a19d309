"""The two layouts of image arrays, numpy's NHWC and torch's NCHW: taken strictly, refused with the likely fix.

Nothing is converted in silence: whether a float array runs to 1 or to 255, only its owner knows.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from genpr.errors import DataError
from genpr.images.item import printable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class _Layout:
    """A layout, and how to get to it from what people have instead."""

    text: str
    channels: int  # axis
    other_channels: int  # axis of the other layout
    from_other: str
    from_gray: str
    from_one_channel: str
    from_rgba: str
    to_uint8: str


_NHWC = _Layout(
    text="(n, h, w, 3)",
    channels=3,
    other_channels=1,
    from_other="this looks like NCHW; pass x.transpose(0, 2, 3, 1)",
    from_gray="np.repeat(x[..., None], 3, axis=-1)",
    from_one_channel="np.repeat(x, 3, axis=-1)",
    from_rgba="x[..., :3]",
    to_uint8=".astype(np.uint8)",
)
_NCHW = _Layout(
    text="(n, 3, h, w)",
    channels=1,
    other_channels=3,
    from_other="this looks like NHWC; pass x.permute(0, 3, 1, 2)",
    from_gray="x[:, None].repeat(1, 3, 1, 1)",
    from_one_channel="x.repeat(1, 3, 1, 1)",
    from_rgba="x[:, :3]",
    to_uint8=".to(torch.uint8)",
)


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether `value` is a torch tensor. Where torch was never imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_nhwc(shape: tuple[int, ...], dtype: np.dtype[Any], name: str, kind: str) -> None:
    """Refuse an array that is not uint8 (n, h, w, 3).

    Raises:
        DataError: With code `{kind}-dtype`, `{kind}-shape` or "no-images".
    """
    _check(_NHWC, shape, str(dtype), name, kind)


def check_nchw(images: Tensor, name: str) -> None:
    """Refuse a tensor that is not uint8 (n, 3, h, w).

    Raises:
        DataError: With code "array-dtype", "array-shape" or "no-images".
    """
    _check(_NCHW, tuple(images.shape), str(images.dtype), name, "array")


def pixels_of_tensor(images: Tensor, index: int) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) of one image of a checked tensor."""
    pixels: NDArray[np.uint8] = images[index].permute(1, 2, 0).contiguous().cpu().numpy()
    return pixels


def _check(layout: _Layout, shape: tuple[int, ...], dtype: str, name: str, kind: str) -> None:
    shown = printable(name)
    if dtype not in {"uint8", "torch.uint8"}:
        raise DataError(
            f"{shown} needs uint8 values, got {dtype}; {_dtype_fix(dtype, layout)}",
            code=f"{kind}-dtype",
            path=name,
        )
    if len(shape) != 4 or shape[layout.channels] != 3 or 0 in shape[1:]:
        raise DataError(
            f"{shown} needs shape {layout.text}, got {shape}; {_shape_fix(shape, layout)}",
            code=f"{kind}-shape",
            path=name,
        )
    if not shape[0]:
        raise DataError(f"{shown} has no images (its shape is {shape})", code="no-images", path=name)


def _dtype_fix(dtype: str, layout: _Layout) -> str:
    if "float" in dtype:
        return f"for values in 0..1 convert with (x * 255).round(){layout.to_uint8}"
    if "bool" in dtype:
        return f"pass x{layout.to_uint8} * 255"
    return f"pass x{layout.to_uint8} if all values are in 0..255"


def _shape_fix(shape: tuple[int, ...], layout: _Layout) -> str:
    if len(shape) == 2:
        return "a 2-D array looks like features, which are float"
    if len(shape) == 3:
        one = shape[layout.channels - 1] == 3
        return "for one image pass x[None]" if one else f"for gray images pass {layout.from_gray}"
    if len(shape) == 4 and 0 not in shape:
        if shape[layout.other_channels] == 3:
            return layout.from_other
        if shape[layout.channels] == 1:
            return f"for gray images pass {layout.from_one_channel}"
        if shape[layout.channels] == 4:
            return f"drop the alpha channel with {layout.from_rgba}"
    return "are these images?"
