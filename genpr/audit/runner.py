"""Run the checks in several processes, store the results as JSON lines, and evaluate the criteria.

The settings of the metrics are those of the published audit: k = 3 for improved precision and recall, k = 5 for all
other ball metrics (the covers use the 15th neighbor), and k = 4 with scale 1.2 for the
probabilistic pair. Balls are closed. For density and coverage, 5 is the smallest k that gives a perfect generator a
coverage above .95 at 1000 reals and 1000 fakes; it stays 5 if a check varies their numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpr.audit.checks import CHECKS, REPEATS, Case, GridName, Setting, cases, standardized
from genpr.audit.criteria import DEMANDS, Curve, Demand, Kind, Margin, Mark, all_of, published_mark
from genpr.errors import DataError, GenprError, ResourceError, UsageError, similar, some
from genpr.features.user_code import load_object
from genpr.limits import RESULT_BYTES, parse_json, read_bytes
from genpr.metrics.ball_metrics import precision, recall
from genpr.metrics.registry import BALLS, PAIRWISE, needed_balls, unknown_metrics
from genpr.runtime import USER_ERRORS, torch_threads
from genpr.storage import from_dict, open_regular, replace_file

Features = NDArray[np.float32]
Values = Mapping[str, float]
NOISE = 2.0
"""Standard errors within which a margin may be due to the draws."""

_K, _OTHER_K = 5, {precision.name: 3, recall.name: 3}
_CODE = "user-function"
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics that are computed together, with their kinds; `function` does not change its arguments."""

    kinds: Mapping[str, Kind]
    function: Callable[[Features, Features], Values]


def _shipped_values(prefix: str, names: tuple[str, ...], real: Features, fake: Features) -> Values:
    """The named ball metrics, or all metrics with a prefix, which share one scan."""
    from genpr.metrics.manifold import ball_scores
    from genpr.metrics.probabilistic import probabilistic_precision_recall
    from genpr.metrics.real_manifold import RealManifold
    from genpr.metrics.witnessed import witnessed

    with torch_threads(1):  # more threads are slower on sets this small
        if not prefix:
            ks = {name: _OTHER_K.get(name, _K) for name in names}
            side = RealManifold.fit(real, balls=needed_balls(ks)[0], device="cpu")
            return ball_scores(side, fake, ks=ks)
        function = probabilistic_precision_recall if prefix == "p_" else witnessed
        values = function(real, fake, device="cpu")
    return {f"{prefix}{name}": value for name, value in values._asdict().items()}


def shipped_kinds() -> dict[str, Kind]:
    """The kind of each metric of genpr, in display order."""
    pairs = {name: metric for name, metric in PAIRWISE.items() if name.startswith(("p_", "witnessed_"))}
    return {
        name: metric.measures for name, metric in {**BALLS, **pairs}.items() if metric.measures is not None
    }


def families_of(names: Iterable[str]) -> tuple[Family, ...]:
    """The named metrics in their families, with only the metrics that are requested."""
    requested, known = set(names), shipped_kinds()
    if unknown := sorted(requested - set(known)):
        raise unknown_metrics(unknown, known, more=" (--function adds a custom one)")
    found: dict[str, dict[str, Kind]] = {"": {}, "p_": {}, "witnessed_": {}}
    for name, kind in known.items():
        if name in requested:
            found["" if name in BALLS else f"{name.partition('_')[0]}_"][name] = kind
    return tuple(
        Family(kinds, partial(_shipped_values, prefix, tuple(kinds)))
        for prefix, kinds in found.items()
        if kinds
    )


def user_family(spec: str, kind: Kind) -> Family:
    """The function "path/to/file.py:function" as a metric of a kind."""
    _loaded(spec)  # so that errors are reported before anything is computed
    name = spec.rpartition(":")[2]
    return Family({name: kind}, partial(_user_values, spec, name))


@cache
def _loaded(spec: str) -> Any:  # noqa: ANN401 - a user's function
    """The function of a file, loaded once in each process."""
    return load_object(spec, kind="function", code=_CODE, call=lambda function: function)[0]


def _user_values(spec: str, name: str, real: Features, fake: Features) -> Values:
    """The value of a user's function for copies of reals (n, d) and fakes (m, d)."""
    try:
        return {name: float(_loaded(spec)(real.copy(), fake.copy()))}
    except USER_ERRORS as error:
        text = f"function {spec!r} did not return a number: {type(error).__name__}: {' '.join(str(error).split())}"
        raise UsageError(text, code=_CODE) from error


@dataclass(frozen=True, slots=True)
class Run:
    """The parameters of the data; results of different runs cannot be combined."""

    grid: GridName
    repeats: int
    seed: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over the repeats; NaN if a value is not finite, or for a single repeat."""

    mean: float
    sd: float

    @classmethod
    def from_values(cls, values: list[float]) -> Spread:
        """From one value per repeat, rounded as it is stored."""
        if not np.isfinite(values).all():
            return cls(math.nan, math.nan)
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return cls(*(float(f"{value:.{_DIGITS}g}") for value in (float(np.mean(values)), sd)))


@dataclass(slots=True)
class Results:
    """Results of a run, by case and metric."""

    run: Run
    values: dict[Case, dict[str, Spread]] = field(default_factory=dict)

    def add(self, case: Case, spreads: Mapping[str, Spread]) -> None:
        """Add the results at one point."""
        self.values.setdefault(case, {}).update(spreads)

    def curve(self, check: str, setting: Setting, metric: str) -> Curve | None:
        """A metric along a grid; None if a point is missing."""
        points = CHECKS[check].points(setting, self.run.grid)
        found = [self.values.get(Case(check, setting, x), {}).get(metric) for x in points]
        spreads = [spread for spread in found if spread is not None]
        if len(spreads) < len(points):
            return None
        mean = np.array([spread.mean for spread in spreads])
        se = np.array([spread.sd for spread in spreads]) / math.sqrt(self.run.repeats)
        return Curve(np.array(points), mean, se, setting.scenario, str(setting))


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
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Results:
    """Compute the metrics of `families` on the named checks, or on all, in `jobs` processes.

    The data of a point depend only on the seed and the name of the point, so that metrics can be added later. Each point is
    written to `path` as one JSON line when it is finished. `progress` is called with "audit", the number of points done and the
    total.
    """
    run = Run(grid, REPEATS[grid] if repeats is None else repeats, seed)
    if unknown := sorted(set(checks or ()) - set(CHECKS)):
        text = f"unknown checks: {some(unknown)}{similar(unknown[0], CHECKS)}; known: {', '.join(CHECKS)}"
        raise UsageError(text, code="unknown-check")
    names = [name for family in families for name in family.kinds]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two metrics have the name {doubled[0]!r}; rename one", code="doubled-metric")
    if path is not None and path.exists() and not resume:
        text = f"{path} already contains results; use --resume, or choose another --out"
        raise UsageError(text, code="results-exist", path=str(path))
    results = load(path, run) if path is not None and path.exists() else Results(run)
    lines = list(_lines(results))
    todo = [
        (case, missing)
        for case in cases(tuple(name for name in CHECKS if checks is None or name in checks), grid)
        if (
            missing := tuple(
                each for each in families if not each.kinds.keys() <= results.values.get(case, {}).keys()
            )
        )
    ]
    for done, (case, outcome) in enumerate(_outcomes(todo, run, jobs), start=1):
        if isinstance(outcome, tuple):
            is_resource = outcome[1] == "oom"
            raise (ResourceError if is_resource else UsageError)(outcome[0], code=outcome[1])
        results.add(case, outcome)
        if path is not None:
            lines += _lines(Results(run, {case: outcome}))
            replace_file(path, "".join(lines))
        if progress is not None:
            progress("audit", done, len(todo))
    return results


_Work = tuple[Case, tuple[Family, ...]]
# Results, or message and code of an error, since errors cannot be pickled.
_Outcome = dict[str, Spread] | tuple[str, str]


def _outcomes(todo: Sequence[_Work], run: Run, jobs: int) -> Iterator[tuple[Case, _Outcome]]:
    if jobs == 1 or len(todo) < 2:
        yield from ((work[0], _measure(work, run)) for work in todo)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_measure, work, run): work[0] for work in todo}
        try:
            yield from ((waiting[future], future.result()) for future in as_completed(waiting))
        except BrokenProcessPool as error:
            text = "a process of the audit was killed, possibly for lack of memory; use fewer --jobs"
            raise ResourceError(text, code="process-lost") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _measure(work: _Work, run: Run) -> _Outcome:
    """Draw one point `repeats` times and compute the metrics."""
    case, families = work
    values: dict[str, list[float]] = {name: [] for family in families for name in family.kinds}
    try:
        for repeat in range(run.repeats):
            drawn = CHECKS[case.check].draw(case.rng(run.seed, repeat), case.setting, case.x)
            real, fake = standardized(*drawn)
            for family in families:
                measured = family.function(real, fake)
                for name in family.kinds:
                    values[name].append(float(measured[name]))
    except GenprError as error:
        return f"{error} (check {case.check!r}, {case.setting}, x = {case.x:g})", error.code
    return {name: Spread.from_values(found) for name, found in values.items()}


def _lines(results: Results) -> Iterator[str]:
    for case, spreads in results.values.items():
        pairs = {name: (spread.mean, spread.sd) for name, spread in spreads.items()}
        metrics = {
            name: [None if math.isnan(value) else value for value in pair] for name, pair in pairs.items()
        }
        place = {"check": case.check, "scenario": case.setting.scenario, "dimension": case.setting.dimension}
        record = {**asdict(results.run), **place, "x": case.x, "metrics": metrics}
        yield json.dumps(record, allow_nan=False) + "\n"


def load(path: Path, run: Run) -> Results:
    """Read the results of an earlier run."""
    results, number = Results(run), 0
    try:
        with open_regular(path) as file:
            data = read_bytes(file, RESULT_BYTES, name=str(path), what="an audit", code="file-damaged")
        for number, line in enumerate(data.decode().splitlines(), start=1):  # noqa: B007 - for the message
            case, found, spreads = _parsed(line)
            if found != run:
                raise UsageError(
                    f"{path} contains results of the {found.grid} grid with {found.repeats} repeats and seed {found.seed}, "
                    f"not of the {run.grid} grid with {run.repeats} repeats and seed {run.seed}; choose another --out",
                    code="other-run",
                    path=str(path),
                )
            results.add(case, spreads)
    except GenprError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        text = f"{path}, line {number}: this is not a result of an audit ({type(error).__name__}: {error})"
        raise DataError(text, code="file-damaged", path=str(path)) from error
    return results


def _parsed(line: str) -> tuple[Case, Run, dict[str, Spread]]:
    record = parse_json(line)
    setting = Setting(from_dict(int, record["dimension"]), from_dict(str, record["scenario"]))
    case = Case(from_dict(str, record["check"]), setting, from_dict(float, record["x"]))
    pairs = from_dict(Mapping[str, tuple[float | None, float | None]], record["metrics"])
    if any(sd is not None and sd < 0 for _, sd in pairs.values()):
        raise ValueError("a standard deviation is negative")
    spreads = {
        name: Spread(*(math.nan if value is None else value for value in pair))
        for name, pair in pairs.items()
    }
    return case, Run(record["grid"], record["repeats"], record["seed"]), spreads


@dataclass(frozen=True, slots=True)
class Cell:
    """One metric and one demand; the mark is "T", "H" or "L" for a pass, "F" for a failure.

    The margin is that of the deciding point; for a failure, it is that of the published pass if there is one.
    """

    demand: Demand
    metric: str
    mark: Mark
    margin: Margin
    published: Mark | None

    @property
    def differs(self) -> bool:
        """Whether the published mark is different."""
        return self.published is not None and self.published != self.mark

    @property
    def errors(self) -> float:
        """The absolute margin in standard errors; infinite without a standard error."""
        se = self.margin.se
        return abs(self.margin.value) / se if se > 0 else math.inf

    @property
    def is_open(self) -> bool:
        """Whether the margin is within the noise of the draws, so that another seed may change the mark."""
        return self.errors <= NOISE

    @property
    def text(self) -> str:
        """The mark, with "~" if it is open, and "*" if it differs from the published one."""
        return self.mark + "~" * self.is_open + "*" * self.differs

    @property
    def reason(self) -> str:
        """Setting and reason of a pass or failure, in words."""
        where = f" ({self.margin.setting})" if self.margin.setting else ""
        if not math.isfinite(self.margin.value):
            return f"{self.margin.what}{where}"
        se = "" if math.isnan(self.margin.se) else f" ± {self.margin.se:.3f}"
        return f"{self.margin.what}{where}; margin {self.margin.value:+.3f}{se}"


@dataclass(frozen=True, slots=True)
class Matrix:
    """All complete cells, by row name and metric."""

    kinds: Mapping[str, Kind]
    demands: tuple[Demand, ...]
    cells: Mapping[tuple[str, str], Cell]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self.kinds)

    @property
    def ordered(self) -> tuple[Cell, ...]:
        """All cells, metric by metric."""
        return tuple(cell for metric in self.kinds for cell in self.of(metric))

    def of(self, metric: str) -> tuple[Cell, ...]:
        """The cells of a metric, in the order of the rows."""
        found = (self.cells.get((demand.name, metric)) for demand in self.demands)
        return tuple(cell for cell in found if cell is not None)

    def passes(self, metric: str) -> int:
        """Number of demands that a metric meets."""
        return sum(cell.mark != "F" for cell in self.of(metric))


def evaluate_demands(results: Results, kinds: Mapping[str, Kind]) -> Matrix:
    """Evaluate all demands for which results are complete."""
    cells: dict[tuple[str, str], Cell] = {}
    for row, demand in enumerate(DEMANDS):
        for metric, kind in kinds.items():
            if (cell := _cell(results, demand, row, metric, kind)) is not None:
                cells[demand.name, metric] = cell
    names = {name for name, _ in cells}
    return Matrix(dict(kinds), tuple(demand for demand in DEMANDS if demand.name in names), cells)


def _cell(results: Results, demand: Demand, row: int, metric: str, kind: Kind) -> Cell | None:
    curves = [results.curve(demand.check, setting, metric) for setting in CHECKS[demand.check].settings]
    known = [curve for curve in curves if curve is not None]
    if len(known) < len(curves):
        return None
    ways = demand.fidelity if kind == "fidelity" else demand.diversity
    margins = {mark: all_of(*map(criterion, known)) for mark, criterion in ways.items()}
    best = max(margins, key=lambda mark: margins[mark].value)
    published = published_mark(metric, row)
    if margins[best].holds:
        return Cell(demand, metric, best, margins[best], published)
    nearest = published if published in margins else best
    return Cell(demand, metric, "F", margins[nearest], published)
