"""Image files: all below a folder, or those that a list names."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Protocol, TextIO

from genpr.errors import DataError, ImageError, ResourceError, UsageError, printable
from genpr.images.archive import damage_reported
from genpr.images.formats import image_format
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    OtherFiles,
    is_image_name,
    too_large_to_read,
    unreadable,
)
from genpr.images.paths import STDIN
from genpr.limits import TEXT_BYTES, check_lines, read_bytes
from genpr.runtime import is_launched
from genpr.storage import open_regular

_are_followed: ContextVar[bool] = ContextVar("genpr_links_are_followed", default=False)
_STDIN_NAME = "<stdin>"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class FileSource(ImageSource):
    """Image files below a folder or from a list; one that is not there is an image that cannot be read.

    Attributes:
        name: The folder or list, as the user wrote it.
        root: The folder that paths are relative to.
        paths: Of the images, in their order.
        is_stdin: Whether they came as a list on standard input.
    """

    name: str
    root: Path
    paths: tuple[str, ...]
    is_stdin: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Item]:
        return self.pick(range(len(self)))

    def pick(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; the others are not touched."""
        for index in indices:
            path = self.paths[index]
            yield Item(path, partial(read_file, self.root, path))

    def names(self) -> Iterator[str]:
        """Paths."""
        return iter(self.paths)


def open_folder(root: Path, name: str, *, follow_symlinks: bool = False) -> FileSource:
    """List the images below `root`, ordered by the bytes of their relative POSIX paths.

    Links to files are followed. Links to folders are not, unless `follow_symlinks` is set; then each folder counts once,
    however many ways lead to it, under the path without links or else the first in order. Hidden files and folders are
    left out. A link to nothing is listed: that an image is missing must be reported.

    Raises:
        DataError: There are no images, or a folder below `root` cannot be listed.
    """
    images: list[str] = []
    others = OtherFiles()
    for member in walk_files(root, follow_symlinks=follow_symlinks):
        if is_image_name(member):
            images.append(member)
        else:
            others.add(member)
    others.report(name, n_images=len(images))
    return FileSource(name, root, tuple(sorted(images, key=os.fsencode)))


def follow_links() -> None:
    """Look into linked folders wherever a folder is listed from now on, in this context of `contextvars`."""
    _are_followed.set(True)


def links_are_followed() -> bool:
    """Whether `follow_links` was called."""
    return _are_followed.get()


def walk_files(root: Path, *, follow_symlinks: bool = False) -> Iterator[str]:
    """Relative POSIX paths of all visible files below `root`, in no particular order.

    Linked folders are looked into if `follow_symlinks` says so, or `follow_links` was called.

    Folders before links to folders, and these in order: so the paths do not hang on the order of entries.
    """
    follow_symlinks = follow_symlinks or _are_followed.get()
    pending, links, visited = [""], list[str](), set[tuple[int, int]]()
    while pending or links:
        if not pending:
            links.sort(key=os.fsencode, reverse=True)
            pending.append(links.pop())
        prefix = pending.pop()
        try:
            if follow_symlinks and not is_new(root / prefix, visited):
                continue
            with os.scandir(root / prefix) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    member = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(member + "/")
                    elif follow_symlinks and _is_linked_folder(entry):
                        links.append(member + "/")
                    elif entry.is_file(follow_symlinks=False) or _may_lead_to_file(entry):
                        yield member
        except OSError as error:
            folder = str(root / prefix)
            raise DataError(
                f"{printable(folder)}: the folder cannot be listed ({error.strerror}), "
                "so its images would be missing",
                code="unreadable",
                path=folder,
            ) from error


def is_new(folder: Path, visited: set[tuple[int, int]]) -> bool:
    """Whether a folder was not among those visited, where it is from now on."""
    status = folder.stat()
    identity = status.st_dev, status.st_ino
    if identity in visited:
        return False
    visited.add(identity)
    return True


def _is_linked_folder(entry: os.DirEntry[str]) -> bool:
    """A link that leads to itself leads to nothing, as a broken one does."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _may_lead_to_file(entry: os.DirEntry[str]) -> bool:
    """Links to regular files and broken links; not pipes and devices, whose reading may never end."""
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


def read_file(folder: Path, path: str, name: str | None = None) -> bytes:
    """The bytes of a file.

    Args:
        folder: What `path` is relative to.
        path: The file, relative or not.
        name: What to call it in messages; the path by default.

    Raises:
        ImageError: It cannot be read, or is too large to be an image.
    """
    name = path if name is None else name
    try:
        with open_regular(folder / path) as file:
            size = file.seek(0, os.SEEK_END)
            if size > MAX_ENCODED_BYTES:
                raise too_large_to_read(name, size)
            file.seek(0)
            data = file.read(size + 1)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # the file may be right
            raise ResourceError(
                f"{printable(name)} cannot be opened ({error.strerror}); allow this process more open files (ulimit -n)",
                code="system",
                path=name,
            ) from error
        raise unreadable(name, error.strerror) from error
    except ImageError:
        raise
    except ValueError as error:  # a NUL in the path
        raise unreadable(name, error) from error
    if len(data) > size:
        raise unreadable(name, "it grew while it was read")
    return data


class Communicator(Protocol):
    """The processes that read one source together, as far as standard input needs them; see `genpr.distributed`."""

    @property
    def is_single_process(self) -> bool:
        """Whether there are no other processes."""

    def broadcast_from_rank0(self, compute: Callable[[], str]) -> str:
        """The result of `compute`, which is called on rank 0 only."""


def open_list(path: Path, name: str) -> FileSource:
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
    return FileSource(name, path.parent, _paths_in(data, name))


def open_stdin_list(name: str, communicator: Communicator | None = None) -> FileSource:
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
    return FileSource(name, Path(), _paths_in(data, name), is_stdin=True)


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
