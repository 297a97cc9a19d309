"""Lists of ids: worked examples, textbook definitions, repeated ids, empty lists and errors."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genpr import GenprError, retrieval_metrics
from genpr.metrics.copy_detection import copy_detection
from genpr.metrics.similarity import FeaturePairs

WORKED = dict.fromkeys(("granular_hit_rate", "precision", "recall", "r_precision", "map"), 2 / 3)
WORKED |= {"hit_rate": 1, "mrr": 1, "granular_mrr": 0.75, "ndcg": 0.76536}
"""Metrics of expected ids 1, 2, 3 and retrieved ids 1, 3, 4."""


def plainly(expected, retrieved, k=None, grades=None):
    """Every metric of one list, in loops; ids of `retrieved` may repeat."""
    length = len(retrieved) if k is None else k
    gains = grades or dict.fromkeys(expected, 1)
    places, seen = {}, set()
    for place, one in enumerate(retrieved[:length], 1):
        if one in gains and one not in seen:
            places[place] = one
        seen.add(one)
    found, n = len(places), len(set(expected))
    ideal = sorted(gains.values(), reverse=True)[: min(length, n)]
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
        "ndcg": sum(gains[one] / math.log2(1 + place) for place, one in places.items()) / ideal_dcg
        if length
        else 0.0,
    }


def test_worked_example_and_tests_of_llama_index():
    found = retrieval_metrics([1, 2, 3], [1, 3, 4])
    assert {name: metric.value for name, metric in found.items()} == pytest.approx(WORKED, abs=5e-6)
    ids = ["id1", "id2", "id3", "id4"]
    assert retrieval_metrics(ids, ["id1", "id5", "id2"])["granular_hit_rate"].value == 0.5
    assert retrieval_metrics(ids, ["id5", "id1"])["mrr"].value == 0.5
    assert retrieval_metrics(ids[:2], ["id1", "id7", "id15", "id2"])["granular_mrr"].value == (1 + 1 / 4) / 2
    assert retrieval_metrics(ids[:3], ["id3", "id1", "id2", "id4"])["precision"].value == 0.75


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_random_lists_equal_the_textbook_definitions(seed):
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


def test_repeated_id_counts_once_and_keeps_its_positions():
    found = retrieval_metrics(["a", "b"], ["a", "a", "b"])
    assert found["recall"].value == found["granular_hit_rate"].value == 1
    assert found["map"].value == pytest.approx((1 + 2 / 3) / 2)
    assert found["granular_mrr"].value == pytest.approx((1 + 1 / 3) / 2)
    assert retrieval_metrics(["b"], ["a", "a", "b"], k=2)["hit_rate"].value == 0
    assert retrieval_metrics([1, 1, 2], [1])["recall"].value == 0.5


def test_empty_expectation_is_undefined_and_empty_retrieval_is_0():
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


def test_intervals_leave_out_undefined_queries_and_resample_groups():
    found = retrieval_metrics([[1], []] * 30, [[1], [1]] * 15 + [[2], [1]] * 15)
    alone = retrieval_metrics([[1]] * 30, [[1]] * 15 + [[2]] * 15)
    assert found["recall"].interval == alone["recall"].interval
    assert found["recall"].n_units == 30
    expected, groups = [[at] for at in range(40)], [at // 2 for at in range(40)]
    found = retrieval_metrics(expected, expected, pool=50, groups=groups)
    assert found["mrr"].n_units == 20
    assert found.pool == (50, 50)


def test_ids_and_lists_may_be_of_any_type():
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
def test_invalid_lists_are_errors(expected, retrieved, options):
    with pytest.raises(GenprError) as caught:
        retrieval_metrics(expected, retrieved, **options)
    assert len(str(caught.value)) < 300


@pytest.fixture(scope="module")
def sets():
    """50 generated images, 12 of them near copies, and 41 training images with copies among themselves."""
    rng = np.random.default_rng(0)
    train = rng.normal(size=(41, 16)) + 0.5
    train[30:35] = train[:5]
    generated = rng.normal(size=(50, 16)) + 0.5
    generated[:12] = train[rng.integers(0, 41, size=12)] + 0.3 * rng.normal(size=(12, 16))
    return generated.astype(np.float32), train.astype(np.float32)


def cosines(ours, theirs):
    """Cosines by definition; copies of a row have equal ones, to the last bit."""
    pairs = FeaturePairs(torch.from_numpy(ours), torch.from_numpy(theirs))
    grid = torch.cartesian_prod(torch.arange(len(ours)), torch.arange(len(theirs)))
    table = pairs.exact(grid[:, 0], grid[:, 1]).view(len(ours), len(theirs)).numpy()
    norms = [np.linalg.norm(each.astype(float), axis=1) for each in (ours, theirs)]
    plain = ours.astype(float) @ theirs.astype(float).T / norms[0][:, None] / norms[1]
    np.testing.assert_allclose(table, plain, rtol=0, atol=1e-15)
    return table


@pytest.mark.parametrize("block_bytes", [700, 4000, 10**8])
def test_nearest_training_images_and_copy_rates(sets, block_bytes):
    table, heard = cosines(*sets), []
    options = {"block_bytes": block_bytes, "progress": lambda done, total: heard.append((done, total))}
    found = copy_detection(*sets, threshold=0.8, **options)
    assert np.array_equal(found.similarity, table.max(axis=1))
    assert np.array_equal(found.nearest, table.argmax(axis=1))
    assert found.rate.value == (table.max(axis=1) > 0.8).mean()
    assert 0.1 < found.rate.value < 0.4
    assert heard[-1] == (41 * (50 + 41),) * 2
    among = cosines(sets[1], sets[1])
    np.fill_diagonal(among, -np.inf)
    assert np.array_equal(found.null_similarity, among.max(axis=1))
    assert found.null.value == (among.max(axis=1) > 0.8).mean() > 0.2
    assert found.rate.value in found.rate.interval
    assert found.null.n == 41
    some = copy_detection(*sets, null_rows=9)
    assert len(some.null_similarity) == 9
    assert {*some.null_similarity} < {*found.null_similarity}
    shuffled = copy_detection(sets[0], sets[1][::-1].copy(), null_rows=9, seed=5)
    assert sorted(shuffled.null_similarity) == sorted(some.null_similarity), "content decides"


def test_threshold_is_exclusive_and_ties_go_to_the_first():
    pair = np.array([[1.0, 0], [1, 1]]), np.array([[1.0, 0], [0, 1]])
    assert copy_detection(*pair, threshold=1).rate.value == 0
    assert copy_detection(*pair, threshold=np.nextafter(1, 0)).rate.value == 0.5
    assert copy_detection(np.ones((4, 3)), np.ones((5, 3))).nearest.tolist() == [0] * 4


def test_near_ties_are_decided_by_the_definition():
    """Float32 products hide differences far below their rounding."""
    rng = np.random.default_rng(2)
    train = np.repeat(rng.normal(size=(1, 64)), 64, axis=0).astype(np.float32)
    np.fill_diagonal(train, np.nextafter(train.diagonal(), np.float32(np.inf)))
    generated = rng.normal(size=(40, 64)).astype(np.float32)
    assert np.array_equal(copy_detection(generated, train).nearest, cosines(generated, train).argmax(axis=1))


@pytest.mark.gpu
def test_copies_have_the_same_bits_on_a_gpu(sets):
    here, there = (copy_detection(*sets, device=on) for on in ("cpu", "cuda"))
    for name in ("similarity", "nearest", "null_similarity"):
        assert np.array_equal(getattr(here, name), getattr(there, name))


BAD_COPIES = [
    *({"threshold": each} for each in (1.5, True, float("nan"), "a")),
    *({name: -1} for name in ("null_rows", "seed", "block_bytes")),
    *({"train": train} for train in (np.eye(4)[:1], np.zeros((3, 4)), np.eye(3), "a")),
    {"generated": np.zeros((0, 4))},
]


@pytest.mark.parametrize("options", BAD_COPIES, ids=range(len(BAD_COPIES)))
def test_invalid_options_of_copy_detection_are_errors(options):
    with pytest.raises(GenprError):
        copy_detection(**({"generated": np.eye(4), "train": np.eye(4)} | options))
