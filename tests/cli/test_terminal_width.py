"""Output of all commands: 80 columns, no control characters from names, color only where it is enabled."""

import io
import re
import sys

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from genpr.cli import console
from genpr.cli.main import COMMANDS, run
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet, save_features

HOSTILE = (
    *("<script>alert(1)</script>", "=cmd()", "n" * 200, "two\nlines\r", "a\x1b[31mred\x1b]0;title\x07"),
    *("abc\u202egnp.exe\u200f", "\udcff:skull:[bold]", "文" * 60),
)
FILE = "\u202e\x1b[31m\n:skull:" + "f" * 60
WHOLE = re.compile(r"(real  |fake  )[\d,]+ images of |  [\w.-]+$|.* (in|to|into) /|Next: genpr score ")
"""Lines with a path, or with a name of a file to copy, that stay in one piece by design."""


def features_at(path, features, names=()):
    extractor = ExtractorInfo(f"mine{HOSTILE[4]}.py:f", features.shape[1], "none", None, comparable=False)
    save_features(path, FeatureSet(features, source=str(path), names=names, extractor=extractor))
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Features in files with hostile names, of images with hostile names in folders with hostile names."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    kinds = np.arange(200) % 4
    centers = 4 * rng.normal(size=(4, 6))
    names = tuple(f"{HOSTILE[2 * kind % 8]}{kind}/{HOSTILE[i % 8]} {i}.png" for i, kind in enumerate(kinds))
    names = tuple(name.replace("</", "<\\") for name in names)
    (folder / "samples").mkdir()
    for number in range(4):
        spread = 0.3 + 0.2 * number
        drawn = (centers[kinds % (number + 1)] + spread * rng.normal(size=(200, 6))).astype(np.float32)
        path = folder / "samples" / f"{number}{FILE}.safetensors"
        features_at(path, torch.from_numpy(drawn), names)
    drawn = (centers[kinds] + 0.8 * rng.normal(size=(200, 6))).astype(np.float32)
    features_at(folder / f"real{FILE}.safetensors", torch.from_numpy(drawn), names)
    mine = folder / "mine.py"
    mine.write_text("def " + "f" * 60 + "(real, fake):\n    return 1.0\n")
    return folder


@pytest.fixture
def real(world, monkeypatch):
    monkeypatch.chdir(world)
    return next(world.glob("real*"))


@pytest.fixture
def fakes(world):
    return sorted((world / "samples").glob("*.safetensors"))


def check(text, *, whole=True):
    """Assert that there are no control characters and that stdout fits 80 columns, except marked lines."""
    assert text
    control_characters = {c for c in text if not (c.isprintable() or c == "\n")}
    assert not control_characters
    assert "💀" not in text
    wide = [line for line in text.splitlines() if cell_len(line) > 80]
    assert not [line for line in wide if not WHOLE.match(line)] or not whole
    return wide


def passed(genpr, *args, code=0):
    got, out, err = genpr(*args)
    assert got == code, err
    check(out)
    if err:
        check(err, whole=False)
    return out


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--no-control --protocol genpr --protocol prdc",
        "--no-control --per-class --min-per-class 20 --k 3",
        "--no-control --labels",
        "--no-intervals --metrics clipped_density,symmetric_precision,witnessed_diversity,authenticity,vendi",
    ],
)
def test_output_of_score_fits(genpr, real, fakes, options):
    out = passed(genpr, "score", real, fakes[3], "--device", "cpu", *options.split())
    assert ("macro average" in out) == ("--per-class" in options)
    assert ("recognized by: knn" in out) == ("--labels" in options)


@pytest.mark.parametrize("by", ["f1", "symmetric_precision", "pareto"])
def test_output_of_rank_fits(genpr, real, fakes, by):
    passed(genpr, "rank", real, *fakes, "--by", by, "--no-control", "--device", "cpu")


def test_output_of_sweep_fits(genpr, real, fakes):
    points = [f"{setting}={path}" for setting, path in zip((1e-9, 0.5, 1, 123456), fakes, strict=True)]
    axis = "\x1b[31m" + "axis" * 30
    out = passed(genpr, "sweep", real, *points, "--axis", axis, "--no-control", "--device", "cpu")
    assert len(re.findall(r"(?<![\d.])\d\.\d{3} ±0\.\d{3}(?!\d)", out)) >= 4 * 5, "numbers stay whole"


def test_output_of_watch_fits(genpr, real, world, tmp_path):
    options = ("--once", "--settle", "0", "--no-control", "--device", "cpu", "--log", tmp_path / "log.jsonl")
    passed(genpr, "watch", real, world / "samples", *options)


LISTS = ["list extractors", "list protocols", "list metrics"]
HELPS = [f"{command} --help" for command in ("", *COMMANDS, "cache list", "cache prune", "weights fetch")]


@pytest.mark.parametrize("line", [*LISTS, *HELPS])
def test_output_of_lists_and_help_fits(genpr, line):
    passed(genpr, *line.split())


@pytest.mark.parametrize(
    "words",
    [
        "score no{} no",
        "rank real no{} --generator {}",
        "compare no{}",
        "list {}",
        "score --protocol {} a b",
        "score a b --metrics {}",
        "weights fetch {}",
        "cache list --cache-dir {}",
    ],
)
def test_messages_have_no_control_characters(genpr, real, words):
    code, out, err = genpr(*(word.format(FILE) for word in words.split()))
    assert code in (2, 3, 4)
    assert not out
    check(err, whole=False)


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


def test_notices_follow_the_table_and_fit_the_terminal(real, fakes, monkeypatch):
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(["score", str(real), str(fakes[3]), "--no-control", "--no-intervals", "--device", "cpu"]) == 0
    table, separator, notices = terminal.getvalue().partition("note [small-sample]: ")
    assert separator
    assert "settings hash" in table
    assert "fingerprint" not in notices
    assert all(cell_len(line) <= 60 for line in notices.splitlines())


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def update(clock):
    with console.progress_bars(quiet=False) as progress:

        def at(second, *state):
            clock[0] = second
            progress(*state)

        yield at


def test_stage_of_minutes_is_reported_once_its_rate_is_known(update, capsys):
    update(0, "neighbors", 0, 100)
    update(4, "neighbors", 1, 100)
    assert not capsys.readouterr().err
    update(10, "neighbors", 2, 100)
    assert capsys.readouterr().err == "neighbors: 2 of 100, about 8 min left\n"
    update(20, "neighbors", 4, 100)
    update(30, "real", 0, 5000)
    update(40, "real", 50, 5000)
    assert capsys.readouterr().err == "real: 50 of 5,000, about 16 min left\n"


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", r"+- \u2581"), ("latin-1", r"+- \u2581"), ("utf-8", "± ▁")]
)
def test_characters_outside_the_encoding_are_replaced(monkeypatch, encoding, shown):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    console.print_stdout("± ▁")
    console.print_stderr("± ▁")
    for stream in streams:
        stream.flush()
        assert stream.buffer.getvalue().decode(encoding) == f"{shown}\n"
