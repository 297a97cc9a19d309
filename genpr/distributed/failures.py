"""What the ranks of a team know of each other's errors, kept in the store by which they found each other."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from genpr.errors import GenprError, ResourceError

_PAUSE = 0.2  # seconds between two looks
_FIRST_RANK = 0.5  # seconds that the first rank is given to tell before others


@dataclass(frozen=True)
class Failure:
    """The error of one rank.

    Attributes:
        rank: Its number.
        code: Of the error.
        message: Its text.
        exit_code: What the command line ends with.
    """

    rank: int
    code: str
    message: str
    exit_code: int

    @classmethod
    def of(cls, rank: int, error: BaseException, number: int | None = None) -> Failure:
        """From what was raised, after signal `number` if there was one."""
        if isinstance(error, KeyboardInterrupt) or number is not None:
            word = "terminated" if number == signal.SIGTERM else "interrupted"
            return cls(rank, word, word, 128 + (number or signal.SIGINT))
        if isinstance(error, GenprError):
            return cls(rank, error.code, str(error), error.exit_code)
        return cls(rank, "bug", f"{type(error).__name__}: {error}", 1)

    @property
    def is_by_signal(self) -> bool:
        """Whether somebody ended it."""
        return self.code in ("interrupted", "terminated")

    def is_as(self, other: Failure) -> bool:
        """Whether another rank met the same."""
        return (self.code, self.message) == (other.code, other.message)


class RankFailedError(ResourceError):
    """Another rank could not go on; its own error says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"rank {failure.rank} failed: {failure.message}", code="rank-failed")
        self.failure = failure


class Failures:
    """Tells the others of an error here, and learns of theirs within a second.

    Args:
        store: Of torch.distributed, under a prefix of its own.
        rank: Of this process.
        size: How many ranks there are.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:  # noqa: ANN401 - torch has many kinds
        self._store, self._rank, self._size = store, rank, size
        self._found: Failure | None = None
        self._gone: RuntimeError | None = None
        self.when_found: Callable[[Failure], None] | None = None  # told of the first error, in a thread
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="genpr-ranks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(timeout=5)

    def check(self) -> None:
        """Raise if a rank is known to have failed.

        Raises:
            RankFailedError: One has ("rank-failed").
            ResourceError: Its store is gone ("ranks-lost").
        """
        if self._found is not None:
            raise RankFailedError(self._found)
        if self._gone is not None:
            raise self.lost(self._gone)

    def lost(self, error: RuntimeError) -> ResourceError:
        """The error for a rank that ended without a word."""
        text = " ".join(str(error).split())[:160]
        return ResourceError(
            f"rank {self._rank}: another rank ended without a word, or cannot be reached ({text}); was it killed, or its "
            "machine out of memory? What was embedded is in the cache",
            code="ranks-lost",
        )

    def tell(self, error: BaseException, *, number: int | None = None) -> Failure:
        """Tell all ranks of an error here, or of signal `number`.

        Returns:
            The first error that any rank told of: this one, or an earlier one.
        """
        if isinstance(error, RankFailedError):
            return error.failure
        own = first = Failure.of(self._rank, error, number)
        with suppress(RuntimeError):  # the store is gone
            self._store.set(f"failed/{self._rank}", json.dumps(asdict(own)))
            if self._rank and not own.is_by_signal:  # of an error that all have, the first rank should tell
                self._appear(["failed/0"], _FIRST_RANK)
            if self._store.add("claim", 1) == 1:
                self._store.set("first", json.dumps(asdict(own)))
            first = self._await_first() or own
            self._store.set(f"heard/{self._rank}", "yes")
        return first

    def is_common(self, failure: Failure, *, seconds: float) -> bool:
        """Whether every rank tells of the same error as `failure` before the time is up."""
        names = [f"failed/{rank}" for rank in range(self._size)]
        # And knows who was first: the store may end with this rank.
        if not self._appear([*names, *(f"heard/{rank}" for rank in range(self._size))], seconds):
            return False
        try:
            return all(self._read(name).is_as(failure) for name in names)
        except RuntimeError:
            return False

    def announce(self) -> None:
        """Say that people know of the first error."""
        try:
            self._store.set("announced", "yes")
        except RuntimeError:
            return

    def await_announcement(self, seconds: float) -> None:
        """Wait until they do: a launcher that sees one rank end ends the others before they could speak."""
        self._appear(["announced"], seconds)

    def _await_first(self) -> Failure | None:
        return self._read("first") if self._appear(["first"], 5.0) else None

    def _appear(self, names: list[str], seconds: float) -> bool:
        end = time.monotonic() + seconds
        try:
            while not self._store.check(names):
                if time.monotonic() > end:
                    return False
                time.sleep(_PAUSE / 10)
        except RuntimeError:
            return False
        return True

    def _read(self, name: str) -> Failure:
        return Failure(**json.loads(self._store.get(name)))

    def _watch(self) -> None:
        while not self._stop.wait(_PAUSE):
            try:
                if self._store.check(["first"]):
                    self._found = self._read("first")
                    if self.when_found is not None:
                        self.when_found(self._found)
                    return
            except RuntimeError as error:
                self._gone = error
                return
