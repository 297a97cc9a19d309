"""Tar archives: by offset when plain, as a stream when compressed, and never cut short in silence."""

from __future__ import annotations

import os
import pickle
import tarfile
import tracemalloc
import zipfile

import pytest
from image_files import IN_ORDER, MEMBERS, SMALL, encode, names, raised, refused_source

from genpr.errors import DataError, ImageError
from genpr.images.source import open_source

PNG = encode(SMALL)


COMPRESSIONS = [
    ("", ".tar"),
    ("gz", ".tar.gz"),
    ("gz", ".TGZ"),
    ("bz2", ".tar.bz2"),
    ("xz", ".txz"),
    ("gz", ".tar"),
]


@pytest.mark.parametrize(("compression", "suffix"), COMPRESSIONS)
def test_tar_members_keep_their_bytes(make_tar, compression, suffix):
    source = open_source(
        make_tar({name: name.encode() for name in MEMBERS}, name=f"set{suffix}", compression=compression)
    )
    order = MEMBERS if compression else IN_ORDER
    assert names(source) == order
    assert names(source) == order
    assert [item.read() for item in source] == [name.encode() for name in order]
    assert len(source) == len(MEMBERS)


@pytest.mark.parametrize("compression", ["", "gz"])
def test_tar_takes_images_only(make_tar, compression):
    members: dict = {
        name: pickle.dumps(os.getcwd) for name in ("a.pkl", "b.cls", "__MACOSX/x.png", "c/._x.png")
    }
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        info = tarfile.TarInfo(f"special{kind.decode()}.png")
        info.type, info.linkname = kind, "/etc/passwd"
        members[info] = b""
    members["../up.png"] = PNG
    members["long/" * 40 + "name.png"] = PNG  # needs an extended header
    source = open_source(make_tar(members, name="set.tar", compression=compression))
    assert sorted(names(source)) == ["../up.png", "long/" * 40 + "name.png"]
    assert {item.read() for item in source} == {PNG}


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.5, 0.8])
def test_a_tar_that_was_cut_is_refused(make_tar, compression, keep):
    path = make_tar({f"{index}.png": os.urandom(3000) for index in range(20)}, compression=compression)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    assert refused_source(path).code == "archive-damaged"


def test_a_tar_cut_between_members_is_refused(make_tar):
    path = make_tar({f"{index}.png": bytes(512) for index in range(20)})
    path.write_bytes(path.read_bytes()[: 10 * 1024])
    error = refused_source(path)
    assert error.code == "archive-damaged"
    assert "ends an archive" in str(error)


@pytest.mark.parametrize("compression", ["", "gz"])
def test_a_broken_tar_header_does_not_end_the_archive_in_silence(tmp_path, make_tar, compression):
    import gzip

    plain = make_tar({f"{index}.png": bytes(512) for index in range(20)})
    data = bytearray(plain.read_bytes())
    data[10 * 1024 + 150] ^= 0xFF  # the checksum of the eleventh header
    path = tmp_path / "broken.tar"
    path.write_bytes(gzip.compress(data) if compression else data)
    assert refused_source(path).code == "archive-damaged"


def test_what_is_no_tar_is_refused(tmp_path):
    (tmp_path / "page.tar").write_bytes(b"<html>" * 1000)
    assert refused_source(tmp_path / "page.tar").code == "archive-damaged"


def test_a_tar_that_shrank_is_told(make_tar):
    path = make_tar({"a.png": PNG, "b.png": PNG})
    first, second = open_source(path)
    path.write_bytes(path.read_bytes()[:1200])
    assert first.read() == PNG
    assert raised(ImageError, second.read).code == "unreadable"
    path.unlink()
    with pytest.raises(ImageError, match="No such file"):
        first.read()


def test_a_compressed_tar_that_changed_is_an_error(make_tar):
    path = make_tar({f"{index}.png": os.urandom(9000) for index in range(20)}, compression="gz")
    source = open_source(path)
    path.write_bytes(path.read_bytes()[:50_000])
    assert raised(DataError, list, source).code == "archive-damaged"


def test_streaming_a_compressed_tar_holds_one_image_at_a_time(make_tar):
    member = os.urandom(2**20)
    source = open_source(make_tar({f"{index}.png": member for index in range(24)}, compression="gz"))
    tracemalloc.start()
    assert sum(len(item.read()) for item in source) == 24 * 2**20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 2**20


def test_headers_of_a_long_tar_are_not_kept(make_tar):
    path = make_tar({f"{index:06d}.png": b"" for index in range(4000)}, compression="gz")
    tracemalloc.start()
    assert len(open_source(path)) == 4000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_members_too_large_to_be_images_are_not_read(make_zip, make_tar, monkeypatch):
    monkeypatch.setattr("genpr.images.item.MAX_ENCODED_BYTES", 10)
    monkeypatch.setattr("genpr.images.archive.MAX_ENCODED_BYTES", 10)
    monkeypatch.setattr("genpr.images.tar.MAX_ENCODED_BYTES", 10)
    members = {"a.png": bytes(11), "b.png": bytes(10)}
    for path in (
        make_zip(members),
        make_tar(members),
        make_tar(members, name="set.tar.gz", compression="gz"),
    ):
        large, allowed = open_source(path)
        assert allowed.read() == bytes(10)
        assert raised(ImageError, large.read).code == "image-too-large"


@pytest.mark.parametrize("name", ["set.zip", "set.tar"])
def test_an_archive_that_may_not_be_read_is_not_called_damaged(tmp_path, name, monkeypatch):
    (tmp_path / name).write_bytes(b"")
    denied = PermissionError(13, "Permission denied")

    def deny(*_, **__):
        raise denied

    monkeypatch.setattr(zipfile, "ZipFile", deny)
    monkeypatch.setattr("genpr.images.tar.regular_files", deny)
    error = refused_source(tmp_path / name)
    assert error.code == "unreadable"
    assert "Permission denied" in str(error)
