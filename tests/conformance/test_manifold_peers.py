"""On the same features, the values of other packages: to the last count where their arithmetic is exact.

Distances between rows of small integers are integers that float32 products find exactly. On other features peers
that compute in float32 may place a pair on the other side of a sphere: of 200 rows, two at most here.
"""

from functools import partial

import numpy as np
import pytest
from peers import by_adm, by_piq, by_prdc, by_stylegan3, by_torch_fidelity

from genpr.metrics.manifold import PrecisionRecall, manifold_metrics, precision_recall

NOISE = 2.01 / 200


def _integers(rng, n, m):
    return rng.integers(0, 5, (n, 6)), rng.integers(0, 5, (m, 6)) + (rng.random((m, 6)) < 0.1)


def _binary(rng, n, m):
    return rng.integers(0, 2, (n, 12)), rng.integers(0, 2, (m, 12))


def _narrow(rng, n, m):
    return rng.integers(0, 30, (n, 4)), rng.integers(8, 22, (m, 4))


def _normal(rng, n, m):
    return rng.normal(size=(n, 64)), rng.normal(0.05, 0.9, (m, 64))


def _network_like(rng, n, m):
    w = rng.normal(size=(12, 256))
    return tuple(
        np.maximum(spread * rng.normal(size=(rows, 12)) @ w + rng.normal(size=(rows, 256)), 0) / 4
        for rows, spread in ((n, 1), (m, 0.8))
    )


SETS = ("make", "n", "m")
EXACT = pytest.mark.parametrize(SETS, [(_integers, 200, 310), (_binary, 260, 200), (_narrow, 200, 310)])
FLOAT = pytest.mark.parametrize(SETS, [(_normal, 260, 200), (_network_like, 200, 310)])


@pytest.fixture
def sets(make, n, m, rng):
    return tuple(features.astype(np.float32) for features in make(rng, n, m))


def _by_torch_fidelity(real, fake):
    precision, recall, f_score = by_torch_fidelity(real, fake, 3)
    assert PrecisionRecall(precision, recall).f_score() == pytest.approx(f_score, abs=1e-6)
    return precision, recall


# Ours, that of a peer, and its rounding of averages. For piq, 1e-5 makes balls closed; its recall uses radii of reals.
PEERS = {
    "prdc": (partial(manifold_metrics, k=5, ties="strict"), lambda *sets: by_prdc(*sets, 5), 1e-12),
    "fidelity": (partial(precision_recall, k=3), _by_torch_fidelity, 1e-6),
    "piq": (lambda *s: precision_recall(*s, k=5).precision, lambda *s: by_piq(*s, 5)[0], 1e-6),
}


@EXACT
@pytest.mark.parametrize("peer", PEERS)
def test_values_of_integers_equal_those_of_peers_to_the_last_count(sets, peer):
    ours, theirs, rounding = PEERS[peer]
    assert ours(*sets) == pytest.approx(theirs(*sets), abs=rounding)


@FLOAT
@pytest.mark.parametrize("peer", PEERS)
def test_values_equal_those_of_peers_in_float32_except_for_a_few_rows(sets, peer):
    ours, theirs, _ = PEERS[peer]
    assert ours(*sets) == pytest.approx(theirs(*sets), abs=NOISE)


@FLOAT
@pytest.mark.parametrize("k", [1, 3, 5])
def test_strict_ties_equal_prdc(sets, k):
    expected = by_prdc(*(features.astype(np.float64) for features in sets), k)
    assert manifold_metrics(*sets, k=k, ties="strict") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(200, 310), (260, 200)])
def test_recall_equals_piq_if_no_distance_is_near_a_radius(n, m, rng):
    # Squared distances within a set are multiples of 4, and between the sets odd.
    real, fake = (2 * rng.integers(0, 8, (rows, 5)).astype(np.float32) for rows in (n, m))
    fake[:, 0] += 1
    assert precision_recall(real, fake, k=5) == pytest.approx(by_piq(real, fake, 5), abs=1e-6)


# The evaluators of guided-diffusion (protocol adm) and of StyleGAN3: float16 -------------------------------------

FLOAT16 = pytest.mark.parametrize("tool", [by_adm, by_stylegan3])


@EXACT
@FLOAT16
def test_values_equal_float16_tools_if_nothing_is_rounded(sets, tool):
    real, fake = (np.minimum(features, 15) for features in sets)
    for dtype in (np.float16, np.float32):
        assert precision_recall(real, fake, k=3) == tool(real, fake, 3, dtype)


@FLOAT
@FLOAT16
def test_values_equal_float16_tools_that_compute_in_float64(sets, tool):
    assert precision_recall(*sets, k=3) == tool(*sets, 3, np.float64)


@FLOAT16
def test_float16_increases_values_slightly(tool, rng):
    # Of 50,000 images in float16, precision was 0.0010 and recall 0.0024 higher than in float32 (docs/conformance.md).
    real, fake = _inception_like(1500, 1, rng), _inception_like(1500, 0.85, rng)
    exact = precision_recall(real, fake, k=3)
    assert 0.5 < exact.precision < 0.97
    assert 0.2 < exact.recall < 0.9
    rounded = tool(real, fake, 3, np.float16)
    assert rounded != exact
    assert all(0 <= theirs - ours <= 0.003 for theirs, ours in zip(rounded, exact, strict=True))


def _inception_like(n, spread, rng, sq_norm=400.0, d=128):
    """Non-negative features on a curved manifold of about 16 dimensions; squared distances are 10 to 1,000."""
    w = np.random.default_rng(99).normal(size=(16, d)) / 4
    x = np.maximum(spread * rng.standard_t(6, (n, 16)) @ w + 0.25 * rng.normal(size=(n, d)), 0)
    return (x * np.sqrt(sq_norm / d * 3)).astype(np.float32)
