"""Copies of training images: rates, their null, and micro-AP, against plain loops over all pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from genpr import DataError, UsageError
from genpr.errors import FeatureError
from genpr.metrics.copy_detection import _rows_of_null, best_pairs, chance_of_ap, copy_detection, most_similar
from genpr.metrics.similarity import FeaturePairs


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
    return pairs.exact(grid[:, 0], grid[:, 1]).view(len(ours), len(theirs)).numpy()


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


def test_definition_is_the_cosine(sets):
    generated, train, _ = sets
    plain = generated.astype(float) @ train.astype(float).T
    plain /= np.linalg.norm(generated.astype(float), axis=1)[:, None] * np.linalg.norm(
        train.astype(float), axis=1
    )
    np.testing.assert_allclose(cosines(generated, train), plain, rtol=0, atol=1e-15)


@pytest.mark.parametrize("block_bytes", [700, 4000, 10**8])
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


def test_a_threshold_itself_is_no_copy():
    found = copy_detection(np.array([[1.0, 0], [1, 1]]), np.array([[1.0, 0], [0, 1]]), threshold=1)
    assert found.rate.value == 0
    below = copy_detection(
        np.array([[1.0, 0], [1, 1]]), np.array([[1.0, 0], [0, 1]]), threshold=np.nextafter(1, 0)
    )
    assert below.rate.value == 0.5


def test_null_of_some_training_images(sets):
    generated, train, _ = sets
    rows = _rows_of_null(41, 9, 5)
    found = copy_detection(generated, train, null_rows=9, seed=5)
    whole = copy_detection(generated, train)
    assert np.array_equal(found.null_similarity, whole.null_similarity[rows.numpy()])
    assert len(set(rows.tolist())) == 9


def test_copies_within_the_training_set_are_their_nearest(sets):
    _, train, _ = sets
    rows = torch.arange(41)
    pairs = FeaturePairs(torch.from_numpy(train), torch.from_numpy(train), "cosine")
    nearest, cosine = most_similar(pairs, 10**6, own=rows)
    assert nearest[:5].tolist() == [30, 31, 32, 33, 34]
    assert nearest[30:35].tolist() == [0, 1, 2, 3, 4]
    assert (nearest != rows).all()
    assert torch.allclose(cosine[:5], torch.ones(5, dtype=torch.float64), atol=1e-15)


@pytest.mark.parametrize("block_bytes", [700, 4000, 10**8])
def test_micro_ap(sets, block_bytes):
    generated, train, known = sets
    table = cosines(generated, train)
    found = copy_detection(generated, train, true_pairs=known, block_bytes=block_bytes).ap
    assert found.value == pytest.approx(plain_micro_ap(table, known), rel=1e-13)
    assert 0.3 < found.value < 1
    assert (found.n_true, found.n_unranked, found.n_pairs) == (12, 0, 50 * 41)
    assert found.value in found.interval


def test_micro_ap_is_average_precision_of_scikit_learn(sets):
    from sklearn.metrics import average_precision_score

    generated, train, known = sets
    # Without the copies among training images, whose ties scikit-learn ranks otherwise.
    train, known = train[:30], [pair for pair in known if pair[1] < 30]
    table = cosines(generated, train)
    flags = np.zeros(table.shape, dtype=int)
    flags[tuple(np.array(known).T)] = 1
    found = copy_detection(generated, train, true_pairs=known).ap
    assert found.value == pytest.approx(average_precision_score(flags.ravel(), table.ravel()), rel=1e-13)


def test_micro_ap_of_halves_is_that_of_their_images(sets):
    from genpr.metrics.halved import halved

    generated, train, known = sets
    table = cosines(generated, train)
    seen = []
    halved(lambda weights: seen.append(weights.numpy()) or weights[:, 0], 50, seed=0)
    weights = np.concatenate(seen)
    found = copy_detection(generated, train, true_pairs=known, seed=0).ap
    for at in (0, 1, 40):
        assert float(found.replicates[at]) == pytest.approx(
            plain_micro_ap(table, known, weights[at]), rel=1e-13
        )


@pytest.mark.parametrize("block_bytes", [700, 4000, 10**8])
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


@pytest.mark.parametrize("block_bytes", [700, 4000, 10**8])
def test_best_pairs_are_the_best(sets, block_bytes):
    generated, train, _ = sets
    table = cosines(generated, train)
    pairs = FeaturePairs(torch.from_numpy(generated), torch.from_numpy(train), "cosine")
    for least, most in ((0.5, 10**6), (-1.0, 100), (0.9, 3)):
        found = best_pairs(pairs, least, most=most, budget=block_bytes)
        ordered = np.sort(table.ravel())[::-1]
        limit = max(least, np.nextafter(ordered[most], np.inf)) if most < len(ordered) else least
        assert {*zip(found.left.tolist(), found.right.tolist(), strict=True)} == {
            *map(tuple, np.argwhere(table >= limit).tolist())
        }
        assert np.array_equal(found.cosine.numpy(), ordered[ordered >= limit])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_same_bits_on_a_gpu(sets):
    generated, train, known = sets
    here, there = (
        copy_detection(generated, train, true_pairs=known, device=device) for device in ("cpu", "cuda")
    )
    assert np.array_equal(here.similarity, there.similarity)
    assert np.array_equal(here.nearest, there.nearest)
    assert np.array_equal(here.null_similarity, there.null_similarity)
    assert here.ap.value == there.ap.value


def test_chance_of_micro_ap():
    for relevant, pool in ((1, 1), (1, 7), (3, 7), (7, 7), (4, 400)):
        harmonic = sum(1 / i for i in range(1, pool + 1))
        share = (relevant - 1) / (pool - 1) if pool > 1 else 0
        expected = sum((1 + (i - 1) * share) / i for i in range(1, pool + 1)) / pool
        assert chance_of_ap(relevant, pool) == pytest.approx(expected, rel=1e-12)
        assert relevant > 1 or chance_of_ap(relevant, pool) == pytest.approx(harmonic / pool, rel=1e-12)
    assert chance_of_ap(5, 10**12) < 1e-9


def test_unknown_features_score_chance():
    """All pairs alike."""
    found = copy_detection(np.ones((4, 3)), np.ones((5, 3)), true_pairs=[(0, 1), (2, 2)])
    assert found.ap.value == pytest.approx(found.ap.chance, rel=1e-12)
    assert found.nearest.tolist() == [0] * 4


def test_what_is_printed(sets):
    generated, train, known = sets
    text = str(copy_detection(generated, train, threshold=0.8, true_pairs=known))
    assert "copy rate 0.2" in text
    assert "above a cosine of 0.8" in text
    assert "of 41 training images near another one" in text
    assert "of 12 true pairs among 2,050; chance 0.0" in text


def test_progress_reaches_its_end(sets):
    generated, train, known = sets
    heard = []
    copy_detection(
        generated, train, true_pairs=known, progress=lambda done, total: heard.append((done, total))
    )
    assert heard[-1] == (41 * (50 + 50 + 41),) * 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"threshold": 1.5}, UsageError, "must be a cosine"),
        ({"threshold": True}, UsageError, "must be a cosine"),
        ({"threshold": float("nan")}, UsageError, "must be a cosine"),
        ({"null_rows": 0}, UsageError, "null_rows"),
        ({"most_pairs": 0}, UsageError, "most_pairs"),
        ({"seed": -1}, UsageError, "seed"),
        ({"block_bytes": 0}, UsageError, "block_bytes"),
        ({"true_pairs": []}, DataError, "at least one"),
        ({"true_pairs": [(0, 9)]}, DataError, r"train \(0 to 3\)"),
        ({"true_pairs": [(-1, 0)]}, DataError, "hold others"),
        ({"true_pairs": [(0, 0), (0, 0)]}, DataError, "a pair twice"),
        ({"true_pairs": [(0.5, 1)]}, DataError, "pairs of rows"),
        ({"true_pairs": [(0, 1, 2)]}, DataError, r"\(t, 2\)"),
        ({"train": np.eye(4)[:1]}, FeatureError, "train needs at least 2 rows"),
        ({"train": np.zeros((3, 4))}, FeatureError, "row 0 of train"),
        ({"train": np.eye(3)}, FeatureError, "generated has 4 features per image but train has 3"),
        ({"generated": np.zeros((0, 4))}, FeatureError, "generated needs at least 1 row"),
    ],
    ids=itertools.count(),
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=message):
        copy_detection(**({"generated": np.eye(4), "train": np.eye(4)} | options))
