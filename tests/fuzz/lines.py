"""Command lines: valid ones in a small folder, damaged, and run in this process as `genpr` would run them."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import click
import matplotlib.font_manager  # noqa: F401 - which writes a cache of its own when it is first imported
import numpy as np

from fuzz import made
from fuzz.formats import zip_of
from fuzz.images import COLOUR, encoded
from fuzz.raw import Damage
from fuzz.texts import NASTY
from genpr.cli.main import cli, run

_CHEAP = ("--extractor", "pixels", "--no-intervals", "--no-control")
VALID_LINES: tuple[tuple[str, ...], ...] = (
    ("score", "real", "fake", *_CHEAP, "--json"),
    ("score", "real", "fake", *_CHEAP, "--html", "page.html", "--csv", "rows.csv"),
    ("score", "real", "fake", *_CHEAP, "--per-class", "--metrics", "precision,recall", "--k", "1"),
    ("score", "real.safetensors", "fake.npy", "--k", "2", "--fail-under", "precision=0.5"),
    ("score", "images.zip", "images.npz", *_CHEAP, "--on-bad", "skip"),
    ("align", "real", "--prompts", "prompts.csv", "--json"),
    ("modes", "real", "fake", "--extractor", "pixels", "--clusters", "2", "--k", "2"),
    ("sweep", "real", "0.5=fake", "1=real", *_CHEAP, "--out", "swept"),
    ("watch", "--once", "--settle", "0", "real", "runs", *_CHEAP),
    ("compare", "a.json", "b.json", "--json"),
    (
        "compare",
        "a.json",
        "b.json",
        "--force",
        "--html",
        "page.html",
        "--samples",
        "real",
        "--samples",
        "fake",
    ),
    ("rank", "--results", "a.json", "b.json", "--by", "f1"),
    ("rank", "real", "fake", "runs/s1", *_CHEAP),
    ("entities", "expected.json", "answers.jsonl", "--vocabulary", "words.txt", "--json"),
    ("features", "fake", "out.safetensors", "--extractor", "pixels"),
    ("pack", "fake", "out.npz", "--force"),
    ("weights", "list"),
    ("weights", "verify"),
    ("weights", "fetch", "inception", "--offline"),
    ("cache", "list", "--json"),
    ("cache", "prune", "--max-size", "1KB", "--dry-run"),
    ("list", "metrics", "--json"),
    ("--help",),
    ("--version",),
)
_COMMANDS = sorted({line[0] for line in VALID_LINES if not line[0].startswith("-")} - {"list"})
_PLACES = (
    *(
        "real",
        "fake",
        "bad",
        "empty",
        "runs",
        "runs/s1",
        "real.safetensors",
        "fake.npy",
        "images.zip",
        "images.npz",
    ),
    *(
        "labels.csv",
        "prompts.csv",
        "expected.json",
        "answers.jsonl",
        "words.txt",
        "a.json",
        "b.json",
        "loop",
        "dangling",
    ),
    *(
        ".",
        "missing",
        "missing/x.html",
        "real/a/0.png",
        "/dev/null",
        "a.json/x",
        "out.csv",
        "out.html",
        "out.json",
    ),
)
_NUMBERS = (
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "1e-9",
    "1000000000",
    "9" * 30,
    "nan",
    "inf",
    "-inf",
    "1e400",
    "0x10",
    "٣",
    "1_0",
)
_WORDS = (
    *(
        "precision",
        "recall",
        "c_t",
        "fid",
        "nope",
        "precision=0.5",
        "precision=nan",
        "=",
        "a=b=c",
        "a,b",
        ",",
        "all",
    ),
    *(
        "pixels",
        "gabor",
        "pixels@bfloat16",
        "pixels@",
        "timm:x",
        "open_clip:a:b",
        "mine.py:nope",
        "missing.py:x",
        ":",
    ),
    *(
        "genpr",
        "kynkaanniemi2019",
        "improved",
        "strict",
        "cuda",
        "cuda:9",
        "cpu:0",
        "mps",
        "8GiB",
        "1KB",
        "30d",
        "#fff",
    ),
    *(
        "white",
        "apply",
        "skip",
        "knn",
        "linear",
        "-",
        "--",
        "--json",
        "--help",
        "-q",
        "-v",
        "--once",
        "folders",
        "beside",
    ),
)


@cache
def _options(command: str) -> tuple[click.Option, ...]:
    """All options of a command, and of its own commands."""
    found = cli.get_command(click.Context(cli), command)
    inside = [found, *(found.commands.values() if isinstance(found, click.Group) else ())]
    return tuple(param for each in inside if each for param in each.params if isinstance(param, click.Option))


def _word(rng: Random) -> str:
    word = rng.choice(rng.choice((_PLACES, _NUMBERS, _WORDS, NASTY)))
    return word.replace("\ud800", "\udcff").replace("\0", "\1")  # what no shell can pass


def _option(rng: Random, command: str) -> list[str]:
    """An option, mostly with a value of its type."""
    option = rng.choice(_options(command if command in _COMMANDS else rng.choice(_COMMANDS)))
    name = rng.choice((*option.opts, *option.secondary_opts))
    if option.is_flag or rng.random() < 0.05:
        return [name]
    word = _word(rng)
    if rng.random() < 0.7:
        if isinstance(option.type, click.Choice):
            word = str(rng.choice(option.type.choices))
        elif isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
            word = rng.choice(_NUMBERS)
        elif isinstance(option.type, click.Path):
            word = rng.choice(_PLACES)
        else:
            word = rng.choice(_WORDS + _PLACES)
    return rng.choice(([name, word], [name, word], [f"{name}={word}"], [name, word, name, word]))


def _damaged(rng: Random, data: bytes, how: int) -> bytes:
    line = json.loads(data)
    at = rng.randrange(len(line) + 1)
    match how:
        case 0:
            line[at : at + 1] = [_word(rng)]
        case 1:
            line.insert(at, _word(rng))
        case 2:
            del line[at : at + 1]
        case 3:
            rng.shuffle(line)
        case 4:
            line[max(1, at) : max(1, at)] = _option(rng, line[0] if line else "")
        case _:
            line += line[at:] * rng.choice((1, 40))
    return json.dumps(line).encode()


def _damage(how: int) -> Damage:
    return lambda rng, data: _damaged(rng, data, how)


LINE_DAMAGES: tuple[Damage, ...] = tuple(_damage(how) for how in (0, 0, 0, 1, 2, 3, *[4] * 12, 5))


@cache
def workplace() -> Path:
    """A folder with something of each kind; every run gets a copy."""
    root = Path(tempfile.mkdtemp(prefix="genpr-fuzz-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name, shift in (("real", 0), ("fake", 60), ("runs/s1", 90)):
        for n in range(6):
            path = root / name / "ab"[n % 2] / f"{n}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(np.roll(COLOUR, n, axis=0) + np.uint8(shift), "PNG"))
    for folder in ("bad", "empty"):
        (root / folder).mkdir()
    (root / "bad" / "0.png").write_bytes(b"no image")
    (root / "bad" / "1.png").write_bytes(encoded(COLOUR, "PNG")[:60])
    files = {
        "real.safetensors": made.feature_files()[0],
        "fake.npy": made.arrays()[1],
        "images.npz": made.zipped_arrays()[0],
        "images.zip": zip_of({f"{n}.png": image for n, image in enumerate(made.images())}, 0),
        "labels.csv": made.LABEL_ROWS[0],
        "prompts.csv": made.PROMPT_ROWS[0],
        "expected.json": json.dumps(made.EXPECTED).encode(),
        "answers.jsonl": made.ANSWER_LINES[1],
        "words.txt": b"cat\ndog\n",
        "a.json": made.result(5).to_json().encode(),
        "b.json": made.result(6).to_json().encode(),
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    (root / "loop").symlink_to(".")
    (root / "dangling").symlink_to("nowhere")
    return root


def run_line(data: bytes, folder: Path) -> str:
    """Run a line in a copy of the workplace, and look at all that a user would see."""
    line: list[str] = json.loads(data)
    if "watch" in line[:2]:
        line = [
            *line[: line.index("watch") + 1],
            "--once",
            *line[line.index("watch") + 1 :],
        ]  # else it waits for more
    place = folder / "place"
    shutil.copytree(workplace(), place, symlinks=True)
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=each)
        for each in ("strict", "backslashreplace")
    )
    before = Path.cwd()
    os.chdir(place)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(line)
    finally:
        os.chdir(before)
        sys.stdout.flush()
    for stream in (out, err):
        stream.flush()
    _check(code, *(stream.buffer.getvalue().decode() for stream in (out, err)), line)
    return f"exit {code}"


def _check(code: int, out: str, err: str, line: Sequence[str]) -> None:
    """What the page of promises says of every end."""
    assert code in {0, 2, 3, 4, 5}, f"exit {code}: {err}"
    assert "this is a bug" not in err
    assert "Traceback" not in err
    assert all(c.isprintable() or c == "\n" for c in out + err), "a terminal would obey this"
    errors = [each for each in err.splitlines() if each.startswith("error: ")]
    if code in {2, 3, 4} and err.strip() and not out.strip().startswith("Usage"):
        is_help = err.lstrip().startswith("Usage")
        assert len(errors) == 1 or is_help, f"not one error: {err}"
        assert is_help or err.splitlines()[-1] == errors[0], f"something follows the error: {err}"
        if "--json" in line and not is_help:
            assert json.loads(out)["error"]["exit_code"] == code
