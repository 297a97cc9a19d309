"""Files of a source that are no images: counted, a few of them named, and none kept."""

from __future__ import annotations

import logging
from bisect import insort
from collections import Counter
from collections.abc import Iterable

from genpr.errors import DataError, short
from genpr.images.item import IMAGE_SUFFIXES, printable, suffix_of

_MOST_NAMES = 20
_MOST_SUFFIXES = 1000  # different ones; what comes after these is hostile, or no suffix
_CONTAINERS = (".tar", ".zip", ".npz", ".arrow")
_log = logging.getLogger(__name__)


class OtherFiles:
    """How many files are no images by their name, with which suffixes, and the first of them in order."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.suffixes: Counter[str] = Counter()
        self.first: list[str] = []
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Count one."""
        suffix = suffix_of(name) or "none"
        self.suffixes[
            suffix if suffix in self.suffixes or len(self.suffixes) < _MOST_SUFFIXES else "others"
        ] += 1
        if len(self.first) < _MOST_NAMES:
            insort(self.first, name)
        elif name < self.first[-1]:
            insort(self.first, name)
            self.first.pop()

    @property
    def count(self) -> int:
        """How many there are."""
        return self.suffixes.total()


def no_images(name: str, others: OtherFiles) -> DataError:
    """The error for a source without images, telling what was found instead."""
    total = others.count
    if total:
        commonest = sorted(others.suffixes.items(), key=lambda entry: (-entry[1], entry[0]))[:5]
        shown = ", ".join(f"{short(suffix)} ({count})" for suffix, count in commonest)
        found = f"{total} other file{'s' * (total > 1)}, suffixes: {shown}"
        if commonest[0][0] == ".npy":
            found += "; arrays, such as the latents of a data set, are no pixels: decode them first"
        container = next((suffix for suffix, _ in commonest if suffix in _CONTAINERS), None)
        found += f"; for what is in them say '*{container}' behind the folder, in quotes" if container else ""
    else:
        found = "it is empty"
    return DataError(
        f"{printable(name)} has no images ({found}); accepted are {', '.join(IMAGE_SUFFIXES)}",
        code="no-images",
        path=name,
    )


def log_others(name: str, others: OtherFiles) -> None:
    """Say, where anybody listens, which files of a source are no images by their suffix; some of them by name."""
    if others.count:
        shown = ", ".join(short(other, 200) for other in others.first)
        more = f" and {others.count - len(others.first):,} more" if others.count > len(others.first) else ""
        _log.info("%s: %d other files are left out: %s%s", printable(name), others.count, shown, more)
