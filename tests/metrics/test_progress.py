from __future__ import annotations

import numpy as np
import pytest

import genpr
from genpr.metrics import real_side
from genpr.neighbours import sweep
from genpr.neighbours.torch_engine import TorchEngine
from genpr.runtime import torch_threads


@pytest.mark.parametrize("threads", [1, 2])
def test_pairs_are_counted_as_they_are_done_with_and_add_up(threads, rng, monkeypatch):
    real, fake = rng.normal(size=(100, 5)), rng.normal(size=(70, 5))
    seen = []
    monkeypatch.setattr(real_side, "choose_engine", lambda _: TorchEngine(16, 16))
    with torch_threads(threads):
        genpr.manifold_metrics(real, fake, progress=lambda done, total: seen.append((done, total)))
    totals = list(dict.fromkeys(total for _, total in seen))
    assert totals == [100 * 99 // 2, 70 * 69 // 2 + 70 * 100]
    for total in totals:
        done = [done for done, of in seen if of == total]
        assert len(done) > 3
        assert (np.diff(done) > 0).all()
        assert done[-1] == total


def test_a_search_is_told_in_per_cent(rng):
    seen = []
    genpr.score(*rng.normal(size=(2, 200, 5)), progress=lambda *told: seen.append(told))
    done = [done for stage, done, total in seen if stage == "neighbours" and total == 100]
    assert done[0] == 0
    assert done.count(100) >= 2
    assert len(done) == len(seen)


def test_telling_nobody_is_nothing():
    assert sweep.no_tick(5) is None
