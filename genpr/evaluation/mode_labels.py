"""Classes of images where they may be known and need not be: what `genpr modes` names its findings by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from genpr.errors import DataError
from genpr.evaluation.class_labels import labelled, of_names
from genpr.evaluation.label_files import open_labels
from genpr.evaluation.label_table import FolderLabels, Label, Labels
from genpr.evaluation.labeled_source import LabelledSide, check_complete
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide
from genpr.images.policy import BadImagePolicy

_IMAGES_PER_CLASS = 10  # on average; folders of fewer are no classes


@dataclass(frozen=True)
class SideLabels:
    """The labels of one side, if it has any.

    Attributes:
        role: "real" or "fake".
        labels: As they were found; None where there are none.
        is_guess: Whether nobody said that there are classes, and folders may be something else.
    """

    role: str
    labels: Labels | None
    is_guess: bool

    @classmethod
    def of(cls, given: object, source: object, role: str) -> Self:
        """What was given, or what the source has (`genpr.evaluation.label_files.open_labels`).

        Raises:
            UsageError: There is no such file, or it is of no such kind.
            DataError: It is damaged, or holds something else than one class per image.
        """
        try:
            labels = open_labels(given, source, role)
        except DataError as error:
            if given is None and error.code == "no-labels":  # a dataset.json that says so: none are needed
                return cls(role, None, is_guess=False)
            raise
        return cls(role, labels, is_guess=given is None and isinstance(labels, FolderLabels))

    def check(self, opened: OpenedSide, policy: BadImagePolicy) -> None:
        """Refuse labels that do not fit, from the names of the images alone, if these are known.

        Raises:
            DataError: They are of other images ("labels-match-nothing", "label-count"), or some images have none
                ("unlabelled").
        """
        if self.labels is not None and not self.is_guess:
            side = of_names(self.role, opened, self.labels)
            if side is not None:
                check_complete(side, policy)

    def of_embedded(
        self, opened: OpenedSide, features: FeatureSet, policy: BadImagePolicy
    ) -> LabelledSide | None:
        """Each embedded image with its class; None where no classes are known.

        Raises:
            DataError: As `check`.
        """
        if self.labels is None:
            return None
        side = labelled(self.role, opened, features, self.labels)
        if self.is_guess:
            return side if are_classes(side.labels) else None
        check_complete(side, policy)
        return side


def are_classes(labels: Sequence[Label]) -> bool:
    """Whether the folders of images are classes, as far as one can guess: all have one, and there are not too many.

    Example:
        >>> are_classes(["cat"] * 10 + ["dog"] * 10), are_classes(["2026-01", "2026-02"])
        (True, False)
    """
    different = len(set(labels))
    return None not in labels and different > 1 and _IMAGES_PER_CLASS * different <= len(labels)
