"""The fifteen sanity checks: their data, the parameter that they vary, and its grid.

Every draw function takes a random generator, the setting and the value x of the varied parameter, and returns reals (n, d) and
fakes (m, d), float64, before they are standardized.

References:
    Räisä, van Breugel, van der Schaar 2025, "Position: All Current Generative Fidelity and Diversity Metrics are
    Flawed", ICML (all distributions, sizes and constants).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Pair = tuple[Rows, Rows]
GridName = Literal["quick", "full"]

REPEATS: dict[GridName, int] = {"quick": 3, "full": 10}
"""Draws per point of a grid; criteria use their mean."""

SIZE = 1000
"""Number of reals and fakes, unless a check varies it."""

CUBE_OVERLAP = 0.2
"""Volume that the shifted cube shares with the other one: the true fidelity and diversity."""

REAL_OUTLIER, FAKE_OUTLIER = "outlier among the reals", "outlier among the fakes"
REAL_BALL, REAL_TORUS = "reals in the ball", "reals in the torus"
REALS_ROUNDED, FAKES_ROUNDED = "reals rounded", "fakes rounded"
REAL_PLANE_MODES = 5

_MODES = 10
_MODE_SPREAD = {1: 1 / 6, 8: 1 / 3, 64: 1.0}
_PLANE_MODES = np.array(
    [
        (5.46794328, -4.08481523),
        (4.87211875, -13.64864684),
        (-16.39432073, 9.09802249),
        (-2.15447941, 12.46200019),
        (11.55784483, -4.96049923),
        (-24.60558474, 14.18020818),
        (16.84215967, -3.18710751),
        (-5.47807206, -6.77247129),
        (9.46726546, 1.05922347),
        (-5.40346201, -17.29490131),
    ]
)
_PLANE_SPREAD = 0.25
_FAR = 6.0  # standard deviations between disjoint sets
_PARETO_SHAPE = 1.01
_QUICK_POINTS, _QUICK_FEW_POINTS = 13, 7  # the second for checks with 20 points
_QUICK_LARGEST = 2000.0
_DIGITS = 9  # of grid values: the last bits of a power differ between machines, and would change the seed


@dataclass(frozen=True, slots=True)
class Setting:
    """One curve of a check; the dimension is 0 if x determines it."""

    dimension: int
    scenario: str = ""

    def __str__(self) -> str:
        """In words, which are part of every seed: other words would change all data."""
        dimension = f"d = {self.dimension}" if self.dimension else ""
        return ", ".join(part for part in (self.scenario, dimension) if part)


@dataclass(frozen=True, slots=True)
class Check:
    """A sanity check, with the ends and the number of points of its full grid, for all settings or by dimension."""

    name: str
    draw: Callable[[np.random.Generator, Setting, float], Pair]
    settings: tuple[Setting, ...]
    ends: tuple[float, float] | Mapping[int, tuple[float, float]]
    count: int
    log_x: bool = False
    whole: bool = False  # x is an integer; equal ones are drawn once
    varies_size: bool = False  # x is a number of samples

    def points(self, setting: Setting, grid: GridName) -> tuple[float, ...]:
        """The values x, ascending."""
        low, high = self.ends[setting.dimension] if isinstance(self.ends, Mapping) else self.ends
        if self.varies_size and grid == "quick":
            return self._between(low, _QUICK_LARGEST, _QUICK_FEW_POINTS)
        full = self._between(low, high, self.count)
        if grid == "full" or self.count == 10:
            return full
        count = _QUICK_POINTS if len(full) >= 50 else _QUICK_FEW_POINTS
        # Rounded halves would fall to even numbers: add and cut, so that the middle of 51 stays.
        return tuple(full[i] for i in (np.linspace(0, len(full) - 1, count) + 0.5).astype(int))

    def _between(self, low: float, high: float, count: int) -> tuple[float, ...]:
        values = np.linspace(low, high, count)
        if self.log_x:
            values = np.logspace(math.log10(low), math.log10(high), count)
        if self.whole:
            values = np.unique(values.round(6).astype(int))
        return tuple(float(f"{value:.{_DIGITS}g}") for value in values)


@dataclass(frozen=True, slots=True)
class Case:
    """One point of a curve, which is drawn `repeats` times."""

    check: str
    setting: Setting
    x: float

    def rng(self, seed: int, repeat: int) -> np.random.Generator:
        """The random generator of one draw, which depends only on its name, so that any part of a run can be repeated."""
        name = f"{seed}|{self.check}|{self.setting}|{self.x:.{_DIGITS}g}|{repeat}"
        digest = hashlib.sha256(name.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def shifted_mean(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, I) against N(x 1, I)."""
    shape = SIZE, setting.dimension
    return rng.standard_normal(shape), rng.standard_normal(shape) + x


def shifted_mean_with_outlier(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, I) against N(x 1, I), with one more real or fake at the final mean of the fakes."""
    real, fake = shifted_mean(rng, setting, x)
    outlier = np.full((1, setting.dimension), _SHIFTS[setting.dimension][1])
    if setting.scenario == REAL_OUTLIER:
        return np.concatenate([real, outlier]), fake
    return real, np.concatenate([fake, outlier])


def scaled_spread(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, I) against N(0, x² I)."""
    shape = SIZE, setting.dimension
    return rng.standard_normal(shape), x * rng.standard_normal(shape)


def starved_modes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Ten modes on a line, against the same modes of which all but the first lose the fraction x of their mass."""
    weights = np.full(_MODES, 1 - x)
    weights[0] = 1
    return _on_line(rng, setting, np.ones(_MODES)), _on_line(rng, setting, weights)


def dropped_modes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Ten modes on a line, against the same modes without the last x."""
    kept = np.arange(_MODES) < _MODES - round(x)
    return _on_line(rng, setting, np.ones(_MODES)), _on_line(rng, setting, kept.astype(float))


def invented_modes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """The first five of ten modes in the plane, against the first x."""
    real, fake = (np.arange(_MODES) < count for count in (REAL_PLANE_MODES, round(x)))
    first = _mixture(rng, _PLANE_MODES, real.astype(float), _PLANE_SPREAD)
    return first, _mixture(rng, _PLANE_MODES, fake.astype(float), _PLANE_SPREAD)


def spheres(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Uniform on the unit sphere, against a sphere of radius x."""
    d = setting.dimension
    return _directions(rng, SIZE, d), x * _directions(rng, SIZE, d)


def overlapping_cubes(
    rng: np.random.Generator, setting: Setting, x: float, *, n_real: int | None = None
) -> Pair:
    """Two unit cubes that share a fifth of their volume, x samples each."""
    d, n_fake = setting.dimension, round(x)
    shift = 1 - CUBE_OVERLAP ** (1 / d)
    return rng.random((n_real or n_fake, d)), rng.random((n_fake, d)) + shift


def overlapping_cubes_of_fakes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Two unit cubes that share a fifth of their volume, 1000 reals and x fakes."""
    return overlapping_cubes(rng, setting, x, n_real=SIZE)


def ball_and_torus(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """A ball, and a torus around it that does not touch it; one of them is real, the other has x fakes."""
    if setting.scenario == REAL_BALL:
        return 0.8 * _in_ball(rng, SIZE), _in_torus(rng, round(x))
    return _in_torus(rng, SIZE), 0.8 * _in_ball(rng, round(x))


def merged_modes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Two modes x apart along every axis, against one Gaussian that spans both."""
    d = setting.dimension
    side = rng.integers(2, size=(SIZE, 1)) - 0.5
    fake = math.sqrt(1 + x**2) * rng.standard_normal((SIZE, d))
    return rng.standard_normal((SIZE, d)) + x * side, fake


def stretched_axis(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Disjoint along the first of two axes, with the second axis scaled by x."""
    real, fake = one_disjoint_axis(rng, setting, 1)
    return real * [1.0, x], fake * [1.0, x]


def heavy_tail(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, 1) against N(x, 1) along the first axis; along the second, both have a Pareto distribution without variance."""

    def draw(mean: float) -> Rows:
        return np.column_stack([mean + rng.standard_normal(SIZE), 1 + rng.pareto(_PARETO_SHAPE, size=SIZE)])

    return draw(0.0), draw(x)


def one_disjoint_axis(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Disjoint along one axis, and equally distributed along x others."""
    shape = SIZE, 1 + round(x)
    real, fake = rng.standard_normal(shape), rng.standard_normal(shape)
    fake[:, 0] += _FAR
    return real, fake


def rounded(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, x²) on both sides, with one side rounded to integers."""
    real, fake = x * rng.standard_normal((SIZE, 1)), x * rng.standard_normal((SIZE, 1))
    return (np.round(real), fake) if setting.scenario == REALS_ROUNDED else (real, np.round(fake))


def _settings(*dimensions: int, scenarios: tuple[str, ...] = ("",)) -> tuple[Setting, ...]:
    return tuple(Setting(d, scenario) for scenario in scenarios for d in dimensions)


_SHIFTS = {1: (-6.0, 6.0), 8: (-3.0, 3.0), 64: (-1.0, 1.0)}
_SPREADS = {1: (1e-3, 1e3), 8: (0.1, 10.0), 64: (10**-0.5, 10**0.5)}
_LINE, _PLANE, _SIZES = _settings(1, 8, 64), _settings(2), (100, 10_000)
_OUTLIERS = _settings(1, 8, 64, scenarios=(REAL_OUTLIER, FAKE_OUTLIER))
_SOLIDS = _settings(3, scenarios=(REAL_BALL, REAL_TORUS))
_ROUNDED = _settings(1, scenarios=(REALS_ROUNDED, FAKES_ROUNDED))
_SIZE = {"log_x": True, "whole": True, "varies_size": True}
_ALL = (
    Check("mean", shifted_mean, _LINE, _SHIFTS, 51),
    Check("mean+outlier", shifted_mean_with_outlier, _OUTLIERS, _SHIFTS, 51),
    Check("std", scaled_spread, _LINE, _SPREADS, 51, log_x=True),
    Check("simultaneous", starved_modes, _LINE, (0, 1), 50),
    Check("sequential", dropped_modes, _LINE, (0, 9), 10),
    Check("invention", invented_modes, _PLANE, (1, 10), 10),
    Check("hypersphere", spheres, _settings(2, 16, 128), (0.1, 1.9), 51),
    Check("cube-n", overlapping_cubes, _LINE, _SIZES, 20, **_SIZE),
    Check("cube-n-fake", overlapping_cubes_of_fakes, _LINE, _SIZES, 20, **_SIZE),
    Check("sphere-torus", ball_and_torus, _SOLIDS, _SIZES, 20, **_SIZE),
    Check("collapse", merged_modes, _LINE, (0, 5), 20),
    Check("scaling", stretched_axis, _PLANE, (1e-3, 1e3), 20, log_x=True),
    Check("pareto", heavy_tail, _PLANE, (-6, 6), 51),
    Check("disjoint", one_disjoint_axis, _settings(0), (1, 1000), 20, log_x=True, whole=True),
    Check("discrete", rounded, _ROUNDED, (1, 1000), 20, log_x=True),
)
CHECKS = MappingProxyType({check.name: check for check in _ALL})
"""By name, in the order of the published tables."""


def cases(checks: tuple[str, ...], grid: GridName) -> Iterator[Case]:
    """Every point of the named checks, check by check."""
    for name in checks:
        for setting in CHECKS[name].settings:
            for x in CHECKS[name].points(setting, grid):
                yield Case(name, setting, x)


def standardized(real: Rows, fake: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Standardize both sets by the mean and standard deviation of the reals along each axis; constant axes are only shifted."""
    mean, spread = real.mean(axis=0), real.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return ((real - mean) / spread).astype(np.float32), ((fake - mean) / spread).astype(np.float32)


def _on_line(rng: np.random.Generator, setting: Setting, weights: Rows) -> Rows:
    centers = np.linspace(0, 10, _MODES)[:, None] * np.ones(setting.dimension)
    return _mixture(rng, centers, weights, _MODE_SPREAD[setting.dimension])


def _mixture(rng: np.random.Generator, centers: Rows, weights: Rows, spread: float) -> Rows:
    mode = rng.choice(len(centers), size=SIZE, p=weights / weights.sum())
    drawn: Rows = centers[mode] + spread * rng.standard_normal((SIZE, centers.shape[1]))
    return drawn


def _directions(rng: np.random.Generator, n: int, d: int) -> Rows:
    rows = rng.standard_normal((n, d))
    directions: Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return directions


def _in_ball(rng: np.random.Generator, n: int) -> Rows:
    return _directions(rng, n, 3) * rng.random((n, 1)) ** (1 / 3)


def _in_torus(rng: np.random.Generator, n: int) -> Rows:
    angle = rng.random(n) * (2 * np.pi)
    return np.column_stack([np.cos(angle), np.sin(angle), np.zeros(n)]) + 0.1 * _in_ball(rng, n)
