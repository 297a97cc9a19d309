"""Measurements of the hold-out benchmark for one pair of sets, and the metrics derived from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from _holdout_cases import Pair
from _holdout_distributions import Rows
from _holdout_duplicates import groups
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.neighbor_metrics import needed_balls
from genpr.metrics.registry import BALLS
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Memberships, sq_radii_of
from genpr.neighbors.index import choose_projection
from genpr.neighbors.nearest import NeighborLists
from genpr.neighbors.subsets import covered_share_of_subsets

Kind = Literal["fidelity", "diversity"]

KS = (3, 5, 10, 20)
MEASURED = (
    "precision",
    "recall",
    "density",
    "coverage",
    "clipped_density",
    "clipped_coverage",
    "symmetric_precision",
    "symmetric_recall",
    "complement_precision",
    "witnessed_diversity",
)
VARIANTS = ("plain", "reals", "weighted")
"""All rows; without near-duplicates among the reals; balls without them in both sets, but shares of all rows."""


_EQUAL = 1e-13  # of squared lengths: what is nearer is equal
_ROUNDING = 1e-9  # of squared radii: a copy of the k-th neighbor is inside


class Reading(NamedTuple):
    """A value and its null; 1 where the metric is calibrated by definition."""

    value: float
    null: float


Readings = dict[str, Reading]
"""By metric and k, such as "precision 3"."""


@dataclass(frozen=True)
class Columns:
    """Values and nulls over draws, by metric and k; a list of one number holds for all draws."""

    values: Mapping[str, Sequence[float]]
    nulls: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Metric:
    """A column of the result.

    Attributes:
        name: As it is shown.
        kind: What it claims to measure.
        compute: From columns and k to values over draws.
        has_k: Whether it depends on k.
    """

    name: str
    kind: Kind
    compute: Callable[[Columns, int], Rows]
    has_k: bool = True


# Measuring ----------------------------------------------------------------------------------------------------


def measured(pair: Pair) -> dict[str, Readings]:
    """Readings by variant; those equal to "plain" are left out."""
    real, fake = (np.ascontiguousarray(rows, dtype=np.float32) for rows in pair)
    found = {"plain": _readings(real, fake)}
    of_reals, kept = _distinct(real)
    of_fakes, others = _distinct(fake)
    if len(kept) < len(real):
        found["reals"] = _readings(real[kept], fake)
    if len(kept) < len(real) or len(others) < len(fake):
        found["weighted"] = _readings(real[kept], fake[others], expand=(of_reals, of_fakes))
    return found


def _distinct(rows: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The group (n,) of each row, and the row that is kept of each group; all rows where too few would be left."""
    of = groups(rows.astype(np.float64))
    kept = np.unique(of, return_index=True)[1]
    most = max(ball.k for balls in _balls() for ball in balls)
    return (of, kept) if len(kept) > most else (np.arange(len(rows)), np.arange(len(rows)))


def _balls() -> tuple[list[BallKind], list[BallKind]]:
    kinds = [needed_balls(dict.fromkeys(MEASURED, k)) for k in KS]
    real, fake = ({ball for pair in kinds for ball in pair[side]} for side in (0, 1))
    return sorted(real), sorted(fake)


def _readings(
    real: NDArray[np.float32],
    fake: NDArray[np.float32],
    *,
    expand: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Readings:
    within, between, among = (_sq_distances(*sets) for sets in ((real, real), (real, fake), (fake, fake)))
    real_balls, fake_balls = _balls()
    of_reals, of_fakes = _sq_radii(within, real_balls), _sq_radii(among, fake_balls)
    own = _sq_radii(within, map(BallKind, KS))
    shares = {ball: float((_inside(within, sq, dim=0) > 1).double().mean()) for ball, sq in own.items()}
    if len(fake) < len(real):
        features = torch.from_numpy(real)
        points = choose_projection(features, max(KS)).place(features)
        find = partial(covered_share_of_subsets, points, NeighborLists.none(features), len(fake))
        shares = {BallKind(k): find(k, ties="closed") for k in KS}
    counts = Memberships(
        n_real=len(real),
        n_fake=len(fake),
        real_balls_per_fake={ball: _inside(between, sq, dim=0) for ball, sq in of_reals.items()},
        fakes_per_real_ball={ball: _inside(between, sq, dim=1) for ball, sq in of_reals.items()},
        fake_balls_per_real={ball: _inside(between.T, sq, dim=0) for ball, sq in of_fakes.items()},
        reals_per_fake_ball={ball: _inside(between.T, sq, dim=1) for ball, sq in of_fakes.items()},
        # Each row lies in its own ball.
        real_in_degrees={ball: _inside(within, sq, dim=0) - 1 for ball, sq in of_reals.items()},
        fake_in_degrees={ball: _inside(among, sq, dim=0) - 1 for ball, sq in of_fakes.items()},
        leave_one_out=shares,
    )
    shown = counts if expand is None else _expanded(counts, *expand)
    found: Readings = {}
    for name in MEASURED:
        for k in KS:
            null = BALLS[name].null(counts, k)
            found[f"{name} {k}"] = Reading(BALLS[name].value(shown, k), np.nan if null is None else null)
    return found


def _sq_distances(a: NDArray[np.float32], b: NDArray[np.float32]) -> Tensor:
    """All squared distances (n, m) float64: of small sets they are cheaper than a search per kind of ball."""
    left, right = torch.from_numpy(a).double(), torch.from_numpy(b).double()
    lengths = left.square().sum(dim=1)[:, None] + right.square().sum(dim=1)
    sq = lengths - 2 * left @ right.T
    if a is b:
        sq.fill_diagonal_(0)
    return sq.where(sq > _EQUAL * lengths, 0)


def _sq_radii(within: Tensor, balls: Iterable[BallKind]) -> dict[BallKind, Tensor]:
    """Squared radii (n,) of the balls of a set, from its squared distances (n, n)."""
    kinds = list(balls)
    nearest = within.topk(
        max(ball.k for ball in kinds) + 1, largest=False
    ).values  # the row itself comes first
    return {ball: sq_radii_of(ball, nearest[:, ball.k].contiguous()) for ball in kinds}


def _inside(sq: Tensor, sq_radii: Tensor, *, dim: int) -> Tensor:
    """Balls (rows of `sq`) around each column for dim 0, or columns in each ball for dim 1."""
    return (sq <= sq_radii[:, None] * (1 + _ROUNDING)).sum(dim=dim)


def _expanded(counts: Memberships, of_reals: NDArray[np.int64], of_fakes: NDArray[np.int64]) -> Memberships:
    """Each row gets the counts of the one that was kept of its group, so that shares are of all rows."""
    real, fake = torch.from_numpy(of_reals), torch.from_numpy(of_fakes)

    def of(table: Mapping[BallKind, Tensor], rows: Tensor) -> dict[BallKind, Tensor]:
        return {ball: each[rows] for ball, each in table.items()}

    return replace(
        counts,
        n_real=len(real),
        n_fake=len(fake),
        real_balls_per_fake=of(counts.real_balls_per_fake, fake),
        fakes_per_real_ball=of(counts.fakes_per_real_ball, real),
        fake_balls_per_real=of(counts.fake_balls_per_real, real),
        reals_per_fake_ball=of(counts.reals_per_fake_ball, fake),
        real_in_degrees=of(counts.real_in_degrees, real),
        fake_in_degrees=of(counts.fake_in_degrees, fake),
    )


# Metrics derived from readings --------------------------------------------------------------------------------

_Compute = Callable[[Columns, int], Rows]


def _raw(name: str) -> _Compute:
    return lambda columns, k: np.array(columns.values[f"{name} {k}"])


def _over_null(name: str) -> _Compute:
    return lambda columns, k: _raw(name)(columns, k) / np.array(columns.nulls[f"{name} {k}"])


def _at_most_1(compute: _Compute) -> _Compute:
    return lambda columns, k: np.minimum(1, compute(columns, k))


def _lesser(*computes: _Compute) -> _Compute:
    def compute(columns: Columns, k: int) -> Rows:
        lesser: Rows = np.minimum.reduce(np.broadcast_arrays(*(each(columns, k) for each in computes)))
        return lesser

    return compute


def _of_kind(kind: Kind) -> list[Metric]:
    """Metrics of fidelity with their counterparts of diversity in the same places."""
    fidelity = kind == "fidelity"
    share = "precision" if fidelity else "recall"
    other = "complement_precision" if fidelity else "coverage"
    clipped = "clipped_density" if fidelity else "clipped_coverage"
    symmetric = f"symmetric_{share}"
    metrics = [Metric(share, kind, _raw(share)), Metric(f"calibrated_{share}", kind, _over_null(share))]
    cut_share, cut_other = (_at_most_1(_over_null(name)) for name in (share, other))
    metrics += [Metric(f"min(1, calibrated_{share})", kind, cut_share)]
    if fidelity:
        density = _over_null("density")
        metrics += [
            Metric("density (null 1)", kind, density),
            Metric("min(1, density)", kind, _at_most_1(density)),
        ]
    metrics += [
        Metric(other, kind, _raw(other)),
        Metric(f"{other} / null", kind, _over_null(other)),
        Metric(f"min(1, {other} / null)", kind, cut_other),
        Metric(clipped, kind, _raw(clipped)),
        Metric(symmetric, kind, _raw(symmetric)),
        Metric(f"{symmetric} / null", kind, _over_null(symmetric)),
        Metric(f"lesser of calibrated_{share}, {other} / null, 1", kind, _lesser(cut_share, cut_other)),
        Metric(f"lesser of calibrated_{share}, {clipped}", kind, _lesser(cut_share, _raw(clipped))),
    ]
    if not fidelity:
        witnessed = "witnessed_diversity"
        metrics += [Metric(witnessed, kind, lambda columns, _k: _raw(witnessed)(columns, 20), has_k=False)]
    return metrics


METRICS = (*_of_kind("fidelity"), *_of_kind("diversity"))
"""In display order."""
