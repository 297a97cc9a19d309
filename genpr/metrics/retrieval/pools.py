"""Which candidates each query ranks, where that is not all of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.metrics.given import MOST, as_integers
from genpr.metrics.retrieval.places import Counts
from genpr.metrics.retrieval.relevant import Relevant, wanted_of
from genpr.validation import check_count


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
    wanted, index = wanted_of(relevant, None, gain="linear", candidates=n_candidates)
    count = wanted.count
    most = int(count.max(initial=0))
    if most + distractors > n_candidates:
        raise UsageError(
            f"{distractors} distractors cannot be drawn: of {n_candidates} candidates up to {most} are relevant to a query; "
            "ask for fewer, or give more candidates",
            code="too-few-candidates",
        )
    pools = np.full((len(count), most + distractors), -1, dtype=np.int64)
    pools[wanted.query, np.arange(len(index)) - wanted.offsets[wanted.query]] = index
    drawn = different_draws(n_candidates - count, distractors, seed, n_candidates)
    for own, chosen, pool in zip(np.split(index, wanted.offsets[1:-1]), drawn, pools, strict=True):
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


def check_pools(pools: object, *, n: int, candidates: int) -> Tensor:
    """Pools as (q, p) int64 on the CPU.

    Raises:
        DataError: Not such indices, a candidate twice in a pool, or a pool without any ("bad-pools").
    """
    array = as_integers(pools)
    if array is None or array.ndim != 2 or len(array) != n:
        raise _bad_pools(f"must be indices (q, p) of candidates, one row for each of {n:,} queries")
    if array.min() < -1 or array.max() >= candidates:
        raise _bad_pools(f"must hold indices from 0 to {candidates - 1}, or -1 for none, but holds others")
    ordered = np.sort(array, axis=1)
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        raise _bad_pools(f"names a candidate twice for query {int(np.argmax(twice))} (counted from 0)")
    if (ordered[:, -1] < 0).any():
        raise _bad_pools(f"is empty for query {int(np.argmax(ordered[:, -1] < 0))} (counted from 0)")
    return torch.from_numpy(array)


def _bad_pools(message: str) -> DataError:
    return DataError(f"pools {message}", code="bad-pools")
