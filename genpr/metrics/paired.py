"""Metrics of pairs of images: squared error, PSNR, SSIM, multi-scale SSIM and the cosine of features.

References:
    Z. Wang et al., Image Quality Assessment: From Error Visibility to Structural Similarity, 2004.
    Z. Wang et al., Multiscale Structural Similarity for Image Quality Assessment, 2003.
    torchmetrics 1.4.2 and later (both functions with data_range=255), whose border rules SSIM and MS-SSIM follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d, cosine_similarity, pad

RANGE = 255.0
WINDOW = 11
"""Side of SSIM's Gaussian window in pixels, the smallest side of an image."""

_SIGMA, _K1, _K2 = 1.5, 0.01, 0.03
_C1, _C2 = (_K1 * RANGE) ** 2, (_K2 * RANGE) ** 2
_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # of the scales of MS-SSIM, the finest first
_PIXELS = 2**18  # of the planes that are filtered at once, which fit into a cache of the processor


def squared_error(real: Tensor, fake: Tensor) -> Tensor:
    """Sums (n,) int64 of squared differences of images uint8 (n, 3, h, w)."""
    difference = real.to(torch.int32) - fake
    return difference.square_().sum(dim=(1, 2, 3))


def psnr(error: Tensor, pixels: int) -> Tensor:
    """Peak signal-to-noise ratios (n,) in dB, float64, of the `squared_error` of images of so many pixels; infinite for 0."""
    return 10 * torch.log10(RANGE**2 * 3 * pixels / error.double())


def ssim(real: Tensor, fake: Tensor) -> Tensor:
    """Structural similarities (n,) float64 of images uint8 (n, 3, h, w), no side below `WINDOW`.

    With means, variances and covariance under a Gaussian window of 11 x 11 pixels and sigma 1.5, at every pixel of every
    channel, beyond borders by reflection: the mean of

        (2 mx my + c1) (2 cov + c2) / ((mx^2 + my^2 + c1) (vx + vy + c2)),  c1 = (.01 * 255)^2,  c2 = (.03 * 255)^2.
    """
    count = max(1, _PIXELS // real[0, 0].numel())
    planes = [torch.split(each.flatten(0, 1), count) for each in (real, fake)]
    means = [_ssim_of_planes(*each) for each in zip(*planes, strict=True)]
    return torch.cat(means).view(len(real), -1).mean(dim=1)


def _ssim_of_planes(real: Tensor, fake: Tensor) -> Tensor:
    """Means (p,) over planes (p, h, w)."""
    x, y = real.double(), fake.double()
    mean_x, mean_y, squares, products = (_blurred(each) for each in (x, y, x * x + y * y, x * y))
    mean_product, mean_squares = mean_x * mean_y, mean_x.square() + mean_y.square()
    above = (2 * mean_product + _C1) * (2 * (products - mean_product) + _C2)
    below = (mean_squares + _C1) * (squares - mean_squares + _C2)
    return (above / below).mean(dim=(1, 2))


class MultiScaleSSIM:
    """MS-SSIM: the product over five scales, each half as large as the one before, of powers of a mean, or of 0 if it is negative.

    It is the mean of `ssim` at the last scale, and elsewhere that of (2 cov + c2) / (vx + vy + c2) without 5 pixels at each border.
    """

    least = WINDOW << 4  # the smallest side of an image in pixels: at the last scale, that of the window
    info = None

    def activations(self, images: Tensor) -> Iterator[Tensor]:
        """Pixels, local means and local variances (n, 9, h, w) float64 of images uint8 (n, 3, h, w) at each scale."""
        x = images.double()
        for scale in range(len(_WEIGHTS)):
            x = avg_pool2d(x, 2) if scale else x
            mean, squares = (_blurred(each.flatten(0, 1)).view_as(x) for each in (x, x * x))
            yield torch.cat([x, mean, squares - mean.square()], dim=1)

    def compared(self, layers: Iterable[Sequence[Tensor]]) -> Tensor:
        """Similarities (n,) float64 of n pairs, by the activations of the first and the second images at each scale."""
        means, inner = [], slice(WINDOW // 2, -(WINDOW // 2))
        for first, second in layers:
            (x, mean_x, vx), (y, mean_y, vy) = first.chunk(3, dim=1), second.chunk(3, dim=1)
            covariance = _blurred((x * y).flatten(0, 1)).view_as(x) - mean_x * mean_y
            terms = (2 * covariance + _C2) / (vx + vy + _C2)
            means.append(terms[..., inner, inner].mean(dim=(1, 2, 3)))
        similarity = terms * (2 * mean_x * mean_y + _C1) / (mean_x.square() + mean_y.square() + _C1)
        means[-1] = similarity.mean(dim=(1, 2, 3))
        return (torch.stack(means, dim=1).relu() ** torch.tensor(_WEIGHTS, device=x.device)).prod(dim=1)


def _blurred(planes: Tensor) -> Tensor:
    """Planes (p, h, w) under the Gaussian window: a weighted sum of shifted planes, first down and then across."""
    half = WINDOW // 2
    weights = [math.exp(-((step / _SIGMA) ** 2) / 2) for step in range(-half, half + 1)]
    wide = pad(planes, (half,) * 4, mode="reflect")
    for dim in (1, 2):
        size = planes.shape[dim]
        total = wide.narrow(dim, 0, size) * (weights[0] / sum(weights))
        for start, weight in enumerate(weights[1:], 1):
            total.add_(wide.narrow(dim, start, size), alpha=weight / sum(weights))
        wide = total
    return wide


def cosines(real: Tensor, fake: Tensor) -> NDArray[np.float64]:
    """Cosines (n,) of the rows of two feature sets (n, d), in float64; 0 where a row is all zeros."""
    pairs = zip(torch.split(real, 4096), torch.split(fake, 4096), strict=True)
    cosines = torch.cat([cosine_similarity(a.double(), b.double(), eps=1e-300) for a, b in pairs])
    return cosines.clamp(-1, 1).numpy()
