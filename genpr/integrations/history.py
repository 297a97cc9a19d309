"""The scores of a training run so far, and which of them is the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from genpr.errors import DataError, UsageError, some

Mode = Literal["max", "min"]


@dataclass(frozen=True)
class Record:
    """One score.

    Attributes:
        step: Of the training.
        scores: By name, such as "genpr/precision".
    """

    step: int
    scores: Mapping[str, float]


@dataclass
class History:
    """Scores in the order in which they came.

    Args:
        monitor: The score that decides which record is the best.
        mode: Whether more of it is better.

    Attributes:
        records: All of them.
        best: The first of those with the best value; None while none has one.

    Raises:
        UsageError: The mode is neither "max" nor "min".
    """

    monitor: str
    mode: Mode = "max"
    records: list[Record] = field(default_factory=list, init=False)
    best: Record | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise UsageError(f"mode must be 'max' or 'min', not {self.mode!r}", code="bad-option")

    def add(self, step: int, scores: Mapping[str, float]) -> None:
        """One more; where it lacks the monitored score, which has no value for some images, it is not the best."""
        record = Record(step, dict(scores))
        self.records.append(record)
        if self._is_better(record):
            self.best = record

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        records = [{"step": record.step, "scores": dict(record.scores)} for record in self.records]
        return {"monitor": self.monitor, "mode": self.mode, "records": records}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take the records of `to_dict`; the best is found anew, by the monitor and mode of this object.

        Raises:
            DataError: It is no such dict.
        """
        try:
            records = [_record_of(each) for each in state["records"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"this is no history of scores ({type(error).__name__}: {error}); was it written by another program?",
                code="bad-history",
            ) from error
        self.records, self.best = [], None
        for record in records:
            self.add(record.step, record.scores)

    def _is_better(self, record: Record) -> bool:
        value = record.scores.get(self.monitor)
        if value is None:
            return False
        if self.best is None:
            return True
        best = self.best.scores[self.monitor]
        return value > best if self.mode == "max" else value < best


def check_monitor(monitor: str, known: Sequence[str]) -> None:
    """Refuse a monitor that will never have a value.

    Raises:
        UsageError: It is not among the scores.
    """
    if monitor not in known:
        raise UsageError(
            f"monitor {monitor!r} is not computed; there are {some(known, 20)}", code="bad-option"
        )


def _record_of(state: Mapping[str, Any]) -> Record:
    scores = {str(name): float(value) for name, value in state["scores"].items()}
    if not all(map(math.isfinite, scores.values())):
        raise ValueError("a score is not finite")
    return Record(int(state["step"]), scores)
