"""Several processes compute the same values as one, to the bit; an error of one ends all and is printed once."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from raising import raising
from training_images import N_FAKE, N_REAL, OPTIONS, expected
from training_images import images as drawings

import genpr
from genpr.cli.process import Ending, mute, unmute
from genpr.cli.ranks import run_as_launched
from genpr.distributed import Communicator, _gpu_of_rank, current_communicator, use_communicator
from genpr.runtime import is_launched, usable_cores

WORKER = Path(__file__).parent / "rank_worker.py"


def free_port() -> int:
    """A free port below the range that systems assign to outgoing connections."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def images(folder: Path) -> None:
    """Real and fake images of two sizes in several blocks of 16; two of the real files are not images."""
    rng = np.random.default_rng(3)
    for name, count in (("real", 35), ("fake", 20)):
        (folder / name).mkdir()
        for number in range(count):
            side = 24 if number % 5 else 17
            pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03d}.png")
    for number in (2, 20):  # one in a block of each of two ranks
        (folder / "real" / f"{number:03d}.png").write_bytes(b"no image")


class Jobs:
    """Jobs and their results, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jobs: list[dict] = []

    def add(self, out: str, **job: object) -> None:
        """Add a job to run."""
        self._jobs.append(
            {"out": str(self.folder / out), "port": free_port(), "folder": str(self.folder), **job}
        )

    def run(self, timeout: int = 400, threads: int = 1) -> None:
        """Run all jobs that were added, with a number of threads of a process that runs alone."""
        plan = self.folder / "jobs.json"
        plan.write_text(json.dumps(self._jobs))
        with subprocess.Popen(
            [sys.executable, str(WORKER), str(plan)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ
            | {"GENPR_CACHE": str(self.folder / "home"), "GENPR_OFFLINE": "1"}
            | {"OMP_NUM_THREADS": str(threads)},
        ) as worker:
            try:
                output, _ = worker.communicate(timeout=timeout)
            except BaseException:
                os.killpg(worker.pid, signal.SIGKILL)  # its forks, too
                raise
        assert worker.returncode == 0, output

    def codes(self, out: str) -> list[int]:
        """Exit codes by rank."""
        return json.loads((self.folder / f"{out}.done").read_text())["codes"]

    def seconds(self, out: str) -> float:
        """The duration."""
        return json.loads((self.folder / f"{out}.done").read_text())["seconds"]

    def output(self, out: str, kind: str) -> list[str]:
        """What each rank wrote to stdout ("out") or stderr ("err")."""
        return [(self.folder / f"{out}.{rank}.{kind}").read_text() for rank in range(len(self.codes(out)))]

    def found(self, out: str) -> list[object]:
        """The return value of each rank of a "python" job."""
        assert set(self.codes(out)) == {0}, self.output(out, "err")
        return [
            json.loads((self.folder / f"{out}.{rank}.json").read_text())
            for rank in range(len(self.codes(out)))
        ]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    images(folder)
    rng = np.random.default_rng(0)
    for name in ("real", "fake"):
        np.save(folder / f"{name}.npy", rng.normal(size=(90, 8)).astype(np.float32))
    jobs = Jobs(folder)
    jobs.add("metric", kind="metric", size=2)  # first, since it waits for seconds
    jobs.add("scores-1", kind="python", name="scores", size=1)
    jobs.add("scores-3", kind="python", name="scores", size=3)
    jobs.add("embedded-1", kind="python", name="embedded", size=1)
    jobs.add("embedded-2", kind="python", name="embedded", size=2)
    # Each process sees one GPU, of which none can be used.
    jobs.add("exchanged", kind="python", name="exchanged", size=3, gpus=["a", "b", "c"])
    jobs.add("same-gpu", kind="python", name="exchanged", size=3, gpus=["a", "b", "a"])
    jobs.add("out-of-sync", kind="python", name="out_of_sync", size=2)
    cpus = {"0": "cpu", "1": "cpu"}
    jobs.add("failing", kind="python", name="failing", size=2, gpus=["a", "a"], devices=cpus)
    jobs.add("other-device", kind="python", name="failing", size=2, gpus=["a", "b"], devices={"0": "cpu"})
    files = [str(folder / "real.npy"), str(folder / "fake.npy")]
    for size in (1, 2):
        table = str(folder / f"rows-{size}.csv")
        args = ["score", *files, "--json", "--csv", table, "--device", "cpu"]
        jobs.add(f"cli-{size}", kind="cli", args=args, size=size, gpus=["a"] * size)
    folders = [str(folder / "real"), str(folder / "fake"), "--extractor", "pixels", "--no-cache"]
    jobs.add("cli-bad", kind="cli", args=["score", *folders, "--json"], size=2)
    jobs.add("differing", kind="python", name="differing", size=3)
    html = {"1": ["--html", str(folder / "page.html")]}
    jobs.add("cli-differs", kind="cli", args=["score", *folders], size=2, more=html)
    for how in ("raise", "kill", "interrupt"):
        args = ["score", *folders, *["--json"] * (how == "interrupt")]
        jobs.add(f"cli-{how}", kind="cli", args=args, size=2, **{"break": [how, 1]})
    jobs.run()
    return jobs


def assert_same(jobs, kind, sizes):
    """Assert that every rank of every job returns what one process does."""
    (single,) = jobs.found(f"{kind}-1")
    for size in sizes:
        for rank, found in enumerate(jobs.found(f"{kind}-{size}")):
            assert found.keys() == single.keys()
            for name in single:
                assert found[name] == single[name], (size, rank, name)


def test_scores_of_three_ranks_equal_those_of_one_process(jobs):
    assert_same(jobs, "scores", [3])
    found = jobs.found("scores-1")[0]["mixed"]
    assert found["metrics"]["precision"]["interval"] is not None
    assert len(jobs.found("scores-1")[0]["classes"]["macro"]) == 5
    assert found["control"]["n_real"] == 66
    assert len(found["fake"]["realism"]) == 100


def test_features_of_two_ranks_equal_those_of_one_process(jobs):
    assert_same(jobs, "embedded", [2])
    found = jobs.found("embedded-2")[0]
    assert found["cached"] == [33, 20, 0]  # each rank wrote its images to the cache that both read
    assert len(found["bad"]) == 2
    assert "002.png" in found["bad"][0][0] + found["bad"][0][2]


def test_collective_operations_return_values_in_rank_order(jobs):
    for rank, found in enumerate(jobs.found("exchanged")):
        assert found["gathered"] == [[], [[0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]]
        assert found["types"] == [True] * 4
        assert found["filled"] == [[1, 1, 1], [2, 2, 2], [3, 3, 3], [1, 1, 1], [2, 2, 2]]
        assert found["total"] == [3, 3]
        assert found["objects"] == [{"name": "\udcff", "rank": number} for number in range(3)]
        assert found["from_rank0"] == [0, 0.1]
        assert found["is_called"]
        assert found["share"] == [rank, rank + 3, rank + 6]
        assert found["cores"] == max(1, usable_cores() // 3)
        assert found["shares_of_memory"] == 3


@pytest.mark.parametrize(
    ("job", "code", "text"),
    [
        ("same-gpu", "no-cuda", "2 ranks use the same GPU"),
        ("other-device", "ranks-differ", "device: cpu and cuda"),
    ],
)
def test_ranks_on_one_gpu_or_on_other_devices_are_an_error(jobs, job, code, text):
    for found in jobs.found(job):
        assert (found[0], text in found[1]) == (code, True)


def test_ranks_out_of_sync_are_an_error(jobs):
    assert jobs.found("out-of-sync") == ["ranks-apart", "ranks-apart"]


def test_error_of_a_rank_is_raised_on_all_ranks_and_auto_is_their_device(jobs):
    assert jobs.found("failing") == [["rank-failed", "rank 1 failed: cpu"], ["oom", "cpu"]]


def test_command_on_two_ranks_prints_once_what_one_process_prints(jobs):
    (single,), (first, second) = jobs.output("cli-1", "out"), jobs.output("cli-2", "out")
    assert jobs.codes("cli-2") == [0, 0]
    assert second == ""
    records = [json.loads(text) for text in (first, single)]
    for record in records:
        del record["seconds"]
    assert records[0] == records[1]
    assert [len(text) > 0 for text in jobs.output("cli-2", "err")] == [True, False]
    tables = [(jobs.folder / f"rows-{size}.csv").read_bytes() for size in (1, 2)]
    assert tables[0] == tables[1]


def test_error_of_a_command_is_printed_once(jobs):
    """For an option of one rank, and for bad images of both."""
    for job, code in (("cli-differs", 2), ("cli-bad", 3)):
        assert jobs.codes(job) == [code, code]
        assert "".join(jobs.output(job, "err")).count("error:") == 1
    assert "--html" in "".join(jobs.output("cli-differs", "err"))
    (record,) = [json.loads(text)["error"] for text in jobs.output("cli-bad", "out") if text]
    assert [Path(bad["path"]).name for bad in record["bad"]] == ["002.png", "020.png"]


def test_failing_rank_ends_all_ranks_with_one_message(jobs):
    assert jobs.codes("cli-raise") == [4, 4]
    assert jobs.output("cli-raise", "err") == ["", "error: rank 1: no memory left\n"]
    assert jobs.seconds("cli-raise") < 60


def test_interrupted_rank_ends_all_ranks_with_one_record(jobs):
    assert jobs.codes("cli-interrupt") == [130, 130]
    first, second = jobs.output("cli-interrupt", "out")
    assert (first, json.loads(second)["error"]["code"]) == ("", "interrupted")
    assert jobs.output("cli-interrupt", "err")[0] == ""
    assert jobs.output("cli-interrupt", "err")[1].endswith("error: rank 1: interrupted\n")


def test_killed_rank_ends_all_ranks(jobs):
    assert jobs.codes("cli-kill") == [4, -9]
    first, _ = jobs.output("cli-kill", "err")
    assert first.startswith("error: rank 0 lost contact with another rank")
    assert jobs.seconds("cli-kill") < 60


def test_difference_between_ranks_is_one_error_on_all_ranks(jobs):
    first, *others = jobs.found("differing")
    assert others == [first] * 2
    for name, error in first.items():
        code, exit_code, text = error
        assert (name, code, exit_code in {2, 3}) == (name, "ranks-differ", True)
        assert name in text
        assert "rank 2 have" in text


@pytest.fixture(scope="module")
def metrics(jobs):
    """What each rank found with the metric of torchmetrics."""
    return jobs.found("metric")


@pytest.fixture(scope="module")
def one_process():
    return expected(intervals=True)


def test_uneven_shards_equal_one_process(metrics, one_process):
    assert one_process.keys() > {"precision", "recall", "density", "coverage", "f1", "recall_low"}
    assert 0.1 < one_process["recall"] < one_process["precision"] < 1
    for each in metrics:
        assert each["contiguous"] == each["again"] == each["after_error"] == one_process
    assert [each["rows_after"] for each in metrics] == [[45, 13], [N_REAL - 45, N_FAKE - 13]]


def test_values_do_not_depend_on_shards(metrics, one_process):
    names = ("calibrated_precision", "calibrated_recall", "precision", "recall", "density", "coverage", "f1")
    values = {name: one_process[name] for name in names}
    for each in metrics:
        assert each["interleaved"] == each["given_real"] == values


def test_distances_of_shards_in_order_equal_one_process(metrics):
    one = genpr.score(*drawings(), **OPTIONS, metrics=["fd", "kd"], control=False)
    assert [each["distances"] for each in metrics] == 2 * [{"fd": one["fd"], "kd": one["kd"]}]


def test_without_sync_each_rank_scores_its_shard(metrics, one_process):
    one, other = (each["own_shard"] for each in metrics)
    assert one != other
    assert one["density"] != one_process["density"] != other["density"]


def test_each_rank_updates_with_its_own_images_also_in_all_ranks(metrics, one_process):
    values = {name: one_process[name] for name in metrics[0]["all_ranks"]}
    assert [each["all_ranks"] for each in metrics] == [values, values]


def test_missing_rank_is_an_error(metrics):
    error = metrics[0]["missing_rank"]
    assert error["code"] == "ranks-missing"
    assert "rank 0 reached PrecisionRecallDensityCoverage.compute, but rank 1 did not" in error["message"]
    assert "sync_on_compute=False" in error["message"]
    assert 1 <= error["seconds"] < 5


def test_error_in_compute_is_raised_on_every_rank_and_keeps_the_state(metrics):
    assert [each["too_few"]["code"] for each in metrics] == ["too-few-images", "too-few-images"]
    assert [each["rows_after_error"] for each in metrics] == [1, 1]


@pytest.mark.parametrize(("case", "named"), [("other_k", "k: 3 and 4"), ("other_extractor", "extractor")])
def test_other_options_of_a_rank_are_an_error_on_every_rank(metrics, case, named):
    for each in metrics:
        assert each[case]["code"] == "ranks-differ"
        assert named in each[case]["message"]
        assert each[case]["seconds"] < 30


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_all_metrics_are_equal_for_one_to_four_ranks(tmp_path):
    jobs = Jobs(tmp_path)
    for size in (1, 2, 3, 4):
        jobs.add(f"every_score-{size}", kind="python", name="every_score", size=size)
    # As many threads as all ranks together have, since they change the last digit of what BLAS computes.
    jobs.run(timeout=3000, threads=usable_cores())
    assert_same(jobs, "every_score", [2, 3, 4])


def test_without_a_launcher_there_is_one_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with genpr.all_ranks() as communicator:
        assert communicator.is_single_process
        assert communicator.is_rank_zero
        assert communicator.all_gather_object(1) == [1]
    with raising(genpr.UsageError, "bad-option"), genpr.all_ranks(timeout=0):
        pass


def test_launched_needs_more_than_one_process_and_a_valid_rank(monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "x"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    assert not is_launched()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_launched()
    monkeypatch.setenv("GENPR_ALONE", "1")  # a process of a training run that inherits the variables
    assert not is_launched()
    monkeypatch.setenv("GENPR_ALONE", "0")
    assert is_launched()
    for rank in ("", "x", "-1", "2", "\u00b2"):  # not set by a launcher
        monkeypatch.setenv("RANK", rank)
        assert not is_launched(), rank


@pytest.mark.parametrize(("command", "code"), [("stats real x.npz", 0), ("nonsense", 2)])
def test_command_that_rank_zero_runs_alone_is_not_silent_elsewhere(monkeypatch, capfd, command, code):
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "x"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    mute()  # as at the start of a process
    try:
        assert run_as_launched(command.split(), Ending(as_json=False)) == code
    finally:
        unmute()
    assert capfd.readouterr().err.count("\n") == 1


def test_other_threads_do_not_inherit_the_communicator():
    communicator, seen = Communicator(), []
    with use_communicator(communicator):
        assert current_communicator() is communicator
        thread = threading.Thread(target=lambda: seen.append(current_communicator()))
        thread.start()
        thread.join()
    assert seen[0] is not communicator


def test_each_process_uses_the_gpu_of_its_local_rank(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert _gpu_of_rank(4) == 3
    assert _gpu_of_rank(1) == 0  # the only one that it sees
    for local_rank in ("4", "x", "", "-1", "²", "9" * 5000):
        monkeypatch.setenv("LOCAL_RANK", local_rank)
        with raising(genpr.ResourceError, "no-cuda"):
            _gpu_of_rank(4)
