"""Whole scores that are killed at random moments, and the same scores again.

    python score_kills.py REAL FAKE FOLDER TRIALS

Every trial has a cache of its own in FOLDER, with shards of 16 images. `genpr score` runs in a fork of this process, gets SIGKILL
after a random part of the time that it takes, and then runs to its end. Prints one JSON line: `plain`, the metrics of a score that
nobody killed, and for each of `trials` what was there after the kill and what the second score said.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from genpr.cli.main import run
from genpr.features import cache

OPTIONS = (
    "--extractor",
    "pixels",
    "--batch-size",
    "8",
    "--device",
    "cpu",
    "--no-control",
    "--no-intervals",
    "-q",
    "--json",
)


def start(sides: list[str], root: Path) -> int:
    """Fork a process that scores, its result beside its cache."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(root.with_suffix(".json"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        code = run(["score", *sides, "--cache-dir", str(root), *OPTIONS])
        sys.stdout.flush()
        os._exit(code)
    return child


def finished(sides: list[str], root: Path) -> dict[str, Any]:
    """Score to the end."""
    _, status = os.waitpid(start(sides, root), 0)
    if status:
        raise SystemExit(f"a score that nobody killed ended with status {status}")
    record = json.loads(root.with_suffix(".json").read_text())
    return {
        "metrics": {name: metric["value"] for name, metric in record["metrics"].items()},
        "n_cached": record["real"]["n_cached"] + record["fake"]["n_cached"],
        "n_embedded": record["real"]["n_embedded"] + record["fake"]["n_embedded"],
        "notices": [item["code"] for item in record["notices"]],
    }


def rows_in(root: Path) -> int:
    """Images in the shards that are there, all of which have to be readable."""
    count = 0
    for shard in root.rglob("*.safetensors"):
        with safe_open(shard, framework="numpy") as file:
            count += file.get_slice("identities").get_shape()[0]
    return count


def trial(sides: list[str], root: Path, after: float) -> dict[str, Any]:
    """Kill one score, and score again."""
    child = start(sides, root)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    seen = {
        "killed": os.WIFSIGNALED(status),
        "rows": rows_in(root),
        "half_written": [path.name for path in root.rglob(".*")],
    }
    return seen | finished(sides, root)


def main(sides: list[str], folder: Path, trials: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    cache.SHARD_ROWS = 16
    run(["score", *sides, "--cache-dir", str(folder / "warm"), *OPTIONS[:-1], "--json", "--no-cache"])
    started = time.monotonic()
    plain = finished(sides, folder / "plain")
    longest = time.monotonic() - started
    draw = random.Random(0)
    found = [trial(sides, folder / str(number), draw.uniform(0, longest)) for number in range(trials)]
    return {"plain": plain, "trials": found}


if __name__ == "__main__":
    result = main(sys.argv[1:3], Path(sys.argv[3]), int(sys.argv[4]))
    print("\n" + json.dumps(result))
