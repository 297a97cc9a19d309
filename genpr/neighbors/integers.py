"""Exact products of small integers, by the matrix units that CPUs and GPUs have for them.

These are the products that quantised networks run on: on CPUs the int8 matrix product of oneDNN, twice as fast
as float32 with AVX2, four times with VNNI, more with AMX; on GPUs that of the tensor cores. A left factor of seven
bits keeps pairs of products within the 16 bits that AVX2 adds them up in.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

WIDTH_STEP = 16  # what widths must be a multiple of, for the tensor cores
MOST_WIDTH = 2**17  # 127 * 126 times that fits into the 32 bits of a sum
_GPU_ROWS = 32


def products(left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
    """The product left @ right.T + bias, (r, c) float32; the products are exact integers until they are converted.

    Args:
        left: (r, w) uint8 from 0 to 127, w a multiple of `WIDTH_STEP`.
        right: (c, w) int8.
        bias: (c,) float32.
    """
    if left.device.type == "cpu":
        return _by_onednn(left, right, bias)
    return _by_tensor_cores(left, right).float().add_(bias)


def _by_onednn(left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
    packed = torch.ops.onednn.qlinear_prepack(right, list(left.shape))
    ones = torch.ones(len(right), dtype=torch.float32, device=right.device)
    zeros = torch.zeros(len(right), dtype=torch.int32, device=right.device)
    product: Tensor = torch.ops.onednn.qlinear_pointwise(
        left, 1.0, 0, packed, ones, zeros, bias, 1.0, 0, torch.float32, "none", [], ""
    )
    return product


def _by_tensor_cores(left: Tensor, right: Tensor) -> Tensor:
    """Int32. Seven bits are the same as uint8 and as int8."""
    r, c = len(left), len(right)
    left = torch.nn.functional.pad(left.view(torch.int8), (0, 0, 0, -r % _GPU_ROWS))
    right = torch.nn.functional.pad(right, (0, 0, 0, -c % _GPU_ROWS))
    product: Tensor = torch._int_mm(left, right.T)
    return product[:r, :c]


@functools.cache
def are_available(device: torch.device) -> bool:
    """Whether `products` works on `device` and is exact there, tried once with the largest values."""
    signs = torch.arange(96 * 2048, device=device).view(96, 2048) % 7 - 3
    right = (signs.sign() * 127).to(torch.int8)
    left = torch.full((64, 2048), 127, dtype=torch.uint8, device=device)
    left[::2] -= (torch.arange(2048, device=device) % 128).to(torch.uint8)
    bias = torch.arange(96, device=device).float() + 0.25
    try:
        found = products(left, right, bias)
    except (RuntimeError, AttributeError, NotImplementedError):  # not in this build, or not on this device
        return False
    expected = left.double() @ right.double().T
    return bool(((found - expected - bias).abs() <= 2.0**-22 * (expected.abs() + bias)).all())
