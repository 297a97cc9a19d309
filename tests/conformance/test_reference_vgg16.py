"""Ours against torchvision and torch-fidelity, with random weights that keep every layer alive.

Tolerance: 1e-5 of the range of the features, in float32.
"""

import pytest
import torch
from peers import Peer

from genpr.features.known_weights import VGG16
from genpr.features.networks import vgg16
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights

fidelity_network = Peer("torch_fidelity.feature_extractor_vgg16")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:sklearn")


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    from torchvision.models import vgg16

    with torch.device("meta"):
        shapes = {name: value.shape for name, value in vgg16(init_weights=False).state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.empty(shape) for name, shape in shapes.items()}
    for value in weights.values():
        bound = (6 / value[0].numel()) ** 0.5 if value.ndim > 1 else 0.1
        value.uniform_(-bound, bound, generator=generator)
    return weights


def test_fc2_equals_torch_fidelity(state, images, monkeypatch):
    def network(**_kwargs):
        from torchvision.models import vgg16

        with torch.device("meta"):
            model = vgg16(init_weights=False)
        model.load_state_dict(state, assign=True)
        return model

    monkeypatch.setattr("torch_fidelity.feature_extractor_vgg16.torchvision_load_pretrained_vgg16", network)
    reference = fidelity_network.FeatureExtractorVGG16("vgg16", ["fc2_relu"])
    with torch.inference_mode():
        expected = torch.cat([reference(image[None])[0] for image in images])
    assert 0.2 < (expected > 0).float().mean() < 0.8, "fc2 after its ReLU: alive, and half of it zero"
    assert expected.std(dim=0).median() > 0.01 * expected.max(), "the images differ"
    weights = Weights(state, VGG16.sha256)
    ours = vgg16.build(weights, names=[ExtractorName("vgg16")], device=torch.device("cpu"))
    found = torch.cat([ours(image[None]) for image in images])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.max()))
