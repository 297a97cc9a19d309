"""Replicates of a statistic over units, and families of metrics."""

import pytest
import torch

from genpr.errors import UsageError
from genpr.metrics import ranking_values as module
from genpr.metrics.metric import family_of
from genpr.metrics.ranking_values import halved
from genpr.metrics.registry import ALL_METRICS, CONDITIONAL, METRICS
from genpr.metrics.uncertainty import standard_error


def mean_of(values):
    return lambda weights: weights @ values / weights.sum(dim=1)


def test_halves_are_of_half_the_units_and_complementary():
    seen = []

    def watch(weights):
        seen.append(weights)
        return weights.sum(dim=1)

    assert (halved(watch, 30) == 15).all()
    weights = torch.cat(seen)
    assert weights.shape == (100, 30)
    assert (weights[::2] + weights[1::2] == 1).all()
    assert len({tuple(row.tolist()) for row in weights}) > 90


def test_standard_error_of_a_mean_is_the_usual_one():
    values = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    usual = float(values.std()) / 20
    assert standard_error(halved(mean_of(values), 400)) == pytest.approx(usual, rel=0.15)


def test_batches_of_halves_change_nothing(monkeypatch):
    values = torch.arange(50.0, dtype=torch.float64)
    whole = halved(mean_of(values), 50, seed=3)
    monkeypatch.setattr(module, "_MOST_WEIGHTS", 120)
    assert torch.equal(halved(mean_of(values), 50, seed=3), whole)
    assert not torch.equal(halved(mean_of(values), 50, seed=4), whole)


def test_too_few_units_are_refused():
    with pytest.raises(UsageError, match="at least 10 units, not 9"):
        halved(mean_of(torch.ones(9, dtype=torch.float64)), 9)


def test_families_are_told_by_name():
    assert {family_of(name) for name in CONDITIONAL} == {"label", "retrieval", "alignment", "entity"}
    assert {family_of(name) for name in METRICS} == {"manifold"}
    assert set(ALL_METRICS) == {*METRICS, *CONDITIONAL}
    assert all(len(info.meaning) <= 54 for info in ALL_METRICS.values())
    assert all(info.kind == "conditional" for info in CONDITIONAL.values())
