"""Pixels as features: the image itself, 32 x 32. For teaching, and to see what a network adds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from genpr.features.networks.network import InputRule, NetworkExtractor, single_layer
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.resize import find_rule


def build(_weights: None, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """The pixels of a small square, in 0..1: red, then green, then blue, each row by row."""
    (name,) = names
    known = BUILT_IN["pixels"]
    rule = InputRule(find_rule(name.resize or known.resize), known.side, mean=(0.0,) * 3, std=(255.0,) * 3)
    return single_layer(nn.Flatten(), name, rule, dim=known.dim, weights=None, device=device)
