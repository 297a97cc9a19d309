"""Sizes of tiles, blocks and batches, for each kind of device: they affect speed and memory, never a result."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What is fast on one kind of device."""

    narrow_tile: tuple[int, int]  # maximum rows and columns of a tile of products of at most 512 terms
    wide_tile: tuple[int, int]  # the same for more terms
    pair_bytes: int  # memory per pair of a tile: its product, and the results if some pairs are close
    min_block_rows: int  # of a block of one set; half of the products inside a block are redundant
    blocks: int  # number of blocks that the rows of a set are divided into
    min_pairs: int  # pairs that are collected before they are processed together
    max_pairs: int  # pairs held in memory at once
    # pairs that are collected before a merge: at least min_held and held_per_row per row, at most max_held
    min_held: int
    held_per_row: int
    max_held: int
    verified: int  # pairs per batch of the definition
    elements: int  # elements of rows that are gathered or processed at once
    recomputed: int  # elements of coordinates that are recomputed at once
    has_directions: bool  # whether few directions and clusters may be cheaper than all coordinates
    # pairs per row from which on float32 differences of pairs, which a GPU computes as slowly as the definition, shrink reaches
    differences_from: int


# Gathered rows should stay in the cache of a CPU core: 256 pairs of 2048 features took 5.6 us a pair, 4096
# pairs 33 us. Products should stay in the cache, too, and gathering wide rows costs less if each is used in many products.
CPU = DeviceProfile(
    narrow_tile=(768, 2048),
    wide_tile=(2048, 1024),
    pair_bytes=16,
    min_block_rows=512,
    blocks=16,
    min_pairs=2**16,
    max_pairs=2**19,
    min_held=2**16,
    held_per_row=16,
    max_held=2**22,
    verified=4096,
    elements=2**19,
    recomputed=2**17,
    has_directions=True,
    differences_from=0,
)
# A GPU needs enough work per kernel launch and few synchronizations: one per tile and a few per batch of pairs.
CUDA = DeviceProfile(
    narrow_tile=(8192, 16384),
    wide_tile=(8192, 16384),
    pair_bytes=8,
    min_block_rows=8192,
    blocks=1,
    min_pairs=2**20,
    max_pairs=2**22,
    min_held=2**20,
    held_per_row=64,
    max_held=2**22,
    verified=2**18,
    elements=2**25,
    recomputed=2**25,
    has_directions=False,
    differences_from=64,
)


def profile_of(device: torch.device) -> DeviceProfile:
    """The profile of `device`."""
    return CPU if device.type == "cpu" else CUDA
