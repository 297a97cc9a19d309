"""Two processes compute the same values as one, and do not hang if one of them is missing."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from training_images import N_FAKE, N_REAL, OPTIONS, expected, images

import genpr

WORKER = Path(__file__).with_name("gloo_worker.py")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_two(folder, *, timeout):
    """Exit code, stderr and findings of both ranks."""
    paths = [folder / f"{rank}.json" for rank in (0, 1)]
    python_path = os.pathsep.join([str(WORKER.parents[2]), str(WORKER.parent)])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path}
    command = [sys.executable, str(WORKER), str(free_port()), *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True) as process:
        try:
            codes = json.loads(process.communicate(timeout=timeout)[0])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and the ranks with it
    errors = [path.with_suffix(".err").read_text() for path in paths]
    found = [json.loads(path.read_text()) if path.exists() else None for path in paths]
    return codes, errors, found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    codes, errors, found = run_two(tmp_path_factory.mktemp("metric"), timeout=240)
    assert codes == [0, 0], errors
    return found


@pytest.fixture(scope="module")
def one_process():
    return expected(intervals=True)


def test_uneven_shards_equal_one_process(found, one_process):
    assert one_process.keys() > {"precision", "recall", "density", "coverage", "f1", "recall_low"}
    assert 0.1 < one_process["recall"] < one_process["precision"] < 1
    for each in found:
        assert each["contiguous"] == each["again"] == each["after_error"] == one_process
    assert [each["rows_after"] for each in found] == [[45, 13], [N_REAL - 45, N_FAKE - 13]]


def test_values_do_not_depend_on_shards(found, one_process):
    names = ("calibrated_precision", "calibrated_recall", "precision", "recall", "density", "coverage", "f1")
    values = {name: one_process[name] for name in names}
    for each in found:
        assert each["interleaved"] == each["given_real"] == values


def test_distances_of_shards_in_order_equal_one_process(found):
    one = genpr.score(*images(), **OPTIONS, metrics=["fd", "kd"], control=False)
    assert [each["distances"] for each in found] == 2 * [{"fd": one["fd"], "kd": one["kd"]}]


def test_without_sync_each_rank_scores_its_shard(found, one_process):
    one, other = (each["own_shard"] for each in found)
    assert one != other
    assert one["density"] != one_process["density"] != other["density"]


def test_each_rank_updates_with_its_own_images_also_in_all_ranks(found, one_process):
    values = {name: one_process[name] for name in found[0]["all_ranks"]}
    assert [each["all_ranks"] for each in found] == [values, values]


def test_missing_rank_is_an_error(found):
    error = found[0]["missing_rank"]
    assert error["code"] == "ranks-missing"
    assert "rank 0 reached PrecisionRecallDensityCoverage.compute, but rank 1 did not" in error["message"]
    assert "sync_on_compute=False" in error["message"]
    assert 1 <= error["seconds"] < 5


def test_error_in_compute_is_raised_on_every_rank_and_keeps_the_state(found):
    assert [each["too_few"]["code"] for each in found] == ["too-few-images", "too-few-images"]
    assert [each["rows_after_error"] for each in found] == [1, 1]


@pytest.mark.parametrize(("case", "named"), [("other_k", "k: 3 and 4"), ("other_extractor", "extractor")])
def test_other_options_of_a_rank_are_an_error_on_every_rank(found, case, named):
    for each in found:
        assert each[case]["code"] == "ranks-differ"
        assert named in each[case]["message"]
        assert each[case]["seconds"] < 30
