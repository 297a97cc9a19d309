"""What all networks have in common, and pixels."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from genpr.errors import UsageError
from genpr.features.custom import extractor_info
from genpr.features.networks.network import InputRule, NetworkExtractor, describe_part, joint_info
from genpr.features.registry import ExtractorName, load_extractor
from genpr.features.resize import find_rule
from genpr.features.weights import Weights

CPU = torch.device("cpu")


def test_pixels_are_the_resized_image_plane_by_plane(images):
    pixels = load_extractor("pixels", device="cpu")
    rule = find_rule("torch-bicubic-antialias")
    expected = torch.stack([rule.resize(image, 32).flatten() / 255 for image in images])
    torch.testing.assert_close(pixels(images), expected, rtol=0, atol=1e-6)
    red = torch.zeros(1, 3, 40, 40, dtype=torch.uint8)
    red[:, 0] = 255
    found = pixels(red).reshape(3, 32, 32)
    torch.testing.assert_close(found, torch.tensor([1.0, 0, 0])[:, None, None].expand(3, 32, 32))


def test_pixels_have_variants(images):
    plain = load_extractor("pixels", device="cpu")
    other = load_extractor("pixels@tf1-bilinear", device="cpu")
    coarse = load_extractor("pixels@bfloat16", device="cpu")
    assert torch.equal(other(images)[0], find_rule("tf1-bilinear").resize(images[0], 32).flatten() / 255)
    assert 0 < (coarse(images) - plain(images)).abs().max() < 1e-2
    assert len({extractor_info(each).cache_key for each in (plain, other, coarse)}) == 3
    assert not extractor_info(plain).comparable
    with pytest.raises(UsageError, match="no further variant"):
        load_extractor("pixels@nearest", device="cpu")


@pytest.fixture
def small() -> NetworkExtractor:
    rule = InputRule(find_rule("torch-bilinear"), 8)
    weights = Weights({}, "a" * 64)
    return NetworkExtractor(
        nn.Flatten(), [ExtractorName("small")], [192], rule=rule, weights=weights, device=CPU
    )


def test_anything_that_moves_features_moves_the_cache_key():
    name, rule = ExtractorName("small"), InputRule(find_rule("clip"), 8)

    def key(name=name, rule=rule, sha256="a"):
        return describe_part(name, rule, dim=3, weights=Weights({}, sha256)).cache_key

    others = [
        key(sha256="b"),
        key(name=ExtractorName("other")),
        key(name=ExtractorName("small", precision="bfloat16")),
        key(rule=replace(rule, side=9)),
        key(rule=replace(rule, resize=find_rule("tf1-bilinear"))),
        key(rule=replace(rule, mean=(1.0, 2.0, 3.0))),
        key(rule=replace(rule, std=(1.0, 2.0, 3.0))),
    ]
    assert len({key(), *others}) == 8
    assert key() == key()
    coarse = ExtractorName("small", precision="bfloat16")
    assert not describe_part(coarse, rule, dim=1, weights=Weights({}, "a" * 64)).comparable


def test_several_layers_are_one_record(small):
    (part,) = small.parts
    assert joint_info([part]) is part
    b, c = (replace(part, name=key, dim=8, comparable=False, cache_key=key) for key in "bc")
    both = joint_info([part, b])
    assert (both.name, both.dim, both.comparable) == ("small+b", 200, False)
    keys = {joint_info(parts).cache_key for parts in ([part], [part, b], [part, c], [b, part], [part, b, c])}
    assert len(keys - {"b", "c", None}) == 5


def test_genpr_is_imported_without_the_libraries_of_networks():
    import subprocess

    code = (
        "import sys, genpr, genpr.features.networks.clip, genpr.features.networks.timm_models\n"
        "print([name for name in ('timm', 'open_clip', 'transformers', 'torchvision') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
