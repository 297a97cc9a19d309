"""LPIPS 0.1: the distance of two images in the layers of AlexNet or VGG16.

Activations of five layers are scaled to length 1 over their channels; their squared differences are weighted by channel,
averaged over the image and summed over the layers.

References:
    R. Zhang et al., The Unreasonable Effectiveness of Deep Features as a Perceptual Metric, 2018, arXiv:1801.03924.
    richzhang/PerceptualSimilarity (BSD-2-Clause), lpips 0.1.4, which publishes the weights of the channels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from genpr.features import known_weights
from genpr.features.extractor import ExtractorInfo
from genpr.features.weights import Weights, WeightsFile

_EPS = 1e-10  # added to the norm of the activations
_PIXELS = 2**20  # pixels per forward pass
_BACKBONES = {"alex": ("alexnet", (1, 4, 7, 9, 11)), "vgg": ("vgg16", (3, 8, 15, 22, 29))}
"""The network in torchvision, and the indices of its `features` that are the layers, each a ReLU."""
MIN_SIDE = {"alex": 31, "vgg": 16}
"""The smallest side of an image in pixels, below which the last layer is empty."""


def own_weights(net: str, weights: str | os.PathLike[str] | None) -> dict[WeightsFile, Path | None]:
    """The files of backbone and linear layers, each with its path if it is `weights` or in that folder."""
    given = Path(weights or "")
    paths = dict[WeightsFile, Path | None]()
    for file in known_weights.LPIPS[net]:
        path = given / file.name if given.is_dir() else given
        paths[file] = path if weights is not None and path.name == file.name and path.is_file() else None
    return paths


class PerceptualDistance:
    """LPIPS of pairs of images with the network `net`, "alex" or "vgg", and the tensors of its two files."""

    def __init__(self, net: str, backbone: Weights, linear: Weights, device: torch.device) -> None:
        from torchvision import models

        name, taps = _BACKBONES[net]
        with torch.device("meta"):  # the published tensors become the parameters
            layers: nn.Sequential = getattr(models, name)().features
        parts = [(name.partition("features.")[2], tensor) for name, tensor in backbone.tensors.items()]
        layers.load_state_dict({name: tensor for name, tensor in parts if name}, strict=True, assign=True)
        layers.requires_grad_(False).eval().to(device)
        self._parts = [layers[a + 1 : b + 1] for a, b in pairwise((-1, *taps))]
        names = [f"lin{index}.model.1.weight" for index in range(len(taps))]
        self._channels = [linear.tensors[name].float().to(device) for name in names]
        # For values from -1 to 1: lpips' rounded mean and standard deviation of ImageNet.
        color = torch.tensor([[-0.030, -0.088, -0.188], [0.458, 0.448, 0.450]], dtype=torch.float32)
        self._shift, self._scale = color.view(2, 1, 3, 1, 1).to(device)
        self.device = device
        digest = hashlib.sha256(f"{backbone.sha256} {linear.sha256}".encode()).hexdigest()
        self.info = ExtractorInfo(
            f"lpips-{net}", 1, "none", digest, comparable=backbone.is_published and linear.is_published
        )

    def __call__(self, real: Tensor, fake: Tensor) -> Tensor:
        """Distances (n,) float64 of images uint8 (n, 3, h, w) and (n, 3, h, w), no side below `MIN_SIDE`."""
        count = max(1, _PIXELS // real[0, 0].numel())
        with torch.inference_mode():
            parts = zip(torch.split(real, count), torch.split(fake, count), strict=True)
            both = (self.activations(torch.cat(part)) for part in parts)
            return torch.cat([self.compared(layer.chunk(2) for layer in layers) for layers in both])

    def activations(self, images: Tensor) -> Iterator[Tensor]:
        """The scaled activations (n, c, h, w) of images uint8 (n, 3, h, w) in each layer."""
        x = (images.to(self.device).float() / 127.5 - 1 - self._shift) / self._scale
        for layers in self._parts:
            x = layers(x)
            yield x / (x.square().sum(dim=1, keepdim=True).sqrt() + _EPS)

    def compared(self, layers: Iterable[Sequence[Tensor]]) -> Tensor:
        """Distances (n,) float64 of n pairs, by the activations of the first and the second images in each layer."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for (first, second), channels in zip(layers, self._channels, strict=True):
            weighted = (first - second).square_().mul_(channels).sum(dim=1)
            total = total + weighted.double().mean(dim=(1, 2))
        return total
