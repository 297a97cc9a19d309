"""Folders and lists of files: which files count, in which order, and links that are followed only on request."""

import json
import os
import socket
from contextvars import copy_context
from functools import partial
from pathlib import Path

import pytest
from image_files import PNG, names, raised, write_files

from genpr.cli.main import run
from genpr.errors import DataError, ImageError, UsageError
from genpr.images.folder import follow_links
from genpr.images.source import open_source, subset
from genpr.limits import TEXT_BYTES
from genpr.storage import open_regular


@pytest.fixture
def put(tmp_path):
    """Write files below a new folder "images" and give its path."""
    return partial(write_files, tmp_path / "images")


def test_files_are_in_byte_order_of_their_relative_paths(put):
    expected = ["B.png", "a-b.png", "a.png", "a/b.png", "a/é.png", "a0.png", "b.PNG", "é.png"]
    root = put(*reversed(expected))
    source = open_source(root)
    assert names(source) == sorted(expected, key=lambda name: name.encode())
    assert names(source) == names(source)
    assert len(source) == len(expected)
    assert {item.read() for item in source} == {PNG}


SUFFIXES = ("png", "JPG", "JpEg", "webp", "bmp", "ppm", "pgm", "pbm", "pnm", "TIF", "tiff", "gif", "avif")
HIDDEN = (".x.png", "._x.png", ".png", ".git/x.png", "a/.thumbs/x.png", "__MACOSX/x.png")
OTHERS = ("x.txt", "x.png.part", "x.pkl", "x.npy", "Thumbs.db")
SIGNED = ("x", "png", "x.heic", "x.png.1", "y.z")


def test_visible_files_with_the_suffix_or_else_the_signature_of_an_image_are_images(put):
    counted = [*(f"x.{suffix}" for suffix in (*SUFFIXES, "y z.png")), *SIGNED]
    put("notes", "a.unknown", data=b"text")
    assert names(open_source(put(*counted, *HIDDEN, *OTHERS))) == sorted(counted)


def test_first_bytes_are_read_only_if_the_suffix_tells_nothing(put, monkeypatch):
    root, opened = put("a.png", "b.heic", "c.json", "d.foo", "e", ".f", "__MACOSX/g"), []
    monkeypatch.setattr(
        "genpr.images.folder.open_regular", lambda path: opened.append(path.name) or open_regular(path)
    )
    open_source(root)
    assert sorted(opened) == ["d.foo", "e"]


def test_files_passed_over_are_counted_by_suffix(put):
    root = put("a.png", "b.TXT", "c/d.txt", "e.json", ".hidden", "c/.x.png", ".git/objects.png", "__MACOSX/x")
    put("readme", data=b"text")
    (root / "link").symlink_to(root / "c", target_is_directory=True)
    source = open_source(root)
    assert source.passed_over == {"hidden": 3, ".txt": 2, ".json": 1, "link": 1, "none": 1}
    assert subset(source, 1, seed=0).passed_over == source.passed_over


def test_rare_suffixes_are_counted_together(put):
    root = put("a.png", *(f"{index}.x{index}" for index in range(30)), data=b"text")
    (root / ("long" + ".s" * 100)).write_bytes(b"text")
    counts = open_source(root).passed_over
    assert (len(counts), counts["other"], sum(counts.values())) == (21, 11, 31)


def test_error_of_a_folder_without_images_lists_its_suffixes(put):
    error = raised(DataError, open_source, put("a.txt", "b.txt", "c/d.NPY", "noext", data=b"text"))
    assert error.code == "no-images"
    assert ".txt (2), .npy (1), none (1)" in str(error)


@pytest.mark.parametrize("target", ["nowhere.png", "loop.png"])
def test_broken_link_is_a_bad_image(put, target):
    root = put("a.png")
    (root / "loop.png").symlink_to(root / target)
    good, bad = open_source(root)
    assert good.read() == PNG
    error = raised(ImageError, bad.read)
    assert (error.code, error.path) == ("unreadable", "loop.png")


def test_pipes_are_ignored(put):
    root = put("a.png")
    os.mkfifo(root / "pipe.png")
    (root / "link.png").symlink_to(root / "pipe.png")
    assert names(open_source(root)) == ["a.png"]


def test_folder_that_cannot_be_listed_is_an_error(put, monkeypatch):
    root = put("a.png", "locked/b.png")
    scan = os.scandir

    def denied(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert raised(DataError, open_source, root).code == "unreadable"


def test_file_that_grows_while_it_is_read_is_a_bad_image(put, monkeypatch):
    root = put("a.png")

    def grow(*_):
        with (root / "a.png").open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr("genpr.images.folder.check_encoded_size", grow)
    (item,) = open_source(root)
    assert raised(ImageError, item.read).code == "unreadable"


# Links to folders -------------------------------------------------------------------------------------------


def followed(path):
    """Open a source and follow links to folders."""

    def opened():
        follow_links()
        return open_source(path)

    return copy_context().run(opened)


def link(path, target):
    path.symlink_to(target, target_is_directory=True)


@pytest.fixture
def root(tmp_path):
    """A folder with a loop, with links into itself, and to a folder elsewhere, which links back."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    write_files(root, "a/deep/x.png")
    write_files(outside, "inner/x.png", "z/x.png")
    link(root / "a" / "loop", root)
    link(root / "0 again", root / "a")
    link(root / "c", outside / "inner")  # comes before the link to what holds it
    link(root / "d", outside)
    link(outside / "z" / "back", root / "a" / "deep")
    link(root / ".hidden", outside)
    link(root / "itself", "itself")
    (root / "broken.png").symlink_to(root / "nowhere")
    (root / "file.png").symlink_to(outside / "z" / "x.png")
    return root


@pytest.mark.parametrize("order", [sorted, lambda entries, key: sorted(entries, key=key, reverse=True)])
def test_every_folder_counts_once_under_its_path_without_links_or_the_first_one(root, monkeypatch, order):
    """For any order of the entries of the file system."""
    scan = os.scandir

    class Ordered:
        def __init__(self, path):
            with scan(path) as entries:
                self.entries = order(entries, key=lambda entry: entry.name)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", Ordered)
    assert names(open_source(root)) == ["a/deep/x.png", "broken.png", "file.png"]
    assert names(followed(root)) == ["a/deep/x.png", "broken.png", "c/x.png", "d/z/x.png", "file.png"]


def test_command_follows_links_only_if_requested(sides, tmp_path, capsys):
    """The option of one command does not apply to the next."""
    folder = tmp_path / "linked"
    folder.mkdir()
    link(folder / "cat", sides[0])
    score = f"score {folder} {folder} -q --json --extractor pixels --no-control --no-intervals --k 1".split()
    assert run([*score, "--follow-symlinks"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert run(score) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no-images"


# Lists ------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with images in it and in a subfolder."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "sub/b c.png", "sub/#1.jpg"):
        write_files(tmp_path, name, data=PNG + name.encode())
    return tmp_path


def listed(path: Path, data: bytes):
    path.write_bytes(data)
    return open_source(path)


@pytest.mark.parametrize(
    "data",
    [
        b"sub/b c.png\na.png\nsub/#1.jpg\n",
        b"sub/b c.png\r\na.png\r\n\r\nsub/#1.jpg\r\n",
        b"\xef\xbb\xbfsub/b c.png\n\n\na.png\nsub/#1.jpg",
        b"sub/b c.png\0a.png\0sub/#1.jpg\0",
    ],
    ids=["lines", "crlf", "mark", "nul"],
)
def test_list_yields_its_files_in_order(here, data):
    source = listed(here / "list.txt", data)
    assert source.name == str(here / "list.txt")
    assert names(source) == list(source.names()) == ["sub/b c.png", "a.png", "sub/#1.jpg"]
    assert [item.read() for item in source] == [PNG + name.encode() for name in names(source)]
    assert len(subset(source, 2, seed=0)) == 2


def test_paths_are_relative_to_the_list_and_may_be_in_any_folder(here, monkeypatch):
    (here / "lists").mkdir()
    source = listed(here / "lists" / "l.txt", b"../a.png\n" + os.fsencode(here / "a.png") + b"\n../a.png\n")
    monkeypatch.chdir("/")
    assert len({item.read() for item in source}) == 1
    assert names(source) == ["../a.png", str(here / "a.png"), "../a.png"]


def test_names_may_contain_any_bytes_except_newlines(here):
    for name in (b"\xff.png", b" x ", b"tab\t.png", b"q\r.png"):
        Path(os.fsdecode(name)).write_bytes(PNG)
    source = listed(here / "l.txt", b"\xff.png\n x \ntab\t.png\nq\r.png\n")
    assert [item.read() for item in source] == [PNG] * 4


def test_unreadable_entry_is_a_bad_image(here):
    os.mkfifo("pipe.png")
    Path("loop.png").symlink_to("loop.png")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    bad = ["none.png", "sub", "pipe.png", "loop.png", "socket", "a.png/b.png", "https://x/a.png", "/dev/zero"]
    *items, good = listed(here / "l.txt", "\n".join([*bad, "x" * 5000, "a.png"]).encode())
    for item in items:
        error = raised(ImageError, item.read)
        assert (error.code, error.path) == ("unreadable", item.name)
    assert good.read()
    (process,) = listed(here / "l.txt", b"/proc/self/status")
    assert process.read() == b""


@pytest.mark.parametrize("first", [b"P1/a.png", b"P6.png", b"BM/a.png", b"BM0123456789abc.png"])
def test_list_may_begin_with_the_signature_of_an_image(here, first):
    for end in (b"\n", b"\0"):
        assert names(listed(here / "l.txt", first + end + b"b.png" + end)) == [first.decode(), "b.png"]


def test_files_that_are_not_lists_are_errors(here):
    path = here / "l.txt"
    assert raised(DataError, listed, path, b"\n\r\n\n").code == "no-images"
    assert raised(UsageError, listed, path, PNG).code == "source-kind"
    os.truncate(path, TEXT_BYTES + 1)  # without using the disk
    assert raised(DataError, open_source, path).code == "list-damaged"


def test_pattern_of_images_is_a_list(here):
    source = open_source("{a.png,sub/*}")
    assert names(source) == ["a.png", "sub/#1.jpg", "sub/b c.png"]
    assert [item.read() for item in source] == [PNG + name.encode() for name in names(source)]
