"""Defects of other packages: the installed version has each of them, and genpr does not.

If the first half of a test fails, the peer was repaired and genpr is not wrong: remove that half.
Not shown, since it would take weights, a GPU or minutes: prdc's index matrix of 20 GB at 50,000 rows, torch-fidelity's
distances that are computed on the CPU on any device, clean-fid's unseeded KID.
"""

import numpy as np
import oracle
import pytest
import torch
from peers import by_piq, by_prdc, by_torch_fidelity

from genpr.metrics.manifold import manifold_metrics, precision_recall

# Balls ------------------------------------------------------------------------------------------------------------


def test_piq_uses_radii_of_reals_for_recall():
    # Reals 0, 2, 4, 6 have radius 2 at k = 1, the fakes 8, 8.5, 9 have 0.5. The real 6 is 2 from the fake 8: on
    # the sphere of the real ball, far outside every fake ball.
    real = np.array([[0.0], [2], [4], [6]], dtype=np.float32)
    fake = np.array([[8.0], [8.5], [9]], dtype=np.float32)
    assert by_piq(real, fake, 1)[1] == 0.25
    assert precision_recall(real, fake, k=1).recall == 0


def test_prdc_loses_points_on_the_sphere():
    same = np.full((20, 4), 2.5)
    sixfold = np.repeat(np.arange(10.0)[:, None], 6, axis=0)  # all radii are 0
    for features, density in ((same, 20 / 5), (sixfold, 6 / 5)):
        assert by_prdc(features, features, 5) == (0, 0, 0, 0)
        assert manifold_metrics(features, features, k=5) == (1, 1, density, 1)


def test_prdc_needs_one_more_row_than_the_definition(rng):
    real, fake = rng.normal(size=(2, 6, 3))
    with pytest.raises((IndexError, ValueError)):
        by_prdc(real, fake, 5)
    assert manifold_metrics(real, fake, k=5, ties="strict") == oracle.manifold_metrics(
        real.astype(np.float32), fake.astype(np.float32), 5, "strict"
    )


def _off_center(rng):
    """Distances of about 1 at a distance of 2,000 from the origin."""
    return tuple((250 + 0.1 * rng.normal(size=(n, 64))).astype(np.float32) for n in (300, 280))


@pytest.mark.parametrize("peer", ["torch-fidelity", "piq"])
def test_float32_products_lose_precision_far_from_the_origin(peer, rng):
    real, fake = _off_center(rng)
    exact = oracle.manifold_metrics(real, fake, 3)[:2]
    theirs = {"torch-fidelity": by_torch_fidelity, "piq": by_piq}[peer](real, fake, 3)[:2]
    assert max(abs(one - other) for one, other in zip(theirs, exact, strict=True)) > 0.05
    assert precision_recall(real, fake, k=3) == exact


def test_products_of_float32_move_a_copy_off_its_sphere(rng):
    # Every fake is a real's nearest neighbor, bit for bit, so it lies on that sphere: inside, as balls are closed.
    # torch-fidelity computes the distance twice, in products of different shapes.
    real = rng.normal(3, 1, (400, 96)).astype(np.float32)
    nearest = oracle.sq_distances(real, real)
    np.fill_diagonal(nearest, np.inf)
    index = np.unique(nearest.argmin(axis=1))
    fake = real[index]
    metric_prc = pytest.importorskip("torch_fidelity.metric_prc")
    x, y = torch.from_numpy(real), torch.from_numpy(fake)
    itself = metric_prc.calc_cdist_full(x, x).diagonal()
    across = metric_prc.calc_cdist_full(x, y)[torch.from_numpy(index), torch.arange(len(index))]
    assert (itself > 1e-4).any(), "a row is at a distance from itself"
    assert (across > 1e-4).any(), "and from its copy"
    assert precision_recall(real, fake, k=1).precision == 1


@pytest.mark.parametrize("k", [3, 5])
def test_counting_the_row_itself_reduces_k_by_one(k, rng):
    # FLD takes the k-th of all distances, its own 0 among them: its "k = 5" is k = 4 elsewhere.
    real, fake = rng.normal(size=(2, 300, 16)).astype(np.float32)
    x, y = torch.from_numpy(real).double(), torch.from_numpy(fake).double()
    radii = torch.cdist(x, x).topk(k, largest=False).values[:, -1]
    counting_itself = float((torch.cdist(y, x) < radii).any(dim=1).double().mean())
    assert precision_recall(real, fake, k=k).precision > counting_itself + 0.03
    assert precision_recall(real, fake, k=k - 1).precision == pytest.approx(counting_itself, abs=1e-12)
    assert precision_recall(real, fake, k=k).precision == oracle.manifold_metrics(real, fake, k)[0]


def test_precision_and_recall_are_not_swapped(rng):
    # torch-fidelity swapped them before 0.4.0, and a widely used fork still does.
    real, dropped, noise = (
        rng.normal(0, 3, (400, 8)),
        0.1 * rng.normal(size=(400, 8)),
        30 * rng.normal(size=(400, 8)),
    )
    real, dropped, noise = (features.astype(np.float32) for features in (real, dropped, noise))
    for score in (by_torch_fidelity, precision_recall):
        assert score(real, dropped, k=3)[:2] == (1, 0)
        precision, recall = score(real, noise, k=3)[:2]
        assert precision < 0.05
        assert recall > 0.95
