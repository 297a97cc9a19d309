"""The record of a score class by class: each class, the averages over them, and what was left out and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from genpr.evaluation.result import Result
from genpr.metrics.registry import BALLS, DEFAULT_METRICS
from genpr.metrics.uncertainty import interval_of
from genpr.metrics.value import MetricValue

PER_CLASS = DEFAULT_METRICS
"""Metrics that can be had class by class."""

OVER_FAKES = frozenset(name for name in PER_CLASS if BALLS[name].over == "fake")
"""Those that are means over fakes; the others are shares of reals."""

WEAKEST_FIRST = "null"
"""How classes are ordered by default: by the mean over metrics of value over null, each cut at 1."""

Reason = Literal["no reals", "no fakes", "too few reals", "too few fakes", "too few of both"]


@dataclass(frozen=True)
class ClassScore:
    """The reals of one class against the fakes of the same class.

    Attributes:
        label: The class.
        n_real: Its reals.
        n_fake: Its fakes.
        metrics: As in a `Result` of these images alone, but without the control.
    """

    label: str
    n_real: int
    n_fake: int
    metrics: Mapping[str, MetricValue]

    def __getitem__(self, metric: str) -> float:
        """The value of one metric."""
        return self.metrics[metric].value

    @property
    def standing(self) -> float:
        """The mean over metrics of value over null, each cut at 1: above it is chance, or density that tells nothing."""
        shares = [min(1.0, relative_of(metric)) for metric in self.metrics.values()]
        return sum(shares) / len(shares)


@dataclass(frozen=True)
class LeftOutClass:
    """A class that was not scored.

    Attributes:
        label: The class.
        n_real: Its reals.
        n_fake: Its fakes.
        reason: Why.
    """

    label: str
    n_real: int
    n_fake: int
    reason: Reason


@dataclass(frozen=True)
class Average:
    """One metric over all classes that were scored.

    Attributes:
        value: The average.
        null: The same average of what a perfect generator scores; None where a class has none.
        interval: 95 %, over draws of the images of the same classes; None where a class has none.
        n_classes: Classes in it.
    """

    value: float
    null: float | None
    interval: tuple[float, float] | None
    n_classes: int


@dataclass(frozen=True)
class ClassScores:
    """A score class by class, beside that of all images together.

    Attributes:
        overall: Of all images, classes or not: what `Evaluator.score` gives.
        classes: Every class that was scored, the worst first.
        macro: By metric, the plain mean over these classes: each counts the same.
        micro: By metric, the mean weighted by images: by the fakes of a class for precision and density, by its reals for
            recall and coverage. So it is the share of all fakes (reals) of these classes that count within their own class.
        left_out: Every other class.
        min_images: Images that a class needs on each side.
        worst_by: What the order is by: "null" for value over null over all metrics, or one metric.
        origins: Where the labels of "real" and "fake" come from.
        unlabelled: Images without a class by side; they are in `overall` alone.
        seconds: Time to score the classes.
    """

    overall: Result
    classes: tuple[ClassScore, ...]
    macro: Mapping[str, Average]
    micro: Mapping[str, Average]
    left_out: tuple[LeftOutClass, ...]
    min_images: int
    worst_by: str
    origins: Mapping[str, str]
    unlabelled: Mapping[str, int]
    seconds: float

    def __getitem__(self, label: str) -> ClassScore:
        """The score of one class."""
        for found in self.classes:
            if found.label == label:
                return found
        raise KeyError(label)

    def to_dict(self) -> dict[str, Any]:
        """The record of `overall`, and the classes under "per_class", as plain JSON types; classes have no replicates."""
        facts = {
            "min_images": self.min_images,
            "worst_by": self.worst_by,
            "origins": dict(self.origins),
            "unlabelled": dict(self.unlabelled),
            "seconds": self.seconds,
            "macro": {name: asdict(average) for name, average in self.macro.items()},
            "micro": {name: asdict(average) for name, average in self.micro.items()},
            "classes": [_record(found) for found in self.classes],
            "left_out": [asdict(found) for found in self.left_out],
        }
        return {**self.overall.to_dict(), "per_class": facts}

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as text; NaN and infinities cannot occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def _record(found: ClassScore) -> dict[str, Any]:
    record = asdict(found)
    for metric in record["metrics"].values():
        del metric["replicates"]  # a hundred numbers per metric and class
    return {**record, "standing": found.standing}


def relative_of(metric: MetricValue) -> float:
    """Value over null; the value itself where no null is known or it is 0."""
    return metric.value if metric.relative is None else metric.relative


def worst_first(classes: Sequence[ClassScore], worst_by: str) -> tuple[ClassScore, ...]:
    """In the order of `worst_by`; equal ones keep theirs."""
    if worst_by == WEAKEST_FIRST:
        return tuple(sorted(classes, key=lambda found: found.standing))
    return tuple(sorted(classes, key=lambda found: relative_of(found.metrics[worst_by])))


def averages(classes: Sequence[ClassScore], *, weighted: bool) -> dict[str, Average]:
    """The averages over all classes by metric; `weighted` by images (micro) or plain (macro)."""
    return {name: _average(classes, name, weighted=weighted) for name in classes[0].metrics}


def _average(classes: Sequence[ClassScore], name: str, *, weighted: bool) -> Average:
    metrics = [found.metrics[name] for found in classes]
    counts = [found.n_fake if name in OVER_FAKES else found.n_real for found in classes]
    weights = [count / sum(counts) if weighted else 1 / len(counts) for count in counts]
    value = sum(weight * metric.value for weight, metric in zip(weights, metrics, strict=True))
    nulls = [metric.null for metric in metrics if metric.null is not None]
    null = (
        sum(w * each for w, each in zip(weights, nulls, strict=True)) if len(nulls) == len(metrics) else None
    )
    interval = _interval(name, value, metrics, weights, counts)
    return Average(value, null, interval, len(classes))


def _interval(
    name: str, value: float, metrics: Sequence[MetricValue], weights: Sequence[float], counts: Sequence[int]
) -> tuple[float, float] | None:
    """By the same average of the replicates of the classes.

    Classes share no image, so differences of complementary halves are independent between them, each of mean 0, also
    where halves of equally many images are drawn alike: the mean square of their average is the variance of the average.
    As the exact binomial interval is the least width, images are counted as many as have the variance of the weighted mean
    of independent ones (Kish 1965, "Survey Sampling": 1 / sum of w^2 / n).
    """
    replicates = [metric.replicates for metric in metrics if metric.replicates is not None]
    if len(replicates) < len(metrics):
        return None
    stacked = torch.tensor(replicates, dtype=torch.float64)
    mean = torch.tensor(weights, dtype=torch.float64) @ stacked
    effective = 1 / sum(w * w / n for w, n in zip(weights, counts, strict=True))
    found = interval_of(value, mean, n=max(1, int(effective)), upper=BALLS[name].upper)
    return found.low, found.high
