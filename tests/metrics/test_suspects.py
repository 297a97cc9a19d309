"""Diagnostics from the counts of a score: outliers, concentration, near copies, hubs."""

import numpy as np
import pytest
import torch

from genpr.metrics.suspects import ExaminedRows, ManifoldDiagnostics
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood


def evidence(real, fake, *, k=3, keep=8, fake_balls=(3,)):
    real, fake = (torch.as_tensor(each, dtype=torch.float32) for each in (real, fake))
    return diagnosed(real, fake, [BallKind(k)], [BallKind(each) for each in fake_balls], keep=keep)


def diagnosed(real, fake, real_balls, fake_balls, **options):
    reals = Neighborhood.from_features(real, real_balls, **options)
    fakes = reals.of_fakes(fake, fake_balls)
    counted = reals.count(fakes, real_balls)
    return ManifoldDiagnostics.from_counts(
        reals, fakes, counted, examined_reals=lambda: ExaminedRows.from_points(reals.points)
    )


def test_halves_of_one_set_have_no_findings(rng):
    found = evidence(*rng.normal(size=(2, 400, 16)))
    assert found.outliers == ()
    assert 0.9 < found.concentration < 1.1
    assert not found.near_copies.is_excess


def test_outlier_whose_ball_contains_many_fakes_is_named(rng):
    real = rng.normal(size=(400, 16))
    real[7] = 6
    found = evidence(real, 6 + 0.5 * rng.normal(size=(300, 16)))
    assert [outlier.row for outlier in found.outliers] == [7]
    assert found.outliers[0].fakes == 300
    assert found.outliers[0].share == 1


def test_many_fakes_in_ordinary_balls_are_not_dominance(rng):
    assert evidence(rng.normal(size=(400, 16)), 0.1 * rng.normal(size=(400, 16))).outliers == ()


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_concentration_is_the_ratio_of_radii(rng, scale):
    real = rng.normal(size=(300, 8))
    assert evidence(real, scale * real).concentration == pytest.approx(scale, rel=1e-5)


def test_near_copies_are_sorted_by_distance_with_their_reals(rng):
    real = rng.normal(size=(300, 32))
    fake = rng.normal(size=(200, 32))
    fake[50:70] = real[100:120] + 0.01 * np.arange(1, 21)[:, None]
    copies = evidence(real, fake).near_copies
    assert copies.fakes.tolist() == list(range(50, 70))
    assert copies.reals.tolist() == list(range(100, 120))
    assert copies.share == 0.1
    assert copies.expected == 0
    assert copies.is_excess


def test_expected_near_copies_are_leave_one_out():
    # 0 and 1 are a pair, 0.4 away from each other, where the next is 10 away: both would be copies of the other.
    real = np.array([[0.0], [0.4], [10.4], [20.4], [30.4]])
    copies = evidence(real, np.array([[100.0], [101.0]]), k=1, fake_balls=(1,)).near_copies
    assert copies.expected == 0.4
    assert copies.share == 0


def test_few_near_copies_in_a_large_set_are_not_excess(rng):
    real, fake = rng.normal(size=(2, 400, 16))
    fake[:4] = real[:4]
    assert not evidence(real, fake).near_copies.is_excess
    fake[:12] = real[:12]
    assert evidence(real, fake).near_copies.is_excess


def test_diagnostics_need_lists_and_balls(rng):
    real, fake = torch.from_numpy(rng.normal(size=(2, 50, 4)).astype(np.float32))
    assert evidence(real, fake, keep=0).near_copies is None
    assert diagnosed(real, fake, [], [BallKind(3)]) is None
    assert diagnosed(real, fake, [BallKind(3, clipped=True)], []) is None


@pytest.mark.parametrize(("n", "m"), [(200, 400), (400, 200)])
def test_sets_of_different_sizes_are_not_compared_in_concentration(rng, n, m):
    assert evidence(rng.normal(size=(n, 2)), rng.normal(size=(m, 2))).concentration is None
