"""Zip and tar archives: read in place, in a fixed order, and refused when damaged or hostile."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import struct
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import PNG, names, raised, refused_source

from genpr.errors import DataError, ImageError
from genpr.images.archive import regular_files
from genpr.images.source import open_source


@pytest.fixture(params=["stored", "deflated", "tar"])
def make(request, make_zip, make_tar):
    """Write an archive of members by their names."""
    if request.param == "tar":
        return make_tar
    method = zipfile.ZIP_STORED if request.param == "stored" else zipfile.ZIP_DEFLATED
    return lambda members: make_zip(members, compression=method)


def test_members_are_read_in_byte_order_of_names(make):
    members = ["B.webp", "a-b.png", "a.png", "a/c.JPG", "b.png", "é.png"]
    source = open_source(make({name: name.encode() for name in reversed(members)}))
    assert names(source) == list(source.names()) == members
    assert [item.read() for item in source] == [name.encode() for name in members]
    assert len(source) == len(members)


def test_only_visible_images_count_and_others_are_counted_with_links(make_zip, make_tar):
    members: dict = {
        name: pickle.dumps(os.getcwd)
        for name in ("a.pkl", "b.cls", "none", "__MACOSX/x.png", "c/._x.png", ".h/x.png")
    }
    link = zipfile.ZipInfo("link.png")
    link.external_attr = 0o120777 << 16
    images = {"../up.png": PNG, "d": PNG, "long/" * 40 + "name.png": PNG}  # needs an extended header
    zipped = make_zip([("a/", b""), (link, b"a.png"), *(members | images).items()])
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        info = tarfile.TarInfo(f"special{kind.decode()}.png")
        info.type, info.linkname = kind, "/etc/passwd"
        members[info] = b""
    for path, links in ((zipped, 1), (make_tar(members | images), 2)):
        source = open_source(path)
        assert names(source) == list(images)
        assert {item.read() for item in source} == {PNG}
        assert source.passed_over == {".pkl": 1, ".cls": 1, "none": 1, "hidden": 3, "link": links}


def test_shards_sum_what_they_pass_over(make_tar, tmp_path):
    for name in ("1.tar", "2.tar"):
        make_tar({"a.png": PNG, "a.cls": b"1", f"{name}.json": b""}, name=name)
    assert open_source(str(tmp_path / "[12].tar")).passed_over == {".cls": 2, ".json": 2}


@pytest.mark.parametrize("keep", [0.0, 0.02, 0.3, 0.8])
def test_truncated_archives_are_errors(make, keep):
    path = make({f"{index}.png": os.urandom(3000) for index in range(20)})
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    assert refused_source(path).code == "archive-damaged"


def test_broken_tar_header_is_an_error(make_tar):
    path = make_tar({f"{index}.png": bytes(512) for index in range(20)})
    data = bytearray(path.read_bytes())
    data[10 * 1024 + 150] ^= 0xFF  # the checksum of the eleventh header
    path.write_bytes(data)
    assert refused_source(path).code == "archive-damaged"


@pytest.mark.parametrize("kind", ["zip", "gzip", "bzip2", "xz"])
def test_other_archive_that_is_named_tar_is_an_error(make_zip, tmp_path, kind):
    data = make_zip({f"{index}.png": os.urandom(3000) for index in range(3)}).read_bytes()
    pack = {"zip": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}[kind]
    (tmp_path / "x.tar").write_bytes(pack(data))
    assert refused_source(tmp_path / "x.tar").code == "archive-damaged"


def test_members_of_a_tar_may_be_named_as_other_archives_begin(make_tar):
    assert names(open_source(make_tar({"BZh.png": PNG, "PK.png": PNG}))) == ["BZh.png", "PK.png"]


def test_archive_that_was_truncated_after_opening_is_an_error(make_tar):
    path = make_tar({"a.png": PNG, "b.png": PNG})
    first, second = open_source(path)
    path.write_bytes(path.read_bytes()[:1200])
    assert first.read() == PNG
    assert raised(ImageError, second.read).code == "unreadable"
    path.unlink()
    with pytest.raises(ImageError, match="No such file"):
        first.read()


# zip --------------------------------------------------------------------------------------------------------


def test_zip_of_many_members_is_listed_without_reading_them(make_zip, monkeypatch):
    path = make_zip({f"{index:05d}.png": b"" for index in range(20_000)})
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a member was read"))
    assert names(open_source(path)) == [f"{index:05d}.png" for index in range(20_000)]


def test_zip_bomb_is_an_error_before_it_is_read(make_zip, monkeypatch):
    path = make_zip({"bomb.png": bytes(65 * 2**20), "good.png": PNG}, compression=zipfile.ZIP_DEFLATED)
    bomb, good = open_source(path)
    assert good.read() == PNG
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("the bomb was read"))
    error = raised(ImageError, bomb.read)
    assert (error.code, error.path) == ("zip-bomb", "bomb.png")


@pytest.mark.parametrize("change", ["data", "encrypted", 9, 12, 14, 93])
def test_damaged_or_unsupported_zip_member_is_one_bad_image_or_passed_over(make_zip, change):
    """Encrypted, or compressed by Deflate64, bzip2, LZMA or Zstandard; without a suffix, nothing tells that it is an image."""
    path = make_zip({"a.png": PNG, "b.png": PNG})
    data = bytearray(path.read_bytes())
    directory = data.index(b"PK\x01\x02")
    if change == "data":
        data[data.index(PNG) + 50] ^= 1
    elif change == "encrypted":
        data[6] |= 1
        data[directory + 8] |= 1
    else:
        data[8:10] = data[directory + 10 : directory + 12] = struct.pack("<H", change)
    path.write_bytes(data)
    bad, good = open_source(path)
    assert good.read() == PNG
    error = raised(ImageError, bad.read)
    assert (error.code, error.path) == ("image-corrupt" if change == "data" else "unreadable", "a.png")
    assert ("is encrypted;" in str(error)) == (change == "encrypted")
    data = data.replace(b"\x89PNG", b"none", 1) if change == "data" else data
    path.write_bytes(data.replace(b"a.png", b"a.zzz"))
    assert open_source(path).passed_over == {".zzz": 1}


# Headers of tar ---------------------------------------------------------------------------------------------

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
KINDS = [
    *(tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE),
    *(tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE),
]
NAMES = st.text(st.sampled_from("ab/.é\udcff "), min_size=1, max_size=30).map(lambda text: f"d/{text}x.png")


def written(members, tar_format) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tar_format, errors="surrogateescape") as archive:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.mtime = kind, 1.5
            info.linkname = "t" * (90 if tar_format == tarfile.USTAR_FORMAT else 120)
            info.size = len(data) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def ours(data: bytes) -> list[tuple]:
    found = regular_files(io.BytesIO(data))
    return [(name.decode("utf-8", "surrogateescape"), at, size) for name, at, size in found]


def theirs(data: bytes) -> list[tuple]:
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        return [(member.name, member.offset_data, member.size) for member in archive if member.isreg()]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(NAMES, st.sampled_from(KINDS), st.binary(max_size=600)), max_size=6),
    st.sampled_from(FORMATS),
    st.integers(0, 3),
)
def test_headers_are_read_as_by_the_standard_library(members, tar_format, long):
    # 40, 80 and 120 characters more are a prefix in ustar, and an extended header in the others.
    members = [
        ("d" * 38 + "/" + name if long > at else name, *rest) for at, (name, *rest) in enumerate(members)
    ]
    members += [("/".join(["p" * 60] * (1 + long)) + "/z.png", tarfile.REGTYPE, b"last")] * (long < 3)
    data = written(members, tar_format)
    assert ours(data) == theirs(data)


def header(name=b"a.png", size=b"%011o\0" % 0, kind=b"0", magic=b"ustar\x0000", rest=b"") -> bytes:
    block = bytearray(
        name.ljust(100, b"\0") + bytes(24) + size + bytes(20) + kind + bytes(100) + magic
    ).ljust(345, b"\0")
    block = bytearray((bytes(block) + rest).ljust(512, b"\0"))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def extended(kind: bytes, data: bytes, size: int | None = None) -> bytes:
    padded = data.ljust(-(-len(data) // 512) * 512, b"\0")
    return header(kind=kind, size=b"%011o\0" % (len(data) if size is None else size)) + padded


END = bytes(1024)


@pytest.mark.parametrize(
    "data",
    [
        header(size=b"\x80" + (3).to_bytes(11, "big")) + b"abc".ljust(512, b"\0"),
        extended(b"x", b"10 size=5\n") + header() + b"12345".ljust(512, b"\0") + header(name=b"b.png"),
        *(header(kind=b"%d" % kind, size=b"%011o\0" % 512) + header(name=b"b.png") for kind in range(1, 7)),
        header(rest=b"folder"),
    ],
    ids=["binary-size", "record", "link", "symlink", "device", "block", "folder", "pipe", "prefix"],
)
def test_unusual_headers_are_read_as_by_the_standard_library(data):
    assert ours(data + END) == theirs(data + END) != []


HOSTILE = {
    "negative size": header(size=b"\xff" * 12),
    "absurd size": header(size=b"\x80" + b"\xff" * 11),
    "no number": header(size=b"12345678zz\0\0"),
    "large size": header(size=b"\x80" + (9 * 2**30).to_bytes(11, "big")),
    "long name of 8 GB": extended(b"L", b"a.png", size=8**11 - 1),
    "long name cut short": extended(b"L", b"a.png", size=5000)[:1024],
    "name of 2 MB": extended(b"L", b"a.png".rjust(2**21, b"d")) + header() + END,
    "records of 2 MB": extended(b"x", b"x" * 2**21),
    "record without length": extended(b"x", b"path=a.png\n"),
    "record longer than all": extended(b"x", b"99 path=a.png\n"),
    "record of no length": extended(b"x", b"0 path=a.png\n"),
    "record of negative length": extended(b"x", b"-5 path=a.png\n"),
    "negative size in a record": extended(b"x", b"11 size=-1\n") + header(),
    "no number in a record": extended(b"x", b"11 size=xx\n") + header(),
    "absurd size in a record": extended(b"x", b"32 size=9999999999999999999999\n\n") + header(),
    "file with holes": header(kind=b"S") + END,
    "file with holes in a record": extended(b"x", b"22 GNU.sparse.major=1\n") + header() + END,
    "name and nothing": extended(b"L", b"a.png\0"),
    "another archive after the end": END + header(name=b"other.png") + END,
    "another archive far behind the end": END + bytes(3 * 2**20) + header(name=b"other.png") + END,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=[name.replace(" ", "-") for name in HOSTILE])
def test_hostile_headers_are_errors(tmp_path, data):
    path = tmp_path / "x.tar"
    path.write_bytes(header(name=b"good.png") + data)
    assert raised(DataError, open_source, path).code == "archive-damaged"


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_changed_bytes_give_members_or_an_error(data):
    members = [("d" * 150 + ".png", tarfile.REGTYPE, b"x" * 700)] * 2
    whole = bytearray(written(members, data.draw(st.sampled_from(FORMATS[1:]))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 512 * 6))
        whole[at] = data.draw(st.integers(0, 255))
        start = at // 512 * 512  # with the sum put right, so that the change is looked at
        block = whole[start : start + 512]
        block[148:156] = b" " * 8
        if data.draw(st.booleans()):
            whole[start + 148 : start + 156] = struct.pack("8s", b"%06o\0 " % sum(block))
    try:
        found = ours(bytes(whole))
    except (tarfile.TarError, ValueError, OverflowError):
        return
    assert all(size >= 0 and at >= 512 for _, at, size in found)
