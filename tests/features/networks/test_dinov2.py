from __future__ import annotations

import pytest
import torch
from random_weights import random_state

from genpr.features.custom import extractor_info
from genpr.features.networks import dinov2
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.resize import find_rule
from genpr.features.weights.files import Weights
from genpr.features.weights.known import DINOV2

NAMES = ("dinov2-vits14", "dinov2-vitb14", "dinov2-vitl14", "dinov2-vitg14")


def empty(name: str, **options):
    import timm

    with torch.device("meta"):
        return timm.create_model(dinov2._ARCHITECTURES[name], num_classes=0, **options).eval()


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    shapes = empty("dinov2-vits14", img_size=518).state_dict()
    return {"mask_token": torch.zeros(1, 384), **random_state(shapes)}


def build(state, name: str = "dinov2-vits14"):
    weights = Weights(state, DINOV2["s"].sha256)
    return dinov2.build(weights, names=[ExtractorName.parse(name)], device=torch.device("cpu"))


@pytest.fixture(scope="module")
def ours(state):
    return build(state)


@pytest.mark.parametrize("name", NAMES)
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


def test_it_is_the_class_token_after_the_norm(ours, images):
    with torch.inference_mode():
        batch = torch.stack([ours.prepare(image) for image in images])
        tokens = ours._network.forward_features((batch - ours._mean) / ours._std)
    torch.testing.assert_close(ours(images), tokens[:, 0], rtol=1e-5, atol=1e-5)
    assert tokens.shape == (2, 257, 384)


def test_what_it_is_described_as(ours):
    info = extractor_info(ours)
    assert (info.name, info.dim, info.comparable) == ("dinov2-vits14", 384, True)
    assert (info.resize, info.weights_sha256) == ("pil-bicubic-uint8-224", DINOV2["s"].sha256)


def test_behind_the_resize_of_edm2(state, ours, images):
    other = build(state, "dinov2-vits14@torch-bicubic-antialias")
    rule = find_rule("torch-bicubic-antialias")
    assert torch.equal(other.prepare(images[0]), rule.resize(images[0], 224))
    assert extractor_info(other).resize == "torch-bicubic-antialias-224"
    assert not torch.equal(other(images[:1]), ours(images[:1]))


def test_the_published_weights_are_not_changed(state):
    before = {key: value.clone() for key, value in state.items()}
    build(state, "dinov2-vits14@bfloat16")
    assert state.keys() == before.keys()
    assert all(torch.equal(state[key], before[key]) for key in state)


def test_loading_leaves_the_random_numbers_as_they_were(state):
    before = torch.get_rng_state()
    build(state)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("change", ["missing", "additional", "shape"])
def test_a_state_dict_that_does_not_fit_exactly_is_refused(change, state):
    state = dict(state)
    if change == "missing":
        del state["norm.bias"]
    elif change == "additional":
        state["extra.bias"] = torch.zeros(1)
    else:
        state["blocks.3.mlp.fc1.weight"] = torch.zeros(3, 3)
    with pytest.raises(RuntimeError, match=r"norm\.bias|extra\.bias|fc1"):
        build(state)


def test_the_class_tokens_position_and_a_grid_that_fits_are_left_alone():
    positions = torch.randn(1, 1 + 37 * 37, 6, generator=torch.Generator().manual_seed(0))
    assert dinov2.resample_positions(positions, 37) is positions
    resampled = dinov2.resample_positions(positions, 16)
    assert resampled.shape == (1, 1 + 16 * 16, 6)
    assert torch.equal(resampled[:, 0], positions[:, 0])


def test_rows_stay_rows_and_the_offset_moves_them_aside():
    rows = torch.arange(37.0)[:, None].expand(37, 37)
    positions = torch.stack((rows, rows.T), -1).reshape(1, -1, 2)
    resampled = dinov2.resample_positions(torch.cat((torch.zeros(1, 1, 2), positions), 1), 16)
    grid = resampled[0, 1:].reshape(16, 16, 2)
    # The kernel (a = -0.75) bends a straight line by 0.05; without the offset the last rows were 0.2 off.
    centers = (torch.arange(16) + 0.5) * 37 / 16.1 - 0.5
    torch.testing.assert_close(grid[2:-2, 5, 0], centers[2:-2], rtol=0, atol=0.06)
    torch.testing.assert_close(grid[5, 2:-2, 1], centers[2:-2], rtol=0, atol=0.06)
    assert ((torch.arange(16) + 0.5) * 37 / 16 - 0.5 - centers)[13] > 0.15
