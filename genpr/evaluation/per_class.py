"""Score class by class: the reals of each class against its fakes, on features that are embedded once."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypedDict

import torch

from genpr.errors import DataError, UsageError, short
from genpr.evaluation.fitted_metrics import FittedNeighbors
from genpr.evaluation.labels import (
    LABELS_HINT,
    LabeledImages,
    Labels,
    check_complete,
    check_shared,
    match_labels,
    match_names,
    open_labels,
)
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.protocols import EvaluationProtocol
from genpr.evaluation.result import Result
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedInput, label_location
from genpr.features.source_features import Embedder, SourceFeatures, with_cpu_fallback
from genpr.images.policy import BadImagePolicy
from genpr.metrics.neighbor_metrics import least_images
from genpr.metrics.registry import BALLS, DEFAULT_METRICS
from genpr.metrics.uncertainty import interval_of
from genpr.metrics.value import MetricValue
from genpr.validation import check_count

WEAKEST_FIRST = "null"
"""How classes are ordered by default: by the mean over metrics of value over null, each cut at 1."""

Reason = Literal["no reals", "no fakes", "too few reals", "too few fakes", "too few of both"]

MIN_IMAGES = 50
"""Images of each side that a class needs: see docs/classes.md for why."""


@dataclass(frozen=True)
class ClassScore:
    """The reals of one class against the fakes of the same class."""

    label: str  # the class
    n_real: int  # its reals
    n_fake: int  # its fakes
    metrics: Mapping[str, MetricValue]  # as in a `Result` of these images alone, but without the control

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
    """A class that was not scored."""

    label: str  # the class
    n_real: int  # its reals
    n_fake: int  # its fakes
    reason: Reason


@dataclass(frozen=True)
class Average:
    """One metric over all classes that were scored."""

    value: float  # the average
    null: float | None  # the same average of what a perfect generator scores; None where a class has none
    interval: tuple[float, float] | None  # 95 %, over draws of the images of the same classes
    n_classes: int  # classes in it


@dataclass(frozen=True)
class ClassScores:
    """A score class by class, beside that of all images together."""

    overall: Result  # of all images, classes or not: what `Evaluator.score` gives
    classes: tuple[ClassScore, ...]  # every class that was scored, the worst first
    macro: Mapping[str, Average]  # by metric, the plain mean over these classes: each counts the same
    # by metric, the mean weighted by fakes for precision and density, by reals for recall and coverage
    micro: Mapping[str, Average]
    left_out: tuple[LeftOutClass, ...]  # every other class
    min_images: int  # images that a class needs on each side
    worst_by: str  # what the order is by: "null" for value over null over all metrics, or one metric
    origins: Mapping[str, str]  # where the labels of "real" and "fake" come from
    unlabeled: Mapping[str, int]  # images without a class by side; they are in `overall` alone
    seconds: float  # time to score the classes

    def __getitem__(self, label: str) -> ClassScore:
        """The score of one class."""
        for found in self.classes:
            if found.label == label:
                return found
        raise KeyError(label)

    def to_dict(self) -> dict[str, Any]:
        """The record of `overall`, and the classes under "per_class", as plain JSON types; classes have no replicates."""
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "overall"}
        for name in ("macro", "micro"):
            facts[name] = {metric: asdict(average) for metric, average in facts[name].items()}
        facts["classes"] = [_record(found) for found in self.classes]
        facts["left_out"] = [asdict(found) for found in self.left_out]
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
    counts = [found.n_fake if BALLS[name].over == "fake" else found.n_real for found in classes]
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
    """By the same average of the replicates of the classes, which share no image.

    The least width is that of as many images as have the variance of the weighted mean of independent ones (Kish 1965,
    "Survey Sampling": 1 / sum of w^2 / n).
    """
    replicates = [metric.replicates for metric in metrics if metric.replicates is not None]
    if len(replicates) < len(metrics):
        return None
    stacked = torch.tensor(replicates, dtype=torch.float64)
    mean = torch.tensor(weights, dtype=torch.float64) @ stacked
    effective = 1 / sum(w * w / n for w, n in zip(weights, counts, strict=True))
    found = interval_of(value, mean, n=max(1, int(effective)), upper=BALLS[name].upper)
    return found.low, found.high


class ClassOptions(TypedDict, total=False):
    """Keyword arguments of `genpr.Evaluator.score_classes`, which documents them."""

    real_labels: object
    fake_labels: object
    min_per_class: int
    worst_by: str


@dataclass(frozen=True)
class ClassScorer:
    """Labels and options of per-class scores, checked before any image is embedded."""

    plan: ScorePlan  # of the score of all images
    embedder: Embedder  # how they are embedded
    real: Labels  # labels of the reals
    fake: Labels  # labels of the fakes
    min_images: int  # images that a class needs in each data set
    worst_by: str  # the order of the classes

    @classmethod
    def of(
        cls,
        plan: ScorePlan,
        embedder: Embedder,
        *,
        sources: tuple[object, object],
        opened: tuple[OpenedInput, OpenedInput],
        real_labels: object = None,
        fake_labels: object = None,
        min_per_class: int = MIN_IMAGES,
        worst_by: str = WEAKEST_FIRST,
    ) -> ClassScorer:
        """Read and check labels and options."""
        check_options(plan.protocol, plan.ks, min_per_class=min_per_class, worst_by=worst_by)
        labels = (
            open_labels(real_labels, label_location(sources[0], opened[0]), "real"),
            open_labels(fake_labels, label_location(sources[1], opened[1]), "fake"),
        )
        scorer = cls(plan, embedder, *labels, int(min_per_class), worst_by)
        _check_names(opened, labels, scorer._policy)
        return scorer

    def score(self, real: SourceFeatures, fake: SourceFeatures, overall: Result) -> ClassScores:
        """Score every class that has enough images."""
        own = self.plan.own
        labeled = (
            match_labels(real.role, real.opened, real[own], self.real),
            match_labels(fake.role, fake.opened, fake[own], self.fake),
        )
        check_classes(*labeled, self._policy)
        started = time.perf_counter()
        chosen, left_out = self._chosen(*labeled)
        report = self.embedder.options.progress or (lambda *_: None)

        def scored(where: Embedder) -> list[ClassScore]:
            found = []
            for done, label in enumerate(chosen):
                report("classes", done, len(chosen))
                real_part, fake_part = (
                    features.select(torch.tensor(images.rows[label]))
                    for features, images in zip((real[own], fake[own]), labeled, strict=True)
                )
                found.append(self._scored(label, real_part, fake_part, where.device))
            report("classes", len(chosen), len(chosen))
            return found

        found, told = with_cpu_fallback(self.embedder, scored, "for the classes")
        return ClassScores(
            overall=replace(overall, notices=tuple(dict.fromkeys((*overall.notices, *told)))),
            classes=worst_first(found, self.worst_by),
            macro=averages(found, weighted=False),
            micro=averages(found, weighted=True),
            left_out=left_out,
            min_images=self.min_images,
            worst_by=self.worst_by,
            origins={each.role: each.origin for each in labeled},
            unlabeled={each.role: len(each.unlabeled) for each in labeled},
            seconds=time.perf_counter() - started,
        )

    @property
    def _policy(self) -> BadImagePolicy:
        return self.embedder.options.bad_images

    def _chosen(self, real: LabeledImages, fake: LabeledImages) -> tuple[list[str], tuple[LeftOutClass, ...]]:
        """Classes with enough images, and the others."""
        chosen, left_out = [], []
        for label in dict.fromkeys([*real.rows, *fake.rows]):
            sizes = len(real.rows.get(label, ())), len(fake.rows.get(label, ()))
            reason = _reason(*sizes, self.min_images)
            if reason is None:
                chosen.append(label)
            else:
                left_out.append(LeftOutClass(label, *sizes, reason))
        if not chosen:
            largest = sorted(left_out, key=lambda each: -min(each.n_real, each.n_fake))[:5]
            shown = ", ".join(
                f"{short(each.label)} ({each.n_real:,} reals, {each.n_fake:,} fakes)" for each in largest
            )
            raise DataError(
                f"no class has {self.min_images:,} images on both sides: {shown}; score more images, or lower "
                "min_per_class (--min-per-class), which widens intervals",
                code="classes-too-small",
            )
        return chosen, tuple(left_out)

    def _scored(self, label: str, real: FeatureSet, fake: FeatureSet, device: torch.device) -> ClassScore:
        plan = replace(self.plan, ks={name: self.plan.ks[name] for name in _metrics(self.plan.ks)})
        fitted = FittedNeighbors(
            real, plan, device=device, seed=self.embedder.options.seed, diagnostics=False
        )
        found = fitted.score(fake).values
        metrics = {name: value for name, value in found.items() if value is not None}
        return ClassScore(label, len(real), len(fake), metrics)


def _metrics(ks: Mapping[str, int]) -> tuple[str, ...]:
    """The metrics among `ks` that are computed per class."""
    return tuple(name for name in DEFAULT_METRICS if name in ks)


def check_options(
    protocol: EvaluationProtocol,
    ks: Mapping[str, int],
    *,
    min_per_class: int = MIN_IMAGES,
    worst_by: str = WEAKEST_FIRST,
) -> None:
    """Refuse what cannot be scored class by class."""
    metrics = _metrics(ks)
    if not metrics:
        raise UsageError(
            f"per-class scores are of {', '.join(DEFAULT_METRICS)}, and none of them is asked for",
            code="per-class-metrics",
        )
    sizes = (protocol.n_real, protocol.n_fake, protocol.max_real, protocol.max_fake, protocol.max_rows)
    if any(size is not None for size in sizes):
        raise UsageError(
            f"protocol {protocol.name} fixes the number of images of whole sets, which no class can meet; use "
            "--protocol genpr or prdc for per-class scores",
            code="protocol-pinned",
        )
    least = max(least_images({name: ks[name] for name in metrics}))
    check_count(min_per_class, "min_per_class, which must leave k neighbors to each image,", least=least)
    known = (WEAKEST_FIRST, *metrics)
    if worst_by not in known:
        raise UsageError(f"worst_by must be one of {', '.join(known)}, not {worst_by!r}", code="bad-option")


def _reason(n_real: int, n_fake: int, least: int) -> Reason | None:
    """Why a class of these sizes is not scored."""
    if not n_real or not n_fake:
        return "no fakes" if n_real else "no reals"
    if n_real < least:
        return "too few of both" if n_fake < least else "too few reals"
    return "too few fakes" if n_fake < least else None


def check_classes(real: LabeledImages, fake: LabeledImages, policy: BadImagePolicy) -> None:
    """Refuse data sets that cannot be scored class by class."""
    both = f"{real}; {fake}"
    if not real.rows or not fake.rows:
        raise DataError(f"per-class scores need a label per image: {both}; {LABELS_HINT}", code="no-labels")
    for images in (real, fake):
        check_complete(images, policy)
    if len({*real.rows, *fake.rows}) == 1:
        raise DataError(
            f"per-class scores need at least two classes: {both}; score without them, or {LABELS_HINT}",
            code="one-class",
        )
    check_shared(real, fake)


def _check_names(sides: Sequence[OpenedInput], labels: Sequence[Labels], policy: BadImagePolicy) -> None:
    """Check classes of opened sources, if the names of their images are known without reading them."""
    found = []
    for role, opened, each in zip(("real", "fake"), sides, labels, strict=True):
        images = match_names(role, opened, each)
        if images is None:
            return
        found.append(images)
    check_classes(found[0], found[1], policy)
