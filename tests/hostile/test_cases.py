"""Hostile command lines end in a score or in one error line, in bounded time and memory, and write nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hostile_cases import CASES, Place, prepare
from hostile_runs import Line, Runner, faults


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    prepare(folder)
    return folder


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, shared: Path):
    folder = tmp_path_factory.mktemp("runs")
    place = folder / "place"
    place.mkdir()
    runner = Runner(folder)
    args = ["score", str(shared / "real"), str(shared / "fake"), "--extractor", "pixels", "-q", "--json"]
    line = Line(args, code=(0,))
    try:
        runner.set_baselines(line, place)
        found = runner.run(line, place)
        assert faults(line, found) == []
        (shared / "result.json").write_bytes(found.out)
        yield runner
    finally:
        runner.close()


@pytest.mark.parametrize("name", CASES)
def test_hostile_command_lines_end_in_a_score_or_one_error(name, runner, shared, tmp_path):
    with np.errstate(all="ignore"):  # some cases write numbers that overflow
        line = CASES[name](Place(tmp_path, shared))
    found = runner.run(line, tmp_path)
    shutil.rmtree(tmp_path, ignore_errors=True)  # some of the files are large
    assert faults(line, found) == [], found.err[-2000:].decode("utf-8", "backslashreplace")
