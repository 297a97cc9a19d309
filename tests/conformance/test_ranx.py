"""ranx gives the same numbers where the definitions are the same, and these are the places where they are not."""

import numpy as np
import pytest

from genpr import ranking_metrics

# It compiles itself when it is first used, which takes most of a minute.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
KS = (1, 3, 7)


def evaluated(qrels, run, names):
    """Values of each query by ranx, in the order of `qrels`."""
    ranx = pytest.importorskip("ranx")
    found = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), list(names), return_mean=False)
    found = found if isinstance(found, dict) else {names[0]: found}
    order = np.argsort(np.argsort(list(qrels)))
    return {name: np.asarray(values)[order] for name, values in found.items()}


def test_rankings_of_whole_pools_equal_ranx():
    rng = np.random.default_rng(1)
    scores = rng.permuted(np.tile(np.arange(25), (40, 1)), axis=1)
    relevant = [rng.permutation(25)[: rng.integers(1, 6)] for _ in range(40)]
    ours = ranking_metrics(scores, relevant, ks=KS)
    names = {"mrr": "mrr", "ndcg": "ndcg", "map": "map", "r-precision": "r_precision"}
    for k in KS:
        names |= {f"hit_rate@{k}": f"hit_{k}", f"precision@{k}": f"precision_{k}"}
        names |= {f"recall@{k}": f"recall_{k}", f"ndcg@{k}": f"ndcg_{k}"}
    qrels = {f"q{at}": {f"d{one}": 1 for one in ids} for at, ids in enumerate(relevant)}
    run = {
        f"q{at}": {f"d{one}": float(score) for one, score in enumerate(row)} for at, row in enumerate(scores)
    }
    theirs = evaluated(qrels, run, list(names))
    for name, our_name in names.items():
        np.testing.assert_allclose(
            ours[our_name].per_query, theirs[name], rtol=1e-12, atol=1e-15, err_msg=name
        )


def test_query_without_relevant_candidates_counts_as_0_in_ranx():
    qrels, run = {"q0": {"a": 1}, "q1": {"a": 0}}, {"q0": {"a": 1.0}, "q1": {"a": 1.0}}
    assert evaluated(qrels, run, ["recall"])["recall"].tolist() == [1, 0]
    ours = ranking_metrics(np.ones((2, 1)), [[0], []], ks=[1])
    assert (ours["recall_1"].value, ours.n_undefined) == (1, 1)


def test_ranx_orders_equal_scores_arbitrarily():
    """All candidates have equal scores; genpr gives each query the chance level, ranx an order."""
    pool = 20
    qrels = {f"q{at:02}": {f"d{at}": 1} for at in range(pool)}
    run = {f"q{at:02}": {f"d{one}": 1.0 for one in range(pool)} for at in range(pool)}
    theirs = evaluated(qrels, run, ["mrr"])["mrr"]
    ours = ranking_metrics(np.ones((pool, pool)), np.arange(pool), ks=[1])["mrr"]
    assert sorted(set(np.round(1 / theirs))) == list(range(1, pool + 1))
    assert set(ours.per_query) == {ours.chance}
