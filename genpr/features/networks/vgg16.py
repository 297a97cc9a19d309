"""VGG16 of torchvision, up to fc2 after its ReLU: the features of improved precision and recall.

References:
    K. Simonyan and A. Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2015.
    T. Kynkäänniemi et al., Improved Precision and Recall Metric for Assessing Generative Models, 2019.
    torchvision (BSD-3-Clause), which also publishes the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from genpr.features.networks.network import NetworkExtractor, built_in
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """4096 features of a square of 224 pixels."""
    from torchvision.models import vgg16

    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        network: nn.Module = vgg16(weights=None, init_weights=False)
    network.load_state_dict(weights.tensors, strict=True, assign=True)
    network.classifier = nn.Sequential(*list(network.get_submodule("classifier").children())[:5])
    return built_in(network, names, weights=weights, device=device)
