"""`genpr rank`: the table, the JSON, and which exit code says what."""

import json

import numpy as np
import pytest

QUICK = ("--no-control", "--device", "cpu")


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    sets = {"real": 1.0, "step-1": 0.3, "step-2": 1.0, "step-3": 1.0}
    for name, scale in sets.items():
        np.save(tmp_path / f"{name}.npy", (scale * rng.normal(size=(150, 4))).astype(np.float32))
    return [tmp_path / f"{name}.npy" for name in sets]


def test_the_table_ranks_and_marks_who_may_be_the_best(genpr, files):
    code, out, _ = genpr("rank", *files, *QUICK)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "3 checkpoints by f1, higher is better"
    assert " ".join(lines[2].split()) == "checkpoint precision recall f1 95 % interval to the winner"
    record = json.loads(genpr("rank", *files, *QUICK, "--json")[1])
    for line, standing in zip(lines[4:7], record["checkpoints"], strict=True):
        assert line.split()[0] == str(standing["rank"])
        assert ("*" in line) is standing["is_contender"]
        result, ends = record["results"][standing["name"]]["metrics"], standing["interval"]
        values = [result["precision"]["value"], result["recall"]["value"], standing["value"]]
        cells = [f"{value:.4f}" for value in values] + [f"{ends['low']:.3f}", "-", f"{ends['high']:.3f}"]
        if standing["difference"] != 0:
            half = (standing["bounds"]["high"] - standing["bounds"]["low"]) / 2
            cells += [f"{standing['difference']:+.3f}", "±", f"{half:.3f}"]
        assert line.split(standing["name"])[1].split() == cells
    assert "*" not in lines[6]
    assert "the true best of these 3 is among those marked *" in " ".join(out.split())
    assert all(len(line) <= 80 for line in lines)


def test_a_bad_checkpoint_is_named_and_nothing_is_printed(genpr, files):
    np.save(files[2], np.full((150, 4), np.nan, dtype=np.float32))
    code, out, err = genpr("rank", *files, *QUICK)
    assert (code, out) == (3, "")
    assert "error: checkpoint step-2.npy: " in err
