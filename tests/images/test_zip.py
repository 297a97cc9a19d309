"""Zip archives: read in place, in a fixed order, by many threads, and refused when damaged or hostile."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import pytest
from image_files import IN_ORDER, MANY, MEMBERS, SMALL, encode, names, raised, refused_source

from genpr.errors import ImageError
from genpr.images.source import open_source

PNG = encode(SMALL)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zip_members_come_in_byte_order_with_their_bytes(make_zip, compression):
    source = open_source(make_zip({name: name.encode() for name in MEMBERS}, compression=compression))
    assert names(source) == IN_ORDER
    assert [item.read() for item in source] == [name.encode() for name in IN_ORDER]
    assert len(source) == len(MEMBERS)


def test_zip_names_are_labels_and_nothing_is_written(make_zip, tmp_path):
    hostile = ["../up.png", "/abs.png", "C:\\windows.png", "a/../../x.png"]
    path = make_zip(dict.fromkeys(hostile, PNG))
    before = [*tmp_path.rglob("*"), *tmp_path.parent.iterdir(), *Path.cwd().iterdir()]
    source = open_source(path)
    assert names(source) == sorted(hostile)
    assert {item.read() for item in source} == {PNG}
    assert [*tmp_path.rglob("*"), *tmp_path.parent.iterdir(), *Path.cwd().iterdir()] == before


def test_zip_leaves_out_folders_links_and_what_is_hidden(make_zip):
    link = zipfile.ZipInfo("link.png")
    link.external_attr = 0o120777 << 16
    members = [
        "a/",
        "__MACOSX/a/._b.png",
        "a/._b.png",
        ".hidden/b.png",
        "a/.b.png",
        "readme.txt",
        "model.pkl",
    ]
    path = make_zip(
        [(name, b"") for name in members] + [(link, b"a/b.png"), ("a/b.png", PNG), ("./c.png", PNG)]
    )
    assert names(open_source(path)) == ["./c.png", "a/b.png"]


def test_zip_counts_equal_names_once_per_entry(make_zip):
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = make_zip([("a.png", b"first"), ("a.png", b"second")])
    source = open_source(path)
    assert len(source) == 2
    assert [item.read() for item in source] == [b"first", b"second"]


def test_zip_of_many_members_is_listed_without_reading_them(make_zip, monkeypatch):
    path = make_zip({f"{index:05d}.png": b"" for index in range(20_000)})
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a member was read"))
    assert names(open_source(path)) == [f"{index:05d}.png" for index in range(20_000)]


def test_encrypted_zip_is_refused(make_zip):
    path = make_zip({"a.png": PNG})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    error = refused_source(path)
    assert error.code == "zip-encrypted"


def test_zip_bomb_is_refused_before_it_is_read(make_zip, monkeypatch):
    path = make_zip({"bomb.png": bytes(65 * 2**20), "good.png": PNG}, compression=zipfile.ZIP_DEFLATED)
    bomb, good = open_source(path)
    assert good.read() == PNG
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("the bomb was read"))
    error = raised(ImageError, bomb.read)
    assert (error.code, error.path) == ("zip-bomb", "bomb.png")


def test_zip_members_that_are_only_large_or_only_dense_are_read(make_zip, monkeypatch):
    monkeypatch.setattr("genpr.limits.UNPACKED_BYTES", 10_000)
    noise = os.urandom(20_000)
    path = make_zip({"dense.png": bytes(9_000), "large.png": noise}, compression=zipfile.ZIP_DEFLATED)
    assert [item.read() for item in open_source(path)] == [bytes(9_000), noise]


@pytest.mark.parametrize("keep", [0, 4, 100, -30])
def test_broken_zip_is_refused(make_zip, keep):
    path = make_zip(MANY)
    path.write_bytes(path.read_bytes()[:keep])
    error = refused_source(path)
    assert error.code == "archive-damaged"
    assert "cut short" in str(error)


def test_a_damaged_zip_member_costs_one_image(make_zip):
    path = make_zip({"a.png": PNG, "b.png": PNG})
    data = bytearray(path.read_bytes())
    data[data.index(PNG) + 50] ^= 1
    path.write_bytes(data)
    bad, good = open_source(path)
    assert good.read() == PNG
    error = raised(ImageError, bad.read)
    assert (error.code, error.path) == ("image-corrupt", "a.png")


@pytest.mark.parametrize("method", [9, 12, 14, 93])  # Deflate64, bzip2, LZMA, Zstandard
def test_other_compressions_of_a_zip_are_told(make_zip, method):
    path = make_zip({"a.png": PNG})
    data = bytearray(path.read_bytes())
    data[8:10] = struct.pack("<H", method)
    at = data.index(b"PK\x01\x02") + 10
    data[at : at + 2] = struct.pack("<H", method)
    path.write_bytes(data)
    (item,) = open_source(path)
    assert raised(ImageError, item.read).code == "unreadable"


def test_latents_in_a_zip_are_told_from_images(make_zip):
    members = {f"00000/img0000000{number}.npy": b"\x93NUMPY" for number in range(3)} | {"dataset.json": b"{}"}
    error = refused_source(make_zip(members))
    assert error.code == "no-images"
    assert ".npy (3)" in str(error)
    assert "latents" in str(error)


def test_a_folder_of_shards_is_told_how_to_name_them(make_tar, tmp_path):
    make_tar({"a.png": b"x"})
    error = refused_source(tmp_path)
    assert "say '*.tar' behind the folder" in str(error)


def test_a_member_without_a_name_is_none_of_the_images(make_zip):
    path = make_zip({"a.png": encode(SMALL), "x": b""})
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\1\2")  # the directory's entry for x, whose name is made its comment
    data[at + 28 : at + 34] = (0).to_bytes(2, "little") * 2 + (1).to_bytes(2, "little")
    path.write_bytes(data)
    assert names(open_source(path)) == ["a.png"]
