"""Fréchet distance against closed forms; agreement with other packages is in tests/conformance."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import torch
from raising import raising

from genpr.errors import FeatureError
from genpr.metrics import blocks
from genpr.metrics.frechet import Gaussian, frechet_distance, frechet_infinity


def gaussian(covariance, mean=None, n=None):
    mean = np.zeros(len(covariance)) if mean is None else mean
    return replace(Gaussian.from_moments(mean, np.asarray(covariance)), n=n)


def random_definite(d, rng):
    factor = rng.normal(size=(2 * d, d))
    return factor.T @ factor / d


def exact_moments(features):
    """Two passes in extended precision."""
    wide = features.astype(np.longdouble)
    mean = wide.sum(axis=0) / len(wide)
    centered = wide - mean
    return mean, np.einsum("ni,nj->ij", centered, centered) / (len(wide) - 1)


# Closed forms on Gaussians


def test_commuting_covariances(rng):
    a, b, shift = rng.gamma(1, size=20), rng.gamma(1, size=20), rng.normal(size=20)
    expected = (shift**2).sum() + ((a**0.5 - b**0.5) ** 2).sum()
    assert frechet_distance(gaussian(np.diag(a)), gaussian(np.diag(b), shift)) == pytest.approx(
        expected, rel=1e-13
    )
    plain = Gaussian(torch.zeros(20), torch.diag(torch.from_numpy(a).float()))  # float32
    assert frechet_distance(plain, gaussian(np.diag(b), shift)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("d", [2, 17, 120])
def test_noncommuting_covariances(d, rng):
    # Any definite T is the optimal transport from N(0, S) to N(0, TST), at a cost of Tr S + Tr TST - 2 Tr TS.
    start, transport = random_definite(d, rng), random_definite(d, rng)
    end = transport @ start @ transport
    expected = np.trace(start) + np.trace(end) - 2 * np.trace(transport @ start)
    end = (end + end.T) / 2
    assert frechet_distance(gaussian(start), gaussian(end)) == pytest.approx(expected, rel=1e-11)


def test_repeated_and_constant_columns_add_no_noise(rng):
    # Five real dimensions in 60 columns: with 300 rows, neither set is short of rows, yet both are singular.
    basis = np.linalg.qr(rng.normal(size=(60, 5)))[0].T
    real, fake = rng.normal(size=(300, 5)), rng.normal(0.5, 2, (400, 5))
    narrow = frechet_distance(gaussian(np.cov(real.T), real.mean(0)), gaussian(np.cov(fake.T), fake.mean(0)))
    wide_real, wide_fake = real @ basis, fake @ basis
    wide = frechet_distance(
        gaussian(np.cov(wide_real.T), wide_real.mean(0)), gaussian(np.cov(wide_fake.T), wide_fake.mean(0))
    )
    assert wide == pytest.approx(narrow, rel=1e-12)


# Features


@pytest.mark.parametrize("n", [2, 30, 63, 64, 65, 66, 90, 300])
def test_distance_of_a_scaled_and_shifted_set_for_any_number_of_rows(n, rng):
    # Whatever the sample, fake = 2 real + 1/2 is at |mu + 1/2|^2 + Tr S, as S_f = 4 S_r; no sampling error.
    real = np.round(rng.normal(1, 1, (n, 64)) * 256) / 256  # float32 holds these and the fakes exactly
    shift = real.mean(axis=0) + 0.5
    expected = (shift**2).sum() + real.var(axis=0, ddof=1).sum()
    assert frechet_distance(real, 2 * real + 0.5) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n", "m"), [(20, 30), (20, 500), (500, 30), (48, 49)])
def test_distance_of_few_rows_equals_the_definition(n, m, rng):
    real, fake = rng.normal(size=(n, 48)).astype(np.float32), rng.normal(0.3, 2, (m, 48)).astype(np.float32)
    # Not by roots of eigenvalues: the zero ones come out as 1e-16, and their roots as 1e-8.
    a, b = (x - x.mean(0) for x in (real.astype(float), fake.astype(float)))
    fidelity = scipy.linalg.svdvals(a @ b.T).sum() / ((n - 1) * (m - 1)) ** 0.5
    gap = real.astype(float).mean(0) - fake.astype(float).mean(0)
    expected = gap @ gap + (a**2).sum() / (n - 1) + (b**2).sum() / (m - 1) - 2 * fidelity
    assert frechet_distance(real, fake) == pytest.approx(expected, rel=1e-12)
    assert frechet_distance(Gaussian.from_features(real), Gaussian.from_features(fake)) == pytest.approx(
        expected, rel=1e-11
    )


@pytest.mark.parametrize(
    ("mean", "spread", "n"), [(5, 0.05, 400), (5, 0.05, 10), (1000, 0.01, 400), (-1000, 0.01, 10)]
)
def test_distance_far_from_the_origin_is_accurate(mean, spread, n, rng):
    real = rng.normal(mean, spread, (n, 12)).astype(np.float32)
    fake = rng.normal(mean, 2 * spread, (n, 12)).astype(np.float32)
    moments = Gaussian.from_features(real)
    exact_mean, exact_covariance = exact_moments(real)
    np.testing.assert_allclose(moments.mean, exact_mean.astype(float), rtol=1e-15)
    scale = float(np.abs(exact_covariance).max())
    np.testing.assert_allclose(moments.covariance, exact_covariance.astype(float), rtol=0, atol=1e-12 * scale)
    near = frechet_distance(real - np.float32(mean), fake - np.float32(mean))  # exact in float32
    assert frechet_distance(real, fake) == pytest.approx(near, rel=1e-10)


@pytest.mark.parametrize("elements", [1, 24, 24 * 7, 24 * 299, 24 * 300])
def test_block_size_does_not_matter(elements, rng, monkeypatch):
    real, fake = rng.normal(5, 1, (300, 24)), rng.normal(5.1, 1.2, (20, 24))
    expected, covariance = frechet_distance(real, fake), Gaussian.from_features(real).covariance
    monkeypatch.setattr(blocks, "_BLOCK_ELEMENTS", elements)
    assert frechet_distance(real, fake) == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(Gaussian.from_features(real).covariance, covariance, rtol=1e-12, atol=1e-14)


# FD-infinity


@pytest.mark.parametrize(("m", "low"), [(3, 2), (60, 6), (60_000, 5000)])
def test_fd_infinity_is_the_intercept(m, low, rng):
    real, fake = (rng.normal(mean, 1, (count, 3)).astype(np.float32) for mean, count in ((0, 400), (0.4, m)))
    draws = np.random.default_rng(0)
    numbers = [int(low + (m - low) * i / 14) for i in range(15)]
    distances = [frechet_distance(real, fake[draws.choice(m, number, replace=False)]) for number in numbers]
    design = np.stack([np.ones(15), 1 / np.array(numbers)], axis=1)
    expected = np.linalg.lstsq(design, np.array(distances), rcond=None)[0][0]
    assert frechet_infinity(real, fake) == pytest.approx(expected, rel=1e-9)
    assert frechet_infinity(Gaussian.from_features(real), fake) == pytest.approx(expected, rel=1e-9)


# Bad input


@pytest.mark.parametrize(
    ("mean", "covariance"),
    [
        (np.zeros((2, 1)), np.eye(2)),
        (np.zeros(2), np.eye(3)),
        (np.zeros(0), np.eye(0)),
        (np.array([0, np.nan]), np.eye(2)),
        (np.zeros(2), np.array([[1, 0.5], [0, 1]])),
    ],
)
def test_invalid_gaussians_are_errors(mean, covariance):
    with raising(FeatureError, "bad-gaussian"):
        Gaussian.from_moments(mean, covariance)


def test_covariance_with_a_negative_eigenvalue_is_an_error():
    with raising(FeatureError, "bad-gaussian"):
        frechet_distance(gaussian([[1.0, 2], [2, 1]]), gaussian(np.eye(2)))


def test_distance_that_overflows_is_an_error_and_not_0():
    wide = Gaussian.from_moments(np.zeros(4), np.eye(4) * 1e308)
    with raising(FeatureError, "bad-gaussian"):
        frechet_distance(wide, Gaussian.from_moments(np.zeros(4), np.eye(4) * 4e307))
