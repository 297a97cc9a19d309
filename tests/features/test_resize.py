from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch
from PIL import Image
from raising import raised
from torch import Tensor

from genpr.errors import ImageError
from genpr.features.resize import RESIZE_RULES, pillow_rule, tf1_bilinear, torch_antialias

EIGHT_BIT = {"pil-bicubic-uint8", "clip"}
OVERSHOOTING = {"torch-bicubic-antialias"}


def bicubic_clamped(image: torch.Tensor, side: int) -> torch.Tensor:
    """The rule of the gabor extractor."""
    return torch_antialias(image, side, filter_name="bicubic").clamp(0, 255)


FUNCTIONS = {name: rule.resize for name, rule in RESIZE_RULES.items()} | {"gabor": bicubic_clamped}

every_rule = pytest.mark.parametrize("name", FUNCTIONS)


def random_image(h: int, w: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (3, h, w), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def bright_half(side: int) -> Tensor:
    image = torch.zeros(3, side, side, dtype=torch.uint8)
    image[:, :, side // 2 :] = 255
    return image


@every_rule
def test_pixel_limit_of_pillow_refuses_no_image(name, monkeypatch):
    plain = FUNCTIONS[name](random_image(20, 30), 16)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert torch.equal(FUNCTIONS[name](random_image(20, 30), 16), plain)


def test_tf1_bilinear_doubles_a_row_without_half_pixel_shift():
    image = torch.tensor([[10, 20], [30, 50]], dtype=torch.uint8).expand(3, 2, 2)
    expected = [[10, 15, 20, 20], [20, 27.5, 35, 35], [30, 40, 50, 50], [30, 40, 50, 50]]
    assert tf1_bilinear(image, 4)[0].tolist() == expected


def test_image_whose_resized_size_takes_too_much_memory_is_an_error():
    """A PNG of 200 bytes has 65,535 pixels in a line, which clip makes 224 x 14,679,840: 13 gigabytes."""
    line = random_image(1, 65_535)
    for rule in (FUNCTIONS["clip"], pillow_rule("timm", "bicubic", crop=0.875).resize):
        for image in (line, line.mT):
            assert raised(ImageError, rule, image, 224).code == "image-too-large"


@every_rule
def test_uniform_image_of_any_size_stays_uniform(name):
    for (h, w), side in product([(1, 1), (1, 7), (19, 1), (2, 3), (31, 45), (299, 64), (150, 400)], (1, 61)):
        image = torch.tensor([0, 137, 255], dtype=torch.uint8)[:, None, None].expand(3, h, w)
        expected = image[:, :1, :1].float().expand(3, side, side)
        torch.testing.assert_close(FUNCTIONS[name](image, side), expected, rtol=0, atol=1e-3)


@every_rule
def test_output_is_contiguous_float32_and_input_is_unchanged(name):
    fine, edge = FUNCTIONS[name](random_image(7, 7), 16), FUNCTIONS[name](bright_half(8), 32)
    assert torch.equal(fine, fine.round()) == (name in EIGHT_BIT)
    assert (edge.max() > 255, edge.min() < 0) == (name in OVERSHOOTING,) * 2
    interleaved = random_image(50, 40).permute(1, 2, 0).contiguous().permute(2, 0, 1)
    assert torch.equal(FUNCTIONS[name](interleaved, 64), FUNCTIONS[name](random_image(50, 40), 64))
    for side in (64, 32):
        image = random_image(32, 32)
        before = image.clone()
        resized = FUNCTIONS[name](image, side)
        assert (resized.dtype, tuple(resized.shape)) == (torch.float32, (3, side, side))
        assert resized.is_contiguous()
        resized.zero_()
        assert torch.equal(image, before)


@every_rule
def test_results_do_not_depend_on_threads(name):
    images = [random_image(20 + i % 5, 33 + i % 3, seed=i) for i in range(40)]

    def resized(image):
        with torch.inference_mode():
            return FUNCTIONS[name](image, 61)

    with ThreadPoolExecutor(4) as pool:
        from_threads = list(pool.map(resized, images))
    # Outside of inference mode, though tables may have been made inside of it.
    for image, from_thread in zip(images, from_threads, strict=True):
        assert torch.equal(FUNCTIONS[name](image, 61), from_thread)


@pytest.mark.gpu
@every_rule
def test_cuda_has_the_same_bits(name):
    for h, w, side in ((1, 1, 224), (2, 3, 64), (64, 64, 64), (31, 45, 224), (320, 213, 149), (97, 1301, 61)):
        image = random_image(h, w)
        resized = FUNCTIONS[name](image.cuda(), side)
        assert resized.device.type == "cuda"
        assert torch.equal(resized.cpu(), FUNCTIONS[name](image, side))
