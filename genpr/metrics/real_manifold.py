"""A real set with its balls: fitted once, scored against any number of fake sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from genpr.distributed import current_communicator
from genpr.errors import UsageError
from genpr.metrics.null import covered_share
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood, cross_counts
from genpr.neighbors.engine import Advance, Engine, no_advance
from genpr.neighbors.index import IndexedPoints, is_suitable
from genpr.neighbors.nearest import NeighborLists
from genpr.neighbors.search import PairConsumer
from genpr.validation import (
    Features,
    Ties,
    check_features,
    check_rows,
    check_same_width,
    check_ties,
    choose_device,
)

_DEFAULT_K = 5  # for the choice of a projection where no neighbors are needed


PairProgress = Callable[[int, int], None]
"""Called with the number of row pairs done and the total."""


def progress_counter(total: int, progress: PairProgress | None) -> Advance:
    """Callback of engines that adds up the pairs done and reports the sum to `progress`."""
    if progress is None:
        return no_advance
    report, done = progress, 0

    def advance(pairs: int) -> None:
        nonlocal done
        done += pairs
        report(done, total)

    return advance


def checked_pair(real: Features, fake: Features, *, k: int) -> tuple[Tensor, Tensor]:
    """Features of reals and of fakes as `check_features` returns them, of one width and more than k rows each."""
    checked = check_features(real, "real"), check_features(fake, "fake")
    check_same_width(*checked)
    check_rows(checked[0], "real", k=k)
    check_rows(checked[1], "fake", k=k)
    return checked


ENGINE = Engine(communicator=current_communicator)
"""Divides searches among all ranks (`genpr.distributed.all_ranks`)."""


@dataclass(frozen=True, slots=True)
class Memberships:
    """Memberships in balls; each table maps a kind of ball to int64 counts on the CPU, which metrics read one by one."""

    n_real: int  # number of reals, n
    n_fake: int  # number of fakes, m
    real_balls_per_fake: Mapping[BallKind, Tensor]  # (m,) how many real balls contain each fake
    fakes_per_real_ball: Mapping[BallKind, Tensor]  # (n,) how many fakes each real ball contains
    fake_balls_per_real: Mapping[BallKind, Tensor]  # (n,) how many fake balls contain each real
    reals_per_fake_ball: Mapping[BallKind, Tensor]  # (m,) how many reals each fake ball contains
    # (n,) balls of other reals around each real; (m,) of other fakes around each fake
    real_in_degrees: Mapping[BallKind, Tensor] = field(default_factory=dict)
    fake_in_degrees: Mapping[BallKind, Tensor] = field(default_factory=dict)
    # share of the reals that lie in the ball of another; of a part as large as the fakes if these are fewer
    leave_one_out: Mapping[BallKind, float] = field(default_factory=dict)
    # (m,) float64, least squared radius of the real balls of one kind that contain each fake, infinite where none does
    smallest_real_ball: Tensor | None = None


@dataclass(frozen=True, slots=True)
class FakeManifold:
    """A fake set with its balls."""

    points: IndexedPoints  # the m fakes, in the projection of the reals
    own: Neighborhood | None  # neighborhood of the fakes within their set; None if no ball was requested


@dataclass(frozen=True, slots=True)
class CountedFakes(FakeManifold):
    """A fake set, counted against a real one."""

    memberships: Memberships  # memberships in balls


@dataclass(frozen=True, slots=True)
class RealManifold:
    """A real set with its balls, fitted once and scored against any number of fake sets."""

    points: IndexedPoints  # the n reals, in a projection for both sets
    balls: tuple[BallKind, ...]  # the kinds that were fitted, ascending
    sq_radii: Tensor  # squared radii (len(balls), n) float64
    ties: Ties  # whether a point on a sphere is inside
    engine: Engine  # what proposes candidate pairs
    in_degrees: Tensor | None = None  # (len(balls), n) int64, in how many balls of others each real lies
    lists: NeighborLists | None = None  # the nearest other reals of each, as many as requested

    @classmethod
    def fit(
        cls,
        features: Features,
        *,
        balls: Iterable[BallKind],
        ties: Ties = "closed",
        keep: int = 0,
        device: str | torch.device = "auto",
        engine: Engine | None = None,
        progress: PairProgress | None = None,
    ) -> RealManifold:
        """Find the radii of all balls."""
        check_ties(ties)
        kinds = tuple(sorted(set(balls)))
        checked = check_features(features, "real")
        check_rows(checked, "real", k=kinds[-1].k if kinds else 0)
        where = choose_device(features, device)
        return cls.from_checked(
            checked.to(where), kinds, ties=ties, keep=keep, engine=engine, progress=progress
        )

    @classmethod
    def from_checked(
        cls,
        features: Tensor,
        balls: tuple[BallKind, ...],
        *,
        ties: Ties = "closed",
        keep: int = 0,
        engine: Engine | None = None,
        progress: PairProgress | None = None,
    ) -> RealManifold:
        """As `fit`, of features that `check_features` returned, on the device to compute on, and ascending `balls`."""
        engine = engine or ENGINE
        most = balls[-1].k if balls else _DEFAULT_K
        points = IndexedPoints.from_features(features, most)
        if not balls:
            none = torch.empty(0, len(points), dtype=torch.float64, device=points.device)
            return cls(points, (), none, ties, engine)
        advance = progress_counter(len(points) * (len(points) - 1) // 2, progress)
        own = Neighborhood.from_points(points, balls, ties=ties, keep=keep, engine=engine, advance=advance)
        return cls(points, balls, own.sq_radii, ties, engine, own.in_degrees, own.lists)

    def memberships(
        self,
        fake: Features,
        *,
        real_balls: Sequence[BallKind],
        fake_balls: Sequence[BallKind],
        progress: PairProgress | None = None,
    ) -> Memberships:
        """Memberships of reals and fakes in each other's balls."""
        self._rows_of(real_balls)  # an error should come before any search
        checked = check_features(fake, "fake")
        advance = progress_counter(pairs_of(len(self.points), len(checked), fake_balls), progress)
        return self.count(
            self.place(checked, fake_balls, advance=advance), real_balls, advance=advance
        ).memberships

    def place(
        self, fake: Tensor, balls: Sequence[BallKind], *, keep: int = 0, advance: Advance = no_advance
    ) -> FakeManifold:
        """Bring fakes into the projection of the reals, and draw balls around them."""
        check_same_width(self.points.features, fake)
        check_rows(fake, "fake", k=max(balls).k if balls else 0)
        points = self.points.in_same_projection(fake.to(self.points.device))
        if not balls:
            return FakeManifold(points, None)
        # In the reals' projection, or in a separate one: collapsed fakes far from the reals need a finer one. It is chosen
        # for the largest k of the balls; a choice for longer lists costs more than it saves.
        own_points, most = points, max(balls).k
        if not is_suitable(points, most):
            own_points = IndexedPoints.from_features(points.features, most)
        own = Neighborhood.from_points(
            own_points, balls, ties=self.ties, keep=keep, engine=self.engine, advance=advance
        )
        return FakeManifold(points, own)

    def count(
        self,
        fakes: FakeManifold,
        real_balls: Sequence[BallKind],
        *,
        smallest_of: BallKind | None = None,
        consumers: Sequence[PairConsumer] = (),
        advance: Advance = no_advance,
    ) -> CountedFakes:
        """Memberships of reals and fakes in each other's balls."""
        rows, own = self._rows_of(real_balls), fakes.own
        fake_balls = () if own is None else own.balls
        counts = cross_counts(
            self.points,
            fakes.points,
            real_sq_radii=self.sq_radii[rows],
            fake_sq_radii=None if own is None else own.sq_radii,
            smallest_of=None if smallest_of is None else real_balls.index(smallest_of),
            ties=self.ties,
            engine=self.engine,
            consumers=consumers,
            advance=advance,
        )
        degrees, shares = {}, {}
        if self.in_degrees is not None:
            every = dict(zip(self.balls, self.in_degrees.cpu(), strict=True))
            degrees = {ball: every[ball] for ball in real_balls}
            if len(fakes.points) >= len(self.points):
                shares = {ball: covered_share(of_ball.numpy()) for ball, of_ball in every.items()}
        memberships = Memberships(
            n_real=len(self.points),
            n_fake=len(fakes.points),
            real_balls_per_fake=dict(zip(real_balls, counts.real_balls_per_fake.cpu(), strict=True)),
            fakes_per_real_ball=dict(zip(real_balls, counts.fakes_per_real_ball.cpu(), strict=True)),
            fake_balls_per_real=dict(zip(fake_balls, counts.fake_balls_per_real.cpu(), strict=True)),
            reals_per_fake_ball=dict(zip(fake_balls, counts.reals_per_fake_ball.cpu(), strict=True)),
            real_in_degrees=degrees,
            fake_in_degrees={} if own is None else dict(zip(fake_balls, own.in_degrees.cpu(), strict=True)),
            leave_one_out=shares,
            smallest_real_ball=counts.smallest_real_ball,
        )
        return CountedFakes(fakes.points, own, memberships)

    def sq_radii_of(self, ball: BallKind) -> Tensor:
        """Squared radii (n,) float64 of one kind of ball."""
        return self.sq_radii[self._rows_of([ball])[0]]

    def _rows_of(self, balls: Sequence[BallKind]) -> list[int]:
        try:
            return list(map(self.balls.index, balls))
        except ValueError:
            fitted = ", ".join(map(str, self.balls)) or "nothing"
            unfitted = min(set(balls) - set(self.balls))
            raise UsageError(f"{unfitted} was not fitted, only {fitted}", code="k-not-fitted") from None


def pairs_of(n: int, m: int, fake_balls: Sequence[BallKind]) -> int:
    """Pairs of rows that a count of m fakes against n reals compares."""
    return n * m + (m * (m - 1) // 2 if fake_balls else 0)
