"""The record of one score: every number with everything needed to read, trust and repeat it, and its JSON.

Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from genpr.features.extractor import ExtractorInfo
from genpr.images.policy import choices_in
from genpr.metrics.f_beta import F_SCORE_METRICS, f1_of
from genpr.metrics.metric import family_of, plain_name
from genpr.metrics.registry import ALL_METRICS, check_interval, check_value
from genpr.metrics.value import Control, MetricValue
from genpr.notices import Notice
from genpr.storage import from_dict

if TYPE_CHECKING:
    from genpr.features.feature_set import FeatureSet
    from genpr.features.statistics import FeatureMoments, ReferenceStatistics

SCHEMA = 5
_MAY_BE_NEGATIVE, _POSITIVE = {"seed"}, {"k", "n_counted", "pool"}
_PACKAGES = (
    *("genpr", "torch", "torchvision", "numpy", "scipy", "pillow", "faiss-cpu", "open_clip_torch", "timm"),
)


@dataclass(frozen=True)
class Identities:
    """Content hashes of one set: of the images where known, else of the feature rows."""

    rows: tuple[bytes, ...]  # one hash per row
    distinct: frozenset[bytes]  # without repeats
    of_images: bool  # whether images were hashed

    @classmethod
    def of(cls, features: FeatureSet) -> Identities:
        """Hash every row of a set."""
        if features.identities is not None:
            rows = tuple(map(bytes, features.identities.numpy()))
            return cls(rows, frozenset(rows), of_images=True)
        # + 0.0 turns -0.0 into 0.0: equal numbers are equal features, also where float16 is kept to save memory
        rows = tuple(
            hashlib.blake2b((row.astype(np.float32, copy=False) + 0.0).tobytes(), digest_size=16).digest()
            for row in features.features.numpy()
        )
        return cls(rows, frozenset(rows), of_images=False)

    @property
    def n_duplicates(self) -> int:
        """Rows beyond the first of each group of identical ones."""
        return len(self.rows) - len(self.distinct)

    @property
    def content(self) -> str:
        """Hash of all rows, whatever their order."""
        return hashlib.sha256(b"".join(sorted(self.rows))).hexdigest()

    def first_rows(self) -> list[int]:
        """The first row of each group of identical ones, ascending."""
        return sorted({row: index for index, row in reversed(list(enumerate(self.rows)))}.values())

    def n_shared_with(self, other: Identities) -> int:
        """Rows that also occur in `other`; 0 when images are known in one set and only features in the other."""
        if self.of_images != other.of_images or self.distinct.isdisjoint(other.distinct):
            return 0
        return sum(row in other.distinct for row in self.rows)


@dataclass(frozen=True)
class HubSummary:
    """How unevenly the reals are each other's neighbors, and whose ball contains most fakes."""

    k: int  # of the balls
    orphan_rate: float  # share of reals that lie in no ball of another
    expected_orphan_rate: float  # e^-k, what it is without hubs
    skewness: float  # of the numbers of balls that each real lies in
    largest_share: float  # largest share of the fakes in the ball of one real
    largest_name: str  # that real


@dataclass(frozen=True)
class SideSummary:
    """What is known about one of the two image sets."""

    source: str  # as the user wrote it
    n: int  # rows that were scored
    n_embedded: int  # rows that went through the extractor in this run (0 for feature files)
    n_cached: int  # rows that came out of the feature cache
    n_duplicates: int  # rows beyond the first of each set of byte-identical images (or feature rows)
    skipped: tuple[tuple[str, str], ...]  # (name, code) of each image that was left out
    flags: Mapping[str, int]  # images per decoding flag, such as "alpha-dropped"
    # versions of the image decoder, and what was chosen of it that is not the default: "alpha", "exif", "prepare"
    decoder: Mapping[str, str]
    seconds: float  # time spent embedding
    content: str  # sha256 over the contents of all images (or feature rows), whatever their order and names
    order: str  # the same in the order of the rows, by which halves are drawn
    # what its rows are: "images", or "prompts" or "texts" that stand for what was asked for
    what: str = "images"

    @classmethod
    def of(cls, features: FeatureSet, identities: Identities) -> SideSummary:
        """The summary of one embedded or loaded side."""
        order = hashlib.sha256(b"".join(identities.rows)).hexdigest()
        return cls(
            source=features.source,
            n=len(features),
            n_embedded=features.n_embedded,
            n_cached=features.n_cached,
            n_duplicates=identities.n_duplicates,
            skipped=tuple((error.path or "", error.code) for error in features.skipped),
            flags=features.flags,
            decoder=features.decoder,
            seconds=features.seconds,
            content=identities.content,
            order=order,
        )


@dataclass(frozen=True)
class StatisticsSummary:
    """The file of reference statistics that some metrics compare with."""

    source: str  # the file, as the user wrote it
    metrics: Mapping[str, str]  # what the file calls the mean, such as "mu", by the metrics that use it
    extractors: Mapping[str, str | None]  # of which features, by the same metrics; None where nothing says it
    count: int | None  # images that they are of; None where the file does not say
    sha256: str | None  # of the file; None for what is no file, or a large one
    content: str  # sha256 of mean and covariance, however they are written
    known: str | None  # which published file it is

    @classmethod
    def of(cls, statistics: ReferenceStatistics, given: Mapping[str, FeatureMoments]) -> StatisticsSummary:
        """Of a plan's statistics."""
        return cls(
            source=statistics.source,
            metrics={name: each.key for name, each in given.items()},
            extractors={name: each.extractor for name, each in given.items()},
            count=statistics.count,
            sha256=statistics.sha256,
            content=statistics.content,
            known=None if statistics.known is None else statistics.known.name,
        )


@dataclass(frozen=True)
class LabelRow:
    """One class of a conditional generator."""

    label: str  # the class
    n: int  # images that were asked to be of it
    tp: int  # of these, recognized as it
    fp: int  # images of other classes that were recognized as it
    fn: int  # images of it that were recognized as another
    tn: int  # all others
    precision: float | None  # tp / (tp + fp); None where nothing was recognized as it
    recall: float | None  # tp / (tp + fn); None where nothing was asked to be of it
    f1: float | None  # 2 tp / (2 tp + fp + fn); None where all three are 0
    precision_interval: tuple[float, float] | None = None  # 95 %
    recall_interval: tuple[float, float] | None = None  # 95 %, likewise
    null_precision: float | None = None  # what a perfect generator scores in this class
    null_recall: float | None = None  # the same of recall

    @property
    def standing(self) -> float:
        """The mean of precision and recall over what a perfect generator scores, each cut at 1: how far it falls behind.

        Where a perfect one scores 0 none falls behind, and where that is not known the values stand for themselves.
        """
        known = []
        for value, null in ((self.precision, self.null_precision), (self.recall, self.null_recall)):
            if value is not None and null is None:
                known.append(value)
            elif value is not None:
                known.append(min(1.0, value / null) if null else 1.0)
        return sum(known) / len(known) if known else 1.0


@dataclass(frozen=True)
class Confusion:
    """Images of one requested class that are recognized as another."""

    requested: str  # the requested class
    recognized: str  # the class seen
    n: int  # how many


@dataclass(frozen=True)
class LabelSummary:
    """Requested against recognized labels."""

    classifier: str  # "knn", "linear", or where recognized labels come from
    k: int | None  # of the vote; None for others
    rows: tuple[LabelRow, ...]  # one per class, the worst by their `standing` first
    confusions: tuple[Confusion, ...]  # the largest, largest first
    undefined: tuple[str, ...]  # what has no value, in words
    n: int = 0  # images that were asked for something
    # where the labels of "real" and "fake" come from, as far as they are used
    origins: Mapping[str, str] = field(default_factory=dict)
    # images that were left out for want of a label, by role
    unlabeled: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Misranked:
    """An image whose own prompt was not ranked first."""

    image: str  # its name
    prompt: str  # what was asked for
    rank: float  # of its own prompt in the pool, from 1; the mean one among equals
    score: float  # similarity of the two
    winner: str  # the prompt of another image that was ranked first
    winner_score: float  # similarity of image and winner


@dataclass(frozen=True)
class AlignmentSummary:
    """Images against their prompts."""

    pool: int  # prompts that each image ranked; the most, where images have several of their own
    n_prompts: int  # distinct prompts
    n_truncated: int | None  # prompts that were longer than the text encoder reads
    # images whose own prompt was not ranked first, the worst first, as many as are worth keeping
    failures: tuple[Misranked, ...]
    n_failures: int = 0  # all of them
    image_pool: int | None = None  # images that each prompt ranked; None if text to image was left out
    n_units: int = 0  # what is drawn independently: prompts with all of their images
    captions: int = 1  # prompts of one image, at most
    prefix: str = ""  # what was put in front of every prompt
    tokenizer: str = "unknown"  # what cut prompts into tokens
    context: int | None = None  # tokens of a prompt that were read; None where that is unknown


@dataclass(frozen=True)
class EntityRow:
    """One entity over all images."""

    entity: str  # its canonical name
    n_expected: int  # images that should show it
    n_found: int  # of these, those in which it was found
    n_false: int | None  # others in which it was found; None where that cannot be known


@dataclass(frozen=True)
class Unreadable:
    """An answer that could not be read."""

    name: str  # of the image or text that it is about
    reason: str  # Why
    answer: str  # how it begins


@dataclass(frozen=True)
class EntityBounds:
    """How far unreadable answers could move a metric."""

    metric: str  # its name
    low: float  # its value if all of them were all wrong
    high: float  # its value if all of them were all right


@dataclass(frozen=True)
class EntityThreshold:
    """From which score on an entity counts as there."""

    entity: str  # its canonical name
    thresholds: tuple[float, ...]  # one
    is_own: bool  # whether it is its own, or one that entities with few examples share
    # share of labeled images with it that were told so, on images that the threshold was not chosen on; None
    # where that is not known
    sensitivity: float | None
    false_positive_rate: float | None  # the same of images without it


@dataclass(frozen=True)
class ClassifierSummary:
    """What recognized entities in images."""

    name: str  # of the extractor or detector
    kind: str  # "zero-shot" or "detector"
    chosen: str  # how thresholds were chosen: "fixed", or "labeled" for images with labels
    source: str  # of labeled images and their labels; "" where there are none
    templates: tuple[str, ...]  # sentences around the names of entities; none for detectors
    entities: tuple[EntityThreshold, ...]  # one per entity of the vocabulary, in its order

    @property
    def n_shared(self) -> int:
        """Entities with a threshold that they share."""
        return sum(not each.is_own for each in self.entities)


@dataclass(frozen=True)
class EntitySummary:
    """Expected against found entities."""

    n_answers: int  # answers that were to be read
    rows: tuple[EntityRow, ...]  # one per entity, the worst first
    unreadable: tuple[Unreadable, ...]  # answers without a reading
    bounds: tuple[EntityBounds, ...] = ()  # how far these could move the scores; empty where all were read
    undefined: tuple[tuple[str, str], ...] = ()  # metrics without a value, and why
    vocabulary: int | None = None  # entities of the closed vocabulary; None where anything may be there
    classifier: ClassifierSummary | None = None  # what saw the entities in images


@dataclass(frozen=True)
class ReconstructionSummary:
    """Reconstructions against their originals."""

    n_pairs: int  # that were compared
    n_identical: int  # of these, pairs of equal pixels, whose PSNR is infinite and in no mean
    paired_by: str  # "name", or "order" for arrays


@dataclass(frozen=True)
class Result:
    """One score.

    Attributes:
        metrics: Value and k by metric name, in display order.
        protocol: Name of the recipe.
        ties: "closed" or "strict" balls.
        distances: "exact", or the arithmetic of the tool that the protocol stands for.
        extractor: What made the features; None when feature files do not say.
        extractors: Everything that made features, by name.
        deviations: Where the protocol could not be met, in words; empty if it was.
        real: The reference set.
        fake: The generated set.
        n_shared: Fakes that are byte-identical to a real image.
        device: Where it was computed.
        seed: Chooses the subset when `max_images` is set, the halves of intervals and control, blocks and clusters.
        max_images: The limit per side, or None.
        seconds: Time to find the reals' balls ("fit_real", once per Evaluator), to count among the fakes ("score_fake"), for
            the metrics that count no neighbors ("companions"), and for the control (once per Evaluator), all without
            embedding.
        versions: Of genpr and of every package that can move a number.
        notices: What a reader should know.
        control: Real against real; None if it was left out, or there are too few.
        hubness: Of the reals; None where no real ball was counted, or only in a part of the images.
        held_out: More reals, for the metrics that need them; None if none were given.
        undefined: Metrics that were asked for and have no value with these images.
        labels: Requested against recognized labels; None if they were not compared.
        alignment: Images against their prompts, likewise.
        entities: Expected against found entities, likewise.
        reference_statistics: The file whose mean and covariance stand for the reals in some metrics; None if none does.
        reconstruction: Reconstructions against their originals, likewise.
    """

    metrics: Mapping[str, MetricValue]
    protocol: str
    ties: str
    distances: str
    extractor: ExtractorInfo | None
    extractors: Mapping[str, ExtractorInfo]
    deviations: tuple[str, ...]
    real: SideSummary
    fake: SideSummary
    n_shared: int
    device: str
    seed: int
    max_images: int | None
    seconds: Mapping[str, float]
    versions: Mapping[str, str]
    notices: tuple[Notice, ...]
    control: Control | None = None
    hubness: HubSummary | None = None
    held_out: SideSummary | None = None
    undefined: tuple[str, ...] = ()
    labels: LabelSummary | None = None
    alignment: AlignmentSummary | None = None
    entities: EntitySummary | None = None
    reference_statistics: StatisticsSummary | None = None
    reconstruction: ReconstructionSummary | None = None

    def __getitem__(self, metric: str) -> float:
        """The value of one metric: `result["precision"]`, which is `result["manifold.precision"]`, too."""
        return self.metrics[plain_name(metric)].value

    @property
    def families(self) -> dict[str, tuple[str, ...]]:
        """The metrics of each family, in display order; nothing is averaged over two of them."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.metrics:
            found[family_of(name)] = (*found.get(family_of(name), ()), name)
        return found

    @property
    def roles(self) -> tuple[str, str]:
        """What the two sides are called: "real" and "fake", or such as "prompts" and "images"."""
        return ("real", "fake") if self.real.what == "images" else (self.real.what, self.fake.what)

    @property
    def tradeoff(self) -> tuple[float, float]:
        """Recall and precision: where the result stands in a plot of the two."""
        precision, recall = (self[name] for name in F_SCORE_METRICS)
        return recall, precision

    @property
    def comparable(self) -> bool:
        """Whether the numbers can stand beside published ones of the same protocol.

        Never for weight-free or unknown features, nor where the protocol could not be met.
        """
        is_known = self.extractor is not None or self.reconstruction is not None
        known = is_known and all(info.comparable for info in self.extractors.values())
        return known and not self.deviations

    @property
    def exact(self) -> bool:
        """Whether every value is what the definition gives."""
        return all(metric.exact for metric in self.metrics.values())

    @property
    def fingerprint(self) -> str:
        """16 hex digits: the hash of everything but the images that decides the numbers (`recipe_of`)."""
        return hashlib.sha256(json.dumps(recipe_of(self), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        facts: dict[str, Any] = {
            "comparable": self.comparable,
            "exact": self.exact,
            "fingerprint": self.fingerprint,
            "families": self.families,
        }
        return {"schema": SCHEMA, **facts, **asdict(self)}

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as text; NaN and infinities cannot occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_flat_dict(self, *, intervals: bool = False) -> dict[str, float]:
        """`{"genpr/precision": ...}`, for loggers and for monitoring a checkpoint metric.

        Args:
            intervals: Add both ends of each interval that is known, as `genpr/precision_low` and `_high`.

        Returns:
            Every metric; and where precision and recall are among them, their harmonic mean as `genpr/f1`.
        """
        flat = {f"genpr/{name}": metric.value for name, metric in self.metrics.items()}
        f1 = f1_of({name: metric.value for name, metric in self.metrics.items()})
        if f1 is not None:
            flat["genpr/f1"] = f1
        for name, metric in self.metrics.items() if intervals else ():
            if metric.interval is not None:
                flat[f"genpr/{name}_low"], flat[f"genpr/{name}_high"] = metric.interval
        return flat


def recipe_of(result: Result) -> dict[str, Any]:
    """Everything but the images that decides the numbers of a result, by metric, as plain JSON types.

    Two values may be compared if their entries are equal, and their images are of the same real set and number.
    """
    return {name: _recipe_of(result, metric) for name, metric in result.metrics.items()}


def _recipe_of(result: Result, metric: MetricValue) -> dict[str, Any]:
    info = result.extractors.get(metric.extractor or "")
    recipe: dict[str, Any] = {
        "extractor": metric.extractor,
        "weights": None if info is None else info.weights_sha256,
        "resize": None if info is None else info.resize,
        "code": None if info is None else info.cache_key,
        "variant": metric.variant,
    }
    if metric.pool is not None:
        recipe["pool"] = metric.pool
    decoding = {
        role: chosen
        for role, side in (("real", result.real), ("fake", result.fake))
        if (chosen := choices_in(side.decoder))
    }
    if decoding:
        recipe["decoding"] = decoding
    if metric.k is not None:
        recipe |= {"k": metric.k, "ties": result.ties, "distances": result.distances}
    return recipe


@cache
def package_versions() -> dict[str, str]:
    """Versions of everything that can move a number; other installers than pip know some packages by another name."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    return versions


def result_of(record: Mapping[str, Any]) -> Result:
    """The result that `Result.to_dict` turned into plain JSON types.

    Every number is checked here, so that whatever takes a result may compute with it.
    """
    if record["schema"] != SCHEMA:
        raise ValueError(f"schema {record['schema']} instead of {SCHEMA}")
    result: Result = from_dict(Result, record)
    unknown = [name for name in result.metrics if name not in ALL_METRICS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no metric")
    for name, metric in result.metrics.items():
        _check_metric(name, metric)
    if result.control is not None:
        for name, value in result.control.values.items():
            check_value(name, value, "control value")
        for name, null in result.control.nulls.items():
            check_value(name, null, "control null")
    for name, count in _counts(result):
        if count < 0 or (count == 0 and name in _POSITIVE):
            raise ValueError(f"{name} is {count}")
    if result.fake.n < 1 or (result.real.n < 1 and result.reference_statistics is None):
        raise ValueError("a side has no rows")
    return result


def _check_metric(name: str, metric: MetricValue) -> None:
    for what in ("value", "exact_value", "null", "chance"):
        check_value(name, getattr(metric, what), what)
    check_interval(name, metric.interval)
    for each in metric.replicates or ():
        check_interval(name, (each, each))
    if metric.spread is not None and metric.spread < 0:
        raise ValueError(f"the spread of {name} is {metric.spread:g}, and must not be negative")
    if metric.replicates is not None and (len(metric.replicates) < 2 or len(metric.replicates) % 2):
        raise ValueError(f"{name} has {len(metric.replicates)} replicates, which come in pairs")


def _counts(record: object, name: str = "") -> Iterator[tuple[str, int]]:
    """Every integer of a record, with the name of its field."""
    if is_dataclass(record) and not isinstance(record, type):
        for field in fields(record):
            yield from _counts(getattr(record, field.name), field.name)
    elif isinstance(record, Mapping):
        for key, value in record.items():
            yield from _counts(value, str(key))
    elif isinstance(record, tuple):
        for value in record:
            yield from _counts(value, name)
    elif isinstance(record, int) and name not in _MAY_BE_NEGATIVE:
        yield name, record
