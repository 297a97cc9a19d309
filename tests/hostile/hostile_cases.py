"""Hostile command lines: each case writes its files into a folder of its own and gives the command line.

The files are made on the spot and small where they can be; none is larger than 100 MB. How single files of images, archives
and arrays are refused is tested in tests/images; here are those that take memory, time or several steps of a command.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import resource
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import toy_pair
from hostile.valid_files import encoded, png_chunk, png_of_chunks
from hostile_runs import Line
from PIL import Image

OK, USAGE, DATA, RESOURCE = 0, 2, 3, 4
MB = 2**20
_SCORE = ("--extractor", "pixels", "--no-intervals", "--no-control", "-q")


@dataclass(frozen=True)
class Place:
    """Where a case lies.

    Attributes:
        folder: Its own folder, empty at first.
        shared: A folder with what all cases read: real/, fake/, features, results.
    """

    folder: Path
    shared: Path

    @property
    def real(self) -> str:
        """A folder of a dozen small images."""
        return str(self.shared / "real")

    @property
    def fake(self) -> str:
        """Another such folder."""
        return str(self.shared / "fake")

    @property
    def result(self) -> dict:
        """A result of `genpr score --json`."""
        return json.loads((self.shared / "result.json").read_text())

    def write(self, name: str, data: bytes | str) -> str:
        """Write a file of the case and give its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    def pipe(self, name: str) -> str:
        """Make a named pipe of the case and give its name."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(self.folder / name)
        return name

    def images(self, **files: bytes) -> str:
        """A folder "f" of good images and the given files, by their names without a suffix."""
        folder = self.folder / "f"
        shutil.copytree(self.fake, folder)
        for name, data in files.items():
            (folder / f"{name}.png").write_bytes(data)
        return "f"

    def good(self) -> list[bytes]:
        """The bytes of a dozen images."""
        return [path.read_bytes() for path in sorted(Path(self.fake).iterdir())]

    def score(self, fake: str, *options: str, **facts: object) -> Line:
        """Score something against the reals."""
        return Line(["score", self.real, fake, *_SCORE, *options], **facts)


Case = Callable[[Place], Line]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Register a case under the name of its function."""
    CASES[function.__name__] = function
    return function


def prepare(shared: Path) -> None:
    """Write what all cases read."""
    rng = np.random.default_rng(0)
    for name in ("real", "fake"):
        (shared / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(shared / name / f"{number:02}.png")


# --- images -------------------------------------------------------------------------------------------------------


def _header(width: int, height: int) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)


def _png(*extra: tuple[bytes, bytes], behind: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
    pixels = (b"IDAT", zlib.compress((b"\0" + bytes(24)) * 8))
    return png_of_chunks([_header(8, 8), *extra, pixels, *behind, (b"IEND", b"")])


def _png_with_chunks(kind: bytes) -> bytes:
    data = _png()
    place = data.index(b"IDAT") - 4
    return data[:place] + png_chunk(kind, b"") * 400_000 + data[place:]


def _png_animation(frames: int) -> bytes:
    parts = []
    for number in range(frames):
        parts.append((b"fcTL", struct.pack(">IIIIIHHBB", number, 8, 8, 0, 0, 0, 0, 0, 0)))
        parts.append((b"fdAT", struct.pack(">I", number)))
    return _png((b"acTL", struct.pack(">II", 2**32 - 1, 0)), behind=tuple(parts))


def _zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(MB)) for _ in range(megabytes)) + packer.flush()


def _jpeg(extra: bytes) -> bytes:
    data = encoded(np.zeros((8, 8, 3), np.uint8), "JPEG")
    return data[:2] + extra + data[2:]


def _segment(mark: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, mark, len(body) + 2) + body


def _gif(*blocks: bytes) -> bytes:
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02L\x01\0"
    return b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6) + b"".join([*blocks, frame]) + b";"


def _gif_of_frames() -> bytes:
    first = encoded(np.zeros((8, 8), np.uint8), "GIF")[:-1]
    return first + first[first.rindex(b",") :] * 10_000 + b";"


def _tiff(entries: list[tuple[int, int, int, int]], rest: bytes, following: int = 0) -> bytes:
    """A TIFF of one directory behind its header; the values point behind the directory at 10 + 12 n + 4."""
    body = struct.pack("<H", len(entries))
    for tag, kind, count, value in sorted(entries):
        is_short = kind == 3 and count == 1
        packed = struct.pack("<HH", value, 0) if is_short else struct.pack("<I", value)
        body += struct.pack("<HHI", tag, kind, count) + packed
    return b"II*\0" + struct.pack("<I", 8) + body + struct.pack("<I", following) + rest


_PLAIN_TIFF = [
    *((256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)),
    *((277, 3, 1, 1), (278, 4, 1, 8), (279, 4, 1, 64)),
]


def _tiff_of_directories() -> bytes:
    data = bytearray(_tiff(_PLAIN_TIFF, bytes(100)))
    following = len(data)
    place = 8 + 2 + 12 * 9
    data[place : place + 4] = struct.pack("<I", following)
    for _ in range(100_000):
        following += 18
        data += struct.pack("<HHHII", 1, 256, 4, 1, 8) + struct.pack("<I", following)
    return bytes(data)


def _riff(*chunks: tuple[bytes, bytes]) -> bytes:
    packed = (kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for kind, data in chunks)
    body = b"WEBP" + b"".join(packed)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _webp_of_frames() -> bytes:
    image = encoded(Image.new("RGB", (8, 8)), "WEBP", lossless=True)[12:]
    frame = bytes(6) + (7).to_bytes(3, "little") * 2 + bytes(4) + image
    canvas = (b"VP8X", b"\2\0\0\0" + (999).to_bytes(3, "little") * 2)
    return _riff(canvas, (b"ANIM", bytes(6)), *[(b"ANMF", frame)] * 20_000)


def _avif_of_nested_boxes() -> bytes:
    body = b""
    for _ in range(5000):
        body = struct.pack(">I", len(body) + 12) + b"meta" + bytes(4) + body
    return struct.pack(">I", 24) + b"ftypavif" + bytes(4) + b"avifmif1" + body


IMAGES: dict[str, tuple[Callable[[], bytes], tuple[int, ...]]] = {
    "png_of_text_bombs": (lambda: _png(*[(b"iTXt", b"k\0\1\0\0\0" + _zeros(60))] * 60), (OK,)),
    "png_of_a_color_profile_bomb": (lambda: _png((b"iCCP", b"p\0\0" + _zeros(300))), (OK,)),
    "png_of_very_many_empty_pixel_chunks": (lambda: _png_with_chunks(b"IDAT"), (OK, DATA)),
    "png_with_a_second_larger_header": (lambda: _png(_header(60_000, 60_000)), (OK, DATA)),
    "png_of_a_hundred_thousand_frames": (lambda: _png_animation(100_000), (OK, DATA)),
    "jpeg_of_millions_of_fill_bytes": (lambda: _jpeg(b"\xff" * 5_000_000), (OK, DATA)),
    "jpeg_of_a_million_empty_comments": (lambda: _jpeg(_segment(0xFE, b"") * 1_000_000), (OK, DATA)),
    "gif_of_millions_of_empty_extensions": (lambda: _gif(b"!\x01\0" * 7_000_000), (OK, DATA)),
    "gif_of_eighty_megapixels": (lambda: encoded(Image.new("P", (9000, 9000)), "GIF"), (OK,)),
    "gif_of_ten_thousand_frames": (_gif_of_frames, (OK,)),
    "tiff_whose_directory_follows_itself": (
        lambda: _tiff(_PLAIN_TIFF, bytes(100), following=8),
        (OK, DATA),
    ),
    "tiff_of_a_hundred_thousand_directories": (_tiff_of_directories, (OK, DATA)),
    "webp_of_twenty_thousand_frames": (_webp_of_frames, (OK, DATA)),
    "avif_of_boxes_nested_thousands_deep": (_avif_of_nested_boxes, (DATA,)),
    "ppm_with_a_comment_of_ten_megabytes": (
        lambda: b"P6\n#" + b"c" * (10 * MB) + b"\n1 1\n255\nabc",
        (OK, DATA),
    ),
    "ppm_of_comments_without_end": (lambda: b"P3 8 8 255\n" + b"#c\n" * 1_000_000, (DATA,)),
}


def _with_image(make: Callable[[], bytes], code: tuple[int, ...]) -> Case:
    return lambda at: at.score(at.images(hostile=make()), code=code)


for _name, (_make, _code) in IMAGES.items():
    CASES[_name] = _with_image(_make, _code)


@case
def images_that_are_something_else_by_half(at: Place) -> Line:
    both = {
        "zip": zipfile_of({"a": b"b"}),
        "gif": b"GIF89a",
        "html": b"<html>" + b"<!--" * 1000,
        "mz": b"MZ" + bytes(1000),
        "elf": b"\x7fELF" + bytes(1000),
        "riff": b"RIFF\xff\xff\xff\xffWEBP",
        "ftyp": b"\0\0\0\0ftypavif",
        "bm": b"BM",
        "svg": b"<svg " * 500,
    }
    return at.score(at.images(**both), "--json", code=(DATA,))


# --- zip ----------------------------------------------------------------------------------------------------------


def zipfile_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def _zip_by_hand(members: list[dict]) -> bytes:
    """A zip of members with any fields: name, body, size, packed, method, flags, offset, extra, crc, and local_name."""
    body, directory = bytearray(), bytearray()
    for each in members:
        name, data = each.get("name", b"a.png"), each.get("body", b"")
        crc, method, flags = each.get("crc", zlib.crc32(data)), each.get("method", 0), each.get("flags", 0)
        packed, size = each.get("packed", len(data)), each.get("size", len(data))
        offset = each.get("offset", len(body))
        if "offset" not in each:
            local = each.get("local_name", name)
            fields = (b"PK\3\4", 20, flags, method, 0, 33, crc, packed, size, len(local), 0)
            body += struct.pack("<4sHHHHHIIIHH", *fields) + local + data
        extra = each.get("extra", b"")
        directory += struct.pack(
            "<4sHHHHHHIIIHHHHHII",
            *(b"PK\1\2", 20, 20, flags, method, 0, each.get("date", 33), crc, packed, size),
            *(len(name), len(extra), 0, 0, 0, 0, offset),
        )
        directory += name + extra
    count = min(len(members), 65_535)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    return bytes(body + directory) + end


def _overlapping_members(_: list[bytes]) -> list[dict]:
    bomb, packer = bytes(60 * MB), zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(bomb) + packer.flush()
    first = {"name": b"0.png", "body": body, "size": len(bomb), "method": 8, "crc": zlib.crc32(bomb)}
    others = ({**first, "offset": 0, "packed": len(body), "name": b"%d.png" % n} for n in range(1, 300))
    return [first, *others]


def _members_beyond_all_measure(_: list[bytes]) -> list[dict]:
    extra = struct.pack("<HHQQQ", 1, 24, 2**63, 2**63, 0)
    return [{"body": b"x", "size": 2**32 - 1, "packed": 2**32 - 1, "extra": extra}]


def _members_with_large_dictionaries(_: list[bytes]) -> list[dict]:
    body = b"\x09\x14\x05\0" + b"\x5d\xff\xff\xff\xff" + lzma.compress(bytes(MB), lzma.FORMAT_ALONE)[13:]
    return [{"name": b"%d.png" % n, "body": body, "size": MB, "method": 14} for n in range(20)]


ZIPS: dict[str, Callable[[list[bytes]], list[dict]]] = {
    "zip_with_members_that_overlap_in_one_bomb": _overlapping_members,
    "zip_of_sizes_beyond_all_measure": _members_beyond_all_measure,
    "zip_with_lzma_dictionaries_of_four_gigabytes": _members_with_large_dictionaries,
    "zip_of_names_as_long_as_they_can_be": lambda _: [
        {"name": b"\x1b[31m\n" * 9000 + b"%d.png" % n, "body": b"x"} for n in range(20)
    ],
    "zip_whose_directory_gives_other_names": lambda good: [
        {"name": b"%d.png" % n, "local_name": b"../%d.txt" % n, "body": image} for n, image in enumerate(good)
    ],
    "zip_of_thirty_thousand_empty_members": lambda _: [
        {"name": b"%d.png" % n, "offset": 0} for n in range(30_000)
    ],
    "zip_of_a_wrong_date_and_a_wrong_offset": lambda good: [
        {"body": good[0], "date": 0xFFFF},
        {"name": b"b.png", "offset": 2**31, "size": 100, "packed": 100},
        {"name": b"c.png", "offset": 7, "size": 100, "packed": 100},
    ],
}


def _with_zip(members: Callable[[list[bytes]], list[dict]]) -> Case:
    def make(at: Place) -> Line:
        at.write("x.zip", _zip_by_hand(members(at.good())))
        return at.score("x.zip", "--json", code=(DATA,))

    return make


for _name, _members in ZIPS.items():
    CASES[_name] = _with_zip(_members)


@case
def zip_of_one_name_a_thousand_times(at: Place) -> Line:
    at.write("x.zip", _zip_by_hand([{"body": at.good()[n % 12]} for n in range(1000)]))
    return at.score("x.zip", "--csv", "out.csv", outputs=("out.csv",), code=(OK, DATA))


# --- tar ----------------------------------------------------------------------------------------------------------


def _member(name: bytes, size: int, kind: bytes = b"0", field: bytes | None = None) -> bytes:
    head = bytearray(tarfile.TarInfo().tobuf(tarfile.GNU_FORMAT))
    head[:100] = name[:100].ljust(100, b"\0")
    head[156:157] = kind
    head[124:136] = field or b"%011o\0" % size
    return _with_sum(head)


def _with_sum(head: bytearray) -> bytes:
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def _tar(*parts: bytes) -> bytes:
    return b"".join(parts) + bytes(1024)


def _tar_of(good: list[bytes], before: bytes = b"", labels: bytes = b"", suffix: bytes = b"") -> bytes:
    """Good images, each behind `before` and, where there are labels, followed by a member with these."""
    parts = []
    for n, image in enumerate(good):
        parts += [before, _member(b"%d.png" % n, len(image)), _padded(image)]
        if labels:
            parts += [_member(b"%d.%s" % (n, suffix), len(labels)), _padded(labels)]
    return _tar(*parts)


def _pax(records: bytes, kind: bytes = b"x") -> bytes:
    return _member(b"pax", len(records), kind) + _padded(records)


def _record(key: bytes, value: bytes) -> bytes:
    size = len(key) + len(value) + 3
    while len(b"%d" % size) + len(key) + len(value) + 3 != size:
        size = len(b"%d" % size) + len(key) + len(value) + 3
    return b"%d %s=%s\n" % (size, key, value)


def _tar_of_sparse_maps(_: list[bytes]) -> bytes:
    head = bytearray(_member(b"a.png", 0, b"S"))
    head[482] = 1
    return _with_sum(head) + (bytes(504) + b"\1" + bytes(7)) * 20_000


TARS: dict[str, tuple[str, Callable[[list[bytes]], bytes]]] = {
    "tar_with_a_long_name_of_a_gigabyte": (
        "x.tar",
        lambda _: _tar(_member(b"././@LongLink", 2**30, b"L"), bytes(512)),
    ),
    "tar_of_sparse_members_with_maps_without_end": ("x.tar", _tar_of_sparse_maps),
    "tar_of_links_pipes_and_devices": (
        "x.tar",
        lambda _: _tar(
            *(_member(b"%d.png" % n, 10**6, bytes([kind])) for n, kind in enumerate(b"123456Vz\xff"))
        ),
    ),
    "tar_in_bzip2_that_unfolds_without_end": (
        "x.tar.bz2",
        lambda _: bz2.compress(_member(b"a.png", 2**31) + bytes(300 * MB)),
    ),
    "tar_in_very_many_empty_gzip_streams": (
        "x.tar.gz",
        lambda _: gzip.compress(b"", mtime=0) * 300_000,
    ),
    "tar_in_gzip_with_a_file_name_of_ten_megabytes": (
        "x.tgz",
        lambda _: b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (10 * MB),
    ),
}


def _with_tar(name: str, make: Callable[[list[bytes]], bytes]) -> Case:
    def made(at: Place) -> Line:
        at.write(name, make(at.good()))
        return at.score(name, code=(DATA,))

    return made


for _name, (_file, _tar_made) in TARS.items():
    CASES[_name] = _with_tar(_file, _tar_made)


@case
def tar_with_a_hundred_thousand_records(at: Place) -> Line:
    records = _pax(b"".join(_record(b"k%d" % n, b"v") for n in range(70_000)))
    at.write("x.tar", _tar_of(at.good(), before=records))
    return at.score("x.tar", code=(OK,))


@case
def tar_with_labels_that_take_far_more_when_parsed(at: Place) -> Line:
    labels = b'{"label": 1, "x": [' + b"[]," * 1_000_000 + b"[]]}"
    at.write("x.tar", _tar_of(at.good()[:5], labels=labels, suffix=b"json"))
    return at.score("x.tar", "--per-class", "--real-labels", "folders", code=(OK, DATA))


# --- arrays -------------------------------------------------------------------------------------------------------


def npy_of(descr: str, shape: str, body: bytes = b"") -> bytes:
    """An .npy file with any header."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode("latin-1")
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + body


IMAGE_ARRAYS = {
    "npy_of_images_without_pixels_by_the_billion": npy_of("'|u1'", "(1000000000000, 0, 0, 3)"),
    "npy_of_named_fields": npy_of("[('a', '|u1', (8, 8, 3))]", "(12,)", bytes(12 * 192)),
    "npy_of_a_shape_that_overflows": npy_of("'|u1'", f"({2**33}, {2**33}, {2**33}, 3)", bytes(192)),
    "npy_with_a_header_of_gigabytes": b"\x93NUMPY\3\0\xff\xff\xff\xff" + b" " * 100_000,
}
LABEL_ARRAYS = {
    "npy_of_labels_of_no_width_by_the_billion": npy_of("'<U0'", "(1000000000000,)"),
    "npy_of_labels_of_a_gigabyte_each": npy_of("'|V1000000000'", "(0,)"),
    "npy_of_lone_surrogates_as_labels": npy_of("'<U2'", "(12,)", struct.pack("<II", 0xD800, 0x10FFFF) * 12),
    "npy_of_codes_beyond_unicode_as_labels": npy_of("'<U1'", "(12,)", struct.pack("<I", 0x7FFFFFFF) * 12),
}


def _with_image_array(data: bytes) -> Case:
    def make(at: Place) -> Line:
        at.write("x.npy", data)
        return at.score("x.npy", code=(DATA,))

    return make


def _labeled(name: str, data: bytes | str, *options: str, code: tuple[int, ...] = (DATA,)) -> Case:
    def make(at: Place) -> Line:
        at.write(name, data)
        sides = ("--real-labels", name, "--fake-labels", name)
        return at.score(at.images(), "--per-class", *sides, *options, code=code)

    return make


CASES |= {name: _with_image_array(data) for name, data in IMAGE_ARRAYS.items()}
CASES |= {name: _labeled("l.npy", data, "--json", code=(OK, DATA)) for name, data in LABEL_ARRAYS.items()}


_PICKLE = b"cos\nsystem\n(S'touch ran'\ntR."


# --- features -----------------------------------------------------------------------------------------------------


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _safetensors(header: str | dict, size: int = 192) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


_TENSOR = {"dtype": "F32", "shape": [12, 4], "data_offsets": [0, 192]}
_HOSTILE_NOTES = {
    "genpr.sha256": "\x1b[2J" * 1000,
    "extractor": "os:system",
    "kind": "\n\nerror: forged" * 100,
}
_ROWS = np.random.default_rng(0).standard_normal((40, 4))
FEATURES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "features_without_dimensions_by_the_billion": ("x.npy", lambda: npy_of("'<f4'", "(1000000000000, 0)")),
    "features_of_the_largest_numbers": ("x.npy", lambda: _npy((_ROWS * 1e308).astype(">f8"))),
    "features_of_very_many_dimensions": (
        "x.npy",
        lambda: _npy(np.random.default_rng(0).random((12, 200_000), np.float32)),
    ),
    "safetensors_that_overlap": (
        "x.safetensors",
        lambda: _safetensors({"features": _TENSOR, "other": {**_TENSOR, "data_offsets": [96, 288]}}, 288),
    ),
    "safetensors_of_one_name_twice": (
        "x.safetensors",
        lambda: _safetensors("{" + ",".join([f'"features": {json.dumps(_TENSOR)}'] * 2) + "}"),
    ),
    "safetensors_of_offsets_beyond_all_measure": (
        "x.safetensors",
        lambda: _safetensors({"features": {**_TENSOR, "shape": [2**62, 4], "data_offsets": [0, 2**64 - 1]}}),
    ),
    "safetensors_of_numbers_of_six_bits": (
        "x.safetensors",
        lambda: _safetensors({"features": {**_TENSOR, "dtype": "F6_E2M3", "data_offsets": [0, 36]}}, 36),
    ),
    "safetensors_of_two_numbers_in_a_byte": (
        "x.safetensors",
        lambda: _safetensors({"features": {**_TENSOR, "dtype": "F4", "data_offsets": [0, 24]}}, 24),
    ),
    "safetensors_whose_header_is_ninety_megabytes_of_blanks": (
        "x.safetensors",
        lambda: _safetensors(json.dumps({"features": _TENSOR}) + " " * (90 * MB)),
    ),
    "safetensors_of_hostile_metadata": (
        "x.safetensors",
        lambda: _safetensors({"features": _TENSOR, "__metadata__": _HOSTILE_NOTES}),
    ),
}


def _with_features(name: str, make: Callable[[], bytes]) -> Case:
    def made(at: Place) -> Line:
        at.write(name, make())
        line = ["score", name, name, "-q", "--no-intervals", "--no-control", "--json"]
        return Line(line, code=(OK, DATA, USAGE))

    return made


for _name, (_file, _made) in FEATURES.items():
    CASES[_name] = _with_features(_file, _made)


# --- parquet, Arrow, saved data sets ------------------------------------------------------------------------------


def _parquet(at: Place, table: object, **options: object) -> str:
    import pyarrow.parquet as pq

    pq.write_table(table, at.folder / "x.parquet", **options)
    return "x.parquet"


@case
def parquet_of_one_large_value_in_many_rows(at: Place) -> Line:
    import pyarrow as pa

    image = at.good()[0] + bytes(20 * MB)
    rows = pa.array(np.zeros(60_000, np.int32))
    column = pa.DictionaryArray.from_arrays(rows, pa.array([image], pa.binary()))
    name = _parquet(at, pa.table({"image": column}), use_dictionary=True, compression="zstd")
    return at.score(name, "--max-images", "50", code=(OK, DATA))


@case
def parquet_with_a_footer_of_gigabytes(at: Place) -> Line:
    at.write("x.parquet", b"PAR1" + b"\x15\x04\x19" * 30_000 + struct.pack("<I", 2**31 - 1) + b"PAR1")
    return at.score("x.parquet", code=(DATA,))


@case
def parquet_of_thousands_of_columns(at: Place) -> Line:
    import pyarrow as pa

    image = pa.array(at.good(), pa.binary()).slice(0, 1)
    return at.score(_parquet(at, pa.table({f"c{n}\x1b[2J": image for n in range(3000)})), code=(USAGE, DATA))


@case
def parquet_with_a_label_bomb(at: Place) -> Line:
    import pyarrow as pa

    table = pa.table({"image": pa.array(at.good(), pa.binary()), "label": ["\u202e\n" * 2_000_000] * 12})
    name = _parquet(at, table, compression="zstd", use_dictionary=False)
    return at.score(name, "--per-class", "--json", code=(DATA,))


@case
def parquet_of_paths_to_files_elsewhere(at: Place) -> Line:
    import pyarrow as pa

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    paths = ["/etc/passwd", "../../x", "file:///etc/passwd", "http://127.0.0.1/x", "\x1b[2J" * 9999, ""] * 2
    table = pa.table({"image": pa.array([{"bytes": None, "path": path} for path in paths], kind)})
    return at.score(_parquet(at, table), "--json", code=(DATA,))


def _arrow(at: Place, table: object, **options: object) -> Path:
    import pyarrow as pa

    path = at.folder / "x.arrow"
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_table(table)
    return path


@case
def arrow_with_offsets_outside_of_its_data(at: Place) -> Line:
    import pyarrow as pa

    path = _arrow(at, pa.table({"image": pa.array([b"A" * 40] * 12, pa.binary())}))
    data = bytearray(path.read_bytes())
    place = data.index(struct.pack("<3i", 0, 40, 80))
    data[place + 4 : place + 12] = struct.pack("<2i", -(2**31), 2**31 - 1)
    path.write_bytes(bytes(data))
    return at.score("x.arrow", code=(DATA,))


@case
def arrow_with_dictionaries_that_point_nowhere(at: Place) -> Line:
    import pyarrow as pa

    column = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 6, pa.int32()), pa.array(["aaaa", "bbbb"]))
    path = _arrow(at, pa.table({"image": pa.array(at.good(), pa.binary()), "label": column}))
    data = path.read_bytes().replace(struct.pack("<4i", 0, 1, 0, 1), struct.pack("<4i", 0, 2**31 - 1, -5, 1))
    path.write_bytes(data)
    return at.score("x.arrow#image,label", "--per-class", code=(DATA,))


def _saved_data_set(state: str) -> Case:
    def make(at: Place) -> Line:
        at.write("d/state.json", state)
        at.write("d/dataset_info.json", "{" * 1000)
        return at.score("d", "--json", code=(DATA,))

    return make


CASES |= {
    "saved_data_set_that_names_files_elsewhere": _saved_data_set(
        json.dumps({"_data_files": [{"filename": "../../../etc/passwd"}]})
    ),
    "saved_data_set_that_names_itself_again_and_again": _saved_data_set(
        json.dumps({"_data_files": [{"filename": "state.json"}] * 20_000})
    ),
    "saved_data_set_of_other_things": _saved_data_set(
        '{"_data_files": {"filename": [1e999, NaN]}, "_data_files": 7}'
    ),
}


# --- labels, prompts, entities ------------------------------------------------------------------------------------

_NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "true", "1.5", "{}", "[[]]", '"\\ud800"', "9" * 4000]
_NO_LABELS = ",".join(f'["{n:02}.png", {name}]' for n, name in enumerate(_NO_NUMBERS))
CASES |= {
    "labels_in_utf_16": _labeled("l.csv", "name,label\n00.png,cat\n".encode("utf-16")),
    "labels_with_nul_bytes": _labeled("l.csv", b"name,label\n00.png,ca\0t\n" * 100, "--json"),
    "labels_of_a_million_columns": _labeled("l.tsv", b"\t" * 1_000_000 + b"\n" + b"a\tb\n"),
    "labels_of_numbers_that_are_none": _labeled(
        "l.json",
        f'{{"labels": [{_NO_LABELS}]}}',
        "--json",
    ),
    "labels_of_twenty_thousand_classes": _labeled(
        "l.csv", "".join(f"{n:02}.png,{n}\n" for n in range(20_000)), "--labels", code=(OK, DATA, USAGE)
    ),
}


_CAPTIONS = {"images": [{"id": [], "file_name": {}}], "annotations": [{"image_id": {}, "caption": []}]}
PROMPTS: dict[str, tuple[str, Callable[[], bytes | str]]] = {
    "prompts_that_repeat_one_key_behind_many": (
        "p.json",
        lambda: "{" + "".join(f'"k{n}":"p",' for n in range(20_000)) + '"k19999":"q"}',
    ),
    "prompts_of_one_line_of_ten_megabytes": ("p.txt", lambda: "\u202e\x1b[2J" * 1_700_000),
    "prompts_of_lone_surrogates": (
        "p.jsonl",
        lambda: "".join(
            json.dumps({"file_name": f"{n:02}.png", "text": f"\ud800 {n}"}) + "\n" for n in range(12)
        ),
    ),
    "prompts_of_tabs_and_no_more": ("p.tsv", lambda: b"file_name\ttext\n" + b"\t\n" * 300_000),
    "prompts_as_captions_that_refer_to_each_other": ("p.json", lambda: json.dumps(_CAPTIONS)),
}


def _aligned(at: Place, name: str) -> Line:
    from_here = ("--extractor", f"{toy_pair.__file__}:load")
    line = ["align", at.images(), "--prompts", name, *from_here, "-q", "--json"]
    return Line(line, code=(OK, USAGE, DATA))


def _with_prompts(name: str, make: Callable[[], bytes | str]) -> Case:
    def made(at: Place) -> Line:
        at.write(name, make())
        return _aligned(at, name)

    return made


for _name, (_file, _text) in PROMPTS.items():
    CASES[_name] = _with_prompts(_file, _text)


@case
def prompts_in_a_folder_of_pipes(at: Place) -> Line:
    for number in range(12):
        at.pipe(f"p/{number:02}.txt")
    return _aligned(at, "p")


def _lines(**fields: object) -> str:
    return "".join(json.dumps({"id": str(n), **fields}) + "\n" for n in range(12))


_PETS = _lines(expected=["cat", "dog"])
_IDS = (
    f'{{"id": {"9" * 4000}, "expected": ["a"]}}\n'
    '{"id": 1e999, "expected": ["a"]}\n{"id": NaN, "expected": []}\n'
)
ENTITIES: dict[str, tuple[str, bytes | str, bytes | str]] = {
    "entities_of_very_many_names_in_one_answer": (
        "jsonl",
        _PETS,
        _lines(answer=", ".join(f"name {n}" for n in range(20_000))),
    ),
    "entities_of_combining_marks": (
        "jsonl",
        _PETS,
        _lines(answer="- c" + "\u0301" * 60_000 + "at\n- dog\u200d" * 100),
    ),
    "entities_expected_without_end": (
        "jsonl",
        _lines(expected=[f"e{n}" for n in range(20_000)]),
        _lines(found=["e1"]),
    ),
    "entities_of_ids_that_are_numbers_without_end": ("jsonl", _IDS, _IDS.replace("expected", "found")),
    "entities_in_a_table_of_quotes": ("csv", b"id,expected\n" + b'"' * 3_000_001, b"id,found\n1,a\n"),
}


def _with_entities(suffix: str, expected: bytes | str, found: bytes | str, *options: str) -> Case:
    def make(at: Place) -> Line:
        at.write(f"e.{suffix}", expected)
        at.write(f"a.{suffix}", found)
        line = ["entities", f"e.{suffix}", f"a.{suffix}", "-q", "--json", *options]
        return Line(line, code=(OK, USAGE, DATA))

    return make


CASES |= {name: _with_entities(*given) for name, given in ENTITIES.items()}


@case
def entities_with_aliases_that_go_round(at: Place) -> Line:
    at.write("al.json", json.dumps({"cat": ["dog"], "dog": ["cat"], "": [""], "x": ["x"] * 1000}))
    return _with_entities("jsonl", _PETS, _lines(found=["dog"]), "--aliases", "al.json")(at)


# --- results, logs ------------------------------------------------------------------------------------------------


def _changed(record: object, name: str, value: object) -> object:
    if isinstance(record, dict):
        return {key: value if key == name else _changed(each, name, value) for key, each in record.items()}
    return [_changed(each, name, value) for each in record] if isinstance(record, list) else record


def _result(name: str, value: object, *command: str) -> Case:
    """Compare a result with the same result in which one field has another value."""

    def make(at: Place) -> Line:
        at.write("a.json", json.dumps(at.result))
        at.write("b.json", json.dumps(_changed(at.result, name, value)))
        line = [*(command or ("compare", "--force", "--html", "o.html")), "a.json", "b.json"]
        return Line(line, code=(OK, USAGE, DATA), outputs=("o.html",))

    return make


_EVIL = "</script><script>alert(1)</script>\x1b[2J\u202e" * 2000
_NOTICE = {"level": "warning", "code": "c", "message": "m" * 500, "hint": None}
CASES |= {
    "result_of_k_beyond_all_measure": _result("k", 10**30),
    "result_of_a_negative_number_of_images": _result("n", -5, "rank", "--results", "--json"),
    "result_of_values_that_are_texts": _result("value", "0.5" * 1000),
    "result_of_values_that_are_no_numbers": _result("value", float("inf"), "rank", "--results", "--json"),
    "result_of_an_extractor_with_markup": _result("extractor", _EVIL),
    "result_of_notices_without_end": _result("notices", [{**_NOTICE, "code": f"c{n}"} for n in range(3000)]),
}


@case
def results_by_the_hundred_in_one_file(at: Place) -> Line:
    at.write("a.json", json.dumps({"results": [at.result] * 300}))
    return Line(["compare", "a.json", "--force", "--json"], code=(OK, USAGE, DATA))


def _sweep(at: Place) -> Line:
    line = ["sweep", at.real, f"0.5={at.fake}", f"1={at.fake}", *_SCORE, "--out", "s"]
    return Line(line, outputs=("s",), code=(USAGE, DATA, RESOURCE))


@case
def sweep_folder_of_other_things(at: Place) -> Line:
    at.write("s/points/psi=0.5.json", '{"points": [{"setting": NaN, "result": {}}], "schema": 1e400}')
    at.write("s/points/psi=1.0.json", b"[" * 100_000)
    return _sweep(at)


@case
def sweep_folder_that_is_a_pipe(at: Place) -> Line:
    at.pipe("s/sweep.json")
    return _sweep(at)


def _watch(at: Place, *options: str, code: tuple[int, ...] = (USAGE, DATA, RESOURCE)) -> Line:
    shutil.copytree(at.fake, at.folder / "w" / "a", dirs_exist_ok=True)
    once = ("--once", "--settle", "0", "--interval", "0.1", "--give-up", "0")
    return Line(["watch", at.real, "w", *_SCORE, *once, *options], outputs=("w", "__pycache__"), code=code)


@case
def watch_with_a_log_that_is_a_pipe(at: Place) -> Line:
    at.pipe("w/genpr.jsonl")
    return _watch(at)


@case
def watch_with_a_log_of_endless_zeros(at: Place) -> Line:
    at.write("w/genpr.jsonl", b"")
    os.truncate(at.folder / "w" / "genpr.jsonl", 3 * 2**30)
    return _watch(at)


@case
def watch_with_a_log_that_takes_far_more_when_parsed(at: Place) -> Line:
    at.write("w/genpr.jsonl", b'{"schema": 1, "name": "a", "x": [' + b"[]," * 4_000_000 + b"[]]}\n")
    return _watch(at)


@case
def watch_of_names_that_are_obeyed(at: Place) -> Line:
    for name in ("\x1b[2J", "-x", "{a,b}", "*", "a\nerror: forged", "\u202e", "%s%n", "genpr-results"):
        shutil.copytree(at.fake, at.folder / "w" / name)
    return _watch(at, "--keep-results", "--json", code=(OK,))


@case
def watch_of_samples_that_are_bombs_devices_and_pipes(at: Place) -> Line:
    at.write("w/b.zip", _zip_by_hand([{"body": bytes(1000), "size": 2**32 - 1, "method": 8}]))
    array = npy_of("'|u1'", "(10000, 100, 100, 3)", bytes(1000))
    at.write("w/c.npz", zipfile_of({"arr_0.npy": array}))
    at.write("w/d.parquet", b"PAR1")
    (at.folder / "w" / "e.tar").symlink_to("/dev/zero")
    at.pipe("w/p.npz")
    return _watch(at, code=(OK, DATA))


# --- weights, checkpoints, code -----------------------------------------------------------------------------------


@case
def pickles_as_images_and_features(at: Place) -> Line:
    for suffix in ("pt", "pth", "pkl"):
        at.write(f"x.{suffix}", _PICKLE)
    return at.score("x.{pt,pth,pkl}", code=(USAGE, DATA, RESOURCE))


def _weights(at: Place) -> Line:
    line = ["score", at.real, at.real, "--extractor", "inception", "--weights", "x.pt", "-q"]
    return Line(line, code=(USAGE, RESOURCE))


@case
def pickle_as_weights(at: Place) -> Line:
    at.write("x.pt", _PICKLE)
    return _weights(at)


@case
def device_as_weights(at: Place) -> Line:
    (at.folder / "x.pt").symlink_to("/dev/zero")
    return _weights(at)


@case
def extractor_names_without_end(at: Place) -> Line:
    line = ["score", at.real, at.real, "--extractor", "timm:" + "x/" * 30_000, "--json"]
    return Line(line, code=(USAGE, RESOURCE))


@case
def generator_whose_error_is_too_much(at: Place) -> Line:
    raised = "RuntimeError('\\x1b[2J' + 'x' * 10**6 + '\\nerror: forged')"
    at.write("g.py", f"def load(path=None, **more):\n    raise {raised}\n")
    at.write("w/a.pt", b"x")
    return _watch(at, "--generator", "g.py:load", "--n", "12", code=(OK, USAGE, DATA, RESOURCE))


# --- names, patterns, what lies in folders ------------------------------------------------------------------------


@case
def images_of_hostile_names(at: Place) -> Line:
    names = [
        *("a\nerror: forged", "\x1b[2J", "-x", "{a,b}", "*", "\u202egnp", "=cmd|' C'!A0"),
        *("'\"><img src=x>", " ", "%s"),
    ]
    (at.folder / "f").mkdir()
    for name, data in zip(names, at.good(), strict=False):
        (at.folder / "f" / f"{name}.png").write_bytes(data)
    (at.folder / os.fsdecode(b"f/\xff\xfe\xed\xa0\x80.png")).write_bytes(at.good()[-1])
    (at.folder / "f" / ("n" * 251 + ".png")).write_bytes(b"no image")
    options = ("--csv", "o.csv", "--html", "o.html", "--on-bad", "skip", "--max-bad", "50%")
    line = at.score("f", *options, code=(OK, USAGE), outputs=("o.csv", "o.html"))
    line.args.remove("-q")
    return line


@case
def bad_images_of_hostile_names(at: Place) -> Line:
    for number in range(40):
        at.write("f/" + "\x1b[2J\n\u202e" * 20 + f"{number}.png", b"no image")
    return at.score("f", "--json", code=(DATA,))


PATTERNS = {
    "pattern_of_a_billion_names": "x{1..999999999}.png",
    "pattern_of_stars": "*a" * 60 + "b",
    "pattern_with_nul_and_surrogates": os.fsdecode(b"\xff{a,b}*\x1b"),
}


def _pattern(pattern: str) -> Case:
    def make(at: Place) -> Line:
        (at.folder / ("a" * 200)).mkdir()
        return at.score(pattern, "--json", code=(USAGE,))

    return make


CASES |= {name: _pattern(pattern) for name, pattern in PATTERNS.items()}


@case
def links_that_go_round(at: Place) -> Line:
    shutil.copytree(at.fake, at.folder / "f")
    for number in range(20):
        (at.folder / "f" / f"d{number}").mkdir()
        for other in range(20):
            (at.folder / "f" / f"d{number}" / f"l{other}").symlink_to(f"../d{other}")
    return at.score("f", "--follow-symlinks", code=(OK,))


@case
def folders_nested_beyond_the_longest_path(at: Place) -> Line:
    shutil.copytree(at.fake, at.folder / "f")
    where = Path.cwd()
    os.chdir(at.folder / "f")
    for _ in range(60):
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    os.chdir(where)
    return at.score("f", code=(OK, DATA))


@case
def list_of_files_that_is_binary(at: Place) -> Line:
    at.write("l.txt", bytes(range(256)) * 4000)
    return at.score("l.txt", code=(DATA,))


# --- options ------------------------------------------------------------------------------------------------------

_HUGE = str(10**30)
OPTIONS: dict[str, tuple[str, ...]] = {
    "k_of_thirty_digits": ("--k", _HUGE),
    "max_memory_beyond_numbers": ("--max-memory", "1e400GiB"),
    "max_memory_of_one_byte": ("--max-memory", "1B", "--json"),
    "device_of_a_long_name": ("--device", "x\x1b[2J" * 5000, "--json"),
    "max_bad_of_everything": ("--on-bad", "skip", "--max-bad", "1e999%"),
    "alpha_of_percent_signs": ("--alpha", "%n%s" * 3000, "--json"),
    "protocol_by_the_thousand": ("--protocol", "genpr") * 2000,
    "html_into_a_folder": ("--html", "/"),
    "csv_over_a_device": ("--csv", "/dev/full"),
    "cache_in_a_process": ("--cache-dir", "/proc/1/fdinfo", "--metrics", "x"),
    "worst_by_a_long_name": ("--per-class", "--worst-by", "\u202e" * 9000, "--json"),
}


def _options(*options: str) -> Case:
    return lambda at: at.score(at.fake, *options, code=(OK, USAGE, DATA, RESOURCE))


CASES |= {f"option_{name}": _options(*options) for name, options in OPTIONS.items()}

_FEATURES = ("features", "{real}", "o.safetensors", "--extractor", "pixels", "-q")
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "command_that_does_not_exist": (("\x1b[2J" * 20_000,), (USAGE,)),
    "list_on_an_endless_input": (("score", "{real}", "-", *_SCORE), (DATA, USAGE)),
    "folder_of_processes": (("score", "{real}", "/proc/self/task", *_SCORE, "--json"), (DATA, USAGE)),
    "features_of_batches_beyond_numbers": ((*_FEATURES, "--batch-size", _HUGE), (OK, USAGE)),
    "cache_prune_of_sizes_that_are_none": (("cache", "prune", "--max-size", "1e999TB"), (USAGE,)),
    "weights_of_names_that_are_none": (
        ("weights", "fetch", "../../etc/passwd", "x" * 10_000, "--offline"),
        (USAGE, RESOURCE),
    ),
    "demo_of_more_than_there_is": (("demo", "--n", _HUGE, "--json", "-q"), (USAGE,)),
    "audit_of_processes_and_seeds_without_end": (
        ("audit", "--metric", "x", "--seed", _HUGE, "--jobs", _HUGE, "-q", "--json"),
        (USAGE, RESOURCE),
    ),
    "modes_of_k_and_clusters_beyond_numbers": (
        ("modes", "{real}", "{real}", "--extractor", "pixels", "-q", "--k", _HUGE, "--clusters", _HUGE),
        (USAGE, DATA),
    ),
}


def _command(args: tuple[str, ...], code: tuple[int, ...]) -> Case:
    def make(at: Place) -> Line:
        line = [at.real if each == "{real}" else each for each in args]
        return Line(line, stdin="/dev/zero", outputs=("o.safetensors",), code=code)

    return make


CASES |= {name: _command(*given) for name, given in COMMANDS.items()}


@case
def pack_over_its_own_source(at: Place) -> Line:
    at.write("x.zip", zipfile_of({f"{n}.png": image for n, image in enumerate(at.good())}))
    return Line(["pack", "x.zip", "x.zip", "-q", "--json"], code=(USAGE, DATA))


def _without_room(at: Place, *args: str) -> Line:
    return Line(list(args), limits={resource.RLIMIT_FSIZE: 4096}, code=(RESOURCE,))


@case
def features_without_room(at: Place) -> Line:
    return _without_room(at, *(at.real if each == "{real}" else each for each in _FEATURES))


@case
def score_without_room_for_its_page(at: Place) -> Line:
    return _without_room(at, "score", at.real, at.fake, *_SCORE, "--html", "o.html")


def _resumed_audit() -> Line:
    line = ["audit", "--metric", "precision", "--out", "o", "--resume", "-q", "--json"]
    return Line(line, code=(USAGE, DATA, RESOURCE), outputs=("o",))


@case
def audit_that_resumes_from_a_pipe(at: Place) -> Line:
    at.pipe("o/results.jsonl")
    return _resumed_audit()


@case
def cache_list_of_hostile_folders(at: Place) -> Line:
    keys = (b"[" * 100_000, b'{"extractor": "\\u001b[2J", "device": 1e999}', b"\xff" * 1000)
    for number, key in enumerate(keys):
        at.write(f"cache/features/{number}/key.json", key)
    at.pipe("cache/features/0/" + "0" * 32 + ".safetensors")
    at.pipe("cache/features/pixels/key.json")
    (at.folder / "cache" / "features" / "loop").symlink_to(".")
    return Line(["cache", "list", "--cache-dir", "cache", "--json"], code=(OK, USAGE))


@case
def sweep_of_a_latent_beyond_memory(at: Place) -> Line:
    at.write("g.py", "def load(path=None, **more):\n    return lambda z: z\n")
    line = ["sweep", at.real, *_SCORE, "--generator", "g.py:load", "--psi", "0:1:1e-300"]
    extra = ["--n", "100000000000", "--latent-dim", "100000000000"]
    return Line([*line, *extra], outputs=("__pycache__",), code=(USAGE, DATA, RESOURCE))


# --- environment --------------------------------------------------------------------------------------------------

ENVIRONMENT: dict[str, dict[str, str | None]] = {
    "cache_that_is_a_device": {"GENPR_CACHE": "/dev/null", "COLUMNS": "0", "LINES": "0"},
    "cache_in_the_memory_of_another_process": {"GENPR_CACHE": "/proc/1/mem", "COLUMNS": "-1"},
    "cache_of_a_long_name": {"GENPR_CACHE": "x/" * 5000, "GENPR_OFFLINE": "\u0661"},
    "cache_and_home_that_are_none": {"GENPR_CACHE": "", "HOME": "/dev/null", "XDG_CACHE_HOME": ""},
    "terminal_of_a_strange_kind": {"TERM": "\x1b]0;x\x07", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"},
    "ranks_that_are_no_numbers": {
        "MASTER_PORT": "abc",
        "MASTER_ADDR": "\x1b[2J",
        "RANK": "abc",
        "WORLD_SIZE": "-3",
        "LOCAL_RANK": "1e9",
    },
    "temporary_folder_that_is_none": {"TMPDIR": "/nonexistent", "TMP": "", "TEMP": "/dev/full"},
}


def _environment(variables: dict[str, str | None]) -> Case:
    def make(at: Place) -> Line:
        attempts = ("os.mkdir ('/proc/1/mem'", "os.mkdir ('/dev/null")  # which fail
        return at.score(at.fake, env=variables, code=(OK, USAGE, RESOURCE), attempts=attempts)

    return make


CASES |= {f"environment_{name}": _environment(variables) for name, variables in ENVIRONMENT.items()}


@case
def environment_of_ascii_and_threads_that_are_no_number(at: Place) -> Line:
    variables = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "OMP_NUM_THREADS": "abc"}
    fake = at.images()
    (at.folder / "f" / "\u202e\u00e9.png").write_bytes(b"no image")
    return at.score(fake, "--json", env=variables, module=True, code=(DATA,))


@case
def environment_of_a_small_stack(at: Place) -> Line:
    limits = {resource.RLIMIT_STACK: 512 * 1024}
    return at.score(at.fake, limits=limits, module=True, code=(OK, RESOURCE))
