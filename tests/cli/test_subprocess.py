"""The process of the command line: its streams, its imports, its plots, and what the system may refuse it."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from raising import raising

import genpr as package
from genpr.cli import process
from genpr.errors import ResourceError

ROOT = Path(package.__file__).parents[1]
GENPR = (sys.executable, "-m", "genpr")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two small feature files, and two results."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    sides = rng.normal(size=(2, 30, 4)).astype(np.float32)
    for name, side in zip(("real", "fake"), sides, strict=True):
        np.save(folder / f"{name}.npy", side)
    for name in "ab":
        (folder / f"{name}.json").write_text(package.score(*sides, control=False).to_json())
    return folder


def started(*command, redirected="", folder=None, **environment):
    """Run in a shell, which can close streams."""
    return subprocess.run(
        ["bash", "-c", f"exec {shlex.join(command)} {redirected}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | environment,
        timeout=120,
    )


COMPARE = "compare a.json b.json"
CASES = [
    (COMPARE, ">&-", 4),
    (COMPARE, "2>&-", 0),
    (COMPARE, "2> /dev/full", 0),
    (COMPARE, "<&- >&- 2>&-", 4),
]
CASES += [(f"{COMPARE} -q --html page.html", "> /dev/full", 4), ("--help", "> /dev/full", 4)]


@pytest.mark.parametrize(("command", "redirected", "code"), CASES)
def test_every_command_needs_stdout_and_not_stderr(files, command, redirected, code):
    """A page is written although stdout is full."""
    done = started(*GENPR, *command.split(), redirected=redirected, folder=files)
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == (code > 0 and "2>" not in redirected)
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (code == 0)
    assert "--html" not in command or (files / "page.html").exists()


def test_closed_pipe_ends_the_command_without_a_message():
    assert started(*GENPR, "list", "metrics", redirected="| true").stderr == ""


def test_output_of_others_is_not_on_stdout_and_files_in_the_folder_do_not_configure_plots(tmp_path):
    started_file, programs = tmp_path / "started", tmp_path / "programs"
    programs.mkdir()
    (programs / "latex").write_text(f"#!/bin/sh\ntouch {started_file}\nexit 1\n")
    (programs / "latex").chmod(0o755)
    (tmp_path / "matplotlibrc").write_bytes(b"text.usetex: True\n\xff\xfe no setting\n")
    (tmp_path / "noisy.py").write_text(
        "import ctypes, os, torch\n"
        "class Noisy(torch.nn.Module):\n"
        "    dim = 3\n"
        "    def forward(self, x):\n"
        "        os.system('echo child')\n"
        "        ctypes.CDLL(None).puts(b'library')\n"
        "        return x.float().mean((2, 3))\n"
    )
    for side in "ab":
        pixels = np.random.default_rng(ord(side)).integers(0, 256, (20, 4, 4, 3), "u1")
        np.save(tmp_path / f"{side}.npy", pixels)
    done = started(
        *(
            *GENPR,
            "score",
            "a.npy",
            "b.npy",
            "--extractor",
            "noisy.py:Noisy",
            "--no-control",
            "--no-intervals",
        ),
        *("--json", "--html", "page.html"),
        folder=tmp_path,
        PATH=f"{programs}:{os.environ['PATH']}",
        MPLBACKEND="module://absent.backend",
        PYTHONPATH=str(ROOT),
    )
    assert json.loads(done.stdout)["fake"]["n"] == 20
    assert {"child", "library"} <= set(done.stderr.splitlines())
    assert "<svg" in (tmp_path / "page.html").read_text()
    assert not started_file.exists()


def test_modules_of_the_working_directory_are_not_imported(tmp_path):
    for name in ("click", "torch", "numpy", "matplotlib", "json", "signal", "rich", "optional_plugin"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')")
    done = started(*GENPR, "list", "protocols", folder=tmp_path, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["score a.npy b.npy --json", "doctor", "list metrics"])
def test_deleted_working_directory_is_one_error(tmp_path, command):
    (tmp_path / "gone").mkdir()
    line = f"cd gone && rmdir ../gone && {shlex.join([sys.executable, '-P', '-m', 'genpr'])} {command}"
    done = started("bash", "-c", line, folder=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 2
    assert [line[:7] for line in done.stderr.splitlines() if "getcwd" not in line] == ["error: "]
    assert ('"code": "bad-path"' in done.stdout) == ("--json" in command)


def test_missing_weights_are_an_error_with_all_instructions(genpr, tmp_path):
    np.savez(tmp_path / "images.npz", arr_0=np.zeros((20, 8, 8, 3), np.uint8))
    code, _, err = genpr("score", *[tmp_path / "images.npz"] * 2, "--offline")
    assert code == 4
    for part in (
        "pt_inception-2015-12-05-6726825d.pth",
        "https://github.com/mseitzer/pytorch-fid/releases/",
        "genpr weights fetch inception",
        "--weights PATH",
        "--extractor gabor",
    ):
        assert part in err.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits address space")
@pytest.mark.parametrize("more", [-(10**9), 10**8], ids=["too little for torch", "too little for FAISS"])
def test_libraries_beyond_the_limit_of_address_space_are_one_error(files, more):
    limit = max(2 * 10**8, process._size_of_torch() + more) // 1024
    command = shlex.join([*GENPR, "score", "real.npy", "fake.npy", "--json"])
    done = started("bash", "-c", f"ulimit -v {limit}; {command}", folder=files, OMP_NUM_THREADS="1")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "oom")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "left", "fits"), [("torch", 10**8, False), ("torch", None, True), ("json", 0, True)]
)
def test_libraries_are_imported_if_there_is_address_space_for_them(name, left, fits, monkeypatch):
    monkeypatch.setattr(process, "address_space_left", lambda: left)
    with nullcontext() if fits else raising(ResourceError, "oom", "ulimit -v"):
        process.AddressSpaceGuard.find_spec(name)


def test_each_thread_needs_address_space(monkeypatch):
    monkeypatch.setattr(process, "address_space_left", lambda: 2**30)
    monkeypatch.setattr(process, "usable_cores", lambda: 64)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with raising(ResourceError, "oom", "OMP_NUM_THREADS=1"):
        process.AddressSpaceGuard.find_spec("faiss")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    process.AddressSpaceGuard.find_spec("faiss")
