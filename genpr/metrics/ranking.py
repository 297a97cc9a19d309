"""Rankings of candidates by score: does each query rank what is relevant to it before the rest?

A query ranks all candidates, or a pool of relevant ones and drawn distractors.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.metrics.given import MOST, as_list, check_choice, is_number
from genpr.metrics.ranking_values import (
    Counts,
    Numbers,
    QueryMetrics,
    RelevantItems,
    TiedRanks,
    pool_values,
    query_metrics,
)
from genpr.metrics.real_manifold import PairProgress
from genpr.metrics.similarity import Similarity, count_tied_ranks, scorer_of
from genpr.validation import Features, check_count

Gain: TypeAlias = Literal["linear", "exponential"]
Relevant: TypeAlias = NDArray[Any] | Tensor | Sequence[int] | Sequence[Iterable[int]]
"""One candidate per query, or several, as indices from 0."""

Grades: TypeAlias = NDArray[Any] | Tensor | Sequence[float] | Sequence[Iterable[float]]
"""How relevant each is, in the same shape."""


def check_ks(ks: object, *, most: int | None = None) -> list[int]:
    """Where rankings are cut, ascending.

    Raises:
        UsageError: Not integers of at least 1, twice the same ("bad-k"), or beyond the smallest pool ("k-beyond-pool").
    """
    try:
        listed = as_list(ks)
    except TypeError:
        listed = [ks]
    if not listed or any(
        isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= int(k) <= MOST for k in listed
    ):
        raise UsageError(f"a ranking is cut at an integer of at least 1, not at {ks!r:.60}", code="bad-k")
    cuts = sorted(int(k) for k in listed)
    if any(a == b for a, b in pairwise(cuts)):
        raise UsageError(f"ks names a cut twice: {cuts}", code="bad-k")
    if most is not None and cuts[-1] > most:
        raise UsageError(
            f"k = {cuts[-1]} is beyond the smallest pool, of {most} candidates, where every ranking finds everything; "
            "choose smaller ks or larger pools",
            code="k-beyond-pool",
        )
    return cuts


def check_gain(gain: object) -> None:
    """Refuse anything but "linear" and "exponential".

    Raises:
        UsageError: "bad-gain".
    """
    check_choice(gain, "gain", {"linear": "g", "exponential": "2^g - 1"})


def gains_of(grades: Numbers, gain: Gain) -> Numbers:
    """What grades (p,) are worth in DCG.

    Raises:
        DataError: A grade is not positive and finite, or worth more than can be computed with ("bad-relevance").
    """
    with np.errstate(over="ignore"):
        gains = grades if gain == "linear" else np.exp2(grades) - 1
    bad = ~((grades > 0) & np.isfinite(gains) & (gains < 1e300) & (gains > 1e-300))
    if bad.any():
        raise DataError(
            f"relevance of what is relevant must be positive and finite, but {bad.sum():,} of {len(grades):,} are not; the "
            f"first is {grades[bad][0]}. Leave out what is not relevant",
            code="bad-relevance",
        )
    return gains


def check_relevant(
    relevant: Relevant, relevance: Grades | None, *, gain: Gain, candidates: int, n: int | None = None
) -> tuple[RelevantItems, Counts]:
    """What is relevant to each query, and the candidate (p,) that each of its items is.

    Args:
        relevant: As users give it.
        relevance: Grades in the same shape; None if all are of grade 1.
        gain: What grades are worth.
        candidates: Candidates that there are.
        n: Queries; None for as many as there are entries.

    Raises:
        DataError: Not one entry per query, not indices of candidates, one twice for a query ("bad-relevant"), or grades
            that do not fit ("bad-relevance").
    """
    check_gain(gain)
    rows = _rows(relevant, "relevant")
    if not rows or (n is not None and len(rows) != n):
        raise DataError(
            f"relevant must hold one entry per query, but holds {len(rows):,} for {n or 'no'} queries",
            code="bad-relevant",
        )
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = [index for row in rows for index in row]
    for index in flat:
        if isinstance(index, bool) or not isinstance(index, Integral) or not 0 <= int(index) < candidates:
            raise DataError(
                f"relevant must hold indices of candidates, from 0 to {candidates - 1}, but one is {index!r:.60}",
                code="bad-relevant",
            )
    if twice := [at for at, row in enumerate(rows) if len(set(row)) < len(row)]:
        raise DataError(
            f"relevant names a candidate twice for query {twice[0]} (counted from 0)", code="bad-relevant"
        )
    gains = np.ones(len(flat))
    if relevance is not None:
        grades = _rows(relevance, "relevance")
        if [len(row) for row in grades] != [len(row) for row in rows]:
            raise DataError(
                "relevance must hold a grade for each of relevant, in its shape", code="bad-relevance"
            )
        gains = gains_of(_grades([grade for row in grades for grade in row]), gain)
    return RelevantItems(offsets, gains), np.array(flat, dtype=np.int64)


def _rows(given: Relevant | Grades, name: str) -> list[Sequence[Any]]:
    """One list per query; a number alone stands for a list of one."""
    try:
        return [[row] if isinstance(row, Real) else as_list(row) for row in as_list(given)]
    except TypeError as error:
        raise DataError(
            f"{name} must be one number per query, or a list of them per query: {error}", code=f"bad-{name}"
        ) from error


def _grades(flat: Sequence[Any]) -> Numbers:
    for grade in flat:
        if not is_number(grade) or math.isnan(grade):
            raise DataError(f"relevance must hold numbers, but one is {grade!r:.60}", code="bad-relevance")
    return np.array(flat, dtype=np.float64)


def distractor_pools(
    relevant: Relevant, n_candidates: int, *, distractors: int = 99, seed: int = 0
) -> Counts:
    """Draw a pool for each query: what is relevant to it and distractors, each as likely as any other.

    Args:
        relevant: (q,), or a list per query, as `ranking_metrics` takes it.
        n_candidates: Candidates that there are.
        distractors: Drawn without replacement among what is not relevant to the query.
        seed: What is drawn depends on the seed, the query's place, and the numbers of candidates and distractors.

    Returns:
        (q, p) int64, what is relevant first; -1 fills the rows of queries to which less is relevant than to others.

    Raises:
        UsageError: There are not as many candidates as that, or an option is impossible.
        DataError: `relevant` is malformed.

    Example:
        >>> sorted(distractor_pools([3, 0], 5, distractors=4)[0].tolist())
        [0, 1, 2, 3, 4]
    """
    check_count(distractors, "distractors", least=1)
    check_count(seed, "seed", least=0, most=MOST)
    check_count(n_candidates, "n_candidates", least=2, most=MOST)
    relevant_items, index = check_relevant(relevant, None, gain="linear", candidates=n_candidates)
    count = relevant_items.count
    most = int(count.max(initial=0))
    if most + distractors > n_candidates:
        raise UsageError(
            f"{distractors} distractors cannot be drawn: of {n_candidates} candidates up to {most} are relevant to a query; "
            "ask for fewer, or give more candidates",
            code="too-few-candidates",
        )
    pools = np.full((len(count), most + distractors), -1, dtype=np.int64)
    pools[relevant_items.query, np.arange(len(index)) - relevant_items.offsets[relevant_items.query]] = index
    drawn = different_draws(n_candidates - count, distractors, seed, n_candidates)
    for own, chosen, pool in zip(np.split(index, relevant_items.offsets[1:-1]), drawn, pools, strict=True):
        # The i-th of the candidates that are not relevant: each relevant one before it moves it on by one.
        for taken in np.sort(own):
            chosen += chosen >= taken
        pool[len(own) : len(own) + distractors] = chosen
    return pools


def different_draws(among: Counts, count: int, seed: int, n_candidates: int) -> Counts:
    """`count` different numbers from 0 to `among` (q,) - 1 for each query, (q, count) (Bentley and Floyd 1987)."""
    # Streams of a bit generator never change between versions of NumPy; what is drawn by choice() may.
    raw = np.random.PCG64(np.random.SeedSequence([seed, n_candidates])).random_raw(len(among) * count)
    share = (raw.reshape(len(among), count) >> np.uint64(11)) * 2.0**-53
    drawn = np.empty((len(among), count), dtype=np.int64)
    for turn in range(count):
        last = among - count + turn
        chosen = np.minimum((share[:, turn] * (last + 1)).astype(np.int64), last)
        is_new = (drawn[:, :turn] != chosen[:, None]).all(axis=1)
        drawn[:, turn] = np.where(is_new, chosen, last)
    return drawn


def most_distractors(query_unit: Counts, candidate_unit: Counts) -> int:
    """How many candidates are of another unit, for the query that has fewest of them."""
    size = np.bincount(candidate_unit, minlength=int(max(query_unit.max(), candidate_unit.max())) + 1)
    return int(len(candidate_unit) - size[query_unit].max())


def unit_pools(
    relevant: Sequence[Sequence[int]],
    query_unit: Counts,
    candidate_unit: Counts,
    *,
    distractors: int,
    seed: int,
) -> Counts:
    """Draw a pool for each query: what is relevant to it and distractors of other units, each as likely as any other.

    Args:
        relevant: Candidates that are relevant to each of q queries; of its own unit.
        query_unit: (q,) int64, the unit of each query.
        candidate_unit: (c,) int64, the unit of each candidate.
        distractors: Drawn for each query without replacement; at most `most_distractors`.
        seed: What is drawn depends on it, on the order of queries and candidates, and on the units.

    Returns:
        (q, p) int64, what is relevant first; -1 fills the rows of queries to which less is relevant than to others.

    Raises:
        UsageError: So many distractors cannot be drawn ("too-few-candidates").

    Example:
        >>> units = np.array([0, 0, 1, 2])
        >>> sorted(unit_pools([[1]], units[1:2], units, distractors=2, seed=0)[0].tolist())
        [1, 2, 3]
    """
    if not 1 <= distractors <= most_distractors(query_unit, candidate_unit):
        raise UsageError(
            f"{distractors} distractors cannot be drawn for each query: some have but "
            f"{most_distractors(query_unit, candidate_unit)} candidates that are not their own",
            code="too-few-candidates",
        )
    order = np.argsort(candidate_unit, kind="stable")
    first = np.searchsorted(candidate_unit[order], query_unit)
    own = np.searchsorted(candidate_unit[order], query_unit, side="right") - first
    drawn = different_draws(len(order) - own, distractors, seed, len(order))
    # The i-th candidate of another unit: those of its own unit lie side by side in this order, and are jumped over.
    others = order[drawn + np.where(drawn >= first[:, None], own[:, None], 0)]
    most = max(map(len, relevant))
    pools = np.full((len(others), most + distractors), -1, dtype=np.int64)
    pools[:, most:] = others
    for pool, row in zip(pools, relevant, strict=True):
        pool[: len(row)] = row
    return pools


Ties: TypeAlias = Literal["expected", "pessimistic"]


@dataclass(frozen=True, slots=True, eq=False)
class RankingMetrics(QueryMetrics):
    """Metrics of rankings of whole pools, each a `QueryMetric` under its name.

    `r_precision`, `mrr`, `ndcg`, `map`, and `hit_k`, `precision_k`, `recall_k`, `ndcg_k` for every k of `ks`.

    Attributes:
        ties: What became of equal scores.
    """

    ties: Ties

    def _head(self) -> str:
        how = "in any order, on average" if self.ties == "expected" else "what is relevant last"
        return f"{super(RankingMetrics, self)._head()}, equal scores: {how}"


class ComparisonKeywords(TypedDict, total=False):
    """How features of queries and candidates are compared: keyword arguments of `ranking_metrics`, which describes them."""

    similarity: Similarity
    device: str | torch.device
    block_bytes: int | None


def ranking_metrics(
    scores: Features | tuple[Features, Features],
    relevant: Relevant,
    *,
    ks: Sequence[int] = (1, 5, 10),
    relevance: Grades | None = None,
    gain: Gain = "linear",
    pools: NDArray[Any] | Tensor | None = None,
    ties: Ties = "expected",
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    progress: PairProgress | None = None,
    **comparison: Unpack[ComparisonKeywords],
) -> RankingMetrics:
    """Metrics of rankings by score, over whole pools of candidates.

    Higher scores come first. Equal scores have no order: each metric is its mean over all orders of them, so that a
    constant score gets exactly what guessing gets. The chance level is that.

    Args:
        scores: (q, c), of every query for every candidate, of any real type; compared as they are, infinite ones too.
            Or features of queries (q, d) and of candidates (c, d), as a pair: never more than a block of their
            (q, c) similarities is held. Those are float64, in one order of summation, of features cast to float32: the
            same on every device and for every size of block.
        relevant: The candidate that is relevant to each query, (q,), or a list of them per query; empty where nothing is, which
            leaves the query out and is counted.
        ks: Where rankings are cut for `hit_k` and others; none beyond the smallest pool.
        relevance: Positive grades in the shape of `relevant`, for NDCG; None if all are 1.
        gain: What a grade is worth: "linear", g, or "exponential", 2^g - 1.
        pools: (q, p) candidates that each query ranks, -1 where it has fewer than p; what is relevant among them. None
            for all. See `distractor_pools`.
        ties: "expected", or "pessimistic", which puts what is relevant after all of equal score.
        groups: Of each query (q,), for intervals: queries of one group, such as images of one prompt, are drawn together.
            None if each is drawn alone.
        seed: Of the halves for intervals.
        progress: Called with the pairs that are done and their number.
        **comparison: Of features. `similarity`: "cosine" (default) or "inner" (product). `device`: where they are compared;
            "auto" (default) is where the tensors are if that is a GPU, else the best device here. `block_bytes`: most that
            a block of similarities takes; None (default) for a small share of what is free. No number depends on it.

    Returns:
        Metrics with their intervals and chance levels, by name.

    Raises:
        UsageError: An option is impossible, or a cut beyond the smallest pool.
        DataError: Scores, features, pools or what is relevant are malformed or do not belong together.

    Example:
        >>> import numpy as np
        >>> scores = np.array([[0.9, 0.2, 0.4], [0.5, 0.5, 0.1]])
        >>> found = ranking_metrics(scores, [0, 1], ks=[1, 2])
        >>> found["hit_1"].value, found["hit_2"].value, found["mrr"].value
        (0.75, 1.0, 0.875)
        >>> round(found["hit_1"].chance, 4), found.pool
        (0.3333, (3, 3))
    """
    check_choice(
        ties, "ties", {"expected": "the mean over all orders", "pessimistic": "what is relevant last"}
    )
    check_count(seed, "seed", least=0, most=MOST)
    scorer = scorer_of(scores, pools, **comparison)
    cuts = check_ks(ks, most=int(scorer.pool.min()))
    relevant_items, index = check_relevant(
        relevant, relevance, gain=gain, n=scorer.n_queries, candidates=scorer.n_candidates
    )
    above, tied = count_tied_ranks(scorer, relevant_items.query, index, progress)
    ranks = TiedRanks.of(relevant_items.query, above, tied, relevant_items.gains)
    ranks = ranks.pessimistic() if ties == "pessimistic" else ranks
    values = pool_values(ranks, relevant_items, scorer.pool, cuts)
    chance = pool_values(TiedRanks.at_random(relevant_items, scorer.pool), relevant_items, scorer.pool, cuts)
    return RankingMetrics(
        metrics=query_metrics(values, chance, groups=groups, seed=seed),
        n_queries=scorer.n_queries,
        n_undefined=int((relevant_items.count == 0).sum()),
        pool=(int(scorer.pool.min()), int(scorer.pool.max())),
        ties=ties,
    )
