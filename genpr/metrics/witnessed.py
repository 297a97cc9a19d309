"""Witnessed fidelity and diversity: membership in several balls at once, calibrated on the data.

A fake counts as real-like if at least 5 of the clipped 20-NN balls of the reals contain it, and if its local intrinsic
dimension is that of a real, unlike that of a point deep inside a curved shell. The share of the reals that pass this test,
each against the others, sets the scale.

References:
    Salvy et al. 2026, "Enhanced Generative Model Evaluation with Clipped Density and Coverage" (clipped radii).
    Amsaleg et al. 2015, "Estimating Local Intrinsic Dimensionality" (the maximum-likelihood estimate).
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (coverage and its expectation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from genpr.memory import part_of
from genpr.metrics.null import balls_hit
from genpr.metrics.real_manifold import ENGINE, checked_pair
from genpr.metrics.uncertainty import lower_part
from genpr.neighbors.balls import Ball
from genpr.neighbors.counts import Neighborhood, cross_counts
from genpr.neighbors.distance import sq_distances_at
from genpr.neighbors.halves import FAKE_STREAM, REAL_STREAM, Halves
from genpr.neighbors.index import IndexedPoints, is_suitable
from genpr.neighbors.nearest import nearest_between
from genpr.neighbors.search import Advance, no_advance
from genpr.validation import Features, check_count, choose_device, entry_point

BALL_K = 20
"""Neighbors that set the radius of a ball, before it is clipped at the median radius."""
WITNESSES = 5
"""Balls that must contain a sample; so one real fewer, wherever it lies, cannot make a sample count."""
COVERING = 4
"""Fakes that must lie in the ball of a real, of unclipped radius, for it to count as covered."""
_CLIPPED = Ball(BALL_K, clipped=True)
HALVES = 20
"""Halves of both sets that an interval rests on: each is scored as a whole set is, which takes time."""
_TOO_HIGH = 0.02  # share of the reals whose dimension counts as too high


class Witnessed(NamedTuple):
    """The values of `witnessed`; diversity is the smaller of support and coverage, block by block."""

    fidelity: float
    diversity: float
    support: float
    coverage: float


@entry_point
def witnessed(
    real: Features, fake: Features, *, seed: int = 0, device: str | torch.device = "auto"
) -> Witnessed:
    """Witnessed fidelity and diversity of fake features against real ones.

    Where there are more fakes than reals, diversity is the mean over as many random blocks of n fakes as
    there are, and fakes that do not fill a block count for fidelity alone; where there are fewer, the balls
    whose coverage is counted hold more reals in the same proportion.
    """
    seed = check_count(seed, "seed", minimum=0)
    checked_real, checked_fake = checked_pair(real, fake, k=BALL_K)
    where = choose_device(real, device)
    return cut_and_uncut(checked_real.to(where), checked_fake.to(where), seed)[0]


def cut_and_uncut(
    real: Tensor, fake: Tensor, seed: int, advance: Advance = no_advance
) -> tuple[Witnessed, Witnessed]:
    """`witnessed` of float32 features (n, d) and (m, d), and the values before they are cut at 1.

    `advance` is called with `pairs_of` pairs in total.
    """
    points, k = IndexedPoints.from_features(real, BALL_K), covering_k(len(real), len(fake))
    own = Neighborhood.from_points(points, [_CLIPPED, Ball(k)], keep=BALL_K, engine=ENGINE, advance=advance)
    blocks, rest = blocks_of_fakes(len(real), len(fake), seed)
    cuts = [fake] if len(blocks) == 1 and not len(rest) else (part_of(fake, rows) for rows in blocks)
    parts = [_judged(points, own, k, points.in_same_frame(cut), advance) for cut in cuts]
    if len(rest):
        parts.append(
            _judged(points, own, k, points.in_same_frame(part_of(fake, rest)), advance, in_block=False)
        )
    fidelity = witnessed_fidelity(
        torch.cat([part.witnesses for part in parts]),
        torch.cat([part.lid for part in parts]),
        own.in_degrees[0],
        local_dimension(_listed(points, own)),
    )
    pairs = [(part.support, part.coverage) for part in parts[: len(blocks)]]
    return _joined(fidelity, pairs, 1.0), _joined(fidelity, pairs, math.inf)


def local_dimension(sq: Tensor) -> Tensor:
    """Local intrinsic dimension seen from each of q samples: -1 / mean of ln(d_l / d_k) over l < k.

    Points at distance 0 are left out. (q,) float64: 0 where fewer than two distances are not 0, infinite where all that
    are not 0 are equal.
    """
    nearer, last = sq[:, :-1].double(), sq[:, -1:].double()
    is_apart = nearer > 0
    logs = torch.where(is_apart, nearer / last, 1.0).log().sum(dim=1).abs() / 2
    return torch.where(is_apart.any(dim=1), is_apart.sum(dim=1) / logs, 0.0)


def witnessed_fidelity(
    witnesses_fake: Tensor, lid_fake: Tensor, witnesses_real: Tensor, lid_real: Tensor
) -> float:
    """Share of fakes in 5 real balls and with the dimension of a real, over that share of the reals; NaN if none.

    Witnesses (m,) are the clipped balls of reals around a fake, or (n,) of others around a real. The 2 % of the reals with
    the largest dimension count as too high.
    """
    place = math.ceil((1 - _TOO_HIGH) * (len(lid_real) - 1) - 1e-9)  # the quantile, taken from above
    limit = lid_real.sort().values[place]
    accepted_fakes = (witnesses_fake >= WITNESSES) & (lid_fake <= limit)
    accepted_reals = (witnesses_real >= WITNESSES) & (lid_real <= limit)
    return _ratio(_share(accepted_fakes), _share(accepted_reals))


def witnessed_support(witnesses_real: Tensor, witnesses_fake: Tensor) -> float:
    """Share of reals (n,) in at least 5 clipped balls of the fakes, over that share of the fakes (m,); NaN if none."""
    return _ratio(_share(witnesses_real >= WITNESSES), _share(witnesses_fake >= WITNESSES))


def witnessed_coverage(fakes_per_real_ball: Tensor, *, n_fake: int, k: int) -> float:
    """Share of real k-NN balls (n,) that hold at least 4 of m fakes, over its expectation for a perfect generator."""
    expected = balls_hit(len(fakes_per_real_ball), n_fake, k, at_least=COVERING)
    return _ratio(_share(fakes_per_real_ball >= COVERING), expected)


def covering_k(n_real: int, n_fake: int) -> int:
    """The k of the balls whose coverage is counted: 20, or more in proportion where fakes are fewer than reals."""
    if n_fake >= n_real:
        return BALL_K
    return min(n_real - 1, math.floor(BALL_K * n_real / n_fake + 0.5))


def blocks_of_fakes(n_real: int, n_fake: int, seed: int) -> tuple[Sequence[Tensor], Tensor]:
    """Rows of the fakes in random blocks of `n_real`, or all of them if they are fewer; and rows that fill no block.

    Blocks a little larger than the reals would not do: support grows with the fakes per real.
    """
    if n_fake <= n_real:
        return [torch.arange(n_fake)], torch.arange(0)
    # Random, because files are often sorted by class.
    order = torch.randperm(n_fake, generator=torch.Generator().manual_seed(seed))
    whole = n_fake // n_real * n_real
    return order[:whole].reshape(-1, n_real).sort(dim=1).values.unbind(), order[whole:].sort().values


def pairs_of(n_real: int, n_fake: int) -> int:
    """Pairs of rows that are compared: within the reals and each block of fakes, and twice between the two."""
    size, count = min(n_real, n_fake), max(1, n_fake // n_real)
    return n_real * (n_real - 1) // 2 + count * size * (size - 1) // 2 + 2 * n_real * n_fake


class _Judged(NamedTuple):
    """For each of some fakes: clipped balls of reals around it, and its local dimension; and both parts of diversity."""

    witnesses: Tensor
    lid: Tensor
    support: float
    coverage: float


def _judged(
    points: IndexedPoints,
    own: Neighborhood,
    k: int,
    queries: IndexedPoints,
    advance: Advance,
    *,
    in_block: bool = True,
) -> _Judged:
    """Fakes against the reals, whose clipped and k-NN balls are known; those in no block have no diversity."""
    of_fakes = None
    if in_block:
        among = (
            queries if is_suitable(queries, BALL_K) else IndexedPoints.from_features(queries.features, BALL_K)
        )
        of_fakes = Neighborhood.from_points(among, [_CLIPPED], engine=ENGINE, advance=advance)
    counts = cross_counts(
        points,
        queries,
        real_sq_radii=own.sq_radii if of_fakes else own.sq_radii[:1],
        fake_sq_radii=of_fakes.sq_radii if of_fakes else None,
        engine=ENGINE,
        advance=advance,
    )
    support = coverage = math.nan
    if of_fakes:
        support = witnessed_support(counts.fake_balls_per_real[0], of_fakes.in_degrees[0])
        coverage = witnessed_coverage(counts.fakes_per_real_ball[1], n_fake=len(queries), k=k)
    sq = nearest_between(queries, points, BALL_K, engine=ENGINE, advance=advance)[1]
    return _Judged(counts.real_balls_per_fake[0], local_dimension(sq), support, coverage)


def _listed(points: IndexedPoints, own: Neighborhood) -> Tensor:
    """Squared distances (n, 20) to the listed neighbors, as exact as those of fakes, ascending."""
    index = own.lists.index
    rows = torch.arange(len(index), device=index.device).repeat_interleave(index.shape[1])
    sq = sq_distances_at(points.features, points.features, rows, index.flatten())
    return sq.view(index.shape).sort(dim=1).values


def _joined(fidelity: float, parts: Sequence[tuple[float, float]], most: float) -> Witnessed:
    """Means over blocks of the values, each cut at `most`."""
    cut = [(_at_most(most, support), _at_most(most, coverage)) for support, coverage in parts]
    diversity = [_at_most(*part) for part in cut]
    support, coverage = zip(*cut, strict=True)
    means = (sum(each) / len(parts) for each in (diversity, support, coverage))
    return Witnessed(_at_most(most, fidelity), *means)


def _at_most(most: float, value: float) -> float:
    """NaN where either is."""
    return math.nan if math.isnan(most) or math.isnan(value) else min(most, value)


def _share(mask: Tensor) -> float:
    return int(mask.sum()) / len(mask)


def _ratio(share: float, expected: float) -> float:
    return share / expected if expected > 0 else math.nan


def witnessed_of_halves(
    real: Tensor, fake: Tensor, seed: int, *, advance: Advance = no_advance
) -> dict[str, Tensor]:
    """`witnessed`, not cut at 1, of the first halves of other metrics, by name: (20,) float64.

    Entries 2 s and 2 s + 1 are of complementary halves. NaN where a half has no value.
    """
    halves = (_rows(real, seed, REAL_STREAM), _rows(fake, seed, FAKE_STREAM))
    found = [
        cut_and_uncut(part_of(real, i), part_of(fake, j), seed, advance)[1]
        for i, j in zip(*halves, strict=True)
    ]
    table = torch.tensor(found, dtype=torch.float64)
    values = {name: table[:, at] for at, name in enumerate(Witnessed._fields)}
    return values | {"diversity": lower_part(values["support"], values["coverage"])}


def _rows(points: Tensor, seed: int, stream: int) -> list[Tensor]:
    halves = Halves.drawn(len(points), seed=seed, stream=stream, count=HALVES, device=points.device)
    return [each.nonzero()[:, 0] for each in halves.members()]
