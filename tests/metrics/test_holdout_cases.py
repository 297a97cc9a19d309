"""The hold-out benchmark measures the metrics of genpr."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from genpr.metrics.neighbor_metrics import NeighborMetrics

_CALIBRATED = ("calibrated_precision", "calibrated_recall")


def test_readings_equal_those_of_genpr(monkeypatch, rng):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    metrics = import_module("_holdout_metrics")
    real, fake = rng.poisson(2, (2, 400, 32)).astype(np.float32)
    fake[:200] = real[:200]  # ties at the radii
    read = metrics.measured((real, fake))["plain"]
    for k in (3, 20):
        scorer = NeighborMetrics(
            torch.from_numpy(real),
            ks=dict.fromkeys((*metrics.MEASURED, *_CALIBRATED), k),
            ties="closed",
            intervals=False,
            seed=0,
            device=torch.device("cpu"),
        )
        values = scorer.score(torch.from_numpy(fake)).values
        for name in metrics.MEASURED:
            assert read[f"{name} {k}"] == (values[name].value, values[name].null), (name, k)
        columns = metrics.Columns(*({key: [each[i]] for key, each in read.items()} for i in (0, 1)))
        for metric in metrics.METRICS:
            if metric.name in _CALIBRATED:
                assert metric.compute(columns, k) == pytest.approx(values[metric.name].value), metric.name
