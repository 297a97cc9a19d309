"""Plots do not depend on how matplotlib is configured, and leave that configuration as it is."""

from __future__ import annotations

import os
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from compare_results import pair
from page_results import a_result

from genpr.checkpoints.criterion import Objective
from genpr.checkpoints.sweep import Sweep, SweepPoint
from genpr.evaluation.per_class import Average, ClassScore, ClassScores
from genpr.report.plots import axis_of, class_heat_map, histogram, metric_curve, numbered_plane, plane
from genpr.report.sweep_plot import sweep_plot

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


def results():
    return list(pair({"precision": 1.0, "recall": 0.5}, {"precision": 0.6, "recall": 0.9}).values())


def sweep():
    return Sweep(
        "psi", tuple(SweepPoint(place, each) for place, each in zip((0.5, 1.0), results(), strict=True))
    )


def classes():
    metrics = a_result({"precision": 0.5, "recall": 0.7}).metrics
    averages = {name: Average(0.5, None, None, 1) for name in metrics}
    return ClassScores(
        overall=a_result(),
        classes=(ClassScore("cat", 9, 9, metrics),),
        macro=averages,
        micro=averages,
        left_out=(),
        min_images=9,
        worst_by="null",
        origins={},
        unlabeled={},
        seconds=0.0,
    )


PLOTS = {
    "plane": lambda: plane(a_result()),
    "histogram": lambda: histogram(
        [("fakes", np.arange(9.0))], name="h", x_label="distance", mark=(2.0, "here")
    ),
    "numbered_plane": lambda: numbered_plane(list(enumerate(results(), 1))),
    "metric_curve": lambda: metric_curve("recall", results(), axis_of(["psi=0.5", "psi=1"])),
    "class_heat_map": lambda: class_heat_map(classes()),
    "sweep_svg": lambda: sweep_plot(sweep(), Objective("precision"), form="svg"),
    "sweep_png": lambda: sweep_plot(sweep(), Objective("precision"), form="png"),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_the_same_under_any_configuration_which_stays_as_it_was(name):
    expected = PLOTS[name]()
    with mpl.rc_context(CONFIGURED):
        before = {key: mpl.rcParams[key] for key in mpl.rcParams if key != "backend"}
        assert PLOTS[name]() == expected
        assert {key: mpl.rcParams[key] for key in mpl.rcParams if key != "backend"} == before


DRAW = """
import io, os, sys
from genpr.report.drawing import drawing, ignore_matplotlib_configuration
if sys.argv[1] == "own":
    ignore_matplotlib_configuration()
before = os.environ.get("MPLBACKEND"), os.getcwd()
with drawing({}):
    from matplotlib.figure import Figure
    figure = Figure()
    figure.text(0.5, 0.5, "text")
    figure.savefig(io.BytesIO(), format="svg")
assert (os.environ.get("MPLBACKEND"), os.getcwd()) == before
import matplotlib
assert "matplotlib.pyplot" not in sys.modules
print(matplotlib.rcParams["lines.linewidth"], dict.get(matplotlib.rcParams, "backend"))
"""


def drawn(folder, owner, **environment):
    """Two words: a setting of the process and its backend, after a figure was drawn; and what stderr got."""
    command = [sys.executable, "-c", DRAW, owner]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def test_a_process_that_is_genprs_own_reads_no_configuration(tmp_path):
    os.mkfifo(tmp_path / "matplotlibrc")  # whoever opens it waits
    words, said = drawn(tmp_path, "own", MPLBACKEND="module://absent.backend")
    assert words[0] == "1.5"
    assert "absent" not in words[1]
    assert said == ""


def test_another_process_keeps_its_configuration(tmp_path):
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 7\ntext.usetex: True\n")
    assert drawn(tmp_path, "theirs", MPLBACKEND="pdf")[0] == ["7.0", "pdf"]


def test_a_backend_that_is_not_installed_is_not_needed(tmp_path):
    words, said = drawn(tmp_path, "theirs", MPLBACKEND="module://absent.backend")
    assert said == ""
    assert words[0] == "1.5"
