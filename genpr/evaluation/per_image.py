"""The values of each image behind a score, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpr.errors import FeatureError, UsageError, count_of
from genpr.evaluation.label_metrics import RecognizedLabels
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import ClassScores, Result
from genpr.features.feature_set import FeatureSet
from genpr.metrics.samples import Rows
from genpr.validation import Ties


class _Columns:
    """Columns of equal length."""

    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def columns(self) -> dict[str, object]:
        """All columns by name, without digests, as for `pandas.DataFrame`."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: column for name, column in found.items() if name != "identities"}


@dataclass(frozen=True, eq=False)
class FakeSamples(_Columns):
    """The values of each of m fakes in the order of the score."""

    # path relative to the source, or "[17]" in an array, or "row 17" of features
    names: tuple[str, ...]
    inside: NDArray[np.bool_]  # (m,) bool, whether a real ball contains it; the mean is precision
    n_balls: NDArray[np.int64]  # (m,) int64, how many real balls contain it; the sum over k m is density
    # (m,) float64, at least 1 in a ball of at most median radius, infinite for a copy of a real; the median is
    # the metric
    realism: NDArray[np.float64]
    # (m,) float64, radius of the smallest real ball around it, NaN where there is none
    rarity: NDArray[np.float64]
    # (m,) float64, percent of the real radii that are at most as large, NaN where there is none
    rarity_percentile: NDArray[np.float64]
    nearest_real: NDArray[np.int64]  # (m,) int64, row of the nearest real, the first of equally near ones
    nearest_real_distance: NDArray[np.float64]  # (m,) float64, in the unit of the features
    # (m,) bool, whether that real has another real nearer to it than this fake is; the mean is authenticity
    authentic: NDArray[np.bool_]
    identities: NDArray[np.uint8] | None = None  # (m, 32) uint8, sha256 of each image's bytes


@dataclass(frozen=True, eq=False)
class RealSamples(_Columns):
    """The values of each of n reals in the order of the score."""

    names: tuple[str, ...]  # as for the fakes
    covered: NDArray[np.bool_]  # (n,) bool, whether its ball contains a fake; the mean is coverage
    n_fakes: NDArray[np.int64]  # (n,) int64, how many fakes its ball contains
    radius: NDArray[np.float64]  # (n,) float64, radius of its ball, in the unit of the features
    # (n,) float64, distance to the nearest other real, in the unit of the features
    other_distance: NDArray[np.float64]
    nearest_fake: NDArray[np.int64]  # (n,) int64, row of the nearest fake, the first of equally near ones
    nearest_fake_distance: NDArray[np.float64]  # (n,) float64, in the unit of the features
    identities: NDArray[np.uint8] | None = None  # (n, 32) uint8, sha256 of each image's bytes


@dataclass(frozen=True, eq=False)
class PerImageScores:
    """One score, image by image."""

    result: Result  # the score
    fake: FakeSamples  # values of each fake
    real: RealSamples  # values of each real
    # k by metric: `inside` uses that of precision, `n_balls` that of density, `covered`, `n_fakes` and `radius` that
    # of coverage, realism and rarity their own
    k: Mapping[str, int]
    ties: Ties  # "closed" or "strict" balls
    # the features of the reals and of the fakes, row by row
    sides: tuple[FeatureSet, FeatureSet] = field(repr=False)
    classes: ClassScores | None = None  # the same score class by class, if requested
    # requested and recognized labels of each fake, if compared
    labels: RecognizedLabels | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The score with its notices."""
        return str(self.result)

    @classmethod
    def from_rows(
        cls,
        result: Result,
        counted: tuple[FeatureSet, FeatureSet],
        rows: tuple[Rows, Rows],
        *,
        k: Mapping[str, int],
        ties: Ties,
    ) -> PerImageScores:
        """Create the record from the reals and fakes of a score, and the values of fakes and reals."""
        columns: list[dict[str, Any]] = []
        for features, of_side in zip(reversed(counted), rows, strict=True):
            names = features.names or tuple(map(features.name_of, range(len(features))))
            identities = None if features.identities is None else features.identities.numpy()
            arrays = {name: tensor.cpu().numpy() for name, tensor in of_side.items()}
            columns.append({"names": names, "identities": identities, **arrays})
        fake, real = FakeSamples(**columns[0]), RealSamples(**columns[1])
        return cls(result, fake, real, k=dict(k), ties=ties, sides=counted)


def check_samples(plan: ScorePlan, n_real: int) -> None:
    """Raise an error for a plan without values of single images, and for too few reals."""
    if not plan.ks:
        raise UsageError(
            f"{', '.join(plan.extractors)} has no values of single images; add a metric that counts neighbors, such as "
            "precision",
            code="no-samples",
        )
    least = max(plan.sample_ks.values()) + 1
    if n_real < least:
        raise FeatureError(
            f"real has {count_of(n_real, 'image')}, but values of single images need at least {least}; use more images, or a "
            "smaller k",
            code="too-few-images",
        )
