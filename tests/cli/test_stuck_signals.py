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
LONGEST_S = 2.0
BUSY_S = 3.0  # what other tests on the same cores may take of the machine meanwhile


def case(name, args, signals, **env):
    ready = str(Path(name).resolve())
    return {"args": args, "signals": signals, "ready": ready, "env": {"READY": ready, **env}}


def scoring(folders, cache):
    options = ("--no-control", "--no-intervals", "--batch-size", "5", "--device", "cpu", "-q", "--json")
    return ["score", *map(str, folders), "--extractor", "stuck.py:Net", "--cache-dir", cache, *options]


def test_a_signal_ends_a_command_that_is_deep_in_a_product_of_matrices(folders, genpr, tmp_path, monkeypatch):
    """At the second signal at once; and in Python with a valid cache."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stuck.py").write_text(STUCK)
    cases = [
        case("ready", scoring(folders, "cache"), [(0.2, "SIGTERM")], THREAD_SAFE="1"),
        case("again", scoring(folders, "other"), [(0.2, "SIGINT"), (0.2, "SIGINT")]),
        case("asleep", scoring(folders, "third"), [(0.2, "SIGTERM")], ASLEEP="1"),
    ]
    script = Path(__file__).with_name("signalled_commands.py")
    lines = "\n".join(map(json.dumps, cases))
    done = subprocess.run(
        [sys.executable, script], input=lines, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    stuck, twice, asleep = found = [json.loads(line) for line in done.stdout.splitlines()]
    for each, code, word in zip(
        found, (143, 130, 143), ("terminated", "interrupted", "terminated"), strict=True
    ):
        assert each["seconds"] < LONGEST_S + BUSY_S * (len(os.sched_getaffinity(0)) < 8), each
        *_, last = each["err"].splitlines()
        assert (each["code"], last) == (code, f"error: {word}"), each
        error = {"code": word, "message": word, "exit_code": code, "path": None}
        assert json.loads(each["out"]) == {"error": error}
    assert asleep["err"].strip() == "error: terminated"
    assert twice["seconds"] < 0.8 * stuck["seconds"], "the second signal waits for nothing"
    for cache, cached in (("cache", None), ("third", 10)):
        code, out, _ = genpr(*scoring(folders, cache))
        real = json.loads(out)["real"]
        assert (code, real["n_cached"] + real["n_embedded"]) == (0, 20)
        assert cached in (None, real["n_cached"])
    assert not list(tmp_path.rglob("*.tmp"))


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
    assert (process.returncode, err.strip()) == (130, "error: interrupted")
    assert json.loads(out)["error"]["code"] == "interrupted"
