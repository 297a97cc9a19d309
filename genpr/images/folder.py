"""Image files that are read one by one: those of a folder, and what folders, lists and archives share."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from genpr.errors import DataError, ImageError
from genpr.images.formats import START
from genpr.images.item import (
    IndexedSource,
    Item,
    check_encoded_size,
    count_suffixes,
    filter_images,
    is_image,
    unreadable_error,
)
from genpr.storage import open_regular

_are_followed: ContextVar[bool] = ContextVar("genpr_links_are_followed", default=False)
T = TypeVar("T")


@dataclass(frozen=True)
class MemberSource(IndexedSource, Generic[T]):
    """Files of a folder, list or archive, each read by itself from any thread; `passed_over` counts the other files."""

    is_in_files = True

    name: str
    members: Sequence[T]
    name_of: Callable[[T], str]
    read: Callable[[T], bytes]
    passed_over: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.members)

    def select(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; others are not read."""
        for index in indices:
            member = self.members[index]
            yield Item(self.name_of(member), partial(self.read, member))

    def names(self) -> Iterator[str]:
        """Names of the members."""
        return map(self.name_of, map(self.members.__getitem__, range(len(self))))


class FileSource(MemberSource[str]):
    """Image files at paths that are relative to a folder; a missing file is an unreadable image."""


def open_folder(root: Path, name: str, *, arrays: bool = False) -> FileSource:
    """List the images below `root`, ordered by the bytes of their relative POSIX paths.

    Links to files are followed, links to folders only after `follow_links`. Hidden folders are left out. A broken link is
    listed, so that the missing image is reported. With `arrays`, each .npy file is an image, too.
    """
    others = Counter[str]()
    more = {".npy"} if arrays else set[str]()
    images = filter_images(walk_files(root, others), str, partial(read_start, root), name, others, more)
    paths = tuple(sorted(images, key=os.fsencode))
    return FileSource(name, paths, str, partial(read_file, root), count_suffixes(others))


def has_images(root: Path) -> bool:
    """Whether a folder has a file that counts as an image."""
    return any(is_image(name, partial(read_start, root, name)) for name in walk_files(root))


def read_start(folder: Path, path: str) -> bytes:
    """The first bytes of a file whose path is relative to a folder."""
    with open_regular(folder / path) as file:
        return file.read(START)


def follow_links() -> None:
    """Follow links to folders from now on, in this context of `contextvars`."""
    _are_followed.set(True)


def walk_files(root: Path, others: Counter[str] | None = None) -> Iterator[str]:
    """Relative POSIX paths of all visible files below `root`, in no particular order.

    If links to folders are followed, each folder is listed once, under its path without links or else the first path.
    Hidden files and links that are not followed are counted in `others`.
    """
    others = Counter() if others is None else others
    follows = _are_followed.get()
    pending, links, visited = [""], list[str](), set[tuple[int, int]]()
    while pending or links:
        if not pending:
            links.sort(key=os.fsencode, reverse=True)
            pending.append(links.pop())
        prefix = pending.pop()
        try:
            if follows:
                status = (root / prefix).stat()
                if (status.st_dev, status.st_ino) in visited:
                    continue
                visited.add((status.st_dev, status.st_ino))
            with os.scandir(root / prefix) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        if not entry.is_dir(follow_symlinks=False):
                            others["hidden"] += 1
                        continue
                    member = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(member + "/")
                    elif follows and os.path.isdir(entry.path):  # noqa: PTH112 - a link to itself leads to nothing
                        links.append(member + "/")
                    elif entry.is_file(follow_symlinks=False) or _may_lead_to_file(entry):
                        yield member
                    elif entry.is_symlink():
                        others["link"] += 1
        except OSError as error:
            text = f"{root / prefix}: the folder cannot be listed ({error.strerror}), so its images would be missing"
            raise DataError(text, code="unreadable", path=str(root / prefix)) from error


def _may_lead_to_file(entry: os.DirEntry[str]) -> bool:
    """True for links to regular files and broken links; not for pipes and devices, which may block."""
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


def read_file(folder: Path, path: str, name: str | None = None) -> bytes:
    """The bytes of a file whose path is relative to a folder; `name` is its name in messages."""
    name = path if name is None else name
    try:
        with open_regular(folder / path) as file:
            size = file.seek(0, os.SEEK_END)
            check_encoded_size(name, size)
            file.seek(0)
            data = file.read(size + 1)
    except ImageError:
        raise
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        raise unreadable_error(name, getattr(error, "strerror", error)) from error
    if len(data) > size:
        raise unreadable_error(name, "it grew while it was read")
    return data
