from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from genpr.features.resize import bicubic_antialias, tf1_bilinear

RULES = [tf1_bilinear, bicubic_antialias]


def random_image(h: int, w: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (3, h, w), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def test_tf1_bilinear_doubles_a_row_without_half_pixel_shift():
    image = torch.tensor([[10, 20], [30, 50]], dtype=torch.uint8).expand(3, 2, 2)
    expected = [[10, 15, 20, 20], [20, 27.5, 35, 35], [30, 40, 50, 50], [30, 40, 50, 50]]
    assert tf1_bilinear(image, 4)[0].tolist() == expected


def test_tf1_bilinear_halves_by_taking_every_second_pixel():
    image = random_image(10, 10)
    assert torch.equal(tf1_bilinear(image, 5), image[:, ::2, ::2].float())


def test_tf1_bilinear_keeps_an_image_of_the_right_size():
    image = random_image(299, 299)
    assert torch.equal(tf1_bilinear(image, 299), image.float())


def test_tf1_bilinear_keeps_fractions():
    resized = tf1_bilinear(random_image(7, 7), 16)
    assert (resized != resized.round()).any()


@pytest.mark.parametrize(("h", "w", "size"), [(32, 32, 64), (200, 90, 64), (64, 64, 64), (1, 1, 8)])
def test_bicubic_antialias_equals_pillow_on_floats(h, w, size):
    image = random_image(h, w)
    channels = [
        Image.fromarray(channel.numpy().astype(np.float32)).resize((size, size), Image.Resampling.BICUBIC)
        for channel in image
    ]
    expected = torch.stack([torch.from_numpy(np.array(channel)) for channel in channels]).clamp(0, 255)
    torch.testing.assert_close(bicubic_antialias(image, size), expected, rtol=0, atol=0.01)


def test_bicubic_antialias_clamps_the_overshoot_at_edges():
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    image[:, :, 4:] = 255
    resized = bicubic_antialias(image, 32)
    assert resized.min() == 0
    assert resized.max() == 255


@pytest.mark.parametrize("rule", RULES)
def test_output_does_not_depend_on_memory_layout(rule):
    image = random_image(50, 40)
    interleaved = image.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    assert not interleaved.is_contiguous()
    resized = rule(interleaved, 64)
    assert resized.is_contiguous()
    assert torch.equal(resized, rule(image, 64))


@pytest.mark.parametrize("rule", RULES)
def test_output_is_float32_contiguous_and_input_is_untouched(rule):
    image = random_image(20, 30)
    before = image.clone()
    resized = rule(image, 64)
    assert (resized.dtype, tuple(resized.shape)) == (torch.float32, (3, 64, 64))
    assert resized.is_contiguous()
    assert torch.equal(image, before)


@pytest.mark.parametrize("rule", RULES)
def test_threads_get_what_one_thread_gets(rule):
    images = [random_image(20 + i % 5, 33 + i % 3, seed=i) for i in range(40)]

    def resize(image):
        with torch.inference_mode():
            return rule(image, 61)

    with ThreadPoolExecutor(4) as pool:
        resized = list(pool.map(resize, images))
    # Outside of inference mode, though tables may have been made inside of it.
    for image, from_thread in zip(images, resized, strict=True):
        assert torch.equal(rule(image, 61), from_thread)
