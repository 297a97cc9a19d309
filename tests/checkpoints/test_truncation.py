"""Truncation rules of z, to the last bit."""

import math
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from raising import raising

from genpr.checkpoints.generator import RULES, check_psi
from genpr.errors import UsageError


@pytest.fixture(scope="module")
def z():
    return torch.randn(2000, 10, generator=torch.Generator().manual_seed(3))


POINTS = [1e-30, 1e-10, 1e-4, 0.01, 0.3, 0.67, 0.7, 1.0, 2.0, 3.3, 5.0, 5.6, 6.5, 8.0]


def test_scaling_and_clipping_equal_their_definitions(z):
    np.testing.assert_array_equal(RULES["z-scale"](z, 0.5).numpy(), z.numpy() * np.float32(0.5))
    np.testing.assert_array_equal(RULES["z-clip"](z, 0.75).numpy(), np.clip(z.numpy(), -0.75, 0.75))


@pytest.mark.parametrize("psi", [1e-8, 1e-3, 0.02, 0.3, 1.0, 1.5, 2.5, 5.0, 8.0, 40.0])
def test_resampling_is_exact_to_the_last_bit(psi):
    z = torch.tensor([POINTS, [-point for point in POINTS]])
    with mpmath.workdps(60):
        bound = mpmath.erf(mpmath.mpf(psi) / mpmath.sqrt(2))
        exact = [
            float(mpmath.sqrt(2) * mpmath.erfinv(mpmath.erf(mpmath.mpf(point) / mpmath.sqrt(2)) * bound))
            for point in z[0].tolist()
        ]
    expected = torch.tensor([exact, [-x for x in exact]], dtype=torch.float64).float()
    assert torch.equal(RULES["z-resample"](z, psi), expected)


@pytest.mark.parametrize("rule", ["z-scale", "z-clip", "z-resample"])
def test_psi_zero_gives_zero_latents_and_bounded_rules_keep_order(z, rule):
    before = z.clone()
    assert not RULES[rule](z, 0.0).any()
    for psi in (0.05, 0.7, 3.0) if rule != "z-scale" else ():
        drawn = RULES[rule](z, psi)
        assert drawn.dtype == torch.float32
        assert drawn.abs().max() <= float(np.float32(psi))
        assert (drawn[z[:, 0].argsort(), 0].diff() >= 0).all()
    assert torch.equal(z, before)


@pytest.mark.parametrize("psi", [math.nan, math.inf, True, "0.5", None, -0.5])
def test_invalid_psi_and_unknown_rules_are_errors(psi):
    for rule in RULES:
        with raising(UsageError, "bad-psi"):
            check_psi(rule, psi)
    with raising(UsageError, "unknown-rule"):
        check_psi("z-fold", 0.5)


def test_page_names_every_truncation_rule():
    page = (Path(__file__).parents[2] / "docs" / "generators.md").read_text()
    assert set(re.findall(r"^\| `(z-\w+)`", page, re.MULTILINE)) == set(RULES)
