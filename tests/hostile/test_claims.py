"""Files that claim, or unfold into, more than they hold: refused by their headers, in no time and no memory."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import struct
import tarfile
import time
import tracemalloc
import zipfile
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from PIL import Image

import genpr
from genpr.entities.read import read_entities
from genpr.entities.vocabulary import Vocabulary
from genpr.errors import DataError, GenprError, ImageError
from genpr.features.feature_set import load_features
from genpr.images.decode import decode
from genpr.images.policy import DecodePolicy
from genpr.images.source import open_source
from genpr.images.tar_archive import _Unpacked
from genpr.labels.read import open_labels
from genpr.prompts.read import open_prompts
from genpr.results.comparison import load_results

MOST_BYTES = 100 * 2**20
MOST_SECONDS = 5.0


@pytest.fixture(autouse=True)
def _in_no_time():
    started = time.process_time()
    yield
    assert time.process_time() - started < MOST_SECONDS


@contextmanager
def little_memory():
    """Of what Python and numpy take; a bomb would take gigabytes."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES


def npy_header(descr, shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def zeros(pack, head, megabytes):
    """A compressed file of `head` and then zeros."""
    file = io.BytesIO()
    with pack(file) as packed:
        packed.write(head)
        for _ in range(megabytes):
            packed.write(bytes(2**20))
    return file.getvalue()


def zip_of_zeros(name, head, megabytes):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as member:
        member.write(head)
        for _ in range(megabytes):
            member.write(bytes(2**20))
    return file.getvalue()


@pytest.mark.parametrize("name", ["a.png", "a.bin"])
@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".tar.gz", lambda file: gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1)),
        (".tar.xz", partial(lzma.open, mode="wb", preset=0)),
    ],
    ids=["gz", "xz"],
)
def test_compressed_tar_bombs_are_refused_before_they_unfold(tmp_path, suffix, pack, name):
    member = tarfile.TarInfo(name)
    member.size = 80 * 2**20
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(zeros(pack, member.tobuf(tarfile.GNU_FORMAT), 80))
    with little_memory(), pytest.raises(DataError) as caught:
        open_source(path)
    assert caught.value.code == "tar-bomb"


def test_nothing_is_decompressed_to_find_out_that_it_is_a_bomb():
    class Stream(io.BytesIO):
        def seek(self, *_):
            raise AssertionError("it went there")

        read = seek

    stream = _Unpacked(Stream(), packed=1000)
    for go in (stream.seek, stream.read):
        with pytest.raises(DataError) as caught:
            go(2**30)
        assert caught.value.code == "tar-bomb"


def test_a_tar_of_many_copies_is_no_bomb(tmp_path):
    """200:1 is much, and 64 MiB too: below either an archive is read."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for number in range(40):
            member = tarfile.TarInfo(f"{number}.png")
            member.size = 2**20
            archive.addfile(member, io.BytesIO(bytes(2**20)))
    path = tmp_path / "copies.tar.gz"
    path.write_bytes(file.getvalue())
    assert len(list(open_source(path))) == 40


def test_bombs_of_features_and_labels_are_refused_before_they_unfold(tmp_path):
    path = tmp_path / "features.npz"
    path.write_bytes(zip_of_zeros("arr_0.npy", npy_header("<f4", (20, 2**20)), 80))
    with little_memory(), pytest.raises(GenprError) as caught:
        load_features(path)
    assert caught.value.code == "file-damaged"
    assert "bomb" in str(caught.value)

    path = tmp_path / "labels.zip"
    path.write_bytes(zip_of_zeros("dataset.json", b"{", 80))
    with little_memory(), pytest.raises(DataError) as caught:
        open_labels(None, path, "fake")
    assert caught.value.code == "zip-bomb"


def test_a_zip_member_cannot_hide_its_ratio(tmp_path):
    """A directory that claims much compressed data claims more than the whole archive has."""
    data = bytearray(zip_of_zeros("a.png", b"", 80))
    at = data.rindex(b"PK\1\2")
    data[at + 20 : at + 24] = struct.pack("<I", 2**31)
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    (item,) = open_source(path)
    with little_memory(), pytest.raises(ImageError) as caught:
        item.read()
    assert caught.value.code == "zip-bomb"


@pytest.mark.parametrize("shape", [(2**40, 4), (2**62, 2**62), (10**6, 4), (True, 4), (-1, 4), ()], ids=str)
@pytest.mark.parametrize("kind", ["features", "labels"])
def test_arrays_are_no_larger_than_their_files(tmp_path, shape, kind):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_header("<f4" if kind == "features" else "<i8", shape) + bytes(64))
    with little_memory(), pytest.raises(DataError) as caught:
        load_features(path) if kind == "features" else open_labels(path, None, "real")
    assert caught.value.code in {"file-damaged", "feature-shape", "npy-damaged", "label-kind"}


@pytest.mark.parametrize(
    "text", ["(" * 5000, "-" * 9000 + "1", "{'a': " * 90, "'''", "{}", "__import__('os')"], ids=len
)
def test_headers_that_are_no_header_of_an_array(tmp_path, text):
    path = tmp_path / "x.npy"
    header = text.encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
    for read in (load_features, open_source, lambda path: open_labels(path, None, "real")):
        with pytest.raises(DataError):
            read(path)


@pytest.mark.parametrize(
    "data",
    [struct.pack("<Q", 100 * 2**30) + b"{}", struct.pack("<Q", 2**17) + b"[" * 2**17],
    ids=["long", "deep"],
)
def test_safetensors_with_impossible_headers(tmp_path, data):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        load_features(path)
    assert caught.value.code == "file-damaged"


@pytest.mark.parametrize(
    "text",
    ['{"a":' * 100_000, "[" * 100_000, "9" * 100_000, '{"a": ' + "9" * 5000 + "}"],
    ids=["deep", "lists", "digits", "value"],
)
def test_json_that_is_nested_without_end_or_has_endless_numbers(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    lines = tmp_path / "x.jsonl"
    lines.write_text(text + "\n")
    for read in (
        load_results,
        Vocabulary.load,
        lambda path: open_labels(path, None, "real"),
        lambda path: open_prompts(path, None),
        lambda path: genpr.score_entities(path, {}),
        lambda path: open_prompts(lines, None),
        lambda path: genpr.score_entities({"a": ["b"]}, lines),
    ):
        with pytest.raises(DataError):
            read(path)


def test_a_relevance_of_hundreds_of_digits_is_no_number(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"file": "a.png", "prompt": "a", "relevance": ' + "9" * 400 + "}\n")
    with pytest.raises(DataError, match="number above 0"):
        open_prompts(path, None)


def test_results_larger_than_any_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("genpr.results.comparison._MOST_BYTES", 100)
    path = tmp_path / "x.json"
    path.write_text(json.dumps("a" * 200))
    with pytest.raises(DataError) as caught:
        load_results(path)
    assert caught.value.code == "not-a-result"
    assert "bytes" in str(caught.value)


def test_small_files_take_no_memory_for_what_large_ones_may_have(tmp_path):
    for name, read in (("x.txt", open_source), ("y.txt", lambda path: open_prompts(path, None))):
        path = tmp_path / name
        path.write_text("a.png\nb.png\n")
        read(path)  # imports
        with little_memory():
            read(path)


@pytest.mark.parametrize("field", ["x" * 3_000_000, '"' + "x\n" * 1_000_000], ids=["long", "open"])
def test_csv_with_an_endless_field(tmp_path, field):
    path = tmp_path / "x.csv"
    path.write_text(f"name,label\na.png,{field}\n")
    for read in (lambda path: open_labels(path, None, "real"), lambda path: open_prompts(path, None)):
        with pytest.raises(DataError):
            read(path)


def webp_animation(side):
    """A frame of one pixel on a canvas of side x side."""

    def u24(value):
        return value.to_bytes(3, "little")

    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, "WEBP", lossless=True)
    frame = bytes(6) + u24(0) + u24(0) + bytes(4) + file.getvalue()[12:]
    body = b"VP8X" + struct.pack("<I", 10) + bytes([2, 0, 0, 0]) + u24(side - 1) * 2
    body += b"ANIM" + struct.pack("<I", 6) + bytes(6) + b"ANMF" + struct.pack("<I", len(frame)) + frame
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def test_canvases_of_animations_count_as_often_as_they_are_held():
    """Three of 81 megapixels would be a gigabyte; the file has a hundred bytes."""
    assert decode(webp_animation(100), name="x.webp", policy=DecodePolicy()).pixels.shape == (100, 100, 3)
    for side in (6000, 9000, 16_383):
        with pytest.raises(ImageError) as caught:
            decode(webp_animation(side), name="x.webp", policy=DecodePolicy())
        assert caught.value.code == "image-too-large"


ANSWERS = [
    "#",
    "(",
    "[",
    "- a\n",
    "**",
    '{"a":',
    "'a',",
    "```",
    "：",
    "\\",
    "“",
    "no ",
    "and ",
    "1. ",
    "ﷺ",
    "\u0345",
    "a: ",
    "|a|\n",
    "\n ",
    "<think>",
]


@pytest.mark.parametrize("piece", ANSWERS, ids=range(len(ANSWERS)))
def test_no_answer_takes_long_or_raises(piece):
    for text in (piece * (10_000 // len(piece)), "[" + piece * (10_000 // len(piece)) + "x"):
        for known in (None, lambda name: True):
            assert type(read_entities(text, known=known)).__name__ in {"Answer", "Unreadable"}
