"""On the same features, the values of other packages: to the last count where their arithmetic is exact.

Distances between rows of small integers are integers that float32 products find exactly. On other features peers
that compute in float32 may place a pair on the other side of a sphere: of 200 rows, two at most here.
"""

import numpy as np
import pytest
import torch
from emulation import emulated_memberships
from peers import by_piq, by_prdc, by_torch_fidelity

from genpr.metrics.manifold import manifold_metrics, precision_recall
from genpr.metrics.registry import BALLS

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


EXACT = pytest.mark.parametrize("make", [_integers, _binary, _narrow], ids=lambda make: make.__name__[1:])
FLOAT = pytest.mark.parametrize("make", [_normal, _network_like], ids=lambda make: make.__name__[1:])
SIZES = pytest.mark.parametrize(("n", "m"), [(200, 310), (260, 200)])


@pytest.fixture
def sets(make, n, m, rng):
    return tuple(features.astype(np.float32) for features in make(rng, n, m))


# prdc, and dgm-eval, which is prdc on float64 features --------------------------------------------------------


@EXACT
@SIZES
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_equal_prdc_to_the_last_count(sets, dtype):
    real, fake = (features.astype(dtype) for features in sets)
    assert manifold_metrics(real, fake, k=5, ties="strict") == pytest.approx(
        by_prdc(real, fake, 5), abs=1e-12
    )


@FLOAT
@SIZES
@pytest.mark.parametrize("k", [1, 3, 5])
def test_strict_ties_equal_prdc(sets, k):
    expected = by_prdc(*(features.astype(np.float64) for features in sets), k)
    assert manifold_metrics(*sets, k=k, ties="strict") == pytest.approx(expected, abs=1e-12)


@FLOAT
@SIZES
def test_values_equal_prdc_in_float32_except_for_a_few_rows(sets):
    assert manifold_metrics(*sets, k=5, ties="strict") == pytest.approx(by_prdc(*sets, 5), abs=NOISE)


# torch-fidelity 0.4: its first input is the fakes ---------------------------------------------------------------


@EXACT
@SIZES
@pytest.mark.parametrize("part", [False, True])
def test_values_equal_torch_fidelity_to_the_last_count(sets, part):
    precision, recall, f_score = by_torch_fidelity(*sets, 3, in_parts=part)
    ours = precision_recall(*sets, k=3)
    assert ours == pytest.approx((precision, recall), abs=1e-6)  # it averages in float32
    assert ours.f_score() == pytest.approx(f_score, abs=1e-6)


@FLOAT
@SIZES
def test_values_equal_torch_fidelity_in_float32_except_for_a_few_rows(sets):
    expected = by_torch_fidelity(*sets, 3)[:2]
    assert precision_recall(*sets, k=3) == pytest.approx(expected, abs=NOISE)


# piq; its recall has a bug, see test_peer_defects ----------------------------------------------------------------


@EXACT
@SIZES
def test_precision_equals_piq_to_the_last_count(sets):
    # Its tolerance of 1e-5 makes balls closed. Roots of different integers this small differ by more.
    assert precision_recall(*sets, k=5).precision == pytest.approx(by_piq(*sets, 5)[0], abs=1e-6)


@FLOAT
@SIZES
def test_precision_equals_piq_in_float32_except_for_a_few_rows(sets):
    assert precision_recall(*sets, k=5).precision == pytest.approx(by_piq(*sets, 5)[0], abs=NOISE)


@SIZES
def test_recall_equals_piq_if_no_distance_is_near_a_radius(n, m, rng):
    # Squared distances within a set are multiples of 4, and between the sets odd.
    real, fake = (2 * rng.integers(0, 8, (rows, 5)).astype(np.float32) for rows in (n, m))
    fake[:, 0] += 1
    assert precision_recall(real, fake, k=5) == pytest.approx(by_piq(real, fake, 5), abs=1e-6)


# The tools that compute in float16 -------------------------------------------------------------------------------


@EXACT
@SIZES
@pytest.mark.parametrize("emulation", ["adm-float16", "stylegan3-float16"])
def test_emulations_equal_torch_fidelity_if_nothing_is_rounded(sets, emulation):
    real, fake = (np.minimum(features, 15) for features in sets)
    memberships = emulated_memberships(real, fake, ks={"precision": 3, "recall": 3}, emulation=emulation)
    expected = by_torch_fidelity(real, fake, 3)[:2]
    assert tuple(BALLS[name](memberships, 3) for name in ("precision", "recall")) == pytest.approx(
        expected, abs=1e-6
    )


def test_stylegan3_emulation_equals_float16_cdist_of_torch(rng):
    # torch takes the same matrix form on a CPU, but adds up in another order: all but a few distances are the same.
    from genpr.neighbors.emulated import EMULATIONS, emulated_radii

    features = torch.from_numpy(_network_like(rng, 200, 1)[0]).float()
    try:
        distances = torch.cdist(features.half()[None], features.half()[None])[0]
    except RuntimeError as error:  # a build of torch without float16 on CPUs
        pytest.skip(str(error).splitlines()[0])
    expected = distances.float().kthvalue(4).values
    found = emulated_radii(EMULATIONS["stylegan3-float16"], features, [3])[0]
    assert (found == expected).float().mean() > 0.9
    assert torch.allclose(found, expected, rtol=2e-3, atol=0)
