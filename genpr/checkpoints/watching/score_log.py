"""Scores kept as they are made: one JSON line each, and beside them the best, in a file of its own.

The lines are the record; the other files follow from them and are made anew from them whenever they may differ. So a
process that is killed at any moment leaves at worst half a line at the end, which the next one drops, and other files
that are one score behind, which the next one brings up to date. One process at a time writes to a folder.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Self

from genpr.checkpoints.ranking.criterion import number_of
from genpr.checkpoints.watching.score_lines import SCHEMA, Record, is_record, stylegan_line
from genpr.errors import DataError, UsageError
from genpr.limits import ARCHIVED_PARSED_BYTES, RESULT_BYTES, check_json, parse_json, read_bytes
from genpr.storage import atomic_path, exclusive_lock, open_regular, unwritable

BEST, STYLEGAN, RESULTS = "best.json", "metric-genpr.jsonl", "genpr-results"
_LOCK = ".genpr-watch.lock"
_START = b'{"schema": 1, "name": '  # of every line


class ScoreLog:
    """The lines of one file, under a lock; use it in a `with` block.

    Args:
        path: The file of lines; `best.json` lies beside it.
        by: What is best: a metric, or an F-score such as f1 or f0.5.
        stylegan: Also keep `metric-genpr.jsonl`, in the shape of StyleGAN's metric files.

    Raises:
        UsageError: `by` names no single number of which more or less is better, the folder does not exist, or `best.json` or `metric-genpr.jsonl` there is not of genpr.
        DataError: The file holds something else ("not-a-log"), or is damaged ("file-damaged").
        ResourceError: Another process writes there ("locked"), or the folder cannot be written.
    """

    def __init__(self, path: Path, *, by: str = "f1", stylegan: bool = False) -> None:
        if not path.parent.is_dir():
            raise UsageError(
                f"the folder {path.parent} does not exist", code="path-not-found", path=str(path.parent)
            )
        self.path = path
        self.by = by
        self._criterion = number_of(by)
        self._stylegan = stylegan
        busy = f"another genpr watch writes to {path.parent}; stop it, or write to another folder (--out)"
        self._lock = exclusive_lock(path.parent / _LOCK, busy=busy)
        try:
            self.dropped = 0
            self.records = self._read()
            self._check_others()
            self._tidy()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            self._write_others()
        finally:
            self._lock.release()

    def _tidy(self) -> None:
        """Leave the folder as the lines say it should be."""
        try:
            self._remove_left_over()
        except OSError as error:
            raise unwritable(self.path.parent, error) from error
        self._write_others()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are written here, of which not all need to be there."""
        return self.path, self.path.with_name(BEST), self.path.with_name(STYLEGAN)

    @property
    def scored(self) -> list[Record]:
        """The records with a score, in the order of the file."""
        return [record for record in self.records if record["status"] == "scored"]

    @property
    def best(self) -> Record | None:
        """The first of the best; None if nothing has a value of what is asked for."""
        values = [(self.value(record), record) for record in self.scored]
        known = [(self._criterion.sign * value, record) for value, record in values if value is not None]
        return max(known, key=lambda pair: pair[0], default=(0.0, None))[1]

    def value(self, record: Record) -> float | None:
        """What is best most, or least, of; None where the images have no value of it."""
        value = self._criterion.value_in(record["metrics"])
        return value if value is not None and math.isfinite(value) else None

    def append(self, record: Record) -> None:
        """Write one line, whole or not at all as long as this process lives, and what follows from it.

        Raises:
            ResourceError: The disk is full, or the file cannot be written.
        """
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            with self.path.open("ab") as file:
                end = file.seek(0, os.SEEK_END)
                try:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:  # an interrupt too must not leave half a line
                    with contextlib.suppress(OSError):
                        file.truncate(end)
                    raise
        except OSError as error:
            raise unwritable(self.path, error) from error
        self.records.append(parse_json(line))
        self._write_others()

    def keep_result(self, name: str, text: str) -> None:
        """Write a whole result, as JSON, to a file of its own; to be called before its line is appended.

        Raises:
            ResourceError: It cannot be written.
        """
        path = self.path.parent / RESULTS / f"{name}.json"
        try:
            path.parent.mkdir(exist_ok=True)
            with atomic_path(path) as temporary:
                temporary.write_text(text + "\n")
        except OSError as error:
            raise unwritable(path, error) from error

    def _read(self) -> list[Record]:
        """All whole lines; half a line at the end, which only a killed process can have left, is cut off."""
        try:
            data = _content(self.path) if self.path.exists() else b""
        except OSError as error:
            raise unwritable(self.path, error) from error
        try:
            check_json(data.decode(errors="replace"), ARCHIVED_PARSED_BYTES)
        except ValueError as error:
            raise DataError(
                f"{self.path} is no log: {error}", code="not-a-log", path=str(self.path)
            ) from error
        whole, _, rest = data.rpartition(b"\n")
        records = [self._parsed(line, number) for number, line in enumerate(whole.split(b"\n"), 1) if whole]
        if rest:
            if not (rest.startswith(_START) or _START.startswith(rest) or not rest.strip(b"\0")):
                raise self._damaged(len(records) + 1)
            self.dropped = len(rest)
            try:
                os.truncate(self.path, len(data) - len(rest))
            except OSError as error:
                raise unwritable(self.path, error) from error
        return records

    def _parsed(self, line: bytes, number: int) -> Record:
        try:
            record = parse_json(line, most=ARCHIVED_PARSED_BYTES)
            json.dumps(record, allow_nan=False)  # as it will be written again
        except (ValueError, RecursionError):
            record = None
        if not is_record(record):
            raise self._damaged(number)
        return dict(record)

    def _damaged(self, number: int) -> DataError:
        return DataError(
            f"line {number} of {self.path} is not of genpr's watch; was it edited, or is it another file? Nothing was "
            "changed; mend or remove the line, or write to another file (--out)",
            code="file-damaged",
            path=str(self.path),
        )

    def _check_others(self) -> None:
        """Refuse to replace files that somebody else wrote."""
        tests = {BEST: _is_best, STYLEGAN: _is_stylegan} if self._stylegan else {BEST: _is_best}
        for name, is_own in tests.items():
            path = self.path.with_name(name)
            if path.exists() and not is_own(path):
                raise UsageError(
                    f"{path} is not of genpr's watch and would be replaced; write to another folder (--out)",
                    code="foreign-file",
                    path=str(path),
                )

    def _remove_left_over(self) -> None:
        """Remove what a killed process was writing; whoever holds the lock is the only one who writes."""
        folder = self.path.parent
        results = folder / RESULTS
        for inside, names in ((folder, f"{re.escape(BEST)}|{re.escape(STYLEGAN)}"), (results, r".+\.json")):
            for path in inside.iterdir() if inside.is_dir() else ():
                if re.fullmatch(rf"\.(?:{names})\.[^.]+\.tmp", path.name):
                    path.unlink(missing_ok=True)

    def _write_others(self) -> None:
        """Bring the other files up to date with the lines."""
        best = self.best
        if best is not None:
            facts = {"schema": SCHEMA, "name": best["name"], "by": self.by, "better": self._criterion.better}
            chosen = {**facts, "value": self.value(best), "record": best}
            self._write(BEST, json.dumps(chosen, indent=1, allow_nan=False) + "\n")
        else:
            self._remove_best()
        if self._stylegan:
            lines = [json.dumps(stylegan_line(record), allow_nan=False) + "\n" for record in self.scored]
            self._write(STYLEGAN, "".join(lines))

    def _remove_best(self) -> None:
        """It was chosen by another metric."""
        path = self.path.with_name(BEST)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error

    def _write(self, name: str, text: str) -> None:
        path = self.path.with_name(name)
        try:
            if path.exists() and path.stat().st_size <= RESULT_BYTES and _content(path) == text.encode():
                return
            with atomic_path(path) as temporary:
                temporary.write_text(text)
        except OSError as error:
            raise unwritable(path, error) from error


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return read_bytes(file, RESULT_BYTES, name=str(path), what="a log of scores", code="not-a-log")


def _is_best(path: Path) -> bool:
    try:
        record = parse_json(_content(path), most=ARCHIVED_PARSED_BYTES)
        return bool(record["schema"] == SCHEMA and record["record"]["status"] == "scored")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _is_stylegan(path: Path) -> bool:
    try:
        return all(parse_json(line)["metric"] == "genpr" for line in _content(path).splitlines())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
