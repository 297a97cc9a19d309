"""Checks use the published grids and draw the distributions that they describe."""

import numpy as np
import pytest

from genpr.audit import checks
from genpr.audit.checks import CHECKS, Case, Setting, cases, standardized

# Points and ends of the first and of the last curve, as published.
GRIDS = {
    "mean": (51, (-6, 6), (-1, 1)),
    "mean+outlier": (51, (-6, 6), (-1, 1)),
    "std": (51, (1e-3, 1e3), (10**-0.5, 10**0.5)),
    "simultaneous": (50, (0, 1), (0, 1)),
    "sequential": (10, (0, 9), (0, 9)),
    "invention": (10, (1, 10), (1, 10)),
    "hypersphere": (51, (0.1, 1.9), (0.1, 1.9)),
    "cube-n": (20, (100, 10_000), (100, 10_000)),
    "cube-n-fake": (20, (100, 10_000), (100, 10_000)),
    "sphere-torus": (20, (100, 10_000), (100, 10_000)),
    "collapse": (20, (0, 5), (0, 5)),
    "scaling": (20, (1e-3, 1e3), (1e-3, 1e3)),
    "pareto": (51, (-6, 6), (-6, 6)),
    "disjoint": (18, (1, 1000), (1, 1000)),  # 20, of which two are the same whole numbers as others
    "discrete": (20, (1, 1000), (1, 1000)),
}
MIDDLE = {"mean": 0, "mean+outlier": 0, "std": 1, "hypersphere": 1, "pareto": 0}


@pytest.mark.parametrize("name", GRIDS)
def test_full_grid_is_as_published_and_quick_grid_keeps_its_ends_and_middle(name):
    check, (count, *ends) = CHECKS[name], GRIDS[name]
    for setting, (low, high) in zip((check.settings[0], check.settings[-1]), ends, strict=True):
        full, quick = check.points(setting, "full"), check.points(setting, "quick")
        assert len(full) == count
        assert list(full) == sorted(set(full))
        np.testing.assert_allclose([full[0], full[-1]], [low, high], rtol=1e-8)
        assert len(quick) <= 13
        assert (quick[0], quick[-1]) == (full[0], 2000 if check.varies_size else full[-1])
        assert check.varies_size or set(quick) <= set(full)
        assert name not in MIDDLE or MIDDLE[name] in set(full) & set(quick)


def test_cases_are_distinct():
    assert list(CHECKS) == list(GRIDS)
    everything = list(cases(tuple(CHECKS), "full"))
    assert len(set(everything)) == len(everything) == 1304
    assert len(list(cases(tuple(CHECKS), "quick"))) == 392


def drawn(check, setting, x, *, repeat=0):
    return CHECKS[check].draw(Case(check, setting, x).rng(0, repeat), setting, x)


def test_draw_depends_only_on_case_seed_and_repeat():
    case, setting = Case("mean", Setting(8), 0.5), Setting(8)
    again = drawn("mean", setting, 0.5)
    np.testing.assert_array_equal(drawn("mean", setting, 0.5), again)
    assert not np.array_equal(drawn("mean", setting, 0.5, repeat=1), again)
    others = [Case("std", setting, 0.5), Case("mean", Setting(64), 0.5), Case("mean", Setting(8, "x"), 0.5)]
    numbers = [each.rng(0, 0).random() for each in (case, *others, Case("mean", setting, 0.51))]
    assert len({*numbers, case.rng(1, 0).random()}) == 6
    last_bit = Case("mean", Setting(1), 0.1 + 0.2).rng(0, 0).random()
    assert last_bit == Case("mean", Setting(1), 0.3).rng(0, 0).random()


def on_line(rows):
    """Shares of the ten modes on a line."""
    return np.bincount(np.round(rows.mean(axis=1) / (10 / 9)).astype(int), minlength=10) / len(rows)


PLANE = [
    *[(5.468, -4.085), (4.872, -13.649), (-16.394, 9.098), (-2.154, 12.462), (11.558, -4.960)],
    *[(-24.606, 14.180), (16.842, -3.187), (-5.478, -6.772), (9.467, 1.059), (-5.403, -17.295)],
]


def in_plane(rows):
    """Shares of the ten modes in the plane, in the order of the paper."""
    distances = np.linalg.norm(rows[:, None] - np.array(PLANE), axis=2)
    assert distances.min(axis=1).max() < 6 * 0.25
    return np.bincount(distances.argmin(axis=1), minlength=10) / len(rows)


def norms(rows):
    return np.linalg.norm(rows, axis=1)


def from_circle(rows):
    return np.hypot(np.hypot(rows[:, 0], rows[:, 1]) - 1, rows[:, 2])


BALL, TORUS = Setting(3, checks.REAL_BALL), Setting(3, checks.REAL_TORUS)
REAL_OUTLIER, FAKE_OUTLIER = Setting(8, checks.REAL_OUTLIER), Setting(1, checks.FAKE_OUTLIER)
REALS_ROUNDED, FAKES_ROUNDED = Setting(1, checks.REALS_ROUNDED), Setting(1, checks.FAKES_ROUNDED)
STARVED = np.array([1, *[0.1] * 9]) / 1.9
FACTS = [
    *[("mean", Setting(d), 0.7, lambda r, f: f.mean(axis=0) - r.mean(axis=0), 0.7, 0.2) for d in (1, 8, 64)],
    ("mean", Setting(8), 0.7, lambda r, f: [r.std(axis=0), f.std(axis=0)], 1, 0.1),
    ("mean+outlier", REAL_OUTLIER, -3, lambda r, f: [*r[1000], len(f)], [*[3] * 8, 1000], 0),
    ("mean+outlier", FAKE_OUTLIER, -6, lambda r, f: [*f[1000], len(r)], [6, 1000], 0),
    ("std", Setting(8), 3.0, lambda r, f: [r.std(), f.std()], [1, 3], 0.15),
    ("simultaneous", Setting(64), 0.9, lambda r, f: [on_line(r), on_line(f)], [[0.1] * 10, STARVED], 0.05),
    ("simultaneous", Setting(8), 1.0, lambda _, f: on_line(f)[0], 1, 0),
    ("sequential", Setting(8), 7.0, lambda _, f: on_line(f), [1 / 3] * 3 + [0] * 7, 0.05),
    *[
        ("sequential", Setting(d), 9.0, lambda _, f: f.std(), std, 0.1 * std)
        for d, std in ((1, 1 / 6), (8, 1 / 3), (64, 1))
    ],
    ("invention", Setting(2), 7.0, lambda r, _: in_plane(r), [0.2] * 5 + [0] * 5, 0.05),
    *[
        ("invention", Setting(2), float(x), lambda _, f: in_plane(f), [1 / x] * x + [0] * (10 - x), 0.05)
        for x in (2, 7, 10)
    ],
    ("invention", Setting(2), 1.0, lambda _, f: f.std(axis=0), 0.25, 0.05),
    ("hypersphere", Setting(16), 1.9, lambda r, f: [norms(r), norms(f) / 1.9], 1, 1e-9),
    ("hypersphere", Setting(128), 1.9, lambda r, f: [r.mean(axis=0), f.mean(axis=0)], 0, 0.12),
    *[
        ("cube-n", Setting(d), 1e4, lambda r, f: [(f < 1).all(axis=1).mean(), len(r)], [0.2, 1e4], 0.02)
        for d in (1, 8, 64)
    ],
    ("cube-n-fake", Setting(8), 100.0, lambda r, f: [len(r), len(f)], [1000, 100], 0),
    ("cube-n-fake", Setting(8), 1e4, lambda r, f: (r > f.min(axis=0)).all(axis=1).mean(), 0.2, 0.03),
    ("sphere-torus", BALL, 2e3, lambda r, f: [len(f), (norms(r) < 0.4).mean()], [2e3, 1 / 8], 0.04),
    ("sphere-torus", BALL, 2e3, lambda r, f: [norms(r).max(), from_circle(f).max()], [0.8, 0.1], 0.01),
    ("sphere-torus", TORUS, 300.0, lambda r, f: [from_circle(r).max(), len(f)], [0.1, 300], 0.01),
    ("collapse", Setting(8), 5.0, lambda r, f: [np.abs(r.mean(axis=1)).mean(), f.std() ** 2], [2.5, 26], 1.5),
    ("scaling", Setting(2), 1e3, lambda r, f: [(f - r)[:, 0].mean(), r[:, 1].std() / 1e3], [6, 1], 0.2),
    ("pareto", Setting(2), -6.0, lambda r, f: (f - r)[:, 0].mean(), -6, 0.2),
    ("pareto", Setting(2), -6.0, lambda r, f: np.median([r[:, 1], f[:, 1]], axis=1), 2 ** (1 / 1.01), 0.2),
    ("disjoint", Setting(0), 37.0, lambda r, f: (f - r).mean(axis=0), [6, *[0] * 37], 0.25),
    ("discrete", REALS_ROUNDED, 10.0, lambda r, f: [(r % 1).any(), (f % 1).all()], [0, 1], 0),
    ("discrete", FAKES_ROUNDED, 10.0, lambda r, f: [(f % 1).any(), (r % 1).all()], [0, 1], 0),
]


@pytest.mark.parametrize(("check", "setting", "x", "fact", "expected", "tolerance"), FACTS)
def test_samples_of_each_check_have_the_stated_property(check, setting, x, fact, expected, tolerance):
    found = np.asarray(fact(*drawn(check, setting, x)), dtype=float)
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=0, atol=tolerance)


def test_both_sets_are_standardized_by_the_reals_and_constant_axes_only_shifted(rng):
    real, fake = 5 + 3 * rng.normal(size=(500, 2)), 8 + 6 * rng.normal(size=(400, 2))
    real[:, 1] = 7
    x, y = standardized(real, fake)
    assert x.dtype == y.dtype == np.float32
    np.testing.assert_allclose(y[:, 0], (fake - real.mean(axis=0))[:, 0] / real[:, 0].std(), rtol=1e-5)
    np.testing.assert_allclose(y[:, 1], fake[:, 1] - 7, rtol=1e-5)
    np.testing.assert_array_equal(x[:, 1], 0)
