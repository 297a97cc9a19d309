"""Replicates of halves, standard errors and intervals of them, and those of F-scores."""

import math
from dataclasses import replace

import pytest
import torch
from raising import raising
from scipy import stats
from sklearn.metrics import fbeta_score

from genpr.errors import UsageError
from genpr.metrics import uncertainty as module
from genpr.metrics.f_beta import beta_of, f_beta, resampled_f_beta
from genpr.metrics.metric import family_of
from genpr.metrics.registry import ALL_METRICS, CONDITIONAL, METRICS
from genpr.metrics.uncertainty import Resampled, difference, halved, interval_of, lower_part, standard_error


def pairs(*halves: float) -> torch.Tensor:
    return torch.tensor(halves, dtype=torch.float64)


def test_standard_error_is_half_the_difference_of_complementary_halves():
    assert standard_error(pairs(0.5, 0.7, 0.9, 0.9)) == pytest.approx(math.sqrt((0.1**2 + 0) / 2))
    assert standard_error(pairs(0.2, 0.2, 0.8, 0.8)) == 0  # differences between splits do not count


def test_interval_of_a_minimum_uses_the_metric_with_the_lower_bound():
    steady, lower, restless = pairs(0.50, 0.52), pairs(0.48, 0.50), pairs(0.4, 0.7)
    assert lower_part(steady, lower) is lower_part(lower, steady) is lower
    # Although it is higher on average.
    assert lower_part(steady, restless) is lower_part(restless, steady) is restless


def test_interval_is_centered_on_the_value_of_the_whole_sets():
    replicates = pairs(*([0.3, 0.5] * 25))
    interval = interval_of(0.6, replicates, n=10**6)
    half = stats.t.ppf(0.975, 50 / 3) * 0.1  # 25 splits, and the 50 degrees of freedom of the data
    assert interval.low == pytest.approx(0.6 - half)
    assert interval.high == pytest.approx(0.6 + half)
    assert 0.6 in interval
    assert 0.9 not in interval


@pytest.mark.parametrize("n", [1, 20, 1000])
def test_equal_replicates_at_0_or_1_give_the_exact_binomial_bound(n):
    bound = 1 - 0.025 ** (1 / n)
    ones, zeros = torch.ones(100), torch.zeros(100)
    assert interval_of(1.0, ones, n=n).low == pytest.approx(1 - bound)
    assert interval_of(1.0, ones, n=n).high == 1
    assert interval_of(0.0, zeros, n=n).high == pytest.approx(bound)
    assert interval_of(0.0, zeros, n=n).low == 0
    assert interval_of(0.0, zeros, n=n, upper=None).high == pytest.approx(bound)


def test_equal_replicates_elsewhere_give_the_binomial_interval():
    interval = interval_of(0.3, torch.full((100,), 0.3), n=50)
    exact = stats.binomtest(15, 50).proportion_ci(0.95, "exact")
    assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high))
    density = interval_of(2.0, torch.full((100,), 2.0), n=50, upper=None)
    assert density.low < 2.0 < density.high


def score(value: float, replicates, **changed) -> Resampled:
    known = {"n": 1000, "seed": 0, "n_real": 100, "real_identity": "abc"}
    return Resampled(value, torch.as_tensor(replicates, dtype=torch.float64), **{**known, **changed})


def test_scores_on_the_same_reals_are_compared_in_pairs(rng):
    shared = 0.5 + 0.05 * torch.from_numpy(rng.normal(size=100))
    own = 0.001 * torch.from_numpy(rng.normal(size=(2, 100)))
    a, b = score(0.51, shared + own[0]), score(0.5, shared + own[1])
    found = difference(a, b)
    assert found.pairing == "paired"
    assert found.verdict == "distinguishable"
    assert found.value == pytest.approx(0.01)
    assert found.interval.low + found.interval.high == pytest.approx(0.02)
    for changed in ({"n_real": 99}, {"seed": 1}, {"real_identity": None}, {"real_identity": "def"}):
        apart = difference(a, replace(b, **changed))
        assert apart.pairing == "unpaired"
    assert apart.verdict == "not distinguishable"
    half = stats.t.ppf(0.975, 25) * math.hypot(standard_error(a.replicates), standard_error(b.replicates))
    assert apart.interval.high - apart.interval.low == pytest.approx(2 * half)


def test_small_difference_without_variance_is_not_distinguishable():
    ones = torch.ones(100)
    found = difference(score(1.0, ones), score(0.999, ones))
    assert found.verdict == "not distinguishable"
    assert found.interval.low < 0.001 < found.interval.high
    assert difference(score(1.0, ones), score(0.9, 0.9 * ones)).verdict == "distinguishable"


def mean_of(values):
    return lambda weights: weights @ values / weights.sum(dim=1)


def test_standard_error_of_a_mean_equals_the_usual_formula():
    values = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    usual = float(values.std()) / 20
    assert standard_error(halved(mean_of(values), 400)) == pytest.approx(usual, rel=0.15)


def test_batch_size_of_halves_changes_nothing(monkeypatch):
    values = torch.arange(50.0, dtype=torch.float64)
    whole = halved(mean_of(values), 50, seed=3)
    monkeypatch.setattr(module, "_MAX_WEIGHTS", 120)
    assert torch.equal(halved(mean_of(values), 50, seed=3), whole)
    assert not torch.equal(halved(mean_of(values), 50, seed=4), whole)


def test_too_few_units_are_an_error():
    with pytest.raises(UsageError, match="at least 10 units, not 9"):
        halved(mean_of(torch.ones(9, dtype=torch.float64)), 9)


def test_family_follows_from_the_name_of_a_metric():
    families = {"label", "retrieval", "alignment", "entity", "reconstruction", "diversity"}
    assert {family_of(name) for name in CONDITIONAL} == families
    assert {family_of(name) for name in METRICS} == {"manifold"}
    assert set(ALL_METRICS) == {*METRICS, *CONDITIONAL}
    assert all(len(info.meaning) <= 54 for info in ALL_METRICS.values())
    assert all(info.kind == "conditional" for info in CONDITIONAL.values())


@pytest.mark.parametrize(
    ("name", "beta"),
    [("f1", 1), ("f0.5", 0.5), ("f2", 2), ("f8", 8), ("f8.0", 8), ("f0.125", 0.125), ("f1000000", 1e6)],
)
def test_beta_is_parsed_from_the_name(name, beta):
    assert beta_of(name) == beta


@pytest.mark.parametrize(
    "name",
    ["f1_8", "fd", "fid", "F1", "f", "f-1", "f1e3", "f1.", "f.5", "f1 ", "f١", "precision", "finf"],
)
def test_other_names_are_no_f_scores(name):
    assert beta_of(name) is None


@pytest.mark.parametrize("name", ["f0", "f0.0", "f1000001", "f" + "9" * 400])
def test_invalid_beta_is_an_error(name):
    with raising(UsageError, "bad-beta", "beta must be positive"):
        beta_of(name)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_f_beta_equals_scikit_learn(beta):
    true, predicted = [1] * 6 + [0] * 4, [1, 1, 0, 0, 0, 0, 1, 0, 0, 0]  # precision 2 / 3, recall 1 / 3
    assert f_beta(2 / 3, 1 / 3, beta) == pytest.approx(fbeta_score(true, predicted, beta=beta))
    nothing = fbeta_score([1, 0], [0, 1], beta=beta, zero_division=0)
    assert f_beta(0.0, 0.0, beta) == nothing == 0


def test_replicates_of_an_f_score_combine_equal_halves():
    found = resampled_f_beta(score(0.5, [0.4, 0.6, 0.0, 1.0], n=70), score(0.25, [0.2, 0.3, 0.0, 0.5]), 2.0)
    assert found.value == f_beta(0.5, 0.25, 2.0)
    pairs = [(0.4, 0.2), (0.6, 0.3), (0.0, 0.0), (1.0, 0.5)]
    assert found.replicates.tolist() == [f_beta(*pair, 2.0) for pair in pairs]
    assert (found.n, found.n_real, found.real_identity) == (70, 100, "abc")


def test_other_numbers_of_replicates_give_no_f_score():
    with pytest.raises(UsageError, match="of the same halves"):
        resampled_f_beta(score(0.5, [0.4, 0.6]), score(0.5, [0.4, 0.6, 0.1, 0.2]), 1.0)


def test_intervals_end_at_the_bounds_of_the_metric():
    replicates = torch.linspace(-99, 100, 100, dtype=torch.float64)
    for options, low, high in (({}, 0, 1), ({"lower": 0.3, "upper": 0.6}, 0.3, 0.6)):
        found = interval_of(0.5, replicates, n=None, **options)
        assert (found.low, found.high) == (low, high)
