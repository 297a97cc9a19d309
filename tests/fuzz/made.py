"""Valid files of genpr's own and of what stands beside images, made by genpr and the libraries that write them."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

import genpr
from fuzz.formats import zip_of
from fuzz.images import COLOUR, encoded
from genpr.checkpoints.score_log import scored_record
from genpr.features.cache import FeatureCache
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet, save_features
from genpr.metrics.knn_manifold import KNNManifold

NAMES = ("a/0.png", "a/1.png", "b/2.png", "b/3.png")
LABEL_ROWS = [
    b"name,label\na/0.png,cat\na/1.png,cat\nb/2.png,dog\nb/3.png,dog\n",
    b"a/0.png,0\na/1.png,0\nb/2.png,1\nb/3.png,1\n",
]
DATASET_JSON = json.dumps({"labels": [[name, int("b" in name)] for name in NAMES]}).encode()
PROMPT_ROWS = [
    b'name,prompt,relevance,group\na/0.png,"a cat, sleeping",1,x\na/1.png,a cat,0.5,x\nb/2.png,a dog,1,y\nb/3.png,dogs,1,y\n',
    b"a/0.png,a cat\na/1.png,a cat\nb/2.png,a dog\nb/3.png,a dog\n",
]
PROMPT_LINES = b"".join(
    json.dumps({"file_name": name, "text": f"an image {name}"}).encode() + b"\n" for name in NAMES
)
PROMPT_JSON = [
    json.dumps({name: ["one", "two"] for name in NAMES}).encode(),
    json.dumps([{"file_name": name, "caption": "x", "relevance": 2} for name in NAMES]).encode(),
    json.dumps(
        {
            "images": [{"id": n, "file_name": name} for n, name in enumerate(NAMES)],
            "annotations": [{"image_id": n, "caption": "x"} for n in range(4)],
        }
    ).encode(),
]
VOCABULARIES = [
    json.dumps({"cat": ["kitten"], "dog": "puppy", "尼尔": []}).encode(),
    json.dumps(["cat", "dog", "New York"]).encode(),
]
_ANSWERS = (
    'Sure! {"result": {"entities": ["cat", "dog"]}, "explanation": "I see a cat."}',
    "```json\n[\"cat\", 'dog',]\n```",
    "Entities:\n- cat\n- dog\n",
    "实体列表：Python, Java, C++",
    "<think>there may be a cat</think> {'cat': true, \"dog\": no}",
    "none",
)
ANSWER_LINES = [
    b"".join(json.dumps({"id": n, "answer": text}).encode() + b"\n" for n, text in enumerate(_ANSWERS)),
    b"".join(json.dumps({"id": n, "found": ["cat", "dog"][: n % 3]}).encode() + b"\n" for n in range(6)),
]
EXPECTED = {str(n): ["cat"] if n % 2 else ["cat", "dog"] for n in range(6)}
KEY = json.dumps(
    {"feature_version": 1, "extractor": "fuzzed", "device": "cpu", "decoder": {"pillow": "1"}}
).encode()
INFO = ExtractorInfo("fuzzed", 8, "none", None, comparable=False, cache_key="0" * 64)


def features(seed: int, n: int = 6) -> torch.Tensor:
    """Random features (n, 8)."""
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(seed))


def images() -> list[bytes]:
    """Three small images that differ."""
    return [encoded(np.roll(COLOUR, shift, axis=1), "PNG") for shift in range(3)]


def members(files: dict[str, list[bytes]]) -> dict[str, bytes]:
    """What an archive of images may hold."""
    first = {
        f"{folder}/{n}.{suffix}": files[suffix][0]
        for n, (folder, suffix) in enumerate((("a", "png"), ("b", "jpeg"), ("b", "webp"), ("b", "gif")))
    }
    return {
        **first,
        "dataset.json": json.dumps({"labels": [[name, 0] for name in first]}).encode(),
        "x.txt": b"x",
        "a/0.cls": b"3",
    }


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _stack() -> np.ndarray:
    return np.stack([COLOUR, 255 - COLOUR, COLOUR])


def arrays() -> list[bytes]:
    """.npy files of images, of features and of labels."""
    return [
        _npy(_stack()),
        _npy(features(0).numpy()),
        _npy(features(0).numpy().astype(np.float16)),
        _npy(np.arange(4)),
    ]


def zipped_arrays() -> list[bytes]:
    """.npz files, which are zip archives of .npy files."""
    image, label = _npy(_stack()), _npy(np.arange(3))
    return [
        zip_of({"arr_0.npy": image}, zipfile.ZIP_STORED),
        zip_of({"arr_0.npy": image, "arr_1.npy": label}, zipfile.ZIP_DEFLATED),
        zip_of({"features.npy": _npy(features(0).numpy())}, zipfile.ZIP_DEFLATED),
    ]


def tables() -> dict[str, list[bytes]]:
    """Images in columns: parquet files, and Arrow streams and files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = [{"bytes": image, "path": f"{n}.png"} for n, image in enumerate(images())]
    classes = json.dumps({"info": {"features": {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}}})
    table = pa.table({"image": values, "label": [0, 1, 0]}).replace_schema_metadata({"huggingface": classes})
    plain = pa.table({"png": images(), "text": ["a", "b", "c"]})
    found: dict[str, list[bytes]] = {".parquet": [], ".arrow": []}
    for each in (table, plain):
        file = io.BytesIO()
        pq.write_table(each, file, row_group_size=2, compression="zstd" if each is table else "snappy")
        found[".parquet"].append(file.getvalue())
    for opened in (pa.ipc.new_stream, pa.ipc.new_file):
        sink = pa.BufferOutputStream()
        with opened(sink, table.schema) as writer:
            writer.write_table(table)
        found[".arrow"].append(sink.getvalue().to_pybytes())
    return found


@cache
def feature_files() -> list[bytes]:
    """.safetensors of genpr and of others."""
    identities = torch.randint(0, 256, (6, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    own = FeatureSet(
        features(1), "images/", INFO, tuple(f"{n}.png" for n in range(6)), identities, {"alpha-dropped": 2}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.safetensors"
        save_features(path, own)
        return [path.read_bytes(), tensors()]


def tensors() -> bytes:
    """A file of tensors that no program signed."""
    return save({"x": features(2), "bias": torch.zeros(3)})


def checkpoints() -> list[bytes]:
    """A state dict as `torch.save` writes it, today and before 1.6."""
    found = []
    for is_zip in (True, False):
        file = io.BytesIO()
        torch.save({"x": features(2)}, file, _use_new_zipfile_serialization=is_zip)
        found.append(file.getvalue())
    return found


@cache
def shard() -> bytes:
    """The features of `images` as the cache keeps them."""
    import hashlib

    with tempfile.TemporaryDirectory() as folder:
        cached = FeatureCache(Path(folder) / "cache", INFO, "cpu")
        known = [hashlib.sha256(image).digest() for image in images()]
        cached.add(known, features(3, 3), [()] * 3, [(12, 9)] * 3)
        cached.flush()
        (path,) = cached.folder.glob("*.safetensors")
        return path.read_bytes()


@cache
def manifold() -> bytes:
    """A fitted manifold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifold.safetensors"
        KNNManifold.fit(features(4, 12), k=3).save(path)
        return path.read_bytes()


@cache
def result(seed: int = 5) -> genpr.Result:
    """A score with intervals."""
    return genpr.score(features(0, 40).numpy(), features(seed, 40).numpy(), k=3)


def results() -> list[bytes]:
    """What `genpr score --json` printed, once for one and once for several protocols, and a sweep."""
    record = result().to_dict()
    points = [{"setting": psi, "result": record} for psi in (0.5, 1.0)]
    told = genpr.score_entities(EXPECTED, {key: ["cat"] for key in EXPECTED}).to_dict()
    every = (record, {"results": [record, record]}, {"axis": "psi", "points": points}, told)
    return [json.dumps(each).encode() for each in every]


def log() -> bytes:
    """Two lines of `genpr watch`."""
    lines = [scored_record(name, "0" * 64, result(), seconds=1.0, timestamp=1.0) for name in ("s1", "s2")]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
