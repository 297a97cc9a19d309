"""Output of all commands: 80 columns, no control characters from names, color only where it is enabled."""

import re

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from genpr.cli.main import COMMANDS
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


def test_output_of_sweep_fits(genpr, real, fakes):
    points = [f"{setting}={path}" for setting, path in zip((1e-9, 0.5, 1, 123456), fakes, strict=True)]
    axis = "\x1b[31m" + "axis" * 30
    out = passed(genpr, "sweep", real, *points, "--axis", axis, "--no-control", "--device", "cpu")
    assert len(re.findall(r"(?<![\d.])\d\.\d{3} ±0\.\d{3}(?!\d)", out)) >= 4 * 5, "numbers stay whole"


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
