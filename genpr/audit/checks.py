"""The fifteen sanity checks: the data that they draw, what they vary, and over which grid.

Every function takes a generator, the setting and the value x that the check varies, and returns reals (n, d) and
fakes (m, d), float64, before they are standardized.

References:
    Räisä, van Breugel, van der Schaar 2025, "Position: All Current Generative Fidelity and Diversity Metrics are
    Flawed", ICML (all distributions, sizes and constants).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Pair = tuple[Rows, Rows]

SIZE = 1000
"""Reals and fakes, where a check does not vary them."""

LARGEST_SHIFT = {1: 6.0, 8: 3.0, 64: 1.0}
"""How far the mean of the fakes moves along every axis, by the number of dimensions."""

REAL_OUTLIER, FAKE_OUTLIER = "outlier among the reals", "outlier among the fakes"
REAL_BALL, REAL_TORUS = "reals in the ball", "reals in the torus"
REALS_ROUNDED, FAKES_ROUNDED = "reals rounded", "fakes rounded"

CUBE_OVERLAP = 0.2
"""Volume that the shifted cube shares with the other one: the true fidelity and diversity."""

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
REAL_PLANE_MODES = 5
_FAR = 6.0  # standard deviations between sets that share nothing
_PARETO_SHAPE = 1.01


@dataclass(frozen=True, slots=True)
class Setting:
    """One curve of a check.

    Attributes:
        dimension: Coordinates of the data; 0 where x decides about them.
        scenario: Which of several variants; empty if there is one.
    """

    dimension: int
    scenario: str = ""

    def __str__(self) -> str:
        """In words, which are part of every seed: reworded, all data are drawn anew."""
        dimension = f"d = {self.dimension}" if self.dimension else ""
        return ", ".join(part for part in (self.scenario, dimension) if part)


Draw = Callable[[np.random.Generator, Setting, float], Pair]


GridName = Literal["quick", "full"]
REPEATS: dict[GridName, int] = {"quick": 3, "full": 10}
"""Draws per point of a grid; criteria look at the mean over them."""

_QUICK_POINTS = 13
_QUICK_FEW_POINTS = 7  # of checks with 20 points
_QUICK_LARGEST = 2000.0
_DIGITS = 9  # of grid values: the last bits of a power differ between machines, and would change the seed


@dataclass(frozen=True, slots=True)
class Check:
    """One sanity check.

    Attributes:
        name: Short and stable, for files and `--check`.
        title: What is done to the fakes, for people.
        x_label: What is varied.
        settings: Its curves.
        grid: The values x of a setting in the full grid, ascending.
        draw: Reals and fakes of one point; see `draws`.
        log_x: Whether the values are spread evenly on a logarithmic axis.
        varies_size: Whether x is a number of samples.
        keeps_all: Whether the quick grid is the full one.
    """

    name: str
    title: str
    x_label: str
    settings: tuple[Setting, ...]
    grid: Callable[[Setting], tuple[float, ...]]
    draw: Draw
    log_x: bool = False
    varies_size: bool = False
    keeps_all: bool = False

    def points(self, setting: Setting, grid: GridName) -> tuple[float, ...]:
        """The values x, ascending."""
        full = self.grid(setting)
        if grid == "full" or self.keeps_all:
            return full
        if self.varies_size:
            return _sizes(_QUICK_LARGEST, _QUICK_FEW_POINTS)
        count = _QUICK_POINTS if len(full) >= 50 else _QUICK_FEW_POINTS
        # Rounded halves would fall to even numbers: add and cut, so that the middle of 51 stays.
        kept = (np.linspace(0, len(full) - 1, count) + 0.5).astype(int)
        return tuple(full[i] for i in kept)


@dataclass(frozen=True, slots=True)
class Case:
    """One point of one curve: what is drawn `repeats` times.

    Attributes:
        check: Name of the check.
        setting: Which of its curves.
        x: Where on it.
    """

    check: str
    setting: Setting
    x: float

    def rng(self, seed: int, repeat: int) -> np.random.Generator:
        """The source of one draw, which depends on nothing but its own name: any part of a run can be repeated."""
        name = f"{seed}|{self.check}|{self.setting}|{self.x:.{_DIGITS}g}|{repeat}"
        digest = hashlib.sha256(name.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def _values(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values)


def _even(low: float, high: float, count: int) -> Callable[[Setting], tuple[float, ...]]:
    return lambda _: _values(np.linspace(low, high, count))


def _powers(low: float, high: float, count: int) -> Callable[[Setting], tuple[float, ...]]:
    return lambda _: _values(np.logspace(low, high, count))


def _sizes(largest: float, count: int) -> tuple[float, ...]:
    return tuple(float(int(round(value, 6))) for value in np.logspace(2, np.log10(largest), count))


def _to_ten_thousand(_: Setting) -> tuple[float, ...]:
    return _sizes(10_000.0, 20)


def _shifts(setting: Setting) -> tuple[float, ...]:
    largest = LARGEST_SHIFT[setting.dimension]
    return _values(np.linspace(-largest, largest, 51))


def _spreads(setting: Setting) -> tuple[float, ...]:
    decades = {1: 3.0, 8: 1.0, 64: 0.5}[setting.dimension]
    return _values(np.logspace(-decades, decades, 51))


def _extra_axes(_: Setting) -> tuple[float, ...]:
    """Whole numbers; the first few powers are cut to the same ones, which are drawn once."""
    return tuple(float(n) for n in np.unique(np.logspace(0, 3, 20).round(6).astype(int)))


_registered: dict[str, Check] = {}
CHECKS = MappingProxyType(_registered)
"""By name, in the order of the published tables."""


def _check(
    name: str,
    title: str,
    x_label: str,
    settings: tuple[Setting, ...],
    grid: Callable[[Setting], tuple[float, ...]],
    **kind: bool,
) -> Callable[[Draw], Draw]:
    """Register a check that draws with the decorated function; a number of samples is on a logarithmic axis."""

    def register(draw: Draw) -> Draw:
        _registered[name] = Check(
            name, title, x_label, settings, grid, draw, **{"log_x": "varies_size" in kind, **kind}
        )
        return draw

    return register


def _settings(*dimensions: int, scenarios: tuple[str, ...] = ("",)) -> tuple[Setting, ...]:
    return tuple(Setting(d, scenario) for scenario in scenarios for d in dimensions)


_LINE, _PLANE = _settings(1, 8, 64), _settings(2)
_OUTLIERS = _settings(1, 8, 64, scenarios=(REAL_OUTLIER, FAKE_OUTLIER))
_BALL_AND_TORUS = _settings(3, scenarios=(REAL_BALL, REAL_TORUS))
_ROUNDED = _settings(1, scenarios=(REALS_ROUNDED, FAKES_ROUNDED))


@_check("mean", "Gaussian with another mean", "mean", _LINE, _shifts)
def shifted_mean(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, I) against N(x 1, I)."""
    shape = SIZE, setting.dimension
    return rng.standard_normal(shape), rng.standard_normal(shape) + x


@_check("mean+outlier", "another mean, and one outlier", "mean", _OUTLIERS, _shifts)
def shifted_mean_with_outlier(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """The same, with one more real or fake where the mean of the fakes ends up."""
    real, fake = shifted_mean(rng, setting, x)
    outlier = np.full((1, setting.dimension), LARGEST_SHIFT[setting.dimension])
    if setting.scenario == REAL_OUTLIER:
        return np.concatenate([real, outlier]), fake
    return real, np.concatenate([fake, outlier])


@_check("std", "Gaussian with another spread", "standard deviation", _LINE, _spreads, log_x=True)
def scaled_spread(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, I) against N(0, x^2 I)."""
    shape = SIZE, setting.dimension
    return rng.standard_normal(shape), x * rng.standard_normal(shape)


@_check("simultaneous", "nine of ten modes fade together", "share lost", _LINE, _even(0, 1, 50))
def starved_modes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Ten modes on a line, against the same with all but the first losing the share x of their mass."""
    weights = np.full(_MODES, 1 - x)
    weights[0] = 1
    return _on_line(rng, setting, np.ones(_MODES)), _on_line(rng, setting, weights)


@_check(
    "sequential", "modes vanish one after the other", "modes dropped", _LINE, _even(0, 9, 10), keeps_all=True
)
def dropped_modes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Ten modes on a line, against the same without the last x."""
    kept = np.arange(_MODES) < _MODES - round(x)
    return _on_line(rng, setting, np.ones(_MODES)), _on_line(rng, setting, kept.astype(float))


@_check(
    "invention",
    "five modes missing, then five invented",
    "modes of the fakes",
    _PLANE,
    _even(1, 10, 10),
    keeps_all=True,
)
def invented_modes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """The first five of ten modes in the plane, against the first x."""
    real, fake = np.arange(_MODES) < REAL_PLANE_MODES, np.arange(_MODES) < round(x)
    first = _mixture(rng, _PLANE_MODES, real.astype(float), _PLANE_SPREAD)
    return first, _mixture(rng, _PLANE_MODES, fake.astype(float), _PLANE_SPREAD)


@_check("hypersphere", "sphere of another radius", "radius", _settings(2, 16, 128), _even(0.1, 1.9, 51))
def spheres(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Uniform on the unit sphere, against a sphere of radius x."""
    d = setting.dimension
    return _directions(rng, SIZE, d), x * _directions(rng, SIZE, d)


@_check(
    "cube-n",
    "cubes that overlap by a fifth, more of both",
    "reals and fakes",
    _LINE,
    _to_ten_thousand,
    varies_size=True,
)
def overlapping_cubes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Two unit cubes that share a fifth of their volume, x samples each."""
    return _cubes(rng, setting.dimension, round(x), round(x))


@_check(
    "cube-n-fake",
    "cubes that overlap by a fifth, more fakes",
    "fakes",
    _LINE,
    _to_ten_thousand,
    varies_size=True,
)
def overlapping_cubes_of_fakes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """The same, with 1000 reals and x fakes."""
    return _cubes(rng, setting.dimension, SIZE, round(x))


@_check(
    "sphere-torus",
    "ball against a torus around it",
    "fakes",
    _BALL_AND_TORUS,
    _to_ten_thousand,
    varies_size=True,
)
def ball_and_torus(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """A ball, and a torus around it that does not touch it; one of them is real, the other has x fakes."""
    if setting.scenario == REAL_BALL:
        return 0.8 * _in_ball(rng, SIZE), _in_torus(rng, round(x))
    return _in_torus(rng, SIZE), 0.8 * _in_ball(rng, round(x))


@_check("collapse", "two modes merged into one", "distance of the modes", _LINE, _even(0, 5, 20))
def merged_modes(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Two modes x apart along every axis, against one Gaussian that spans both."""
    d = setting.dimension
    side = rng.integers(2, size=(SIZE, 1)) - 0.5
    fake = math.sqrt(1 + x**2) * rng.standard_normal((SIZE, d))
    return rng.standard_normal((SIZE, d)) + x * side, fake


@_check("scaling", "far apart, one axis in another unit", "unit", _PLANE, _powers(-3, 3, 20), log_x=True)
def stretched_axis(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Far apart along the first of two axes, with the second axis in another unit."""
    unit = np.array([1.0, x])
    real, fake = rng.standard_normal((SIZE, 2)), rng.standard_normal((SIZE, 2))
    fake[:, 0] += _FAR
    return real * unit, fake * unit


@_check("pareto", "another mean, and a heavy tail", "mean", _PLANE, _even(-6, 6, 51))
def heavy_tail(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, 1) against N(x, 1) along the first axis; along the second, both follow a Pareto law without a variance."""

    def draw(mean: float) -> Rows:
        return np.column_stack([mean + rng.standard_normal(SIZE), 1 + rng.pareto(_PARETO_SHAPE, size=SIZE)])

    return draw(0.0), draw(x)


@_check("disjoint", "far apart along one axis of many", "axes alike", _settings(0), _extra_axes, log_x=True)
def one_disjoint_axis(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """Far apart along one axis, and alike along x others."""
    shape = SIZE, 1 + round(x)
    real, fake = rng.standard_normal(shape), rng.standard_normal(shape)
    fake[:, 0] += _FAR
    return real, fake


@_check(
    "discrete", "one side rounded to integers", "standard deviation", _ROUNDED, _powers(0, 3, 20), log_x=True
)
def rounded(rng: np.random.Generator, setting: Setting, x: float) -> Pair:
    """N(0, x^2) on both sides, with one side rounded to integers."""
    real, fake = x * rng.standard_normal((SIZE, 1)), x * rng.standard_normal((SIZE, 1))
    if setting.scenario == REALS_ROUNDED:
        return np.round(real), fake
    return real, np.round(fake)


def standardized(real: Rows, fake: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Both sets by the mean and the standard deviation of the reals along each axis, as float32.

    An axis along which the reals are all equal is only moved.
    """
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


def _cubes(rng: np.random.Generator, d: int, n_real: int, n_fake: int) -> Pair:
    shift = 1 - CUBE_OVERLAP ** (1 / d)
    return rng.random((n_real, d)), rng.random((n_fake, d)) + shift


def _in_ball(rng: np.random.Generator, n: int) -> Rows:
    return _directions(rng, n, 3) * rng.random((n, 1)) ** (1 / 3)


def _in_torus(rng: np.random.Generator, n: int) -> Rows:
    angle = rng.random(n) * (2 * np.pi)
    return np.column_stack([np.cos(angle), np.sin(angle), np.zeros(n)]) + 0.1 * _in_ball(rng, n)


def cases(checks: tuple[str, ...], grid: GridName) -> Iterator[Case]:
    """Every point of the named checks, check by check."""
    for name in checks:
        for setting in CHECKS[name].settings:
            for x in CHECKS[name].points(setting, grid):
                yield Case(name, setting, x)
