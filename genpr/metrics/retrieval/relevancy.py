"""How relevant what was retrieved is, by a judge's scores: no ids are expected."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from genpr.errors import DataError, UsageError
from genpr.metrics.given import MOST, as_list, check_choice, is_number
from genpr.metrics.retrieval.query_means import QueryMetric, query_metrics
from genpr.metrics.uncertainty import Interval
from genpr.validation import check_count

How: TypeAlias = Literal["mean", "max"]


@dataclass(frozen=True, slots=True, eq=False)
class Relevancy:
    """The relevance of what was retrieved, averaged over queries.

    Attributes:
        metric: Value, interval and the value of each query; chance is not known.
        how: What became of the scores of one query.
        threshold: From which score on an item counts as relevant; None where scores count as they are.
        n_queries: Queries, those without anything retrieved included.
        n_undefined: Queries for which nothing was retrieved: they have no relevancy, and the mean leaves them out.
    """

    metric: QueryMetric
    how: How
    threshold: float | None
    n_queries: int
    n_undefined: int

    @property
    def value(self) -> float | None:
        """Mean over queries; None if there are none with anything retrieved."""
        return self.metric.value

    @property
    def interval(self) -> Interval | None:
        """95 %, over queries or groups of them; None for fewer than 10."""
        return self.metric.interval


def relevancy(
    scores: Sequence[Iterable[float]],
    how: How = "mean",
    *,
    threshold: float | None = None,
    scale: tuple[float, float] = (0.0, 1.0),
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Relevancy:
    """Mean or best score of what was retrieved for each query, averaged over queries.

    Args:
        scores: Of a judge, for each retrieved item, a list per query; empty where nothing was retrieved, which leaves the query
            out and is counted.
        how: "mean" over the items of a query, or "max".
        threshold: Count an item as 1 from this score on and as 0 below: "mean" is then the share that is relevant,
            "max" whether any is.
        scale: The least and the largest score the judge can give.
        groups: Of each query, for the interval: queries of one group are drawn together. None if each is drawn alone.
        seed: Of the halves for the interval.

    Raises:
        UsageError: An option is impossible.
        DataError: Scores are no numbers within the scale ("bad-scores").

    Example:
        >>> relevancy([[0.9, 0.1], [0.4], []]).value
        0.45
        >>> relevancy([[0.9, 0.1], [0.4], []], "max", threshold=0.5).value
        0.5
    """
    check_choice(how, "how", {"mean": "over the items", "max": "the best item"})
    low, high = _check_scale(scale)
    if threshold is not None and not (is_number(threshold) and low <= threshold <= high):
        raise UsageError(
            f"threshold must lie on the judge's scale from {low} to {high}, not be {threshold!r:.60}",
            code="bad-threshold",
        )
    check_count(seed, "seed", least=0, most=MOST)
    rows = [_row(row, at, low, high) for at, row in enumerate(_listed(scores, "scores"))]
    if not rows:
        raise DataError("scores hold no query", code="bad-scores")
    of_queries = np.array([_of_query(row, how, threshold) for row in rows])
    unit = (0.0, 1.0) if threshold is not None else (low, high)
    metric = _on_scale(of_queries, *unit, groups=groups, seed=seed)
    return Relevancy(metric, how, threshold, len(rows), int(np.isnan(of_queries).sum()))


def _check_scale(scale: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = map(float, scale)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (low < high and math.isfinite(high - low)):
        raise UsageError(
            f"scale is the least and the largest score, such as (0, 1), not {scale!r:.60}", code="bad-scale"
        )
    return low, high


def _listed(given: object, what: str) -> list[Any]:
    try:
        return as_list(given)
    except TypeError as error:
        raise DataError(f"{what} must be a list, but {error}", code="bad-scores") from error


def _row(row: Iterable[float], at: int, low: float, high: float) -> list[float]:
    listed = _listed(row, f"scores of query {at}")
    for one in listed:
        if not is_number(one) or not low <= float(one) <= high:
            raise DataError(
                f"scores must be numbers from {low} to {high}, but query {at} has {one!r:.60}; give the judge's own `scale`",
                code="bad-scores",
            )
    return [float(one) for one in listed]


def _of_query(row: Sequence[float], how: How, threshold: float | None) -> float:
    if not row:
        return math.nan
    scores = row if threshold is None else [float(one >= threshold) for one in row]
    return max(scores) if how == "max" else math.fsum(scores) / len(scores)


def _on_scale(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    low: float,
    high: float,
    *,
    groups: Sequence[Hashable] | None,
    seed: int,
) -> QueryMetric:
    """The mean of values (q,) from `low` to `high`: its interval is that of shares of the scale."""
    share = query_metrics({"share": (values - low) / (high - low)}, None, groups=groups, seed=seed)["share"]
    plain = query_metrics({"plain": values}, None, groups=groups, seed=seed)["plain"]
    interval = share.interval
    return QueryMetric(
        value=plain.value,
        interval=None
        if interval is None
        else Interval(low + (high - low) * interval.low, low + (high - low) * interval.high),
        chance=None,
        n=plain.n,
        n_units=plain.n_units,
        per_query=values,
        replicates=plain.replicates,
    )
