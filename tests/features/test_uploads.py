"""Copies of images to a CUDA device: stacks of one size, few kernels and synchronizations."""

import numpy as np
import pytest
import torch
from torch import nn

import genpr
from genpr.features import embed
from genpr.features.networks.network import InputRule, NetworkExtractor
from genpr.features.registry import ExtractorName
from genpr.features.resize import RESIZE_RULES

EXACT = [rule for rule in RESIZE_RULES.values() if rule.exact_on_device]
SIZES = [(5, 4), (3, 9), (5, 4), (7, 7), (1, 1)]


def random_images(rng, count):
    sizes = [SIZES[number % 5] for number in range(count)]
    return [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in sizes]


def resizing(rule, device):
    names, rule = [ExtractorName("pixels")], InputRule(rule, 8)
    return NetworkExtractor(nn.Flatten(), names, [192], rule=rule, weights=None, device=torch.device(device))


@pytest.mark.gpu
@pytest.mark.parametrize("rule", EXACT, ids=lambda rule: rule.name)
def test_batches_of_mixed_sizes_equal_single_images_to_the_bit(rng, monkeypatch, rule):
    images = random_images(rng, 33)
    expected = torch.cat([genpr.embed([image], resizing(rule, "cpu"), batch_size=1) for image in images])
    for batch_size, limit in ((1, 2**26), (4, 2**26), (33, 2**26), (33, 300)):
        monkeypatch.setattr(embed, "_UPLOAD_BYTES", limit)
        assert torch.equal(genpr.embed(images, resizing(rule, "cuda"), batch_size=batch_size), expected)
    same = torch.from_numpy(np.stack(images[::5])).permute(0, 3, 1, 2)
    assert torch.equal(rule.resize(same, 8), torch.stack([rule.resize(image, 8) for image in same]))
    assert torch.equal(resizing(rule, "cuda")(same).cpu(), expected[::5])


@pytest.mark.gpu
def test_full_and_partial_batches_have_the_same_layout(rng):
    class Converting:
        dim, device, prepares_on_device, prepares_stacks = 3, "cuda", True, True
        prepare = staticmethod(torch.Tensor.float)

        def forward(self, batch):
            layouts.append(batch.stride())
            return batch.mean((2, 3))

        __call__ = forward

    layouts = []
    genpr.embed(rng.integers(0, 256, (6, 5, 7, 3), dtype=np.uint8), Converting(), batch_size=4)
    assert layouts == [(105, 35, 7, 1)] * 2


@pytest.mark.gpu
def test_batch_takes_few_kernels_and_one_copy_in_each_direction(rng, gpu, monkeypatch):
    class Watched(torch.cuda.Event):
        def record(self, *stream):
            behind[self] = gpu.copies["to host"]

    images = rng.integers(0, 256, (192, 20, 30, 3), dtype=np.uint8)
    extractor = resizing(EXACT[0], "cuda")
    expected = genpr.embed(images, extractor)
    if gpu is None:
        return
    gpu.reset()
    behind, recorded = {}, []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *each: recorded.append(each))
    monkeypatch.setattr(torch.cuda, "Event", Watched)
    assert torch.equal(genpr.embed(images, extractor), expected)
    assert {1, 2, 3} <= {*behind.values()}, "features are waited for behind their copy"
    assert len(recorded) == 3, "the network's stream uses memory of the stream of copies"
    assert gpu.copies == {"to device": 3, "to host": 3}
    assert gpu.kernels < 3 * 25
    assert gpu.synchronizations.total() == 3, "for the features"
