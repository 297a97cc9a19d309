"""Embedding: order, blocks, bad images, memory and the cache."""

import threading
import time
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from raising import raising
from special_tensors import SPECIAL, special
from torch import nn

import genpr
from genpr.errors import BadImagesError, DataError, FeatureError, ResourceError, UsageError
from genpr.features import embed
from genpr.features.cache import FeatureCache
from genpr.features.custom import wrap_extractor
from genpr.features.embed import embed_source
from genpr.features.networks.network import InputRule, NetworkExtractor
from genpr.features.options import EmbedOptions
from genpr.features.registry import ExtractorName
from genpr.features.resize import find_rule
from genpr.features.source_features import Embedder, OpenedImages
from genpr.images.item import IndexedSource
from genpr.images.policy import BadImagePolicy
from genpr.images.source import open_source

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


class Counting(nn.Module):
    """Channel means and standard deviations through a frozen layer; records its batches."""

    name = "counting"
    dim = 6

    def __init__(self, memory: int = 10**9) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6, bias=False)
        nn.init.eye_(self.layer.weight)
        self.dropout = nn.Dropout()
        self.batches = []
        self.memory = memory

    def forward(self, images):
        self.batches.append(tuple(images.shape))
        if len(images) > self.memory:
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        assert images.dtype == torch.uint8
        pixels = images.double().flatten(2)
        return self.dropout(self.layer(torch.cat([pixels.mean(2), pixels.std(2, correction=0)], 1).float()))


def expected(pixels: np.ndarray) -> np.ndarray:
    flat = pixels.reshape(len(pixels), -1, 3).astype(np.float64)
    return np.concatenate([flat.mean(1), flat.std(1)], 1).astype(np.float32)


@pytest.fixture
def pixels(rng):
    return rng.integers(0, 256, (37, 9, 7, 3), dtype=np.uint8)


@pytest.fixture
def folder(write_images, pixels):
    return write_images("a", pixels)


@devices
@pytest.mark.parametrize("batch_size", [1, 5, 37, 64])
def test_rows_follow_the_source_for_any_batch_size(folder, pixels, batch_size, device):
    extractor = Counting().to(device)
    seen = []
    progress = lambda done, total: seen.append((done, total))  # noqa: E731
    features = genpr.embed(folder, extractor, batch_size=batch_size, progress=progress)
    assert features.device.type == "cpu"
    assert seen == [(done, 37) for done in range(1, 38)]
    assert features.dtype == torch.float32
    np.testing.assert_allclose(features, expected(pixels), rtol=1e-6)
    assert {shape[0] for shape in extractor.batches} == {batch_size}


@pytest.mark.parametrize("batch_size", [None, 0, -1, 1.5, "8", True])
def test_batch_size_is_a_positive_integer(folder, batch_size):
    with raising(UsageError, "bad-option"):
        genpr.embed(folder, Counting(), batch_size=batch_size)


def test_iterator_without_images_is_an_error(pixels):
    spent = iter([pixels])
    next(spent)
    for iterator in (spent, iter(())):
        with raising(DataError, "no-images"):
            genpr.embed(iterator, Counting())


@devices
def test_mixed_sizes_keep_their_order(tmp_path, rng, device):
    images = [rng.integers(0, 256, (5 + i % 3, 4, 3), dtype=np.uint8) for i in range(20)]
    for index, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{index:03d}.png")
    features = genpr.embed(tmp_path, Counting().to(device), batch_size=4)
    np.testing.assert_allclose(
        features, np.concatenate([expected(image[None]) for image in images]), rtol=1e-6
    )


@devices
def test_out_of_memory_halves_the_batch_and_keeps_the_answer(folder, pixels, device):
    extractor = Counting().to(device)
    shrink = lambda done, _: setattr(extractor, "memory", 3 if done > 20 else 99)  # noqa: E731
    features = genpr.embed(folder, extractor, batch_size=16, progress=shrink)
    np.testing.assert_allclose(features, expected(pixels), rtol=1e-6)
    sizes = [shape[0] for shape in extractor.batches]
    assert sizes[:5] == [16, 16, 8, 4, 2]
    assert set(sizes[5:]) == {2}, "once halved, it stays"
    with pytest.raises(ResourceError, match="out of memory for one image"):
        genpr.embed(folder, Counting(memory=0).to(device))


@devices
def test_wrong_shapes_and_nan_are_errors(folder, device):

    class Narrow(Counting):
        def forward(self, images):
            return super().forward(images)[:, :5]

    class Complex(Counting):
        def forward(self, images):
            return super().forward(images).to(torch.complex64)

    class Poisoned(Counting):
        def forward(self, images):
            features = super().forward(images)
            features[3 if len(self.batches) == 2 else 99 :] = torch.nan
            return features

    for wrong in (Narrow(), Complex()):
        with raising(FeatureError, "feature-shape"):
            genpr.embed(folder, wrong.to(device))
    with pytest.raises(FeatureError, match=r"NaN or infinity for 00013\.png"):
        genpr.embed(folder, Poisoned().to(device), batch_size=10)


@devices
def test_batches_before_a_failing_one_are_cached(write_images, pixels, device):
    class Failing(Counting):
        def forward(self, images):
            if len(self.batches) == 3:
                raise RuntimeError("planted")
            return super().forward(images)

    kept = Mock(spec=FeatureCache, **{"get.return_value": None})
    source, extractor = open_source(write_images("a", pixels)), wrap_extractor(Failing().to(device))
    with raising(UsageError, "extractor-failed", "planted"):
        embed_source(source, [(extractor, kept)], batch_size=5)
    rows = torch.stack([entry.features for call in kept.add.mock_calls for entry in call.args[1]])
    np.testing.assert_allclose(rows, expected(pixels[:15]), rtol=1e-6)


class Calling:
    """An extractor whose method `place` calls `code`, with the features of the other methods as an argument."""

    dim = 3

    def __init__(self, place, code):
        self.prepares_on_device = place == "prepare on the device"
        if place.startswith("prepare"):
            self.prepare, self.forward = lambda image: code(image.float()), lambda batch: batch.mean((2, 3))
        elif place == "forward":
            self.prepare, self.forward = lambda image: image.float(), lambda batch: code(batch.mean((2, 3)))
        self.code, self.thread_safe = code, place == "call in threads"

    def __call__(self, images):
        return self.code(images.float().mean((2, 3)))


PLACES = ["call", "call in threads", "forward", "prepare", "prepare on the device"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "error", [SystemExit(0), SystemExit(3), StopIteration(), GeneratorExit(), KeyError()]
)
def test_whatever_an_extractor_raises_is_one_error(place, error, pixels):
    def fail(_):
        raise type(error)(*error.args)

    with raising(UsageError, "extractor-failed", f"Calling .*{type(error).__name__}"):
        genpr.embed(pixels, Calling(place, fail))


@pytest.mark.parametrize("place", PLACES)
def test_interruption_in_an_extractor_is_one(place, pixels):
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        genpr.embed(pixels, Calling(place, interrupt))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [*SPECIAL, None])
def test_outputs_that_are_no_plain_tensors_are_errors(place, kind, pixels):
    with raising(FeatureError, "feature-shape", "a dense torch.Tensor"):
        genpr.embed(pixels, Calling(place, lambda x: None if kind is None else special(kind, x)))


def test_negative_bit_changes_no_feature(pixels):
    plain, negated = (
        genpr.embed(pixels, Calling("call", code)) for code in (abs, lambda x: torch._neg_view(-x))
    )
    assert torch.equal(plain, negated)


def test_only_bad_images_are_skipped(folder, pixels):
    for name in ("00002.png", "00035.png"):
        (folder / name).write_bytes((folder / name).read_bytes()[:60])
    policy = BadImagePolicy("skip", max_share=2 / 37)
    chosen = [(wrap_extractor(Counting()), None)]
    (result,) = embed_source(open_source(folder), chosen, bad_images=policy, batch_size=8)
    np.testing.assert_allclose(result.features, expected(np.delete(pixels, [2, 35], axis=0)), rtol=1e-6)
    assert [error.path for error in result.skipped] == ["00002.png", "00035.png"]
    assert len(result.names) == len(result) == 35
    for policy in (BadImagePolicy(), BadImagePolicy("skip", max_share=0.05)):
        with pytest.raises(BadImagesError, match="2 of 37 images") as caught:
            embed_source(open_source(folder), chosen, bad_images=policy)
        assert [bad.path for bad in caught.value.bad] == ["00002.png", "00035.png"]


def test_adding_files_never_changes_the_features_of_others(write_images, rng):
    pixels = rng.integers(0, 256, (70, 40, 50, 3), dtype=np.uint8)
    extractor = genpr.load_extractor("gabor", device="cpu")
    few = genpr.embed(write_images("few", pixels[3:]), extractor)
    many = genpr.embed(write_images("many", pixels), extractor)
    assert torch.equal(few, many[3:])


class Parallel(Counting):
    """Delays earlier blocks more than later ones, and counts concurrent calls."""

    thread_safe = True

    def __init__(self):
        super().__init__()
        self.threads = set()

    def forward(self, images):
        self.threads.add(threading.get_ident())
        assert not torch.is_grad_enabled()
        assert not self.training
        time.sleep(0.02 if images[0, 0, 0, 0] % 2 else 0.001)
        return super().forward(images)


def test_thread_safe_extractors_run_in_parallel_with_the_same_rows(
    write_images, pixels, monkeypatch, tmp_path
):
    monkeypatch.setattr("genpr.features.embed.usable_cores", lambda: 3)
    threads_before = torch.get_num_threads()
    extractor = Parallel()
    features = genpr.embed(write_images("a", pixels), extractor, batch_size=2)
    np.testing.assert_allclose(features, expected(pixels), rtol=1e-6)
    assert len(extractor.threads) > 1
    assert threading.main_thread().ident not in extractor.threads
    assert torch.get_num_threads() == threads_before
    alone = Parallel()
    alone.thread_safe = False
    genpr.embed(tmp_path / "a", alone, batch_size=2)
    assert alone.threads == {threading.main_thread().ident}


@pytest.mark.parametrize(("requested", "taken"), [(64, 16), (16, 16), (5, 5)])
def test_built_in_networks_take_small_batches_on_a_cpu(folder, requested, taken):
    extractor = genpr.load_extractor("gabor", device="cpu")
    sizes, forward = [], extractor.forward
    extractor.forward = lambda batch: sizes.append(len(batch)) or forward(batch)
    features = genpr.embed(folder, extractor, batch_size=requested)
    assert set(sizes) == {taken}, "the last batch is padded"
    assert torch.equal(features, genpr.embed(folder, extractor, batch_size=taken))


@pytest.mark.parametrize(("groups", "sizes"), [(1, [16, 16]), (3, [8, 8, 8])])
def test_networks_with_grouped_convolutions_take_smaller_batches_on_a_cpu(groups, sizes):
    network = nn.Sequential(nn.Conv2d(3, 6, 3, groups=groups), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    rule, names, device = InputRule(find_rule("torch-bilinear"), 8), [ExtractorName("x")], torch.device("cpu")
    extractor = NetworkExtractor(network, names, [6], rule=rule, weights=None, device=device)
    taken = []
    network.register_forward_pre_hook(lambda _, inputs: taken.extend(inputs))
    genpr.embed(np.zeros((20, 9, 9, 3), np.uint8), extractor)
    assert [len(batch) for batch in taken] == sizes
    assert all(batch.is_contiguous(memory_format=torch.channels_last) for batch in taken)


class Files(IndexedSource):
    """Images that are never read."""

    name = "files"

    def __init__(self, n, is_in_files):
        self.n, self.is_in_files = n, is_in_files

    def __len__(self):
        return self.n


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("cores", "n", "is_in_files", "device", "workers", "processes"),
    [
        *[
            (16, 2000, True, "cuda", None, 15),
            (4, 2000, True, "cuda", None, 3),
            (99, 2000, True, "cuda", None, 32),
        ],
        *[
            (3, 2000, True, "cuda", None, 0),
            (16, 1999, True, "cuda", None, 0),
            (16, 2000, False, "cuda", None, 0),
        ],
        *[(16, 2000, True, "cpu", None, 0), (16, 2000, True, "cuda", 0, 0), (2, 10, True, "cpu", 5, 5)],
        (2, 10, False, "cpu", 5, 0),
    ],
)
def test_processes_load_many_files_for_a_gpu(cores, n, is_in_files, device, workers, processes, monkeypatch):
    seen = Mock(return_value=iter(()))
    monkeypatch.setattr(embed, "read_ahead", lambda *args, **options: (seen(**options), (yield from ())))
    for module in ("genpr.features.embed", "genpr.images.read_ahead"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: cores)
    images = OpenedImages(Files(n, is_in_files), on_disk=False)
    Embedder(EmbedOptions(device=device, workers=workers)).embed(images, "real", [["pixels"]], None)
    assert seen.call_args.kwargs == {"processes": processes}


def test_autocast_of_the_caller_does_not_change_features(folder):
    plain = genpr.embed(folder, Counting())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = genpr.embed(folder, Counting())
    assert torch.equal(plain, inside)


class OnDevice:
    """Prepares its images on the device of the network; several sizes share a batch."""

    name, dim, prepares_on_device, thread_safe = "on-device", 3, True, True

    def __init__(self, device="cpu"):
        self.device, self.prepared, self.batches = device, [], []

    def prepare(self, image):
        self.prepared.append(image.shape)
        return image.float().mean((-2, -1), keepdim=True)

    def forward(self, batch):
        self.batches.append(len(batch))
        return batch.flatten(1).where(batch.flatten(1) < 255, torch.nan)

    def __call__(self, images):
        return self.forward(torch.stack([self.prepare(image) for image in images]))


@devices
def test_extractor_may_prepare_images_on_its_device(rng, device):
    extractor = OnDevice(device)
    images = [
        rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in [(3, 4), (5, 2), (3, 4), (7, 7), (1, 9)]
    ]
    features = genpr.embed(images, extractor, batch_size=2)
    expected = torch.tensor(np.array([image.mean((0, 1)) for image in images]), dtype=torch.float32)
    torch.testing.assert_close(features, expected)
    assert extractor.batches == [2, 2, 2], "blocks are full although every size differs"
    assert len(extractor.prepared) == (6 if device == "cpu" else 5)  # on CUDA the last result is copied
    extractor.prepares_stacks, extractor.prepared = True, []
    assert torch.equal(genpr.embed(images, extractor, batch_size=5), features)
    assert len(extractor.prepared) == (5 if device == "cpu" else 4)  # two images are of one size
    images[1][:] = images[4][:] = 255  # of which the latter is smaller
    with pytest.raises(FeatureError, match=r"NaN or infinity for \[1\]"):
        genpr.embed(images, extractor, batch_size=5)


def test_batches_do_not_cross_blocks_and_are_not_padded_beyond_one(folder, monkeypatch):
    monkeypatch.setattr("genpr.features.embed.BLOCK", 16)
    sizes = []

    class Watched(Counting):
        def __call__(self, images):
            sizes.append((len(images), len({image.numpy().tobytes() for image in images})))
            return super().__call__(images)

    features = genpr.embed(folder, Watched(), batch_size=10)
    assert sizes == [(10, 10), (10, 6), (10, 10), (10, 6), (10, 5)]
    sizes.clear()
    assert torch.equal(genpr.embed(folder, Watched(), batch_size=10_000), features)
    assert sizes == [(16, 16), (16, 16), (16, 5)]


def test_number_of_waiting_images_is_bounded(tmp_path, rng):
    for index in range(30):
        pixels = rng.integers(0, 256, (index + 1, 3, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index:03d}.png")
    extractor, waiting = Counting(), []

    def progress(done, _):
        waiting.append(done - len(extractor.batches))  # each size occurs once, so each batch holds one image

    genpr.embed(tmp_path, extractor, batch_size=2, progress=progress)
    assert max(waiting) == 7, "4 batches of 2, less the one that runs"
