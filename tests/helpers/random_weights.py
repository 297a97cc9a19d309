"""Random weights of networks, drawn so that no layer explodes or dies, and the comparison of their outputs."""

from collections.abc import Mapping

import torch
from torch import Tensor


def random_state(shapes: Mapping[str, Tensor], *, seed: int = 0) -> dict[str, Tensor]:
    """Weights with the names and shapes of a state dict, which may be on the meta device."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in shapes.items():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float32)
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(1)
        elif "var" in name or name.endswith("gamma") or (name.endswith("weight") and value.ndim == 1):
            state[name] = 1 + 0.2 * noise.abs()
        else:
            state[name] = noise * (2 / value[0].numel() if value.ndim > 1 else 0.01) ** 0.5
    return state


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest difference over the range of the values; the rows of `expected` (n, d) must differ."""
    spread = float(expected.max() - expected.min())
    assert expected.std(dim=0).median() > 0.01 * spread, "the random network distinguishes its inputs"
    return float((found - expected).abs().max()) / spread
