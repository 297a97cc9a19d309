"""Copies of training images: rates, their null, and micro-AP, against plain loops over all pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from genpr import GenprError
from genpr.metrics.copy_detection import best_pairs, chance_of_ap, copy_detection, rows_of_null
from genpr.metrics.ranking_values import halved
from genpr.metrics.similarity import FeaturePairs

BLOCKS = pytest.mark.parametrize("block_bytes", [700, 4000, 10**8])


@pytest.fixture(scope="module")
def sets():
    """50 generated images, 12 of them near copies, and 41 training images with copies among themselves; known pairs."""
    rng = np.random.default_rng(0)
    train = rng.normal(size=(41, 16)) + 0.5
    train[30:35] = train[:5]
    generated = rng.normal(size=(50, 16)) + 0.5
    known = [(at, int(rng.integers(0, 41))) for at in range(12)]
    for ours, theirs in known:
        generated[ours] = train[theirs] + 0.3 * rng.normal(size=16)
    return generated.astype(np.float32), train.astype(np.float32), known


def cosines(ours, theirs):
    """By the definition; copies of a row have the same, to the last bit."""
    pairs = FeaturePairs(torch.from_numpy(ours), torch.from_numpy(theirs), "cosine")
    grid = torch.cartesian_prod(torch.arange(len(ours)), torch.arange(len(theirs)))
    table = pairs.exact(grid[:, 0], grid[:, 1]).view(len(ours), len(theirs)).numpy()
    norms = [np.linalg.norm(each.astype(float), axis=1) for each in (ours, theirs)]
    plain = ours.astype(float) @ theirs.astype(float).T / norms[0][:, None] / norms[1]
    np.testing.assert_allclose(table, plain, rtol=0, atol=1e-15)
    return table


def plain_micro_ap(table, known, weight=None):
    """Mean over all orders of equal cosines, pair by pair."""
    weight = np.ones(len(table)) if weight is None else weight
    pairs = [
        (-table[i, j], (i, j) in known) for i, j in itertools.product(*map(range, table.shape)) if weight[i]
    ]
    pairs.sort(key=lambda pair: pair[0])
    total, before, true_before = 0.0, 0, 0
    for _, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        flags = [is_true for _, is_true in group]
        e, r = len(flags), sum(flags)
        for j in range(1, e + 1):
            # One of the true ones is at place j of the group, the others are anywhere else in it.
            others = (r - 1) * (j - 1) / (e - 1) if e > 1 else 0
            total += r / e * (true_before + 1 + others) / (before + j) if r else 0
        before, true_before = before + e, true_before + r
    return total / sum(weight[i] for i, _ in known)


@BLOCKS
def test_nearest_and_rates(sets, block_bytes):
    generated, train, _ = sets
    table = cosines(generated, train)
    found = copy_detection(generated, train, threshold=0.8, block_bytes=block_bytes)
    assert np.array_equal(found.similarity, table.max(axis=1))
    assert np.array_equal(found.nearest, table.argmax(axis=1))
    assert found.rate.value == (table.max(axis=1) > 0.8).mean()
    assert 0.1 < found.rate.value < 0.4
    among = cosines(train, train)
    np.fill_diagonal(among, -np.inf)
    assert np.array_equal(found.null_similarity, among.max(axis=1))
    assert found.null.value == (among.max(axis=1) > 0.8).mean() > 0.2
    assert found.rate.value in found.rate.interval
    assert found.null.n == 41
    rows = rows_of_null(41, 9, 5)
    assert len(set(rows.tolist())) == 9
    some = copy_detection(generated, train, null_rows=9, seed=5)
    assert np.array_equal(some.null_similarity, found.null_similarity[rows.numpy()])


def test_a_threshold_itself_is_no_copy():
    pair = np.array([[1.0, 0], [1, 1]]), np.array([[1.0, 0], [0, 1]])
    assert copy_detection(*pair, threshold=1).rate.value == 0
    assert copy_detection(*pair, threshold=np.nextafter(1, 0)).rate.value == 0.5


@BLOCKS
def test_micro_ap(sets, block_bytes):
    generated, train, known = sets
    table, seen = cosines(generated, train), []
    heard = []
    options = {"block_bytes": block_bytes, "progress": lambda done, total: heard.append((done, total))}
    found = copy_detection(generated, train, true_pairs=known, seed=0, **options).ap
    assert found.value == pytest.approx(plain_micro_ap(table, known), rel=1e-13)
    assert 0.3 < found.value < 1
    assert (found.n_true, found.n_unranked, found.n_pairs) == (12, 0, 50 * 41)
    assert found.value in found.interval
    assert heard[-1] == (41 * (50 + 50 + 41),) * 2
    halved(lambda weights: seen.append(weights.numpy()) or weights[:, 0], 50, seed=0)
    weights = np.concatenate(seen)
    for at in (0, 1, 40):
        of_half = plain_micro_ap(table, known, weights[at])
        assert float(found.replicates[at]) == pytest.approx(of_half, rel=1e-13)


def test_micro_ap_is_average_precision_of_scikit_learn(sets):
    generated, train, known = sets
    # Without the copies among training images, whose ties scikit-learn ranks otherwise.
    train, known = train[:30], [pair for pair in known if pair[1] < 30]
    table = cosines(generated, train)
    flags = np.zeros(table.shape, dtype=int)
    flags[tuple(np.array(known).T)] = 1
    found = copy_detection(generated, train, true_pairs=known).ap
    assert found.value == pytest.approx(average_precision_score(flags.ravel(), table.ravel()), rel=1e-13)


@BLOCKS
@pytest.mark.parametrize("most", [5, 40, 400])
def test_few_ranked_pairs_are_exact_above_the_last(sets, most, block_bytes):
    """True pairs beyond those ranked count as never found, and are counted."""
    generated, train, known = sets
    table = cosines(generated, train)
    beyond = np.sort(table.ravel())[::-1][most]
    reached = [pair for pair in known if table[pair] > beyond]
    found = copy_detection(generated, train, true_pairs=known, most_pairs=most, block_bytes=block_bytes).ap
    assert found.n_unranked == len(known) - len(reached)
    expected = plain_micro_ap(table, reached) * len(reached) / len(known) if reached else 0.0
    assert found.value == pytest.approx(expected, rel=1e-13)


@BLOCKS
def test_best_pairs_are_the_best(sets, block_bytes):
    generated, train, _ = sets
    table = cosines(generated, train)
    pairs = FeaturePairs(torch.from_numpy(generated), torch.from_numpy(train), "cosine", block_bytes)
    for least, most in ((0.5, 10**6), (-1.0, 100), (0.9, 3)):
        found = best_pairs(pairs, least, most=most)
        ordered = np.sort(table.ravel())[::-1]
        limit = max(least, np.nextafter(ordered[most], np.inf)) if most < len(ordered) else least
        both = zip(found.left.tolist(), found.right.tolist(), strict=True)
        assert {*both} == {*map(tuple, np.argwhere(table >= limit).tolist())}
        assert np.array_equal(found.cosine.numpy(), ordered[ordered >= limit])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_copies_have_the_same_bits_on_a_gpu(sets):
    generated, train, known = sets
    here, there = (copy_detection(generated, train, true_pairs=known, device=on) for on in ("cpu", "cuda"))
    for name in ("similarity", "nearest", "null_similarity"):
        assert np.array_equal(getattr(here, name), getattr(there, name))
    assert here.ap.value == there.ap.value


def test_chance_of_micro_ap():
    for relevant, pool in ((1, 1), (1, 7), (3, 7), (7, 7), (4, 400)):
        share = (relevant - 1) / (pool - 1) if pool > 1 else 0
        expected = sum((1 + (i - 1) * share) / i for i in range(1, pool + 1)) / pool
        assert chance_of_ap(relevant, pool) == pytest.approx(expected, rel=1e-12)
    assert chance_of_ap(5, 10**12) < 1e-9
    alike = copy_detection(np.ones((4, 3)), np.ones((5, 3)), true_pairs=[(0, 1), (2, 2)])
    assert alike.ap.value == pytest.approx(alike.ap.chance, rel=1e-12)
    assert alike.nearest.tolist() == [0] * 4


BAD = [
    *({"threshold": each} for each in (1.5, True, float("nan"), "a")),
    *({name: -1} for name in ("null_rows", "most_pairs", "seed", "block_bytes")),
    *({"true_pairs": pairs} for pairs in ([], [(0, 9)], [(-1, 0)], [(0, 0), (0, 0)], [(0.5, 1)], [(0, 1, 2)], 3)),
    *({"train": train} for train in (np.eye(4)[:1], np.zeros((3, 4)), np.eye(3), "a")),
    {"generated": np.zeros((0, 4))},
]  # fmt: skip


@pytest.mark.parametrize("options", BAD, ids=range(len(BAD)))
def test_bad_copies_are_one_clear_error(options):
    with pytest.raises(GenprError):
        copy_detection(**({"generated": np.eye(4), "train": np.eye(4)} | options))
