"""Realism, rarity, C_T and authenticity: hand-computed values, and the definition on all pairs."""

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from scipy import stats
from search_cases import place

import genpr
from genpr.errors import FeatureError
from genpr.metrics.manifold import KNNManifold
from genpr.metrics.realism import authentic, ct_z, mann_whitney_z, rarity, realism_of
from genpr.neighbors.engine import Engine


def realism(real, fake, k: int = 3) -> torch.Tensor:
    return KNNManifold.fit(real, k=k).realism(fake)


def by_definition(real: np.ndarray, fake: np.ndarray, k: int) -> np.ndarray:
    sq_radii = oracle.kth_sq_distances(real, [k])[0]
    sq = oracle.sq_distances(real, fake)
    kept = np.sqrt(sq_radii) <= np.median(np.sqrt(sq_radii))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(sq == 0, np.inf, np.sqrt(sq_radii[:, None]) / np.sqrt(sq))
    return ratios[kept].max(axis=0)


def test_realism_of_a_copy_is_infinite():
    real = np.array([[0.0], [0], [1], [1.5], [9]])  # the balls of the twins have radius 0
    assert realism(real, np.array([[0.0], [0.5]]), k=1).tolist() == [np.inf, 1]
    assert realism(np.zeros((3, 2)), np.array([[0.0, 0], [1, 0]]), k=1).tolist() == [np.inf, 0]


@pytest.mark.parametrize("case", feature_cases.names())
def test_every_case_equals_the_definition(case):
    real, fake = feature_cases.make(case)
    np.testing.assert_allclose(realism(real, fake).numpy(), by_definition(real, fake, 3), rtol=1e-14)


def test_square_roots_are_correctly_rounded(rng):
    real, fake = rng.normal(5, 0.05, size=(2, 500, 8)).astype(np.float32)
    sq_radii = oracle.kth_sq_distances(real, [3])[0]
    kept = sq_radii <= np.median(sq_radii)
    ratios = sq_radii[:, None] / oracle.sq_distances(real, fake)
    assert np.array_equal(realism(real, fake).numpy(), np.sqrt(ratios[kept].max(axis=0)))


@pytest.mark.parametrize("tiles", [(13, 40), (64, 9)])
@pytest.mark.parametrize("case", ["near_duplicates", "outlier_in_both", "as_wide_as_inception"])
def test_tiles_and_frames_do_not_change_results(case, tiles):
    real, fake = feature_cases.make(case)
    sq_radii = torch.from_numpy(oracle.kth_sq_distances(real, [3])[0])
    for kind in ("all coordinates", "principal directions"):
        updates: list[int] = []
        sets = place(real, fake, kind=kind)
        found = realism_of(sets[0], sq_radii, sets[1], engine=Engine(*tiles), advance=updates.append)
        assert torch.equal(found, realism(real, fake))
        assert sum(updates) == len(real) * len(fake)


def test_rarity_is_undefined_outside_and_ranked_inside():
    found = rarity(torch.tensor([1.0, torch.inf, 2.5, torch.nan, 4, 0.5]), torch.tensor([4.0, 1, 2, 1]))
    assert found.score.tolist() == pytest.approx([1, np.nan, 2.5, np.nan, 4, 0.5], nan_ok=True)
    assert found.percentile.tolist() == pytest.approx([50, np.nan, 75, np.nan, 100, 0], nan_ok=True)


@pytest.mark.parametrize("ties", ["closed", "strict"])
def test_manifold_gives_realism_and_rarity_of_queries(ties):
    manifold = KNNManifold.fit(np.array([[0.0], [1.0], [3.0], [7.0]]), k=1, ties=ties)
    queries = np.array([[0.5], [2.0], [10.0], [20.0]])
    assert manifold.realism(queries[:3]).tolist() == pytest.approx([2, 1, 1 / 9])
    expected = [1, 1, 4, np.nan] if ties == "closed" else [1, 2, 4, np.nan]
    found = manifold.rarity(queries)
    np.testing.assert_array_equal(found.score, expected)
    percent = [50, 50, 100, np.nan] if ties == "closed" else [50, 75, 100, np.nan]
    np.testing.assert_array_equal(found.percentile, percent)


def z_by_scipy(fake: np.ndarray, held_out: np.ndarray) -> float:
    """z from the two-sided p value, with the sign from the statistic."""
    test = stats.mannwhitneyu(fake, held_out, use_continuity=False, method="asymptotic")
    z = -stats.norm.ppf(test.pvalue / 2)
    return z if test.statistic > len(fake) * len(held_out) / 2 else -z


@pytest.mark.parametrize("levels", [3, 20, 10**6])
@pytest.mark.parametrize("sizes", [(30, 30), (50, 20), (9, 40)])
def test_z_equals_the_statistic_of_scipy(sizes, levels, rng):
    fake, held_out = (rng.integers(0, levels, n).astype(float) for n in sizes)
    assert mann_whitney_z(fake, held_out) == pytest.approx(z_by_scipy(fake, held_out), rel=1e-9)
    assert mann_whitney_z(held_out, fake) == pytest.approx(-mann_whitney_z(fake, held_out), rel=1e-9)


def test_z_of_tied_distances_is_zero():
    assert mann_whitney_z(np.ones(5), np.ones(4)) == 0


def test_c_t_compares_distances_to_the_nearest_training_row(rng):
    train, held_out, fake = (rng.normal(size=(n, 5)).astype(np.float32) for n in (120, 70, 90))
    to_train = [oracle.sq_distances(features, train).min(axis=1) for features in (fake, held_out)]
    found = ct_z(train, held_out, fake)
    assert found == pytest.approx(z_by_scipy(*to_train), rel=1e-9)
    assert genpr.score(train, fake, held_out=held_out, metrics=["c_t"], control=False)["c_t"] == found
    with pytest.raises(FeatureError, match="train has 5 features per image but held_out has 1"):
        ct_z(train, held_out[:, :1], fake)


def test_authenticity_uses_the_ball_of_the_nearest_real():
    # Reals 0, 1, 5: nearest other reals at 1, 1, 4. The fake 1.9 is .9 from its nearest, 2.5 is 1.5, 8 is 3.
    index, sq = torch.tensor([1, 1, 2, 1]), torch.tensor([0.9, 1.5, 3, 1]).square()
    assert authentic(index, sq, torch.tensor([1.0, 1, 16])).tolist() == [False, True, False, False]
