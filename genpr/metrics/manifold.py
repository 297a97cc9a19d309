"""Precision, recall, density and coverage: who lies in the k-NN balls of whom.

A set's manifold is the union of one closed ball per point, whose radius reaches the point's k-th nearest other
point. Every value below is an integer count followed by one division.

References:
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models".
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (density, coverage).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from genpr.errors import UsageError
from genpr.memory import memory_limit
from genpr.metrics.f_beta import f_beta
from genpr.metrics.knn_manifold import KNNManifold
from genpr.metrics.real_manifold import Memberships, PairProgress, RealManifold
from genpr.metrics.registry import BALLS, needed_balls
from genpr.neighbors.balls import Ball, Ties
from genpr.validation import (
    Features,
    check_features,
    check_k,
    check_rows,
    check_same_width,
    check_ties,
    choose_device,
)


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
        return f_beta(self.precision, self.recall, beta)


def manifold_metrics(
    real: Features | KNNManifold,
    fake: Features,
    *,
    k: int = 5,
    ties: Ties = "closed",
    device: str | torch.device = "auto",
    max_memory: str | int | None = None,
    progress: PairProgress | None = None,
) -> ManifoldMetrics:
    """Precision, recall, density and coverage of fake features against real ones, exactly.

    Args:
        real: (n, d) features of real images, n > k, of any float or integer type; or a `KNNManifold` of them, fitted
            with the same k and ties, which saves more than half of the work.
        fake: (m, d) features of generated images by the same extractor, m > k.
        k: Neighbors that set a ball's radius; the point itself is not counted.
        ties: "closed" counts a point on the sphere as inside, "strict" does not.
        device: "auto" is where the tensors are if that is a GPU, else the best device here.
        max_memory: Plan with at most so many bytes for the process, such as "8GiB"; None takes what is free.
        progress: Called with the pairs of rows done with and their number, first for the reals, then for the fakes.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
        UsageError: k, ties or max_memory is impossible.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(500, 8))
        >>> collapsed = 0.1 * rng.normal(size=(500, 8))
        >>> metrics = manifold_metrics(real, collapsed)
        >>> metrics.precision, metrics.recall
        (1.0, 0.0)
    """
    with memory_limit(max_memory):
        fields = ManifoldMetrics._fields
        return ManifoldMetrics(
            **_scores(real, fake, fields, k=k, ties=ties, device=device, progress=progress)
        )


def precision_recall(
    real: Features | KNNManifold,
    fake: Features,
    *,
    k: int = 3,
    ties: Ties = "closed",
    device: str | torch.device = "auto",
    max_memory: str | int | None = None,
    progress: PairProgress | None = None,
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
    with memory_limit(max_memory):
        fields = PrecisionRecall._fields
        return PrecisionRecall(
            **_scores(real, fake, fields, k=k, ties=ties, device=device, progress=progress)
        )


def _scores(
    real: Features | KNNManifold,
    fake: Features,
    metrics: Sequence[str],
    *,
    k: int,
    ties: Ties,
    device: str | torch.device,
    progress: PairProgress | None,
) -> dict[str, float]:
    """Everything that can be wrong is found before anything is computed."""
    k = check_k(k)
    check_ties(ties)
    if isinstance(real, KNNManifold):
        _check_fitted(real, k, ties)
        side, checked_fake = real.side, fake
    else:
        checked_real, checked_fake = check_features(real, "real"), check_features(fake, "fake")
        check_same_width(checked_real, checked_fake)
        check_rows(checked_real, "real", k=k)
        check_rows(checked_fake, "fake", k=k)
        side = RealManifold.fit(
            checked_real, balls=[Ball(k)], ties=ties, device=choose_device(real, device), progress=progress
        )
    return ball_scores(side, checked_fake, ks=dict.fromkeys(metrics, k), progress=progress)


def ball_scores(
    real: RealManifold, fake: Features, *, ks: Mapping[str, int], progress: PairProgress | None = None
) -> dict[str, float]:
    """The ball metrics named in `ks`, each with its own k; nothing that none of them needs is computed.

    Args:
        real: The reals with all balls that these metrics need.
        fake: (m, d) features.
        ks: k by metric.
        progress: Called with the pairs of rows done with and their number.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or of another width than the reals.
        UsageError: A metric is unknown, or a k impossible or not fitted.
    """
    found = memberships_of(real, fake, ks=ks, progress=progress)
    return {name: BALLS[name](found, k) for name, k in ks.items()}


def memberships_of(
    real: RealManifold, fake: Features, *, ks: Mapping[str, int], progress: PairProgress | None = None
) -> Memberships:
    """The integer counts behind `ball_scores`, image by image. Arguments and errors are those of `ball_scores`."""
    real_balls, fake_balls = needed_balls(ks)
    return real.memberships(fake, real_balls=real_balls, fake_balls=fake_balls, progress=progress)


def _check_fitted(manifold: KNNManifold, k: int, ties: Ties) -> None:
    if (manifold.k, manifold.ties) != (k, ties):
        raise UsageError(
            f"the real manifold was fitted with k = {manifold.k} and ties = {manifold.ties!r}, but k = {k} and "
            f"ties = {ties!r} are asked for; pass the same, or fit again",
            code="k-not-fitted",
        )
