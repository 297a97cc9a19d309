"""Lists of ids: the worked example, the textbook, repeated ids, empty lists, and what is refused."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genpr import GenprError, retrieval_metrics

WORKED = dict.fromkeys(("granular_hit_rate", "precision", "recall", "r_precision", "map"), 2 / 3)
WORKED |= {"hit_rate": 1, "mrr": 1, "granular_mrr": 0.75, "ndcg": 0.76536}
"""Of expected 1, 2, 3 and retrieved 1, 3, 4."""


def plainly(expected, retrieved, k=None, grades=None):
    """Every metric of one list, in loops; ids of `retrieved` may repeat."""
    length = len(retrieved) if k is None else k
    worth = grades or dict.fromkeys(expected, 1)
    places, seen = {}, set()
    for place, one in enumerate(retrieved[:length], 1):
        if one in worth and one not in seen:
            places[place] = one
        seen.add(one)
    found, n = len(places), len(set(expected))
    ideal = sorted(worth.values(), reverse=True)[: min(length, n)]
    ideal_dcg = sum(gain / math.log2(1 + i) for i, gain in enumerate(ideal, 1))
    return {
        "hit_rate": float(found > 0),
        "granular_hit_rate": found / n,
        "mrr": 1 / min(places) if places else 0.0,
        "granular_mrr": sum(1 / place for place in places) / found if places else 0.0,
        "precision": found / length if length else None,
        "recall": found / n,
        "r_precision": sum(place <= n for place in places) / n,
        "map": sum(i / place for i, place in enumerate(sorted(places), 1)) / n,
        "ndcg": sum(worth[one] / math.log2(1 + place) for place, one in places.items()) / ideal_dcg
        if length
        else 0.0,
    }


def test_the_worked_example_and_what_llama_index_tests():
    found = retrieval_metrics([1, 2, 3], [1, 3, 4])
    assert {name: metric.value for name, metric in found.items()} == pytest.approx(WORKED, abs=5e-6)
    ids = ["id1", "id2", "id3", "id4"]
    assert retrieval_metrics(ids, ["id1", "id5", "id2"])["granular_hit_rate"].value == 0.5
    assert retrieval_metrics(ids, ["id5", "id1"])["mrr"].value == 0.5
    assert retrieval_metrics(ids[:2], ["id1", "id7", "id15", "id2"])["granular_mrr"].value == (1 + 1 / 4) / 2
    assert retrieval_metrics(ids[:3], ["id3", "id1", "id2", "id4"])["precision"].value == 0.75


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_random_lists_are_the_textbook(seed):
    rng = np.random.default_rng(seed)
    expected = rng.permutation(8)[: rng.integers(1, 6)].tolist()
    retrieved = rng.integers(0, 8, size=rng.integers(0, 9)).tolist()
    k = None if rng.random() < 0.5 else int(rng.integers(1, 10))
    grades = dict(zip(expected, rng.integers(1, 5, size=len(expected)).tolist(), strict=True))
    found = retrieval_metrics(expected, retrieved, k=k, relevance=grades)
    for name, value in plainly(expected, retrieved, k, grades).items():
        assert found[name].value == (None if value is None else pytest.approx(value, rel=1e-14)), name
        assert value is None or 0 <= found[name].value <= 1


@pytest.mark.parametrize(("n_expected", "k"), [(1, 3), (2, 3), (3, 2), (4, 4)])
def test_chance_is_the_mean_over_all_lists(n_expected, k):
    expected, pool = list(range(n_expected)), 5
    lists = list(itertools.permutations(range(pool), k))
    grades = {one: one + 1 for one in expected}
    cut = retrieval_metrics(expected, lists[0], k=k, pool=pool, relevance=grades)
    whole = retrieval_metrics(expected, lists[0], pool=pool, relevance=grades)
    for name in WORKED:
        mean = sum(plainly(expected, one, k, grades)[name] for one in lists) / len(lists)
        assert cut[name].chance == pytest.approx(mean, rel=1e-13), name
        assert whole[name].chance == pytest.approx(mean, rel=1e-13), name


def test_a_repeated_id_counts_once_and_keeps_its_places():
    found = retrieval_metrics(["a", "b"], ["a", "a", "b"])
    assert found["recall"].value == found["granular_hit_rate"].value == 1
    assert found["map"].value == pytest.approx((1 + 2 / 3) / 2)
    assert found["granular_mrr"].value == pytest.approx((1 + 1 / 3) / 2)
    assert retrieval_metrics(["b"], ["a", "a", "b"], k=2)["hit_rate"].value == 0
    assert retrieval_metrics([1, 1, 2], [1])["recall"].value == 0.5


def test_nothing_expected_is_undefined_and_nothing_retrieved_is_0():
    found = retrieval_metrics([[1], [], [2]], [[1], [1], [3]], pool=4)
    assert (found.n_queries, found.n_undefined) == (3, 1)
    for name in WORKED:
        assert found[name].n == 2
        assert math.isnan(found[name].per_query[1])
    assert (found["recall"].value, found["recall"].chance) == (0.5, 0.25)
    none = retrieval_metrics([], [1, 2])
    assert none.n_undefined == 1
    assert all(metric.value is None and metric.interval is None for metric in none.values())
    found = retrieval_metrics([[1], [2]], [[], [2]])
    assert {found[name].value for name in ("recall", "ndcg", "map", "hit_rate")} == {0.5}
    assert (found["precision"].value, found["precision"].n) == (1, 1)
    assert retrieval_metrics([[1], [2]], [[], [2]], k=2)["precision"].value == 0.25


def test_intervals_leave_out_what_is_undefined_and_groups_are_drawn_together():
    found = retrieval_metrics([[1], []] * 30, [[1], [1]] * 15 + [[2], [1]] * 15)
    alone = retrieval_metrics([[1]] * 30, [[1]] * 15 + [[2]] * 15)
    assert found["recall"].interval == alone["recall"].interval
    assert found["recall"].n_units == 30
    expected, groups = [[at] for at in range(40)], [at // 2 for at in range(40)]
    found = retrieval_metrics(expected, expected, pool=50, groups=groups)
    assert found["mrr"].n_units == 20
    assert found.pool == (50, 50)


def test_ids_of_any_kind_in_lists_of_any_kind():
    for ids in ((1, 2, 3), ("a", "b", "c"), (b"a", b"b", b"c"), (1.5, 2, 3)):
        assert retrieval_metrics(list(ids), list(ids))["map"].value == 1
    for make in (np.array, torch.tensor, set, tuple):
        assert retrieval_metrics(make([1, 2]), np.array([2, 1]))["map"].value == 1
        assert retrieval_metrics([make([1, 2])], [[2, 1]])["map"].value == 1
    assert retrieval_metrics(np.arange(6).reshape(3, 2), np.arange(6).reshape(3, 2))["mrr"].value == 1


SIDES = [
    *(("abc", ["a"]), ("x" * 10_000, ["a"]), ([1], 3), ([1], {1: 2}), ([1], {1}), ([[1]], [{1}])),
    *(([[1], 2], [[1], [2]]), ([[1], [2]], [[1]]), ([[1], [2]], [1, 2]), ([[{1: 2}]], [[1]])),
    *((["1", "2"], [1, 2]), ([1, 2], ["1"])),
    *(([1, 2], [(1, 0.9), (2, 0.8)]), ([None], [None]), ([math.nan], [1]), ([[1]], [[frozenset({1})]])),
]
GRADES = ({}, {1: 1, 2: 3}, {1: 0}, {1: "high"}, [{1: 1}, {}], 3)
BAD = [
    *((*sides, {}) for sides in SIDES),
    *(([1], [1], {"k": k}) for k in (0, 2.0, "a", math.nan)),
    *(([1], [1], {"relevance": grades}) for grades in GRADES),
    *(([1], [1], option) for option in ({"pool": 0}, {"groups": ["a", "b"]}, {"seed": -1})),
    *(([1, 2], [3, 4], option) for option in ({"pool": 3}, {"pool": 4, "k": 5})),
    ([[1], [1]], [[1], [1]], {"pool": [3]}),
]


@pytest.mark.parametrize(("expected", "retrieved", "options"), BAD, ids=range(len(BAD)))
def test_bad_lists_are_one_clear_error(expected, retrieved, options):
    with pytest.raises(GenprError) as caught:
        retrieval_metrics(expected, retrieved, **options)
    assert len(str(caught.value)) < 300
