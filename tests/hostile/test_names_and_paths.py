"""Hostile names and paths: only requested files are written, and special files are not read."""

import json
import os
from pathlib import Path

import pytest
from archives import tar_of, zip_of
from image_files import encode, noise

from genpr.cli.console import print_stderr
from genpr.cli.main import run
from genpr.errors import GenprError
from genpr.notices import Notice

CHEAP = ["--extractor", "pixels", "--no-intervals", "--no-control", "-q"]


NAMES = [
    *("../up.png", "/etc/up.png", "C:\\con.png", "aux.png", "a\nerror: forged.png", "\x1b]0;title\x07.png"),
    *("\u202egnp.png", "=cmd().png", "<b>.png", "~/x.png", "%2e%2e.png", "a" * 5000 + ".png"),
]


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_in_archives_are_only_labels_in_every_output(tmp_path, sides, kind, capsys):
    path, files = tmp_path / f"x.{kind}", {name: encode(noise(8, 8, n)) for n, name in enumerate(NAMES)}
    path.write_bytes((zip_of if kind == "zip" else tar_of)(files))
    before = {each for each in tmp_path.rglob("*") if "cache" not in str(each)}
    page, table = tmp_path / "page.html", tmp_path / "rows.csv"
    args = ["score", sides[0], path, *CHEAP, "--html", page, "--csv", table, "--json"]
    assert run([*map(str, args)]) == 0
    assert {each for each in tmp_path.rglob("*") if "cache" not in str(each)} - before == {page, table}
    out, err = capsys.readouterr()
    assert all(c.isprintable() or c == "\n" for c in out + err)
    json.loads(out)
    html, rows = page.read_text(encoding="utf-8"), table.read_text(encoding="utf-8")
    for hostile in ("<b>.png", "\x1b", "\u202e", "\nerror: forged"):
        assert hostile not in html
    assert "\x1b" not in rows
    assert not any(line.startswith(("=", "+", "@", "-", "\t")) for line in rows.splitlines())


def test_one_error_is_one_line_with_any_content(capsys):
    forged = "x\nerror: nothing happened\x1b[2J\u202e"
    lines = "score X X;score X;compare X;watch X X --once;--no-suchX;entities X X;align X --prompts X"
    for line in f"{lines};rank --results X X;cache list --cache-dir X".split(";"):
        line = [word.replace("X", forged) for word in line.split()]
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
    print_stderr(str(shown))
    assert len(capsys.readouterr().err.encode()) < 2000
    assert str(GenprError("as it is", code="x")) == "as it is"


READERS = [
    *(f"score x.{suffix} fake" for suffix in ("npy", "npz", "zip", "tar", "txt", "parquet", "safetensors")),
    *(
        f"score real fake --per-class --real-labels x.{kind} --fake-labels x.{kind}"
        for kind in ("csv", "json", "npy")
    ),
    *("entities x.jsonl x.json", "compare x.json x.json", "rank --results x.json x.json"),
    *("watch run real --once --log x.jsonl", "score real fake --extractor inception --weights x.pth"),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
@pytest.mark.parametrize("line", READERS)
def test_special_files_are_not_read(tmp_path, sides, kind, line, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, line = tmp_path / "pipe" if kind == "pipe" else kind, line.split()
    os.mkfifo(tmp_path / "pipe")
    for name in {each for each in line if each.startswith("x.")}:
        Path(name).symlink_to(path)
    Path("run").mkdir()
    options = CHEAP[:2] if line[0] == "watch" else CHEAP if "--extractor" not in line else CHEAP[2:]
    assert run([*line, *(options if line[0] in {"score", "watch"} else [])]) in {2, 3, 4}
    assert "bug" not in capsys.readouterr().err
