"""Run the checks on several processes, and keep the results as JSON lines, so that an audit can be resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from genpr.audit.checks import CHECKS, REPEATS, Case, GridName, Setting, cases, standardized
from genpr.audit.criteria import Curve
from genpr.audit.metrics import Family
from genpr.errors import DataError, GenprError, ResourceError, UsageError, some
from genpr.limits import RESULT_BYTES, parse_json, read_bytes
from genpr.storage import from_dict, open_regular

_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Run:
    """What was drawn; results of different runs do not mix.

    Attributes:
        grid: "quick" or "full".
        repeats: Draws per point.
        seed: From which all draws follow.
    """

    grid: GridName
    repeats: int
    seed: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over the repeats; NaN where the metric gave no finite value, or for one repeat."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Of one value per repeat, rounded as it will be stored."""
        if not np.isfinite(values).all():
            return cls(math.nan, math.nan)
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return cls(_rounded(float(np.mean(values))), sd if math.isnan(sd) else _rounded(sd))


@dataclass(slots=True)
class Results:
    """All that is known of one run.

    Attributes:
        run: What was drawn.
        values: By case and metric.
    """

    run: Run
    values: dict[Case, dict[str, Spread]] = field(default_factory=dict)

    def add(self, case: Case, spreads: Mapping[str, Spread]) -> None:
        """Take in what was measured at one point."""
        self.values.setdefault(case, {}).update(spreads)

    def has(self, case: Case, names: Mapping[str, object]) -> bool:
        """Whether all the named metrics were measured there."""
        return names.keys() <= self.values.get(case, {}).keys()

    def curve(self, check: str, setting: Setting, metric: str) -> Curve | None:
        """A metric along a grid; None unless every point was measured."""
        points = CHECKS[check].points(setting, self.run.grid)
        found = [self.values.get(Case(check, setting, x), {}).get(metric) for x in points]
        spreads = [spread for spread in found if spread is not None]
        if len(spreads) < len(points):
            return None
        root = math.sqrt(self.run.repeats)
        return Curve(
            np.array(points),
            np.array([spread.mean for spread in spreads]),
            np.array([spread.sd / root for spread in spreads]),
            setting.scenario,
            str(setting),
        )


def to_line(run: Run, case: Case, spreads: Mapping[str, Spread]) -> str:
    """One JSON object without a line break."""
    record = {
        "grid": run.grid,
        "repeats": run.repeats,
        "seed": run.seed,
        "check": case.check,
        "scenario": case.setting.scenario,
        "dimension": case.setting.dimension,
        "x": case.x,
        "metrics": {name: [_or_none(spread.mean), _or_none(spread.sd)] for name, spread in spreads.items()},
    }
    return json.dumps(record, allow_nan=False)


def load(path: Path, run: Run) -> Results:
    """What an earlier run left. A last line that was cut short is left out.

    Raises:
        DataError: The file cannot be read or is none of an audit.
        UsageError: It holds another grid, other repeats or another seed.
    """
    results = Results(run)
    for number, line in _lines(path):
        try:
            record = parse_json(line)
            setting = Setting(from_dict(int, record["dimension"]), from_dict(str, record["scenario"]))
            case = Case(from_dict(str, record["check"]), setting, from_dict(float, record["x"]))
            found = Run(record["grid"], record["repeats"], record["seed"])
            pairs = from_dict(Mapping[str, tuple[float | None, float | None]], record["metrics"])
            spreads = {name: _spread(mean, sd) for name, (mean, sd) in pairs.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}, line {number}: this is no result of an audit ({type(error).__name__}: {error})",
                code="file-damaged",
                path=str(path),
            ) from error
        if found != run:
            raise UsageError(
                f"{path} holds results of the {found.grid} grid with {found.repeats} repeats and seed {found.seed}, "
                f"not of the {run.grid} grid with {run.repeats} repeats and seed {run.seed}; choose another --out",
                code="other-run",
                path=str(path),
            )
        results.add(case, spreads)
    return results


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that end: one that does not was being written when its run was stopped."""
    try:
        with open_regular(path) as file:
            data = read_bytes(file, RESULT_BYTES, name=str(path), what="an audit", code="file-damaged")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error})", code="file-damaged", path=str(path)) from error
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if line.endswith("\n"):
            yield number, line


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _spread(mean: float | None, sd: float | None) -> Spread:
    if sd is not None and sd < 0:
        raise ValueError(f"a standard deviation is {sd:g}")
    return Spread(*(math.nan if value is None else float(value) for value in (mean, sd)))


Progress = Callable[[str, int, int | None], None]
"""Called with "audit", the points done, and their number."""


@dataclass(frozen=True, slots=True)
class _Work:
    """One point, for the families that were not measured there."""

    case: Case
    families: tuple[Family, ...]


def run_audit(
    families: Sequence[Family],
    *,
    grid: GridName = "quick",
    checks: Sequence[str] | None = None,
    repeats: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    path: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Measure the metrics of `families` on the checks.

    A point depends on the seed and its own name alone, so that metrics can be added later on the same data.

    Args:
        families: Metrics that are computed together; see `genpr.audit.metrics`.
        grid: "quick" takes minutes, "full" is the published one.
        checks: Names of checks; None for all.
        repeats: Draws per point; None for 3 in the quick grid and 10 in the full one.
        seed: From which all draws follow.
        jobs: Processes. More than one needs functions that can be pickled, and, as always in Python, a script whose
            own work is under `if __name__ == "__main__"`.
        path: JSON lines file that keeps each point as soon as it is measured.
        resume: Continue from what `path` holds.
        progress: Called as `Progress` says.

    Raises:
        UsageError: A name is unknown or doubled, a number is impossible, or `path` holds something else.
        DataError: `path` cannot be read.
        ResourceError: `path` cannot be written, or a process was stopped.
    """
    names = _check_names(checks)
    _check_families(families)
    run = Run(grid, REPEATS[grid] if repeats is None else repeats, seed)
    if run.repeats < 1 or jobs < 1 or seed < 0:
        raise UsageError(
            f"repeats and jobs must be at least 1 and seed at least 0, not {run.repeats}, {jobs}, {seed}",
            code="bad-option",
        )
    results = _begin(path, run, resume=resume)
    todo = [
        _Work(case, missing)
        for case in cases(names, grid)
        if (missing := tuple(family for family in families if not results.has(case, family.kinds)))
    ]
    for done, (work, spreads) in enumerate(_measured(todo, run, jobs), start=1):
        results.add(work.case, spreads)
        if path is not None:
            _append(path, to_line(run, work.case, spreads))
        if progress is not None:
            progress("audit", done, len(todo))
    return results


def _append(path: Path, line: str) -> None:
    """One line: at most the last point is lost when a run is stopped."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        text = f"{path} cannot be written ({error.strerror})"
        raise ResourceError(text, code="unwritable", path=str(path)) from error


def measure(case: Case, families: Sequence[Family], *, repeats: int, seed: int) -> dict[str, Spread]:
    """Draw one point `repeats` times and measure it."""
    values: dict[str, list[float]] = {name: [] for family in families for name in family.kinds}
    draw = CHECKS[case.check].draw
    for repeat in range(repeats):
        real, fake = standardized(*draw(case.rng(seed, repeat), case.setting, case.x))
        for family in families:
            measured = family.function(real, fake)
            for name in family.kinds:
                values[name].append(float(measured[name]))
    return {name: Spread.of(found) for name, found in values.items()}


def _measured(todo: Sequence[_Work], run: Run, jobs: int) -> Iterator[tuple[_Work, Mapping[str, Spread]]]:
    if jobs == 1 or len(todo) < 2:
        for work in todo:
            yield work, _measure_work(work, run)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_measure_apart, work, run): work for work in todo}
        try:
            for future in as_completed(waiting):
                outcome = future.result()
                if isinstance(outcome, tuple):
                    message, code = outcome
                    raise UsageError(message, code=code)
                yield waiting[future], outcome
        except BrokenProcessPool as error:
            text = "a process of the audit was stopped from outside; is memory short? Use fewer --jobs"
            raise ResourceError(text, code="process-lost") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _measure_work(work: _Work, run: Run) -> dict[str, Spread]:
    try:
        return measure(work.case, work.families, repeats=run.repeats, seed=run.seed)
    except GenprError as error:
        where = f"check {work.case.check!r}, {work.case.setting}, x = {work.case.x:g}"
        raise UsageError(f"{error} ({where})", code=error.code) from error


def _measure_apart(work: _Work, run: Run) -> dict[str, Spread] | tuple[str, str]:
    """In another process, from which errors with a code do not come back as they are."""
    try:
        return _measure_work(work, run)
    except UsageError as error:
        return str(error), error.code


def _begin(path: Path | None, run: Run, *, resume: bool) -> Results:
    if path is None or not path.exists():
        return Results(run)
    if not resume:
        raise UsageError(
            f"{path} holds results already; continue with --resume, or choose another --out",
            code="results-exist",
            path=str(path),
        )
    results = load(path, run)
    with path.open("r+b") as file:  # a cut last line, so that the next one starts on its own
        file.truncate(file.read().rfind(b"\n") + 1)
    return results


def _check_names(checks: Sequence[str] | None) -> tuple[str, ...]:
    if checks is None:
        return tuple(CHECKS)
    if unknown := sorted(set(checks) - set(CHECKS)):
        raise UsageError(f"unknown checks: {some(unknown)}; known: {', '.join(CHECKS)}", code="unknown-check")
    return tuple(name for name in CHECKS if name in checks)


def _check_families(families: Sequence[Family]) -> None:
    names = [name for family in families for name in family.kinds]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two metrics are called {doubled[0]!r}; rename one", code="doubled-metric")
