"""The k-NN manifold of one set of features: fit once, ask many times, keep on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from genpr.errors import DataError
from genpr.limits import parse_json
from genpr.memory import copy_of
from genpr.metrics.real_manifold import RealManifold, choose_engine
from genpr.metrics.realism import Rarity, rarity, realism_of
from genpr.neighbors import integers
from genpr.neighbors.balls import Ball, Ties
from genpr.neighbors.counts import cross_counts
from genpr.neighbors.index import Frame, Placed
from genpr.runtime import resolve_device
from genpr.storage import from_dict, load_tensors, read_metadata, save_tensors
from genpr.validation import (
    Features,
    check_features,
    check_k,
    check_rows,
    check_same_width,
    check_ties,
    choose_device,
)

_FORMAT = "genpr.manifold.2"


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
        """Write features, radii and what the search keeps to `path` (safetensors with a checksum inside).

        Raises:
            OSError: The path cannot be written.
        """
        points = self.side.points
        frame = points.frame
        tensors = {"features": points.features, "sq_radii": self.sq_radii}
        tensors |= {f"view.{name}": tensor for name, tensor in points.view.tensors().items()}
        tensors |= {f"frame.{name}": tensor for name, tensor in frame.tensors().items()}
        facts = {"format": _FORMAT, "k": self.k, "ties": self.ties, "frame": frame.numbers()}
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
        where = resolve_device(device)
        try:
            found = cls._restored(tensors, metadata, where)
            found.count(
                found.features[:1].cpu()
            )  # what is no manifold fails here, and not in the middle of a search
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AssertionError) as error:
            raise DataError(
                f"{path} holds no manifold although its checksum is right ({type(error).__name__}: {error}); was it made "
                "by another program?",
                code="not-a-manifold",
                path=str(path),
            ) from error
        return found

    @classmethod
    def _restored(
        cls, tensors: dict[str, Tensor], metadata: dict[str, str], where: torch.device
    ) -> KNNManifold:
        """What `save` wrote; or any error, of anything else."""
        at = {name: tensor.to(where) for name, tensor in tensors.items()}
        numbers = from_dict(Mapping[str, float], parse_json(metadata["frame"]))
        if not all(0 <= number < 2.0**200 for number in numbers.values()) or numbers["scale"] < 2.0**-200:
            raise ValueError(f"it was seen at the scale {numbers}")
        frame = Frame.restored(_named(at, "frame."), numbers)
        k, ties = check_k(parse_json(metadata["k"])), parse_json(metadata["ties"])
        check_ties(ties)
        features = check_features(at["features"], "features")
        check_rows(features, "features", k=k)
        n, d = features.shape
        if (at["sq_radii"].shape, at["sq_radii"].dtype) != ((n,), torch.float64) or not (
            at["sq_radii"] >= 0
        ).all():
            raise ValueError("it has no radius for each of its features")
        if frame.center.shape != (d,):
            raise ValueError("it was seen from nowhere")
        if frame.grid is not None and not integers.are_available(where):  # saved on another machine
            points = replace(frame, grid=None).place(features)
        else:
            points = Placed.restored(frame, features, _named(at, "view."))
            _check_view(points, frame.place(features[:2]))
            points.cells  # noqa: B018 - centers that do not fit fail here; a direct search would not need them
        return cls(RealManifold(points, (Ball(k),), at["sq_radii"][None], ties, choose_engine(where)))


def _check_view(points: Placed, few: Placed) -> None:
    """Refuse a view of other types, or of other shapes, than the first two rows have."""
    n, m = len(points), len(few)
    alike = few.view.tensors()
    for name, tensor in points.view.tensors().items():
        shape = alike[name].shape if name in alike else tensor.shape
        wanted = tuple(
            n if side == m and found == n else side for side, found in zip(shape, tensor.shape, strict=True)
        )
        if tuple(tensor.shape) != wanted or (name in alike and tensor.dtype != alike[name].dtype):
            raise ValueError(f"its {name} has the shape {tuple(tensor.shape)}")


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
