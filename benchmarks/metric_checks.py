"""Metrics on the fifteen sanity checks of Räisä et al. 2025, whose fidelity and diversity are known.

    python benchmarks/metric_checks.py --repeats 2 --jobs 2       # minutes
    python benchmarks/metric_checks.py --metrics density,coverage --out density.jsonl
    python benchmarks/metric_checks.py --out benchmarks/results/metric-checks.jsonl    # tables of the recorded results

Points in the file are not computed again, and the tables are written next to it. k is that of the published audit: 3 for
precision and recall, 5 for the others; 20 for witnessed diversity. If fakes are wider than reals, diversity may be 1,
because all reals are covered (H), or 0, because few fakes are near them (L), but not both within a cell.

References:
    Räisä, van Breugel, van der Schaar 2025, "Position: All Current Generative Fidelity and Diversity Metrics are
    Flawed", ICML (distributions, grids, criteria, thresholds); the tables printed by its public code
    (vanderschaarlab/position-fidelity-diversity-metrics-flawed).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import genpr
from genpr.runtime import torch_threads

Rows = NDArray[np.float64]
Pair = tuple[Rows, Rows]
Generator = np.random.Generator

N = 1000  # reals and fakes, unless a check varies them
OVERLAP = 0.2  # volume that two cubes share, the true fidelity and diversity
NOISE = 2.0  # standard errors within which a margin may be due to the draws
KINDS = {
    "fidelity": ("precision", "density", "clipped_density", "symmetric_precision", "complement_precision"),
    "diversity": ("recall", "coverage", "clipped_coverage", "symmetric_recall", "witnessed_diversity"),
}
# One mark per demand, in the order of DEMANDS.
PUBLISHED = {
    "precision": "FTFFFTFTFTTTFFFFTFTTFTFFFTFFFF",
    "recall": "FTFFFHFFFTTTFFFFFFTFFFTFTTFFFF",
    "density": "TTFTFTTFTTTTFFFFTFTTTTTTTTFFFF",
    "coverage": "TTTTFFTTTTFFFFFFFFFFTFTTTTFFFF",
    "symmetric_precision": "FTFFFFFFFFFFTTFFFFTTFTTTTTFFFF",
    "symmetric_recall": "FTFTFFFFFTFFTTFFFFFFFFTTTTFFFF",
}


class Case(NamedTuple):
    """One point of a curve; the dimension is 0 if x determines it."""

    check: str
    scenario: str
    dimension: int
    x: float

    def rng(self, seed: int, repeat: int) -> Generator:
        """The random generator of one draw, which depends only on its name."""
        setting = [self.scenario, f"d = {self.dimension}" if self.dimension else ""]
        name = f"{seed}|{self.check}|{', '.join(filter(None, setting))}|{self.x:.9g}|{repeat}"
        return np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little"))


# Data: functions of (rng, case) that return reals (n, d) and fakes (m, d).

SHIFTS = {1: 6.0, 8: 3.0, 64: 1.0}
LINE_SPREAD = {1: 1 / 6, 8: 1 / 3, 64: 1.0}
PLANE = np.array(
    [
        *[(5.46794328, -4.08481523), (4.87211875, -13.64864684), (-16.39432073, 9.09802249)],
        *[(-2.15447941, 12.46200019), (11.55784483, -4.96049923), (-24.60558474, 14.18020818)],
        *[(16.84215967, -3.18710751), (-5.47807206, -6.77247129), (9.46726546, 1.05922347)],
        (-5.40346201, -17.29490131),
    ]
)


def _normal(rng: Generator, case: Case) -> Rows:
    return rng.standard_normal((N, case.dimension))


def _mixture(rng: Generator, centers: Rows, weights: Rows, spread: float) -> Rows:
    mode = rng.choice(len(centers), size=N, p=weights / weights.sum())
    rows: Rows = centers[mode] + spread * rng.standard_normal((N, centers.shape[1]))
    return rows


def _on_a_line(rng: Generator, d: int, weights: Rows) -> Pair:
    """Ten equal modes on a line, against the same modes with other weights."""
    centers = np.linspace(0, 10, 10)[:, None] * np.ones(d)
    return _mixture(rng, centers, np.ones(10), LINE_SPREAD[d]), _mixture(
        rng, centers, weights, LINE_SPREAD[d]
    )


def _in_plane(rng: Generator, modes: float) -> Rows:
    return _mixture(rng, PLANE, (np.arange(10) < modes).astype(float), 0.25)


def _on_sphere(rng: Generator, n: int, d: int) -> Rows:
    rows = rng.standard_normal((n, d))
    directions: Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return directions


def _in_ball(rng: Generator, n: int) -> Rows:
    return _on_sphere(rng, n, 3) * rng.random((n, 1)) ** (1 / 3)


def _in_torus(rng: Generator, n: int) -> Rows:
    angle = rng.random(n) * (2 * np.pi)
    return np.column_stack([np.cos(angle), np.sin(angle), np.zeros(n)]) + 0.1 * _in_ball(rng, n)


def shifted_mean(rng: Generator, case: Case) -> Pair:
    """N(0, I) against N(x 1, I); in some scenarios one more real or fake is at the final mean of the fakes."""
    real, fake = _normal(rng, case), _normal(rng, case) + case.x
    outlier = np.full((1, case.dimension), SHIFTS[case.dimension])
    of_reals, of_fakes = (f"outlier among the {name}" == case.scenario for name in ("reals", "fakes"))
    return np.concatenate([real, outlier[:of_reals]]), np.concatenate([fake, outlier[:of_fakes]])


def overlapping_cubes(rng: Generator, case: Case) -> Pair:
    """Two unit cubes that share a fifth of their volume, with x fakes, and x or 1000 reals."""
    d, n_fake = case.dimension, round(case.x)
    real = rng.random((n_fake if case.check == "cube-n" else N, d))
    return real, rng.random((n_fake, d)) + (1 - OVERLAP ** (1 / d))


def ball_and_torus(rng: Generator, case: Case) -> Pair:
    """A ball, and a torus around it that does not touch it; one of them is real, the other has x fakes."""
    if case.scenario == "reals in the ball":
        return 0.8 * _in_ball(rng, N), _in_torus(rng, round(case.x))
    return _in_torus(rng, N), 0.8 * _in_ball(rng, round(case.x))


def merged_modes(rng: Generator, case: Case) -> Pair:
    """Two modes x apart along every axis, against one Gaussian that spans both."""
    mode = rng.integers(2, size=(N, 1)) - 0.5
    fake = math.sqrt(1 + case.x**2) * _normal(rng, case)
    return _normal(rng, case) + case.x * mode, fake


def disjoint_axis(rng: Generator, case: Case) -> Pair:
    """Disjoint along one axis and equal along others: x of them, or one that is scaled by x."""
    is_scaled = case.check == "scaling"
    shape = N, 2 if is_scaled else 1 + round(case.x)
    real, fake = rng.standard_normal(shape), rng.standard_normal(shape)
    fake[:, 0] += 6
    scale = np.array([1, case.x]) if is_scaled else 1.0
    return real * scale, fake * scale


def heavy_tail(rng: Generator, case: Case) -> Pair:
    """N(0, 1) against N(x, 1) along one axis; along the other, both have a Pareto distribution without variance."""

    def draw(mean: float) -> Rows:
        return np.column_stack([mean + rng.standard_normal(N), 1 + rng.pareto(1.01, size=N)])

    return draw(0), draw(case.x)


def rounded(rng: Generator, case: Case) -> Pair:
    """N(0, x²) on both sides, with one side rounded to integers."""
    real, fake = case.x * _normal(rng, case), case.x * _normal(rng, case)
    return (np.round(real), fake) if case.scenario == "reals rounded" else (real, np.round(fake))


class Check(NamedTuple):
    """The data of a check, and the ends of its grids by dimension and their number of points."""

    draw: Callable[[Generator, Case], Pair]
    ends: Mapping[int, tuple[float, float]]
    n_points: int = 20
    scenarios: tuple[str, ...] = ("",)
    space: Callable[..., Rows] = np.linspace

    def curves(self, name: str) -> list[list[Case]]:
        """The cases of each curve, x ascending."""
        grids = {d: self.space(*ends, self.n_points) for d, ends in self.ends.items()}
        if self.draw in (overlapping_cubes, ball_and_torus) or 0 in grids:  # x is a number of something
            grids = {d: np.unique(grid.round(6).astype(int)) for d, grid in grids.items()}
        settings = [(scenario, d) for scenario in self.scenarios for d in grids]
        # The last bits of x differ between machines, and would change the seed.
        return [[Case(name, *setting, float(f"{x:.9g}")) for x in grids[setting[1]]] for setting in settings]


_MEANS = {d: (-x, x) for d, x in SHIFTS.items()}
_SPREADS = {1: (1e-3, 1e3), 8: (0.1, 10.0), 64: (10**-0.5, 10**0.5)}
_SIZES = dict.fromkeys((1, 8, 64), (100, 10000))
_LOG = np.geomspace
CHECKS = {
    "mean": Check(shifted_mean, _MEANS, 51),
    "mean+outlier": Check(shifted_mean, _MEANS, 51, ("outlier among the reals", "outlier among the fakes")),
    # N(0, I) against N(0, x² I)
    "std": Check(lambda rng, c: (_normal(rng, c), c.x * _normal(rng, c)), _SPREADS, 51, space=_LOG),
    # All modes but the first lose the fraction x of their mass.
    "simultaneous": Check(
        lambda rng, c: _on_a_line(rng, c.dimension, np.array([1, *[1 - c.x] * 9])),
        dict.fromkeys((1, 8, 64), (0, 1)),
        50,
    ),
    # The last x of ten modes are missing.
    "sequential": Check(
        lambda rng, c: _on_a_line(rng, c.dimension, (np.arange(10) < 10 - c.x).astype(float)),
        dict.fromkeys((1, 8, 64), (0, 9)),
        10,
    ),
    # The first five of ten modes in the plane, against the first x
    "invention": Check(
        lambda rng, c: (_in_plane(rng, 5), _in_plane(rng, c.x)),
        {2: (1, 10)},
        10,
    ),
    # A unit sphere, against a sphere of radius x
    "hypersphere": Check(
        lambda rng, c: (_on_sphere(rng, N, c.dimension), c.x * _on_sphere(rng, N, c.dimension)),
        dict.fromkeys((2, 16, 128), (0.1, 1.9)),
        51,
    ),
    "cube-n": Check(overlapping_cubes, _SIZES, space=_LOG),
    "cube-n-fake": Check(overlapping_cubes, _SIZES, space=_LOG),
    "sphere-torus": Check(
        ball_and_torus, {3: (100, 10_000)}, scenarios=("reals in the ball", "reals in the torus"), space=_LOG
    ),
    "collapse": Check(merged_modes, dict.fromkeys((1, 8, 64), (0, 5))),
    "scaling": Check(disjoint_axis, {2: (1e-3, 1e3)}, space=_LOG),
    "pareto": Check(heavy_tail, {2: (-6, 6)}, 51),
    "disjoint": Check(disjoint_axis, {0: (1, 1000)}, space=_LOG),
    "discrete": Check(rounded, {1: (1, 1000)}, scenarios=("reals rounded", "fakes rounded"), space=_LOG),
}


# Criteria: functions of a curve that return a margin, which is at least 0 if they hold.


class Margin(NamedTuple):
    """The margin of the deciding point, with the standard error of its values."""

    value: float
    error: float

    @property
    def errors(self) -> float:
        """The absolute margin in standard errors."""
        return abs(self.value) / self.error if self.error > 0 else math.inf


class Curve(NamedTuple):
    """A metric along a grid: means over the repeats, and their standard errors."""

    scenario: str
    x: Rows
    mean: Rows
    error: Rows

    def near(self, x: float) -> int:
        """The point nearest to x, the lower one of two."""
        distance = np.abs(self.x - x)
        return int(np.argmax(distance <= distance.min() * (1 + 1e-9)))

    def margin(self, value: float, *points: int) -> Margin:
        """The margin of the values at points, which are independent draws; a value that is not finite fails."""
        if not np.isfinite(self.mean).all():
            return Margin(-math.inf, math.nan)
        is_difference_to_itself = len(points) == 2 and points[0] == points[1]
        return Margin(value, 0.0 if is_difference_to_itself else math.hypot(*self.error[list(points)]))

    def above(self, high: int, low: int, least: float) -> Margin:
        """Whether a point is at least `least` higher than another."""
        return self.margin(float(self.mean[high] - self.mean[low]) - least, high, low)

    def extreme(self, high: int | None = None, low: int | None = None) -> list[Margin]:
        """Whether no other point is much higher, or lower, than the given one."""
        margins = [] if high is None else [self.above(high, int(self.mean.argmax()), -0.1)]
        return margins + ([] if low is None else [self.above(int(self.mean.argmin()), low, -0.1)])


Criterion = Callable[[Curve], Margin]


def bell(x: float, curve: Curve) -> Margin:
    """Highest at x, higher than at both ends, and lowest at one of them."""
    mid, last = curve.near(x), len(curve.x) - 1
    end = max(curve.extreme(low=0) + curve.extreme(low=last))
    return min(curve.above(mid, 0, 0.2), curve.above(mid, last, 0.2), *curve.extreme(high=mid), end)


def falling(curve: Curve) -> Margin:
    """From the highest to the lowest point, from left to right."""
    last = len(curve.x) - 1
    return min(curve.above(0, last, 0.2), *curve.extreme(high=0, low=last))


def falling_until(quantile: float, curve: Curve) -> Margin:
    """Falling, in part up to a quantile of the grid."""
    return min(falling(curve), curve.above(0, curve.near(float(np.quantile(curve.x, quantile))), 0.1))


def rising(curve: Curve) -> Margin:
    """From the lowest to the highest point, from left to right."""
    last = len(curve.x) - 1
    return min(curve.above(last, 0, 0.2), *curve.extreme(high=last, low=0))


def flat(curve: Curve, first: int = 0) -> Margin:
    """Constant from point `first` on."""
    mean = curve.mean[first:]
    top, low = first + int(mean.argmax()), first + int(mean.argmin())
    return curve.margin(0.05 - float(curve.mean[top] - curve.mean[low]), top, low)


def converged(curve: Curve) -> Margin:
    """Constant in the upper half of the grid."""
    return flat(curve, int(np.argmax(curve.x >= np.quantile(curve.x, 0.5))))


def values(*ends: float | None, one_at: float | None = None) -> Criterion:
    """The values at both ends, and a value of 1 at some x, where they are given."""

    def criterion(curve: Curve) -> Margin:
        targets = dict(zip((0, len(curve.x) - 1), ends, strict=False))
        targets |= {} if one_at is None else {curve.near(one_at): 1.0}
        known = [(i, target) for i, target in targets.items() if target is not None]
        return min(curve.margin(0.05 - abs(float(curve.mean[i]) - target), i) for i, target in known)

    return criterion


def by_side(of_reals: tuple[int, int], of_fakes: tuple[int, int]) -> Criterion:
    """The values at both ends, by which side is rounded."""
    return lambda curve: values(*(of_reals if curve.scenario == "reals rounded" else of_fakes))(curve)


# Demands: check, name, and the criteria of fidelity and of diversity by the mark of a pass.

Ways = dict[str, Criterion]
Demand = tuple[str, str, Ways, Ways]


def _demand(name: str, fidelity: Criterion, diversity: Criterion | Ways | None = None) -> Demand:
    check, demand = name.split(" / ")
    ways = diversity if isinstance(diversity, dict) else {"T": diversity or fidelity}
    return check, demand, {"T": fidelity}, ways


DEMANDS = (
    _demand("mean / bounds", values(0, 0, one_at=0)),
    _demand("mean / property", partial(bell, 0)),
    _demand("mean+outlier / bounds", values(0, 0, one_at=0)),
    _demand("mean+outlier / property", partial(bell, 0)),
    _demand(
        "std / bounds", values(1, 0, one_at=1), {"H": values(0, 1, one_at=1), "L": values(0, 0, one_at=1)}
    ),
    _demand("std / property", falling, {"H": rising, "L": partial(bell, 1)}),
    _demand("simultaneous / bounds", values(1, 1), values(1)),
    _demand("simultaneous / property", flat, partial(falling_until, 0.95)),
    _demand("sequential / bounds", values(1, 1), values(1)),
    _demand("sequential / property", flat, partial(falling_until, 0.5)),
    _demand("invention / bounds", values(1, one_at=5), values(None, 1, one_at=5)),
    _demand("invention / property", falling, rising),
    _demand("hypersphere / bounds", values(0, 0, one_at=1)),
    _demand("hypersphere / property", partial(bell, 1)),
    _demand("cube-n / D3", converged),
    _demand("cube-n / property", values(None, OVERLAP)),
    _demand("cube-n-fake / D2", converged),
    _demand("cube-n-fake / property", values(None, OVERLAP)),
    _demand("sphere-torus / bounds", values(None, 0)),
    _demand("sphere-torus / property", converged),
    _demand("collapse / bounds", values(1)),
    _demand("collapse / property", falling, {"H": flat, "L": falling}),
    _demand("scaling / bounds", values(0, 0)),
    _demand("scaling / D5", flat),
    _demand("pareto / bounds", values(0, 0, one_at=0)),
    _demand("pareto / property", partial(bell, 0)),
    _demand("disjoint / bounds", values(0, 0)),
    _demand("disjoint / property", flat),
    _demand(
        "discrete / bounds",
        by_side((0, 0), (1, 1)),
        {"H": by_side((1, 1), (0, 0)), "L": by_side((0, 0), (0, 0))},
    ),
    _demand("discrete / property", flat),
)


# Runs and tables.


def measured(case: Case, *, metrics: list[str], repeats: int, seed: int) -> dict[str, list[float | None]]:
    """Mean and standard deviation of each metric over the draws; None where a value is not finite."""
    found = []
    with torch_threads(1):  # more threads are slower on sets this small
        for repeat in range(repeats):
            real, fake = CHECKS[case.check].draw(case.rng(seed, repeat), case)
            mean, spread = real.mean(axis=0), real.std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
            pair = (((rows - mean) / spread).astype(np.float32) for rows in (real, fake))
            result = genpr.score(*pair, metrics=metrics, intervals=False, control=False, device="cpu")
            found.append([result[name] for name in metrics])
    columns = np.array(found, dtype=float).T
    return {
        name: [float(f"{x:.6g}") for x in (row.mean(), row.std(ddof=1))]
        if np.isfinite(row).all()
        else [None] * 2
        for name, row in zip(metrics, columns, strict=True)
    }


Results = dict[Case, dict[str, list[float | None]]]


def cell(results: Results, row: int, metric: str, repeats: int) -> tuple[str, Margin] | None:
    """The mark of a metric for a demand, with the margin; for a failure, that of the published pass if there is one."""
    check, _, *ways_of = DEMANDS[row]
    ways = ways_of[metric in KINDS["diversity"]]
    curves = []
    for cases in CHECKS[check].curves(check):
        if not all(metric in results.get(case, {}) for case in cases):
            return None
        mean, spread = np.array([results[case][metric] for case in cases], dtype=float).T
        x = np.array([case.x for case in cases])
        curves.append(Curve(cases[0].scenario, x, mean, spread / math.sqrt(repeats)))
    margins = {mark: min(map(criterion, curves)) for mark, criterion in ways.items()}
    best = max(margins, key=lambda mark: margins[mark].value)
    if margins[best].value >= -1e-12:  # .95 - .95 need not be 0
        return best, margins[best]
    published = PUBLISHED.get(metric, "F" * len(DEMANDS))[row]
    return "F", margins.get(published, margins[best])


def tables(results: Results, *, repeats: int, seed: int) -> str:
    """The marks of all metrics with results, and their differences from the published ones, as Markdown."""
    lines = [
        "# Sanity checks of metrics",
        "",
        f"The checks of Räisä et al. 2025 on the published grids, {repeats} draws per point, seed {seed}.",
        "",
        "- T: passes. F: fails. H, L: passes if fakes are wider than reals, with high or with low diversity.",
        f"- ~: the margin is within {NOISE:g} standard errors of the threshold, so other draws may change it.",
        "- !: not as published.",
        "- bounds: values at the ends and at equality. property: the shape of the curve. D2, D3, D5: does not depend",
        "  on the number of fakes, on the number of samples, on the unit of an axis.",
    ]
    compared = ["", "## Published marks", ""]
    for kind, names in KINDS.items():
        columns = {name: [cell(results, row, name, repeats) for row in range(len(DEMANDS))] for name in names}
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        if not columns:
            continue
        rows = [[f"{check} / {demand}"] for check, demand, *_ in DEMANDS] + [["passed"]]
        for name, cells in columns.items():
            known = [(row, *found) for row, found in enumerate(cells) if found is not None]
            differ = [row for row, mark, _ in known if mark != PUBLISHED.get(name, mark * len(DEMANDS))[row]]
            texts = {
                row: mark + "\\~" * (margin.errors <= NOISE) + "!" * (row in differ)
                for row, mark, margin in known
            }
            passed = sum(mark != "F" for _, mark, _ in known)
            for row, line in enumerate(rows[:-1]):
                line.append(texts.get(row, "-"))
            rows[-1].append(f"{passed} of {len(known)}")
            if name in PUBLISHED:
                compared.append(f"- {name}: {len(known) - len(differ)} of {len(known)} as published")
                compared += [
                    f"  - {rows[row][0]}: margin {margin.value:+.3f}, {margin.errors:.1f} standard errors"
                    for row, _, margin in known
                    if row in differ
                ]
        head = [["check", *columns], ["---"] * (len(columns) + 1)]
        lines += ["", f"## {kind.capitalize()}", "", *(f"| {' | '.join(row)} |" for row in head + rows)]
    return "\n".join(lines + compared) + "\n"


def stored(path: Path, *, repeats: int, seed: int) -> Results:
    """The results in a file of JSON lines."""
    results: Results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        record = json.loads(line)
        if (record["repeats"], record["seed"]) == (repeats, seed):
            case = Case(record["check"], record["scenario"], record["dimension"], record["x"])
            results.setdefault(case, {}).update(record["metrics"])
    return results


def main() -> None:
    """Compute what the file lacks, and write or print the tables."""
    known = [name for names in KINDS.values() for name in names]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--metrics", default=",".join(known), help="[default: %(default)s]")
    parser.add_argument("--checks", default=",".join(CHECKS), help="[default: %(default)s]")
    parser.add_argument("--repeats", type=int, default=10, help="draws per point, at least 2 [default: 10]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="JSON lines; without it, the tables are printed")
    options = parser.parse_args()
    metrics, checks = options.metrics.split(","), options.checks.split(",")
    if unknown := {*metrics} - {*known} | {*checks} - {*CHECKS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    run = {"repeats": options.repeats, "seed": options.seed}
    results = {} if options.out is None else stored(options.out, **run)
    cases = [case for check in checks for curve in CHECKS[check].curves(check) for case in curve]
    todo = [case for case in cases if not {*metrics} <= results.get(case, {}).keys()]
    # A fresh process has no threads of torch that a fork would break.
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        compute = pool.map if options.jobs > 1 else map
        for case, found in zip(todo, compute(partial(measured, metrics=metrics, **run), todo), strict=True):
            results.setdefault(case, {}).update(found)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**run, **case._asdict(), "metrics": found}) + "\n")
    text = tables(results, **run)
    if options.out is None:
        print(text, end="")
    else:
        options.out.with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
