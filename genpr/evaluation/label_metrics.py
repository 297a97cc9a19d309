"""Label metrics of a score: the agreement of requested classes with the recognized classes of the fakes.

The fakes are classified by the labeled reals, or their classes are predictions of another tool.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError, some
from genpr.evaluation.labels import (
    Label,
    LabeledImages,
    Labels,
    SourceLabels,
    check_shared,
    class_order,
    open_labels,
)
from genpr.evaluation.options import LabelOptions
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import Confusion, LabelRow, LabelSummary, Result
from genpr.evaluation.tables import ImageValues
from genpr.features.feature_set import FeatureSet
from genpr.features.source_features import Embedder, OpenedInput
from genpr.images.policy import BadImagePolicy
from genpr.metrics.classification_accuracy import (
    MIN_IN_HALF,
    RATES,
    Conditional,
    ConditionalReals,
    Direction,
    recognized_elsewhere,
)
from genpr.metrics.metric import MetricValue
from genpr.metrics.uncertainty import Interval, effective_size, interval_of, with_interval
from genpr.notices import Notice, notice

_MAX_CONFUSIONS = 50
_MIN_REALS = 0.5  # reals per fake; in simulations the null was .01 too low at a half, .04 at a third

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LabelConfig:
    """Options of label metrics, and the labels that are known before the fakes."""

    options: LabelOptions
    policy: BadImagePolicy  # whether images without a label may be left out
    real: SourceLabels | None = None  # the labels of the reals; None if they are not used
    recognized: Labels | None = (
        None  # predictions of another tool for the fakes; None if the reals classify them
    )

    @classmethod
    def from_options(cls, options: LabelOptions, real: OpenedInput, policy: BadImagePolicy) -> LabelConfig:
        """Read the labels of the reals, and raise an error if they do not match the reals."""
        if not isinstance(options, LabelOptions):
            raise UsageError(f"labels must be genpr.LabelOptions(...), not {options!r}", code="bad-option")
        if options.is_file:
            return cls(options, policy, recognized=open_labels(options.classifier, None, "fake"))
        labels = SourceLabels.open(options.real_labels, real, "real", policy)
        _ = labels.named  # which checks them
        return cls(options, policy, labels)

    def of_fakes(self, opened: OpenedInput) -> tuple[SourceLabels, SourceLabels | None]:
        """The requested labels of the fakes, and those that another tool recognized."""
        requested = SourceLabels.open(self.options.fake_labels, opened, "fake", self.policy)
        if self.recognized is None:
            return requested, None
        return requested, SourceLabels.open(self.recognized, opened, "fake", self.policy)

    def check(self, opened: OpenedInput) -> None:
        """Raise an error for labels that do not match the fakes, if this is known before embedding."""
        for labels in reversed(self.of_fakes(opened)):
            if labels is not None and labels.named is not None and self.real is not None and self.real.named:
                check_shared(self.real.named, labels.named)


def _content(labels: Labels | None) -> str | None:
    if not isinstance(labels, ImageValues):
        return None if labels is None else labels.origin
    return _hash(list(labels.values) if labels.by_name is None else sorted(labels.by_name.items()))


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class RecognizedLabels:
    """The requested and the recognized label of each of m fakes in the order of the score; None without one."""

    requested: tuple[Label, ...]
    recognized: tuple[Label, ...]

    def mistakes(self) -> dict[tuple[str, str], list[int]]:
        """Rows by (requested, recognized) where the two differ: the largest group first, then by class."""
        groups: dict[tuple[str, str], list[int]] = {}
        for row, (requested, recognized) in enumerate(zip(self.requested, self.recognized, strict=True)):
            if requested is not None and recognized is not None and requested != recognized:
                groups.setdefault((requested, recognized), []).append(row)
        return dict(sorted(groups.items(), key=lambda each: (-len(each[1]), *map(class_order, each[0]))))


class LabelScorer:
    """Label metrics of any number of fake sets for one real set with the features `reals`."""

    def __init__(self, config: LabelConfig, reals: FeatureSet, plan: ScorePlan, embedder: Embedder) -> None:
        self._config, self._options = config, config.options
        self._intervals, self._seed, self._device = plan.intervals, embedder.options.seed, embedder.device
        self._report = embedder.options.progress or (lambda *_: None)
        self._labeled: LabeledImages | None = None
        self._reals: ConditionalReals | None = None
        started = time.perf_counter()
        if config.real is not None:
            self._labeled = images = config.real.match_all(reals)
            if len(images.rows) < 2:
                text = f"label metrics need reals of at least two classes: {images}"
                raise DataError(text, code="one-class")
            features, classes = self._with_labels(images, reals, list(images.rows))
            self._reals = ConditionalReals(
                features, classes, k=int(self._options.k), intervals=self._intervals, seed=self._seed
            )
        self._fit_seconds = time.perf_counter() - started

    @property
    def recipe(self) -> dict[str, Any]:
        """Everything that determines a score except the images, as plain JSON types, with hashes of labels."""
        fake = self._options.fake_labels
        return {
            "classifier": "file" if self._options.is_file else str(self._options.classifier),
            "k": int(self._options.k),
            "real": _hash([] if self._labeled is None else list(self._labeled.labels)),
            "fake": _content(None if fake is None else open_labels(fake, None, "fake")),
            "recognized": _content(self._config.recognized),
        }

    def add_to(
        self, result: Result, opened: OpenedInput, fakes: FeatureSet
    ) -> tuple[Result, RecognizedLabels]:
        """The result of opened fakes with the features `fakes`, with label metrics; and the labels of each fake."""
        started, classifier = time.perf_counter(), str(self._options.classifier)
        self._report("labels", 0, 1)
        of_fakes, elsewhere = self._config.of_fakes(opened)
        requested, notices = of_fakes.match_all(fakes), [*result.notices]
        k: int | None = int(self._options.k)
        if elsewhere is None:
            assert self._reals is not None
            assert self._labeled is not None
            sources = [self._labeled, requested]
            found, classes, recognized, more = self._by_reals(self._reals, self._labeled, requested, fakes)
            directions = {"gan_test": found.test, "gan_train": found.train}
            notices += more
            name = None if fakes.extractor is None else fakes.extractor.name
            plain = MetricValue(0.0, k, extractor=name, null_source="leave-one-out")
        else:  # the predictions of another tool, which have no null
            seen, sources, k = elsewhere.match_all(fakes), [requested], None
            classifier = seen.origin
            pairs = zip(requested.labels, seen.labels, strict=True)
            both = [(one, other) for one, other in pairs if one is not None and other is not None]
            if not both:
                raise DataError("no fake has both a requested and a recognized label", code="no-labels")
            classes, recognized = sorted({label for pair in both for label in pair}), tuple(seen.labels)
            indices = [_indices((pair[at] for pair in both), classes) for at in (0, 1)]
            accuracy = recognized_elsewhere(*indices, intervals=self._intervals, seed=self._seed)
            directions = {"accuracy": accuracy}
            notices += seen.notices
            plain = MetricValue(0.0, None, variant="as recognized by another tool")
        labels = RecognizedLabels(tuple(requested.labels), recognized)
        test = next(iter(directions.values()))  # of which macro averages, rows and confusions are
        values = {f"label.{name}": _value(plain, each, "accuracy") for name, each in directions.items()}
        values |= {f"label.{name}": _value(plain, test, name) for name in RATES if name != "accuracy"}
        rows, mistakes = _rows(test, classes), list(labels.mistakes().items())[:_MAX_CONFUSIONS]
        summary = LabelSummary(
            classifier=classifier,
            k=k,
            rows=rows,
            confusions=tuple(Confusion(*pair, len(images)) for pair, images in mistakes),
            undefined=undefined_values(rows),
            n=test.n,
            origins={each.role: each.origin for each in sources},
            unlabeled={each.role: len(each.unlabeled) for each in sources} | {"fake": len(fakes) - test.n},
        )
        notices += [item for each in sources for item in each.notices]
        if self._intervals and test.halves is None:
            n = min(each.n for each in directions.values())
            why = f"halves of {n:,} images are too small"
            remedy = f"use at least {2 * MIN_IN_HALF:,} images of each set"
            notices.append(notice("no-intervals", names="label metrics", reason=why, remedy=remedy))
        self._report("labels", 1, 1)
        seconds = time.perf_counter() - started + self._fit_seconds
        result = replace(
            result,
            metrics={
                **result.metrics,
                **{name: value for name, value in values.items() if value is not None},
            },
            undefined=(*result.undefined, *(name for name, value in values.items() if value is None)),
            notices=tuple(dict.fromkeys(notices)),
            labels=summary,
            seconds={**result.seconds, "labels": seconds},
        )
        return result, labels

    def _with_labels(
        self, images: LabeledImages, features: FeatureSet, classes: list[str]
    ) -> tuple[Tensor, Tensor]:
        """Features and class indices of the images with a class."""
        rows = [row for row, label in enumerate(images.labels) if label is not None]
        kept = features.features if len(rows) == len(features) else features.features[torch.tensor(rows)]
        labels = _indices(filter(None, images.labels), classes)
        return kept.float().to(self._device), labels.to(self._device)

    def _by_reals(
        self, reals: ConditionalReals, labeled: LabeledImages, requested: LabeledImages, fakes: FeatureSet
    ) -> tuple[Conditional, list[str], tuple[Label, ...], list[Notice]]:
        """GAN-test and GAN-train, all classes, the recognized class of each fake, and notices."""
        check_shared(labeled, requested)
        classes = sorted({*labeled.rows, *requested.rows}, key=class_order)
        features, labels = self._with_labels(requested, fakes, classes)
        indices = _indices(labeled.rows, classes).to(labels.device)
        found = reals.score(features, labels, classes_of_reals=indices, n_classes=len(classes))
        names = iter(classes[index] if index >= 0 else None for index in found.test.predicted.tolist())
        recognized = tuple(None if label is None else next(names) for label in requested.labels)
        notices = []
        if unknown := [label for label in requested.rows if label not in labeled.rows]:
            count = sum(len(requested.rows[label]) for label in unknown)
            notices.append(notice("classes-differ", count=f"{count:,} fakes", shown=some(unknown)))
        if found.null_share < _MIN_REALS:
            notices.append(notice("few-reals-per-class", share=f"{found.null_share:.0%}"))
        return found, classes, recognized, notices


def _indices(labels: Iterable[Label], classes: Sequence[str]) -> Tensor:
    """The index in `classes` of each label, (n,) int64."""
    index: dict[Label, int] = {label: number for number, label in enumerate(classes)}
    return torch.tensor([index[label] for label in labels], dtype=torch.int64)


def _value(plain: MetricValue, found: Direction, rate: str) -> MetricValue | None:
    """`plain` with value, null, chance and interval of one rate; None if it is undefined."""
    value = _known_or_none(float(found.totals.rates()[rate]))
    if value is None:
        return None
    null = None if found.null is None else _known_or_none(float(found.null.rates()[rate]))
    n = found.n if rate == "accuracy" else effective_size(found.totals.requested)
    halves = None if found.halves is None else found.halves.rates()[rate]
    metric = replace(
        plain,
        value=value,
        null=null,
        null_source=None if null is None else plain.null_source,
        chance=_known_or_none(found.chance[rate]),
        n_counted=n,
    )
    return with_interval(metric, halves, n=n)


def _known_or_none(value: float) -> float | None:
    return None if np.isnan(value) else value


def _interval(value: float | None, halves: Floats | None, n: int) -> Interval | None:
    return None if value is None else interval_of(value, halves, n=n)


def _rows(found: Direction, classes: Sequence[str]) -> tuple[LabelRow, ...]:
    """One row per class with nulls and intervals, the worst first."""
    totals = found.totals
    counts = zip(classes, totals.right, totals.requested, totals.predicted, *totals.ratios(), strict=True)
    null = None if found.null is None else found.null.ratios()
    halves = None if found.halves is None else found.halves.ratios()
    rows = []
    for at, (label, right, requested, predicted, *values) in enumerate(counts):
        precision, recall, f1 = (_known_or_none(float(value)) for value in values)
        of_halves = (None, None) if halves is None else (halves.precision[:, at], halves.recall[:, at])
        rows.append(
            LabelRow(
                label=label,
                n=int(requested),
                tp=int(right),
                fp=int(predicted - right),
                fn=int(requested - right),
                tn=int(found.n - requested - predicted + right),
                precision=precision,
                recall=recall,
                f1=f1,
                precision_interval=_interval(precision, of_halves[0], int(predicted)),
                recall_interval=_interval(recall, of_halves[1], int(requested)),
                null_precision=None if null is None else _known_or_none(float(null.precision[at])),
                null_recall=None if null is None else _known_or_none(float(null.recall[at])),
            )
        )
    return worst_labels_first(rows)


def worst_labels_first(rows: Iterable[LabelRow]) -> tuple[LabelRow, ...]:
    """Rows sorted by `mean_relative`, then by the number of errors."""
    return tuple(sorted(rows, key=lambda row: (row.mean_relative, -(row.fp + row.fn))))


def undefined_values(rows: Sequence[LabelRow]) -> tuple[str, ...]:
    """Descriptions of the values of classes that are 0/0, which are not in any average."""
    undefined = {
        name: sorted(row.label for row in rows if getattr(row, name) is None)
        for name in ("precision", "recall", "f1")
    }
    return tuple(
        f"{name} is undefined (0/0) for {len(labels):,} of {len(rows):,} classes: {some(labels)}"
        for name, labels in undefined.items()
        if labels
    )
