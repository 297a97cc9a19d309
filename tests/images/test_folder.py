"""Folders: which files count, in which order, and what is said when there are none."""

from __future__ import annotations

import os

import pytest
from image_files import SMALL, encode, names, raised

from genpr.errors import DataError, ImageError
from genpr.images.folder import open_folder
from genpr.images.source import open_source

PNG = encode(SMALL)


@pytest.fixture
def put(tmp_path):
    """Write files below a new folder "images" and give its path."""
    root = tmp_path / "images"
    root.mkdir()

    def write(*names: str, data: bytes = PNG):
        for name in names:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return root

    return write


def test_files_come_in_byte_order_of_their_relative_paths(put):
    wanted = ["B.png", "a-b.png", "a.png", "a/b.png", "a/é.png", "a0.png", "b.PNG", "é.png"]
    root = put(*reversed(wanted))
    source = open_source(root)
    assert names(source) == sorted(wanted, key=lambda name: name.encode())
    assert names(source) == names(source)
    assert len(source) == len(wanted)
    assert source.name == str(root)


def test_order_does_not_depend_on_the_file_system(put, monkeypatch):
    root = put(*(f"{i % 3}/{i}.png" for i in range(30)))
    before = names(open_source(root))
    scan = os.scandir

    class Reversed:
        def __init__(self, path):
            with scan(path) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", Reversed)
    assert names(open_source(root)) == before


def test_items_read_the_bytes_of_their_files(put):
    root = put("a.png", data=b"first")
    put("sub/b.jpg", data=b"second")
    assert [item.read() for item in open_source(root)] == [b"first", b"second"]


NAMES = ["x.png", "x.JPG", "x.JpEg", "x.webp", "x.bmp", "x.ppm", "x.pgm", "x.pbm", "x.pnm", "x.TIF", "x.tiff"]


@pytest.mark.parametrize("name", [*NAMES, "x.gif", "x.avif", "two.dots.png", "name with spaces.png"])
def test_image_suffixes_count_in_any_case(put, name):
    assert names(open_source(put(name))) == [name]


HIDDEN = [".x.png", "._x.png", ".png", ".git/x.png", "a/.thumbs/x.png", "__MACOSX/x.png"]


@pytest.mark.parametrize("name", [*HIDDEN, "x.txt", "x", "png", "x.png.part", "x.pkl", "x.npy", "x.heic"])
def test_other_and_hidden_files_do_not_count(put, name):
    root = put(name, "kept.png")
    assert names(open_source(root)) == ["kept.png"]


def test_a_link_loop_counts_one_image_once(put):
    root = put("deep/one.png")
    (root / "deep" / "loop").symlink_to(root, target_is_directory=True)
    (root / "other").symlink_to(root / "deep", target_is_directory=True)
    assert names(open_source(root)) == ["deep/one.png"]


def test_links_to_files_are_followed(put, tmp_path):
    (tmp_path / "outside.png").write_bytes(b"outside")
    root = put("a.png")
    (root / "link.png").symlink_to(tmp_path / "outside.png")
    source = open_source(root)
    assert names(source) == ["a.png", "link.png"]
    assert list(source)[1].read() == b"outside"


def test_the_folder_itself_may_be_a_link(put, tmp_path):
    (tmp_path / "link").symlink_to(put("a.png"), target_is_directory=True)
    assert names(open_source(tmp_path / "link")) == ["a.png"]


@pytest.mark.parametrize("target", ["nowhere.png", "loop.png"])
def test_a_broken_link_is_told_and_not_passed_over(put, target):
    root = put("a.png")
    (root / "loop.png").symlink_to(root / target)
    good, bad = open_source(root)
    assert good.read() == PNG
    error = raised(ImageError, bad.read)
    assert (error.code, error.path) == ("unreadable", "loop.png")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_are_passed_over_because_reading_them_would_never_end(put):
    root = put("a.png")
    os.mkfifo(root / "pipe.png")
    (root / "link.png").symlink_to(root / "pipe.png")
    assert names(open_source(root)) == ["a.png"]


def test_a_file_that_vanished_is_told(put):
    root = put("a.png", "b.png")
    first, _ = open_source(root)
    (root / "a.png").unlink()
    assert raised(ImageError, first.read).code == "unreadable"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_told(put):
    root = put("a.png", "locked/b.png")
    (root / "a.png").chmod(0)
    first, _ = open_source(root)
    with pytest.raises(ImageError, match="Permission denied"):
        first.read()
    (root / "locked").chmod(0)
    with pytest.raises(DataError, match=r"locked.*cannot be listed"):
        open_source(root)
    (root / "locked").chmod(0o700)


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_a_smaller_set(put, monkeypatch):
    root = put("a.png", "locked/b.png")
    scan = os.scandir

    def denied(path):
        if str(path).endswith("locked/"[:-1]):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert raised(DataError, open_source, root).code == "unreadable"


@pytest.mark.parametrize("names_inside", [(), (".DS_Store", ".git/x.png")])
def test_an_empty_folder_is_refused(put, names_inside):
    assert raised(DataError, open_source, put(*names_inside)).code == "no-images"


def test_a_folder_without_images_says_what_it_has(put):
    root = put("a.txt", "b.txt", "c/d.NPY", "noext")
    error = raised(DataError, open_folder, root, "reals/")
    assert "reals/ has no images" in str(error)
    assert "4 other files" in str(error)
    assert ".txt (2), .npy (1), none (1)" in str(error)
    assert ".png" in str(error)


def test_files_too_large_to_be_images_are_not_read(put, monkeypatch):
    monkeypatch.setattr("genpr.images.folder.MAX_ENCODED_BYTES", 10)
    root = put("a.png", data=bytes(11))
    put("b.png", data=bytes(10))
    large, allowed = open_source(root)
    assert raised(ImageError, large.read).code == "image-too-large"
    assert allowed.read() == bytes(10)


def test_undecodable_and_strange_names_are_labels(tmp_path):
    raw = os.fsencode(tmp_path) + b"/new\nline\xff.png"
    with open(raw, "wb") as file:  # noqa: PTH123 - pathlib takes no bytes
        file.write(PNG)
    (item,) = open_source(tmp_path)
    assert item.name == "new\nline\udcff.png"
    assert item.read() == PNG
