"""`genpr watch` and `genpr rank`: what they print, what they write, and their exit codes."""

import json

import numpy as np
import pytest

from genpr.checkpoints import watch


@pytest.fixture
def run(tmp_path, rng, monkeypatch):
    """A folder with three sets of features, the second of which is the best, next to the reals; the working folder."""
    monkeypatch.chdir(tmp_path)
    np.save("real.npy", rng.normal(size=(40, 3)))
    folder = tmp_path / "run"
    folder.mkdir()
    for number, scale in ((1, 0.2), (2, 0.9), (10, 0.5)):
        np.save(folder / f"epoch_{number}.npy", scale * rng.normal(size=(40, 3)))
    return folder


NOW = ["--once", "--settle", "0"]


def lines(folder, name="genpr.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_scores_are_lines_on_stderr_and_the_table_is_on_stdout(genpr, run):
    code, out, err = genpr("watch", "real.npy", "run", *NOW)
    assert code == 0
    scored = [line for line in err.splitlines() if ".npy: " in line]
    assert [line.split(":")[0] for line in scored] == ["epoch_1.npy", "epoch_2.npy", "epoch_10.npy"]
    assert all("f1 0." in line for line in scored)
    table = out.splitlines()
    assert all(len(line) <= 80 for line in table)
    assert table[1].split() == ["source", "images", "f1", *["precision", "recall"] * 2]
    assert table[-1].startswith("best by f1 (higher is better): epoch_2.npy, ")
    assert json.loads((run / "best.json").read_text())["name"] == "epoch_2.npy"


@pytest.mark.parametrize("as_json", [False, True])
def test_interrupt_leaves_complete_files_and_the_table(genpr, run, monkeypatch, as_json):
    def interrupted(_seconds):
        raise KeyboardInterrupt

    arguments = ["--settle", "0", *["--json"] * as_json]
    monkeypatch.setitem(watch.Watcher.__init__.__kwdefaults__, "sleep", interrupted)
    code, out, err = genpr("watch", "real.npy", "run", *arguments)
    assert code == 130
    assert "interrupted" in err
    assert len(lines(run)) == 3
    if as_json:
        found = json.loads(out)
        assert found["error"]["code"] == "interrupted"
        assert [record["name"] for record in found["records"]] == [
            "epoch_1.npy",
            "epoch_2.npy",
            "epoch_10.npy",
        ]
        assert (found["by"], found["best"]["name"]) == ("f1", "epoch_2.npy")
    else:
        assert "best by f1" in out


QUICK = ("--no-control", "--device", "cpu")


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    sets = {"real": 1.0, "step-1": 0.3, "step-2": 1.0, "step-3": 1.0}
    for name, scale in sets.items():
        np.save(tmp_path / f"{name}.npy", (scale * rng.normal(size=(150, 4))).astype(np.float32))
    return [tmp_path / f"{name}.npy" for name in sets]


def test_rank_table_marks_contenders(genpr, files):
    code, out, _ = genpr("rank", *files, *QUICK)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "3 checkpoints by f1, higher is better"
    assert " ".join(lines[2].split()) == "rank checkpoint precision recall f1 95 % interval to the winner"
    record = json.loads(genpr("rank", *files, *QUICK, "--json")[1])
    for line, entry in zip(lines[4:7], record["checkpoints"], strict=True):
        assert line.split()[0] == str(entry["rank"])
        assert ("*" in line) is entry["is_contender"]
        result, ends = record["results"][entry["name"]]["metrics"], entry["interval"]
        values = [result["precision"]["value"], result["recall"]["value"], entry["value"]]
        cells = [f"{value:.4f}" for value in values] + [f"{ends[0]:.3f}", "-", f"{ends[1]:.3f}"]
        if entry["difference"] != 0:
            half = (entry["bounds"][1] - entry["bounds"][0]) / 2
            cells += [f"{entry['difference']:+.3f}", "±", f"{half:.3f}"]
        assert line.split(entry["name"])[1].split() == cells
    assert "*" not in lines[6]
    assert "the true best of these 3 is among those marked *" in " ".join(out.split())
    assert all(len(line) <= 80 for line in lines)


def test_bad_checkpoint_is_an_error_without_output(genpr, files):
    np.save(files[2], np.full((150, 4), np.nan, dtype=np.float32))
    code, out, err = genpr("rank", *files, *QUICK)
    assert (code, out) == (3, "")
    assert "error: checkpoint step-2.npy: " in err
