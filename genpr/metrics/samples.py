"""What is known of each single image: who is inside, how realistic and how rare it is, and which image is nearest to it.

Every number follows from the balls and the rule for ties of a score that was computed before, so that the means over
all images are the metrics of that score, bit for bit.

References:
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models" (inside, realism).
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (balls around a fake, covered).
    Han et al. 2022, "Rarity Score: A New Metric to Evaluate the Uncommonness of Synthesized Images" (rarity).
    Alaa et al. 2022, "How Faithful is your Synthetic Data?" (authentic).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genpr.metrics import ball_metrics as metrics
from genpr.metrics.memorization import authentic
from genpr.metrics.real_manifold import CountedFakes, PairProgress, RealManifold, choose_engine, tally
from genpr.metrics.realism import rarity, realism_of
from genpr.metrics.registry import NEIGHBORS
from genpr.neighbors.balls import Ball
from genpr.neighbors.counts import cross_counts
from genpr.neighbors.index import Placed
from genpr.neighbors.nearest import kth_sq_distances, nearest_between
from genpr.neighbors.search import Advance

SAMPLE_METRICS = tuple(name for name, metric in NEIGHBORS.items() if metric.is_per_image)
"""The metrics that the numbers of single images belong to."""

Nearest = tuple[Tensor, Tensor]
"""The row of the other side that is nearest to each image, int64, and its squared distance, float64."""

_COUNTED = (metrics.precision, metrics.density, metrics.coverage, metrics.rarity)
_NEIGHBOR = Ball(1)


class FakeRows(NamedTuple):
    """One number per fake, each (m,); distances in the unit of the features."""

    inside: Tensor  # whether any real ball contains it (bool)
    n_balls: Tensor  # how many real balls contain it (int64)
    realism: Tensor  # kynkäänniemi's realism (float64), infinite for a copy of a real
    rarity: Tensor  # radius of the smallest real ball around it (float64), NaN where there is none
    rarity_percentile: Tensor  # percent of the real radii that are at most as large (float64)
    nearest_real: Tensor  # row of the nearest real (int64), the first of equally near ones
    nearest_real_distance: Tensor  # how far that is (float64)
    authentic: Tensor  # whether that real has another real nearer to it than the fake is (bool)


class RealRows(NamedTuple):
    """One number per real, each (n,); distances in the unit of the features."""

    covered: Tensor  # whether its ball contains a fake (bool)
    n_fakes: Tensor  # how many fakes its ball contains (int64)
    radius: Tensor  # of that ball (float64)
    other_distance: Tensor  # to the nearest other real (float64)
    nearest_fake: Tensor  # row of the nearest fake (int64), the first of equally near ones
    nearest_fake_distance: Tensor  # how far that is (float64)


def sample_rows(
    real: RealManifold,
    fake: CountedFakes,
    *,
    ks: Mapping[str, int],
    nearest_reals: Nearest | None = None,
    progress: PairProgress | None = None,
) -> tuple[FakeRows, RealRows]:
    """What is known of each fake and of each real.

    What the score did not find is searched for: three to five passes over pairs, in tiles.
    """
    n, m, engine = len(real.points), len(fake.points), real.engine
    search = _Search(real, fake, ks)
    passes = 2 + (nearest_reals is None) + bool(search.uncounted)
    advance = tally(passes * n * m + (n * (n - 1) // 2 if search.unfitted else 0), progress)
    sq_radii = search.sq_radii(advance)
    counts = search.counts(sq_radii, advance)
    index, sq = nearest_reals or _nearest(fake.points, real.points, real, advance)
    realism = realism_of(
        real.points, sq_radii[Ball(ks[metrics.realism.name])], fake.points, engine=engine, advance=advance
    )
    rare = rarity(counts.smallest.sqrt(), sq_radii[Ball(ks[metrics.rarity.name])].sqrt())
    fakes = FakeRows(
        inside=counts.per_fake[Ball(ks[metrics.precision.name])] > 0,
        n_balls=counts.per_fake[Ball(ks[metrics.density.name])],
        realism=realism,
        rarity=rare.score,
        rarity_percentile=rare.percentile,
        nearest_real=index,
        nearest_real_distance=_roots(sq),
        authentic=authentic(index, sq, sq_radii[_NEIGHBOR]),
    )
    index, sq = _nearest(real.points, fake.points, real, advance)
    ball = Ball(ks[metrics.coverage.name])
    n_fakes = counts.per_real[ball]
    of_reals = _roots(sq_radii[ball]), _roots(sq_radii[_NEIGHBOR])
    return fakes, RealRows(n_fakes > 0, n_fakes, *of_reals, index, _roots(sq))


def nearest_others(features: Tensor, rows: Tensor) -> Tensor:
    """Row of the nearest other image of each of some rows, (r,) int64; of equally near ones any."""
    points = Placed.of(features, 1)
    index, _ = nearest_between(points.beside(features[rows]), points, 2, engine=choose_engine(points.device))
    # Of copies, the row itself need not be the first, or among them.
    return torch.where(index[:, 0] == rows, index[:, 1], index[:, 0])


class _Counts(NamedTuple):
    """Memberships of real balls: (m,) per fake, (n,) per real, and squared radii (m,) of the smallest around each fake."""

    per_fake: dict[Ball, Tensor]
    per_real: dict[Ball, Tensor]
    smallest: Tensor


class _Search:
    """What a score found already, and what is left to find."""

    def __init__(self, real: RealManifold, fake: CountedFakes, ks: Mapping[str, int]) -> None:
        self._real, self._fake = real, fake
        self._rarity = Ball(ks[metrics.rarity.name])
        counted = {Ball(ks[each.name]) for each in _COUNTED}
        self._balls = sorted({*counted, Ball(ks[metrics.realism.name]), _NEIGHBOR})
        self.unfitted = [ball for ball in self._balls if ball not in real.balls]
        found = fake.memberships
        self.uncounted = sorted(
            ball
            for ball in counted
            if ball not in found.real_balls_per_fake
            or (ball == self._rarity and found.smallest_real_ball is None)
        )

    def sq_radii(self, advance: Advance) -> dict[Ball, Tensor]:
        """Squared radii (n,) float64 of every ball."""
        real = self._real
        found = {ball: real.sq_radii_of(ball) for ball in self._balls if ball in real.balls}
        ks = [ball.k for ball in self.unfitted]
        tables = kth_sq_distances(real.points, ks, engine=real.engine, advance=advance)
        return found | dict(zip(self.unfitted, tables, strict=True))

    def counts(self, sq_radii: Mapping[Ball, Tensor], advance: Advance) -> _Counts:
        """Who lies in which ball, as the score counted it where it did."""
        found, real = self._fake.memberships, self._real
        per_fake, per_real = dict(found.real_balls_per_fake), dict(found.fakes_per_real_ball)
        smallest = found.smallest_real_ball
        if self.uncounted:
            counts = cross_counts(
                real.points,
                self._fake.points,
                real_sq_radii=torch.stack([sq_radii[ball] for ball in self.uncounted]),
                smallest_of=self.uncounted.index(self._rarity) if smallest is None else None,
                ties=real.ties,
                engine=real.engine,
                advance=advance,
            )
            per_fake |= dict(zip(self.uncounted, counts.real_balls_per_fake, strict=True))
            per_real |= dict(zip(self.uncounted, counts.fakes_per_real_ball, strict=True))
            smallest = counts.smallest_real_ball if smallest is None else smallest
        assert smallest is not None
        return _Counts(per_fake, per_real, smallest)


def _roots(sq: Tensor) -> Tensor:
    """Rounded correctly, so that equal squares have equal roots: torch's are an ulp off here and there."""
    return torch.from_numpy(np.sqrt(sq.cpu().numpy()))


def _nearest(queries: Placed, points: Placed, real: RealManifold, advance: Advance) -> Nearest:
    index, sq = nearest_between(queries, points, 1, engine=real.engine, advance=advance)
    return index[:, 0], sq[:, 0]
