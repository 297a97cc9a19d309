from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache

import pytest
import torch
from random_weights import random_state

from genpr.features.custom import extractor_info
from genpr.features.extractor import PreparingExtractor
from genpr.features.known_weights import INCEPTION_2015
from genpr.features.networks.inception import InceptionNetwork, build
from genpr.features.networks.network import NetworkExtractor
from genpr.features.registry import ExtractorName
from genpr.features.resize import tf1_bilinear
from genpr.features.weights import WeightsFile, load_weights


@cache
def tensors() -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        shapes = InceptionNetwork().state_dict()
    return random_state(shapes)


def write_weights(path, state) -> WeightsFile:
    torch.save(state, path)
    data = path.read_bytes()
    return replace(INCEPTION_2015, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def load(entry, path, *names) -> NetworkExtractor:
    parsed = [ExtractorName.parse(name) for name in names or ["inception"]]
    return build(load_weights(entry, path), names=parsed, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "random.pth"
    return write_weights(path, tensors()), path


@pytest.fixture(scope="module")
def layer(weights):
    """One layer of the network by name, loaded once."""
    return cache(lambda name: load(*weights, name))


@pytest.fixture(scope="module")
def inception(layer) -> NetworkExtractor:
    return layer("inception")


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(
        0, 256, (3, 3, 20, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )


def test_it_is_a_preparing_extractor_described_by_its_weights(inception, weights, images):
    info = extractor_info(inception)
    assert isinstance(inception, PreparingExtractor)
    assert (info.name, info.dim, info.resize, info.comparable) == (
        "inception",
        2048,
        "tf1-bilinear-299",
        True,
    )
    assert info.weights_sha256 == weights[0].sha256
    assert torch.equal(inception.prepare(images[0]), tf1_bilinear(images[0], 299))


@pytest.mark.parametrize("change", ["missing", "additional"])
def test_a_state_dict_that_does_not_fit_exactly_is_refused(change, tmp_path):
    state = dict(tensors())
    if change == "missing":
        del state["Mixed_7c.branch_pool.bn.bias"]
    else:
        state["AuxLogits.fc.bias"] = torch.zeros(1)
    path = tmp_path / "bad.pth"
    with pytest.raises(RuntimeError, match=r"AuxLogits|branch_pool"):
        load(write_weights(path, state), path)


# Layers -----------------------------------------------------------------------------------------------------

LAYERS = {
    "inception": 2048,
    "inception-768": 768,
    "inception-192": 192,
    "inception-64": 64,
    "inception-spatial": 2023,
    "inception-softmax": 1008,
}


def test_one_pass_gives_several_layers_side_by_side(weights, layer, images):
    joint = load(*weights, *LAYERS)
    assert [part.name for part in joint.parts] == list(LAYERS)
    assert joint.dim == sum(LAYERS.values())
    columns = joint(images).split(list(LAYERS.values()), dim=1)
    for name, own in zip(LAYERS, columns, strict=True):
        alone = layer(name)
        assert (alone.name, alone.dim) == (name, LAYERS[name])
        assert torch.equal(alone(images), own), name
    assert len({layer(name).info.cache_key for name in LAYERS}) == len(LAYERS)


@pytest.mark.parametrize(("variant", "closer"), [("inception@bfloat16", True), ("inception@clip", False)])
def test_a_variant_is_another_extractor(variant, closer, weights, inception, images):
    other = load(*weights, variant)
    assert (other.info.name, other.info.comparable) == (variant, False)
    assert other.info.cache_key != inception.info.cache_key
    features, exact = other(images), inception(images)
    assert features.dtype == torch.float32
    error = float((features - exact).abs().max() / exact.abs().max())
    assert (0 < error < 0.05) is closer
