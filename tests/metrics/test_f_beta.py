"""F-scores by name, with replicates and intervals of their own."""

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import fbeta_score

from genpr.errors import UsageError
from genpr.metrics.f_beta import beta_of, f_beta, resampled_f_beta
from genpr.metrics.uncertainty import Resampled


@pytest.mark.parametrize(
    ("name", "beta"), [("f1", 1), ("f0.5", 0.5), ("f2", 2), ("f8.0", 8), ("f0.125", 0.125), ("f1000000", 1e6)]
)
def test_a_name_says_beta(name, beta):
    assert beta_of(name) == beta


@pytest.mark.parametrize(
    "name",
    ["f8", "f1_8", "fd", "fid", "F1", "f", "f-1", "f1e3", "f1.", "f.5", "f1 ", "f١", "precision", "finf"],
)
def test_other_names_are_no_f_scores(name):
    assert beta_of(name) is None


@pytest.mark.parametrize("name", ["f0", "f0.0", "f1000001", "f" + "9" * 400])
def test_an_impossible_beta_is_refused(name):
    with pytest.raises(UsageError, match="beta must be positive") as caught:
        beta_of(name)
    assert caught.value.code == "bad-beta"


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_it_is_what_scikit_learn_computes(beta):
    true, predicted = [1] * 6 + [0] * 4, [1, 1, 0, 0, 0, 0, 1, 0, 0, 0]  # precision 2 / 3, recall 1 / 3
    assert f_beta(2 / 3, 1 / 3, beta) == pytest.approx(fbeta_score(true, predicted, beta=beta))
    nothing = fbeta_score([1, 0], [0, 1], beta=beta, zero_division=0)
    assert f_beta(0.0, 0.0, beta) == nothing == 0


def resampled(value, replicates, **changed):
    known = {"n": 100, "seed": 0, "n_real": 100, "k": 3, "real_identity": "abc"}
    return Resampled(value, torch.tensor(replicates, dtype=torch.float64), **{**known, **changed})


def test_each_replicate_is_of_the_pair_of_one_half():
    found = resampled_f_beta(
        resampled(0.5, [0.4, 0.6, 0.0, 1.0], n=70), resampled(0.25, [0.2, 0.3, 0.0, 0.5]), 2.0
    )
    assert found.value == f_beta(0.5, 0.25, 2.0)
    pairs = [(0.4, 0.2), (0.6, 0.3), (0.0, 0.0), (1.0, 0.5)]
    assert found.replicates.tolist() == [f_beta(*pair, 2.0) for pair in pairs]
    assert found.replicates[2] == 0
    assert (found.n, found.n_real, found.real_identity) == (70, 100, "abc")


@pytest.mark.parametrize(
    "changed", [{"seed": 1}, {"n_real": 9}, {"real_identity": "x"}, {"replicates": torch.ones(4)}]
)
def test_replicates_of_other_halves_make_no_f_score(changed):
    precision = resampled(0.5, [0.4, 0.6])
    with pytest.raises(UsageError, match="of the same halves"):
        resampled_f_beta(precision, replace(precision, **changed), 1.0)
