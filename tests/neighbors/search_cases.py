"""Frames of every kind for small data (genpr uses directions and cells for thousands of rows only), and engines."""

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

from genpr.neighbors.balls import Ball
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.engine import ONE_PROCESS, Engine
from genpr.neighbors.index import Frame, IndexedPoints, View

ENGINES = {
    "tiles of 64 x 50": Engine(64, 50),
    "default": ONE_PROCESS,
    "tiles of 7 x 64": Engine(7, 64),
    "tiles of 64 x 7": Engine(64, 7),
    "one tile": Engine(1024, 1024),
}
_MOST_DIRECTIONS = 200


def with_basis(frame: Frame, basis: Tensor | None) -> Frame:
    width = len(frame.center) if basis is None else basis.shape[1] + 1
    return replace(frame, basis=basis, centers=torch.empty(0, width, dtype=torch.float64))


def with_cells(frame: Frame, features: Tensor, count: int = 5) -> Frame:
    """Add cells around evenly chosen rows."""
    some = frame.place(features[:: -(-len(features) // count)])
    return replace(frame, centers=some.view.coordinates.double())


def is_beyond(view: View) -> Tensor:
    """Rows that the frame cannot represent, (n,) bool."""
    return view.slack.isinf()


def random_directions(d: int, count: int) -> Tensor:
    count = max(1, min(count, d, _MOST_DIRECTIONS))
    return torch.linalg.qr(torch.from_numpy(np.random.default_rng(3).normal(size=(d, count)))).Q


def principal_directions(frame: Frame, features: Tensor, count: int) -> Tensor:
    moved = (features.double() - frame.center) * frame.scale
    return torch.linalg.svd(moved, full_matrices=False).Vh[:count].T.contiguous()


def _in_directions(count_of: Callable[[int], int]) -> Callable[[Frame, Tensor], Frame]:
    return lambda frame, x: with_basis(frame, random_directions(x.shape[1], count_of(x.shape[1])))


def _principal(frame: Frame, features: Tensor) -> Frame:
    return with_basis(frame, principal_directions(frame, features, 3))


KINDS: dict[str, Callable[[Frame, Tensor], Frame]] = {
    "all coordinates": lambda frame, _: frame,
    "one direction": _in_directions(lambda _: 1),
    "three directions": _in_directions(lambda _: 3),
    "nearly all directions": _in_directions(lambda d: d - 1),
    "principal directions": _principal,
    "cells": with_cells,
    "principal directions and cells": lambda frame, x: with_cells(_principal(frame, x), x),
    "float16 codes": lambda frame, _: replace(frame, codes=torch.float16),
    "float32 codes": lambda frame, _: replace(frame, codes=torch.float32),
}


def frame_of(features: Tensor, kind: str = "all coordinates") -> Frame:
    return KINDS[kind](Frame.around(features), features)


def place(*sets: NDArray | Tensor, kind: str = "all coordinates") -> list[IndexedPoints]:
    """All sets in a frame of the first."""
    tensors = [torch.as_tensor(features) for features in sets]
    frame = frame_of(tensors[0], kind)
    return [frame.place(features) for features in tensors]


def all_pairs(n: int, m: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n).repeat_interleave(m), torch.arange(m).repeat(n)


def sq_distances(x: NDArray | Tensor, y: NDArray | Tensor) -> Tensor:
    return torch.from_numpy(oracle.sq_distances(np.asarray(x), np.asarray(y)))


def sq_radii(points: IndexedPoints, ks: list[int], *, engine: Engine = ONE_PROCESS) -> Tensor:
    """Squared radii of k-NN balls, (len(ks), n), as a search finds them."""
    return Neighborhood.from_points(points, [Ball(k) for k in ks], engine=engine).sq_radii


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
    *("all coordinates", "three directions", "float16 codes", "float32 codes", "cells"),
    "principal directions and cells",
]


def combinations(turn: int) -> list[tuple[str, str, str]]:
    """Every case in two kinds of frame, the last one and another in rotation, with engines in rotation."""
    *others, last = SEARCH_KINDS
    engines = itertools.cycle(ENGINES)
    return [
        (case, kind, next(engines))
        for place, case in enumerate(feature_cases.names(), start=turn)
        for kind in (others[place % len(others)], last)
    ]
