"""The recorder of golden results: it runs as CONTRIBUTING.md says, and its comparison can fail."""

import io
import json
import math
import shutil
from contextlib import redirect_stdout

import pytest
import torch
from golden.record import main


def run_script(*arguments):
    """The exit code, or its message, and what the script prints."""
    threads = torch.get_num_threads()
    with redirect_stdout(io.StringIO()) as out:
        try:
            main([*map(str, arguments)])
        except SystemExit as error:
            return error.code, out.getvalue()
        finally:
            torch.set_num_threads(threads)
    return 0, out.getvalue()


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    out = tmp_path_factory.mktemp("golden") / "record"
    assert run_script(out, "--only", "score-statistics", "python-genpr-random-inception")[0] == 0
    return out


@pytest.fixture
def copied(record, tmp_path):
    return shutil.copytree(record, tmp_path / "copy")


def test_a_case_is_recorded_with_those_that_it_reads(record):
    cases = {"stats", "score-statistics", "python-genpr-random-inception"}
    assert {path.stem for path in record.glob("*.json")} == cases


def test_equal_records_have_no_difference(record, copied):
    assert run_script("--compare", record, copied) == (0, "0 differences in 3 cases\n")


def test_a_changed_last_bit_is_a_difference(record, copied):
    path = copied / "python-genpr-random-inception.json"
    values = json.loads(path.read_text())
    precision = values["metrics"]["precision"]
    precision["value"] = math.nextafter(precision["value"], 2)
    path.write_text(json.dumps(values))
    code, printed = run_script("--compare", record, copied)
    assert code == 1
    assert printed.startswith("python-genpr-random-inception.metrics.precision.value: ")


@pytest.mark.parametrize("removed", [["record"], ["copy"], ["record", "copy"]])
def test_a_missing_case_is_a_difference(record, copied, tmp_path, removed):
    other = shutil.copytree(record, tmp_path / "record")
    for name in removed:
        (tmp_path / name / "stats.json").unlink()
    code, printed = run_script("--compare", other, copied)
    assert code == 1
    assert printed.startswith("stats: not in ")


def test_an_unknown_case_is_refused(tmp_path):
    assert run_script(tmp_path / "out", "--only", "nonsense")[0] != 0
    assert not (tmp_path / "out").exists()
