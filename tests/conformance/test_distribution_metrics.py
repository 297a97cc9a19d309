"""Fréchet distance, KID and Inception Score are what torch-fidelity, pytorch-fid and torchmetrics compute."""

import numpy as np
import pytest
import torch
from peers import Peer

from genpr.metrics.fakes_only import inception_score
from genpr.metrics.frechet import Gaussian, frechet_distance
from genpr.metrics.kernel import kernel_distance

fid_score, fidelity_fid = Peer("pytorch_fid.fid_score"), Peer("torch_fidelity.metric_fid")
torchmetrics_fid, torchmetrics_kid = Peer("torchmetrics.image.fid"), Peer("torchmetrics.image.kid")
torchmetrics_inception = Peer("torchmetrics.image.inception")
fidelity_isc, fidelity_kid = Peer("torch_fidelity.metric_isc"), Peer("torch_fidelity.metric_kid")


class Identity(torch.nn.Module):
    """An extractor for torchmetrics whose images are features already."""

    def __init__(self, width):
        super().__init__()
        self.num_features = width

    def forward(self, features):
        return features


def correlated(n, d, mean, rng):
    """Like pooled ReLU features: non-negative, correlated, with a deviation that decreases from column to column; float64 as
    the peers want for full precision, holding float32 values, as genpr casts features to it.
    """
    mixed = rng.normal(size=(n, d)) @ (np.eye(d) + rng.normal(size=(d, d)) / d**0.5)
    features = np.abs(mixed + mean) * np.geomspace(1, 0.05, d)
    return features.astype(np.float32).astype(np.float64)


SETS = [(1000, 900, 32, 0.0), (600, 800, 256, 2.0), (520, 520, 256, 0.5)]


@pytest.fixture(params=SETS, ids=str)
def sets(request, rng):
    n, m, d, mean = request.param
    return correlated(n, d, mean, rng), correlated(m, d, mean, rng)


def test_fid_equals_torch_fidelity(sets):
    real, fake = sets
    stats = [fidelity_fid.fid_features_to_statistics(torch.from_numpy(s)) for s in sets]
    expected = fidelity_fid.fid_statistics_to_metric(*stats, verbose=False)["frechet_inception_distance"]
    assert frechet_distance(real, fake) == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:The `disp` argument is deprecated:DeprecationWarning")
def test_fid_equals_pytorch_fid(sets):
    moments = [(s.mean(axis=0), np.cov(s, rowvar=False)) for s in sets]
    expected = fid_score.calculate_frechet_distance(*moments[0], *moments[1])
    assert frechet_distance(*sets) == pytest.approx(expected, rel=1e-9)
    of_files = frechet_distance(*(Gaussian.from_moments(*each) for each in moments))
    assert of_files == pytest.approx(expected, rel=1e-9)


def test_fid_equals_torchmetrics(sets):
    real, fake = sets
    metric = torchmetrics_fid.FrechetInceptionDistance(feature=Identity(real.shape[1])).set_dtype(
        torch.float64
    )
    metric.update(torch.from_numpy(real), real=True)
    metric.update(torch.from_numpy(fake), real=False)
    assert frechet_distance(real, fake) == pytest.approx(float(metric.compute()), rel=1e-9)


@pytest.mark.parametrize("subset_size", [50, 400])
def test_kid_equals_torch_fidelity(sets, subset_size):
    options = {"kid_subsets": 10, "kid_subset_size": subset_size, "rng_seed": 2020, "verbose": False}
    expected = fidelity_kid.kid_features_to_metric(*map(torch.from_numpy, sets), **options)
    distance = kernel_distance(*sets, subsets=10, subset_size=subset_size)
    assert distance.mean == pytest.approx(expected["kernel_inception_distance_mean"], rel=1e-10, abs=1e-12)
    assert distance.std == pytest.approx(expected["kernel_inception_distance_std"], rel=1e-10, abs=1e-12)
    other_seed = fidelity_kid.kid_features_to_metric(
        *map(torch.from_numpy, sets), **options | {"rng_seed": 3}
    )
    assert kernel_distance(*sets, subsets=10, subset_size=subset_size, seed=3).mean == pytest.approx(
        other_seed["kernel_inception_distance_mean"], rel=1e-10, abs=1e-12
    )


@pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance` will save:UserWarning")
def test_kid_of_one_subset_equals_torchmetrics(rng):
    real, fake = correlated(300, 64, 0, rng), correlated(300, 64, 0.2, rng)
    # Its subsets come from an unseeded generator, so each is the whole set.
    metric = torchmetrics_kid.KernelInceptionDistance(
        feature=Identity(64), subsets=1, subset_size=300
    ).set_dtype(torch.float64)
    metric.update(torch.from_numpy(real), real=True)
    metric.update(torch.from_numpy(fake), real=False)
    assert kernel_distance(real, fake, subsets=1).mean == pytest.approx(float(metric.compute()[0]), rel=1e-10)


@pytest.mark.parametrize("spread", [0.1, 3.0, 400.0])
@pytest.mark.parametrize(("n", "splits"), [(997, 10), (1000, 10), (200, 1)])
def test_inception_score_equals_torch_fidelity(n, splits, spread, rng):
    logits = torch.from_numpy(rng.normal(0, spread, (n, 100)).astype(np.float32))
    expected = fidelity_isc.isc_features_to_metric(logits, splits=splits)
    expected = expected["inception_score_mean"], expected["inception_score_std"]
    probabilities = logits.double().softmax(dim=1)
    assert inception_score(probabilities, splits=splits) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_inception_score_in_order_equals_torch_fidelity(rng):
    logits = torch.from_numpy(rng.normal(0, 2, (600, 50)))
    expected = fidelity_isc.isc_features_to_metric(logits, splits=3, shuffle=False)["inception_score_mean"]
    assert inception_score(logits.softmax(dim=1), split_size=200, seed=None).mean == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.filterwarnings("ignore:Metric `InceptionScore` will save:UserWarning")
@pytest.mark.filterwarnings("ignore:std\\(\\). degrees of freedom:UserWarning")
def test_inception_score_of_one_part_equals_torchmetrics(rng):
    logits = torch.from_numpy(rng.normal(0, 2, (400, 50)))
    metric = torchmetrics_inception.InceptionScore(feature=Identity(50), splits=1).set_dtype(torch.float64)
    metric.update(logits)
    assert inception_score(logits.softmax(dim=1), splits=1).mean == pytest.approx(
        float(metric.compute()[0]), rel=1e-10
    )
