"""Flat dicts in what logs them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import genpr
from genpr.integrations.callback import GenprCallback

NAMES = ("precision", "recall", "density", "coverage")


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    return genpr.score(rng.normal(size=(60, 4)), 0.7 * rng.normal(size=(60, 4)), control=False)


def test_f1_is_the_harmonic_mean(result):
    flat = result.to_flat_dict()
    assert list(flat) == [f"genpr/{name}" for name in (*NAMES, "f1")]
    precision, recall = flat["genpr/precision"], flat["genpr/recall"]
    assert 0 < recall < precision
    assert flat["genpr/f1"] == pytest.approx(2 / (1 / precision + 1 / recall), rel=1e-14)


def test_f1_of_nothing_is_zero():
    flat = genpr.score(np.eye(8), np.eye(8) + 100, control=False).to_flat_dict()
    assert flat["genpr/precision"] == flat["genpr/recall"] == flat["genpr/f1"] == 0


def test_f1_needs_both():
    real = np.random.default_rng(0).normal(size=(20, 4))
    assert list(genpr.score(real, real, metrics=["recall"], control=False).to_flat_dict()) == ["genpr/recall"]


def test_intervals_if_asked(result):
    flat = result.to_flat_dict(intervals=True)
    for name in NAMES:
        assert (flat[f"genpr/{name}_low"], flat[f"genpr/{name}_high"]) == result.metrics[name].interval
    assert len(flat) == 13
    lacking = dataclasses.replace(result.metrics["recall"], interval=None)
    partly = dataclasses.replace(result, metrics={**result.metrics, "recall": lacking})
    assert set(flat) - set(partly.to_flat_dict(intervals=True)) == {"genpr/recall_low", "genpr/recall_high"}


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of tensorboard's own
def test_tensorboard_gives_back_what_was_logged(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    real = torch.randint(256, (30, 3, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    with SummaryWriter(tmp_path) as writer:

        def log(scores, step):
            for name, value in scores.items():
                writer.add_scalar(name, value, step)

        callback = GenprCallback(real, lambda shift: [real + shift], extractor="gabor", log=log)
        for step, shift in enumerate([90, 0, 40]):
            callback(10 * step, shift)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == {f"genpr/{name}" for name in (*NAMES, "f1")}
    for name in ("genpr/f1", "genpr/density"):
        logged = [(event.step, event.value) for event in events.Scalars(name)]
        known = [(record.step, np.float32(record.scores[name])) for record in callback.history.records]
        assert logged == known
    assert callback.best.step == 10
