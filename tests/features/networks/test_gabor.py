from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from genpr.features.custom import extractor_info
from genpr.features.networks import gabor
from genpr.features.networks.gabor import GaborExtractor
from genpr.features.resize import torch_antialias
from genpr.runtime import state_guard


@pytest.fixture(scope="module")
def extractor() -> GaborExtractor:
    return GaborExtractor("cpu")


# Lengths of the groups of features of a fixed image: layout, then per level color, texture, its spread.
GOLDEN = [
    1.571944,
    0.296157,
    1.184481,
    0.7661,
    0.741067,
    1.426025,
    0.74793,
    1.017811,
    1.535263,
    0.720981,
    1.08117,
    1.630851,
    0.612046,
]


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


def blurred(images: Tensor, sigma: float) -> Tensor:
    axis = torch.arange(-8, 9, dtype=torch.float64)
    kernel = torch.exp(-axis.square() / (2 * sigma**2))
    kernel = (kernel / kernel.sum())[None, None, None]
    padded = F.pad(images.double().flatten(0, 1)[:, None], (8,) * 4, mode="reflect")
    return to_uint8(F.conv2d(F.conv2d(padded, kernel), kernel.mT)).reshape(images.shape)


def grating(amplitude: float, degrees: float, *, wavelength: float = 4.0) -> Tensor:
    """float32 (1, 1, 64, 64), one sine wave that runs in direction `degrees`."""
    axis = torch.arange(64.0)
    angle = math.radians(degrees)
    along = axis[None] * math.cos(angle) + axis[:, None] * math.sin(angle)
    return (amplitude * torch.sin(2 * math.pi / wavelength * along))[None, None]


def modulus(image: Tensor) -> Tensor:
    """Mean modulus of each of the eight directions in the middle of the image, undoing the logarithm."""
    contrast = gabor._contrast(image, gabor._gabor_filters(8).float())
    return (torch.expm1(contrast) / gabor._CONTRAST_GAIN)[0, :, 20:44, 20:44].mean((1, 2))


def moved(extractor: GaborExtractor, images: Tensor, changed: Tensor) -> Tensor:
    return (extractor(images) - extractor(changed)).norm(dim=1)


def test_description_says_what_it_is(extractor):
    info = extractor_info(extractor)
    assert (info.name, info.dim, info.resize) == ("gabor", 736, "bicubic-antialias-64")
    assert info.weights_sha256 is None
    assert not info.comparable
    assert len(info.cache_key) == 64
    assert set(info.cache_key) <= set("0123456789abcdef")


DERIVED = {"_DIM", "_TEXTURE_SCALE", "_COLOR_SCALE"}
CONSTANTS = [name for name in vars(gabor) if name.isupper() and name[0] == "_" and name not in DERIVED]


@pytest.mark.parametrize("name", CONSTANTS)
def test_cache_key_covers_every_constant(name, monkeypatch):
    before = GaborExtractor("cpu").info.cache_key
    assert GaborExtractor("cpu").info.cache_key == before
    monkeypatch.setattr(gabor, name, getattr(gabor, name) + 1)
    assert gabor._cache_key.__wrapped__() != before


def test_features_are_those_of_the_version_in_the_cache_key(extractor):
    """A change here needs a new _VERSION, or old caches would be believed."""
    x, y, channel = torch.meshgrid(torch.arange(64), torch.arange(64), torch.arange(3), indexing="ij")
    image = ((x * x + 3 * x * y + 7 * y) * (channel + 1) // 32 % 256).to(torch.uint8).permute(2, 0, 1)
    groups = extractor(image[None])[0].split([64, 32, 128, 8, 32, 128, 8, 32, 128, 8, 32, 128, 8])
    assert gabor._VERSION == 1
    assert [group.norm().item() for group in groups] == pytest.approx(GOLDEN, rel=1e-4)


def test_extractors_are_all_alike(extractor):
    images = natural_noise(4)
    state = torch.get_rng_state()
    assert torch.equal(extractor(images), GaborExtractor("cpu")(images))
    assert torch.equal(torch.get_rng_state(), state)


def test_features_do_not_depend_on_the_place_in_a_block(extractor):
    batch = natural_noise(64).float()
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(extractor.forward(batch[order]), extractor.forward(batch)[order])


@pytest.mark.parametrize("block", [1, 3, 7, 33])
def test_features_hardly_depend_on_the_block_size(extractor, block):
    batch = natural_noise(64).float()
    in_blocks = torch.cat([extractor.forward(part) for part in batch.split(block)])
    torch.testing.assert_close(in_blocks, extractor.forward(batch), rtol=1e-5, atol=1e-5)


def test_prepare_leaves_its_own_size_alone(extractor):
    image = natural_noise(1)[0]
    prepared = extractor.prepare(image)
    assert prepared.dtype == torch.float32
    assert torch.equal(prepared, image.float())


@pytest.mark.parametrize("shape", [(32, 32), (100, 64), (64, 100), (7, 200), (1, 1)])
def test_prepare_resizes_by_the_named_rule(extractor, shape):
    image = natural_noise(1, size=200)[0, :, : shape[0], : shape[1]]
    resized = torch_antialias(image, 64, filter_name="bicubic")
    assert torch.equal(extractor.prepare(image), resized.clamp(0, 255))


def test_constant_images_have_no_texture(extractor):
    shades = torch.tensor([0, 1, 128, 255], dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 64, 64)
    features = extractor(shades)
    layout = gabor._LAYOUT_GRID**2 + 2 * gabor._LAYOUT_COLOR_GRID**2
    assert features.isfinite().all()
    assert features[:, layout:].abs().max() < 1e-5
    assert features[3].norm() == pytest.approx(gabor._LAYOUT_WEIGHT * math.sqrt(3), rel=1e-5)


@pytest.mark.parametrize("direction", range(8))
def test_filters_answer_their_own_direction_with_unit_gain(direction):
    answers = modulus(grating(0.25, 22.5 * direction))
    assert answers.argmax() == direction
    assert answers[direction] == pytest.approx(0.25, abs=0.005)
    assert answers[(direction + 4) % 8] < 0.01


def test_filters_ignore_phase_and_brightness():
    wave = grating(0.25, 45)
    torch.testing.assert_close(modulus(wave.roll(1, dims=3)), modulus(wave), rtol=0, atol=0.01)
    torch.testing.assert_close(modulus(wave + 0.5), modulus(wave), rtol=0, atol=1e-5)


def test_natural_spectrum_loads_all_levels_alike():
    image = gabor._opponent_axes(natural_noise(16).float() / 255)[:, :1]
    means = []
    for _ in range(4):
        means.append(gabor._contrast(image, gabor._gabor_filters(8).float()).mean().item())
        image = F.avg_pool2d(image, 2)
    assert max(means) < 1.2 * min(means)


def test_opponent_axes_keep_lengths():
    rgb = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    rotated = gabor._opponent_axes(rgb)
    torch.testing.assert_close(rotated.norm(dim=1), rgb.norm(dim=1))
    gray = gabor._opponent_axes(torch.full((1, 3, 2, 2), 0.7))
    assert gray[:, 1:].abs().max() < 1e-6


def test_stronger_blur_moves_features_further(extractor):
    images = natural_noise(16)
    distances = [moved(extractor, images, blurred(images, sigma)) for sigma in (0.5, 1, 2, 4)]
    for weaker, stronger in itertools.pairwise(distances):
        assert (stronger > weaker).all()


def test_stronger_noise_moves_features_further(extractor):
    images = natural_noise(16)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    distances = [moved(extractor, images, to_uint8(images + sigma * noise)) for sigma in (2, 5, 15, 40)]
    for weaker, stronger in itertools.pairwise(distances):
        assert (stronger > 1.5 * weaker).all()


@pytest.mark.parametrize(
    ("change", "times"),
    [
        (lambda images: blurred(images, 1.5), 4),
        (lambda images: images.rot90(1, (2, 3)), 3),
        (lambda images: to_uint8(images.float().mean(1, keepdim=True).expand_as(images)), 2),
        (lambda images: to_uint8(128 + (images.float() - 128) / 3), 3),
        (lambda images: images.roll(16, dims=3), 2),
    ],
    ids=["blur", "rotation", "color lost", "contrast lost", "moved by a cell"],
)
def test_changes_that_matter_move_features_more_than_a_shift_by_a_pixel(extractor, change, times):
    wide = natural_noise(16, size=128)
    images, shifted = wide[..., :64, :64], wide[..., :64, 1:65]
    shift = moved(extractor, images, shifted)
    assert (moved(extractor, images, change(images)) > times * shift).all()


@pytest.mark.parametrize("channels", [(2, 1, 0), (1, 0, 2), (0, 2, 1)], ids=["bgr", "grb", "rbg"])
def test_swapped_colors_are_seen(extractor, channels):
    images = to_uint8(natural_noise(16).float() + torch.tensor([60.0, 0.0, -60.0])[:, None, None])
    assert (moved(extractor, images, images[:, channels]) > 0.5).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_agrees(extractor):
    images = natural_noise(64)
    with state_guard():
        on_cuda = GaborExtractor("cuda")(images)
    assert on_cuda.device.type == "cuda"
    torch.testing.assert_close(on_cuda.cpu(), extractor(images), rtol=1e-4, atol=1e-4)
