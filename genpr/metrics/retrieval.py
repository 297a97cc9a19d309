"""Lists of retrieved ids against the ids that are expected, and the relevance of retrieved items by given scores.

References:
    Manning, Raghavan and Schütze 2008, "Introduction to Information Retrieval", chapter 8.
    LlamaIndex, `llama_index.core.evaluation.retrieval.metrics`: the granular hit rate and the granular MRR.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.metrics.given import MOST, as_list, check_choice, is_number
from genpr.metrics.ranking import Gain, check_gain, check_ks, gains_of
from genpr.metrics.ranking_values import (
    Counts,
    QueryMetric,
    QueryMetrics,
    RelevantItems,
    TiedRanks,
    list_values,
    query_metrics,
)
from genpr.metrics.uncertainty import Interval
from genpr.validation import check_count

Id: TypeAlias = Hashable
Ids: TypeAlias = Collection[Id] | NDArray[np.generic] | Tensor
"""Ids of one query: texts, numbers or anything that can be hashed, but no collections."""

_COLLECTIONS = (list, tuple, set, frozenset, np.ndarray, Tensor)


def _check_queries(
    expected: Ids | Sequence[Ids], retrieved: Ids | Sequence[Ids]
) -> tuple[list[list[Id]], list[list[Id]]]:
    """Expected and retrieved ids, a list per query."""
    both = [_ids(expected, "expected"), _ids(retrieved, "retrieved")]
    if any(isinstance(each, AbstractSet) for each in (retrieved, *both[1])):
        raise UsageError("retrieved holds a set, which has no order; give a list, best first", code="bad-ids")
    are_many = [any(isinstance(one, _COLLECTIONS) for one in ids) for ids in both]
    if are_many[0] or (not both[0] and are_many[1]):
        both = [
            [_ids(ids, f"{name} of query {at}") for at, ids in enumerate(each)]
            for each, name in zip(both, ("expected", "retrieved"), strict=True)
        ]
    else:
        both = [[both[0]], [both[1]]]
    if len(both[0]) != len(both[1]):
        raise UsageError(
            f"expected and retrieved must hold one list per query, but hold {len(both[0]):,} and {len(both[1]):,}",
            code="bad-ids",
        )
    if not both[0]:
        raise DataError("expected holds no query", code="bad-ids")
    ids = [one for each in both for query in each for one in query]
    if not set(map(type, ids)) <= {str, int, bytes}:  # millions of these are usual
        for one in ids:
            if one is None or isinstance(one, _COLLECTIONS) or not _is_comparable(one):
                raise DataError(f"{one!r:.60} is no id", code="bad-ids")
    are_texts = [{issubclass(kind, str) for query in each for kind in map(type, query)} for each in both]
    if all(are_texts) and are_texts[0].isdisjoint(are_texts[1]):  # 1 and "1" are different ids
        texts, others = ("expected", "retrieved") if True in are_texts[0] else ("retrieved", "expected")
        raise DataError(
            f"ids of {texts} are texts and those of {others} are not, so none can match; were numbers read as text?",
            code="bad-ids",
        )
    return both[0], both[1]


def _ids(value: object, what: str) -> list[Any]:
    try:
        return as_list(value)
    except TypeError as error:
        raise UsageError(
            f"{what} must be a list of ids, but {error}: {value!r:.60}", code="bad-ids"
        ) from error


def _is_comparable(one: object) -> bool:
    """Whether it can be looked up; NaN does not equal itself, and pandas' NA does not know."""
    try:
        return hash(one) is not None and bool(one == one)
    except (TypeError, ValueError):
        return False


def _check_grades(
    expected: Sequence[Sequence[Id]], relevance: Mapping[Id, float] | Sequence[Mapping[Id, float]]
) -> list[list[float]]:
    """The grade of each expected id, from one mapping or one per query."""
    tables = [relevance] if isinstance(relevance, Mapping) else relevance
    is_right = isinstance(tables, Sequence) and all(isinstance(table, Mapping) for table in tables)
    if not is_right or len(tables) != len(expected):
        raise DataError("relevance must hold one mapping from ids to grades per query", code="bad-relevance")
    for at, (ids, table) in enumerate(zip(expected, tables, strict=True)):
        if other := set(ids) ^ set(table):
            raise DataError(
                f"relevance of query {at} must grade each expected id and no other; one of either is {other.pop()!r:.60}",
                code="bad-relevance",
            )
        if wrong := [grade for grade in table.values() if not is_number(grade)]:
            raise DataError(
                f"grades of query {at} must be numbers, not {wrong[0]!r:.60}", code="bad-relevance"
            )
    return [[float(table[one]) for one in ids] for ids, table in zip(expected, tables, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class RetrievalMetrics(QueryMetrics):
    """Metrics of lists, each a `QueryMetric` under its name.

    `hit_rate`, `granular_hit_rate`, `mrr`, `granular_mrr`, `precision`, `recall`, `r_precision`, `map`, `ndcg`.

    Attributes:
        k: Where lists were cut; None where they count in full.
        n_empty: Queries with something expected for which nothing was retrieved: precision is not defined for them, unless
            lists are cut, and every other metric is 0.
        n_duplicates: TiedRanks that hold an id that was in an earlier place of the same list already.
    """

    k: int | None
    n_empty: int
    n_duplicates: int

    def _head(self) -> str:
        notes = [
            super(RetrievalMetrics, self)._head(),
            "whole lists" if self.k is None else f"lists cut at {self.k}",
            *([f"empty lists: {self.n_empty:,}"] if self.n_empty else []),
            *([f"repeated ids: {self.n_duplicates:,}"] if self.n_duplicates else []),
        ]
        return ", ".join(notes)


def retrieval_metrics(
    expected: Ids | Sequence[Ids],
    retrieved: Ids | Sequence[Ids],
    *,
    k: int | None = None,
    relevance: Mapping[Id, float] | Sequence[Mapping[Id, float]] | None = None,
    gain: Gain = "linear",
    pool: int | Sequence[int] | None = None,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> RetrievalMetrics:
    """Metrics of lists of retrieved ids, of one query or averaged over many.

    With R expected ids and a list of L positions (L = k where lists are cut, also for shorter ones):
    `hit_rate` is 1 where any expected id is found; `granular_hit_rate` and `recall` are the share of the R that are found;
    `mrr` is 1 / place of the first one; `granular_mrr` the mean of 1 / place over those that are found; `precision` is
    found / L; `r_precision` the share found among the first R positions; `map` the mean of the average precisions, each the sum of the
    precisions at the positions of those found, over R; `ndcg` the sum of gain / log2(1 + place), over that of the
    best list with min(L, R) positions.

    An id that a list repeats counts once, at its first place. Later ones keep their positions, since who reads the list
    reads them too: were they taken out, repeating would cost nothing.

    Args:
        expected: Ids that should be found; a list, or a list per query. Where none are, no metric is defined: the query is
            counted in `n_undefined` and in no mean.
        retrieved: Ids that were found, best first; a list, or a list per query.
        k: Where lists are cut; None takes them in full.
        relevance: A positive grade of each expected id, for NDCG: a mapping, or one per query. None if all are 1.
        gain: What a grade is worth: "linear", g, or "exponential", 2^g - 1.
        pool: How many ids there were to find, for the chance level: what a list drawn at random scores.
        groups: Of each query, for intervals: queries of one group are drawn together. None if each is drawn alone.
        seed: Of the halves for intervals.

    Returns:
        Metrics with their intervals, and chance levels where the pool is known, by name.

    Raises:
        UsageError: An option is impossible, or expected and retrieved do not fit.
        DataError: Ids, grades or pools are malformed or do not fit.

    Example:
        >>> found = retrieval_metrics([1, 2, 3], [1, 3, 4], pool=100)
        >>> found["hit_rate"].value, found["mrr"].value, found["granular_mrr"].value
        (1.0, 1.0, 0.75)
        >>> round(found["map"].value, 4), round(found["ndcg"].value, 5), round(found["precision"].chance, 9)
        (0.6667, 0.76536, 0.03)
    """
    check_gain(gain)
    check_count(seed, "seed", least=0, most=MOST)
    cut = None if k is None else check_ks(k)[0]
    expected_ids, found_ids = _check_queries(expected, retrieved)
    expected_ids = [list(dict.fromkeys(ids)) for ids in expected_ids]
    grades = None if relevance is None else _check_grades(expected_ids, relevance)
    found_ids = found_ids if cut is None else [ids[:cut] for ids in found_ids]
    relevant_items = _relevant_items(expected_ids, grades, gain)
    length = np.array([len(ids) if cut is None else cut for ids in found_ids], dtype=np.int64)
    sizes = None if pool is None else _pools(pool, expected_ids, found_ids, cut)
    chance = None
    if sizes is not None:
        chance = list_values(TiedRanks.at_random(relevant_items, sizes), relevant_items, length, sizes)
    values = list_values(_places(expected_ids, found_ids, relevant_items), relevant_items, length)
    return RetrievalMetrics(
        metrics=query_metrics(values, chance, groups=groups, seed=seed),
        n_queries=len(expected_ids),
        n_undefined=int((relevant_items.count == 0).sum()),
        pool=None if sizes is None else (int(sizes.min()), int(sizes.max())),
        k=cut,
        n_empty=sum(bool(ids) and not found for ids, found in zip(expected_ids, found_ids, strict=True)),
        n_duplicates=sum(len(ids) - len(set(ids)) for ids in found_ids),
    )


def _relevant_items(
    ids: Sequence[Sequence[Id]], grades: Sequence[Sequence[float]] | None, gain: Gain
) -> RelevantItems:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in ids])]).astype(np.int64)
    if grades is None:
        return RelevantItems(offsets, np.ones(offsets[-1]))
    flat = np.array([grade for each in grades for grade in each], dtype=np.float64)
    return RelevantItems(offsets, gains_of(flat, gain))


def _places(
    expected: Sequence[Sequence[Id]], retrieved: Sequence[Sequence[Id]], relevant_items: RelevantItems
) -> TiedRanks:
    """Where expected ids are found first."""
    query, above, item = [], [], []
    for at, (ours, theirs) in enumerate(zip(expected, retrieved, strict=True)):
        first = dict(zip(reversed(theirs), range(len(theirs) - 1, -1, -1), strict=True))
        for number, one in enumerate(ours, int(relevant_items.offsets[at])):
            if one in first:
                query.append(at)
                above.append(first[one])
                item.append(number)
    ranks = np.array(above, dtype=np.int64)
    gains = relevant_items.gains[np.array(item, dtype=np.int64)]
    return TiedRanks.of(np.array(query, dtype=np.int64), ranks, np.ones_like(ranks), gains)


def _pools(
    pool: int | Sequence[int],
    expected: Sequence[Sequence[Id]],
    retrieved: Sequence[Sequence[Id]],
    cut: int | None,
) -> Counts:
    """Candidates of each query, (q,)."""
    try:
        sizes = as_list(pool)
    except TypeError:
        sizes = [pool] * len(expected)
    if len(sizes) != len(expected):
        raise UsageError(
            f"pool must be one number, or one per query: {len(expected):,} are needed, {len(sizes):,} came",
            code="bad-pool",
        )
    for at, (size, ours, theirs) in enumerate(zip(sizes, expected, retrieved, strict=True)):
        if check_count(size, "pool", least=1, most=MOST) < (named := len({*ours, *theirs})):
            raise DataError(
                f"the pool of query {at} has {size} candidates, but {named} different ids are expected or retrieved",
                code="pool-too-small",
            )
    counts = np.array(sizes, dtype=np.int64)
    if cut is not None:
        check_ks(cut, most=int(counts.min()))
    return counts


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
    rows = _check_scores(scores, low, high)
    of_queries = np.array([_of_query(row, how, threshold) for row in rows])
    if threshold is not None:
        low, high = 0.0, 1.0
    # The interval is that of shares of the scale.
    values = {"plain": of_queries, "share": (of_queries - low) / (high - low)}
    found = query_metrics(values, None, groups=groups, seed=seed)
    interval = found["share"].interval
    if interval is not None:
        interval = Interval(low + (high - low) * interval.low, low + (high - low) * interval.high)
    metric = replace(found["plain"], interval=interval)
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


def _check_scores(scores: Sequence[Iterable[float]], low: float, high: float) -> list[list[float]]:
    """The scores of each query as numbers."""
    try:
        rows = [as_list(row) for row in as_list(scores)]
    except TypeError as error:
        raise DataError(f"scores must be a list per query, but {error}", code="bad-scores") from error
    if not rows:
        raise DataError("scores hold no query", code="bad-scores")
    for at, row in enumerate(rows):
        for one in row:
            if not is_number(one) or not low <= float(one) <= high:
                raise DataError(
                    f"scores must be numbers from {low} to {high}, but query {at} has {one!r:.60}; give the judge's own `scale`",
                    code="bad-scores",
                )
    return [list(map(float, row)) for row in rows]


def _of_query(row: Sequence[float], how: How, threshold: float | None) -> float:
    if not row:
        return math.nan
    scores = row if threshold is None else [float(one >= threshold) for one in row]
    return max(scores) if how == "max" else math.fsum(scores) / len(scores)
