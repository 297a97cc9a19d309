from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from genpr.features.networks import random_vgg16
from genpr.features.networks.random_vgg16 import SEEDS, weights_sha256
from genpr.features.registry import BUILT_IN, ExtractorName

SHA256 = {
    0: "030d6c66bade42da1f00d5cdec7ace93eb66c26d0b9961123beba6acae449641",
    1: "81e7258f240203be80665b1e66841ec5e6beea2788063f15267e31707b344d38",
    2: "90be9af8eacc47ca07ba6a7d589b9003b1d2a28d6157d8d22b71ee6ee086a246",
}
ALL_SHA256 = "2540ac5d21662bad4c68e26fd90809c4938abfee0a200d25a22fbcfb54ba8405"


@pytest.fixture(scope="module")
def extractor():
    return random_vgg16.build(None, names=[ExtractorName("random-vgg16")], device=torch.device("cpu"))


@pytest.fixture(scope="module")
def members(extractor) -> list[nn.Sequential]:
    return list(extractor._network.members)


@pytest.fixture(scope="module")
def images() -> list[torch.Tensor]:
    from sklearn.datasets import load_sample_images

    china, flower = (torch.from_numpy(image.copy()).permute(2, 0, 1) for image in load_sample_images().images)
    return [china, flower]


@pytest.fixture(scope="module")
def features(extractor, images) -> torch.Tensor:
    return torch.cat([extractor(image[None]) for image in images])


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_drawing_a_network_takes_no_more_memory_than_its_weights():
    code = (
        "import re, pathlib\n"
        "from genpr.features.networks.random_vgg16 import random_vgg16\n"
        "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
        "before = peak()\n"
        "random_vgg16(0)\n"
        "print((peak() - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert 400 < int(done.stdout) < 520  # MiB: 449 of weights and little else, so three stay below 2 GB


def test_the_weights_are_the_same_for_ever(extractor, members):
    # They are part of what the extractor is: whoever changes them gives it another name.
    assert {seed: weights_sha256(member) for seed, member in zip(SEEDS, members, strict=True)} == SHA256
    assert extractor.info.weights_sha256 == ALL_SHA256


def test_the_stream_does_not_depend_on_how_it_is_drawn(monkeypatch):
    import numpy as np

    shape = torch.Size((10, 7))
    whole = random_vgg16._draw(np.random.RandomState(3), shape)
    monkeypatch.setattr(random_vgg16, "_PIECE", 9)
    assert torch.equal(random_vgg16._draw(np.random.RandomState(3), shape), whole)
    bits = np.frombuffer(np.random.RandomState(3).bytes(4 * 70), "<i4").astype(np.float32)
    torch.testing.assert_close(whole.flatten(), torch.from_numpy(bits) * ((6 / 7) ** 0.5 / 2**31))


def test_it_is_vgg16_with_64_outputs(members):
    shapes = [tuple(weight.shape) for weight in members[0].state_dict().values()]
    widths = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    before = [3, *widths[:-1]]
    expected = [(width, inputs, 3, 3) for width, inputs in zip(widths, before, strict=True)]
    assert shapes == [*expected, (4096, 25088), (64, 4096)]
    assert [type(layer).__name__ for layer in members[0]].count("MaxPool2d") == 5


def test_no_layer_explodes_or_dies(extractor, members, images):
    rule = extractor._rule
    mean, std = torch.tensor([rule.mean, rule.std])[:, :, None, None]
    with torch.inference_mode():
        x = torch.stack([(extractor.prepare(image) - mean) / std for image in images])
        for layer in members[0]:
            x = layer(x)
            assert 0.5 < x.pow(2).mean().sqrt() < 5
            assert 0.2 < (x > 0).float().mean() < 0.8


def test_the_members_lie_side_by_side_and_differ(extractor, members, images, features):
    assert features.shape == (2, 192)
    assert (extractor.info.dim, extractor.info.members, extractor.info.comparable) == (192, 3, False)
    parts = features.chunk(3, 1)
    mean, std = (torch.tensor(c)[:, None, None] for c in (extractor._rule.mean, extractor._rule.std))
    seen = ((extractor.prepare(images[0]) - mean) / std)[None].contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        for part, member in zip(parts, members, strict=True):
            torch.testing.assert_close(part[:1], member(seen), rtol=1e-4, atol=1e-4)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert torch.cosine_similarity(parts[one][:1], parts[other][:1]).abs() < 0.5


def test_images_are_told_apart(features):
    for part in features.chunk(3, 1):
        assert (part[0] - part[1]).norm() > 0.1 * part.norm(dim=1).mean()


def test_the_catalog_agrees(extractor):
    known = BUILT_IN["random-vgg16"]
    assert (known.dim, known.side, known.comparable) == (extractor.dim, 224, False)
    assert extractor.info.resize == f"{known.resize}-224"
