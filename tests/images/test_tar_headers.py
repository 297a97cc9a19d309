"""The reader of tar headers against the standard library's, on whatever tools write, and against what nobody should."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import raised

from genpr.errors import DataError
from genpr.images.source import open_source
from genpr.images.tar import regular_files

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
KINDS = [
    tarfile.REGTYPE,
    tarfile.AREGTYPE,
    tarfile.CONTTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
]
NAMES = st.text(st.sampled_from("ab/.é\udcff "), min_size=1, max_size=30).map(lambda text: f"d/{text}x.png")


def written(members, tar_format) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tar_format, errors="surrogateescape") as archive:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mtime = (
                kind,
                "t" * (90 if tar_format == tarfile.USTAR_FORMAT else 120),
                1.5,
            )
            info.size = len(data) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def ours(data: bytes) -> list[tuple]:
    return [
        (name.decode("utf-8", "surrogateescape"), at, size)
        for name, at, size in regular_files(io.BytesIO(data))
    ]


def theirs(data: bytes) -> list[tuple]:
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        return [(member.name, member.offset_data, member.size) for member in archive if member.isreg()]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(NAMES, st.sampled_from(KINDS), st.binary(max_size=600)), max_size=6),
    st.sampled_from(FORMATS),
    st.integers(0, 3),
)
def test_headers_are_read_as_the_standard_library_does(members, tar_format, long):
    # 40, 80 and 120 characters more are a prefix in ustar, and an extended header in the others.
    members = [
        ("d" * 38 + "/" + name if long > at else name, *rest) for at, (name, *rest) in enumerate(members)
    ]
    members += [("/".join(["p" * 60] * (1 + long)) + "/z.png", tarfile.REGTYPE, b"last")] * (long < 3)
    data = written(members, tar_format)
    assert ours(data) == theirs(data)


@pytest.mark.parametrize("tar_format", FORMATS[1:], ids=["gnu", "pax"])
@pytest.mark.parametrize("length", [99, 100, 101, 255, 256, 257, 5000])
def test_long_names_are_read_in_full(tar_format, length):
    name = "é" + "n" * (length - 6) + ".png"
    data = written([(name, tarfile.REGTYPE, b"1"), ("short.png", tarfile.REGTYPE, b"2")], tar_format)
    assert [(each, data[at : at + size]) for each, at, size in ours(data)] == [
        (name, b"1"),
        ("short.png", b"2"),
    ]


def test_names_in_records_of_all_files_hold_for_all():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", pax_headers={"comment": "x", "path": "all.png"}) as archive:
        for name in "ab":
            archive.addfile(tarfile.TarInfo(name))
    assert [name for name, *_ in ours(file.getvalue())] == [name for name, *_ in theirs(file.getvalue())]
    assert ours(file.getvalue())[0][0] == "all.png"


def header(name=b"a.png", size=b"%011o\0" % 0, kind=b"0", magic=b"ustar\x0000", rest=b"") -> bytes:
    block = bytearray(
        name.ljust(100, b"\0") + bytes(24) + size + bytes(20) + kind + bytes(100) + magic
    ).ljust(345, b"\0")
    block = bytearray((bytes(block) + rest).ljust(512, b"\0"))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


END = bytes(1024)


def test_sizes_of_more_than_octal_digits_are_read():
    large = header(size=b"\x80" + (9 * 2**30).to_bytes(11, "big"))
    with pytest.raises(tarfile.ReadError, match="without the mark"):
        list(regular_files(io.BytesIO(large + END)))
    (only,) = regular_files(
        io.BytesIO(header(size=b"\x80" + (3).to_bytes(11, "big")) + b"abc".ljust(512, b"\0") + END)
    )
    assert only.size == 3


def test_sums_of_signed_bytes_are_accepted_as_old_tools_wrote_them():
    block = bytearray(header(name=b"\xe9\xff.png"))
    unsigned = int(block[148:154], 8)
    assert len(ours(bytes(block) + END)) == 1
    block[148:156] = b"%06o\0 " % (unsigned - 2 * 256)
    assert len(ours(bytes(block) + END)) == len(theirs(bytes(block) + END)) == 1
    block[148:156] = b"%06o\0 " % (unsigned + 1)
    with pytest.raises(tarfile.ReadError, match="does not begin as one"):
        ours(bytes(block) + END)


def test_sizes_in_records_count_before_those_in_headers():
    record = b"10 size=5\n"
    extended = header(kind=b"x", size=b"%011o\0" % len(record)) + record.ljust(512, b"\0")
    data = extended + header() + b"12345".ljust(512, b"\0") + header(name=b"b.png") + END
    assert ours(data) == theirs(data) == [("a.png", 1536, 5), ("b.png", 2560, 0)]


@pytest.mark.parametrize("kind", list("123456"))
def test_links_and_folders_have_no_data_whatever_size_they_claim(kind):
    data = header(kind=kind.encode(), size=b"%011o\0" % 512) + header(name=b"b.png") + END
    assert ours(data) == theirs(data) == [("b.png", 1024, 0)]


def test_data_of_unknown_kinds_is_passed_over():
    data = header(kind=b"V", size=b"%011o\0" % 512) + bytes(512) + header(name=b"b.png") + END
    assert ours(data) == theirs(data) == [("b.png", 1536, 0)]


def test_what_gnu_writes_after_its_magic_is_no_folder():
    """Its incremental archives keep times where ustar has the prefix of a name."""
    block = header(magic=b"ustar  \0", rest=b"13737431777")
    assert [name for name, *_ in ours(block + END)] == ["a.png"]
    assert [name for name, *_ in ours(header(rest=b"folder") + END)] == ["folder/a.png"]


def extended(kind: bytes, data: bytes, size: int | None = None) -> bytes:
    padded = data.ljust(-(-len(data) // 512) * 512, b"\0")
    return header(kind=kind, size=b"%011o\0" % (len(data) if size is None else size)) + padded


HOSTILE = {
    "negative size": header(size=b"\xff" * 12),
    "absurd size": header(size=b"\x80" + b"\xff" * 11),
    "no number": header(size=b"12345678zz\0\0"),
    "long name of 8 GB": extended(b"L", b"a.png", size=8**11 - 1),
    "long name cut short": extended(b"L", b"a.png", size=5000)[:1024],
    "records of 2 MB": extended(b"x", b"x" * 2**21),
    "record without length": extended(b"x", b"path=a.png\n"),
    "record longer than all": extended(b"x", b"99 path=a.png\n"),
    "record of no length": extended(b"x", b"0 path=a.png\n"),
    "record of negative length": extended(b"x", b"-5 path=a.png\n"),
    "negative size in a record": extended(b"x", b"11 size=-1\n") + header(),
    "no number in a record": extended(b"x", b"11 size=xx\n") + header(),
    "absurd size in a record": extended(b"g", b"32 size=9999999999999999999999\n\n") + header(),
    "file with holes": header(kind=b"S") + END,
    "file with holes in a record": extended(b"x", b"22 GNU.sparse.major=1\n") + header() + END,
    "name and nothing": extended(b"L", b"a.png\0"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=[name.replace(" ", "-") for name in HOSTILE])
@pytest.mark.parametrize("compression", ["", "gz"])
def test_hostile_headers_are_refused(tmp_path, data, compression):
    path = tmp_path / "x.tar"
    data = header(name=b"good.png") + data
    path.write_bytes(gzip.compress(data) if compression else data)
    assert raised(DataError, open_source, path).code == "archive-damaged"


def test_many_names_for_one_file_end_with_the_last():
    data = b"".join(extended(b"L", b"%d.png\0" % number) for number in range(3000)) + header() + END
    assert [name for name, *_ in ours(data)] == ["2999.png"]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_changed_bytes_give_members_or_an_error(data):
    whole = bytearray(
        written(
            [("d" * 150 + ".png", tarfile.REGTYPE, b"x" * 700)] * 2, data.draw(st.sampled_from(FORMATS[1:]))
        )
    )
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
