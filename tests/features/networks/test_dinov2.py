from __future__ import annotations

import pytest
import torch
from random_weights import random_state

from genpr.features.known_weights import DINOV2
from genpr.features.networks import timm_models
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.weights import Weights

ARCHITECTURES = {
    "dinov2-vits14": "vit_small_patch14_dinov2",
    "dinov2-vitb14": "vit_base_patch14_dinov2",
    "dinov2-vitl14": "vit_large_patch14_dinov2",
    "dinov2-vitg14": "vit_giant_patch14_dinov2",
}


def empty(name: str, **options):
    import timm

    with torch.device("meta"):
        return timm.create_model(ARCHITECTURES[name], num_classes=0, **options).eval()


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    shapes = empty("dinov2-vits14", img_size=518).state_dict()
    return {"mask_token": torch.zeros(1, 384), **random_state(shapes)}


def build(state, name: str = "dinov2-vits14"):
    weights = Weights(state, DINOV2["s"].sha256)
    return timm_models.build(weights, names=[ExtractorName.parse(name)], device=torch.device("cpu"))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_networks_are_as_catalogd(name):
    from genpr.features.networks.timm_models import feature_dim

    known = BUILT_IN[name]
    network = empty(name, img_size=known.side)
    assert feature_dim(network, known.side, name) == known.dim
    assert (network.global_pool, network.patch_embed.grid_size) == ("token", (16, 16))
    depths = {"s": 12, "b": 12, "l": 24, "g": 40}
    heads = {"s": 6, "b": 12, "l": 16, "g": 24}
    letter = name[len("dinov2-vit")]
    assert len(network.blocks) == depths[letter]
    assert network.blocks[0].attn.num_heads == heads[letter]
    assert (network.norm.eps, network.blocks[0].norm1.eps) == (1e-6, 1e-6)
    assert known.weights == DINOV2[letter]


@pytest.mark.parametrize("change", ["missing", "additional"])
def test_a_state_dict_that_does_not_fit_exactly_is_refused(change, state):
    state = {**state, "extra.bias": torch.zeros(1)}
    if change == "missing":
        del state["norm.bias"], state["extra.bias"]
    with pytest.raises(RuntimeError, match=r"norm\.bias|extra\.bias"):
        build(state)
