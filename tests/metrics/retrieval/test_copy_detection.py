"""Copies of training images: nearest images by exact cosine, rates above a threshold, and errors."""

import numpy as np
import pytest
import torch

from genpr import GenprError
from genpr.metrics.copy_detection import copy_detection
from genpr.metrics.similarity import FeaturePairs


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
    table = cosines(*sets)
    found = copy_detection(*sets, threshold=0.8, block_bytes=block_bytes)
    assert np.array_equal(found.similarity, table.max(axis=1))
    assert np.array_equal(found.nearest, table.argmax(axis=1))
    assert found.rate.value == (table.max(axis=1) > 0.8).mean()
    assert 0.1 < found.rate.value < 0.4
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
