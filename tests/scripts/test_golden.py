"""The recorder of golden results: it runs as CONTRIBUTING.md says, and its comparison can fail."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "golden" / "record.py"


def run_script(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    out = tmp_path_factory.mktemp("golden") / "record"
    done = run_script(out, "--only", "list-extractors", "score-statistics", "python-genpr-random-inception")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def copied(record, tmp_path):
    return shutil.copytree(record, tmp_path / "copy")


def test_a_case_is_recorded_with_those_that_it_reads(record):
    cases = {"list-extractors", "stats", "score-statistics", "python-genpr-random-inception"}
    assert {path.stem for path in record.glob("*.json")} == cases


def test_equal_records_have_no_difference(record, copied):
    done = run_script("--compare", record, copied)
    assert (done.returncode, done.stdout) == (0, "0 differences in 4 cases\n")


def test_a_changed_last_bit_is_a_difference(record, copied):
    path = copied / "python-genpr-random-inception.json"
    values = json.loads(path.read_text())
    precision = values["metrics"]["precision"]
    precision["value"] = math.nextafter(precision["value"], 2)
    path.write_text(json.dumps(values))
    done = run_script("--compare", record, copied)
    assert done.returncode == 1
    assert done.stdout.startswith("python-genpr-random-inception.metrics.precision.value: ")


@pytest.mark.parametrize("removed", [["record"], ["copy"], ["record", "copy"]])
def test_a_missing_case_is_a_difference(record, copied, tmp_path, removed):
    other = shutil.copytree(record, tmp_path / "record")
    for name in removed:
        (tmp_path / name / "stats.json").unlink()
    done = run_script("--compare", other, copied)
    assert done.returncode == 1
    assert done.stdout.startswith("stats: not in ")


def test_an_unknown_case_is_refused(tmp_path):
    assert run_script(tmp_path / "out", "--only", "nonsense").returncode != 0
    assert not (tmp_path / "out").exists()
