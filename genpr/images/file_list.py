"""Lists of files: one path a line in a text file, or on standard input, in the order in which they stand there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Protocol, TextIO

from genpr.errors import DataError, UsageError
from genpr.images.damage import damage_reported
from genpr.images.folder import read_file
from genpr.images.item import ImageSource, Item, printable
from genpr.images.sniff import image_format
from genpr.limits import TEXT_BYTES, check_lines, read_bytes
from genpr.runtime import is_launched
from genpr.storage import open_regular

STDIN = "-"
_STDIN_NAME = "<stdin>"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Communicator(Protocol):
    """The processes that read one source together, as far as standard input needs them; see `genpr.distributed`."""

    @property
    def is_single_process(self) -> bool:
        """Whether there are no other processes."""

    def broadcast_from_rank0(self, compute: Callable[[], str]) -> str:
        """The result of `compute`, which is called on rank 0 only."""


@dataclass(frozen=True)
class ListSource(ImageSource):
    """The images that a list names, in its order; one that is not there is an image that cannot be read.

    Attributes:
        name: The list, as the user wrote it.
        root: The folder that paths are relative to.
        paths: As they stand in the list, relative or not.
        is_stdin: Whether the list came on standard input.
    """

    name: str
    root: Path
    paths: tuple[str, ...]
    is_stdin: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Item]:
        return self.pick(range(len(self)))

    def pick(self, places: Iterable[int]) -> Iterator[Item]:
        """The images at some places; others are not looked at."""
        for place in places:
            path = self.paths[place]
            yield Item(path, partial(_read, self.root, path))

    def names(self) -> Iterator[str]:
        """Paths as they stand in the list."""
        return iter(self.paths)


def open_list(path: Path, name: str) -> ListSource:
    """Read a list of paths, which are relative to its folder: a line each, or with a NUL behind each.

    Nothing in a line is special but its end: blanks belong to the path, and there are no comments. `..` and absolute
    paths are what whoever wrote the list wants.

    Raises:
        UsageError: It is an image ("source-kind").
        DataError: It cannot be read, is too long, or names nothing ("no-images").
    """
    with damage_reported(path, "list of files", code="list-damaged"), open_regular(path) as file:
        data = _all_of(file, name)
    kind = image_format(data[:64])
    if kind is not None:
        raise UsageError(
            f"{printable(name)} is a single image ({kind}) and no list of files; give a folder of images",
            code="source-kind",
            path=name,
        )
    return ListSource(name, path.parent, _paths_in(data, name))


def open_stdin_list(name: str, communicator: Communicator | None = None) -> ListSource:
    """The same from standard input, with paths relative to the working folder; it is read once by a process.

    Args:
        name: What to call it in messages.
        communicator: The processes that read the list together; None for this one alone.

    Raises:
        UsageError: Nothing is piped into standard input ("no-stdin"), or many processes would share it ("stdin-ranks").
        DataError: As `open_list`.
    """
    is_shared = communicator is not None and not communicator.is_single_process
    if is_launched() and not is_shared and not _piped.cache_info().currsize:
        raise UsageError(
            "- is a list on standard input, which torchrun's processes would tear apart outside of genpr.all_ranks(); write it "
            "to a .txt file",
            code="stdin-ranks",
            path=STDIN,
        )
    if communicator is None:
        data = _from_stdin()
    else:  # as JSON, which takes bytes as Latin-1
        data = communicator.broadcast_from_rank0(lambda: _from_stdin().decode("latin-1")).encode("latin-1")
    name = _STDIN_NAME if name == STDIN else name
    return ListSource(name, Path(), _paths_in(data, name), is_stdin=True)


def _from_stdin() -> bytes:
    stream = sys.stdin
    if stream is None or stream.closed or stream.isatty():
        raise UsageError(
            "- is a list of files on standard input, and nothing is piped into it; as in: find . -name '*.png' | genpr ...",
            code="no-stdin",
            path=STDIN,
        )
    return _piped(stream)


@lru_cache(maxsize=1)
def _piped(stream: TextIO) -> bytes:
    """What is piped in, kept: a score looks at its sources more than once."""
    return _all_of(stream.buffer, _STDIN_NAME)


def _all_of(file: IO[bytes], name: str) -> bytes:
    data = read_bytes(file, TEXT_BYTES, name=name, what="a list of files", code="list-damaged")
    try:
        check_lines(data)
    except ValueError as error:
        raise DataError(
            f"{printable(name)} is too long for a list of files: {error}", code="list-damaged", path=name
        ) from error
    return data


def _paths_in(data: bytes, name: str) -> tuple[str, ...]:
    data = data.removeprefix(_BYTE_ORDER_MARK)
    lines = data.split(b"\0") if b"\0" in data else (line.removesuffix(b"\r") for line in data.split(b"\n"))
    paths = tuple(os.fsdecode(line) for line in lines if line)
    if not paths:
        raise DataError(f"{printable(name)} has no images (the list is empty)", code="no-images", path=name)
    return paths


def _read(root: Path, path: str) -> bytes:
    return read_file(root / path, path)
