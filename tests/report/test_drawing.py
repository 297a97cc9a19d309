"""Plots do not depend on how matplotlib is configured, and leave that configuration as it is."""

import matplotlib as mpl
import pytest
from page_results import pair

from genpr.checkpoints.rank import Objective
from genpr.checkpoints.sweep import Sweep, SweepPoint
from genpr.report.plots import axis_of, metric_curve, plane, sweep_plot

CONFIGURED = {
    "text.usetex": True,  # starts latex
    "axes.grid": True,
    "lines.linewidth": 7.0,
    "figure.dpi": 37.0,
    "savefig.bbox": "tight",
    "svg.image_inline": False,
    "axes.titlesize": 30.0,
    "font.family": ["monospace"],
}


RESULTS = list(pair({"precision": 1.0, "recall": 0.5}, {"precision": 0.6, "recall": 0.9}).values())
SWEEP = Sweep("psi", tuple(SweepPoint(place, each) for place, each in zip((0.5, 1.0), RESULTS, strict=True)))
PLOTS = {
    "numbered plane": lambda: plane(list(enumerate(RESULTS, 1))),
    "metric_curve": lambda: metric_curve("recall", RESULTS, axis_of(["psi=0.5", "psi=1"])),
    "sweep_svg": lambda: sweep_plot(SWEEP, Objective("precision"), form="svg"),
    "sweep_png": lambda: sweep_plot(SWEEP, Objective("precision"), form="png"),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_the_same_under_any_configuration_which_stays_as_it_was(name):
    expected = PLOTS[name]()
    with mpl.rc_context(CONFIGURED):
        before = {key: mpl.rcParams[key] for key in mpl.rcParams if key != "backend"}
        assert PLOTS[name]() == expected
        assert {key: mpl.rcParams[key] for key in mpl.rcParams if key != "backend"} == before
