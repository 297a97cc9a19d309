from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import genpr
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import extractor_info, wrap_extractor
from genpr.features.embed import embed_source
from genpr.features.networks import torchvision_models
from genpr.features.registry import BUILT_IN, ExtractorName, group_by_network
from genpr.features.resize import find_rule
from genpr.features.weights import Weights
from genpr.images.source import open_source

CPU = torch.device("cpu")


class Counting:
    """As in test_embed.py, where it need not be pasted."""

    name, dim = "counting", 3

    def __init__(self):
        self.batches = []

    def __call__(self, images):
        self.batches.append(tuple(images.shape))
        return images.float().mean((2, 3))


@pytest.fixture
def images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (2, 3, 91, 70), dtype=torch.uint8, generator=generator)


@pytest.fixture
def gabor():
    return genpr.load_extractor("gabor", device="cpu")


def test_layers_behind_another_resize_rule_are_another_pass():
    names = ["inception", "inception@torch-bilinear", "inception-64@torch-bilinear", "inception-64"]
    assert group_by_network(names) == (
        ("inception", "inception-64"),
        ("inception@torch-bilinear", "inception-64@torch-bilinear"),
    )


@pytest.mark.parametrize("base", ["vgg16", "inception-torchvision"])
def test_classifiers_of_torchvision_have_variants(base, images, monkeypatch):
    monkeypatch.setattr(
        torchvision_models,
        "_NETWORKS",
        {base: lambda _: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())},
    )
    name = ExtractorName.parse(f"{base}@clip@bfloat16")
    made = torchvision_models.build(Weights({}, "0" * 64), names=[name], device=CPU)
    side = BUILT_IN[base].side
    assert torch.equal(made.prepare(images[0]), find_rule("clip").resize(images[0], side))
    assert (made.info.resize, made.info.name) == (f"clip-{side}", str(name))
    features = made(images)
    assert features.dtype == torch.float32
    assert torch.equal(features, features.bfloat16().float()), "computed in bfloat16"


def test_a_damaged_file_of_any_layer_is_noticed(gabor, tmp_path):
    info = extractor_info(gabor)
    parts = [replace(info, dim=1, cache_key=letter * 64) for letter in "ab"]
    caches = [FeatureCache(tmp_path, part, "cpu") for part in parts]
    joined = JoinedCache(caches, [1, 1])
    joined.add([bytes(32)], torch.ones(1, 2), [()])
    joined.flush()
    (shard,) = caches[1].folder.glob("*.safetensors")
    shard.write_bytes(b"garbage")
    again = JoinedCache([FeatureCache(tmp_path, part, "cpu") for part in parts], [1, 1])
    assert again.get(bytes(32)) is None
    assert [item.code for item in again.notices] == ["cache-discarded"]
    again.add([bytes(32)], torch.ones(1, 2), [()])
    again.flush()
    once_more = JoinedCache([FeatureCache(tmp_path, part, "cpu") for part in parts], [1, 1])
    assert once_more.get(bytes(32)).features.tolist() == [1, 1], "both layers are stored again"


def test_a_layer_that_is_damaged_after_the_cache_was_opened_is_stored_again(gabor, tmp_path):
    info = extractor_info(gabor)
    parts = [replace(info, dim=1, cache_key=letter * 64) for letter in "ab"]

    def joined():
        caches = [FeatureCache(tmp_path, part, "cpu") for part in parts]
        return caches, JoinedCache(caches, [1, 1])

    caches, cache = joined()
    cache.add([bytes(32)], torch.ones(1, 2), [()])
    cache.flush()
    caches, cache = joined()
    (shard,) = caches[1].folder.glob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-20] ^= 1
    shard.write_bytes(data)
    assert cache.get(bytes(32)) is None
    cache.add([bytes(32)], torch.ones(1, 2), [()])
    cache.flush()
    assert joined()[1].get(bytes(32)).features.tolist() == [1, 1]


def test_images_of_many_sizes_do_not_pile_up(tmp_path, rng):
    for index in range(30):
        Image.fromarray(rng.integers(0, 256, (index + 1, 3, 3), dtype=np.uint8)).save(
            tmp_path / f"{index:03d}.png"
        )
    extractor, waiting = Counting(), []

    def progress(done, _):
        waiting.append(done - len(extractor.batches))  # each size occurs once, so each block holds one image

    embed_source(open_source(tmp_path), wrap_extractor(extractor), batch_size=2, progress=progress)
    assert max(waiting) == 7, "4 blocks of 2, less the one that runs"
