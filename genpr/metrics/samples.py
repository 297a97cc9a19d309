"""Results of single images: memberships, realism, rarity, and the nearest image of the other set.

Every number follows from the balls and the rule for ties of a score that was computed before, so that the means over
all images are the metrics of that score, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from genpr.metrics import ball_metrics as metrics
from genpr.metrics.realism import authentic, rarity, realism_of
from genpr.metrics.registry import NEIGHBORS
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.distance import square_roots
from genpr.neighbors.engine import Advance, PairProgress, progress_counter
from genpr.neighbors.index import IndexedPoints
from genpr.neighbors.nearest import nearest_between

SAMPLE_METRICS = tuple(name for name, metric in NEIGHBORS.items() if metric.is_per_image)
"""The metrics with a number per image."""

Rows = dict[str, Tensor]
"""Columns of `genpr.evaluation.per_image.FakeSamples` or `RealSamples` by name, a number per image each."""

Nearest = tuple[Tensor, Tensor]
"""The row of the other side that is nearest to each image, int64, and its squared distance, float64."""

_NEIGHBOR = BallKind(1)


def sample_rows(
    real: Neighborhood,
    fake: IndexedPoints,
    *,
    ks: Mapping[str, int],
    nearest_reals: Nearest | None = None,
    progress: PairProgress | None = None,
) -> tuple[Rows, Rows]:
    """Results of each fake and of each real.

    Radii and counts are computed again, for all balls at once: four or five passes over pairs, in tiles.
    """
    n, m = len(real.points.features), len(fake.features)
    each = (metrics.precision, metrics.density, metrics.coverage, metrics.rarity, metrics.realism)
    inside, dense, covered, rare, real_like = (BallKind(ks[metric.name]) for metric in each)
    balls = sorted({inside, dense, covered, rare, real_like, _NEIGHBOR})
    advance = progress_counter((3 + (nearest_reals is None)) * n * m + n * (n - 1) // 2, progress)
    own = Neighborhood.from_points(real.points, balls, ties=real.ties, counts_degrees=False, advance=advance)
    sq_radii = dict(zip(balls, own.sq_radii, strict=True))
    fakes_alone = Neighborhood.from_points(fake, [], ties=real.ties)
    counts = own.count(fakes_alone, balls, smallest_of=rare, advance=advance)
    assert counts.smallest_real_ball is not None
    per_fake, n_fakes = counts.real_balls_per_fake, counts.fakes_per_real_ball[covered]
    index, sq = nearest_reals or _nearest(fake, real.points, advance)
    realism = realism_of(real.points, sq_radii[real_like], fake, advance=advance)
    score, percentile = rarity(square_roots(counts.smallest_real_ball), square_roots(sq_radii[rare]))
    fakes = Rows(
        inside=per_fake[inside] > 0,
        n_balls=per_fake[dense],
        realism=realism,
        rarity=score,
        rarity_percentile=percentile,
        nearest_real=index,
        nearest_real_distance=square_roots(sq),
        authentic=authentic(index, sq, sq_radii[_NEIGHBOR]),
    )
    index, sq = _nearest(real.points, fake, advance)
    reals = Rows(
        covered=n_fakes > 0,
        n_fakes=n_fakes,
        radius=square_roots(sq_radii[covered]),
        other_distance=square_roots(sq_radii[_NEIGHBOR]),
        nearest_fake=index,
        nearest_fake_distance=square_roots(sq),
    )
    return fakes, reals


def _nearest(queries: IndexedPoints, points: IndexedPoints, advance: Advance) -> Nearest:
    index, sq = nearest_between(queries, points, 1, advance=advance)
    return index[:, 0], sq[:, 0]
