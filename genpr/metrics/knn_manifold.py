"""The k-NN manifold of one set of features: fit once, ask many times, keep on disk."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from genpr.errors import DataError
from genpr.limits import parse_json
from genpr.memory import copy_of
from genpr.metrics.real_manifold import RealManifold, choose_engine
from genpr.metrics.realism import Rarity, rarity, realism_of
from genpr.neighbors.balls import Ball, Ties
from genpr.neighbors.counts import cross_counts
from genpr.neighbors.index import Placed
from genpr.runtime import resolve_device
from genpr.storage import load_tensors, read_metadata, save_tensors
from genpr.validation import (
    Features,
    check_features,
    check_k,
    check_rows,
    check_same_width,
    check_ties,
    choose_device,
)

_FORMAT = "genpr.manifold.3"


@dataclass(frozen=True, slots=True)
class KNNManifold:
    """The k-NN manifold of a set of features: fit once, ask many times; it does not change.

    Attributes:
        side: Centers, radii, and what the search keeps of them.

    Example:
        >>> import numpy as np
        >>> corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> manifold = KNNManifold.fit(corners, k=1)
        >>> manifold.contains(np.array([[0.5, 0.5], [3.0, 3.0]])).tolist()
        [True, False]
    """

    side: RealManifold

    @classmethod
    def fit(
        cls, features: Features, *, k: int = 3, ties: Ties = "closed", device: str | torch.device = "auto"
    ) -> KNNManifold:
        """Fit to a copy of (n, d) `features`, n > k. Arguments and errors are those of `manifold_metrics`."""
        k = check_k(k)
        check_ties(ties)
        checked = copy_of(check_features(features, "features"))
        check_rows(checked, "features", k=k)
        return cls(RealManifold.of(checked.to(choose_device(features, device)), (Ball(k),), ties=ties))

    def __len__(self) -> int:
        return len(self.side.points)

    @property
    def k(self) -> int:
        """Neighbors that set a ball's radius."""
        return self.side.balls[0].k

    @property
    def ties(self) -> Ties:
        """Whether a point on the sphere is inside: "closed" yes, "strict" no."""
        return self.side.ties

    @property
    def features(self) -> Tensor:
        """The centers of the balls, (n, d) float32, or float16 if they came so and are many."""
        return self.side.points.features

    @property
    def sq_radii(self) -> Tensor:
        """Squared radii of the balls, (n,) float64."""
        return self.side.sq_radii[0]

    @property
    def radii(self) -> Tensor:
        """Radii of the balls, (n,) float64. Membership is decided on their squares."""
        return self.sq_radii.sqrt()

    def count(self, queries: Features) -> Tensor:
        """How many balls contain each of the (m, d) `queries`: (m,) int64."""
        side, points = self.side, self._placed(queries)
        counts = cross_counts(
            side.points, points, real_sq_radii=side.sq_radii, ties=self.ties, engine=side.engine
        )
        return counts.real_balls_per_fake[0]

    def contains(self, queries: Features) -> Tensor:
        """Which of the (m, d) `queries` lie in at least one ball: (m,) bool."""
        return self.count(queries) > 0

    def realism(self, queries: Features) -> Tensor:
        """Realism of each of the (m, d) `queries` (Kynkäänniemi et al. 2019): (m,) float64, 1 or more inside.

        The largest ratio of a ball's radius to the distance from its center, over the balls up to the median radius.
        """
        points = self._placed(queries)
        return realism_of(self.side.points, self.sq_radii, points, engine=self.side.engine)

    def rarity(self, queries: Features) -> Rarity:
        """How uncommon each of the (m, d) `queries` is (Han et al. 2022): the smallest ball that contains it.

        Score and percentile among all radii, each (m,) float64, NaN where no ball contains the query.
        """
        counts = cross_counts(
            self.side.points,
            self._placed(queries),
            real_sq_radii=self.side.sq_radii,
            smallest_of=0,
            ties=self.ties,
            engine=self.side.engine,
        )
        assert counts.smallest_real_ball is not None
        return rarity(counts.smallest_real_ball.sqrt(), self.radii)

    def _placed(self, queries: Features) -> Placed:
        checked = check_features(queries, "queries").to(self.features.device)
        check_same_width(self.features, checked, names=("the manifold", "queries"))
        return self.side.points.beside(checked)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write features and radii to `path` (safetensors with a checksum inside).

        Raises:
            OSError: The path cannot be written.
        """
        tensors = {"features": self.features, "sq_radii": self.sq_radii}
        facts = {"format": _FORMAT, "k": self.k, "ties": self.ties}
        save_tensors(Path(path), tensors, {name: json.dumps(fact) for name, fact in facts.items()})

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> KNNManifold:
        """Read what `save` wrote; no neighbors are searched again.

        Raises:
            DataError: The file is damaged ("file-damaged") or holds something else ("not-a-manifold").
        """
        if read_metadata(Path(path)).get("format") != json.dumps(_FORMAT):
            raise DataError(
                f"{path} is not a manifold that KNNManifold.save wrote; is it a file of plain features?",
                code="not-a-manifold",
                path=str(path),
            )
        tensors, metadata = load_tensors(Path(path))
        try:
            features, sq_radii, k, ties = _checked(tensors, metadata)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} holds no manifold although its checksum is right ({type(error).__name__}: {error}); was it made "
                "by another program?",
                code="not-a-manifold",
                path=str(path),
            ) from error
        where = resolve_device(device)
        points = Placed.of(features.to(where), k)
        return cls(RealManifold(points, (Ball(k),), sq_radii.to(where)[None], ties, choose_engine(where)))


def _checked(tensors: dict[str, Tensor], metadata: dict[str, str]) -> tuple[Tensor, Tensor, int, Ties]:
    """Features, squared radii, k and ties that `save` wrote; or an error, of anything else."""
    k, ties = check_k(parse_json(metadata["k"])), parse_json(metadata["ties"])
    check_ties(ties)
    features, sq_radii = check_features(tensors["features"], "features"), tensors["sq_radii"]
    check_rows(features, "features", k=k)
    has_radii = (sq_radii.shape, sq_radii.dtype) == ((len(features),), torch.float64)
    if not (has_radii and (sq_radii >= 0).all()):
        raise ValueError("it has no radius for each of its features")
    return features, sq_radii, k, ties
