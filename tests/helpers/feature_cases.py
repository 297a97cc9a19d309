"""Feature sets on which float32 shortcuts fail, each as (real, fake); all small enough for the oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Case = tuple[NDArray, NDArray]
_CASES: dict[str, Callable[[np.random.Generator], Case]] = {}


def _case(function: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    _CASES[function.__name__] = function
    return function


def names() -> list[str]:
    return list(_CASES)


def make(name: str) -> Case:
    real, fake = _CASES[name](np.random.default_rng(7))
    return real.astype(np.float32), fake.astype(np.float32)


@_case
def integers(rng):
    return rng.integers(0, 10, (150, 16)), rng.integers(0, 10, (130, 16))


@_case
def binary_grid_full_of_ties(rng):
    return rng.integers(0, 2, (150, 7)), rng.integers(0, 2, (130, 7))


@_case
def one_hot_all_tied(rng):
    return np.eye(120), np.roll(np.eye(120), 1, axis=0)[:80] * 2


@_case
def off_center(rng):
    return rng.normal(5, 0.05, (150, 64)), rng.normal(5, 0.05, (140, 64))


@_case
def plus_1000(rng):
    return 1000 + rng.normal(size=(150, 64)), 1000 + rng.normal(size=(140, 64))


@_case
def duplicates(rng):
    real = rng.normal(3, 1, (30, 20)).repeat(5, axis=0)
    return rng.permutation(real), rng.normal(3, 1, (10, 20)).repeat(12, axis=0)


@_case
def near_duplicates(rng):
    real = rng.normal(5, 1, (15, 40)).repeat(10, axis=0)
    real *= 1 + 1e-7 * rng.normal(size=real.shape)
    fake = real[:120] * (1 + 1e-7 * rng.normal(size=(120, 40)))
    return rng.permutation(real), fake


@_case
def fakes_copy_reals(rng):
    real = rng.normal(5, 0.05, (150, 48))
    return real, np.concatenate([real[::2], rng.normal(5, 0.05, (60, 48))])


@_case
def fakes_are_the_reals(rng):
    real = rng.normal(5, 0.05, (150, 48))
    return real, rng.permutation(real)


@_case
def outlier_in_both(rng):
    real, fake = rng.normal(5, 0.05, (150, 32)), rng.normal(5, 0.05, (140, 32))
    real[77] = 1e6
    fake[3] = -1e6
    return real, fake


@_case
def all_identical(rng):
    return np.full((60, 5), 3.7), np.full((50, 5), 3.7)


@_case
def collapsed_fakes(rng):
    return rng.normal(5, 1, (150, 32)), np.full((140, 32), 5.3) + 1e-5 * rng.normal(size=(140, 32))


@_case
def tight_clumps(rng):
    modes = rng.normal(size=(5, 64))
    jitter = 1e-4 * rng.normal(size=(300, 64))
    both = modes[rng.integers(0, 5, 300)] + jitter
    return both[:160], both[160:]


@_case
def one_column(rng):
    return rng.normal(size=(150, 1)), rng.normal(size=(140, 1))


@_case
def as_wide_as_inception(rng):
    return rng.gamma(0.5, 0.4, (80, 2048)), rng.gamma(0.5, 0.4, (70, 2048))


@_case
def odd_width(rng):
    return rng.normal(1, 1, (100, 1025)), rng.normal(1, 1, (90, 1025))


@_case
def six_rows(rng):
    return rng.normal(size=(6, 12)), rng.normal(size=(6, 12))


@_case
def tiny_values(rng):
    return 1e-30 * rng.normal(size=(100, 16)), 1e-30 * rng.normal(size=(90, 16))


@_case
def subnormal_values(rng):
    return 1e-42 * rng.normal(size=(100, 16)), 1e-42 * rng.normal(size=(90, 16))


@_case
def huge_values(rng):
    return 1e37 * rng.normal(size=(100, 16)), 1e37 * rng.normal(size=(90, 16))


@_case
def scales_no_float32_square_can_hold(rng):
    real, fake = rng.normal(size=(100, 16)), rng.normal(size=(90, 16))
    real[:30] *= 1e30
    fake[:20] *= 1e-30
    fake[20:40] *= 3e37
    return real, fake
