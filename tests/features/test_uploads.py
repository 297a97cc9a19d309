"""Uploads of images to a CUDA device: reuse of buffers, stacks of one size, few kernels and synchronizations."""

import numpy as np
import pytest
import torch
from torch import nn

import genpr
from genpr.features.networks.network import InputRule, NetworkExtractor
from genpr.features.registry import ExtractorName
from genpr.features.resize import RESIZE_RULES
from genpr.features.uploads import Uploads

EXACT = [rule for rule in RESIZE_RULES.values() if rule.exact_on_device]
SIZES = [(5, 4), (3, 9), (5, 4), (7, 7), (1, 1)]


def random_images(rng, count):
    sizes = [SIZES[number % 5] for number in range(count)]
    return [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in sizes]


def resizing(rule, device):
    names, rule = [ExtractorName("pixels")], InputRule(rule, 8)
    return NetworkExtractor(nn.Flatten(), names, [192], rule=rule, weights=None, device=torch.device(device))


@pytest.mark.gpu
def test_buffer_is_reused_only_after_the_work_on_its_images(rng, monkeypatch):
    class Watched(torch.cuda.Event):
        covers = known = -1

        def record(self, *stream):
            self.covers = issued
            super().record(*stream)

        def synchronize(self):
            self.known = self.covers
            super().synchronize()

    def wait_stream(network, copies, wait=torch.cuda.Stream.wait_stream):
        awaited.append(copies)
        wait(network, copies)

    awaited = []
    monkeypatch.setattr(torch.cuda, "Event", Watched)
    monkeypatch.setattr(torch.cuda.Stream, "wait_stream", wait_stream)
    uploads = Uploads(torch.device("cuda"), buffers=2, limit=300)
    batches = [[torch.from_numpy(each) for each in random_images(rng, 2 + number % 3)] for number in range(9)]
    batches[5] = [image.float() for image in batches[5]]
    stacks = (stack for batch in batches for stack in uploads.send(batch))
    issued, held, filled = -1, {}, {}  # the last stack that was read, and that of each buffer, and its bytes
    for number, image in enumerate(image for batch in batches for image in batch):
        assert torch.equal(next(stacks).cpu(), image[None])
        for buffer in uploads.buffers:
            if not torch.equal(buffer.pinned, filled.get(buffer, buffer.pinned)):
                assert buffer.done.known >= held.get(buffer, -1)
                assert buffer.done.known < max(issued, 0), "the latest work is not waited for"
                assert awaited, "the network waits for the copy"
                awaited.clear()
            filled[buffer] = buffer.pinned.clone()
        held[uploads.buffers[-1]] = issued = number
    assert all(0 < len(each.pinned) <= 300 for each in held)
    assert issued == 26


@pytest.mark.gpu
@pytest.mark.parametrize("rule", EXACT, ids=lambda rule: rule.name)
def test_batches_of_mixed_sizes_equal_single_images_to_the_bit(rng, rule):
    images = random_images(rng, 33)
    expected = torch.cat([genpr.embed([image], resizing(rule, "cpu"), batch_size=1) for image in images])
    for batch_size in (1, 4, 33):
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
    behind = {}
    monkeypatch.setattr(torch.cuda, "Event", Watched)
    assert torch.equal(genpr.embed(images, extractor), expected)
    assert {1, 2, 3} <= {*behind.values()}, "features are waited for behind their copy"
    assert gpu.copies == {"to device": 3, "to host": 3}
    assert gpu.kernels < 3 * 25
    assert gpu.synchronizations.total() == 6, "for a buffer and for the features"
