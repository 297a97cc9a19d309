"""Label metrics of a score: do the fakes look like the classes that they were generated for?

The fakes are classified by the labeled reals, or another tool has classified them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError, some
from genpr.evaluation.labels import (
    LABELS_HINT,
    FolderLabels,
    Label,
    LabeledImages,
    Labels,
    check_complete,
    check_shared,
    class_order,
    is_label_list,
    match_labels,
    match_names,
    open_labels,
    split_labels,
)
from genpr.evaluation.options import LINEAR, LabelOptions
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import Confusion, LabelRow, LabelSummary, Result
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedInput, label_location
from genpr.features.source_features import Embedder, SourceFeatures
from genpr.images.policy import BadImagePolicy
from genpr.metrics.classification_accuracy import (
    LEAST_IN_HALF,
    RATES,
    Conditional,
    ConditionalReals,
    Direction,
    Kind,
    members,
)
from genpr.metrics.labels import (
    Coded,
    LabelMetrics,
    coded,
    confusion_counts,
    known_or_none,
    metrics_of_codes,
    ratios,
)
from genpr.metrics.uncertainty import interval_of
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice

_HALVES, _FAKE_STREAM = 100, 1
_MAX_CONFUSIONS = 50
_FEW_REALS = (
    0.5  # per fake; in simulations the null was .01 low at a half, .04 at a third, .09 at a twentieth
)
_WHY_UNDEFINED = {
    "precision": "nothing was recognized as it",
    "recall": "nothing was asked to be of it",
    "f1": "neither",
}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LabelConfig:
    """Options of label metrics, and the labels that are known before the fakes.

    `real` are those of the reals, None where they are not used; `recognized` what another tool recognized the fakes as, None
    where the reals classify them; `policy` says whether images without a label may be left out.
    """

    options: LabelOptions
    real: Labels | None
    recognized: Labels | None
    policy: BadImagePolicy

    @classmethod
    def of(cls, options: LabelOptions, real: OpenedInput, policy: BadImagePolicy) -> LabelConfig:
        """Read the labels that need no fakes, and refuse those that do not belong to the reals."""
        if not isinstance(options, LabelOptions):
            raise UsageError(f"labels must be genpr.LabelOptions(...), not {options!r}", code="bad-option")
        if options.is_file:
            return cls(options, None, open_labels(options.classifier, None, "fake", sets=True), policy)
        labels = open_labels(options.real_labels, label_location(None, real), "real")
        config = cls(options, labels, None, policy)
        config._named("real", real, labels)
        return config

    def open_fake(self, opened: OpenedInput) -> Labels:
        """The labels that the fakes were generated for."""
        source = label_location(None, opened)
        return open_labels(self.options.fake_labels, source, "fake", sets=self.recognized is not None)

    def check(self, opened: OpenedInput) -> LabeledImages | None:
        """Refuse fakes that labels do not fit, as far as that is known before they are embedded; their labels if known."""
        if self.recognized is not None:
            self._named("fake", opened, self.recognized)
        return self._named("fake", opened, self.open_fake(opened))

    def _named(self, role: str, opened: OpenedInput, labels: Labels) -> LabeledImages | None:
        images = match_names(role, opened, labels)
        return None if images is None else self._complete(images)

    def _complete(self, images: LabeledImages) -> LabeledImages:
        if not images.rows:
            raise DataError(
                f"label metrics need a label per image: {images}; {LABELS_HINT}", code="no-labels"
            )
        check_complete(images, self.policy)
        return images

    def match(self, side: SourceFeatures, features: FeatureSet, labels: Labels) -> LabeledImages:
        """Each embedded image with its label."""
        return self._complete(match_labels(side.role, side.opened, features, labels))

    def facts(self, real: Sequence[Label]) -> dict[str, Any]:
        """What decides the values beside the images, as plain JSON types: labels by their hash."""
        fake = self.options.fake_labels
        if fake is not None:
            fake = open_labels(fake, None, "fake", sets=self.recognized is not None)
        return {
            "classifier": "file" if self.options.is_file else str(self.options.classifier),
            "k": int(self.options.k),
            "real": _hash(list(real)),
            "fake": _content(fake),
            "recognized": _content(self.recognized),
        }


def _content(labels: Labels | None) -> str | None:
    if labels is None or isinstance(labels, FolderLabels):
        return None if labels is None else labels.origin
    return _hash(list(labels.values) if labels.by_name is None else sorted(labels.by_name.items()))


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def check_labels(
    options: LabelOptions | None, real: OpenedInput, fake: OpenedInput, *, policy: BadImagePolicy
) -> None:
    """Refuse labels that do not fit two sources, as far as that is known before an image of either is embedded."""
    if options is None:
        return
    config = LabelConfig.of(options, real, policy)
    fakes = config.check(fake)
    reals = None if config.real is None else match_names("real", real, config.real)
    if reals is not None and fakes is not None:
        check_shared(reals, fakes)


@dataclass(frozen=True, slots=True)
class RecognizedLabels:
    """What each of m fakes was generated for and recognized as, in the order in which they were scored; None for neither."""

    requested: tuple[Label, ...]
    recognized: tuple[Label, ...]

    def mistakes(self) -> dict[tuple[str, str], list[int]]:
        """Rows by (requested, recognized), where the two differ: the largest group first, equally large ones by name."""
        groups: dict[tuple[str, str], list[int]] = {}
        for row, (requested, recognized) in enumerate(zip(self.requested, self.recognized, strict=True)):
            if requested is not None and recognized is not None and requested != recognized:
                groups.setdefault((requested, recognized), []).append(row)
        return dict(sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])))


@dataclass(frozen=True)
class LabelScore:
    """What labels add to a result: metrics by name, names of undefined ones, values by class, notices, labels by fake."""

    metrics: Mapping[str, MetricValue]
    undefined: tuple[str, ...]
    summary: LabelSummary
    notices: tuple[Notice, ...]
    recognized: RecognizedLabels = field(repr=False)
    seconds: float = field(default=0.0, compare=False)

    def added_to(self, result: Result) -> Result:
        """The result with all of it."""
        return replace(
            result,
            metrics={**result.metrics, **self.metrics},
            undefined=(*result.undefined, *self.undefined),
            notices=(*result.notices, *self.notices),
            seconds={**result.seconds, "labels": self.seconds},
            labels=self.summary,
        )


class LabelScorer:
    """Label metrics of any number of fake sets against one real set, of which `reals` are the features."""

    def __init__(
        self,
        config: LabelConfig,
        side: SourceFeatures,
        reals: FeatureSet,
        plan: ScorePlan,
        embedder: Embedder,
    ) -> None:
        self._config, self._options = config, config.options
        self._intervals, self._seed, self._device = plan.intervals, embedder.options.seed, embedder.device
        self._report = embedder.options.progress or (lambda *_: None)
        self._labeled: LabeledImages | None = None
        self._reals: ConditionalReals | None = None
        started = time.perf_counter()
        if config.real is not None:
            self._labeled = config.match(side, reals, config.real)
            self._reals = self._fit(self._labeled, reals)
        self._fit_seconds = time.perf_counter() - started

    @property
    def recipe(self) -> dict[str, Any]:
        """What decides a score beside the images, as plain JSON types."""
        return self._config.facts(() if self._labeled is None else self._labeled.labels)

    def score(self, side: SourceFeatures, fakes: FeatureSet) -> LabelScore:
        """Score one fake set, of which `fakes` are the features."""
        started = time.perf_counter()
        self._report("labels", 0, 1)
        requested = self._config.match(side, fakes, self._config.open_fake(side.opened))
        if self._config.recognized is None:
            found = self._by_reals(requested, fakes)
        else:
            found = self._by_file(requested, self._config.match(side, fakes, self._config.recognized))
        self._report("labels", 1, 1)
        return replace(found, seconds=time.perf_counter() - started + self._fit_seconds)

    def _fit(self, images: LabeledImages, reals: FeatureSet) -> ConditionalReals:
        if len(images.rows) < 2:
            raise DataError(
                f"label metrics need reals of at least two classes: {images}; else every fake is recognized as the one",
                code="one-class",
            )
        features, labels = self._with_labels(images, reals, list(images.rows))
        kind: Kind = "linear" if self._options.classifier == LINEAR else "knn"
        return ConditionalReals(
            features, labels, kind=kind, k=int(self._options.k), intervals=self._intervals, seed=self._seed
        )

    def _with_labels(
        self, images: LabeledImages, features: FeatureSet, classes: list[str]
    ) -> tuple[Tensor, Tensor]:
        """Features and class indices of the images that have a class."""
        index = {label: number for number, label in enumerate(classes)}
        rows = [row for row, label in enumerate(images.labels) if label is not None]
        labels = torch.tensor([index[label] for label in images.labels if label is not None])
        kept = features.features if len(rows) == len(features) else features.features[torch.tensor(rows)]
        return kept.float().to(self._device), labels.to(self._device)

    def _by_reals(self, requested: LabeledImages, fakes: FeatureSet) -> LabelScore:
        """Classified by the labeled reals."""
        assert self._reals is not None
        assert self._labeled is not None
        check_shared(self._labeled, requested)
        classes = sorted({*self._labeled.rows, *requested.rows}, key=class_order)
        index = {label: number for number, label in enumerate(classes)}
        features, labels = self._with_labels(requested, fakes, classes)
        places = torch.tensor([index[label] for label in self._labeled.rows], device=labels.device)
        found = self._reals.score(features, labels, classes_of_reals=places, n_classes=len(classes))
        k = None if self._options.classifier == LINEAR else int(self._options.k)
        metrics, undefined = _values(
            found, k=k, extractor=None if fakes.extractor is None else fakes.extractor.name
        )
        rows = _rows(found.test, classes)
        requested_codes, predicted = labels.cpu().numpy(), found.test.predicted.cpu().numpy()
        known = predicted >= 0
        summary = LabelSummary(
            classifier=str(self._options.classifier),
            k=k,
            rows=rows,
            confusions=_confusions(confusion_counts(requested_codes[known], predicted[known], classes)),
            undefined=undefined_values(rows),
            n=found.test.n,
            origins={each.role: each.origin for each in (self._labeled, requested)},
            unlabeled={each.role: len(each.unlabeled) for each in (self._labeled, requested)},
        )
        names = iter(classes[index] if index >= 0 else None for index in predicted.tolist())
        recognized = tuple(None if label is None else next(names) for label in requested.labels)
        seen = RecognizedLabels(tuple(requested.labels), recognized)
        return LabelScore(metrics, undefined, summary, self._notices(requested, found), seen)

    def _notices(self, requested: LabeledImages, found: Conditional) -> tuple[Notice, ...]:
        assert self._labeled is not None
        notices = []
        if unknown := [label for label in requested.rows if label not in self._labeled.rows]:
            count = sum(len(requested.rows[label]) for label in unknown)
            notices.append(notice("classes-differ", count=f"{count:,} fakes", shown=some(unknown)))
        if found.null_share < _FEW_REALS:
            notices.append(notice("null-of-fewer", share=f"{found.null_share:.0%}"))
        if self._intervals and found.test.halves is None:
            notices.append(_no_interval(min(found.test.n, found.train.n)))
        return tuple(notices)

    def _by_file(self, requested: LabeledImages, seen: LabeledImages) -> LabelScore:
        """Classified by another tool."""
        both = [pair for pair in zip(requested.labels, seen.labels, strict=True) if None not in pair]
        several = any(is_label_list(str(text)) for pair in both for text in pair)
        relevant, predicted = (
            [split_labels(str(text)) if several else text for text in texts]
            for texts in zip(*both, strict=True)
        )
        codes = coded(relevant, predicted, None)
        found = metrics_of_codes(codes)
        enough = self._intervals and codes.n // 2 >= LEAST_IN_HALF
        metrics = _plain_values(found, _half_values(codes, self._seed) if enough else {})
        undefined = tuple(f"label.{name}" for name, value in _by_name(found).items() if np.isnan(value))
        rows = worst_labels_first(_plain_rows(codes.classes, codes.by_class(), codes.n))
        summary = LabelSummary(
            classifier=seen.origin,
            k=None,
            rows=rows,
            confusions=_confusions(found.confusions),
            undefined=undefined_values(rows),
            n=codes.n,
            origins={"fake": requested.origin},
            unlabeled={"fake": len(requested.labels) - codes.n},
        )
        lacking = () if enough or not self._intervals else (_no_interval(codes.n),)
        recognized = RecognizedLabels(tuple(requested.labels), tuple(seen.labels))
        return LabelScore(metrics, undefined, summary, (*found.notices, *lacking), recognized)


def _no_interval(n: int) -> Notice:
    return notice(
        "no-intervals",
        names="label metrics",
        reason=f"halves of {n:,} images are too small",
        remedy=f"give at least {2 * LEAST_IN_HALF:,} of each side",
    )


def _values(
    found: Conditional, *, k: int | None, extractor: str | None
) -> tuple[dict[str, MetricValue], tuple[str, ...]]:
    """Metrics of fakes classified by reals and the reverse, by name, and the names of undefined ones."""
    plain = MetricValue(
        0.0,
        k,
        extractor=extractor,
        variant=None if k is not None else "by a linear probe",
        null_source="leave-one-out" if k is not None else "cross-fitting",
    )
    values = {"gan_test": _value(plain, found.test, "accuracy")}
    values["gan_train"] = _value(plain, found.train, "accuracy")
    values |= {name: _value(plain, found.test, name) for name in RATES if name != "accuracy"}
    known = {f"label.{name}": value for name, value in values.items() if value is not None}
    return known, tuple(f"label.{name}" for name, value in values.items() if value is None)


def _value(plain: MetricValue, found: Direction, name: str) -> MetricValue | None:
    value, null = (known_or_none(float(tally.rates()[name])) for tally in (found.tally, found.null))
    if value is None:
        return None
    source = None if null is None else plain.null_source
    chance = known_or_none(found.chance[name])
    bare = replace(plain, value=value, null=null, null_source=source, chance=chance)
    halves = None if found.halves is None else found.halves.rates()[name]
    n = found.n if name == "accuracy" else effective_size(found.tally.requested)
    return _with_interval(bare, halves, n)


def _plain_values(found: LabelMetrics, halves: Mapping[str, Floats]) -> dict[str, MetricValue]:
    """Metrics of fakes that another tool classified, without nulls."""
    sizes = np.array([counts.support for counts in found.per_class], dtype=float)
    largest = float(sizes.max()) / found.n
    chance = {"accuracy": largest if found.single else found.accuracy_of_nothing}
    values = {}
    for name, value in _by_name(found).items():
        if np.isnan(value):
            continue
        n = effective_size(sizes) if name.startswith("macro") and sizes.any() else found.n
        bare = MetricValue(value, None, variant="as recognized by another tool", chance=chance.get(name))
        values[f"label.{name}"] = _with_interval(bare, halves.get(name), n)
    return values


def _by_name(found: LabelMetrics) -> dict[str, float]:
    """By name, NaN where undefined: of single labels, accuracy and macro averages; micro ones equal accuracy."""
    over = ("macro",) if found.single else ("macro", "micro", "weighted", "samples")
    values = {"accuracy": found.accuracy} | ({} if found.single else {"exact_match": found.exact_match})
    for name in over:
        average = getattr(found, name)
        for what, value in (("precision", average.precision), ("recall", average.recall), ("f1", average.f)):
            values[f"{name}_{what}"] = np.nan if value is None else value
    return values


def _half_values(codes: Coded, seed: int) -> dict[str, Floats]:
    """Each metric of complementary halves of the images, (B,)."""
    inside = members(codes.n, seed, _FAKE_STREAM, _HALVES, torch.device("cpu")).numpy()
    found = [_by_name(metrics_of_codes(codes.part(each))) for each in inside]
    return {name: np.array([each[name] for each in found]) for name in found[0]}


def _with_interval(value: MetricValue, halves: Floats | None, n: int) -> MetricValue:
    """With the interval that halves (B,) give, unless one of them has no value."""
    value = replace(value, n_counted=n)
    interval = _interval(value.value, halves, n)
    if halves is None or interval is None:
        return value
    return replace(value, interval=interval, replicates=tuple(halves.tolist()))


def _interval(value: float | None, halves: Floats | None, n: int) -> tuple[float, float] | None:
    if value is None or halves is None or np.isnan(halves).any():
        return None
    found = interval_of(value, torch.from_numpy(np.ascontiguousarray(halves)), n=n)
    return found.low, found.high


def effective_size(sizes: Floats) -> int:
    """Images whose plain mean varies as much as one over classes of (classes,) sizes (Kish 1965)."""
    sizes = sizes[sizes > 0]
    return max(1, int(len(sizes) ** 2 / (1 / sizes).sum()))


def _rows(found: Direction, classes: Sequence[str]) -> tuple[LabelRow, ...]:
    """One row per class with nulls and intervals, the worst first."""
    halves, null = found.halves, ratios(found.null.right, found.null.requested, found.null.predicted)
    each_half = None if halves is None else ratios(halves.right, halves.requested, halves.predicted)
    rows = []
    for at, row in enumerate(_plain_rows(classes, astuple(found.tally), found.n)):
        halves_of = [None, None] if each_half is None else [each[:, at] for each in each_half[:2]]
        rows.append(
            replace(
                row,
                null_precision=known_or_none(float(null.precision[at])),
                null_recall=known_or_none(float(null.recall[at])),
                precision_interval=_interval(row.precision, halves_of[0], row.tp + row.fp),
                recall_interval=_interval(row.recall, halves_of[1], row.n),
            )
        )
    return worst_labels_first(rows)


def _plain_rows(classes: Sequence[object], counts: Sequence[Any], n: int) -> list[LabelRow]:
    """One row per class from right, expected and predicted of n images."""
    columns = zip(classes, *counts, *ratios(*counts), strict=True)
    return [
        LabelRow(
            label=str(label),
            n=int(expected),
            tp=int(tp),
            fp=int(predicted - tp),
            fn=int(expected - tp),
            tn=int(n - expected - predicted + tp),
            precision=known_or_none(float(precision)),
            recall=known_or_none(float(recall)),
            f1=known_or_none(float(f1)),
        )
        for label, tp, expected, predicted, precision, recall, f1 in columns
    ]


def worst_labels_first(rows: Iterable[LabelRow]) -> tuple[LabelRow, ...]:
    """By standing, of equal ones the one with most errors first."""
    return tuple(sorted(rows, key=lambda row: (row.standing, -(row.fp + row.fn))))


def _confusions(counts: Sequence[tuple[object, object, int]]) -> tuple[Confusion, ...]:
    """The most frequent pairs of different classes."""
    wrong = [Confusion(str(one), str(other), count) for one, other, count in counts if one != other]
    return tuple(wrong[:_MAX_CONFUSIONS])


def undefined_values(rows: Sequence[LabelRow]) -> tuple[str, ...]:
    """Which values of classes are 0/0, and why, in words; they are in no average."""
    found = []
    for name, why in _WHY_UNDEFINED.items():
        labels = sorted(row.label for row in rows if getattr(row, name) is None)
        if labels:
            es = "es" * (len(labels) > 1)
            found.append(f"{name} of {len(labels):,} class{es} is undefined, since {why}: {some(labels)}")
    return tuple(found)
