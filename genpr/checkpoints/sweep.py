"""Score one generator at several settings of one axis (truncation, guidance, steps, ...) against the same reals.

A sweep may have a folder with one file per finished point, so that it resumes after an interruption.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from genpr.checkpoints.criterion import Objective, Point, dominated_area, knee, pareto_front
from genpr.checkpoints.options import SamplerKeywords, SamplerOptions
from genpr.checkpoints.sampler import Sampler
from genpr.checkpoints.watch import files_of, listing_of
from genpr.errors import DataError, GenprError, UsageError
from genpr.evaluation.compare import compare
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.result import Result, result_of
from genpr.features.options import takes_options
from genpr.limits import ARCHIVED_PARSED_BYTES, RESULT_BYTES, parse_json, read_bytes
from genpr.metrics.f_beta import F_SCORE_METRICS, f_beta
from genpr.metrics.value import MetricValue
from genpr.storage import (
    check_place,
    exclusive_lock,
    open_regular,
    remove_temporaries,
    replace_file,
    unwritable,
)

SCHEMA, _POINT_SCHEMA = "genpr.sweep/1", "genpr.sweep-point/2"

SWEEP_FILES = ("sweep.json", "sweep.csv", "sweep.png", "sweep.svg")
"""What `genpr.report.files.write_sweep` writes into the folder of a sweep."""

_LONGEST_NAME = 100

PointProgress = Callable[[int, int, float, Result], None]
"""Called after each setting: how many are done, of how many, which one, and its result."""


@dataclass(frozen=True)
class SweepPoint:
    """The generator at one setting.

    Attributes:
        setting: Where on the axis.
        result: Its score.
    """

    setting: float
    result: Result

    @property
    def tradeoff(self) -> Point:
        """Recall and precision."""
        return self.result.tradeoff

    @property
    def values(self) -> dict[str, float]:
        """By metric, with "f1" of precision and recall."""
        recall, precision = self.tradeoff
        return {name: each.value for name, each in self.result.metrics.items()} | {
            "f1": f_beta(precision, recall, 1.0)
        }


@dataclass(frozen=True)
class Sweep:
    """Scores along one axis.

    Attributes:
        axis: Its name, such as "psi".
        points: In ascending order of the setting.
    """

    axis: str
    points: tuple[SweepPoint, ...]

    @property
    def front(self) -> tuple[SweepPoint, ...]:
        """The points that no other one dominates in precision and recall, in order of rising recall."""
        return tuple(self.points[index] for index in pareto_front(self._tradeoffs))

    @property
    def area(self) -> float:
        """Area of all (recall, precision) that some point dominates; see `genpr.checkpoints.criterion.dominated_area`."""
        return dominated_area(self._tradeoffs)

    @property
    def knee(self) -> SweepPoint | None:
        """The point of the front farthest above the line between its ends; see `genpr.checkpoints.criterion.knee`."""
        index = knee(self._tradeoffs)
        return None if index is None else self.points[index]

    @property
    def differences(self) -> tuple[str, ...]:
        """Why settings are not comparable with the first, such as other numbers of images; empty if they are."""
        if len(self.points) < 2:
            return ()
        results = {f"{self.axis} = {point.setting:g}": point.result for point in self.points}
        return compare(results, force=True).differences

    @property
    def _tradeoffs(self) -> list[Point]:
        return [point.tradeoff for point in self.points]

    def best(self, objective: Objective) -> SweepPoint | None:
        """The best point for an objective; None if all are below its lower limits.

        Raises:
            UsageError: A metric of the objective was not computed, or lower is better in it.
        """
        index = objective.best([point.result for point in self.points])
        return None if index is None else self.points[index]

    def contenders(self, objective: Objective) -> tuple[SweepPoint, ...] | None:
        """The best point and those statistically tied with it; None where ties are not known (`Objective.contenders`).

        Raises:
            UsageError: As `best`.
        """
        indices = objective.contenders([point.result for point in self.points])
        return None if indices is None else tuple(self.points[index] for index in indices)

    def to_dict(self, objective: Objective | None = None) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        objective = objective or Objective()
        knee, best, contenders = self.knee, self.best(objective), self.contenders(objective)
        return {
            "schema": SCHEMA,
            "axis": self.axis,
            "front": [point.setting for point in self.front],
            "area": self.area,
            "knee": None if knee is None else knee.setting,
            "goal": str(objective),
            "best": None if best is None else best.setting,
            "contenders": None if contenders is None else [point.setting for point in contenders],
            "differences": list(self.differences),
            "points": [
                {"setting": point.setting, "f1": point.values["f1"], "result": point.result.to_dict()}
                for point in self.points
            ],
        }

    def to_json(self, *, objective: Objective | None = None, indent: int | None = None) -> str:
        """`to_dict` as text; NaN and infinities cannot occur."""
        return json.dumps(self.to_dict(objective), indent=indent, allow_nan=False)

    def to_csv(self) -> str:
        """One line per setting: each metric with the ends of its interval and its null, f1, and codes of warnings."""
        names = list(self.points[0].result.metrics)
        header = [self.axis, *(f"{name}{part}" for name in names for part in ("", "_low", "_high", "_null"))]
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([*header, "f1", "on_front", "warnings"])
        front = {point.setting for point in self.front}
        for point in self.points:
            cells = [cell for name in names for cell in _cells(point.result.metrics.get(name))]
            warnings = " ".join(warnings_of(point.result))
            writer.writerow([point.setting, *cells, point.values["f1"], point.setting in front, warnings])
        return buffer.getvalue()


def warnings_of(result: Result) -> list[str]:
    """Codes of the warnings of a result."""
    return [item.code for item in result.notices if item.level == "warning"]


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
            key = {"source": str(source), "listing": listing_of(Path(source), files_of(Path(source)))}
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
            if self.restart:
                return None
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
        record = {"schema": _POINT_SCHEMA, "key": key, "result": result.to_dict()}
        replace_file(self._path_of(axis, setting), json.dumps(record, allow_nan=False) + "\n")

    def _path_of(self, axis: str, setting: float) -> Path:
        return self._points / f"{_file_name_of(axis)}={setting!r}.json"


def _file_name_of(axis: str) -> str:
    """The name of an axis with characters escaped that are unsafe in a file name."""
    return re.sub(r"[^\w -]|^\.", lambda found: f"%{ord(found[0]):02x}", axis)[:_LONGEST_NAME]


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return read_bytes(file, RESULT_BYTES, name=str(path), what="a point", code="not-a-point")


def _point_of(record: Mapping[str, Any]) -> tuple[Any, Result]:
    if record["schema"] != _POINT_SCHEMA:
        raise ValueError(f"schema {record['schema']} instead of {_POINT_SCHEMA}")
    return record["key"], result_of(record["result"])


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


def sweep(
    evaluator: Evaluator,
    sources: Mapping[float, object],
    *,
    axis: str = "psi",
    keys: Mapping[float, Mapping[str, Any]] | None = None,
    folder: SweepFolder | None = None,
    progress: PointProgress | None = None,
) -> Sweep:
    """Score a fake set for each setting of an axis.

    Args:
        evaluator: The reals, fitted once.
        sources: Fakes by setting, each anything that `Evaluator.score` takes.
        axis: What is varied.
        keys: What determines the fakes of each setting, as plain JSON types, so that `folder` does not return points of
            other fakes. Folders and files need none.
        folder: Where finished points are saved and looked up.
        progress: Called after each setting.

    Raises:
        UsageError: There are no settings, or one is no finite number ("bad-setting"); the evaluator computes no precision
            and recall ("no-tradeoff"); the folder holds points of another sweep ("other-sweep").
        DataError, ResourceError: As `Evaluator.score`, with the setting in the message.
    """
    settings = _sorted_settings(sources)
    if missing := {*F_SCORE_METRICS} - set(evaluator.metrics):
        raise UsageError(
            f"a sweep needs precision and recall, and {' and '.join(sorted(missing))} is not among the metrics "
            f"{', '.join(evaluator.metrics)}",
            code="no-tradeoff",
        )
    points = []
    with nullcontext() if folder is None else folder.locked():
        for done, setting in enumerate(settings, start=1):
            source, result, key = sources[setting], None, None
            if folder is not None:
                key = folder.key_of(evaluator, axis, setting, source, (keys or {}).get(setting))
            if folder is not None and key is not None:
                result = folder.load(axis, setting, key)
            if result is None:
                result = _score(evaluator, source, axis, setting)
                if folder is not None and key is not None:
                    folder.save(axis, setting, key, result)
            points.append(SweepPoint(setting, result))
            if progress is not None:
                progress(done, len(settings), setting, result)
    return Sweep(axis, tuple(points))


def sweep_sampler(
    sampler: Sampler,
    evaluator: Evaluator,
    settings: Iterable[float],
    *,
    folder: SweepFolder | None = None,
    progress: PointProgress | None = None,
) -> Sweep:
    """Score a sampler at each of some settings of its axis.

    Args:
        sampler: The generator with its latents.
        evaluator: The reals, fitted once.
        settings: Where on the axis.
        folder: Where finished points are saved and looked up.
        progress: Called after each setting.

    Raises:
        UsageError, DataError, ResourceError: As `sweep`, and what the generator does wrong.
    """
    identity = sampler.identity
    sources = {setting: sampler.images(setting) for setting in settings}
    keys = dict.fromkeys(sources, identity)
    return sweep(evaluator, sources, axis=sampler.axis, keys=keys, folder=folder, progress=progress)


@takes_options(SamplerOptions)
def truncation_sweep(
    generator: object,
    evaluator: Evaluator,
    psis: Iterable[float],
    *,
    n: int,
    out: str | os.PathLike[str] | None = None,
    progress: PointProgress | None = None,
    **options: Unpack[SamplerKeywords],
) -> Sweep:
    """Score a generator at each of some truncation psis, or at settings of another axis.

    Every psi sees the same latents and the same noise, and the reals are embedded once.

    Args:
        generator: A callable `(latents, *, labels=None, **axis)`, an object with `mapping` and `synthesis`, or what
            `genpr.load_generator` gave.
        evaluator: The reals, fitted once.
        psis: Settings of the axis.
        n: Images per setting.
        out: Folder where finished points are saved; the same call resumes the sweep after an interruption. A generator is
            identified by its weights and code where it has any, and a plain function by its name alone: use another
            folder after changing it.
        progress: Called after each setting: how many are done, of how many, which one, and its result.
        **options: The fields of `SamplerOptions`.

    Raises:
        UsageError: Something of this is impossible, or `out` holds points of another sweep.
        DataError: The generator's images cannot be used.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import genpr
        >>> from genpr.demo import ShapesGenerator
        >>> reals = genpr.Sampler.of(ShapesGenerator(), n=60, seed=1).images(1.0)
        >>> evaluator = genpr.Evaluator(reals, extractor="pixels", control=False)
        >>> found = genpr.truncation_sweep(ShapesGenerator(), evaluator, [0.1, 1.0], n=60)
        >>> found.points[0].result["recall"] < found.points[1].result["recall"]
        True
    """
    sampler = Sampler.of(generator, n=n, **vars(SamplerOptions(**options)))
    folder = None if out is None else SweepFolder(Path(out))
    return sweep_sampler(sampler, evaluator, psis, folder=folder, progress=progress)


def _sorted_settings(sources: Mapping[float, object]) -> Sequence[float]:
    """The settings, checked, in ascending order."""
    if not sources:
        raise UsageError("a sweep needs at least one setting, found none", code="bad-setting")
    for setting in sources:
        is_number = isinstance(setting, int | float) and not isinstance(setting, bool)
        if not is_number or not math.isfinite(setting):
            raise UsageError(f"a setting is a finite number, not {setting!r}", code="bad-setting")
    return sorted(sources)


def _score(evaluator: Evaluator, source: object, axis: str, setting: float) -> Result:
    try:
        result = evaluator.score(source)
    except GenprError as error:
        error.args = (f"at {axis} = {setting:g}: {error}",)
        raise
    if not {*F_SCORE_METRICS}.isdisjoint(result.undefined):
        raise UsageError(f"at {axis} = {setting:g}: precision or recall has no value", code="no-tradeoff")
    return result


def _cells(metric: MetricValue | None) -> list[float | None]:
    """Value, ends of the interval, null: empty where unknown."""
    if metric is None:
        return [None] * 4
    low, high = metric.interval or (None, None)
    return [metric.value, low, high, metric.null]
