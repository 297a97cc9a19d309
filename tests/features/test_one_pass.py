"""Several extractors in one pass: each image is decoded once, and features equal those of separate passes."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import genpr
from genpr.errors import ImageError
from genpr.features import embed
from genpr.features.cache import FeatureCache
from genpr.features.custom import extractor_info, wrap_extractor
from genpr.images.policy import BadImagePolicy
from genpr.images.source import open_source
from genpr.runtime import torch_threads


class RandomNetwork(nn.Module):
    """A convolution with random weights, whose batches have images of one size."""

    name, dim, cache_key = "random", 5, "1"

    def __init__(self):
        super().__init__()
        self.layer, self.threads = nn.Conv2d(3, 5, 3), set()
        with torch.no_grad():
            self.layer.weight.normal_(generator=torch.Generator().manual_seed(0))

    def forward(self, images):
        self.threads.add(torch.get_num_threads())
        return self.layer(images.float()).mean((2, 3))


class Darkening:
    """Means of images, which it modifies in place; of at most 40 rows if it prepares them on the host."""

    name, dim, thread_safe = "darkening", 3, True

    def __init__(self, *, beside_network=False):
        self.prepares_on_device, self.threads = beside_network, set()

    def prepare(self, image):
        if image.shape[1] > 40 and not self.prepares_on_device:
            raise ImageError("too tall", code="image-too-large")
        mean = image.float().mean((1, 2), keepdim=True)
        image //= 2
        return mean

    def forward(self, batch):
        self.threads.add(torch.get_num_threads())
        return batch.flatten(1)

    def __call__(self, images):
        return self.forward(torch.stack([self.prepare(image) for image in images]))


@pytest.fixture
def folder(tmp_path, rng):
    """25 images of three sizes, the last of which is truncated, and one is tall."""
    path = tmp_path / "images"
    path.mkdir()
    for index in range(25):
        height = 50 if index == 17 else 9 + index % 3
        image = Image.fromarray(rng.integers(0, 256, (height, 11, 3), dtype=np.uint8))
        image.save(path / f"{index:02d}.png")
    last = path / "24.png"
    last.write_bytes(last.read_bytes()[:60])
    return path


def extractors():
    built_in = [genpr.load_extractor(name, device="cpu") for name in ("gabor", "pixels")]
    own = [RandomNetwork(), Darkening(), Darkening(beside_network=True)]
    return [*map(wrap_extractor, own[1:]), *built_in, wrap_extractor(own[0])]


def embedded(folder, chosen, caches=()):
    pairs = list(zip(chosen, caches or [None] * len(chosen), strict=True))
    how = {"batch_size": 4, "bad_images": BadImagePolicy("skip", max_share=0.1)}
    return embed.embed_source(open_source(folder), pairs, **how)


@pytest.mark.parametrize("cores", [1, 3])
def test_features_and_bad_images_equal_those_of_separate_passes(folder, decode, monkeypatch, cores):
    monkeypatch.setattr(embed, "usable_cores", lambda: cores)
    chosen = extractors()
    with torch_threads(2):
        together = embedded(folder, chosen)
        again = embedded(folder, chosen[::-1])
    assert [each.wrapped.threads for each in (chosen[0], chosen[-1])] == [{1 if cores > 1 else 2}, {2}]
    assert decode.call_count == 50
    assert all(
        torch.equal(one.features, other.features) for one, other in zip(again[::-1], together, strict=True)
    )
    for extractor, found in zip(chosen, together, strict=True):
        (alone,) = embedded(folder, [extractor])
        assert torch.equal(found.features, alone.features), extractor.name
        assert (found.names, found.extractor) == (alone.names, alone.extractor)
        assert [str(error) for error in found.skipped] == [str(error) for error in alone.skipped]
        assert torch.equal(found.identities, alone.identities)
    assert [len(found) for found in together] == [23, 24, 24, 24, 24], "the tall image is unusable for one"


def test_images_missing_in_one_cache_are_decoded_once(folder, decode, tmp_path):
    chosen = extractors()[2:]
    (folder / "24.png").unlink()

    def caches():
        return [FeatureCache(tmp_path / "cache", extractor_info(each), "cpu") for each in chosen]

    whole = embedded(folder, chosen)
    moved = [folder / f"{index:02d}.png" for index in range(14, 24)]
    for path in moved:
        path.rename(tmp_path / path.name)
    embedded(folder, chosen[:2], caches()[:2])
    for path in moved:
        (tmp_path / path.name).rename(path)
    decode.reset_mock()
    embedded(folder, chosen[:2], caches()[:2])
    assert decode.call_count == 10
    found = embedded(folder, chosen, caches())
    assert decode.call_count == 34
    assert [(each.n_cached, each.n_embedded) for each in found] == [(24, 0), (24, 0), (0, 24)]
    for each, expected in zip(found, whole, strict=True):
        assert torch.equal(each.features, expected.features)
    embedded(folder, chosen, caches())
    assert decode.call_count == 34
