"""The larger of two sides in random blocks of the size of the smaller, for metrics that depend on the sizes' ratio."""

from __future__ import annotations

import torch
from torch import Tensor


def equal_blocks(larger: int, size: int, seed: int) -> tuple[Tensor, ...]:
    """Random disjoint blocks of equal size; what does not fill another block is left out.

    Random, because files are often sorted by class.

    Args:
        larger: Rows to draw from.
        size: Rows of each block, at most `larger`.
        seed: What is drawn depends on these three numbers only.

    Returns:
        floor(larger / size) blocks of rows, (size,) each, ascending.
    """
    order = torch.randperm(larger, generator=torch.Generator().manual_seed(seed))
    return order[: larger // size * size].reshape(-1, size).sort(dim=1).values.unbind()
