"""Rankings by score: every metric against the textbook, over every order of equal scores."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import ranking_oracle
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genpr import DataError, UsageError, ranking_metrics
from genpr.errors import FeatureError
from genpr.metrics.halved import halved
from genpr.metrics.ranking import distractor_pools
from genpr.metrics.uncertainty import interval_of

NAMES = {"ndcg_cut": "ndcg_{k}", "hit": "hit_{k}", "precision": "precision_{k}", "recall": "recall_{k}"}


def small_case(rng):
    """Scores with many ties, what is relevant, grades, and a cut."""
    c = int(rng.integers(2, 7))
    scores = rng.integers(0, rng.integers(1, 5), size=c)
    relevant = rng.permutation(c)[: rng.integers(1, c + 1)]
    return (
        scores,
        relevant.tolist(),
        rng.integers(1, 4, size=len(relevant)).tolist(),
        int(rng.integers(1, c + 1)),
    )


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


def defined_scores(queries, candidates, similarity):
    """The definition, with numpy's float64."""
    products = queries.astype(float) @ candidates.astype(float).T
    if similarity == "inner":
        return products
    norms = [np.linalg.norm(rows.astype(float), axis=1) for rows in (queries, candidates)]
    return products / norms[0][:, None] / norms[1]


class TestAgainstTextbook:
    @pytest.mark.parametrize("gain", ["linear", "exponential"])
    @pytest.mark.parametrize("ties", ["expected", "pessimistic"])
    def test_small_rankings(self, ties, gain):
        oracle = ranking_oracle.expected if ties == "expected" else ranking_oracle.worst
        rng = np.random.default_rng(1)
        for _ in range(45):
            scores, relevant, grades, k = small_case(rng)
            found = ranking_metrics(
                scores[None], [relevant], ks=[k], relevance=[grades], gain=gain, ties=ties
            )
            worth = {c: g if gain == "linear" else 2**g - 1 for c, g in zip(relevant, grades, strict=True)}
            by_chance = ranking_oracle.expected([0] * len(scores), worth, k)
            for name, value in oracle(scores.tolist(), worth, k).items():
                ours = found[NAMES.get(name, name).format(k=k)]
                assert ours.value == pytest.approx(value, abs=1e-14), (name, scores, relevant, k)
                assert ours.chance == pytest.approx(by_chance[name], abs=1e-14), (name, scores, relevant, k)

    def test_rankings_without_ties_to_the_last_bit(self):
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

    def test_large_ties_keep_their_precision(self):
        """A relevant one among e equal ones after g others: the sums of the definition, term by term."""
        scores = np.zeros((1, 9000), dtype=np.int64)
        scores[0, :5000] = 1
        found = ranking_metrics(scores, [[8000, 8001, 12]], ks=[6000])
        g, e = 5000, 4000
        places = np.arange(g + 1, g + e + 1, dtype=np.longdouble)
        before = 2 + (places - g - 1) / (e - 1)
        first = np.mean(1 / np.arange(1, 5001, dtype=np.longdouble))
        ap = (first + 2 * np.mean(before / places)) / 3
        assert found["map"].value == pytest.approx(float(ap), rel=1e-14)
        assert found["hit_6000"].value == 1
        assert found["recall_6000"].value == pytest.approx((1 + 2 * 1000 / 4000) / 3, rel=1e-15)


class TestChance:
    @given(st.integers(2, 300), st.integers(0, 299), st.integers(0, 10**6))
    @settings(max_examples=40, deadline=None)
    def test_constant_scores_get_chance_to_the_last_bit(self, pool, relevant, score):
        found = ranking_metrics(np.full((2, pool), score), [relevant % pool] * 2, ks=[1, min(5, pool)])
        assert all(metric.value == metric.chance for metric in found.values())

    def test_closed_forms_for_one_relevant(self):
        found = ranking_metrics(np.random.default_rng(0).normal(size=(20, 100)), np.arange(20))
        harmonic = sum(1 / i for i in range(1, 101))
        for k in (1, 5, 10):
            assert found[f"hit_{k}"].chance == pytest.approx(k / 100, rel=1e-15)
        assert found["mrr"].chance == pytest.approx(harmonic / 100, rel=1e-15)
        assert found["map"].chance == pytest.approx(harmonic / 100, rel=1e-15)
        assert found["ndcg"].chance == pytest.approx(
            sum(1 / np.log2(1 + i) for i in range(1, 101)) / 100, rel=1e-14
        )
        assert found["r_precision"].chance == 0.01
        assert found.pool == (100, 100)

    def test_several_relevant_of_pools_of_their_own(self):
        pools = np.full((2, 8), -1)
        pools[0, :5], pools[1] = np.arange(5), np.arange(8)[::-1]
        found = ranking_metrics(np.zeros((2, 9)), [[0, 1], [2, 3, 4]], ks=[2], pools=pools)
        # None of 2 draws: 3/5 2/4, and 5/8 4/7.
        assert found["hit_2"].chance == pytest.approx(1 - (3 / 5 * 2 / 4 + 5 / 8 * 4 / 7) / 2, rel=1e-15)
        assert found["recall_2"].chance == pytest.approx((2 / 5 + 2 / 8) / 2, rel=1e-15)
        assert found.pool == (5, 8)
        # What a pool lacks is no candidate of it, whatever its score.
        assert all(metric.value == metric.chance for metric in found.values())
        assert "pools of 5 to 8 candidates" in str(found)

    def test_pool_and_chance_are_printed(self):
        text = str(ranking_metrics(np.eye(20), np.arange(20), ks=[1]))
        assert "20 queries, pool of 20 candidates, equal scores: in any order, on average" in text
        assert text.splitlines()[2].split() == ["r_precision", "1.0000", "0.8316", "..", "1.0000", "0.0500"]

    def test_random_scores_have_an_interval_that_holds_chance(self):
        """Of 95 % intervals; 60 or more of 64 with a probability of .97 at least, were they exact."""
        rng = np.random.default_rng(11)
        held = np.zeros(4)
        for _ in range(64):
            found = ranking_metrics(rng.normal(size=(300, 20)), rng.integers(0, 20, size=300), ks=[5])
            held += [
                found[name].chance in found[name].interval for name in ("hit_5", "mrr", "ndcg", "r_precision")
            ]
        assert held.min() >= 58


class TestFeatures:
    @pytest.mark.parametrize("similarity", ["cosine", "inner"])
    def test_as_scores_by_the_definition(self, features, similarity):
        queries, candidates, relevant = features
        scores = defined_scores(queries, candidates, similarity)
        # numpy's sums differ in the last bit from copy to copy, so what is a copy gets the first one's scores.
        scores[:, 40:50] = scores[:, :10]
        if similarity == "cosine":
            scores[:, 50] = scores[:, 0]
        ours = ranking_metrics((queries, candidates), relevant, similarity=similarity)
        assert same(ours, ranking_metrics(scores, relevant))
        assert 0.1 < ours["mrr"].value < 0.9

    @pytest.mark.parametrize("block_bytes", [1000, 3000, 20_000, 10**9])
    @pytest.mark.parametrize("similarity", ["cosine", "inner"])
    def test_blocks_change_nothing(self, features, similarity, block_bytes):
        queries, candidates, relevant = features
        several = [
            [int(one), (int(one) + 7) % 57, (int(one) + 20) % 57][: 1 + at % 3]
            for at, one in enumerate(relevant)
        ]
        whole = ranking_metrics((queries, candidates), several, similarity=similarity)
        cut = ranking_metrics((queries, candidates), several, similarity=similarity, block_bytes=block_bytes)
        assert same(whole, cut)

    def test_copies_of_a_candidate_tie_wherever_they_are(self):
        """Float32 products of copies differ with their place in a tile; their scores must not."""
        rng = np.random.default_rng(2)
        one = rng.normal(size=(1, 512))
        candidates = np.concatenate([np.repeat(one, 65, axis=0), -np.repeat(one, 30, axis=0)])
        found = ranking_metrics((rng.normal(size=(64, 512)) + one, candidates), np.arange(64), ks=[1])
        assert np.allclose(found["hit_1"].per_query, 1 / 65, rtol=1e-15)

    def test_near_ties_are_told_apart(self):
        """Differences far below the rounding of float32 products."""
        rng = np.random.default_rng(4)
        query = np.full((1, 64), 1.0)
        candidates = np.repeat(rng.normal(size=(1, 64)), 30, axis=0).astype(np.float32)
        for at in range(30):
            candidates[at, at] = np.nextafter(candidates[at, at], np.float32(np.inf))
        scores = defined_scores(query.astype(np.float32), candidates, "inner")
        for one in range(30):
            ours = ranking_metrics((query, candidates), [one], similarity="inner", ks=[1])
            assert ours["mrr"].value == ranking_metrics(scores, [one], ks=[1])["mrr"].value

    def test_pools_rank_their_own_candidates(self, features):
        queries, candidates, relevant = features
        pools = distractor_pools(relevant, 57, distractors=9, seed=4)
        ours = ranking_metrics((queries, candidates), relevant, pools=pools, ks=[1, 3])
        for cut in (1, 900):
            assert same(
                ours,
                ranking_metrics((queries, candidates), relevant, pools=pools, ks=[1, 3], block_bytes=cut),
            )
        scores = defined_scores(queries, candidates, "cosine")
        scores[:, 40:50] = scores[:, :10]
        scores[:, 50] = scores[:, 0]
        rows = np.take_along_axis(scores, pools, axis=1)
        assert same(ours, ranking_metrics(rows, [0] * 83, ks=[1, 3]))

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    @pytest.mark.parametrize("similarity", ["cosine", "inner"])
    def test_same_bits_on_a_gpu(self, features, similarity):
        queries, candidates, relevant = features
        pools = distractor_pools(relevant, 57, distractors=9)
        for options in ({}, {"pools": pools, "ks": [1]}, {"block_bytes": 5000}):
            here, there = (
                ranking_metrics(
                    (queries, candidates), relevant, similarity=similarity, device=device, **options
                )
                for device in ("cpu", "cuda")
            )
            assert same(here, there)
        scores = torch.from_numpy(queries @ candidates.T)
        assert same(ranking_metrics(scores, relevant), ranking_metrics(scores.cuda(), relevant))

    def test_zero_queries_know_nothing_by_inner_product(self):
        found = ranking_metrics((np.zeros((2, 3)), np.eye(3)), [0, 1], similarity="inner", ks=[1])
        assert found["hit_1"].value == pytest.approx(1 / 3, rel=1e-15)

    def test_tiny_and_huge_features(self):
        rng = np.random.default_rng(6)
        queries, candidates = rng.normal(size=(9, 8)), rng.normal(size=(7, 8))
        plain = ranking_metrics((queries, candidates), np.arange(9) % 7, ks=[1])
        for left, right in ((1e-30, 1e30), (2.0**100, 2.0**-100)):
            for similarity in ("cosine", "inner"):
                scaled = ranking_metrics(
                    (queries * left, candidates * right), np.arange(9) % 7, ks=[1], similarity=similarity
                )
                if similarity == "cosine":
                    assert same(plain, scaled)
                assert scaled["mrr"].value > 0


class TestProperties:
    @given(st.integers(0, 2**32 - 1))
    @settings(max_examples=30, deadline=None)
    def test_order_does_not_matter(self, seed):
        rng = np.random.default_rng(seed)
        scores = rng.integers(0, 6, size=(12, 9))
        relevant = [rng.permutation(9)[: rng.integers(0, 4)] for _ in range(12)]
        plain = ranking_metrics(scores, relevant, ks=[1, 4])
        queries, candidates = rng.permutation(12), rng.permutation(9)
        place = np.argsort(candidates)
        moved = ranking_metrics(
            scores[queries][:, candidates], [rng.permutation(place[relevant[q]]) for q in queries], ks=[1, 4]
        )
        for name in plain:
            assert np.array_equal(plain[name].per_query[queries], moved[name].per_query, equal_nan=True)
            assert plain[name].value == moved[name].value

    @given(st.integers(0, 2**32 - 1))
    @settings(max_examples=30, deadline=None)
    def test_bounds_and_growth_with_k(self, seed):
        rng = np.random.default_rng(seed)
        scores = rng.integers(0, 5, size=(6, 8))
        relevant = [rng.permutation(8)[: rng.integers(1, 9)] for _ in range(6)]
        found = ranking_metrics(scores, relevant, ks=range(1, 9))
        worst = ranking_metrics(scores, relevant, ks=range(1, 9), ties="pessimistic")
        for name in found:
            assert 0 <= found[name].per_query.min() <= found[name].per_query.max() <= 1
            assert (worst[name].per_query <= found[name].per_query + 1e-12).all()
        for kind in ("hit", "recall"):
            by_k = np.stack([found[f"{kind}_{k}"].per_query for k in range(1, 9)])
            assert (np.diff(by_k, axis=0) >= -1e-12).all()
        assert np.allclose(found["recall_8"].per_query, 1)
        assert (found["mrr"].per_query >= found["hit_1"].per_query - 1e-12).all()

    def test_perfect_rankings_are_exactly_1(self):
        grades = np.array([[3.0, 2, 1], [1, 5, 0.5]])
        scores = np.array([[9, 8, 7, 0, 0], [2, 3, 1, 0, -1]])
        found = ranking_metrics(scores, [[0, 1, 2]] * 2, relevance=grades, ks=[3, 5])
        assert {
            name: found[name].value for name in ("ndcg", "ndcg_3", "map", "mrr", "recall_3", "r_precision")
        } == dict.fromkeys(("ndcg", "ndcg_3", "map", "mrr", "recall_3", "r_precision"), 1.0)

    def test_queries_without_anything_relevant_are_left_out(self):
        scores = np.array([[2, 1], [2, 1], [2, 1]])
        found = ranking_metrics(scores, [[1], [], [0, 1]], ks=[1])
        assert (found.n_queries, found.n_undefined, found["hit_1"].n) == (3, 1, 2)
        assert found["hit_1"].value == 0.5
        assert np.isnan(found["hit_1"].per_query).tolist() == [False, True, False]
        assert "(1 with nothing relevant, left out)" in str(found)
        assert ranking_metrics(scores, [[], [], []], ks=[1])["mrr"].value is None

    def test_infinite_scores_and_every_type_have_their_order(self):
        scores = np.array([[-np.inf, 0.5, np.inf]])
        assert ranking_metrics(scores, [1], ks=[1])["mrr"].value == 0.5
        whole = np.array([[3, 1, 2]])
        for kind in ("int8", "uint8", "uint16", "uint64", "int64", ">f4", "f2", "f8"):
            assert ranking_metrics(whole.astype(kind), [2], ks=[1])["mrr"].value == 0.5
        for kind in (torch.bfloat16, torch.float16, torch.int32):
            assert (
                ranking_metrics(torch.tensor(whole).to(kind), torch.tensor([2]), ks=[1])["mrr"].value == 0.5
            )
        # One apart beyond 2^53, where floats are not.
        close = np.array([[2**60 + 1, 2**60, 0]])
        assert ranking_metrics(close, [1], ks=[1])["mrr"].value == 0.5
        assert ranking_metrics(close, [1], ks=[1], pools=[[1, 0, -1]])["mrr"].value == 0.5

    def test_read_only_scores_warn_of_nothing(self):
        scores = np.eye(3)
        scores.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ranking_metrics(scores, [0, 1, 2], ks=[1])["mrr"].value == 1.0


class TestIntervals:
    def test_those_of_halves(self):
        rng = np.random.default_rng(8)
        found = ranking_metrics(rng.normal(size=(50, 10)), rng.integers(0, 10, size=50), ks=[1], seed=3)
        values = torch.from_numpy(found["ndcg"].per_query)
        replicates = halved(lambda weights: weights @ values / weights.sum(dim=1), 50, seed=3)
        assert torch.allclose(found["ndcg"].replicates, replicates, rtol=1e-14)
        expected = interval_of(found["ndcg"].value, replicates, n=50, upper=None)
        assert found["ndcg"].interval.low == pytest.approx(expected.low, rel=1e-12)
        # A share has the exact binomial interval to fall back on.
        hits = interval_of(found["hit_1"].value, found["hit_1"].replicates, n=50)
        assert found["hit_1"].interval == hits

    def test_groups_are_drawn_together(self):
        """Queries that are copies of each other are worth one."""
        rng = np.random.default_rng(9)
        scores, relevant = rng.normal(size=(40, 10)), rng.integers(0, 10, size=40)
        alone = ranking_metrics(scores, relevant, ks=[1])
        groups = [f"prompt {at}" for at in range(40) for _ in range(5)]
        copied = ranking_metrics(scores.repeat(5, axis=0), relevant.repeat(5), ks=[1], groups=groups)
        naive = ranking_metrics(scores.repeat(5, axis=0), relevant.repeat(5), ks=[1])
        width = {
            name: found["mrr"].interval.high - found["mrr"].interval.low
            for name, found in (("alone", alone), ("copied", copied), ("naive", naive))
        }
        assert copied["mrr"].n_units == 40
        assert width["copied"] == pytest.approx(width["alone"], rel=1e-9)
        assert width["naive"] < 0.7 * width["alone"]

    def test_groups_are_ratios_of_sums(self):
        """A mean over queries, however many of them a group has."""
        scores = np.array([[1, 0]] * 19 + [[0, 1]] * 11)
        groups = [0] * 19 + list(range(1, 12))
        found = ranking_metrics(scores, [0] * 30, ks=[1], groups=groups)
        assert found["hit_1"].value == pytest.approx(19 / 30)
        halves = found["hit_1"].replicates
        with_group = halves[halves > 0]
        assert torch.allclose(with_group, torch.tensor(19 / (19 + 5), dtype=torch.float64))

    def test_fewer_than_ten_have_none(self):
        found = ranking_metrics(np.eye(9), np.arange(9), ks=[1])
        assert found["mrr"].interval is None
        assert found["mrr"].replicates is None
        assert ranking_metrics(np.eye(10), np.arange(10), ks=[1])["mrr"].interval is not None


class TestPools:
    def test_distractors_are_drawn_evenly(self):
        pools = distractor_pools(np.zeros(6000, dtype=int) + 3, 6, distractors=2, seed=1)
        assert (pools[:, 0] == 3).all()
        counts = np.bincount(pools[:, 1:].ravel(), minlength=6)
        assert counts[3] == 0
        assert np.abs(np.delete(counts, 3) - 2400).max() < 5 * np.sqrt(2400 * 0.6)
        assert (pools[:, 1] != pools[:, 2]).all()

    @given(st.integers(0, 2**32 - 1))
    @settings(max_examples=25, deadline=None)
    def test_pools_are_what_they_should_be(self, seed):
        rng = np.random.default_rng(seed)
        relevant = [rng.permutation(12)[: rng.integers(0, 4)].tolist() for _ in range(5)]
        pools = distractor_pools(relevant, 12, distractors=int(rng.integers(1, 9)), seed=seed % 1000)
        for own, pool in zip(relevant, pools.tolist(), strict=True):
            there = [one for one in pool if one >= 0]
            assert len(set(there)) == len(there) == len(own) + pools.shape[1] - max(map(len, relevant))
            assert set(own) <= set(there)
            assert all(0 <= one < 12 for one in there)

    def test_pinned(self):
        """A pool is part of a score's recipe: the same on every machine and with every version."""
        assert distractor_pools([5, 2], 100, distractors=4, seed=7).tolist() == [
            [5, 48, 95, 7, 24],
            [2, 31, 14, 16, 79],
        ]

    def test_impossible_ones(self):
        with pytest.raises(UsageError, match="9 distractors cannot be drawn: of 10 candidates up to 2"):
            distractor_pools([[0, 1]], 10, distractors=9)
        with pytest.raises(DataError, match="from 0 to 9, but one is 10"):
            distractor_pools([10], 10, distractors=2)


class TestRefusals:
    @pytest.mark.parametrize(
        ("scores", "code"),
        [
            ([[1, 2]], "bad-scores"),
            (np.array([["a", "b"]]), "bad-scores"),
            (np.eye(2) > 0, "bad-scores"),
            (np.eye(2, dtype=complex), "bad-scores"),
            (np.zeros(3), "bad-scores"),
            (np.zeros((0, 3)), "bad-scores"),
            (np.zeros((1, 2), dtype=np.longdouble), "bad-scores"),
            (np.full((1, 2), 2**63, dtype=np.uint64), "bad-scores"),
            (torch.eye(2).to_sparse(), "bad-scores"),
            (np.array([[0.0, np.nan]]), "nan-scores"),
        ],
        ids=[
            "list",
            "text",
            "bool",
            "complex",
            "flat",
            "empty",
            "longdouble",
            "beyond-int64",
            "sparse",
            "nan",
        ],
    )
    def test_scores(self, scores, code):
        with pytest.raises(DataError, match="scores must") as caught:
            ranking_metrics(scores, [0], ks=[1])
        assert caught.value.code == code

    def test_where_a_score_is_nan(self):
        scores = np.zeros((3000, 4))
        scores[2001, 3] = np.nan
        with pytest.raises(DataError, match="query 2001 for candidate 3"):
            ranking_metrics(scores, [0] * 3000, ks=[1])

    @pytest.mark.parametrize(
        "relevant",
        [
            [0],
            [0, 3],
            [0, -1],
            [0, 1.5],
            [0, True],
            [[0, 0], [1]],
            ["0", "1"],
            "01",
            None,
            [[0], {1: 2}],
        ],
        ids=["few", "beyond", "negative", "half", "bool", "twice", "texts", "text", "none", "dict"],
    )
    def test_relevant(self, relevant):
        with pytest.raises(DataError) as caught:
            ranking_metrics(np.zeros((2, 3)), relevant, ks=[1])
        assert caught.value.code == "bad-relevant"

    @pytest.mark.parametrize(
        ("relevance", "gain"),
        [([[1], [0]], "linear"), ([[1], [-1]], "linear"), ([[1], [np.inf]], "linear"), ([[1], [2000]], "exponential"),
         ([[1], ["a"]], "linear"), ([[1]], "linear"), ([[1, 1], [1]], "linear"), ([[1], [np.nan]], "linear")],
        ids=["zero", "negative", "infinite", "overflow", "text", "few", "many", "nan"],
    )  # fmt: skip
    def test_relevance(self, relevance, gain):
        with pytest.raises(DataError, match="relevance") as caught:
            ranking_metrics(np.zeros((2, 3)), [[0], [1]], ks=[1], relevance=relevance, gain=gain)
        assert caught.value.code == "bad-relevance"

    @pytest.mark.parametrize(
        ("pools", "code"),
        [
            ([[0, 1]], "bad-pools"),
            ([[0, 3], [0, 1]], "bad-pools"),
            ([[0, -2], [0, 1]], "bad-pools"),
            ([[0, 0], [0, 1]], "bad-pools"),
            ([[-1, -1], [0, 1]], "bad-pools"),
            ([[0.0, 1.0], [0, 1]], "bad-pools"),
            ([[0, 1], [0, 2]], "relevant-not-in-pool"),
        ],
        ids=["few", "beyond", "negative", "twice", "empty", "floats", "without"],
    )
    def test_pools(self, pools, code):
        with pytest.raises(DataError) as caught:
            ranking_metrics(np.zeros((2, 3)), [0, 1], ks=[1], pools=np.array(pools))
        assert caught.value.code == code

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"ks": [0]}, "bad-k"),
            ({"ks": []}, "bad-k"),
            ({"ks": [1.5]}, "bad-k"),
            ({"ks": [True]}, "bad-k"),
            ({"ks": [2, 2]}, "bad-k"),
            ({"ks": [4]}, "k-beyond-pool"),
            ({"pools": np.array([[0, 1], [1, 2]]), "ks": [3]}, "k-beyond-pool"),
            ({"ties": "optimistic"}, "bad-ties"),
            ({"gain": "log"}, "bad-gain"),
            ({"similarity": "l2"}, "bad-similarity"),
            ({"groups": ["a"]}, "bad-groups"),
            ({"groups": [["a"], "b"]}, "bad-groups"),
            ({"seed": -1}, "bad-option"),
            ({"block_bytes": 0}, "bad-option"),
        ],
        ids=lambda value: str(value) if isinstance(value, str) else "-".join(value),
    )
    def test_options(self, options, code):
        with pytest.raises(UsageError) as caught:
            ranking_metrics(np.zeros((2, 3)), [0, 1], **({"ks": [1]} | options))
        assert caught.value.code == code

    def test_features(self):
        with pytest.raises(FeatureError, match="queries has 3 features per image but candidates has 2"):
            ranking_metrics((np.eye(3), np.eye(2)), [0, 1, 1])
        with pytest.raises(FeatureError, match="row 1 of candidates"):
            ranking_metrics((np.eye(2), np.diag([1.0, 0.0])), [0, 1])
        with pytest.raises(UsageError, match="not 3 arrays"):
            ranking_metrics((np.eye(2),) * 3, [0, 1])


class TestScikitLearn:
    """Where definitions agree: without ties, or with those that it averages over as we do."""

    def test_ndcg_with_grades_and_ties(self):
        from sklearn.metrics import ndcg_score

        rng = np.random.default_rng(12)
        scores, grades = rng.integers(0, 6, size=(30, 15)), rng.integers(0, 4, size=(30, 15))
        relevant = [np.flatnonzero(row) for row in grades]
        found = ranking_metrics(scores, relevant, relevance=[row[row > 0] for row in grades], ks=[1, 5, 15])
        for k in (1, 5, 15):
            assert found[f"ndcg_{k}"].value == pytest.approx(ndcg_score(grades, scores, k=k), rel=1e-12)
        exponential = ranking_metrics(
            scores, relevant, relevance=[row[row > 0] for row in grades], gain="exponential", ks=[5]
        )
        assert exponential["ndcg"].value == pytest.approx(ndcg_score(2.0**grades - 1, scores), rel=1e-12)

    def test_average_precision_without_ties(self):
        from sklearn.metrics import average_precision_score, label_ranking_average_precision_score

        rng = np.random.default_rng(13)
        scores = rng.permuted(np.tile(np.arange(20), (30, 1)), axis=1)
        flags = rng.random((30, 20)) < 0.3
        flags[:, 0] = True
        found = ranking_metrics(scores, [np.flatnonzero(row) for row in flags], ks=[1])
        single = [average_precision_score(row, score) for row, score in zip(flags, scores, strict=True)]
        np.testing.assert_allclose(found["map"].per_query, single, rtol=1e-12)
        assert found["map"].value == pytest.approx(
            label_ranking_average_precision_score(flags, scores), rel=1e-12
        )

    def test_hits_are_top_k_accuracy(self):
        from sklearn.metrics import top_k_accuracy_score

        rng = np.random.default_rng(14)
        scores, relevant = rng.normal(size=(200, 12)), rng.integers(0, 12, size=200)
        found = ranking_metrics(scores, relevant)
        for k in (1, 5, 10):
            expected = top_k_accuracy_score(relevant, scores, k=k, labels=np.arange(12))
            assert found[f"hit_{k}"].value == pytest.approx(expected, rel=1e-15)
