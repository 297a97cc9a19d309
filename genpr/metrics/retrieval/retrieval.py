"""Lists of retrieved ids against the ids that were expected.

References:
    Manning, Raghavan and Schütze 2008, "Introduction to Information Retrieval", chapter 8.
    LlamaIndex, `llama_index.core.evaluation.retrieval.metrics`: the granular hit rate and the granular MRR.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from genpr.errors import DataError, UsageError
from genpr.metrics.given import MOST, as_list
from genpr.metrics.retrieval.id_lists import Id, Ids, grades_of, queries_of
from genpr.metrics.retrieval.places import Counts, Places, Wanted
from genpr.metrics.retrieval.query_means import QueryMetrics, query_metrics
from genpr.metrics.retrieval.ranked_values import list_values
from genpr.metrics.retrieval.relevant import Gain, check_gain, check_ks, gains_of
from genpr.validation import check_count


@dataclass(frozen=True, slots=True, eq=False)
class RetrievalMetrics(QueryMetrics):
    """Metrics of lists, each a `QueryMetric` under its name.

    `hit_rate`, `granular_hit_rate`, `mrr`, `granular_mrr`, `precision`, `recall`, `r_precision`, `map`, `ndcg`.

    Attributes:
        k: Where lists were cut; None where they count in full.
        n_empty: Queries with something expected for which nothing was retrieved: precision is not defined for them, unless
            lists are cut, and every other metric is 0.
        n_duplicates: Places that hold an id that was in an earlier place of the same list already.
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

    With R expected ids and a list of L places (L = k where lists are cut, also for shorter ones):
    `hit_rate` is 1 where any expected id is found; `granular_hit_rate` and `recall` are the share of the R that are found;
    `mrr` is 1 / place of the first one; `granular_mrr` the mean of 1 / place over those that are found; `precision` is
    found / L; `r_precision` the share found among the first R places; `map` the mean of the average precisions, each the sum of the
    precisions at the places of those found, over R; `ndcg` the sum of gain / log2(1 + place), over that of the
    best list with min(L, R) places.

    An id that a list repeats counts once, at its first place. Later ones keep their places, since who reads the list
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
    wanted_ids, found_ids = queries_of(expected, retrieved)
    wanted_ids = [list(dict.fromkeys(ids)) for ids in wanted_ids]
    grades = None if relevance is None else grades_of(wanted_ids, relevance)
    found_ids = found_ids if cut is None else [ids[:cut] for ids in found_ids]
    wanted = _wanted(wanted_ids, grades, gain)
    length = np.array([len(ids) if cut is None else cut for ids in found_ids], dtype=np.int64)
    sizes = None if pool is None else _pools(pool, wanted_ids, found_ids, cut)
    chance = None
    if sizes is not None:
        chance = list_values(Places.by_chance(wanted, sizes), wanted, length, sizes)
    values = list_values(_places(wanted_ids, found_ids, wanted), wanted, length)
    return RetrievalMetrics(
        metrics=query_metrics(values, chance, groups=groups, seed=seed),
        n_queries=len(wanted_ids),
        n_undefined=int((wanted.count == 0).sum()),
        pool=None if sizes is None else (int(sizes.min()), int(sizes.max())),
        k=cut,
        n_empty=sum(bool(ids) and not found for ids, found in zip(wanted_ids, found_ids, strict=True)),
        n_duplicates=sum(len(ids) - len(set(ids)) for ids in found_ids),
    )


def _wanted(ids: Sequence[Sequence[Id]], grades: Sequence[Sequence[float]] | None, gain: Gain) -> Wanted:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in ids])]).astype(np.int64)
    if grades is None:
        return Wanted(offsets, np.ones(offsets[-1]))
    flat = np.array([grade for each in grades for grade in each], dtype=np.float64)
    return Wanted(offsets, gains_of(flat, gain))


def _places(expected: Sequence[Sequence[Id]], retrieved: Sequence[Sequence[Id]], wanted: Wanted) -> Places:
    """Where expected ids are found first."""
    query, above, item = [], [], []
    for at, (ours, theirs) in enumerate(zip(expected, retrieved, strict=True)):
        first = dict(zip(reversed(theirs), range(len(theirs) - 1, -1, -1), strict=True))
        for number, one in enumerate(ours, int(wanted.offsets[at])):
            if one in first:
                query.append(at)
                above.append(first[one])
                item.append(number)
    places = np.array(above, dtype=np.int64)
    gains = wanted.gains[np.array(item, dtype=np.int64)]
    return Places.of(np.array(query, dtype=np.int64), places, np.ones_like(places), gains)


def _pools(
    pool: int | Sequence[int],
    expected: Sequence[Sequence[Id]],
    retrieved: Sequence[Sequence[Id]],
    cut: int | None,
) -> Counts:
    """Candidates of each query, (q,).

    Raises:
        UsageError: Not a number for all or one per query ("bad-pool"), or less than the cut ("k-beyond-pool").
        DataError: Fewer candidates than different ids are named ("pool-too-small").
    """
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
