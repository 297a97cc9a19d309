"""Scores of queries for candidates: a matrix, or similarities of features that are computed in tiles.

For features the score is float64, summed in one order (`genpr.neighbors.distance`), and no (q, c) array is ever held: a
float32 product decides for nearly all pairs, and those that its rounding leaves open are computed by the definition. So
copies of a candidate have its score, to the last bit, at any index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.memory import tile_budget
from genpr.metrics.blocks import check_no_zero_rows
from genpr.metrics.given import as_integers, check_choice
from genpr.metrics.ranking_values import Counts
from genpr.metrics.real_manifold import PairProgress, tally
from genpr.neighbors.distance import pieces_of, products_at, sq_distances
from genpr.neighbors.engine import plain_arithmetic
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_rows,
    check_same_width,
    choose_device,
)

Similarity: TypeAlias = Literal["cosine", "inner"]

_ROUNDING = 2.0**-24
_WIDE = 512  # rows at least, beside which columns are worth a tile of their own


class FeaturePairs:
    """Cosines or inner products of rows of two sets.

    A tile holds x . y / (|x| s) in float32, s being |y| for cosines and the largest |y| for inner products. Both factors
    are rounded once, and the product of d terms errs by d u, so it is within 1.1 (d + 4) u of the exact number,
    u = 2^-24, for up to a million features.

    Args:
        left: (n, d) float32.
        right: (m, d) float32, on the same device.
        similarity: "cosine" or "inner".
    """

    def __init__(self, left: Tensor, right: Tensor, similarity: Similarity) -> None:
        self.left, self.right = left, right
        self._is_cosine = similarity == "cosine"
        self._left_norm, self._right_norm = _norms(left), _norms(right)
        self._scale = torch.ones_like(self._right_norm) * self._right_norm.max()
        if self._is_cosine:
            self._scale = self._right_norm
        self.slack = 1.1 * (left.shape[1] + 4) * _ROUNDING

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.left.device

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Similarities of rows `i` (p,) and `j` (p,): (p,) float64."""
        products = products_at(self.left, self.right, i, j)
        return products / self._left_norm[i] / self._right_norm[j] if self._is_cosine else products

    def to_tile_units(self, i: Tensor, similarity: Tensor) -> Tensor:
        """Similarities (p,) of rows `i` as a tile has them."""
        if self._is_cosine:
            return similarity
        unit = self._left_norm[i] * self._scale[0]
        return torch.where(unit > 0, similarity / unit, 0.0)

    def tiles(self, budget: int) -> Iterator[tuple[slice, int, Tensor]]:
        """All pairs in tiles: the rows, the first column, and values (b, w) float32.

        Args:
            budget: Bytes that a tile and what it is made of may take.
        """
        n, m, d = len(self.left), len(self.right), self.left.shape[1]
        most_rows = max(1, budget // (12 * d))
        columns = max(1, min(m, most_rows, budget // (8 * min(n, _WIDE))))
        rows = max(1, min(n, most_rows, budget // (8 * columns)))
        for first in range(0, m, columns):
            right = _scaled(self.right[first : first + columns], self._scale[first : first + columns]).T
            for start in range(0, n, rows):
                chunk = slice(start, min(start + rows, n))
                yield chunk, first, _scaled(self.left[chunk], self._left_norm[chunk]) @ right


def _norms(features: Tensor) -> Tensor:
    """(n,) float64; numpy's roots are rounded correctly, torch's are an ulp off here and there."""
    zero = features.new_zeros(1, features.shape[1])
    sq = torch.cat([sq_distances(features[piece], zero) for piece in pieces_of(features)])
    return torch.from_numpy(np.sqrt(sq.cpu().numpy())).to(features.device)


def _scaled(rows: Tensor, by: Tensor) -> Tensor:
    """Rows divided by a number each, rounded once; zeros stay."""
    return (rows.double() / torch.where(by > 0, by, 1.0)[:, None]).float()


Scores: TypeAlias = Features | tuple[Features, Features]


class Tile(NamedTuple):
    """Scores of some queries for some of their candidates.

    Attributes:
        rows: The queries.
        values: (b, w), in the unit of `Scorer.to_tile_units`.
        first: The candidate of the first column.
        ranked: (b, w) bool, which of them are ranked; None if all are.
    """

    rows: slice
    values: Tensor
    first: int = 0
    ranked: Tensor | None = None


class Scorer:
    """Scores of queries for candidates, given as a matrix.

    Args:
        scores: (q, c).
        block_bytes: For a tile; None for a small share of what is free.

    Attributes:
        n_queries: q.
        n_candidates: c.
        pool: (q,) candidates that each query ranks.
        slack: How far at most the values of a tile are from the scores, in their unit.
    """

    slack: float = 0.0

    def __init__(self, scores: Tensor, block_bytes: int | None) -> None:
        self._scores = scores
        self.n_queries, self.n_candidates = scores.shape
        self.pool: Counts = np.full(self.n_queries, self.n_candidates)
        self._budget = block_bytes or tile_budget(scores.device)

    def exact(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Scores (p,) of pairs."""
        return self._scores[query.to(self._scores.device), candidate.to(self._scores.device)]

    def tiles(self) -> Iterator[Tile]:
        """All pairs that are ranked, each once."""
        step = max(1, self._budget // (self.n_candidates * (self._scores.itemsize + 4)))
        for start in range(0, self.n_queries, step):
            rows = slice(start, min(start + step, self.n_queries))
            yield Tile(rows, self._scores[rows])

    def to_tile_units(self, query: Tensor, score: Tensor) -> Tensor:
        """Scores (p,) of these queries in the unit of tiles."""
        return score

    def check_ranked(self, query: Counts, candidate: Counts) -> None:
        """Refuse pairs (p,) that are not ranked.

        Raises:
            DataError: "relevant-not-in-pool".
        """


def scorer_of(
    scores: Scores,
    pools: NDArray[Any] | Tensor | None,
    *,
    similarity: Similarity = "cosine",
    device: str | torch.device = "auto",
    block_bytes: int | None = None,
) -> Scorer:
    """Check what users give to rank by.

    Raises:
        UsageError: An option is impossible.
        DataError: Scores, features or pools are malformed or do not belong together.
    """
    check_choice(similarity, "similarity", {"cosine": "of the angle", "inner": "the product"})
    if block_bytes is not None:
        check_count(block_bytes, "block_bytes", least=1)
    if isinstance(scores, tuple):
        scorer: Scorer = _of_features(scores, similarity, device, block_bytes)
    else:
        scorer = Scorer(_checked_scores(scores), block_bytes)
    if pools is None:
        return scorer
    checked = check_pools(pools, n=scorer.n_queries, candidates=scorer.n_candidates)
    return _Pooled(scorer, checked, block_bytes)


def _of_features(
    pair: tuple[Features, ...], similarity: Similarity, device: str | torch.device, block_bytes: int | None
) -> _OfFeatures:
    if len(pair) != 2:
        raise UsageError(
            f"a tuple of scores is the features of queries and those of candidates, not {len(pair)} arrays",
            code="bad-scores",
        )
    queries, candidates = (
        check_features(rows, name) for rows, name in zip(pair, ("queries", "candidates"), strict=True)
    )
    check_same_width(queries, candidates, names=("queries", "candidates"))
    for rows, name in ((queries, "queries"), (candidates, "candidates")):
        check_rows(rows, name, k=0)
        if similarity == "cosine":
            check_no_zero_rows(rows, name)
    where = choose_device(pair[0], device)
    return _OfFeatures(FeaturePairs(queries.to(where), candidates.to(where), similarity), block_bytes)


def check_pools(pools: object, *, n: int, candidates: int) -> Tensor:
    """Pools as (q, p) int64 on the CPU.

    Raises:
        DataError: Not such indices, a candidate twice in a pool, or a pool without any ("bad-pools").
    """
    array = as_integers(pools)
    if array is None or array.ndim != 2 or len(array) != n:
        raise _bad_pools(f"must be indices (q, p) of candidates, one row for each of {n:,} queries")
    if array.min() < -1 or array.max() >= candidates:
        raise _bad_pools(f"must hold indices from 0 to {candidates - 1}, or -1 for none, but holds others")
    ordered = np.sort(array, axis=1)
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        raise _bad_pools(f"names a candidate twice for query {int(np.argmax(twice))} (counted from 0)")
    if (ordered[:, -1] < 0).any():
        raise _bad_pools(f"is empty for query {int(np.argmax(ordered[:, -1] < 0))} (counted from 0)")
    return torch.from_numpy(array)


def _bad_pools(message: str) -> DataError:
    return DataError(f"pools {message}", code="bad-pools")


def _checked_scores(scores: object) -> Tensor:
    """Scores (q, c) as a tensor of a type that torch can compare."""
    if isinstance(scores, np.ndarray):
        if scores.dtype.kind not in "fiu" or scores.dtype.itemsize > 8:
            raise _bad_scores(f"an array of {scores.dtype}")
        if scores.dtype.kind == "u" and scores.dtype.itemsize > 1:
            if scores.max(initial=0) > np.iinfo(np.int64).max:
                raise _bad_scores("an array of integers beyond int64")
            scores = scores.astype(np.int64)
        native = np.ascontiguousarray(scores, dtype=scores.dtype.newbyteorder("="))
        scores = torch.from_numpy(native if native.flags.writeable else native.copy())
    if not isinstance(scores, Tensor):
        raise _bad_scores(f"a {type(scores).__name__}; convert with numpy.asarray")
    if (
        scores.dtype == torch.bool
        or scores.is_complex()
        or scores.is_quantized
        or scores.layout != torch.strided
    ):
        raise _bad_scores(f"a tensor of {scores.dtype}, {scores.layout}")
    if scores.ndim != 2 or 0 in scores.shape:
        raise _bad_scores(f"of shape {tuple(scores.shape)}")
    scores = scores.detach()
    for start, block in zip(range(0, len(scores), _CHECKED_ROWS), scores.split(_CHECKED_ROWS), strict=True):  # type: ignore[no-untyped-call]
        if block.isnan().any():
            row, column = block.isnan().nonzero()[0].tolist()
            raise DataError(
                f"scores must not be NaN, but that of query {start + row} for candidate {column} is (counted from 0); NaN "
                "has no place in a ranking",
                code="nan-scores",
            )
    return scores


_CHECKED_ROWS = 1024


def _bad_scores(came: str) -> DataError:
    return DataError(
        f"scores must be a matrix (q, c) of integers or floats, one row per query, or a pair of feature arrays, but is {came}",
        code="bad-scores",
    )


class _OfFeatures(Scorer):
    """Scores of features."""

    def __init__(self, pairs: FeaturePairs, block_bytes: int | None) -> None:
        self._pairs = pairs
        self.n_queries, self.n_candidates = len(pairs.left), len(pairs.right)
        self.pool = np.full(self.n_queries, self.n_candidates)
        self.slack = pairs.slack
        self._budget = block_bytes or tile_budget(pairs.device)

    def exact(self, query: Tensor, candidate: Tensor) -> Tensor:
        return self._pairs.exact(query.to(self._pairs.device), candidate.to(self._pairs.device))

    def to_tile_units(self, query: Tensor, score: Tensor) -> Tensor:
        return self._pairs.to_tile_units(query.to(score.device), score)

    def tiles(self) -> Iterator[Tile]:
        for rows, first, values in self._pairs.tiles(self._budget):
            yield Tile(rows, values, first)


class _Pooled(Scorer):
    """Scores of each query for candidates of its own, by the definition."""

    def __init__(self, scorer: Scorer, pools: Tensor, block_bytes: int | None) -> None:
        self._scorer, self._pools = scorer, pools
        self.n_queries, self.n_candidates = scorer.n_queries, scorer.n_candidates
        self.pool = (pools >= 0).sum(dim=1).numpy()
        self._budget = block_bytes or tile_budget(torch.device("cpu"))

    def exact(self, query: Tensor, candidate: Tensor) -> Tensor:
        return self._scorer.exact(query, candidate)

    def tiles(self) -> Iterator[Tile]:
        width = self._pools.shape[1]
        step = max(1, self._budget // (width * 32))
        for start in range(0, self.n_queries, step):
            pools = self._pools[start : start + step]
            ranked = pools >= 0
            row, column = ranked.nonzero(as_tuple=True)
            scores = self.exact(start + row, pools[row, column])
            values = torch.zeros(pools.shape, dtype=scores.dtype, device=scores.device)
            values[row.to(scores.device), column.to(scores.device)] = scores
            yield Tile(slice(start, start + len(pools)), values, ranked=ranked.to(scores.device))

    def check_ranked(self, query: Counts, candidate: Counts) -> None:
        rows, columns = torch.from_numpy(query), torch.from_numpy(candidate)
        step = max(1, self._budget // (self._pools.shape[1] * 16))
        for start in range(0, len(rows), step):
            chunk = slice(start, start + step)
            is_in = (self._pools[rows[chunk]] == columns[chunk, None]).any(dim=1)
            if not is_in.all():
                at = start + int((~is_in).nonzero()[0])
                raise DataError(
                    f"candidate {candidate[at]} is relevant to query {query[at]} (counted from 0) but not in its pool; a "
                    "pool holds all that is relevant",
                    code="relevant-not-in-pool",
                )


def count_tied_ranks(
    scorer: Scorer, query: Counts, candidate: Counts, progress: PairProgress | None = None
) -> tuple[Counts, Counts]:
    """Place each relevant candidate in the ranking of its query.

    Args:
        scorer: What ranks.
        query: (p,) int64, ascending.
        candidate: (p,) int64, relevant to it.
        progress: Called with the pairs that are done and their number.

    Returns:
        Candidates of a higher score, (p,) int64, and of the same one, itself among them, (p,) int64.

    Raises:
        DataError: One of them is not ranked by its query ("relevant-not-in-pool").
    """
    scorer.check_ranked(query, candidate)
    rows, columns = torch.from_numpy(query), torch.from_numpy(candidate)
    own = scorer.exact(rows, columns)
    counter = _Counter(scorer, rows.to(own.device), own)
    # Of each query its first relevant one, then its second, and so on: each is compared with a whole row of scores.
    ordinal = np.arange(len(query)) - np.searchsorted(query, query)
    advance = tally(int(scorer.pool.sum()), progress)
    with plain_arithmetic(own.device):
        for tile in scorer.tiles():
            start, stop = np.searchsorted(query, [tile.rows.start, tile.rows.stop])
            for turn in range(int(ordinal[start:stop].max(initial=-1)) + 1):
                items = start + np.flatnonzero(ordinal[start:stop] == turn)
                counter.count(tile, torch.from_numpy(items).to(own.device))
            advance(tile.values.numel() if tile.ranked is None else int(tile.ranked.sum()))
    return counter.above.cpu().numpy(), counter.tied.cpu().numpy()


class _Counter:
    """Counts so far."""

    def __init__(self, scorer: Scorer, query: Tensor, own: Tensor) -> None:
        self._scorer, self._query, self._own = scorer, query, own
        self._threshold = scorer.to_tile_units(query, own)
        self.above = torch.zeros_like(query)
        self.tied = torch.zeros_like(query)

    def count(self, tile: Tile, items: Tensor) -> None:
        """Compare relevant ones (i,), each of another query of the tile, with all of it."""
        row = self._query[items] - tile.rows.start
        values = tile.values if len(row) == len(tile.values) else tile.values[row]
        low, high = self._bounds(items, values.dtype)
        over, at_least = values > high[:, None], values >= low[:, None]
        if tile.ranked is not None:
            over &= tile.ranked[row]
            at_least &= tile.ranked[row]
        above = _row_counts(over)
        self.above[items] += above
        if not self._scorer.slack:
            self.tied[items] += _row_counts(at_least) - above
        else:
            self._verify(items, at_least.logical_xor_(over).nonzero(), tile.first)

    def _bounds(self, items: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Between which values of a tile a pair is open, (i,) each."""
        threshold, slack = self._threshold[items], self._scorer.slack
        if not slack:
            return threshold, threshold
        low, high = (threshold - slack).to(dtype), (threshold + slack).to(dtype)
        return torch.nextafter(low, torch.full_like(low, -torch.inf)), torch.nextafter(
            high, torch.full_like(high, torch.inf)
        )

    def _verify(self, items: Tensor, near: Tensor, first: int) -> None:
        """Decide open pairs by the definition: (o, 2), the place among `items` and the column."""
        item = items[near[:, 0]]
        scores, own = self._scorer.exact(self._query[item], first + near[:, 1]), self._own[item]
        self.above.index_add_(0, item, (scores > own).long())
        self.tied.index_add_(0, item, (scores == own).long())


def _row_counts(flags: Tensor) -> Tensor:
    """How many of each row of (i, w) bool are set; numpy counts ten times as fast as torch sums."""
    if flags.is_cuda:
        return flags.sum(dim=1)
    return torch.from_numpy(np.count_nonzero(flags.numpy(), axis=1))
