"""Gabor features; pixels are in test_every_extractor.py."""

import pytest
import torch
from torch import Tensor

from genpr.features.custom import extractor_info
from genpr.features.networks.network import NetworkExtractor
from genpr.features.registry import load_extractor
from genpr.features.resize import torch_antialias


@pytest.fixture(scope="module")
def extractor() -> NetworkExtractor:
    return load_extractor("gabor", device="cpu")


# Lengths of the groups of features of a fixed image: layout, then per level color, texture, its spread.
GOLDEN = [
    *(1.571944, 0.296157, 1.184481, 0.7661, 0.741067, 1.426025, 0.74793),
    *(1.017811, 1.535263, 0.720981, 1.08117, 1.630851, 0.612046),
]
KEY = "6530f3d48a7bbe68b5873ccce209cf7063deb40038286349bf83d1474228390a"


def natural_noise(n: int, *, size: int = 64, seed: int = 0) -> Tensor:
    """uint8 (n, 3, size, size) with the 1/f amplitudes of natural images, mostly in luminance."""
    rng = torch.Generator().manual_seed(seed)
    axis = torch.fft.fftfreq(size, dtype=torch.float64)
    frequency = torch.hypot(axis[:, None], axis[None])
    falling = torch.where(frequency > 0, 1 / frequency, 0)
    white = torch.randn(n, 3, size, size, generator=rng, dtype=torch.float64)
    pink = torch.fft.ifft2(torch.fft.fft2(white) * falling).real
    mixed = pink[:, :1] + 0.3 * pink
    return to_uint8(128 + 45 * mixed / mixed.std((1, 2, 3), keepdim=True))


def to_uint8(pixels: Tensor) -> Tensor:
    return pixels.clamp(0, 255).round().to(torch.uint8)


def test_features_match_the_version_in_the_cache_key(extractor):
    """A change of either requires a change of both; otherwise cached features would be wrong."""
    x, y, channel = torch.meshgrid(torch.arange(64), torch.arange(64), torch.arange(3), indexing="ij")
    image = ((x * x + 3 * x * y + 7 * y) * (channel + 1) // 32 % 256).to(torch.uint8).permute(2, 0, 1)
    groups = extractor(image[None])[0].split([64, 32, 128, 8, 32, 128, 8, 32, 128, 8, 32, 128, 8])
    assert [group.norm().item() for group in groups] == pytest.approx(GOLDEN, rel=1e-4)
    assert extractor_info(extractor).cache_key == KEY


@pytest.mark.parametrize("shape", [(64, 64), (100, 64), (7, 200), (1, 1)])
def test_prepare_resizes_by_the_named_rule(extractor, shape):
    image = natural_noise(1, size=200)[0, :, : shape[0], : shape[1]]
    resized = torch_antialias(image, 64, filter_name="bicubic").clamp(0, 255)
    torch.testing.assert_close(extractor.prepare(image), resized, rtol=0, atol=1e-4)


def test_constant_images_have_no_texture_and_gratings_that_of_their_direction(extractor):
    shades = torch.tensor([0, 1, 128, 255], dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 64, 64)
    assert extractor(shades)[:, 96:].abs().max() < 1e-5
    axis = torch.arange(64.0)
    for direction in range(8):
        angle = torch.tensor(torch.pi * direction / 8)
        along = axis[None] * angle.cos() + axis[:, None] * angle.sin()
        wave = to_uint8(128 + 64 * torch.sin(2 * torch.pi / 4 * along)).expand(1, 3, 64, 64)
        texture = extractor(wave)[0, 96 : 96 + 128].reshape(8, 16).mean(1)
        assert texture.argmax() == direction


@pytest.mark.gpu
def test_cuda_equals_cpu(extractor):
    images = natural_noise(64)
    on_cuda = load_extractor("gabor", device="cuda")(images)  # torch allows TF32 in convolutions, 1e-3 off
    assert on_cuda.device.type == "cuda"
    torch.testing.assert_close(on_cuda.cpu(), extractor(images), rtol=1e-4, atol=1e-4)
