"""How realistic and how rare each fake is: realism and rarity, one number per sample.

References:
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models" (realism).
    Han et al. 2022, "Rarity Score: A New Metric to Evaluate the Uncommonness of Synthesized Images".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genpr.errors import FeatureError
from genpr.metrics.real_manifold import choose_engine
from genpr.neighbors.bounds import NO_FLOOR
from genpr.neighbors.distance import sq_distances_at
from genpr.neighbors.engine import Engine, Tiles, Workers, plain_arithmetic
from genpr.neighbors.index import Frame, Placed, evenly_spaced
from genpr.neighbors.nearest import kth_sq_distances
from genpr.neighbors.search import Advance, bounds_of_pairs, no_advance
from genpr.validation import (
    Features,
    check_features,
    check_k,
    check_rows,
    check_same_width,
    choose_device,
)

_NVIDIA_EPSILON = 1e-5
_FIRST_CENTERS = 256  # looked at for a first lower bound
_NEAREST = 4  # of which so many are computed
_ALIKE = 1.25  # radii of one chunk of centers, which share a threshold, are alike within this factor
_ROUNDING = 1 - 2.0**-40  # far more than all roundings of a ratio

_Bounded = tuple[Tensor, Tensor, Tensor, Tensor]
"""Places of queries in a block, lower and upper bounds on ratios, and centers; each (p,)."""


class Rarity(NamedTuple):
    """How uncommon fakes are, each (m,) float64, NaN for fakes outside the real manifold.

    Attributes:
        score: Radius of the smallest real ball around the fake, in the unit of the features.
        percentile: Percent of the real radii that are at most as large; comparable between feature spaces.
    """

    score: Tensor
    percentile: Tensor


def realism_scores(
    real: Features,
    fake: Features,
    *,
    k: int = 3,
    squared: bool = False,
    device: str | torch.device = "auto",
) -> Tensor:
    """Realism of each fake against the k-NN balls of the reals. See `realism`.

    Args:
        real: (n, d) features of real images, n > k.
        fake: (m, d) features of generated images by the same extractor.
        k: Neighbors that set a ball's radius; the point itself is not counted.
        squared: As in `realism`.
        device: "auto" is where the tensors are if that is a GPU, else the best device here.

    Returns:
        (m,) float64 on that device.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
        UsageError: k is impossible.

    Example:
        >>> import numpy as np
        >>> real = np.array([[0.0], [1.0], [3.0], [7.0]])
        >>> realism_scores(real, np.array([[0.5], [2.0]]), k=1).tolist()
        [2.0, 1.0]
    """
    k = check_k(k)
    checked_real, checked_fake = check_features(real, "real"), check_features(fake, "fake")
    check_same_width(checked_real, checked_fake)
    check_rows(checked_real, "real", k=k)
    check_rows(checked_fake, "fake", k=0)
    where = choose_device(real, device)
    checked_real = checked_real.to(where)
    points = Placed.of(checked_real, k)
    queries = points.beside(checked_fake.to(where))
    sq_radii = kth_sq_distances(points, [k], engine=choose_engine(points.device))[0]
    return realism_of(points, sq_radii, queries, squared=squared)


def realism(
    centers: Features,
    radii: Features,
    queries: Features,
    *,
    squared: bool = False,
    device: str | torch.device = "auto",
) -> Tensor:
    """Realism R(y) = max of r_i / |y - x_i| over the centers x_i whose radius r_i is at most the median radius.

    R is at least 1 where y lies in one of these balls, and below 1 elsewhere, but for the last bit. A query at distance 0 of a center has realism
    infinity, whatever the radius.

    Args:
        centers: (n, d) features of real images.
        radii: (n,) distances from each to its k-th nearest other real.
        queries: (m, d).
        squared: The number of the authors' code instead: max of r_i^2 / (|y - x_i|^2 + 1e-5), the square of R but
            for the constant, which depends on the unit of the features and keeps it finite.
        device: As in `realism_scores`.

    Returns:
        (m,) float64 on that device.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width, or there is not one
            finite radius of at least 0 per center ("bad-radii").
    """
    checked, asked = check_features(centers, "centers"), check_features(queries, "queries")
    check_same_width(checked, asked, names=("centers", "queries"))
    check_rows(checked, "centers", k=0)
    check_rows(asked, "queries", k=0)
    where = choose_device(centers, device)
    lengths = torch.from_numpy(np.array(radii, dtype=np.float64)) if isinstance(radii, np.ndarray) else radii
    lengths = lengths.to(where, torch.float64)
    if lengths.shape != (len(checked),) or not bool(((lengths >= 0) & lengths.isfinite()).all()):
        raise FeatureError(
            f"radii must be one finite number of at least 0 for each of {len(checked)} centers",
            code="bad-radii",
        )
    points = Frame.around(checked.to(where)).place(checked.to(where))
    return realism_of(points, lengths.square(), points.beside(asked.to(where)), squared=squared)


def realism_of(
    points: Placed,
    sq_radii: Tensor,
    queries: Placed,
    *,
    squared: bool = False,
    engine: Engine | None = None,
    advance: Advance = no_advance,
) -> Tensor:
    """`realism` of `queries` placed in the frame of `points`, one scan over half of all pairs.

    Bounds on distances leave few pairs per query, whose distances are computed by the definition. Memory is tiles.

    Args:
        points: n centers.
        sq_radii: Their squared radii (n,) float64.
        queries: m rows.
        squared: As in `realism`.
        engine: What multiplies; None chooses by device.
        advance: Told how many of the n m pairs are done with, now and then.

    Returns:
        (m,) float64.
    """
    engine = engine or choose_engine(points.device)
    sorted_sq, order = sq_radii.sort(descending=True, stable=True)
    # The median lies between the two middle radii: the smaller one of these and all below it are kept.
    kept = order[sorted_sq <= sorted_sq[len(sorted_sq) // 2]]
    scan = _Scan(points, sq_radii, queries, kept, _NVIDIA_EPSILON if squared else 0.0, engine)
    best = torch.empty(len(queries), dtype=torch.float64, device=queries.device)
    with plain_arithmetic(points.device), Workers(points.device, engine.communicator()) as workers:
        rows = engine.tiles(points.view.width, points.device).rows
        everything = torch.arange(len(queries), device=queries.device)
        blocks = workers.from_rank0(list(torch.split(everything, rows)))
        found = workers.map_shared(lambda block: (scan.block(block),), blocks)
        for block, (values,) in zip(blocks, found, strict=True):
            best[block] = values
            advance(len(block) * len(points))
    return best if squared else best.sqrt()


def rarity(smallest_radii: Tensor, real_radii: Tensor) -> Rarity:
    """Rarity of fakes from the smallest real ball that contains each.

    A fake in no ball has no rarity: its score is NaN, not 0 as in the authors' code, so that no average can take
    what lies off the manifold for what is common.

    Args:
        smallest_radii: (m,) radius of the smallest real ball around each fake; infinite or NaN where there is none.
        real_radii: (n,) radii of all reals.
    """
    score = smallest_radii.double()
    score = score.where(score.isfinite(), torch.nan)
    ordered = real_radii.double().sort().values
    at_most = torch.searchsorted(ordered, score, right=True).double() / len(ordered)
    return Rarity(score, (100 * at_most).where(score.isfinite(), torch.nan))


class _Scan:
    """Largest ratios a / (sq + epsilon) of blocks of queries, a the squared radius of a center."""

    def __init__(
        self,
        points: Placed,
        sq_radii: Tensor,
        queries: Placed,
        kept: Tensor,
        epsilon: float,
        engine: Engine,
    ) -> None:
        self._points, self._queries, self._kept = points, queries, kept
        self._sq_radii, self._epsilon, self._engine = sq_radii, epsilon, engine

    def block(self, rows: Tensor) -> Tensor:
        """The largest ratio of each of the queries `rows` (r,), (r,) float64."""
        tiles = self._engine.tiles(self._points.view.width, self._points.device)
        pending = [self._first(rows)]
        best = self._lifted(pending, rows.new_zeros(len(rows), dtype=torch.float64))
        waiting = 0
        for i, j in self._candidates(rows, tiles, best):
            lower, upper = self._bounds(rows[i], j)
            pending.append((i, lower, upper, j))
            waiting += len(i)
            best.copy_(self._lifted(pending, best))
            if waiting > 4 * len(rows):
                pending, waiting = [_select(pending, best)], 0
        i, _, _, j = _select(pending, best)
        sq = sq_distances_at(self._queries.features, self._points.features, rows[i], j)
        return best.zero_().scatter_reduce_(0, i, self._ratios(j, sq), "amax")

    def _first(self, rows: Tensor) -> _Bounded:
        """Some pairs that are likely to have large ratios."""
        some = self._kept[evenly_spaced(len(self._kept), _FIRST_CENTERS, rows.device)]
        left, right = self._queries.view.left(rows), self._points.view.right(some)
        count = min(_NEAREST, len(some))
        j = some[self._engine.largest(left, right, count)].flatten()
        i = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
        lower, upper = self._bounds(rows[i], j)
        return i, lower, upper, j

    def _candidates(self, rows: Tensor, tiles: Tiles, best: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Places in `rows` and centers of pairs that may exceed `best` (r,), which grows meanwhile."""
        search = self._queries.view.search(rows, tiles)
        scale = self._points.frame.scale
        for chunk in _alike(self._kept, self._sq_radii, tiles.columns):
            sq_reach = self._sq_reach(self._sq_radii[chunk[0]], best)
            lowest = sq_reach * (-0.5 * scale**2)
            i, at, keys, doubts = search.above(lowest.clamp_(min=NO_FLOOR), self._points.view, chunk)
            j = chunk[at]
            near = self._points.sq_lower(keys + doubts) <= self._sq_reach(self._sq_radii[j], best[i])
            yield i[near], j[near]

    def _sq_reach(self, sq_radii: Tensor, best: Tensor) -> Tensor:
        """Squared distances up to which a ratio may reach `best`; copies always may."""
        reach = (sq_radii / (best * _ROUNDING) - self._epsilon).clamp_(min=0)
        return reach.nan_to_num_(nan=0.0, posinf=torch.inf)

    def _bounds(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds on the ratios of queries `i` and centers `j`, each (p,) float64."""
        sq_lower, sq_upper = bounds_of_pairs(
            self._queries.features, self._points.features, i, j, self._engine
        )
        return self._ratios(j, sq_upper), self._ratios(j, sq_lower.clamp(min=0))

    def _ratios(self, j: Tensor, sq: Tensor) -> Tensor:
        if self._epsilon:
            return self._sq_radii[j] / (sq + self._epsilon)
        return (self._sq_radii[j] / sq).where(sq > 0, torch.inf)

    @staticmethod
    def _lifted(pending: list[_Bounded], best: Tensor) -> Tensor:
        i, lower, _, _ = pending[-1]
        return best.scatter_reduce(0, i, lower, "amax")


def _select(pending: list[_Bounded], best: Tensor) -> _Bounded:
    """Of all pairs those whose upper bounds reach the largest lower one of their query."""
    i, lower, upper, j = (torch.cat(part) for part in zip(*pending, strict=True))
    may = upper >= best[i] * _ROUNDING
    return i[may], lower[may], upper[may], j[may]


def _alike(centers: Tensor, sq_radii: Tensor, limit: int) -> Iterator[Tensor]:
    """Cut centers in descending order of radius into chunks of at most `limit` and of similar radius."""
    band = (sq_radii[centers].log() / (2 * math.log(_ALIKE))).floor_()
    _, sizes = torch.unique_consecutive(band, return_counts=True)
    for part in torch.split(centers, sizes.tolist()):
        yield from torch.split(part, limit)
