"""Feature sets on which float32 shortcuts fail, each as (real, fake); all small enough for the oracle."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Case = tuple[NDArray, NDArray]


def _duplicates(rng):
    real = rng.normal(3, 1, (30, 20)).repeat(5, axis=0)
    return rng.permutation(real), rng.normal(3, 1, (10, 20)).repeat(12, axis=0)


def _near_duplicates(rng):
    real = rng.normal(5, 1, (15, 40)).repeat(10, axis=0)
    real *= 1 + 1e-7 * rng.normal(size=real.shape)
    fake = real[:120] * (1 + 1e-7 * rng.normal(size=(120, 40)))
    return rng.permutation(real), fake


def _fakes_copy_reals(rng):
    real = rng.normal(5, 0.05, (150, 48))
    return real, np.concatenate([real[::2], rng.normal(5, 0.05, (60, 48))])


def _fakes_are_the_reals(rng):
    real = rng.normal(5, 0.05, (150, 48))
    return real, rng.permutation(real)


def _outlier_in_both(rng):
    real, fake = rng.normal(5, 0.05, (150, 32)), rng.normal(5, 0.05, (140, 32))
    real[77] = 1e6
    fake[3] = -1e6
    return real, fake


def _tight_clumps(rng):
    modes = rng.normal(size=(5, 64))
    jitter = 1e-4 * rng.normal(size=(300, 64))
    both = modes[rng.integers(0, 5, 300)] + jitter
    return both[:160], both[160:]


def _scales_no_float32_square_can_hold(rng):
    real, fake = rng.normal(size=(100, 16)), rng.normal(size=(90, 16))
    real[:30] *= 1e30
    fake[:20] *= 1e-30
    fake[20:40] *= 3e37
    return real, fake


def _normal(n, m, d, scale=1.0, center=0.0):
    return lambda rng: (center + scale * rng.normal(size=(n, d)), center + scale * rng.normal(size=(m, d)))


_CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "integers": lambda rng: (rng.integers(0, 10, (150, 16)), rng.integers(0, 10, (130, 16))),
    "binary_grid_full_of_ties": lambda rng: (rng.integers(0, 2, (150, 7)), rng.integers(0, 2, (130, 7))),
    "one_hot_all_tied": lambda _: (np.eye(120), np.roll(np.eye(120), 1, axis=0)[:80] * 2),
    "off_center": lambda rng: (rng.normal(5, 0.05, (150, 64)), rng.normal(5, 0.05, (140, 64))),
    "plus_1000": _normal(150, 140, 64, center=1000),
    "duplicates": _duplicates,
    "near_duplicates": _near_duplicates,
    "fakes_copy_reals": _fakes_copy_reals,
    "fakes_are_the_reals": _fakes_are_the_reals,
    "outlier_in_both": _outlier_in_both,
    "all_identical": lambda _: (np.full((60, 5), 3.7), np.full((50, 5), 3.7)),
    "collapsed_fakes": lambda rng: (
        rng.normal(5, 1, (150, 32)),
        np.full((140, 32), 5.3) + 1e-5 * rng.normal(size=(140, 32)),
    ),
    "tight_clumps": _tight_clumps,
    "one_column": _normal(150, 140, 1),
    "as_wide_as_inception": lambda rng: (rng.gamma(0.5, 0.4, (80, 2048)), rng.gamma(0.5, 0.4, (70, 2048))),
    "odd_width": lambda rng: (rng.normal(1, 1, (100, 1025)), rng.normal(1, 1, (90, 1025))),
    "six_rows": _normal(6, 6, 12),
    "tiny_values": _normal(100, 90, 16, scale=1e-30),
    "subnormal_values": _normal(100, 90, 16, scale=1e-42),
    "huge_values": _normal(100, 90, 16, scale=1e37),
    "scales_no_float32_square_can_hold": _scales_no_float32_square_can_hold,
}


def names() -> list[str]:
    return list(_CASES)


def make(name: str) -> Case:
    real, fake = _CASES[name](np.random.default_rng(7))
    return real.astype(np.float32), fake.astype(np.float32)
