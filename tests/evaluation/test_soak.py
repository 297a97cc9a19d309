"""One process scores checkpoint after checkpoint: nothing piles up, and no number depends on what came before."""

import contextlib
import gc
import threading
from pathlib import Path

import numpy as np
import pytest

import genpr


def open_files():
    """What this process has open, by where it leads."""
    gc.collect()
    found = []
    for link in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # that of the folder itself, which was just listed
            found.append(str(link.readlink()))
    return sorted(found)


def numbers(result):
    return [(name, each.value, each.interval, each.null) for name, each in result.metrics.items()]


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A real set, and three that come nearer to it, as uint8 .npz files."""
    folder, rng = tmp_path_factory.mktemp("soak"), np.random.default_rng(0)
    tops = rng.integers(0, 256, (4, 60, 2, 2, 3)).astype(float)
    paths = []
    for number, top in enumerate(tops):
        spread = 0.4 * (3 - number) * (number > 0)
        pixels = top.repeat(4, axis=1).repeat(4, axis=2) + 60 * spread * rng.normal(size=(60, 8, 8, 3))
        paths.append(folder / f"{number}.npz")
        np.savez(paths[-1], pixels.clip(0, 255).round().astype(np.uint8))
    return paths


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux lists")
def test_files_and_threads_do_not_pile_up_and_numbers_are_those_of_a_fresh_evaluator(sets):
    real, *fakes = sets
    options = {"extractor": "pixels", "device": "cpu", "intervals": False, "control": False}
    evaluator = genpr.Evaluator(real, **options)
    seen = []
    for fake in fakes:
        result = evaluator.score(fake)
        seen.append((open_files(), threading.active_count(), numbers(result)))
    for files, threads, _ in seen[1:]:
        assert files == seen[0][0]
        assert threads == seen[0][1]
    for number in (0, 2):
        assert numbers(genpr.Evaluator(real, **options).score(fakes[number])) == seen[number][2]
    assert seen[0][2] != seen[2][2]
