"""Metrics of rankings by their textbook definitions, in exact fractions, over every order of equal scores.

It shares no code with genpr: loops over ranks, one query at a time.
"""

import itertools
import math
from fractions import Fraction


def orders(scores):
    """Every ranking of candidates that puts higher scores first."""
    levels = sorted(set(scores), reverse=True)
    groups = [[i for i, score in enumerate(scores) if score == level] for level in levels]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [candidate for part in parts for candidate in part]


def of_order(order, relevant, k):
    """Every metric of one ranking. Logarithms are floats."""
    relevant, top = set(relevant), order[:k]
    n = len(relevant)
    hits = [place for place, candidate in enumerate(order, 1) if candidate in relevant]

    def dcg(candidates):
        return math.fsum((c in relevant) / math.log2(place + 1) for place, c in enumerate(candidates, 1))

    ideal = list(relevant)
    found = len(relevant & set(top))
    return {
        "r_precision": Fraction(len(relevant & set(order[:n])), n),
        "hit": Fraction(int(found > 0)),
        "precision": Fraction(found, k),
        "recall": Fraction(found, n),
        "ndcg_cut": dcg(top) / dcg(ideal[:k]),
        "mrr": Fraction(1, hits[0]),
        "ndcg": dcg(order) / dcg(ideal),
        "map": sum((Fraction(i, place) for i, place in enumerate(hits, 1)), Fraction(0)) / n,
    }


def expected(scores, relevant, k):
    """Means over all orders."""
    found = [of_order(order, relevant, k) for order in orders(scores)]
    return {name: float(sum(each[name] for each in found) / len(found)) for name in found[0]}
