"""Score a generator at several settings of one axis (truncation, guidance, steps, ...) against the same reals.

A sweep may have a folder with one file per finished point, so that it can resume after an interruption.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from genpr.checkpoints.generator import Sampler
from genpr.checkpoints.options import SamplerKeywords, SamplerOptions, named_by_code
from genpr.checkpoints.rank import check_computed, number_of, pareto_front, rank_results, score_named
from genpr.checkpoints.watch import listing_of
from genpr.errors import DataError, UsageError
from genpr.evaluation.compare import compare, results_text
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.result import Result, result_of
from genpr.features.options import takes_options
from genpr.images.datasets import CountedBatches
from genpr.images.paths import paths_of
from genpr.limits import RESULT_BYTES, parse_json, read_bytes
from genpr.metrics.f_beta import F_SCORE_METRICS, with_f1
from genpr.storage import (
    check_outside,
    exclusive_lock,
    open_regular,
    remove_temporaries,
    replace_file,
    report_write_errors,
)

SCHEMA, _POINT_SCHEMA = "genpr.sweep/1", "genpr.sweep-point/3"


@dataclass(frozen=True)
class SweepPoint:
    """The generator at one setting, and its score."""

    setting: float
    result: Result

    @property
    def values(self) -> dict[str, float]:
        """By metric, with "f1" where precision and recall are among them."""
        return with_f1({name: each.value for name, each in self.result.metrics.items()})


@dataclass(frozen=True)
class Objective:
    """The criterion that the best setting maximizes, and lower limits; settings below a limit are excluded."""

    maximize: str = "f1"
    at_least: Mapping[str, float] = field(default_factory=dict)

    def check(self, computed: Collection[str]) -> None:
        """Check that all metrics of the objective are computed, and that higher is better in each."""
        for name in (self.maximize, *self.at_least):
            if number_of(name).better != "higher":
                raise UsageError(f"{name} cannot be an objective: lower is better", code="no-order")
            check_computed(name, computed)

    def __str__(self) -> str:
        floors = [f"{name} at least {least:g}" for name, least in self.at_least.items()]
        return f"highest {self.maximize}" + (f" with {' and '.join(floors)}" if floors else "")


@dataclass(frozen=True)
class Sweep:
    """Scores along one axis, such as "psi", in ascending order of the setting."""

    axis: str
    points: tuple[SweepPoint, ...]

    @property
    def front(self) -> tuple[SweepPoint, ...]:
        """The points that no other point dominates in precision and recall, by ascending recall."""
        return tuple(
            self.points[index] for index in pareto_front([point.result.tradeoff for point in self.points])
        )

    @property
    def differences(self) -> tuple[str, ...]:
        """Why settings are not comparable with the first, such as different numbers of images; empty if they are."""
        return compare(self._by_name, force=True).differences if len(self.points) > 1 else ()

    @property
    def _by_name(self) -> dict[str, Result]:
        return {f"{self.axis} = {point.setting:g}": point.result for point in self.points}

    def __str__(self) -> str:
        """Each result with its notices, under its setting."""
        return results_text(self._by_name)

    def best(self, objective: Objective) -> SweepPoint | None:
        """The best point for an objective, the first of equal ones; None if all are below its lower limits."""
        by = number_of(objective.maximize)
        return max(self._included(objective), key=lambda point: by.value(point.result), default=None)

    def contenders(self, objective: Objective) -> tuple[SweepPoint, ...] | None:
        """The best point and those statistically tied with it, among the points that are not excluded.

        The lower limits are compared with the values, without their intervals. None if ties are not known, because a result has
        no replicates, or results are not comparable; see `genpr.rank_results`.
        """
        included = {str(point.setting): point for point in self._included(objective)}
        if not included:
            return ()
        results = {name: point.result for name, point in included.items()}
        ranking = rank_results(results, by=objective.maximize, force=True)
        contenders = [point for name, point in included.items() if name in ranking.contenders]
        return None if ranking.remarks else tuple(contenders)

    def _included(self, objective: Objective) -> list[SweepPoint]:
        """The points that have a value and reach the lower limits."""
        first = self.points[0].result
        objective.check([*first.metrics, *first.undefined])
        limits = {objective.maximize: -math.inf, **objective.at_least}
        return [
            point
            for point in self.points
            if all(
                (value := number_of(name).value_in(point.values)) is not None and value >= least
                for name, least in limits.items()
            )
        ]

    def to_dict(self, objective: Objective | None = None) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        objective = objective or Objective()
        best, contenders = self.best(objective), self.contenders(objective)
        return {
            "schema": SCHEMA,
            "axis": self.axis,
            "front": [point.setting for point in self.front],
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


class SweepFolder:
    """Finished points of one sweep, each with a key of everything that determines it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._points = path / "points"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other sweeps, and remove the temporary files of an interrupted one."""
        with report_write_errors(self.path):
            self._points.mkdir(parents=True, exist_ok=True)
        busy = f"another sweep is running in {self.path}; wait for it, or choose another folder"
        with exclusive_lock(self._points / ".lock", busy=busy):
            with report_write_errors(self.path):
                remove_temporaries(self.path, r"sweep\.(json|png)")
                remove_temporaries(self._points, r".+\.json")
            yield

    def load(self, setting: float, key: Mapping[str, Any]) -> Result | None:
        """The result of a finished point, or None."""
        path = self._path_of(setting)
        if not path.is_file():
            return None
        try:
            with open_regular(path) as file:
                data = read_bytes(file, RESULT_BYTES, name=str(path), what="a point", code="not-a-point")
            record = parse_json(data)
            old, result = named_by_code(record["key"]), result_of(record["result"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            text = f"{path} is not a point of a sweep ({type(error).__name__}: {error}); move it away to score it again"
            raise DataError(text, code="not-a-point", path=str(path)) from error
        new = named_by_code(key)
        if old == new:
            return result
        differing = [name for name in new if old.get(name) != new[name]]
        text = f"{path} is a point of another sweep (different {' and '.join(differing)}); choose another folder, or remove it"
        raise UsageError(text, code="other-sweep", path=str(path))

    def save(self, setting: float, key: Mapping[str, Any], result: Result) -> None:
        """Write a finished point atomically."""
        record = {"key": key, "result": result.to_dict()}
        replace_file(self._path_of(setting), json.dumps(record, allow_nan=False) + "\n")

    def _path_of(self, setting: float) -> Path:
        return self._points / f"{setting!r}.json"


def _key_of(evaluator: Evaluator, axis: str, setting: float, source: object) -> dict[str, Any] | None:
    """Everything that determines the values of a point, flat; None if that is not known, such as for arrays."""
    if isinstance(source, str | os.PathLike):
        listings = [listing_of(path) for path in paths_of(os.fsdecode(source))]
        listing = hashlib.sha256(" ".join(listings).encode()).hexdigest() if listings[1:] else listings[0]
        fakes: dict[str, object] = {"source": os.path.realpath(source), "listing": listing}
    elif isinstance(source, CountedBatches) and source.drawn_by is not None:
        fakes = dict(source.drawn_by)
    else:
        return None
    recipe = {f"recipe.{name}": value for name, value in evaluator.recipe.items()}
    found = {"schema": _POINT_SCHEMA, "axis": axis, "setting": setting, **fakes, **recipe}
    return dict(parse_json(json.dumps(found)))  # as it is read back


def sweep(
    evaluator: Evaluator,
    sources: Mapping[float, object],
    *,
    axis: str = "psi",
    folder: SweepFolder | None = None,
    progress: Callable[[int, int, float, Result], None] | None = None,
) -> Sweep:
    """Score a source for each setting of an axis; `progress` gets the number done, the total, the setting and its result."""
    if not sources:
        raise UsageError("expected at least one setting, found none", code="bad-setting")
    for setting in sources:
        is_number = isinstance(setting, int | float) and not isinstance(setting, bool)
        if not is_number or not math.isfinite(setting):
            raise UsageError(f"a setting must be a finite number, not {setting!r}", code="bad-setting")
    if missing := {*F_SCORE_METRICS} - set(evaluator.metrics):
        raise UsageError(
            f"a sweep needs precision and recall, but {' and '.join(sorted(missing))} is not among the metrics "
            f"{', '.join(evaluator.metrics)}",
            code="no-tradeoff",
        )
    if folder is not None:
        given = (evaluator.source, *sources.values())
        check_outside(folder.path, [each for each in given if isinstance(each, str | os.PathLike)])
    points, keys, known = [], {}, {}
    with nullcontext() if folder is None else folder.locked():
        # Points of another sweep are reported before the first new one is scored.
        for setting, source in sources.items():
            if folder is not None and (key := _key_of(evaluator, axis, setting, source)) is not None:
                keys[setting], known[setting] = key, folder.load(setting, key)
        for done, setting in enumerate(sorted(sources), start=1):
            result = known.get(setting)
            if result is None:
                result = score_named(evaluator, sources[setting], f"at {axis} = {setting:g}")
                if not {*F_SCORE_METRICS}.isdisjoint(result.undefined):
                    text = f"at {axis} = {setting:g}: precision or recall has no value"
                    raise UsageError(text, code="no-tradeoff")
                if folder is not None and setting in keys:
                    folder.save(setting, keys[setting], result)
            points.append(SweepPoint(setting, result))
            if progress is not None:
                progress(done, len(sources), setting, result)
    return Sweep(axis, tuple(points))


@takes_options(SamplerOptions)
def truncation_sweep(
    generator: object,
    evaluator: Evaluator,
    psis: Iterable[float],
    *,
    n: int,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, float, Result], None] | None = None,
    **options: Unpack[SamplerKeywords],
) -> Sweep:
    """Score a generator at several values of the truncation psi, or at settings of another axis.

    All settings use the same latents and the same noise, and the reals are embedded once.

    Args:
        generator: A callable `(latents, *, labels=None, **axis)`, or a `LoadedGenerator`.
        evaluator: The fitted reals and the options of the score.
        psis: Settings of the axis.
        n: Images per setting.
        out: Folder where finished points are saved; the same call resumes the sweep after an interruption. A generator is
            identified by its weights and code if it has any, and a plain function only by its name: use another folder
            after changing it.
        progress: Called after each setting with the number done, the total, the setting and its result.
        **options: The fields of `SamplerOptions`.

    Raises:
        UsageError: An option is impossible, or `out` has points of another sweep.
        DataError: The images of the generator cannot be used.
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
    sources = {psi: sampler.images(psi) for psi in psis}
    return sweep(evaluator, sources, axis=sampler.options.axis, folder=folder, progress=progress)
