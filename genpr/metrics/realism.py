"""How realistic and how rare each fake is, and whether fakes copy training images: authenticity and the test C_T.

References:
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models" (realism).
    Han et al. 2022, "Rarity Score: A New Metric to Evaluate the Uncommonness of Synthesized Images".
    Meehan, Chaudhuri and Dasgupta 2020, "A Non-Parametric Test to Detect Data-Copying in Generative Models" (C_T).
    Alaa et al. 2022, "How Faithful is your Synthetic Data?" (authenticity).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.neighbors.bounds import bounds_of_pairs
from genpr.neighbors.distance import of_pairs, sq_distances, square_roots
from genpr.neighbors.engine import ENGINE, Advance, Engine, PairProgress, Tiles, no_advance, progress_counter
from genpr.neighbors.index import IndexedPoints, choose_projection, evenly_spaced
from genpr.neighbors.nearest import nearest_between
from genpr.validation import Features, check_features, check_rows, check_same_width, choose_device

_FIRST_CENTERS = 256  # compared for a first lower bound
_NEAREST = 4  # of which so many are computed
_ROUNDING = 1 - 2.0**-40  # far more than all roundings of a ratio


class Rarity(NamedTuple):
    """How uncommon fakes are, each (m,) float64, NaN for fakes outside the real manifold."""

    score: Tensor  # radius of the smallest real ball around the fake, in the unit of the features
    percentile: Tensor  # percent of the real radii that are at most as large


def rarity(smallest_radii: Tensor, real_radii: Tensor) -> Rarity:
    """Rarity from the radii (m,) of the smallest real balls around fakes, not finite where there is none.

    A fake in no ball has no rarity: its score is NaN, not 0 as in the authors' code, so that no average
    counts fakes off the manifold as common.
    """
    score = smallest_radii.double()
    score = score.where(score.isfinite(), torch.nan)
    ordered = real_radii.double().sort().values
    at_most = torch.searchsorted(ordered, score, right=True).double()
    # By a tensor: a GPU multiplies by the reciprocal of a Python number, which rounds twice.
    share = at_most / torch.full_like(at_most, len(ordered))
    return Rarity(score, (100 * share).where(score.isfinite(), torch.nan))


def realism_of(
    points: IndexedPoints,
    sq_radii: Tensor,
    queries: IndexedPoints,
    *,
    engine: Engine = ENGINE,
    advance: Advance = no_advance,
) -> Tensor:
    """Realism R(y) = max of r_i / |y - x_i| over the centers x_i whose radius r_i is at most the median radius: (m,).

    It is infinite for a query at distance 0 of a center. `queries` are in the projection of `points`. Bounds on
    distances leave few pairs per query, whose distances are computed by the definition. Only tiles are held.
    """
    sorted_sq, order = sq_radii.sort(descending=True, stable=True)
    # The median lies between the two middle radii: the smaller one of these and all below it are kept.
    kept = order[sorted_sq <= sorted_sq[len(sorted_sq) // 2]]
    scan = _Scan(points, sq_radii, queries, kept, engine)
    best = torch.empty(len(queries.features), dtype=torch.float64, device=queries.features.device)
    with engine.search(points.features.device, advance, features=points, queries=queries) as search:
        rows = scan.tiles().rows
        everything = torch.arange(len(queries.features), device=queries.features.device)
        blocks = search.broadcast(list(torch.split(everything, rows)))
        ratios = search.map_shared(lambda block: (scan.block(block),), blocks)
        for block, (largest,) in zip(blocks, ratios, strict=True):
            best[block] = largest
            search.advance(len(block) * len(points.features))
    return square_roots(best)


class _Scan:
    """Largest ratios a / sq of blocks of queries, a the squared radius of a center."""

    def __init__(
        self, points: IndexedPoints, sq_radii: Tensor, queries: IndexedPoints, kept: Tensor, engine: Engine
    ) -> None:
        self._points, self._queries, self._kept = points, queries, kept
        self._sq_radii, self._engine = sq_radii, engine

    def tiles(self) -> Tiles:
        """Tiles of queries and centers."""
        sizes = len(self._queries.features), max(len(self._kept), _FIRST_CENTERS)
        return self._engine.tiles(self._points.coordinates.width, self._kept.device, *sizes)

    def block(self, rows: Tensor) -> Tensor:
        """The largest ratio of each of the queries `rows` (r,), (r,) float64."""
        tiles = self.tiles()
        best = rows.new_zeros(len(rows), dtype=torch.float64)
        i, j = self._first(rows, tiles)
        upper = self._lift(best, rows, i, j)
        for more_i, more_j in self._candidates(rows, tiles, best):
            more_upper = self._lift(best, rows, more_i, more_j)
            i, upper, j = torch.cat([i, more_i]), torch.cat([upper, more_upper]), torch.cat([j, more_j])
            may = upper >= best[i] * _ROUNDING
            i, upper, j = i[may], upper[may], j[may]
        sq = of_pairs(sq_distances, self._queries.features, self._points.features, rows[i], j)
        return best.zero_().scatter_reduce_(0, i, self._ratios(j, sq), "amax")

    def _first(self, rows: Tensor, tiles: Tiles) -> tuple[Tensor, Tensor]:
        """Indices into `rows` and centers of some pairs that are likely to have large ratios."""
        some = self._kept[evenly_spaced(len(self._kept), min(_FIRST_CENTERS, tiles.columns), rows.device)]
        keys, count = self._queries.coordinates.keys_of(rows, tiles), min(_NEAREST, len(some))
        j = some[keys(self._points.coordinates, some).topk(count, dim=1).indices].flatten()
        return torch.arange(len(rows), device=rows.device).repeat_interleave(count), j

    def _candidates(self, rows: Tensor, tiles: Tiles, best: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices into `rows` and centers of pairs that may exceed `best` (r,), which grows meanwhile."""
        keys, coordinates = self._queries.coordinates.keys_of(rows, tiles), self._points.coordinates
        for some in torch.split(self._kept, tiles.columns):  # of similar radii
            lowest = coordinates.lowest(_sq_reach(self._sq_radii[some[0]], best))
            i, at, found = tiles.at_least(keys(coordinates, some), lowest)
            j = some[at]
            near = coordinates.sq_lower(found) <= _sq_reach(self._sq_radii[j], best[i])
            yield i[near], j[near]

    def _lift(self, best: Tensor, rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Upper bounds (p,) on ratios of queries `rows[i]` and centers `j`, whose lower bounds raise `best` in place."""
        x, y = self._queries.features, self._points.features
        sq_lower, sq_upper = bounds_of_pairs(x, y, rows[i], j)
        best.scatter_reduce_(0, i, self._ratios(j, sq_upper), "amax")
        return self._ratios(j, sq_lower.clamp(min=0))

    def _ratios(self, j: Tensor, sq: Tensor) -> Tensor:
        return (self._sq_radii[j] / sq).where(sq > 0, torch.inf)


def _sq_reach(sq_radii: Tensor, best: Tensor) -> Tensor:
    """Squared distances up to which a ratio may reach `best`; copies always may."""
    return (sq_radii / (best * _ROUNDING)).nan_to_num_(nan=0.0, posinf=torch.inf)


def ct_z(
    train: Features,
    held_out: Features,
    fake: Features,
    *,
    device: str | torch.device = "auto",
    progress: PairProgress | None = None,
) -> float:
    """The three-sample test for data copying: Mann-Whitney between distances to the nearest training image.

    Standard normal if fakes (m, d) are as far from the training images (n, d) as held-out ones (h, d); below -3 they
    are copied, above 3 the generator underfits. It is the test over all images; the published C_T averages it over
    cells of a clustering. dgm-eval takes half a pair off the mean of the statistic, which shifts z up by half over its
    standard deviation, and takes no account of ties in the variance.
    """
    sets = {"train": train, "held_out": held_out, "fake": fake}
    checked = {name: check_features(features, name) for name, features in sets.items()}
    for name, features in checked.items():
        check_same_width(checked["train"], features, names=("train", name))
        check_rows(features, name, k=0)
    where = choose_device(train, device)
    train_rows = checked["train"].to(where)
    points = choose_projection(train_rows, 1).place(train_rows)
    others = [checked["fake"].to(where), checked["held_out"].to(where)]
    advance = progress_counter(len(train_rows) * sum(map(len, others)), progress)
    to_train = (
        nearest_between(points.projection.place(features), points, 1, advance=advance)[1][:, 0]
        for features in others
    )
    return mann_whitney_z(*(sq.cpu().numpy() for sq in to_train))


def authentic(nearest_index: Tensor, nearest_sq: Tensor, nnd1_sq: Tensor) -> Tensor:
    """Which fakes (m,) are farther from their nearest real than that real is from its own nearest other real.

    A perfect generator's share is not a half but depends on dimension and size, see the null of authenticity.
    """
    return nearest_sq > nnd1_sq[nearest_index]


def mann_whitney_z(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Standardized Mann-Whitney statistic, negative where `first` (m,) tends to be smaller than `second` (h,).

    The variance accounts for ties; if all values are tied it is 0, and so is z.
    """
    from scipy.stats import rankdata

    m, h = len(first), len(second)
    values = np.concatenate([first, second])
    statistic = rankdata(values)[:m].sum() - m * (m + 1) / 2
    ties = np.unique(values, return_counts=True)[1].astype(np.float64)
    total = m + h
    tied = (ties**3 - ties).sum() / (total * (total - 1))
    variance = m * h / 12 * (total + 1 - tied)
    return float((statistic - m * h / 2) / math.sqrt(variance)) if variance > 0 else 0.0
