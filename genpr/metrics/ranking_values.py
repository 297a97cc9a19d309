"""Metrics of each query from the ranks of its relevant candidates, and their means over queries with interval and chance.

Candidates of equal score have no order: every number is the mean over all orders of them (McSherry and Najork 2008, "Computing
Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores"), so uninformative scores get the chance level. For
one of r relevant ones among e candidates of equal score, g candidates and a relevant ones being before all of these, its rank is
g + j with j uniform on 1..e; J of these ranks are within the cut, J = min(e, cut - g).

Definitions: Manning, Raghavan and Schütze 2008, "Introduction to Information Retrieval", chapter 8; Järvelin and Kekäläinen 2002
(NDCG); LlamaIndex (granular hit rate and MRR).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import UsageError, get_named
from genpr.metrics.uncertainty import Interval, interval_of
from genpr.neighbors.halves import Halves

Counts: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.float64]
_Wide: TypeAlias = NDArray[np.floating[Any]]
PerQuery: TypeAlias = dict[str, Numbers]  # (q,) of each metric; NaN for a query without relevant candidates

N_HALVES = 100
MIN_UNITS = 10  # minimum for halves

_MAX_WEIGHTS = 2**22  # held at once
_STREAM = 2  # different from those of reals and fakes


@dataclass(frozen=True, slots=True)
class RelevantItems:
    """Relevant items of each of q queries: those of query i are from offsets[i] to offsets[i + 1], in any order.

    `gains` (p,) float64 are their gains in DCG.
    """

    offsets: Counts
    gains: Numbers

    @classmethod
    def from_counts(cls, counts: Sequence[int], gains: Numbers) -> RelevantItems:
        """From the number of relevant ones of each query."""
        return cls(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), gains)

    @property
    def count(self) -> Counts:
        """Relevant ones of each query, (q,)."""
        return np.diff(self.offsets)

    @property
    def query(self) -> Counts:
        """The query of each relevant one, (p,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.count)

    def ideal(self, cut: Counts) -> Numbers:
        """DCG of the best order, up to place `cut` (q,): (q,)."""
        query = self.query
        best = self.gains[np.lexsort((-self.gains, query))]
        place = np.arange(len(best)) - self.offsets[query]
        within = place < cut[query]
        worth = best[within] * discounts(int(self.count.max(initial=0)))[place[within]]
        return _totals(query[within], worth, len(cut))


@dataclass(frozen=True, slots=True)
class TiedRanks:
    """Where relevant candidates are, (p,) each, sorted by query, then by place; of a list, those that are in it.

    `above` is g, `tied` e, `relevant_above` a and `relevant_tied` r of the module's docstring.
    """

    query: Counts
    above: Counts
    tied: Counts
    relevant_above: Counts
    relevant_tied: Counts
    gain: Numbers

    @classmethod
    def from_candidates(cls, query: Counts, above: Counts, tied: Counts, gain: Numbers) -> TiedRanks:
        """Sort the places (p,) of relevant candidates, and count those before each."""
        order = np.lexsort((gain, above, query))
        query, above, tied, gain = query[order], above[order], tied[order], gain[order]
        place = query * (above.max(initial=0) + 1) + above
        first_of_query, first_of_score = np.searchsorted(query, query), np.searchsorted(place, place)
        relevant_tied = np.searchsorted(place, place, side="right") - first_of_score
        return cls(query, above, tied, first_of_score - first_of_query, relevant_tied, gain)

    @classmethod
    def at_random(cls, relevant_items: RelevantItems, pool: Counts) -> TiedRanks:
        """The places when all `pool` (q,) candidates have one score."""
        query = relevant_items.query
        return cls.from_candidates(query, np.zeros_like(query), pool[query], relevant_items.gains)

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

    def reciprocal(self, cut: Counts) -> Numbers:
        """1 / place of the first relevant one, 0 where that is beyond `cut` (q,): (q,), mean over orders."""
        out = np.zeros(len(cut))
        first = self._first()
        reach = self._reach(cut)[first]
        g, e, r = self.above[first], self.tied[first], self.relevant_tied[first]
        value = np.asarray(self._reciprocals(first, reach) / e, dtype=np.float64)
        several = np.flatnonzero((r > 1) & (e > 1))
        kinds, kind = np.unique(np.stack([g, e, r, reach], axis=1)[several], axis=0, return_inverse=True)
        value[several] = np.array([_first_of_several(*row) for row in kinds.tolist()])[kind.ravel()]
        out[self.query[first]] = value
        return out

    def precisions(self, cut: Counts) -> Numbers:
        """Sum over relevant ones up to place `cut` (q,) of the precision at their places: (q,), mean over orders."""
        reach = self._reach(cut)
        inverse = self._reciprocals(slice(None), reach)
        others = (self.relevant_tied - 1) / np.maximum(self.tied - 1, 1).astype(np.longdouble)
        total = (self.relevant_above + 1) * inverse + others * (reach - (self.above + 1) * inverse)
        return _totals(self.query, total / self.tied, len(cut))

    def discounted_gain(self, cut: Counts) -> Numbers:
        """DCG up to place `cut` (q,): (q,), mean over orders."""
        mean = _between(discounts(self._length()), self.above, self._reach(cut)) / self.tied
        return _totals(self.query, self.gain * mean, len(cut))

    def _reach(self, cut: Counts) -> Counts:
        reach: Counts = np.clip(cut[self.query] - self.above, 0, self.tied)
        return reach

    def _first(self) -> Counts:
        """Rows of one of the best relevant ones of each query that has any."""
        first: Counts = np.unique(self.query, return_index=True)[1]
        return first

    def _length(self) -> int:
        return int((self.above + self.tied).max(initial=1))

    def _reciprocals(self, rows: Counts | slice, reach: Counts) -> _Wide:
        """Sum of 1 / place over the `reach` places from `above` on."""
        terms = 1 / np.arange(1, self._length() + 1, dtype=np.longdouble)
        return _between(terms, self.above[rows], reach)


def discounts(length: int) -> _Wide:
    """1 / log2(1 + place) of places 1 to `length`."""
    return np.log2(np.arange(2, length + 2, dtype=np.longdouble)) ** -1


def _totals(query: Counts, values: Numbers | _Wide, queries: int) -> Numbers:
    return np.bincount(query, values.astype(np.float64), queries).astype(np.float64)


def _between(terms: _Wide, above: Counts, reach: Counts) -> _Wide:
    """Sums of `reach` terms from place `above` + 1 on; a single one is that term, to the last bit."""
    sums = np.concatenate([np.zeros(1, dtype=np.longdouble), np.cumsum(terms)])
    last = len(terms) - 1
    several = sums[np.minimum(above + reach, last + 1)] - sums[np.minimum(above, last + 1)]
    return np.where(reach == 1, terms[np.minimum(above, last)], several)


def _first_of_several(above: int, tied: int, relevant: int, reach: int) -> float:
    """Mean of 1 / place of the first of `relevant` among `tied`, 0 where it is beyond `reach` of these."""
    j = np.arange(1, min(reach, tied - relevant + 1) + 1)
    none_before = np.cumprod(np.concatenate([[1.0], (tied - relevant - j[:-1] + 1) / (tied - j[:-1] + 1)]))
    return float(np.sum(none_before[: len(j)] * relevant / (tied - j + 1) / (above + j)))


def pool_values(
    places: TiedRanks, relevant_items: RelevantItems, pool: Counts, ks: Sequence[int]
) -> PerQuery:
    """Metrics of rankings of whole pools of (q,) candidates, by name; `ks` is where rankings are cut."""
    r = relevant_items.count
    values = {"r_precision": places.found(r) / np.maximum(r, 1)}
    for k in ks:
        at_cut = _values_at(places, relevant_items, np.full(len(r), k))
        values |= {f"{name}_{k}": each for name, each in at_cut.items()}
    values["mrr"] = places.reciprocal(pool)
    values["ndcg"] = _ndcg(places, relevant_items, pool)
    values["map"] = places.precisions(pool) / np.maximum(r, 1)
    return _defined(values, r)


def list_values(
    places: TiedRanks, relevant_items: RelevantItems, length: Counts, pool: Counts | None = None
) -> PerQuery:
    """Metrics of lists of `length` (q,) places, by name; `pool` (q,) where `places` are those of chance among so many."""
    r = relevant_items.count
    hit, precision, recall, ndcg = _values_at(places, relevant_items, length).values()
    values = {
        "hit_rate": hit,
        "granular_hit_rate": recall,
        "mrr": places.reciprocal(length),
        "granular_mrr": _granular_mrr(places, length) if pool is None else _granular_chance(hit, length),
        "precision": precision,
        "recall": recall,
        "r_precision": places.found(np.minimum(length, r)) / np.maximum(r, 1),
        "map": places.precisions(length) / np.maximum(r, 1),
        "ndcg": ndcg,
    }
    return _defined(values, r)


def _values_at(places: TiedRanks, relevant_items: RelevantItems, cut: Counts) -> PerQuery:
    """Metrics of the places up to `cut` (q,); the precision of an empty list is NaN."""
    n_found = places.found(cut)
    with np.errstate(invalid="ignore"):
        precision = n_found / cut
    return {
        "hit": places.hit(cut),
        "precision": precision,
        "recall": n_found / np.maximum(relevant_items.count, 1),
        "ndcg": _ndcg(places, relevant_items, cut),
    }


def _granular_mrr(places: TiedRanks, length: Counts) -> Numbers:
    """Mean of 1 / place over found items, 0 without any."""
    n_found = np.bincount(places.query, minlength=len(length))
    total = np.bincount(places.query, 1 / (places.above + 1), len(length)).astype(np.float64)
    return total / np.maximum(n_found, 1)


def _granular_chance(hit: Numbers, length: Counts) -> Numbers:
    """In random lists found items have uniformly random places, so each counts the mean of 1 / place."""
    inverse = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, length.max(initial=0) + 1))])
    mean: Numbers = inverse[length] / np.maximum(length, 1)
    return hit * mean


def _ndcg(places: TiedRanks, relevant_items: RelevantItems, cut: Counts) -> Numbers:
    """NDCG up to place `cut` (q,); 0 for a list without places, in which nothing was found."""
    ideal = relevant_items.ideal(cut)
    return places.discounted_gain(cut) / np.where(ideal > 0, ideal, 1.0)


def _defined(values: PerQuery, count: Counts) -> PerQuery:
    """NaN without relevant items, and at most 1, which means over orders may exceed by rounding."""
    return {name: np.where(count > 0, np.minimum(each, 1.0), np.nan) for name, each in values.items()}


@dataclass(frozen=True, slots=True, eq=False)
class QueryMetric:
    """The mean of one metric over the `n` queries for which it is defined, of `n_units` groups that were drawn independently.

    The interval is 95 %, with its replicates (100,) of halves; None for fewer than 10 units. `chance` is the chance level on
    the same queries, None if the pool is unknown. `per_query` (q,) is NaN where undefined.
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
    candidates of a query, None if unknown.
    """

    metrics: Mapping[str, QueryMetric]
    n_queries: int
    n_undefined: int
    pool: tuple[int, int] | None

    def __getitem__(self, name: str) -> QueryMetric:
        return get_named(self.metrics, name, "metric")

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


def query_metrics(
    values: PerQuery,
    chance: PerQuery | None = None,
    *,
    pool: Counts | None = None,
    groups: Sequence[Hashable] | None = None,
    seed: int,
) -> QueryMetrics:
    """Means over queries of `values` (q,) and of their chance levels; queries of one group are drawn together for intervals."""
    columns = list(values.values())
    n = len(columns[0])
    unit = np.arange(n) if groups is None else _units_of(groups, n)
    replicates = _replicates(columns, unit, seed)
    metrics = {
        name: _metric(of_queries, None if chance is None else chance[name], unit, replicate)
        for (name, of_queries), replicate in zip(values.items(), replicates, strict=True)
    }
    n_undefined = int(np.isnan(columns).all(axis=0).sum())
    return QueryMetrics(metrics, n, n_undefined, None if pool is None else (int(pool.min()), int(pool.max())))


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


def _metric(values: Numbers, chance: Numbers | None, unit: Counts, replicates: Tensor) -> QueryMetric:
    is_defined = ~np.isnan(values)
    n, n_units = int(is_defined.sum()), len(np.unique(unit[is_defined]))
    guessed = None if chance is None else _mean(chance[is_defined])
    value = _mean(values[is_defined])
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
    both = torch.from_numpy(np.concatenate([totals, counts], axis=1))

    def means(weights: Tensor) -> Tensor:
        halves = weights @ both
        return halves[:, : len(columns)] / halves[:, len(columns) :]

    # torch.cat joins (B, columns) as it does (B,).
    return list(halved(means, n, seed=seed).unbind(dim=1))


def halved_means(totals: NDArray[Any], counts: NDArray[Any], *, seed: int) -> Tensor:
    """Means (100,) over halves of n units, at least 10, of whose values `totals` (n,) are the sums and `counts` (n,) the numbers."""
    both = torch.from_numpy(np.stack([totals, counts], axis=1))

    def means(weights: Tensor) -> Tensor:
        total = weights @ both
        return total[:, 0] / total[:, 1]

    return halved(means, len(totals), seed=seed)


def halved(statistic: Callable[[Tensor], Tensor], n: int, *, seed: int = 0) -> Tensor:
    """A statistic of 100 halves of n units, at least 10: (100,) float64, complementary ones adjacent.

    It turns weights (B, n) float64, 1 where a unit is in the half and 0 elsewhere, into (B,) values.
    """
    if n < MIN_UNITS:
        raise UsageError(f"halves need at least {MIN_UNITS} units, not {n}", code="too-few-units")
    halves = Halves.drawn(n, seed=seed, stream=_STREAM, count=N_HALVES, device=torch.device("cpu"))
    blocks = torch.split(halves.members(), max(1, _MAX_WEIGHTS // n))
    return torch.cat([statistic(block.double()).double() for block in blocks])
