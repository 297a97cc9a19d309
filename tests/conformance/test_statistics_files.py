"""Files of `genpr stats` are read by pytorch-fid and torch-fidelity, and theirs by genpr, with equal FID."""

import numpy as np
import pytest
import torch
from peers import Peer

import genpr
from genpr.features.statistics import read_statistics

fid_score, fidelity_fid = Peer("pytorch_fid.fid_score"), Peer("torch_fidelity.metric_fid")


@pytest.fixture
def sides(rng):
    mixing = rng.normal(size=(24, 24)) / 5
    return [
        (rng.normal(size=(n, 24)) @ mixing + shift).astype(np.float32)
        for n, shift in ((400, 0.5), (300, 0.9))
    ]


@pytest.fixture
def files(sides, tmp_path):
    paths = [tmp_path / "real.npz", tmp_path / "fake.npz"]
    for side, path in zip(sides, paths, strict=True):
        genpr.reference_statistics(side, path)
    return paths


def own(reference, fakes):
    """genpr's Fréchet distance between a file and features."""
    return genpr.score(reference, fakes, metrics=["fd"])["fd"]


@pytest.mark.filterwarnings("ignore:The `disp` argument is deprecated:DeprecationWarning")
def test_pytorch_fid_reads_written_files(sides, files):
    found = [fid_score.compute_statistics_of_path(str(path), None, 50, 24, "cpu") for path in files]
    expected = fid_score.calculate_frechet_distance(*found[0], *found[1])
    assert own(files[0], sides[1]) == pytest.approx(expected, rel=1e-6)
    assert genpr.score(*sides, metrics=["fd"])["fd"] == pytest.approx(expected, rel=1e-6)


def test_torch_fidelity_reads_written_files(sides, files):
    """It asserts that both means have one dtype, and both covariances, as LTH14's fork does, which reads such files."""
    given = [dict(np.load(path)) for path in files]
    found = fidelity_fid.fid_statistics_to_metric(*given, verbose=False)["frechet_inception_distance"]
    assert own(files[0], sides[1]) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("of", ["pytorch-fid", "torch-fidelity"])
def test_files_of_other_libraries_are_read(sides, tmp_path, of):
    real, path = sides[0], tmp_path / "theirs.npz"
    if of == "pytorch-fid":  # in float64, as its save_fid_stats
        np.savez_compressed(path, mu=real.astype(float).mean(axis=0), sigma=np.cov(real, rowvar=False))
    else:
        np.savez(path, **fidelity_fid.fid_features_to_statistics(torch.from_numpy(real)))
    assert own(path, sides[1]) == pytest.approx(genpr.score(*sides, metrics=["fd"])["fd"], rel=1e-6)


def test_moments_equal_those_of_numpy(sides, files):
    [moments] = read_statistics(files[0]).moments
    exact = sides[0].astype(np.float64)
    np.testing.assert_array_equal(moments.mean, exact.mean(axis=0).astype(np.float32))
    np.testing.assert_allclose(moments.covariance, np.cov(exact, rowvar=False), rtol=1e-12, atol=1e-14)
    with np.load(files[0], allow_pickle=False) as held:
        assert {name: held[name].dtype.kind for name in held} == {"mu": "f", "sigma": "f", "genpr": "U"}
        assert (held["mu"].dtype, held["sigma"].dtype) == (np.float32, np.float64)
