"""Several containers as one source, one after another: the shards that a pattern names, or a folder of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from genpr.errors import ImageError
from genpr.images.item import ImageData, ImageSource, Item, printable


@dataclass(frozen=True)
class JoinedSource(ImageSource):
    """The images of several sources, in the order of these.

    Attributes:
        name: What names them all, as the user wrote it.
        parts: The sources.
        prefixes: What each is called in front of the names of its images, with "/" at its end.
    """

    name: str
    parts: tuple[ImageSource, ...]
    prefixes: tuple[str, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Item]:
        for prefix, part in zip(self.prefixes, self.parts, strict=True):
            for item in part:
                yield Item(prefix + item.name, partial(_read, item.read, prefix))


def joined(name: str, paths: Sequence[Path], open_part: Callable[[Path], ImageSource]) -> JoinedSource:
    """Open several containers, whose images are called by the paths of these below the folder that all share.

    Raises:
        DataError: One of them is damaged, or holds no images.
    """
    parts = tuple(open_part(path) for path in paths)
    return JoinedSource(name, parts, tuple(f"{each}/" for each in short_names(paths)))


def short_names(paths: Sequence[Path]) -> list[str]:
    """POSIX paths relative to the folder that all share."""
    shared = os.path.commonpath([path.parent for path in paths])
    return [path.relative_to(shared).as_posix() if shared else path.as_posix() for path in paths]


def _read(read: Callable[[], ImageData], prefix: str) -> ImageData:
    try:
        return read()
    except ImageError as error:  # it names the image as its own container does
        raise ImageError(
            f"{printable(prefix)}{error}", code=error.code, path=f"{prefix}{error.path}"
        ) from error
