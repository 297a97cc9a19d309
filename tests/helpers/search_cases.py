"""Projections of every kind for small data (genpr uses directions and clusters for thousands of rows only), and engines."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace

import feature_cases
import numpy as np
import oracle
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.neighbors.balls import BallKind
from genpr.neighbors.coordinates import Coordinates
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.engine import ENGINE, Engine
from genpr.neighbors.index import IndexedPoints, Projection

ENGINES = {
    "sweep in tiles of 64 x 50": Engine(64, 50, plan="sweep"),
    "default": ENGINE,
    "tiles of 7 x 64": Engine(7, 64),
    "all pairs in tiles of 64 x 7": Engine(64, 7, plan="all pairs"),
    "sweep in one tile": Engine(1024, 1024, plan="sweep"),
    "all pairs in one tile": Engine(1024, 1024, plan="all pairs"),
    "sweep in tiles of 64 x 7": Engine(64, 7, plan="sweep"),
}
_MOST_DIRECTIONS = 200


def with_basis(projection: Projection, basis: Tensor | None) -> Projection:
    width = len(projection.center) if basis is None else basis.shape[1] + 1
    return replace(projection, basis=basis, centers=torch.empty(0, width, dtype=torch.float64))


def with_clusters(projection: Projection, features: Tensor, count: int = 5) -> Projection:
    """Add clusters around evenly chosen rows."""
    some = projection.place(features[:: -(-len(features) // count)])
    return replace(projection, centers=some.coordinates.values.double())


def is_beyond(coordinates: Coordinates) -> Tensor:
    """Rows that the projection cannot represent, (n,) bool."""
    return coordinates.slack.isinf()


def augmented(coordinates: Coordinates) -> tuple[Tensor, Tensor]:
    """Rows and columns whose inner products are keys, (n, w + 2) each."""
    values, floors = coordinates.values.float(), -coordinates.half_floors[:, None]
    return torch.cat([values, floors, torch.ones_like(floors)], dim=1), torch.cat(
        [values, torch.ones_like(floors), floors], dim=1
    )


def residual_of(coordinates: Coordinates) -> Tensor:
    return torch.zeros_like(coordinates.slack) if coordinates.residual is None else coordinates.residual


def random_directions(d: int, count: int) -> Tensor:
    count = max(1, min(count, d, _MOST_DIRECTIONS))
    return torch.linalg.qr(torch.from_numpy(np.random.default_rng(3).normal(size=(d, count)))).Q


def principal_directions(projection: Projection, features: Tensor, count: int) -> Tensor:
    moved = (features.double() - projection.center) * projection.scale
    return torch.linalg.svd(moved, full_matrices=False).Vh[:count].T.contiguous()


def _in_directions(count_of: Callable[[int], int]) -> Callable[[Projection, Tensor], Projection]:
    return lambda projection, x: with_basis(projection, random_directions(x.shape[1], count_of(x.shape[1])))


def _principal(projection: Projection, features: Tensor) -> Projection:
    return with_basis(projection, principal_directions(projection, features, 3))


KINDS: dict[str, Callable[[Projection, Tensor], Projection]] = {
    "all coordinates": lambda projection, _: projection,
    "one direction": _in_directions(lambda _: 1),
    "three directions": _in_directions(lambda _: 3),
    "nearly all directions": _in_directions(lambda d: d - 1),
    "principal directions": _principal,
    "clusters": with_clusters,
    "principal directions and clusters": lambda projection, x: with_clusters(_principal(projection, x), x),
    "rounded to float16": lambda projection, _: replace(projection, rounding=torch.float16),
    "rounded to float32": lambda projection, _: replace(projection, rounding=torch.float32),
}


def projection_of(features: Tensor, kind: str = "all coordinates") -> Projection:
    return KINDS[kind](Projection.around(features), features)


def place(*sets: NDArray | Tensor, kind: str = "all coordinates") -> list[IndexedPoints]:
    """All sets in a projection of the first."""
    tensors = [torch.as_tensor(features) for features in sets]
    projection = projection_of(tensors[0], kind)
    return [projection.place(features) for features in tensors]


def all_pairs(n: int, m: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n).repeat_interleave(m), torch.arange(m).repeat(n)


def sq_distances(x: NDArray | Tensor, y: NDArray | Tensor) -> Tensor:
    return torch.from_numpy(oracle.sq_distances(np.asarray(x), np.asarray(y)))


def sq_radii(points: IndexedPoints, ks: list[int], *, engine: Engine = ENGINE) -> Tensor:
    """Squared radii of k-NN balls, (len(ks), n), as a search finds them."""
    return Neighborhood.from_points(points, [BallKind(k) for k in ks], engine=engine).sq_radii


class Truth:
    """Values of the oracle for a case, each computed once."""

    def __init__(self, case: str) -> None:
        self.real, self.fake = feature_cases.make(case)
        self.sq = oracle.sq_distances(self.real, self.fake)
        every = (list(range(1, len(features))) for features in (self.real, self.fake))
        self._sorted = [*map(oracle.kth_sq_distances, (self.real, self.fake), every)]

    def real_sq_radii(self, ks: list[int]) -> NDArray:
        return self._sorted[0][[k - 1 for k in ks]]

    def fake_sq_radii(self, ks: list[int]) -> NDArray:
        return self._sorted[1][[k - 1 for k in ks]]


@functools.cache
def truth(case: str) -> Truth:
    return Truth(case)


SEARCH_KINDS = [
    *("all coordinates", "three directions", "rounded to float16", "rounded to float32", "clusters"),
    "principal directions and clusters",
]


def combinations(turn: int) -> list[tuple[str, str, str]]:
    """Every case in two kinds of projection, the last one and another in rotation, with engines in rotation."""
    *others, last = SEARCH_KINDS
    engines = itertools.cycle(ENGINES)
    return [
        (case, kind, next(engines))
        for place, case in enumerate(feature_cases.names(), start=turn)
        for kind in (others[place % len(others)], last)
    ]
