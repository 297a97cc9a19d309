"""Requested against recognised labels: confusion counts, precision, recall, F-scores and their averages.

For a class, of the images that it was expected (E) or predicted (P) of:

    precision = |E and P| / |P|      recall = |E and P| / |E|      F = (1 + b^2) |E and P| / (b^2 |E| + |P|)

0/0 is undefined and said to be so: it is None, is left out of averages, and what was left out is counted. That is
scikit-learn's `zero_division=np.nan`. So precision has no value for a class that is never predicted, recall none for one
that is never expected; F is 0 where only one of them is missing, and undefined where both are.

References:
    van Rijsbergen 1979, "Information Retrieval" (F); Sokolova and Lapalme 2009, "A systematic analysis of performance
    measures for classification tasks" (averages).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genpr.errors import UsageError
from genpr.metrics.label.codes import Coded, Codes, Label, coded
from genpr.metrics.label.records import ClassCounts, LabelAverage, LabelMetrics
from genpr.notices import notice

Floats = NDArray[np.float64]
Counts = NDArray[Any]
"""Numbers of images, or weights of them."""

_DOMINANT, _APART = 0.9, 0.1
_MOST_BETA = 1e6


class Ratios(NamedTuple):
    """Precision, recall and F-score; None or NaN where undefined."""

    precision: Any
    recall: Any
    f: Any


def label_metrics(
    expected: object, predicted: object, *, classes: Iterable[Label] | None = None, beta: float = 1.0
) -> LabelMetrics:
    """Compare the labels that images should have with those that they were recognised as.

    Args:
        expected: An entry per image: its label, text or an integer; or a set or list of labels, of which there may be none.
        predicted: The same for what was recognised, in the same order. If either side holds sets, both are read as sets.
        classes: All labels that there are; None takes those that occur. It decides how many true negatives there are.
        beta: How much more recall counts than precision in the F-score.

    Raises:
        UsageError: A side is no list of labels, or an option is impossible.
        DataError: The sides are of unequal length or empty, hold what is no label, or labels beyond `classes`.

    Example:
        >>> found = label_metrics([{"price", "bargaining", "purchase"}], [{"price", "purchase"}])
        >>> found.exact_match, found.samples.precision, round(found.samples.recall, 3), round(found.samples.f, 3)
        (0.0, 1.0, 0.667, 0.8)
        >>> found["bargaining"].precision is None  # never predicted: undefined, and not 0
        True
        >>> asked, seen = ["cat", "cat", "dog"], ["cat", "dog", "dog"]
        >>> label_metrics(asked, seen).confusion_matrix()
        array([[1, 1],
               [0, 1]])
    """
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 < beta <= _MOST_BETA:
        raise UsageError(f"beta must be above 0 and at most {_MOST_BETA:,.0f}, not {beta!r}", code="bad-beta")
    return metrics_of_codes(coded(expected, predicted, classes), float(beta))


def ratios(right: Counts, expected: Counts, predicted: Counts, beta: float = 1.0) -> Ratios:
    """Precision, recall and F-score of counts of one shape, NaN where undefined.

    Args:
        right: Images both expected and predicted.
        expected: Images expected.
        predicted: Images predicted.
        beta: As in `label_metrics`.
    """
    weight = beta**2
    return Ratios(
        _over(right, predicted),
        _over(right, expected),
        _over((1 + weight) * right, weight * expected + predicted),
    )


def mean_of_defined(values: Floats, weights: Floats | None = None) -> Floats:
    """The mean over the last axis without NaN; NaN where nothing is left."""
    known = ~np.isnan(values)
    weights = known.astype(float) if weights is None else weights * known
    return _over((np.where(known, values, 0.0) * weights).sum(axis=-1), weights.sum(axis=-1))


def _over(part: Counts, whole: Counts) -> Floats:
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    found: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return found


def metrics_of_codes(given: Coded, beta: float = 1.0) -> LabelMetrics:
    """As `label_metrics`, of labels that are encoded already."""
    n, count = given.n, len(given.classes)
    right, expected, predicted = counts_of(given)
    per_class = ratios(right, expected, predicted, beta)
    cells, total = n * count, int(right.sum())
    wrong = int(expected.sum() + predicted.sum()) - 2 * total  # false positives and false negatives
    micro = ratios(right.sum(), expected.sum(), predicted.sum(), beta)
    samples, exact = _by_image(given, beta)
    accuracy = total / n if given.single else 1 - wrong / cells
    nothing = 0.0 if given.single else 1 - int(expected.sum()) / cells
    found = LabelMetrics(
        per_class=_rows(given.classes, right, expected, predicted, n, per_class),
        macro=_average(per_class),
        micro=_averaged(micro, (0, 0, 0)),
        weighted=_average(per_class, expected.astype(float)),
        samples=samples,
        accuracy=accuracy,
        exact_match=exact,
        accuracy_of_nothing=nothing,
        beta=beta,
        single=given.single,
        n=n,
        confusions=_confusions(given) if given.single else (),
        notices=(),
    )
    # Of the cells that are right, those that nobody asked about.
    negatives = 0 if given.single else (cells - wrong - total) / max(cells - wrong, 1)
    return _warned(found, negatives)


def counts_of(given: Coded) -> tuple[Codes, Codes, Codes]:
    """Images by class: right, expected and predicted ones, each (classes,) int64."""
    count = len(given.classes)
    if given.single:
        right = given.expected[given.expected == given.predicted]
    else:
        right = np.intersect1d(given.expected, given.predicted, assume_unique=True)
    right, expected, predicted = (
        np.bincount(each % count, minlength=count) for each in (right, given.expected, given.predicted)
    )
    return right, expected, predicted


def _by_image(given: Coded, beta: float) -> tuple[LabelAverage, float]:
    """The average over images, and the share of images with no error at all."""
    if given.single:
        share = float((given.expected == given.predicted).mean())
        return LabelAverage(share, share, share), share
    both = np.intersect1d(given.expected, given.predicted, assume_unique=True)
    right, expected, predicted = (
        np.bincount(each // len(given.classes), minlength=given.n)
        for each in (both, given.expected, given.predicted)
    )
    exact = (right == expected) & (right == predicted)
    return _average(ratios(right, expected, predicted, beta)), float(exact.mean())


def _average(values: Ratios, weights: Floats | None = None) -> LabelAverage:
    precision, recall, f = (int(np.isnan(each).sum()) for each in values)
    return _averaged(Ratios(*(mean_of_defined(each, weights) for each in values)), (precision, recall, f))


def _averaged(means: Ratios, left_out: tuple[int, int, int]) -> LabelAverage:
    precision, recall, f = (known_or_none(float(each)) for each in means)
    return LabelAverage(precision, recall, f, left_out)


def _rows(
    classes: tuple[Label, ...], right: Codes, expected: Codes, predicted: Codes, n: int, values: Ratios
) -> tuple[ClassCounts, ...]:
    counts = right, predicted - right, expected - right, n - expected - predicted + right
    columns = [each.tolist() for each in (*counts, *values)]
    return tuple(
        ClassCounts(label, *row[:4], *(known_or_none(value) for value in row[4:]))
        for label, *row in zip(classes, *columns, strict=True)
    )


def _confusions(given: Coded) -> tuple[tuple[Label, Label, int], ...]:
    count = len(given.classes)
    pairs, times = np.unique(given.expected * count + given.predicted, return_counts=True)
    order = np.argsort(-times, kind="stable")
    listed = zip(pairs[order].tolist(), times[order].tolist(), strict=True)
    return tuple(
        (given.classes[pair // count], given.classes[pair % count], number) for pair, number in listed
    )


def known_or_none(value: float) -> float | None:
    """None for NaN."""
    return None if np.isnan(value) else value


def _warned(found: LabelMetrics, negatives: float) -> LabelMetrics:
    """With a notice where accuracy hides what is not recognised: it is made of true negatives, and recall is lower."""
    recall = found.micro.recall
    if recall is None or negatives < _DOMINANT or found.accuracy - recall <= _APART:
        return found
    said = notice(
        "true-negatives-dominate",
        accuracy=f"{found.accuracy:.4g}",
        negatives=f"{negatives:.0%}",
        recall=f"{recall:.4g}",
        nothing=f"{found.accuracy_of_nothing:.4g}",
    )
    return replace(found, notices=(said,))
