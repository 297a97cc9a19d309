"""Hostile command lines: each case writes its files into a folder of its own and gives the command line.

The files are made on the spot and small where they can be; none is larger than 100 MB.
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
import socket
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
    def result(self) -> dict:
        """A result of `genpr score --json`."""
        return json.loads((self.shared / "result.json").read_text())

    def write(self, name: str, data: bytes | str) -> str:
        """Write a file of the case and give its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    def images(self, **files: bytes) -> str:
        """A folder "f" of good images and the given files, by their names without a suffix."""
        folder = self.folder / "f"
        shutil.copytree(self.shared / "fake", folder)
        for name, data in files.items():
            (folder / f"{name}.png").write_bytes(data)
        return "f"

    def good(self) -> list[bytes]:
        """The bytes of a dozen images."""
        return [path.read_bytes() for path in sorted((self.shared / "fake").iterdir())]

    def score(self, fake: str, *options: str, **facts: object) -> Line:
        """Score something against the reals."""
        return Line(["score", self.real, fake, *_SCORE, *options], **facts)

    def with_image(self, data: bytes, code: tuple[int, ...] = (OK, DATA), *options: str) -> Line:
        """Score a folder with one hostile image among good ones."""
        return self.score(self.images(hostile=data), *options, code=code)


Case = Callable[[Place], Line]
CASES: dict[str, Case] = {}
SLOW: set[str] = set()


def case(function: Case) -> Case:
    """Register a case under the name of its function."""
    CASES[function.__name__] = function
    return function


def slow(function: Case) -> Case:
    """Register a case that takes long."""
    SLOW.add(function.__name__)
    return case(function)


def prepare(shared: Path) -> None:
    """Write what all cases read."""
    rng = np.random.default_rng(0)
    for name in ("real", "fake"):
        (shared / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(shared / name / f"{number:02}.png")


# --- PNG ----------------------------------------------------------------------------------------------------------


def _header(
    width: int, height: int, bits: int = 8, color: int = 2, interlaced: int = 0
) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlaced)


def _small_png(*extra: tuple[bytes, bytes], behind: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
    pixels = (b"IDAT", zlib.compress((b"\0" + bytes(24)) * 8))
    return png_of_chunks([_header(8, 8), *extra, pixels, *behind, (b"IEND", b"")])


def _zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(MB)) for _ in range(megabytes)) + packer.flush()


@case
def png_with_sixty_international_text_bombs(at: Place) -> Line:
    text = b"k\0\1\0\0\0" + _zeros(60)
    return at.with_image(_small_png(*[(b"iTXt", text)] * 60))


@case
def png_with_a_color_profile_that_unfolds_without_end(at: Place) -> Line:
    return at.with_image(_small_png((b"iCCP", b"p\0\0" + _zeros(300))))


@case
def png_with_text_bombs_behind_its_pixels(at: Place) -> Line:
    return at.with_image(_small_png(behind=((b"zTXt", b"k\0\0" + _zeros(60)),) * 40))


@case
def png_of_very_many_empty_pixel_chunks(at: Place) -> Line:
    data = _small_png()
    place = data.index(b"IDAT") - 4
    return at.with_image(data[:place] + png_chunk(b"IDAT", b"") * 400_000 + data[place:])


@case
def png_of_very_many_unknown_chunks(at: Place) -> Line:
    data = _small_png()
    place = data.index(b"IDAT") - 4
    return at.with_image(data[:place] + png_chunk(b"prVt", b"") * 400_000 + data[place:])


@slow
def png_interlaced_of_seventy_megapixels_in_one_bit(at: Place) -> Line:
    width, height, rows = 8400, 8400, zlib.compressobj(1)
    passes = (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    )
    body = b""
    for left, top, step, down in passes:
        pixels, lines = (width - left + step - 1) // step, (height - top + down - 1) // down
        body += rows.compress((b"\0" + bytes((pixels + 7) // 8)) * lines)
    chunks = [_header(width, height, 1, 0, 1), (b"IDAT", body + rows.flush()), (b"IEND", b"")]
    return at.with_image(png_of_chunks(chunks), (OK,))


@case
def png_whose_pixels_lie_outside_of_its_palette(at: Place) -> Line:
    pixels = zlib.compress((b"\0" + b"\xff" * 8) * 8)
    chunks = [
        _header(8, 8, 8, 3),
        (b"PLTE", b"abc"),
        (b"tRNS", bytes(300)),
        (b"IDAT", pixels),
        (b"IEND", b""),
    ]
    return at.with_image(png_of_chunks(chunks))


@case
def png_with_a_second_larger_header(at: Place) -> Line:
    return at.with_image(_small_png(_header(60_000, 60_000), behind=(_header(2**31 - 1, 2**31 - 1),)))


@case
def png_of_no_width_and_all_height(at: Place) -> Line:
    chunks = [_header(0, 2**31 - 1), (b"IDAT", zlib.compress(bytes(9))), (b"IEND", b"")]
    return at.with_image(png_of_chunks(chunks), (DATA,))


@case
def png_animation_of_four_billion_frames(at: Place) -> Line:
    control = struct.pack(">IIIIIHHBB", 0, 8, 8, 2**31 - 1, 2**31 - 1, 0, 0, 9, 9)
    extra = ((b"acTL", struct.pack(">II", 2**32 - 1, 2**32 - 1)), (b"fcTL", control), (b"fcTL", control))
    return at.with_image(_small_png(*extra))


@case
def png_with_a_hundred_thousand_frames(at: Place) -> Line:
    frames = []
    for number in range(100_000):
        frames.append((b"fcTL", struct.pack(">IIIIIHHBB", number, 8, 8, 0, 0, 0, 0, 0, 0)))
        frames.append((b"fdAT", struct.pack(">I", number)))
    return at.with_image(_small_png((b"acTL", struct.pack(">II", 100_000, 0)), behind=tuple(frames)))


@case
def png_with_an_exif_block_of_entries_without_end(at: Place) -> Line:
    block = b"II*\0\x08\0\0\0\xff\xff" + struct.pack("<HHII", 0x8769, 4, 1, 8) * 65_535
    return at.with_image(_small_png((b"eXIf", block)), (OK, DATA), "--exif", "apply")


@case
def png_with_short_bodies_of_every_known_chunk(at: Place) -> Line:
    kinds = (
        b"gAMA",
        b"cHRM",
        b"sRGB",
        b"pHYs",
        b"tRNS",
        b"bKGD",
        b"hIST",
        b"sPLT",
        b"tIME",
        b"iCCP",
        b"zTXt",
        b"iTXt",
    )
    return at.with_image(_small_png(*[(kind, b"") for kind in kinds], *[(kind, b"\xff") for kind in kinds]))


# --- JPEG ---------------------------------------------------------------------------------------------------------


def _jpeg(extra: bytes = b"", **options: object) -> bytes:
    data = encoded(np.zeros((8, 8, 3), np.uint8), "JPEG", **options)
    return data[:2] + extra + data[2:]


def _segment(mark: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, mark, len(body) + 2) + body


@case
def jpeg_with_millions_of_fill_bytes(at: Place) -> Line:
    return at.with_image(_jpeg(b"\xff" * 5_000_000))


@case
def jpeg_of_a_million_empty_comments(at: Place) -> Line:
    return at.with_image(_jpeg(_segment(0xFE, b"") * 1_000_000))


@case
def jpeg_of_zero_lines_with_their_number_at_the_end(at: Place) -> Line:
    data = bytearray(_jpeg())
    place = data.index(b"\xff\xc0") + 5
    data[place : place + 2] = b"\0\0"
    end = data.rindex(b"\xff\xd9")
    return at.with_image(bytes(data[:end]) + b"\xff\xdc\0\x04\xff\xff" + bytes(data[end:]), (DATA,))


@slow
def jpeg_of_the_largest_sides_without_data(at: Place) -> Line:
    data = bytearray(_jpeg())
    place = data.index(b"\xff\xc0") + 5
    data[place : place + 4] = struct.pack(">HH", 1365, 65500)
    return at.with_image(bytes(data))


@case
def jpeg_with_profile_parts_that_are_missing_and_doubled(at: Place) -> Line:
    parts = [b"ICC_PROFILE\0" + bytes([number % 256, 255]) + bytes(65_000) for number in (1, 1, 9, 255, 0)]
    return at.with_image(_jpeg(b"".join(_segment(0xE2, part) for part in parts)))


@case
def jpeg_with_photoshop_resources_that_point_back(at: Place) -> Line:
    resource_block = b"8BIM\x03\xed\0\0" + struct.pack(">I", 2**32 - 10) + bytes(20)
    body = b"Photoshop 3.0\0" + resource_block * 1500
    return at.with_image(_jpeg(_segment(0xED, body) * 100))


@case
def jpeg_of_many_pictures_that_lists_four_billion(at: Place) -> Line:
    entry = struct.pack("<HHII", 0xB001, 4, 1, 2**32 - 1) + struct.pack("<HHII", 0xB002, 7, 2**32 - 16, 8)
    body = b"MPF\0II*\0\x08\0\0\0\x02\0" + entry + bytes(4)
    return at.with_image(_jpeg(_segment(0xE2, body)))


@case
def jpeg_with_five_components_and_tables_that_do_not_exist(at: Place) -> Line:
    data = bytearray(_jpeg())
    place = data.index(b"\xff\xc0") + 9
    data[place] = 5
    return at.with_image(bytes(data), (DATA,))


@case
def jpeg_with_sampling_factors_of_zero(at: Place) -> Line:
    data = bytearray(_jpeg())
    place = data.index(b"\xff\xc0") + 11
    data[place] = 0
    return at.with_image(bytes(data), (DATA,))


@case
def jpeg_with_a_restart_at_every_block(at: Place) -> Line:
    image = Image.fromarray(np.zeros((4000, 4000, 3), np.uint8))
    return at.with_image(encoded(image, "JPEG", restart_marker_blocks=1), (OK,))


# --- GIF ----------------------------------------------------------------------------------------------------------


def _gif(screen: tuple[int, int], *blocks: bytes) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + bytes(6) + b"".join(blocks) + b";"


def _frame(x: int, y: int, width: int, height: int, data: bytes = b"\x02\x02L\x01\0") -> bytes:
    return b"," + struct.pack("<HHHHB", x, y, width, height, 0) + data


@case
def gif_with_a_frame_far_outside_of_its_screen(at: Place) -> Line:
    return at.with_image(_gif((1, 1), _frame(65_535, 65_535, 65_535, 65_535)), (DATA,))


@case
def gif_whose_second_frame_is_far_larger(at: Place) -> Line:
    first = encoded(np.zeros((8, 8), np.uint8), "GIF")[:-1]
    return at.with_image(first + _frame(60_000, 60_000, 5000, 5000) + b";", (OK, DATA))


@case
def gif_with_a_comment_of_forty_megabytes(at: Place) -> Line:
    comment = b"!\xfe" + (b"\xff" + bytes(255)) * 160_000 + b"\0"
    return at.with_image(_gif((1, 1), comment, _frame(0, 0, 1, 1)))


@case
def gif_of_millions_of_empty_extensions(at: Place) -> Line:
    return at.with_image(_gif((1, 1), b"!\x01\0" * 7_000_000, _frame(0, 0, 1, 1)))


@case
def gif_of_eighty_megapixels_in_kilobytes(at: Place) -> Line:
    image = Image.new("P", (9000, 9000))
    return at.with_image(encoded(image, "GIF"), (OK,))


@case
def gif_with_ten_thousand_frames(at: Place) -> Line:
    first = encoded(np.zeros((8, 8), np.uint8), "GIF")[:-1]
    start = first.rindex(b",")
    return at.with_image(first + first[start:] * 10_000 + b";", (OK,))


@case
def gif_with_codes_wider_than_there_are(at: Place) -> Line:
    frames = [
        _frame(0, 0, 8, 8, bytes([width, 3]) + b"\xff\xff\xff\0") for width in (0, 1, 11, 12, 13, 200, 255)
    ]
    return at.score(
        at.images(**{f"x{n}": _gif((8, 8), frame) for n, frame in enumerate(frames)}), code=(DATA, OK)
    )


# --- TIFF ---------------------------------------------------------------------------------------------------------


def _tiff(
    entries: list[tuple[int, int, int, int]], rest: bytes = b"", following: int = 0, end: str = "<"
) -> bytes:
    """A TIFF of one directory behind its header; the values point behind the directory at 10 + 12 n + 4."""
    body = struct.pack(end + "H", len(entries))
    for tag, kind, count, value in sorted(entries):
        packed = (
            struct.pack(end + "HH", value, 0) if kind == 3 and count == 1 else struct.pack(end + "I", value)
        )
        body += struct.pack(end + "HHI", tag, kind, count) + packed
    magic = b"II*\0" if end == "<" else b"MM\0*"
    return magic + struct.pack(end + "I", 8) + body + struct.pack(end + "I", following) + rest


def _plain(
    width: int = 8, height: int = 8, compression: int = 1, **tags: int
) -> list[tuple[int, int, int, int]]:
    entries = {
        256: (4, 1, width),
        257: (4, 1, height),
        258: (3, 1, 8),
        259: (3, 1, compression),
        262: (3, 1, 1),
    }
    entries |= {273: (4, 1, 8), 277: (3, 1, 1), 278: (4, 1, height), 279: (4, 1, width * height)}
    return [(tag, *value) for tag, value in entries.items()]


@case
def tiff_whose_directory_follows_itself(at: Place) -> Line:
    return at.with_image(_tiff(_plain(), bytes(100), following=8))


@case
def tiff_of_a_hundred_thousand_directories(at: Place) -> Line:
    data = bytearray(_tiff(_plain(), bytes(100)))
    following = len(data)
    place = 8 + 2 + 12 * 9
    data[place : place + 4] = struct.pack("<I", following)
    for _ in range(100_000):
        following += 18
        data += struct.pack("<HHHII", 1, 256, 4, 1, 8) + struct.pack("<I", following)
    return at.with_image(bytes(data))


@case
def tiff_with_five_thousand_tags_that_claim_the_same_megabyte(at: Place) -> Line:
    known = _plain()
    start = 10 + 12 * (len(known) + 5000) + 4
    tags = [(40_000 + number, 1, MB, start) for number in range(5000)]
    return at.with_image(_tiff([*known, *tags], bytes(MB)))


@case
def tiff_with_sub_directories_that_loop(at: Place) -> Line:
    return at.with_image(_tiff([*_plain(), (330, 4, 1, 8), (34_665, 4, 1, 8), (34_853, 4, 1, 8)], bytes(100)))


@slow
def tiff_with_strips_that_all_lie_at_one_place(at: Place) -> Line:
    height = 200_000
    known = [entry for entry in _plain(400, height) if entry[0] not in {273, 278, 279}]
    start = 10 + 12 * (len(known) + 3) + 4
    pointers = [(273, 4, height, start), (278, 4, 1, 1), (279, 4, height, start + 4 * height)]
    rest = struct.pack("<I", 8) * height + struct.pack("<I", 400) * height
    return at.with_image(_tiff([*known, *pointers], rest))


@case
def tiff_with_a_jpeg_of_other_sides_in_it(at: Place) -> Line:
    image = encoded(np.zeros((6000, 6000, 3), np.uint8), "JPEG")
    known = [entry for entry in _plain(8, 8, 7) if entry[0] not in {273, 279, 277, 262, 258}]
    entries = [*known, (258, 3, 1, 8), (262, 3, 1, 6), (277, 3, 1, 3)]
    start = 10 + 12 * (len(entries) + 2) + 4
    return at.with_image(_tiff([*entries, (273, 4, 1, start), (279, 4, 1, len(image))], image))


@slow
def tiff_of_white_fax_pages(at: Place) -> Line:
    image = Image.new("1", (9400, 9400), 1)
    return at.with_image(encoded(image, "TIFF", compression="group4"), (OK,))


@case
def tiff_of_lzw_codes_beyond_the_table(at: Place) -> Line:
    known = [entry for entry in _plain(9000, 9000, 5) if entry[0] not in {273, 279}]
    start = 10 + 12 * (len(known) + 2) + 4
    return at.with_image(
        _tiff([*known, (273, 4, 1, start), (279, 4, 1, 3000)], b"\x80\x3f\xff" * 1000), (DATA,)
    )


@case
def tiff_with_sixty_five_thousand_samples_per_pixel(at: Place) -> Line:
    entries = [entry for entry in _plain() if entry[0] != 277]
    return at.with_image(_tiff([*entries, (277, 3, 1, 65_535), (338, 3, 65_000, 8)], bytes(200_000)), (DATA,))


@case
def tiff_of_large_offsets_with_counts_beyond_memory(at: Place) -> Line:
    entries = {
        256: (4, 1, 8),
        257: (4, 1, 8),
        258: (3, 2**60, 16),
        259: (3, 1, 1),
        262: (3, 1, 1),
        273: (16, 2**62, 16),
    }
    body = struct.pack("<Q", len(entries))
    for tag, (kind, count, value) in entries.items():
        body += struct.pack("<HHQQ", tag, kind, count, value)
    return at.with_image(b"II+\0\x08\0\0\0" + struct.pack("<Q", 16) + body + bytes(64), (DATA,))


@case
def tiff_in_planes_of_which_most_are_missing(at: Place) -> Line:
    entries = [entry for entry in _plain() if entry[0] not in {277, 262}]
    return at.with_image(
        _tiff([*entries, (262, 3, 1, 2), (277, 3, 1, 3), (284, 3, 1, 2)], bytes(200)), (OK, DATA)
    )


@case
def tiff_with_chroma_in_blocks_of_nothing(at: Place) -> Line:
    image = bytearray(encoded(np.zeros((64, 64, 3), np.uint8), "TIFF", compression="jpeg"))
    place = image.find(struct.pack("<HHI", 262, 3, 1))
    image[place + 8] = 6
    return at.with_image(bytes(image))


# --- WebP, AVIF ---------------------------------------------------------------------------------------------------


def _riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WEBP" + b"".join(
        kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for kind, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _canvas(flags: int, width: int, height: int) -> tuple[bytes, bytes]:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"VP8X", bytes([flags, 0, 0, 0]) + sides


@slow
def webp_lossless_of_eighty_megapixels_in_bytes(at: Place) -> Line:
    return at.with_image(
        encoded(Image.new("RGB", (9000, 9000)), "WEBP", lossless=True, quality=0, method=0), (OK,)
    )


@case
def webp_whose_canvas_is_larger_than_its_image(at: Place) -> Line:
    image = encoded(Image.new("RGB", (8, 8)), "WEBP", lossless=True)
    return at.with_image(_riff(_canvas(0, 9000, 9000), (b"VP8L", image[20:])))


@case
def webp_with_a_thousand_metadata_chunks(at: Place) -> Line:
    image = encoded(Image.new("RGB", (8, 8)), "WEBP", lossless=True)
    notes = [(kind, bytes(10_000)) for kind in (b"EXIF", b"XMP ", b"ICCP") for _ in range(1000)]
    return at.with_image(_riff(_canvas(0x2C, 8, 8), *notes, (b"VP8L", image[20:])))


@case
def webp_with_twenty_thousand_frames(at: Place) -> Line:
    image = encoded(Image.new("RGB", (8, 8)), "WEBP", lossless=True)[12:]
    frame = bytes(6) + (7).to_bytes(3, "little") * 2 + bytes(4) + image
    return at.with_image(_riff(_canvas(2, 1000, 1000), (b"ANIM", bytes(6)), *[(b"ANMF", frame)] * 20_000))


@case
def webp_of_chunks_that_claim_more_than_the_file(at: Place) -> Line:
    data = bytearray(_riff(_canvas(0, 8, 8), (b"VP8L", bytes(20))))
    data[-24:-20] = struct.pack("<I", 2**32 - 2)
    return at.with_image(bytes(data), (DATA,))


@case
def avif_of_boxes_nested_ten_thousand_deep(at: Place) -> Line:
    head = struct.pack(">I", 24) + b"ftypavif" + bytes(4) + b"avifmif1"
    body = b""
    for _ in range(5000):
        body = struct.pack(">I", len(body) + 12) + b"meta" + bytes(4) + body
    return at.with_image(head + body, (DATA,))


@case
def avif_of_millions_of_items(at: Place) -> Line:
    data = encoded(Image.new("RGB", (16, 16)), "AVIF")
    place = data.index(b"iloc")
    changed = bytearray(data)
    changed[place + 10 : place + 12] = b"\xff\xff"
    return at.with_image(bytes(changed), (DATA,))


@case
def avif_of_sixty_megapixels(at: Place) -> Line:
    data = encoded(Image.new("RGB", (4000, 4000)), "AVIF", speed=10, quality=0)
    return at.with_image(data, (OK,))


@case
def avif_with_a_box_of_no_size_and_one_of_all(at: Place) -> Line:
    data = encoded(Image.new("RGB", (16, 16)), "AVIF")
    place = data.index(b"meta") - 4
    return at.score(
        at.images(
            none=data[:place] + struct.pack(">I", 0) + data[place + 4 :],
            all=data[:place] + struct.pack(">I", 1) + b"meta" + struct.pack(">Q", 2**63) + data[place + 8 :],
        ),
        code=(DATA,),
    )


# --- BMP, PPM, PFM ------------------------------------------------------------------------------------------------


def _bmp(
    width: int, height: int, bits: int = 24, compression: int = 0, colors: int = 0, body: bytes = b""
) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(body), 0, 0, colors, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + head + body


@case
def bmp_whose_runs_jump_over_gigabytes(at: Place) -> Line:
    data = _bmp(20_000_000, 1, 8, 1, 2, bytes(8) + b"\0\2\0\xff\0\1")
    return at.with_image(data, (OK, DATA))


@case
def bmp_upside_down_of_the_lowest_height(at: Place) -> Line:
    return at.with_image(_bmp(8, -(2**31), body=bytes(192)), (DATA,))


@case
def bmp_with_four_billion_colors(at: Place) -> Line:
    return at.with_image(_bmp(8, 8, 8, 0, 2**32 - 1, bytes(2000)), (OK, DATA))


@case
def bmp_with_bit_masks_of_nothing(at: Place) -> Line:
    return at.with_image(_bmp(8, 8, 32, 3, 0, bytes(12) + bytes(256)), (OK, DATA))


@case
def bmp_with_a_header_of_four_gigabytes(at: Place) -> Line:
    data = bytearray(_bmp(8, 8, body=bytes(192)))
    data[14:18] = struct.pack("<I", 2**32 - 1)
    return at.with_image(bytes(data), (DATA,))


@case
def bmp_of_four_bit_runs_of_eighty_megapixels(at: Place) -> Line:
    return at.with_image(_bmp(9000, 9000, 4, 2, 16, bytes(64) + b"\xff\0" * 20_000 + b"\0\1"), (OK, DATA))


@case
def ppm_with_a_comment_of_ten_megabytes(at: Place) -> Line:
    return at.with_image(b"P6\n#" + b"c" * (10 * MB) + b"\n1 1\n255\nabc", (OK, DATA))


@case
def ppm_of_blanks_where_its_width_should_be(at: Place) -> Line:
    return at.with_image(b"P5 " + b" " * (8 * MB) + b"1 1 255 a", (OK, DATA))


@case
def ppm_plain_of_comments_without_end(at: Place) -> Line:
    return at.with_image(b"P3 8 8 255\n" + b"#c\n" * 1_000_000, (DATA,))


@case
def ppm_plain_with_numbers_of_a_million_digits(at: Place) -> Line:
    return at.with_image(b"P2 8 8 65535\n" + b"9" * MB, (DATA,))


@case
def ppm_plain_bitmap_of_sixteen_megapixels(at: Place) -> Line:
    return at.with_image(b"P1 4000 4000\n" + b"0 1 " * 8_000_000, (OK,))


@case
def ppm_of_the_largest_sides(at: Place) -> Line:
    return at.score(
        at.images(
            a=b"P6 99999999999999999999 1 255\n",
            b=b"P6 1 -1 255\n",
            c=b"P6 1 1 0\nabc",
            d=b"P6 1 1 65536\nabcabc",
        ),
        code=(DATA,),
    )


@case
def pfm_with_a_scale_that_is_no_number(at: Place) -> Line:
    return at.score(
        at.images(
            a=b"PF\n1 1\nnan\n" + bytes(12), b=b"Pf\n1 1\n0\n" + bytes(4), c=b"Pf\n1 1\n1e999\n" + bytes(4)
        ),
        code=(DATA,),
    )


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


def _zip_by_hand(members: list[dict], comment: bytes = b"") -> bytes:
    """A zip of members with any fields: name, body, size, packed, method, flags, offset, extra, crc, and local_name."""
    body, directory = bytearray(), bytearray()
    for each in members:
        name, data = each.get("name", b"a.png"), each.get("body", b"")
        crc, method, flags = each.get("crc", zlib.crc32(data)), each.get("method", 0), each.get("flags", 0)
        packed, size = each.get("packed", len(data)), each.get("size", len(data))
        offset = each.get("offset", len(body))
        if "offset" not in each:
            local = each.get("local_name", name)
            body += struct.pack(
                "<4sHHHHHIIIHH", b"PK\3\4", 20, flags, method, 0, 33, crc, packed, size, len(local), 0
            )
            body += local + data
        extra = each.get("extra", b"")
        directory += struct.pack(
            "<4sHHHHHHIIIHHHHHII",
            *(b"PK\1\2", 20, 20, flags, method, 0, each.get("date", 33), crc, packed, size),
            *(len(name), len(extra), 0, 0, 0, each.get("attributes", 0), offset),
        )
        directory += name + extra
    count = min(len(members), 65_535)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), len(comment))
    return bytes(body + directory) + end + comment


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


@case
def zip_with_members_that_overlap_in_one_bomb(at: Place) -> Line:
    bomb = bytes(60 * MB)
    first = {
        "name": b"0.png",
        "body": _deflated(bomb),
        "size": len(bomb),
        "method": 8,
        "crc": zlib.crc32(bomb),
    }
    packed = len(first["body"])
    others = [{**first, "offset": 0, "packed": packed, "name": b"%d.png" % n} for n in range(1, 300)]
    at.write("x.zip", _zip_by_hand([first, *others]))
    return at.score("x.zip", code=(DATA,))


@case
def zip_that_holds_itself_again_and_again(at: Place) -> Line:
    data = zipfile_of({f"{n}.png": image for n, image in enumerate(at.good())})
    for _ in range(30):
        data = zipfile_of({"x.zip": data})
    at.write("x.zip", data)
    return at.score("x.zip", code=(DATA,))


@case
def zip_of_sizes_beyond_all_measure(at: Place) -> Line:
    extra = struct.pack("<HHQQQ", 1, 24, 2**63, 2**63, 0)
    marks = {"size": 2**32 - 1, "packed": 2**32 - 1, "extra": extra}
    at.write("x.zip", _zip_by_hand([{"name": b"a.png", "body": b"x", **marks}]))
    return at.score("x.zip", code=(DATA,))


@case
def zip_with_methods_that_python_lacks(at: Place) -> Line:
    methods = (1, 6, 9, 10, 19, 93, 95, 96, 97, 98, 99, 65_535)
    at.write(
        "x.zip", _zip_by_hand([{"name": b"%d.png" % n, "body": b"x" * 50, "method": n} for n in methods])
    )
    return at.score("x.zip", "--json", code=(DATA,))


@case
def zip_with_a_bzip2_bomb(at: Place) -> Line:
    data = bz2.compress(bytes(60 * MB))
    at.write("x.zip", _zip_by_hand([{"body": data, "size": 60 * MB, "method": 12}]))
    return at.score("x.zip", code=(DATA,))


@case
def zip_with_lzma_dictionaries_of_four_gigabytes(at: Place) -> Line:
    body = b"\x09\x14\x05\0" + b"\x5d\xff\xff\xff\xff" + lzma.compress(bytes(MB), lzma.FORMAT_ALONE)[13:]
    members = [{"name": b"%d.png" % n, "body": body, "size": MB, "method": 14} for n in range(20)]
    at.write("x.zip", _zip_by_hand(members))
    return at.score("x.zip", code=(DATA,))


@case
def zip_of_encrypted_members_among_others(at: Place) -> Line:
    members = [{"name": b"%d.png" % n, "body": image, "flags": n % 2} for n, image in enumerate(at.good())]
    at.write("x.zip", _zip_by_hand(members))
    return at.score("x.zip", code=(DATA,))


@case
def zip_of_names_as_long_as_they_can_be(at: Place) -> Line:
    members = [{"name": b"\x1b[31m\n" * 9000 + b"%d.png" % n, "body": b"x"} for n in range(20)]
    at.write("x.zip", _zip_by_hand(members))
    return at.score("x.zip", "--json", code=(DATA,))


@case
def zip_whose_directory_gives_other_names(at: Place) -> Line:
    members = [
        {"name": b"%d.png" % n, "local_name": b"../%d.txt" % n, "body": image}
        for n, image in enumerate(at.good())
    ]
    at.write("x.zip", _zip_by_hand(members))
    return at.score("x.zip", code=(DATA,))


@case
def zip_whose_comment_is_an_archive(at: Place) -> Line:
    inner = zipfile_of({f"{n}.png": image for n, image in enumerate(at.good())})
    members = [{"name": b"%d.png" % n, "body": image} for n, image in enumerate(at.good())]
    at.write("x.zip", _zip_by_hand(members, inner[-2000:]))
    return at.score("x.zip", code=(OK, DATA))


@case
def zip_of_thirty_thousand_empty_members(at: Place) -> Line:
    at.write("x.zip", _zip_by_hand([{"name": b"%d.png" % n, "offset": 0} for n in range(30_000)]))
    return at.score("x.zip", code=(DATA,))


@case
def zip_of_one_name_a_thousand_times(at: Place) -> Line:
    members = [{"name": b"a.png", "body": at.good()[n % 12]} for n in range(1000)]
    at.write("x.zip", _zip_by_hand(members))
    return at.score("x.zip", "--csv", "out.csv", outputs=("out.csv",), code=(OK, DATA))


@case
def zip_of_names_that_lead_elsewhere(at: Place) -> Line:
    names = [
        b"../../../tmp/x.png",
        b"/etc/x.png",
        b"C:\\x.png",
        b"a/../../b.png",
        b"\xff\xfe.png",
        b"nul\0.png",
        b".png",
    ]
    members = [{"name": name, "body": image} for name, image in zip(names, at.good(), strict=False)]
    at.write("x.zip", _zip_by_hand(members))
    return at.score(
        "x.zip", "--csv", "o.csv", "--html", "o.html", outputs=("o.csv", "o.html"), code=(OK, DATA)
    )


@case
def zip_of_a_wrong_date_and_a_wrong_offset(at: Place) -> Line:
    members = [
        {"name": b"a.png", "body": at.good()[0], "date": 0xFFFF},
        {"name": b"b.png", "offset": 2**31, "size": 100, "packed": 100},
        {"name": b"c.png", "offset": 7, "size": 100, "packed": 100},
    ]
    at.write("x.zip", _zip_by_hand(members))
    return at.score("x.zip", code=(DATA,))


# --- tar ----------------------------------------------------------------------------------------------------------


def _member(name: bytes, size: int, kind: bytes = b"0", field: bytes | None = None) -> bytes:
    head = bytearray(tarfile.TarInfo(name.decode("latin-1")[:90]).tobuf(tarfile.GNU_FORMAT))
    head[:100] = name[:100].ljust(100, b"\0")
    head[156:157] = kind
    head[124:136] = field or b"%011o\0" % size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def _tar(*parts: bytes) -> bytes:
    return b"".join(parts) + bytes(1024)


def _pax(records: bytes, kind: bytes = b"x") -> bytes:
    return _member(b"pax", len(records), kind) + _padded(records)


def _record(key: bytes, value: bytes) -> bytes:
    size = len(key) + len(value) + 3
    while len(b"%d" % size) + len(key) + len(value) + 3 != size:
        size = len(b"%d" % size) + len(key) + len(value) + 3
    return b"%d %s=%s\n" % (size, key, value)


@case
def tar_with_a_long_name_of_a_gigabyte(at: Place) -> Line:
    at.write("x.tar", _tar(_member(b"././@LongLink", 2**30, b"L"), bytes(512)))
    return at.score("x.tar", code=(DATA,))


@case
def tar_with_a_negative_size(at: Place) -> Line:
    at.write("x.tar", _tar(_member(b"a.png", 0, b"0", b"\xff" * 11 + b"\0")))
    return at.score("x.tar", code=(DATA,))


@case
def tar_with_a_size_that_leads_back(at: Place) -> Line:
    at.write("x.tar", _tar(_pax(_record(b"size", b"-1024")), _member(b"a.png", 10), bytes(512)))
    return at.score("x.tar", code=(DATA,))


@case
def tar_with_records_of_a_megabyte_of_digits(at: Place) -> Line:
    at.write("x.tar", _tar(_pax(b"9" * 1_000_000 + b" path=a\n"), _member(b"a.png", 0)))
    return at.score("x.tar", code=(DATA,))


@case
def tar_with_a_hundred_thousand_records(at: Place) -> Line:
    records = b"".join(_record(b"k%d" % n, b"v") for n in range(70_000))
    images = [_pax(records) + _member(b"%d.png" % n, len(d)) + _padded(d) for n, d in enumerate(at.good())]
    at.write("x.tar", _tar(*images))
    return at.score("x.tar", code=(OK,))


@case
def tar_of_sparse_members_with_maps_without_end(at: Place) -> Line:
    block = bytes(504) + b"\1" + bytes(7)
    head = bytearray(_member(b"a.png", 0, b"S"))
    head[482] = 1
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    at.write("x.tar", bytes(head) + block * 20_000)
    return at.score("x.tar", code=(DATA,))


@case
def tar_of_links_pipes_and_devices(at: Place) -> Line:
    parts = [_member(b"%d.png" % n, 10**6, bytes([kind])) for n, kind in enumerate(b"123456Vz\xff")]
    at.write("x.tar", _tar(*parts))
    return at.score("x.tar", code=(DATA,))


@case
def tar_in_bzip2_that_unfolds_without_end(at: Place) -> Line:
    at.write("x.tar.bz2", bz2.compress(_member(b"a.png", 2**31) + bytes(300 * MB)))
    return at.score("x.tar.bz2", code=(DATA,))


@case
def tar_in_xz_with_a_dictionary_of_gigabytes(at: Place) -> Line:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    data = bytearray(lzma.compress(_tar(_member(b"a.png", 10), bytes(512)), filters=filters))
    place = data.index(b"\x21\x01") + 2
    data[place] = 40
    data[20:24] = struct.pack("<I", zlib.crc32(bytes(data[12:20])))
    at.write("x.tar.xz", bytes(data))
    return at.score("x.tar.xz", code=(DATA,))


@case
def tar_in_very_many_empty_gzip_streams(at: Place) -> Line:
    at.write("x.tar.gz", gzip.compress(b"", mtime=0) * 300_000)
    return at.score("x.tar.gz", code=(DATA,))


@case
def tar_in_gzip_with_a_file_name_of_ten_megabytes(at: Place) -> Line:
    at.write("x.tgz", b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (10 * MB))
    return at.score("x.tgz", code=(DATA,))


@case
def tar_in_zstandard_or_nothing_of_the_kind(at: Place) -> Line:
    at.write("x.tar", b"\x28\xb5\x2f\xfd" + bytes(100))
    return at.score("x.tar", code=(DATA,))


@case
def tar_with_labels_of_a_million_digits(at: Place) -> Line:
    parts = []
    for n, image in enumerate(at.good()):
        parts += [_member(b"%d.png" % n, len(image)), _padded(image)]
        parts += [_member(b"%d.cls" % n, MB), b"9" * MB]
    at.write("x.tar", _tar(*parts))
    return at.score("x.tar", "--per-class", code=(DATA,))


@case
def tar_with_labels_nested_too_deeply(at: Place) -> Line:
    note = b'{"label":' * 100_000
    parts = []
    for n, image in enumerate(at.good()):
        parts += [
            _member(b"%d.png" % n, len(image)),
            _padded(image),
            _member(b"%d.json" % n, len(note)),
            _padded(note),
        ]
    at.write("x.tar", _tar(*parts))
    return at.score("x.tar", "--labels", "--json", code=(DATA,))


@case
def tar_with_labels_that_take_far_more_when_parsed(at: Place) -> Line:
    note = b'{"label": 1, "x": [' + b"[]," * 1_000_000 + b"[]]}"
    parts = []
    for n, image in enumerate(at.good()):
        parts += [
            _member(b"%d.png" % n, len(image)),
            _padded(image),
            _member(b"%d.json" % n, len(note)),
            _padded(note),
        ]
    at.write("x.tar", _tar(*parts[:4], *parts[4:]))
    return at.score("x.tar", "--per-class", "--real-labels", "folders", code=(OK, DATA))


@case
def tar_with_one_name_for_all(at: Place) -> Line:
    parts = [_pax(_record(b"path", b"all.png") + _record(b"size", b"5"), b"g")]
    parts += [_member(b"%d.png" % n, len(image)) + _padded(image) for n, image in enumerate(at.good())]
    at.write("x.tar", _tar(*parts))
    return at.score("x.tar", code=(DATA,))


# --- npy, npz -----------------------------------------------------------------------------------------------------


def npy_of(header: str, body: bytes = b"", version: bytes = b"\1\0") -> bytes:
    """An .npy file with any header."""
    text = header.encode("latin-1") + b"\n"
    size = struct.pack("<H", len(text)) if version == b"\1\0" else struct.pack("<I", len(text))
    return b"\x93NUMPY" + version + size + text + body


def _head(descr: str, shape: str, fortran: bool = False) -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"


@case
def npy_of_images_without_pixels_by_the_billion(at: Place) -> Line:
    at.write("x.npy", npy_of(_head("'|u1'", "(1000000000000, 0, 0, 3)")))
    return at.score("x.npy", code=(DATA,))


@case
def npy_of_features_without_dimensions_by_the_billion(at: Place) -> Line:
    at.write("x.npy", npy_of(_head("'<f4'", "(1000000000000, 0)")))
    return Line(["score", "x.npy", "x.npy", "--no-intervals", "--no-control", "-q"], code=(DATA, USAGE))


@case
def npy_of_labels_of_no_width_by_the_billion(at: Place) -> Line:
    at.write("l.npy", npy_of(_head("'<U0'", "(1000000000000,)")))
    return at.score(
        at.images(), "--per-class", "--fake-labels", "l.npy", "--real-labels", "folders", code=(DATA,)
    )


@case
def npy_of_named_fields(at: Place) -> Line:
    at.write("x.npy", npy_of(_head("[('a', '|u1', (8, 8, 3))]", "(12,)"), bytes(12 * 192)))
    return at.score("x.npy", code=(DATA,))


@case
def npy_of_arrays_within_arrays(at: Place) -> Line:
    at.write("x.npy", npy_of(_head("('|u1', (8, 8, 3))", "(12,)"), bytes(12 * 192)))
    return at.score("x.npy", code=(DATA,))


@case
def npy_of_fortran_order(at: Place) -> Line:
    at.write("x.npy", npy_of(_head("'|u1'", "(12, 8, 8, 3)", True), bytes(12 * 192)))
    return at.score("x.npy", code=(DATA,))


@case
def npy_of_a_shape_that_overflows(at: Place) -> Line:
    at.write("x.npy", npy_of(_head("'|u1'", f"({2**33}, {2**33}, {2**33}, 3)"), bytes(192)))
    return at.score("x.npy", code=(DATA,))


@case
def npy_of_the_third_version_with_a_header_of_gigabytes(at: Place) -> Line:
    at.write("x.npy", b"\x93NUMPY\3\0\xff\xff\xff\xff" + b" " * 100_000)
    return at.score("x.npy", code=(DATA,))


@case
def npy_of_values_of_a_gigabyte_each(at: Place) -> Line:
    at.write("l.npy", npy_of(_head("'|V1000000000'", "(0,)")))
    return at.score(at.images(), "--per-class", "--fake-labels", "l.npy", code=(DATA,))


@case
def npy_of_dates_as_labels(at: Place) -> Line:
    at.write("l.npy", npy_of(_head("'<M8[as]'", "(12,)"), b"\xff" * 96))
    return at.score(at.images(), "--per-class", "--fake-labels", "l.npy", code=(DATA,))


@case
def npy_of_lone_surrogates_as_labels(at: Place) -> Line:
    at.write("l.npy", npy_of(_head("'<U2'", "(12,)"), struct.pack("<II", 0xD800, 0x10FFFF) * 12))
    return at.score(
        at.images(),
        "--per-class",
        "--fake-labels",
        "l.npy",
        "--real-labels",
        "l.npy",
        "--json",
        code=(OK, DATA),
    )


@case
def npy_of_codes_beyond_unicode_as_labels(at: Place) -> Line:
    at.write("l.npy", npy_of(_head("'<U1'", "(12,)"), struct.pack("<I", 0x7FFFFFFF) * 12))
    return at.score(
        at.images(), "--per-class", "--fake-labels", "l.npy", "--real-labels", "l.npy", code=(DATA,)
    )


@case
def npy_of_features_that_are_no_numbers(at: Place) -> Line:
    rows = np.full((12, 4), np.nan, np.float32)
    rows[::2] = np.inf
    np.save(at.folder / "x.npy", rows)
    return Line(["score", "x.npy", "x.npy", "-q", "--json"], code=(DATA,))


@case
def npy_of_features_of_the_largest_numbers(at: Place) -> Line:
    rng = np.random.default_rng(0)
    np.save(at.folder / "x.npy", (rng.standard_normal((40, 4)) * 1e308).astype(">f8"))
    return Line(["score", "x.npy", "x.npy", "-q", "--json"], code=(OK, DATA))


@case
def npy_of_features_of_sixteen_bytes(at: Place) -> Line:
    np.save(at.folder / "x.npy", np.random.default_rng(0).standard_normal((40, 4)).astype(np.longdouble))
    return Line(["score", "x.npy", "x.npy", "-q"], code=(OK, DATA))


@case
def npy_of_features_with_very_many_dimensions(at: Place) -> Line:
    np.save(at.folder / "x.npy", np.random.default_rng(0).random((12, 200_000), np.float32))
    return Line(["score", "x.npy", "x.npy", "-q", "--no-intervals", "--no-control"], code=(OK, DATA))


@case
def npz_with_the_array_twice(at: Place) -> Line:
    good = npy_of(_head("'|u1'", "(12, 8, 8, 3)"), bytes(12 * 192))
    members = [{"name": b"arr_0.npy", "body": good}, {"name": b"arr_0.npy", "body": good[:200]}]
    at.write("x.npz", _zip_by_hand(members))
    return at.score("x.npz", code=(OK, DATA))


@case
def npz_whose_labels_are_a_bomb(at: Place) -> Line:
    images = npy_of(_head("'|u1'", "(12, 8, 8, 3)"), bytes(12 * 192))
    labels = npy_of(_head("'<U1000000'", "(12,)"), bytes(48_000_000))
    at.write("x.npz", zipfile_of({"arr_0.npy": images, "arr_1.npy": labels}))
    return at.score("x.npz", "--per-class", code=(OK, DATA))


@case
def npz_of_pickles_among_arrays(at: Place) -> Line:
    pickle = b"cos\nsystem\n(S'touch ran'\ntR."
    body = npy_of(_head("'|O'", "(1,)"), pickle)
    at.write("x.npz", zipfile_of({"arr_0.npy": body, "arr_1.npy": body}))
    return at.score("x.npz", "--labels", code=(DATA, RESOURCE))


# --- safetensors --------------------------------------------------------------------------------------------------


def safetensors_of(header: str | dict, body: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + body


def _score_features(name: str, *options: str) -> Line:
    return Line(
        ["score", name, name, "-q", "--no-intervals", "--no-control", *options], code=(OK, DATA, USAGE)
    )


@case
def safetensors_that_overlap(at: Place) -> Line:
    one = {"dtype": "F32", "shape": [12, 4], "data_offsets": [0, 192]}
    at.write(
        "x.safetensors",
        safetensors_of({"features": one, "other": {**one, "data_offsets": [96, 288]}}, bytes(288)),
    )
    return _score_features("x.safetensors")


@case
def safetensors_with_a_gap(at: Place) -> Line:
    one = {"dtype": "F32", "shape": [12, 4], "data_offsets": [64, 256]}
    at.write("x.safetensors", safetensors_of({"features": one}, bytes(256)))
    return _score_features("x.safetensors")


@case
def safetensors_of_one_name_twice(at: Place) -> Line:
    one = '"features": {"dtype": "F32", "shape": [12, 4], "data_offsets": [0, 192]}'
    at.write("x.safetensors", safetensors_of("{" + one + "," + one + "}", bytes(192)))
    return _score_features("x.safetensors")


@case
def safetensors_of_offsets_beyond_all_measure(at: Place) -> Line:
    one = {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 2**64 - 1]}
    at.write("x.safetensors", safetensors_of({"features": one}, bytes(192)))
    return _score_features("x.safetensors")


@case
def safetensors_of_rows_without_dimensions_by_the_billion(at: Place) -> Line:
    one = {"dtype": "F32", "shape": [10**12, 0], "data_offsets": [0, 0]}
    at.write("x.safetensors", safetensors_of({"features": one}))
    return _score_features("x.safetensors", "--json")


@case
def safetensors_of_numbers_of_four_bits(at: Place) -> Line:
    for number, kind in enumerate(("F4", "F8_E4M3", "F8_E8M0", "BOOL", "C64", "U64", "X99")):
        one = {"dtype": kind, "shape": [12, 4], "data_offsets": [0, 48]}
        at.write(f"x{number}.safetensors", safetensors_of({"features": one}, bytes(48)))
    return _score_features("x{0..6}.safetensors")


@case
def safetensors_whose_header_is_ninety_megabytes_of_blanks(at: Place) -> Line:
    one = {"dtype": "F32", "shape": [12, 4], "data_offsets": [0, 192]}
    at.write("x.safetensors", safetensors_of(json.dumps({"features": one}) + " " * (90 * MB), bytes(192)))
    return _score_features("x.safetensors")


@case
def safetensors_of_hostile_metadata(at: Place) -> Line:
    one = {"dtype": "F32", "shape": [12, 4], "data_offsets": [0, 192]}
    notes = {"genpr.sha256": "\x1b[2J" * 1000, "extractor": "os:system", "kind": "\n\nerror: forged" * 100}
    at.write("x.safetensors", safetensors_of({"features": one, "__metadata__": notes}, bytes(192)))
    return _score_features("x.safetensors", "--json")


# --- parquet, Arrow, saved data sets ------------------------------------------------------------------------------


def _parquet(at: Place, table: object, name: str = "x.parquet", **options: object) -> str:
    import pyarrow.parquet as pq

    pq.write_table(table, at.folder / name, **options)
    return name


@case
def parquet_of_columns_nested_a_hundred_deep(at: Place) -> Line:
    import pyarrow as pa

    kind = pa.binary()
    for _ in range(60):
        kind = pa.struct([("bytes", kind)])
    return at.score(_parquet(at, pa.table({"image": pa.array([None] * 12, kind)})), code=(DATA,))


@case
def parquet_of_decimals_and_times(at: Place) -> Line:
    import decimal

    import pyarrow as pa

    table = pa.table(
        {
            "image": pa.array([decimal.Decimal(n) for n in range(12)], pa.decimal256(76, 0)),
            "label": pa.array(range(12), pa.timestamp("ns")),
        }
    )
    return at.score(_parquet(at, table), code=(DATA,))


@case
def parquet_of_one_large_value_in_a_hundred_thousand_rows(at: Place) -> Line:
    import pyarrow as pa

    image = at.good()[0] + bytes(20 * MB)
    column = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(60_000, np.int32)), pa.array([image], pa.binary())
    )
    name = _parquet(at, pa.table({"image": column}), use_dictionary=True, compression="zstd")
    return at.score(name, "--max-images", "50", code=(OK, DATA))


@case
def parquet_with_an_encrypted_footer(at: Place) -> Line:
    at.write("x.parquet", b"PARE" + bytes(1000) + struct.pack("<I", 900) + b"PARE")
    return at.score("x.parquet", code=(DATA,))


@case
def parquet_with_a_footer_of_gigabytes(at: Place) -> Line:
    at.write("x.parquet", b"PAR1" + b"\x15\x04\x19" * 30_000 + struct.pack("<I", 2**31 - 1) + b"PAR1")
    return at.score("x.parquet", code=(DATA,))


@case
def parquet_of_ten_thousand_columns(at: Place) -> Line:
    import pyarrow as pa

    image = pa.array(at.good(), pa.binary())
    columns = {f"c{n}\x1b[2J": image.slice(0, 1) for n in range(3000)}
    return at.score(_parquet(at, pa.table(columns)), code=(USAGE, DATA))


@case
def parquet_with_labels_of_megabytes(at: Place) -> Line:
    import pyarrow as pa

    table = pa.table({"image": pa.array(at.good(), pa.binary()), "label": ["\u202e\n" * 2_000_000] * 12})
    return at.score(_parquet(at, table, compression="zstd"), "--per-class", "--json", code=(DATA,))


@case
def parquet_with_a_label_bomb(at: Place) -> Line:
    import pyarrow as pa

    table = pa.table({"image": pa.array(at.good(), pa.binary()), "label": ["a" * 60_000_000] * 12})
    return at.score(
        _parquet(at, table, compression="zstd", use_dictionary=False), "--per-class", code=(DATA,)
    )


@case
def parquet_whose_description_is_nested_too_deeply(at: Place) -> Line:
    import pyarrow as pa

    table = pa.table({"image": pa.array(at.good(), pa.binary())})
    table = table.replace_schema_metadata({"huggingface": '{"info":' * 100_000})
    return at.score(_parquet(at, table), code=(OK,))


@case
def parquet_of_paths_to_files_elsewhere(at: Place) -> Line:
    import pyarrow as pa

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    paths = ["/etc/passwd", "../../x", "file:///etc/passwd", "http://127.0.0.1/x", "\x1b[2J" * 9999, ""] * 2
    table = pa.table({"image": pa.array([{"bytes": None, "path": path} for path in paths], kind)})
    return at.score(_parquet(at, table), "--json", code=(DATA,))


def _arrow(at: Place, table: object, name: str = "x.arrow", **options: object) -> Path:
    import pyarrow as pa

    with (
        pa.OSFile(str(at.folder / name), "wb") as file,
        pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_table(table)
    return at.folder / name


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
def arrow_with_a_buffer_that_unfolds_to_gigabytes(at: Place) -> Line:
    import pyarrow as pa

    table = pa.table({"image": pa.array([bytes(160 * MB)] * 12, pa.binary())})
    path = _arrow(at, table, compression="zstd")
    return at.score(path.name, code=(DATA,))


@case
def arrow_whose_buffer_claims_to_unfold_to_gigabytes(at: Place) -> Line:
    import pyarrow as pa

    body = bytes(100_000)
    path = _arrow(at, pa.table({"image": pa.array([body] * 12, pa.binary())}), compression="lz4")
    data = bytearray(path.read_bytes())
    place = data.index(struct.pack("<q", 1_200_000))
    data[place : place + 8] = struct.pack("<q", 3 * 2**30)
    path.write_bytes(bytes(data))
    return at.score("x.arrow", code=(DATA,))


@case
def arrow_with_dictionaries_that_point_nowhere(at: Place) -> Line:
    import pyarrow as pa

    column = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 6, pa.int32()), pa.array(["aaaa", "bbbb"]))
    table = pa.table({"image": pa.array(at.good(), pa.binary()), "label": column})
    path = _arrow(at, table)
    data = path.read_bytes().replace(struct.pack("<4i", 0, 1, 0, 1), struct.pack("<4i", 0, 2**31 - 1, -5, 1))
    path.write_bytes(data)
    return at.score("x.arrow#image,label", "--per-class", code=(DATA,))


@case
def saved_data_set_that_names_files_elsewhere(at: Place) -> Line:
    at.write("d/state.json", json.dumps({"_data_files": [{"filename": "../../../etc/passwd"}]}))
    at.write("d/dataset_info.json", "{" * 1000)
    return at.score("d", "--json", code=(DATA,))


@case
def saved_data_set_that_names_itself_again_and_again(at: Place) -> Line:
    at.write("d/state.json", json.dumps({"_data_files": [{"filename": "state.json"}] * 20_000}))
    return at.score("d", code=(DATA,))


@case
def saved_data_set_of_other_things(at: Place) -> Line:
    at.write("d/state.json", '{"_data_files": {"filename": [1e999, NaN]}, "_data_files": 7}')
    return at.score("d", code=(DATA,))


# --- labels, prompts, entities ------------------------------------------------------------------------------------


def _labeled(at: Place, name: str, data: bytes | str, *options: str, code: tuple[int, ...] = (DATA,)) -> Line:
    at.write(name, data)
    sides = ("--real-labels", name, "--fake-labels", name)
    return at.score(at.images(), "--per-class", *sides, *options, code=code)


@case
def labels_in_utf_16(at: Place) -> Line:
    return _labeled(at, "l.csv", "name,label\n00.png,cat\n".encode("utf-16"))


@case
def labels_with_nul_bytes(at: Place) -> Line:
    return _labeled(at, "l.csv", b"name,label\n00.png,ca\0t\n" * 100, "--json")


@case
def labels_of_a_million_columns(at: Place) -> Line:
    return _labeled(at, "l.tsv", b"\t" * 1_000_000 + b"\n" + b"a\tb\n")


@case
def labels_of_names_with_escapes(at: Place) -> Line:
    lines = "".join(f"{n:02}.png,\x1b]0;owned\x07\u202e{'x' * 5000}{n % 2}\n" for n in range(12))
    line = _labeled(at, "l.csv", lines, "--html", "o.html", "--min-per-class", "3", code=(OK, DATA, USAGE))
    return _with_outputs(line, "o.html")


def _with_outputs(line: Line, *names: str) -> Line:
    line.outputs = names
    return line


@case
def labels_that_take_far_more_when_parsed(at: Place) -> Line:
    return _labeled(at, "l.json", b'{"labels": [' + b"[]," * 4_000_000 + b"[]]}")


@case
def labels_of_numbers_that_are_none(at: Place) -> Line:
    names = ["NaN", "Infinity", "-Infinity", "1e999", "true", "1.5", "{}", "[[]]", '"\\ud800"', "9" * 4000]
    pairs = ",".join(f'["{n:02}.png", {name}]' for n, name in enumerate(names))
    return _labeled(at, "l.json", f'{{"labels": [{pairs}]}}', "--json")


@case
def labels_of_twenty_thousand_classes(at: Place) -> Line:
    lines = "".join(f"{n:02}.png,{n}\n" for n in range(20_000))
    return _labeled(at, "l.csv", lines, "--labels", code=(OK, DATA, USAGE))


def _aligned(at: Place, name: str, data: bytes | str, *options: str) -> Line:
    at.write(name, data)
    from_here = ("--extractor", f"{toy_pair.__file__}:load")
    return Line(["align", at.images(), "--prompts", name, *from_here, "-q", *options], code=(OK, USAGE, DATA))


@case
def prompts_that_repeat_one_key_behind_many(at: Place) -> Line:
    keys = ",".join(f'"k{n}":"p"' for n in range(60_000))
    return _aligned(at, "p.json", "{" + keys + ',"k59999":"q"}')


@case
def prompts_that_take_far_more_when_parsed(at: Place) -> Line:
    return _aligned(at, "p.jsonl", b'{"file_name": "00.png", "text": [' + b"[]," * 4_000_000 + b"[]]}")


@case
def prompts_of_one_line_of_ten_megabytes(at: Place) -> Line:
    return _aligned(at, "p.txt", "\u202e\x1b[2J" * 1_700_000)


@case
def prompts_of_lone_surrogates(at: Place) -> Line:
    text = "".join(json.dumps({"file_name": f"{n:02}.png", "text": f"\ud800 {n}"}) + "\n" for n in range(12))
    return _aligned(at, "p.jsonl", text, "--json")


@case
def prompts_in_a_folder_of_pipes(at: Place) -> Line:
    (at.folder / "p").mkdir()
    for number in range(12):
        os.mkfifo(at.folder / "p" / f"{number:02}.txt")
    line = _aligned(at, "q", b"")
    line.args[line.args.index("q")] = "p"
    return line


@case
def prompts_of_a_tab_and_no_more(at: Place) -> Line:
    return _aligned(at, "p.tsv", b"file_name\ttext\n" + b"\t\n" * 300_000)


@case
def prompts_as_captions_that_refer_to_each_other(at: Place) -> Line:
    record = {"images": [{"id": [], "file_name": {}}], "annotations": [{"image_id": {}, "caption": []}]}
    return _aligned(at, "p.json", json.dumps(record), "--json")


def _entities(
    at: Place, expected: bytes | str, found: bytes | str, *options: str, suffix: str = "jsonl"
) -> Line:
    at.write(f"e.{suffix}", expected)
    at.write(f"a.{suffix}", found)
    return Line(["entities", f"e.{suffix}", f"a.{suffix}", "-q", *options], code=(OK, USAGE, DATA))


def _lines(**fields: object) -> str:
    return "".join(json.dumps({"id": str(n), **fields}) + "\n" for n in range(12))


@case
def entities_of_a_hundred_thousand_names_in_one_answer(at: Place) -> Line:
    answer = ", ".join(f"name {n}" for n in range(100_000))
    return _entities(
        at, _lines(expected=["cat", "dog"]), _lines(answer=answer)[:3_000_000].rpartition("\n")[0], "--json"
    )


@case
def entities_with_answers_of_broken_json(at: Place) -> Line:
    answer = '{"entities": [' * 3000 + '"cat"' + "]}," * 3000
    return _entities(at, _lines(expected=["cat", "dog"]), _lines(answer=answer))


@case
def entities_of_combining_marks(at: Place) -> Line:
    answer = "- c" + "\u0301" * 60_000 + "at\n- dog\u200d" * 100
    return _entities(at, _lines(expected=["cat", "dog"]), _lines(answer=answer))


@case
def entities_expected_without_end(at: Place) -> Line:
    return _entities(at, _lines(expected=[f"e{n}" for n in range(20_000)]), _lines(found=["e1"]), "--json")


@slow
def entities_with_a_vocabulary_of_many_names(at: Place) -> Line:
    at.write("v.txt", "".join(f"name {n}\n" for n in range(30_000)))
    prompts = _lines(prompt="name 7 and name 8 " * 500)
    return _entities(at, prompts, _lines(found=["name 7"]), "--vocabulary", "v.txt")


@case
def entities_with_aliases_that_go_round(at: Place) -> Line:
    at.write("al.json", json.dumps({"cat": ["dog"], "dog": ["cat"], "": [""], "x": ["x"] * 1000}))
    return _entities(at, _lines(expected=["cat"]), _lines(found=["dog"]), "--aliases", "al.json", "--json")


@case
def entities_of_ids_that_are_numbers_without_end(at: Place) -> Line:
    lines = (
        '{"id": '
        + "9" * 4000
        + ', "expected": ["a"]}\n{"id": 1e999, "expected": ["a"]}\n{"id": NaN, "expected": []}\n'
    )
    return _entities(at, lines, lines.replace("expected", "found"))


@case
def entities_in_a_table_of_quotes(at: Place) -> Line:
    return _entities(at, b"id,expected\n" + b'"' * 3_000_001, b"id,found\n1,a\n", suffix="csv")


@case
def entities_nested_in_a_table(at: Place) -> Line:
    deep = '"' + '[""' * 30_000 + '"'
    return _entities(at, f"id,expected\n1,{deep}\n", f"id,answer\n1,{deep}\n", suffix="csv")


# --- results, logs ------------------------------------------------------------------------------------------------


def _changed(record: object, name: str, value: object) -> object:
    if isinstance(record, dict):
        return {key: value if key == name else _changed(each, name, value) for key, each in record.items()}
    return [_changed(each, name, value) for each in record] if isinstance(record, list) else record


def _results(at: Place, name: str, value: object, *command: str) -> Line:
    at.write("a.json", json.dumps(at.result))
    at.write("b.json", json.dumps(_changed(at.result, name, value)))
    return Line([*(command or ("compare", "--force")), "a.json", "b.json"], code=(OK, USAGE, DATA))


@case
def result_of_k_beyond_all_measure(at: Place) -> Line:
    return _results(at, "k", 10**30)


@case
def result_of_a_negative_number_of_images(at: Place) -> Line:
    return _results(at, "n", -5, "rank", "--results", "--json")


@case
def result_of_values_that_are_texts(at: Place) -> Line:
    return _results(at, "value", "0.5" * 1000)


@case
def result_of_values_that_are_no_numbers(at: Place) -> Line:
    at.write("a.json", json.dumps(at.result))
    at.write("b.json", json.dumps(_changed(at.result, "value", 0.25)).replace("0.25", "1e999"))
    return Line(["rank", "--results", "a.json", "b.json", "--json"], code=(DATA, USAGE))


@case
def result_of_an_extractor_with_markup(at: Place) -> Line:
    evil = "</script><script>alert(1)</script>\x1b[2J\u202e" * 2000
    line = _results(at, "extractor", evil, "compare", "--force", "--html", "o.html")
    line.outputs = ("o.html",)
    return line


@case
def result_of_a_source_of_a_megabyte(at: Place) -> Line:
    return _results(at, "source", "../" * 300_000, "compare")


@case
def result_of_notices_without_end(at: Place) -> Line:
    record = at.result
    for each in record.get("results", [record]):
        each["notices"] = [
            {"level": "warning", "code": f"c{n}", "message": "m" * 500, "hint": None} for n in range(3000)
        ]
    at.write("a.json", json.dumps(record))
    return Line(["compare", "a.json", "a.json", "--force"], code=(OK, USAGE, DATA))


@case
def results_that_take_far_more_when_parsed(at: Place) -> Line:
    at.write("a.json", b'{"results": [' + b"[]," * 4_000_000 + b"[]]}")
    return Line(["compare", "a.json", "a.json"], code=(DATA,))


@case
def results_by_the_hundred_in_one_file(at: Place) -> Line:
    record = at.result
    each = record["results"][0] if "results" in record else record
    at.write("a.json", json.dumps({**record, "results": [each] * 300}))
    return Line(["compare", "a.json", "--force", "--json"], code=(OK, USAGE, DATA))


@case
def results_that_are_pipes_and_devices(at: Place) -> Line:
    os.mkfifo(at.folder / "a.json")
    return Line(["compare", "a.json", "/dev/zero", "/proc/self/mem", "--json"], code=(USAGE, DATA))


@case
def sweep_folder_of_other_things(at: Place) -> Line:
    at.write("s/points/psi=0.5.json", '{"points": [{"setting": NaN, "result": {}}], "schema": 1e400}')
    at.write("s/points/psi=1.0.json", b"[" * 100_000)
    fakes = str(at.shared / "fake")
    line = ["sweep", at.real, f"0.5={fakes}", f"1={fakes}", *_SCORE, "--out", "s"]
    return Line(line, outputs=("s",), code=(USAGE, DATA))


@case
def sweep_folder_that_is_a_pipe(at: Place) -> Line:
    (at.folder / "s").mkdir()
    os.mkfifo(at.folder / "s" / "sweep.json")
    fakes = str(at.shared / "fake")
    line = ["sweep", at.real, f"0.5={fakes}", f"1={fakes}", *_SCORE, "--out", "s"]
    return Line(line, outputs=("s",), code=(USAGE, DATA, RESOURCE))


@case
def sweep_of_settings_that_are_no_numbers(at: Place) -> Line:
    fakes = str(at.shared / "fake")
    settings = [f"{name}={fakes}" for name in ("nan", "inf", "1e999", "\u0661", "", "=", "1_0", "0x1")]
    return Line(["sweep", at.real, *settings, *_SCORE], code=(USAGE,))


def _watch(at: Place, *options: str, **facts: object) -> Line:
    shutil.copytree(at.shared / "fake", at.folder / "w" / "a", dirs_exist_ok=True)
    once = ("--once", "--settle", "0", "--interval", "0.1", "--give-up", "0")
    return Line(["watch", at.real, "w", *_SCORE, *once, *options], outputs=("w",), **facts)


@case
def watch_with_a_log_that_is_a_pipe(at: Place) -> Line:
    (at.folder / "w").mkdir()
    os.mkfifo(at.folder / "w" / "genpr.jsonl")
    return _watch(at, code=(USAGE, DATA, RESOURCE))


@case
def watch_with_a_best_that_is_a_pipe(at: Place) -> Line:
    (at.folder / "w").mkdir()
    os.mkfifo(at.folder / "w" / "best.json")
    return _watch(at, code=(USAGE, DATA, RESOURCE))


@case
def watch_with_a_log_of_endless_zeros(at: Place) -> Line:
    (at.folder / "w").mkdir()
    with (at.folder / "w" / "genpr.jsonl").open("wb") as file:
        file.truncate(3 * 2**30)
    return _watch(at, code=(USAGE, DATA, RESOURCE))


@case
def watch_with_a_log_that_takes_far_more_when_parsed(at: Place) -> Line:
    at.write("w/genpr.jsonl", b'{"schema": 1, "name": "a", "x": [' + b"[]," * 4_000_000 + b"[]]}\n")
    return _watch(at, code=(DATA,))


@case
def watch_with_a_log_that_leads_to_a_device(at: Place) -> Line:
    (at.folder / "w").mkdir()
    (at.folder / "w" / "genpr.jsonl").symlink_to("/dev/zero")
    return _watch(at, code=(USAGE, DATA, RESOURCE))


@case
def watch_of_names_that_are_obeyed(at: Place) -> Line:
    for name in ("\x1b[2J", "-x", "{a,b}", "*", "a\nerror: forged", "\u202e", "%s%n", "genpr-results"):
        shutil.copytree(at.shared / "fake", at.folder / "w" / name)
    return _watch(at, "--keep-results", "--json", code=(OK,))


@case
def watch_of_samples_that_are_bombs(at: Place) -> Line:
    at.write("w/b.zip", _zip_by_hand([{"body": _deflated(bytes(60 * MB)), "size": 2**32 - 1, "method": 8}]))
    at.write(
        "w/c.npz", zipfile_of({"arr_0.npy": npy_of(_head("'|u1'", "(10000, 100, 100, 3)"), bytes(1000))})
    )
    at.write("w/d.parquet", b"PAR1")
    return _watch(at, code=(OK, DATA))


@case
def watch_of_a_link_to_a_device(at: Place) -> Line:
    (at.folder / "w").mkdir()
    (at.folder / "w" / "e.tar").symlink_to("/dev/zero")
    os.mkfifo(at.folder / "w" / "p.npz")
    return _watch(at, code=(OK,))


# --- weights, checkpoints, code -----------------------------------------------------------------------------------


@case
def pickles_as_images_features_and_weights(at: Place) -> Line:
    pickle = b"cos\nsystem\n(S'touch ran'\ntR."
    for suffix in ("pt", "pth", "pkl", "ckpt", "bin"):
        at.write(f"x.{suffix}", pickle)
    return at.score("x.{pt,pth,pkl}", code=(USAGE, DATA, RESOURCE))


@case
def pickle_as_weights(at: Place) -> Line:
    at.write("x.pt", b"cos\nsystem\n(S'touch ran'\ntR.")
    line = ["score", at.real, at.real, "--extractor", "inception", "--weights", "x.pt", "-q"]
    return Line(line, code=(USAGE, RESOURCE))


@case
def pipe_as_weights(at: Place) -> Line:
    os.mkfifo(at.folder / "x.pt")
    line = ["score", at.real, at.real, "--extractor", "inception", "--weights", "x.pt", "-q"]
    return Line(line, code=(USAGE, RESOURCE))


@case
def device_as_weights(at: Place) -> Line:
    (at.folder / "x.pt").symlink_to("/dev/zero")
    line = ["score", at.real, at.real, "--extractor", "inception", "--weights", "x.pt", "-q"]
    return Line(line, code=(USAGE, RESOURCE))


@case
def folder_of_weights_that_loops(at: Place) -> Line:
    (at.folder / "w").mkdir()
    (at.folder / "w" / "w").symlink_to("../w")
    line = ["score", at.real, at.real, "--extractor", "vgg16", "--weights", "w", "--json"]
    return Line(line, code=(USAGE, RESOURCE))


@case
def extractor_names_without_end(at: Place) -> Line:
    line = ["score", at.real, at.real, "--extractor", "timm:" + "x/" * 30_000, "--json"]
    return Line(line, code=(USAGE, RESOURCE))


@case
def extractor_of_a_module_that_is_none(at: Place) -> Line:
    at.write("x.py", "def f(:\n" + "(" * 1000)
    return Line(["score", at.real, at.real, "--extractor", "x.py:f", "--json"], code=(USAGE,))


@case
def generator_that_gives_too_much(at: Place) -> Line:
    at.write(
        "g.py",
        "def load(path=None, **more):\n    raise RuntimeError('\\x1b[2J' + 'x' * 10**6 + '\\nerror: forged')\n",
    )
    at.write("w/a.pt", b"x")
    once = ("--once", "--settle", "0", "--interval", "0.1", "--give-up", "0")
    line = ["watch", at.real, "w", *_SCORE, *once, "--generator", "g.py:load", "--n", "12"]
    return Line(line, outputs=("w", "__pycache__"), code=(OK, USAGE, DATA, RESOURCE))


# --- names, patterns, what lies in folders ------------------------------------------------------------------------


@case
def images_of_hostile_names(at: Place) -> Line:
    names = [
        "a\nerror: forged",
        "\x1b[2J",
        "-x",
        "{a,b}",
        "*",
        "\u202egnp",
        "=cmd|' C'!A0",
        "'\"><img src=x>",
        " ",
        "%s",
    ]
    (at.folder / "f").mkdir()
    for name, data in zip(names, at.good(), strict=False):
        (at.folder / "f" / f"{name}.png").write_bytes(data)
    (at.folder / os.fsdecode(b"f/\xff\xfe\xed\xa0\x80.png")).write_bytes(at.good()[-1])
    (at.folder / "f" / ("n" * 251 + ".png")).write_bytes(b"no image")
    line = at.score(
        "f", "--csv", "o.csv", "--html", "o.html", "--on-bad", "skip", "--max-bad", "50%", code=(OK, USAGE)
    )
    line.args.remove("-q")
    return _with_outputs(line, "o.csv", "o.html")


@case
def bad_images_of_hostile_names(at: Place) -> Line:
    (at.folder / "f").mkdir()
    for number in range(40):
        (at.folder / "f" / ("\x1b[2J\n\u202e" * 20 + f"{number}.png")).write_bytes(b"no image")
    return at.score("f", "--json", code=(DATA,))


@case
def pattern_of_a_billion_names(at: Place) -> Line:
    return at.score("x{1..999999999}.png", "--json", code=(USAGE,))


@case
def pattern_of_lists_in_lists(at: Place) -> Line:
    return at.score("{a," * 16 + "b" + "}" * 16, code=(USAGE,))


@case
def pattern_of_many_pairs(at: Place) -> Line:
    return at.score("{a,b}" * 60, code=(USAGE,))


@case
def pattern_of_stars(at: Place) -> Line:
    (at.folder / ("a" * 200)).mkdir()
    return at.score("*a" * 60 + "b", code=(USAGE,))


@case
def pattern_of_open_brackets(at: Place) -> Line:
    return at.score("[" * 100_000, "--json", code=(USAGE,))


@case
def pattern_of_ranges_of_unlike_ends(at: Place) -> Line:
    return at.score("x{9999999999999999999..1..0}{a..Z}{..}{1..}{\u0661..\u0669}*", code=(USAGE,))


@case
def pattern_with_nul_and_surrogates(at: Place) -> Line:
    return at.score(os.fsdecode(b"\xff{a,b}*\x1b"), "--json", code=(USAGE,))


@case
def links_that_go_round(at: Place) -> Line:
    shutil.copytree(at.shared / "fake", at.folder / "f")
    for number in range(20):
        (at.folder / "f" / f"d{number}").mkdir()
        for other in range(20):
            (at.folder / "f" / f"d{number}" / f"l{other}").symlink_to(f"../d{other}")
    return at.score("f", "--follow-symlinks", code=(OK,))


@case
def links_to_everything(at: Place) -> Line:
    shutil.copytree(at.shared / "fake", at.folder / "f")
    for number, target in enumerate(
        ("/dev/zero", "/dev/tty", "/proc/self/mem", "/proc/self/fd/0", "/dev/stdin", "/sys")
    ):
        (at.folder / "f" / f"x{number}.png").symlink_to(target)
    return at.score("f", "--json", code=(OK, DATA))


@case
def sockets_and_pipes_among_images(at: Place) -> Line:
    shutil.copytree(at.shared / "fake", at.folder / "f")
    os.mkfifo(at.folder / "f" / "pipe.png")
    where = Path.cwd()
    os.chdir(at.folder / "f")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket.png")
    os.chdir(where)
    return at.score("f", code=(OK, DATA))


@case
def folder_of_processes(at: Place) -> Line:
    return at.score("/proc/self/task", "--json", code=(DATA, USAGE))


@case
def folders_nested_beyond_the_longest_path(at: Place) -> Line:
    shutil.copytree(at.shared / "fake", at.folder / "f")
    where = Path.cwd()
    os.chdir(at.folder / "f")
    for _ in range(60):
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    os.chdir(where)
    return at.score("f", code=(OK, DATA))


@case
def source_that_is_a_socket(at: Place) -> Line:
    os.mkfifo(at.folder / "x.npz")
    return at.score("x.npz", "--json", code=(USAGE,))


@case
def list_of_files_of_all_kinds(at: Place) -> Line:
    lines = [
        "/dev/zero",
        "/dev/stdin",
        ".",
        "..",
        "",
        "x" * 5000,
        "/proc/self/environ",
        "~root/x",
        "$HOME",
        "http://x/",
    ]
    at.write("l.txt", "\n".join(lines))
    return at.score("l.txt", "--json", code=(DATA,))


@case
def list_of_files_that_is_binary(at: Place) -> Line:
    at.write("l.txt", bytes(range(256)) * 4000)
    return at.score("l.txt", code=(DATA,))


@case
def list_of_files_on_an_endless_input(at: Place) -> Line:
    return at.score("-", stdin="/dev/zero", code=(DATA, USAGE))


# --- options ------------------------------------------------------------------------------------------------------


def _options(*options: str) -> Case:
    def make(at: Place) -> Line:
        return at.score(str(at.shared / "fake"), *options, code=(OK, USAGE, DATA, RESOURCE))

    return make


OPTIONS: dict[str, tuple[str, ...]] = {
    "k_of_thirty_digits": ("--k", str(10**30)),
    "k_below_nothing": ("--k", "-1", "--json"),
    "k_of_other_digits": ("--k", "\u0663\u0663"),
    "max_pixels_of_nothing": ("--max-pixels", "0"),
    "max_memory_beyond_numbers": ("--max-memory", "1e400GiB"),
    "max_memory_of_nothing": ("--max-memory", "nan"),
    "max_memory_of_one_byte": ("--max-memory", "1B", "--json"),
    "batch_size_of_nothing": ("--batch-size", "0"),
    "device_that_is_none": ("--device", "cuda:99999"),
    "device_of_a_long_name": ("--device", "x\x1b[2J" * 5000, "--json"),
    "metrics_by_the_thousand": ("--metrics", ",".join(f"m{n}" for n in range(10_000)), "--json"),
    "metrics_of_nothing": ("--metrics", ",,,"),
    "threshold_that_is_no_number": ("--fail-under", "precision=nan"),
    "threshold_of_a_metric_that_is_none": ("--fail-under", "x" * 9000 + "=1", "--json"),
    "seed_below_nothing": ("--max-images", "5", "--seed", "-1"),
    "seed_of_thirty_digits": ("--max-images", "5", "--seed", str(10**30)),
    "max_bad_of_everything": ("--on-bad", "skip", "--max-bad", "1e999%"),
    "alpha_of_percent_signs": ("--alpha", "%n%s" * 3000, "--json"),
    "protocol_of_nothing": ("--protocol", ""),
    "protocol_by_the_thousand": ("--protocol", "genpr") * 2000,
    "html_into_a_folder": ("--html", "/"),
    "html_of_a_name_with_nul": ("--html", "a" * 300 + ".html"),
    "csv_over_a_device": ("--csv", "/dev/full"),
    "cache_in_a_process": ("--cache-dir", "/proc/1/fdinfo", "--metrics", "x"),
    "held_out_of_nothing": ("--held-out", "", "--json"),
    "earlier_of_a_device": ("--html", "o.html", "--earlier", "/dev/zero"),
    "worst_by_a_long_name": ("--per-class", "--worst-by", "\u202e" * 9000, "--json"),
}
for _name, _given in OPTIONS.items():
    CASES[f"option_{_name}"] = _options(*_given)


@case
def command_that_does_not_exist(at: Place) -> Line:
    return Line(["\x1b[2J" * 20_000], code=(USAGE,))


@case
def pack_over_its_own_source(at: Place) -> Line:
    at.write("x.zip", zipfile_of({f"{n}.png": image for n, image in enumerate(at.good())}))
    return Line(["pack", "x.zip", "x.zip", "-q", "--json"], code=(USAGE, DATA))


@slow
def pack_of_images_of_many_sizes(at: Place) -> Line:
    large = encoded(Image.new("RGB", (9000, 9000)), "PNG")
    return Line(["pack", at.images(hostile=large), "o.npz", "-q"], code=(DATA, USAGE))


@slow
def pack_of_many_large_images(at: Place) -> Line:
    large = encoded(Image.new("RGB", (9000, 9000)), "PNG", compress_level=1)
    at.write("x.zip", zipfile_of({f"{n}.png": large for n in range(3)}, zipfile.ZIP_STORED))
    return Line(["pack", "x.zip", "o.npz", "-q", "--compressed"], outputs=("o.npz",), code=(OK, DATA))


@case
def features_of_a_share_that_is_none(at: Place) -> Line:
    line = [
        "features",
        at.real,
        "o.safetensors",
        "--extractor",
        "pixels",
        "-q",
        "--shard",
        "\u0661/\u0661\u0661",
        "--json",
    ]
    return Line(line, code=(USAGE,))


@case
def features_into_a_pipe(at: Place) -> Line:
    os.mkfifo(at.folder / "o.safetensors")
    return Line(["features", at.real, "o.safetensors", "--extractor", "pixels", "-q"], code=(USAGE,))


@case
def features_without_room(at: Place) -> Line:
    line = ["features", at.real, "o.safetensors", "--extractor", "pixels", "-q"]
    return Line(line, limits={resource.RLIMIT_FSIZE: 4096}, code=(RESOURCE,))


@case
def score_without_room_for_its_page(at: Place) -> Line:
    return at.score(
        str(at.shared / "fake"), "--html", "o.html", limits={resource.RLIMIT_FSIZE: 4096}, code=(RESOURCE,)
    )


@case
def modes_of_equal_images(at: Place) -> Line:
    (at.folder / "f").mkdir()
    for number in range(30):
        (at.folder / "f" / f"{number}.png").write_bytes(at.good()[0])
    return Line(
        ["modes", "f", "f", "--extractor", "pixels", "-q", "--clusters", "1000000", "--json"],
        code=(OK, USAGE, DATA),
    )


@case
def audit_of_a_file_that_is_a_pipe(at: Place) -> Line:
    (at.folder / "o").mkdir()
    os.mkfifo(at.folder / "o" / "results.jsonl")
    line = ["audit", "--metric", "precision", "--check", "x" * 5000, "--out", "o", "--resume", "-q", "--json"]
    return Line(line, code=(USAGE, DATA, RESOURCE), outputs=("o",))


@case
def audit_that_resumes_from_a_pipe(at: Place) -> Line:
    (at.folder / "o").mkdir()
    os.mkfifo(at.folder / "o" / "results.jsonl")
    line = ["audit", "--metric", "precision", "--out", "o", "--resume", "-q", "--json"]
    return Line(line, code=(USAGE, DATA, RESOURCE), outputs=("o",))


@case
def audit_that_resumes_from_other_things(at: Place) -> Line:
    at.write("o/results.jsonl", b'{"x": [' + b"[]," * 4_000_000 + b"[]]}\n")
    line = ["audit", "--metric", "precision", "--out", "o", "--resume", "-q", "--json"]
    return Line(line, code=(USAGE, DATA, RESOURCE), outputs=("o",))


@case
def cache_prune_of_sizes_that_are_none(at: Place) -> Line:
    return Line(["cache", "prune", "--max-size", "1e999TB"], code=(USAGE,))


@case
def cache_prune_of_ages_that_are_none(at: Place) -> Line:
    return Line(["cache", "prune", "--older-than", "9" * 400 + "d"], code=(USAGE,))


@case
def cache_list_of_hostile_folders(at: Place) -> Line:
    for number, key in enumerate(
        (b"[" * 100_000, b'{"extractor": "\\u001b[2J", "device": 1e999}', b"\xff" * 1000)
    ):
        at.write(f"cache/features/{number}/key.json", key)
    os.mkfifo(at.folder / "cache" / "features" / "0" / ("0" * 32 + ".safetensors"))
    (at.folder / "cache" / "features" / "loop").symlink_to(".")
    return Line(["cache", "list"], code=(OK, USAGE))


@case
def cache_list_of_a_key_that_is_a_pipe(at: Place) -> Line:
    (at.folder / "cache" / "features" / "pixels").mkdir(parents=True)
    os.mkfifo(at.folder / "cache" / "features" / "pixels" / "key.json")
    return Line(["cache", "list", "--cache-dir", "cache", "--json"], code=(OK, USAGE))


@case
def weights_of_names_that_are_none(at: Place) -> Line:
    return Line(["weights", "fetch", "../../etc/passwd", "x" * 10_000, "--offline"], code=(USAGE, RESOURCE))


@case
def list_of_things_that_are_none(at: Place) -> Line:
    return Line(["list", "x\x1b[2J" * 9000, "--json"], code=(USAGE,))


@case
def demo_of_more_than_there_is(at: Place) -> Line:
    return Line(["demo", "--n", str(10**30), "--json", "-q"], code=(USAGE,))


@case
def demo_of_a_seed_of_thirty_digits(at: Place) -> Line:
    return Line(["demo", "--n", "50", "--seed", str(10**30), "--json", "-q"], code=(USAGE,))


@case
def audit_of_processes_and_seeds_without_end(at: Place) -> Line:
    line = ["audit", "--metric", "x", "--seed", str(10**30), "--jobs", str(10**30), "-q", "--json"]
    return Line(line, code=(USAGE, RESOURCE))


@case
def features_of_batches_beyond_numbers(at: Place) -> Line:
    line = ["features", at.real, "o.safetensors", "--extractor", "pixels", "-q", "--batch-size", str(10**30)]
    return Line(line, code=(OK, USAGE), outputs=("o.safetensors",))


@case
def watch_that_sleeps_beyond_numbers(at: Place) -> Line:
    return _watch(at, "--interval", "1e300", "--give-up", "1e300", "--settle", "nan", code=(OK, USAGE))


@case
def modes_of_k_and_clusters_beyond_numbers(at: Place) -> Line:
    line = [
        "modes",
        at.real,
        at.real,
        "--extractor",
        "pixels",
        "-q",
        "--k",
        str(10**30),
        "--clusters",
        str(10**30),
    ]
    return Line([*line, "--seed", str(10**30), "--max-images", str(10**30)], code=(USAGE, DATA))


@case
def rank_of_settings_that_are_no_numbers(at: Place) -> Line:
    at.write("g.py", "def load(path=None, **more):\n    return lambda z: z\n")
    at.write("a.pt", b"x")
    line = ["rank", at.real, "a.pt", *_SCORE, "--generator", "g.py:load", "--psi", "nan", "--n", str(10**30)]
    extra = ["--image-range", "nan,1e999", "--latent-dim", str(10**30), "--by", "f1e999"]
    return Line([*line, *extra], outputs=("__pycache__",), code=(USAGE, DATA, RESOURCE))


@case
def sweep_of_a_latent_beyond_memory(at: Place) -> Line:
    at.write("g.py", "def load(path=None, **more):\n    return lambda z: z\n")
    line = [
        "sweep",
        at.real,
        *_SCORE,
        "--generator",
        "g.py:load",
        "--psi",
        "0:1:1e-300",
        "--n",
        "100000000000",
    ]
    return Line(
        [*line, "--latent-dim", "100000000000"], outputs=("__pycache__",), code=(USAGE, DATA, RESOURCE)
    )


@case
def demo_into_a_file(at: Place) -> Line:
    at.write("d", b"")
    return Line(["demo", "--n", "50", "--save", "d", "--json", "-q"], code=(USAGE, RESOURCE))


# --- environment --------------------------------------------------------------------------------------------------

ENVIRONMENT: dict[str, dict[str, str | None]] = {
    "cache_that_is_a_device": {"GENPR_CACHE": "/dev/null"},
    "cache_in_the_memory_of_another_process": {"GENPR_CACHE": "/proc/1/mem"},
    "cache_of_a_long_name": {"GENPR_CACHE": "x/" * 5000},
    "cache_of_nothing_and_a_home_that_is_none": {
        "GENPR_CACHE": "",
        "HOME": "/dev/null",
        "XDG_CACHE_HOME": "",
    },
    "cache_in_a_relative_folder": {"GENPR_CACHE": None, "HOME": "/dev/null", "XDG_CACHE_HOME": "\x1b[2J"},
    "columns_of_nothing": {"COLUMNS": "0", "LINES": "0"},
    "columns_below_nothing": {"COLUMNS": "-1"},
    "columns_beyond_numbers": {"COLUMNS": "1000000000", "LINES": "1000000000"},
    "terminal_of_a_strange_kind": {"TERM": "\x1b]0;x\x07", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"},
    "port_that_is_no_number": {"MASTER_PORT": "abc", "MASTER_ADDR": "\x1b[2J"},
    "rank_that_is_no_number": {"RANK": "abc", "WORLD_SIZE": "-3", "LOCAL_RANK": "1e9"},
    "offline_of_a_strange_kind": {"GENPR_OFFLINE": "\u0661"},
    "temporary_folder_that_is_none": {"TMPDIR": "/nonexistent", "TMP": "", "TEMP": "/dev/full"},
    "devices_that_are_none": {"CUDA_VISIBLE_DEVICES": "x" * 9000},
}


def _environment(variables: dict[str, str | None]) -> Case:
    def make(at: Place) -> Line:
        attempts = ("os.mkdir ('/proc/1/mem'", "os.mkdir ('/dev/null")  # which fail
        return at.score(str(at.shared / "fake"), env=variables, code=(OK, USAGE, RESOURCE), attempts=attempts)

    return make


for _name, _variables in ENVIRONMENT.items():
    CASES[f"environment_{_name}"] = _environment(_variables)


@case
def environment_of_ascii_and_threads_that_are_no_number(at: Place) -> Line:
    variables = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "OMP_NUM_THREADS": "abc"}
    fake = at.images()
    (at.folder / "f" / "\u202e\u00e9.png").write_bytes(b"no image")
    return at.score(fake, "--json", env=variables, module=True, code=(DATA,))


@case
def environment_of_a_small_stack(at: Place) -> Line:
    return at.score(
        str(at.shared / "fake"), limits={resource.RLIMIT_STACK: 512 * 1024}, module=True, code=(OK, RESOURCE)
    )
