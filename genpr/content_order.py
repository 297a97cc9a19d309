"""Checksums of tensors, and orders of rows that depend on their content alone, for choices that must not depend on the given order.

Importing this module does not import torch.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK_ELEMENTS = 2**21


def content_order(features: Tensor) -> Tensor:
    """Indices (n,) int64, on the CPU, that sort rows (n, d) by a hash of their values.

    The hash is the sum of the words of a row, each times a fixed random number, modulo 2^64. Equal rows keep their order.
    """
    import torch

    n, d = features.shape
    word = {2: torch.int16, 4: torch.int32, 8: torch.int64}[features.element_size()]
    # Streams of a bit generator never change between versions of NumPy.
    factors = torch.from_numpy(np.random.PCG64(0).random_raw(d).view(np.int64) | 1).to(features.device)
    hashes = torch.empty(n, dtype=torch.int64)
    step = max(1, _BLOCK_ELEMENTS // d)
    for start in range(0, n, step):
        chunk = slice(start, start + step)
        words = (features[chunk] + 0.0).view(word).long()  # -0.0 becomes 0.0
        hashes[chunk] = (words * factors).sum(dim=1).cpu()
    return hashes.argsort(stable=True)


def random_halves(features: Tensor, groups: Tensor | None) -> list[Tensor]:
    """Two disjoint halves of rows (n, d), ascending, that depend on their content alone; the first has the extra row.

    Rows of one of the `groups` (n,), numbered from 0, are in the same half, and the sizes are as equal as this allows.
    """
    import torch

    order = content_order(features)
    draws = np.random.PCG64(1).random_raw(len(order))
    if groups is None:
        shuffled_rows = order[torch.from_numpy(np.argsort(draws, kind="stable"))]
        return [rows.sort().values for rows in shuffled_rows.tensor_split(2)]
    numbers = groups.numpy()
    known, first = np.unique(numbers[order.numpy()], return_index=True)
    shuffled = known[np.argsort(draws[first])]
    ends = np.bincount(numbers)[shuffled].cumsum()
    count = 1 + np.abs(2 * ends - len(order)).argmin()
    is_first = np.isin(numbers, shuffled[:count])
    return [torch.from_numpy(part.nonzero()[0]) for part in (is_first, ~is_first)]


def content_hash(content: Tensor) -> str:
    """A checksum of a tensor on any device, with its type and shape."""
    checksum = zlib.crc32(content.detach().cpu().contiguous().numpy().data)
    return f"{checksum:08x} of {str(content.dtype).removeprefix('torch.')} {tuple(content.shape)}"
