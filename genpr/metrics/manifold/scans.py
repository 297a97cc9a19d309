"""Metrics of neighbours that ball memberships do not give: each looks for something of its own.

Their balls are closed whatever the rule for ties; `realism`, `probabilistic`, `memorisation` and `witnessed` say where
each was published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from torch import Tensor

from genpr.metrics.manifold.memorisation import authentic
from genpr.metrics.manifold.probabilistic import probabilistic_of
from genpr.metrics.manifold.real_side import FakeSide, RealSide
from genpr.metrics.manifold.realism import rarity, realism_of
from genpr.metrics.manifold.witnessed import cut_and_uncut, pairs_of
from genpr.metrics.manifold.witnessed_halves import HALVES, LEAST, witnessed_of_halves
from genpr.neighbours.balls import Ball
from genpr.neighbours.nearest import nearest_between
from genpr.neighbours.sweep import Tick, no_tick


@dataclass(frozen=True, slots=True)
class Scanned:
    """A value; what a perfect generator scores, where that is known, where it is known from, and what it is a share of."""

    value: float | None
    null: float | None = None
    source: str = "real halves"
    over: Literal["real", "fake"] = "fake"


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How to look.

    Attributes:
        k: Neighbours.
        seed: Of what is drawn.
        tick: Told of progress.
    """

    k: int
    seed: int = 0
    tick: Tick = no_tick


@dataclass(frozen=True, slots=True)
class Halved:
    """How to find metrics for halves of both sets.

    Attributes:
        find: Values (B,) of each, not cut at 1; halves 2 s and 2 s + 1 share no image.
        count: How many halves, B.
        least: Images of each side without which halves have no value.
    """

    find: Callable[[RealSide, FakeSide, ScanOptions], dict[str, Tensor]]
    count: int
    least: int


@dataclass(frozen=True, slots=True)
class Scan:
    """Metrics that are found together.

    Attributes:
        find: Their values.
        pairs: How many pairs of rows it looks at, for n reals and m fakes; as many are told to the tick.
        balls: The balls around reals that it needs beside its own search, for a k.
        smallest: Whether it needs the smallest of these balls around each fake.
        keep: Neighbours of each real that it needs.
        least_real: Neighbours that every real must have, for a k.
        least_fake: Neighbours that every fake must have, for a k.
        halved: Their values for halves of both sets, where intervals of them are known.
    """

    find: Callable[[RealSide, FakeSide, ScanOptions], dict[str, Scanned]]
    pairs: Callable[[int, int], int]
    balls: Callable[[int], tuple[Ball, ...]] = lambda _k: ()
    smallest: bool = False
    keep: int = 0
    least_real: Callable[[int], int] = lambda k: k
    least_fake: Callable[[int], int] = lambda _k: 0
    halved: Halved | None = None


def _authenticity(real: RealSide, fake: FakeSide, options: ScanOptions) -> dict[str, Scanned]:
    """Share of fakes whose nearest real has another real nearer to it than they are (Alaa et al. 2022)."""
    index, sq = nearest_between(fake.points, real.points, 1, engine=real.engine, tick=options.tick)
    share = authentic(index[:, 0], sq[:, 0], real.sq_radii_of(Ball(1))).double().mean()
    assert real.lists is not None
    of_reals = (real.lists.sq[:, 0] > real.lists.apart_from_rows()).double().mean()
    return {"authenticity": Scanned(float(share), float(of_reals), "leave-one-out")}


def _rarity(real: RealSide, fake: FakeSide, options: ScanOptions) -> dict[str, Scanned]:
    """Mean percentile, among the radii of all reals, of the smallest ball around each fake that lies in any."""
    smallest = fake.memberships.smallest_real_ball
    assert smallest is not None
    percentile = rarity(smallest.sqrt(), real.sq_radii_of(Ball(options.k)).sqrt()).percentile
    mean = percentile[percentile.isfinite()].mean()
    return {"rarity": Scanned(float(mean) if mean.isfinite() else None)}


def _realism(real: RealSide, fake: FakeSide, options: ScanOptions) -> dict[str, Scanned]:
    """Median realism of the fakes."""
    sq_radii = real.sq_radii_of(Ball(options.k))
    values = realism_of(real.points, sq_radii, fake.points, engine=real.engine, tick=options.tick)
    middle = float(values.quantile(0.5))
    return {"realism": Scanned(middle if middle < float("inf") else None)}


def _probabilistic(real: RealSide, fake: FakeSide, options: ScanOptions) -> dict[str, Scanned]:
    found = probabilistic_of(real.points.features, fake.points.features, k=options.k, tick=options.tick)
    return {"p_precision": Scanned(found.precision), "p_recall": Scanned(found.recall)}


def _witnessed(real: RealSide, fake: FakeSide, options: ScanOptions) -> dict[str, Scanned]:
    found, _ = cut_and_uncut(real.points.features, fake.points.features, options.seed, options.tick)
    return {
        f"witnessed_{name}": Scanned(
            None if math.isnan(value) else value,
            1.0,
            "leave-one-out",
            "fake" if name == "fidelity" else "real",
        )
        for name, value in found._asdict().items()
    }


def _witnessed_halves(real: RealSide, fake: FakeSide, options: ScanOptions) -> dict[str, Tensor]:
    found = witnessed_of_halves(real.points.features, fake.points.features, options.seed, tick=options.tick)
    return {f"witnessed_{name}": values for name, values in found.items()}


def _no_pairs(_n: int, _m: int) -> int:
    return 0


def _pairs_between(n: int, m: int) -> int:
    return n * m


def _all_pairs(n: int, m: int) -> int:
    """Within each set and between the two."""
    return (n + m) * (n + m - 1) // 2


SCANS: Mapping[tuple[str, ...], Scan] = MappingProxyType(
    {
        ("authenticity",): Scan(
            _authenticity, _pairs_between, lambda _k: (Ball(1),), keep=2, least_real=lambda _k: 2
        ),
        ("rarity",): Scan(_rarity, _no_pairs, lambda k: (Ball(k),), smallest=True),
        ("realism",): Scan(_realism, _pairs_between, lambda k: (Ball(k),)),
        ("p_precision", "p_recall"): Scan(_probabilistic, _all_pairs, least_fake=lambda k: k),
        ("witnessed_fidelity", "witnessed_diversity", "witnessed_support", "witnessed_coverage"): Scan(
            _witnessed,
            pairs_of,
            least_fake=lambda k: k,
            halved=Halved(_witnessed_halves, HALVES, LEAST),
        ),
    }
)
"""By the names of the metrics."""


def needed_scans(names: Collection[str]) -> dict[tuple[str, ...], Scan]:
    """The scans that give any of the metrics."""
    return {found: scan for found, scan in SCANS.items() if set(found) & set(names)}
