"""Cells of bench_coverage.py, and one draw of a cell: its scores with intervals, nulls and comparisons as one record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from _coverage_population import Population
from _coverage_sets import DATA_SETS, EQUAL, Sets, Size
from torch import Tensor

from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.reference import Reference
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.features.source_features import Embedder, SourceFeatures, source_features
from genpr.metrics.metric import MetricValue
from genpr.metrics.registry import INCEPTION_SCORE, METRICS
from genpr.metrics.uncertainty import Resampled, against_best, difference, standard_error
from genpr.runtime import state_guard

FORMAT = "genpr.coverage/1"
NEIGHBORS = tuple(
    name
    for name in (
        "precision",
        "recall",
        "density",
        "coverage",
        "calibrated_precision",
        "calibrated_recall",
        "clipped_density",
        "clipped_coverage",
    )
    if name in METRICS
)
_DIFFERENT = 60  # draws that have a generator C, for the power of comparisons
_FEATURES = (
    METRICS["cmmd"].extractor or ""
)  # features are named so for all metrics: cmmd is defined on these alone


@dataclass(frozen=True, slots=True)
class Cell:
    """One data set at one pair of sizes."""

    data: str  # of `DATA_SETS`
    n_real: int
    n_fake: int
    others: tuple[str, ...] = ()  # metrics besides `NEIGHBORS`
    is_small: bool = False  # cheap on a CPU

    @property
    def name(self) -> str:
        """Data set and sizes."""
        return f"{self.data}-{self.n_real}-{self.n_fake}"

    @property
    def is_of_images(self) -> bool:
        """Whether it needs features of images."""
        return DATA_SETS[self.data].population is not None

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is scored."""
        of_classes = (INCEPTION_SCORE.name,) if DATA_SETS[self.data].has_classes else ()
        return *NEIGHBORS, *self.others, *of_classes

    @property
    def ranks(self) -> bool:
        """Whether many equal generators are ranked."""
        return self.data.startswith("rank-")

    def scaled(self, scale: float) -> Cell:
        """The cell with a fraction of its rows."""
        return replace(self, n_real=round(scale * self.n_real), n_fake=round(scale * self.n_fake))


_ALL, _NO_KD, _PLAIN = ("fd", "kd", "cmmd", "mind"), ("fd", "cmmd", "mind"), ("cmmd", "mind")
_RARE = (
    "symmetric_precision",
    "symmetric_recall",
    "complement_precision",
    "witnessed_diversity",
    "nn_accuracy",
)
# For the Fréchet distance of 2,048 features, singular values take seconds on the CPU, so small cells have none. Each data set has
# two cells that a CPU scores in less than a minute; the others need a GPU.
CELLS = (
    Cell("cifar", 4_000, 4_000, _ALL),
    Cell("cifar", 1_000, 10_000, _PLAIN),
    Cell("cifar-degraded", 5_000, 5_000, _NO_KD),
    Cell("cifar-degraded", 10_000, 2_000, ("kd", *_PLAIN)),
    Cell("spectrum", 5_000, 5_000, ("kd", *_PLAIN)),
    Cell("spectrum", 1_000, 10_000, _PLAIN),
    Cell("spectrum-scaled", 10_000, 10_000, _PLAIN),
    Cell("spectrum-scaled", 20_000, 4_000, _PLAIN),
    Cell("cifar", 2_000, 2_000, _PLAIN),
    Cell("cifar", 1_000, 4_000, _PLAIN),
    Cell("cifar-degraded", 2_000, 2_000, _PLAIN),
    Cell("cifar-degraded", 4_000, 1_000, _PLAIN),
    Cell("spectrum", 2_000, 2_000, _PLAIN),
    Cell("spectrum", 1_000, 5_000, _PLAIN),
    Cell("spectrum-scaled", 2_000, 2_000, _PLAIN),
    Cell("spectrum-scaled", 5_000, 1_000, _PLAIN),
    Cell("gaussian-512", 2_000, 2_000, _ALL),
    Cell("gaussian-512", 10_000, 2_000, _NO_KD),
    Cell("manifold", 4_000, 4_000, _ALL),
    Cell("manifold", 1_000, 5_000, _NO_KD),
    Cell("gaussian-64", 2_000, 2_000, _ALL, is_small=True),
    Cell("gaussian-64", 1_000, 4_000, _NO_KD, is_small=True),
    Cell("student", 2_000, 2_000, _NO_KD, is_small=True),
    Cell("student", 5_000, 1_000, _NO_KD, is_small=True),
    Cell("clusters", 1_500, 1_500, _ALL, is_small=True),
    Cell("clusters", 1_000, 3_000, _NO_KD, is_small=True),
    Cell("clusters-missing", 1_500, 1_500, _NO_KD, is_small=True),
    Cell("clusters-missing", 4_000, 1_000, _NO_KD, is_small=True),
    Cell("gaussian-64", 400, 400, _RARE, is_small=True),
    Cell("clusters", 400, 400, _RARE, is_small=True),
    Cell("rank-gaussian", 1_000, 1_000, is_small=True),
    Cell("rank-clusters", 1_000, 1_000, is_small=True),
)


def run_draw(
    cell: Cell,
    number: int,
    device: torch.device,
    *,
    names: Sequence[str] | None = None,
    population: Population | None = None,
) -> dict[str, Any]:
    """One draw: scores of all generators against the same reals, as a record of plain JSON types.

    Args:
        cell: What to draw.
        number: Of the draw: the same one is the same on devices of one kind.
        device: Where to draw and to compute.
        names: Metrics; None takes those of the draw.
        population: Features of images, which some cells need.
    """
    requested = cell.metrics if names is None else tuple(names)
    started = time.perf_counter()
    with state_guard():
        sets = _drawn(cell, number, device, population)
        if not cell.ranks and number >= _DIFFERENT:
            sets = replace(sets, fakes={name: sets.fakes[name] for name in EQUAL})
        values: dict[str, dict[str, MetricValue]] = {name: {} for name in sets.fakes}
        spaces = {_FEATURES: (sets.real, sets.fakes)}
        if sets.probabilities is not None:  # the Inception Score does not use reals
            of_fakes = {name: sets.probabilities[name] for name in sets.fakes}
            spaces[INCEPTION_SCORE.extractor or ""] = of_fakes["A"], of_fakes
        for space, (real, fakes) in spaces.items():
            chosen = [name for name in requested if (name == INCEPTION_SCORE.name) != (space == _FEATURES)]
            if chosen:
                for name, found in scores(real, fakes, chosen, device=device, space=space).items():
                    values[name] |= found
    record: dict[str, Any] = {
        "format": FORMAT,
        "cell": cell.name,
        "data": cell.data,
        "n_real": cell.n_real,
        "n_fake": cell.n_fake,
        "draw": number,
        "device": device.type,
        "requested": list(requested),
    }
    defined = [name for name in requested if all(name in of for of in values.values())]
    record["metrics"] = {name: {fake: _plain(of[name]) for fake, of in values.items()} for name in defined}
    resampled = {
        name: {fake: _resampled(of[name], cell, number) for fake, of in values.items()} for name in defined
    }
    if cell.ranks:
        record["contenders"] = {
            name: list(against_best(_oriented(name, list(of.values()))).contenders)
            for name, of in resampled.items()
            if all(each is not None for each in of.values())
        }
    else:
        record["differences"] = {
            name: {f"A - {fake}": _difference(of["A"], of[fake]) for fake in of if fake != "A"}
            for name, of in resampled.items()
            if all(each is not None for each in of.values())
        }
    return {**record, "seconds": round(time.perf_counter() - started, 3)}


def scores(
    real: Tensor,
    fakes: Mapping[str, Tensor],
    names: Sequence[str],
    *,
    device: torch.device,
    space: str,
    intervals: bool = True,
) -> dict[str, dict[str, MetricValue]]:
    """The values that `genpr.Evaluator(real).score(fake)` gives, without its notices and its control, by generator.

    Notices need clusters of the reals and hashes of all rows, which take longer than the metrics.
    """
    options = ScoreOptions(metrics=names, control=False, intervals=intervals, device=str(device))
    embedder = Embedder(options)
    info = ExtractorInfo(space, real.shape[1], "unknown", None, comparable=False)
    opened = FeatureSet(real, "<real features>", info)
    plan = ScorePlan.from_options(opened, options)

    def source(rows: Tensor, role: str) -> SourceFeatures:
        keys, given = plan.needs[role].extractors or (plan.own,), FeatureSet(rows, f"<{role} features>", info)
        return source_features(given, role, embedder, keys, minimum=plan.needs[role].least)

    reference = Reference(plan, source(real, "real"), embedder)
    found = {}
    for generator, rows in fakes.items():
        values = reference.values(source(rows, "fake")).values
        found[generator] = {name: value for name in plan.extractors if (value := values[name]) is not None}
    return found


def _drawn(cell: Cell, number: int, device: torch.device, population: Population | None) -> Sets:
    data, size = DATA_SETS[cell.data], Size(cell.n_real, cell.n_fake)
    digest = hashlib.sha256(f"{cell.name}/{number}".encode()).digest()
    rng = torch.Generator(device).manual_seed(int.from_bytes(digest[:7]))
    if data.draw is not None:
        return data.draw(rng, size)
    assert data.population is not None
    if population is None:
        raise ValueError(f"{cell.name} needs features of images (--images and --extractor, or --population)")
    return data.population(rng, size, population)


def _plain(value: MetricValue) -> dict[str, Any]:
    """The parts of a value that a summary needs."""
    found: dict[str, Any] = {"value": _short(value.value)}
    if value.interval is not None:
        found["interval"] = [_short(value.interval[0]), _short(value.interval[1])]
    if value.null is not None:
        found["null"] = _short(value.null)
    if value.replicates is not None:
        replicates = torch.tensor(value.replicates, dtype=torch.float64)
        error = _short(standard_error(replicates))
        found |= {"error": error, "replicates": len(replicates), "n": value.n_counted}
    return found


def _short(value: float) -> float:
    """Rounded to the digits that tables need, since there are many records."""
    return float(f"{value:.7g}")


def _resampled(value: MetricValue, cell: Cell, number: int) -> Resampled | None:
    if value.replicates is None:
        return None
    fields: dict[str, Any] = {"n": value.n_counted, "seed": 0, "n_real": cell.n_real}
    replicates = torch.tensor(value.replicates, dtype=torch.float64).numpy()
    identity = f"{cell.name}/{number}"
    return Resampled(value=value.value, replicates=replicates, real_identity=identity, **fields)


def _difference(a: Resampled | None, b: Resampled | None) -> list[float | bool]:
    """Value and interval of a difference, and whether the two are distinguishable."""
    assert a is not None
    assert b is not None
    found = difference(a, b)
    low, high = map(_short, (found.interval.low, found.interval.high))
    return [_short(found.value), low, high, found.verdict == "distinguishable"]


def _oriented(name: str, scored: Sequence[Resampled | None]) -> list[Resampled]:
    """Scores oriented so that higher is better."""
    sign = -1 if METRICS[name].better == "lower" else 1
    return [
        replace(each, value=sign * each.value, replicates=sign * each.replicates)
        for each in scored
        if each is not None
    ]
