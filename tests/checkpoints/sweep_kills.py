"""Sweeps that are killed, each before a line of its choice.

    python sweep_kills.py SOURCE '{"FOLDER": [LINE, ...], ...}'

For every LINE a sweep of the fakes in SOURCE starts in FOLDER and is killed before it executes that many lines of the
files that write points; then one runs to its end. Prints how many were killed. Pictures write nothing while they are drawn,
and take most of the time: files with the numbers stand for them.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from kills import run_killed

from genpr import storage
from genpr.checkpoints import sweep
from genpr.checkpoints.criterion import Objective
from genpr.evaluation import evaluator
from genpr.report import files, plots

FILES = {module.__file__ for module in (storage, sweep, files)}


def numbers(found: sweep.Sweep, _goal: Objective, *, form: str) -> bytes:
    """What a picture shows."""
    return f"{form} of {found.to_csv()}".encode()


def swept(source: Path, out: Path) -> None:
    reals = evaluator.Evaluator(source / "real.npy", control=False, intervals=False, device="cpu")
    paths = {float(path.stem): path for path in source.glob("[0-9]*.npy")}
    folder = sweep.SweepFolder(out)
    found = sweep.sweep(reals, paths, folder=folder)
    files.write_sweep(found, Objective(), folder)


def main(source: str, plan: dict[str, list[int]]) -> int:
    plots.sweep_plot = numbers
    return sum(
        run_killed(partial(swept, Path(source), Path(out)), [*lines, None], FILES)
        for out, lines in plan.items()
    )


if __name__ == "__main__":
    print(main(sys.argv[1], json.loads(sys.argv[2])))
