"""Pools of what is relevant to a query and of distractors from other units than its own.

A unit is what belongs together, such as the paraphrases of one prompt with all of its images: none of it may stand
against the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from genpr.errors import UsageError
from genpr.metrics.retrieval.pools import different_draws

Counts = NDArray[np.int64]


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
