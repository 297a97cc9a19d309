import numpy as np
import pytest
import torch

import genpr
from genpr.metrics import real_manifold
from genpr.metrics.neighbor_metrics import NeighborMetrics
from genpr.neighbors.engine import Engine
from genpr.runtime import torch_threads


@pytest.mark.parametrize("threads", [1, 2])
def test_pairs_are_counted_as_they_are_done_with_and_add_up(threads, rng, monkeypatch):
    real, fake = rng.normal(size=(100, 5)), rng.normal(size=(70, 5))
    seen = []
    monkeypatch.setattr(real_manifold, "ENGINE", Engine(16, 16))
    with torch_threads(threads):
        genpr.manifold_metrics(real, fake, progress=lambda done, total: seen.append((done, total)))
    totals = list(dict.fromkeys(total for _, total in seen))
    assert totals == [100 * 99 // 2, 70 * 69 // 2 + 70 * 100]
    for total in totals:
        done = [done for done, of in seen if of == total]
        assert len(done) > 3
        assert (np.diff(done) > 0).all()
        assert done[-1] == total


def told_by_score(real, fake, ks, *, intervals):
    """What a fitted side tells while it scores."""
    options = {"ties": "closed", "intervals": intervals, "seed": 0, "device": torch.device("cpu")}
    side = NeighborMetrics(torch.from_numpy(real).float(), ks=ks, **options)
    told = []
    side.score(torch.from_numpy(fake).float(), lambda done, total: told.append((done, total)))
    assert len({total for _, total in told}) == 1, "one bar for all searches"
    return [done for done, _ in told], told[0][1]


CROSS, WITHIN = 90 * 60, (90 * 89 + 60 * 59) // 2
PASSES = [
    ({"precision": 3}, True, 0),  # replicates are counted on the way
    ({"precision": 3, "recall": 3}, True, 0),
    ({"authenticity": 1}, False, CROSS),
    ({"realism": 3}, False, CROSS),
    ({"p_precision": 4, "p_recall": 4}, False, CROSS + WITHIN),
    ({"witnessed_support": 20}, False, 2 * CROSS + WITHIN),
    ({"witnessed_support": 20}, True, 2 * CROSS + WITHIN + 20 * (2 * 45 * 30 + (45 * 44 + 30 * 29) // 2)),
    ({"rarity": 3}, False, 0),
    ({"precision": 60}, True, 0),  # halves are too small for replicates
    ({"coverage": 5, "realism": 3, "p_recall": 4}, True, CROSS + CROSS + WITHIN),
]


@pytest.mark.parametrize(("ks", "intervals", "more"), PASSES, ids=lambda each: str(each))
def test_every_search_behind_a_score_is_told_of(ks, intervals, more, rng):
    real, fake = rng.normal(size=(90, 3)).astype(np.float32), rng.normal(size=(60, 3)).astype(np.float32)
    done, total = told_by_score(real, fake, ks, intervals=intervals)
    counting = CROSS + (60 * 59 // 2 if "recall" in ks else 0)
    assert total == counting + more
    assert done[-1] == total
    assert (np.diff(done) > 0).all()
    assert any(each == counting for each in done)
