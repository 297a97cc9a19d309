"""Ours against the two packages whose numbers the field quotes, with random weights (the real ones are not needed
to distinguish two networks) that keep every layer alive."""

import pytest
import torch
import torch.nn.functional as F
from peers import Peer
from random_weights import random_state

from genpr.features.networks.inception import InceptionNetwork, build
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights

pytorch_fid = Peer("pytorch_fid.inception")
fidelity_network = Peer("torch_fidelity.feature_extractor_inceptionv3")
torchmetrics_fid = Peer("torchmetrics.image.fid")


def load(state, *names):
    parsed = [ExtractorName.parse(name) for name in names]
    return build(Weights(dict(state), "a" * 64), names=parsed, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def state():
    """Random weights that keep all layers alive; both peers check their names and shapes."""
    with torch.device("meta"):
        shapes = InceptionNetwork().state_dict()
    return random_state(shapes, seed=2)


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (3, 3, 40, 56), dtype=torch.uint8, generator=generator)
    images[1, :, :, 28:] = 255
    images[2] = images[2].sort(dim=-1).values
    return images


def close(features: torch.Tensor, reference: torch.Tensor) -> None:
    assert (reference > 0).float().mean() > 0.5, "the random network must be alive"
    spread = reference.std(dim=0)
    assert spread.median() > 0.05, "and distinguish the images"
    torch.testing.assert_close(features, reference, rtol=1e-5, atol=1e-5 * float(reference.abs().max()))


def test_layers_equal_pytorch_fid(state, images, monkeypatch):
    """With its bilinear resize of torch, which its published values use.

    The spatial layer is `mixed_6/conv` in the graph: mixed, _1, _2 are 5b to 5d, mixed_3 is 6a, so mixed_6 is 6d, the third
    of the four blocks of 17 x 17 in the third sequence of pytorch-fid, and its `conv` is the branch of 1 x 1.
    """
    monkeypatch.setattr("pytorch_fid.inception.load_state_dict_from_url", lambda *_args, **_kwargs: state)
    network, seen = pytorch_fid.InceptionV3([0, 1, 2, 3]).eval(), []
    of_17 = [block for block in network.blocks[2] if type(block).__name__ == "FIDInceptionC"]
    assert len(of_17) == 4
    of_17[2].branch1x1.register_forward_hook(lambda _module, _input, output: seen.append(output))
    with torch.inference_mode():
        expected = [F.adaptive_avg_pool2d(each, 1).flatten(1) for each in network(images / 255)]
    expected.append(seen[0].movedim(1, -1)[..., :7].flatten(1))
    names = [f"inception{layer}@torch-bilinear" for layer in ("-64", "-192", "-768", "", "-spatial")]
    features = load(state, *names)(images).split([64, 192, 768, 2048, 2023], dim=1)
    for ours, theirs in zip(features, expected, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize(
    ("network", "resize"),
    [
        (lambda: fidelity_network.FeatureExtractorInceptionV3, ""),
        (lambda: torchmetrics_fid.NoTrainInceptionV3, "@torch-bilinear-antialias"),
    ],
    ids=["torch-fidelity", "torchmetrics"],
)
def test_every_layer_equals_torch_fidelity_and_torchmetrics(state, images, tmp_path, network, resize):
    torch.save(state, tmp_path / "w.pth")
    layers = ["64", "192", "768", "2048", "logits_unbiased"]
    reference = network()(
        "inception-v3-compat", layers, feature_extractor_weights_path=str(tmp_path / "w.pth")
    )
    names = [f"inception{layer}{resize}" for layer in ("-64", "-192", "-768", "", "-softmax")]
    features = load(state, *names)(images).split([64, 192, 768, 2048, 1008], dim=1)
    with torch.inference_mode():
        # `forward` of torchmetrics gives the first layer only.
        expected = getattr(reference, "_torch_fidelity_forward", reference)(images)
    for ours, theirs in zip(features[:-1], expected[:-1], strict=True):
        close(ours, theirs)
    torch.testing.assert_close(features[-1], expected[-1].softmax(1), rtol=1e-4, atol=1e-7)
