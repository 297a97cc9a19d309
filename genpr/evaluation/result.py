"""The record of one score: every number with everything needed to read, trust and repeat it, and its JSON.

Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from genpr.errors import get_named, printable
from genpr.features.extractor import ExtractorInfo
from genpr.images.policy import choices_in
from genpr.metrics.f_beta import F_SCORE_METRICS, with_f1
from genpr.metrics.metric import Control, EntityRow, MetricValue, family_of, plain_name
from genpr.metrics.registry import ALL_METRICS, BALLS, check_interval, check_value
from genpr.notices import Notice
from genpr.storage import from_dict

if TYPE_CHECKING:
    from genpr.features.feature_set import FeatureSet
    from genpr.features.options import EmbedOptions
    from genpr.features.source_features import Embedder
    from genpr.features.statistics import FeatureMoments, ReferenceStatistics

SCHEMA = 6
_MAY_BE_NEGATIVE, _POSITIVE = {"seed"}, {"k", "n_counted", "pool"}
Reason = Literal["no reals", "no fakes", "too few reals", "too few fakes", "too few of both"]
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
    def from_features(cls, features: FeatureSet) -> Identities:
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

    def first_rows(self) -> list[int]:
        """The first row of each group of identical ones, ascending."""
        return sorted({row: index for index, row in reversed(list(enumerate(self.rows)))}.values())

    def n_shared_with(self, other: Identities) -> int:
        """Rows that also occur in `other`; 0 when images are known in one set and only features in the other."""
        if self.of_images != other.of_images or self.distinct.isdisjoint(other.distinct):
            return 0
        return sum(row in other.distinct for row in self.rows)


@dataclass(frozen=True)
class SideSummary:
    """Facts about one of the two sets."""

    source: str  # as given by the user
    n: int  # number of scored rows
    n_embedded: int  # rows embedded in this run (0 for feature files)
    n_cached: int  # rows from the feature cache
    n_duplicates: int  # rows beyond the first of each set of byte-identical images (or feature rows)
    skipped: tuple[tuple[str, str], ...]  # (name, code) of each image that was left out
    flags: Mapping[str, int]  # images per decoding flag, such as "alpha-dropped"
    # versions of the image decoder, and its option "prepare" if it is not the default
    decoder: Mapping[str, str]
    seconds: float  # time to embed
    content: str  # sha256 of the contents of all images (or feature rows), independent of order and names
    order: str  # the same in the order of rows and of groups, which determine the halves of intervals
    # the kind of its rows: "images", or "prompts" or "texts" for expectations
    what: str = "images"
    # files in a folder or archive that are no images, by suffix, "hidden", "link", "none" or "other"
    passed_over: Mapping[str, int] = field(default_factory=dict)
    n_groups: int | None = None  # groups of dependent images; None if all images are independent

    @classmethod
    def from_features(cls, features: FeatureSet, identities: Identities | None = None) -> SideSummary:
        """The summary of an embedded or loaded source, whose rows are hashed unless their `identities` are given."""
        known = Identities.from_features(features) if identities is None else identities
        groups = features.groups
        of_groups = b"" if groups is None else groups.numpy().tobytes()
        order = hashlib.sha256(b"".join(known.rows) + of_groups).hexdigest()
        content = hashlib.sha256(b"".join(sorted(known.rows))).hexdigest()
        if features.statistics is not None:
            content = order = features.statistics.content
        return cls(
            source=features.source,
            n=len(features),
            n_embedded=features.n_embedded,
            n_cached=features.n_cached,
            n_duplicates=len(known.rows) - len(known.distinct),
            skipped=tuple((error.path or "", error.code) for error in features.skipped),
            flags=features.flags,
            decoder=features.decoder,
            seconds=features.seconds,
            content=content,
            order=order,
            passed_over=features.passed_over,
            n_groups=None if groups is None else int(groups.max()) + 1,
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
    def from_statistics(
        cls, statistics: ReferenceStatistics, given: Mapping[str, FeatureMoments]
    ) -> StatisticsSummary:
        """Of a plan's statistics."""
        return cls(
            source=statistics.source,
            metrics={name: each.key for name, each in given.items()},
            extractors={name: each.extractor for name, each in given.items()},
            count=statistics.count,
            sha256=statistics.sha256,
            content=statistics.content,
            known=statistics.known,
        )


@dataclass(frozen=True)
class LabelRow:
    """One class of a conditional generator."""

    label: str  # the class
    n: int  # images requested as this class
    tp: int  # images requested and recognized as this class
    fp: int  # images of other classes recognized as this class
    fn: int  # images of this class recognized as another
    tn: int  # all other images
    precision: float | None  # tp / (tp + fp); None without images recognized as this class
    recall: float | None  # tp / (tp + fn); None without images requested as this class
    f1: float | None  # 2 tp / (2 tp + fp + fn); None if all three are 0
    precision_interval: tuple[float, float] | None = None  # 95 %
    recall_interval: tuple[float, float] | None = None  # 95 %
    null_precision: float | None = None  # precision of a perfect generator in this class
    null_recall: float | None = None  # recall of a perfect generator in this class

    @property
    def mean_relative(self) -> float:
        """The mean of precision and recall, each divided by its null and at most 1.

        A null of 0 gives 1, and values without a null are not divided.
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
    recognized: str  # the recognized class
    n: int  # number of images


@dataclass(frozen=True)
class LabelSummary:
    """Requested against recognized labels."""

    classifier: str  # "knn" or the file of the recognized labels
    k: int | None  # number of neighbors of "knn"; None for others
    rows: tuple[LabelRow, ...]  # one per class, sorted by `mean_relative`
    confusions: tuple[Confusion, ...]  # the most frequent ones, the largest first
    undefined: tuple[str, ...]  # descriptions of undefined values
    n: int = 0  # images with a requested label
    # origin of the labels of "real" and "fake", if they are used
    origins: Mapping[str, str] = field(default_factory=dict)
    # number of images without a label by role, which are left out
    unlabeled: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Misranked:
    """An image whose own prompt was not ranked first."""

    image: str  # its name
    prompt: str  # its own prompt
    rank: float  # of its own prompt in the pool, from 1; the mean rank of ties
    score: float  # similarity of image and prompt
    winner: str  # the prompt of another image with the highest similarity
    winner_score: float  # similarity of image and winner


@dataclass(frozen=True)
class AlignmentSummary:
    """Images against their prompts."""

    pool: int  # number of prompts that an image ranks; the maximum, if it differs between images
    n_prompts: int  # distinct prompts
    n_truncated: int | None  # number of prompts that exceed the context of the text encoder
    # images that do not rank their own prompt first, the worst first, up to a maximum number
    failures: tuple[Misranked, ...]
    n_failures: int = 0  # number of all failures
    image_pool: int | None = None  # number of images that a prompt ranks; None without rankings of images
    n_units: int = 0  # number of independent units: prompts with all of their images
    captions: int = 1  # maximum number of prompts of one image
    prefix: str = ""  # prefix of every prompt
    tokenizer: str = "unknown"
    context: int | None = None  # maximum number of tokens of a prompt; None if unknown


@dataclass(frozen=True)
class Unreadable:
    """An answer that could not be read."""

    name: str  # name of its image or text
    reason: str
    answer: str  # its first characters


@dataclass(frozen=True)
class EntityThreshold:
    """The threshold of the score of an entity."""

    entity: str  # its canonical name
    thresholds: tuple[float, ...]  # a single one
    is_own: bool  # False for the common threshold of entities with few examples
    # share of the labeled images with it that are recognized, on images not used for the threshold; None if unknown
    sensitivity: float | None
    false_positive_rate: float | None  # the same for images without it


@dataclass(frozen=True)
class ClassifierSummary:
    """The classifier of entities in images."""

    name: str  # name of the extractor or detector
    kind: str  # "zero-shot" or "detector"
    chosen: str  # how thresholds were chosen: "fixed", or "labeled" for images with labels
    source: str  # labeled images and their labels; "" without any
    templates: tuple[str, ...]  # prompts of the names of entities; none for detectors
    entities: tuple[EntityThreshold, ...]  # one per entity, in the order of the vocabulary

    @property
    def n_shared(self) -> int:
        """Number of entities with the common threshold."""
        return sum(not each.is_own for each in self.entities)


@dataclass(frozen=True)
class EntitySummary:
    """Expected against found entities."""

    n_answers: int  # answers that were to be read
    rows: tuple[EntityRow, ...]  # one per entity, the worst first
    unreadable: tuple[Unreadable, ...]  # answers without a reading
    undefined: tuple[tuple[str, str], ...] = ()  # metrics without a value, and why
    vocabulary: int | None = None  # entities of the closed vocabulary; None where anything may be there
    classifier: ClassifierSummary | None = None  # what saw the entities in images


@dataclass(frozen=True)
class ReconstructionSummary:
    """Reconstructions against their originals."""

    n_pairs: int  # that were compared
    n_identical: int  # of these, pairs of equal pixels, whose PSNR is infinite and in no mean
    paired_by: str  # "name" or "order"


@dataclass(frozen=True)
class DiversitySummary:
    """Diversity within groups."""

    grouped_by: str  # where the groups come from
    # By group, the least diverse first: numbers of "images" and "pairs", the mean of each metric, and the same of "real_" ones
    groups: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Result:
    """One score.

    Attributes:
        metrics: Value and k by metric name, in display order.
        protocol: Name of the protocol.
        ties: "closed" or "strict" balls.
        extractor: The extractor of the features; None if feature files do not name it.
        extractors: All extractors by name.
        deviations: Descriptions of the deviations from the protocol.
        real: The reference set.
        fake: The generated set.
        n_shared: Fakes that are byte-identical to a real image.
        device: The device of the computation.
        seed: Seed of the subset of `max_images`, the halves of intervals and control, blocks and clusters.
        max_images: The maximum number of images per set, or None.
        seconds: Time to fit the reals ("fit_real", once per Evaluator), to score the fakes ("score_fake"), for metrics without
            neighbors ("companions"), and for the control (once per Evaluator), all without embedding.
        versions: Versions of genpr and of all packages that affect values.
        notices: Warnings and notes.
        control: One half of the reals against the other; None if it was disabled, or there are too few reals.
        held_out: Held-out reals; None without any.
        undefined: Requested metrics without a value.
        labels: Requested and recognized labels, if they were compared.
        alignment: Images and their prompts, if they were compared.
        entities: Expected and found entities, if they were compared.
        reference_statistics: The file of mean and covariance of the reals, if a metric uses one.
        reconstruction: Pairs of originals and reconstructions, if they were compared.
        diversity: Groups, if images were compared within them. The JSON of other results leaves it out.
    """

    metrics: Mapping[str, MetricValue]
    protocol: str
    ties: str
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
    held_out: SideSummary | None = None
    undefined: tuple[str, ...] = ()
    labels: LabelSummary | None = None
    alignment: AlignmentSummary | None = None
    entities: EntitySummary | None = None
    reference_statistics: StatisticsSummary | None = None
    reconstruction: ReconstructionSummary | None = None
    diversity: DiversitySummary | None = None

    def __str__(self) -> str:
        """A line for each metric: its name, value, 95 % interval and null; then a line for each notice."""
        lines = []
        for name, metric in self.metrics.items():
            ends = "" if metric.interval is None else "  [{:.4f}, {:.4f}]".format(*metric.interval)
            null = "" if metric.known_null is None else f"  null {metric.known_null:.4f}"
            lines.append(f"{name:<22} {metric.value:.4f}{ends}{null}")
        return "\n".join([*lines, *map(str, self.notices)])

    def __getitem__(self, metric: str) -> float:
        """The value of one metric, such as `result["precision"]` or equivalently `result["manifold.precision"]`."""
        return get_named(self.metrics, plain_name(metric), "metric").value

    @property
    def families(self) -> dict[str, tuple[str, ...]]:
        """The metrics of each family, in display order."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.metrics:
            found[family_of(name)] = (*found.get(family_of(name), ()), name)
        return found

    @property
    def roles(self) -> tuple[str, str]:
        """The names of the two sets: "real" and "fake", or for example "prompts" and "images"."""
        return ("real", "fake") if self.real.what == "images" else (self.real.what, self.fake.what)

    @property
    def is_of_pairs(self) -> bool:
        """Whether its values are means over pairs of images, by metrics with an extractor of their own."""
        return self.reconstruction is not None or self.diversity is not None

    @property
    def tradeoff(self) -> tuple[float, float]:
        """Recall and precision, the coordinates in a plot."""
        precision, recall = (self[name] for name in F_SCORE_METRICS)
        return recall, precision

    @property
    def comparable(self) -> bool:
        """Whether the values are comparable with published ones of the same protocol.

        False for features without published scores, and for deviations from the protocol.
        """
        is_known = self.extractor is not None or self.is_of_pairs
        known = is_known and all(info.comparable for info in self.extractors.values())
        return known and not self.deviations

    @property
    def fingerprint(self) -> str:
        """The settings hash: 16 hex digits, of everything that determines the values except the images (`recipe_of`)."""
        return hashlib.sha256(json.dumps(recipe_of(self), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        facts: dict[str, Any] = {
            "comparable": self.comparable,
            "fingerprint": self.fingerprint,
            "families": self.families,
        }
        record = asdict(self)
        if self.diversity is None:
            del record["diversity"]
        return {"schema": SCHEMA, **facts, **record}

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
        values = with_f1({name: metric.value for name, metric in self.metrics.items()})
        flat = {f"genpr/{name}": value for name, value in values.items()}
        for name, metric in self.metrics.items() if intervals else ():
            if metric.interval is not None:
                flat[f"genpr/{name}_low"], flat[f"genpr/{name}_high"] = metric.interval
        return flat


@dataclass(frozen=True)
class ClassScore:
    """The reals of one class against the fakes of the same class."""

    label: str  # the class
    n_real: int  # its reals
    n_fake: int  # its fakes
    metrics: Mapping[str, MetricValue]  # as in a `Result` of these images alone, but without the control

    def __getitem__(self, metric: str) -> float:
        """The value of one metric."""
        return get_named(self.metrics, metric, "metric").value

    @property
    def mean_relative(self) -> float | None:
        """The mean over metrics of value / null, each at most 1, since values above the null are not better.

        Distances, which have no such null, do not count. 0 where no metric is defined, None where only distances are.
        """
        balls = [each for name, each in self.metrics.items() if name in BALLS]
        if self.metrics and not balls:
            return None
        shares = [each.value if each.relative is None else each.relative for each in balls]
        return sum(min(1.0, share) for share in shares) / max(1, len(shares))


@dataclass(frozen=True)
class LeftOutClass:
    """A class that was not scored."""

    label: str  # the class
    n_real: int  # its reals
    n_fake: int  # its fakes
    reason: Reason


@dataclass(frozen=True)
class Average:
    """The average of one metric over all scored classes."""

    value: float  # the average
    null: float | None  # the average of the nulls; None if a class has none
    interval: tuple[float, float] | None  # 95 %, for other images of the same classes
    bias: float | None = None  # the average of the estimated biases; None if a class has none


@dataclass(frozen=True)
class ClassScores:
    """Scores per class, with the score of all images."""

    overall: Result  # of all images, the result of `Evaluator.score`
    classes: tuple[ClassScore, ...]  # every class that was scored, the worst first
    # by metric, the unweighted mean over these classes; of `fid` and `fd` it is known as intra-FID
    macro: Mapping[str, Average]
    # the mean weighted by fakes for precision and density, by reals for recall and coverage; distances have none
    micro: Mapping[str, Average]
    left_out: tuple[LeftOutClass, ...]  # all other classes
    min_images: int  # minimum number of reals and of fakes of a class
    origins: Mapping[str, str]  # origin of the labels of "real" and "fake"
    unlabeled: Mapping[str, int]  # images without a class by role; they are in `overall` only

    def __str__(self) -> str:
        """The values of each class, the worst first, then the score of all images with its notices."""
        rows = [
            f"{printable(each.label)}: " + ", ".join(f"{name} {each[name]:.4f}" for name in each.metrics)
            for each in self.classes
        ]
        return "\n".join([*rows, "", str(self.overall)])

    def __getitem__(self, label: str) -> ClassScore:
        """The score of one class."""
        return get_named({found.label: found for found in self.classes}, label, "class")

    def to_dict(self) -> dict[str, Any]:
        """The record of `overall`, and the classes under "per_class", as plain JSON types; classes have no replicates."""
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "overall"}
        for name in ("macro", "micro"):
            facts[name] = {metric: asdict(average) for metric, average in facts[name].items()}
        facts["classes"] = [{**asdict(found), "standing": found.mean_relative} for found in self.classes]
        for record in facts["classes"]:
            for metric in record["metrics"].values():
                del metric["replicates"]  # a hundred numbers per metric and class
        facts["left_out"] = [asdict(found) for found in self.left_out]
        return {**self.overall.to_dict(), "per_class": facts}

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as text; NaN and infinities cannot occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def recipe_of(result: Result) -> dict[str, Any]:
    """Everything that determines the values of a result except the images, by metric, as plain JSON types.

    Two values are comparable if their entries, real sets and numbers of images are equal.
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
        recipe |= {"k": metric.k, "ties": result.ties, "distances": "exact"}
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


def result_of_pairs(
    protocol: str,
    metrics: Mapping[str, MetricValue],
    extractors: Iterable[ExtractorInfo],
    sides: Sequence[SideSummary],
    notices: Iterable[Notice],
    embedder: Embedder,
    options: EmbedOptions,
) -> Result:
    """A result of metrics of pairs: of images, or of images and prompts."""
    return Result(
        metrics=metrics,
        protocol=protocol,
        ties="",
        extractor=None,
        extractors={each.name: each for each in extractors},
        deviations=(),
        real=sides[0],
        fake=sides[1],
        n_shared=0,
        device=str(embedder.device),
        seed=options.seed,
        max_images=options.max_images,
        seconds={},
        versions=package_versions(),
        notices=tuple(dict.fromkeys(notices)),
    )


def result_of(record: Mapping[str, Any]) -> Result:
    """The result that `Result.to_dict` turned into plain JSON types.

    Every number is checked here, so that whatever takes a result may compute with it.
    """
    if "error" in record:
        raise ValueError(f"it is the record of a run that failed with {record['error']['code']}")
    if record["schema"] != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA}, found {record['schema']!r}")
    result: Result = from_dict(Result, record)
    unknown = [name for name in result.metrics if name not in ALL_METRICS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no metric")
    for name, metric in result.metrics.items():
        for what in ("value", "null", "chance"):
            check_value(name, getattr(metric, what), what)
        check_interval(name, metric.interval)
        for each in metric.replicates or ():
            check_interval(name, (each, each))
        if metric.spread is not None and metric.spread < 0:
            raise ValueError(f"the spread of {name} is {metric.spread:g}, and must not be negative")
        if metric.replicates is not None and (len(metric.replicates) < 2 or len(metric.replicates) % 2):
            raise ValueError(f"{name} has {len(metric.replicates)} replicates, which come in pairs")
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
