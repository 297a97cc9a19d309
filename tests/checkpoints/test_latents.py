from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from raising import raising
from scipy import stats

from genpr.checkpoints.latents import RULES, Latents
from genpr.errors import UsageError

POINTS = [1e-30, 1e-10, 1e-4, 0.01, 0.3, 0.67, 0.7, 1.0, 2.0, 3.3, 5.0, 5.6, 6.5, 8.0]


@pytest.fixture(scope="module")
def latents():
    return Latents.draw(2000, 10, seed=3)


def test_latents_are_those_of_a_seeded_generator_and_nothing_else_moves():
    state = torch.get_rng_state()
    drawn = Latents.draw(50, 7, seed=5)
    assert torch.equal(drawn.z, torch.randn(50, 7, generator=torch.Generator().manual_seed(5)))
    assert (drawn.z.dtype, drawn.z.device.type, len(drawn)) == (torch.float32, "cpu", 50)
    assert not torch.equal(drawn.z, Latents.draw(50, 7, seed=6).z)
    assert torch.equal(torch.get_rng_state(), state)


def test_scaling_and_clipping_are_what_they_say(latents):
    z = latents.z.numpy()
    np.testing.assert_array_equal(latents.truncated("z-scale", 0.5).numpy(), z * np.float32(0.5))
    np.testing.assert_array_equal(latents.truncated("z-clip", 0.75).numpy(), np.clip(z, -0.75, 0.75))
    assert torch.equal(latents.truncated("w-interpolate", 0.3), latents.z)


@pytest.mark.parametrize("psi", [1e-8, 1e-3, 0.02, 0.3, 1.0, 1.5, 2.5, 5.0, 8.0, 40.0])
def test_resampling_is_exact_to_the_last_bit_in_the_middle_and_in_the_tails(psi):
    z = torch.tensor([POINTS, [-point for point in POINTS]])
    with mpmath.workdps(60):
        bound = mpmath.erf(mpmath.mpf(psi) / mpmath.sqrt(2))
        exact = [
            float(mpmath.sqrt(2) * mpmath.erfinv(mpmath.erf(mpmath.mpf(point) / mpmath.sqrt(2)) * bound))
            for point in z[0].tolist()
        ]
    expected = torch.tensor([exact, [-x for x in exact]], dtype=torch.float64).float()
    assert torch.equal(Latents(z, 0).truncated("z-resample", psi), expected)


@pytest.mark.parametrize("psi", [0.1, 0.7, 2.0])
def test_resampling_gives_the_truncated_normal_at_the_same_quantiles(latents, psi):
    drawn = latents.truncated("z-resample", psi)
    expected = stats.truncnorm.ppf(stats.norm.cdf(latents.z.double()), -psi, psi)
    np.testing.assert_allclose(drawn, expected, rtol=1e-5, atol=1e-7)
    assert stats.kstest(drawn.flatten().double(), stats.truncnorm(-psi, psi).cdf).pvalue > 0.01


def test_resampling_moves_every_point_outwards_with_psi_and_ends_in_z(latents):
    path = torch.stack(
        [latents.truncated("z-resample", psi).abs() for psi in (0, 0.01, 0.1, 0.5, 1, 2, 4, 10, 1e9)]
    )
    assert not path[0].any()
    assert (path.diff(dim=0) >= 0).all()
    assert (path[1:4].diff(dim=0) > 0).all()
    assert torch.equal(latents.truncated("z-resample", 10), latents.z)
    assert torch.equal(latents.truncated("z-resample", 1e9), latents.z)


@pytest.mark.parametrize("rule", ["z-clip", "z-resample"])
@pytest.mark.parametrize("psi", [0.0, 0.05, 0.7, 3.0])
def test_bounded_rules_keep_to_their_bound_and_order(latents, rule, psi):
    drawn = latents.truncated(rule, psi)
    assert drawn.dtype == torch.float32
    assert drawn.abs().max() <= float(np.float32(psi))
    order = latents.z[:, 0].argsort()
    assert (drawn[order, 0].diff() >= 0).all()


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "w-interpolate"])
def test_psi_zero_is_the_middle_and_latents_stay_as_they_were(latents, rule):
    before = latents.z.clone()
    assert not latents.truncated(rule, 0).any()
    assert torch.equal(latents.z, before)


def test_psi_of_w_may_be_negative_but_not_that_of_z(latents):
    assert torch.equal(latents.truncated("w-interpolate", -1), latents.z)
    for rule in ("z-scale", "z-clip", "z-resample"):
        with raising(UsageError, "bad-psi"):
            latents.truncated(rule, -0.5)


@pytest.mark.parametrize("psi", [math.nan, math.inf, True, "0.5", None])
@pytest.mark.parametrize("rule", RULES)
def test_psi_must_be_a_finite_number(latents, rule, psi):
    with pytest.raises(UsageError, match="psi must be a finite number"):
        latents.truncated(rule, psi)


def test_an_unknown_rule_is_met_with_the_known_ones(latents):
    with raising(UsageError, "unknown-rule"):
        latents.truncated("z-fold", 0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 0}, "n must be an integer of at least 1, not 0"),
        ({"n": 2.0}, "n must be an integer of at least 1, not 2.0"),
        ({"n": True}, "n must be an integer of at least 1, not True"),
        ({"d": 0}, "latent_dim must be an integer of at least 1, not 0"),
        ({"seed": -1}, "seed must be an integer from 0 on, got -1"),
        ({"seed": 0.5}, "seed must be an integer from 0 on, got 0.5"),
        ({"seed": 2**63}, "seed must be an integer from 0 on"),
    ],
)
def test_impossible_numbers_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        Latents.draw(**{"n": 2, "d": 3, "seed": 0} | options)
