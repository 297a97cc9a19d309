"""Means over queries with all that tells what they are worth: interval, chance, and the values they are means of."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.given import as_list
from genpr.metrics.halved import LEAST_UNITS, halved
from genpr.metrics.retrieval.places import Counts, Numbers
from genpr.metrics.retrieval.ranked_values import PerQuery
from genpr.metrics.uncertainty import Interval, interval_of


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
