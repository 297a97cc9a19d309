from functools import cache

import pytest
import torch
from random_weights import random_state

from genpr.features.networks.inception import InceptionNetwork, build
from genpr.features.networks.network import NetworkExtractor
from genpr.features.registry import ExtractorName
from genpr.features.resize import tf1_bilinear
from genpr.features.weights import Weights

LAYERS = {
    "inception": 2048,
    "inception-768": 768,
    "inception-192": 192,
    "inception-64": 64,
    "inception-spatial": 2023,
    "inception-softmax": 1008,
}


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        shapes = InceptionNetwork().state_dict()
    return random_state(shapes)


def load(state, *names) -> NetworkExtractor:
    parsed = [ExtractorName.parse(name) for name in names]
    return build(Weights(dict(state), "a" * 64), names=parsed, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def layer(state):
    """One layer of the network by name, loaded once."""
    return cache(lambda name: load(state, name))


@pytest.mark.parametrize("change", ["missing", "additional"])
def test_mismatched_state_dict_is_an_error(change, state):
    changed = {**state, "AuxLogits.fc.bias": torch.zeros(1)}
    if change == "missing":
        del changed["Mixed_7c.branch_pool.bn.bias"], changed["AuxLogits.fc.bias"]
    with pytest.raises(RuntimeError, match=r"AuxLogits|branch_pool"):
        load(changed, "inception")


def test_one_pass_gives_several_layers(state, layer, images):
    joint = load(state, *LAYERS)
    assert [part.name for part in joint.parts] == list(LAYERS)
    assert joint.dim == sum(LAYERS.values())
    assert len({part.cache_key for part in joint.parts}) == len(LAYERS)
    columns = dict(zip(LAYERS, joint(images).split(list(LAYERS.values()), dim=1), strict=True))
    for name in ("inception", "inception-192", "inception-spatial"):
        assert torch.equal(layer(name)(images), columns[name]), name
    assert torch.equal(layer("inception").prepare(images[0]), tf1_bilinear(images[0], 299))


@pytest.mark.parametrize(("variant", "closer"), [("inception@bfloat16", True), ("inception@clip", False)])
def test_variants_are_different_extractors(variant, closer, state, layer, images):
    other, inception = load(state, variant), layer("inception")
    assert inception.info.comparable
    assert (other.info.name, other.info.comparable) == (variant, False)
    assert other.info.cache_key != inception.info.cache_key
    features, exact = other(images), inception(images)
    assert features.dtype == torch.float32
    error = float((features - exact).abs().max() / exact.abs().max())
    assert (0 < error < 0.05) is closer
