"""DINOv2: the class token of self-supervised vision transformers, at 224 pixels.

The networks were trained at 518 pixels, a grid of 37 x 37 patches. For 16 x 16 patches the grid of position
embeddings is resampled, and that is done as the authors' code does by default: bicubic, by the factor
(16 + 0.1) / 37, without antialiasing. timm antialiases and transformers leaves out the 0.1; both give other
features than the published numbers are built on.

References:
    M. Oquab et al., DINOv2: Learning Robust Visual Features without Supervision, 2023, arXiv:2304.07193.
    https://github.com/facebookresearch/dinov2, dinov2/models/vision_transformer.py, interpolate_pos_encoding, and
    dinov2/hub/backbones.py for its defaults (code and weights Apache-2.0).
    G. Stein et al., Exposing flaws of generative model evaluation metrics, 2023: why to use it, and its resize.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from genpr.features.networks.network import InputRule, NetworkExtractor, single_layer
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.resize import find_rule
from genpr.features.weights.files import Weights

_ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        "dinov2-vits14": "vit_small_patch14_dinov2",
        "dinov2-vitb14": "vit_base_patch14_dinov2",
        "dinov2-vitl14": "vit_large_patch14_dinov2",
        "dinov2-vitg14": "vit_giant_patch14_dinov2",
    }
)
_PATCH = 14
_OFFSET = 0.1  # the authors keep it for compatibility with DINO


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """The class token after the final normalization."""
    (name,) = names
    known = BUILT_IN[name.base]
    network = dinov2(_ARCHITECTURES[name.base], weights.tensors, side=known.side)
    rule = InputRule(find_rule(name.resize or known.resize), known.side)
    return single_layer(network, name, rule, dim=known.dim, weights=weights, device=device)


def dinov2(
    architecture: str, state: Mapping[str, Tensor], *, side: int, depth: int | None = None
) -> nn.Module:
    """The network, from normalized (n, 3, side, side) to class tokens.

    Args:
        architecture: timm's name of it.
        state: The authors' state dict.
        side: Of the images, in pixels.
        depth: Blocks, if not as many as published.
    """
    import timm
    from timm.models.vision_transformer import checkpoint_filter_fn

    shape: dict[str, Any] = {} if depth is None else {"depth": depth}
    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        network: Any = timm.create_model(architecture, img_size=side, num_classes=0, **shape)
    resampled = {**state, "pos_embed": resample_positions(state["pos_embed"], side // _PATCH)}
    network.load_state_dict(checkpoint_filter_fn(resampled, network), strict=True, assign=True)
    frozen: nn.Module = network.eval()
    return frozen


def resample_positions(positions: Tensor, grid: int) -> Tensor:
    """Resample position embeddings from the grid of training to another one, as the authors do.

    torch samples at steps of the given factor, hence of 37 / 16.1 instead of 37 / 16: the outermost rows are left
    a little aside.

    Args:
        positions: (1, 1 + m * m, d), the class token's first.
        grid: Patches along each side.

    Returns:
        (1, 1 + grid * grid, d).
    """
    trained = round((positions.shape[1] - 1) ** 0.5)
    if trained == grid:
        return positions
    squares = positions[:, 1:].float().mT.reshape(1, -1, trained, trained)
    factor = (grid + _OFFSET) / trained
    resampled = F.interpolate(squares, scale_factor=(factor, factor), mode="bicubic", antialias=False)
    return torch.cat((positions[:, :1].float(), resampled.flatten(2).mT), 1)
