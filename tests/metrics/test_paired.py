"""PSNR, SSIM and cosines of pairs against their formulas in float64."""

import numpy as np
import pytest
import torch

from genpr.metrics.paired import cosines, psnr, squared_error, ssim


def ssim_by_definition(x, y):
    """One channel (h, w): every pixel, its window of 11 x 11 beyond borders by reflection."""
    h, w = x.shape
    steps = np.arange(-5, 6)
    window = np.exp(-(steps[:, None] ** 2 + steps**2) / (2 * 1.5**2))
    window /= window.sum()

    def reflected(at, size):
        return size - 1 - abs(size - 1 - abs(at)) if size > 1 else 0

    found = []
    for row in range(h):
        for column in range(w):
            rows = [reflected(row + step, h) for step in steps]
            columns = [reflected(column + step, w) for step in steps]
            a, b = x[np.ix_(rows, columns)], y[np.ix_(rows, columns)]
            ma, mb = (window * a).sum(), (window * b).sum()
            va, vb = (window * (a - ma) ** 2).sum(), (window * (b - mb) ** 2).sum()
            cov = (window * (a - ma) * (b - mb)).sum()
            c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
            found.append((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    return np.mean(found)


def pairs(rng, h=13, w=17, n=3):
    """Gray, bright and flat, and random; the reconstruction swaps no channel and moves nothing."""
    real = rng.integers(0, 256, (n, 3, h, w))
    real[0] = real[0, :1]
    real[1] = 250 + rng.integers(0, 3, (3, h, w))
    fake = np.clip(
        real + rng.integers(-30, 31, real.shape) * np.array([1, 0.1, 2])[:n, None, None, None], 0, 255
    )
    return real.astype(np.uint8), fake.astype(np.uint8)


def test_ssim_is_the_mean_of_the_whole_map(rng):
    real, fake = pairs(rng)
    expected = [
        np.mean([ssim_by_definition(a.astype(float), b.astype(float)) for a, b in zip(x, y, strict=True)])
        for x, y in zip(real, fake, strict=True)
    ]
    np.testing.assert_allclose(
        ssim(*map(torch.from_numpy, (real, fake))).numpy(), expected, rtol=0, atol=1e-12
    )


def test_psnr_is_of_each_image_and_uses_no_uint8_differences(rng):
    real, fake = pairs(rng)
    real[2], fake[2] = 255, 0
    mse = ((real.astype(float) - fake) ** 2).mean((1, 2, 3))
    error = squared_error(*map(torch.from_numpy, (real, fake)))
    np.testing.assert_allclose(psnr(error, 13 * 17).numpy(), 10 * np.log10(255**2 / mse), rtol=1e-14)
    assert psnr(error, 13 * 17)[2] == 0
    assert psnr(torch.tensor([0]), 9).isinf().all()


def test_equal_images_have_an_ssim_of_one_and_it_is_symmetric(rng):
    real, fake = map(torch.from_numpy, pairs(rng, 11, 60))
    assert ssim(real, real).numpy() == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(ssim(real, fake), ssim(fake, real), rtol=0, atol=1e-14)


def test_an_image_scores_the_same_in_any_batch(rng):
    real, fake = map(torch.from_numpy, pairs(rng, 200, 210))
    alone = [float(ssim(real[[row]], fake[[row]])) for row in range(3)]
    assert ssim(real, fake).tolist() == alone


def test_cosines_are_of_rows_far_from_the_origin_too(rng):
    left, right = rng.normal(1000, 1e-2, (2, 50, 8)).astype(np.float32)
    a, b = left.astype(float), right.astype(float)
    expected = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    found = cosines(torch.from_numpy(left), torch.from_numpy(right))
    np.testing.assert_allclose(found, np.minimum(expected, 1), rtol=0, atol=1e-14)
    assert cosines(torch.zeros(1, 3), torch.ones(1, 3)) == [0]
