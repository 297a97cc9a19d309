from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from genpr.metrics.clusters import RealKinds, ks_distances, odd_axes


def missing_kinds(real, fake, **options):
    return RealKinds.of(real).missing(fake, **options)


@pytest.fixture
def modes(rng):
    centers = 8 * rng.normal(size=(5, 12))

    def draw(counts):
        rows = [centers[mode] + rng.normal(size=(count, 12)) for mode, count in enumerate(counts)]
        return torch.from_numpy(np.concatenate(rows).astype(np.float32))

    return draw


def test_a_mode_that_is_left_out_is_found_with_one_of_its_images(modes):
    real, fake = modes([200] * 5), modes([250, 250, 0, 250, 250])
    kinds = missing_kinds(real, fake)
    assert sum(kind.real_share for kind in kinds) == pytest.approx(0.2, abs=0.04)
    assert sum(kind.fake_share for kind in kinds) == 0
    assert all(400 <= kind.row < 600 for kind in kinds)
    assert [kind.real_share for kind in kinds] == sorted((kind.real_share for kind in kinds), reverse=True)


def test_a_starved_mode_counts_as_missing_and_a_rarer_one_does_not(modes):
    real = modes([200] * 5)
    assert missing_kinds(real, modes([240, 240, 25, 240, 240]))
    assert missing_kinds(real, modes([220, 220, 110, 220, 220])) == ()


def test_equal_sets_miss_nothing_whatever_their_sizes(modes):
    for reals, fakes in ((200, 200), (400, 60), (60, 400)):
        assert missing_kinds(modes([reals] * 5), modes([fakes] * 5)) == ()


def test_modes_that_only_fakes_have_are_not_missing(modes):
    assert missing_kinds(modes([300, 300, 300, 0, 0]), modes([200] * 5)) == ()


@pytest.mark.parametrize("sizes", [(50, 70), (200, 31)])
def test_distances_of_distribution_functions_are_scipys(rng, sizes):
    real, fake = (torch.from_numpy(rng.integers(0, 9, (n, 6)).astype(np.float32)) for n in sizes)
    fake[:, 2] += 3
    expected = [ks_2samp(real[:, axis], fake[:, axis]).statistic for axis in range(6)]
    assert ks_distances(real, fake).tolist() == pytest.approx(expected, abs=1e-12)


def test_one_feature_out_of_many_is_found(rng):
    real, fake = (torch.from_numpy(rng.normal(size=(600, 40)).astype(np.float32)) for _ in range(2))
    assert odd_axes(real, fake).axes == ()
    fake[:, 17] += 2
    odd = odd_axes(real, fake)
    assert odd.axes == (17,)
    assert 0.5 < odd.largest < 0.9
    assert not odd.is_lattice


def test_rounded_features_are_a_lattice_on_either_side(rng):
    real, fake = (torch.from_numpy(3 * rng.normal(size=(600, 10)).astype(np.float32)) for _ in range(2))
    assert odd_axes(real, fake.round()).is_lattice
    assert odd_axes(real.round(), fake).is_lattice
    assert not odd_axes(real.round(), fake.round()).is_lattice


@pytest.mark.parametrize("d", [64, 1024])
def test_a_wide_cloud_has_no_missing_kinds(rng, d):
    real, fake = (torch.from_numpy(rng.normal(size=(1000, d)).astype(np.float32)) for _ in range(2))
    assert missing_kinds(real, fake) == ()


def test_small_sets_differ_in_many_features_by_chance(rng):
    real, fake = (torch.from_numpy(rng.normal(size=(60, 500)).astype(np.float32)) for _ in range(2))
    assert odd_axes(real, fake).largest > 0.3
    assert odd_axes(real, fake).axes == ()
