"""The process of the command line: its streams, its imports, its plots, and what the system may refuse it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import genpr as package

ROOT = Path(package.__file__).parents[1]
GENPR = (sys.executable, "-m", "genpr")


def started(*command, redirected="", folder=None, shell="", **environment):
    """Run in a shell, which can close streams."""
    line = " ".join([shell, "exec", shlex.join(map(str, command)), redirected])
    return subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | environment,
        timeout=120,
    )


@pytest.fixture
def features(tmp_path, rng):
    """Two small feature files."""
    paths = [tmp_path / "real.npy", tmp_path / "fake.npy"]
    for path in paths:
        np.save(path, rng.normal(size=(30, 4)).astype(np.float32))
    return paths


STREAMS = [(">&-", 4), ("> /dev/full", 4), ("2>&-", 0), ("2> /dev/full", 0)]


@pytest.mark.parametrize(("redirected", "code"), STREAMS)
def test_a_score_needs_stdout_and_not_stderr(features, redirected, code, tmp_path):
    page = tmp_path / "page.html"
    # With notices and intervals, so that both streams are written to.
    done = started(*GENPR, "score", *features, "--html", page, redirected=redirected)
    assert done.returncode == code
    assert page.read_text().rstrip().endswith("</html>")
    if code:
        assert "stdout" in done.stderr.splitlines()[-1]
        assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1
        assert "Traceback" not in done.stderr
    else:
        assert done.stdout.startswith("metric")


@pytest.mark.parametrize("command", ["list metrics --json", "--help"])
@pytest.mark.parametrize(("redirected", "code"), [*STREAMS, ("<&- >&- 2>&-", 4)])
def test_any_command_needs_stdout_and_not_stderr(command, redirected, code):
    done = started(*GENPR, *command.split(), redirected=redirected)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == (1 if code and "2>" not in redirected else 0)


def test_plots_obey_no_file_of_the_working_directory(features, tmp_path):
    started_file = tmp_path / "started"
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "latex").write_text(f"#!/bin/sh\ntouch {started_file}\nexit 1\n")
    (programs / "latex").chmod(0o755)
    (tmp_path / "matplotlibrc").write_bytes(b"text.usetex: True\n\xff\xfe no setting\n")
    done = started(
        *GENPR,
        *("score", *features, "--html", "page.html", "-q"),
        folder=tmp_path,
        PATH=f"{programs}:{os.environ['PATH']}",
        MPLBACKEND="module://absent.backend",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "<svg" in (tmp_path / "page.html").read_text()
    assert not started_file.exists()


MODULES = ("click", "torch", "numpy", "matplotlib", "json", "signal", "rich", "optional_plugin")


def test_modules_of_the_working_directory_are_not_imported(tmp_path):
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')")
    done = started(*GENPR, "list", "protocols", folder=tmp_path, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stderr) == (0, "")


def test_who_waits_for_other_processes_says_so(features):
    """The variables of a training may be left over in the environment of what it starts."""
    left = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    with subprocess.Popen(
        [*GENPR, "score", *map(str, features)], env=os.environ | left, stderr=subprocess.PIPE, text=True
    ) as process:
        said = process.stderr.readline()
        process.kill()
    assert all(f"{name}={value}" in said for name, value in left.items())
    assert "GENPR_ALONE=1" in said
