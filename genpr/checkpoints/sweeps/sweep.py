"""One generator at several settings of one axis (truncation, guidance, steps, ...), scored against the same reals."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from genpr.checkpoints.ranking.goal import Goal
from genpr.checkpoints.ranking.tradeoff import Point, dominated_area, knee, pareto_front
from genpr.checkpoints.sweeps.folder import SweepFolder
from genpr.errors import GenprError, UsageError
from genpr.evaluation.compare import compare
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.result import Result
from genpr.metrics.f_beta import F_SCORE_METRICS, f_beta
from genpr.metrics.value import MetricValue

SCHEMA = "genpr.sweep/1"

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
        """The points that no other one beats in precision and recall, in order of rising recall."""
        return tuple(self.points[place] for place in pareto_front(self._tradeoffs))

    @property
    def area(self) -> float:
        """Area of all (recall, precision) that some point reaches in both; see `dominated_area`."""
        return dominated_area(self._tradeoffs)

    @property
    def knee(self) -> SweepPoint | None:
        """The point of the front that bulges most; see `tradeoff.knee`."""
        place = knee(self._tradeoffs)
        return None if place is None else self.points[place]

    @property
    def differences(self) -> tuple[str, ...]:
        """Why the settings should not be held against the first, such as other numbers of images; empty if they may be."""
        if len(self.points) < 2:
            return ()
        results = {f"{self.axis} = {point.setting:g}": point.result for point in self.points}
        return compare(results, force=True).differences

    @property
    def _tradeoffs(self) -> list[Point]:
        return [point.tradeoff for point in self.points]

    def best(self, goal: Goal) -> SweepPoint | None:
        """The best point for a goal; None if none reaches what it asks for.

        Raises:
            UsageError: The goal is about metrics that were not computed, or of which less is better.
        """
        place = goal.best([point.result for point in self.points])
        return None if place is None else self.points[place]

    def contenders(self, goal: Goal) -> tuple[SweepPoint, ...] | None:
        """The best point and those that cannot be told from it; see `Goal.contenders`. None where nobody can tell.

        Raises:
            UsageError: As `best`.
        """
        places = goal.contenders([point.result for point in self.points])
        return None if places is None else tuple(self.points[place] for place in places)

    def to_dict(self, goal: Goal | None = None) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        knee, best, contenders = self.knee, self.best(goal or Goal()), self.contenders(goal or Goal())
        return {
            "schema": SCHEMA,
            "axis": self.axis,
            "front": [point.setting for point in self.front],
            "area": self.area,
            "knee": None if knee is None else knee.setting,
            "goal": str(goal or Goal()),
            "best": None if best is None else best.setting,
            "contenders": None if contenders is None else [point.setting for point in contenders],
            "differences": list(self.differences),
            "points": [
                {"setting": point.setting, "f1": point.values["f1"], "result": point.result.to_dict()}
                for point in self.points
            ],
        }

    def to_json(self, *, goal: Goal | None = None, indent: int | None = None) -> str:
        """`to_dict` as text; NaN and infinities cannot occur."""
        return json.dumps(self.to_dict(goal), indent=indent, allow_nan=False)

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
    """Codes of what its notices warn of."""
    return [item.code for item in result.notices if item.level == "warning"]


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
        keys: What decides the fakes of each setting, as plain JSON types: what `folder` holds of other fakes is not
            taken for these. Folders and files need none.
        folder: Where finished points are kept and looked for.
        progress: Called after each setting.

    Raises:
        UsageError: There are no settings, or one is no finite number ("bad-setting"); the evaluator computes no precision
            and recall ("no-tradeoff"); the folder holds points of another sweep ("other-sweep").
        DataError, ResourceError: As `Evaluator.score`, with the setting in the message.
    """
    settings = _checked(sources)
    if missing := {*F_SCORE_METRICS} - set(evaluator.metrics):
        raise UsageError(
            f"a sweep needs precision and recall, and {' and '.join(sorted(missing))} is not among the metrics "
            f"{', '.join(evaluator.metrics)}",
            code="no-tradeoff",
        )
    with nullcontext() if folder is None else folder.held():
        points = _scored_points(evaluator, sources, settings, axis, keys or {}, folder, progress)
    return Sweep(axis, tuple(points))


def _scored_points(
    evaluator: Evaluator,
    sources: Mapping[float, object],
    settings: Sequence[float],
    axis: str,
    keys: Mapping[float, Mapping[str, Any]],
    folder: SweepFolder | None,
    progress: PointProgress | None,
) -> list[SweepPoint]:
    points = []
    for done, setting in enumerate(settings, start=1):
        source = sources[setting]
        key = None if folder is None else folder.key_of(evaluator, axis, setting, source, keys.get(setting))
        result = None if folder is None or key is None else folder.find(axis, setting, key)
        if result is None:
            result = _scored(evaluator, source, axis, setting)
            if folder is not None and key is not None:
                folder.keep(axis, setting, key, result)
        points.append(SweepPoint(setting, result))
        if progress is not None:
            progress(done, len(settings), setting, result)
    return points


def _checked(sources: Mapping[float, object]) -> Sequence[float]:
    """The settings, ascending."""
    if not sources:
        raise UsageError("a sweep needs at least one setting, found none", code="bad-setting")
    for setting in sources:
        is_number = isinstance(setting, int | float) and not isinstance(setting, bool)
        if not is_number or not math.isfinite(setting):
            raise UsageError(f"a setting is a finite number, not {setting!r}", code="bad-setting")
    return sorted(sources)


def _scored(evaluator: Evaluator, source: object, axis: str, setting: float) -> Result:
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
