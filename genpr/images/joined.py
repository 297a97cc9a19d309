"""Several containers as one source, one after another: the shards that a pattern names, or a folder of them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, groupby
from pathlib import Path

from genpr.errors import ImageError
from genpr.images.item import ImageData, ImageSource, Item, StatedLabels, printable

SHARD_SUFFIXES = (
    ".zip",
    ".tar",
    ".tar.gz",
    ".tgz",
    ".tar.bz2",
    ".tbz",
    ".tbz2",
    ".tar.xz",
    ".txz",
    ".parquet",
    ".arrow",
)
"""Of containers whose own names tell nothing of what is in them."""


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
            yield from _prefixed(part, prefix)

    def pick(self, places: Iterable[int]) -> Iterator[Item]:
        """The images at some places, ascending; parts without any are not looked into."""
        ends = list(accumulate(map(len, self.parts)))
        for at, group in groupby(places, key=partial(bisect_right, ends)):
            start = ends[at] - len(self.parts[at])
            yield from _prefixed(self.parts[at].pick(place - start for place in group), self.prefixes[at])

    def names(self) -> Iterator[str] | None:
        """What the images are called, if all parts know."""
        known = [part.names() for part in self.parts]
        found = [names for names in known if names is not None]
        if len(found) < len(known):
            return None
        pairs = zip(self.prefixes, found, strict=True)
        return (prefix + name for prefix, names in pairs for name in names)

    def stated_labels(self) -> StatedLabels | None:
        """The classes that the parts state; those without any have images without a class."""
        stated = [part.stated_labels() for part in self.parts]
        origins = [each.origin for each in stated if each is not None]
        if not origins:
            return None
        both = zip(stated, self.parts, strict=True)
        labels = [[None] * len(part) if each is None else each.labels for each, part in both]
        more = f" and {len(origins) - 1:,} more" if len(origins) > 1 else ""
        return StatedLabels(list(chain.from_iterable(labels)), origins[0] + more)


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


def _prefixed(items: Iterable[Item], prefix: str) -> Iterator[Item]:
    for item in items:
        yield Item(prefix + item.name, partial(_read, item.read, prefix))


def _read(read: Callable[[], ImageData], prefix: str) -> ImageData:
    try:
        return read()
    except ImageError as error:  # it names the image as its own container does
        raise ImageError(
            f"{printable(prefix)}{error}", code=error.code, path=f"{prefix}{error.path}"
        ) from error
