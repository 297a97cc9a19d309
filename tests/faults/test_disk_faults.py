"""Full, read-only, remote and damaged disks: the score is the same, files are complete, and a notice gives the reason."""

import errno
import json
import os
import resource
from pathlib import Path
from unittest.mock import Mock

import filelock
import numpy as np
import pytest
import safetensors

import genpr
from genpr.cli.main import run
from genpr.errors import WeightsError

OPTIONS = {"extractor": "pixels", "device": "cpu", "control": False, "intervals": False, "k": 1}
QUICK = ("--extractor", "pixels", "--device", "cpu", "--no-control", "--no-intervals", "-q", "--json")


def codes(result):
    return {item.code for item in result.notices if item.code.startswith("cache")}


def test_full_disk_loses_the_cache_and_the_page_but_not_the_score(sides, tmp_path, capsys):
    """Files are limited to 10,000 bytes, as on a full disk."""
    plain = genpr.score(*sides, **OPTIONS | {"k": 3, "metrics": ["coverage"]}, cache=False)
    page = tmp_path / "page.html"
    page.write_text("old")
    options = ["--metrics", "coverage", "--k", "3", "--html", page, "--overwrite"]
    options += ["--cache-dir", tmp_path / "cache"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        code = run(["score", *map(str, sides), *QUICK, *map(str, options)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 4
    score = json.loads(capsys.readouterr().out)
    assert score["metrics"]["coverage"]["value"] == plain["coverage"]
    assert "cache-write-failed" in {item["code"] for item in score["notices"]}
    assert page.read_text() == "old"
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("call", "error"),
    [("tempfile.mkstemp", errno.EROFS), ("os.replace", errno.EACCES), ("os.fsync", errno.EROFS)],
)
def test_unwritable_folder_loses_the_cache_but_not_the_score(sides, tmp_path, monkeypatch, call, error):
    root = tmp_path / "cache"
    plain = genpr.score(*sides, **OPTIONS, cache=False)

    with monkeypatch.context() as patch:
        patch.setattr(call, Mock(side_effect=OSError(error, os.strerror(error))))
        found = genpr.score(*sides, **OPTIONS, cache_dir=root)
    assert found.to_flat_dict() == plain.to_flat_dict()
    assert codes(found) == {"cache-write-failed"}
    assert not list(root.rglob("*.safetensors"))
    assert not list(root.rglob("*.tmp"))


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EACCES])
def test_temporarily_unreadable_shard_is_kept(sides, tmp_path, monkeypatch, error):
    root = tmp_path / "cache"
    plain = genpr.score(*sides, **OPTIONS, cache_dir=root)
    shards = {path: path.read_bytes() for path in root.rglob("*.safetensors")}
    with monkeypatch.context() as patch:
        patch.setattr(safetensors, "safe_open", Mock(side_effect=OSError(error, os.strerror(error))))
        found = genpr.score(*sides, **OPTIONS, cache_dir=root)
    assert found.to_flat_dict() == plain.to_flat_dict()
    assert codes(found) == {"cache-unreadable"}
    assert {path: path.read_bytes() for path in shards} == shards
    again = genpr.score(*sides, **OPTIONS, cache_dir=root)
    assert (again.real.n_cached, codes(again)) == (30, set())


@pytest.mark.parametrize("keep", [0, 7, 500, -1])
def test_truncated_shard_is_embedded_again(sides, tmp_path, keep):
    root = tmp_path / "cache"
    plain = genpr.score(*sides, **OPTIONS, cache_dir=root)
    for shard in root.rglob("*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:keep])
    found = genpr.score(*sides, **OPTIONS, cache_dir=root)
    assert found.to_flat_dict() == plain.to_flat_dict()
    assert (found.real.n_cached, codes(found)) == (0, {"cache-discarded"})


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOLCK, "No locks"), NotImplementedError("no flock here"), None]
)
def test_unavailable_locks_are_errors_of_one_line(tmp_path, monkeypatch, capsys, rng, error):
    """The file system has no locks, or another process holds one."""
    monkeypatch.chdir(tmp_path)
    Path("samples").mkdir()
    for name in ("real", "samples/1"):
        np.save(f"{name}.npy", rng.normal(size=(12, 3)).astype(np.float32))
    arguments = ["watch", "real.npy", "samples", "--once", "--settle", "0", *QUICK[2:]]
    Path("samples/.genpr-watch.lock").write_text("4711")  # of a process that died
    with (
        monkeypatch.context() as patch,
        filelock.FileLock(Path("samples/.genpr-watch.lock" if error is None else "x")),
    ):
        if error is not None:
            patch.setattr(filelock.FileLock, "acquire", Mock(side_effect=error))
        assert run(arguments) == 4
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == ("locked" if error is None else "unwritable")
    assert err.count("\n") == 1
    assert run(arguments) == 0, "nothing is in the way of the next run"


@pytest.mark.parametrize(
    ("extractor", "file"),
    [("vgg16", "vgg16-397923af.pth"), ("timm:vit_small_patch16_224.dino", "model.safetensors")],
)
def test_weights_that_cannot_be_read_are_an_error(sides, tmp_path, monkeypatch, extractor, file):
    (tmp_path / file).write_bytes(b"weights")
    refused = Mock(side_effect=PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    for module in ("genpr.features.weights", "genpr.storage"):
        monkeypatch.setattr(f"{module}.open_regular", refused)
    with pytest.raises(WeightsError) as caught:
        genpr.score(*sides, **OPTIONS | {"extractor": extractor}, weights=tmp_path / file, cache=False)
    assert caught.value.code == "weights-unreadable"
