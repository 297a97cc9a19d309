"""The run of a million images at a fiftieth of its size: `benchmarks/bench_million.py`, killed twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_million.py"
IMAGES = 20_000
BLOCK = 2048


@pytest.mark.slow
def test_a_run_that_is_killed_twice_embeds_little_again_and_ends_with_the_same_bytes(tmp_path):
    out = tmp_path / "out.json"
    sizes = ["--images", str(IMAGES), "--shards", "10", "--scored", "2000", "--max-memory", "700MiB"]
    command = [sys.executable, str(BENCHMARK), *sizes, "--temp-dir", str(tmp_path), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    whole, resumed, kills = record["uninterrupted"], record["resumed"], record["kills"]
    assert resumed["sha256"] == whole["sha256"]
    assert (whole["n_embedded"], whole["n_cached"]) == (IMAGES, 0)
    assert len(kills) == 2
    assert 0 < kills[0]["in_cache"] < kills[1]["in_cache"] < IMAGES
    assert resumed["n_cached"] == kills[1]["in_cache"]
    assert resumed["n_embedded"] == IMAGES - kills[1]["in_cache"]
    assert all(0 <= kill["lost"] < 2 * BLOCK for kill in kills)
    assert record["listing"]["n"] == IMAGES
    assert record["listing"]["anonymous_bytes_above_imports"] < 200 * IMAGES + 30e6
    features = 4 * 3072 * IMAGES
    assert whole["bytes"] > features
    assert whole["anonymous_peak_bytes"] < 600e6, "the features are mapped from a file, which is no memory"
    assert set(record["score"]["values"]) == {"precision", "recall", "density", "coverage"}
