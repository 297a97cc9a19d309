"""Coordinates of a set for a search on a GPU: rounded rows for tensor cores, with proven bounds.

Rows in float16 leave about six pairs per row to verify where float32 leaves five, at 16 times the rate. They are float32
where products of float16 exceed their error bound, and where rows are so similar, or so far away, that float16 leaves too many pairs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from genpr.errors import ResourceError
from genpr.memory import fits
from genpr.neighbors.bounds import NO_FLOOR, represent, represent_half, slack_factor, sq_norms_of
from genpr.neighbors.coordinates import Coordinates, FindKeys
from genpr.neighbors.engine import Tiles, in_steps, profile_of
from genpr.runtime import is_out_of_memory


@dataclass(frozen=True, slots=True)
class RoundedCoordinates(Coordinates):
    """All coordinates, rounded. See `bounds.represent_half`, or `bounds` for float32."""

    # (n, d) float16 or float32; (0, d) if memory is short: then recomputed for each tile
    rounded_rows: Tensor

    joins_bands = True  # each band of a tile costs one comparison

    @classmethod
    def from_features(
        cls, features: Tensor, center: Tensor, scale: float, dtype: torch.dtype
    ) -> RoundedCoordinates:
        """Of (n, d) `features`, rounded to `dtype`."""
        (n, d), device = features.shape, features.device
        kept = fits(n * d * dtype.itemsize, device)
        rounded_rows = torch.empty(n if kept else 0, d, dtype=dtype, device=device)
        slack = torch.empty(n, dtype=torch.float64, device=device)
        half_floors = torch.empty(n, dtype=torch.float32, device=device)

        def put(block: slice) -> None:
            rounded, slack[block], sq_norms = _represented(features[block], center, scale, dtype)
            half_floors[block] = (sq_norms - slack[block]).clamp_(min=NO_FLOOR).div_(2).float()
            if kept:
                rounded_rows[block] = rounded

        deque(in_steps(put, n, profile_of(device).elements // d, device), maxlen=0)
        return cls(features, center, scale, d, half_floors, slack, None, rounded_rows)

    def at(self, rows: Tensor) -> Tensor:
        """Rounded `rows` (p,): (p, d)."""
        if len(self.rounded_rows):
            return self.rounded_rows[rows]
        moved = torch.sub(self.features[rows], self.center).mul_(self.scale)
        return moved.masked_fill_(self.slack[rows].isinf()[:, None], 0).to(self.rounded_rows.dtype)

    def keys_of(self, block: Tensor, tiles: Tiles) -> FindKeys:
        """Finds keys above thresholds."""
        rows, floors = self.at(block), self.half_floors[block].double()

        def find(
            lowest: Tensor, others: Coordinates, bands: Sequence[Tensor]
        ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            columns, sizes = torch.cat(list(bands)), [len(band) for band in bands]
            # Rounding is monotone: a float32 value that reaches a threshold also reaches the rounded one.
            thresholds = (lowest + floors).float()[:, :, None]
            values = products_in_float32(rows, others.at(columns)).sub_(others.half_floors[columns])
            of_bands = zip(torch.split(values, sizes, dim=1), thresholds, strict=True)
            is_above = [of_band >= threshold for of_band, threshold in of_bands]
            i, j = (is_above[0] if len(bands) == 1 else torch.cat(is_above, dim=1)).nonzero().unbind(dim=1)
            keys = values[i, j].double() - floors[i]
            return i, j, keys, torch.zeros_like(keys)

        return find

    def nearest(
        self, block: Tensor, others: Coordinates, columns: Tensor, count: int, tiles: Tiles
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Those with the smallest upper bounds, and both bounds."""
        own = (self.half_floors[block].double() + self.slack[block])[:, None]
        offsets = (others.half_floors[columns] + others.slack[columns]).float()
        values, at = products_in_float32(self.at(block), others.at(columns)).sub_(offsets).topk(count, dim=1)
        near = columns[at]
        upper = (values.double() - own) * -2
        lower = upper - 2 * (others.slack[near] + self.slack[block, None])
        return near, lower.nan_to_num_(nan=-torch.inf) / self.scale**2, upper / self.scale**2


def _represented(
    features: Tensor, center: Tensor, scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Some rows rounded (n, d), their slack, and the squared norms for their floors, (n,) float64."""
    if dtype == torch.float16:
        return represent_half(features, center, scale)
    whole = represent(features, center, scale, None)
    return whole.coordinates, whole.slack, sq_norms_of(whole.coordinates)


def products_in_float32(left: Tensor, right: Tensor) -> Tensor:
    """Inner products (r, c) float32 of rows (r, d) and (c, d), both float16 or both float32."""
    if left.dtype == torch.float32:
        return left @ right.T
    if left.device.type == "cpu":
        return left.float() @ right.float().T
    return torch.mm(left, right.T, out_dtype=torch.float32)  # since torch 2.8


_SAMPLE_ROWS, _MAX_EXTRA = 256, 64


def are_precise(coordinates: RoundedCoordinates, k: int) -> bool:
    """Whether rounded rows distinguish most pairs of a sample from those of the `k` nearest."""
    half_floors, slack = coordinates.half_floors, coordinates.slack
    every = torch.arange(len(slack), device=slack.device)
    queries, k = every[:: -(-len(every) // _SAMPLE_ROWS)], min(k + 1, len(every))
    keys = products_in_float32(coordinates.at(queries), coordinates.at(every)).double() - half_floors
    lower = (keys - half_floors[queries, None]) * -2
    upper = lower + 2 * (slack[queries, None] + slack)
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
