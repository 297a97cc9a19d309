"""What a user says about labels: where they are, and who recognises them. Importing this module does not import torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

from genpr.errors import UsageError

KNN, LINEAR = "knn", "linear"
MOST_VOTERS = 1000

_FILES = (".csv", ".tsv", ".json", ".npy")
_OF_CLASSIFIERS = ("gan_test", "gan_train", "macro_precision", "macro_recall", "macro_f1")
_AVERAGES = tuple(
    f"{over}_{what}"
    for over in ("macro", "micro", "weighted", "samples")
    for what in ("precision", "recall", "f1")
)


@dataclass(frozen=True)
class LabelOptions:
    """Compare the labels that fakes were asked for with what they are recognised as.

    Attributes:
        real_labels: Labels of the reals, as for `Evaluator.score_classes`: a file, "folders", a label per image, or None to
            look into the source. Not used where recognised labels come from a file.
        fake_labels: What the fakes were asked to be, likewise; of every fake set that is scored. Where recognised labels
            come from a file, an image may have several, separated by ";" or in a list.
        recogniser: "knn", a vote of the nearest; "linear", a linear probe; or a .csv, .tsv, .json or .npy file with the label
            that each fake was recognised as by another tool.
        k: Who votes, for "knn".

    Raises:
        UsageError: An option is impossible.

    Example:
        >>> LabelOptions(recogniser="linear").names
        ('label.gan_test', 'label.gan_train', 'label.macro_precision', 'label.macro_recall', 'label.macro_f1')
    """

    real_labels: object = None
    fake_labels: object = None
    recogniser: str | os.PathLike[str] = KNN
    k: int = 5

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, Integral) or not 1 <= self.k <= MOST_VOTERS:
            raise UsageError(
                f"k of labels must be an integer from 1 to {MOST_VOTERS:,}, not {self.k!r}", code="bad-option"
            )
        if not isinstance(self.recogniser, str | os.PathLike) or not (
            self.recogniser in (KNN, LINEAR) or Path(self.recogniser).suffix.lower() in _FILES
        ):
            raise UsageError(
                f"recogniser must be {KNN}, {LINEAR}, or a {', '.join(_FILES)} file with the labels that the fakes were "
                f"recognised as, not {self.recogniser!r}",
                code="bad-option",
            )

    @property
    def is_file(self) -> bool:
        """Whether another tool recognised the fakes."""
        return self.recogniser not in (KNN, LINEAR)

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that a score may have because of them."""
        names = ("accuracy", "exact_match", *_AVERAGES) if self.is_file else _OF_CLASSIFIERS
        return tuple(f"label.{name}" for name in names)
