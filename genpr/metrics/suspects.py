"""Suspect images, from the counts behind the metrics: outliers, shrinkage, near copies, near-duplicates.

In many dimensions a few rows (hubs) are among the nearest of very many others and most rows of none, which lowers the
precision and recall of a perfect generator, and lets one outlier account for a large share of the fakes.

Near-duplicates, such as frames of one video shot or augmented copies of one photograph, lie far closer to each other than
independent draws do. Their balls end inside the group, so few images of the other set are counted in them, and the nulls,
which hold for independent draws, do not account for that. A row belongs to a group of near-duplicates if its first j
neighbors are within a distance that independent draws reach with a probability of .003, neighbor j + 1 is more than twice
as far as neighbor j, and so is the nearest row of the other set. The distance follows from the distance of neighbor 64 and
the intrinsic dimension between neighbors 32 and 64, since k (r_j / r_k)^d of independent draws is near a Gamma(j) variable.
A group that the other set shares lowers no metric.

References:
    Radovanović, Nanopoulos & Ivanović 2010, "Hubs in Space" (in-degrees of neighbor graphs).
    Levina and Bickel 2004, "Maximum Likelihood Estimation of Intrinsic Dimension" (the local Poisson process).
    Alaa et al. 2022, "How Faithful is your Synthetic Data?" (distances to the nearest real against its own).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import filterfalse
from operator import attrgetter

import torch
from torch import Tensor

from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Memberships, Neighborhood
from genpr.neighbors.engine import PairProgress, progress_counter
from genpr.neighbors.index import IndexedPoints
from genpr.neighbors.nearest import nearest_between

_OVER_SHARE, _OVER_FAIR = 0.01, 10  # of the fakes, and times the expected count, in the ball of an outlier
_LONELY = 0.5  # times as many fakes as are in its ball must lie in hardly any other ball
_MAX_SIZE_RATIO = 1.1  # sizes that may be compared
_NEAR_SQ_RATIO = 0.25  # squared: half as far from the nearest real as that is from its own nearest, and as reals usually are


@dataclass(frozen=True, slots=True)
class Outlier:
    """A real image whose ball contains many fakes that hardly any other ball contains."""

    row: int  # of the real
    share: float  # of the fakes that lie in its ball
    fakes: int  # how many these are


@dataclass(frozen=True, slots=True)
class NearCopies:
    """Fakes that are far nearer to a real than reals are to each other."""

    fakes: Tensor  # rows of these fakes, nearest first
    reals: Tensor  # rows of the reals that they are near to
    share: float  # of all fakes
    expected: float  # share of the reals that are as near to another real, each left out in turn
    is_excess: bool  # whether clearly more of the fakes than of the reals are that near: by 3 standard errors
    nearest: tuple[Tensor, Tensor]  # row (m,) of the real nearest to each fake, and its squared distance


_EXAMINED = 128  # of each set that are examined
_EXAMINED_NEIGHBORS = 64  # of each row; the first half is searched for groups
_LOCAL_SHARE = 5  # at most one in so many rows of a set is a neighbor
_CHANCE = 0.003  # that neighbor j of a row is as close among independent draws
_DUPLICATE_GAP = 2.0  # times as far is the next neighbor, and the other set
_PLACES = 3  # nearest neighbors that are weighed, the k of precision and recall
_MIN_WEIGHT = 0.1
_MIN_EXAMINED = 5


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Groups of near-duplicates in one set, estimated from a sample of its rows."""

    share: float  # share of the rows that belong to a group
    size: int  # median number of rows of their groups
    weight: float  # share of the three nearest neighbors that near-duplicates occupy
    weight_unequal: float  # the same, without groups of rows that are exactly equal
    is_shared: bool  # whether the other set has rows in these groups, as independent draws would
    rows: int  # number of rows that were found in a group

    def matters(self, *, equal: bool = True) -> bool:
        """Whether metrics are lower by about a tenth or more; `equal` includes groups of rows that are exactly equal."""
        weight = self.weight if equal else self.weight_unequal
        return weight >= _MIN_WEIGHT and self.rows >= _MIN_EXAMINED and not self.is_shared


@dataclass(frozen=True, slots=True)
class ExaminedRows:
    """Some rows of a set of n, with their nearest others."""

    index: Tensor  # (q,) which rows
    points: IndexedPoints  # these rows
    sq: Tensor  # (q, count) float64, squared distances, ascending
    n: int

    @classmethod
    def from_points(cls, points: IndexedPoints) -> ExaminedRows | None:
        """A sample of the rows of a set; None for fewer than ten rows."""
        n = len(points.features)
        count = min(_EXAMINED_NEIGHBORS, n // _LOCAL_SHARE)
        if count < 2:
            return None
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
        index = order[:_EXAMINED].sort().values.to(points.features.device)
        some = points.projection.place(points.features[index])
        _, sq = nearest_between(some, points, count + 1)
        return cls(index, some, sq[:, 1:], n)  # without the row itself


def near_duplicates(
    own: ExaminedRows | None, other: IndexedPoints, *, sq_to_other: Tensor | None = None
) -> NearDuplicates | None:
    """Groups of near-duplicates among the rows of a set; None for fewer than ten rows.

    `sq_to_other` (n,) are the squared distances to the nearest rows of the other set, where they are known.
    """
    from scipy.special import digamma, gammaincinv

    if own is None:
        return None
    n, m, count = own.n, len(other.features), own.sq.shape[1]
    to_other = (
        nearest_between(own.points, other, 1)[1] if sq_to_other is None else sq_to_other[own.index, None]
    )
    roots = torch.cat([to_other, own.sq], dim=1).cpu().sqrt()
    nearest_other, radii = roots[:, 0], roots[:, 1:]
    half = count // 2
    # Distance of neighbor j over that of the last one that independent draws stay below with `_CHANCE`, (half,).
    growth = (radii[:, -1] / radii[:, half - 1]).log()
    growth = growth[growth.isfinite() & (growth > 0)]
    slope = float(growth.median()) / float(digamma(count) - digamma(half)) if len(growth) else 0.0
    within = torch.from_numpy(gammaincinv(range(1, half + 1), _CHANCE)) / count
    reach = radii[:, -1:] * (within.log() * slope).exp().clamp(max=1 / _DUPLICATE_GAP)
    ends = (radii[:, :half] <= reach) & (radii[:, 1 : half + 1] > _DUPLICATE_GAP * radii[:, :half])
    mates = (ends * torch.arange(1, half + 1)).amax(dim=1)
    extent = radii.gather(1, (mates - 1).clamp(min=0)[:, None])[:, 0]
    grouped = mates > 0
    alone = grouped & (nearest_other > _DUPLICATE_GAP * extent)
    near_others = nearest_other <= torch.where(grouped, _DUPLICATE_GAP * extent, reach[:, 0])
    by_chance = -torch.expm1(-mates * (m / n))
    places = mates.clamp(max=_PLACES) * alone / _PLACES
    return NearDuplicates(
        share=float(alone.double().mean()),
        size=int(mates[alone].median()) + 1 if alone.any() else 0,
        weight=float(places.mean()),
        weight_unequal=float((places * (extent > 0)).mean()),
        is_shared=float(near_others.double().mean()) >= float(by_chance.mean()) / 2,
        rows=int(alone.sum()),
    )


@dataclass(frozen=True, slots=True)
class ManifoldDiagnostics:
    """Diagnostics of one pair of sets; None where not computed."""

    outliers: tuple[Outlier, ...] = ()  # real images whose balls alone contain many fakes
    # Median radius of the fakes' balls over that of the reals' with the same k, each in its own set
    concentration: float | None = None
    near_copies: NearCopies | None = None  # fakes close to a real
    flat: tuple[float, float] = (0.0, 0.0)  # shares of the reals and of the fakes with balls of radius 0
    # Among the reals, and among the fakes; None for very small sets
    near_duplicates: tuple[NearDuplicates | None, NearDuplicates | None] = (None, None)

    @classmethod
    def from_counts(
        cls,
        real: Neighborhood,
        fake: Neighborhood,
        counted: Memberships,
        progress: PairProgress | None = None,
        *,
        examined_reals: Callable[[], ExaminedRows | None],
    ) -> ManifoldDiagnostics | None:
        """All diagnostics from the counts; None if no balls around reals were counted. `examined_reals` may have been examined before."""
        n, m = counted.n_real, counted.n_fake
        ball, own_ball = _largest_plain(counted.fakes_per_real_ball), _largest_plain(fake.balls)
        if ball is None or real.in_degrees is None:
            return None
        concentration, common = None, _largest_plain({*fake.balls} & {*real.balls})
        # Only for sets of similar size: more points have smaller balls.
        if common is not None and max(n, m) <= _MAX_SIZE_RATIO * min(n, m):
            ours, theirs = (float(each.sq_radii_of_kind(common).sqrt().median()) for each in (real, fake))
            if min(ours, theirs) > 0:  # repeated images have radius 0
                concentration = theirs / ours
        # A perfect generator puts k m / n fakes into a ball however large it is, and hardly ever ten times as many. Where
        # fakes are dense, each lies in many balls; those of an outlier lie in hardly any other ball.
        counts, balls_per_fake = counted.fakes_per_real_ball[ball], counted.real_balls_per_fake[ball]
        lonely = int(((balls_per_fake > 0) & (balls_per_fake <= max(1, ball.k // 2))).sum())
        many = (counts > _OVER_SHARE * m) & (counts > _OVER_FAIR * ball.k * m / n)
        many &= lonely >= _LONELY * counts
        rows = many.nonzero()[:, 0]
        rows = rows[counts[rows].argsort(descending=True, stable=True)]
        fakes = counts[rows]
        near = _near_copies(real, fake, progress)
        sq_nearest = None if near is None else near.nearest[1]
        return cls(
            tuple(map(Outlier, rows.tolist(), (fakes.double() / m).tolist(), fakes.tolist())),
            concentration,
            near,
            (_flat_share(real, ball), _flat_share(fake, own_ball)),
            (
                near_duplicates(examined_reals(), fake.points),
                near_duplicates(ExaminedRows.from_points(fake.points), real.points, sq_to_other=sq_nearest),
            ),
        )


def _flat_share(side: Neighborhood, ball: BallKind | None) -> float:
    """Share of balls of radius 0; 0 without any balls."""
    return 0.0 if ball is None else float((side.sq_radii_of_kind(ball) == 0).double().mean())


def _largest_plain(balls: Iterable[BallKind]) -> BallKind | None:
    """The largest ball that is not clipped."""
    return max(filterfalse(attrgetter("clipped"), balls), default=None)


def _near_copies(real: Neighborhood, fake: Neighborhood, progress: PairProgress | None) -> NearCopies | None:
    lists = real.lists
    if lists.index.shape[1] < 2:
        return None
    advance = progress_counter(len(fake.points.features) * len(real.points.features), progress)
    nearest = nearest_between(fake.points, real.points, 1, advance=advance)
    index, sq = nearest[0][:, 0], nearest[1][:, 0]
    usual = lists.sq[:, 0].median()  # a fake next to an isolated real need not be a copy
    of_reals = lists.sq[:, 0] <= _NEAR_SQ_RATIO * lists.leave_one_out_sq_distances().clamp(max=usual)
    near = sq <= _NEAR_SQ_RATIO * lists.sq[index, 0].clamp(max=usual)
    rows = near.nonzero()[:, 0]
    rows = rows[sq[rows].argsort(stable=True)]
    n, m = len(of_reals), len(sq)
    share, expected = len(rows) / m, int(of_reals.sum()) / n
    usual_share = max(expected, 1 / n)  # 0 of n reals is compatible with a share of 1 / n
    error = (usual_share * (1 - usual_share) * (1 / n + 1 / m)) ** 0.5
    is_excess = share - expected > max(3 * error, 0.002) and len(rows) >= 5
    return NearCopies(rows, index[rows], share, expected, is_excess, (index, sq))
