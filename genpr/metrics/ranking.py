"""Metrics of rankings by score, their means over queries with interval and chance, and pools of candidates.

Candidates of equal score have no order: every number is the mean over all orders of them (McSherry and Najork 2008, "Computing
Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores"), so uninformative scores get the chance level. For
one of r relevant ones among e candidates of equal score, g candidates and a relevant ones being before all of these, its rank is
g + j with j uniform on 1..e; J of these ranks are within the cut, J = min(e, cut - g).

Definitions: Manning, Raghavan and Schütze 2008, "Introduction to Information Retrieval", chapter 8; Järvelin and Kekäläinen 2002
(NDCG).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError, get_named
from genpr.metrics.blocks import check_no_zero_rows
from genpr.metrics.similarity import FeaturePairs, RankCounter, ScoreMatrix, Scorer
from genpr.metrics.uncertainty import MIN_UNITS, Interval, halved_means, interval_of
from genpr.neighbors.engine import PairProgress
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_rows,
    check_same_width,
    check_unmasked,
    choose_device,
    entry_point,
    is_plain,
    kind_of,
)

Relevant: TypeAlias = NDArray[Any] | Tensor | Sequence[int] | Sequence[Iterable[int]]
Counts: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.float64]
_Wide: TypeAlias = NDArray[np.floating[Any]]
PerQuery: TypeAlias = dict[str, Numbers]  # (q,) of each metric; NaN for a query without relevant candidates

_NOT_COMPARED = (torch.bool, torch.uint16, torch.uint32, torch.uint64)


@entry_point
def ranking_metrics(
    scores: Features | tuple[Features, Features],
    relevant: Relevant,
    *,
    ks: Sequence[int] = (1, 5, 10),
    pools: NDArray[Any] | Tensor | None = None,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    progress: PairProgress | None = None,
    device: str | torch.device = "auto",
    block_bytes: int | None = None,
) -> QueryMetrics:
    """Metrics of rankings by score, over whole pools of candidates.

    Higher scores come first. Each metric is its mean over all orders of equal scores, so that a constant score gets exactly the
    chance level.

    Args:
        scores: (q, c) integers or floats of every query for every candidate; or features of queries (q, d) and of candidates
            (c, d) as a pair, whose cosines are float64 and the same on every device.
        relevant: The candidate that is relevant to each query, (q,), or a list of them per query; a query without any is left
            out and counted.
        ks: Cutoffs of rankings for `hit_k` and others, at most the smallest pool.
        pools: (q, p) candidates that each query ranks, including the relevant ones, -1 for none; None for all candidates.
        groups: Group of each query (q,): for intervals, queries of one group are drawn together. None if each is drawn alone.
        seed: Of the halves for intervals.
        progress: Called with the number of pairs done and the total.
        device: "auto" is the GPU that holds the input, else the best device available.
        block_bytes: Maximum size of a block of similarities; None uses a small share of free memory.

    Returns:
        `r_precision`, `mrr`, `ndcg`, `map`, and `hit_k`, `precision_k`, `recall_k`, `ndcg_k` for every k of `ks`, with their
        intervals and chance levels, by name.

    Raises:
        UsageError: An option is impossible, or a cut beyond the smallest pool.
        DataError: Scores, features, pools or relevant candidates are malformed or inconsistent.

    Example:
        >>> import numpy as np
        >>> scores = np.array([[0.9, 0.2, 0.4], [0.5, 0.5, 0.1]])
        >>> metrics = ranking_metrics(scores, [0, 1], ks=[1, 2])
        >>> metrics["hit_1"].value, metrics["hit_2"].value, metrics["mrr"].value
        (0.75, 1.0, 0.875)
        >>> round(metrics["hit_1"].chance, 4), metrics.pool
        (0.3333, (3, 3))
    """
    check_count(seed, "seed", minimum=0)
    if block_bytes is not None:
        check_count(block_bytes, "block_bytes", minimum=1)
    scorer = _scorer(scores, device, block_bytes)
    n, candidates = scorer.shape
    checked = None if pools is None else _check_pools(pools, n, candidates)
    pool: Counts = np.full(n, candidates) if checked is None else (checked >= 0).sum(dim=1).numpy()
    most = int(pool.min())
    cuts = [
        check_count(k, "k, within the smallest pool,", minimum=1, maximum=most) for k in _as_list(ks, "ks")
    ]
    count, index = _check_relevant(relevant, candidates, n)
    query = np.repeat(np.arange(n), count)
    if checked is not None and len(
        outside := (checked.numpy()[query] != index[:, None]).all(axis=1).nonzero()[0]
    ):
        text = f"candidate {index[outside[0]]} is relevant to query {query[outside[0]]} (counted from 0) but not in its pool"
        raise DataError(f"{text}; a pool holds all that is relevant", code="relevant-not-in-pool")
    counter = RankCounter(scorer, query, index)
    if checked is None:
        counter.count_all(progress)
    else:
        counter.count_pools(checked, progress, block_bytes)
    places = counter.above.cpu().numpy(), counter.tied.cpu().numpy()
    by_chance = np.zeros_like(query), pool[query]  # all of the pool have one score
    values, chance = (
        TiedRanks.from_candidates(count, query, above, tied).values(pool, sorted(set(cuts)))
        for above, tied in (places, by_chance)
    )
    unit = np.arange(n) if groups is None else _units_of(groups, n)
    metrics = _query_metrics(values, chance, unit, seed)
    return QueryMetrics(metrics, n, int((count == 0).sum()), (most, int(pool.max())))


@dataclass(frozen=True, slots=True)
class TiedRanks:
    """Where the relevant candidates of q queries are, (p,) each, sorted by query, then by place.

    `above` is g, `tied` e, `relevant_above` a and `relevant_tied` r of the module's docstring.
    """

    count: Counts  # (q,) relevant candidates of each query
    query: Counts
    above: Counts
    tied: Counts
    relevant_above: Counts
    relevant_tied: Counts

    @classmethod
    def from_candidates(cls, count: Counts, query: Counts, above: Counts, tied: Counts) -> TiedRanks:
        """Sort the places (p,) of relevant candidates, and count those before each."""
        order = np.lexsort((above, query))
        query, above, tied = query[order], above[order], tied[order]
        place = query * (above.max(initial=0) + 1) + above
        first_of_query, first_of_score = np.searchsorted(query, query), np.searchsorted(place, place)
        relevant_tied = np.searchsorted(place, place, side="right") - first_of_score
        return cls(count, query, above, tied, first_of_score - first_of_query, relevant_tied)

    def values(self, pool: Counts, ks: Sequence[int]) -> PerQuery:
        """Metrics of rankings of whole pools of (q,) candidates, by name; `ks` is where rankings are cut."""
        r, whole = self.count, np.maximum(self.count, 1)
        values = {"r_precision": self.found(r) / whole}
        for k in ks:
            cut = np.full(len(r), k)
            found = self.found(cut)
            values |= {f"hit_{k}": self.hit(cut), f"precision_{k}": found / k}
            values |= {f"recall_{k}": found / whole, f"ndcg_{k}": self.ndcg(cut)}
        values |= {
            "mrr": self.reciprocal(),
            "ndcg": self.ndcg(pool),
            "map": self.precisions() / whole,
        }
        # At most 1, which means over orders may exceed by rounding.
        return {name: np.where(r > 0, np.minimum(each, 1.0), np.nan) for name, each in values.items()}

    def found(self, cut: Counts) -> Numbers:
        """Relevant ones up to place `cut` (q,): (q,), mean over orders."""
        return _totals(self.query, self._reach(cut) / self.tied, len(cut))

    def hit(self, cut: Counts) -> Numbers:
        """Probability that any relevant one is up to place `cut` (q,): (q,)."""
        out = np.zeros(len(cut))
        first = self._first()
        e, r, reach = self.tied[first], self.relevant_tied[first], self._reach(cut)[first]
        few, many = np.minimum(r, reach), np.maximum(r, reach)
        missed = np.ones(len(first))
        for i in range(int(few.max(initial=0))):
            missed *= np.where(i < few, np.maximum(e - many - i, 0) / np.maximum(e - i, 1), 1.0)
        out[self.query[first]] = np.where(r == 1, reach / e, 1 - missed)
        return out

    def reciprocal(self) -> Numbers:
        """1 / place of the first relevant one: (q,), mean over orders."""
        out = np.zeros(len(self.count))
        first = self._first()
        g, e, r = self.above[first], self.tied[first], self.relevant_tied[first]
        value = np.asarray(self._reciprocals(first) / e, dtype=np.float64)
        several = np.flatnonzero((r > 1) & (e > 1))
        kinds, kind = np.unique(np.stack([g, e, r], axis=1)[several], axis=0, return_inverse=True)
        value[several] = np.array([_first_of_several(*row) for row in kinds.tolist()])[kind.ravel()]
        out[self.query[first]] = value
        return out

    def precisions(self) -> Numbers:
        """Sum over relevant ones of the precision at their places: (q,), mean over orders."""
        inverse = self._reciprocals(slice(None))
        others = (self.relevant_tied - 1) / np.maximum(self.tied - 1, 1).astype(np.longdouble)
        total = (self.relevant_above + 1) * inverse + others * (self.tied - (self.above + 1) * inverse)
        return _totals(self.query, total / self.tied, len(self.count))

    def ndcg(self, cut: Counts) -> Numbers:
        """DCG up to place `cut` (q,) over that of the best order: (q,), mean over orders."""
        length = max(self._length(), int(self.count.max(initial=0)))
        discounts = np.log2(np.arange(2, length + 2, dtype=np.longdouble)) ** -1
        mean = _between(discounts[: self._length()], self.above, self._reach(cut)) / self.tied
        ideal: Numbers = np.cumsum(discounts.astype(np.float64))[
            np.maximum(np.minimum(self.count, cut), 1) - 1
        ]
        return _totals(self.query, mean, len(cut)) / ideal

    def _reach(self, cut: Counts) -> Counts:
        reach: Counts = np.clip(cut[self.query] - self.above, 0, self.tied)
        return reach

    def _first(self) -> Counts:
        """Rows of one of the best relevant ones of each query that has any."""
        first: Counts = np.unique(self.query, return_index=True)[1]
        return first

    def _length(self) -> int:
        return int((self.above + self.tied).max(initial=1))

    def _reciprocals(self, rows: Counts | slice) -> _Wide:
        """Sum of 1 / place over the places of the score of each of the `rows`."""
        terms = 1 / np.arange(1, self._length() + 1, dtype=np.longdouble)
        return _between(terms, self.above[rows], self.tied[rows])


def _totals(query: Counts, values: Numbers | _Wide, queries: int) -> Numbers:
    return np.bincount(query, values.astype(np.float64), queries).astype(np.float64)


def _between(terms: _Wide, above: Counts, reach: Counts) -> _Wide:
    """Sums of `reach` terms from place `above` + 1 on; a single one is that term, to the last bit."""
    sums = np.concatenate([np.zeros(1, dtype=np.longdouble), np.cumsum(terms)])
    last = len(terms) - 1
    several = sums[np.minimum(above + reach, last + 1)] - sums[np.minimum(above, last + 1)]
    return np.where(reach == 1, terms[np.minimum(above, last)], several)


def _first_of_several(above: int, tied: int, relevant: int) -> float:
    """Mean of 1 / place of the first of `relevant` among `tied`."""
    j = np.arange(1, tied - relevant + 2)
    none_before = np.cumprod(np.concatenate([[1.0], (tied - relevant - j[:-1] + 1) / (tied - j[:-1] + 1)]))
    return float(np.sum(none_before * relevant / (tied - j + 1) / (above + j)))


@dataclass(frozen=True, slots=True, eq=False)
class QueryMetric:
    """The mean of one metric over the `n` queries for which it is defined, of `n_units` groups that were drawn independently.

    The interval is 95 %, with its replicates (100,) of halves; None for fewer than 10 units. `chance` is the chance level on
    the same queries. Value and chance are None without such queries. `per_query` (q,) is NaN where undefined.
    """

    value: float | None
    interval: Interval | None
    chance: float | None
    n: int
    n_units: int
    per_query: Numbers = field(repr=False)
    replicates: Tensor | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True, eq=False)
class QueryMetrics(Mapping[str, QueryMetric]):
    """Metrics of rankings by name, as a mapping.

    No metric is defined for the `n_undefined` queries without relevant candidates. `pool` is the smallest and the largest number of
    candidates of a query.
    """

    metrics: Mapping[str, QueryMetric]
    n_queries: int
    n_undefined: int
    pool: tuple[int, int]

    def __getitem__(self, name: str) -> QueryMetric:
        return get_named(self.metrics, name, "metric")

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


def _query_metrics(values: PerQuery, chance: PerQuery, unit: Counts, seed: int) -> dict[str, QueryMetric]:
    """Means over queries of `values` (q,) and of their chance levels; queries of one unit are drawn together for intervals."""
    replicates = _replicates(list(values.values()), unit, seed)
    return {
        name: _metric(of_queries, chance[name], unit, replicate)
        for (name, of_queries), replicate in zip(values.items(), replicates, strict=True)
    }


def _units_of(groups: Sequence[Hashable], n: int) -> Counts:
    """The unit of each of n queries, (n,), numbered in order of occurrence."""
    number: dict[Hashable, int] = {}
    try:
        names = groups.tolist() if isinstance(groups, Tensor) else groups  # tensors are hashed by identity
        units = [number.setdefault(name, len(number)) for name in names]
    except (TypeError, RuntimeError):  # not hashable, or a tensor without data
        units = []
    if len(units) != n or isinstance(groups, str):
        raise UsageError(f"groups must be a text or a number for each of {n:,} queries", code="bad-groups")
    return np.array(units, dtype=np.int64)


def _metric(values: Numbers, chance: Numbers, unit: Counts, replicates: Tensor) -> QueryMetric:
    is_defined = ~np.isnan(values)
    n, n_units = int(is_defined.sum()), len(np.unique(unit[is_defined]))
    value, guessed = _mean(values[is_defined]), _mean(chance[is_defined])
    interval = None
    if value is not None and n_units >= MIN_UNITS:
        # A share of queries that are drawn alone is binomial; any other mean has no exact interval to fall back on.
        is_share = n_units == n and bool(np.isin(values[is_defined], (0.0, 1.0)).all())
        interval = interval_of(value, replicates, n=n_units, is_share=is_share)
    return QueryMetric(value, interval, guessed, n, n_units, values, None if interval is None else replicates)


def _mean(values: Numbers) -> float | None:
    """The mean, the same to the last bit in any order of queries."""
    return math.fsum(values) / len(values) if len(values) else None


def _replicates(columns: Sequence[Numbers], unit: Counts, seed: int) -> list[Tensor]:
    """Means (100,) of each column over halves of the units that have a value in any; empty for fewer than 10 of these."""
    has_any = ~np.all(np.isnan(columns), axis=0)
    columns = [column[has_any] for column in columns]
    unit = np.unique(unit[has_any], return_inverse=True)[1]
    n = int(unit.max(initial=-1)) + 1
    if n < MIN_UNITS:
        return [torch.empty(0, dtype=torch.float64)] * len(columns)
    totals = np.stack([np.bincount(unit, np.nan_to_num(column), n) for column in columns], axis=1)
    counts = np.stack([np.bincount(unit, ~np.isnan(column), n) for column in columns], axis=1)
    return list(halved_means(totals, counts, seed=seed).unbind(dim=1))


def unit_pools(
    relevant: Sequence[Sequence[int]],
    query_unit: Counts,
    candidate_unit: Counts,
    *,
    distractors: int,
    seed: int,
) -> tuple[Counts, int]:
    """A pool for each query, (q, p), and its number of distractors, fewer than requested where a query has fewer candidates.

    Relevant candidates come first, padded with -1, then distractors: random candidates of another unit (c,) than the query's (q,).
    """
    order = np.argsort(candidate_unit, kind="stable")
    first = np.searchsorted(candidate_unit[order], query_unit)
    n_own = np.searchsorted(candidate_unit[order], query_unit, side="right") - first
    count = int(min(distractors, len(order) - n_own.max()))
    drawn = _different_draws(len(order) - n_own, count, seed, len(order))
    # The i-th candidate of another unit: those of the query's unit are adjacent in this order and skipped.
    others = order[drawn + np.where(drawn >= first[:, None], n_own[:, None], 0)]
    own = np.full((len(relevant), max(map(len, relevant))), -1, dtype=np.int64)
    for row, candidates in zip(own, relevant, strict=True):
        row[: len(candidates)] = candidates
    return np.concatenate([own, others], axis=1), count


def _different_draws(among: Counts, count: int, seed: int, n_candidates: int) -> Counts:
    """`count` different numbers from 0 to `among` (q,) - 1 for each query, (q, count) (Bentley and Floyd 1987)."""
    # Streams of a bit generator never change between versions of NumPy; draws of choice() may.
    raw = np.random.PCG64(np.random.SeedSequence([seed, n_candidates])).random_raw(len(among) * count)
    share = (raw.reshape(len(among), count) >> np.uint64(11)) * 2.0**-53
    drawn = np.empty((len(among), count), dtype=np.int64)
    for turn in range(count):
        last = among - count + turn
        chosen = np.minimum((share[:, turn] * (last + 1)).astype(np.int64), last)
        is_new = (drawn[:, :turn] != chosen[:, None]).all(axis=1)
        drawn[:, turn] = np.where(is_new, chosen, last)
    return drawn


def _as_list(value: object, name: str) -> list[Any]:
    """A collection, in order, as a list."""
    if isinstance(value, np.ndarray) or is_plain(value):
        value = value.tolist()
    if isinstance(value, str | bytes | Mapping | Tensor) or not isinstance(value, Iterable):
        raise UsageError(f"{name} must be a list, not {kind_of(value)}", code="bad-list")
    return value if type(value) is list else list(value)


def _check_relevant(relevant: Relevant, candidates: int, n: int) -> tuple[Counts, Counts]:
    """Number of relevant candidates of each of n queries, (n,), and these candidates, (p,)."""
    rows = [
        [row] if isinstance(row, Real) else _as_list(row, "relevant")
        for row in _as_list(relevant, "relevant")
    ]
    counts = np.array(list(map(len, rows)), dtype=np.int64)
    try:
        index = np.asarray(list(chain(*rows)))
    except ValueError:  # lists within lists
        index = np.zeros((1, 1))
    fits = len(counts) == n and (not index.size or (index.ndim == 1 and index.dtype.kind in "iu"))
    if fits:
        index = index.astype(np.int64)
        different = np.unique(np.repeat(np.arange(n), counts) * candidates + index)
        fits = len(different) == len(index) and bool(((index >= 0) & (index < candidates)).all())
    if not fits:
        text = f"relevant must hold for each of {n:,} queries a candidate from 0 to {candidates - 1}, or different ones"
        raise DataError(text, code="bad-relevant")
    return counts, index


def _scorer(scores: object, device: str | torch.device, block_bytes: int | None) -> Scorer:
    """Given scores, or checked features of queries and candidates on one device."""
    if not isinstance(scores, tuple):
        return ScoreMatrix(_check_scores(scores), block_bytes)
    if len(scores) != 2:
        raise UsageError("a tuple of scores is the features of queries and of candidates", code="bad-scores")
    names, where = ("queries", "candidates"), choose_device(scores[0], device)
    left, right = (check_features(rows, name).to(where) for rows, name in zip(scores, names, strict=True))
    check_same_width(left, right, names=names)
    for rows, name in zip((left, right), names, strict=True):
        check_rows(rows, name, k=0)
        check_no_zero_rows(rows, name)
    return FeaturePairs(left, right, block_bytes)


def _check_scores(scores: object) -> Tensor:
    """Scores (q, c) as a tensor of a type that torch can compare."""
    check_unmasked(scores, "scores")
    if isinstance(scores, np.ndarray) and scores.dtype.kind in "fiu" and scores.dtype.itemsize <= 8:
        kind = np.int64 if scores.dtype.kind == "u" else scores.dtype.newbyteorder("=")
        if scores.dtype != np.uint64:
            scores = torch.from_numpy(np.require(scores, kind, ["C", "W"]))
    if (
        not is_plain(scores)
        or (scores.dtype in _NOT_COMPARED or scores.is_complex())
        or (scores.is_floating_point() and scores.itemsize == 1)
        or (scores.ndim != 2 or 0 in scores.shape)
    ):
        raise DataError(
            "scores must be integers or floats of at most 64 bits in an array (q, c), or a pair of arrays of features, not "
            f"{kind_of(scores)}",
            code="bad-scores",
        )
    if scores.max().isnan():  # of any score
        raise DataError("some scores are NaN, which has no rank", code="nan-scores")
    return scores.detach()


def _check_pools(pools: object, n: int, candidates: int) -> Tensor:
    """Pools as (q, p) int64 on the CPU."""
    check_unmasked(pools, "pools")
    try:
        array = np.asarray(pools.cpu() if isinstance(pools, Tensor) else pools)
    except (ValueError, RuntimeError, TypeError):  # lists of different lengths, tensors without data
        array = np.empty(0)
    fits = array.ndim == 2 and len(array) == n and array.size > 0 and array.dtype.kind in "iu"
    if fits:
        ordered = np.sort(array, axis=1)
        is_twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        fits = array.min() >= -1 and array.max() < candidates and ordered[:, -1].min() >= 0
        fits = fits and not is_twice.any()
    if not fits:
        raise DataError(
            f"pools must hold for each of {n:,} queries different candidates from 0 to {candidates - 1}, at least one, and -1 "
            "for none",
            code="bad-pools",
        )
    return torch.from_numpy(array.astype(np.int64))
