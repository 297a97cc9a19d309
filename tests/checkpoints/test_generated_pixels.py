import math

import numpy as np
import pytest
import torch
from raising import raising
from special_tensors import SPECIAL, special

from genpr.checkpoints.generator import to_uint8
from genpr.errors import DataError

GRID = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5).to(torch.uint8)


def convert(output, *, expected=2, image_range=None):
    return to_uint8(output, expected=expected, image_range=image_range, who="generator 'g'")


@pytest.mark.parametrize(
    "output",
    [
        GRID,
        GRID.permute(0, 2, 3, 1),
        GRID.numpy(),
        GRID.permute(0, 2, 3, 1).numpy(),
        np.asfortranarray(GRID.numpy()),
        GRID.numpy()[:, ::-1][:, ::-1],
    ],
    ids=["nchw", "nhwc", "array nchw", "array nhwc", "fortran", "reversed"],
)
def test_all_layouts_give_the_same_images(output):
    images, clamped = convert(output)
    assert torch.equal(images, GRID)
    assert images.is_contiguous()
    assert clamped == 0


@pytest.mark.parametrize("kind", SPECIAL)
def test_tensors_without_plain_numbers_are_errors(kind):
    for images in (GRID, GRID / 255):
        with raising(DataError, "generator-output"):
            convert(special(kind, images), image_range=(0, 1))


def test_floats_of_eight_bits_are_images():
    assert torch.equal(convert((GRID // 64).to(torch.float8_e4m3fn), image_range=(0, 255))[0], GRID // 64)


def test_ambiguous_layout_is_channels_first_for_torch_and_last_for_numpy():
    both = GRID[:, :, :, :3]
    assert torch.equal(convert(both)[0], both)
    assert torch.equal(convert(both.numpy())[0], both.permute(0, 3, 1, 2))


def test_images_are_ordinary_tensors_and_copies():
    with torch.inference_mode():
        source = GRID.clone()
        images, _ = convert(source)
        from_float, _ = convert(source.float(), image_range=(0.0, 255.0))
    assert not images.is_inference()
    assert not from_float.is_inference()
    images[:] = 0
    assert source.any()


def test_values_clamped_by_more_than_one_level_are_counted():
    values = torch.zeros(1, 3, 1, 10)
    values[0, :, 0, 0] = 1 + 2.2 / 255  # of a range two wide, so 1.1 levels
    values[0, :, 0, 1] = -1 - 2.2 / 255
    values[0, :, 0, 2] = 1 + 1.8 / 255
    values[0, :, 0, 3] = -1 - 1.8 / 255
    images, clamped = convert(values, expected=1, image_range=(-1.0, 1.0))
    assert clamped == pytest.approx(0.2)
    assert images[0, 0, 0, :4].tolist() == [255, 0, 255, 0]
    assert convert(values.half(), expected=1, image_range=(-1.0, 1.0))[1] == pytest.approx(0.2)


def test_gray_images_are_repeated_and_uint8_needs_no_range():
    for gray in (GRID[:, :1], GRID[:, :1].permute(0, 2, 3, 1), GRID[:, :1].float() / 255):
        assert torch.equal(convert(gray, image_range=(0.0, 1.0))[0], GRID[:, :1].repeat(1, 3, 1, 1))
    assert torch.equal(convert(GRID)[0], GRID)


@pytest.mark.parametrize(
    ("output", "code"),
    [
        *[(torch.full((2, 3, 4, 4), bad), "generator-non-finite") for bad in (math.nan, math.inf, -math.inf)],
        *[(each, "generator-output") for each in (GRID[:1], GRID[0], GRID[:, :2], GRID[:, :, :0])],
        *[(each, "generator-output") for each in (GRID.long(), GRID.bool(), (GRID, GRID), None)],
        *[(GRID.numpy().astype(each), "generator-output") for each in (np.int16, object)],
    ],
)
def test_other_outputs_are_errors(output, code):
    for image_range in ((0.0, 1.0), None):
        with raising(DataError, code):
            convert(output, image_range=image_range)
    with raising(DataError, "generator-range"):
        convert(GRID.float())


def test_floats_are_rounded_as_by_stylegan_and_torchvision_and_levels_round_trip():
    values = torch.randn(2, 3, 50, 50, generator=torch.Generator().manual_seed(0))
    wide, unit = 2 * values, values + 0.5
    found = convert(wide, image_range=(-1.0, 1.0))[0]
    assert torch.equal(found, (wide * 127.5 + 128).clamp(0, 255).to(torch.uint8))
    found = convert(unit, image_range=(0.0, 1.0))[0]
    assert torch.equal(found, unit.mul(255).add(0.5).clamp(0, 255).to(torch.uint8))
    levels = torch.arange(256).to(torch.uint8).view(1, 1, 16, 16).repeat(1, 3, 1, 1)
    for dtype in (torch.float32, torch.float64, torch.float16):
        signed = (levels.double() / 127.5 - 1).to(dtype)
        assert torch.equal(convert(signed, expected=1, image_range=(-1.0, 1.0))[0], levels), dtype
    halves = levels.to(torch.bfloat16)
    assert torch.equal(convert(halves, expected=1, image_range=(0.0, 255.0))[0], levels)
