"""The log of `genpr watch`: one JSON line per score, and `best.json`, derived from it.

Every file is replaced as a whole, the lines first, so that neither a reader nor a kill finds half of one; what a kill leaves
out of date is written anew at the next start. One process at a time writes to a folder. Importing this module does not
import torch.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from genpr.checkpoints.criterion import number_of
from genpr.errors import DataError, UsageError
from genpr.limits import ARCHIVED_PARSED_BYTES, RESULT_BYTES, check_json, parse_json, read_bytes
from genpr.metrics.f_beta import f1_of
from genpr.metrics.registry import check_interval, check_value
from genpr.storage import (
    exclusive_lock,
    from_dict,
    open_regular,
    remove_temporaries,
    replace_file,
    unwritable,
)

if TYPE_CHECKING:
    from genpr.evaluation.result import Result

SCHEMA = 1
BEST, RESULTS = "best.json", "genpr-results"
_LOCK = ".genpr-watch.lock"
_CACHE_WARNINGS = "cache"  # they depend on what ran before, not on the samples
# With these the fingerprint may differ, too: it names what a metric does with few images.
_MAY_DIFFER = ("n_fake", "undefined")
_COMPARABLE = ("protocol", "asked", "fingerprint", "real", "n_real", "max_images", "seed")
_PER_CHECKPOINT = ("checkpoint", "weights")

Record = Mapping[str, Any]
"""One line; see docs/watching.md."""


class ScoreLog:
    """The lines of one file, under a lock; use it in a `with` block.

    Args:
        path: The file of lines; `best.json` is written to the same folder.
        by: The number by which the best is chosen: a metric, or an F-score such as f1 or f0.5.

    Raises:
        UsageError: `by` is not a single number with a better direction, the folder does not exist, or `best.json` there was
            not written by genpr.
        DataError: The file holds something else ("not-a-log"), or is damaged ("file-damaged").
        ResourceError: Another process writes there ("locked"), or the folder cannot be written.
    """

    def __init__(self, path: Path, *, by: str = "f1") -> None:
        if not path.parent.is_dir():
            raise UsageError(
                f"the folder {path.parent} does not exist", code="path-not-found", path=str(path.parent)
            )
        self.path, self.by, self._criterion = path, by, number_of(by)
        self.paths = path, path.with_name(BEST)
        busy = f"another genpr watch writes to {path.parent}; stop it, or write to another folder (--out)"
        self._lock = exclusive_lock(path.parent / _LOCK, busy=busy)
        try:
            self._text = self._read()
            self.records = [self._parsed(*each) for each in enumerate(self._text.splitlines(), 1)]
            self._check_best()
            try:
                remove_temporaries(path.parent, "|".join(re.escape(each.name) for each in self.paths))
                remove_temporaries(path.parent / RESULTS, r".+\.json")
            except OSError as error:
                raise unwritable(path.parent, error) from error
            self._write_best()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._write_best()
        finally:
            self._lock.release()

    @property
    def scored(self) -> list[Record]:
        """The records with a score, in the order of the file."""
        return [record for record in self.records if record["status"] == "scored"]

    @property
    def best(self) -> Record | None:
        """The best record, the first of equal ones; None if no record has a value."""
        values = [(self.value(record), record) for record in self.scored]
        known = [(self._criterion.sign * value, record) for value, record in values if value is not None]
        return max(known, key=lambda pair: pair[0], default=(0.0, None))[1]

    def value(self, record: Record) -> float | None:
        """The number by which the best is chosen; None where it has no value."""
        value = self._criterion.value_in(record["metrics"])
        return value if value is not None and math.isfinite(value) else None

    def append(self, record: Record) -> None:
        """Write one line, whole or not at all, and what follows from it."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        replace_file(self.path, self._text + line)
        self._text += line
        self.records.append(parse_json(line))
        self._write_best()

    def write_result(self, name: str, text: str) -> None:
        """Write a whole result, as JSON, to a file of its own; to be called before its line is appended."""
        path = self.path.parent / RESULTS / f"{name}.json"
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error
        replace_file(path, f"{text}\n")

    def _read(self) -> bytes:
        """All lines."""
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
        return data if data.endswith(b"\n") or not data else data + b"\n"

    def _parsed(self, number: int, line: bytes) -> Record:
        try:
            record = parse_json(line, most=ARCHIVED_PARSED_BYTES)
            json.dumps(record, allow_nan=False)  # as it will be written again
        except (ValueError, RecursionError):
            record = None
        if not _is_record(record):
            raise DataError(
                f"line {number} of {self.path} was not written by `genpr watch`. Nothing was changed; correct or remove "
                "the line, or write to another file (--out)",
                code="file-damaged",
                path=str(self.path),
            )
        return dict(record)

    def _check_best(self) -> None:
        """Check that `best.json`, if it exists, was written by genpr."""
        path = self.path.with_name(BEST)
        try:
            record = parse_json(_content(path), most=ARCHIVED_PARSED_BYTES) if path.exists() else None
            is_own = record is None or (record["schema"] == SCHEMA and record["record"]["status"] == "scored")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            is_own = False
        if not is_own:
            raise UsageError(
                f"{path} is not of genpr's watch and would be replaced; write to another folder (--out)",
                code="foreign-file",
                path=str(path),
            )

    def _write_best(self) -> None:
        """Bring `best.json` up to date with the lines."""
        best, path = self.best, self.path.with_name(BEST)
        try:
            if best is None:
                path.unlink(missing_ok=True)  # chosen by another metric
                return
            facts = {"schema": SCHEMA, "name": best["name"], "by": self.by, "better": self._criterion.better}
            chosen = {**facts, "value": self.value(best), "record": best}
            text = json.dumps(chosen, indent=1, allow_nan=False) + "\n"
            is_same = path.exists() and _content(path) == text.encode()
        except OSError as error:
            raise unwritable(path, error) from error
        if not is_same:
            replace_file(path, text)


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return read_bytes(file, RESULT_BYTES, name=str(path), what="a log of scores", code="not-a-log")


def _is_record(value: object) -> bool:
    """Whether a value read from JSON is a line of the log, with valid entries."""
    if not isinstance(value, dict):
        return False
    try:
        if value["schema"] != SCHEMA or not isinstance(value["name"], str):
            return False
        if value["status"] == "failed":
            return isinstance(value["error"]["code"], str) and isinstance(value["listing"], str)
        for name, number in from_dict(Mapping[str, float], value["metrics"]).items():
            check_value(name, number)
        intervals = from_dict(Mapping[str, tuple[float, float]], value.get("intervals", {}))
        for name, interval in intervals.items():
            check_interval(name, interval)
        for name, null in from_dict(Mapping[str, float], value.get("nulls", {})).items():
            check_value(name, null, "null")
        from_dict(tuple[str, ...], value.get("warnings", []))
        from_dict(tuple[float, float], [value["seconds"], value["timestamp"]])
        from_dict(tuple[str, str, str], [value["listing"], value["device"], value["real"]])
        return bool(value["status"] == "scored" and from_dict(int, value["n_fake"]) >= 0)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return False


def differences(before: Record, after: Mapping[str, Any]) -> list[str]:
    """The names of `comparable_facts` in which two scores differ, so that they cannot stand in one log; empty if alike."""
    old, new = _flat(before), _flat(after)
    if any(before.get(key) != after[key] for key in _MAY_DIFFER):
        old["fingerprint"] = new["fingerprint"]
    if new["generator"] != old["generator"]:  # one of them has no facts about it
        old, new = ({key: facts[key] for key in (*_COMPARABLE, "generator")} for facts in (old, new))
    return [key for key in {**new, **old} if new.get(key) != old.get(key)]


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be equal, with the facts of a generator by their own names."""
    generator = record.get("generator")
    flat = {key: record.get(key) for key in _COMPARABLE} | {"generator": generator is not None}
    return flat | {f"generator.{key}": value for key, value in (generator or {}).items()}


def comparable_facts(result: Result, drawn_by: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What has to be equal for two scores to stand in one log, and the numbers that may change the fingerprint."""
    shared = (
        None if drawn_by is None else {key: drawn_by[key] for key in drawn_by if key not in _PER_CHECKPOINT}
    )
    return {
        "protocol": result.protocol,
        "asked": sorted({*result.metrics, *result.undefined}),
        "undefined": list(result.undefined),
        "fingerprint": result.fingerprint,
        "real": result.real.content,
        "n_real": result.real.n,
        "n_fake": result.fake.n,
        "max_images": result.max_images,
        "seed": result.seed,
        "generator": shared,
    }


def scored_record(
    name: str,
    listing: str,
    result: Result,
    *,
    drawn_by: Mapping[str, Any] | None = None,
    seconds: float,
    timestamp: float,
) -> dict[str, Any]:
    """The line of one score; it depends only on the images and the recipe, apart from the times."""
    known = result.metrics.items()
    metrics = {name: metric.value for name, metric in known}
    f1 = f1_of(metrics)
    warnings = [item.code for item in result.notices if item.level == "warning"]
    checkpoint = drawn_by and {"sha256": drawn_by.get("checkpoint"), "weights": drawn_by.get("weights")}
    return {
        "schema": SCHEMA,
        "name": name,
        "status": "scored",
        "metrics": metrics if f1 is None else {**metrics, "f1": f1},
        "intervals": {name: list(metric.interval) for name, metric in known if metric.interval is not None},
        "nulls": {name: metric.null for name, metric in known if metric.null is not None},
        "warnings": [code for code in dict.fromkeys(warnings) if not code.startswith(_CACHE_WARNINGS)],
        **comparable_facts(result, drawn_by),
        "checkpoint": checkpoint,
        "extractor": None if result.extractor is None else result.extractor.name,
        "device": result.device,
        "versions": {name: result.versions[name] for name in ("genpr", "torch")},
        "listing": listing,
        "seconds": seconds,
        "timestamp": timestamp,
    }


def failed_record(name: str, listing: str, error: DataError, *, timestamp: float) -> dict[str, Any]:
    """The line of a source that could not be scored."""
    return {
        "schema": SCHEMA,
        "name": name,
        "status": "failed",
        "error": {"code": error.code, "message": str(error)},
        "listing": listing,
        "timestamp": timestamp,
    }
