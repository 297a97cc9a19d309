"""Options of a score, of statistics and of modes as records. Importing this module does not import torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from genpr.errors import UsageError
from genpr.features.extractor import FeatureExtractor
from genpr.features.options import EmbedKeywords, EmbedOptions, option
from genpr.validation import check_count, check_ties

if TYPE_CHECKING:
    from genpr.features.statistics import ReferenceStatistics

EXTRACTOR = (
    "Name (see `genpr list extractors`), package.module:factory, or path/file.py:factory; in Python also an object that "
    "follows the `FeatureExtractor` protocol."
)


def parse_names(text: str) -> list[str]:
    """The names in `a,b`."""
    return [name.strip() for name in text.split(",") if name.strip()]


KNN, LINEAR = "knn", "linear"

_FILES = (".csv", ".tsv", ".json", ".npy")
_AVERAGES = ("macro_precision", "macro_recall", "macro_f1")


@dataclass(frozen=True)
class LabelOptions:
    """Compare the labels that fakes were asked for with what they are recognized as.

    Attributes:
        real_labels: Labels of the reals, as for `Evaluator.score_classes`: a file, "folders", a label per image, or None to
            look into the source. Not used where recognized labels come from a file.
        fake_labels: What the fakes were asked to be, likewise; of every fake set that is scored.
        classifier: "knn", a vote of the nearest; "linear", a linear probe; or a .csv, .tsv, .json or .npy file with the label
            that each fake was recognized as by another tool.
        k: Who votes, for "knn".

    Raises:
        UsageError: An option is impossible.

    Example:
        >>> LabelOptions(classifier="linear").names
        ('label.gan_test', 'label.gan_train', 'label.macro_precision', 'label.macro_recall', 'label.macro_f1')
    """

    real_labels: object = None
    fake_labels: object = None
    classifier: str | os.PathLike[str] = KNN
    k: int = 5

    def __post_init__(self) -> None:
        check_count(self.k, "k of labels", minimum=1, maximum=1000)
        if not isinstance(self.classifier, str | os.PathLike) or not (
            self.classifier in (KNN, LINEAR) or Path(self.classifier).suffix.lower() in _FILES
        ):
            raise UsageError(
                f"classifier must be {KNN}, {LINEAR}, or a {', '.join(_FILES)} file with the labels that the fakes were "
                f"recognized as, not {self.classifier!r}",
                code="bad-option",
            )

    @property
    def is_file(self) -> bool:
        """Whether another tool recognized the fakes."""
        return self.classifier not in (KNN, LINEAR)

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that a score may have because of them."""
        accuracies = ("accuracy",) if self.is_file else ("gan_test", "gan_train")
        return tuple(f"label.{name}" for name in (*accuracies, *_AVERAGES))


class ScoreKeywords(EmbedKeywords, total=False):
    """The fields of `ScoreOptions` as keyword arguments."""

    extractor: str | FeatureExtractor | None
    protocol: str
    metrics: Sequence[str] | None
    k: int | None
    ties: Literal["closed", "strict"] | None
    intervals: bool
    control: bool
    held_out: object
    reference_statistics: str | os.PathLike[str] | ReferenceStatistics | None
    labels: LabelOptions | None


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(EmbedOptions):
    """What a score computes, and how images become features for it.

    What a protocol allows is checked by `genpr.evaluation.plan.ScorePlan.of`.
    """

    extractor: str | FeatureExtractor | None = option(
        None, EXTRACTOR, unset="the protocol's, or that of the feature files", metavar="NAME"
    )
    protocol: str = option(
        "genpr",
        "Named recipe (see `genpr list protocols`); what it pins cannot be given otherwise.",
        metavar="NAME",
    )
    metrics: Sequence[str] | None = option(
        None,
        "Names from `genpr list metrics`, or all for every one on the score's features.",
        unset="the protocol's",
        parse=parse_names,
        metavar="A,B",
    )
    k: int | None = option(
        None,
        "Neighbors for every metric that counts them.",
        unset="the protocol's: 3 for precision and recall, else 5",
    )
    ties: Literal["closed", "strict"] | None = option(
        None,
        "Closed balls contain points on their surface, strict (open) ones do not.",
        unset="the protocol's",
        choices=("closed", "strict"),
        check=check_ties,
    )
    intervals: bool = option(True, "Find 95 % intervals by scoring 100 halves of both sets.")
    control: bool = option(
        True, "Score one half of the reals against the other, for what a perfect generator would show."
    )
    held_out: object = option(
        None,
        "More reals, of the same kind, that the generator was not trained on, where the real side is what it was trained "
        "on; adds c_t, a test for copying. A panel of several extractors also scores them like the fakes, and divides fd by theirs.",
        metavar="SOURCE",
    )
    reference_statistics: str | os.PathLike[str] | ReferenceStatistics | None = option(
        None,
        "Mean and covariance of reference images (.npz with mu and sigma, EDM2's .pkl, or what `genpr stats` writes), to which "
        "Fréchet distances are computed; all other metrics compare with the images of the real side.",
        metavar="FILE",
    )
    labels: LabelOptions | None = option(
        None,
        "Compare the classes that fakes were meant to show with those that they are recognized as: adds `label.*` metrics "
        "and `Result.labels`.",
        in_cli=False,
    )


class StatisticsKeywords(EmbedKeywords, total=False):
    """The fields of `StatisticsOptions` as keyword arguments."""

    extractor: str | FeatureExtractor | Sequence[str | FeatureExtractor]
    spatial: bool


@dataclass(frozen=True, kw_only=True)
class StatisticsOptions(EmbedOptions):
    """Of which features the statistics are."""

    extractor: str | FeatureExtractor | Sequence[str | FeatureExtractor] = option(
        (),
        "See `genpr list extractors`; may be repeated. The first becomes mu and sigma, each other NAME/mu and NAME/sigma.",
        unset="inception, or that of the feature files",
        metavar="NAME",
        multiple=True,
        show_default=False,
    )
    spatial: bool = option(False, "Add mu_s and sigma_s of Inception's feature maps, for sFID.")


class ModesKeywords(EmbedKeywords, total=False):
    """The fields of `ModesOptions` as keyword arguments."""

    extractor: str | FeatureExtractor | None
    k: int | None
    clusters: int | None
    real_labels: object
    fake_labels: object


@dataclass(frozen=True, kw_only=True)
class ModesOptions(EmbedOptions):
    """How missed and invented modes are found."""

    extractor: str | FeatureExtractor | None = option(None, EXTRACTOR, unset="inception", metavar="NAME")
    k: int | None = option(
        None, "Neighbors that set a ball's radius.", unset="5 for uncovered reals, 3 for fakes outside"
    )
    clusters: int | None = option(
        None, "How many clusters to look for.", unset="sqrt(images / 4) of the smaller set, 2 to 50", least=2
    )
    real_labels: object = option(
        None,
        "Classes of the reals, as for `Evaluator.score_classes`: .csv of name,label, StyleGAN's .json, .npy in their order, "
        "or the word folders. Classes are ranked, and name the clusters.",
        unset="dataset.json in the source, arr_1 of an .npz, else subfolders of at least 10 images on average, if any",
        metavar="FILE",
    )
    fake_labels: object = option(None, "Classes of the fakes, likewise.", metavar="FILE")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.seed, "seed", minimum=0)
