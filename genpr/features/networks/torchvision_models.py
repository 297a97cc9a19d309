"""Two classifiers of torchvision: VGG16, and its own Inception-v3.

On VGG16 improved precision and recall was defined. This Inception is not the one of FID.

References:
    K. Simonyan and A. Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2015.
    T. Kynkäänniemi et al., Improved Precision and Recall Metric for Assessing Generative Models, 2019.
    torchvision (BSD-3-Clause), which also publishes the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from genpr.features.networks.network import NetworkExtractor, built_in
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """VGG16 up to fc2 after its ReLU (Kynkäänniemi et al. 2019), or Inception-v3 up to its pool."""
    (name,) = names
    network = _NETWORKS[name.base](weights.tensors)
    return built_in(network, name, weights=weights, device=device, channels_last=True)


def _vgg16(state: Mapping[str, Tensor]) -> nn.Module:
    from torchvision.models import vgg16

    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        network: nn.Module = vgg16(weights=None, init_weights=False)
    network.load_state_dict(state, strict=True, assign=True)
    network.classifier = nn.Sequential(
        *list(network.get_submodule("classifier").children())[:5]
    )  # up to the ReLU after fc2
    return network


def _inception(state: Mapping[str, Tensor]) -> nn.Module:
    from torchvision.models import inception_v3

    with torch.device("meta"):
        network: nn.Module = inception_v3(weights=None, init_weights=False, transform_input=True)
    network.load_state_dict(state, strict=True, assign=True)
    network.fc = nn.Identity()
    return network


_NETWORKS: Mapping[str, Callable[[Mapping[str, Tensor]], nn.Module]] = {
    "vgg16": _vgg16,
    "inception-torchvision": _inception,
}
