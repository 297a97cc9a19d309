"""The record of requested against recognised labels: counts of each class, and their averages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genpr.errors import UsageError
from genpr.metrics.label.codes import Codes, Label
from genpr.notices import Notice

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
        accuracy: Single labels: share of images recognised as what was expected. Sets of labels: share of all cells,
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
            UsageError: Images have sets of labels, which cannot be told apart that way ("not-single").
        """
        if not self.single:
            raise UsageError(
                "a confusion matrix needs one expected and one predicted label per image, and these are sets; see per_class",
                code="not-single",
            )
        place = {label: number for number, label in enumerate(self.classes)}
        matrix = np.zeros((len(place), len(place)), dtype=np.int64)
        for expected, predicted, count in self.confusions:
            matrix[place[expected], place[predicted]] = count
        return matrix
