"""Ours against torchvision and torch-fidelity, with random weights that keep every layer alive.

Tolerance: 1e-5 of the range of the features, in float32.
"""

import pytest
import torch
from peers import Peer
from random_weights import relative_error

from genpr.features.known_weights import VGG16
from genpr.features.networks import vgg16
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights

fidelity_network = Peer("torch_fidelity.feature_extractor_vgg16")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:sklearn")


def test_fc2_equals_torch_fidelity(images, monkeypatch):
    from torchvision import models

    with torch.device("meta"):
        network = models.vgg16(init_weights=False)
    state, generator = network.to_empty(device="cpu").state_dict(), torch.Generator().manual_seed(0)
    for value in state.values():
        bound = (6 / value[0].numel()) ** 0.5 if value.ndim > 1 else 0.1
        value.uniform_(-bound, bound, generator=generator)
    load = "torch_fidelity.feature_extractor_vgg16.torchvision_load_pretrained_vgg16"
    monkeypatch.setattr(load, lambda **_: network)
    reference = fidelity_network.FeatureExtractorVGG16("vgg16", ["fc2_relu"])
    with torch.inference_mode():
        expected = torch.cat([reference(image[None])[0] for image in images])
    assert 0.2 < (expected > 0).float().mean() < 0.8, "fc2 after its ReLU: alive, and half of it zero"
    weights = Weights(state, VGG16.sha256)
    ours = vgg16.build(weights, names=[ExtractorName("vgg16")], device=torch.device("cpu"))
    assert relative_error(torch.cat([ours(image[None]) for image in images]), expected) < 1e-5
