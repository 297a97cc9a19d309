"""The feature cache as files: what is in it, what goes first, and that nobody is hurt when it goes."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

import genpr
from genpr.errors import UsageError
from genpr.features import cache as cache_module
from genpr.features.cache import CachedImage, FeatureCache
from genpr.features.cache_files import choose_files, find_folders, remove_files
from genpr.features.extractor import ExtractorInfo

INFO = ExtractorInfo("toy", 3, "none", None, comparable=False, cache_key="a" * 64)
NOW = 1_000_000.0


def ids(*numbers):
    return [number.to_bytes(32, "big") for number in numbers]


def fill(root, numbers, *, info=INFO, used=None):
    """One shard with the images of these numbers, last used then."""
    cache = FeatureCache(root, info, "cpu")
    before = set(cache.folder.glob("*.safetensors"))
    cache.add(ids(*numbers), [CachedImage(torch.full((3,), float(number))) for number in numbers])
    cache.flush()
    (shard,) = set(cache.folder.glob("*.safetensors")) - before
    if used is not None:
        os.utime(shard, (used, used))
    return shard


@pytest.fixture
def shards(tmp_path):
    """Three of 10, 20 and 30 images, used 300, 200 and 100 seconds ago."""
    sizes = {10: 300, 20: 200, 30: 100}
    return [fill(tmp_path, range(100 * n, 101 * n), used=NOW - ago) for n, ago in sizes.items()]


def test_folders_know_their_extractor_files_rows_and_bytes(tmp_path, shards):
    other = fill(tmp_path, [1], info=replace(INFO, name="another:one"))
    first, second = find_folders(tmp_path)
    assert (first.extractor, second.extractor) == ("another:one", "toy")
    assert first.files[0].path == other
    assert [file.path for file in second.files] == sorted(shards)
    assert second.count_rows() == 60
    assert second.size == sum(path.stat().st_size for path in shards)
    assert second.used == NOW - 100
    assert second.key["device"] == "cpu"


def test_the_longest_unused_go_first_and_no_more_than_needed(tmp_path, shards):
    folders = find_folders(tmp_path)
    sizes = [path.stat().st_size for path in shards]

    def gone(**limits):
        return [file.path for file in choose_files(folders, **limits)]

    assert gone(max_size=sum(sizes)) == []
    assert gone(max_size=sum(sizes) - 1) == shards[:1]
    assert gone(max_size=sum(sizes[1:])) == shards[:1]
    assert gone(max_size=sizes[2]) == shards[:2]
    assert gone(max_size=0) == gone() == shards
    assert gone(used_before=NOW - 300) == []
    assert gone(used_before=NOW - 299) == shards[:1]
    assert gone(used_before=NOW - 150, max_size=sum(sizes)) == shards[:2]
    assert gone(used_before=0, max_size=sizes[2]) == shards[:2]


def test_what_was_used_since_it_was_listed_stays(tmp_path, shards):
    files = choose_files(find_folders(tmp_path))
    os.utime(shards[1], (NOW, NOW))
    shards[2].unlink()  # another prune was faster
    assert [file.path for file in remove_files(files)] == [shards[0]]
    assert shards[1].exists()


@pytest.mark.parametrize("is_indexed", [False, True], ids=["while it starts", "while it runs"])
def test_a_shard_that_vanishes_is_a_miss(tmp_path, shards, is_indexed, monkeypatch):
    def prune():
        remove_files(choose_files(find_folders(tmp_path)))

    if is_indexed:
        cache = FeatureCache(tmp_path, INFO, "cpu")
        assert ids(1005)[0] in cache
        assert shards[0].stat().st_mtime == NOW - 300, "listing is no use"
        prune()
    else:
        listed = cache_module.shards_in

        def prune_after(folder):
            found = listed(folder)
            prune()
            return found

        monkeypatch.setattr(cache_module, "shards_in", prune_after)
        cache = FeatureCache(tmp_path, INFO, "cpu")
    assert all(cache.get(identity) is None for identity in ids(1005, 2005, 3005))
    monkeypatch.undo()
    assert cache.notices == []
    cache.add(ids(1005), [CachedImage(torch.zeros(3))])
    cache.flush()
    assert FeatureCache(tmp_path, INFO, "cpu").get(ids(1005)[0]).features.tolist() == [0.0] * 3


def test_a_score_survives_a_prune_at_every_look(write_images, rng, monkeypatch, tmp_path):
    monkeypatch.setattr(cache_module, "SHARD_ROWS", 7)
    options = {"extractor": "gabor", "device": "cpu", "cache_dir": tmp_path / "cache"}
    sides = [
        write_images(name, rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)) for name in ("real", "fake")
    ]
    expected = genpr.score(*sides, **options)
    load = cache_module.load_tensors

    def pruned(path):
        remove_files(choose_files(find_folders(tmp_path / "cache")))
        return load(path)

    monkeypatch.setattr(cache_module, "load_tensors", pruned)
    result = genpr.score(*sides, **options)
    assert result.to_flat_dict() == expected.to_flat_dict()
    assert (result.real.n_embedded, result.fake.n_embedded) == (20, 20)
    assert not [item for item in result.notices if item.code.startswith("cache")]


def test_only_files_of_genpr_are_seen(tmp_path, shards):
    inside = shards[0].parent
    elsewhere = tmp_path / "elsewhere.safetensors"
    elsewhere.write_bytes(shards[0].read_bytes())
    (inside / "notes.txt").write_text("mine")
    (inside / "model.safetensors").write_bytes(b"mine")
    (inside / f"{'b' * 32}.safetensors").symlink_to(elsewhere)
    (inside / f"{'c' * 32}.safetensors").mkdir()
    left = inside / f".{'e' * 32}.safetensors.abc123.tmp"  # of a process that was killed
    left.write_bytes(b"half")
    stranger = tmp_path / "features" / f"weights-{'0' * 16}"
    stranger.mkdir()
    (stranger / "key.json").write_text("[]")
    (stranger / f"{'d' * 32}.safetensors").write_bytes(b"no shard")
    (tmp_path / "features" / "plain").mkdir()
    (tmp_path / "features" / f"link-{'1' * 16}").symlink_to(inside)
    (folder,) = find_folders(tmp_path)
    remove_files(choose_files([folder], max_size=0))
    assert not any(path.exists() for path in (*shards, left))
    assert {path.name for path in inside.iterdir()} == {
        "key.json",
        "notes.txt",
        "model.safetensors",
        f"{'b' * 32}.safetensors",
        f"{'c' * 32}.safetensors",
    }
    assert (stranger / f"{'d' * 32}.safetensors").exists()
    assert elsewhere.exists()


def test_a_folder_that_is_no_cache_is_refused(tmp_path):
    assert find_folders(tmp_path / "missing") == []
    assert find_folders(tmp_path) == []  # to be one
    (tmp_path / "weights").mkdir()
    assert find_folders(tmp_path) == []
    project = tmp_path / "project"
    (project / "features").mkdir(parents=True)
    (project / "features" / "model.py").touch()
    for folder in (project, project / "features"):
        with pytest.raises(UsageError, match="no cache of genpr") as caught:
            find_folders(folder)
        assert caught.value.code == "not-a-cache"


def test_an_evaluator_may_leave_the_fakes_of_one_score_out_of_the_cache(write_images, rng, tmp_path):
    real, one = (
        write_images(name, rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)) for name in ("r", "a")
    )

    def rows():
        return sum(folder.count_rows() for folder in find_folders(tmp_path / "cache"))

    options = {"extractor": "gabor", "device": "cpu", "cache_dir": tmp_path / "cache"}
    evaluator = genpr.Evaluator(real, **options)
    assert rows() == 20
    left_out = evaluator.score(one, cache=False)
    assert rows() == 20
    kept = evaluator.score(one)
    assert rows() == 40
    assert evaluator.score(one, cache=False).fake.n_embedded == 20
    assert evaluator.score(one, cache=True).fake.n_cached == 20
    assert left_out.to_flat_dict() == kept.to_flat_dict()
