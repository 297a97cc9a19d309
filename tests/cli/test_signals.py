"""Signals during native code: the process ends within two seconds with one message and complete files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# The third batch waits for a lock of C, as long as a product of matrices may take, and never handles signals; or it sleeps,
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
# Commands that fork after the imports, which take most of the time; prints the id of each, and as it ends, its exit code.
FORKING = """
import json, os, signal, sys, torch
from genpr.__main__ import main
from genpr.evaluation import evaluator
commands = json.loads(sys.argv[1])
for name, words, environment in commands:
    if child := os.fork():
        print(child, flush=True)
        continue
    for stream in (1, 2):
        os.dup2(os.open(f"{name}.{stream}", os.O_CREAT | os.O_WRONLY, 0o600), stream)
    signal.alarm(100)  # whatever happens, it ends
    os.environ.update(environment)
    sys.argv[1:] = words
    main()
for _ in commands:
    child, status = os.wait()
    print(child, os.waitstatus_to_exitcode(status), flush=True)
"""
LONGEST_S = 2.0
BUSY_S = 3.0  # what other tests on the same cores may take of the machine meanwhile


def scoring(folders, cache):
    options = ("--no-control", "--no-intervals", "--batch-size", "5", "--device", "cpu", "-q", "--json")
    return ["score", *map(str, folders), "--extractor", "stuck.py:Net", "--cache-dir", cache, *options]


def started(*command):
    """A process that pytest's own handling of signals does not concern."""
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


class Forked:
    """A command that `FORKING` started, as `subprocess` has them."""

    def __init__(self, parent, name):
        self.stdout, self.name, self.pid = parent.stdout, name, int(parent.stdout.readline())

    def send_signal(self, number):
        os.kill(self.pid, number)  # fails if it has ended

    def communicate(self, timeout):
        ended, self.returncode = map(int, self.stdout.readline().split())
        assert ended == self.pid
        return [Path(f"{self.name}.{stream}").read_text() for stream in (1, 2)]


def ended(process, *signals):
    """Seconds from the last signal to the end of the process, whose output is checked."""
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


def test_signal_ends_a_command_in_native_code(folders, genpr, tmp_path, monkeypatch):
    """At the second signal at once; and in Python with a valid cache."""
    monkeypatch.chdir(tmp_path)
    Path("stuck.py").write_text(STUCK)
    environments = {"first": {"THREAD_SAFE": "1"}, "other": {}, "third": {"ASLEEP": "1"}}
    commands = [
        (name, scoring(folders, name), {"READY": f"{name}.ready"} | each)
        for name, each in environments.items()
    ]
    parent = started("-c", FORKING, json.dumps(commands))
    stuck, twice, asleep = processes = [Forked(parent, name) for name in environments]
    while not all(Path(f"{name}.ready").exists() for name in environments):
        for process in processes:
            process.send_signal(0)
        time.sleep(0.01)
    seconds = ended(twice, signal.SIGINT, signal.SIGINT)
    assert seconds < 0.8 * ended(stuck, signal.SIGTERM), "the second signal waits for nothing"
    ended(asleep, signal.SIGTERM)
    assert parent.communicate() == ("", "")
    for cache, cached in (("first", None), ("third", 10)):
        code, out, _ = genpr(*scoring(folders, cache))
        real = json.loads(out)["real"]
        assert (code, real["n_cached"] + real["n_embedded"]) == (0, 20)
        assert cached in (None, real["n_cached"])
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.2, 0.4, 0.8, 1.2, 1.6, 2.4])
def test_signal_during_the_import_of_torch_ends_the_command(folders, tmp_path, monkeypatch, wait):
    monkeypatch.chdir(tmp_path)
    Path("stuck.py").write_text(STUCK)
    for name in ("READY", "ASLEEP"):  # on a fast machine it would end before the last signal
        monkeypatch.setenv(name, "1")
    process = started("-m", "genpr", *scoring(folders, "cache"))
    time.sleep(wait)
    ended(process, signal.SIGINT)
