"""ranx gives the same numbers where the definitions are the same, and these are the places where they are not."""

import numpy as np
import pytest

from genpr import ranking_metrics, retrieval_metrics

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


@pytest.fixture(scope="module")
def lists():
    """Expected ids with grades, and lists of different lengths without repeated ids, best first."""
    rng = np.random.default_rng(0)
    expected, retrieved = [], []
    for _ in range(60):
        ids = rng.permutation(30)[: rng.integers(1, 9)]
        expected.append({f"d{one}": int(rng.integers(1, 5)) for one in ids})
        retrieved.append([f"d{one}" for one in rng.permutation(30)[: rng.integers(1, 16)]])
    return expected, retrieved


def as_ranx(expected, retrieved):
    qrels = {f"q{at}": grades for at, grades in enumerate(expected)}
    run = {
        f"q{at}": {one: float(len(ids) - place) for place, one in enumerate(ids)}
        for at, ids in enumerate(retrieved)
    }
    return qrels, run


@pytest.mark.parametrize("k", KS)
def test_lists_with_a_cutoff_equal_ranx(lists, k):
    expected, retrieved = lists
    ours = retrieval_metrics(list(map(list, expected)), retrieved, k=k, relevance=expected)
    gains = [{one: 2**grade - 1 for one, grade in grades.items()} for grades in expected]
    exponential = retrieval_metrics(list(map(list, expected)), retrieved, k=k, relevance=gains)
    names = {
        f"hit_rate@{k}": ours["hit_rate"],
        f"precision@{k}": ours["precision"],
        f"recall@{k}": ours["recall"],
        f"mrr@{k}": ours["mrr"],
        f"map@{k}": ours["map"],
        f"ndcg@{k}": ours["ndcg"],
        f"ndcg_burges@{k}": exponential["ndcg"],
    }
    theirs = evaluated(*as_ranx(expected, retrieved), list(names))
    for name, metric in names.items():
        np.testing.assert_allclose(metric.per_query, theirs[name], rtol=1e-12, atol=1e-15, err_msg=name)


def test_lists_without_a_cutoff_equal_ranx(lists):
    expected, retrieved = lists
    ours = retrieval_metrics(list(map(list, expected)), retrieved)
    names = {"hit_rate": "hit_rate", "precision": "precision", "recall": "recall", "mrr": "mrr", "map": "map"}
    names["r-precision"] = "r_precision"
    theirs = evaluated(*as_ranx(expected, retrieved), list(names))
    for name, our_name in names.items():
        np.testing.assert_allclose(
            ours[our_name].per_query, theirs[name], rtol=1e-12, atol=1e-15, err_msg=name
        )


def test_rankings_of_whole_pools_equal_ranx():
    rng = np.random.default_rng(1)
    scores = rng.permuted(np.tile(np.arange(25), (40, 1)), axis=1)
    relevant = [rng.permutation(25)[: rng.integers(1, 6)] for _ in range(40)]
    grades = [rng.integers(1, 4, size=len(ids)) for ids in relevant]
    ours = ranking_metrics(scores, relevant, relevance=grades, ks=KS)
    names = {"mrr": "mrr", "ndcg": "ndcg", "map": "map", "r-precision": "r_precision"}
    for k in KS:
        names |= {f"hit_rate@{k}": f"hit_{k}", f"precision@{k}": f"precision_{k}"}
        names |= {f"recall@{k}": f"recall_{k}", f"ndcg@{k}": f"ndcg_{k}"}
    qrels = {
        f"q{at}": {f"d{one}": int(grade) for one, grade in zip(ids, row, strict=True)}
        for at, (ids, row) in enumerate(zip(relevant, grades, strict=True))
    }
    run = {
        f"q{at}": {f"d{one}": float(score) for one, score in enumerate(row)} for at, row in enumerate(scores)
    }
    theirs = evaluated(qrels, run, list(names))
    for name, our_name in names.items():
        np.testing.assert_allclose(
            ours[our_name].per_query, theirs[name], rtol=1e-12, atol=1e-15, err_msg=name
        )


class TestDifferences:
    """Differences to ranx that docs/retrieval.md lists."""

    def test_ideal_of_a_short_list_without_a_cutoff(self):
        """The ideal of genpr is as long as the list, that of ranx as the expected ids."""
        qrels, run = as_ranx([{"a": 1, "b": 1, "c": 1}], [["a"]])
        assert retrieval_metrics([["a", "b", "c"]], [["a"]])["ndcg"].value == 1
        ideal = 1 + 1 / np.log2(3) + 1 / 2
        assert evaluated(qrels, run, ["ndcg"])["ndcg"][0] == pytest.approx(1 / ideal)

    def test_query_without_relevant_ids_counts_as_0(self):
        qrels = {"q0": {"a": 1}, "q1": {"a": 0}}
        run = {"q0": {"a": 1.0}, "q1": {"a": 1.0}}
        assert evaluated(qrels, run, ["recall"])["recall"].tolist() == [1, 0]
        ours = retrieval_metrics([["a"], []], [["a"], ["a"]])
        assert (ours["recall"].value, ours.n_undefined) == (1, 1)

    def test_ranx_orders_equal_scores_arbitrarily(self):
        """All candidates have equal scores; genpr gives each query the chance level, ranx an order."""
        pool = 20
        qrels = {f"q{at:02}": {f"d{at}": 1} for at in range(pool)}
        run = {f"q{at:02}": {f"d{one}": 1.0 for one in range(pool)} for at in range(pool)}
        theirs = evaluated(qrels, run, ["mrr"])["mrr"]
        ours = ranking_metrics(np.ones((pool, pool)), np.arange(pool), ks=[1])["mrr"]
        assert sorted(set(np.round(1 / theirs))) == list(range(1, pool + 1))
        assert set(ours.per_query) == {ours.chance}
