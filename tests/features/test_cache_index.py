"""The index of the feature cache: small, exact about where to look, and never the one that decides."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from genpr.features import cache as cache_module
from genpr.features.cache import FeatureCache
from genpr.features.extractor import ExtractorInfo

INFO = ExtractorInfo("toy", 3, "none", None, comparable=False, cache_key="a" * 64)


def fill(root, identities):
    """A shard with these images, whose features are their numbers; its path."""
    cache = FeatureCache(root, INFO, "cpu")
    before = set(cache.folder.glob("*.safetensors"))
    cache.add(identities, torch.arange(float(len(identities)))[:, None].expand(-1, 3), [()] * len(identities))
    cache.flush()
    return set(cache.folder.glob("*.safetensors")) - before


def rows_of(cache, identities):
    found = [cache.get(identity) for identity in identities]
    return [None if each is None else each.features.tolist()[0] for each in found]


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"x"), lambda path: path.unlink()])
def test_every_image_is_found_where_it_is_except_in_damaged_shards(rng, tmp_path, damage):
    identities = [each.tobytes() for each in rng.integers(0, 256, (60, 32), dtype=np.uint8)]
    shards = [fill(tmp_path, identities[start : start + 10]).pop() for start in range(0, 60, 10)]
    cache = FeatureCache(tmp_path, INFO, "cpu")
    assert rows_of(cache, identities) == list(range(10)) * 6
    fill(tmp_path, identities[25:26])
    cache = FeatureCache(tmp_path, INFO, "cpu")
    damage(shards[2])
    expected = [None if 20 <= row < 30 else row % 10 for row in range(60)]
    expected[25] = 0
    assert rows_of(cache, identities) == expected


def test_images_whose_hashes_end_alike_are_told_apart(tmp_path):
    alike = [bytes([number]) * 24 + b"12345678" for number in range(4)]
    for number in (0, 1, 2):
        fill(tmp_path, [*(bytes([9, number, row, *[0] * 29]) for row in range(number)), alike[number]])
    known = FeatureCache(tmp_path, INFO, "cpu")
    assert rows_of(known, alike) == [0, 1, 2, None]
    assert all(identity in known for identity in alike[:3])
    assert known.get(bytes(32)) is None


def test_an_image_takes_20_bytes(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "SHARD_ROWS", 2**15)
    identities = [each.tobytes() for each in rng.integers(0, 256, (2**17, 32), dtype=np.uint8)]
    FeatureCache(tmp_path, INFO, "cpu").add(identities, torch.zeros(2**17, 3), [()] * 2**17)
    tracemalloc.start()
    cache = FeatureCache(tmp_path, INFO, "cpu")
    assert all(identity in cache for identity in identities[::1000])
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20 * 2**17
    assert peak < 100 * 2**17
