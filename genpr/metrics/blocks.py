"""Blocks of feature rows in float64, so that sums need no float64 copy of all features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.errors import FeatureError
from genpr.memory import fits

# Fixed and not derived from free memory: the last bits of a sum depend on the block size.
_BLOCK_ELEMENTS = 2**22
_TILE_ROWS = 1024  # twice as many on a GPU: more work for each launch


def held_on(features: Tensor, device: torch.device) -> Tensor:
    """The features, uploaded to a GPU at once if they fit into its memory, else unchanged."""
    is_held = device.type == "cuda" and fits(features.nbytes, device)
    return features.to(device) if is_held else features


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The rows, or those at the indices `rows`, in order as blocks (b, d) of float64 on `device`, made on demand."""

    features: Tensor
    device: torch.device
    rows: Tensor | None = None  # on the device of the features
    is_tile: bool = False  # whether a block is a side of a tile of all pairs
    is_unit: bool = False  # whether each row is divided by its norm

    @property
    def block_rows(self) -> int:
        """Rows of each block but the last."""
        most = _TILE_ROWS if self.device.type == "cpu" else 2 * _TILE_ROWS
        rows = max(1, _BLOCK_ELEMENTS // self.features.shape[1])
        return min(rows, most) if self.is_tile else rows

    def __len__(self) -> int:
        return -(-len(self.features if self.rows is None else self.rows) // self.block_rows)

    def __getitem__(self, at: int) -> Tensor:
        of_block = slice(at * self.block_rows, (at + 1) * self.block_rows)
        block = self.features[of_block] if self.rows is None else self.features[self.rows[of_block]]
        block = block.to(self.device).double()  # widened there: half as much to upload
        return block / torch.linalg.vector_norm(block, dim=1, keepdim=True) if self.is_unit else block

    def __iter__(self) -> Iterator[Tensor]:
        return (self[at] for at in range(len(self)))

    def kept(self) -> Blocks | list[Tensor]:
        """All blocks at once if there is only one or if they fit on a GPU; else each is made on demand."""
        count = 8 * len(self) * self.block_rows * self.features.shape[1]
        is_kept = len(self) == 1 or (self.device.type == "cuda" and fits(count, self.device))
        return list(self) if is_kept else self


def mean_of(features: Tensor, device: torch.device | str = "cpu", *, rows: Tensor | None = None) -> Tensor:
    """Mean (d,) float64 of the rows, or of those at the indices `rows`."""
    total = torch.zeros(features.shape[1], dtype=torch.float64, device=device)
    for block in Blocks(features, total.device, rows=rows):
        total += block.sum(dim=0)
    return total / (len(features) if rows is None else len(rows))


def check_no_zero_rows(features: Tensor, name: str) -> None:
    """Refuse rows that have no direction ("zero-row")."""
    zero = torch.cat([(block == 0).all(dim=1) for block in Blocks(features, features.device)])
    if zero.any():
        raise FeatureError(
            f"row {int(zero.nonzero()[0])} of {name} (counted from 0) is all zeros and has no direction to normalize; "
            "check that its image was embedded",
            code="zero-row",
        )
