"""Criteria hold and fail where their thresholds are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genpr.audit.criteria import (
    Curve,
    Margin,
    all_of,
    any_of,
    bell,
    close,
    converged,
    flat,
    high_low,
    high_low_mid,
    low_high,
)


def curve(*values, se=0.01):
    values = np.array(values, dtype=float)
    return Curve(np.arange(len(values), dtype=float), values, np.full(len(values), se))


@pytest.mark.parametrize(
    ("value", "target", "holds"),
    [
        (0.95, 1, True),
        (0.949, 1, False),
        (1.05, 1, True),
        (1.051, 1, False),
        (0.05, 0, True),
        (-0.051, 0, False),
    ],
)
def test_close_allows_a_twentieth(value, target, holds):
    assert close(curve(value), 0, target).holds is holds


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ((0, 1, 0), True),
        ((0.8, 1, 0), True),
        ((0.81, 1, 0), False),  # does not fall enough on the left
        ((0, 1, 0.81), False),
        ((0, 0.9, 1.0, 0.5, 0), True),  # the middle of five is another point
        ((0, 1.11, 1, 0.5, 0), False),  # higher elsewhere
        ((0.3, 0.15, 1, 0.9, 0.3), False),  # lowest within
        ((0.3, 0.21, 1, 0.9, 0.3), True),
        ((0.5, 0.15, 1, 0.9, 0.2), True),  # one end is the lowest
    ],
)
def test_bell(values, holds):
    assert bell(curve(*values), len(values) // 2).holds is holds


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ((1, 0.75, 0.8), True),
        ((1, 0.9, 0.81), False),
        ((0.9, 1.0, 0), True),
        ((0.9, 1.01, 0), False),
        ((1, 0.1, 0.2), True),
        ((1, 0.09, 0.2), False),
        ((0, 0.5, 1), False),
    ],
)
def test_high_low_and_its_mirror(values, holds):
    assert high_low(curve(*values)).holds is holds
    assert low_high(curve(*values[::-1])).holds is holds


def test_part_of_the_fall_must_have_happened_at_the_quantile():
    late, early = curve(1, 1, 1, 1, 0), curve(1, 1, 0.9, 0.9, 0)
    assert high_low(late).holds
    assert not high_low_mid(late, 0.5).holds
    assert high_low_mid(early, 0.5).holds
    assert not high_low_mid(early, 0.25).holds


def test_quantile_is_the_nearest_point_and_the_lower_of_two():
    ten = curve(*range(10))
    assert ten.quantile(0.5) == 4
    assert ten.quantile(0.52) == 5
    fifty = Curve(np.linspace(0, 1, 50), np.zeros(50), np.zeros(50))
    assert fifty.quantile(0.95) == 47
    assert curve(0, 0, 0).quantile(0.5) == 1


def test_flat_and_converged():
    assert flat(curve(0.5, 0.55, 0.52)).holds
    assert not flat(curve(0.5, 0.551, 0.52)).holds
    assert converged(curve(9, 9, 0.5, 0.55)).holds
    assert not converged(curve(9, 9, 0.5, 0.56)).holds
    assert not converged(curve(0.5, 0.5, 0.58, 0.5)).holds


def test_margin_names_the_points_and_their_noise():
    margin = flat(Curve(np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.9, 0.5]), np.array([0.03, 0.04, 9.0])))
    assert margin.value == pytest.approx(0.05 - 0.7)
    assert margin.se == pytest.approx(0.05)
    assert "0.900 at 2" in margin.what
    assert "0.200 at 1" in margin.what


def test_constant_curve_has_no_noise_in_a_comparison_with_itself():
    assert flat(curve(0.5)).se == 0
    assert flat(curve(0.5)).value == 0.05


@pytest.mark.parametrize(
    "criterion", [flat, high_low, low_high, lambda c: close(c, 0, 1), lambda c: bell(c, 1)]
)
def test_value_that_is_none_fails_everything(criterion):
    margin = criterion(curve(1.0, math.nan, 1.0))
    assert not margin.holds
    assert margin.value == -math.inf


def test_all_is_the_smallest_and_any_the_largest():
    low, high = Margin(-0.1, 0.0, "low"), Margin(0.2, 0.0, "high")
    assert all_of(high, low) is low
    assert any_of(low, high) is high


def test_threshold_itself_passes_despite_rounding():
    assert high_low(curve(0.3, 0.1)).holds  # .3 - .1 - .2 is not 0 in floating point
    assert close(curve(0.95), 0, 1).holds
