"""Float images become the same levels, whoever takes them."""

from __future__ import annotations

import warnings

import pytest
import torch
from training_images import images as images_of_loop

from genpr.checkpoints.generator import to_uint8
from genpr.integrations.callback import GenprCallback
from genpr.integrations.common import as_uint8


@pytest.mark.parametrize("image_range", [(-1.0, 1.0), (0.0, 1.0), (-0.3, 0.9)])
def test_training_loops_round_and_cut_off_as_generators_do(image_range):
    low, high = image_range
    steps = torch.linspace(0, 1, 3 * 64 * 64, dtype=torch.float64)
    halves = (torch.arange(256, dtype=torch.float64) / 255).repeat(
        48
    ) + 0.5 / 255  # where rounding is decided
    images = torch.stack([1.05 * steps, halves]).view(2, 3, 64, 64) * (high - low) + low
    cut, outside = to_uint8(images, expected=2, image_range=image_range, who="generator")
    assert torch.equal(as_uint8(images, image_range), cut)
    assert 0 < outside < 0.1
    assert cut.unique().numel() == 256


def test_a_loop_says_it_once_and_scores(recwarn):
    warnings.simplefilter("default")
    reals, fakes = images_of_loop()
    callback = GenprCallback(reals, lambda _: (fakes / 100).split(20), image_range=(0, 1), extractor="gabor")
    for step in range(2):
        scores = callback(step, None)
    assert scores["genpr/precision"] >= 0
    assert len([item for item in recwarn if "declared range" in str(item.message)]) == 1
