"""The log of `genpr watch`: one JSON line per score, and `best.json`, which follows from them.

Files are replaced atomically, the log first. After an interruption, files that are out of date are written again at the next
start. Only one process at a time writes to a folder. Importing this module does not import torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from genpr.checkpoints.options import named_by_code
from genpr.checkpoints.rank import number_of
from genpr.errors import DataError, UsageError
from genpr.limits import RESULT_BYTES, parse_json, read_bytes
from genpr.metrics.f_beta import with_f1
from genpr.metrics.registry import check_value
from genpr.storage import (
    check_place,
    exclusive_lock,
    from_dict,
    marked_by,
    open_regular,
    remove_temporaries,
    replace_file,
    report_write_errors,
)

if TYPE_CHECKING:
    from genpr.evaluation.evaluator import Evaluator
    from genpr.evaluation.result import Result

SCHEMA = 1
BEST = "best.json"
_LOCK = ".genpr-watch.lock"
_CACHE_WARNINGS = "cache"  # these depend on earlier runs, not on the samples
_COMPARABLE = ("protocol", "requested", "real", "n_real", "max_images", "seed")
_PER_CHECKPOINT = ("checkpoint", "weights")
_RECIPE = ("k", "ties", "extractors", "decoding", "labels", "statistics", "held_out")  # of `Evaluator.recipe`

_SURROGATE = re.compile("[\ud800-\udfff]")

_is_best = marked_by(lambda head: head.startswith(b'{\n "schema": 1,\n "name": '))

Record = Mapping[str, Any]
"""One line of the log; see docs/watching.md."""


class ScoreLog:
    """The log in a file, locked while it is open; use it in a `with` block.

    Args:
        path: The file of lines; `best.json` is written to the same folder.
        by: The criterion of the best score: a metric, or an F-score such as f1 or f0.5.

    Raises:
        UsageError: `by` is not a single metric of which higher or lower is better, the folder does not exist, or it has a
            `best.json` but no scores.
        DataError: The file is damaged, or is not a log ("file-damaged").
        ResourceError: Another process writes to the folder ("locked"), or it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, by: str = "f1") -> None:
        path = Path(path)
        folder = path.parent
        if not folder.is_dir():
            text = f"the folder {folder} does not exist; create it, or use another folder (--log)"
            raise UsageError(text, code="path-not-found", path=str(folder))
        self.path, self.by, self._criterion = path, by, number_of(by)
        self.paths = path, path.with_name(BEST)
        for each in self.paths:
            check_place(each)
        busy = f"another genpr watch writes to {folder}; stop it, or write to another folder (--log)"
        with ExitStack() as lock:
            lock.enter_context(exclusive_lock(folder / _LOCK, busy=busy))
            self._text, self.records = self._read()
            for number, record in enumerate(self.records, 1):
                self.check(record, f"line {number} of {path} was")
            best = self.paths[1]
            if best.exists() and not self.records:
                raise _foreign(best)
            with report_write_errors(folder):  # temporary files of an interrupted run
                remove_temporaries(folder, "|".join(re.escape(each.name) for each in self.paths))
            self._write_best()
            self._lock = lock.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._lock.close()

    @property
    def best(self) -> Record | None:
        """The best record, the first of equal ones; None if no record has a value."""
        values = [(self._criterion.value_in(record["metrics"]), record) for record in self.records]
        known = [(self._criterion.sign * value, record) for value, record in values if value is not None]
        return max(known, key=lambda pair: pair[0], default=(0.0, None))[1]

    def check(self, facts: Record, what: str = "") -> None:
        """Check that a score is comparable with those in the log, by those of its facts that are known ("other-recipe")."""
        if differing := [name for first in self.records[:1] for name in differences(first, facts)]:
            text = (
                f"{what or f'the scores in {self.path} were'} computed differently ({', '.join(differing)}); use the same "
                "options, reals and generator, or write to a file in another folder (--log)"
            )
            raise UsageError(text, code="other-recipe", path=str(self.path))

    def append(self, record: Record) -> None:
        """Append one line atomically and update `best.json`.

        Raises:
            UsageError: The score is not comparable with those before it ("other-recipe").
            ResourceError: The folder cannot be written.
        """
        self.check(record)
        text = json.dumps(record, allow_nan=False, ensure_ascii=False)
        line = _SURROGATE.sub(lambda found: "\\" + readable(found[0]), text).encode() + b"\n"
        replace_file(self.path, self._text + line)
        self._text += line
        self.records.append(parse_json(line))
        self._write_best()

    def _read(self) -> tuple[bytes, list[Record]]:
        """Read the file: its text and its records."""
        with report_write_errors(self.path):
            data = _content(self.path) if self.path.exists() else b""
        records, number = list[Record](), 0
        try:
            for number, line in enumerate(data.splitlines(), 1):  # noqa: B007 - for the message
                records.append(_checked(parse_json(line)))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(
                f"line {number} of {self.path} was not written by `genpr watch` ({type(error).__name__}: {error}). Nothing "
                "was changed; correct or remove the line, or write to another file (--log)",
                code="file-damaged",
                path=str(self.path),
            ) from error
        return data if data.endswith(b"\n") or not data else data + b"\n", records

    def _write_best(self) -> None:
        """Update `best.json`."""
        best, path = self.best, self.paths[1]
        check_place(path)
        with report_write_errors(path):
            if path.exists() and not _is_best(path):
                raise _foreign(path)
            if best is None:
                path.unlink(missing_ok=True)  # of another criterion
                return
            facts = {"schema": SCHEMA, "name": best["name"], "by": self.by, "better": self._criterion.better}
            chosen = {**facts, "value": self._criterion.value_in(best["metrics"]), "record": best}
            text = json.dumps(chosen, indent=1, allow_nan=False) + "\n"
            if not path.exists() or _content(path) != text.encode():
                replace_file(path, text)


def readable(name: str) -> str:
    r"""A name with escapes such as `\udcff` for bytes that are not UTF-8, which readers of JSON refuse."""
    return name.encode("utf-8", "backslashreplace").decode()


def _foreign(path: Path) -> UsageError:
    text = (
        f"{path} would be replaced, but does not belong to a watch; remove it, or use another folder (--log)"
    )
    return UsageError(text, code="foreign-file", path=str(path))


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return read_bytes(file, RESULT_BYTES, name=str(path), what="a log of scores", code="file-damaged")


def _checked(record: Any) -> Record:  # noqa: ANN401 - anything that was read from JSON
    """Check the values of a line that genpr reads, and that it can be written again."""
    json.dumps(record, allow_nan=False)
    from_dict(tuple[str, str, Literal["scored"]], [record[key] for key in ("name", "listing", "status")])
    if record["schema"] != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA}, found {record['schema']!r}")
    if not all(isinstance(record.get(key) or {}, Mapping) for key in ("generator", "recipe")):
        raise TypeError("generator and recipe must be objects")
    if from_dict(int, record["n_fake"]) < 0:
        raise ValueError("a number of images is negative")
    for name, value in from_dict(Mapping[str, float], record["metrics"]).items():
        check_value(name, value)
    return dict(record)


def differences(before: Record, after: Record) -> list[str]:
    """The names of facts that must be equal for two scores in one log, but differ; facts that `after` lacks are left out."""
    facts = []
    for record in (before, after):
        found = {key: record.get(key) for key in _COMPARABLE}
        generator = named_by_code(record.get("generator") or {})
        found |= {f"generator.{key}": generator[key] for key in generator if key not in _PER_CHECKPOINT}
        facts.append(found | {f"recipe.{key}": value for key, value in (record.get("recipe") or {}).items()})
    old, new = facts
    names = [name for name in {**new, **old} if name.partition(".")[0] in after]
    return [name for name in names if new.get(name) != old.get(name)]


def settings_of(evaluator: Evaluator) -> dict[str, Any]:
    """The facts of a line that are known before a score, as they are read back."""
    recipe = evaluator.recipe
    facts = {key: recipe[key] for key in ("protocol", "max_images", "seed")}
    facts |= {"requested": sorted(evaluator.metrics), "real": evaluator.content, "n_real": evaluator.n_real}
    return dict(parse_json(json.dumps({**facts, "recipe": {key: recipe.get(key) for key in _RECIPE}})))


def scored_record(
    name: str,
    listing: str,
    result: Result,
    *,
    recipe: Mapping[str, Any],
    drawn_by: Mapping[str, Any] | None = None,
    seconds: float,
    timestamp: float,
) -> dict[str, Any]:
    """The line of one score; apart from times, it depends only on the images and the options."""
    known = result.metrics.items()
    warnings = [item.code for item in result.notices if item.level == "warning"]
    checkpoint = drawn_by and {"sha256": drawn_by.get("checkpoint"), "weights": drawn_by.get("weights")}
    return {
        "schema": SCHEMA,
        "name": name,
        "status": "scored",
        "metrics": with_f1({name: metric.value for name, metric in known}),
        "intervals": {name: list(metric.interval) for name, metric in known if metric.interval is not None},
        "nulls": {name: metric.null for name, metric in known if metric.null is not None},
        "warnings": [code for code in dict.fromkeys(warnings) if not code.startswith(_CACHE_WARNINGS)],
        "protocol": result.protocol,
        "requested": sorted({*result.metrics, *result.undefined}),
        "undefined": list(result.undefined),
        "fingerprint": result.fingerprint,
        "recipe": dict(recipe),
        "real": result.real.content,
        "n_real": result.real.n,
        "n_fake": result.fake.n,
        "passed_over": dict(result.fake.passed_over),
        "max_images": result.max_images,
        "seed": result.seed,
        "generator": drawn_by and {key: drawn_by[key] for key in drawn_by if key not in _PER_CHECKPOINT},
        "checkpoint": checkpoint,
        "extractor": None if result.extractor is None else result.extractor.name,
        "device": result.device,
        "versions": {name: result.versions[name] for name in ("genpr", "torch")},
        "listing": listing,
        "seconds": seconds,
        "timestamp": timestamp,
    }
