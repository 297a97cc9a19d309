"""What holds for every extractor that genpr has: how it is called, what it leaves alone, how it is described."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from genpr.errors import DataError, WeightsError
from genpr.features.custom import extractor_info
from genpr.features.extractor import PreparingExtractor
from genpr.features.networks import inception
from genpr.features.networks.network import InputRule, NetworkExtractor
from genpr.features.registry import BUILT_IN, ExtractorName, list_extractors, load_extractor
from genpr.features.resize import find_rule
from genpr.features.weights import Weights

CPU = torch.device("cpu")


def small() -> NetworkExtractor:
    rule = InputRule(find_rule("torch-bilinear"), 8)
    weights = Weights({}, "a" * 64)
    return NetworkExtractor(
        nn.Flatten(), [ExtractorName("small")], [192], rule=rule, weights=weights, device=CPU
    )


def random_inception() -> NetworkExtractor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weights = Weights(inception.InceptionNetwork().state_dict(), "b" * 64)
    return inception.build(weights, names=[ExtractorName("inception")], device=CPU)


MAKERS = {
    "gabor": lambda: load_extractor("gabor", device="cpu", offline=True),
    "pixels": lambda: load_extractor("pixels", device="cpu", offline=True),
    "small": small,
    "inception": random_inception,
}


@pytest.fixture(scope="module", params=MAKERS)
def extractor(request):
    before = torch.get_rng_state()
    made = MAKERS[request.param]()
    assert torch.equal(torch.get_rng_state(), before), "loading draws nothing"
    return made


@pytest.fixture
def images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (4, 3, 31, 40), dtype=torch.uint8, generator=generator)


def test_the_call_is_prepare_then_forward(extractor, images):
    assert isinstance(extractor, PreparingExtractor)
    assert extractor.thread_safe
    prepared = torch.stack([extractor.prepare(image) for image in images])
    features = extractor(images)
    assert torch.equal(features, extractor.forward(prepared))
    assert (features.dtype, tuple(features.shape)) == (torch.float32, (4, extractor.dim))
    assert features.isfinite().all()
    assert features.std(dim=0).max() > 0
    with pytest.raises(DataError, match="needs uint8 images"):
        extractor(torch.zeros(2, 3, 8, 8))


def test_everything_else_is_left_as_found(extractor, images):
    before, random = images.clone(), torch.get_rng_state()
    flags = (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark)
    prepared = torch.stack([extractor.prepare(image) for image in images])
    kept = prepared.clone()
    assert not extractor(images).requires_grad
    extractor.forward(prepared)
    assert torch.equal(images, before)
    assert torch.equal(prepared, kept)
    assert torch.equal(torch.get_rng_state(), random)
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark) == flags


def test_an_image_depends_neither_on_its_place_nor_on_the_others(extractor, images):
    batch = torch.stack([extractor.prepare(image) for image in images])
    found = extractor.forward(batch)
    order = torch.tensor([2, 0, 3, 1])
    strangers = batch.clone()
    strangers[1:] = 255 - strangers[1:].flip(0)
    torch.testing.assert_close(extractor.forward(batch[order]), found[order], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(extractor.forward(strangers)[0], found[0], rtol=1e-5, atol=1e-6)
    alone = torch.cat([extractor(image[None]) for image in images])
    torch.testing.assert_close(extractor(images), alone, rtol=1e-4, atol=1e-5)


def test_it_is_described_as_it_is_listed(extractor):
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
def test_offline_the_missing_weights_are_named(name, file):
    with pytest.raises(WeightsError) as caught:
        load_extractor(name, device="cpu", offline=True)
    assert caught.value.code == "weights-missing"
    assert file in str(caught.value)
