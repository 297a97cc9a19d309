"""Metrics of rankings by score and of lists of retrieved ids, and pools of candidates."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.metrics.blocks import check_no_zero_rows
from genpr.metrics.ranking_values import (
    Counts,
    Numbers,
    QueryMetrics,
    RelevantItems,
    TiedRanks,
    list_values,
    pool_values,
    query_metrics,
)
from genpr.metrics.real_manifold import PairProgress
from genpr.metrics.similarity import FeaturePairs, RankCounter, ScoreMatrix, Scorer
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
Grades: TypeAlias = NDArray[Any] | Tensor | Sequence[float] | Sequence[Iterable[float]]
Id: TypeAlias = Hashable
Ids: TypeAlias = Collection[Id] | NDArray[np.generic] | Tensor

MAX_COUNT = 10**15  # more candidates, places or seeds than that are a mistake

_COLLECTIONS = (list, tuple, AbstractSet, np.ndarray, Tensor)
_NOT_COMPARED = (torch.bool, torch.uint16, torch.uint32, torch.uint64)


@entry_point
def ranking_metrics(
    scores: Features | tuple[Features, Features],
    relevant: Relevant,
    *,
    ks: Sequence[int] = (1, 5, 10),
    relevance: Grades | None = None,
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
        relevance: Positive grades in the shape of `relevant`, for NDCG; None if all are 1. A grade is its gain: pass 2^g - 1
            for the exponential one.
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
    check_count(seed, "seed", minimum=0, maximum=MAX_COUNT)
    scorer = _scorer(scores, device, block_bytes)
    n, candidates = scorer.shape
    checked = None if pools is None else _check_pools(pools, n, candidates)
    pool: Counts = np.full(n, candidates) if checked is None else (checked >= 0).sum(dim=1).numpy()
    cuts = sorted(
        check_count(k, "k, within the smallest pool,", minimum=1, maximum=int(pool.min()))
        for k in _as_list(ks, "ks")
    )
    if not cuts or len(set(cuts)) < len(cuts):
        raise UsageError(f"ks must be different integers of at least 1, not {ks!r:.60}", code="bad-option")
    items, index = _check_relevant(relevant, relevance, candidates, n)
    counter = RankCounter(scorer, items.query, index)
    if checked is None:
        counter.count_all(progress)
    else:
        counter.count_pools(checked, progress, block_bytes)
    ranks = TiedRanks.from_candidates(
        items.query, counter.above.cpu().numpy(), counter.tied.cpu().numpy(), items.gains
    )
    chance = pool_values(TiedRanks.at_random(items, pool), items, pool, cuts)
    values = pool_values(ranks, items, pool, cuts)
    return query_metrics(values, chance, pool=pool, groups=groups, seed=seed)


@entry_point
def retrieval_metrics(
    expected: Ids | Sequence[Ids],
    retrieved: Ids | Sequence[Ids],
    *,
    k: int | None = None,
    relevance: Mapping[Id, float] | Sequence[Mapping[Id, float]] | None = None,
    pool: int | None = None,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> QueryMetrics:
    """Metrics of lists of retrieved ids, of one query or averaged over many.

    With R expected ids and a list of L positions (L = k where lists are cut, also for shorter ones):
    `hit_rate` is 1 where any expected id is found; `granular_hit_rate` and `recall` are the share of the R that are found;
    `mrr` is 1 / place of the first one; `granular_mrr` the mean of 1 / place over those that are found; `precision` is
    found / L; `r_precision` the share found among the first R positions; `map` the sum of the precisions at the positions of those
    found, over R; `ndcg` the sum of gain / log2(1 + place), over that of the best list with min(L, R) positions. An id that a list
    repeats counts once, at its first place; later ones keep their positions.

    Args:
        expected: Expected ids, texts or numbers; a list, or a list per query. Without expected ids no metric is defined: the
            query is counted in `n_undefined` and in no mean.
        retrieved: Retrieved ids, best first; a list, or a list per query.
        k: Cutoff of lists; None uses them in full.
        relevance: A positive grade of each expected id, for NDCG: a mapping, or one per query. None if all are 1.
        pool: Number of ids in the searched collection, for the chance level of a random list.
        groups: Group of each query: for intervals, queries of one group are drawn together. None if each is drawn alone.
        seed: Of the halves for intervals.

    Returns:
        Metrics with their intervals, and chance levels where the pool is known, by name.

    Raises:
        UsageError: An option is impossible, or expected and retrieved do not fit.
        DataError: Ids, grades or pools are malformed or do not fit.

    Example:
        >>> metrics = retrieval_metrics([1, 2, 3], [1, 3, 4], pool=100)
        >>> metrics["hit_rate"].value, metrics["mrr"].value, metrics["granular_mrr"].value
        (1.0, 1.0, 0.75)
        >>> round(metrics["map"].value, 4), round(metrics["ndcg"].value, 5), round(metrics["precision"].chance, 9)
        (0.6667, 0.76536, 0.03)
    """
    check_count(seed, "seed", minimum=0, maximum=MAX_COUNT)
    cut = None if k is None else check_count(k, "k", minimum=1, maximum=MAX_COUNT)
    expected_ids, found_ids = _check_ids(expected, retrieved)
    grades = _check_grades(expected_ids, relevance)
    found_ids = [ids[:cut] for ids in found_ids]
    items = RelevantItems.from_counts(list(map(len, expected_ids)), _check_gains(grades))
    length = np.array([len(ids) if cut is None else cut for ids in found_ids], dtype=np.int64)
    sizes = None if pool is None else _pool_sizes(pool, expected_ids, found_ids, cut)
    chance = None if sizes is None else list_values(TiedRanks.at_random(items, sizes), items, length, sizes)
    values = list_values(_places(expected_ids, found_ids, items), items, length)
    return query_metrics(values, chance, pool=sizes, groups=groups, seed=seed)


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


def is_number(value: object) -> bool:
    """Whether it is a number and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_gains(grades: Numbers) -> Numbers:
    """Grades (p,), the gains of items in DCG."""
    if not ((grades > 1e-300) & (grades < 1e300)).all():
        raise DataError("relevance grades must be positive and finite", code="bad-relevance")
    return grades


def _rows(given: object, name: str, kinds: str) -> tuple[list[int], NDArray[Any]]:
    """Lengths of a list per query, and all numbers of these; a number alone stands for a list of one."""
    rows = [[row] if isinstance(row, Real) else _as_list(row, name) for row in _as_list(given, name)]
    try:
        flat = np.asarray(list(chain(*rows)))
    except ValueError:  # lists within lists
        flat = np.zeros((1, 1))
    if flat.size and (flat.ndim != 1 or flat.dtype.kind not in kinds):
        raise DataError(f"{name} must hold numbers, or lists of them per query", code=f"bad-{name}")
    return list(map(len, rows)), flat


def _check_relevant(
    relevant: Relevant, relevance: Grades | None, candidates: int, n: int
) -> tuple[RelevantItems, Counts]:
    """Relevant items of each of n queries, and the candidate (p,) of each item."""
    counts, index = _rows(relevant, "relevant", "iu")
    index = index.astype(np.int64)
    different = np.unique(np.repeat(np.arange(len(counts)), counts) * candidates + index)
    if len(counts) != n or len(different) < len(index) or not ((index >= 0) & (index < candidates)).all():
        text = f"relevant must hold for each of {n:,} queries a candidate from 0 to {candidates - 1}, or different ones"
        raise DataError(text, code="bad-relevant")
    of_queries, grades = counts, np.ones(len(index))
    if relevance is not None:
        of_queries, grades = _rows(relevance, "relevance", "iuf")
    if of_queries != counts:
        raise DataError("relevance must have the shape of relevant", code="bad-relevance")
    return RelevantItems.from_counts(counts, _check_gains(grades.astype(np.float64))), index


def _scorer(scores: object, device: str | torch.device, block_bytes: int | None) -> Scorer:
    if not isinstance(scores, tuple):
        return ScoreMatrix(_check_scores(scores), _check_bytes(block_bytes))
    if len(scores) != 2:
        raise UsageError("a tuple of scores is the features of queries and of candidates", code="bad-scores")
    return feature_pairs(scores, ("queries", "candidates"), device, block_bytes)


def feature_pairs(
    both: tuple[Features, Features],
    names: tuple[str, str],
    device: str | torch.device,
    block_bytes: int | None,
) -> FeaturePairs:
    """Checked features of two sets on one device."""
    left, right = (check_features(rows, name) for rows, name in zip(both, names, strict=True))
    check_same_width(left, right, names=names)
    where = choose_device(both[0], device)
    left, right = left.to(where), right.to(where)
    for rows, name in zip((left, right), names, strict=True):
        check_rows(rows, name, k=0)
        check_no_zero_rows(rows, name)
    return FeaturePairs(left, right, _check_bytes(block_bytes))


def _check_bytes(block_bytes: int | None) -> int | None:
    return None if block_bytes is None else check_count(block_bytes, "block_bytes", minimum=1)


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
        query, candidate = scores.isnan().nonzero()[0].tolist()
        text = f"the score of query {query} for candidate {candidate} is NaN (counted from 0)"
        raise DataError(text, code="nan-scores")
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


def _check_ids(expected: object, retrieved: object) -> tuple[list[list[Id]], list[list[Id]]]:
    """Different expected ids, and retrieved ones, a list per query."""
    both = [_as_list(expected, "expected"), _as_list(retrieved, "retrieved")]
    if any(isinstance(each, AbstractSet) for each in (retrieved, *both[1])):
        raise UsageError("retrieved holds a set, which has no order; give a list, best first", code="bad-ids")
    is_nested = any(isinstance(one, _COLLECTIONS) for one in both[0] or both[1])
    both = [[_as_list(ids, "ids of a query") for ids in side] if is_nested else [side] for side in both]
    if len(both[0]) != len(both[1]) or not both[0]:
        text = f"expected and retrieved must hold one list per query, but hold {len(both[0]):,} and {len(both[1]):,}"
        raise UsageError(text, code="bad-ids")
    try:
        ours = [list(dict.fromkeys(ids)) for ids in both[0]]
        ids = [set(chain(*side)) for side in (ours, both[1])]
        wrong = [
            one for one in chain(*ids) if one is None or isinstance(one, tuple | frozenset) or one != one
        ]
    except TypeError as error:
        raise DataError(f"ids must be texts or numbers: {error}", code="bad-ids") from error
    if wrong:
        raise DataError(f"ids must be texts or numbers, not {wrong[0]!r:.60}", code="bad-ids")
    kinds = [{isinstance(one, str) for one in side} for side in ids]
    if all(kinds) and kinds[0].isdisjoint(kinds[1]):  # 1 and "1" are different ids
        text = "ids of one side are texts and those of the other are not, so none can match; check whether numbers were read as text"
        raise DataError(text, code="bad-ids")
    return ours, both[1]


def _check_grades(
    expected: Sequence[Sequence[Id]], relevance: Mapping[Id, float] | Sequence[Mapping[Id, float]] | None
) -> Numbers:
    """The grade of each expected id, (p,), from one mapping or one per query; 1 without."""
    if relevance is None:
        return np.ones(sum(map(len, expected)))
    tables = [relevance] if isinstance(relevance, Mapping) else _as_list(relevance, "relevance")
    fits = len(tables) == len(expected) and all(
        isinstance(table, Mapping) and set(ids) == set(table) and all(map(is_number, table.values()))
        for ids, table in zip(expected, tables, strict=True)
    )
    if not fits:
        text = "relevance must hold one mapping per query, from each of its expected ids to a number"
        raise DataError(text, code="bad-relevance")
    flat = [float(table[one]) for ids, table in zip(expected, tables, strict=True) for one in ids]
    return np.array(flat, dtype=np.float64)


def _places(
    expected: Sequence[Sequence[Id]], retrieved: Sequence[Sequence[Id]], items: RelevantItems
) -> TiedRanks:
    """First positions of expected ids."""
    entries: list[tuple[int, int, int]] = []
    for at, (ours, theirs) in enumerate(zip(expected, retrieved, strict=True)):
        first = dict(zip(reversed(theirs), range(len(theirs) - 1, -1, -1), strict=True))
        numbered = enumerate(ours, int(items.offsets[at]))
        entries += [(at, first[one], number) for number, one in numbered if one in first]
    query, above, number = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    return TiedRanks.from_candidates(query, above, np.ones_like(above), items.gains[number])


def _pool_sizes(
    pool: int,
    expected: Sequence[Sequence[Id]],
    retrieved: Sequence[Sequence[Id]],
    cut: int | None,
) -> Counts:
    """Candidates of each query, (q,)."""
    least = max(cut or 1, *(len({*ours, *theirs}) for ours, theirs in zip(expected, retrieved, strict=True)))
    check_count(pool, "pool (at least k, and all ids of each query)", minimum=least, maximum=MAX_COUNT)
    return np.full(len(expected), pool, dtype=np.int64)
