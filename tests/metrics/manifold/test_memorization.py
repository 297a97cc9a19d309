"""C_T and authenticity: against their definitions, under the null, and with planted copies."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
import torch
from scipy import stats

import genpr
from genpr.errors import FeatureError, UsageError
from genpr.metrics import memorization
from genpr.metrics.memorization import authentic, ct_score, ct_z, mann_whitney_z
from genpr.neighbors.index import Frame
from genpr.neighbors.nearest import kth_sq_distances, nearest_between


def z_by_scipy(fake: np.ndarray, held_out: np.ndarray) -> float:
    """From the two-sided p value, and the side from the statistic."""
    test = stats.mannwhitneyu(fake, held_out, use_continuity=False, method="asymptotic")
    z = -stats.norm.ppf(test.pvalue / 2)
    return z if test.statistic > len(fake) * len(held_out) / 2 else -z


@pytest.mark.parametrize("levels", [3, 20, 10**6])
@pytest.mark.parametrize("sizes", [(30, 30), (50, 20), (9, 40)])
def test_z_is_the_statistic_of_scipy(sizes, levels, rng):
    fake, held_out = (rng.integers(0, levels, n).astype(float) for n in sizes)
    assert mann_whitney_z(fake, held_out) == pytest.approx(z_by_scipy(fake, held_out), rel=1e-9)
    assert mann_whitney_z(held_out, fake) == pytest.approx(-mann_whitney_z(fake, held_out), rel=1e-9)


def test_all_tied_is_no_evidence():
    assert mann_whitney_z(np.ones(5), np.ones(4)) == 0


def test_the_score_is_that_of_distances_to_the_nearest_training_row(rng):
    train, held_out, fake = (rng.normal(size=(n, 5)).astype(np.float32) for n in (120, 70, 90))
    to_train = [oracle.sq_distances(features, train).min(axis=1) for features in (fake, held_out)]
    found = ct_score(train, held_out, fake, cells=1)
    assert found.z == pytest.approx(z_by_scipy(*to_train), rel=1e-9)
    assert found.weighted == found.z == found.cells[0].z


def modes(rng, counts, width=6):
    """Far apart, so that the clusters are known."""
    places = 40 * np.eye(len(counts), width)
    return [place + rng.normal(size=(n, width)) for place, n in zip(places, counts, strict=True)]


def test_cells_and_their_weights(rng):
    train, held_out, fake = modes(rng, (200, 150, 100)), modes(rng, (50, 120, 80)), modes(rng, (90, 20, 60))
    fake[0] = train[0][:90] + 1e-3
    found = ct_score(*(np.concatenate(features).astype(np.float32) for features in (train, held_out, fake)))
    assert [(cell.n_train, cell.n_held_out, cell.n_fake) for cell in found.cells] == [
        (200, 50, 90),
        (150, 120, 20),
        (100, 80, 60),
    ]
    for cell, *parts in zip(found.cells, train, held_out, fake, strict=True):
        of_train, of_held_out, of_fake = (part.astype(np.float32) for part in parts)
        to_train = [oracle.sq_distances(rows, of_train).min(axis=1) for rows in (of_fake, of_held_out)]
        assert cell.z == pytest.approx(z_by_scipy(*to_train), rel=1e-9)
    copied, few, fine = (cell.z for cell in found.cells)
    assert copied < -9
    assert abs(few) < 4
    assert abs(fine) < 4
    assert found.weighted == pytest.approx((50 * copied + 80 * fine) / 130, rel=1e-12)  # 20 fakes say nothing


def test_a_cell_without_held_out_images_has_no_weight(rng):
    train, held_out, fake = modes(rng, (80, 60)), modes(rng, (40, 0)), modes(rng, (30, 30))
    found = ct_score(*(np.concatenate(features) for features in (train, held_out, fake)), cells=2)
    assert math.isnan(found.cells[1].z)
    assert found.weighted == found.cells[0].z


@pytest.mark.parametrize(
    ("dimensions", "draws"),
    [
        (None, 20),
        pytest.param(None, 300, marks=pytest.mark.slow),
        pytest.param(3, 300, marks=pytest.mark.slow),
    ],
)
def test_under_the_null_z_is_standard_normal(dimensions, draws):
    rng = np.random.default_rng(5)
    scores = [
        ct_score(*rng.normal(size=(3, 90, 4)).astype(np.float32), dimensions=dimensions) for _ in range(draws)
    ]
    z = np.array([score.z for score in scores])
    assert abs(z.mean()) < 3 / math.sqrt(draws)
    assert stats.kstest(z, "norm").pvalue > 0.01
    of_cells = np.array([cell.z for score in scores for cell in score.cells])
    assert of_cells.std() == pytest.approx(1, abs=4 / math.sqrt(2 * len(of_cells)))
    assert np.array([score.weighted for score in scores]).std() < 0.8


@pytest.mark.parametrize("dimensions", [None, 8])
def test_copies_and_underfits_are_told_apart(dimensions, rng):
    train, held_out = rng.normal(size=(2, 300, 32)).astype(np.float32)
    noisy = train + 0.05 * rng.normal(size=train.shape)
    underfit = 1.6 * rng.normal(size=(300, 32))
    for fake, side in ((noisy, -1), (train[::-1], -1), (underfit, 1)):
        found = ct_score(train, held_out, fake, dimensions=dimensions)
        assert side * found.z > 8
        assert side * found.weighted > 5


def test_copies_in_one_place_and_noise_in_another_cancel_over_all_but_not_within_cells(rng):
    train, held_out = (np.concatenate(modes(rng, (150, 150))) for _ in range(2))
    fake = np.concatenate([train[:150], train[150:] + 5 * rng.normal(size=(150, 6))])
    found = ct_score(train, held_out, fake, cells=2)
    assert abs(found.z) < 3
    assert {cell.z < -8 for cell in found.cells} == {True, False}


def test_clusters_depend_on_the_seed_alone(rng):
    sets = rng.normal(size=(3, 200, 4))
    assert ct_score(*sets) == ct_score(*sets)
    assert ct_score(*sets).cells != ct_score(*sets, seed=3).cells
    assert ct_score(*sets).z == ct_score(*sets, seed=3).z


def test_the_test_over_all_needs_no_cells(rng, monkeypatch):
    sets = [rng.normal(size=(n, 4)) for n in (120, 70, 90)]
    expected = ct_score(*sets).z
    monkeypatch.setattr(memorization, "_clustered", lambda *_: pytest.fail("clustered"))
    assert ct_z(*sets) == expected
    assert genpr.score(sets[0], sets[2], held_out=sets[1], metrics=["c_t"], control=False)["c_t"] == expected
    with pytest.raises(FeatureError, match="train has 4 features per image but held_out has 1"):
        ct_z(sets[0], sets[1][:, :1], sets[2])


def test_fewer_different_rows_than_cells():
    train = np.array([[0.0], [0], [1], [1]])
    found = ct_score(train, train[:3], train, cells=3)
    assert [(cell.n_train, cell.n_held_out, cell.n_fake, cell.z) for cell in found.cells] == [
        (2, 2, 2, 0),
        (2, 1, 2, 0),
    ]
    assert math.isnan(found.weighted)
    one = ct_score(np.array([[0.0], [9]]), np.array([[0.5], [0.4]]), np.full((30, 1), 9.2), cells=2)
    assert sorted(math.isnan(cell.z) for cell in one.cells) == [True, True]


def test_impossible_input_is_refused(rng):
    train = rng.normal(size=(9, 2))
    for option in ({"cells": 0}, {"seed": -1}, {"dimensions": 3}, {"dimensions": 0}):
        with pytest.raises(UsageError, match=next(iter(option))):
            ct_score(train, train, train, **option)
    with pytest.raises(FeatureError, match="train has 2 features per image but held_out has 1"):
        ct_score(train, train[:, :1], train)
    with pytest.raises(FeatureError, match="fake needs at least 1 row"):
        ct_score(train, train, train[:0])


def test_authentic_looks_at_the_ball_of_the_nearest_real():
    # Reals 0, 1, 5: nearest other reals at 1, 1, 4. The fake 1.9 is .9 from its nearest, 2.5 is 1.5, 8 is 3.
    real, fake = (torch.tensor(values)[:, None] for values in ([0.0, 1, 5], [1.9, 2.5, 8, 2.0]))
    points = Frame.around(real).place(real)
    index, sq = nearest_between(points.frame.place(fake), points, 1)
    nnd1_sq = kth_sq_distances(points, [1])[0]
    assert authentic(index[:, 0], sq[:, 0], nnd1_sq).tolist() == [False, True, False, False]


def test_copies_are_not_authentic(rng):
    real = torch.from_numpy(rng.normal(size=(200, 8))).float()
    points = Frame.around(real).place(real)
    nnd1_sq = kth_sq_distances(points, [1])[0]
    share = {}
    for name, fake in {
        "copies": real.flip(0),
        "others": torch.from_numpy(rng.normal(size=(200, 8))).float(),
    }.items():
        index, sq = nearest_between(points.frame.place(fake), points, 1)
        share[name] = float(authentic(index[:, 0], sq[:, 0], nnd1_sq).double().mean())
    assert share["copies"] == 0
    assert share["others"] == pytest.approx(0.59, abs=0.08)  # the null of eight dimensions
