"""Scores samples as a training run writes them: whatever appears in a folder, once it is complete, each once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from genpr.checkpoints.watching.arrivals import Arrival, Settling, SourceOf, arrival_at, look, samples_at
from genpr.checkpoints.watching.score_lines import Record, differences, facts_of, failed_record, scored_record
from genpr.checkpoints.watching.score_log import ScoreLog
from genpr.errors import DataError, ResourceError, UsageError
from genpr.images.datasets import CountedBatches

if TYPE_CHECKING:
    from genpr.evaluation.result import Result

_FIRST_DELAY_S, _LONGEST_DELAY_S = 10.0, 600.0  # until a source that could not be scored is tried again


class Scores(Protocol):
    """What scores: a `genpr.Evaluator`."""

    def score(self, fake: object, *, cache: bool | None = None) -> Result:
        """One fake set against the reals."""
        ...


@dataclass(slots=True)
class _Failure:
    """A source that could not be scored so far."""

    listing: str
    first: float
    next_try: float
    delay: float


class Watcher:
    """Scores what appears in a folder, and keeps the scores.

    What has a score is not scored again, in this process or another; what fails may still be being written, and is tried
    again until it is given up or changes.

    Args:
        evaluator: Scores one source; its real side is fitted once.
        folder: Where samples appear: folders of images, archives, .npz or feature files; or whatever `source_of` knows.
        log: Where scores go.
        settle: Seconds for which nothing about a source may have changed before it is scored.
        give_up: Seconds after which a source that still fails as it is, is recorded as failed.
        done_file: Name of a file that marks complete folders; then no folder is scored without it.
        cache_fakes: Keep features of what is scored in the cache, if the evaluator does.
        keep_results: Keep every whole result in a file of its own, too.
        source_of: What in `folder` is scored, and how it is read.
        ignored: Files and folders that are not scored, such as the reals.
        told: Called with one line about what happens beside scores.
        on_record: Called with each new record.
        on_result: Called with what a source scored.
        clock: Seconds that never jump.
        sleep: Waits so many seconds.
        now: Seconds since 1970.

    Raises:
        UsageError: `folder` does not exist, or a number of seconds is negative.
    """

    def __init__(
        self,
        evaluator: Scores,
        folder: Path,
        log: ScoreLog,
        *,
        settle: float = 10.0,
        give_up: float = 600.0,
        done_file: str | None = None,
        cache_fakes: bool = False,
        keep_results: bool = False,
        source_of: SourceOf = samples_at,
        ignored: Collection[Path] = (),
        told: Callable[[str], None] = lambda _line: None,
        on_record: Callable[[Record], None] = lambda _record: None,
        on_result: Callable[[Result], None] = lambda _result: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not folder.is_dir():
            raise UsageError(
                f"there is no folder {folder} to watch; make it before the training run does",
                code="path-not-found",
                path=str(folder),
            )
        if not (settle >= 0 and give_up >= 0):
            raise UsageError(
                f"settle and give_up must be seconds from 0 on, not {settle!r} and {give_up!r}",
                code="bad-option",
            )
        self._evaluator, self._folder, self._log = evaluator, folder, log
        self._settle, self._give_up = settle, give_up
        self._done_file, self._source_of, self._ignored = done_file, source_of, (*ignored, *log.paths)
        self._cache = None if cache_fakes else False
        self._keep_results = keep_results
        self._told, self._on_record, self._on_result = told, on_record, on_result
        self._clock, self._sleep, self._now = clock, sleep, now
        self._settling = Settling(settle)
        self._failures: dict[str, _Failure] = {}
        self._scored = {record["name"] for record in log.scored}
        failed = [record for record in log.records if record["status"] == "failed"]
        self._failed = {record["name"]: record["listing"] for record in failed}  # the last word counts
        self._as_scored: dict[str, int] = {}

    def run(self, *, once: bool = False, until: int | None = None, interval: float = 10.0) -> None:
        """Look and score, again and again.

        Args:
            once: Score what is there, as far as it is complete, and leave.
            until: Leave when so many sources are recorded, those of earlier runs included.
            interval: Seconds between two looks.

        Raises:
            UsageError: A number is out of range.
            ResourceError: The folder, the device or the memory has gone, or nothing can be written.
        """
        if not interval > 0 or (until is not None and until < 1):
            raise UsageError("interval must be positive, and until at least 1", code="bad-option")
        while not self._has(until):
            waiting = self.poll(until=until)
            if self._has(until):
                return
            if once:
                if waiting and self._settle:
                    self._sleep(self._settle)
                    waiting = self.poll(until=until)
                for name in waiting:
                    self._told(f"{name} is left: it is still being written, or cannot be scored yet")
                return
            self._sleep(interval)

    def poll(self, *, until: int | None = None) -> list[str]:
        """Look once, and score everything that is complete, in natural order of the names.

        Args:
            until: Stop when so many sources are recorded.

        Returns:
            The names of what is there and neither scored nor given up.
        """
        self._tell_changes()
        seen_at = self._clock()  # scoring takes long, in which the later ones may change unseen
        arrivals = self._look()
        waiting = []
        for arrival in arrivals:
            if self._failed.get(arrival.name) == arrival.listing:
                continue
            is_due = self._settling.is_over(arrival, seen_at) and self._may_try(arrival)
            if not is_due or self._has(until) or not self._score(arrival):
                waiting.append(arrival.name)
        return waiting

    def _look(self) -> list[Arrival]:
        try:
            return look(
                self._folder,
                source_of=self._source_of,
                done_file=self._done_file,
                passed_over=self._scored.__contains__,
                ignored=self._ignored,
            )
        except OSError as error:
            raise ResourceError(
                f"the watched folder {self._folder} cannot be listed ({error.strerror}); was it removed?",
                code="unreadable",
                path=str(self._folder),
            ) from error

    def _has(self, until: int | None) -> bool:
        return until is not None and len(self._scored | self._failed.keys()) >= until

    def _score(self, arrival: Arrival) -> bool:
        """Whether it need not be looked at again as it is."""
        started = time.perf_counter()
        try:
            result = self._evaluator.score(arrival.source, cache=self._cache)
        except (DataError, UsageError) as error:
            if not arrival.path.exists():
                return True  # moved away meanwhile
            if isinstance(error, UsageError):
                raise
            return self._failed_to_score(arrival, error)
        seconds = time.perf_counter() - started
        if self._is_changed(arrival):
            self._told(f"{arrival.name} changed while it was scored; it will be scored when it is complete")
            self._settling.begin_again(arrival, self._clock())
            return False
        drawn_by = arrival.source.drawn_by if isinstance(arrival.source, CountedBatches) else None
        self._check_alike(facts_of(result, drawn_by))
        self._on_result(result)
        if self._keep_results:
            self._log.keep_result(arrival.name, result.to_json(indent=1))
        record = scored_record(
            arrival.name,
            arrival.listing,
            result,
            drawn_by=drawn_by,
            seconds=seconds,
            timestamp=self._now(),
        )
        self._append(record)
        self._scored.add(arrival.name)
        self._failures.pop(arrival.name, None)
        self._failed.pop(arrival.name, None)
        self._as_scored[arrival.name] = _changed_at(arrival.path)
        return True

    def _append(self, record: Record) -> None:
        self._log.append(record)
        self._on_record(record)

    def _is_changed(self, arrival: Arrival) -> bool:
        again = arrival_at(arrival.path, source_of=self._source_of, done_file=self._done_file)
        return again is None or again.listing != arrival.listing

    def _may_try(self, arrival: Arrival) -> bool:
        """Whether it never failed as it is, or did so long enough ago."""
        failure = self._failures.get(arrival.name)
        return failure is None or failure.listing != arrival.listing or self._clock() >= failure.next_try

    def _failed_to_score(self, arrival: Arrival, error: DataError) -> bool:
        """Whether it is given up."""
        now = self._clock()
        failure = self._failures.get(arrival.name)
        if failure is None:
            self._told(f"{arrival.name} cannot be scored yet ({error.code}): {error}")
        if failure is None or failure.listing != arrival.listing:
            failure = _Failure(arrival.listing, now, now, _FIRST_DELAY_S)
        self._failures[arrival.name] = failure
        if now - failure.first >= self._give_up:
            self._append(failed_record(arrival.name, arrival.listing, error, timestamp=self._now()))
            self._failed[arrival.name] = arrival.listing
            del self._failures[arrival.name]
            return True
        failure.next_try = min(now + failure.delay, failure.first + self._give_up)
        failure.delay = min(2 * failure.delay, _LONGEST_DELAY_S)
        return False

    def _check_alike(self, facts: Mapping[str, Any]) -> None:
        """Refuse to put a score beside others that were not made alike: the best of them would mean nothing."""
        if not self._log.scored:
            return
        differing = differences(self._log.scored[-1], facts)
        if differing:
            raise UsageError(
                f"the scores in {self._log.path} were made otherwise ({', '.join(differing)}); write to a file in another "
                "folder (--out), or go on with the options, reals and generator of then",
                code="other-recipe",
                path=str(self._log.path),
            )

    def _tell_changes(self) -> None:
        """Say once of each source that was scored here when it changes later: it may have been scored too early."""
        for name, before in list(self._as_scored.items()):
            if before not in (0, _changed_at(self._folder / name)) and (self._folder / name).exists():
                del self._as_scored[name]
                self._told(
                    f"{name} has changed since it was scored, and keeps its score; if it was not complete, remove its "
                    "line and use a larger --settle, or --done-file"
                )


def _changed_at(path: Path) -> int:
    """When a file, or the list of what is directly in a folder, changed last; 0 if it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
