"""The record of one score: every number with everything needed to read, trust and repeat it."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from genpr.evaluation.identities import Identities
from genpr.evaluation.summaries import AlignmentSummary, EntitySummary, LabelSummary
from genpr.features.extractor import ExtractorInfo
from genpr.images.policy import choices_in
from genpr.metrics.f_beta import f_beta
from genpr.metrics.metric import family_of, plain_name
from genpr.metrics.value import Control, MetricValue
from genpr.notices import Notice

if TYPE_CHECKING:
    from genpr.features.feature_set import FeatureSet

SCHEMA = 4


@dataclass(frozen=True)
class HubSummary:
    """How unevenly the reals are each other's neighbours, and which of them vouches for most fakes.

    Attributes:
        k: Of the balls.
        orphan_rate: Share of reals that lie in no ball of another.
        expected_orphan_rate: e^-k, what it is without hubs.
        skewness: Of the numbers of balls that each real lies in.
        largest_share: Largest share of the fakes in the ball of one real.
        largest_name: That real.
    """

    k: int
    orphan_rate: float
    expected_orphan_rate: float
    skewness: float
    largest_share: float
    largest_name: str


@dataclass(frozen=True)
class SideSummary:
    """What is known about one of the two image sets.

    Attributes:
        source: As the user wrote it.
        n: Rows that were scored.
        n_embedded: Rows that went through the extractor in this run (0 for feature files).
        n_cached: Rows that came out of the feature cache.
        n_duplicates: Rows beyond the first of each set of byte-identical images (or feature rows).
        skipped: (name, code) of each image that was left out.
        flags: Images per decoding flag, such as "alpha-dropped".
        decoder: Versions of the image decoder, and what was chosen of it that is not the default: "alpha", "exif".
        seconds: Time spent embedding.
        content: sha256 over the contents of all images (or feature rows), whatever their order and names.
        order: The same in the order of the rows, by which halves are drawn.
        what: What its rows are: "images", or "prompts" or "texts" that stand for what was asked for.
    """

    source: str
    n: int
    n_embedded: int
    n_cached: int
    n_duplicates: int
    skipped: tuple[tuple[str, str], ...]
    flags: Mapping[str, int]
    decoder: Mapping[str, str]
    seconds: float
    content: str
    order: str
    what: str = "images"

    @classmethod
    def of(cls, features: FeatureSet, identities: Identities) -> SideSummary:
        """The summary of one embedded or loaded side."""
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
            order=identities.order,
        )


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
            the metrics that count no neighbours ("companions"), and for the control (once per Evaluator), all without
            embedding.
        versions: Of genpr and of every package that can move a number.
        notices: What a reader should know.
        control: Real against real; None if it was left out, or there are too few.
        hubness: Of the reals; None where no real ball was counted, or only in a part of the images.
        held_out: More reals, for the metrics that need them; None if none were given.
        undefined: Metrics that were asked for and have no value with these images.
        labels: Requested against recognised labels; None if they were not compared.
        alignment: Images against their prompts, likewise.
        entities: Expected against found entities, likewise.
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
    def comparable(self) -> bool:
        """Whether the numbers can stand beside published ones of the same protocol.

        Never for weight-free or unknown features, nor where the protocol could not be met.
        """
        known = self.extractor is not None and all(info.comparable for info in self.extractors.values())
        return known and not self.deviations

    @property
    def exact(self) -> bool:
        """Whether every value is what the definition gives."""
        return all(metric.exact for metric in self.metrics.values())

    @property
    def fingerprint(self) -> str:
        """Hash of everything but the images that decides the numbers; see `recipe_of`."""
        return fingerprint_of(recipe_of(self))

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
        if {"precision", "recall"} <= self.metrics.keys():
            flat["genpr/f1"] = f_beta(self["precision"], self["recall"])
        for name, metric in self.metrics.items() if intervals else ():
            if metric.interval is not None:
                flat[f"genpr/{name}_low"], flat[f"genpr/{name}_high"] = metric.interval
        return flat


def fingerprint_of(recipe: Mapping[str, Any]) -> str:
    """16 hex digits that are equal for equal recipes."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


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
    chosen = {
        role: chosen
        for role, side in (("real", result.real), ("fake", result.fake))
        if (chosen := choices_in(side.decoder))
    }
    if chosen:
        recipe["decoding"] = chosen
    if metric.k is None:
        return recipe
    return {**recipe, "k": metric.k, "ties": result.ties, "distances": result.distances}


def package_versions() -> dict[str, str]:
    """Versions of everything that can move a number."""
    packages = (
        "genpr",
        "torch",
        "torchvision",
        "numpy",
        "scipy",
        "pillow",
        "faiss-cpu",
        "open_clip_torch",
        "timm",
    )
    return {"python": platform.python_version(), **{name: _version(name) for name in packages}}


def _version(package: str) -> str:
    """As it was installed; other installers than pip call some packages otherwise, and a folder of code has no version."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
