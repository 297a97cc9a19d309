"""Rankings by score: every metric against its textbook definition, averaged over all orders of equal scores."""

import numpy as np
import pytest
import ranking_oracle
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    label_ranking_average_precision_score,
    ndcg_score,
)
from special_tensors import SPECIAL, special

from genpr import DataError, UsageError, ranking_metrics
from genpr.errors import FeatureError
from genpr.metrics.uncertainty import halved, interval_of

NAMES = {"ndcg_cut": "ndcg_{k}", "hit": "hit_{k}", "precision": "precision_{k}", "recall": "recall_{k}"}


def same(a, b):
    return all(np.array_equal(a[name].per_query, b[name].per_query, equal_nan=True) for name in a)


@pytest.fixture(scope="module")
def features():
    """Queries and candidates far from the origin, some candidates copies of others; what is relevant."""
    rng = np.random.default_rng(3)
    candidates = rng.normal(size=(57, 24)) + 5
    candidates[40:50] = candidates[:10]
    candidates[50] = 2 * candidates[0]
    relevant = rng.integers(0, 57, size=83)
    queries = candidates[relevant] + rng.normal(size=(83, 24))
    return queries.astype(np.float32), candidates.astype(np.float32), relevant


def defined_scores(queries, candidates):
    """Scores by definition in float64; copies have the score of the first one, to the last bit."""
    scores = queries.astype(float) @ candidates.astype(float).T
    norms = [np.linalg.norm(rows.astype(float), axis=1) for rows in (queries, candidates)]
    scores = scores / norms[0][:, None] / norms[1]
    scores[:, 50:51] = scores[:, :1]
    scores[:, 40:50] = scores[:, :10]
    return scores


def test_metrics_of_small_rankings_are_means_over_all_orders():
    rng = np.random.default_rng(1)
    for _ in range(45):
        c = int(rng.integers(2, 7))
        scores = rng.integers(0, rng.integers(1, 5), size=c)
        relevant = rng.permutation(c)[: rng.integers(1, c + 1)].tolist()
        k = int(rng.integers(1, c + 1))
        found = ranking_metrics(scores[None], [relevant], ks=[k])
        by_chance = ranking_oracle.expected([0] * len(scores), relevant, k)
        for name, value in ranking_oracle.expected(scores.tolist(), relevant, k).items():
            ours = found[NAMES.get(name, name).format(k=k)]
            assert ours.value == pytest.approx(value, abs=1e-14), (name, scores, relevant, k)
            assert ours.chance == pytest.approx(by_chance[name], abs=1e-14), (name, scores, relevant, k)


def test_rankings_without_ties_are_exact_to_the_last_bit():
    rng = np.random.default_rng(5)
    scores = rng.permuted(np.tile(np.arange(300), (40, 1)), axis=1)
    relevant = rng.integers(0, 300, size=40)
    found = ranking_metrics(scores, relevant, ks=[1, 7, 50])
    rank = (scores > scores[np.arange(40), relevant][:, None]).sum(axis=1) + 1
    assert np.array_equal(found["mrr"].per_query, 1 / rank)
    assert np.array_equal(found["map"].per_query, 1 / rank)
    assert np.array_equal(found["r_precision"].per_query, rank == 1)
    for k in (1, 7, 50):
        assert np.array_equal(found[f"hit_{k}"].per_query, rank <= k)
        assert np.array_equal(found[f"precision_{k}"].per_query, (rank <= k) / k)
    np.testing.assert_allclose(found["ndcg"].per_query, 1 / np.log2(1 + rank), rtol=1e-15)


def test_large_ties_keep_their_precision():
    """A relevant one among e equal ones after g others: the sums of the definition, term by term."""
    scores = np.zeros((1, 9000), dtype=np.int64)
    scores[0, :5000] = 1
    found = ranking_metrics(scores, [[8000, 8001, 12]], ks=[6000])
    g, e = 5000, 4000
    places = np.arange(g + 1, g + e + 1, dtype=np.longdouble)
    before = 2 + (places - g - 1) / (e - 1)
    first = np.mean(1 / np.arange(1, 5001, dtype=np.longdouble))
    assert found["map"].value == pytest.approx(float((first + 2 * np.mean(before / places)) / 3), rel=1e-14)
    assert found["recall_6000"].value == pytest.approx((1 + 2 * 1000 / 4000) / 3, rel=1e-15)


@given(st.integers(2, 300), st.integers(0, 299), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_constant_scores_score_chance_to_the_last_bit(pool, relevant, score):
    found = ranking_metrics(np.full((2, pool), score), [relevant % pool] * 2, ks=[1, min(5, pool)])
    assert all(metric.value == metric.chance for metric in found.values())


def test_chance_has_closed_forms():
    pools = np.full((2, 8), -1)
    pools[0, :5], pools[1] = np.arange(5), np.arange(8)[::-1]
    found = ranking_metrics(np.zeros((2, 9)), [[0, 1], [2, 3, 4]], ks=[2], pools=pools)
    # None of 2 draws: 3/5 2/4, and 5/8 4/7.
    assert found["hit_2"].chance == pytest.approx(1 - (3 / 5 * 2 / 4 + 5 / 8 * 4 / 7) / 2, rel=1e-15)
    assert found["recall_2"].chance == pytest.approx((2 / 5 + 2 / 8) / 2, rel=1e-15)
    assert found.pool == (5, 8)
    # What a pool lacks is no candidate of it, whatever its score.
    assert all(metric.value == metric.chance for metric in found.values())


def random_pools(relevant, seed=4):
    """The relevant candidate of each query and 9 others, -1 for none: (q, 11)."""
    rng, pools = np.random.default_rng(seed), np.full((len(relevant), 11), -1)
    for pool, own in zip(pools, relevant, strict=True):
        others = np.setdiff1d(np.arange(57), own)
        pool[: len(own)], pool[2:] = own, rng.permutation(others)[:9]
    return pools


def test_features_are_ranked_by_the_definition_for_any_block_size(features):
    queries, candidates, relevant = features
    scores = defined_scores(queries, candidates)
    whole = ranking_metrics((queries, candidates), relevant)
    assert same(whole, ranking_metrics(scores, relevant))
    assert 0.1 < whole["mrr"].value < 0.9
    several = [[int(one), (int(one) + 7) % 57][: 1 + at % 2] for at, one in enumerate(relevant)]
    pools = random_pools(several)
    rows = np.where(pools >= 0, np.take_along_axis(scores, pools, axis=1), -np.inf)
    own = [list(range(len(row))) for row in several]
    in_pools = ranking_metrics(rows, own, ks=[1, 3], pools=np.where(pools >= 0, np.arange(11), -1))
    in_rows = ranking_metrics(scores, several, ks=[1, 3])
    for size in (1500, 20_000):
        how = {"block_bytes": size, "ks": [1, 3]}
        assert same(ranking_metrics((queries, candidates), several, **how), in_rows)
        assert same(ranking_metrics((queries, candidates), several, pools=pools, **how), in_pools)


def test_copies_of_a_candidate_tie_and_near_copies_do_not():
    """Float32 products of copies differ with their place in a tile, and hide differences far below their rounding."""
    rng = np.random.default_rng(2)
    one = rng.normal(size=(1, 512))
    candidates = np.concatenate([np.repeat(one, 65, axis=0), -np.repeat(one, 30, axis=0)])
    found = ranking_metrics((rng.normal(size=(64, 512)) + one, candidates), np.arange(64), ks=[1])
    assert np.allclose(found["hit_1"].per_query, 1 / 65, rtol=1e-15)
    candidates = np.repeat(rng.normal(size=(1, 64)), 30, axis=0).astype(np.float32)
    for at in range(30):
        candidates[at, at] = np.nextafter(candidates[at, at], np.float32(np.inf))
    doubles = candidates.astype(float)
    scores = (doubles.sum(axis=1) / np.linalg.norm(doubles, axis=1))[None]
    for at in range(30):
        ours = ranking_metrics((np.ones((1, 64)), candidates), [at], ks=[1])
        assert ours["mrr"].value == ranking_metrics(scores, [at], ks=[1])["mrr"].value


@pytest.mark.gpu
def test_rankings_have_the_same_bits_on_a_gpu(features):
    queries, candidates, relevant = features
    pools = random_pools(relevant[:, None])
    for options in ({}, {"pools": pools, "ks": [1]}, {"block_bytes": 5000}):
        here, there = (
            ranking_metrics((queries, candidates), relevant, device=on, **options) for on in ("cpu", "cuda")
        )
        assert same(here, there)
    scores = torch.from_numpy(queries @ candidates.T)
    assert same(ranking_metrics(scores, relevant), ranking_metrics(scores.cuda(), relevant))


def test_tiny_and_huge_features():
    rng = np.random.default_rng(6)
    queries, candidates = rng.normal(size=(9, 8)), rng.normal(size=(7, 8))
    plain = ranking_metrics((queries, candidates), np.arange(9) % 7, ks=[1])
    for left, right in ((1e-30, 1e30), (2.0**100, 2.0**-100)):
        pair = queries * left, candidates * right
        assert same(plain, ranking_metrics(pair, np.arange(9) % 7, ks=[1]))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_order_does_not_matter_and_values_grow_with_k(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, size=(12, 9))
    relevant = [rng.permutation(9)[: rng.integers(0, 4)] for _ in range(12)]
    plain = ranking_metrics(scores, relevant, ks=range(1, 10))
    queries, candidates = rng.permutation(12), rng.permutation(9)
    place = np.argsort(candidates)
    own = [rng.permutation(place[relevant[q]]) for q in queries]
    moved = ranking_metrics(scores[queries][:, candidates], own, ks=range(1, 10))
    for name in plain:
        assert np.array_equal(plain[name].per_query[queries], moved[name].per_query, equal_nan=True)
        assert plain[name].value == moved[name].value
        assert not (plain[name].per_query < 0).any()
        assert not (plain[name].per_query > 1).any()
    for kind in ("hit", "recall"):
        by_k = np.stack([plain[f"{kind}_{k}"].per_query for k in range(1, 10)])
        assert not (np.diff(by_k, axis=0) < -1e-12).any()


def test_queries_without_relevant_candidates_are_left_out():
    scores = np.array([[2, 1], [2, 1], [2, 1]])
    found = ranking_metrics(scores, [[1], [], [0, 1]], ks=[1])
    assert (found.n_queries, found.n_undefined, found["hit_1"].n, found["hit_1"].value) == (3, 1, 2, 0.5)
    assert np.isnan(found["hit_1"].per_query).tolist() == [False, True, False]
    assert ranking_metrics(scores, [[], [], []], ks=[1])["mrr"].value is None
    rows, relevant = np.array([[0, 1]] * 15 + [[1, 0]] * 15), np.zeros((30, 1), dtype=int)
    alone = ranking_metrics(rows, relevant, ks=[1])["hit_1"]
    both = ranking_metrics(
        rows.repeat(2, axis=0), [each for one in relevant.tolist() for each in (one, [])], ks=[1]
    )
    assert (both["hit_1"].interval, both["hit_1"].n_units) == (alone.interval, 30)


@pytest.mark.filterwarnings("error")
def test_scores_of_every_type_are_ordered():
    assert ranking_metrics(np.array([[-np.inf, 0.5, np.inf]]), [1], ks=[1])["mrr"].value == 0.5
    whole = np.array([[3, 1, 2]])
    whole.flags.writeable = False
    for kind in ("int8", "uint8", "uint16", "int64", ">f4", "f2", "f8"):
        assert ranking_metrics(whole.astype(kind), [2], ks=[1])["mrr"].value == 0.5
    for kind in (torch.bfloat16, torch.int32):
        scores = torch.tensor(whole.copy()).to(kind)
        assert ranking_metrics(scores, torch.tensor([2]), ks=[1])["mrr"].value == 0.5
    # One apart beyond 2^53, where floats are not.
    close = np.array([[2**60 + 1, 2**60, 0]])
    assert ranking_metrics(close, [1], ks=[1])["mrr"].value == 0.5
    assert ranking_metrics(close, [1], ks=[1], pools=[[1, 0, -1]])["mrr"].value == 0.5


def test_intervals_are_those_of_halves():
    rng = np.random.default_rng(8)
    found = ranking_metrics(rng.normal(size=(50, 10)), rng.integers(0, 10, size=50), ks=[1], seed=3)
    values = torch.from_numpy(found["ndcg"].per_query)
    replicates = halved(lambda weights: weights @ values / weights.sum(dim=1), 50, seed=3)
    assert torch.allclose(found["ndcg"].replicates, replicates, rtol=1e-14)
    expected = interval_of(found["ndcg"].value, replicates, n=50, upper=None)
    assert found["ndcg"].interval.low == pytest.approx(expected.low, rel=1e-12)
    # A share has the exact binomial interval to fall back on.
    assert found["hit_1"].interval == interval_of(found["hit_1"].value, found["hit_1"].replicates, n=50)
    assert ranking_metrics(np.eye(9), np.arange(9), ks=[1])["mrr"].interval is None
    assert ranking_metrics(np.eye(10), np.arange(10), ks=[1])["mrr"].interval is not None


def test_groups_are_resampled_together():
    """Copies of a query count as one unit; the mean is over queries, regardless of group sizes."""
    rng = np.random.default_rng(9)
    scores, relevant = rng.normal(size=(40, 10)), rng.integers(0, 10, size=40)
    groups = [f"prompt {at}" for at in range(40) for _ in range(5)]
    copied = ranking_metrics(scores.repeat(5, axis=0), relevant.repeat(5), ks=[1], groups=groups)
    alone, naive = (ranking_metrics(scores.repeat(n, axis=0), relevant.repeat(n), ks=[1]) for n in (1, 5))
    width, plain, narrow = (
        each["mrr"].interval.high - each["mrr"].interval.low for each in (copied, alone, naive)
    )
    assert copied["mrr"].n_units == 40
    assert width == pytest.approx(plain, rel=1e-9)
    assert narrow < 0.7 * plain
    as_tensor = {"ks": [1], "groups": torch.arange(40).repeat_interleave(5)}
    again = ranking_metrics(scores.repeat(5, axis=0), relevant.repeat(5), **as_tensor)
    assert again["mrr"].interval == copied["mrr"].interval
    scores = np.array([[1, 0]] * 19 + [[0, 1]] * 11)
    found = ranking_metrics(scores, [0] * 30, ks=[1], groups=[0] * 19 + list(range(1, 12)))["hit_1"]
    assert found.value == pytest.approx(19 / 30)
    with_group = found.replicates[found.replicates > 0]
    assert torch.allclose(with_group, torch.tensor(19 / (19 + 5), dtype=torch.float64))


ZEROS = np.zeros((2, 3))
NO_RANKS = [kind for kind in SPECIAL if kind != "nested"]  # torch nests no single numbers
BAD = [
    *((scores, [0], {}, DataError) for scores in ([[1, 2]], np.array([["a"]]), np.eye(1) > 0, np.eye(1) * 1j)),
    *((scores, [0], {}, DataError) for scores in (np.zeros(3), np.zeros((0, 3)), torch.eye(1).to_sparse())),
    (np.array([[0.0, np.nan]]), [0], {}, DataError),
    *((np.zeros((1, 2), kind), [0], {}, DataError) for kind in (np.longdouble, np.uint64)),
    (torch.eye(1).to(torch.uint16), [0], {}, DataError),
    *((ZEROS, relevant, {}, DataError) for relevant in ([0], [0, 3], [0, -1], [0, 1.5], [[0, 0], [1]], [[0, [1]], [1]])),
    *((ZEROS, relevant, {}, UsageError) for relevant in ("01", ["0", "1"], None, [[0], {1: 2}])),
    *(
        (ZEROS, [0, 1], {"pools": np.array(pools)}, DataError)
        for pools in ([[0, 1]], [[0, 3], [0, 1]], [[0, -2], [0, 1]], [[0, 0], [0, 1]], [[-1, -1], [0, 1]], [[0, 1], [0, 2]])
    ),
    *((ZEROS, [0, 1], {"ks": ks}, UsageError) for ks in ([0], [1.5], [True], [4])),
    (ZEROS, [0, 1], {"pools": np.array([[0, 1], [1, 2]]), "ks": [3]}, UsageError),
    *((ZEROS, [0, 1], {name: "x"}, UsageError) for name in ("groups", "seed", "block_bytes")),
    (ZEROS, [0, 1], {"groups": [["a"], "b"]}, UsageError),
    ((np.eye(3), np.eye(2)), [0, 1, 1], {}, FeatureError),
    ((np.eye(2), np.diag([1.0, 0.0])), [0, 1], {}, FeatureError),
    ((np.eye(2),) * 3, [0, 1], {}, UsageError),
    (torch.zeros(2, 3, dtype=torch.float8_e4m3fn), [0, 1], {}, DataError),
    *((special(kind, torch.zeros(2, 3)), [0, 1], {}, DataError) for kind in SPECIAL),
    *((ZEROS, special(kind, torch.arange(2)), {}, UsageError) for kind in NO_RANKS),
    *((ZEROS, [0, 1], {"pools": special(kind, torch.eye(2).long())}, DataError) for kind in SPECIAL),
    *((ZEROS, [0, 1], {"groups": special(kind, torch.arange(2))}, UsageError) for kind in NO_RANKS),
]  # fmt: skip


@pytest.mark.parametrize(("scores", "relevant", "options", "error"), BAD, ids=range(len(BAD)))
def test_invalid_rankings_are_errors(scores, relevant, options, error):
    with pytest.raises(error) as caught:
        ranking_metrics(scores, relevant, **({"ks": [1]} | options))
    assert len(str(caught.value)) < 400


def test_values_equal_scikit_learn_where_definitions_agree():
    """Without ties, or with ties that scikit-learn averages over, too."""
    rng = np.random.default_rng(12)
    scores, grades = rng.integers(0, 6, size=(30, 15)), rng.integers(0, 4, size=(30, 15)) > 1
    found = ranking_metrics(scores, [np.flatnonzero(row) for row in grades], ks=[1, 5, 15])
    for k in (1, 5, 15):
        assert found[f"ndcg_{k}"].value == pytest.approx(ndcg_score(grades, scores, k=k), rel=1e-12)
    scores, flags = rng.permuted(np.tile(np.arange(20), (30, 1)), axis=1), rng.random((30, 20)) < 0.3
    flags[:, 0] = True
    found = ranking_metrics(scores, [np.flatnonzero(row) for row in flags], ks=[1])["map"]
    single = [average_precision_score(row, score) for row, score in zip(flags, scores, strict=True)]
    np.testing.assert_allclose(found.per_query, single, rtol=1e-12)
    assert found.value == pytest.approx(label_ranking_average_precision_score(flags, scores), rel=1e-12)
