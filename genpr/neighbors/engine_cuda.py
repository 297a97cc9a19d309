"""Whether a GPU searches rows in float16, on its tensor cores, or in float32.

Rows in float16 leave about six pairs per row to verify where float32 leaves five, at 16 times the rate. They are float32
where products of float16 exceed their error bound, and where rows are so similar, or so far away, that float16 leaves too many pairs.
"""

from __future__ import annotations

from functools import cache

import torch

from genpr.errors import ResourceError
from genpr.neighbors.bounds import slack_factor
from genpr.neighbors.coordinates import RoundedCoordinates
from genpr.neighbors.engine import products_in_float32
from genpr.runtime import is_out_of_memory

_SAMPLE_ROWS, _SAMPLE_COLUMNS, _MAX_EXTRA = 256, 4096, 64


def are_precise(coordinates: RoundedCoordinates, k: int) -> bool:
    """Whether rounded rows distinguish most pairs of a sample from those of the `k` nearest."""
    n = len(coordinates.slack)
    every = torch.arange(0, n, max(1, n // _SAMPLE_COLUMNS), device=coordinates.slack.device)
    queries, k = every[:: -(-len(every) // _SAMPLE_ROWS)], min(k + 1, len(every))
    half_floors, slack = coordinates.half_floors[every], coordinates.slack[every]
    keys = products_in_float32(coordinates.at(queries), coordinates.at(every)).double() - half_floors
    lower = (keys - coordinates.half_floors[queries, None]) * -2
    upper = lower + 2 * (coordinates.slack[queries, None] + slack)
    reach = upper.topk(k, dim=1, largest=False).values[:, -1:]
    return int((lower <= reach).sum()) <= len(queries) * (4 * k + _MAX_EXTRA)


@cache
def rounding_on(device: torch.device) -> torch.dtype:
    """float16 if its products on `device` meet the bounds, else float32; tested once per device.

    Raises:
        ResourceError: Products of float32 do not follow IEEE 754 either.
    """
    if not all(_is_proven(torch.float32, device, width) for width in _WIDTHS):
        raise ResourceError(
            f"float32 products on {device} are less precise than IEEE 754 requires; unset NVIDIA_TF32_OVERRIDE, "
            "or use --device cpu",
            code="gpu-unusable",
        )
    is_proven = all(_is_proven(torch.float16, device, width) for width in _WIDTHS)
    return torch.float16 if is_proven else torch.float32


_ROWS, _WIDTHS = 64, (16, 256, 4096)  # short sums show the rounding of factors, long ones that of sums
_JUST_BELOW = 2.0**-11 - 2.0**-22  # its square is lost in a sum with 1 that truncates terms below 2^-22


def _is_proven(dtype: torch.dtype, device: torch.device, width: int) -> bool:
    """Whether errors of products of difficult rows are at most 3/4 of gamma in float16, gamma in float32."""
    generator = torch.Generator().manual_seed(0)
    both = torch.randn(2, _ROWS, width, generator=generator, device="cpu")
    both[:, : _ROWS // 2].abs_()
    both[:, ::4, 0] = 2048
    both[:, 1::4] *= 2.0**-16  # subnormal numbers of float16
    both[:, 2::4] = _JUST_BELOW
    both[1, 2::4] *= 2.0 ** torch.arange(_ROWS // 4, device="cpu")[:, None]
    both[:, 2::4, 0] = 1
    x, y = both.to(dtype)
    exact = x.double() @ y.double().T
    bound = slack_factor(width, 0.75 * 2.0**-22 if dtype == torch.float16 else 2.0**-24) / 2
    try:
        products = products_in_float32(x.to(device), y.to(device)).cpu()
    except (TypeError, RuntimeError) as error:  # before torch 2.8, or without a kernel
        if is_out_of_memory(error):  # which is no error of products
            raise
        return False
    sizes = x.double().norm(dim=1)[:, None] * y.double().norm(dim=1)
    return products.dtype == torch.float32 and bool(((products - exact).abs() <= bound * sizes).all())
