"""The cache when others use it, own it, or die while they write it: the score is the same, and one line says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import genpr
from genpr.errors import UsageError
from genpr.features.cache import FeatureCache
from genpr.features.cache_files import find_folders
from genpr.features.extractor import ExtractorInfo

INFO = ExtractorInfo("toy", 3, "none", None, comparable=False, cache_key="a" * 64)
OPTIONS = {"extractor": "pixels", "device": "cpu", "control": False, "intervals": False, "k": 1}


def rows(*numbers):
    """The sha256, features and flags of some images."""
    features = torch.tensor(numbers, dtype=torch.float32)[:, None].expand(-1, 3)
    return [number.to_bytes(32, "big") for number in numbers], features, [()] * len(numbers)


def known(root, numbers):
    cache = FeatureCache(root, INFO, "cpu")
    found = [cache.get(identity) for identity in rows(*numbers)[0]]
    assert cache.notices == []
    assert all(
        each is None or each.features.tolist() == [n] * 3 for n, each in zip(numbers, found, strict=True)
    )
    return [n for n, each in zip(numbers, found, strict=True) if each is not None]


def test_two_that_write_at_once_are_both_right(tmp_path):
    one, other = (FeatureCache(tmp_path, INFO, "cpu") for _ in range(2))
    one.add(*rows(1, 2, 3))
    other.add(*rows(3, 4))
    one.flush()
    other.flush()
    again = FeatureCache(tmp_path, INFO, "cpu")
    again.add(*rows(1, 2, 3))  # the same shard once more
    again.flush()
    assert known(tmp_path, range(6)) == [1, 2, 3, 4]
    assert len(list(one.folder.glob("*.safetensors"))) == 2
    assert not list(one.folder.glob(".*"))


def theirs(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 12345, 12345)


def everyones(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def a_file(folder: Path) -> None:
    folder.write_text("")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (a_file, "cannot create the folder"),
        (everyones, "other users can write"),
        pytest.param(
            theirs,
            "belongs to another user",
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away"),
        ),
    ],
)
def test_a_folder_that_cannot_be_used_costs_the_cache_but_not_the_score(
    write_images, rng, tmp_path, make, reason
):
    sides = [
        write_images(name, rng.integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)) for name in ("real", "fake")
    ]
    make(tmp_path / "cache")
    result = genpr.score(*sides, **OPTIONS, cache_dir=tmp_path / "cache")
    (unusable,) = {item for item in result.notices if item.code == "cache-unusable"}
    assert reason in unusable.message
    assert unusable.level == "warning"
    assert result.to_flat_dict() == genpr.score(*sides, **OPTIONS, cache=False).to_flat_dict()
    assert not (tmp_path / "cache").is_dir() or not list((tmp_path / "cache").iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("planted", ["file", "link"])
def test_a_shard_of_another_user_is_not_believed(tmp_path, planted):
    cache = FeatureCache(tmp_path, INFO, "cpu")
    cache.add(*rows(1, 2, 3))
    cache.flush()
    (shard,) = cache.folder.glob("*.safetensors")
    if planted == "link":
        shard.rename(tmp_path / "elsewhere")
        shard.symlink_to(tmp_path / "elsewhere")
    os.chown(shard, 12345, 12345, follow_symlinks=False)
    again = FeatureCache(tmp_path, INFO, "cpu")
    assert [again.get(identity) for identity in rows(1, 2, 3)[0]] == [None] * 3
    assert [each.code for each in again.notices] == ["cache-foreign"]
    again.add(*rows(1, 2, 3))  # the same name, and a file of one's own in its place
    again.flush()
    assert known(tmp_path, [1, 2, 3]) == [1, 2, 3]


def test_pipes_in_the_cache_are_not_waited_for(tmp_path):
    cache = FeatureCache(tmp_path, INFO, "cpu")
    cache.add(*rows(1))
    cache.flush()
    for path in (*cache.folder.glob("*.safetensors"), cache.folder / "key.json"):
        path.unlink()
        os.mkfifo(path)
    again = FeatureCache(tmp_path, INFO, "cpu")
    assert again.get(rows(1)[0][0]) is None
    assert [each.code for each in again.notices] == ["cache-unreadable"]
    with pytest.raises(UsageError) as caught:  # neither says that genpr wrote it
        find_folders(tmp_path)
    assert caught.value.code == "not-a-cache"


@pytest.mark.slow
def test_killed_at_any_line_of_a_write_the_cache_is_whole(tmp_path):
    script = str(Path(__file__).with_name("cache_kills.py"))
    done = subprocess.run([sys.executable, script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 50
    shards = 0
    for root in sorted(tmp_path.iterdir()):
        numbers = known(root, range(1, 9))
        assert numbers == list(range(1, len(numbers) + 1)), "shards are written in order"
        assert len(numbers) % 2 == 0, "and whole"
        shards += len(numbers) // 2
        cache = FeatureCache(root, INFO, "cpu")
        missing = [n for n in range(1, 9) if n not in numbers]
        if missing:
            cache.add(*rows(*missing))
            cache.flush()
        assert known(root, range(1, 9)) == list(range(1, 9)), "the next run goes on"
    assert 20 < shards < 180, "kills came before, between and after writes"
