"""Precision, recall, density and coverage from memberships in k-NN balls, and the manifold of one set.

A set's manifold is the union of one closed ball per point, whose radius reaches the point's k-th nearest other point.

References:
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models".
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (density, coverage).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from genpr.distributed import current_communicator
from genpr.errors import DataError, UsageError
from genpr.limits import parse_json
from genpr.memory import copy_of, memory_limit
from genpr.metrics.f_beta import f_beta
from genpr.metrics.neighbor_metrics import needed_balls
from genpr.metrics.realism import Rarity, rarity, realism_of
from genpr.metrics.registry import BALLS
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Memberships, Neighborhood, Radii, cross_counts
from genpr.neighbors.distance import square_roots
from genpr.neighbors.engine import PairProgress, plain_arithmetic, progress_counter
from genpr.neighbors.index import IndexedPoints, choose_projection
from genpr.neighbors.nearest import NeighborLists
from genpr.runtime import resolve_device
from genpr.storage import check_output, load_tensors, read_header, save_tensors
from genpr.validation import (
    Features,
    Ties,
    check_features,
    check_k,
    check_rows,
    check_same_width,
    check_ties,
    checked_pair,
    choose_device,
    entry_point,
)

_FORMAT = "genpr.manifold.3"


@dataclass(frozen=True, slots=True)
class KNNManifold:
    """The k-NN manifold of a set of features: fitted once, queried many times, immutable.

    Queries may be tensors or NumPy arrays. All results are tensors on the device of the manifold.

    Attributes:
        balls: Centers, radii and their search data.

    Example:
        >>> import numpy as np
        >>> corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> manifold = KNNManifold.fit(corners, k=1)
        >>> manifold.contains(np.array([[0.5, 0.5], [3.0, 3.0]])).tolist()
        [True, False]
    """

    balls: Neighborhood

    @classmethod
    @entry_point
    def fit(
        cls, features: Features, *, k: int = 3, ties: Ties = "closed", device: str | torch.device = "auto"
    ) -> KNNManifold:
        """Fit to a copy of (n, d) `features`, n > k. Arguments and errors are those of `manifold_metrics`."""
        k = check_k(k)
        check_ties(ties)
        checked = copy_of(check_features(features, "features"))
        check_rows(checked, "features", k=k)
        return cls(
            Neighborhood.from_features(
                checked.to(choose_device(features, device)), [BallKind(k)], ties=ties, counts_degrees=False
            )
        )

    def __len__(self) -> int:
        return len(self.balls.points.features)

    @property
    def k(self) -> int:
        """Neighbors that set a ball's radius."""
        return self.balls.balls[0].k

    @property
    def ties(self) -> Ties:
        """Whether a point on the sphere is inside: "closed" yes, "strict" no."""
        return self.balls.ties

    @property
    def features(self) -> Tensor:
        """The centers of the balls, (n, d) float32, or float16 for large float16 inputs."""
        return self.balls.points.features

    @property
    @entry_point
    def sq_radii(self) -> Tensor:
        """Squared radii of the balls, (n,) float64, computed when they are first read."""
        return self.balls.sq_radii[0]

    @property
    def radii(self) -> Tensor:
        """Radii of the balls, (n,) float64. Membership is decided on their squares."""
        return square_roots(self.sq_radii)

    @entry_point
    def count(self, queries: Features) -> Tensor:
        """How many balls contain each of the (m, d) `queries`: (m,) int64."""
        counts = cross_counts(
            self.balls.points, self._placed(queries), real_radii=self.balls.radii, ties=self.ties
        )
        return counts.real_balls_per_fake[0]

    def contains(self, queries: Features) -> Tensor:
        """Which of the (m, d) `queries` lie in at least one ball: an (m,) bool tensor, also for NumPy queries."""
        return self.count(queries) > 0

    @entry_point
    def realism(self, queries: Features) -> Tensor:
        """Realism of each of the (m, d) `queries` (Kynkäänniemi et al. 2019): (m,) float64, 1 or more inside.

        The largest ratio of a ball's radius to the distance from its center, over the balls up to the median radius.
        """
        return realism_of(self.balls.points, self.sq_radii, self._placed(queries))

    @entry_point
    def rarity(self, queries: Features) -> Rarity:
        """How uncommon each of the (m, d) `queries` is (Han et al. 2022): the smallest ball that contains it.

        Score and percentile among all radii, each (m,) float64, NaN where no ball contains the query.
        """
        counts = cross_counts(
            self.balls.points,
            self._placed(queries),
            real_radii=self.balls.radii,
            smallest_of=0,
            ties=self.ties,
        )
        assert counts.smallest_real_ball is not None
        return rarity(square_roots(counts.smallest_real_ball), self.radii)

    def _placed(self, queries: Features) -> IndexedPoints:
        own = {"k": self.k, "ties": self.ties}  # it may have been fitted by each rank alone
        current_communicator().check_same(own, "manifolds")
        checked = check_features(queries, "queries").to(self.features.device)
        check_same_width(self.features, checked, names=("the manifold", "queries"))
        return self.balls.points.projection.place(checked)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write features and radii to `path` (safetensors with a checksum inside).

        Args:
            path: The file. An earlier manifold is replaced.
            overwrite: Replace any other file, too.

        Raises:
            UsageError: The path is another file, a link, or cannot be written.
            ResourceError: The disk is full, or fails.
        """
        check_output(Path(path), (), _is_manifold, overwrite=overwrite)
        tensors = {"features": self.features, "sq_radii": self.sq_radii}
        facts = {"format": _FORMAT, "k": self.k, "ties": self.ties}
        save_tensors(Path(path), tensors, {name: json.dumps(fact) for name, fact in facts.items()})

    @classmethod
    @entry_point
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> KNNManifold:
        """Read what `save` wrote; no neighbors are searched again.

        Raises:
            DataError: The file is damaged ("file-damaged") or holds something else ("not-a-manifold").
        """
        tensors, metadata = load_tensors(Path(path))
        try:
            features, sq_radii, k, ties = _checked(tensors, metadata)
        except (KeyError, TypeError, ValueError) as error:
            text = f"{path} is not a manifold that KNNManifold.save wrote ({error}); check that it is not a file of plain features"
            raise DataError(text, code="not-a-manifold", path=str(path)) from error
        where = resolve_device(device)
        features = features.to(where)
        points, lists = choose_projection(features, k).place(features), NeighborLists.none(features)
        sq_radii = sq_radii.to(where)[None]
        return cls(Neighborhood(points, (BallKind(k),), ties, Radii(sq_radii, sq_radii), None, lists))


def _is_manifold(path: Path) -> bool:
    return read_header(path)[0].get("format", "").startswith('"genpr.manifold.')


def _checked(tensors: dict[str, Tensor], metadata: dict[str, str]) -> tuple[Tensor, Tensor, int, Ties]:
    """Features, squared radii, k and ties that `save` wrote; raises for other files."""
    if metadata.get("format") != json.dumps(_FORMAT):
        raise ValueError("its format is another")
    k, ties = check_k(parse_json(metadata["k"])), parse_json(metadata["ties"])
    check_ties(ties)
    features, sq_radii = check_features(tensors["features"], "features"), tensors["sq_radii"]
    check_rows(features, "features", k=k)
    has_radii = (sq_radii.shape, sq_radii.dtype) == ((len(features),), torch.float64)
    if not (has_radii and (sq_radii >= 0).all()):
        raise ValueError("it has no radius for each of its features")
    return features, sq_radii, k, ties


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
        """Weighted harmonic mean of precision and recall; recall counts `beta` times as much."""
        return f_beta(self.precision, self.recall, beta)


@entry_point
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
        device: "auto" is the GPU that holds the input, else the best device available.
        max_memory: Memory that the process plans with, such as "8GiB"; None uses the free memory.
        progress: Called with the number of row pairs done and the total, first for the reals, then for the fakes.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
        UsageError: k, ties or max_memory is impossible, or those of a `KNNManifold` differ ("k-not-fitted").

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
        names = ManifoldMetrics._fields
        return ManifoldMetrics(**_scores(real, fake, names, k, ties, device, progress))


@entry_point
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
        names = PrecisionRecall._fields
        return PrecisionRecall(**_scores(real, fake, names, k, ties, device, progress))


def _scores(
    real: Features | KNNManifold,
    fake: Features,
    metrics: Sequence[str],
    k: int,
    ties: Ties,
    device: str | torch.device,
    progress: PairProgress | None,
) -> dict[str, float]:
    """Check all arguments before any computation."""
    k = check_k(k)
    check_ties(ties)
    own = {"metrics": [*metrics], "k": k, "ties": ties}
    current_communicator().check_same(own, "arguments")
    ks = dict.fromkeys(metrics, k)
    if isinstance(real, KNNManifold):
        if (real.k, real.ties) != (k, ties):
            text = f"the real manifold was fitted with k = {real.k} and ties = {real.ties!r}; pass the same, or fit again"
            raise UsageError(text, code="k-not-fitted")
        counts = memberships_of(real.balls, check_features(fake, "fake"), ks=ks, progress=progress)
    else:
        checked_real, checked_fake = checked_pair(real, fake, k=k)
        checked_real = checked_real.to(choose_device(real, device))
        advance = progress_counter(len(checked_real) * (len(checked_real) - 1) // 2, progress)
        with plain_arithmetic():
            balls = Neighborhood.from_features(
                checked_real, [BallKind(k)], ties=ties, counts_degrees=False, advance=advance
            )
            counts = memberships_of(balls, checked_fake, ks=ks, progress=progress)
    return {name: BALLS[name].value(counts, k) for name in metrics}


def memberships_of(
    real: Neighborhood, fake: Tensor, *, ks: Mapping[str, int], progress: PairProgress | None = None
) -> Memberships:
    """Ball memberships of checked (m, d) `fake` features for the metrics in `ks`, each with its own k; without in-degrees."""
    real_balls, fake_balls = needed_balls(ks)
    m = len(fake)
    pairs = len(real.points.features) * m + (m * (m - 1) // 2 if fake_balls else 0)
    advance = progress_counter(pairs, progress)
    with plain_arithmetic():
        fakes = real.of_fakes(fake, fake_balls, counts_degrees=False, advance=advance)
        return real.count(fakes, real_balls, advance=advance)
