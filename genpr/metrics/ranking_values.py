"""Metrics of each query from the ranks of its relevant candidates, and their means over queries with interval and chance.

Candidates of equal score have no order. Every number here is the mean over all orders of them, as if each were drawn
at random (McSherry and Najork 2008, "Computing Information Retrieval Performance Measures Efficiently in the Presence
of Tied Scores"), so a scorer that knows nothing gets exactly what guessing gets.

In short, for one of r relevant ones among e candidates of equal score, g candidates and a relevant ones being before
all of these, its rank is g + j with j uniform on 1..e; J of these ranks are within the cut, J = min(e, cut - g).

References:
    Manning, Raghavan and Schütze 2008, "Introduction to Information Retrieval", chapter 8.
    Järvelin and Kekäläinen 2002, "Cumulated Gain-Based Evaluation of IR Techniques" (NDCG, linear gain).
    Burges et al. 2005, "Learning to Rank Using Gradient Descent" (NDCG, exponential gain).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.given import as_list
from genpr.metrics.halved import LEAST_UNITS, halved
from genpr.metrics.uncertainty import Interval, interval_of

Counts: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.float64]
_Wide: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class RelevantItems:
    """What is relevant to each of q queries.

    Attributes:
        offsets: (q + 1,) int64; the relevant ones of query i are those from offsets[i] to offsets[i + 1].
        gains: (p,) float64, positive, what finding each is worth in DCG; within a query in any order.
    """

    offsets: Counts
    gains: Numbers

    @property
    def count(self) -> Counts:
        """Relevant ones of each query, (q,) int64."""
        return np.diff(self.offsets)

    @property
    def query(self) -> Counts:
        """The query of each relevant one, (p,) int64."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.count)

    def ideal(self, cut: Counts) -> Numbers:
        """DCG of the best order, up to place `cut` (q,): (q,) float64."""
        query = self.query
        best = self.gains[np.lexsort((-self.gains, query))]
        place = np.arange(len(best)) - self.offsets[query]
        within = place < cut[query]
        worth = best[within] * discounts(int(self.count.max(initial=0)))[place[within]]
        return _totals(query[within], worth, len(cut))


@dataclass(frozen=True, slots=True)
class TiedRanks:
    """Where relevant candidates are; sorted by query, then by place. Of a list, those that are in it.

    Attributes:
        query: (p,) int64, its query.
        above: (p,) int64, candidates of a higher score: g.
        tied: (p,) int64, candidates of its score, itself among them: e.
        relevant_above: (p,) int64, relevant ones of a higher score: a.
        relevant_tied: (p,) int64, relevant ones of its score: r.
        gain: (p,) float64.
    """

    query: Counts
    above: Counts
    tied: Counts
    relevant_above: Counts
    relevant_tied: Counts
    gain: Numbers

    @classmethod
    def of(cls, query: Counts, above: Counts, tied: Counts, gain: Numbers) -> TiedRanks:
        """Sort the places (p,) of relevant candidates, and count which of them are before which."""
        order = np.lexsort((gain, above, query))
        query, above, tied, gain = query[order], above[order], tied[order], gain[order]
        at = np.arange(len(query))
        new_query = np.ones(len(query), dtype=bool)
        new_query[1:] = query[1:] != query[:-1]
        new_score = new_query.copy()
        new_score[1:] |= above[1:] != above[:-1]
        first_of_query = np.maximum.accumulate(np.where(new_query, at, 0))
        group = np.cumsum(new_score) - 1
        first_of_score = np.flatnonzero(new_score)[group] if len(at) else at
        return cls(
            query,
            above,
            tied,
            first_of_score - first_of_query,
            np.bincount(group)[group] if len(at) else at,
            gain,
        )

    @classmethod
    def at_random(cls, relevant_items: RelevantItems, pool: Counts) -> TiedRanks:
        """The places when all candidates have one score; `pool` (q,) is how many each query has."""
        query = relevant_items.query
        return cls.of(query, np.zeros_like(query), pool[query], relevant_items.gains)

    def pessimistic(self) -> TiedRanks:
        """The places when relevant ones come after all others of their score, those of least gain first."""
        at = np.arange(len(self.query))
        start = np.searchsorted(
            self.query, self.query
        )  # sorted by place, then gain: the order relevant_items
        within = at - start - self.relevant_above
        return replace(
            self,
            above=self.above + self.tied - self.relevant_tied + within,
            tied=np.ones_like(at),
            relevant_above=self.relevant_above + within,
            relevant_tied=np.ones_like(at),
        )

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
        g, e, r, reach = (
            self.above[first],
            self.tied[first],
            self.relevant_tied[first],
            self._reach(cut)[first],
        )
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
        reach = self._reach(cut)
        terms = discounts(self._length())
        mean = _between(terms, self.above, reach) / self.tied
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
    return np.where(
        reach == 1,
        terms[np.minimum(above, last)],
        sums[np.minimum(above + reach, last + 1)] - sums[np.minimum(above, last + 1)],
    )


def _first_of_several(above: int, tied: int, relevant: int, reach: int) -> float:
    """Mean of 1 / place of the first of `relevant` among `tied`, 0 where it is beyond `reach` of these."""
    j = np.arange(1, min(reach, tied - relevant + 1) + 1)
    none_before = np.cumprod(np.concatenate([[1.0], (tied - relevant - j[:-1] + 1) / (tied - j[:-1] + 1)]))
    return float(np.sum(none_before[: len(j)] * relevant / (tied - j + 1) / (above + j)))


PerQuery = dict[str, Numbers]
"""Values (q,) of each metric; NaN for a query to which nothing is relevant."""


def pool_values(
    places: TiedRanks, relevant_items: RelevantItems, pool: Counts, ks: Sequence[int]
) -> PerQuery:
    """Metrics of rankings of whole pools, by name.

    Args:
        places: Of all that is relevant.
        relevant_items: What is relevant.
        pool: (q,) candidates of each query.
        ks: Where rankings are cut.
    """
    r = _defined(relevant_items)
    values = {"r_precision": places.found(relevant_items.count) / r}
    for k in ks:
        cut = np.full(len(r), k)
        found = places.found(cut)
        values[f"hit_{k}"] = _where(r, places.hit(cut))
        values[f"precision_{k}"] = _where(r, found / k)
        values[f"recall_{k}"] = found / r
        values[f"ndcg_{k}"] = _ndcg(places, relevant_items, cut)
    values["mrr"] = _where(r, places.reciprocal(pool))
    values["ndcg"] = _ndcg(places, relevant_items, pool)
    values["map"] = places.precisions(pool) / r
    return _bounded(values)


def list_values(
    places: TiedRanks, relevant_items: RelevantItems, length: Counts, pool: Counts | None = None
) -> PerQuery:
    """Metrics of lists, by name.

    Args:
        places: Of what was found, or by chance could have been.
        relevant_items: What was to be found.
        length: (q,) places of each list that count.
        pool: (q,) candidates, where `places` are those of chance.
    """
    r = _defined(relevant_items)
    found, hit = places.found(length), places.hit(length)
    with np.errstate(invalid="ignore"):
        precision = _where(r, found / length)  # of an empty list: NaN
    values = {
        "hit_rate": _where(r, hit),
        "granular_hit_rate": found / r,
        "mrr": _where(r, places.reciprocal(length)),
        "granular_mrr": _where(r, _granular_mrr(places, length, hit, pool)),
        "precision": precision,
        "recall": found / r,
        "r_precision": places.found(np.minimum(length, relevant_items.count)) / r,
        "map": places.precisions(length) / r,
        "ndcg": _ndcg(places, relevant_items, length),
    }
    return _bounded(values)


def _granular_mrr(places: TiedRanks, length: Counts, hit: Numbers, pool: Counts | None) -> Numbers:
    """Mean of 1 / place over what was found, 0 where nothing was.

    In random lists of L places, those of what was found are any of these, so that each is worth the sum of 1 / place
    over L on average.
    """
    if pool is None:
        found = np.bincount(places.query, minlength=len(length))
        total = np.bincount(places.query, 1 / (places.above + 1), len(length)).astype(np.float64)
        return total / np.maximum(found, 1)
    inverse = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, length.max(initial=0) + 1))])
    mean: Numbers = inverse[length] / np.maximum(length, 1)
    return hit * mean


def _ndcg(places: TiedRanks, relevant_items: RelevantItems, cut: Counts) -> Numbers:
    """NDCG up to place `cut` (q,); 0 for a list without places, in which nothing was found."""
    ideal = relevant_items.ideal(cut)
    return _where(_defined(relevant_items), places.discounted_gain(cut) / np.where(ideal > 0, ideal, 1.0))


def _bounded(values: PerQuery) -> PerQuery:
    """At most 1, which means over orders may pass by a rounding."""
    return {name: np.minimum(of_queries, 1.0) for name, of_queries in values.items()}


def _defined(relevant_items: RelevantItems) -> Numbers:
    """How much is relevant to each query, (q,); NaN where nothing is."""
    return np.where(relevant_items.count > 0, relevant_items.count, np.nan)


def _where(defined: Numbers, values: Numbers) -> Numbers:
    return np.where(np.isnan(defined), np.nan, values)


@dataclass(frozen=True, slots=True, eq=False)
class QueryMetric:
    """One metric of rankings.

    Attributes:
        value: Mean over the queries for which it is defined; None if there are none.
        interval: 95 %, over queries or groups of them; None for fewer than 10.
        chance: What guessing scores on average on the same queries; None where the pool is not known.
        n: Queries that it is a mean over.
        n_units: Groups of queries that were drawn one by one; queries where no groups are known.
        per_query: (q,) float64, NaN where it is undefined.
        replicates: (100,) float64, values for halves of the units, complementary ones side by side; None for fewer than 10.
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

    Attributes:
        metrics: Each one, in order.
        n_queries: Queries, those for which nothing is defined included.
        n_undefined: Queries to which nothing is relevant: no metric is defined for them, and none counts them.
        pool: Least and largest number of candidates that a query had; None if it is not known.
    """

    metrics: Mapping[str, QueryMetric]
    n_queries: int
    n_undefined: int
    pool: tuple[int, int] | None

    def __getitem__(self, name: str) -> QueryMetric:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def __str__(self) -> str:
        width = max(map(len, self.metrics), default=0)
        lines = [f"{name:{width}}  {_line(metric)}" for name, metric in self.metrics.items()]
        return "\n".join([self._head(), f"{'':{width}}   value   95 % interval    chance", *lines])

    def _head(self) -> str:
        undefined = f" ({self.n_undefined:,} with nothing relevant, left out)" if self.n_undefined else ""
        queries = "query" if self.n_queries == 1 else "queries"
        return f"{self.n_queries:,} {queries}{undefined}, {self._pool_in_words()}"

    def _pool_in_words(self) -> str:
        if self.pool is None:
            return "pool not known: chance is not either"
        least, most = self.pool
        return (
            f"pool of {least:,} candidates" if least == most else f"pools of {least:,} to {most:,} candidates"
        )


def _line(metric: QueryMetric) -> str:
    between = f"{metric.interval.low:.4f} .. {metric.interval.high:.4f}" if metric.interval else "-"
    return f"{_number(metric.value)}  {between:16}  {_number(metric.chance)}"


def _number(value: float | None) -> str:
    return f"{'-':>6}" if value is None else f"{value:6.4f}"


def query_metrics(
    values: PerQuery, chance: PerQuery | None, *, groups: Sequence[Hashable] | None, seed: int
) -> dict[str, QueryMetric]:
    """Means over queries.

    Args:
        values: (q,) of each metric, from 0 to 1, NaN where undefined.
        chance: The same of guessing.
        groups: The group of each query; None if each is drawn alone.
        seed: Of the halves.

    Raises:
        UsageError: There are not as many groups as queries, or one cannot be hashed ("bad-groups").
    """
    guessed, columns = chance or {}, list(values.values())
    unit = units_of(groups, len(columns[0]))
    replicates = _replicates(columns, unit, seed)
    return {
        name: _metric(of_queries, guessed.get(name), unit, replicate)
        for (name, of_queries), replicate in zip(values.items(), replicates, strict=True)
    }


def units_of(groups: Sequence[Hashable] | None, n: int) -> Counts:
    """The unit of each of n queries, (n,) int64, numbered as they come.

    Raises:
        UsageError: There are not as many groups as queries, or one cannot be hashed ("bad-groups").
    """
    if groups is None:
        return np.arange(n)
    try:
        names = as_list(groups)
    except TypeError as error:
        raise UsageError(f"groups must name one group per query: {error}", code="bad-groups") from error
    if len(names) != n:
        raise UsageError(
            f"groups must name one group per query: {n:,} are needed, {len(names):,} came", code="bad-groups"
        )
    number: dict[Hashable, int] = {}
    try:
        return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)
    except TypeError as error:
        raise UsageError(f"groups are texts or numbers, but {error}", code="bad-groups") from error


def _metric(values: Numbers, chance: Numbers | None, unit: Counts, replicates: Tensor) -> QueryMetric:
    is_defined = ~np.isnan(values)
    n, n_units = int(is_defined.sum()), len(np.unique(unit[is_defined]))
    guessed = None if chance is None else _mean(chance[is_defined])
    value = _mean(values[is_defined])
    if value is None or n_units < LEAST_UNITS or replicates.isnan().any():
        return QueryMetric(value, None, guessed, n, n_units, values)
    return QueryMetric(
        value,
        _interval(value, values[is_defined], n_units, replicates),
        guessed,
        n,
        n_units,
        values,
        replicates,
    )


def _interval(value: float, values: Numbers, n_units: int, replicates: Tensor) -> Interval:
    """A share of queries that are drawn alone is binomial; any other mean has no exact interval to fall back on."""
    is_share = n_units == len(values) and bool(np.isin(values, (0.0, 1.0)).all())
    interval = interval_of(value, replicates, n=n_units, upper=1.0 if is_share else None)
    return Interval(interval.low, min(interval.high, 1.0))


def _mean(values: Numbers) -> float | None:
    """The same to the last bit in whichever order queries come."""
    return math.fsum(values) / len(values) if len(values) else None


def _replicates(columns: Sequence[Numbers], unit: Counts, seed: int) -> list[Tensor]:
    """Means (100,) of each column over halves of the units that have a value in any; empty for fewer than 10 of these."""
    has_any = ~np.all(np.isnan(columns), axis=0)
    columns = [column[has_any] for column in columns]
    unit = np.unique(unit[has_any], return_inverse=True)[1]
    n = int(unit.max(initial=-1)) + 1
    if n < LEAST_UNITS:
        return [torch.empty(0, dtype=torch.float64)] * len(columns)
    totals = np.stack([np.bincount(unit, np.nan_to_num(column), n) for column in columns], axis=1)
    counts = np.stack([np.bincount(unit, ~np.isnan(column), n) for column in columns], axis=1)
    both = torch.from_numpy(np.concatenate([totals, counts], axis=1))

    def means(weights: Tensor) -> Tensor:
        halves = weights @ both
        return halves[:, : len(columns)] / halves[:, len(columns) :]

    # torch.cat joins (B, columns) as it does (B,).
    return list(halved(means, n, seed=seed).unbind(dim=1))
