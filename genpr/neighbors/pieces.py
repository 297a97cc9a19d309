"""Rows in pieces that stay in the cache of a CPU core while they are worked on; on a GPU, in large ones."""

from __future__ import annotations

from torch import Tensor

_CPU_PIECE = 2**19  # elements
_GPU_PIECE = 2**25


def pieces_of(features: Tensor, n: int | None = None) -> list[slice]:
    """Slices over all rows of (n, d) `features`, or over `n` rows as wide as these."""
    elements = _CPU_PIECE if features.device.type == "cpu" else _GPU_PIECE
    step = max(1, elements // features.shape[1])
    n = len(features) if n is None else n
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]
