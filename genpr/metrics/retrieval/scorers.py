"""What ranks candidates: a matrix of scores, or features that are compared in blocks.

For features the score is float64, summed in one order (`genpr.neighbors.verify`), and no (q, c) array is ever held: a
float32 product decides for nearly all pairs, and those that its rounding leaves open are computed by the definition. So
copies of a candidate have its score, to the last bit, wherever they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.memory import tile_budget
from genpr.metrics.blocks import check_no_zero_rows
from genpr.metrics.given import check_choice
from genpr.metrics.retrieval.places import Counts
from genpr.metrics.retrieval.pools import check_pools
from genpr.metrics.retrieval.similarities import FeaturePairs, Similarity
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_rows,
    check_same_width,
    choose_device,
)

Scores: TypeAlias = Features | tuple[Features, Features]


class Tile(NamedTuple):
    """Scores of some queries for some of their candidates.

    Attributes:
        rows: The queries.
        values: (b, w), in the unit of `Scorer.in_tile_units`.
        first: The candidate of the first column.
        ranked: (b, w) bool, which of them are ranked; None if all are.
    """

    rows: slice
    values: Tensor
    first: int = 0
    ranked: Tensor | None = None


class Scorer(ABC):
    """Scores of queries for candidates.

    Attributes:
        n_queries: q.
        n_candidates: c.
        pool: (q,) candidates that each query ranks.
        slack: How far at most the values of a tile are from the scores, in their unit.
    """

    n_queries: int
    n_candidates: int
    pool: Counts
    slack: float = 0.0

    @abstractmethod
    def exact(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Scores (p,) of pairs."""

    @abstractmethod
    def tiles(self) -> Iterator[Tile]:
        """All pairs that are ranked, each once."""

    def in_tile_units(self, query: Tensor, score: Tensor) -> Tensor:
        """Scores (p,) of these queries in the unit of tiles."""
        return score

    def refuse_outside(self, query: Counts, candidate: Counts) -> None:  # noqa: B027 - most rank all pairs
        """Refuse pairs (p,) that are not ranked.

        Raises:
            DataError: "relevant-not-in-pool".
        """


def scorer_of(
    scores: Scores,
    pools: NDArray[Any] | Tensor | None,
    *,
    similarity: Similarity,
    device: str | torch.device,
    block_bytes: int | None,
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
        scorer = _Matrix(_checked_scores(scores), block_bytes)
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


def _checked_scores(scores: object) -> Tensor:
    """Scores (q, c) as a tensor of a type that torch can compare.

    Raises:
        DataError: Not such a matrix ("bad-scores"), or NaN somewhere ("nan-scores").
    """
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


class _Matrix(Scorer):
    """Scores that are given."""

    def __init__(self, scores: Tensor, block_bytes: int | None) -> None:
        self._scores = scores
        self.n_queries, self.n_candidates = scores.shape
        self.pool = np.full(self.n_queries, self.n_candidates)
        self._budget = block_bytes or tile_budget(scores.device)

    def exact(self, query: Tensor, candidate: Tensor) -> Tensor:
        return self._scores[query.to(self._scores.device), candidate.to(self._scores.device)]

    def tiles(self) -> Iterator[Tile]:
        step = max(1, self._budget // (self.n_candidates * (self._scores.itemsize + 4)))
        for start in range(0, self.n_queries, step):
            rows = slice(start, min(start + step, self.n_queries))
            yield Tile(rows, self._scores[rows])


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

    def in_tile_units(self, query: Tensor, score: Tensor) -> Tensor:
        return self._pairs.in_tile_units(query.to(score.device), score)

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

    def refuse_outside(self, query: Counts, candidate: Counts) -> None:
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
