"""The grids are the published ones, and the quick ones keep what the criteria look at."""

from __future__ import annotations

import numpy as np
import pytest

from genpr.audit.checks import CHECKS, Case, cases
from genpr.audit.criteria import DEMANDS

# Points and ends of the first and of the last curve, as published.
GRIDS = {
    "mean": (51, (-6, 6), (-1, 1)),
    "mean+outlier": (51, (-6, 6), (-1, 1)),
    "std": (51, (1e-3, 1e3), (10**-0.5, 10**0.5)),
    "simultaneous": (50, (0, 1), (0, 1)),
    "sequential": (10, (0, 9), (0, 9)),
    "invention": (10, (1, 10), (1, 10)),
    "hypersphere": (51, (0.1, 1.9), (0.1, 1.9)),
    "cube-n": (20, (100, 10_000), (100, 10_000)),
    "cube-n-fake": (20, (100, 10_000), (100, 10_000)),
    "sphere-torus": (20, (100, 10_000), (100, 10_000)),
    "collapse": (20, (0, 5), (0, 5)),
    "scaling": (20, (1e-3, 1e3), (1e-3, 1e3)),
    "pareto": (51, (-6, 6), (-6, 6)),
    "disjoint": (18, (1, 1000), (1, 1000)),  # 20, of which two are the same whole numbers as others
    "discrete": (20, (1, 1000), (1, 1000)),
}


def test_all_fifteen_are_there_with_two_demands_each():
    assert list(CHECKS) == list(GRIDS)
    assert len(DEMANDS) == 30
    assert [demand.check for demand in DEMANDS] == [name for name in GRIDS for _ in range(2)]


@pytest.mark.parametrize("name", GRIDS)
def test_full_grid_is_the_published_one(name):
    check = CHECKS[name]
    count, *ends = GRIDS[name]
    for setting, (low, high) in zip((check.settings[0], check.settings[-1]), ends, strict=True):
        points = check.points(setting, "full")
        assert len(points) == count
        assert list(points) == sorted(set(points))
        np.testing.assert_allclose([points[0], points[-1]], [low, high], rtol=1e-8)


@pytest.mark.parametrize("name", GRIDS)
def test_quick_grid_is_small_and_keeps_ends_and_middle(name):
    check = CHECKS[name]
    for setting in check.settings:
        full, quick = check.points(setting, "full"), check.points(setting, "quick")
        assert len(quick) <= 13
        assert quick[0] == full[0]
        if check.varies_size:
            assert quick[-1] == 2000
            continue
        assert set(quick) <= set(full)
        assert quick[-1] == full[-1]
        if len(full) == 51:
            assert full[25] in quick


def test_bells_have_their_middle_on_the_grid():
    for name, middle in {"mean": 0, "mean+outlier": 0, "std": 1, "hypersphere": 1, "pareto": 0}.items():
        for setting in CHECKS[name].settings:
            assert middle in CHECKS[name].points(setting, "full")
            assert middle in CHECKS[name].points(setting, "quick")


def test_cases_are_all_different():
    everything = list(cases(tuple(CHECKS), "full"))
    assert len(set(everything)) == len(everything) == 1304
    assert len(list(cases(tuple(CHECKS), "quick"))) < 450
    assert next(iter(cases(("invention",), "full"))) == Case(
        "invention", CHECKS["invention"].settings[0], 1.0
    )
