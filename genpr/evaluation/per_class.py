"""Scores per class: the reals of each class against its fakes, with features that are embedded once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypedDict

import torch

from genpr.errors import DataError, UsageError, short
from genpr.evaluation.labels import (
    LABELS_HINT,
    LabeledImages,
    SourceLabels,
    check_shared,
)
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.reference import Reference, check_finite
from genpr.evaluation.result import Average, ClassScore, ClassScores, LeftOutClass, Reason, Result
from genpr.features.source_features import Embedder, OpenedInput, SourceFeatures, with_cpu_fallback
from genpr.metrics.registry import BALLS, DEFAULT_METRICS, DISTRIBUTIONS, MOMENTS
from genpr.metrics.uncertainty import interval_of
from genpr.notices import notice
from genpr.validation import check_count

MIN_IMAGES = 50
"""Minimum number of reals and of fakes of a class; see docs/classes.md."""

_ADDED = ("fd", "kd")  # computed without being requested


def worst_first(classes: Sequence[ClassScore]) -> tuple[ClassScore, ...]:
    """Classes sorted by `mean_relative`, and where it is equal or None, by their mean rank by distance."""

    def rank(found: ClassScore) -> int:
        own = [(name, each.value) for name, each in found.metrics.items() if name in DISTRIBUTIONS]
        return sum(other.metrics[name].value > value for name, value in own for other in classes)

    return tuple(sorted(classes, key=lambda each: (each.mean_relative or 0.0, rank(each))))


def _averages(classes: Sequence[ClassScore], *, weighted: bool) -> dict[str, Average]:
    """The averages over all classes by metric, `weighted` by images (micro) or unweighted (macro).

    Intervals are computed from the averages of the replicates of the classes, which share no image. The minimum width of a share
    is that of the effective sample size of the weighted mean (Kish 1965, "Survey Sampling": 1 / sum of w^2 / n). A metric that is
    undefined in a class has no average. The unweighted mean of Fréchet distances is the intra-FID of Miyato and Koyama 2018,
    "cGANs with Projection Discriminator"; no weighted one is published.
    """
    found = {}
    for name in classes[0].metrics:
        ball = BALLS.get(name)
        if not all(name in each.metrics for each in classes) or (weighted and ball is None):
            continue
        metrics = [each.metrics[name] for each in classes]
        counts = [each.n_fake if ball and ball.over == "fake" else each.n_real for each in classes]
        weights = [count / sum(counts) if weighted else 1 / len(counts) for count in counts]

        def mean(values: Iterable[float | None], weights: Sequence[float] = weights) -> float | None:
            known = [each for each in values if each is not None]
            if len(known) < len(weights):
                return None
            return sum(weight * each for weight, each in zip(weights, known, strict=True))

        value = mean(metric.value for metric in metrics)
        assert value is not None
        replicates = [metric.replicates for metric in metrics if metric.replicates is not None]
        of_halves = None
        if len(replicates) == len(metrics):
            of_halves = torch.tensor(weights, dtype=torch.float64) @ torch.tensor(
                replicates, dtype=torch.float64
            )
        if ball:
            parts = zip(weights, metrics, counts, strict=True)
            n = max(1, int(1 / sum(w * w / (metric.n_counted or count) for w, metric, count in parts)))
            interval = interval_of(value, of_halves, n=n, upper=ball.upper)
        else:
            lower = -math.inf if DISTRIBUTIONS[name].samples_subsets else 0.0  # unbiased ones may be negative
            interval = interval_of(value, of_halves, n=None, lower=lower, upper=None)
        null, bias = mean(metric.null for metric in metrics), mean(metric.bias for metric in metrics)
        found[name] = Average(value, null, interval, bias)
    return found


class ClassOptions(TypedDict, total=False):
    """Keyword arguments of `genpr.Evaluator.score_classes`, documented there."""

    real_labels: object
    fake_labels: object
    min_per_class: int


class ClassScorer:
    """Labels and options of per-class scores, checked before any image is embedded."""

    def __init__(
        self,
        plan: ScorePlan,
        embedder: Embedder,
        opened: tuple[OpenedInput, OpenedInput],
        is_default: bool,  # whether the user chose no metrics
        *,
        real_labels: object = None,
        fake_labels: object = None,
        min_per_class: int = MIN_IMAGES,
    ) -> None:
        protocol, own = plan.protocol, {name: plan.ks[name] for name in DEFAULT_METRICS if name in plan.ks}
        distances = [
            name
            for name in plan.extractors
            if name in DISTRIBUTIONS and DISTRIBUTIONS[name].kind == "distance" and name not in plan.given
        ]
        extractors = {name: plan.extractors[name] for name in (*own, *distances)}
        if not extractors:
            text = f"per-class scores need images and one of the metrics {', '.join(DEFAULT_METRICS)}, or a distance such as fd"
            raise UsageError(text, code="per-class-metrics")
        if any((protocol.n_real, protocol.n_fake, protocol.max_real, protocol.max_fake, protocol.max_rows)):
            raise UsageError(
                f"protocol {protocol.name} fixes the number of images of whole sets, which no class can meet; use "
                "--protocol genpr or prdc for per-class scores",
                code="protocol-pinned",
            )
        if is_default and "metrics" in protocol.free:
            extractors |= dict.fromkeys(_ADDED, plan.own)
        self._plan = replace(plan, ks=own, extractors=extractors, control=False, statistics=None, given={})
        least = max(self._plan.needs[role].least for role in ("real", "fake"))
        check_count(
            min_per_class, "min_per_class, which must leave k neighbors to each image,", minimum=least
        )
        self._embedder, self._min_images = embedder, int(min_per_class)
        policy = embedder.options.bad_images
        self._real = SourceLabels.open(real_labels, opened[0], "real", policy)
        self._fake = SourceLabels.open(fake_labels, opened[1], "fake", policy)
        if self._real.named is not None and self._fake.named is not None:
            check_classes(self._real.named, self._fake.named)

    def score(self, real: SourceFeatures, fake: SourceFeatures, overall: Result) -> ClassScores:
        """Score every class with enough images."""
        plan, keys = self._plan, dict.fromkeys(self._plan.extractors.values())
        main = next(iter(keys))
        labeled = self._real.match_all(real[main]), self._fake.match_all(fake[main])
        check_classes(*labeled)
        chosen, left_out = self._chosen(*labeled)
        report = self._embedder.options.progress or (lambda *_: None)

        def scored(where: Embedder) -> list[ClassScore]:
            found, quiet = [], where.with_options(progress=None)
            for done, label in enumerate(chosen):
                report("classes", done, len(chosen))
                reals, fakes = (
                    each.select(torch.tensor(images.rows[label]), keys)
                    for each, images in zip((real, fake), labeled, strict=True)
                )
                values = Reference(plan, reals, quiet).values(fakes).values
                metrics = {name: value for name in plan.extractors if (value := values[name]) is not None}
                check_finite(metrics)
                found.append(ClassScore(label, reals.n, fakes.n, metrics))
            report("classes", len(chosen), len(chosen))
            return found

        found, fallback = with_cpu_fallback(self._embedder, scored, "for the classes")
        more = [item for images in labeled for item in images.notices]
        widths = {
            name: real[plan.extractors[name]].features.shape[1] for name in plan.extractors if name in MOMENTS
        }
        for dim in dict.fromkeys(widths.values()):
            if count := sum(min(each.n_real, each.n_fake) <= dim for each in found):
                names = ", ".join(name for name, width in widths.items() if width == dim)
                facts = {"count": f"{count:,}", "total": f"{len(found):,}", "dim": f"{dim:,}"}
                more.append(notice("few-images-per-class", names=names, **facts))
        return ClassScores(
            overall=replace(overall, notices=tuple(dict.fromkeys((*overall.notices, *more, *fallback)))),
            classes=worst_first(found),
            macro=_averages(found, weighted=False),
            micro=_averages(found, weighted=True),
            left_out=left_out,
            min_images=self._min_images,
            origins={each.role: each.origin for each in labeled},
            unlabeled={each.role: len(each.unlabeled) for each in labeled},
        )

    def _chosen(self, real: LabeledImages, fake: LabeledImages) -> tuple[list[str], tuple[LeftOutClass, ...]]:
        """Classes with enough images, and the others."""
        chosen, left_out = [], []
        for label in dict.fromkeys([*real.rows, *fake.rows]):
            n_real, n_fake = len(real.rows.get(label, ())), len(fake.rows.get(label, ()))
            reason: Reason
            if not n_real or not n_fake:
                reason = "no fakes" if n_real else "no reals"
            elif n_real < self._min_images:
                reason = "too few of both" if n_fake < self._min_images else "too few reals"
            elif n_fake < self._min_images:
                reason = "too few fakes"
            else:
                chosen.append(label)
                continue
            left_out.append(LeftOutClass(label, n_real, n_fake, reason))
        if not chosen:
            largest = sorted(left_out, key=lambda each: -min(each.n_real, each.n_fake))[:5]
            shown = ", ".join(
                f"{short(each.label)} ({each.n_real:,} reals, {each.n_fake:,} fakes)" for each in largest
            )
            raise DataError(
                f"no class has {self._min_images:,} images in both sets: {shown}; score more images, or lower "
                "min_per_class (--min-per-class), which widens intervals",
                code="classes-too-small",
            )
        return chosen, tuple(left_out)


def check_classes(real: LabeledImages, fake: LabeledImages) -> None:
    """Refuse data sets that cannot be scored class by class."""
    if len({*real.rows, *fake.rows}) == 1:
        text = f"per-class scores need at least two classes: {real}; {fake}; score without them, or {LABELS_HINT}"
        raise DataError(text, code="one-class")
    check_shared(real, fake)
