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


def by_torchmetrics(metric, *updates, **options):
    """The value of a metric of torchmetrics whose images are features."""
    found = metric(feature=Identity(updates[0][0].shape[1]), **options).set_dtype(torch.float64)
    for features, *given in updates:
        found.update(torch.as_tensor(features), *given)
    value = found.compute()
    return float(value[0] if isinstance(value, tuple) else value)


@pytest.mark.filterwarnings("ignore:The `disp` argument is deprecated:DeprecationWarning")
def test_fid_equals_pytorch_fid_torch_fidelity_and_torchmetrics(sets):
    moments = [(s.mean(axis=0), np.cov(s, rowvar=False)) for s in sets]
    stats = [fidelity_fid.fid_features_to_statistics(torch.from_numpy(s)) for s in sets]
    peers = (
        fid_score.calculate_frechet_distance(*moments[0], *moments[1]),
        fidelity_fid.fid_statistics_to_metric(*stats, verbose=False)["frechet_inception_distance"],
        by_torchmetrics(torchmetrics_fid.FrechetInceptionDistance, (sets[0], True), (sets[1], False)),
    )
    of_files = frechet_distance(*(Gaussian.from_moments(*each) for each in moments))
    for expected in (*peers, of_files):
        assert frechet_distance(*sets) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("subset_size", "seed"), [(50, 2020), (400, 3)])
def test_kid_equals_torch_fidelity(sets, subset_size, seed):
    options = {"kid_subsets": 10, "kid_subset_size": subset_size, "rng_seed": seed, "verbose": False}
    expected = fidelity_kid.kid_features_to_metric(*map(torch.from_numpy, sets), **options)
    expected = [expected[f"kernel_inception_distance_{name}"] for name in ("mean", "std")]
    found = kernel_distance(*sets, subsets=10, subset_size=subset_size, seed=seed)
    assert found[:2] == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("spread", [0.1, 3.0, 400.0])
@pytest.mark.parametrize(
    ("n", "theirs", "ours"),
    [
        *((n, {"splits": splits}, {"splits": splits}) for n, splits in ((997, 10), (1000, 10), (200, 1))),
        (600, {"splits": 3, "shuffle": False}, {"split_size": 200, "seed": None}),
    ],
)
def test_inception_score_equals_torch_fidelity(n, theirs, ours, spread, rng):
    logits = torch.from_numpy(rng.normal(0, spread, (n, 100)).astype(np.float32))
    expected = fidelity_isc.isc_features_to_metric(logits, **theirs)
    expected = expected["inception_score_mean"], expected["inception_score_std"]
    assert inception_score(logits.double().softmax(dim=1), **ours) == pytest.approx(
        expected, rel=1e-10, abs=1e-12
    )


@pytest.mark.filterwarnings("ignore:Metric `.*` will save:UserWarning")
@pytest.mark.filterwarnings("ignore:std\\(\\). degrees of freedom:UserWarning")
def test_kid_of_one_subset_and_inception_score_of_one_part_equal_torchmetrics(rng):
    """Its subsets and orders come from an unseeded generator, so each is the whole set."""
    real, fake = (correlated(300, 64, mean, rng) for mean in (0, 0.2))
    metric = torchmetrics_kid.KernelInceptionDistance
    expected = by_torchmetrics(metric, (real, True), (fake, False), subsets=1, subset_size=300)
    assert kernel_distance(real, fake, subsets=1).mean == pytest.approx(expected, rel=1e-10)
    logits = torch.from_numpy(rng.normal(0, 2, (400, 50)))
    expected = by_torchmetrics(torchmetrics_inception.InceptionScore, (logits,), splits=1)
    assert inception_score(logits.softmax(dim=1), splits=1).mean == pytest.approx(expected, rel=1e-10)
