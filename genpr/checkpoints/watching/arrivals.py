"""Samples that appear in a folder while something else writes them: what is there, and what is finished.

Nobody says when a folder or file is complete. So a source counts as finished when nothing about it has changed for a
while: no name, size or time of modification of any file in it; or, for folders, when a file of an agreed name is in it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from genpr.images.folder import is_new, links_are_followed
from genpr.images.item import is_image_name

SourceOf = Callable[[Path], object]
"""From a path that was found to what `Evaluator.score` takes, or None for what is no sample; has to be quick."""

SAMPLE_SUFFIXES = (
    *(".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tbz2", ".tar.xz", ".txz"),
    *(".npz", ".npy", ".safetensors", ".parquet"),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that may be scored.

    Attributes:
        path: Where it is.
        source: What to score.
        listing: sha256 over the names, sizes and times of modification of all files in it.
        is_marked: Of a folder, whether the file that says it is complete is in it; None where no such file is agreed on.
    """

    path: Path
    source: object
    listing: str
    is_marked: bool | None = None

    @property
    def name(self) -> str:
        """What it is called in the folder that is watched."""
        return self.path.name


def samples_at(path: Path) -> str | None:
    """The path of a folder, an archive, an .npz or a feature file, as it is; None for anything else, pipes and devices among it."""
    is_sample = path.is_dir() or (path.is_file() and path.name.lower().endswith(SAMPLE_SUFFIXES))
    return str(path) if is_sample else None


def natural_order(name: str) -> tuple[list[str | int], str]:
    """A key that puts epoch_2 before epoch_10."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if position % 2 else part for position, part in enumerate(parts)], name


def look(
    folder: Path,
    *,
    source_of: SourceOf = samples_at,
    done_file: str | None = None,
    passed_over: Callable[[str], bool] = lambda _name: False,
    ignored: Collection[Path] = (),
) -> list[Arrival]:
    """What is in `folder` now, in natural order; folders without any image are left out.

    Args:
        folder: The folder that is watched.
        source_of: What is a sample, and how it is read.
        done_file: Name of the file that marks a complete folder.
        passed_over: Names that need not be looked at, such as those that have a score; spares reading large folders.
        ignored: Files and folders that are no samples, such as the reals.

    Raises:
        OSError: `folder` cannot be listed.
    """
    names = [entry.name for entry in os.scandir(folder) if not entry.name.startswith(".")]
    arrivals = []
    for name in sorted(names, key=natural_order):
        path = folder / name
        if passed_over(name) or any(_is_same(path, other) for other in ignored):
            continue
        arrival = arrival_at(path, source_of=source_of, done_file=done_file)
        if arrival is not None:
            arrivals.append(arrival)
    return arrivals


def arrival_at(
    path: Path, *, source_of: SourceOf = samples_at, done_file: str | None = None
) -> Arrival | None:
    """One entry of a folder that is watched; None if it is no sample, holds no image yet or has gone."""
    source = source_of(path)
    if source is None:
        return None
    try:
        files = sorted(_files(path))
    except (FileNotFoundError, NotADirectoryError):
        return None  # moved away meanwhile
    is_marked = (path / done_file).exists() if done_file is not None and path.is_dir() else None
    if path.is_dir() and not is_marked and not any(is_image_name(name) for name, *_ in files):
        return None
    return Arrival(path, source, hashlib.sha256(repr(files).encode()).hexdigest(), is_marked)


class Settling:
    """Since when nothing about a source has changed, as far as was seen.

    Args:
        seconds: How long it has to stay as it is.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, tuple[str, float]] = {}

    def is_over(self, arrival: Arrival, now: float) -> bool:
        """Whether it can be taken as complete; to be asked at every look."""
        listing, since = self._since.get(arrival.name, ("", now))
        if listing != arrival.listing:
            since = now
        self._since[arrival.name] = (arrival.listing, since)
        return now - since >= self._seconds if arrival.is_marked is None else arrival.is_marked

    def begin_again(self, arrival: Arrival, now: float) -> None:
        """It was found to change after all."""
        self._since[arrival.name] = ("", now)


def _files(path: Path) -> Iterator[tuple[str, int, int]]:
    """(relative name, size, time of modification) of a file, or of all visible files below a folder."""
    if not path.is_dir():
        yield "", *_facts(path)
        return
    pending, visited = [""], set[tuple[int, int]]()
    while pending:
        prefix = pending.pop()
        if links_are_followed() and not is_new(path / prefix, visited):
            continue
        try:
            names = sorted(entry.name for entry in os.scandir(path / prefix))
        except PermissionError:
            yield prefix, -1, -1  # scoring it will say so
            continue
        for name in names:
            member = prefix + name
            if name.startswith("."):
                continue
            if (path / member).is_dir() and (links_are_followed() or not (path / member).is_symlink()):
                pending.append(member + "/")
            else:
                yield member, *_facts(path / member)


def _facts(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except PermissionError:
        return -1, -1
    except FileNotFoundError:
        if path.is_symlink():
            return -1, -1  # a link to nothing is an image that is missing
        raise
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (0, 0)


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
