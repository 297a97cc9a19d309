"""Labels as they were found, and which image each belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from genpr.errors import DataError
from genpr.images.item import printable, short, some
from genpr.images.joined import SHARD_SUFFIXES
from genpr.images.naming import known_as, plain_path

__all__ = ["FolderLabels", "Label", "Labels", "NamedLabels", "RowLabels", "named", "short", "some"]

Label = str | None
"""The class of one image; None where it has none."""


@dataclass(frozen=True)
class FolderLabels:
    """The class of an image is the folder that it lies in, below the folders that all images share."""

    origin: str = "sub-folders"

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
        """One label per image; None for those beside the folders of the others."""
        folders = [_folders(name) for name in names]
        shared = _shared(folders)
        if folders and all(len(folder) == shared for folder in folders):
            shared = max(0, shared - 1)  # all in one folder, which is then the one class
        return [folder[shared] if len(folder) > shared else None for folder in folders]


def _folders(name: str) -> tuple[str, ...]:
    """The folders that an image lies in; a shard is none, and within it they begin anew."""
    parts = PurePosixPath(name.replace("\\", "/")).parts[:-1]
    shards = [place for place, part in enumerate(parts, 1) if part.lower().endswith(SHARD_SUFFIXES)]
    return parts[shards[-1] :] if shards else parts


def _shared(folders: Sequence[tuple[str, ...]]) -> int:
    """How many leading folders are the same for all."""
    if not folders:
        return 0
    first, last = min(folders), max(folders)
    pairs = enumerate(zip(first, last, strict=False))
    return next((depth for depth, (a, b) in pairs if a != b), min(len(first), len(last)))


@dataclass(frozen=True)
class NamedLabels:
    """A class by the name of each image.

    Attributes:
        by_name: With POSIX separators, relative to the source.
        origin: Where they come from, for people.
    """

    by_name: Mapping[str, str]
    origin: str

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
        """One label per image: by relative path, or by file name where the labels name no folders and files differ.

        Raises:
            DataError: They name none of the images ("labels-match-nothing").
        """
        found = [self.by_name.get(name) for name in known_as(names, self.by_name)]
        if names and all(label is None for label in found):
            theirs = next(iter(self.by_name), "nothing")
            raise DataError(
                f"{printable(self.origin)} names none of the {len(names):,} images: it has {short(theirs)!r}, they are "
                f"called {short(names[0])!r}; names must be relative to the source",
                code="labels-match-nothing",
                path=self.origin,
            )
        return found


@dataclass(frozen=True)
class RowLabels:
    """A class for each image in the order of the source, whether it was used or not."""

    labels: tuple[Label, ...]
    origin: str

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
        """One label per image, by its place in the source.

        Raises:
            DataError: There are more or fewer labels than images in the source ("label-count").
        """
        needed = total if total is not None else max(rows, default=-1) + 1
        is_wrong = len(self.labels) != needed if total is not None else len(self.labels) < needed
        if is_wrong:
            raise DataError(
                f"{printable(self.origin)} holds {len(self.labels):,} labels, but there are {needed:,} images, such as "
                f"{short(names[0] if names else 'none')!r}; needed is one label for each, in their order",
                code="label-count",
                path=self.origin,
            )
        return [self.labels[row] for row in rows]


Labels = FolderLabels | NamedLabels | RowLabels
"""Labels of one side."""


def named(pairs: Iterable[tuple[str, str]], origin: str) -> NamedLabels:
    """Labels by name; empty ones are none.

    Raises:
        DataError: One name has two classes ("label-conflict").
    """
    by_name: dict[str, str] = {}
    for raw, label in pairs:
        name = plain_path(raw)
        if label and by_name.setdefault(name, label) != label:
            raise DataError(
                f"{printable(origin)} gives {short(name)!r} two labels, {short(by_name[name])!r} and {short(label)!r}; "
                "each image is of one class",
                code="label-conflict",
                path=origin,
            )
    return NamedLabels(by_name, origin)
