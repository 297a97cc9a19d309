"""Metrics of neighbours that ball memberships do not give: each looks for something of its own.

Their balls are closed whatever the rule for ties; `realism`, `probabilistic`, `memorisation` and `witnessed` say where
each was published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from genpr.metrics.memorisation import authentic
from genpr.metrics.probabilistic import probabilistic_precision_recall
from genpr.metrics.real_side import FakeSide, RealSide
from genpr.metrics.realism import rarity, realism_of
from genpr.metrics.witnessed import witnessed
from genpr.neighbours.balls import Ball
from genpr.neighbours.nearest import nearest_between


@dataclass(frozen=True, slots=True)
class Scanned:
    """A value; what a perfect generator scores, where that is known, and where it is known from."""

    value: float | None
    null: float | None = None
    source: str = "real halves"


@dataclass(frozen=True, slots=True)
class Scan:
    """Metrics that are found together.

    Attributes:
        find: Their values, for a k.
        balls: The balls around reals that it needs beside its own search, for a k.
        smallest: Whether it needs the smallest of these balls around each fake.
        keep: Neighbours of each real that it needs.
        least_real: Neighbours that every real must have, for a k.
        least_fake: Neighbours that every fake must have, for a k.
    """

    find: Callable[[RealSide, FakeSide, int], dict[str, Scanned]]
    balls: Callable[[int], tuple[Ball, ...]] = lambda _k: ()
    smallest: bool = False
    keep: int = 0
    least_real: Callable[[int], int] = lambda k: k
    least_fake: Callable[[int], int] = lambda _k: 0


def _authenticity(real: RealSide, fake: FakeSide, _k: int) -> dict[str, Scanned]:
    """Share of fakes whose nearest real has another real nearer to it than they are (Alaa et al. 2022)."""
    index, sq = nearest_between(fake.points, real.points, 1, engine=real.engine)
    share = authentic(index[:, 0], sq[:, 0], real.sq_radii_of(Ball(1))).double().mean()
    assert real.lists is not None
    of_reals = (real.lists.sq[:, 0] > real.lists.apart_from_rows()).double().mean()
    return {"authenticity": Scanned(float(share), float(of_reals), "leave-one-out")}


def _rarity(real: RealSide, fake: FakeSide, k: int) -> dict[str, Scanned]:
    """Mean percentile, among the radii of all reals, of the smallest ball around each fake that lies in any."""
    smallest = fake.memberships.smallest_real_ball
    assert smallest is not None
    percentile = rarity(smallest.sqrt(), real.sq_radii_of(Ball(k)).sqrt()).percentile
    mean = percentile[percentile.isfinite()].mean()
    return {"rarity": Scanned(float(mean) if mean.isfinite() else None)}


def _realism(real: RealSide, fake: FakeSide, k: int) -> dict[str, Scanned]:
    """Median realism of the fakes."""
    values = realism_of(real.points, real.sq_radii_of(Ball(k)), fake.points, engine=real.engine)
    middle = float(values.quantile(0.5))
    return {"realism": Scanned(middle if middle < float("inf") else None)}


def _probabilistic(real: RealSide, fake: FakeSide, k: int) -> dict[str, Scanned]:
    found = probabilistic_precision_recall(
        real.points.features, fake.points.features, k=k, device=real.points.device
    )
    return {"p_precision": Scanned(found.precision), "p_recall": Scanned(found.recall)}


def _witnessed(real: RealSide, fake: FakeSide, _k: int) -> dict[str, Scanned]:
    found = witnessed(real.points.features, fake.points.features, device=real.points.device)
    return {
        f"witnessed_{name}": Scanned(None if math.isnan(value) else value, 1.0, "leave-one-out")
        for name, value in found._asdict().items()
    }


SCANS: Mapping[tuple[str, ...], Scan] = MappingProxyType(
    {
        ("authenticity",): Scan(_authenticity, lambda _k: (Ball(1),), keep=2, least_real=lambda _k: 2),
        ("rarity",): Scan(_rarity, lambda k: (Ball(k),), smallest=True),
        ("realism",): Scan(_realism, lambda k: (Ball(k),)),
        ("p_precision", "p_recall"): Scan(_probabilistic, least_fake=lambda k: k),
        ("witnessed_fidelity", "witnessed_diversity", "witnessed_support", "witnessed_coverage"): Scan(
            _witnessed, least_fake=lambda k: k
        ),
    }
)
"""By the names of the metrics."""


def needed_scans(names: Collection[str]) -> dict[tuple[str, ...], Scan]:
    """The scans that give any of the metrics."""
    return {found: scan for found, scan in SCANS.items() if set(found) & set(names)}
