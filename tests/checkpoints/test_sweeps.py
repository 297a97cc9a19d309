"""Sweeps: what they compute, what they keep, and that they go on where they were stopped."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from raising import raising

import genpr
from genpr.checkpoints.criterion import Objective
from genpr.checkpoints.sweep import Sweep, SweepFolder, SweepPoint, sweep, warnings_of
from genpr.errors import DataError, ResourceError, UsageError
from genpr.notices import Notice
from genpr.report.checkpoint_tables import sweep_table
from genpr.report.plots import draw_metrics, sweep_plot

OPTIONS = {"control": False, "device": "cpu"}
SETTINGS = (0.1, 0.5, 0.8, 1.0)
LINES = 1500  # that any sweep executes in the files that write: one without finished points has 1,530


@pytest.fixture(scope="module")
def reals():
    return np.random.default_rng(1).normal(size=(150, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def fakes():
    """Shrunken towards the middle, with noise that stays."""
    rng = np.random.default_rng(2)
    latents, noise = rng.normal(size=(2, 150, 6))
    return {psi: (psi * latents + 0.3 * noise).astype(np.float32) for psi in SETTINGS}


@pytest.fixture(scope="module")
def evaluator(reals):
    return genpr.Evaluator(reals, **OPTIONS)


@pytest.fixture(scope="module")
def found(evaluator, fakes):
    return sweep(evaluator, fakes)


class Counting:
    """An evaluator that counts what it scores."""

    def __init__(self, evaluator):
        self._evaluator, self.scored = evaluator, 0
        self.metrics, self.recipe = evaluator.metrics, evaluator.recipe

    def score(self, fake):
        self.scored += 1
        return self._evaluator.score(fake)


def files_of(folder, fakes):
    folder.mkdir(exist_ok=True)
    paths = {psi: folder / f"{psi}.npy" for psi in fakes}
    for psi, path in paths.items():
        np.save(path, fakes[psi])
    return paths


@pytest.mark.parametrize("density", [0.5, 9.0])
def test_rows_of_warnings_stay_apart_below_zero(found, density):
    result = found.points[0].result
    high = replace(result.metrics["density"], value=density, interval=None)
    warned = replace(
        result,
        metrics={**result.metrics, "density": high},
        notices=tuple(Notice(code, "warning", code) for code in ("a", "b", "c")),
    )
    axes = Figure().subplots()
    draw_metrics(axes, "psi", {1.0: warned})
    low, top = axes.get_ylim()
    heights = [mark.get_offsets()[0][1] for mark in axes.collections if mark.get_label() in ("a", "b", "c")]
    places = [(height - low) / (top - low) for height in [0.0, *heights]]
    assert len(places) == 4
    assert min(np.diff(places[::-1])) > 0.035
    assert min(places) > 0


def test_each_point_is_what_the_evaluator_says(evaluator, fakes, found):
    assert [point.setting for point in found.points] == list(SETTINGS)
    for point in found.points:
        alone = evaluator.score(fakes[point.setting])
        assert {name: metric.value for name, metric in alone.metrics.items()} == {
            name: metric.value for name, metric in point.result.metrics.items()
        }


def test_settings_are_sorted_whatever_their_order(evaluator, fakes, found):
    again = sweep(evaluator, dict(reversed(fakes.items())))
    assert [point.values for point in again.points] == [point.values for point in found.points]


def test_truncation_trades_recall_for_precision(found):
    recalls, precisions = zip(*(point.tradeoff for point in found.points), strict=True)
    assert list(recalls) == sorted(recalls)
    assert precisions[0] == 1
    assert recalls[0] < 0.2
    assert "shrinkage" in warnings_of(found.points[0].result)
    assert found.best(Objective("precision", {"recall": recalls[2]})).setting == 0.8
    assert found.best(Objective("recall", {"precision": 2})) is None
    assert found.area == pytest.approx(genpr_area([point.tradeoff for point in found.points]))


def genpr_area(points):
    """Of all that is reached, by rectangles between sorted recalls."""
    recalls = sorted({recall for recall, _ in points})
    left, total = 0.0, 0.0
    for recall in recalls:
        total += (recall - left) * max(p for r, p in points if r >= recall)
        left = recall
    return total


def test_the_record_is_plain_json_and_says_it_all(found):
    record = json.loads(found.to_json(objective=Objective("precision", {"recall": 0.3})))
    assert record["schema"] == "genpr.sweep/1"
    assert record["axis"] == "psi"
    assert record["goal"] == "highest precision with recall at least 0.3"
    assert record["best"] == found.best(Objective("precision", {"recall": 0.3})).setting
    assert record["front"] == [point.setting for point in found.front]
    assert [point["setting"] for point in record["points"]] == list(SETTINGS)
    assert record["points"][1]["result"]["metrics"]["recall"]["value"] == found.points[1].result["recall"]


def test_the_record_and_the_table_say_who_may_be_the_best(found):
    for objective in (Objective(), Objective("precision"), Objective("recall")):
        contenders = found.contenders(objective)
        expected = [point.setting for point in contenders]
        assert json.loads(found.to_json(objective=objective))["contenders"] == expected
        best = found.best(objective).setting
        others = [f"{setting:g}" for setting in expected if setting != best]
        table = " ".join(sweep_table(found, objective).split())
        told = f"statistically tied with it: psi = {', '.join(others)} ("
        assert (told in table) == bool(others)
        assert ("tied with it: no other setting" in table) == (not others)
        drawn = sweep_plot(found, objective, form="svg").decode()
        assert ("statistically tied with the best" in drawn) == bool(others)
    out_of_reach = Objective("recall", {"recall": 2.0})
    assert json.loads(found.to_json(objective=out_of_reach))["contenders"] == []
    assert "tied" not in sweep_table(found, out_of_reach)


def test_without_intervals_nobody_is_claimed_to_be_worse(reals, fakes):
    bare = sweep(genpr.Evaluator(reals, **OPTIONS, intervals=False), fakes)
    assert json.loads(bare.to_json())["contenders"] is None
    table = sweep_table(bare, Objective())
    assert "distinguishable" not in table
    assert "as good" not in table
    assert "not told" not in sweep_plot(bare, Objective(), form="svg").decode()


def test_settings_that_were_not_made_alike_are_named(reals, fakes, found):
    assert found.differences == ()
    assert json.loads(found.to_json())["differences"] == []
    assert "made alike" not in sweep_table(found, Objective())
    bare = genpr.Evaluator(reals, **OPTIONS, intervals=False)
    unlike = sweep(bare, {0.1: fakes[0.1], 0.5: fakes[0.5][:90], 1.0: fakes[1.0][:80]})
    assert unlike.differences == (
        "90 fake images in psi = 0.5, 150 in psi = 0.1",
        "80 fake images in psi = 1, 150 in psi = 0.1",
    )
    table = " ".join(sweep_table(unlike, Objective()).split())
    assert f"{unlike.differences[0]} and 1 more" in table
    assert sweep(bare, {0.1: fakes[0.1]}).differences == ()


def test_a_resumed_sweep_tells_the_same_settings_apart(evaluator, fakes, tmp_path, found):
    """Stored points keep their replicates: what was read back agrees with what was computed, to the bit."""
    paths = files_of(tmp_path / "fakes", fakes)
    folder = SweepFolder(tmp_path / "out")
    sweep(evaluator, {psi: paths[psi] for psi in SETTINGS[:2]}, folder=folder)
    resumed = sweep(evaluator, paths, folder=SweepFolder(tmp_path / "out"))
    for objective in (Objective(), Objective("precision", {"recall": 0.3})):
        assert resumed.contenders(objective) is not None
        assert [point.setting for point in resumed.contenders(objective)] == [
            point.setting for point in found.contenders(objective)
        ]
    for point, other in zip(resumed.points, found.points, strict=True):
        assert point.result.metrics == other.result.metrics
        assert point.result.metrics["recall"].replicates is not None


def test_the_table_for_spreadsheets(found):
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [float(row["psi"]) for row in rows] == list(SETTINGS)
    for row, point in zip(rows, found.points, strict=True):
        metric = point.result.metrics["coverage"]
        assert float(row["coverage"]) == metric.value
        assert (float(row["coverage_low"]), float(row["coverage_high"])) == metric.interval
        assert float(row["precision_null"]) == point.result.metrics["precision"].null
        assert row["warnings"].split() == warnings_of(point.result)
        assert row["on_front"] == str(point.setting in [each.setting for each in found.front])


def test_an_interrupted_sweep_goes_on(evaluator, fakes, tmp_path, found):
    paths, folder = files_of(tmp_path / "fakes", fakes), SweepFolder(tmp_path / "out")
    first = Counting(evaluator)
    sweep(first, {psi: paths[psi] for psi in SETTINGS[:2]}, folder=folder)
    second = Counting(evaluator)
    again = sweep(second, paths, folder=folder)
    assert (first.scored, second.scored) == (2, 2)
    assert [point.values for point in again.points] == [point.values for point in found.points]
    third = Counting(evaluator)
    assert sweep(third, paths, folder=folder) == again
    assert third.scored == 0


def test_fakes_that_changed_are_not_taken_for_the_old_ones(evaluator, fakes, tmp_path):
    paths, folder = files_of(tmp_path / "fakes", fakes), SweepFolder(tmp_path / "out")
    sweep(evaluator, paths, folder=folder)
    np.save(paths[0.5], fakes[0.1])
    with raising(UsageError, "other-sweep"):
        sweep(evaluator, paths, folder=folder)
    counting = Counting(evaluator)
    sweep(counting, paths, folder=SweepFolder(tmp_path / "out", restart=True))
    assert counting.scored == 1
    sweep(counting, paths, folder=folder)
    assert counting.scored == 1


@pytest.mark.parametrize(
    ("options", "what"),
    [({"k": 4}, "recipe.k.precision was 3, now 4"), ({"seed": 5}, "recipe.seed was 0, now 5")],
)
def test_another_recipe_is_another_sweep(options, what, evaluator, reals, fakes, tmp_path):
    paths, folder = files_of(tmp_path / "fakes", fakes), SweepFolder(tmp_path / "out")
    sweep(evaluator, paths, folder=folder)
    with pytest.raises(UsageError, match=what):
        sweep(genpr.Evaluator(reals, **OPTIONS, **options), paths, folder=folder)


def test_other_reals_are_another_sweep(evaluator, reals, fakes, tmp_path):
    paths, folder = files_of(tmp_path / "fakes", fakes), SweepFolder(tmp_path / "out")
    sweep(evaluator, paths, folder=folder)
    with pytest.raises(UsageError, match=r"recipe\.real was"):
        sweep(genpr.Evaluator(reals + 1, **OPTIONS), paths, folder=folder)


def test_keys_of_generated_fakes_decide(evaluator, fakes, tmp_path):
    folder = SweepFolder(tmp_path / "out")
    keys = {psi: {"seed": 1, "n": 150} for psi in SETTINGS}
    counting = Counting(evaluator)
    for _ in range(2):
        sweep(counting, fakes, keys=keys, folder=folder)
    assert counting.scored == len(SETTINGS)
    with pytest.raises(UsageError, match=r"fakes.seed was 1, now 2"):
        sweep(counting, fakes, keys={psi: {"seed": 2, "n": 150} for psi in SETTINGS}, folder=folder)
    without = Counting(evaluator)
    sweep(without, fakes, folder=folder)
    assert without.scored == len(SETTINGS), "nobody knows what bare arrays are"


def test_a_damaged_point_is_named(evaluator, fakes, tmp_path):
    paths, folder = files_of(tmp_path / "fakes", fakes), SweepFolder(tmp_path / "out")
    sweep(evaluator, paths, folder=folder)
    point = tmp_path / "out" / "points" / "psi=0.8.json"
    for content in (point.read_text()[:100], "{}", "[]", '{"schema": "other"}', ""):
        point.write_text(content)
        with raising(DataError, "not-a-point"):
            sweep(evaluator, paths, folder=folder)


def test_a_folder_that_cannot_be_written_is_said(evaluator, fakes, tmp_path):
    (tmp_path / "out").write_text("a file")
    paths = files_of(tmp_path / "fakes", fakes)
    with raising(ResourceError, "unwritable"):
        sweep(evaluator, paths, folder=SweepFolder(tmp_path / "out"))


def test_two_sweeps_do_not_share_a_folder(evaluator, fakes, tmp_path):
    paths, folder = files_of(tmp_path / "fakes", fakes), SweepFolder(tmp_path / "out")
    with folder.locked(), raising(ResourceError, "locked"):
        sweep(evaluator, paths, folder=SweepFolder(tmp_path / "out"))
    sweep(evaluator, paths, folder=folder)


def test_what_a_killed_sweep_left_half_written_is_cleared_away(evaluator, fakes, tmp_path):
    paths, folder = files_of(tmp_path / "fakes", fakes), SweepFolder(tmp_path / "out")
    (tmp_path / "out" / "points").mkdir(parents=True)
    left = [tmp_path / "out" / "points" / ".psi=0.5.json.abc.tmp", tmp_path / "out" / ".sweep.png.abc.tmp"]
    others = [tmp_path / "out" / ".notes.tmp", tmp_path / "out" / "points" / ".psi.tmp"]
    for path in left + others:
        path.write_text("{")
    sweep(evaluator, paths, folder=folder)
    assert [path.exists() for path in left + others] == [False, False, True, True]


@pytest.mark.parametrize("name", ["sweep.json", "sweep.csv", "sweep.png", "sweep.svg"])
def test_a_pipe_in_the_folder_is_refused_before_anything_is_scored(name, evaluator, fakes, tmp_path):
    paths, folder = files_of(tmp_path / "fakes", fakes), SweepFolder(tmp_path / "out")
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / name)
    with raising(UsageError, "not-a-file"):
        sweep(evaluator, paths, folder=folder)
    assert (tmp_path / "out" / name).is_fifo()


@pytest.mark.parametrize("settings", [{}, {float("nan"): 0}, {float("inf"): 0}, {"0.5": 0}, {True: 0}])
def test_settings_are_finite_numbers(settings, evaluator):
    with raising(UsageError, "bad-setting"):
        sweep(evaluator, settings)


def test_a_sweep_needs_precision_and_recall(reals, fakes):
    with raising(UsageError, "no-tradeoff"):
        sweep(genpr.Evaluator(reals, metrics=["precision", "density"], **OPTIONS), fakes)


def test_what_is_wrong_at_a_setting_says_which(evaluator, fakes):
    with pytest.raises(DataError, match=r"^at psi = 0.5: "):
        sweep(evaluator, {**fakes, 0.5: fakes[0.5][:, :3]})


def test_points_of_equal_settings_are_equal(found):
    assert Sweep("psi", tuple(SweepPoint(p.setting, p.result) for p in found.points)) == found


def without_times(path):
    """A file, but for how long things took."""
    if path.suffix != ".json":
        return path.read_bytes()

    def cleaned(value):
        if isinstance(value, dict):
            return {key: cleaned(each) for key, each in value.items() if key != "seconds"}
        return [cleaned(each) for each in value] if isinstance(value, list) else value

    return cleaned(json.loads(path.read_text()))


def test_sweeps_that_are_killed_end_in_the_same_files(reals, fakes, tmp_path):
    source = tmp_path / "source"
    files_of(source, fakes)
    np.save(source / "real.npy", reals)
    lines = random.Random(0).sample(range(1, LINES), 20)
    folders = [tmp_path / name for name in ("whole", "a", "b", "c")]
    beyond = [LINES + 400]  # so late that it comes to its end: what is drawn from LINES spans the whole run
    plan = {
        folders[0]: beyond,
        folders[1]: sorted(lines[:8]),
        folders[2]: lines[8:14],
        folders[3]: lines[14:],
    }
    script = Path(__file__).with_name("sweep_kills.py")
    done = subprocess.run(
        [sys.executable, script, source, json.dumps({str(out): each for out, each in plan.items()})],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert int(done.stdout) == len(lines)
    names = sorted(path.relative_to(folders[0]) for path in folders[0].rglob("*.*"))
    assert len(names) == len(SETTINGS) + 5, "points, lock, sweep.*"
    for folder in folders[1:]:
        assert sorted(path.relative_to(folder) for path in folder.rglob("*.*")) == names
        for name in names:
            assert without_times(folder / name) == without_times(folders[0] / name), name
