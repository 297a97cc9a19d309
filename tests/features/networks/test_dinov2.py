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


@pytest.fixture(scope="module")
def ours(state):
    return build(state)


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


def test_it_is_the_class_token_after_the_norm(ours, images):
    with torch.inference_mode():
        batch = torch.stack([ours.prepare(image) for image in images])
        tokens = ours._network.forward_features((batch - ours._mean) / ours._std)
    torch.testing.assert_close(ours(images), tokens[:, 0], rtol=1e-5, atol=1e-5)
    assert tokens.shape == (2, 257, 384)
    assert (ours.info.name, ours.info.dim, ours.info.comparable) == ("dinov2-vits14", 384, True)
    assert (ours.info.resize, ours.info.weights_sha256) == ("pil-bicubic-uint8-224", DINOV2["s"].sha256)


@pytest.mark.parametrize("change", ["missing", "additional"])
def test_a_state_dict_that_does_not_fit_exactly_is_refused(change, state):
    state = {**state, "extra.bias": torch.zeros(1)}
    if change == "missing":
        del state["norm.bias"], state["extra.bias"]
    with pytest.raises(RuntimeError, match=r"norm\.bias|extra\.bias"):
        build(state)


def test_the_class_tokens_position_and_a_grid_that_fits_are_left_alone():
    positions = torch.randn(1, 1 + 37 * 37, 6, generator=torch.Generator().manual_seed(0))
    assert timm_models.resample_positions(positions, 37) is positions
    resampled = timm_models.resample_positions(positions, 16)
    assert resampled.shape == (1, 1 + 16 * 16, 6)
    assert torch.equal(resampled[:, 0], positions[:, 0])


def test_rows_stay_rows_and_the_offset_moves_them_aside():
    rows = torch.arange(37.0)[:, None].expand(37, 37)
    positions = torch.stack((rows, rows.T), -1).reshape(1, -1, 2)
    resampled = timm_models.resample_positions(torch.cat((torch.zeros(1, 1, 2), positions), 1), 16)
    grid = resampled[0, 1:].reshape(16, 16, 2)
    # The kernel (a = -0.75) bends a straight line by 0.05; without the offset the last rows were 0.2 off.
    centers = (torch.arange(16) + 0.5) * 37 / 16.1 - 0.5
    torch.testing.assert_close(grid[2:-2, 5, 0], centers[2:-2], rtol=0, atol=0.06)
    torch.testing.assert_close(grid[5, 2:-2, 1], centers[2:-2], rtol=0, atol=0.06)
    assert ((torch.arange(16) + 0.5) * 37 / 16 - 0.5 - centers)[13] > 0.15
