"""A thousand damaged inputs of all kinds, always the same; `scripts/fuzz.py` makes as many as one likes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest

from fuzz.case import Case, case_of, outcome_of
from fuzz.guard import watched
from fuzz.kinds import kinds

KINDS = list(kinds())
SEED = 20261122
FEWER = {
    "command": 12,
    "results": 10,
    "features, signed": 14,
    "cache, signed": 14,
    "manifold, signed": 14,
    "manifold": 14,
}
MANY = 32


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "command"])
def test_valid_files_are_read(kind):
    """Else nothing would follow from damaged ones being refused."""
    known = kinds()[kind]
    outcomes = [outcome_of(Case(kind, f"valid/{n}", data, ())) for n, data in enumerate(known.files)]
    assert [outcome.finding for outcome in outcomes] == [None] * len(outcomes)
    assert {"score", "exit 0"} & {outcome.result for outcome in outcomes}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_end_in_a_score_or_an_error(kind):
    results: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(FEWER.get(kind, MANY)):
            case = case_of(SEED, kind, number)
            outcome = outcome_of(case)
            assert outcome.finding is None, f"{case.name}, {case.steps}: {outcome.finding}"
            results[outcome.result] += 1
    assert results.keys() - {"score", "exit 0"} or kind.startswith(("cache", "list")), (
        "all was read as if it were whole"
    )


def test_cases_follow_from_seed_kind_and_number():
    for kind in KINDS:
        assert case_of(1, kind, 2) == case_of(1, kind, 2)
    assert len({case_of(1, "png", number).data for number in range(50)}) > 45
    assert case_of(1, "png", 2).data != case_of(2, "png", 2).data


@pytest.mark.parametrize("kind", KINDS)
def test_every_damage_changes_something(kind):
    from random import Random

    known = kinds()[kind]
    for damage in set(known.damages):
        outcomes = {damage(Random(seed), data) for seed in range(8) for data in known.files}
        assert len(outcomes - set(known.files)) >= 2, damage


class Planted:
    """A finding of each sort, made on purpose: the net must hold."""

    @staticmethod
    def outcome(monkeypatch, act):
        from dataclasses import replace

        monkeypatch.setitem(kinds(), "ppm", replace(kinds()["ppm"], read=act))
        return outcome_of(Case("ppm", "planted", b"", ()))


def _opens(data, folder):
    with Path("/tmp/genpr-fuzz-elsewhere").open("w"):
        pass


def _unpickles(data, folder):
    pickle.loads(pickle.dumps(Path("x")))


def _fails(data, folder):
    raise KeyError("features")


def _shouts(data, folder):
    raise AssertionError("not one line")


def _starts(data, folder):
    subprocess.run([sys.executable, "-c", ""], check=True)


def _deletes(data, folder):
    (folder.parent / "genpr-fuzz-elsewhere").unlink(missing_ok=True)


@pytest.mark.parametrize("act", [_opens, _unpickles, _fails, _shouts, _starts, _deletes])
def test_what_must_not_happen_is_seen(monkeypatch, act):
    assert Planted.outcome(monkeypatch, act).result == "finding"


def test_what_lies_in_the_folder_may_change(tmp_path):
    with watched(tmp_path) as seen:
        path = tmp_path / "x"
        path.write_text("x")
        path.rename(tmp_path / "y")
        (tmp_path / "link").symlink_to("/etc")
        (tmp_path / "y").unlink()
    assert seen == []
    with watched(tmp_path) as seen, pytest.raises(FileNotFoundError):
        os.rename(tmp_path / "no", tmp_path / "link" / "genpr")  # noqa: PTH104 - through a link, elsewhere
    assert len(seen) == 1


@pytest.mark.slow
def test_valid_command_lines_are_run():
    lines = kinds()["command"].files
    assert {outcome_of(Case("command", "valid", line, ())).finding for line in lines} == {None}


@pytest.mark.slow
def test_the_driver_keeps_what_it_finds(tmp_path):
    script = Path(__file__).parents[2] / "scripts" / "fuzz.py"
    command = [
        sys.executable,
        script,
        "--inputs",
        "70",
        "--out",
        tmp_path,
        "--kind",
        "png",
        "--kind",
        "labels.json",
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| png | 35 |" in done.stdout
    assert "70 inputs" in done.stdout
