"""Metrics of each query from the places of what is relevant to it: of a whole pool, or of a list.

References:
    Manning, Raghavan and Schütze 2008, "Introduction to Information Retrieval", chapter 8.
    Järvelin and Kekäläinen 2002, "Cumulated Gain-Based Evaluation of IR Techniques" (NDCG, linear gain).
    Burges et al. 2005, "Learning to Rank Using Gradient Descent" (NDCG, exponential gain).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from genpr.metrics.retrieval.places import Counts, Numbers, Places, Wanted

PerQuery = dict[str, Numbers]
"""Values (q,) of each metric; NaN for a query to which nothing is relevant."""


def pool_values(places: Places, wanted: Wanted, pool: Counts, ks: Sequence[int]) -> PerQuery:
    """Metrics of rankings of whole pools, by name.

    Args:
        places: Of all that is relevant.
        wanted: What is relevant.
        pool: (q,) candidates of each query.
        ks: Where rankings are cut.
    """
    r = _defined(wanted)
    values = {"r_precision": places.found(wanted.count) / r}
    for k in ks:
        cut = np.full(len(r), k)
        found = places.found(cut)
        values[f"hit_{k}"] = _where(r, places.hit(cut))
        values[f"precision_{k}"] = _where(r, found / k)
        values[f"recall_{k}"] = found / r
        values[f"ndcg_{k}"] = _ndcg(places, wanted, cut)
    values["mrr"] = _where(r, places.reciprocal(pool))
    values["ndcg"] = _ndcg(places, wanted, pool)
    values["map"] = places.precisions(pool) / r
    return _bounded(values)


def list_values(places: Places, wanted: Wanted, length: Counts, pool: Counts | None = None) -> PerQuery:
    """Metrics of lists, by name.

    Args:
        places: Of what was found, or by chance could have been.
        wanted: What was to be found.
        length: (q,) places of each list that count.
        pool: (q,) candidates, where `places` are those of chance.
    """
    r = _defined(wanted)
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
        "r_precision": places.found(np.minimum(length, wanted.count)) / r,
        "map": places.precisions(length) / r,
        "ndcg": _ndcg(places, wanted, length),
    }
    return _bounded(values)


def _granular_mrr(places: Places, length: Counts, hit: Numbers, pool: Counts | None) -> Numbers:
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


def _ndcg(places: Places, wanted: Wanted, cut: Counts) -> Numbers:
    """NDCG up to place `cut` (q,); 0 for a list without places, in which nothing was found."""
    ideal = wanted.ideal(cut)
    return _where(_defined(wanted), places.discounted_gain(cut) / np.where(ideal > 0, ideal, 1.0))


def _bounded(values: PerQuery) -> PerQuery:
    """At most 1, which means over orders may pass by a rounding."""
    return {name: np.minimum(of_queries, 1.0) for name, of_queries in values.items()}


def _defined(wanted: Wanted) -> Numbers:
    """How much is relevant to each query, (q,); NaN where nothing is."""
    return np.where(wanted.count > 0, wanted.count, np.nan)


def _where(defined: Numbers, values: Numbers) -> Numbers:
    return np.where(np.isnan(defined), np.nan, values)
