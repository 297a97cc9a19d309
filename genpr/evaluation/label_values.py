"""Label metrics as results hold them: values with interval, null and chance, and the record of who is at fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.evaluation.label_table import some
from genpr.evaluation.result import Result
from genpr.evaluation.seen_labels import SeenLabels
from genpr.evaluation.summaries import Confusion, LabelRow, LabelSummary
from genpr.metrics.label.conditional import Conditional, Direction
from genpr.metrics.label.labels import known_or_none, ratios
from genpr.metrics.label.records import ClassCounts, LabelMetrics
from genpr.metrics.label.tally import Tally
from genpr.metrics.uncertainty import interval_of
from genpr.metrics.value import MetricValue
from genpr.notices import Notice

_MOST_CONFUSIONS = 50
_WHY = {
    "precision": "nothing was recognised as it",
    "recall": "nothing was asked to be of it",
    "f1": "neither",
}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LabelScore:
    """What labels add to a result.

    Attributes:
        metrics: By name; undefined ones are missing.
        undefined: The names of those.
        summary: Who is at fault.
        notices: What a reader should know.
        seen: What each fake was asked to be and recognised as.
        seconds: Time to find all that.
    """

    metrics: Mapping[str, MetricValue]
    undefined: tuple[str, ...]
    summary: LabelSummary
    notices: tuple[Notice, ...]
    seen: SeenLabels = field(repr=False)
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


def values_of(
    found: Conditional, *, k: int | None, extractor: str | None
) -> tuple[dict[str, MetricValue], tuple[str, ...]]:
    """Metrics of both directions by name, and the names of undefined ones.

    Args:
        found: Both directions.
        k: Who votes; None for the probe.
        extractor: Name of the features.
    """
    plain = MetricValue(
        0.0,
        k,
        extractor=extractor,
        variant=None if k is not None else "by a linear probe",
        null_source="leave-one-out" if k is not None else "cross-fitting",
    )
    rates = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
    named = {f"label.{name}": _value(plain, found.test, name) for name in rates}
    both = {
        "label.gan_test": named.pop("label.accuracy"),
        "label.gan_train": _value(plain, found.train, "accuracy"),
        **named,
    }
    known = {name: value for name, value in both.items() if value is not None}
    return known, tuple(name for name in both if name not in known)


def _value(plain: MetricValue, found: Direction, name: str) -> MetricValue | None:
    value = known_or_none(float(found.tally.rates()[name]))
    if value is None:
        return None
    null = known_or_none(float(found.null.rates()[name]))
    halves = None if found.halves is None else found.halves.rates()[name]
    value_of = replace(
        plain,
        value=value,
        null=null,
        null_source=None if null is None else plain.null_source,
        chance=known_or_none(found.chance[name]),
    )
    return with_interval(value_of, halves, found.n if name == "accuracy" else effective(found.tally.asked))


def with_interval(value: MetricValue, halves: Floats | None, n: int) -> MetricValue:
    """With the interval that halves (B,) give, unless one of them has no value."""
    value = replace(value, n_counted=n)
    if halves is None or np.isnan(halves).any():
        return value
    found = interval_of(value.value, torch.from_numpy(halves), n=n)
    return replace(value, interval=(found.low, found.high), replicates=tuple(halves.tolist()))


def effective(sizes: Floats) -> int:
    """Images whose plain mean varies as much as one over classes of (classes,) sizes (Kish 1965)."""
    sizes = sizes[sizes > 0]
    return max(1, int(len(sizes) ** 2 / (1 / sizes).sum()))


def rows_of(found: Direction, classes: Sequence[str]) -> tuple[LabelRow, ...]:
    """One row per class, the worst first."""
    tally, null, n = found.tally, found.null, found.n
    values, nulls = (ratios(each.right, each.asked, each.recognised) for each in (tally, null))
    halves = None if found.halves is None else _halves(found.halves)
    rows = []
    for place, label in enumerate(classes):
        tp, asked, seen = (int(each[place]) for each in (tally.right, tally.asked, tally.recognised))
        precision, recall, f1 = (known_or_none(float(each[place])) for each in values)
        rows.append(
            LabelRow(
                label=label,
                n=asked,
                tp=tp,
                fp=seen - tp,
                fn=asked - tp,
                tn=n - asked - seen + tp,
                precision=precision,
                recall=recall,
                f1=f1,
                precision_interval=None
                if halves is None
                else _interval(precision, halves[0][:, place], seen),
                recall_interval=None if halves is None else _interval(recall, halves[1][:, place], asked),
                null_precision=known_or_none(float(nulls.precision[place])),
                null_recall=known_or_none(float(nulls.recall[place])),
            )
        )
    return worst_first(rows)


def _halves(halves: Tally) -> tuple[Floats, Floats]:
    found = ratios(halves.right, halves.asked, halves.recognised)
    return found.precision, found.recall


def _interval(value: float | None, halves: Floats, n: int) -> tuple[float, float] | None:
    if value is None or np.isnan(halves).any():
        return None
    found = interval_of(value, torch.from_numpy(np.ascontiguousarray(halves)), n=n)
    return found.low, found.high


def worst_first(rows: Iterable[LabelRow]) -> tuple[LabelRow, ...]:
    """By standing, of equal ones the one with most errors first."""
    return tuple(sorted(rows, key=lambda row: (row.standing, -(row.fp + row.fn))))


def rows_of_counts(found: LabelMetrics) -> tuple[LabelRow, ...]:
    """Rows without nulls and intervals, the worst first."""
    return worst_first(_row(counts) for counts in found.per_class)


def _row(counts: ClassCounts) -> LabelRow:
    return LabelRow(
        label=str(counts.label),
        n=counts.support,
        tp=counts.true_positives,
        fp=counts.false_positives,
        fn=counts.false_negatives,
        tn=counts.true_negatives,
        precision=counts.precision,
        recall=counts.recall,
        f1=counts.f,
    )


def confusions_of(asked: Tensor, recognised: Tensor, classes: Sequence[str]) -> tuple[Confusion, ...]:
    """The most frequent pairs of different classes, the most frequent first."""
    wrong = (asked != recognised) & (recognised >= 0)
    pairs, times = torch.unique(asked[wrong] * len(classes) + recognised[wrong], return_counts=True)
    order = torch.sort(times, descending=True, stable=True).indices[:_MOST_CONFUSIONS]
    listed = zip(pairs[order].tolist(), times[order].tolist(), strict=True)
    return tuple(
        Confusion(classes[pair // len(classes)], classes[pair % len(classes)], count)
        for pair, count in listed
    )


def undefined_in(rows: Sequence[LabelRow]) -> tuple[str, ...]:
    """Which values of classes are 0/0, and why, in words; they are in no average."""
    found = []
    for name, why in _WHY.items():
        labels = sorted(row.label for row in rows if getattr(row, name) is None)
        if labels:
            es = "es" * (len(labels) > 1)
            found.append(f"{name} of {len(labels):,} class{es} is undefined, since {why}: {some(labels)}")
    return tuple(found)
