"""`genpr watch`: what it prints, what it writes, and its exit codes."""

import json

import numpy as np
import pytest

from genpr.checkpoints import watch


@pytest.fixture
def run(tmp_path, rng, monkeypatch):
    """A folder with three sets of features, the best of which is the second, and the reals beside it; the working folder."""
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


def test_a_line_per_score_on_stderr_and_the_table_on_stdout(genpr, run):
    code, out, err = genpr("watch", "real.npy", "run", *NOW)
    assert code == 0
    told = [line for line in err.splitlines() if ".npy: " in line]
    assert [line.split(":")[0] for line in told] == ["epoch_1.npy", "epoch_2.npy", "epoch_10.npy"]
    assert all("f1 0." in line for line in told)
    table = out.splitlines()
    assert all(len(line) <= 80 for line in table)
    assert table[0].split() == ["source", "images", "precision", "recall", "density", "coverage", "f1"]
    (best,) = [line for line in table if line.endswith(" best")]
    assert best.startswith("epoch_2.npy")
    assert table[-1].startswith("best by f1 (higher is better): epoch_2.npy, ")
    assert json.loads((run / "best.json").read_text())["name"] == "epoch_2.npy"


def test_the_numbers_are_those_of_score(genpr, run):
    options = ("--k", "4", "--seed", "3", "--max-images", "30")
    genpr("watch", "real.npy", "run", *NOW, *options)
    for record in lines(run):
        score = json.loads(genpr("score", "real.npy", run / record["name"], *options, "--json")[1])
        metrics = score["metrics"].items()
        assert {name: record["metrics"][name] for name, _ in metrics} == {
            name: metric["value"] for name, metric in metrics
        }
        assert record["intervals"] == {
            name: metric["interval"] for name, metric in metrics if metric["interval"]
        }
        assert record["fingerprint"] == score["fingerprint"]


def test_a_bad_source_is_told_and_other_sizes_are_in_the_table(genpr, run, rng):
    (run / "a.npz").write_bytes(b"PK\3\4")
    np.save(run / "b.npy", rng.normal(size=(30, 3)))
    code, out, err = genpr("watch", "real.npy", "run", *NOW)
    assert code == 0
    assert "30 to 40 images" in out
    assert "a.npz cannot be scored yet (array-damaged)" in err


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupt_leaves_whole_files_and_the_table(genpr, run, monkeypatch, as_json):
    def interrupted(_seconds):
        raise KeyboardInterrupt

    arguments = ["--settle", "0", *["--json"] * as_json]
    monkeypatch.setitem(watch.Watcher.__init__.__kwdefaults__, "sleep", interrupted)
    code, out, err = genpr("watch", "real.npy", "run", *arguments)
    assert code == 130
    assert "interrupted" in err
    assert len(lines(run)) == 3
    if as_json:
        assert json.loads(out)["error"]["code"] == "interrupted"
    else:
        assert "best by f1" in out
