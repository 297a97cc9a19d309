"""The door to all images: one function that takes whatever holds them, and one that takes a sample of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import cast

import numpy as np
from numpy.typing import NDArray

from genpr.errors import UsageError
from genpr.images.arrays import open_array, open_tensor
from genpr.images.datasets import BatchSource, open_dataset
from genpr.images.file_list import Communicator
from genpr.images.huggingface import is_huggingface, open_huggingface
from genpr.images.item import ImageSource, Item
from genpr.images.layout import is_tensor
from genpr.images.part import PartSource
from genpr.images.paths import open_path

__all__ = ["ImageSource", "Item", "choose_rows", "open_source", "subset"]


def open_source(
    source: object,
    *,
    name: str | None = None,
    follow_symlinks: bool = False,
    communicator: Communicator | None = None,
) -> ImageSource:
    """Open anything that holds images.

    Args:
        source: The path of a folder or an archive (zip, tar), of .npz with `arr_0` or .npy, both uint8
            (n, h, w, 3); a pattern of such paths, all of one kind (`genpr.images.patterns.expand`); a numpy
            array uint8 (n, h, w, 3); a torch tensor uint8 (n, 3, h, w); a map-style dataset of PIL images,
            uint8 tensors (3, h, w) or uint8 arrays (h, w, 3), alone or first in a tuple; or an iterable of
            uint8 batches, tensors (n, 3, h, w) or arrays (n, h, w, 3).
        name: What to call it in messages; a path is called what it is.
        follow_symlinks: Look into folders that a folder only links to, too; each folder counts once.
        communicator: The processes that open this source together, of which one reads standard input
            (`genpr.distributed.current_communicator`); None for this process alone.

    Raises:
        UsageError: There is nothing at that path, or it is nothing that could hold images.
        DataError: It holds no images, or is damaged.
        ResourceError: Reading it could execute code.

    Example:
        >>> source = open_source(np.zeros((2, 8, 8, 3), np.uint8))
        >>> [item.name for item in source]
        ['[0]', '[1]']
    """
    if isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        return open_path(path, name or path, follow_symlinks=follow_symlinks, communicator=communicator)
    if ImageSource in type(source).__mro__:
        return cast("ImageSource", source)
    if isinstance(source, np.ndarray):
        return open_array(source, name or "<array>")
    if is_tensor(source):
        return open_tensor(source, name or "<tensor>")
    if is_huggingface(source):
        return open_huggingface(source, name or "<dataset>")
    if not isinstance(source, bytes | bytearray | dict | set | frozenset):
        if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
            return open_dataset(source, name or "<dataset>")
        if isinstance(source, Iterable):
            return BatchSource(name or "<iterable>", source)
    raise UsageError(
        f"{type(source).__name__} cannot be read as images; needed is a path, a uint8 array (n, h, w, 3), a "
        "uint8 tensor (n, 3, h, w), a dataset, or an iterable of such batches",
        code="source-kind",
    )


def subset(source: ImageSource, max_images: int, seed: int) -> ImageSource:
    """A random part of a source, in source order; "the first n" of sorted class folders would be one class.

    Images not chosen (see `choose_rows`) are never read. A source that has no more than `max_images` is
    returned as it is; one that does not know its length gives its first `max_images`.

    Raises:
        UsageError: `max_images` is below 1, or `seed` is negative.
    """
    _check_choice(max_images, seed)
    try:
        total = len(source)
    except TypeError:
        return _First(source.name, source, max_images)
    chosen = choose_rows(total, max_images, seed)
    return source if len(chosen) == total else PartSource(source.name, source, tuple(chosen.tolist()))


def choose_rows(total: int, max_rows: int, seed: int) -> NDArray[np.int64]:
    """Choose at most `max_rows` of `total` rows at random, without replacement.

    The choice depends on these three numbers only: row i draws output i of the PCG64 generator seeded with
    `seed`, 64 bits as they come, and the smallest draws win. So it is the same on every machine, and a larger
    choice with the same seed contains the smaller one.

    Returns:
        Sorted row numbers, (min(total, max_rows),).

    Raises:
        UsageError: `max_rows` is below 1, or `seed` is negative.
    """
    _check_choice(max_rows, seed)
    draws = np.random.PCG64(seed).random_raw(total)
    return np.sort(np.argsort(draws, kind="stable")[:max_rows])


def _check_choice(max_images: int, seed: int) -> None:
    if max_images < 1:
        raise UsageError(f"max_images must be at least 1, got {max_images}", code="max-images")
    if seed < 0:
        raise UsageError(f"seed must not be negative, got {seed}", code="seed")


@dataclass(frozen=True)
class _First(ImageSource):
    """The first images of a source of unknown length."""

    name: str
    source: ImageSource
    count: int

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Item]:
        return islice(self.source, self.count)
