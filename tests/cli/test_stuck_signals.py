"""Signals while the process is deep in C++: it ends within two seconds, says so in one line, and what it wrote is whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# The third batch is a product of matrices that takes minutes, and never looks at signals; or it sleeps, and does.
STUCK = """
import os, time, torch

class Net(torch.nn.Module):
    dim, cache_key = 3, "1"
    thread_safe = "THREAD_SAFE" in os.environ

    def forward(self, images):
        if ready := os.environ.get("READY"):
            with open(ready + ".count", "a") as file:
                file.write("x")
                batch = file.tell()
            if batch == 3:
                open(ready, "w").close()
                if "ASLEEP" in os.environ:
                    time.sleep(60)
                large = torch.ones(5000, 5000, dtype=torch.float64)
                torch.linalg.multi_dot([large] * 30)
        return images.float().mean((2, 3))
"""
WORDS = {"SIGINT": (130, "interrupted"), "SIGTERM": (143, "terminated")}
LONGEST_S = 2.0
BUSY_S = 3.0  # what other tests on the same cores may take of the machine meanwhile


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Runs cases in order, each in a process of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stuck.py").write_text(STUCK)

    def run(*cases):
        script = Path(__file__).with_name("signalled_commands.py")
        lines = "\n".join(map(json.dumps, cases))
        done = subprocess.run(
            [sys.executable, script], input=lines, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def case(name, args, signals, **env):
    ready = str(Path(name).resolve())
    return {"args": args, "signals": signals, "ready": ready, "env": {"READY": ready, **env}}


def scoring(folders, cache, *more):
    options = ("--no-control", "--no-intervals", "--batch-size", "5", "--device", "cpu", "-q")
    return ["score", *map(str, folders), "--extractor", "stuck.py:Net", "--cache-dir", cache, *options, *more]


def check(found, name):
    code, word = WORDS[name]
    assert found["seconds"] < LONGEST_S + BUSY_S * (len(os.sched_getaffinity(0)) < 8), found
    *_, last = found["err"].splitlines()
    assert (found["code"], last) == (code, f"error: {word}"), found


def test_a_signal_ends_a_command_that_is_deep_in_a_product_of_matrices(play, folders, genpr):
    stuck, twice = play(
        case("ready", scoring(folders, "cache", "--json"), [(0.2, "SIGTERM")], THREAD_SAFE="1"),
        case("again", scoring(folders, "other"), [(0.2, "SIGINT"), (0.2, "SIGINT")]),
    )
    check(stuck, "SIGTERM")
    error = {"code": "terminated", "message": "terminated", "exit_code": 143, "path": None}
    assert json.loads(stuck["out"]) == {"error": error}
    check(twice, "SIGINT")
    assert twice["out"] == ""
    assert twice["seconds"] < 0.8 * stuck["seconds"], "the second signal waits for nothing"
    code, out, _ = genpr(*scoring(folders, "cache", "--json"))
    real = json.loads(out)["real"]
    assert (code, real["n_cached"] + real["n_embedded"]) == (0, 20)
    assert not list(Path("cache").rglob("*.tmp"))


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_a_signal_in_python_leaves_a_valid_cache(play, folders, genpr, name):
    (found,) = play(case("ready", scoring(folders, "cache", "--json"), [(0.2, name)], ASLEEP="1"))
    assert (found["code"], found["err"].strip()) == (WORDS[name][0], f"error: {WORDS[name][1]}")
    assert json.loads(found["out"])["error"]["code"] == WORDS[name][1]
    real = json.loads(genpr(*scoring(folders, "cache", "--json"))[1])["real"]
    assert (real["n_cached"], real["n_embedded"]) == (10, 10)


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.2, 0.4, 0.8, 1.2, 1.6, 2.4])
def test_a_signal_is_answered_while_torch_is_imported(folders, tmp_path, wait):
    (tmp_path / "stuck.py").write_text(STUCK)
    command = [sys.executable, "-m", "genpr", *scoring(folders, str(tmp_path / "cache"))]
    env = os.environ | {"READY": str(tmp_path / "ready")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=env
    ) as process:
        time.sleep(wait)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < LONGEST_S
    assert (process.returncode, out, err.strip()) == (130, "", "error: interrupted")
