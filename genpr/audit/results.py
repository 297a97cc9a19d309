"""What an audit has measured: means and deviations per point and metric, one JSON line each, so that runs go on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from genpr.audit.checks import CHECKS, Case, GridName
from genpr.audit.criteria import Curve
from genpr.audit.draws import Setting
from genpr.errors import DataError, UsageError
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


def repair(path: Path) -> None:
    """Cut off a last line that does not end, so that the next one starts on its own."""
    with path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _spread(mean: float | None, sd: float | None) -> Spread:
    if sd is not None and sd < 0:
        raise ValueError(f"a standard deviation is {sd:g}")
    return Spread(_or_nan(mean), _or_nan(sd))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
