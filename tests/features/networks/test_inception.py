from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache

import pytest
import torch
from random_weights import random_state

from genpr.errors import WeightsError
from genpr.features.custom import extractor_info
from genpr.features.extractor import PreparingExtractor
from genpr.features.networks.inception import InceptionNetwork, build
from genpr.features.networks.network import NetworkExtractor
from genpr.features.registry import ExtractorName
from genpr.features.resize import tf1_bilinear
from genpr.features.weights.files import load_weights
from genpr.features.weights.known import INCEPTION_2015, WeightsFile


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


def test_prepare_is_the_tf1_resize(inception, images):
    assert torch.equal(inception.prepare(images[0]), tf1_bilinear(images[0], 299))


def test_it_is_a_preparing_extractor_described_by_its_weights(inception, weights):
    info = extractor_info(inception)
    assert isinstance(inception, PreparingExtractor)
    assert (info.name, info.dim, info.resize, info.comparable) == (
        "inception",
        2048,
        "tf1-bilinear-299",
        True,
    )
    assert info.weights_sha256 == weights[0].sha256


def test_other_weights_have_another_cache_key(inception, tmp_path):
    state = dict(tensors())
    state["fc.bias"] = state["fc.bias"] + 1
    path = tmp_path / "other.pth"
    other = load(write_weights(path, state), path)
    assert None is not other.info.cache_key != inception.info.cache_key


def test_a_file_of_old_batch_norm_layers_loads(tmp_path, inception, images):
    state = {name: value for name, value in tensors().items() if "num_batches" not in name}
    path = tmp_path / "old.pth"
    old = load(write_weights(path, state), path)
    assert torch.equal(old(images), inception(images))


@pytest.mark.parametrize("change", ["missing", "additional", "shape"])
def test_a_state_dict_that_does_not_fit_exactly_is_refused(change, tmp_path):
    state = dict(tensors())
    if change == "missing":
        del state["Mixed_7c.branch_pool.bn.bias"]
    elif change == "additional":
        state["AuxLogits.fc.bias"] = torch.zeros(1)
    else:
        state["Mixed_6b.branch7x7_2.conv.weight"] = torch.zeros(128, 128, 7, 1)
    path = tmp_path / "bad.pth"
    with pytest.raises(RuntimeError, match=r"AuxLogits|branch_pool|branch7x7_2"):
        load(write_weights(path, state), path)


def test_weights_of_another_hash_are_refused(weights):
    with pytest.raises(WeightsError, match=INCEPTION_2015.sha256) as caught:
        load(INCEPTION_2015, weights[1])
    assert caught.value.code == "weights-hash"


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


def test_layers_have_different_cache_keys(layer):
    keys = {layer(name).info.cache_key for name in LAYERS}
    assert len(keys) == len(LAYERS)


def test_the_softmax_is_of_the_logits_without_bias(layer, inception, images):
    probabilities = layer("inception-softmax")(images)
    pool3 = inception(images)
    expected = (pool3 @ tensors()["fc.weight"].T).softmax(1)
    torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(3))


def test_the_spatial_layer_has_its_channels_last(layer, inception, images):
    maps = layer("inception-spatial")(images).view(3, 17, 17, 7)
    seen = []
    branch = inception._network.get_submodule("Mixed_6d.branch1x1")
    hook = branch.register_forward_hook(lambda *args: seen.append(args[2]))
    inception(images)
    hook.remove()
    torch.testing.assert_close(maps.permute(0, 3, 1, 2), seen[0][:, :7])


def test_bfloat16_is_close_but_another_extractor(weights, inception, images):
    half = load(*weights, "inception@bfloat16")
    assert half.info.name == "inception@bfloat16"
    assert not half.info.comparable
    assert half.info.cache_key != inception.info.cache_key
    features, exact = half(images), inception(images)
    assert features.dtype == torch.float32
    assert 0 < (features - exact).abs().max() / exact.abs().max() < 0.05


def test_another_resize_rule_is_another_extractor(weights, inception, images):
    other = load(*weights, "inception@torch-bilinear")
    assert (other.info.name, other.info.resize) == ("inception@torch-bilinear", "torch-bilinear-299")
    assert other.info.cache_key != inception.info.cache_key
    assert not torch.allclose(other(images), inception(images), rtol=1e-3)
