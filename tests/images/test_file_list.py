"""Lists of files: in a text file, on standard input, or as a pattern of images."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from image_files import SMALL, encode, names, raised

from genpr.cli.main import run
from genpr.errors import BadImagesError, DataError, ImageError, UsageError
from genpr.evaluation.evaluator import score
from genpr.evaluation.labels import open_labels
from genpr.evaluation.modes import find_modes
from genpr.features.feature_set import load_features
from genpr.features.inputs import open_input
from genpr.images.folder import _piped
from genpr.images.pack import pack
from genpr.images.source import open_source, subset
from genpr.limits import TEXT_BYTES

PNG = encode(SMALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with images in it and in a folder below."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("a.png", "sub/b c.png", "sub/#1.jpg"):
        (tmp_path / name).write_bytes(PNG + name.encode())
    return tmp_path


def listed(path: Path, data: bytes):
    path.write_bytes(data)
    return open_source(path)


@pytest.fixture
def piped(monkeypatch):
    """Put bytes on standard input."""

    def pipe(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return pipe


@pytest.mark.parametrize(
    "data",
    [
        b"sub/b c.png\na.png\nsub/#1.jpg\n",
        b"sub/b c.png\na.png\nsub/#1.jpg",
        b"sub/b c.png\r\na.png\r\n\r\nsub/#1.jpg\r\n",
        b"\xef\xbb\xbfsub/b c.png\n\n\na.png\nsub/#1.jpg\n",
        b"sub/b c.png\0a.png\0sub/#1.jpg\0",
    ],
    ids=["lines", "open-end", "crlf", "mark", "nul"],
)
def test_a_list_gives_its_files_in_its_order(here, data):
    source = listed(here / "list.txt", data)
    assert source.name == str(here / "list.txt")
    assert names(source) == list(source.names()) == ["sub/b c.png", "a.png", "sub/#1.jpg"]
    assert [item.read() for item in source] == [PNG + name.encode() for name in names(source)]
    assert len(source) == 3
    assert names(subset(source, 2, seed=0)) == [
        names(source)[place] for place in subset(source, 2, seed=0).rows
    ]


def test_paths_are_relative_to_the_list_and_may_lead_anywhere(here, monkeypatch):
    (here / "lists").mkdir()
    source = listed(here / "lists" / "l.txt", b"../a.png\n" + os.fsencode(here / "a.png") + b"\n../a.png\n")
    monkeypatch.chdir("/")
    assert len({item.read() for item in source}) == 1
    assert names(source) == ["../a.png", str(here / "a.png"), "../a.png"]


def test_names_of_any_bytes_but_the_end_of_a_line(here):
    for name in (b"\xff.png", b" x ", b"tab\t.png", b"q\r.png"):
        Path(os.fsdecode(name)).write_bytes(PNG)
    source = listed(here / "l.txt", b"\xff.png\n x \ntab\t.png\nq\r.png\n")
    assert [item.read() for item in source] == [PNG] * 4
    Path("new\nline.png").write_bytes(PNG)
    (item,) = listed(here / "l.txt", b"new\nline.png\0")
    assert item.read() == PNG


def test_what_cannot_be_read_is_a_bad_image(here):
    os.mkfifo("pipe.png")
    Path("loop.png").symlink_to("loop.png")
    lines = [
        "gone.png",
        "sub",
        "pipe.png",
        "/dev/zero",
        "loop.png",
        "x" * 5000,
        "a.png/b.png",
        "# comment",
        "https://x/a.png",
    ]
    source = listed(here / "l.txt", "\n".join([*lines, "a.png"]).encode())
    *bad, good = source
    for item in bad:
        error = raised(ImageError, item.read)
        assert error.code == "unreadable"
        assert error.path == item.name
    assert good.read()
    with pytest.raises(BadImagesError, match="9 of 10 images"):
        pack(here / "l.txt", here / "out.npz")


@pytest.mark.parametrize("data", [b"", b"\n\r\n\n", b"\xef\xbb\xbf", b"\0\0"])
def test_an_empty_list_has_no_images(here, data):
    assert raised(DataError, listed, here / "l.txt", data).code == "no-images"


def test_an_image_is_no_list(here):
    assert raised(UsageError, listed, here / "l.txt", PNG).code == "source-kind"


def test_an_absurd_list_is_refused(here):
    path = here / "l.txt"
    path.write_bytes(b"a.png\n")
    os.truncate(path, TEXT_BYTES + 1)  # without using the disk
    assert raised(DataError, open_source, path).code == "list-damaged"


def test_a_list_on_standard_input_is_relative_to_the_working_folder_and_read_once(here, piped):
    piped(b"a.png\nsub/b c.png\n")
    for _ in range(2):
        source = open_source("-")
        assert source.name == "<stdin>"
        assert [item.read() for item in source] == [PNG + name.encode() for name in ("a.png", "sub/b c.png")]
    piped(b"sub/#1.jpg\0")
    assert names(open_source("-")) == ["sub/#1.jpg"]


def test_a_file_called_like_standard_input_is_one(here, piped):
    Path("-").mkdir()
    Path("-/x.png").write_bytes(PNG)
    piped(b"a.png\n")
    assert names(open_source("-")) == ["a.png"]
    assert names(open_source("./-")) == ["x.png"]


def test_where_nothing_is_piped_nothing_is_waited_for(monkeypatch, piped):
    piped(b"a.png")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    streams = [sys.stdin, None]
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    for stream in (*streams, closed):
        monkeypatch.setattr(sys, "stdin", stream)
        assert raised(UsageError, open_source, "-").code == "no-stdin"


def test_processes_that_were_launched_together_share_no_standard_input(here, piped, monkeypatch):
    piped(b"a.png\n")
    _piped.cache_clear()
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert raised(UsageError, open_source, "-").code == "stdin-ranks"


def test_both_sides_cannot_come_on_standard_input(here, piped):
    piped(b"a.png\n" * 10)
    for both in (score, find_modes):
        assert raised(UsageError, both, "-", "-", extractor="pixels").code == "stdin-twice"


def test_lists_are_scored_as_the_folders_that_they_list(tmp_path, write_images, rng, piped, monkeypatch):
    for name in ("real", "fake"):
        write_images(f"{name}/x", rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8))
    monkeypatch.chdir(tmp_path)
    for name in ("real", "fake"):
        Path(f"{name}.txt").write_text("".join(f"{path}\n" for path in sorted(Path(name).rglob("*.png"))))
    piped(Path("fake.txt").read_bytes())
    folders = score("real", "fake", extractor="pixels")
    for given in (("real.txt", "fake.txt"), ("real.txt", "-"), ("real/x/*.png", "fake.txt")):
        found = score(*given, extractor="pixels")
        assert found.to_flat_dict() == folders.to_flat_dict()
        assert found.fake.n_cached == 30


def test_classes_of_a_list_are_folders_or_by_path(here):
    source = listed(here / "l.txt", b"sub/b c.png\nother/a.png\n")
    labels = open_labels(None, source, "real")
    assert labels.match(names(source), range(2), 2) == ["sub", "other"]
    (here / "labels.csv").write_text("other/a.png,x\nsub/b c.png,y\n")
    labels = open_labels(here / "labels.csv", source, "real")
    assert labels.match(names(source), range(2), 2) == ["y", "x"]


def test_a_pattern_of_images_is_a_list(here):
    source = open_source("{a.png,sub/*}")
    assert names(source) == ["a.png", "sub/#1.jpg", "sub/b c.png"]
    assert [item.read() for item in source] == [PNG + name.encode() for name in names(source)]
    (here / "x.txt").write_bytes(b"")
    assert raised(UsageError, open_source, "{a.png,x.txt}").code == "mixed-kinds"


def test_a_list_of_features_commands_is_cached_like_files(here, piped):
    piped(b"a.png\n")
    opened = open_input("-", "real")
    assert opened.on_disk
    assert open_input(opened.source, "real").on_disk


def test_a_list_is_piped_into_the_command_line(here, piped, capsys):
    for number in range(8):
        (here / f"{number}.png").write_bytes(encode(SMALL + np.uint8(number)))
    piped(b"\0".join(b"./%d.png" % number for number in range(8)))
    assert run(["features", "-", "out.safetensors", "--extractor", "pixels", "--quiet"]) == 0
    assert "wrote 8 x" in capsys.readouterr().out
    names_kept = load_features(here / "out.safetensors").names
    assert names_kept == tuple(f"./{number}.png" for number in range(8))
