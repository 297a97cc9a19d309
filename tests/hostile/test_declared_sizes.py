"""Files with wrong declared sizes or extreme compression: refused by their headers, in little time and memory."""

import io
import os
import struct
import time
import zipfile
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import numpy.testing  # which parses JSON when it is imported
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from little_memory import little_memory

import genpr
from genpr.conditional.prompts import open_prompts
from genpr.conditional.vocabulary import Vocabulary
from genpr.errors import DataError
from genpr.evaluation.compare import load_results
from genpr.evaluation.labels import open_labels
from genpr.features.feature_set import load_features
from genpr.features.statistics import read_statistics
from genpr.images.source import open_source
from genpr.limits import TEXT_BYTES

MAX_BYTES = 100 * 2**20
MOST_SECONDS = 5.0


@pytest.fixture(autouse=True)
def _in_no_time():
    started = time.process_time()
    yield
    assert time.process_time() - started < MOST_SECONDS


def npy_header(descr, shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


@lru_cache
def zip_of_zeros(name, head, megabytes, compression=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression, compresslevel=1) as archive, archive.open(name, "w") as out:
        out.write(head)
        for _ in range(megabytes):
            out.write(bytes(2**20))
    return file.getvalue()


ZIP_READERS = {
    "a.png": lambda path: [item.read() for item in open_source(path)],
    "dataset.json": lambda path: open_labels(None, path, "fake"),
    "arr_0.npy": load_features,
    "arr_1.npy": lambda path: open_labels(None, path, "fake"),
    "mu.npy": read_statistics,
}


@pytest.mark.parametrize("name", ZIP_READERS)
@pytest.mark.parametrize(
    ("forged", "compression"),
    [
        ("compressed", zipfile.ZIP_DEFLATED),
        ("unpacked", zipfile.ZIP_DEFLATED),
        ("compressed", zipfile.ZIP_BZIP2),
    ],
)
def test_archive_members_are_limited_in_unpacked_size(tmp_path, name, forged, compression):
    """For all readers, and with either size forged in the directory: a larger compressed or a smaller uncompressed one."""
    heads = {
        "a.png": b"",
        "dataset.json": b"{",
        "arr_0.npy": npy_header("<f4", (20, 2**20)),
        "arr_1.npy": npy_header("<i8", (10 * 2**20,)),
        "mu.npy": npy_header("<f8", (2048,)),
    }
    size = 80 if compression == zipfile.ZIP_DEFLATED else 40
    data = bytearray(zip_of_zeros(name, heads[name], size, compression))
    at = data.rindex(b"PK\1\2")
    place, value = (20, 2**31) if forged == "compressed" else (24, 1000)
    data[at + place : at + place + 4] = struct.pack("<I", value)
    path = tmp_path / ("x.npz" if name.endswith(".npy") else "x.zip")
    path.write_bytes(data)
    if name == "mu.npy":
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("sigma.npy", b"")
    with little_memory(2**25), pytest.raises(DataError):
        ZIP_READERS[name](path)


def test_arrays_may_be_compressed_as_far_as_deflate_can(tmp_path):
    path, header = tmp_path / "x.npz", npy_header("|u1", (27, 1024, 1024, 3))
    path.write_bytes(zip_of_zeros("arr_0.npy", header, 81))
    assert len(open_source(path)) == 27
    path.write_bytes(zip_of_zeros("arr_0.npy", header, 81, zipfile.ZIP_BZIP2))
    with pytest.raises(DataError, match="zip bomb"):
        open_source(path)


@pytest.mark.parametrize("shape", [(2**40, 4), (2**62, 2**62), (10**6, 4), (True, 4), (-1, 4), ()], ids=str)
@pytest.mark.parametrize("kind", ["features", "labels"])
def test_arrays_are_no_larger_than_their_files(tmp_path, shape, kind):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_header("<f4" if kind == "features" else "<i8", shape) + bytes(64))
    with little_memory(MAX_BYTES), pytest.raises(DataError) as caught:
        load_features(path) if kind == "features" else open_labels(path, None, "real")
    assert caught.value.code in {"file-damaged", "feature-shape", "npy-damaged", "label-kind"}


@pytest.mark.parametrize("read", [open_source, load_features])
def test_huge_header_length_of_an_array_takes_no_memory(tmp_path, read):
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\2\0" + b"\xff" * 4 + bytes(64))
    with little_memory(MAX_BYTES), pytest.raises(DataError):
        read(path)


@pytest.mark.parametrize(
    "text",
    ['{"a":' * 100_000, "[" * 100_000, "9" * 100_000, '{"a": ' + "9" * 5000 + "}"],
    ids=["deep", "lists", "digits", "value"],
)
def test_deeply_nested_json_and_long_numbers_are_errors(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    lines = tmp_path / "x.jsonl"
    lines.write_text(text + "\n")
    for read in (
        load_results,
        Vocabulary.load,
        lambda path: open_labels(path, None, "real"),
        open_prompts,
        lambda path: genpr.score_entities(path, {}),
        lambda path: open_prompts(lines),
        lambda path: genpr.score_entities({"a": ["b"]}, lines),
    ):
        with pytest.raises(DataError):
            read(path)


TEXT_READERS = {
    "results": ("x.json", load_results),
    "labels": ("x.json", lambda path: open_labels(path, None, "real")),
    "labels of a table": ("x.csv", lambda path: open_labels(path, None, "real")),
    "labels of an array": ("x.npy", lambda path: open_labels(path, None, "real")),
    "labels in an archive": ("x.zip", lambda path: open_labels(None, path, "real")),
    "prompts by line": ("x.jsonl", open_prompts),
    "prompts as text": ("x.txt", open_prompts),
    "vocabulary of a table": ("x.csv", Vocabulary.load),
    "answers": ("x.json", lambda path: genpr.score_entities({"a": ["b"]}, path)),
    "files": ("x.txt", open_source),
}


@pytest.mark.parametrize("reader", TEXT_READERS)
def test_text_beyond_the_limit_is_an_error_before_it_is_read(tmp_path, reader, monkeypatch):
    name, read = TEXT_READERS[reader]
    path = tmp_path / name
    if name == "x.zip":
        monkeypatch.setattr("genpr.evaluation.labels.ARCHIVED_TEXT_BYTES", 10)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("dataset.json", '{"labels": [["a.png", 0]]}')
    else:
        header = npy_header("<i8", (TEXT_BYTES // 8,)) if name == "x.npy" else b""
        path.write_bytes(header)
        os.truncate(path, len(header) + TEXT_BYTES + bool(not header))  # without using the disk
    with little_memory(2**24), pytest.raises(DataError, match=r"bytes, and .* may have"):
        read(path)


@pytest.mark.parametrize("field", ["x" * 3_000_000, '"' + "x\n" * 1_000_000], ids=["long", "open"])
def test_csv_with_a_very_long_field_is_an_error(tmp_path, field):
    path = tmp_path / "x.csv"
    path.write_text(f"name,label\na.png,{field}\n")
    for read in (lambda path: open_labels(path, None, "real"), open_prompts):
        with pytest.raises(DataError):
            read(path)


POOLS = []  # what was allocated from one may outlive its test


@contextmanager
def little_arrow_memory(most):
    """Limit the memory of pyarrow."""
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < most


@pytest.mark.parametrize(("codec", "dictionary"), [("zstd", False), ("gzip", True)])
def test_parquet_columns_are_refused_before_decompression(tmp_path, codec, dictionary):
    images = pa.array([bytes(2**26), b"x"], pa.binary())
    structs = pa.StructArray.from_arrays([images, pa.array(["a", "b"])], ["bytes", "path"])
    path = tmp_path / "x.parquet"
    for column in (images, structs):
        table = pa.table({"image": column})
        pq.write_table(
            table, path, dictionary_pagesize_limit=2**30, compression=codec, use_dictionary=dictionary
        )
        source = open_source(path)
        with little_arrow_memory(2**24), pytest.raises(DataError, match="bomb") as caught:
            next(iter(source))
        assert caught.value.code == "parquet-damaged"


def test_long_label_of_many_rows_takes_little_memory(tmp_path):
    labels = pa.DictionaryArray.from_arrays(pa.array([0] * 8000, pa.int32()), pa.array(["x" * 50_000]))
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image": [b"1"] * 8000, "label": labels}), path, store_schema=False)
    source = open_source(path)
    with little_memory(2**27), little_arrow_memory(2**28), pytest.raises(DataError) as caught:
        source.source_labels()
    assert caught.value.code == "labels-damaged"
