"""A folder of images, nested as deep as it likes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from genpr.errors import DataError, ImageError, ResourceError
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    is_image_name,
    printable,
    too_large_to_read,
    unreadable,
)
from genpr.images.others import OtherFiles, log_others, no_images
from genpr.storage import open_regular


@dataclass(frozen=True)
class FolderSource(ImageSource):
    """The images below a folder, ordered by the bytes of their relative POSIX paths.

    Attributes:
        name: The folder as the user wrote it.
        root: The folder.
        members: Relative POSIX paths, sorted.
    """

    name: str
    root: Path
    members: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Item]:
        for member in self.members:
            yield Item(member, partial(_read, self.root, member))

    def names(self) -> Iterator[str]:
        """Relative paths."""
        return iter(self.members)


def open_folder(root: Path, name: str, *, follow_symlinks: bool = False) -> FolderSource:
    """List the images below `root`.

    Links to files are followed. Links to folders are not, unless told to; then each folder counts once, however many
    ways lead to it, under the path without links or else the first in order. Hidden files and folders are left out. A
    link to nothing is listed: that an image is missing must be told.

    Raises:
        DataError: There are no images, or a folder below `root` cannot be listed.
    """
    images: list[str] = []
    others = OtherFiles()
    for member in walk_files(root, follow_symlinks=follow_symlinks):
        (images.append if is_image_name(member) else others.add)(member)
    if not images:
        raise no_images(name, others)
    log_others(name, others)
    return FolderSource(name, root, tuple(sorted(images, key=os.fsencode)))


_are_followed: ContextVar[bool] = ContextVar("genpr_links_are_followed", default=False)


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
    follow_symlinks = follow_symlinks or links_are_followed()
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
                    elif _may_be_file(entry):
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
    place = status.st_dev, status.st_ino
    if place in visited:
        return False
    visited.add(place)
    return True


def _is_linked_folder(entry: os.DirEntry[str]) -> bool:
    """A link that leads to itself leads to nothing, as a broken one does."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Regular files, links to them and broken links; not pipes and devices, whose reading may never end."""
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


def _read(root: Path, member: str) -> bytes:
    return read_file(root / member, member)


def read_file(path: Path, name: str) -> bytes:
    """The bytes of a file.

    Raises:
        ImageError: It cannot be read, or is too large to be an image.
    """
    try:
        with open_regular(path) as file:
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
