"""Names and places that lead elsewhere, or pose as something else: nothing is written but what was asked for."""

from __future__ import annotations

import json
import os
import signal
import socket
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from genpr.cli.console import show_notices
from genpr.cli.main import run
from genpr.errors import GenprError
from genpr.notices import Notice

CHEAP = ["--extractor", "pixels", "--no-intervals", "--no-control", "-q"]


@pytest.fixture
def sides(write_images, rng):
    return [
        str(write_images(name, rng.integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)))
        for name in ("real", "fake")
    ]


NAMES = [
    "../up.png",
    "/etc/up.png",
    "C:\\con.png",
    "aux.png",
    "a\nerror: forged.png",
    "\x1b]0;title\x07.png",
    "\u202egnp.png",
    "=cmd().png",
    "<b>.png",
    "~/x.png",
    "%2e%2e.png",
    "a" * 5000 + ".png",
]


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_in_archives_are_labels_in_every_output(tmp_path, sides, kind, capsys):
    from io import BytesIO

    rng, path = np.random.default_rng(0), tmp_path / f"x.{kind}"
    files = {}
    for name in NAMES:
        file = BytesIO()
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file, "PNG")
        files[name] = file.getvalue()
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(path, "w") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, BytesIO(data))
    before = {each for each in tmp_path.rglob("*") if "cache" not in str(each)}
    page, table = tmp_path / "page.html", tmp_path / "rows.csv"
    assert (
        run(["score", sides[0], str(path), *CHEAP, "--html", str(page), "--csv", str(table), "--json"]) == 0
    )
    assert {each for each in tmp_path.rglob("*") if "cache" not in str(each)} - before == {page, table}
    out, err = capsys.readouterr()
    assert all(c.isprintable() or c == "\n" for c in out + err)
    json.loads(out)
    html, rows = page.read_text(encoding="utf-8"), table.read_text(encoding="utf-8")
    for hostile in ("<b>.png", "\x1b", "\u202e", "\nerror: forged"):
        assert hostile not in html
    assert "\x1b" not in rows
    assert not any(line.startswith(("=", "+", "@", "-", "\t")) for line in rows.splitlines())


def test_one_error_is_one_line_whatever_is_in_it(capsys):
    forged = "x\nerror: nothing happened\x1b[2J\u202e"
    for line in (
        ["score", forged, forged],
        ["score", forged],
        ["compare", forged],
        ["watch", forged, forged, "--once"],
        ["--no-such\noption"],
        ["entities", forged, forged],
        ["align", forged, "--prompts", forged],
        ["rank", "--results", forged, forged],
        ["cache", "list", "--cache-dir", forged],
    ):
        assert run(line) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert err.startswith("error: ")
        assert all(c.isprintable() for c in err.removesuffix("\n"))


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "\U0001f600" * 10**6, "\x1b" * 10**6, "é\ud800" * 10**6], ids=range(4)
)
def test_errors_and_notices_are_below_two_kilobytes(text, capsys):
    error = GenprError(f"x {text} y", code="x", path=text)
    assert len(str(error).encode()) < 2000
    assert (str(error)[0], str(error)[-1]) == ("x", "y")
    assert str(error).isprintable()
    assert error.path == text
    shown = Notice("x", "note", f"x {text} y", text)
    assert len((shown.message + shown.hint).encode("utf-8", "surrogatepass")) < 2000
    show_notices([shown])
    assert len(capsys.readouterr().err.encode()) < 2000
    assert str(GenprError("as it is", code="x")) == "as it is"


LONG = "é" * 50_000


MANY = [str(number) for number in range(20_000)]


@pytest.mark.parametrize(
    "line",
    [
        *(["score", LONG, LONG], ["score", "r", "f", "--metrics", LONG], ["score", "r", "f", f"--{LONG}"]),
        *(
            ["score", "r", "f", "--k", LONG],
            ["score", "r", "f", "--fail-under", f"{LONG}=1"],
            ["score", *MANY],
        ),
        *(
            [LONG],
            ["list", LONG],
            ["compare", *MANY],
            ["weights", "fetch", LONG],
            ["watch", LONG, LONG, "--once"],
        ),
        *(
            ["cache", "prune", "--extractor", LONG],
            ["entities", LONG, LONG],
            ["align", "r", "--prompts", LONG],
        ),
    ],
    ids=range(14),
)
def test_messages_are_below_two_kilobytes(line, capsys):
    as_json = line[:2] != ["weights", "fetch"]
    assert run([*line, "--json"] if as_json else line) == 2
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 1
    assert len(err.encode()) < 2000
    if as_json:
        error = json.loads(out)["error"]
        assert len(error["message"].encode()) < 2000
        assert len((error["path"] or "").encode()) < 2000


@pytest.fixture
def no_waiting():
    """Fail instead of waiting for what never comes."""

    def end(*_):
        raise AssertionError("it waits for a special file")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def special_file(folder, kind):
    path = folder / "special"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(path))  # absolute names may be too long
    else:
        path = Path(kind)
        if not os.access(path, os.R_OK):
            pytest.skip(f"{path} cannot be read here")
    return path


SPECIAL = ["pipe", "socket", "/dev/zero", "/proc/kmsg", "/proc/self/status"]


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("kind", SPECIAL)
def test_special_files_in_a_list_are_bad_images(tmp_path, sides, kind, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, images = special_file(tmp_path, kind), sorted(Path(sides[0]).iterdir())
    (tmp_path / "x.txt").write_text("\n".join(map(str, [*images, path])))
    assert run(["score", str(tmp_path / "x.txt"), sides[1], *CHEAP, "--json"]) == 3
    (bad,) = json.loads(capsys.readouterr().out)["error"]["bad"]
    assert bad["path"] == str(path)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
@pytest.mark.parametrize(
    "line",
    [
        *(
            f"score x.{suffix} fake"
            for suffix in ("npy", "npz", "zip", "tar", "txt", "parquet", "safetensors")
        ),
        *(
            f"score real fake --per-class --real-labels x.{suffix} --fake-labels x.{suffix}"
            for suffix in ("csv", "json", "npy")
        ),
        *("entities x.jsonl x.json", "compare x.json x.json", "rank --results x.json x.json"),
        "watch run real --once --out x.jsonl",
        "score real fake --extractor inception --weights x.pth",
    ],
)
def test_special_files_are_not_read(tmp_path, sides, kind, line, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, line = special_file(tmp_path, kind), line.split()
    for name in {each for each in line if each.startswith("x.")}:
        Path(name).symlink_to(path)
    Path("run").mkdir()
    options = CHEAP[:2] if line[0] == "watch" else CHEAP if "--extractor" not in line else CHEAP[2:]
    assert run([*line, *(options if line[0] in {"score", "watch"} else [])]) in {2, 3, 4}
    assert "bug" not in capsys.readouterr().err
