"""Locks that cannot be had: by another process, on a file system without them, in a folder that may not be written."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import filelock
import numpy as np
import pytest
from weights_server import CONTENT, serving, use_own_folders

from genpr.cli.main import run
from genpr.errors import ResourceError
from genpr.features.weights import find_or_fetch

OPTIONS = ("--device", "cpu", "--no-control", "--no-intervals", "-q", "--json")
COMMANDS = {
    "watch": (
        ["watch", "real.npy", "samples", "--once", "--settle", "0", *OPTIONS],
        "samples/.genpr-watch.lock",
    ),
    "sweep": (["sweep", "real.npy", "1=samples/1.npy", "--out", "swept", *OPTIONS], "swept/points/.lock"),
}
ERRORS = {
    "no-locks": OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)),
    "not-supported": OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP)),
    "not-implemented": NotImplementedError("FileSystem does not appear to support flock"),
    "read-only": OSError(errno.EROFS, os.strerror(errno.EROFS)),
}


@pytest.fixture
def work(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("genpr.report.plots.sweep_plot", lambda *_, form: f"a {form}".encode())
    Path("samples").mkdir()
    for name in ("real", "samples/1"):
        np.save(f"{name}.npy", rng.normal(size=(12, 3)).astype(np.float32))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ERRORS)
def test_a_file_system_without_locks_is_told_in_one_line(work, capsys, monkeypatch, command, name):
    def refuse(*_args, **_options):
        raise ERRORS[name]

    arguments, _ = COMMANDS[command]
    with monkeypatch.context() as patch:
        patch.setattr(filelock.FileLock, "acquire", refuse)
        assert run(arguments) == 4
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "unwritable"
    assert err.count("\n") == 1
    assert run(arguments) == 0, "nothing is in the way of the next run"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_lock_that_is_held_is_told_and_one_of_a_dead_process_is_none(work, capsys, command):
    arguments, place = COMMANDS[command]
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text("4711")  # of a process that died
    assert run(arguments) == 0, capsys.readouterr().err
    capsys.readouterr()
    with filelock.FileLock(place):
        assert run(arguments) == 4
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "locked"


@pytest.mark.parametrize("name", ERRORS)
def test_weights_are_not_fetched_where_nothing_can_be_locked(tmp_path, monkeypatch, name):
    use_own_folders(tmp_path, monkeypatch)

    def refuse(*_args, **_options):
        raise ERRORS[name]

    with serving() as server:
        with monkeypatch.context() as patch:
            patch.setattr(filelock.FileLock, "acquire", refuse)
            with pytest.raises(ResourceError, match="set GENPR_CACHE") as caught:
                find_or_fetch(server.entry())
        assert (caught.value.code, server.requests) == ("cache-unusable", [])
        assert find_or_fetch(server.entry()).read_bytes() == CONTENT
