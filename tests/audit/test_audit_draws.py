"""Every check draws what it says."""

from __future__ import annotations

import numpy as np
import pytest

from genpr.audit import checks
from genpr.audit.checks import CHECKS, Case, Setting


def drawn(check, setting, x, *, seed=0, repeat=0):
    return CHECKS[check].draw(Case(check, setting, x).rng(seed, repeat), setting, x)


@pytest.mark.parametrize("check", CHECKS)
def test_same_case_same_data_and_another_repeat_other_data(check):
    setting = CHECKS[check].settings[-1]
    x = CHECKS[check].points(setting, "full")[0]
    first, again, other = (drawn(check, setting, x, repeat=repeat) for repeat in (0, 0, 1))
    for mine, same, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(mine, same)
        assert not np.array_equal(mine, different)
    assert first[0].shape != first[1].shape or not np.array_equal(first[0], first[1])


def test_seed_setting_and_x_change_the_draw():
    def first_number(case, seed=0):
        return case.rng(seed, 0).random()

    case = Case("mean", Setting(8), 0.5)
    others = [
        first_number(case, seed=1),
        first_number(Case("std", Setting(8), 0.5)),
        first_number(Case("mean", Setting(64), 0.5)),
        first_number(Case("mean", Setting(8, "x"), 0.5)),
        first_number(Case("mean", Setting(8), 0.51)),
    ]
    assert len({first_number(case), *others}) == 6


def test_grid_values_that_differ_in_the_last_bit_draw_the_same():
    x = 0.1 + 0.2
    assert Case("mean", Setting(1), x).rng(0, 0).random() == Case("mean", Setting(1), 0.3).rng(0, 0).random()


@pytest.mark.parametrize("d", [1, 8, 64])
def test_shifted_mean_moves_every_axis_of_the_fakes(d):
    real, fake = drawn("mean", Setting(d), 0.7)
    assert real.shape == fake.shape == (1000, d)
    assert abs(real.mean()) < 0.12
    np.testing.assert_allclose(fake.mean(axis=0), 0.7, atol=0.15)
    np.testing.assert_allclose([real.std(), fake.std()], 1, atol=0.08)


@pytest.mark.parametrize(("d", "largest"), [(1, 6), (8, 3), (64, 1)])
def test_outlier_is_the_last_of_the_right_side(d, largest):
    real, fake = drawn("mean+outlier", Setting(d, checks.REAL_OUTLIER), -largest)
    assert (len(real), len(fake)) == (1001, 1000)
    np.testing.assert_array_equal(real[-1], np.full(d, largest))
    real, fake = drawn("mean+outlier", Setting(d, checks.FAKE_OUTLIER), -largest)
    assert (len(real), len(fake)) == (1000, 1001)
    np.testing.assert_array_equal(fake[-1], np.full(d, largest))


def test_spread_is_that_of_the_fakes():
    real, fake = drawn("std", Setting(8), 3.0)
    np.testing.assert_allclose([real.std(), fake.std()], [1, 3], rtol=0.05)


def modes_of(rows):
    """Which of ten modes on the line each row is of, by its first coordinate."""
    return np.round(rows.mean(axis=1) / (10 / 9)).astype(int)


@pytest.mark.parametrize("d", [8, 64])
def test_starved_modes_lose_their_share(d):
    real, fake = drawn("simultaneous", Setting(d), 0.9)
    np.testing.assert_allclose(np.bincount(modes_of(real), minlength=10) / 1000, 0.1, atol=0.04)
    expected = np.array([1, *[0.1] * 9]) / 1.9
    np.testing.assert_allclose(np.bincount(modes_of(fake), minlength=10) / 1000, expected, atol=0.05)
    _, none = drawn("simultaneous", Setting(d), 1.0)
    assert set(modes_of(none)) == {0}


@pytest.mark.parametrize(("d", "spread"), [(1, 1 / 6), (8, 1 / 3), (64, 1.0)])
def test_dropped_modes_are_the_last(d, spread):
    _, fake = drawn("sequential", Setting(d), 7.0)
    if d > 1:
        assert set(modes_of(fake)) == {0, 1, 2}
    assert fake.max() < 2 * 10 / 9 + 5 * spread
    _, one = drawn("sequential", Setting(d), 9.0)
    np.testing.assert_allclose(one.std(), spread, rtol=0.1)


FIRST_MODES = [(5.468, -4.085), (4.872, -13.649), (-16.394, 9.098), (-2.154, 12.462), (11.558, -4.960)]
LATER_MODES = [(-24.606, 14.180), (16.842, -3.187), (-5.478, -6.772), (9.467, 1.059), (-5.403, -17.295)]


def test_modes_in_the_plane_are_missed_then_invented():
    def counts(rows):
        distances = np.linalg.norm(rows[:, None] - np.array(FIRST_MODES + LATER_MODES), axis=2)
        assert distances.min(axis=1).max() < 6 * 0.25
        return np.bincount(distances.argmin(axis=1), minlength=10) / 1000

    for x in (2, 7, 10):
        real, fake = drawn("invention", Setting(2), float(x))
        np.testing.assert_allclose(counts(real), [0.2] * 5 + [0] * 5, atol=0.05)
        np.testing.assert_allclose(counts(fake), [1 / x] * x + [0] * (10 - x), atol=0.05)
    near = real[np.linalg.norm(real - FIRST_MODES[0], axis=1) < 2]
    np.testing.assert_allclose(near.std(axis=0), 0.25, rtol=0.2)


@pytest.mark.parametrize("d", [2, 16, 128])
def test_spheres_have_their_radii(d):
    real, fake = drawn("hypersphere", Setting(d), 1.9)
    np.testing.assert_allclose(np.linalg.norm(real, axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(fake, axis=1), 1.9)
    assert np.abs(real.mean(axis=0)).max() < 0.12


@pytest.mark.parametrize("d", [1, 8, 64])
def test_cubes_overlap_by_a_fifth_and_have_as_many_samples_as_asked(d):
    real, fake = drawn("cube-n", Setting(d), 10_000.0)
    assert len(real) == len(fake) == 10_000
    assert abs((fake < 1).all(axis=1).mean() - 0.2) < 0.02
    assert abs((real > fake.min(axis=0)).all(axis=1).mean() - 0.2) < 0.02
    real, fake = drawn("cube-n-fake", Setting(d), 100.0)
    assert (len(real), len(fake)) == (1000, 100)


def test_ball_and_torus_do_not_touch():
    ball, torus = drawn("sphere-torus", Setting(3, checks.REAL_BALL), 2000.0)
    assert (len(ball), len(torus)) == (1000, 2000)
    assert 0.75 < np.linalg.norm(ball, axis=1).max() <= 0.8
    assert abs((np.linalg.norm(ball, axis=1) < 0.4).mean() - 1 / 8) < 0.04
    from_circle = np.hypot(np.hypot(torus[:, 0], torus[:, 1]) - 1, torus[:, 2])
    assert 0.09 < from_circle.max() <= 0.1 + 1e-6
    real, fake = drawn("sphere-torus", Setting(3, checks.REAL_TORUS), 300.0)
    assert (len(real), len(fake)) == (1000, 300)
    assert np.abs(real[:, 2]).max() <= 0.1 < np.abs(fake[:, 2]).max()


@pytest.mark.parametrize("d", [1, 8])
def test_merged_modes_have_the_distance_of_the_modes(d):
    real, fake = drawn("collapse", Setting(d), 5.0)
    right = real.mean(axis=1) > 0
    assert abs(right.mean() - 0.5) < 0.06
    np.testing.assert_allclose(real[right].mean() - real[~right].mean(), 5, rtol=0.05)
    np.testing.assert_allclose(fake.std(), np.sqrt(26), rtol=0.06)


def test_stretched_axis_is_the_second_and_the_shift_is_along_the_first():
    real, fake = drawn("scaling", Setting(2), 1000.0)
    np.testing.assert_allclose(fake.mean(axis=0)[0] - real.mean(axis=0)[0], 6, atol=0.2)
    np.testing.assert_allclose([real[:, 1].std(), fake[:, 1].std()], 1000, rtol=0.08)


def test_heavy_tail_is_on_both_sides_and_the_shift_is_not_in_it():
    real, fake = drawn("pareto", Setting(2), -6.0)
    np.testing.assert_allclose(fake[:, 0].mean() - real[:, 0].mean(), -6, atol=0.2)
    for rows in (real, fake):
        assert rows[:, 1].min() >= 1
        np.testing.assert_allclose(np.median(rows[:, 1]), 2 ** (1 / 1.01), rtol=0.1)
        assert rows[:, 1].max() > 50


def test_disjoint_axis_is_the_first_of_many():
    real, fake = drawn("disjoint", Setting(0), 37.0)
    assert real.shape == fake.shape == (1000, 38)
    np.testing.assert_allclose(fake.mean(axis=0) - real.mean(axis=0), [6, *[0] * 37], atol=0.25)


def test_rounding_is_of_the_side_that_is_named():
    real, fake = drawn("discrete", Setting(1, checks.REALS_ROUNDED), 10.0)
    assert (real == np.round(real)).all()
    assert (fake != np.round(fake)).all()
    real, fake = drawn("discrete", Setting(1, checks.FAKES_ROUNDED), 10.0)
    assert (fake == np.round(fake)).all()
    assert (real != np.round(real)).all()
    np.testing.assert_allclose([real.std(), fake.std()], 10, rtol=0.1)


def test_both_sides_are_standardized_by_the_reals(rng):
    real, fake = 5 + 3 * rng.normal(size=(500, 2)), 8 + 6 * rng.normal(size=(400, 2))
    x, y = checks.standardized(real, fake)
    assert x.dtype == y.dtype == np.float32
    np.testing.assert_allclose([x.mean(), x.std()], [0, 1], atol=1e-5)
    np.testing.assert_allclose(y, (fake - real.mean(axis=0)) / real.std(axis=0), rtol=1e-5)


def test_constant_axis_is_only_moved():
    x, y = checks.standardized(np.full((3, 1), 7.0), np.array([[7.0], [9.0]]))
    np.testing.assert_array_equal(x, 0)
    np.testing.assert_array_equal(y, [[0], [2]])
