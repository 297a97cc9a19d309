"""Score samples while a training run writes them to a folder, each once, when it is complete.

A source is complete when the names, sizes and modification times of its files have not changed for a while.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.checkpoints.score_log import Record, ScoreLog, readable, scored_record, settings_of
from genpr.errors import DataError, ResourceError, UsageError, some
from genpr.images.datasets import CountedBatches
from genpr.images.folder import has_images, walk_files
from genpr.images.formats import ARRAY_SUFFIXES, SHARD_SUFFIXES
from genpr.storage import check_outside
from genpr.validation import check_count, check_seconds

if TYPE_CHECKING:
    from genpr.evaluation.evaluator import Evaluator
    from genpr.evaluation.result import Result

SourceOf = Callable[[Path], object]
"""From a path to a source for `Evaluator.score`, or None if it is not a sample; called at every poll."""

SAMPLE_SUFFIXES = (*SHARD_SUFFIXES, *ARRAY_SUFFIXES, ".safetensors")
_RETRY_S = 600.0  # after a failure, until an unchanged source is tried again


@dataclass(frozen=True, slots=True)
class PendingSource:
    """A source that is scored when it is complete."""

    name: str  # in the watched folder, as it is in the log
    path: Path
    source: object
    listing: str


def samples_at(path: Path) -> str | None:
    """The path of a folder, an archive, an .npz or a feature file; None for anything else, such as pipes and devices."""
    is_sample = path.is_dir() or (path.is_file() and path.name.lower().endswith(SAMPLE_SUFFIXES))
    return str(path) if is_sample else None


def check_folder(folder: Path) -> None:
    """Check that the folder exists."""
    if not folder.is_dir():
        text = f"there is no folder {folder} to watch; check the path, or create the folder first"
        raise UsageError(text, code="path-not-found", path=str(folder))


def listing_of(path: Path) -> str:
    """Hash of the names, sizes and modification times of a file, or of the visible files in a folder."""
    digest = hashlib.sha256()
    files = {name: path / name for name in sorted(walk_files(path))} if path.is_dir() else {path.name: path}
    for name, file in files.items():
        try:
            status = file.stat()
            facts = f"{status.st_size}\0{status.st_mtime_ns}"
        except OSError:
            facts = "unreadable"  # scoring reports the reason
        digest.update(f"{name}\0{facts}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class Watcher:
    """Scores the sources that appear in a folder, and writes the scores to a log.

    A source with a score is not scored again, in this process or another. A source that fails is tried again when it changes,
    every 10 minutes, and by the next process, since it may be incomplete, or the disk may have failed.

    Args:
        evaluator: Scores one source; its real side is fitted once.
        folder: Folder of the samples: folders of images, archives, .npz or feature files, or other files that `source_of`
            accepts.
        log: Log of the scores.
        settle: A source is complete once it has not changed for this many seconds.
        ignored: Files and folders that are not scored, such as the real images.
        source_of: Selects the entries of `folder` that are scored, and opens them.
        on_message: Called with one line about events other than scores.
        on_record: Called with each new record and its result.
        clock: Returns monotonic seconds.
        sleep: Waits for a number of seconds.

    Raises:
        UsageError: `folder` does not exist, or `settle` is out of range.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        folder: str | os.PathLike[str],
        log: ScoreLog,
        *,
        settle: float = 10.0,
        ignored: Collection[str | os.PathLike[str]] = (),
        source_of: SourceOf = samples_at,
        on_message: Callable[[str], None] = lambda _line: None,
        on_record: Callable[[Record, Result], None] = lambda _record, _result: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        folder = Path(folder)
        check_folder(folder)
        check_seconds("settle", settle, may_be_zero=True)
        self._evaluator, self._folder, self._log = evaluator, folder, log
        self._settle, self._source_of = settle, source_of
        self._ignored = {os.path.realpath(path) for path in (*ignored, *log.paths)}
        self._on_message, self._on_record = on_message, on_record
        self._clock, self._sleep = clock, sleep
        self._scored = {readable(record["name"]) for record in log.records}
        self._due: dict[str, tuple[str, float]] = {}  # by name: a listing, and when it is complete
        self._failed: dict[str, str] = {}  # by name: the listing that could not be scored
        check_outside(log.path, [evaluator.source])
        above, top = (Path(os.path.realpath(path)).parents for path in (log.path, folder / log.path.name))
        places = {str(path) for path in {*above} - {*top}}  # between the watched folder and the log
        inside = [
            each for each in folder.iterdir() if os.path.realpath(each) in places and self._pending(each)
        ]
        check_outside(log.path, inside)
        self._settings = settings_of(evaluator)
        self._is_explained = bool(log.records)

    def run(self, *, once: bool = False, until: int | None = None, interval: float = 10.0) -> None:
        """Poll the folder until an interruption, or as given by `once` and `until`.

        Args:
            once: Score the sources that are complete, and return.
            until: Return when this many sources have a score, also from earlier runs, or have failed and not changed.
            interval: Seconds between two polls.

        Raises:
            UsageError: A number is out of range.
            ResourceError: The folder was removed, the device or memory fails, or the log cannot be written.
        """
        check_seconds("interval", interval)
        if until is not None:
            check_count(until, "until", minimum=1)
        while not self._is_done(until):
            waiting = self.poll(until=until)
            if self._is_done(until):
                return
            if once:
                if waiting and self._settle:
                    self._sleep(self._settle)
                    waiting = self.poll(until=until)
                for name in waiting:
                    self._on_message(
                        f"{name} was not scored: it is still being written, or cannot be scored yet"
                    )
                return
            self._sleep(interval)

    def poll(self, *, until: int | None = None) -> list[str]:
        """List the folder once, and score every complete source, in natural order of the names.

        Args:
            until: Stop when this many sources have a score or have failed and not changed.

        Returns:
            The names of sources without a score.
        """
        self._log.check(self._settings)  # also if nothing is new
        seen_at, listed = self._clock(), self._list()  # before scoring; later sources may change meanwhile
        unchanged = {each.name for each in listed if self._failed.get(each.name) == each.listing}
        self._failed = {name: listing for name, listing in self._failed.items() if name in unchanged}
        return [
            pending.name
            for pending in listed
            if not (self._is_due(pending, seen_at) and not self._is_done(until) and self._score(pending))
        ]

    def _list(self) -> list[PendingSource]:
        """The sources without a score, epoch_2 before epoch_10."""
        try:
            names = [entry.name for entry in os.scandir(self._folder) if not entry.name.startswith(".")]
        except OSError as error:
            text = f"the watched folder {self._folder} cannot be listed ({error.strerror}); check that it still exists"
            raise ResourceError(text, code="unreadable", path=str(self._folder)) from error
        parts = {name: re.split(r"([0-9]+)", name) for name in names}
        keys = {name: [int(x) if at % 2 else x for at, x in enumerate(each)] for name, each in parts.items()}
        ordered = sorted(names, key=lambda name: (keys[name], name))
        new = [self._folder / name for name in ordered if readable(name) not in self._scored]
        paths = [path for path in new if os.path.realpath(path) not in self._ignored]
        found = [pending for path in paths if (pending := self._pending(path)) is not None]
        if paths and not found and not self._is_explained:
            self._is_explained = True
            needed = f"a sample is a folder of images, or a file that ends in {', '.join(SAMPLE_SUFFIXES)}"
            if self._source_of is not samples_at:
                needed = "checkpoints are files whose names match --pattern"
            has = some([path.name for path in paths])
            self._on_message(f"{self._folder} has nothing to score yet, but {has}; {needed}")
        return found

    def _pending(self, path: Path) -> PendingSource | None:
        """One entry of the folder; None if it is not a sample, has no image yet, or was removed."""
        source = self._source_of(path)
        try:
            if source is None or (path.is_dir() and not has_images(path)):
                return None
            listing = listing_of(path)
        except DataError:  # scoring reports the reason
            listing = ""
        return PendingSource(readable(path.name), path, source, listing)

    def _is_done(self, until: int | None) -> bool:
        return until is not None and len(self._scored) + len(self._failed) >= until

    def _score(self, pending: PendingSource) -> bool:
        """Score a source. Returns whether it has a record or was removed, so that no retry is needed."""
        started = time.perf_counter()
        try:
            result = self._evaluator.score(pending.source, cache=False)  # samples are rarely scored twice
        except (DataError, UsageError, ResourceError) as error:
            if not isinstance(error, ResourceError) and not pending.path.exists():
                return True  # removed meanwhile
            if not isinstance(error, DataError) and error.code != "oom":
                raise
            if pending.name not in self._failed:
                self._on_message(f"{pending.name} cannot be scored yet ({error.code}): {error}")
            self._failed[pending.name] = pending.listing
            self._due[pending.name] = pending.listing, self._clock() + _RETRY_S
            return False
        seconds = time.perf_counter() - started
        again = self._pending(pending.path)
        if again is None or again.listing != pending.listing:
            self._on_message(
                f"{pending.name} changed while it was scored; it will be scored again when it is complete"
            )
            return False
        drawn_by = pending.source.drawn_by if isinstance(pending.source, CountedBatches) else None
        record = scored_record(
            pending.name,
            pending.listing,
            result,
            recipe=self._settings["recipe"],
            drawn_by=drawn_by,
            seconds=seconds,
            timestamp=time.time(),
        )
        self._log.append(record)
        self._on_record(record, result)
        self._scored.add(pending.name)
        self._failed.pop(pending.name, None)
        return True

    def _is_due(self, pending: PendingSource, now: float) -> bool:
        """Whether a source has not changed for long enough; called at every poll."""
        if self._due.get(pending.name, ("", 0.0))[0] != pending.listing:
            self._due[pending.name] = pending.listing, now + self._settle
        return now >= self._due[pending.name][1]
