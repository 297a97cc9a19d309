"""Signals while the process is deep in C++: it ends within two seconds, says so in one line, and what it wrote is whole."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# The third batch waits for a lock of C, as long as a product of matrices may take, and never looks at signals; or it sleeps,
# and does.
STUCK = """
import ctypes, os, time, torch

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
                mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
                libc.pthread_mutex_lock(mutex)
                libc.pthread_mutex_lock(mutex)
        return images.float().mean((2, 3))
"""
LONGEST_S = 2.0
BUSY_S = 3.0  # what other tests on the same cores may take of the machine meanwhile


def scoring(folders, cache):
    options = ("--no-control", "--no-intervals", "--batch-size", "5", "--device", "cpu", "-q", "--json")
    return ["score", *map(str, folders), "--extractor", "stuck.py:Net", "--cache-dir", cache, *options]


def started(folders, cache, **env):
    """A score in the working folder, in a process that pytest's own handling of signals does not concern."""
    Path("stuck.py").write_text(STUCK)
    return subprocess.Popen(
        [sys.executable, "-m", "genpr", *scoring(folders, cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"READY": cache + ".ready", "OMP_NUM_THREADS": "1"} | env,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def ended(process, *signals):
    """The seconds from the last signal to the end, of which everything is said."""
    for number in signals:
        time.sleep(0.2)
        process.send_signal(number)
    sent = time.monotonic()
    out, err = process.communicate(timeout=60)
    seconds, code = time.monotonic() - sent, 128 + signals[0]
    word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[signals[0]]
    assert (process.returncode, err.split("\n")[-2]) == (code, f"error: {word}")
    error = {"code": word, "message": word, "exit_code": code, "path": None}
    assert json.loads(out) == {"error": error}
    assert seconds < LONGEST_S + BUSY_S * (len(os.sched_getaffinity(0)) < 8)
    return seconds


def test_a_signal_ends_a_command_that_is_deep_in_c(folders, genpr, tmp_path, monkeypatch):
    """At the second signal at once; and in Python with a valid cache."""
    monkeypatch.chdir(tmp_path)
    stuck, twice = started(folders, "first", THREAD_SAFE="1"), started(folders, "other")
    asleep = started(folders, "third", ASLEEP="1")
    while not all(Path(f"{cache}.ready").exists() for cache in ("first", "other", "third")):
        assert {each.poll() for each in (stuck, twice, asleep)} == {None}
        time.sleep(0.01)
    seconds = ended(twice, signal.SIGINT, signal.SIGINT)
    assert seconds < 0.8 * ended(stuck, signal.SIGTERM), "the second signal waits for nothing"
    ended(asleep, signal.SIGTERM)
    for cache, cached in (("first", None), ("third", 10)):
        code, out, _ = genpr(*scoring(folders, cache))
        real = json.loads(out)["real"]
        assert (code, real["n_cached"] + real["n_embedded"]) == (0, 20)
        assert cached in (None, real["n_cached"])
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.2, 0.4, 0.8, 1.2, 1.6, 2.4])
def test_a_signal_is_answered_while_torch_is_imported(folders, tmp_path, monkeypatch, wait):
    monkeypatch.chdir(tmp_path)
    process = started(folders, "cache")
    time.sleep(wait)
    ended(process, signal.SIGINT)
