"""Pixels as features: the image itself, 32 x 32. For teaching, and to see what a network adds."""

from __future__ import annotations

import torch
from torch import nn

from genpr.features.catalogue import BUILT_IN, Request
from genpr.features.network import InputRule, NetworkExtractor, describe_part
from genpr.features.resize import find_rule


def load(request: Request) -> NetworkExtractor:
    """The pixels of a small square, in 0..1: red, then green, then blue, each row by row."""
    (name,) = request.names
    known = BUILT_IN["pixels"]
    rule = InputRule(find_rule(name.resize or known.resize), known.side, mean=(0.0,) * 3, std=(255.0,) * 3)
    part = describe_part(name, rule, dim=known.dim, weights_sha256=None, comparable=False)
    precision = getattr(torch, name.precision)
    return NetworkExtractor(nn.Flatten(), [part], rule=rule, device=request.device, precision=precision)
