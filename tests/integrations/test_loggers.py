"""Flat dicts in what logs them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from genpr.integrations.callback import GenprCallback

NAMES = ("precision", "recall", "density", "coverage")


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
