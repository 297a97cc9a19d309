"""Realism and rarity: hand computed, and against every pair by the definition."""

from __future__ import annotations

from dataclasses import replace

import feature_cases
import numpy as np
import oracle
import pytest
import torch

from genpr.metrics import realism as module
from genpr.metrics.manifold import KNNManifold
from genpr.metrics.realism import rarity, realism_of
from genpr.neighbors.engine import Engine
from genpr.neighbors.index import Frame, choose_frame
from genpr.neighbors.nearest import kth_sq_distances


def realism(real, fake, k: int = 3) -> torch.Tensor:
    return KNNManifold.fit(real, k=k).realism(fake)


def by_definition(real: np.ndarray, fake: np.ndarray, k: int) -> np.ndarray:
    sq_radii = oracle.kth_sq_distances(real, [k])[0]
    sq = oracle.sq_distances(real, fake)
    kept = np.sqrt(sq_radii) <= np.median(np.sqrt(sq_radii))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(sq == 0, np.inf, np.sqrt(sq_radii[:, None]) / np.sqrt(sq))
    return ratios[kept].max(axis=0)


def test_a_copy_of_a_real_is_infinitely_realistic():
    real = np.array([[0.0], [0], [1], [1.5], [9]])  # the balls of the twins have radius 0
    assert realism(real, np.array([[0.0], [0.5]]), k=1).tolist() == [np.inf, 1]
    assert realism(np.zeros((3, 2)), np.array([[0.0, 0], [1, 0]]), k=1).tolist() == [np.inf, 0]


@pytest.mark.parametrize("case", feature_cases.names())
def test_every_case_is_the_definitions(case):
    real, fake = feature_cases.make(case)
    np.testing.assert_allclose(realism(real, fake).numpy(), by_definition(real, fake, 3), rtol=1e-14)


@pytest.mark.parametrize("tiles", [(7, 5), (64, 9), (1000, 1000)])
@pytest.mark.parametrize("case", ["near_duplicates", "outlier_in_both", "off_center"])
def test_tiles_change_no_bit(case, tiles):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    points = Frame.around(real).place(real)
    sq_radii = kth_sq_distances(points, [3])[0]
    told: list[int] = []
    found = realism_of(points, sq_radii, points.frame.place(fake), engine=Engine(*tiles), advance=told.append)
    assert torch.equal(found, realism(real, fake))
    assert sum(told) == len(real) * len(fake)


def in_three_directions(frame: Frame, features: torch.Tensor) -> Frame:
    basis = torch.linalg.svd(features.double() - frame.center, full_matrices=False).Vh[:3].T.contiguous()
    return replace(frame, basis=basis, centers=torch.empty(0, 4, dtype=torch.float64))


@pytest.mark.parametrize("case", ["near_duplicates", "outlier_in_both", "off_center", "as_wide_as_inception"])
def test_frames_change_no_bit(case):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    frame = in_three_directions(Frame.around(real), real)
    points = frame.place(real)
    found = realism_of(points, kth_sq_distances(points, [3])[0], frame.place(fake), engine=Engine(50, 40))
    assert torch.equal(found, realism(real, fake))


def test_in_a_chosen_frame_few_distances_are_computed(rng, monkeypatch):
    basis = rng.normal(size=(6, 256))
    real, fake = (
        torch.from_numpy(rng.normal(size=(n, 6)) @ basis + 0.01 * rng.normal(size=(n, 256))).float()
        for n in (3000, 100)
    )
    frame = choose_frame(real, 3)
    assert frame.basis is not None
    points = frame.place(real)
    counts = []
    definition = module.sq_distances_at
    monkeypatch.setattr(module, "sq_distances_at", lambda *a: (counts.append(len(a[2])), definition(*a))[1])
    sq_radii = kth_sq_distances(points, [3])[0]
    found = realism_of(points, sq_radii, frame.place(fake))
    kept = sq_radii <= sq_radii.quantile(0.5)
    sq = oracle.sq_distances(real[kept].numpy(), fake.numpy())
    assert found.numpy() == pytest.approx(
        np.sqrt((sq_radii[kept].numpy()[:, None] / sq).max(axis=0)), rel=1e-14
    )
    assert 100 <= sum(counts) < 1.3 * 100


def test_realism_is_at_least_1_exactly_inside_the_pruned_manifold(rng):
    real, fake = rng.normal(size=(300, 8)).astype(np.float32), rng.normal(size=(200, 8)).astype(np.float32)
    sq_radii = oracle.kth_sq_distances(real, [3])[0]
    kept = sq_radii <= np.median(sq_radii)
    inside = (oracle.sq_distances(real, fake)[kept] <= sq_radii[kept][:, None]).any(axis=0)
    assert 20 < inside.sum() < 180
    assert (realism(real, fake) >= 1).tolist() == inside.tolist()


def test_rarity_is_undefined_outside_and_ranked_inside():
    found = rarity(torch.tensor([1.0, torch.inf, 2.5, torch.nan, 4, 0.5]), torch.tensor([4.0, 1, 2, 1]))
    assert found.score.tolist() == pytest.approx([1, np.nan, 2.5, np.nan, 4, 0.5], nan_ok=True)
    assert found.percentile.tolist() == pytest.approx([50, np.nan, 75, np.nan, 100, 0], nan_ok=True)


@pytest.mark.parametrize("ties", ["closed", "strict"])
def test_a_manifold_tells_realism_and_rarity_of_queries(ties):
    manifold = KNNManifold.fit(np.array([[0.0], [1.0], [3.0], [7.0]]), k=1, ties=ties)
    queries = np.array([[0.5], [2.0], [10.0], [20.0]])
    assert manifold.realism(queries[:3]).tolist() == pytest.approx([2, 1, 1 / 9])
    expected = [1, 1, 4, np.nan] if ties == "closed" else [1, 2, 4, np.nan]
    found = manifold.rarity(queries)
    np.testing.assert_array_equal(found.score, expected)
    percent = [50, 50, 100, np.nan] if ties == "closed" else [50, 75, 100, np.nan]
    np.testing.assert_array_equal(found.percentile, percent)
