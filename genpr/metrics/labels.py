"""Expected against predicted labels: confusion counts, precision, recall, F-scores and their averages.

For a class, of the images that it was expected (E) or predicted (P) of:

    precision = |E and P| / |P|      recall = |E and P| / |E|      F = (1 + b^2) |E and P| / (b^2 |E| + |P|)

0/0 is undefined: it is None, and averages leave it out and count how often. That is scikit-learn's `zero_division=np.nan`. So
precision has no value for a class that is never predicted, recall none for one that is never expected; F is 0 if only one of
them is missing, and undefined if both are.

References:
    van Rijsbergen 1979, "Information Retrieval" (F); Sokolova and Lapalme 2009, "A systematic analysis of performance
    measures for classification tasks" (averages).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genpr.errors import DataError, UsageError, some
from genpr.notices import Notice, notice

Label = str | int
"""A class."""

Codes = NDArray[np.int64]
_SETS = (list, tuple, AbstractSet)


@dataclass(frozen=True, slots=True)
class Coded:
    """Labels of both sides as indices in a list of classes.

    Attributes:
        classes: The classes, in order.
        n: Images.
        single: Whether each image has one label on either side.
        expected: For single labels the class of each image, (n,); else image times number of classes plus class, of each
            label once, ascending.
        predicted: The same.
    """

    classes: tuple[Label, ...]
    n: int
    single: bool
    expected: Codes
    predicted: Codes

    def part(self, inside: NDArray[np.bool_]) -> Coded:
        """The same of the images that (n,) bool `inside` names."""
        if self.single:
            both = self.expected[inside], self.predicted[inside]
        else:
            count, index = len(self.classes), np.cumsum(inside) - 1
            kept = [each[inside[each // count]] for each in (self.expected, self.predicted)]
            both = (
                index[kept[0] // count] * count + kept[0] % count,
                index[kept[1] // count] * count + kept[1] % count,
            )
        return Coded(self.classes, int(inside.sum()), self.single, *both)


def coded(expected: object, predicted: object, classes: Iterable[Label] | None) -> Coded:
    """Check and encode labels, as `label_metrics` takes them.

    Raises:
        UsageError: One side is no sequence, or the classes are impossible.
        DataError: The sides do not fit each other, or hold what is no label.
    """
    entries = [_entries(expected, "expected"), _entries(predicted, "predicted")]
    n = len(entries[0])
    if n != len(entries[1]):
        raise DataError(
            f"expected holds labels of {n:,} images and predicted of {len(entries[1]):,}; needed is an entry for each image on "
            "both sides, in the same order",
            code="label-count",
        )
    if not n:
        raise DataError("there are no labels: expected and predicted are empty", code="no-labels")
    are_sets = [_holds_sets(each) for each in entries]
    flat = [
        list(chain.from_iterable(each)) if is_set else each
        for each, is_set in zip(entries, are_sets, strict=True)
    ]
    given = None if classes is None else _given(classes)
    if len({kind for labels in (*flat, given or []) for kind in _kinds(labels)}) > 1:
        raise _bad_label(
            "some labels are integers and others text, so that none would agree; give all the same"
        )
    known: list[Label] = given or sorted({*flat[0], *flat[1]})
    if not known:
        raise DataError(
            "there is no label on either side; give the classes that there could be", code="no-labels"
        )
    index = {label: number for number, label in enumerate(known)}
    if unknown := sorted({*flat[0], *flat[1]} - index.keys()):
        raise DataError(
            f"labels are not among the {len(known):,} classes given: {some(list(map(str, unknown)))}; add them to classes",
            code="unknown-label",
        )
    codes = [np.fromiter(map(index.__getitem__, labels), np.int64, len(labels)) for labels in flat]
    if any(are_sets):
        sizes = [
            list(map(len, each)) if is_set else 1 for each, is_set in zip(entries, are_sets, strict=True)
        ]
        rows = [np.repeat(np.arange(n), size) for size in sizes]
        codes = [np.unique(row * len(known) + code) for row, code in zip(rows, codes, strict=True)]
    names = tuple(label if isinstance(label, str) else int(label) for label in known)
    return Coded(names, n, not any(are_sets), codes[0], codes[1])


def _entries(given: Any, name: str) -> list[Any]:  # noqa: ANN401 - a user's object
    """An entry per image."""
    if hasattr(given, "detach"):
        given = given.detach().cpu().numpy()
    if isinstance(given, np.ndarray) and given.ndim == 1:
        return list(given.tolist())
    if isinstance(given, str | bytes | Mapping | AbstractSet | np.ndarray) or not isinstance(
        given, Collection
    ):
        raise UsageError(
            f"{name} is a {type(given).__name__}; needed is a list with a label, or a set of labels, for each image (for one-hot "
            "rows pass x.argmax(axis=1), for indicator rows [np.flatnonzero(row).tolist() for row in x])",
            code="label-kind",
        )
    return list(given)


def _holds_sets(entries: list[Any]) -> bool:
    """Whether the entries are sets of labels, and not labels."""
    kinds = {issubclass(kind, _SETS) for kind in set(map(type, entries))}
    if len(kinds) > 1:
        single = next(entry for entry in entries if not isinstance(entry, _SETS))
        raise _bad_label(
            f"some images have sets of labels and others {single!r:.60}; give it as a set of one"
        )
    return True in kinds


def _kinds(labels: Sequence[Any]) -> set[str]:
    """Of which kinds the labels are: "integer", "text"."""
    found = set()
    for kind in set(map(type, labels)):
        is_text = issubclass(kind, str)
        is_integer = issubclass(kind, int | np.integer) and not issubclass(kind, bool | np.bool_)
        if not (is_text or is_integer):
            wrong = next(label for label in labels if type(label) is kind)
            raise _bad_label(
                f"labels are text or integers, not {wrong!r:.60}; an image without one has the empty set"
            )
        found.add("text" if is_text else "integer")
    if "text" in found and "" in labels:
        raise _bad_label(
            "a label is empty; an image without one has the empty set, where the others have sets"
        )
    return found


def _bad_label(message: str) -> DataError:
    return DataError(message, code="label-kind")


def _given(classes: Iterable[Label]) -> list[Label]:
    given = [] if isinstance(classes, str) or not isinstance(classes, Iterable) else list(classes)
    if not given or len(set(given)) < len(given):
        raise UsageError(
            f"classes must be a list of different labels, not {classes!r:.60}; leave it out to take the labels that occur",
            code="bad-option",
        )
    return given


RATIOS = ("precision", "recall", "f")
"""What has a value for a class, or is undefined."""


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """One class against all others.

    Attributes:
        label: The class.
        true_positives: Images that it was expected and predicted of.
        false_positives: Predicted and not expected.
        false_negatives: Expected and not predicted.
        true_negatives: Neither.
        precision: Share of the predicted that were expected; None if it was never predicted.
        recall: Share of the expected that were predicted; None if it was never expected.
        f: F-score; None if it was neither expected nor predicted of any image.
    """

    label: Label
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    precision: float | None
    recall: float | None
    f: float | None

    @property
    def support(self) -> int:
        """Images that it was expected of."""
        return self.true_positives + self.false_negatives


@dataclass(frozen=True, slots=True)
class LabelAverage:
    """An average over classes or images.

    Attributes:
        precision: Of those where it is defined; None if there is none.
        recall: The same.
        f: The same.
        left_out: How many classes (or images) have no precision, recall and F-score, and were left out.
    """

    precision: float | None
    recall: float | None
    f: float | None
    left_out: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, eq=False)
class LabelMetrics:
    """What `label_metrics` found.

    Attributes:
        per_class: Every class, in order.
        macro: Plain mean over classes: each counts the same.
        micro: Of the counts of all classes together; for single labels all three are the accuracy.
        weighted: Mean over classes, each weighted by the images that it was expected of.
        samples: Mean over images, each with the precision, recall and F of its own set of labels.
        accuracy: Single labels: share of images with the expected label predicted. Sets of labels: share of all cells,
            image by class, that are right, true negatives included; see `accuracy_of_nothing`.
        exact_match: Share of images of which all labels are right, and none too many.
        accuracy_of_nothing: What predicting no label at all would score as `accuracy`; 0 for single labels.
        beta: How much more recall counts than precision in F.
        single: Whether each image has one label on either side.
        n: Images.
        confusions: (expected class, predicted class, images) for single labels, the most frequent first, right ones
            included; empty for sets of labels.
        notices: What a reader should know: "true-negatives-dominate".
    """

    per_class: tuple[ClassCounts, ...]
    macro: LabelAverage
    micro: LabelAverage
    weighted: LabelAverage
    samples: LabelAverage
    accuracy: float
    exact_match: float
    accuracy_of_nothing: float
    beta: float
    single: bool
    n: int
    confusions: tuple[tuple[Label, Label, int], ...]
    notices: tuple[Notice, ...]

    def __getitem__(self, label: Label) -> ClassCounts:
        """The counts of one class."""
        for found in self.per_class:
            if found.label == label:
                return found
        raise KeyError(label)

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes, in order."""
        return tuple(found.label for found in self.per_class)

    @property
    def support(self) -> dict[Label, int]:
        """Images that each class was expected of."""
        return {found.label: found.support for found in self.per_class}

    @property
    def undefined(self) -> dict[str, tuple[Label, ...]]:
        """Classes without a precision, a recall, an F-score: 0/0, left out of averages."""
        return {
            name: tuple(found.label for found in self.per_class if getattr(found, name) is None)
            for name in RATIOS
        }

    def confusion_matrix(self) -> Codes:
        """Images by expected (rows) and predicted class (columns), (classes, classes) int64, for single labels.

        Raises:
            UsageError: Images have sets of labels, which have no such matrix ("not-single").
        """
        if not self.single:
            raise UsageError(
                "a confusion matrix needs one expected and one predicted label per image, and these are sets; see per_class",
                code="not-single",
            )
        index = {label: number for number, label in enumerate(self.classes)}
        matrix = np.zeros((len(index), len(index)), dtype=np.int64)
        for expected, predicted, count in self.confusions:
            matrix[index[expected], index[predicted]] = count
        return matrix


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
    """Compare the labels that images should have with those that were predicted.

    Args:
        expected: An entry per image: its label, text or an integer; or a set or list of labels, of which there may be none.
        predicted: The same for what was predicted, in the same order. If either side holds sets, both are read as sets.
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
        >>> expected, predicted = ["cat", "cat", "dog"], ["cat", "dog", "dog"]
        >>> label_metrics(expected, predicted).confusion_matrix()
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
        confusions=confusion_counts(given.expected, given.predicted, given.classes) if given.single else (),
        notices=(),
    )
    # Of the cells that are right, true negatives.
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


def confusion_counts(
    expected: Codes, predicted: Codes, classes: Sequence[Label]
) -> tuple[tuple[Label, Label, int], ...]:
    """(expected class, predicted class, images) of indices (n,) in `classes`, the most frequent first."""
    pairs, times = np.unique(expected * len(classes) + predicted, return_counts=True)
    order = np.argsort(-times, kind="stable")
    listed = zip(pairs[order].tolist(), times[order].tolist(), strict=True)
    return tuple(
        (classes[pair // len(classes)], classes[pair % len(classes)], number) for pair, number in listed
    )


def known_or_none(value: float) -> float | None:
    """None for NaN."""
    return None if np.isnan(value) else value


def _warned(found: LabelMetrics, negatives: float) -> LabelMetrics:
    """With a notice where accuracy hides a low recall: it is made of true negatives, and recall is lower."""
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
