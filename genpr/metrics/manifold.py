"""Precision, recall, density and coverage: who lies in the k-NN balls of whom.

A set's manifold is the union of one closed ball per point, whose radius reaches the point's k-th nearest other
point. Every value below is an integer count followed by one division.

References:
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models".
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (density, coverage).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.features import (
    Features,
    check_features,
    check_k,
    check_rows,
    check_same_width,
    check_ties,
    choose_device,
)
from genpr.metrics.membership import Memberships
from genpr.neighbours.bounds import Frame, Placed
from genpr.neighbours.choose import choose_engine
from genpr.neighbours.engine import Engine
from genpr.neighbours.search import Ties, cross_counts, kth_sq_distances


class ManifoldMetrics(NamedTuple):
    """The four values of `manifold_metrics`."""

    precision: float
    recall: float
    density: float
    coverage: float


class PrecisionRecall(NamedTuple):
    """The two values of `precision_recall`."""

    precision: float
    recall: float

    def f_score(self, beta: float = 1.0) -> float:
        """Weighted harmonic mean of precision and recall; recall counts `beta` times as much.

        Raises:
            UsageError: `beta` is not positive.
        """
        if not beta > 0:
            raise UsageError(f"beta must be positive, not {beta!r}", code="bad-beta")
        if self.precision == self.recall == 0:
            return 0.0
        weight = beta**2
        return (1 + weight) * self.precision * self.recall / (weight * self.precision + self.recall)


def manifold_metrics(
    real: Features, fake: Features, *, k: int = 5, ties: Ties = "closed", device: str | torch.device = "auto"
) -> ManifoldMetrics:
    """Precision, recall, density and coverage of fake features against real ones, exactly.

    Args:
        real: (n, d) features of real images, n > k; any float or integer type.
        fake: (m, d) features of generated images by the same extractor, m > k.
        k: Neighbours that set a ball's radius; the point itself is not counted.
        ties: "closed" counts a point on the sphere as inside, "strict" does not.
        device: "auto" is where the tensors are if that is a GPU, else the best device here.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
        UsageError: k or ties is impossible.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(500, 8))
        >>> collapsed = 0.1 * rng.normal(size=(500, 8))
        >>> metrics = manifold_metrics(real, collapsed)
        >>> metrics.precision, metrics.recall
        (1.0, 0.0)
    """
    checked_real, checked_fake = _check_sides(real, fake, k=k, ties=ties)
    side = RealSide.fit(checked_real, ks=[k], device=choose_device(real, device))
    return ManifoldMetrics(
        **side.score(checked_fake, ks=dict.fromkeys(ManifoldMetrics._fields, k), ties=ties)
    )


def precision_recall(
    real: Features, fake: Features, *, k: int = 3, ties: Ties = "closed", device: str | torch.device = "auto"
) -> PrecisionRecall:
    """Improved precision and recall of fake features against real ones, exactly.

    Precision (fidelity) is the share of fakes inside the real manifold, recall (diversity) the share of reals
    inside the fake manifold. Arguments and errors are those of `manifold_metrics`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(500, 8))
        >>> precision, recall = precision_recall(real, real[real[:, 0] > 0])
        >>> precision, recall < 0.9
        (1.0, True)
    """
    checked_real, checked_fake = _check_sides(real, fake, k=k, ties=ties)
    side = RealSide.fit(checked_real, ks=[k], device=choose_device(real, device))
    return PrecisionRecall(**side.score(checked_fake, ks={"precision": k, "recall": k}, ties=ties))


def _check_sides(real: Features, fake: Features, *, k: int, ties: Ties) -> tuple[Tensor, Tensor]:
    """Everything that can be wrong is found before anything is computed."""
    check_k(k)
    check_ties(ties)
    checked_real, checked_fake = check_features(real, "real"), check_features(fake, "fake")
    check_same_width(checked_real, checked_fake)
    check_rows(checked_real, "real", k=k)
    check_rows(checked_fake, "fake", k=k)
    return checked_real, checked_fake


@dataclass(frozen=True, slots=True)
class RealSide:
    """A real set with its radii for several k, fitted once and scored against any number of fake sets.

    Attributes:
        frame: Where both sides are placed.
        points: The n reals in it.
        ks: The k that were fitted, ascending.
        sq_radii: Squared radii (len(ks), n) float64.
        engine: What proposes candidate pairs.
    """

    frame: Frame
    points: Placed
    ks: tuple[int, ...]
    sq_radii: Tensor
    engine: Engine

    @classmethod
    def fit(
        cls,
        features: Features,
        *,
        ks: Iterable[int],
        device: str | torch.device = "auto",
        engine: Engine | None = None,
    ) -> RealSide:
        """Find the radii of all balls.

        Args:
            features: (n, d), n > max(ks). They are not copied where that can be avoided: leave them unchanged.
            ks: Every k that will be asked for; none if only recall is.
            device: As in `manifold_metrics`.
            engine: None chooses by device.

        Raises:
            FeatureError: The features are malformed, not finite or too few.
            UsageError: A k is impossible.
        """
        ks = tuple(sorted({check_k(k) for k in ks}))
        checked = check_features(features, "real")
        check_rows(checked, "real", k=max(ks, default=0))
        checked = checked.to(choose_device(features, device))
        engine = engine or choose_engine(checked.device)
        frame = Frame.fit(checked)
        points = frame.place(checked)
        return cls(frame, points, ks, kth_sq_distances(points, ks, engine=engine), engine)

    def score(self, fake: Features, *, ks: Mapping[str, int], ties: Ties = "closed") -> dict[str, float]:
        """The metrics named in `ks`, each with its own k; nothing that none of them needs is computed.

        Args:
            fake: (m, d) features.
            ks: k by metric: any of "precision", "recall", "density", "coverage".
            ties: As in `manifold_metrics`.

        Raises:
            FeatureError: The features are malformed, not finite, too few, or of another width than the reals.
            UsageError: A metric is unknown, or a k impossible or not fitted.
        """
        memberships = self.memberships(fake, ks=ks, ties=ties)
        return {name: getattr(memberships, name)(k) for name, k in ks.items()}

    def memberships(self, fake: Features, *, ks: Mapping[str, int], ties: Ties = "closed") -> Memberships:
        """The integer counts behind `score`, sample by sample. Arguments and errors are those of `score`."""
        check_ties(ties)
        real_ks, fake_ks = self._ball_ks(ks)
        checked = check_features(fake, "fake")
        check_same_width(self.points.features, checked)
        check_rows(checked, "fake", k=max(fake_ks, default=0))
        checked = checked.to(self.points.device)
        fake_sq_radii = _sq_radii_of(checked, fake_ks, self.engine)
        counts = cross_counts(
            self.points,
            self.frame.place(checked),
            real_sq_radii=self.sq_radii[[self.ks.index(k) for k in real_ks]],
            fake_sq_radii=fake_sq_radii,
            ties=ties,
            engine=self.engine,
        )
        return Memberships(
            n_real=len(self.points),
            n_fake=len(checked),
            real_balls_per_fake=dict(zip(real_ks, counts.real_balls_per_fake, strict=True)),
            fakes_per_real_ball=dict(zip(real_ks, counts.fakes_per_real_ball, strict=True)),
            fake_balls_per_real=dict(zip(fake_ks, counts.fake_balls_per_real, strict=True)),
            reals_per_fake_ball=dict(zip(fake_ks, counts.reals_per_fake_ball, strict=True)),
        )

    def _ball_ks(self, ks: Mapping[str, int]) -> tuple[list[int], list[int]]:
        """The k of the real balls and of the fake balls that the metrics in `ks` look at."""
        unknown = sorted(set(ks) - set(ManifoldMetrics._fields))
        if unknown:
            known = ", ".join(ManifoldMetrics._fields)
            raise UsageError(f"unknown metrics: {', '.join(unknown)}; known: {known}", code="unknown-metric")
        real_ks = sorted({check_k(k) for name, k in ks.items() if name != "recall"})
        unfitted = [k for k in real_ks if k not in self.ks]
        if unfitted:
            raise UsageError(f"k = {unfitted[0]} was not fitted, only {self.ks}", code="k-not-fitted")
        return real_ks, [check_k(ks["recall"])] if "recall" in ks else []


def _sq_radii_of(features: Tensor, ks: list[int], engine: Engine) -> Tensor | None:
    """Radii in a frame of the set's own: collapsed fakes far from the reals' centre need a finer scale."""
    return kth_sq_distances(Frame.fit(features).place(features), ks, engine=engine) if ks else None


@dataclass(frozen=True, slots=True)
class KNNManifold:
    """The k-NN manifold of a set of features: fit once, ask many times; it does not change.

    Attributes:
        k: Neighbours that set a ball's radius.
        ties: Whether a point on the sphere is inside: "closed" yes, "strict" no.

    Example:
        >>> import numpy as np
        >>> corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> manifold = KNNManifold.fit(corners, k=1)
        >>> manifold.contains(np.array([[0.5, 0.5], [3.0, 3.0]])).tolist()
        [True, False]
    """

    k: int
    ties: Ties
    _side: RealSide

    @classmethod
    def fit(
        cls, features: Features, *, k: int = 3, ties: Ties = "closed", device: str | torch.device = "auto"
    ) -> KNNManifold:
        """Fit to a copy of (n, d) `features`, n > k. Arguments and errors are those of `manifold_metrics`."""
        k = check_k(k)
        check_ties(ties)
        checked = check_features(features, "features").clone()
        check_rows(checked, "features", k=k)
        return cls(k, ties, RealSide.fit(checked, ks=[k], device=choose_device(features, device)))

    def __len__(self) -> int:
        return len(self._side.points)

    @property
    def features(self) -> Tensor:
        """The centers of the balls, (n, d) float32."""
        return self._side.points.features

    @property
    def sq_radii(self) -> Tensor:
        """Squared radii of the balls, (n,) float64."""
        return self._side.sq_radii[0]

    @property
    def radii(self) -> Tensor:
        """Radii of the balls, (n,) float64. Membership is decided on their squares."""
        return self.sq_radii.sqrt()

    def count(self, queries: Features) -> Tensor:
        """How many balls contain each of the (m, d) `queries`: (m,) int64."""
        checked = check_features(queries, "queries").to(self.features.device)
        check_same_width(self.features, checked, names=("the manifold", "queries"))
        side, points = self._side, self._side.frame.place(checked)
        counts = cross_counts(
            side.points, points, real_sq_radii=side.sq_radii, ties=self.ties, engine=side.engine
        )
        return counts.real_balls_per_fake[0]

    def contains(self, queries: Features) -> Tensor:
        """Which of the (m, d) `queries` lie in at least one ball: (m,) bool."""
        return self.count(queries) > 0
