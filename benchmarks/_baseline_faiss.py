"""Baseline with flat FAISS indexes, without filters or bounds."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import numpy as np
from _cases import Outcome
from numpy.typing import NDArray
from torch import Tensor


def faiss_flat(real: Tensor, fake: Tensor, k: int) -> Outcome:
    """Flat k-NN searches for the radii, then one inner product range search per kind of ball.

    With c' = (2c, r^2 - |c|^2, 1) and y' = (y, 1, -|y|^2), y lies in the ball around c exactly when <c', y'> >= 0.
    """
    phases: dict[str, float] = {}
    with _timed(phases, "center"):
        mean = real.mean(dim=0)
        x, y = (real - mean).numpy(), (fake - mean).numpy()
    with _timed(phases, "knn_real"):
        real_sq_radii = _faiss_sq_radii(x, k)
    with _timed(phases, "knn_fake"):
        fake_sq_radii = _faiss_sq_radii(y, k)
    with _timed(phases, "range_real"):
        fakes_per_ball, inside_real = _faiss_range_search(x, real_sq_radii, y)
    with _timed(phases, "range_fake"):
        _, inside_fake = _faiss_range_search(y, fake_sq_radii, x)
    phases["without_range_fake"] = sum(phases.values()) - phases["range_fake"]
    values = {
        "precision": float(inside_real.mean()),
        "recall": float(inside_fake.mean()),
        "density": float(fakes_per_ball.sum() / (k * len(y))),
        "coverage": float((fakes_per_ball > 0).mean()),
    }
    return Outcome(values, phases)


def _faiss_sq_radii(points: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Squared distance from each row to its k-th nearest other row."""
    faiss = importlib.import_module("faiss")
    sq_distances, index = faiss.knn(points, points, k + 1)
    is_self = index == np.arange(len(points))[:, None]
    is_self[:, -1] |= ~is_self.any(
        axis=1
    )  # the row itself is missing if it has more than k copies: drop the farthest
    others = sq_distances[~is_self].reshape(len(points), k)
    sq_radii: NDArray[np.float32] = others.max(axis=1)
    return sq_radii


def _faiss_range_search(
    centers: NDArray[np.float32], sq_radii: NDArray[np.float32], points: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the number of points in each ball, and whether each point lies in a ball."""
    faiss = importlib.import_module("faiss")
    d = points.shape[1]
    balls = np.empty((len(centers), d + 2), dtype=np.float32)
    np.multiply(centers, 2, out=balls[:, :d])
    balls[:, d] = sq_radii - np.einsum("ij,ij->i", centers, centers)
    balls[:, d + 1] = 1
    augmented = np.empty((len(points), d + 2), dtype=np.float32)
    augmented[:, :d] = points
    augmented[:, d] = 1
    augmented[:, d + 1] = -np.einsum("ij,ij->i", points, points)
    index = faiss.IndexFlatIP(d + 2)
    index.add(augmented)
    del augmented  # the index has its own copy
    limits, _, found = index.range_search(
        balls, -np.finfo(np.float32).tiny
    )  # it returns values strictly above
    inside = np.zeros(len(points), dtype=np.bool_)
    inside[found] = True
    return np.diff(limits.astype(np.int64)), inside


@contextmanager
def _timed(phases: dict[str, float], name: str) -> Iterator[None]:
    start = perf_counter()
    yield
    phases[name] = perf_counter() - start
