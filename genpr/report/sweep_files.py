"""The files of a sweep."""

from __future__ import annotations

from genpr.checkpoints.criterion import Objective
from genpr.checkpoints.sweep import Sweep
from genpr.checkpoints.sweep_folder import SweepFolder


def write_sweep(sweep: Sweep, objective: Objective, folder: SweepFolder) -> None:
    """Write sweep.json, sweep.csv, sweep.png and sweep.svg, each whole or not at all.

    Raises:
        ResourceError: They cannot be written.
    """
    from genpr.report.plots.sweep_plot import sweep_plot

    with folder.locked():
        folder.write(folder.path / "sweep.json", sweep.to_json(objective=objective, indent=1) + "\n")
        folder.write(folder.path / "sweep.csv", sweep.to_csv())
        folder.write(folder.path / "sweep.png", sweep_plot(sweep, objective, form="png"))
        folder.write(folder.path / "sweep.svg", sweep_plot(sweep, objective, form="svg"))
