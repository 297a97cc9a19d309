"""The record of one score: every number with everything needed to read, trust and repeat it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.notices import Notice

SCHEMA = 1


@dataclass(frozen=True)
class MetricValue:
    """One metric.

    Attributes:
        value: The number.
        k: Neighbours that define the balls; the point itself is not counted.
    """

    value: float
    k: int


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
        decoder: Versions of the image decoder.
        seconds: Time spent embedding.
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

    @classmethod
    def of(cls, features: FeatureSet, *, n_duplicates: int) -> SideSummary:
        """The summary of one embedded or loaded side."""
        return cls(
            source=features.source,
            n=len(features),
            n_embedded=features.n_embedded,
            n_cached=features.n_cached,
            n_duplicates=n_duplicates,
            skipped=tuple((error.path or "", error.code) for error in features.skipped),
            flags=features.flags,
            decoder=features.decoder,
            seconds=features.seconds,
        )


@dataclass(frozen=True)
class Result:
    """One score.

    Attributes:
        metrics: Value and k by metric name, in display order.
        protocol: Name of the recipe.
        ties: "closed" or "strict" balls.
        extractor: What made the features; None when feature files do not say.
        real: The reference set.
        fake: The generated set.
        n_shared: Fakes that are byte-identical to a real image.
        device: Where it was computed.
        seed: Chooses the subset when `max_images` is set.
        max_images: The limit per side, or None.
        seconds: Time to fit the real side ("fit_real", once per Evaluator) and to score the fakes
            ("score_fake"), both without embedding.
        versions: Of genpr and of every package that can move a number.
        notices: What a reader should know.
    """

    metrics: Mapping[str, MetricValue]
    protocol: str
    ties: str
    extractor: ExtractorInfo | None
    real: SideSummary
    fake: SideSummary
    n_shared: int
    device: str
    seed: int
    max_images: int | None
    seconds: Mapping[str, float]
    versions: Mapping[str, str]
    notices: tuple[Notice, ...]

    def __getitem__(self, metric: str) -> float:
        """The value of one metric: `result["precision"]`."""
        return self.metrics[metric].value

    @property
    def comparable(self) -> bool:
        """Whether the number can stand beside published ones; never for weight-free or unknown features."""
        return self.extractor is not None and self.extractor.comparable

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        return {"schema": SCHEMA, "comparable": self.comparable, **asdict(self)}

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as text; NaN and infinities cannot occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_flat_dict(self) -> dict[str, float]:
        """`{"genpr/precision": ...}`, for loggers and for monitoring a checkpoint metric."""
        return {f"genpr/{name}": metric.value for name, metric in self.metrics.items()}


def package_versions() -> dict[str, str]:
    """Versions of everything that can move a number."""
    packages = ("genpr", "torch", "torchvision", "numpy", "pillow", "faiss-cpu")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
