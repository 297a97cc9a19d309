"""Expected against predicted labels: counts, precision, recall, F-scores, their averages and confusions.

For a class expected of the images E and predicted for the images P (van Rijsbergen 1979; averages: Sokolova and Lapalme 2009):

    precision = |E and P| / |P|      recall = |E and P| / |E|      F = 2 |E and P| / (|E| + |P|)

0/0 is undefined: it is None, and averages leave it out and count how often, as scikit-learn's `zero_division=np.nan` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genpr.errors import DataError, UsageError, get_named, some
from genpr.notices import Notice, notice
from genpr.validation import is_plain

Label = str | int
Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

RATIOS = ("precision", "recall", "f")
_SETS = (list, tuple, AbstractSet)
_DOMINANT, _APART = 0.9, 0.1


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Counts of one class against all others, and their rates.

    Precision is None for a class that is never predicted, recall for one that is never expected, F for one that is neither.
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
        """Images of which the class was expected."""
        return self.true_positives + self.false_negatives


@dataclass(frozen=True, slots=True)
class LabelAverage:
    """Averages over the classes or images where they are defined; `left_out` counts the others, for each of the three."""

    precision: float | None
    recall: float | None
    f: float | None
    left_out: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, eq=False)
class LabelMetrics:
    """Result of `label_metrics`.

    Averages are plain over classes (`macro`), of all counts together (`micro`), over classes weighted by the images expected of
    them (`weighted`), and over images, each with its own set of labels (`samples`). `accuracy` of single labels is the share of
    images, of sets that of all cells, image by class, that are right, true negatives included; `accuracy_of_nothing` is what
    predicting no label would score. `exact_match` is the share of images with all labels right. `confusions` are
    (expected class, predicted class, images) of single labels, the most frequent first.
    """

    per_class: tuple[ClassCounts, ...]
    macro: LabelAverage
    micro: LabelAverage
    weighted: LabelAverage
    samples: LabelAverage
    accuracy: float
    exact_match: float
    accuracy_of_nothing: float
    single: bool
    n: int
    confusions: tuple[tuple[Label, Label, int], ...]
    notices: tuple[Notice, ...]

    def __getitem__(self, label: Label) -> ClassCounts:
        """The counts of one class."""
        return get_named({each.label: each for each in self.per_class}, label, "class")

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes, in order."""
        return tuple(each.label for each in self.per_class)

    @property
    def undefined(self) -> dict[str, tuple[Label, ...]]:
        """Classes without a precision, a recall, an F-score: 0/0, left out of averages."""
        return {
            name: tuple(each.label for each in self.per_class if getattr(each, name) is None)
            for name in RATIOS
        }

    def confusion_matrix(self) -> Codes:
        """Images by expected (rows) and predicted class (columns), (classes, classes) int64; refused for sets of labels."""
        if not self.single:
            text = "a confusion matrix needs one expected and one predicted label per image"
            raise UsageError(text, code="not-single")
        index = {label: number for number, label in enumerate(self.classes)}
        matrix = np.zeros((len(index), len(index)), dtype=np.int64)
        for expected, predicted, count in self.confusions:
            matrix[index[expected], index[predicted]] = count
        return matrix


def label_metrics(
    expected: object, predicted: object, *, classes: Iterable[Label] | None = None
) -> LabelMetrics:
    """Compare expected with predicted labels of images.

    Args:
        expected: An entry per image: its label, text or an integer; or a set or list of labels, possibly empty.
        predicted: The predicted labels, in the same form and order. If either side holds sets, both are read as sets.
        classes: All possible labels; None takes those that occur. They determine the number of true negatives.

    Raises:
        UsageError: A side is not a list of labels, or an option is impossible.
        DataError: The sides are of unequal length or empty, hold an invalid label, or labels outside `classes`.

    Example:
        >>> metrics = label_metrics([{"price", "bargaining", "purchase"}], [{"price", "purchase"}])
        >>> metrics.exact_match, metrics.samples.precision, round(metrics.samples.recall, 3), round(metrics.samples.f, 3)
        (0.0, 1.0, 0.667, 0.8)
        >>> metrics["bargaining"].precision is None  # never predicted: undefined, and not 0
        True
        >>> expected, predicted = ["cat", "cat", "dog"], ["cat", "dog", "dog"]
        >>> label_metrics(expected, predicted).confusion_matrix()
        array([[1, 1],
               [0, 1]])
    """
    names, expected_cells, predicted_cells, n, single = _cells(expected, predicted, classes)
    if single:
        right_cells = expected_cells[expected_cells == predicted_cells]
    else:
        right_cells = np.intersect1d(expected_cells, predicted_cells, assume_unique=True)
    count, sides = len(names), (right_cells, expected_cells, predicted_cells)
    right, wanted, seen = (np.bincount(cells % count, minlength=count) for cells in sides)
    right_of, wanted_of, seen_of = (np.bincount(cells // count, minlength=n) for cells in sides)
    of_classes = ratios(right, wanted, seen)
    micro = _average(ratios(right.sum(), wanted.sum(), seen.sum()))
    n_right, n_wanted, n_seen = map(len, sides)
    wrong = n_wanted + n_seen - 2 * n_right  # false positives and false negatives
    accuracy = n_right / n if single else 1 - wrong / (n * count)
    nothing = 0.0 if single else 1 - n_wanted / (n * count)
    # Of the cells that are right, true negatives.
    negatives = 0.0 if single else (n * count - wrong - n_right) / max(n * count - wrong, 1)
    counts = right, seen - right, wanted - right, n - wanted - seen + right
    columns = zip(*(each.tolist() for each in (*counts, *of_classes)), strict=True)
    return LabelMetrics(
        per_class=tuple(
            ClassCounts(label, *row[:4], *map(known_or_none, row[4:]))
            for label, row in zip(names, columns, strict=True)
        ),
        macro=_average(of_classes),
        micro=micro,
        weighted=_average(of_classes, wanted.astype(float)),
        samples=_average(ratios(right_of, wanted_of, seen_of)),
        accuracy=accuracy,
        exact_match=float(((right_of == wanted_of) & (right_of == seen_of)).mean()),
        accuracy_of_nothing=nothing,
        single=single,
        n=n,
        confusions=_confusions(expected_cells % count, predicted_cells % count, names) if single else (),
        notices=_notices(accuracy, micro.recall, negatives, nothing),
    )


def _cells(
    expected: object, predicted: object, classes: object
) -> tuple[tuple[Label, ...], Codes, Codes, int, bool]:
    """Checked labels: the classes, image times number of classes plus class of each side, images, and whether all have one label."""
    sides = [_entries(expected, "expected"), _entries(predicted, "predicted")]
    n = len(sides[0])
    if n != len(sides[1]):
        raise DataError(
            f"expected holds labels of {n:,} images and predicted of {len(sides[1]):,}; pass an entry for each image on "
            "both sides, in the same order",
            code="label-count",
        )
    are_sets = [_holds_sets(side) for side in sides]
    pairs = zip(sides, are_sets, strict=True)
    flat = [list(chain.from_iterable(side)) if is_set else side for side, is_set in pairs]
    given = list(classes) if isinstance(classes, Iterable) and not isinstance(classes, str) else []
    seen = _different(*flat, given)
    if classes is not None and (not given or len(set(given)) < len(given)):
        text = f"classes must be a list of different labels, not {classes!r:.60}"
        raise UsageError(text, code="bad-option")
    known = given or sorted(seen)
    if not n or not known:
        raise DataError("there are no labels on either side", code="no-labels")
    index = {label: number for number, label in enumerate(known)}
    if unknown := seen - index.keys():
        raise DataError(
            f"labels are not among the {len(known):,} classes given: {some(list(map(str, sorted(unknown))))}; add them to classes",
            code="unknown-label",
        )
    cells: list[Codes] = []
    for side, labels, is_set in zip(sides, flat, are_sets, strict=True):
        row = np.repeat(np.arange(n), list(map(len, side)) if is_set else 1)
        cell = row * len(known) + np.fromiter(map(index.__getitem__, labels), np.int64, len(labels))
        cells.append(np.unique(cell) if is_set else cell)
    names = tuple(label if isinstance(label, str) else int(label) for label in known)
    return names, cells[0], cells[1], n, not any(are_sets)


def _entries(given: Any, name: str) -> list[Any]:  # noqa: ANN401 - a user's object
    """An entry per image."""
    is_array = hasattr(given, "ndim")  # NumPy's or PyTorch's
    is_special = hasattr(given, "detach") and not is_plain(given)
    if is_array and not is_special and given.ndim == 1:
        return list(given.tolist())
    is_list = isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping | AbstractSet)
    if is_array or not is_list:
        raise UsageError(
            f"{name} is a {type(given).__name__}; expected a list with a label, or a set of labels, for each image (for one-hot "
            "rows pass x.argmax(axis=1), for indicator rows [np.flatnonzero(row).tolist() for row in x])",
            code="label-kind",
        )
    return list(given)


def _holds_sets(entries: list[Any]) -> bool:
    """Whether the entries are sets of labels, and not labels."""
    are_sets = {issubclass(kind, _SETS) for kind in set(map(type, entries))}
    if len(are_sets) > 1:
        raise DataError("some images have sets of labels and others one label", code="label-kind")
    return True in are_sets


def _different(*lists: list[Any]) -> set[Label]:
    """The distinct labels, which are all texts or all integers."""
    kinds = {kind for labels in lists for kind in set(map(type, labels))}
    are_texts = all(issubclass(kind, str) for kind in kinds)
    are_integers = all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds)
    if not (are_texts or are_integers) or any(are_texts and "" in labels for labels in lists):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(
            f"labels must be all texts that are not empty, or all integers; found are entries of type {names}; an image without "
            "a label has the empty set",
            code="label-kind",
        )
    return set[Label]().union(*lists)


class Ratios(NamedTuple):
    """Precision, recall and F-score, NaN where undefined."""

    precision: Floats
    recall: Floats
    f: Floats


def ratios(right: NDArray[Any], expected: NDArray[Any], predicted: NDArray[Any]) -> Ratios:
    """Rates from numbers of images, or their weights, in arrays of one shape."""
    f = _over(2 * right, expected + predicted)
    return Ratios(_over(right, predicted), _over(right, expected), f)


def mean_of_defined(values: Floats, weights: Floats | None = None) -> Floats:
    """The mean over the last axis without NaN; NaN where nothing is left."""
    known = ~np.isnan(values)
    weights = known.astype(float) if weights is None else weights * known
    return _over((np.where(known, values, 0.0) * weights).sum(axis=-1), weights.sum(axis=-1))


def _over(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    shares: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return shares


def known_or_none(value: float) -> float | None:
    """None for NaN."""
    return None if np.isnan(value) else value


def _average(values: Ratios, weights: Floats | None = None) -> LabelAverage:
    precision, recall, f = (known_or_none(float(mean_of_defined(np.atleast_1d(x), weights))) for x in values)
    left_out = int(np.isnan(values[0]).sum()), int(np.isnan(values[1]).sum()), int(np.isnan(values[2]).sum())
    return LabelAverage(precision, recall, f, left_out)


def _confusions(
    expected: Codes, predicted: Codes, classes: Sequence[Label]
) -> tuple[tuple[Label, Label, int], ...]:
    """(expected class, predicted class, images) of indices (n,) in `classes`, the most frequent first."""
    pairs, times = np.unique(expected * len(classes) + predicted, return_counts=True)
    order = np.argsort(-times, kind="stable")
    listed = zip(pairs[order].tolist(), times[order].tolist(), strict=True)
    return tuple(
        (classes[pair // len(classes)], classes[pair % len(classes)], number) for pair, number in listed
    )


def _notices(accuracy: float, recall: float | None, negatives: float, nothing: float) -> tuple[Notice, ...]:
    """A notice where true negatives raise accuracy while recall is low."""
    if recall is None or negatives < _DOMINANT or accuracy - recall <= _APART:
        return ()
    facts = {"accuracy": f"{accuracy:.4g}", "negatives": f"{negatives:.0%}", "recall": f"{recall:.4g}"}
    return (notice("true-negatives-dominate", nothing=f"{nothing:.4g}", **facts),)
