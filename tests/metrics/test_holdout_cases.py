"""The hold-out benchmark: reproducible cases, and targets that wrong values miss."""

from __future__ import annotations

from collections import Counter
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


@pytest.fixture
def duplicates(cases: ModuleType) -> ModuleType:
    return import_module("_holdout_duplicates")


def _case(cases: ModuleType, group: str, name: str):
    return next(case for case in cases.made_up_cases() if (case.group, case.name) == (group, name))


def test_each_kind_has_fifty_cases_with_targets_in_range(cases) -> None:
    every = list(cases.made_up_cases())
    assert max(Counter((case.group, case.name) for case in every).values()) == 1
    for kind in ("fidelity", "diversity"):
        targets = [target for case in every if (target := getattr(case, kind)) is not None]
        assert len(targets) >= 50
        assert all(0 <= target <= 1 for target in targets)


def test_draw_depends_only_on_name_seed_and_number(cases) -> None:
    for case in list(cases.made_up_cases())[::12]:
        first, again = (case.draw(case.rng(61, 3)) for _ in range(2))
        np.testing.assert_array_equal(first[0], again[0])
        np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], case.draw(case.rng(61, 4))[0])
    assert not np.array_equal(first[0], case.draw(case.rng(62, 3))[0])


@pytest.mark.parametrize(
    ("value", "target", "right"),
    [(0.951, 1, True), (0.949, 1, False), (1.051, 1, False), (0.051, 0, False), (float("nan"), 0, False)],
)
def test_value_is_correct_within_the_tolerance(cases, value: float, target: float, right: bool) -> None:
    assert cases.is_right(value, target) is right


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


def test_near_duplicates_are_found_and_other_rows_are_not(duplicates) -> None:
    rng = np.random.default_rng(0)
    rows = 5 + 0.05 * rng.standard_normal((300, 16))
    assert len(np.unique(duplicates.groups(rows))) == 300
    alike = np.repeat(rows, 4, axis=0) + 1e-4 * rng.standard_normal((1200, 16))
    found = duplicates.groups(alike)
    np.testing.assert_array_equal(found.reshape(300, 4), found.reshape(300, 4)[:, :1].repeat(4, axis=1))
    assert len(np.unique(found)) == 300
