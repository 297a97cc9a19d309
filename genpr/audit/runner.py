"""Draw, measure, and keep: every point of every check, on as many processes as wished, from where it was left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Self

from genpr.audit.checks import CHECKS, REPEATS, Case, GridName, cases
from genpr.audit.draws import standardised
from genpr.audit.family import Family
from genpr.audit.results import Results, Run, Spread, load, repair, to_line
from genpr.errors import GenprError, ResourceError, UsageError, some

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
        resume: Go on from what `path` holds.
        progress: Told how far it is.

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
    with ExitStack() as stack:
        keep = stack.enter_context(_Keeper(path)) if path is not None else None
        for done, (work, spreads) in enumerate(_measured(todo, run, jobs), start=1):
            results.add(work.case, spreads)
            if keep is not None:
                keep.write(to_line(run, work.case, spreads))
            if progress is not None:
                progress("audit", done, len(todo))
    return results


def measure(case: Case, families: Sequence[Family], *, repeats: int, seed: int) -> dict[str, Spread]:
    """Draw one point `repeats` times and measure it."""
    values: dict[str, list[float]] = {name: [] for family in families for name in family.kinds}
    draw = CHECKS[case.check].draw
    for repeat in range(repeats):
        real, fake = standardised(*draw(case.rng(seed, repeat), case.setting, case.x))
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


class _Keeper:
    """Appends lines to a file, each of them flushed: what is lost when a run is stopped is one point."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        try:
            self._file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise self._unwritable(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: str) -> None:
        """One line."""
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> ResourceError:
        text = f"{self._path} cannot be written ({error.strerror})"
        return ResourceError(text, code="unwritable", path=str(self._path))


def _begin(path: Path | None, run: Run, *, resume: bool) -> Results:
    if path is None or not path.exists():
        return Results(run)
    if not resume:
        raise UsageError(
            f"{path} holds results already; go on from them with --resume, or choose another --out",
            code="results-exist",
            path=str(path),
        )
    results = load(path, run)
    repair(path)
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
