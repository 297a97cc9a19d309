"""The folder of a sweep: one file per finished point, so that a sweep resumes after an interruption."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from genpr.errors import DataError, UsageError
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.result import Result, result_of
from genpr.images.folder import walk_files
from genpr.limits import ARCHIVED_PARSED_BYTES, RESULT_BYTES, parse_json, read_bytes
from genpr.storage import (
    atomic_path,
    check_place,
    exclusive_lock,
    open_regular,
    remove_temporaries,
    unwritable,
)

_LONGEST_NAME = 100
_SCHEMA = "genpr.sweep-point/1"

SWEEP_FILES = ("sweep.json", "sweep.csv", "sweep.png", "sweep.svg")
"""What `genpr.report.files.write_sweep` writes into the folder."""


class SweepFolder:
    """Finished points of one sweep, each with the key of what determined it.

    Args:
        path: The folder; made when it is first locked.
        restart: Score again what it holds of another sweep, instead of refusing it.
    """

    def __init__(self, path: Path, *, restart: bool = False) -> None:
        self.path, self.restart = path, restart
        self._points = path / "points"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other sweeps, and remove the temporary files of an interrupted one.

        Raises:
            UsageError: A file of the sweep cannot be written there (`genpr.storage.check_place`).
            ResourceError: Another sweep is under way there ("locked"), or the folder cannot be made ("unwritable").
        """
        try:
            self._points.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error
        for name in SWEEP_FILES:
            check_place(self.path / name)
        busy = f"another sweep is under way in {self.path}; wait for it, or choose another folder"
        lock = exclusive_lock(self._points / ".lock", busy=busy)
        try:
            try:
                remove_temporaries(self.path, "|".join(map(re.escape, SWEEP_FILES)))
                remove_temporaries(self._points, r".+\.json")
            except OSError as error:
                raise unwritable(self.path, error) from error
            yield
        finally:
            lock.release()

    def key_of(
        self,
        evaluator: Evaluator,
        axis: str,
        setting: float,
        source: object,
        key: Mapping[str, Any] | None,
    ) -> dict[str, Any] | None:
        """Everything that determines the numbers of a point; None where that is not known, such as for bare arrays."""
        if key is None and isinstance(source, str | os.PathLike):
            key = {"source": str(source), "listing": _listing(Path(source))}
        if key is None:
            return None
        found = {"axis": axis, "setting": setting, "fakes": dict(key), "recipe": evaluator.recipe}
        return dict(parse_json(json.dumps(found)))  # as it will be read back

    def load(self, axis: str, setting: float, key: Mapping[str, Any]) -> Result | None:
        """The result of a finished point, or None.

        Raises:
            UsageError: There is a point of this setting from another sweep ("other-sweep").
            DataError: The file of the point is no such file ("not-a-point").
        """
        path = self._path_of(axis, setting)
        if not path.is_file():
            return None
        try:
            stored, result = _point_of(parse_json(_content(path), most=ARCHIVED_PARSED_BYTES))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path} holds no point of a sweep ({type(error).__name__}: {error}); move it away, and it is scored again",
                code="not-a-point",
                path=str(path),
            ) from error
        if stored == key:
            return result
        if self.restart:
            return None
        raise UsageError(
            f"{path} is a point of another sweep: {_difference(stored, key)}; choose another folder, or score it again with "
            "--restart",
            code="other-sweep",
            path=str(path),
        )

    def save(self, axis: str, setting: float, key: Mapping[str, Any], result: Result) -> None:
        """Write a finished point, whole or not at all."""
        record = {"schema": _SCHEMA, "key": key, "result": result.to_dict()}
        self.write(self._path_of(axis, setting), json.dumps(record, allow_nan=False) + "\n")

    def write(self, path: Path, content: str | bytes) -> None:
        """Write a file of the folder atomically.

        Raises:
            ResourceError: It cannot be written ("unwritable").
        """
        try:
            with atomic_path(path) as temporary:
                temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        except OSError as error:
            raise unwritable(path, error) from error

    def _path_of(self, axis: str, setting: float) -> Path:
        return self._points / f"{_file_name_of(axis)}={setting!r}.json"


def _file_name_of(axis: str) -> str:
    """The name of an axis with characters escaped that are unsafe in a file name."""
    return re.sub(r"[^\w -]|^\.", lambda found: f"%{ord(found[0]):02x}", axis)[:_LONGEST_NAME]


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return read_bytes(file, RESULT_BYTES, name=str(path), what="a point", code="not-a-point")


def _point_of(record: Mapping[str, Any]) -> tuple[Any, Result]:
    if record["schema"] != _SCHEMA:
        raise ValueError(f"schema {record['schema']} instead of {_SCHEMA}")
    return record["key"], result_of(record["result"])


def _listing(path: Path) -> str:
    """Hash of the names, sizes and times of the files of a source."""
    files = sorted(path / each for each in walk_files(path)) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        try:
            facts = file.stat()
        except OSError:
            continue  # whoever scores it says what is wrong
        name = file.relative_to(path) if path.is_dir() else file.name
        digest.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _difference(stored: Any, wanted: Mapping[str, Any]) -> str:  # noqa: ANN401 - whatever a file holds
    """The fields that differ, with both values."""
    found = [
        f"{name} was {_short(there)}, now {_short(here)}"
        for name, there, here in _leaves(stored, wanted, "")
        if there != here
    ]
    shown = "; ".join(found[:3])
    return shown + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _leaves(stored: Any, wanted: Any, name: str) -> list[tuple[str, Any, Any]]:  # noqa: ANN401
    if not isinstance(stored, dict) or not isinstance(wanted, dict):
        return [(name, stored, wanted)]
    keys = dict.fromkeys([*wanted, *stored])
    return [
        leaf
        for key in keys
        for leaf in _leaves(stored.get(key), wanted.get(key), f"{name}.{key}" if name else key)
    ]


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 40 else text[:12] + "..."
