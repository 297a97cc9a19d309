"""Features a block of rows at a time in float64, whose sums need no copy."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from genpr.errors import FeatureError

# Fixed and not taken from free memory: the last bits of a sum depend on where it is cut.
_BLOCK_ELEMENTS = 2**22


def double_blocks(
    features: Tensor, device: torch.device, *, rows: Tensor | None = None, most_rows: int | None = None
) -> Iterator[Tensor]:
    """The rows, or those at the indices `rows`, in order as blocks (b, d) of float64 on `device`."""
    count = len(features) if rows is None else len(rows)
    step = max(1, _BLOCK_ELEMENTS // features.shape[1])
    step = step if most_rows is None else min(step, most_rows)
    for start in range(0, count, step):
        chunk = slice(start, start + step)
        block = features[chunk] if rows is None else features[rows[chunk]]
        yield block.to(device, torch.float64)


def unit_blocks(features: Tensor, device: torch.device, *, most_rows: int | None = None) -> Iterator[Tensor]:
    """All rows in order, each divided by its norm, as blocks (b, d) of float64 on `device`."""
    for block in double_blocks(features, device, most_rows=most_rows):
        yield block / torch.linalg.vector_norm(block, dim=1, keepdim=True)


def mean_of(features: Tensor, device: torch.device | str = "cpu", *, rows: Tensor | None = None) -> Tensor:
    """Mean (d,) float64 of the rows, or of those at the indices `rows`."""
    total = torch.zeros(features.shape[1], dtype=torch.float64, device=device)
    for block in double_blocks(features, total.device, rows=rows):
        total += block.sum(dim=0)
    return total / (len(features) if rows is None else len(rows))


def check_no_zero_rows(features: Tensor, name: str) -> None:
    """Refuse rows that have no direction ("zero-row")."""
    start = 0
    for block in double_blocks(features, features.device):
        zero = (block == 0).all(dim=1)
        if zero.any():
            raise FeatureError(
                f"row {start + int(zero.nonzero()[0])} of {name} (counted from 0) is all zeros and has no direction to "
                "normalize; was its image embedded?",
                code="zero-row",
            )
        start += len(block)
