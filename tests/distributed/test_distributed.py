"""Several processes score as one does, to the bit; and an error of one of them ends all, said once."""

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
from raising import raised, raising

import genpr
from genpr.distributed import Communicator, _gpu_of_rank, current_communicator, use_communicator
from genpr.runtime import is_launched, usable_cores

WORKER = Path(__file__).parent / "rank_worker.py"


def free_port() -> int:
    """One that no system gives to a connection, of which jobs that run at once have many."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def images(folder: Path) -> None:
    """Reals and fakes of two sizes in several blocks of 16; two of the reals are no images."""
    rng = np.random.default_rng(3)
    for name, count in (("real", 43), ("fake", 24)):
        (folder / name).mkdir()
        for number in range(count):
            side = 24 if number % 5 else 17
            pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03d}.png")
    for number in (2, 20):  # one in a block of each of two ranks
        (folder / "real" / f"{number:03d}.png").write_bytes(b"no image")


class Jobs:
    """What was run, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jobs: list[dict] = []

    def add(self, out: str, **job: object) -> None:
        """A job to run."""
        self._jobs.append(
            {"out": str(self.folder / out), "port": free_port(), "folder": str(self.folder), **job}
        )

    def run(self, timeout: int = 400) -> None:
        """All that were added."""
        plan = self.folder / "jobs.json"
        plan.write_text(json.dumps(self._jobs))
        with subprocess.Popen(
            [sys.executable, str(WORKER), str(plan)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ
            | {"GENPR_CACHE": str(self.folder / "home"), "GENPR_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        ) as worker:
            try:
                said, _ = worker.communicate(timeout=timeout)
            except BaseException:
                os.killpg(worker.pid, signal.SIGKILL)  # its forks, too
                raise
        assert worker.returncode == 0, said

    def codes(self, out: str) -> list[int]:
        """Exit codes by rank."""
        return json.loads((self.folder / f"{out}.done").read_text())["codes"]

    def seconds(self, out: str) -> float:
        """How long it took."""
        return json.loads((self.folder / f"{out}.done").read_text())["seconds"]

    def said(self, out: str, kind: str) -> list[str]:
        """What each rank wrote to "out" or "err"."""
        return [(self.folder / f"{out}.{rank}.{kind}").read_text() for rank in range(len(self.codes(out)))]

    def found(self, out: str) -> list[object]:
        """What each rank of a python job found."""
        assert set(self.codes(out)) == {0}, self.said(out, "err")
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
    jobs.add("scores-1", kind="python", name="scores", size=1)
    jobs.add("scores-3", kind="python", name="scores", size=3)
    jobs.add("embedded-1", kind="python", name="embedded", size=1)
    jobs.add("embedded-2", kind="python", name="embedded", size=2)
    # Each process sees one GPU, of which none can be used.
    jobs.add("exchanged", kind="python", name="exchanged", size=3, gpus=["a", "b", "c"])
    jobs.add("same-gpu", kind="python", name="exchanged", size=3, gpus=["a", "b", "a"])
    for size in (1, 3, 4):
        jobs.add(f"sharded-{size}", kind="python", name="sharded", size=size)
    jobs.add("apart", kind="python", name="apart", size=2)
    jobs.add("failing", kind="python", name="failing", size=2, gpus=["a", "a"], device="cpu")
    files = [str(folder / "real.npy"), str(folder / "fake.npy")]
    for size in (1, 2):
        table = str(folder / f"rows-{size}.csv")
        args = ["score", *files, "--json", "--csv", table, "--device", "cpu"]
        jobs.add(f"cli-{size}", kind="cli", args=args, size=size, gpus=["a"] * size)
    folders = [str(folder / "real"), str(folder / "fake"), "--extractor", "gabor", "--no-cache"]
    jobs.add("cli-bad", kind="cli", args=["score", *folders, "--json"], size=2)
    listed = folder / "listed.txt"
    listed.write_text("".join(f"{path}\n" for path in sorted((folder / "fake").iterdir())))
    pixels = ["--extractor", "pixels", "--no-cache", "--json"]
    args = ["features", str(listed), str(folder / "listed.safetensors"), *pixels]
    jobs.add("cli-list-of-files", kind="cli", args=args, size=2, **{"break": ["talk", 1]})
    for how in ("raise", "kill"):
        jobs.add(f"cli-{how}", kind="cli", args=["score", *folders], size=2, **{"break": [how, 1]})
    jobs.run()
    return jobs


def same(jobs, kind, sizes):
    """Whether every rank of every job found what one process did."""
    (alone,) = jobs.found(f"{kind}-1")
    for size in sizes:
        for rank, found in enumerate(jobs.found(f"{kind}-{size}")):
            assert found.keys() == alone.keys()
            for name in alone:
                assert found[name] == alone[name], (size, rank, name)


def test_three_ranks_score_as_one_process_does_to_the_bit(jobs):
    same(jobs, "scores", [3])
    found = jobs.found("scores-1")[0]["mixed"]
    assert found["metrics"]["precision"]["interval"] is not None
    assert found["control"]["n_real"] == 66
    assert len(found["fake"]["realism"]) == 100


def test_two_ranks_embed_as_one_process_does_to_the_bit(jobs):
    same(jobs, "embedded", [2])
    found = jobs.found("embedded-2")[0]
    assert found["cached"] == [41, 24, 0]  # each rank kept its images where both look
    assert len(found["bad"]) == 2
    assert "002.png" in found["bad"][0][0] + found["bad"][0][2]


def test_what_ranks_exchange_comes_in_their_order(jobs):
    for rank, found in enumerate(jobs.found("exchanged")):
        assert found["gathered"] == [[], [[0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]]
        assert found["types"] == [True] * 4
        assert found["filled"] == [[1, 1, 1], [2, 2, 2], [3, 3, 3], [1, 1, 1], [2, 2, 2]]
        assert found["total"] == [3, 3]
        assert found["told"] == [{"name": "\udcff", "rank": number} for number in range(3)]
        assert found["from_first"] == [0, 0.1]
        assert found["is_called"]
        assert found["share"] == [rank, rank + 3, rank + 6]
        assert found["cores"] == max(1, usable_cores() // 3)


def test_two_ranks_with_one_gpu_are_named(jobs):
    for code, message in jobs.found("same-gpu"):
        assert code == "no-cuda"
        assert "ranks 0 and 2 use the same GPU" in message


def test_rows_divided_among_ranks_are_counted_as_those_of_one(jobs):
    same(jobs, "sharded", [3, 4])
    (found,) = jobs.found("sharded-1")
    assert found["integers"] == found["of all integers"]
    assert max(found["integers"]["reals_per_fake_ball"]) > 4


def test_sharded_metrics_without_other_ranks(rng):
    real, fake = rng.normal(size=(2, 300, 5))
    plain = genpr.manifold_metrics(real, fake, device="cpu")
    assert genpr.manifold_metrics(real, fake, device="cpu", sharded=True) == plain
    with raising(genpr.UsageError, "not-sharded", "need all features on every rank"):
        genpr.manifold_metrics(genpr.KNNManifold.fit(real, k=5), fake, device="cpu", sharded=True)
    with raising(genpr.GenprError, "too-few"):
        genpr.manifold_metrics(real[:5], fake, device="cpu", sharded=True)


def test_ranks_that_are_not_at_one_point_are_told(jobs):
    assert jobs.found("apart") == ["ranks-apart", "ranks-apart"]


def test_the_error_of_a_rank_is_raised_on_the_others_and_auto_is_their_device(jobs):
    assert jobs.found("failing") == [["rank-failed", "rank 1 failed: cpu"], ["oom", "cpu"]]


def test_the_command_prints_once_what_one_process_prints(jobs):
    (alone,), (first, second) = jobs.said("cli-1", "out"), jobs.said("cli-2", "out")
    assert jobs.codes("cli-2") == [0, 0]
    assert second == ""
    records = [json.loads(text) for text in (first, alone)]
    for record in records:
        del record["seconds"]
    assert records[0] == records[1]
    assert [len(text) > 0 for text in jobs.said("cli-2", "err")] == [True, False]
    tables = [(jobs.folder / f"rows-{size}.csv").read_bytes() for size in (1, 2)]
    assert tables[0] == tables[1]


def test_bad_images_are_listed_once_whoever_met_them(jobs):
    assert jobs.codes("cli-bad") == [3, 3]
    said = "".join(jobs.said("cli-bad", "err"))
    assert said.count("error:") == 1
    (record,) = [json.loads(text)["error"] for text in jobs.said("cli-bad", "out") if text]
    assert [Path(bad["path"]).name for bad in record["bad"]] == ["002.png", "020.png"]


def test_only_the_first_rank_prints(jobs):
    assert jobs.codes("cli-list-of-files") == [0, 0], jobs.said("cli-list-of-files", "err")
    first, second = jobs.said("cli-list-of-files", "out")
    assert json.loads(first)["n"] == 24
    assert second == ""
    assert jobs.said("cli-list-of-files", "err")[1] == ""  # whatever a library has to say


def test_a_rank_that_raises_ends_all_with_its_own_error_said_once(jobs):
    assert jobs.codes("cli-raise") == [4, 4]
    assert jobs.said("cli-raise", "err") == ["", "error: rank 1: no room here\n"]
    assert jobs.seconds("cli-raise") < 60


def test_a_rank_that_is_killed_ends_all(jobs):
    assert jobs.codes("cli-kill") == [4, -9]
    first, _ = jobs.said("cli-kill", "err")
    assert first.startswith("error: rank 0 lost contact with another rank")
    assert jobs.seconds("cli-kill") < 60


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_all_metrics_of_awkward_features_for_one_to_four_ranks(tmp_path):
    jobs = Jobs(tmp_path)
    for size in (1, 2, 3, 4):
        jobs.add(f"every_score-{size}", kind="python", name="every_score", size=size)
    jobs.run(timeout=3000)
    same(jobs, "every_score", [2, 3, 4])


def test_without_a_launcher_there_is_nobody_else(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with genpr.all_ranks() as communicator:
        assert communicator.is_single_process
        assert communicator.is_rank_zero
        assert communicator.all_gather_object(1) == [1]
    with pytest.raises(genpr.UsageError, match="positive number of seconds"), genpr.all_ranks(timeout=0):
        pass


def test_one_process_of_a_launcher_is_alone(monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "x"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    assert not is_launched()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_launched()
    monkeypatch.setenv("GENPR_ALONE", "1")  # a training's own process, which inherits the variables
    assert not is_launched()
    monkeypatch.setenv("GENPR_ALONE", "0")
    assert is_launched()
    for rank in ("", "x", "-1", "2", "\u00b2"):  # of no launcher
        monkeypatch.setenv("RANK", rank)
        assert not is_launched(), rank


def test_other_threads_are_alone():
    communicator, seen = Communicator(), []
    with use_communicator(communicator):
        assert current_communicator() is communicator
        thread = threading.Thread(target=lambda: seen.append(current_communicator()))
        thread.start()
        thread.join()
    assert seen[0] is not communicator


@pytest.mark.parametrize(
    "said", ["4", "x", "", "-1", "²", "9" * 5000], ids=["4", "x", "empty", "-1", "square", "long"]
)
def test_each_process_takes_a_gpu_of_its_own_if_there_is_one(monkeypatch, said):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert _gpu_of_rank(4) == 3
    assert _gpu_of_rank(1) == 0  # the only one that it sees
    monkeypatch.setenv("LOCAL_RANK", said)
    assert raised(genpr.ResourceError, _gpu_of_rank, 4).code == "no-cuda"
