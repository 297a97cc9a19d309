"""Every call of the system that a command makes, failing once each: an exit code, one line, and nothing lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from failing_calls import failing_calls

from genpr.cli.main import run

QUICK = ("--extractor", "pixels", "--device", "cpu", "--no-control", "--no-intervals", "--k", "1", "-q")
OLD = "what was there before"


@pytest.fixture
def work(tmp_path, write_images, rng, monkeypatch):
    """A folder with images, features and outputs of an earlier run, restored before every attempt."""
    for name in ("data/real", "data/fake", "data/samples/1"):
        write_images(name, rng.integers(0, 256, (4, 6, 6, 3), dtype=np.uint8))
    for name in ("a", "b"):
        np.save(tmp_path / "data" / f"{name}.npy", rng.normal(size=(12, 3)).astype(np.float32))
    outputs = tmp_path / "data" / "out"
    outputs.mkdir()
    for name in ("page.html", "table.csv", "kept.safetensors", "images.npz"):
        (outputs / name).write_text(OLD)
    monkeypatch.setenv("GENPR_CACHE", str(tmp_path / "work" / "cache"))

    def restore():
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        shutil.copytree(tmp_path / "data", tmp_path / "work")
        os.chdir(tmp_path / "work")
        return tmp_path / "work"

    before = Path.cwd()
    yield restore
    os.chdir(before)


COMMANDS = {
    "cached": ["score", "real", "fake", *QUICK, "--json"],
    "score": [
        "score",
        "real",
        "fake",
        *QUICK,
        "--json",
        "--html",
        "out/page.html",
        "--csv",
        "out/table.csv",
    ],
    "features": ["features", "real", "out/kept.safetensors", *QUICK[:4], "-q", "--json"],
    "pack": ["pack", "real", "out/images.npz", "--force", "-q"],
    "watch": ["watch", "real", "samples", *QUICK, "--once", "--settle", "0", "--keep-results", "--json"],
    "sweep": ["sweep", "a.npy", "0.5=b.npy", "1=a.npy", "--out", "swept", *QUICK[2:], "--json"],
}
KINDS = {
    "open-read": (errno.EIO, errno.ESTALE, errno.EACCES),
    "open-write": (errno.EROFS, errno.EACCES),
    "write": (errno.ENOSPC, errno.EDQUOT, errno.EIO),
    "replace": (errno.EXDEV, errno.EACCES, errno.ENOENT),
    "fsync": (errno.EIO, errno.ENOSPC),
    "open": (errno.EROFS, errno.ENOSPC),  # temporary files and locks
    "mkdir": (errno.EROFS, errno.EDQUOT),
    "scandir": (errno.EIO, errno.ESTALE),
    "unlink": (errno.EACCES,),
    "chmod": (errno.EPERM,),
    "utime": (errno.EROFS,),
}
USED = {
    "score": [kind for kind in KINDS if kind != "utime"],
    "cached": ["open-read", "scandir", "utime"],
    "features": [kind for kind in KINDS if kind != "utime"],
    "pack": ["open-write", "open-read", "write", "replace", "fsync", "open", "scandir"],
    "watch": [kind for kind in KINDS if kind != "utime"],
    "sweep": ["open-read", "write", "replace", "fsync", "open", "mkdir", "unlink"],
}
CASES = [(command, kind) for command, kinds in USED.items() for kind in kinds]
DEFAULT = {("features", "replace"), ("cached", "utime")}


def numbers(out):
    record = json.loads(out)
    if "metrics" in record:
        return {name: metric["value"] for name, metric in record["metrics"].items()}
    return record.get("n", len(record.get("records", record.get("points", []))))


def check(command, kind, code, out, err, plain, folder):
    """One attempt in which a call failed."""
    assert "Traceback" not in err, err
    assert "bug" not in err, err
    outputs = {path.name: path for path in (folder / "out").iterdir()}
    for name, path in outputs.items():
        assert not name.endswith(".tmp") or kind == "unlink", name
        if path.suffix != ".tmp" and code not in {0, None}:
            text = path.read_bytes()
            assert text == OLD.encode() or len(text) > 3 * len(OLD), f"{name} is half of something"
    if kind != "unlink":
        left = [path for path in folder.rglob(".*.tmp") if "cache" not in path.parts]
        assert not left, left
    if code == 0:
        is_left = command == "watch" and "is left" in err  # the next look tries it again
        if command != "pack" and not is_left:
            assert numbers(out) == plain
        return
    assert code in {2, 3, 4}, err
    if command == "features" and kind in {"write", "replace", "fsync", "chmod"}:
        assert "cannot be written" in err, err
    *_, last = err.strip().splitlines()
    assert last.startswith("error: "), err
    if command == "score" and out.count("\n") == 2:  # the score, and then the page failed
        assert numbers(out.splitlines()[0]) == plain


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        pytest.param(*case, id="-".join(case), marks=() if case in DEFAULT else pytest.mark.slow)
        for case in CASES
    ],
)
def test_every_call_may_fail(work, capsys, monkeypatch, command, kind):
    # Pictures take most of the time; where they are written is what matters.
    monkeypatch.setattr("genpr.report.plots.sweep_plot", lambda *_, form: f"a {form}".encode())
    folder = work()
    assert run(COMMANDS[command]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    if command == "cached":
        shutil.copytree(folder / "cache", folder.parent / "data" / "cache")
    plain = None if command == "pack" else numbers(out)
    for error in KINDS[kind]:
        for at in range(1, 400):
            folder = work()
            with failing_calls(kind, folder, at=at, code=error) as failing:
                code = run(COMMANDS[command])
            out, err = capsys.readouterr()
            if failing.count < at:
                break
            try:
                check(command, kind, code, out, err, plain, folder)
            except AssertionError as wrong:
                raise AssertionError(
                    f"call {at}, {os.strerror(error)}: {wrong}\n{err}\n{out[:300]}"
                ) from wrong
        assert failing.count < at
        assert at > 1, "no such call was made"
