"""Watching a training run: when its samples are scored, and what is recorded."""

import json
import os
import random
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from raising import raising

import genpr
from genpr.checkpoints.score_log import ScoreLog
from genpr.checkpoints.watch import Watcher, listing_of, samples_at
from genpr.errors import DataError, ResourceError, UsageError

TIMES = {"timestamp", "seconds"}


class Clock:
    """A simulated clock that advances in `sleep` and runs scheduled actions."""

    def __init__(self):
        self.now = 1000.0
        self.later = []

    def __call__(self):
        return self.now

    def at(self, seconds, action):
        self.later.append((1000.0 + seconds, action))

    def sleep(self, seconds):
        self.now += seconds
        due = [entry for entry in self.later if entry[0] <= self.now]
        self.later = [entry for entry in self.later if entry[0] > self.now]
        for _, action in due:
            action()


@pytest.fixture(scope="module")
def evaluator():
    real = np.random.default_rng(0).normal(size=(30, 3))
    return genpr.Evaluator(real, control=False, intervals=False)


@pytest.fixture
def scoring(evaluator, monkeypatch):
    """Replace how the evaluator scores, by a function of its own `score` and of the source."""
    own = evaluator.score
    return lambda score: monkeypatch.setattr(evaluator, "score", lambda fake, **_: score(own, fake))


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def clock():
    return Clock()


def put(folder, name, *, scale=1.0, n=30):
    """Write features; scores are best for a `scale` of 1."""
    rng = np.random.default_rng(int(100 * scale))
    np.save(folder / name, scale * rng.normal(size=(n, 3)))
    return folder / name


@pytest.fixture
def watch(evaluator, folder, clock):
    """Open a watcher with its messages and the names that it scored."""

    @contextmanager
    def begin(*, evaluator=evaluator, by="f1", **options):
        messages, records = [], []
        options |= {"on_message": messages.append, "on_record": lambda record, _: records.append(record)}
        with ScoreLog(str(folder / "genpr.jsonl"), by=by) as log:
            watcher = Watcher(evaluator, str(folder), log, clock=clock, sleep=clock.sleep, **options)
            scored = lambda: [record["name"] for record in records]  # noqa: E731
            yield SimpleNamespace(watcher=watcher, messages=messages, scored=scored)

    return begin


def lines(folder, name="genpr.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def contents(folder):
    """Contents of all files that a watch writes, without times and paths."""

    def timeless(value):
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key not in TIMES}
        return value.replace(str(folder), "DIR") if isinstance(value, str) else value

    names = sorted(path.name for path in folder.iterdir() if path.suffix != ".npy")
    jsonl = {name: [timeless(line) for line in lines(folder, name)] for name in names if "jsonl" in name}
    return names, jsonl, timeless(json.loads((folder / "best.json").read_text()))


def test_complete_sources_are_scored_once_in_natural_order(watch, folder, evaluator):
    for number in (10, 2):
        put(folder, f"epoch_{number}.npy", scale=number / 10)
    with watch(settle=0) as run:
        run.watcher.run(once=True)
        run.watcher.run(once=True)
    put(folder, "epoch_2.npy", scale=0.7)  # which keeps its score
    for name in ("epoch_1.npy", "epoch_3.npy"):
        put(folder, name)
    for _ in range(2):
        with watch(settle=0) as run:
            run.watcher.run(until=3)
    assert run.scored() == []
    records = lines(folder)
    assert [record["name"] for record in records] == ["epoch_2.npy", "epoch_10.npy", "epoch_1.npy"]
    expected = evaluator.score(folder / "epoch_10.npy").metrics
    assert records[1]["metrics"].items() >= {name: metric.value for name, metric in expected.items()}.items()


def test_source_must_be_unchanged_for_the_settling_time(watch, folder, clock):
    put(folder, "a.npy")
    with watch(settle=10) as run:
        for seconds in (4, 5):  # polled after 0, 4, 9 s
            assert run.watcher.poll() == ["a.npy"]
            clock.sleep(seconds)
        assert run.watcher.poll() == ["a.npy"]
        put(folder, "a.npy", scale=0.5, n=31)
        clock.sleep(1)
        assert run.watcher.poll() == ["a.npy"]  # it changed
        clock.sleep(9.5)
        assert run.watcher.poll() == ["a.npy"]
        clock.sleep(0.5)
        assert run.watcher.poll() == []
    assert lines(folder)[0]["n_fake"] == 31


def test_scoring_time_does_not_count_as_settling_time(folder, clock, scoring, watch):
    """The second source is first seen 1 s before the first one is scored for 100 s."""

    @scoring
    def slow(score, fake):
        clock.sleep(100)
        return score(fake)

    put(folder, "a.npy")
    with watch(settle=10) as run:
        run.watcher.poll()
        clock.sleep(9)
        put(folder, "b.npy")
        run.watcher.poll()
        clock.sleep(1)
        assert run.watcher.poll() == ["b.npy"]
        assert run.scored() == ["a.npy"]


def test_source_that_changes_while_it_is_scored_is_not_recorded(folder, clock, scoring, watch):
    @scoring
    def writing(score, fake):
        result = score(fake)
        if result.fake.n == 30:
            put(folder, "a.npy", scale=0.5, n=40)
        return result

    put(folder, "a.npy")
    with watch(settle=10) as run:
        run.watcher.run(until=1, interval=10)
    (record,) = lines(folder)
    assert record["n_fake"] == 40
    assert "changed while it was scored" in run.messages[0]
    assert clock.now >= 1000 + 10 + 10


def test_once_waits_for_settling_and_skips_sources_that_change(folder, clock, watch):
    put(folder, "a.npy")
    put(folder, "b.npy")
    clock.at(3, lambda: put(folder, "b.npy", scale=0.5))
    with watch(settle=5) as run:
        run.watcher.run(once=True)
    assert run.scored() == ["a.npy"]
    assert clock.now == 1005
    (line,) = run.messages
    assert line.startswith("b.npy ")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "2.png").write_bytes(b""),
        lambda folder: (folder / "1.png").write_bytes(b"xy"),
        lambda folder: os.utime(folder / "1.png", (1, 1)),
        lambda folder: (folder / "1.png").unlink(),
    ],
)
def test_listing_changes_with_any_change_in_a_folder(folder, change):
    (folder / "deep").mkdir()
    for name in ("0.png", "1.png"):
        (folder / "deep" / name).write_bytes(b"x")
    before = listing_of(folder)
    assert listing_of(folder) == before
    change(folder / "deep")
    assert listing_of(folder) != before


def test_only_samples_are_scored(folder, tmp_path, watch):
    names = ["a.zip", "b.tar", "c.npz", "d.safetensors", "E.NPY", ".h.npz", "l.txt", "x.npz.tmp", "0.png"]
    for name in names:
        (folder / name).touch()
    for name in ("empty", "logs", "images", ".hidden", "unnamed"):
        (folder / name).mkdir()
    (folder / "unnamed" / "0").write_bytes(b"qoif")
    (folder / "logs" / "events").touch()
    (folder / "images" / "0.png").touch()
    (folder / "real").symlink_to(folder / "images")
    os.mkfifo(folder / "pipe.npz")
    assert samples_at(folder / "pipe.npz") is None
    with watch(ignored=[folder / "c.npz", tmp_path / "missing"]) as run:
        assert run.watcher.poll() == [
            *("E.NPY", "a.zip", "b.tar", "d.safetensors", "images", "real", "unnamed")
        ]


def test_folder_without_samples_is_reported_once(folder, watch):
    with watch(settle=0) as run:
        assert run.watcher.poll() == run.messages == []
        for name in ("0.png", "1.png"):
            (folder / name).touch()
        for _ in range(2):
            assert run.watcher.poll() == []
        (line,) = run.messages
        assert "0.png, 1.png" in line
        assert "folder" in line


def test_invalid_numbers_are_errors(folder, evaluator, watch):
    for settle in (-1, float("nan"), float("inf"), 1e9):
        with ScoreLog(folder / "genpr.jsonl") as log, raising(UsageError, "bad-option"):
            Watcher(evaluator, folder, log, settle=settle)
    for options in ({"interval": 0}, {"interval": float("inf")}, {"until": 0}):
        with watch() as run, raising(UsageError, "bad-option"):
            run.watcher.run(**options)


def test_damaged_source_is_reported_once_and_scored_when_complete(folder, clock, watch):
    whole = put(folder, "a.npy").read_bytes()
    for name in ("a.npy", "b.npy"):
        (folder / name).write_bytes(whole[:-8])
    clock.at(95, lambda: (folder / "b.npy").write_bytes(whole))
    clock.at(700, lambda: put(folder, "c.npy"))
    with watch(settle=10) as run:
        run.watcher.run(until=3, interval=10)  # a.npy counts as done: it failed and did not change
    assert (run.scored(), clock.now) == (["b.npy", "c.npy"], 1710)
    assert [line.partition(" (")[2].partition(")")[0] for line in run.messages] == ["file-damaged"] * 2
    (folder / "a.npy").write_bytes(whole)
    with watch(settle=0) as run:
        run.watcher.run(until=3)
    assert run.scored() == ["a.npy"]


def test_unchanged_source_that_failed_is_retried_after_ten_minutes(folder, clock, watch, scoring):
    tried = []

    @scoring
    def flaky(score, fake):
        tried.append(clock.now)
        if len(tried) < 3:
            raise DataError("input/output error", code="unreadable")
        return score(fake)

    put(folder, "a.npy")
    clock.at(2000, lambda: put(folder, "b.npy"))
    with watch(settle=0) as run:
        run.watcher.run(until=2, interval=50)
    assert (run.scored(), len(run.messages)) == (["a.npy", "b.npy"], 1)
    assert tried == [1000, 1600, 2200, 3000]


@pytest.mark.parametrize(("code", "ends"), [("memory", True), ("oom", False)])
def test_only_a_source_without_memory_is_reported_and_not_fatal(folder, watch, scoring, code, ends):
    @scoring
    def broken(score, fake):
        if Path(fake).name == "b.npy":
            raise ResourceError("no memory", code=code)
        return score(fake)

    for name in ("a.npy", "b.npy", "c.npy"):
        put(folder, name)
    with watch(settle=0) as run:
        if ends:
            with raising(ResourceError, code):
                run.watcher.poll()
        else:
            assert run.watcher.poll() == run.watcher.poll() == ["b.npy"]
    assert run.scored() == ["a.npy"] if ends else ["a.npy", "c.npy"]
    assert len(run.messages) == (not ends)


def test_best_follows_the_direction_of_the_metric_and_is_the_first_among_equals(folder, watch):
    real = np.random.default_rng(0).normal(size=(30, 3))
    scores = genpr.Evaluator(real, metrics=["precision", "recall", "fd"], control=False)
    for name, scale in (("a", 0.3), ("b", 0.9), ("c", 3.0)):
        put(folder, f"{name}.npy", scale=scale)
    shutil.copy(folder / "b.npy", folder / "d.npy")
    for by in ("f1", "precision", "recall", "fd"):
        with watch(settle=0, evaluator=scores, by=by) as run:
            run.watcher.poll()
        best = json.loads((folder / "best.json").read_text())
        values = {line["name"]: line["metrics"][by] for line in lines(folder)}
        assert best["name"] == (min if by == "fd" else max)(values, key=values.get)
        assert (best["by"], best["value"]) == (by, values[best["name"]])
        assert best["better"] == ("lower" if by == "fd" else "higher")
        assert best["record"] == next(line for line in lines(folder) if line["name"] == best["name"])


@pytest.fixture
def two_lines(folder, clock, watch):
    put(folder, "a.npy", scale=0.5)
    put(folder, "b.npy", scale=0.9)
    with watch(settle=0) as run:
        run.watcher.poll()
    return (folder / "genpr.jsonl").read_bytes()


def test_missing_files_are_rewritten_from_the_log(folder, clock, watch, two_lines):
    expected = contents(folder)
    (folder / "best.json").unlink()
    (folder / ".best.json.abc_12.tmp").write_text("half")
    with watch():
        assert contents(folder) == expected


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_line_that_cannot_be_written_completely_is_not_written(folder, watch, two_lines, monkeypatch, error):
    put(folder, "c.npy")

    def full(_file):
        raise error

    with watch(settle=0) as run:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ResourceError):
            run.watcher.poll()
        monkeypatch.undo()
    assert (folder / "genpr.jsonl").read_bytes() == two_lines


def fill(folder):
    folder.mkdir()
    for number, scale in ((1, 0.2), (2, 0.5), (4, 0.9), (10, 0.8), (20, 3.0)):
        put(folder, f"epoch_{number}.npy", scale=scale)
    (folder / "epoch_3.npy").write_bytes(b"half")


def copied(source, target):
    """Copy files with their times, which are part of a listing."""
    shutil.copytree(source, target)
    return target


def test_watch_killed_at_random_lines_ends_with_the_same_files(tmp_path):
    """10 kills in two folders, so that some of them fall into the work on every source."""
    np.save(tmp_path / "real.npy", np.random.default_rng(0).normal(size=(30, 3)))
    fill(tmp_path / "whole")
    draw = random.Random(0)
    trials = [copied(tmp_path / "whole", tmp_path / f"trial_{number}") for number in range(2)]
    plan = {str(tmp_path / "whole"): []}
    plan |= {str(trial): [draw.randint(1, 420) for _ in range(5)] for trial in trials}
    script = str(Path(__file__).with_name("watch_kills.py"))
    command = [sys.executable, script, str(tmp_path / "real.npy"), json.dumps(plan)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 8  # the others had nothing left to do
    expected = contents(tmp_path / "whole")
    scored = [line["name"] for line in expected[1]["genpr.jsonl"]]
    assert scored == [f"epoch_{number}.npy" for number in (1, 2, 4, 10, 20)]
    for trial in trials:
        assert contents(trial) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"my notes",
        b'{"a": 1}\n',
        b"\n\n",
        b'{"schema": 2, "name": "a", "status": "scored", "metrics": {}, "n_fake": 1, "listing": ""}\n',
        b'{"schema": 1, "name": "a", "status": "scored", "metrics": {"f1": NaN}}\n',
        b'{"schema": 1, "name": "a", "status": "scored", "metrics": {"f1": 1}}\n',
        b"\xff\xfe\n",
    ],
)
def test_foreign_or_incomplete_log_is_an_error_and_is_not_changed(folder, watch, two_lines, text):
    for content in (text, two_lines + text, two_lines[:-9]):
        (folder / "genpr.jsonl").write_bytes(content)
        with raising(DataError, "file-damaged"), watch():
            pass
        assert (folder / "genpr.jsonl").read_bytes() == content


def test_best_that_is_replaced_during_a_watch_is_kept(folder, watch):
    best = folder / "best.json"
    put(folder, "a.npy", scale=0.5)
    with raising(UsageError, "foreign-file"), watch(settle=0) as run:
        run.watcher.poll()
        best.write_text("mine")
        put(folder, "b.npy", scale=0.9)
        run.watcher.poll()
    assert (best.read_text(), len(lines(folder))) == ("mine", 2)
    with raising(UsageError, "foreign-file"), watch():
        pass
    best.unlink()
    with watch():
        assert json.loads(best.read_text())["name"] == "b.npy"


def test_log_is_no_link_and_not_in_a_sample(folder, evaluator, tmp_path):
    for name in ("genpr.jsonl", "best.json"):
        (folder / name).symlink_to(tmp_path / "elsewhere")
        with raising(UsageError, "output-is-link"):
            ScoreLog(folder / "genpr.jsonl")
        (folder / name).unlink()
    for name in ("images", "logs"):
        (folder / name).mkdir()
    (folder / "images" / "0.png").touch()
    in_reals = SimpleNamespace(source=str(folder / "logs"))
    (tmp_path / "link").symlink_to(folder)
    (folder / "latest").symlink_to(".")
    for log, watched, scores, is_refused in (
        (folder / "images/log.jsonl", folder, evaluator, True),
        (tmp_path / "link/images/log.jsonl", tmp_path / "link", evaluator, True),
        (folder / "logs/log.jsonl", folder, in_reals, True),
        (folder / "logs/log.jsonl", folder, evaluator, False),
        *(
            (each / "genpr.jsonl", each, evaluator, False)
            for each in (tmp_path / "link", folder / "images/..")
        ),
    ):
        with ScoreLog(log) as opened:
            if is_refused:
                with raising(UsageError, "output-is-input"):
                    Watcher(scores, watched, opened)
            else:
                Watcher(scores, watched, opened)


def test_foreign_files_are_not_replaced_and_a_failed_start_leaves_no_lock(folder, watch):
    (folder / "best.json").write_text("mine")
    with pytest.raises(UsageError) as caught, watch():
        pass
    (folder / "best.json").unlink()
    with watch(), raising(ResourceError, "locked"), watch():
        pass
    (folder / "genpr.jsonl").mkdir()
    with raising(UsageError, "is-a-folder"), watch():
        pass
    assert caught.tb is not None  # it keeps the log that failed, and its lock, from being collected


REAL = np.random.default_rng(0).normal(size=(30, 3))


@pytest.mark.parametrize(
    ("name", "real", "options"),
    [
        ("requested", REAL, {"metrics": ["precision", "recall"]}),
        ("real", 1.1 * REAL, {}),
        ("max_images", REAL, {"max_images": 30}),
        ("recipe.k", REAL, {"k": 4}),
        ("recipe.ties", REAL, {"ties": "strict"}),
    ],
)
def test_log_of_another_recipe_is_an_error_also_if_nothing_is_new(
    folder, watch, two_lines, name, real, options
):
    other = genpr.Evaluator(real, control=False, **options)
    with watch(settle=0, evaluator=other) as run, raising(UsageError, "other-recipe", name):
        run.watcher.run(once=True)
    assert len(lines(folder)) == 2


@pytest.mark.parametrize(
    "changes", [{"real": "0"}, {"seed": 7}, {"recipe": {"k": 3}}, {"n_real": 5, "n_fake": 7}], ids=str
)
def test_log_with_an_earlier_line_of_another_run_is_an_error(folder, watch, two_lines, changes):
    first, second = map(json.loads, two_lines.splitlines())
    records = [first | changes, second]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "genpr.jsonl").write_text(text)
    with raising(UsageError, "other-recipe", next(iter(changes))), watch():
        pass
    assert (folder / "genpr.jsonl").read_text() == text


def test_moved_source_is_forgotten_and_missing_folder_is_an_error(folder, scoring, watch):
    @scoring
    def moving(score, fake):
        Path(fake).unlink()
        return score(fake)

    put(folder, "a.npy")
    with raising(ResourceError, "unreadable"), watch(settle=0) as run:
        assert run.watcher.poll() == run.messages == []
        shutil.rmtree(folder)
        run.watcher.poll()


def test_log_of_undecodable_names_is_valid_unicode(folder, watch):
    names = ["a\udcff.npy", "é🙂.npy"]
    for name in names:
        put(folder, name)
    with watch(settle=0) as run:
        run.watcher.poll()
    text = (folder / "genpr.jsonl").read_text()
    shown = [json.loads(line)["name"] for line in text.splitlines()]
    assert shown == run.scored() == [r"a\udcff.npy", "é🙂.npy"]
    json.dumps(lines(folder), ensure_ascii=False).encode()
    old = text.replace(r"\\udcff", r"\udcff")  # as earlier versions wrote it
    for content in (text, old):
        (folder / "genpr.jsonl").write_text(content)
        with watch(settle=0) as run:
            assert run.watcher.poll() == run.scored() == []
