"""Scores that are killed at random moments: finished images are not embedded again, and values are the same.

`python test_killed_scores.py REAL FAKE FOLDER TRIALS` is the process whose forks are killed; it prints one JSON line.
"""

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import safe_open

OPTIONS = "--extractor pixels --batch-size 4 --device cpu --no-control --no-intervals -q --json".split()  # noqa: SIM905


def start(sides, root):
    """Fork a process that scores and writes its result next to its cache."""
    from genpr.cli.main import run

    child = os.fork()
    if child == 0:
        os.dup2(os.open(root.with_suffix(".json"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        code = run(["score", *sides, "--cache-dir", str(root), *OPTIONS])
        sys.stdout.flush()
        os._exit(code)
    return child


def finished(sides, root):
    """Score without interruption."""
    _, status = os.waitpid(start(sides, root), 0)
    record = json.loads(root.with_suffix(".json").read_text())
    return {
        "status": status,
        "metrics": {name: metric["value"] for name, metric in record["metrics"].items()},
        "n_cached": record["real"]["n_cached"] + record["fake"]["n_cached"],
        "notices": [item["code"] for item in record["notices"]],
    }


def rows_in(shard):
    with safe_open(shard, framework="numpy") as file:
        return file.get_slice("identities").get_shape()[0]


def trial(sides, root, after):
    """Kill one score, and score again."""
    child = start(sides, root)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    rows = sum(map(rows_in, root.rglob("*.safetensors")))
    return {"killed": os.WIFSIGNALED(status), "rows": rows, **finished(sides, root)}


def main(sides, folder, trials):
    import torch

    from genpr.cli.main import run
    from genpr.features import cache

    torch.set_num_threads(1)
    cache.SHARD_ROWS = 8
    run(["score", *sides, "--no-cache", *OPTIONS])  # imports what the forks need
    gc.freeze()  # forks neither traverse nor copy imported objects
    started = time.monotonic()
    plain = finished(sides, folder / "plain")
    longest, draw = time.monotonic() - started, random.Random(0)
    found = [trial(sides, folder / str(number), draw.uniform(0, longest)) for number in range(trials)]
    print("\n" + json.dumps({"plain": plain, "trials": found}))


@pytest.mark.parametrize("trials", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_score_resumes(sides, tmp_path, trials):
    caches = tmp_path / "caches"
    caches.mkdir()
    command = [sys.executable, __file__, *map(str, sides), str(caches), str(trials)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert sum(each["killed"] for each in found["trials"]) >= trials // 3, "kills came in time"
    for each in found["trials"]:
        assert each["status"] == 0
        assert each["metrics"] == found["plain"]["metrics"]
        assert each["n_cached"] == each["rows"]
        assert {code for code in each["notices"] if code.startswith("cache")} == set()


if __name__ == "__main__":
    main(sys.argv[1:3], Path(sys.argv[3]), int(sys.argv[4]))
