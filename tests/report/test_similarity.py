"""Copies are one picture however they were changed a little, and other pictures are not."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from genpr.demo import KINDS, ShapesGenerator, draw_latents
from genpr.report.similarity import Similarity, similarity


@pytest.fixture(scope="module")
def drawings():
    """(40, 64, 64, 3) uint8, of all kinds."""
    return ShapesGenerator()(draw_latents(40, seed=0)).permute(0, 2, 3, 1).contiguous().numpy()


def encoded(pixels, quality):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def resized(pixels, side):
    return np.asarray(Image.fromarray(pixels).resize((side, side)))


CHANGES = {
    "not": lambda pixels: pixels,
    "jpeg-75": lambda pixels: encoded(pixels, 75),
    "jpeg-50": lambda pixels: encoded(pixels, 50),
    "right": lambda pixels: np.roll(pixels, 1, axis=1),
    "down": lambda pixels: np.roll(pixels, 1, axis=0),
    "left two and up four": lambda pixels: np.roll(pixels, (-4, -2), axis=(0, 1)),
    "larger": lambda pixels: resized(pixels, 96),
    "smaller": lambda pixels: resized(pixels, 40),
    "darker": lambda pixels: pixels // 2,
}


@pytest.mark.parametrize("mirrored", [False, True], ids=["upright", "mirrored"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_copies_are_the_same(drawings, change, mirrored):
    for pixels in drawings[:6]:
        copy = change(pixels)
        found = similarity(pixels, copy[:, ::-1] if mirrored else copy)
        assert found.is_same, found
        back = similarity(copy[:, ::-1] if mirrored else copy, pixels)
        assert (back.detail, back.whole) == pytest.approx((found.detail, found.whole), abs=0.08)


def test_which_copies_are_mirrored_is_told(drawings):
    pixels = drawings[0]
    assert similarity(pixels, pixels) == Similarity(pytest.approx(1.0), pytest.approx(1.0), is_mirrored=False)
    assert similarity(pixels, pixels[:, ::-1]) == Similarity(
        pytest.approx(1.0), pytest.approx(1.0), is_mirrored=True
    )
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    assert not similarity(noise, noise[::-1]).is_same  # on its head


def test_shifts_by_a_small_pixel_are_found_exactly(drawings):
    for shift in ((2, 0), (0, -2), (4, 4), (-4, 2)):  # a small picture has 32 pixels across, a drawing 64
        found = similarity(drawings[1], np.roll(drawings[1], shift, axis=(0, 1)))
        assert found.detail > 0.9, shift
    assert similarity(drawings[1], np.roll(drawings[1], 8, axis=1)).detail < 0.9


def test_drawings_of_other_kinds_are_not_the_same(drawings):
    """All drawings are on one woven paper, which they share to the thread; what is drawn tells most of them apart."""
    generator = ShapesGenerator()
    latents = draw_latents(12, seed=3)
    kinds = [
        generator(latents, labels=torch.full((12,), kind)).permute(0, 2, 3, 1).contiguous().numpy()
        for kind in range(len(KINDS))
    ]
    pairs = [
        (one, other)
        for row in range(12)
        for one in (kinds[0][row], kinds[3][row])
        for other in (kinds[1][(row + 1) % 12], kinds[4][(row + 5) % 12])
    ]
    assert sum(similarity(*pair).is_same for pair in pairs) == 0


def gradient(direction, colors, rng):
    """A sky: one color fades into another; each pixel is off by up to two levels."""
    y, x = np.mgrid[:64, :64] / 63
    share = (direction[0] * x + direction[1] * y)[..., None] / sum(direction)
    picture = share * colors[0] + (1 - share) * colors[1] + rng.integers(-2, 3, (64, 64, 1))
    return picture.clip(0, 255).astype(np.uint8)


def test_skies_are_not_the_same(rng):
    """Their whole agrees almost entirely, and their features do."""
    colors = np.array([[120, 160, 220], [220, 230, 250]])
    one = gradient((0.1, 1.0), colors, rng)
    for direction in ((0.1, 1.0), (0.12, 1.0), (0.0, 1.0)):
        found = similarity(one, gradient(direction, colors, rng))
        assert found.whole > 0.95
        assert not found.is_same
    flat = np.full((32, 32, 3), 90, np.uint8)
    assert similarity(flat, flat) == Similarity(0.0, 0.0, is_mirrored=False)  # nothing to agree in


def test_the_same_lines_in_other_colors_are_no_copy(drawings):
    pixels = drawings[2]
    inverted = 255 - pixels
    found = similarity(pixels, inverted)
    assert found.whole < 0
    assert not found.is_same


@pytest.mark.parametrize(
    ("detail", "whole", "same"), [(0.6, 0.8, True), (0.599, 1.0, False), (1.0, 0.799, False)]
)
def test_both_must_agree(detail, whole, same):
    assert Similarity(detail, whole, is_mirrored=False).is_same is same
