"""The fifteen sanity checks: what is drawn, what is varied, and over which grid.

References:
    Räisä, van Breugel, van der Schaar 2025, "Position: All Current Generative Fidelity and Diversity Metrics are
    Flawed", ICML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from genpr.audit import draws
from genpr.audit.draws import LARGEST_SHIFT, Pair, Setting

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
    draw: Callable[[np.random.Generator, Setting, float], Pair]
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


def cases(checks: tuple[str, ...], grid: GridName) -> Iterator[Case]:
    """Every point of the named checks, check by check."""
    for name in checks:
        for setting in CHECKS[name].settings:
            for x in CHECKS[name].points(setting, grid):
                yield Case(name, setting, x)


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


_LINE = tuple(Setting(d) for d in (1, 8, 64))
_PLANE = (Setting(2),)
_OUTLIERS = tuple(Setting(d, which) for which in (draws.REAL_OUTLIER, draws.FAKE_OUTLIER) for d in (1, 8, 64))

CHECKS: MappingProxyType[str, Check] = MappingProxyType(
    {
        check.name: check
        for check in (
            Check("mean", "Gaussian with another mean", "mean", _LINE, _shifts, draws.shifted_mean),
            Check(
                "mean+outlier",
                "another mean, and one outlier",
                "mean",
                _OUTLIERS,
                _shifts,
                draws.shifted_mean_with_outlier,
            ),
            Check(
                "std",
                "Gaussian with another spread",
                "standard deviation",
                _LINE,
                _spreads,
                draws.scaled_spread,
                log_x=True,
            ),
            Check(
                "simultaneous",
                "nine of ten modes fade together",
                "share lost",
                _LINE,
                _even(0, 1, 50),
                draws.starved_modes,
            ),
            Check(
                "sequential",
                "modes vanish one after the other",
                "modes dropped",
                _LINE,
                _even(0, 9, 10),
                draws.dropped_modes,
                keeps_all=True,
            ),
            Check(
                "invention",
                "five modes missing, then five invented",
                "modes of the fakes",
                _PLANE,
                _even(1, 10, 10),
                draws.invented_modes,
                keeps_all=True,
            ),
            Check(
                "hypersphere",
                "sphere of another radius",
                "radius",
                tuple(Setting(d) for d in (2, 16, 128)),
                _even(0.1, 1.9, 51),
                draws.spheres,
            ),
            Check(
                "cube-n",
                "cubes that overlap by a fifth, more of both",
                "reals and fakes",
                _LINE,
                _to_ten_thousand,
                draws.overlapping_cubes,
                log_x=True,
                varies_size=True,
            ),
            Check(
                "cube-n-fake",
                "cubes that overlap by a fifth, more fakes",
                "fakes",
                _LINE,
                _to_ten_thousand,
                draws.overlapping_cubes_of_fakes,
                log_x=True,
                varies_size=True,
            ),
            Check(
                "sphere-torus",
                "ball against a torus around it",
                "fakes",
                tuple(Setting(3, which) for which in (draws.REAL_BALL, draws.REAL_TORUS)),
                _to_ten_thousand,
                draws.ball_and_torus,
                log_x=True,
                varies_size=True,
            ),
            Check(
                "collapse",
                "two modes merged into one",
                "distance of the modes",
                _LINE,
                _even(0, 5, 20),
                draws.merged_modes,
            ),
            Check(
                "scaling",
                "far apart, one axis in another unit",
                "unit",
                _PLANE,
                _powers(-3, 3, 20),
                draws.stretched_axis,
                log_x=True,
            ),
            Check(
                "pareto", "another mean, and a heavy tail", "mean", _PLANE, _even(-6, 6, 51), draws.heavy_tail
            ),
            Check(
                "disjoint",
                "far apart along one axis of many",
                "axes alike",
                (Setting(0),),
                _extra_axes,
                draws.one_disjoint_axis,
                log_x=True,
            ),
            Check(
                "discrete",
                "one side rounded to integers",
                "standard deviation",
                tuple(Setting(1, which) for which in (draws.REALS_ROUNDED, draws.FAKES_ROUNDED)),
                _powers(0, 3, 20),
                draws.rounded,
                log_x=True,
            ),
        )
    }
)
"""By name, in the order of the published tables."""
