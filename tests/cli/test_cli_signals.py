"""Ctrl-C and SIGTERM: the command leaves at once, says so, and what it embedded stays in the cache."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

# The third batch waits, where anybody waits for it.
SLOW = """
import os, time, torch

class Net(torch.nn.Module):
    dim, cache_key = 3, "1"

    def forward(self, images):
        if ready := os.environ.get("READY"):
            with open(ready, "a") as file:
                file.write("batch ")
            if os.path.getsize(ready) >= 3 * len("batch "):
                time.sleep(60)
        return images.float().mean((2, 3))
"""
CODES = {"SIGINT": (130, "interrupted"), "SIGTERM": (143, "terminated")}


@pytest.fixture
def arguments(folders, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    extractor = ("--extractor", f"{tmp_path / 'slow.py'}:Net", "--cache-dir", str(tmp_path / "cache"))
    options = ("--batch-size", "5", "--device", "cpu", "--no-control", "--no-intervals", "-q", "--json")
    return ["score", *map(str, folders), *extractor, *options]


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_a_signal_ends_the_command_at_once_and_leaves_a_valid_cache(genpr, arguments, tmp_path, name):
    ready = tmp_path / "ready"
    with subprocess.Popen(
        [sys.executable, "-m", "genpr", *arguments],
        env=os.environ | {"READY": str(ready)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 120
        while not ready.exists() or ready.stat().st_size < 3 * len("batch "):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        sent = time.monotonic()
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < 20, "it waited for the batch, which takes 60 seconds"
    code, word = CODES[name]
    assert process.returncode == code
    assert json.loads(out)["error"]["code"] == word
    assert err.strip() == f"error: {word}"
    real = json.loads(genpr(*arguments)[1])["real"]
    assert (real["n_cached"], real["n_embedded"]) == (10, 10)
