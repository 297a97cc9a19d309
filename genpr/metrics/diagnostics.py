"""What the counts behind the metrics reveal about the images: hubs, outliers, shrinkage, near copies, near-duplicates.

References:
    Radovanović, Nanopoulos & Ivanović 2010, "Hubs in Space" (in-degrees of neighbour graphs).
    Alaa et al. 2022, "How Faithful is your Synthetic Data?" (distances to the nearest real against its own).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from genpr.metrics.hubness import Hubness, hubness
from genpr.metrics.near_duplicates import NearDuplicates, near_duplicates
from genpr.metrics.progress import PairProgress, tally
from genpr.metrics.real_side import FakeSide, RealSide
from genpr.neighbors.nearest import nearest_between

_OVER_SHARE, _OVER_FAIR = 0.01, 10  # of the fakes, and times its fair part, that an outlier vouches for
_LONELY = 0.5  # times as many fakes as it vouches for must lie in hardly any other ball
_ALIKE = 1.1  # sizes that may be compared
_NEAR = 0.25  # squared: half as far from the nearest real as that is from its own nearest, and as reals usually are


@dataclass(frozen=True, slots=True)
class Outlier:
    """A real image that vouches for many fakes all by itself.

    Attributes:
        row: Of the real.
        share: Of the fakes that lie in its ball.
        fakes: How many these are.
    """

    row: int
    share: float
    fakes: int


@dataclass(frozen=True, slots=True)
class NearCopies:
    """Fakes that are far nearer to a real than reals are to each other.

    Attributes:
        fakes: Rows of these fakes, nearest first.
        reals: Rows of the reals that they are near to.
        share: Of all fakes.
        expected: Share of the reals that are as near to another real, each left out in turn.
        n: Number of reals.
        m: Number of fakes.
        nearest: Row of the real that is nearest to each fake, (m,) int64, and its squared distance, (m,) float64.
    """

    fakes: Tensor
    reals: Tensor
    share: float
    expected: float
    n: int
    m: int
    nearest: tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class ManifoldDiagnostics:
    """What one pair of sets reveals; None where it was not looked for.

    Attributes:
        k: Of the balls that hubness and outliers are told by.
        hubness: Of the reals.
        outliers: Real images that vouch for many fakes all by themselves, the worst first.
        concentration: Median radius of the fakes' balls over that of the reals' with the same k, each in its own set.
        near_copies: Fakes beside a real.
        flat: Shares of the reals and of the fakes whose balls are mere points: as many others have equal features.
        near_duplicates: Those among the reals and those among the fakes; None for very small sets.
    """

    k: int
    hubness: Hubness | None = None
    outliers: tuple[Outlier, ...] = ()
    concentration: float | None = None
    near_copies: NearCopies | None = None
    flat: tuple[float, float] = (0.0, 0.0)
    near_duplicates: tuple[NearDuplicates | None, NearDuplicates | None] = (None, None)

    @classmethod
    def of(
        cls, real: RealSide, fake: FakeSide, progress: PairProgress | None = None
    ) -> ManifoldDiagnostics | None:
        """Everything that the counts tell; None where no ball was drawn around a real.

        Args:
            real: The reals.
            fake: The fakes, counted against them.
            progress: Called with the pairs of rows done with and their number.
        """
        plain = [ball for ball in fake.memberships.fakes_per_real_ball if not ball.clipped]
        if not plain or real.in_degrees is None:
            return None
        ball = plain[-1]
        found, m = fake.memberships, fake.memberships.n_fake
        counts, degrees = found.fakes_per_real_ball[ball], found.real_in_degrees[ball]
        return cls(
            ball.k,
            hubness(degrees, counts, k=ball.k, n_fake=m),
            _outliers(counts, found.real_balls_per_fake[ball], ball.k, found.n_real),
            _concentration(real, fake),
            _near_copies(real, fake, progress),
            (_share_of_points(real.sq_radii_of(ball)), _flat(fake)),
            (
                near_duplicates(real.points, fake.points, engine=real.engine),
                near_duplicates(fake.points, real.points, engine=real.engine),
            ),
        )


def _outliers(counts: Tensor, balls_per_fake: Tensor, k: int, n: int) -> tuple[Outlier, ...]:
    """A perfect generator puts k m / n fakes into a ball however large it is, and hardly ever ten times as many.

    Where fakes are dense, each lies in many balls; where one real vouches for them alone, in hardly another.
    """
    m = len(balls_per_fake)
    lonely = int(((balls_per_fake > 0) & (balls_per_fake <= max(1, k // 2))).sum())
    many = (counts > _OVER_SHARE * m) & (counts > _OVER_FAIR * k * m / n) & (lonely >= _LONELY * counts)
    rows = many.nonzero()[:, 0]
    rows = rows[counts[rows].argsort(descending=True, stable=True)]
    return tuple(Outlier(row, int(counts[row]) / m, int(counts[row])) for row in rows.tolist())


def _flat(fake: FakeSide) -> float:
    """Of the largest balls around fakes, if there are any."""
    own = fake.own
    plain = [] if own is None else [ball for ball in own.balls if not ball.clipped]
    return _share_of_points(own.radii_of(plain[-1:])[0]) if own is not None and plain else 0.0


def _share_of_points(sq_radii: Tensor) -> float:
    return float((sq_radii == 0).double().mean())


def _concentration(real: RealSide, fake: FakeSide) -> float | None:
    """Of sets of about one size: more points have smaller balls, however they are spread."""
    own, n, m = fake.own, len(real.points), len(fake.points)
    if own is None or max(n, m) > _ALIKE * min(n, m):
        return None
    both = [ball for ball in own.balls if not ball.clipped and ball in real.balls]
    if not both:
        return None
    of_fakes = own.radii_of(both[-1:])[0].sqrt().median()
    if of_fakes == 0:  # repeated images, which are another matter
        return None
    of_reals = real.sq_radii_of(both[-1]).sqrt().median()
    return float(of_fakes / of_reals) if of_reals > 0 else None


def _near_copies(real: RealSide, fake: FakeSide, progress: PairProgress | None) -> NearCopies | None:
    lists = real.lists
    if lists is None or lists.length < 2:
        return None
    tick = tally(len(fake.points) * len(real.points), progress)
    nearest = nearest_between(fake.points, real.points, 1, engine=real.engine, tick=tick)
    index, sq = (table[:, 0] for table in nearest)
    usual = lists.sq[:, 0].median()  # beside a real far from all others is not yet near
    of_reals = lists.sq[:, 0] <= _NEAR * lists.apart_from_rows().clamp(max=float(usual))
    near = sq <= _NEAR * lists.sq[index, 0].clamp(max=float(usual))
    rows = near.nonzero()[:, 0]
    rows = rows[sq[rows].argsort(stable=True)]
    m = len(sq)
    expected, n = int(of_reals.sum()) / len(of_reals), len(of_reals)
    return NearCopies(rows, index[rows], len(rows) / m, expected, n, m, (index, sq))


def is_copying(copies: NearCopies) -> bool:
    """Whether clearly more of the fakes than of the reals lie beside a real: by 3 standard errors, and .2 %."""
    # None among n reals may still be one in n.
    usual = max(copies.expected, 1 / copies.n)
    error = (usual * (1 - usual) * (1 / copies.n + 1 / copies.m)) ** 0.5
    excess = copies.share - copies.expected
    return bool(excess > 3 * error and excess > 0.002 and len(copies.fakes) >= 5)
