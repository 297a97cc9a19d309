"""PSNR, SSIM and cosines of pairs against their formulas in float64."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from genpr.metrics.paired import cosines, psnr, squared_error, ssim


def ssim_by_definition(x, y):
    """Images (3, h, w), with moments by scipy's Gaussian filter of 11 x 11, whose "mirror" reflects without the border."""

    def mean(values):
        return gaussian_filter(values, 1.5, radius=5, mode="mirror", axes=(1, 2))

    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    mx, my = mean(x), mean(y)
    vx, vy, cov = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    return np.mean((2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2)))


@pytest.mark.parametrize("size", [(11, 17), (220, 210)])  # the larger ones are filtered in several parts
def test_values_of_a_pair_equal_their_formulas(rng, size):
    """Gray, bright and flat, black against white."""
    real = rng.integers(0, 256, (3, 3, *size))
    real[0], real[1], real[2] = real[0, :1], 250 + real[1] % 3, 255
    fake = np.clip(real + rng.integers(-30, 31, real.shape), 0, 255)
    fake[2] = 0
    both = [torch.from_numpy(each.astype(np.uint8)) for each in (real, fake)]
    expected = [
        ssim_by_definition(*pair) for pair in zip(real.astype(float), fake.astype(float), strict=True)
    ]
    np.testing.assert_allclose(ssim(*both), expected, rtol=0, atol=1e-12)
    mse = ((real.astype(float) - fake) ** 2).mean((1, 2, 3))
    found = psnr(squared_error(*both), size[0] * size[1])
    np.testing.assert_allclose(found, 10 * np.log10(255**2 / mse), rtol=1e-14, atol=1e-14)


def test_cosines_of_rows_far_from_the_origin_are_accurate(rng):
    left, right = rng.normal(1000, 1e-2, (2, 50, 8)).astype(np.float32)
    a, b = left.astype(float), right.astype(float)
    expected = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    found = cosines(torch.from_numpy(left), torch.from_numpy(right))
    np.testing.assert_allclose(found, np.minimum(expected, 1), rtol=0, atol=1e-14)
    assert cosines(torch.from_numpy(left), torch.from_numpy(left)).max() == 1
    assert cosines(torch.zeros(1, 3), torch.ones(1, 3)) == [0]
