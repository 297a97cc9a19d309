"""Float images become the same levels, whoever takes them."""

from __future__ import annotations

import pytest
import torch

from genpr.generation.pixels import to_uint8
from genpr.integrations.pixels import as_uint8


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
