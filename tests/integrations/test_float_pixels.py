"""Float images become the same levels, whoever takes them."""

from __future__ import annotations

import warnings

import pytest
import torch
from training_images import images as images_of_loop

from genpr.checkpoints.generator import to_uint8
from genpr.integrations.callback import GenprCallback
from genpr.integrations.common import as_uint8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("image_range", [(-1.0, 1.0), (0.0, 1.0), (0.0, 255.0), (-0.3, 0.9)])
def test_training_loops_round_as_generators_are_rounded(dtype, image_range):
    low, high = image_range
    steps = torch.linspace(0, 1, 3 * 64 * 64, dtype=torch.float64)
    halves = (torch.arange(256, dtype=torch.float64) / 255).repeat(
        48
    ) + 0.5 / 255  # where rounding is decided
    images = torch.stack([steps, halves.clamp(max=1)]).view(2, 3, 64, 64) * (high - low) + low
    images = images.to(dtype).clamp(low, high)
    cut = to_uint8(images, expected=2, image_range=image_range, who="generator")[0]
    assert torch.equal(as_uint8(images, image_range), cut)
    assert cut.unique().numel() > 200


@pytest.mark.parametrize("factor", [1.05, 1.2, 255.0])
def test_what_overshoots_is_cut_off_by_all_alike_and_much_of_it_is_told_by_all(factor):
    images = factor * torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    cut, outside = to_uint8(images, expected=4, image_range=(0.0, 1.0), who="generator")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")  # once for the same words at the same place
        for part in (images[:2], images[2:]):
            as_uint8(part, (0.0, 1.0))
    assert len(told) == (outside > 0.1) == (factor > 1.1)
    if told:
        assert "more than 10% of the values of images lie outside of their declared range 0 to 1" in str(
            told[0].message
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(as_uint8(images, (0.0, 1.0)), cut)
    assert (cut == 255).double().mean() > 1 - 1 / factor - 0.01


def test_a_loop_says_it_once_and_scores(recwarn):
    warnings.simplefilter("default")
    reals, fakes = images_of_loop()
    callback = GenprCallback(reals, lambda _: (fakes / 100).split(20), image_range=(0, 1), extractor="gabor")
    for step in range(2):
        scores = callback(step, None)
    assert scores["genpr/precision"] >= 0
    assert len([item for item in recwarn if "declared range" in str(item.message)]) == 1
