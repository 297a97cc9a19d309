"""The hold-out benchmark: reproducible cases, and targets that wrong values miss."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from genpr.metrics.neighbor_metrics import NeighborMetrics

_CALIBRATED = ("calibrated_precision", "calibrated_recall")
_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(_BENCHMARKS))
    return import_module("_holdout_cases")


@pytest.fixture
def metrics(cases: ModuleType) -> ModuleType:
    return import_module("_holdout_metrics")


def _case(cases: ModuleType, group: str, name: str):
    return next(case for case in cases.made_up_cases() if (case.group, case.name) == (group, name))


def test_readings_separate_a_perfect_generator_from_wrong_fakes(cases, metrics) -> None:
    perfect = _case(cases, "perfect", "ReLU features, d = 512")
    wrong = _case(cases, "off support", "Laplace, moved away")
    for case in (perfect, wrong):
        read = metrics.measured(case.draw(case.rng(0, 0)))["plain"]
        for name, target in (("precision 5", case.fidelity), ("recall 5", case.diversity)):
            assert cases.is_right(read[name].value / read[name].null, target), (case.name, name)
            assert not cases.is_right(read[name].value, 1 - target), (case.name, name)
    assert not cases.is_right(metrics.measured(perfect.draw(perfect.rng(0, 0)))["plain"]["recall 3"].value, 1)


def test_readings_equal_those_of_genpr(cases, metrics) -> None:
    drawn = _case(cases, "perfect", "counts, d = 32")
    real, fake = (rows.astype(np.float32) for rows in drawn.draw(drawn.rng(0, 0)))
    fake = np.concatenate([fake[:400], real[:200]])  # ties at the radii
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
                assert metric.compute(columns, k) == pytest.approx(values[metric.name].value), (
                    metric.name,
                    k,
                )
