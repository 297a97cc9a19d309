"""Exact ball memberships within one set and between two: bounds select candidates, the definition decides."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from genpr.neighbors.balls import BallKind
from genpr.neighbors.bounds import tight_bounds_of_pairs
from genpr.neighbors.distance import near_sq_distances, of_pairs, sq_distances
from genpr.neighbors.engine import (
    ENGINE,
    Advance,
    Engine,
    PerThread,
    Search,
    no_advance,
    places,
    plain_arithmetic,
    profile_of,
)
from genpr.neighbors.index import IndexedPoints, choose_projection, is_suitable
from genpr.neighbors.nearest import DirectedPairs, NeighborLists, exactly, near_pairs, tightly
from genpr.neighbors.search import PairConsumer, Pairs, sweep
from genpr.validation import Ties, check_rows, check_same_width

_DEFAULT_K = 5  # for the choice of a projection where no balls are needed


def sq_radii_of(ball: BallKind, kth_sq_distances: Tensor) -> Tensor:
    """Squared radii (n,) float64 of balls whose k-th neighbors are at `kth_sq_distances` (n,)."""
    if not ball.clipped:
        return kth_sq_distances
    return kth_sq_distances.clamp(max=_sq_median_radius(kth_sq_distances))


def _sq_median_radius(sq_radii: Tensor) -> float:
    """Square of the median radius: of an even number, of the mean of the two in the middle."""
    ordered, n = sq_radii.sort().values, len(sq_radii)
    return float(sq_middle(ordered[(n - 1) // 2], ordered[n // 2]))


def sq_middle(sq_low: Tensor, sq_high: Tensor) -> Tensor:
    """Squares of the means of two radii, from their squares."""
    low, high = torch.stack([sq_low, sq_high]).cpu().numpy()
    # The square of a root may differ from the number, and would exclude points on the sphere. NumPy's roots, other than
    # torch's, are correctly rounded.
    middle = np.where(low == high, low, ((np.sqrt(low) + np.sqrt(high)) / 2) ** 2)
    return torch.from_numpy(middle).to(sq_low.device)


def _exact_sq_radii(
    features: Tensor, near: DirectedPairs, balls: Sequence[BallKind], rows: Tensor | None
) -> Tensor:
    """Exact squared radii of balls around (n, d) `features`, verified when they are needed, from the pairs that bound them.

    Of `rows` (r,), in any order, or of all: (len(balls), r) float64.
    """
    x, place = features, None
    if rows is not None:
        some, place = torch.unique(rows, return_inverse=True)
        near, x = near.of_rows(some), x.index_select(0, some)
    _, bounds = near.resolved([exactly(x, features)], sorted({ball.k for ball in balls}))
    # Rows without pairs have k copies.
    sq_radii = torch.stack([bounds[ball.k][0] for ball in balls]).masked_fill_(near.size == 0, 0)
    return sq_radii if place is None else sq_radii.index_select(1, place)


@dataclass(slots=True)
class Radii:
    """Squared radii of balls, (a, n) float64, as bounds until they are needed exactly."""

    lower: Tensor
    upper: Tensor
    _later: Callable[[Tensor | None], Tensor] | None = None  # exact ones of some rows (r,) or of all

    @classmethod
    def none(cls, features: Tensor) -> Radii:
        """Of no kind of balls around (n, d) `features`."""
        nothing = torch.empty(0, len(features), dtype=torch.float64, device=features.device)
        return cls(nothing, nothing)

    def exact(self) -> Tensor:
        """Exact values, (a, n)."""
        later = self._later  # another thread may have needed them at the same time
        if later is not None:
            with plain_arithmetic(), torch.inference_mode(mode=False):  # they are kept for other uses
                self.lower = self.upper = later(None)
            self._later = None
        return self.lower

    def exact_at(self, rows: Tensor) -> Tensor:
        """Exact values of `rows` (r,), in a search: (a, r)."""
        later = self._later
        return self.lower.index_select(1, rows) if later is None else later(rows)

    def of_balls(self, kinds: list[int]) -> Radii:
        """Those of some of the kinds of balls."""
        if kinds == [*range(len(self.lower))]:
            return self
        later = self._later if kinds else None
        return Radii(
            self.lower[kinds],
            self.upper[kinds],
            None if later is None else lambda rows: later(rows)[kinds],
        )


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
class Neighborhood:
    """A set of n rows with the balls around them: radii, in-degrees and neighbor lists."""

    points: IndexedPoints
    balls: tuple[BallKind, ...]  # the kinds of balls; none for a set that is only counted
    ties: Ties  # whether a row on a sphere is inside
    radii: Radii  # of all balls
    # for each row, how many balls of other rows contain it when the balls are fitted without it: (len(balls), n) int64;
    # None if it was not computed
    in_degrees: Tensor | None
    lists: NeighborLists  # the nearest others of each row; of length 0 if none are kept

    @classmethod
    def from_features(
        cls,
        features: Tensor,
        balls: Sequence[BallKind],
        *,
        ties: Ties = "closed",
        keep: int = 0,
        counts_degrees: bool = True,
        advance: Advance = no_advance,
    ) -> Neighborhood:
        """Balls around (n, d) `features`, in the projection in which they are found at the lowest cost.

        It is chosen for the largest k of the `balls`; a choice for longer lists costs more than it saves.
        """
        with plain_arithmetic():
            points = choose_projection(features, max(balls).k if balls else _DEFAULT_K).place(features)
            return cls.from_points(
                points, balls, ties=ties, keep=keep, counts_degrees=counts_degrees, advance=advance
            )

    @classmethod
    def from_points(
        cls,
        points: IndexedPoints,
        balls: Sequence[BallKind],
        *,
        ties: Ties = "closed",
        keep: int = 0,
        counts_degrees: bool = True,
        engine: Engine = ENGINE,
        advance: Advance = no_advance,
    ) -> Neighborhood:
        """Balls around indexed points, all found in one search; `keep` is the length of the lists.

        `counts_degrees` is whether in-degrees are computed.
        """
        features, keep, balls = points.features, min(keep, len(points.features) - 1), tuple(balls)
        if not balls:
            return cls(points, balls, ties, Radii.none(features), None, NeighborLists.none(features))
        ks = sorted({ball.k for ball in balls})
        if ties == "strict" and counts_degrees:
            ks = sorted({*ks, *(k + 1 for k in ks if k + 1 < len(points.features))})
        most = max(keep, *ks)
        inputs = {"features": points, "balls": balls, "ties": ties, "keep": keep}
        with engine.search(points.features.device, advance, **inputs) as search:
            near, copies = near_pairs(points, most, search)
            settled = copies[:, 0] >= 0
            lists = _lists(features, near, copies[:, :keep], search)
            if keep > ks[-1]:
                near = near.nearest(ks[-1])
            steps = [of(features, features, search) for of in (tightly, exactly)]
            has_differences = not profile_of(features.device).differences_from
            if has_differences and not counts_degrees and not any(ball.clipped for ball in balls):
                near, bounds = near.resolved(steps[:1], ks)
                each = torch.stack([bounds[ball.k].masked_fill(settled, 0) for ball in balls], dim=1)
                radii = Radii(each[0], each[1], partial(_exact_sq_radii, features, near, balls))
                return cls(points, balls, ties, radii, None, lists)
            near, bounds = near.resolved(steps if has_differences else steps[1:], ks)
            kth = {k: of_k[0].masked_fill_(settled, 0) for k, of_k in bounds.items()}
            sq_radii = torch.stack([sq_radii_of(ball, kth[ball.k]) for ball in balls])
            radii = Radii(sq_radii, sq_radii)
            if not counts_degrees:
                return cls(points, balls, ties, radii, None, lists)
            without = sq_radii if ties == "closed" else _sq_radii_without_one(kth, balls)
            in_degrees = near.in_degrees(without, ties, steps[-1])
            if ties == "closed" and settled.any():
                in_degrees += _settled_copies(features, settled)
            elif ties == "strict":  # if there is no k-th neighbor without the row, all rows are equal
                in_degrees += (settled & (without > 0)) * (len(points.features) - 1)
        return cls(points, balls, ties, radii, in_degrees, lists)

    @property
    def sq_radii(self) -> Tensor:
        """Squared radii (len(balls), n) float64, exact."""
        return self.radii.exact()

    def sq_radii_of_kind(self, ball: BallKind) -> Tensor:
        """Squared radii (n,) float64 of one of the kinds of balls, exact."""
        return self.sq_radii[self.balls.index(ball)]

    def of_fakes(
        self,
        fake: Tensor,
        balls: Sequence[BallKind],
        *,
        keep: int = 0,
        counts_degrees: bool = True,
        advance: Advance = no_advance,
    ) -> Neighborhood:
        """Fakes (m, d) in the projection of these reals, with `balls` around them."""
        check_same_width(self.points.features, fake)
        check_rows(fake, "fake", k=max(balls).k if balls else 0)
        with plain_arithmetic():
            points = self.points.projection.place(fake.to(self.points.features.device))
            # Collapsed fakes far from the reals need a finer projection for their own balls.
            is_near = not balls or is_suitable(points, max(balls).k)
            fitted = partial(Neighborhood.from_points, points)
            if not is_near:
                fitted = partial(Neighborhood.from_features, points.features)
            own = fitted(balls, ties=self.ties, keep=keep, counts_degrees=counts_degrees, advance=advance)
        return replace(own, points=points)

    def count(
        self,
        fakes: Neighborhood,
        real_balls: Sequence[BallKind],
        *,
        smallest_of: BallKind | None = None,
        consumers: Sequence[PairConsumer] = (),
        advance: Advance = no_advance,
    ) -> Memberships:
        """Memberships of these reals and of `fakes` in each other's balls; `real_balls` are some of those that were fitted."""
        n, m = len(self.points.features), len(fakes.points.features)
        rows = [self.balls.index(ball) for ball in real_balls]
        counts = cross_counts(
            self.points,
            fakes.points,
            real_radii=self.radii.of_balls(rows),
            fake_radii=fakes.radii,
            smallest_of=None if smallest_of is None else real_balls.index(smallest_of),
            ties=self.ties,
            consumers=consumers,
            advance=advance,
        )
        shares = dict[BallKind, float]()
        if m >= n and self.in_degrees is not None:
            shares = dict(
                zip(self.balls, ((self.in_degrees >= 1).sum(dim=1).cpu().numpy() / n).tolist(), strict=True)
            )
        tables = {
            "real_balls_per_fake": (real_balls, counts.real_balls_per_fake),
            "fakes_per_real_ball": (real_balls, counts.fakes_per_real_ball),
            "fake_balls_per_real": (fakes.balls, counts.fake_balls_per_real),
            "reals_per_fake_ball": (fakes.balls, counts.reals_per_fake_ball),
        }
        if self.in_degrees is not None:
            tables["real_in_degrees"] = real_balls, self.in_degrees[rows]
        if fakes.in_degrees is not None:
            tables["fake_in_degrees"] = fakes.balls, fakes.in_degrees
        on_cpu = _on_cpu([table for _, table in tables.values()])
        by_ball = {
            name: dict(zip(balls, table, strict=True))
            for (name, (balls, _)), table in zip(tables.items(), on_cpu, strict=True)
        }
        smallest = counts.smallest_real_ball
        return Memberships(n_real=n, n_fake=m, leave_one_out=shares, smallest_real_ball=smallest, **by_ball)


def _on_cpu(tables: Sequence[Tensor]) -> list[Tensor]:
    """Integer tables on the CPU, copied together."""
    parts = torch.split(
        torch.cat([table.flatten() for table in tables]).cpu(), [table.numel() for table in tables]
    )
    return [part.view(table.shape) for part, table in zip(parts, tables, strict=True)]


def _sq_radii_without_one(kth: Mapping[int, Tensor], balls: Sequence[BallKind]) -> Tensor:
    """Squared radii (len(balls), n) of the balls if one row inside of them were not part of the set."""
    radii = []
    for ball in balls:
        own = kth[ball.k]
        longer = kth.get(ball.k + 1, torch.full_like(own, torch.inf))
        radii.append(longer.clamp(max=float(sq_radii_of(ball, own).max())) if ball.clipped else longer)
    return torch.stack(radii)


def _lists(features: Tensor, near: DirectedPairs, copies: Tensor, search: Search) -> NeighborLists:
    """Lists from `near`, as long as `copies` (n, keep) is wide; rows with copies get these."""
    if not copies.shape[1]:
        return NeighborLists(copies, copies.double())
    sq = search.map_pairs(near_sq_distances, features, features, near.row, near.other)
    at, is_settled = near.positions(sq, copies.shape[1]), copies[:, :1] >= 0
    index = pad(near.other, (0, 1), value=-1)[at].where(~is_settled, copies)
    return NeighborLists(index, pad(sq, (0, 1), value=torch.inf)[at].masked_fill(is_settled, 0))


def _settled_copies(features: Tensor, settled: Tensor) -> Tensor:
    """Number of settled copies of each row besides itself, (n,) int64; the balls of radius 0 of all of them contain it."""
    rows = [hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest() for row in features.cpu().numpy()]
    number = Counter(row for row, is_settled in zip(rows, settled.tolist(), strict=True) if is_settled)
    return torch.tensor([number[row] for row in rows], device=features.device) - settled.long()


@dataclass(frozen=True, slots=True)
class CrossCounts:
    """Ball memberships between two sets, for a sets of radii of the reals and b of the fakes; all int64."""

    real_balls_per_fake: Tensor  # (a, m) how many real balls contain each fake
    fakes_per_real_ball: Tensor  # (a, n) how many fakes each real ball contains
    fake_balls_per_real: Tensor  # (b, n) how many fake balls contain each real
    reals_per_fake_ball: Tensor  # (b, m) how many reals each fake ball contains
    # (m,) float64, smallest squared radius of the real balls of one kind that contain each fake, infinite where
    # none does; None without `smallest_of`
    smallest_real_ball: Tensor | None = None


def cross_counts(
    real: IndexedPoints,
    fake: IndexedPoints,
    *,
    real_radii: Radii | None = None,
    fake_radii: Radii | None = None,
    smallest_of: int | None = None,
    ties: Ties = "closed",
    engine: Engine = ENGINE,
    consumers: Sequence[PairConsumer] = (),
    advance: Advance = no_advance,
) -> CrossCounts:
    """Count ball memberships between two sets, for all sets of radii in one pass over real x fake, with other `consumers`."""
    n, m, device = len(real.features), len(fake.features), real.features.device
    radii = real_radii or Radii.none(real.features), fake_radii or Radii.none(fake.features)
    of_real, of_fake = radii
    a, b = len(of_real.lower), len(of_fake.lower)
    reaches = [
        torch.cat([each.upper.new_full((1, each.upper.shape[1]), -torch.inf), each.upper]).amax(dim=0)
        for each in radii
    ]
    of_smallest = None if smallest_of is None else of_real.exact()[smallest_of]

    def empty() -> tuple[Tensor, Tensor]:
        """Counts (r, n + m) for all sets of radii, and the smallest squared radius around each fake."""
        counts = torch.zeros(a + b, n + m, dtype=torch.int64, device=device)
        return counts, torch.full((m,), torch.inf, dtype=torch.float64, device=device)

    per_thread = PerThread(empty)

    def consume(pairs: Pairs) -> None:
        for consumer in consumers:
            consumer.consume(pairs)
        if consumers:  # whose reaches may be larger
            reach = torch.maximum(
                *(each.index_select(0, at) for each, at in zip(reaches, pairs[:2], strict=True))
            )
            pairs = pairs.at(places(pairs.sq_lower <= reach))
        inside = _inside(real.features, fake.features, pairs, of_real, of_fake, ties)
        counts, smallest = per_thread.own
        for row, within in zip(counts, inside, strict=True):
            row.index_add_(0, pairs.i, within.long())
            row.index_add_(0, pairs.j + n, within.long())
        if smallest_of is not None and of_smallest is not None:
            sq_radii = of_smallest.index_select(0, pairs.i).where(inside[smallest_of], torch.inf)
            smallest.scatter_reduce_(0, pairs.j, sq_radii, "amin")

    all_reaches = zip(reaches, *(consumer.reaches for consumer in consumers), strict=True)
    row_reach, column_reach = (torch.stack(each).amax(dim=0) for each in all_reaches)
    with engine.search(device, advance, features=real, queries=fake) as search:
        deque(sweep(real, row_reach, search, consume, (fake, column_reach)), maxlen=0)
    communicator, (counts, smallest) = engine.communicator(), empty()
    for of_thread, smallest_of_thread in per_thread.all:
        counts += of_thread
        torch.minimum(smallest, smallest_of_thread, out=smallest)
    counts = communicator.all_reduce_sum(counts)
    of_rows, of_columns = counts[:, :n], counts[:, n:]
    least = None
    if smallest_of is not None:
        least = torch.stack(communicator.all_gather(smallest)).amin(dim=0)
    return CrossCounts(of_columns[:a], of_rows[:a], of_rows[a:], of_columns[a:], least)


def _inside(x: Tensor, y: Tensor, pairs: Pairs, of_x: Radii, of_y: Radii, ties: Ties) -> Tensor:
    """Which pairs (p,) are within which radii of their row of x and of their row of y: (r, p) bool.

    The bounds of the coordinates decide some pairs, tighter bounds most of the others, and the definition the rest.
    """
    within = torch.le if ties == "closed" else torch.lt

    def both(left: Tensor, right: Tensor) -> Tensor:
        return torch.cat([left.index_select(1, pairs.i), right.index_select(1, pairs.j)])

    least, most = both(of_x.lower, of_y.lower), both(of_x.upper, of_y.upper)
    inside = within(pairs.sq_upper, least)
    is_open = (within(pairs.sq_lower, most) & ~inside).any(dim=0)
    for is_exact in (True,) if profile_of(x.device).differences_from else (False, True):
        left = places(is_open)
        if not len(left):
            break
        i, j = pairs.i.index_select(0, left), pairs.j.index_select(0, left)
        if is_exact:
            sq_lower = sq_upper = of_pairs(sq_distances, x, y, i, j)
            lower = upper = torch.cat([of_x.exact_at(i), of_y.exact_at(j)])
        else:
            sq_lower, sq_upper = tight_bounds_of_pairs(x, y, i, j)
            lower, upper = least.index_select(1, left), most.index_select(1, left)
        is_inside = within(sq_upper, lower)
        inside.index_copy_(1, left, is_inside)
        is_open.index_copy_(0, left, (within(sq_lower, upper) & ~is_inside).any(dim=0))
    return inside
