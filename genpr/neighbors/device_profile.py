"""Sizes of tiles, blocks and portions, for each kind of device: they affect speed and memory, never a result."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What a search on one kind of device is cut into."""

    narrow_tile: tuple[int, int]  # most rows and columns of products of at most 512 terms
    wide_tile: tuple[int, int]  # of more terms
    pair_bytes: int  # memory per pair of a tile: the product, and what is found if some are close
    min_block_rows: int  # of a block of one set, of whose inner pairs half are computed for nothing
    blocks: int  # a block holds one part of the rows in so many
    portion: int  # pairs that are worth the work per portion
    max_pairs: int  # pairs that memory should hold at once
    min_held: int  # pairs that wait until they are worth a merge: at least so many, some per row, never more than most
    held_per_row: int
    max_held: int
    verified: int  # pairs per piece of work by the definition
    chunk: int  # elements of rows that are gathered for pairs
    piece: int  # elements of consecutive rows
    passed: int  # elements that are read again at once
    has_frames: bool  # whether few directions, and cells, may be cheaper than all coordinates


# Gathered rows should stay in the cache of a CPU core: 256 pairs of 2048 features took 5.6 us a pair, 4096
# pairs 33 us. Products should stay there, too, and gathering wide rows must be paid back by many products.
CPU = DeviceProfile(
    narrow_tile=(768, 2048),
    wide_tile=(2048, 1024),
    pair_bytes=16,
    min_block_rows=512,
    blocks=16,
    portion=2**16,
    max_pairs=2**19,
    min_held=2**16,
    held_per_row=16,
    max_held=2**22,
    verified=4096,
    chunk=2**19,
    piece=2**19,
    passed=2**17,
    has_frames=True,
)
# A GPU wants enough work per kernel launch, and few waits for the host: one per tile and a few per portion.
CUDA = DeviceProfile(
    narrow_tile=(8192, 16384),
    wide_tile=(8192, 16384),
    pair_bytes=8,
    min_block_rows=8192,
    blocks=1,
    portion=2**20,
    max_pairs=2**22,
    min_held=2**20,
    held_per_row=64,
    max_held=2**22,
    verified=2**18,
    chunk=2**26,
    piece=2**25,
    passed=2**25,
    has_frames=False,
)


def profile_of(device: torch.device) -> DeviceProfile:
    """The sizes for `device`."""
    return CPU if device.type == "cpu" else CUDA
