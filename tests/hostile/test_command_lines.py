"""Hostile command lines end in a score or in one error line, in bounded time and memory, and write nothing else."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import matplotlib.figure  # noqa: F401 - which makes its folders
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy_pair
from hostile.valid_files import encoded, png_chunk, png_of_chunks
from hostile.watched import watched
from PIL import Image

from genpr.cli.main import run

OK, USAGE, DATA, RESOURCE = 0, 2, 3, 4
MB = 2**20
MOST_SECONDS = 60.0
MOST_BYTES = 3 * 2**29
HUGE = str(10**30)
SCORE = ("--extractor", "pixels", "--no-intervals", "--no-control", "-q")


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Two folders of a dozen small images, and the result of scoring them."""
    shared, rng = tmp_path_factory.mktemp("shared"), np.random.default_rng(0)
    for name in ("real", "fake"):
        (shared / name).mkdir()
        for number in range(12):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(shared / name / f"{number:02}.png")
    return shared


@pytest.fixture
def at(sides, tmp_path, monkeypatch):
    """The working folder, with real/ and fake/ in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENPR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GENPR_OFFLINE", "1")
    for name in ("real", "fake"):
        shutil.copytree(sides / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def check(at, capfd):
    """Run a command line and look at what all of them must keep."""

    def check(args: list[str], *codes: int) -> str:
        args = [*args, "--json"] if args[0] in {"score", "entities", "align", "pack"} else args
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        with watched(at) as forbidden:
            code = run(args)
        seconds = time.process_time() - started
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        out, err = capfd.readouterr()
        assert not forbidden, forbidden[:5]
        assert code in codes, (code, err[-2000:])
        assert sum(line.startswith("error: ") for line in err.splitlines()) == (code != OK), err[-2000:]
        assert "Traceback" not in err
        assert max(map(len, err.encode("utf-8", "replace").splitlines()), default=0) <= 2000
        assert not {*"\0\x07\x1b\x7f\u202e\u2028"} & {*err}
        if args[-1] == "--json" and code != OK:
            assert json.loads(out)["error"]["exit_code"] == code
        assert seconds < MOST_SECONDS
        assert grown < MOST_BYTES
        return out

    return check


# Images -----------------------------------------------------------------------------------------------------


def header(width: int, height: int) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)


def png(*extra: tuple[bytes, bytes]) -> bytes:
    pixels = (b"IDAT", zlib.compress((b"\0" + bytes(24)) * 8))
    return png_of_chunks([header(8, 8), *extra, pixels, (b"IEND", b"")])


def zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(MB)) for _ in range(megabytes)) + packer.flush()


def jpeg(extra: bytes) -> bytes:
    data = encoded(np.zeros((8, 8, 3), np.uint8), "JPEG")
    return data[:2] + extra + data[2:]


def gif_of_frames() -> bytes:
    first = encoded(np.zeros((8, 8), np.uint8), "GIF")[:-1]
    return first + first[first.rindex(b",") :] * 10_000 + b";"


def tiff_in_a_loop() -> bytes:
    entries = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)]
    entries += [(277, 3, 1, 1), (278, 4, 1, 8), (279, 4, 1, 64)]
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + struct.pack("<I", 8) + bytes(100)


def webp_of_frames(side: int, frames: int) -> bytes:
    image = encoded(Image.new("RGB", (8, 8)), "WEBP", lossless=True)[12:]
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
    "png of text bombs": lambda: png(*[(b"iTXt", b"k\0\1\0\0\0" + zeros(60))] * 60),
    "png of a color profile bomb": lambda: png((b"iCCP", b"p\0\0" + zeros(300))),
    "png of empty pixel chunks": lambda: png()[:33] + png_chunk(b"IDAT", b"") * 400_000 + png()[33:],
    "png with a second larger header": lambda: png(header(60_000, 60_000)),
    "jpeg of fill bytes": lambda: jpeg(b"\xff" * 5_000_000),
    "jpeg of empty comments": lambda: jpeg(b"\xff\xfe\0\2" * 1_000_000),
    "gif of eighty megapixels": lambda: encoded(Image.new("P", (9000, 9000)), "GIF"),
    "gif of ten thousand frames": gif_of_frames,
    "tiff whose directory follows itself": tiff_in_a_loop,
    "webp of twenty thousand frames": lambda: webp_of_frames(1000, 20_000),
    "webp of a huge canvas": lambda: webp_of_frames(16_383, 1),
    "avif of nested boxes": avif_of_nested_boxes,
    "ppm with a long comment": lambda: b"P6\n#" + b"c" * (10 * MB) + b"\n1 1\n255\nabc",
}


@pytest.mark.parametrize("name", IMAGES)
def test_hostile_images(at, check, name):
    (at / "fake" / "hostile.png").write_bytes(IMAGES[name]())
    check(["score", "real", "fake", *SCORE], OK, DATA)


# Files ------------------------------------------------------------------------------------------------------


def zip_by_hand(*members: dict) -> bytes:
    """A zip of members with any fields: name, body, size, packed, method, offset, extra, local_name."""
    body, directory = bytearray(), bytearray()
    for each in members:
        name, data, extra = each.get("name", b"a.png"), each.get("body", b""), each.get("extra", b"")
        size, packed, method = (
            each.get("size", len(data)),
            each.get("packed", len(data)),
            each.get("method", 0),
        )
        local, offset, crc = each.get("local_name", name), each.get("offset", len(body)), zlib.crc32(data)
        fields = (b"PK\3\4", 20, 0, method, 0, 33, crc, packed, size, len(local), 0)
        body += struct.pack("<4sHHHHHIIIHH", *fields) + local + data
        fields = (b"PK\1\2", 20, 20, 0, method, 0, 33, crc, packed, size, len(name), len(extra), 0, 0, 0, 0)
        directory += struct.pack("<4sHHHHHHIIIHHHHHII", *fields, offset) + name + extra
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
GOOD = encoded(np.zeros((8, 8, 3), np.uint8), "PNG")
PATHS = [
    {"bytes": None, "path": path} for path in ("/etc/passwd", "../x", "http://127.0.0.1/x", "\x1b[2J" * 9999)
]
FAKES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "zip of overlapping bombs": ("x.zip", overlapping),
    "zip of sizes beyond all measure": (
        "x.zip",
        lambda: zip_by_hand(
            {
                "size": 2**32 - 1,
                "packed": 2**32 - 1,
                "extra": struct.pack("<HHQQQ", 1, 24, 2**63, 2**63, 0),
            }
        ),
    ),
    "zip of long names": (
        "x.zip",
        lambda: zip_by_hand(*({"name": b"\x1b[31m\n" * 9000 + b"%d.png" % n} for n in range(20))),
    ),
    "zip whose directory gives other names": (
        "x.zip",
        lambda: zip_by_hand({"local_name": b"../x", "body": GOOD}),
    ),
    "tar in a bomb": ("x.tar", lambda: zlib.compress(bytes(80 * MB))),
    "npy without pixels": ("x.npy", lambda: npy("'|u1'", "(1000000000000, 0, 0, 3)")),
    "npy of named fields": ("x.npy", lambda: npy("[('a', '|u1', (8, 8, 3))]", "(12,)", bytes(12 * 192))),
    "npy of a shape that overflows": ("x.npy", lambda: npy("'|u1'", f"({2**33}, {2**33}, {2**33}, 3)")),
    "features without dimensions": ("x.npy", lambda: npy("'<f4'", "(1000000000000, 0)")),
    "safetensors that overlap": (
        "x.safetensors",
        lambda: safetensors({"features": TENSOR, "other": {**TENSOR, "data_offsets": [96, 288]}}, 288),
    ),
    "safetensors beyond all measure": (
        "x.safetensors",
        lambda: safetensors({"features": {**TENSOR, "shape": [2**62, 4], "data_offsets": [0, 2**64 - 1]}}),
    ),
    "safetensors with a header of blanks": (
        "x.safetensors",
        lambda: safetensors(json.dumps({"features": TENSOR}) + " " * (90 * MB)),
    ),
    "safetensors of hostile metadata": (
        "x.safetensors",
        lambda: safetensors(
            {"features": TENSOR, "__metadata__": {"extractor": "os:system", "kind": "\nerror: x" * 99}}
        ),
    ),
    "parquet with a footer of gigabytes": (
        "x.parquet",
        lambda: b"PAR1" + b"\x15\x04\x19" * 30_000 + struct.pack("<I", 2**31 - 1) + b"PAR1",
    ),
    "parquet of thousands of columns": (
        "x.parquet",
        lambda: parquet(**{f"c{n}\x1b[2J": [GOOD] for n in range(3000)}),
    ),
    "parquet of paths elsewhere": ("x.parquet", lambda: parquet(image=PATHS)),
    "binary list": ("x.txt", lambda: bytes(range(256)) * 4000),
    "pickle": ("x.pt", lambda: b"cos\nsystem\n(S'touch ran'\ntR."),
}


@pytest.mark.parametrize("name", FAKES)
def test_hostile_files_of_images_and_features(at, check, name):
    file, make = FAKES[name]
    (at / file).write_bytes(make())
    real = file if file.endswith(".safetensors") else "real"
    check(["score", real, file, *SCORE], *((OK, USAGE, DATA) if real == file else (USAGE, DATA, RESOURCE)))


LABELS: dict[str, bytes | str] = {
    "l.csv": b"name,label\n00.png,ca\0t\n" * 100,
    "utf-16/l.csv": "name,label\n00.png,cat\n".encode("utf-16"),
    "l.tsv": b"\t" * 1_000_000 + b"\n" + b"a\tb\n",
    "l.json": '{"labels": [["00.png", NaN], ["01.png", 1e999], ["02.png", {}], ["03.png", "\\ud800"]]}',
    "l.npy": npy("'<U0'", "(1000000000000,)"),
    "wide/l.npy": npy("'|V1000000000'", "(0,)"),
    "surrogates/l.npy": npy("'<U2'", "(12,)", struct.pack("<II", 0xD800, 0x10FFFF) * 12),
    "codes/l.npy": npy("'<U1'", "(12,)", struct.pack("<I", 0x7FFFFFFF) * 12),
}


@pytest.mark.parametrize("name", LABELS)
def test_hostile_labels(at, check, name):
    (at / name).parent.mkdir(exist_ok=True)
    (at / name).write_bytes(data if isinstance(data := LABELS[name], bytes) else data.encode())
    options = ("--per-class", "--real-labels", name, "--fake-labels", name)
    check(["score", "real", "fake", *SCORE, *options], OK, DATA)


PROMPTS: dict[str, bytes | str] = {
    "p.json": "{" + "".join(f'"k{n}":"p",' for n in range(20_000)) + '"k19999":"q"}',
    "p.txt": "\u202e\x1b[2J" * 1_700_000,
    "p.jsonl": "".join(f'{{"file_name": "{n:02}.png", "text": "\\ud800 {n}"}}\n' for n in range(12)),
    "p.tsv": b"file_name\ttext\n" + b"\t\n" * 300_000,
}


@pytest.mark.parametrize("name", PROMPTS)
def test_hostile_prompts(at, check, name):
    (at / name).write_bytes(data if isinstance(data := PROMPTS[name], bytes) else data.encode())
    extractor = ("--extractor", f"{toy_pair.__file__}:load", "-q")
    check(["align", "fake", "--prompts", name, *extractor], OK, USAGE, DATA)


# Places, names and options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pipe", "command"),
    [
        ("s/sweep.json", ["sweep", "real", "0.5=fake", "1=fake", *SCORE, "--out", "s"]),
        ("w/genpr.jsonl", ["watch", "real", "w", *SCORE, "--once", "--settle", "0", "--give-up", "0"]),
        ("o/results.jsonl", ["audit", "--metric", "precision", "--out", "o", "--resume", "-q"]),
        ("cache/features/pixels/key.json", ["cache", "list", "--cache-dir", "cache"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_pipes_where_genpr_keeps_its_own_files(at, check, pipe, command):
    (at / pipe).parent.mkdir(parents=True)
    os.mkfifo(at / pipe)
    check(command, OK, USAGE, DATA, RESOURCE)


def test_images_of_hostile_names(at, check):
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
    ]
    for name in names:
        (at / "fake" / f"{name}.png").write_bytes(b"no image" if name == "\x1b[2J" else GOOD)
    (at / os.fsdecode(b"fake/\xff\xfe\xed\xa0\x80.png")).write_bytes(GOOD)
    outputs = ("--csv", "o.csv", "--html", "o.html", "--on-bad", "skip", "--max-bad", "50%")
    check(["score", "real", "fake", *SCORE, *outputs], OK)
    check(["score", "real", "fake", *SCORE], DATA)


def test_links_that_go_round_and_folders_nested_beyond_the_longest_path(at, check, monkeypatch):
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
    "audit": ["audit", "--metric", "x", "--seed", HUGE, "--jobs", HUGE, "-q"],
    "clusters": ["modes", "real", "real", "--extractor", "pixels", "-q", "--k", HUGE, "--clusters", HUGE],
    "batches": ["features", "real", "o.safetensors", "--extractor", "pixels", "-q", "--batch-size", HUGE],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_hostile_options(at, check, name):
    (at / ("a" * 200)).mkdir()
    check(COMMANDS[name], OK, USAGE, DATA, RESOURCE)


@pytest.mark.parametrize("cache", ["/dev/null", "/proc/1/mem", "x/" * 5000, "", "~nobody-at-all/x"])
def test_any_value_of_genpr_cache_costs_at_most_the_cache(at, monkeypatch, cache, capfd):
    monkeypatch.setenv("HOME", str(at))
    monkeypatch.setenv("GENPR_CACHE", cache)
    assert run(["score", "real", "fake", *SCORE]) in {OK, USAGE, RESOURCE}
    assert "bug" not in capfd.readouterr().err
