"""Option records of scores, statistics and modes. Importing this module does not import torch."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from genpr.errors import UsageError
from genpr.features.extractor import FeatureExtractor
from genpr.features.options import EmbedKeywords, EmbedOptions, option
from genpr.features.registry import canonical_name
from genpr.metrics.registry import unknown_metrics
from genpr.validation import check_count, check_ties

if TYPE_CHECKING:
    from genpr.features.statistics import ReferenceStatistics

EXTRACTOR = (
    "Network that computes features, from `genpr list extractors`. package.module:factory and path/file.py:factory load a custom "
    "one."
)
PATTERN = "pattern:"
"""The prefix of a regular expression in place of a file of labels."""
LABELS_UNSET = "from the source"
LABELS_FILE = (
    ".csv, .json, .npy, the word folders, or pattern:REGEX. A .csv has the columns name and label, .json is StyleGAN's format, and "
    "a .npy has the order of the images. A REGEX is searched in the name of each image, and its first group is the label. Without "
    "any, labels come from dataset.json in the source, arr_1 of an .npz, or subfolders."
)


def parse_names(text: str) -> list[str]:
    """The names in `a,b`."""
    return [name.strip() for name in text.split(",") if name.strip()]


KNN = "knn"

_FILES = (".csv", ".tsv", ".json", ".npy")
_AVERAGES = ("macro_precision", "macro_recall", "macro_f1")


@dataclass(frozen=True)
class LabelOptions:
    """Compare the labels that fakes were generated for with the labels that a classifier predicts.

    Attributes:
        real_labels: Labels of the reals, as for `Evaluator.score_classes`: a file, "folders", "pattern:REGEX", a label per
            image, or None to find them in the source. Not used if `classifier` is a file.
        fake_labels: Labels that the fakes were generated for, in the same forms, for every fake set that is scored.
        classifier: "knn", a vote of the nearest reals; or a .csv, .tsv, .json or .npy file with the label that another tool
            predicted for each fake.
        k: Number of neighbors that vote, for "knn".

    Raises:
        UsageError: An option is impossible.

    Example:
        >>> LabelOptions().names
        ('label.gan_test', 'label.gan_train', 'label.macro_precision', 'label.macro_recall', 'label.macro_f1')
    """

    real_labels: object = None
    fake_labels: object = None
    classifier: str | os.PathLike[str] = KNN
    k: int = 5

    def __post_init__(self) -> None:
        check_count(self.k, "k of labels", minimum=1, maximum=1000)
        if not isinstance(self.classifier, str | os.PathLike) or not (
            self.classifier == KNN or Path(self.classifier).suffix.lower() in _FILES
        ):
            raise UsageError(
                f"classifier must be {KNN} or a {', '.join(_FILES)} file with predicted labels of the fakes, "
                f"not {self.classifier!r}",
                code="bad-option",
            )

    @property
    def is_file(self) -> bool:
        """Whether the predicted labels come from a file."""
        return self.classifier != KNN

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that these options add to a score."""
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
    real_groups: object
    fake_groups: object


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(EmbedOptions):
    """Options of a score: metrics, and how images are embedded.

    `genpr.evaluation.plan.ScorePlan.from_options` checks them against the protocol.
    """

    extractor: str | FeatureExtractor | None = option(
        None,
        f"{EXTRACTOR} With feature files, it is the one that they record.",
        unset="the protocol's",
    )
    protocol: str = option(
        "genpr",
        "Named evaluation protocol, from `genpr list protocols`. Options that it pins cannot be changed.",
    )
    metrics: Sequence[str] | None = option(
        None,
        "Names from `genpr list metrics`, or all. With all, every metric on the features of this score is computed.",
        unset="the protocol's",
        parse=parse_names,
        metavar="A,B",
    )
    k: int | None = option(
        None,
        "Number of nearest neighbors. Protocol genpr uses 3 for precision and recall, and 5 for all other metrics.",
        group="metrics",
        unset="the protocol's",
    )
    ties: Literal["closed", "strict"] | None = option(
        None,
        "Balls include their boundary (closed, <=) or not (strict, <).",
        group="metrics",
        unset="the protocol's",
        choices=("closed", "strict"),
        check=check_ties,
    )
    intervals: bool = option(
        True,
        "Compute 95 % intervals. They come from scores of 100 random halves of both sets.",
        group="metrics",
    )
    control: bool = option(
        True,
        "Score one half of REAL against the other, as a baseline.",
        group="metrics",
    )
    held_out: object = option(
        None,
        "Real images that the generator was not trained on. With them, c_t tests whether fakes copy REAL, the training set. A "
        "panel of several extractors also scores them like the fakes.",
        group="inputs",
        metavar="SOURCE",
    )
    reference_statistics: str | os.PathLike[str] | ReferenceStatistics | None = option(
        None,
        "Mean and covariance of images, for Fréchet distances. The file is an .npz with mu and sigma, EDM2's .pkl, "
        "or the output of `genpr stats`. All other metrics compare with the images of REAL.",
        group="inputs",
        metavar="FILE",
    )
    labels: LabelOptions | None = option(
        None,
        "Compare the classes that the fakes were generated for with those that a classifier recognizes. Adds `label.*` metrics "
        "and `Result.labels`.",
        in_cli=False,
    )
    real_groups: object = option(
        None,
        "Groups of reals that are not independent, such as slices of a volume or frames of a video: folders, pattern:REGEX, or a "
        "file as for --real-labels. Intervals come from halves of groups, the control splits no group, and metrics have no null.",
        group="inputs",
        unset="each image is independent",
        metavar="FILE",
    )
    fake_groups: object = option(
        None,
        "Groups of fakes that are not independent, in the same forms.",
        group="inputs",
        unset="each image is independent",
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels is not None and (self.real_groups, self.fake_groups) != (None, None):
            text = "intervals of label metrics need independent images; leave out either the groups or the labels"
            raise UsageError(text, code="bad-option")


class StatisticsKeywords(EmbedKeywords, total=False):
    """The fields of `StatisticsOptions` as keyword arguments."""

    extractor: str | FeatureExtractor | Sequence[str | FeatureExtractor]
    spatial: bool


@dataclass(frozen=True, kw_only=True)
class StatisticsOptions(EmbedOptions):
    """Options of reference statistics."""

    extractor: str | FeatureExtractor | Sequence[str | FeatureExtractor] = option(
        (),
        f"{EXTRACTOR} The first becomes mu and sigma, every other one NAME/mu and NAME/sigma.",
        unset="inception, or that of the feature files",
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
    """Options of the search for modes."""

    extractor: str | FeatureExtractor | None = option(None, EXTRACTOR, unset="inception")
    k: int | None = option(
        None,
        "Number of neighbors that determines the radius of a ball.",
        group="metrics",
        unset="5 to find uncovered reals, 3 to find fakes outside of the reals",
    )
    clusters: int | None = option(
        None,
        "Number of clusters.",
        group="metrics",
        unset="sqrt(images / 4) of the smaller set, 2 to 50",
        least=2,
    )
    real_labels: object = option(
        None,
        f"Classes of REAL, which name the clusters: {LABELS_FILE}",
        group="labels",
        unset=LABELS_UNSET,
        metavar="FILE",
    )
    fake_labels: object = option(
        None, "Classes of FAKE, in the same forms.", group="labels", unset=LABELS_UNSET, metavar="FILE"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.seed, "seed", minimum=0)


FAMILY = "reconstruction."
LPIPS_NET = "Network of lpips: vgg, as in papers about tokenizers, or alex, as in those about diversity."
DIVERSITY, DIVERSITY_METRICS = "diversity.", ("lpips", "ms_ssim", "cosine_distance")
PAIR_METRICS = ("psnr", "ssim", "lpips", "rfid", "clip_i", "dino_i")
"""Names of the metrics, without the family."""
_DEFAULT_OF_PAIRS = PAIR_METRICS[:4]


def _check_pair_metrics(metrics: object, known: Sequence[str] = PAIR_METRICS, family: str = FAMILY) -> None:
    given = metrics if isinstance(metrics, Collection) and not isinstance(metrics, str) else [metrics]
    unknown = [str(name) for name in given if str(name).removeprefix(family) not in known]
    if unknown or not given:
        raise unknown_metrics(unknown, known)


def _in_order(metrics: str | Sequence[str], known: Sequence[str], family: str) -> tuple[str, ...]:
    given = [metrics] if isinstance(metrics, str) else metrics
    names = {name.removeprefix(family) for name in given}
    return tuple(name for name in known if name in names)


def _check_extractor(extractor: object) -> None:
    if isinstance(extractor, str):
        canonical_name(extractor)


class ReconstructKeywords(EmbedKeywords, total=False):
    """The fields of `ReconstructOptions` as keyword arguments."""

    metrics: Sequence[str] | None
    pair: Literal["name", "order"]
    lpips_net: Literal["vgg", "alex"]
    inception: str | FeatureExtractor
    clip: str | FeatureExtractor
    dino: str | FeatureExtractor


@dataclass(frozen=True, kw_only=True)
class ReconstructOptions(EmbedOptions):
    """The metrics of reconstructions and their networks."""

    metrics: Sequence[str] | None = option(
        None,
        f"Some of {', '.join(PAIR_METRICS)}. All but psnr and ssim need weights.",
        unset=",".join(_DEFAULT_OF_PAIRS),
        parse=parse_names,
        check=_check_pair_metrics,
        metavar="A,B",
    )
    pair: Literal["name", "order"] = option(
        "name",
        "How files are paired: name, or order, by folder and by the last number in each name. Arrays are always in order.",
        choices=("name", "order"),
    )
    lpips_net: Literal["vgg", "alex"] = option(
        "vgg",
        LPIPS_NET,
        group="metrics",
        choices=("vgg", "alex"),
    )
    inception: str | FeatureExtractor = option(
        "inception",
        "Extractor of rfid. inception@torch-bilinear is that of pytorch-fid.",
        group="metrics",
        check=_check_extractor,
    )
    clip: str | FeatureExtractor = option(
        "clip-vit-b-32", "Extractor of clip_i.", group="metrics", check=_check_extractor
    )
    dino: str | FeatureExtractor = option(
        "timm:vit_small_patch16_224.dino",
        "Extractor of dino_i.",
        group="metrics",
        check=_check_extractor,
    )

    @property
    def chosen(self) -> tuple[str, ...]:
        """The requested metrics without the prefix of their family, in display order."""
        return _in_order(self.metrics or _DEFAULT_OF_PAIRS, PAIR_METRICS, FAMILY)

    @property
    def extractors(self) -> dict[str, str | FeatureExtractor]:
        """The extractor of each requested metric that is computed from features."""
        every = {"rfid": self.inception, "clip_i": self.clip, "dino_i": self.dino}
        return {
            name: canonical_name(extractor) if isinstance(extractor, str) else extractor
            for name, extractor in every.items()
            if name in self.chosen
        }


class DiversityKeywords(EmbedKeywords, total=False):
    """The fields of `DiversityOptions` as keyword arguments."""

    real: object
    metrics: Sequence[str] | None
    groups: object
    groups_of_real: object
    images_per_group: int
    lpips_net: Literal["vgg", "alex"]
    extractor: str | FeatureExtractor


@dataclass(frozen=True, kw_only=True)
class DiversityOptions(EmbedOptions):
    """The groups of images, the pairs in a group, and the metrics of pairs."""

    real: object = option(
        None, "Real images, to compute the same for their groups.", group="inputs", metavar="SOURCE"
    )
    metrics: Sequence[str] | None = option(
        None,
        f"Some of {', '.join(DIVERSITY_METRICS)}. All but ms_ssim need weights.",
        parse=parse_names,
        check=partial(_check_pair_metrics, known=DIVERSITY_METRICS, family=DIVERSITY),
        unset="lpips",
        metavar="A,B",
    )
    groups: object = option(
        None,
        f"Groups of FAKE: the word all for a single one, or as for labels {LABELS_FILE}",
        unset=LABELS_UNSET,
        metavar="FILE",
    )
    groups_of_real: object = option(None, "Groups of the reals.", unset="as for FAKE", metavar="FILE")
    images_per_group: int = option(
        20,
        "Images of a group, chosen at random if there are more. All their pairs are compared.",
        least=2,
        most=1000,
    )
    lpips_net: Literal["vgg", "alex"] = option("alex", LPIPS_NET, group="metrics", choices=("vgg", "alex"))
    extractor: str | FeatureExtractor = option(
        "timm:vit_small_patch16_224.dino",
        f"{EXTRACTOR} Only for cosine_distance.",
        check=_check_extractor,
    )

    @property
    def chosen(self) -> tuple[str, ...]:
        """The requested metrics without the prefix of their family, in display order."""
        return _in_order(self.metrics or DIVERSITY_METRICS[:1], DIVERSITY_METRICS, DIVERSITY)

    @property
    def extractors(self) -> dict[str, str | FeatureExtractor]:
        """The extractor of each requested metric that is computed from features."""
        key = canonical_name(self.extractor) if isinstance(self.extractor, str) else self.extractor
        return {name: key for name in self.chosen if name == "cosine_distance"}
