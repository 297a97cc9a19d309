"""Hostile command lines end in a score or in one error line, in bounded time and memory, and write nothing else."""

import io
import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import matplotlib.figure  # noqa: F401 - which makes its folders
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile.side_effects import limited_effects
from image_files import encode, gray_tiff, png, png_chunk
from PIL import Image

from genpr.cli.main import run

OK, USAGE, DATA, RESOURCE = 0, 2, 3, 4
MB = 2**20
HUGE = str(10**30)
SCORE = ("--extractor", "pixels", "--no-intervals", "--no-control", "-q")


@pytest.fixture
def at(sides, tmp_path, monkeypatch):
    """The working directory with real/ and fake/."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENPR_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def check(at, capfd):
    """Run a command line and check what holds for all of them."""

    def check(args: list[str], *codes: int) -> None:
        args = [*args, "--json"] if args[0] in {"score", "entities", "align"} else args
        with limited_effects(at, seconds=60, memory=3 * 2**29):
            code = run(args)
        out, err = capfd.readouterr()
        assert code in codes, (code, err[-2000:])
        assert sum(line.startswith("error: ") for line in err.splitlines()) == (code != OK), err[-2000:]
        assert "Traceback" not in err
        assert max(map(len, err.encode("utf-8", "replace").splitlines()), default=0) <= 2000
        assert not {*"\0\x07\x1b\x7f\u202e\u2028"} & {*err}
        if args[-1] == "--json" and code != OK:
            assert json.loads(out)["error"]["exit_code"] == code

    return check


# Images -----------------------------------------------------------------------------------------------------


def png_with(*extra: bytes) -> bytes:
    return png(8, 8, bits=8, color=2, rows=(b"\0" + bytes(24)) * 8, extra=b"".join(extra))


def zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(MB)) for _ in range(megabytes)) + packer.flush()


def gif_of_frames() -> bytes:
    first = encode(np.zeros((8, 8), np.uint8), "GIF")[:-1]
    return first + first[first.rindex(b",") :] * 10_000 + b";"


def tiff_in_a_loop() -> bytes:
    data = gray_tiff(np.zeros((8, 8), np.uint16))
    return data[:-4] + data[4:8]


def webp_of_frames(side: int, frames: int) -> bytes:
    image = encode(Image.new("RGB", (8, 8)), "WEBP", lossless=True)[12:]
    frame = bytes(6) + (7).to_bytes(3, "little") * 2 + bytes(4) + image
    canvas = b"\2\0\0\0" + (side - 1).to_bytes(3, "little") * 2
    chunks = [(b"VP8X", canvas), (b"ANIM", bytes(6)), *[(b"ANMF", frame)] * frames]
    body = b"WEBP" + b"".join(kind + struct.pack("<I", len(data)) + data for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def avif_of_nested_boxes() -> bytes:
    body = b""
    for _ in range(5000):
        body = struct.pack(">I", len(body) + 12) + b"meta" + bytes(4) + body
    return struct.pack(">I", 24) + b"ftypavif" + bytes(4) + b"avifmif1" + body


IMAGES: dict[str, Callable[[], bytes]] = {
    "png of text bombs": lambda: png_with(*[png_chunk(b"iTXt", b"k\0\1\0\0\0" + zeros(60))] * 60),
    "png of a color profile bomb": lambda: png_with(png_chunk(b"iCCP", b"p\0\0" + zeros(300))),
    "png with a second larger header": lambda: png_with(
        png_chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    ),
    "gif of ten thousand frames": gif_of_frames,
    "tiff whose directory follows itself": tiff_in_a_loop,
    "webp of twenty thousand frames": lambda: webp_of_frames(1000, 20_000),
    "webp of a huge canvas": lambda: webp_of_frames(16_383, 1),
    "avif of nested boxes": avif_of_nested_boxes,
}


@pytest.mark.parametrize("name", IMAGES)
def test_hostile_images_end_in_a_score_or_an_error(at, check, name):
    (at / "fake" / "hostile.png").write_bytes(IMAGES[name]())
    check(["score", "real", "fake", *SCORE], OK, DATA)


# Files ------------------------------------------------------------------------------------------------------


def zip_by_hand(*members: dict) -> bytes:
    """A zip of members with any fields: name, body, size, packed, method, offset, extra, local_name."""
    body, directory = bytearray(), bytearray()
    for each in members:
        name, data, extra = each.get("name", b"a.png"), each.get("body", b""), each.get("extra", b"")
        sizes = zlib.crc32(data), each.get("packed", len(data)), each.get("size", len(data))
        local, offset = each.get("local_name", name), each.get("offset", len(body))
        start = 20, 0, each.get("method", 0), 0, 33, *sizes
        body += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", *start, len(local), 0) + local + data
        end = len(name), len(extra), 0, 0, 0, 0, offset
        directory += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, *start, *end) + name + extra
    end = (b"PK\5\6", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return bytes(body + directory) + struct.pack("<4sHHHHIIH", *end)


def overlapping() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(bytes(60 * MB)) + packer.flush()
    first = {"name": b"0.png", "body": body, "size": 60 * MB, "method": 8}
    return zip_by_hand(first, *({**first, "offset": 0, "name": b"%d.png" % n} for n in range(1, 300)))


def npy(descr: str, shape: str, body: bytes = b"") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode("latin-1")
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + body


def parquet(**columns: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, compression="zstd", use_dictionary=False)
    return file.getvalue()


def safetensors(header: dict | str, size: int = 192) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


TENSOR = {"dtype": "F32", "shape": [12, 4], "data_offsets": [0, 192]}
GOOD = encode(np.zeros((8, 8, 3), np.uint8), "PNG")
PATHS = [
    {"bytes": None, "path": path} for path in ("/etc/passwd", "../x", "http://127.0.0.1/x", "\x1b[2J" * 9999)
]
ZIP64 = struct.pack("<HHQQQ", 1, 24, 2**63, 2**63, 0)
LONG_NAME = b"\x1b[31m\n" * 9000
BEYOND = {**TENSOR, "shape": [2**62, 4], "data_offsets": [0, 2**64 - 1]}
OVERLAPPING = {"features": TENSOR, "other": {**TENSOR, "data_offsets": [96, 288]}}
METADATA = {"extractor": "os:system", "kind": "\nerror: x" * 99}
FAKES: dict[str, Callable[[], bytes]] = {
    "overlapping bombs.zip": overlapping,
    "beyond all measure.zip": lambda: zip_by_hand({"size": 2**32 - 1, "packed": 2**32 - 1, "extra": ZIP64}),
    "long names.zip": lambda: zip_by_hand(*({"name": LONG_NAME + b"%d.png" % n} for n in range(20))),
    "other names.zip": lambda: zip_by_hand({"local_name": b"../x", "body": GOOD}),
    "in a bomb.tar": lambda: zlib.compress(bytes(80 * MB)),
    "without pixels.npy": lambda: npy("'|u1'", "(1000000000000, 0, 0, 3)"),
    "named fields.npy": lambda: npy("[('a', '|u1', (8, 8, 3))]", "(12,)", bytes(12 * 192)),
    "overflow.npy": lambda: npy("'|u1'", f"({2**33}, {2**33}, {2**33}, 3)"),
    "no dimensions.npy": lambda: npy("'<f4'", "(1000000000000, 0)"),
    "overlap.safetensors": lambda: safetensors(OVERLAPPING, 288),
    "beyond.safetensors": lambda: safetensors({"features": BEYOND}),
    "long.safetensors": lambda: struct.pack("<Q", 100 * 2**30) + b"{}",
    "deep.safetensors": lambda: safetensors("[" * 2**17),
    "blanks.safetensors": lambda: safetensors(json.dumps({"features": TENSOR}) + " " * (90 * MB)),
    "metadata.safetensors": lambda: safetensors({"features": TENSOR, "__metadata__": METADATA}),
    "footer of gigabytes.parquet": lambda: b"PAR1" + b"\x15\4\x19" * 30_000 + b"\xff\xff\xff\x7fPAR1",
    "columns.parquet": lambda: parquet(**{f"c{n}\x1b[2J": [GOOD] for n in range(3000)}),
    "paths.parquet": lambda: parquet(image=PATHS),
    "binary.txt": lambda: bytes(range(256)) * 4000,
    "pickle.pt": lambda: b"cos\nsystem\n(S'touch ran'\ntR.",
}


@pytest.mark.parametrize("name", FAKES)
def test_hostile_files_of_images_and_features_end_in_a_score_or_an_error(at, check, name):
    (at / name).write_bytes(FAKES[name]())
    real = name if name.endswith(".safetensors") else "real"
    check(["score", real, name, *SCORE], *((OK, USAGE, DATA) if real == name else (USAGE, DATA, RESOURCE)))


# Places, names and options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pipe", "command"),
    [
        ("s/sweep.json", ["sweep", "real", "0.5=fake", "1=fake", *SCORE, "--out", "s"]),
        ("w/genpr.jsonl", ["watch", "real", "w", *SCORE, "--once", "--settle", "0"]),
        ("cache/features/pixels/key.json", ["cache", "list", "--cache-dir", "cache"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_pipes_in_place_of_files_of_genpr_are_not_read(at, check, pipe, command):
    (at / pipe).parent.mkdir(parents=True)
    os.mkfifo(at / pipe)
    check(command, OK, USAGE, DATA, RESOURCE)


def test_hostile_names_of_images_are_escaped(at, check):
    names = ["a\nerror: forged", "\x1b[2J", "-x", "{a,b}", "*", "\u202egnp", "=cmd|' C'!A0"]
    for name in (*names, "'\"><img src=x>", " "):
        (at / "fake" / f"{name}.png").write_bytes(b"no image" if name == "\x1b[2J" else GOOD)
    (at / os.fsdecode(b"fake/\xff\xfe\xed\xa0\x80.png")).write_bytes(GOOD)
    outputs = ("--csv", "o.csv", "--html", "o.html", "--on-bad", "skip", "--max-bad", "50%")
    check(["score", "real", "fake", *SCORE, *outputs], OK)
    check(["score", "real", "fake", *SCORE], DATA)


def test_circular_links_and_deeply_nested_folders_end_in_a_score_or_an_error(at, check, monkeypatch):
    for number in range(20):
        (at / "fake" / f"d{number}").mkdir()
        for other in range(20):
            (at / "fake" / f"d{number}" / f"l{other}").symlink_to(f"../d{other}")
    check(["score", "real", "fake", *SCORE, "--follow-symlinks"], OK)
    for _ in range(30):
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    os.chdir(at)
    check(["score", "real", str(at), *SCORE], OK, DATA)


COMMANDS = {
    "unknown": ["\x1b[2J" * 20_000],
    "k": ["score", "real", "fake", *SCORE, "--k", HUGE],
    "memory": ["score", "real", "fake", *SCORE, "--max-memory", "1e400GiB"],
    "share": ["score", "real", "fake", *SCORE, "--on-bad", "skip", "--max-bad", "1e999%"],
    "html": ["score", "real", "fake", *SCORE, "--html", "/"],
    "csv": ["score", "real", "fake", *SCORE, "--csv", "/dev/full"],
    "earlier": ["score", "real", "fake", *SCORE, "--html", "o.html", "--earlier", "/dev/zero"],
    "range": ["score", "real", "x{1..999999999}.png", *SCORE],
    "stars": ["score", "real", "*a" * 60 + "b", *SCORE],
    "surrogates": ["score", "real", os.fsdecode(b"\xff{a,b}*\x1b"), *SCORE],
    "processes": ["score", "real", "/proc/self/task", *SCORE],
    "weights": ["weights", "fetch", "../../etc/passwd", "x" * 10_000, "--offline"],
    "prune": ["cache", "prune", "--max-size", "1e999TB"],
    "demo": ["demo", "--n", HUGE, "-q"],
    "clusters": ["modes", "real", "real", "--extractor", "pixels", "-q", "--k", HUGE, "--clusters", HUGE],
    "batches": ["features", "real", "o.safetensors", "--extractor", "pixels", "-q", "--batch-size", HUGE],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_hostile_options_are_errors(at, check, name):
    (at / ("a" * 200)).mkdir()
    check(COMMANDS[name], OK, USAGE, DATA, RESOURCE)


@pytest.mark.parametrize("cache", ["/dev/null", "/proc/1/mem", "x/" * 5000, "", "~no-such-user/x"])
def test_any_value_of_genpr_cache_loses_at_most_the_cache(at, monkeypatch, cache, capfd):
    monkeypatch.setenv("HOME", str(at))
    monkeypatch.setenv("GENPR_CACHE", cache)
    assert run(["score", "real", "fake", *SCORE]) in {OK, USAGE, RESOURCE}
    assert "bug" not in capfd.readouterr().err
