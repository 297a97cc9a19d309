"""Representation of a set for a search on a GPU: codes for tensor cores, with proven bounds.

Float16 codes leave about six pairs per row to verify where float32 leaves five, at 16 times the rate. Codes are float32
where products of float16 exceed their error bound, and where rows are so similar, or so far away, that float16 leaves too many pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from genpr.errors import ResourceError
from genpr.memory import fits
from genpr.neighbors.bounds import NO_FLOOR, represent, represent_half, slack_factor, sq_norms_of
from genpr.neighbors.device_profile import profile_of
from genpr.neighbors.distance import in_steps
from genpr.runtime import is_out_of_memory


class Multiplies(Protocol):
    """Computes products of codes."""

    def of_codes(self, left: Tensor, right: Tensor) -> Tensor:
        """Inner products (r, c) of codes (r, d) and (c, d)."""


@dataclass(frozen=True, slots=True)
class CodedView:
    """All coordinates of n rows as codes, with their floors. See `bounds.represent_half`, or `bounds` for float32."""

    features: Tensor  # (n, d) float32 or float16, the original values
    center: Tensor  # (d,) float32
    scale: float  # as in `Frame`
    codes: Tensor  # (n, d) float16 or float32; (0, d) if memory is short: then recomputed for each tile
    half_floors: Tensor  # (n,) float32
    slack: Tensor  # (n,) float64, infinite for rows that codes cannot represent; their codes are zero

    @classmethod
    def from_features(cls, features: Tensor, center: Tensor, scale: float, dtype: torch.dtype) -> CodedView:
        """Codes of type `dtype` for (n, d) `features`."""
        (n, d), device = features.shape, features.device
        kept = fits(n * d * dtype.itemsize, device)
        codes = torch.empty(n if kept else 0, d, dtype=dtype, device=device)
        slack = torch.empty(n, dtype=torch.float64, device=device)
        half_floors = torch.empty(n, dtype=torch.float32, device=device)

        def put(rows: slice) -> None:
            found, slack[rows], sq_norms = _represented(features[rows], center, scale, dtype)
            half_floors[rows] = (sq_norms - slack[rows]).clamp_(min=NO_FLOOR).div_(2).float()
            if kept:
                codes[rows] = found

        in_steps(put, n, profile_of(device).piece // d, device)
        return cls(features, center, scale, codes, half_floors, slack)

    @property
    def width(self) -> int:
        """Coordinates per row."""
        return len(self.center)

    def at(self, rows: Tensor) -> Tensor:
        """Codes (p, d) of `rows` (p,)."""
        if len(self.codes):
            return self.codes[rows]
        moved = torch.sub(self.features[rows], self.center).mul_(self.scale)
        return moved.masked_fill_(self.slack[rows].isinf()[:, None], 0).to(self.codes.dtype)

    def left(self, rows: Tensor) -> Tensor:
        """(p, d + 2) float32 for `rows` (p,): its inner products with `right` are keys, but for rounding."""
        floors = self.half_floors[rows, None]
        return torch.cat([self.at(rows).float(), -floors, torch.ones_like(floors)], dim=1)

    def right(self, rows: Tensor) -> Tensor:
        """(p, d + 2) float32. See `left`."""
        floors = self.half_floors[rows, None]
        return torch.cat([self.at(rows).float(), torch.ones_like(floors), -floors], dim=1)

    def gap(self, rows: Tensor, others: CodedView, columns: Tensor) -> Tensor:
        """Upper minus lower bounds: `rows` of this view with `columns` of `others`, (p,) float64."""
        return 2 * (self.slack[rows] + others.slack[columns])

    def search(self, block: Tensor, tiles: Multiplies) -> CodedSearch:
        """Prepare a search for large keys of the rows of `block`."""
        return CodedSearch(self, block, tiles)


def _represented(
    features: Tensor, center: Tensor, scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (n, d) of some rows, their slack, and the squared norms for their floors, (n,) float64."""
    if dtype == torch.float16:
        return represent_half(features, center, scale)
    found = represent(features, center, scale, None)
    return found.coordinates, found.slack, sq_norms_of(found.coordinates)


class CodedSearch:
    """Keys of some rows with columns: above thresholds, or the largest."""

    def __init__(self, view: CodedView, block: Tensor, tiles: Multiplies) -> None:
        self._left, self._tiles, self._slack = view.at(block), tiles, view.slack[block]
        self._floors = view.half_floors[block].double()

    def above(self, lowest: Tensor, columns: CodedView, *bands: Tensor) -> tuple[Tensor, ...]:
        """Every pair whose key may be at least `lowest`, (b, r) float64 for b `bands` of columns: as `ViewSearch.above`."""
        chunk = torch.cat(bands)
        # Rounding is monotone: a float32 value that reaches a threshold also reaches the rounded one.
        thresholds = (lowest.view(len(bands), -1) + self._floors).float()[:, :, None]
        values = self._tiles.of_codes(self._left, columns.at(chunk)).sub_(columns.half_floors[chunk])
        if len(bands) == 1:
            is_above = values >= thresholds[0]
        else:
            is_above = torch.empty_like(values, dtype=torch.bool)
            parts = torch.split(values, [len(band) for band in bands], dim=1)
            start = 0
            for part, threshold in zip(parts, thresholds, strict=True):
                torch.ge(part, threshold, out=is_above[:, start : start + part.shape[1]])
                start += part.shape[1]
        i, j = is_above.nonzero().unbind(dim=1)
        keys = values[i, j].double() - self._floors[i]
        return i, j, keys, torch.zeros_like(keys)

    def nearest(self, columns: CodedView, chunk: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The `count` columns in `chunk` (c,) with the smallest upper bounds, (r, count), and both bounds, scaled."""
        offsets = (columns.half_floors[chunk] + columns.slack[chunk]).float()
        values, at = self._tiles.of_codes(self._left, columns.at(chunk)).sub_(offsets).topk(count, dim=1)
        near = chunk[at]
        upper = (values.double() - (self._floors + self._slack)[:, None]) * -2
        lower = (upper - 2 * (columns.slack[near] + self._slack[:, None])).nan_to_num_(nan=-torch.inf)
        return near, lower, upper


def products_of_codes(left: Tensor, right: Tensor) -> Tensor:
    """Inner products (r, c) float32 of codes (r, d) and (c, d) of one type."""
    if left.dtype == torch.float32:
        return left @ right.T
    if left.device.type == "cpu":
        return left.float() @ right.float().T
    return torch.mm(left, right.T, out_dtype=torch.float32)  # since torch 2.8


_SAMPLE_ROWS, _MAX_EXTRA = 256, 64


def are_codes_precise(view: CodedView, k: int) -> bool:
    """Whether codes distinguish most pairs of a sample from those of the `k` nearest."""
    every = torch.arange(len(view.features), device=view.features.device)
    queries, k = every[:: -(-len(every) // _SAMPLE_ROWS)], min(k + 1, len(every))
    keys = products_of_codes(view.at(queries), view.at(every)).double() - view.half_floors
    lower = (keys - view.half_floors[queries, None]) * -2
    upper = lower + 2 * (view.slack[queries, None] + view.slack)
    reach = upper.topk(k, dim=1, largest=False).values[:, -1:]
    return int((lower <= reach).sum()) <= len(queries) * (4 * k + _MAX_EXTRA)


@cache
def code_dtype(device: torch.device) -> torch.dtype:
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
    """Whether errors of products of difficult codes are at most 3/4 of gamma in float16, gamma in float32."""
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
        found = products_of_codes(x.to(device), y.to(device)).cpu()
    except (TypeError, RuntimeError) as error:  # before torch 2.8, or without a kernel
        if is_out_of_memory(error):  # which is no error of products
            raise
        return False
    sizes = x.double().norm(dim=1)[:, None] * y.double().norm(dim=1)
    return found.dtype == torch.float32 and bool(((found - exact).abs() <= bound * sizes).all())
