"""Cache folders on file systems that are full, read-only, far away or odd: the score is the same, and one line says why."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile

import numpy as np
import pytest
import safetensors

import genpr
from genpr.features import cache
from genpr.runtime import cache_root

OPTIONS = {"extractor": "pixels", "device": "cpu", "control": False, "intervals": False, "k": 1}


@pytest.fixture
def sides(write_images, rng):
    return [
        write_images(name, rng.integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)) for name in ("real", "fake")
    ]


def codes(result):
    return {item.code for item in result.notices if item.code.startswith("cache")}


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("when", ["indexed", "opened"])
def test_a_shard_that_cannot_be_read_for_a_moment_is_not_thrown_away(
    sides, tmp_path, monkeypatch, error, when
):
    root = tmp_path / "cache"
    plain = genpr.score(*sides, **OPTIONS, cache_dir=root)
    shards = {path: path.read_bytes() for path in root.rglob("*.safetensors")}
    whole, calls = safetensors.safe_open, 0

    def ill(path, *args, **options):
        nonlocal calls
        calls += 1
        if when == "indexed" or calls > len(shards):
            raise OSError(error, os.strerror(error))
        return whole(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(safetensors, "safe_open", ill)
        found = genpr.score(*sides, **OPTIONS, cache_dir=root)
    assert found.to_flat_dict() == plain.to_flat_dict()
    assert codes(found) == {"cache-unreadable"}
    messages = {item.message for item in found.notices if item.code == "cache-unreadable"}
    assert len(messages) == len(shards)
    assert all(os.strerror(error) in message for message in messages)
    for path, content in shards.items():
        assert path.read_bytes() == content
    again = genpr.score(*sides, **OPTIONS, cache_dir=root)
    assert (again.real.n_cached, codes(again)) == (8, set())


@pytest.mark.parametrize("error", [errno.EROFS, errno.ESTALE])
@pytest.mark.parametrize("call", ["mkstemp", "replace", "iterdir"])
def test_a_file_system_of_no_use_costs_the_cache_but_not_the_score(sides, tmp_path, monkeypatch, error, call):
    root = tmp_path / "cache"
    plain = genpr.score(*sides, **OPTIONS, cache=False)

    def refuse(*_args, **_options):
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        if call == "mkstemp":
            patch.setattr(tempfile, "mkstemp", refuse)
        elif call == "replace":
            patch.setattr(os, "replace", refuse)
        else:
            patch.setattr(cache, "shards_in", lambda folder: _listed(folder, refuse))
        found = genpr.score(*sides, **OPTIONS, cache_dir=root)
    assert found.to_flat_dict() == plain.to_flat_dict()
    assert codes(found) == {"cache-unusable" if call == "iterdir" else "cache-write-failed"}
    assert not list(root.rglob("*.safetensors"))
    assert not list(root.rglob("*.tmp"))


def _listed(folder, refuse):
    from genpr.features.cache_files import shards_in

    class Ill(type(folder)):
        iterdir = refuse

    return shards_in(Ill(folder))


def test_nothing_lies_in_a_shared_temporary_folder(sides, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    seen, whole = [], os.open

    def watched(path, *args, **options):
        seen.append(os.fspath(path))
        return whole(path, *args, **options)

    monkeypatch.setattr(os, "open", watched)
    genpr.score(*sides, **OPTIONS)
    assert any(str(cache_root()) in path for path in seen)
    assert not any(path.startswith(str(shared)) for path in seen)
    for folder in (cache_root(), *cache_root().rglob("*")):
        if folder.is_dir() and folder != cache_root():  # which the test made
            assert folder.stat().st_mode & 0o77 == 0


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("option", ["size=64k", "ro"])
def test_a_disk_that_is_really_full_or_read_only(write_images, rng, tmp_path, option):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("nothing may be mounted here")
    try:
        sides = [
            write_images(name, rng.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8))
            for name in ("real", "fake")
        ]
        found = genpr.score(*sides, **OPTIONS, cache_dir=disk / "cache")
        plain = genpr.score(*sides, **OPTIONS, cache=False)
        assert found.to_flat_dict() == plain.to_flat_dict()
        assert codes(found) == {"cache-write-failed" if "size" in option else "cache-unusable"}
        assert not list(disk.rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(disk)], check=False)
