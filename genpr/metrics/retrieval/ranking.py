"""Rankings of candidates by score: does each query put what is relevant to it before the rest?"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.given import MOST, check_choice
from genpr.metrics.progress import PairProgress
from genpr.metrics.retrieval.counted_places import counted_places
from genpr.metrics.retrieval.places import Places
from genpr.metrics.retrieval.query_means import QueryMetrics, query_metrics
from genpr.metrics.retrieval.ranked_values import pool_values
from genpr.metrics.retrieval.relevant import Gain, Grades, Relevant, check_ks, wanted_of
from genpr.metrics.retrieval.scorers import scorer_of
from genpr.metrics.retrieval.similarities import Similarity
from genpr.validation import Features, check_count

Ties: TypeAlias = Literal["expected", "pessimistic"]


@dataclass(frozen=True, slots=True, eq=False)
class RankingMetrics(QueryMetrics):
    """Metrics of rankings of whole pools, each a `QueryMetric` under its name.

    `r_precision`, `mrr`, `ndcg`, `map`, and `hit_k`, `precision_k`, `recall_k`, `ndcg_k` for every k asked for.

    Attributes:
        ties: What became of equal scores.
    """

    ties: Ties

    def _head(self) -> str:
        how = "in any order, on average" if self.ties == "expected" else "what is relevant last"
        return f"{super(RankingMetrics, self)._head()}, equal scores: {how}"


def ranking_metrics(
    scores: Features | tuple[Features, Features],
    relevant: Relevant,
    *,
    ks: Sequence[int] = (1, 5, 10),
    relevance: Grades | None = None,
    gain: Gain = "linear",
    pools: NDArray[Any] | Tensor | None = None,
    ties: Ties = "expected",
    similarity: Similarity = "cosine",
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    block_bytes: int | None = None,
    progress: PairProgress | None = None,
) -> RankingMetrics:
    """Metrics of rankings by score, over whole pools of candidates.

    Higher scores come first. Equal scores have no order: each metric is its mean over all orders of them, so that a
    constant score gets exactly what guessing gets. The chance level, which is always told, is that.

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
        similarity: Of features: "cosine" or "inner" (product).
        groups: Of each query (q,), for intervals: queries of one group, such as images of one prompt, are drawn together.
            None if each is drawn alone.
        seed: Of the halves for intervals.
        device: Where features are compared: "auto" is where the tensors are if that is a GPU, else the best device here.
        block_bytes: Most that a block of similarities takes; None for a small share of what is free. No number depends
            on it.
        progress: Called with the pairs that are done with and their number.

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
    scorer = scorer_of(scores, pools, similarity=similarity, device=device, block_bytes=block_bytes)
    cuts = check_ks(ks, most=int(scorer.pool.min()))
    wanted, index = wanted_of(
        relevant, relevance, gain=gain, n=scorer.n_queries, candidates=scorer.n_candidates
    )
    above, tied = counted_places(scorer, wanted.query, index, progress)
    places = Places.of(wanted.query, above, tied, wanted.gains)
    places = places.at_worst() if ties == "pessimistic" else places
    values = pool_values(places, wanted, scorer.pool, cuts)
    chance = pool_values(Places.by_chance(wanted, scorer.pool), wanted, scorer.pool, cuts)
    return RankingMetrics(
        metrics=query_metrics(values, chance, groups=groups, seed=seed),
        n_queries=scorer.n_queries,
        n_undefined=int((wanted.count == 0).sum()),
        pool=(int(scorer.pool.min()), int(scorer.pool.max())),
        ties=ties,
    )
