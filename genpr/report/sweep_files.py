"""The files of a sweep."""

from __future__ import annotations

from genpr.checkpoints.ranking.goal import Goal
from genpr.checkpoints.sweeps.folder import SweepFolder
from genpr.checkpoints.sweeps.sweep import Sweep


def write_sweep(sweep: Sweep, goal: Goal, folder: SweepFolder) -> None:
    """Write sweep.json, sweep.csv, sweep.png and sweep.svg, each whole or not at all.

    Raises:
        ResourceError: They cannot be written.
    """
    from genpr.report.plots.sweep_plot import sweep_plot

    with folder.held():
        folder.write(folder.path / "sweep.json", sweep.to_json(goal=goal, indent=1) + "\n")
        folder.write(folder.path / "sweep.csv", sweep.to_csv())
        folder.write(folder.path / "sweep.png", sweep_plot(sweep, goal, form="png"))
        folder.write(folder.path / "sweep.svg", sweep_plot(sweep, goal, form="svg"))
