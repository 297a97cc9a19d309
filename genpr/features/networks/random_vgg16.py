"""VGG16 with random weights (Naeem et al. 2020, section on random embeddings): features that no dataset has shaped.

One random network can rank generators quite differently from the next, so three are used: a metric is computed in
the space of each, and its spread is shown. Their weights come from NumPy's legacy generator, whose stream is frozen
(NEP 19), so that they are the same on every machine and for ever.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from genpr.features.networks.network import InputRule, NetworkExtractor, single_layer
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.resize import find_rule
from genpr.features.weights.files import Weights

SEEDS = (0, 1, 2)
WIDTH = 64  # of each network's features, as in the paper

_CHANNELS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # 0 is a max pool
_HIDDEN = 4096
_PIECE = 2**20  # weights drawn at once


class RandomNetworks(nn.Module):
    """The networks of `SEEDS`, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList(random_vgg16(seed) for seed in SEEDS)

    def forward(self, images: Tensor) -> Tensor:
        """Turn normalized (n, 3, 224, 224) into (n, 3 * 64)."""
        return torch.cat([member(images) for member in self.members], 1)


def random_vgg16(seed: int) -> nn.Sequential:
    """VGG16 whose second hidden layer has 64 outputs, with weights drawn evenly (He et al. 2015) and no biases."""
    random = np.random.RandomState(seed)  # the only NumPy generator with a frozen stream
    layers: list[nn.Module] = []
    channels = 3
    with torch.device("meta"):
        for width in _CHANNELS:
            if width == 0:
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.ReLU(inplace=True)]
                channels = width
        layers += [
            nn.Flatten(),
            nn.Linear(channels * 7 * 7, _HIDDEN, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(_HIDDEN, WIDTH, bias=False),
        ]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.weight = nn.Parameter(_draw(random, layer.weight.shape), requires_grad=False)
    return nn.Sequential(*layers)


def weights_sha256(network: nn.Module) -> str:
    """Hash of all weights, in order."""
    digest = hashlib.sha256()
    for weight in network.state_dict().values():
        digest.update(weight.contiguous().numpy())
    return digest.hexdigest()


def build(_weights: None, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """The three random networks."""
    (name,) = names
    known = BUILT_IN["random-vgg16"]
    network = RandomNetworks()
    rule = InputRule(find_rule(name.resize or known.resize), known.side, channels_last=True)
    weights = Weights(network.state_dict(), weights_sha256(network), is_published=False)
    return single_layer(
        network, name, rule, dim=known.dim, weights=weights, device=device, members=len(SEEDS)
    )


def _draw(random: np.random.RandomState, shape: torch.Size) -> Tensor:
    """float32 weights, even in +- sqrt(6 / fan-in): 32 random bits each."""
    weights = np.empty(shape.numel(), np.float32)
    for start in range(0, len(weights), _PIECE):  # the bits of all at once would double the memory
        piece = weights[start : start + _PIECE]
        piece[:] = random.randint(0, 2**32, size=len(piece), dtype=np.uint32).view(np.int32)
    bound = math.sqrt(6 / shape[1:].numel())
    return torch.from_numpy(weights).mul_(bound / 2**31).reshape(shape)
