from __future__ import annotations

import numpy as np
import pytest
import torch

from genpr.metrics.modes import RealKinds


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


@pytest.mark.parametrize("d", [64, 1024])
def test_a_wide_cloud_has_no_missing_kinds(rng, d):
    real, fake = (torch.from_numpy(rng.normal(size=(1000, d)).astype(np.float32)) for _ in range(2))
    assert missing_kinds(real, fake) == ()
