"""Extractors without weights: Gabor filters and pixels.

Scores with these features check a pipeline or compare runs on the same data; there are no published numbers.

References:
    D. Gabor, Theory of communication, 1946. J. G. Daugman, Uncertainty relation for resolution in space, spatial frequency,
    and orientation, 1985. D. J. Field, Relations between the statistics of natural images and the response properties of
    cortical cells, 1987. J. Bruna and S. Mallat, Invariant scattering convolution networks, 2013.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from genpr.errors import UsageError
from genpr.features.networks.network import InputRule, NetworkExtractor, built_in
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.resize import ResizeRule, torch_antialias

_GABOR_VERSION = 1  # increment it whenever the features change

_SIZE = 64
_LEVELS = 4  # 64, 32, 16 and 8 pixels: octaves, each half the one before
# Envelopes half a wavelength wide pass 1.1 octaves: neighboring levels meet without a gap.
_WAVELENGTH = 4.0
_SIGMA = 2.0
_RADIUS = 5  # where the envelope is down to 4 %
_ORIENTATIONS = 8
_GRID = 4
# Like in JPEG, color has a lower resolution than luminance: fewer directions and cells, starting one octave lower.
_COLOR_ORIENTATIONS = 4
_COLOR_GRID = 2
_COLOR_WEIGHT = 0.5
_TEXTURE_SCALE = 1 / math.sqrt(_ORIENTATIONS)
_COLOR_SCALE = _COLOR_WEIGHT / math.sqrt(_COLOR_ORIENTATIONS)
# log(1 + contrast / 1 %): about 1 % is the threshold of visible contrast, above which ratios matter.
_CONTRAST_GAIN = 100.0
_LAYOUT_GRID = 8
_LAYOUT_COLOR_GRID = 4
_LAYOUT_WEIGHT = 2.0  # maps intensities 0..1 to a range of 2; a hundredfold contrast has a range of 4.6


def _resize(image: Tensor, side: int) -> Tensor:
    if image.shape[1:] == (side, side):
        return image.float()
    return torch_antialias(image, side, filter_name="bicubic").clamp_(0, 255)  # it overshoots at edges


_RESIZE = ResizeRule("bicubic-antialias", _resize)
_CACHE_KEY = hashlib.sha256(f"gabor {_GABOR_VERSION}".encode()).hexdigest()


class GaborNetwork(nn.Module):
    """736 features: moduli of complex Gabor filters on an image pyramid, compressed and averaged over a coarse grid.

    The filters have unit gain at every level: spectra of natural images fall as 1 / frequency², so each octave has the same
    contrast (Field 1987). Each group of features, among them small color and layout means, is scaled by the root of its number
    of cells and directions, so that its squared distance is a mean over the image.
    """

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Buffer(_gabor_filters(_ORIENTATIONS).float())
        self.color_filters = nn.Buffer(_gabor_filters(_COLOR_ORIENTATIONS).float())

    def forward(self, images: Tensor) -> Tensor:
        """Turn float32 (n, 3, 64, 64) in 0..1 into float32 (n, 736)."""
        # Rotated to luminance, red-green and blue-yellow; lengths stay.
        red, green, blue = images.unbind(1)
        luminance = (red + green + blue) / math.sqrt(3)
        red_green = (red - green) / math.sqrt(2)
        blue_yellow = (2 * blue - red - green) / math.sqrt(6)
        image = torch.stack((luminance, red_green, blue_yellow), dim=1)
        groups = [
            _cell_means(image[:, :1], _LAYOUT_GRID) * _LAYOUT_WEIGHT,
            _cell_means(image[:, 1:], _LAYOUT_COLOR_GRID) * _LAYOUT_WEIGHT,
        ]
        for level in range(_LEVELS):
            if level:
                image = F.avg_pool2d(image, 2)
                color = _contrast(image[:, 1:], self.color_filters)
                groups.append(_cell_means(color, _COLOR_GRID) * _COLOR_SCALE)
            texture = _contrast(image[:, :1], self.filters)
            # The spread distinguishes even texture from a few strong edges with the same mean.
            spread = (texture - texture.mean((2, 3), keepdim=True)).square_().mean((2, 3)).sqrt_()
            groups += [_cell_means(texture, _GRID) * _TEXTURE_SCALE, spread * _TEXTURE_SCALE]
        return torch.cat(groups, dim=1)


@lru_cache
def _gabor_filters(orientations: int) -> Tensor:
    """Even filters, then odd ones, float64 (2 * orientations, 1, side, side), each with mean zero.

    A sine grating of the filters' wavelength and amplitude a gives a modulus of a.
    """
    axis = torch.arange(-_RADIUS, _RADIUS + 1, dtype=torch.float64, device="cpu")
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    envelope = torch.exp(-(x.square() + y.square()) / (2 * _SIGMA**2))
    envelope = 2 * envelope / envelope.sum()
    angles = [math.pi * index / orientations for index in range(orientations)]
    phases = [2 * math.pi / _WAVELENGTH * (x * math.cos(angle) + y * math.sin(angle)) for angle in angles]
    waves = [envelope * wave(phase) for wave in (torch.cos, torch.sin) for phase in phases]
    return torch.stack([wave - envelope * (wave.sum() / envelope.sum()) for wave in waves])[:, None]


def _contrast(channels: Tensor, filters: Tensor) -> Tensor:
    """Compressed modulus of every filter on every channel: (n, c, h, w) to (n, c * orientations, h, w)."""
    n, c, h, w = channels.shape
    padded = F.pad(channels.reshape(n * c, 1, h, w), (_RADIUS,) * 4, mode="reflect")
    even, odd = F.conv2d(padded, filters).chunk(2, dim=1)
    modulus = (even.square() + odd.square()).sqrt_()
    return modulus.mul_(_CONTRAST_GAIN).log1p_().reshape(n, -1, h, w)


def _cell_means(maps: Tensor, grid: int) -> Tensor:
    """Mean over each cell of a grid, (n, c, h, w) to (n, c * grid²), divided by the root of the cell count."""
    return F.avg_pool2d(maps, maps.shape[-1] // grid).flatten(1) / grid


def build(_weights: None, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """Gabor features, which have no variants, or the pixels of a small square in 0..1, channel by channel."""
    (name,) = names
    rule = InputRule(_RESIZE, _SIZE, mean=(0.0,) * 3, std=(255.0,) * 3)
    if name.base == "pixels":
        return built_in(nn.Flatten(), names, weights=None, device=device, mean=rule.mean, std=rule.std)
    if name != ExtractorName("gabor"):
        raise UsageError(f"extractor {str(name)!r}: gabor has no variants", code="unknown-variant")
    dims = [BUILT_IN["gabor"].dim]
    extractor = NetworkExtractor(GaborNetwork(), names, dims, rule=rule, weights=None, device=device)
    extractor.info = replace(extractor.info, cache_key=_CACHE_KEY)
    extractor.parts = (extractor.info,)
    return extractor
