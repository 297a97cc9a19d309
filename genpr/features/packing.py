"""Names and sizes of images as tensors, which are all that a safetensors file holds beside short texts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def pack_names(names: tuple[str, ...]) -> Tensor:
    """NUL-separated bytes: the one character that no file name holds."""
    data = bytearray()
    for name in names:  # one by one: joined, encoded and copied, a million names would be there three times
        data += name.encode("utf-8", "surrogateescape") + b"\0"
    del data[-1:]
    return torch.frombuffer(data or bytearray(1), dtype=torch.uint8)


def unpack_names(packed: Tensor) -> tuple[str, ...]:
    """Names back from what `pack_names` gave.

    Raises:
        TypeError: It is something else.
    """
    if packed.dtype != torch.uint8:
        raise TypeError(f"names in {packed.dtype}")
    return tuple(packed.numpy().tobytes().decode("utf-8", "surrogateescape").split("\0"))


def pack_sizes(sizes: Mapping[tuple[int, int], int]) -> Tensor:
    """int64 (m, 3): width, height, and how many."""
    return torch.tensor([[*size, count] for size, count in sorted(sizes.items())], dtype=torch.int64).view(
        -1, 3
    )


def unpack_sizes(packed: Tensor) -> dict[tuple[int, int], int]:
    """Sizes back from what `pack_sizes` gave.

    Raises:
        TypeError, ValueError: It is something else.
    """
    return {(width, height): count for width, height, count in packed.tolist()}
