"""Lists of ids: the worked example, the textbook, repeated ids, empty lists, and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genpr import DataError, UsageError, retrieval_metrics
from genpr.metrics.retrieval import relevancy

NAMES = (
    "hit_rate",
    "granular_hit_rate",
    "mrr",
    "granular_mrr",
    "precision",
    "recall",
    "r_precision",
    "map",
    "ndcg",
)


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


class TestWorkedExample:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("hit_rate", 1),
            ("granular_hit_rate", 2 / 3),
            ("mrr", 1),
            ("granular_mrr", 0.75),
            ("precision", 2 / 3),
            ("recall", 2 / 3),
            ("map", 2 / 3),
            ("r_precision", 2 / 3),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_expected_1_2_3_retrieved_1_3_4(self, name, value):
        assert retrieval_metrics([1, 2, 3], [1, 3, 4])[name].value == pytest.approx(value, rel=1e-15)

    def test_its_ndcg(self):
        assert round(retrieval_metrics([1, 2, 3], [1, 3, 4])["ndcg"].value, 5) == 0.76536

    def test_what_llama_index_tests(self):
        """Values of its own unit tests, which are facts."""
        ids = ["id1", "id2", "id3", "id4"]
        assert retrieval_metrics(ids, ["id1", "id5", "id2"])["granular_hit_rate"].value == 0.5
        assert retrieval_metrics(ids, ["id5", "id1"])["mrr"].value == 0.5
        assert (
            retrieval_metrics(ids[:2], ["id1", "id7", "id15", "id2"])["granular_mrr"].value == (1 + 1 / 4) / 2
        )
        assert retrieval_metrics(ids[:3], ["id3", "id1", "id2", "id4"])["precision"].value == 0.75


class TestAgainstTextbook:
    @given(st.integers(0, 2**32 - 1))
    @settings(max_examples=60, deadline=None)
    def test_random_lists(self, seed):
        rng = np.random.default_rng(seed)
        expected = rng.permutation(8)[: rng.integers(1, 6)].tolist()
        retrieved = rng.integers(0, 8, size=rng.integers(0, 9)).tolist()
        k = None if rng.random() < 0.5 else int(rng.integers(1, 10))
        grades = dict(zip(expected, rng.integers(1, 5, size=len(expected)).tolist(), strict=True))
        found = retrieval_metrics(expected, retrieved, k=k, relevance=grades)
        exponential = retrieval_metrics(expected, retrieved, k=k, relevance=grades, gain="exponential")
        assert tuple(found) == NAMES
        for name, value in plainly(expected, retrieved, k, grades).items():
            assert found[name].value == (None if value is None else pytest.approx(value, rel=1e-14)), name
            assert value is None or 0 <= found[name].value <= 1
        worth = {one: 2**grade - 1 for one, grade in grades.items()}
        assert exponential["ndcg"].value == pytest.approx(
            plainly(expected, retrieved, k, worth)["ndcg"], rel=1e-14
        )

    @pytest.mark.parametrize(("n_expected", "k"), [(1, 3), (2, 3), (3, 2), (4, 4)])
    def test_chance_is_the_mean_over_all_lists(self, n_expected, k):
        expected, pool = list(range(n_expected)), 5
        lists = list(itertools.permutations(range(pool), k))
        grades = {one: one + 1 for one in expected}
        cut = retrieval_metrics(expected, lists[0], k=k, pool=pool, relevance=grades)
        whole = retrieval_metrics(expected, lists[0], pool=pool, relevance=grades)
        for name in NAMES:
            mean = sum(plainly(expected, one, k, grades)[name] for one in lists) / len(lists)
            assert cut[name].chance == pytest.approx(mean, rel=1e-13), name
            assert whole[name].chance == pytest.approx(mean, rel=1e-13), name

    @given(st.integers(0, 2**32 - 1))
    @settings(max_examples=20, deadline=None)
    def test_means_do_not_depend_on_the_order_of_queries(self, seed):
        rng = np.random.default_rng(seed)
        expected = [rng.permutation(9)[: rng.integers(0, 4)].tolist() for _ in range(14)]
        retrieved = [rng.integers(0, 9, size=rng.integers(0, 5)).tolist() for _ in range(14)]
        order = rng.permutation(14)
        plain = retrieval_metrics(expected, retrieved, pool=9)
        moved = retrieval_metrics([expected[i] for i in order], [retrieved[i] for i in order], pool=9)
        for name in NAMES:
            assert (plain[name].value, plain[name].chance) == (moved[name].value, moved[name].chance)

    def test_grows_with_k(self):
        expected, retrieved = ["a", "b", "c"], ["x", "b", "y", "a", "z", "c"]
        by_k = [retrieval_metrics(expected, retrieved, k=k) for k in range(1, 7)]
        for name in ("hit_rate", "recall", "mrr", "map"):
            values = [found[name].value for found in by_k]
            assert values == sorted(values)


class TestRepeated:
    def test_counts_once_and_keeps_its_place(self):
        found = retrieval_metrics(["a", "b"], ["a", "a", "b"])
        assert found["precision"].value == pytest.approx(2 / 3)
        assert found["recall"].value == 1
        assert found["granular_hit_rate"].value == 1
        assert found["map"].value == pytest.approx((1 + 2 / 3) / 2)
        assert found["granular_mrr"].value == pytest.approx((1 + 1 / 3) / 2)
        assert found.n_duplicates == 1
        assert "repeated ids: 1" in str(found)

    def test_takes_a_place_before_the_cut(self):
        assert retrieval_metrics(["b"], ["a", "a", "b"], k=2)["hit_rate"].value == 0

    def test_expected_ids_are_a_set(self):
        assert retrieval_metrics([1, 1, 2], [1])["recall"].value == 0.5


class TestEmpty:
    def test_nothing_expected_is_undefined_and_counted(self):
        found = retrieval_metrics([[1], [], [2]], [[1], [1], [3]], pool=4)
        assert (found.n_queries, found.n_undefined) == (3, 1)
        for name in NAMES:
            assert found[name].n == 2
            assert math.isnan(found[name].per_query[1])
        assert found["recall"].value == 0.5
        assert found["recall"].chance == 0.25

    def test_nothing_defined_at_all(self):
        found = retrieval_metrics([], [1, 2])
        assert found.n_undefined == 1
        assert all(metric.value is None and metric.interval is None for metric in found.values())
        assert "-" in str(found)

    def test_nothing_retrieved_finds_nothing(self):
        found = retrieval_metrics([[1], [2]], [[], [2]])
        assert found.n_empty == 1
        assert (
            found["recall"].value
            == found["ndcg"].value
            == found["map"].value
            == found["hit_rate"].value
            == 0.5
        )
        assert (found["precision"].value, found["precision"].n) == (1, 1)
        assert retrieval_metrics([[1], [2]], [[], [2]], k=2)["precision"].value == 0.25

    def test_intervals_leave_out_what_is_undefined(self):
        expected = [[1], []] * 30
        found = retrieval_metrics(expected, [[1], [1]] * 15 + [[2], [1]] * 15)
        alone = retrieval_metrics([[1]] * 30, [[1]] * 15 + [[2]] * 15)
        assert found["recall"].interval == alone["recall"].interval
        assert found["recall"].n_units == 30


class TestForms:
    def test_ids_of_any_kind(self):
        for ids in ((1, 2, 3), ("a", "b", "c"), (b"a", b"b", b"c"), (1.5, 2, 3)):
            assert retrieval_metrics(list(ids), list(ids))["map"].value == 1
        for make in (np.array, torch.tensor, set, tuple, frozenset):
            assert retrieval_metrics(make([1, 2]), np.array([2, 1]))["map"].value == 1
            assert retrieval_metrics([make([1, 2])], [[2, 1]])["map"].value == 1
        assert retrieval_metrics(np.arange(6).reshape(3, 2), np.arange(6).reshape(3, 2))["mrr"].value == 1

    def test_groups_and_pools(self):
        expected = [[at] for at in range(40)]
        found = retrieval_metrics(
            expected, expected, pool=list(range(50, 90)), groups=[at // 2 for at in range(40)]
        )
        assert found["mrr"].n_units == 20
        assert found.pool == (50, 89)
        assert "pools of 50 to 89 candidates" in str(found)

    @pytest.mark.parametrize(
        ("expected", "retrieved", "options", "error"),
        [
            ("abc", ["a"], {}, UsageError),
            ([1], 3, {}, UsageError),
            ([1], {1: 2}, {}, UsageError),
            ([[1], 2], [[1], [2]], {}, UsageError),
            ([[1], [2]], [[1]], {}, UsageError),
            ([[1], [2]], [1, 2], {}, UsageError),
            ([1, 2], [[1], [2]], {}, DataError),
            ([[1], [[2]]], [[1], [2]], {}, DataError),
            ([[{1: 2}]], [[1]], {}, DataError),
            ([1, None], [1], {}, DataError),
            ([1, math.nan], [1], {}, DataError),
            (["1", "2"], [1, 2], {}, DataError),
            ([1, 2], ["1"], {}, DataError),
            ([1], [1], {"k": 0}, UsageError),
            ([1], [1], {"k": 2.0}, UsageError),
            ([1], [1], {"gain": "log"}, UsageError),
            ([1, 2], [3, 4], {"pool": 3}, DataError),
            ([1, 2], [3, 4], {"pool": 4, "k": 5}, UsageError),
            ([[1], [1]], [[1], [1]], {"pool": [3]}, UsageError),
            ([1], [1], {"pool": 0}, UsageError),
            ([1], [1], {"relevance": {}}, DataError),
            ([1], [1], {"relevance": {1: 1, 2: 3}}, DataError),
            ([1], [1], {"relevance": {1: 0}}, DataError),
            ([1], [1], {"relevance": {1: "high"}}, DataError),
            ([1], [1], {"relevance": [{1: 1}, {}]}, DataError),
            ([1], [1], {"groups": ["a", "b"]}, UsageError),
        ],
        ids=itertools.count(),
    )
    def test_refusals(self, expected, retrieved, options, error):
        with pytest.raises(error):
            retrieval_metrics(expected, retrieved, **options)

    def test_ids_that_are_not_known_are_refused(self):
        """As pandas has missing values."""

        class Missing:
            __hash__ = object.__hash__

            def __eq__(self, other):
                raise TypeError("ambiguous")

        with pytest.raises(DataError):
            retrieval_metrics([Missing()], [1])

    def test_messages_show_little_of_what_came(self):
        with pytest.raises(UsageError) as caught:
            retrieval_metrics("x" * 10_000, ["a"])
        assert len(str(caught.value)) < 200


class TestRelevancy:
    def test_mean_and_maximum(self):
        scores = [[0.5, 1.0], [0.25], []]
        assert relevancy(scores).value == 0.5
        assert relevancy(scores, "max").value == 0.625
        found = relevancy(scores)
        assert (found.n_queries, found.n_undefined, found.interval) == (3, 1, None)
        assert relevancy([[]]).value is None

    def test_thresholds_include_their_score(self):
        assert relevancy([[0.5, 0.4, 0.6, 0.1]], threshold=0.5).value == 0.5
        assert relevancy([[0.5, 0.4], [0.1]], "max", threshold=0.5).value == 0.5

    def test_intervals_are_of_the_judges_scale(self):
        rng = np.random.default_rng(0)
        shares = rng.random((30, 3))
        of_one, of_five = relevancy(shares), relevancy(1 + 4 * shares, scale=(1, 5))
        assert of_five.value == pytest.approx(1 + 4 * of_one.value)
        assert of_five.interval.low == pytest.approx(1 + 4 * of_one.interval.low)
        assert of_five.interval.high == pytest.approx(1 + 4 * of_one.interval.high)
        assert relevancy(np.full((30, 3), 5), scale=(1, 5)).interval.high == 5
        assert relevancy(np.full((30, 3), 5), scale=(1, 5)).interval.low < 5
        halves = of_five.metric.replicates
        assert torch.allclose(
            (halves[::2] + halves[1::2]) / 2, torch.tensor(of_five.value, dtype=torch.float64)
        )
        grouped = relevancy(shares, groups=[at // 3 for at in range(30)])
        assert grouped.metric.n_units == 10

    @pytest.mark.parametrize(
        ("scores", "options", "error"),
        [
            ([[1.5]], {}, DataError),
            ([[-0.1]], {}, DataError),
            ([[math.nan]], {}, DataError),
            ([["a"]], {}, DataError),
            ([0.5], {}, DataError),
            (["a"], {}, DataError),
            ([], {}, DataError),
            ([[0.5]], {"how": "median"}, UsageError),
            ([[0.5]], {"threshold": 2}, UsageError),
            ([[0.5]], {"scale": (1, 0)}, UsageError),
            ([[0.5]], {"scale": (0, math.inf)}, UsageError),
            ([[0.5]], {"scale": 1}, UsageError),
        ],
        ids=itertools.count(),
    )
    def test_refusals(self, scores, options, error):
        with pytest.raises(error):
            relevancy(scores, **options)
