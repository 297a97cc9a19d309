"""Open sources of images (paths, arrays, data sets, iterables), and choose random subsets of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from genpr.errors import DataError, ResourceError, UsageError
from genpr.images.archive import open_tar, open_zip, reraise_corrupt
from genpr.images.arrays import is_tensor, open_array, open_array_file
from genpr.images.containers import unread_container
from genpr.images.datasets import BatchSource, is_huggingface, open_dataset, open_huggingface
from genpr.images.folder import FileSource, open_folder, read_file, read_start, walk_files
from genpr.images.formats import ARRAY_SUFFIXES, image_format
from genpr.images.item import (
    ImageSource,
    Item,
    SubsetSource,
    concat_sources,
    is_image,
    known_length,
    suffix_of,
)
from genpr.images.parquet import open_parquet
from genpr.images.paths import expand, path_not_found
from genpr.images.policy import DEFAULTS, DecodePolicy
from genpr.limits import TEXT_BYTES, read_bytes
from genpr.storage import open_regular

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_IMAGE = "image"
_UNSAFE_SUFFIXES = {".pkl", ".pickle", ".pt", ".pth"}


def open_source(source: object, *, name: str | None = None, policy: DecodePolicy = DEFAULTS) -> ImageSource:
    """Open a source of images; `name` is its name in messages.

    A source is a path of a folder or file, or a pattern of such paths (`genpr.images.paths.expand`), all of one kind; an array
    uint8 (n, h, w, 3); a tensor uint8 (n, 3, h, w); a map-style dataset of PIL images, uint8 tensors (3, h, w) or uint8 arrays
    (h, w, 3), alone or first in a tuple; or an iterable of such images, of lists of them, or of uint8 batches, tensors
    (n, 3, h, w) or arrays (n, h, w, 3), whose memory may be reused for the next batch. Gray images have no axis of channels, or
    one of length 1, and `policy` may declare other types and numbers of bands.
    """
    if isinstance(source, str | os.PathLike):
        text = os.fsdecode(source)
        return _open_path(text, name or text, policy)
    if ImageSource in type(source).__mro__:
        return cast("ImageSource", source)
    if isinstance(source, np.ndarray):
        return open_array(source, name or "<array>", policy)
    if is_tensor(source):
        return open_array(source, name or "<tensor>", policy)
    if is_huggingface(source):
        return open_huggingface(source, name or "<dataset>")
    is_table = hasattr(source, "columns") and hasattr(source, "to_numpy")
    if not is_table and not isinstance(source, bytes | bytearray | dict | set | frozenset):
        if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
            return open_dataset(source, name or "<dataset>", policy)
        if isinstance(source, Iterable):
            return BatchSource(name or "<iterable>", source, policy)
    needed = "a path, a uint8 array (n, h, w, 3), a uint8 tensor (n, 3, h, w), a dataset, or an iterable of such batches"
    text = f"{type(source).__name__} cannot be read as images; needed is {needed}{'; try x.to_numpy()' * is_table}"
    raise UsageError(text, code="source-kind")


def _open_several(several: Sequence[Path], text: str, name: str, policy: DecodePolicy) -> ImageSource:
    """Open the paths that match the pattern `text`, in their order."""
    kinds = {_kind_of(path): path for path in reversed(several)}
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} ({path})" for kind, path in sorted(kinds.items()))
        message = f"the pattern {text!r} matches different kinds of sources: {listed}; make it more specific"
        raise UsageError(message, code="mixed-kinds", path=text)
    if kinds.keys() == {_IMAGE}:
        return FileSource(name, tuple(map(str, several)), str, partial(read_file, Path()))
    return concat_sources(name, several, lambda path: _open_path(str(path), str(path), policy))


def _open_path(text: str, name: str, policy: DecodePolicy) -> ImageSource:
    """Open a folder or file, or all that match a pattern if there is none of this name."""
    path = Path(text)
    try:
        mode = path.stat().st_mode if text else 0
    except (OSError, ValueError):  # such as a name that is too long or contains a NUL
        mode = 0
    if not mode:
        several = expand(text)
        if several is None:
            raise path_not_found(text)
        return _open_several(several, text, name, policy)
    if stat.S_ISDIR(mode):
        try:
            return open_folder(path, name, arrays=policy.reads_values)
        except DataError as error:
            raise (error.code == "no-images" and unread_container(path, walk_files(path))) or error from None
    is_regular, suffix = stat.S_ISREG(mode), suffix_of(str(path))
    if suffix in _UNSAFE_SUFFIXES and is_regular:
        text = f"{path}: {suffix} files can execute code when they are loaded, so genpr does not load them; save images as .npz"
        raise ResourceError(text, code="unsafe-format", path=str(path))
    if suffix in ARRAY_SUFFIXES and is_regular:
        return open_array_file(path, name, policy)
    if suffix in _FILE_READERS and is_regular:
        return _FILE_READERS[suffix](path, name)
    if is_regular and not _is_image(path) and (unread := unread_container(path)) is not None:
        raise unread
    kind = "a single image" if _is_image(path) else f"of unknown kind ({suffix or 'no suffix'})"
    if not is_regular:  # reading a pipe or a device may block
        kind = "neither a folder nor a regular file"
    raise UsageError(f"{path} is {kind}; needed is {_ACCEPTED}", code="source-kind", path=str(path))


def _open_list(path: Path, name: str) -> FileSource:
    """Read a list of paths relative to its folder, one per line or separated by NUL characters.

    Blanks are part of a path, and there are no comments. `..` and absolute paths are allowed.
    """
    with reraise_corrupt(path, "list of files", code="list-damaged"), open_regular(path) as file:
        data = read_bytes(file, TEXT_BYTES, name=name, what="a list of files", code="list-damaged")
    if image_format(data[:64]) is not None:
        text = f"{name} is a single image, not a list of files; give a folder of images"
        raise UsageError(text, code="source-kind", path=name)
    data = data.removeprefix(_BYTE_ORDER_MARK)
    lines = data.split(b"\0") if b"\0" in data else (line.removesuffix(b"\r") for line in data.split(b"\n"))
    paths = tuple(os.fsdecode(line) for line in lines if line)
    if not paths:
        raise DataError(f"{name} has no images (the list is empty)", code="no-images", path=name)
    return FileSource(name, paths, str, partial(read_file, path.parent))


_FILE_READERS: dict[str, Callable[[Path, str], ImageSource]] = {
    ".parquet": open_parquet,
    ".zip": open_zip,
    ".tar": open_tar,
    ".txt": _open_list,
}
_ACCEPTED = f"a folder of images, or a file with one of {', '.join((*_FILE_READERS, *ARRAY_SUFFIXES))} (.txt: a list of files)"


def _kind_of(path: Path) -> str:
    """Folder, image, or the suffix that selects the reader."""
    if path.is_dir():
        return "folder"
    return _IMAGE if _is_image(path) else suffix_of(str(path)) or "no suffix"


def _is_image(path: Path) -> bool:
    """Whether a file that the user names is an image; it may be hidden."""
    return is_image(path.name.lstrip("."), partial(read_start, path.parent, path.name))


def subset(source: ImageSource, max_images: int, seed: int) -> ImageSource:
    """A random subset of a source, in source order (see `choose_rows`); the first images if its length is unknown.

    The first images of sorted class folders would all be of one class. Other images are never read.
    """
    total = known_length(source)
    if total is None:
        return _TakeSource(source.name, source, max_images)
    chosen = choose_rows(total, max_images, seed)
    return source if len(chosen) == total else SubsetSource(source.name, source, tuple(chosen.tolist()))


def choose_rows(total: int, max_rows: int, seed: int) -> NDArray[np.int64]:
    """Choose at most `max_rows` of `total` rows at random, without replacement, as sorted row numbers.

    Row i gets output i of the PCG64 generator seeded with `seed`, and the rows with the smallest outputs are chosen. So the
    choice is the same on every machine, and a larger choice with the same seed contains a smaller one.
    """
    draws = np.random.PCG64(seed).random_raw(total)
    return np.sort(np.argsort(draws, kind="stable")[:max_rows])


@dataclass(frozen=True)
class _TakeSource(ImageSource):
    """The first images of a source of unknown length."""

    name: str
    source: ImageSource
    count: int

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Item]:
        return islice(self.source, self.count)
