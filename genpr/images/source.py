"""Open whatever holds images: paths, arrays, data sets, iterables; and choose a random part of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from genpr.errors import DataError, ResourceError, UsageError, printable
from genpr.images.archive import open_zip
from genpr.images.arrays import is_tensor, open_array, open_npy, open_npz
from genpr.images.arrow import SPLITS_FILE, STATE_FILE, open_arrow, open_saved_dataset
from genpr.images.datasets import BatchSource, is_huggingface, open_dataset, open_huggingface
from genpr.images.folder import Communicator, FileSource, open_folder, open_list, open_stdin_list
from genpr.images.item import IMAGE_SUFFIXES, TAR_SUFFIXES, ImageSource, Item, PartSource, joined, suffix_of
from genpr.images.parquet import open_parquet, open_parquet_files, parquet_files
from genpr.images.paths import STDIN, expand, nothing_at, split_choice
from genpr.images.tar import open_tar

__all__ = ["ImageSource", "Item", "choose_rows", "open_source", "subset"]

_FILE_READERS: tuple[tuple[tuple[str, ...], Callable[[Path, str], ImageSource]], ...] = (
    ((".zip",), open_zip),
    (TAR_SUFFIXES, open_tar),
    ((".npz",), open_npz),
    ((".npy",), open_npy),
    ((".txt",), open_list),
)
_COLUMN_READERS: dict[str, Callable[[Path, str, str | None], ImageSource]] = {
    ".parquet": open_parquet,
    ".arrow": open_arrow,
}
_IMAGE = "image"
_UNSAFE_SUFFIXES = {".pkl", ".pickle", ".pt", ".pth"}
_FILE_SUFFIXES = ", ".join(
    [*_COLUMN_READERS, *(suffix for suffixes, _ in _FILE_READERS for suffix in suffixes)]
)
_ACCEPTED = f"a folder of images, or a file with one of {_FILE_SUFFIXES} (a list of files)"


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
            (n, h, w, 3); a pattern of such paths, all of one kind (`genpr.images.paths.expand`); a numpy
            array uint8 (n, h, w, 3); a torch tensor uint8 (n, 3, h, w); a map-style dataset of PIL images,
            uint8 tensors (3, h, w) or uint8 arrays (h, w, 3), alone or first in a tuple; or an iterable of
            uint8 batches, tensors (n, 3, h, w) or arrays (n, h, w, 3).
        name: What to call it in messages; a path is called what it is.
        follow_symlinks: Look into folders that a folder only links to, too; each folder counts once.
        communicator: The processes that open this source together, of which one reads standard input
            (`genpr.distributed.current_communicator`); None for this process alone.

    Raises:
        UsageError: There is nothing at that path, or it is nothing that could hold images, or a pattern names several
            kinds of things ("mixed-kinds").
        DataError: It holds no images, or is damaged.
        ResourceError: Reading it could execute code.

    Example:
        >>> source = open_source(np.zeros((2, 8, 8, 3), np.uint8))
        >>> [item.name for item in source]
        ['[0]', '[1]']
    """
    if isinstance(source, str | os.PathLike):
        text = os.fsdecode(source)
        name = name or text
        if text == STDIN:
            return open_stdin_list(name, communicator)
        choice = None
        if not os.path.lexists(text):
            text, choice = split_choice(text)
            several = expand(text)
            if several is not None:
                return _open_several(several, text, name, choice, follow_symlinks=follow_symlinks)
        return _open_one(text, name, choice, follow_symlinks=follow_symlinks)
    if ImageSource in type(source).__mro__:
        return cast("ImageSource", source)
    if isinstance(source, np.ndarray):
        return open_array(source, name or "<array>")
    if is_tensor(source):
        return open_array(source, name or "<tensor>")
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


def _open_several(
    several: Sequence[Path], text: str, name: str, choice: str | None, *, follow_symlinks: bool
) -> ImageSource:
    """Open the paths that the pattern `text` stands for, in their order."""
    kinds = {_kind_of(path): path for path in reversed(several)}
    if len(kinds) > 1:
        found = ", ".join(f"{kind} ({printable(str(path))})" for kind, path in sorted(kinds.items()))
        raise UsageError(
            f"the pattern {printable(text)!r} names different kinds of things: {found}; all of one source are of one "
            "kind, so make the pattern narrower",
            code="mixed-kinds",
            path=text,
        )
    if kinds.keys() == {_IMAGE}:
        return FileSource(name, Path(), tuple(map(str, several)))
    return joined(
        name,
        several,
        lambda path: _open_one(str(path), str(path), choice, follow_symlinks=follow_symlinks),
    )


def _open_one(text: str, name: str, choice: str | None, *, follow_symlinks: bool) -> ImageSource:
    path = Path(text)
    try:
        mode = path.stat().st_mode if text else 0
    except (OSError, ValueError):  # such as a name that is too long, or that holds a NUL
        mode = 0
    if not mode:
        raise nothing_at(text)
    if not stat.S_ISDIR(mode):
        return _open_file(path, text, name, choice, is_regular=stat.S_ISREG(mode))
    if (path / STATE_FILE).is_file() or (path / SPLITS_FILE).is_file():
        return open_saved_dataset(path, name, choice)
    try:
        return open_folder(path, name, follow_symlinks=follow_symlinks)
    except DataError as error:  # perhaps it is a folder as `hf download` leaves it
        if error.code != "no-images" or not (files := parquet_files(path)):
            raise
    return open_parquet_files(path, files, name, choice)


def _open_file(path: Path, text: str, name: str, choice: str | None, *, is_regular: bool) -> ImageSource:
    shown = printable(text)
    if not is_regular:  # reading a pipe or a device may never end
        raise UsageError(
            f"{shown} is neither a folder nor a regular file; needed is {_ACCEPTED}",
            code="source-kind",
            path=text,
        )
    suffix = suffix_of(text)
    if suffix in _COLUMN_READERS:
        return _COLUMN_READERS[suffix](path, name, choice)
    if choice is not None:
        raise UsageError(
            f"{shown} has no columns, so none can be chosen with '#{printable(choice)}'",
            code="no-column",
            path=text,
        )
    if suffix in _UNSAFE_SUFFIXES:
        raise ResourceError(
            f"{shown}: {suffix} files can execute code when they are loaded, so genpr never does; save images as "
            ".npz, features as .npy or .safetensors",
            code="unsafe-format",
            path=text,
        )
    for suffixes, opener in _FILE_READERS:
        if text.lower().endswith(suffixes):
            return opener(path, name)
    kind = "a single image" if suffix in IMAGE_SUFFIXES else f"of unknown kind ({suffix or 'no suffix'})"
    raise UsageError(f"{shown} is {kind}; needed is {_ACCEPTED}", code="source-kind", path=text)


def _kind_of(path: Path) -> str:
    """Folder, image, or the suffix that decides who reads it."""
    if path.is_dir():
        return "folder"
    if suffix_of(str(path)) in IMAGE_SUFFIXES:
        return _IMAGE
    text = str(path).lower()
    known = (suffixes[0] for suffixes, _ in _FILE_READERS if text.endswith(suffixes))
    return next(known, suffix_of(text) or "no suffix")


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
