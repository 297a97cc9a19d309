"""Rankings by score: every metric against the textbook over every order of ties."""

from __future__ import annotations

import numpy as np
import pytest
import ranking_oracle

from genpr.metrics.ranking import ranking_metrics

NAMES = {"ndcg_cut": "ndcg_{k}", "hit": "hit_{k}", "precision": "precision_{k}", "recall": "recall_{k}"}


def small_cases(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        c = int(rng.integers(2, 7))
        scores = rng.integers(0, rng.integers(1, 5), size=c)
        relevant = rng.permutation(c)[: rng.integers(1, c + 1)]
        grades = rng.integers(1, 4, size=len(relevant))
        yield scores, relevant.tolist(), grades.tolist(), int(rng.integers(1, c + 1))


@pytest.mark.parametrize("gain", ["linear", "exponential"])
@pytest.mark.parametrize("ties", ["expected", "pessimistic"])
def test_small_rankings_are_the_textbook_over_all_orders(ties, gain):
    oracle = ranking_oracle.expected if ties == "expected" else ranking_oracle.worst
    for scores, relevant, grades, k in small_cases(120, seed=1):
        found = ranking_metrics(scores[None], [relevant], ks=[k], relevance=[grades], gain=gain, ties=ties)
        worth = {c: g if gain == "linear" else 2**g - 1 for c, g in zip(relevant, grades, strict=True)}
        expected = oracle(scores.tolist(), worth, k)
        by_chance = ranking_oracle.expected([0] * len(scores), worth, k)
        for name, value in expected.items():
            ours = found[NAMES.get(name, name).format(k=k)]
            assert ours.value == pytest.approx(value, abs=1e-14), (name, scores, relevant, k)
            assert ours.chance == pytest.approx(by_chance[name], abs=1e-14), (name, scores, relevant, k)
