"""The index of the feature cache: small, exact about where to look, and never the one that decides."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from genpr.features import cache
from genpr.features.cache import CacheIndex, FeatureCache
from genpr.features.extractor import ExtractorInfo

INFO = ExtractorInfo("toy", 3, "none", None, comparable=False, cache_key="a" * 64)


def identities(rng, n):
    return rng.integers(0, 256, (n, 32), dtype=np.uint8)


@pytest.mark.parametrize("most_new", [0, 25, 10**6], ids=["sorted at once", "now and then", "never sorted"])
def test_every_image_is_found_where_it_is_however_they_are_kept(rng, monkeypatch, most_new):
    monkeypatch.setattr(cache, "_NEW_ROWS", most_new)
    index, rows = CacheIndex(), identities(rng, 60)
    for start in range(0, 60, 10):
        index.add(Path(str(start)), rows[start : start + 10])
        for row in range(60):
            found = list(index.find(rows[row].tobytes()))
            assert found == ([(Path(str(row // 10 * 10)), row % 10)] if row < start + 10 else [])
    index.remove(Path("20"))
    index.add(Path("again"), rows[25:26])
    found = [[str(shard) for shard, _ in index.find(row.tobytes())] for row in rows]
    assert found == [
        ["again"] if row == 25 else [] if 20 <= row < 30 else [str(row // 10 * 10)] for row in range(60)
    ]


def test_of_several_places_the_last_comes_first(rng, monkeypatch):
    index, rows = CacheIndex(), identities(rng, 2)
    index.add(Path("a"), rows)
    monkeypatch.setattr(cache, "_NEW_ROWS", 0)
    assert len(list(index.find(rows[0].tobytes()))) == 1
    monkeypatch.setattr(cache, "_NEW_ROWS", 10)
    index.add(Path("b"), rows[::-1].copy())
    assert list(index.find(rows[0].tobytes())) == [(Path("b"), 1), (Path("a"), 0)]


def test_images_whose_hashes_end_alike_are_told_apart(tmp_path):
    alike = [bytes([number]) * 24 + b"12345678" for number in range(4)]
    cache = FeatureCache(tmp_path, INFO, "cpu")
    for number in (0, 1, 2):
        cache.add([alike[number]], torch.full((1, 3), float(number)), [()])
        cache.flush()
    for known in (cache, FeatureCache(tmp_path, INFO, "cpu")):
        for number in (0, 1, 2):
            assert known.get(alike[number]).features.tolist() == [number] * 3
            assert alike[number] in known
        assert known.get(alike[3]) is None


def test_a_million_images_take_20_bytes_each(rng):
    shards = [identities(rng, 2048) for _ in range(489)]
    tracemalloc.start()
    index = CacheIndex()
    for number, rows in enumerate(shards):
        index.add(Path(str(number)), rows)
    assert list(index.find(shards[300][7].tobytes())) == [(Path("300"), 7)]
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20 * 489 * 2048
    assert peak < 60 * 489 * 2048
