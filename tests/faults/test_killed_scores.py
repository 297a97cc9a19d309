"""kill -9 of whole scores at random moments: what was finished is not embedded again, and the numbers are the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from genpr.features.cache_files import abandoned_files, find_folders, remove_files

N = 120
HALF_WRITTEN = re.compile(r"\.[0-9a-f]{32}\.safetensors\.[^.]+\.tmp")


@pytest.mark.parametrize("trials", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_score_that_was_killed_goes_on_where_it_was(write_images, rng, tmp_path, trials):
    sides = [
        write_images(name, rng.integers(0, 256, (N, 8, 8, 3), dtype=np.uint8)) for name in ("real", "fake")
    ]
    caches = tmp_path / "caches"
    caches.mkdir()
    script = Path(__file__).with_name("score_kills.py")
    done = subprocess.run(
        [sys.executable, script, *map(str, sides), str(caches), str(trials)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    plain, killed = found["plain"], [trial for trial in found["trials"] if trial["killed"]]
    assert (plain["n_cached"], plain["n_embedded"]) == (0, 2 * N)
    assert len(killed) >= trials // 3, "kills came in time"
    for trial in found["trials"]:
        assert trial["metrics"] == plain["metrics"]
        assert (trial["n_cached"], trial["n_embedded"]) == (trial["rows"], 2 * N - trial["rows"])
        assert {code for code in trial["notices"] if code.startswith("cache")} == set()
        assert all(HALF_WRITTEN.fullmatch(name) for name in trial["half_written"])
    if trials >= 50:
        rows = [trial["rows"] for trial in killed]
        assert min(rows) < 32, "some came early"
        assert max(rows) > N, "some late"
        assert len(set(rows)) > 5
    for root in caches.iterdir():
        if root.is_dir():
            remove_files(abandoned_files(find_folders(root), now=time.time() + 7200))
    assert not [path for path in caches.rglob(".*") if path.is_file()], "the pruner leaves nothing"
