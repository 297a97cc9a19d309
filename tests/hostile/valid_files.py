"""Small valid files of every format that genpr reads, written by genpr and by other libraries."""

import hashlib
import io
import json
import pickle
import tempfile
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from archives import npy_of, zip_of
from image_files import SAMPLES, SMALL, encode, heic, jxl, png_16bit_rgb
from safetensors.torch import save

import genpr
from genpr.checkpoints.score_log import scored_record
from genpr.features.cache import CachedImage, FeatureCache
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet, save_features
from genpr.metrics.manifold import KNNManifold

NAMES = ("a/0.png", "a/1.png", "b/2.png", "b/3.png")
INFO = ExtractorInfo("fuzzed", 8, "none", None, comparable=False, cache_key="0" * 64)
EXPECTED = {str(n): ["cat"] if n % 2 else ["cat", "dog"] for n in range(4)}


def image_files() -> dict[str, list[bytes]]:
    """Variants of each format that are read differently."""
    files: dict[str, list[bytes]] = {"ppm": [b"P3 2 1 255\n255 0 0 # red\n0 0 255\n"]}
    if find_spec("pillow_heif"):
        files["heic"] = [heic(SMALL), heic(SMALL, quality=50)]
    if find_spec("pillow_jxl"):
        files["jxl"] = [jxl(SMALL), jxl(SMALL, use_container=True)]
    for name, data in SAMPLES.items():
        files.setdefault(name.split("-")[0], []).append(data)
    return files


def value_files() -> list[bytes]:
    """Images of one to five bands whose values are not of 8 bits."""
    deep = np.dstack([SMALL, SMALL[..., :2]]).astype(np.uint16) * 16
    files = [png_16bit_rgb(deep[..., :3]), encode(deep[..., 0]), encode(deep[..., 0], "TIFF")]
    files += [npy_of(deep[..., :1]), npy_of(deep.astype(np.float32))]
    if find_spec("tifffile"):
        import tifffile

        layouts = [{"planarconfig": "contig"}, {"planarconfig": "contig", "tile": (16, 16)}]
        if find_spec("imagecodecs"):
            codecs = ("zlib", "lzw", "packbits", "zstd")
            layouts += [
                {"planarconfig": "contig", "compression": codec, "predictor": codec == "zlib"}
                for codec in codecs
            ]
        for values in (deep, (deep / 4096).astype(np.float32)):
            for layout in layouts:
                tifffile.imwrite(file := io.BytesIO(), values, photometric="minisblack", **layout)
                files.append(file.getvalue())
    return files


def images() -> list[bytes]:
    return [encode(np.roll(SMALL, shift, axis=1)) for shift in range(3)]


def members() -> dict[str, bytes]:
    files = image_files()
    first = {
        f"{folder}/{n}.{suffix}": files[suffix][0]
        for n, (folder, suffix) in enumerate((("a", "png"), ("b", "jpeg"), ("b", "webp"), ("b", "gif")))
    }
    labels = json.dumps({"labels": [[name, 0] for name in first]}).encode()
    return {**first, "dataset.json": labels, "x.txt": b"x", "a/0.cls": b"3"}


def features(seed: int, n: int = 6) -> torch.Tensor:
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(seed))


def arrays() -> list[bytes]:
    """.npy files of images, of features and of labels."""
    return [
        npy_of(np.stack([SMALL] * 3)),
        npy_of(features(0).numpy().astype(np.float16)),
        npy_of(np.arange(4)),
    ]


def zipped_arrays() -> list[bytes]:
    """.npz files of images with labels, and of features."""
    pixels, labels = npy_of(np.stack([SMALL] * 3)), npy_of(np.arange(3))
    return [
        zip_of({"arr_0.npy": pixels, "arr_1.npy": labels}, zipfile.ZIP_DEFLATED),
        zip_of({"label.npy": labels, "samples.npy": pixels}, zipfile.ZIP_DEFLATED),
        zip_of({"features.npy": npy_of(features(0).numpy())}),
    ]


def statistics(protocol: int) -> tuple[bytes, bytes]:
    """Moments in an .npz file, and in a pickle as of EDM2."""
    moments = {"mu": features(0).numpy().mean(0), "sigma": np.cov(features(0).numpy(), rowvar=False)}
    members = {f"{key}.npy": npy_of(value) for key, value in moments.items()}
    return zip_of(members), pickle.dumps({"num_images": 6, "fid": moments}, protocol=protocol)


def table() -> bytes:
    values = [{"bytes": image, "path": f"{n}.png"} for n, image in enumerate(images())]
    file = io.BytesIO()
    pq.write_table(
        pa.table({"image": values, "label": [0, 1, 0]}), file, row_group_size=2, compression="zstd"
    )
    return file.getvalue()


def tensors() -> bytes:
    return save({"x": features(2), "bias": torch.zeros(3)})


@cache
def feature_file() -> bytes:
    identities = torch.zeros(6, 32, dtype=torch.uint8)
    own = FeatureSet(features(1), "x/", INFO, tuple(f"{n}.png" for n in range(6)), identities)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.safetensors"
        save_features(path, own)
        return path.read_bytes()


def checkpoint() -> bytes:
    """A state dict as `torch.save` writes it."""
    file = io.BytesIO()
    torch.save({"x": features(2)}, file)
    return file.getvalue()


@cache
def shard() -> bytes:
    """Features of `images` in the format of the cache."""
    with tempfile.TemporaryDirectory() as folder:
        cached = FeatureCache(Path(folder) / "cache", INFO, "cpu")
        known = [hashlib.sha256(image).digest() for image in images()]
        cached.add(known, [CachedImage(each, (), (12, 9)) for each in features(3, 3)])
        cached.flush()
        (path,) = cached.folder.glob("*.safetensors")
        return path.read_bytes()


@cache
def manifold() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifold.safetensors"
        KNNManifold.fit(features(4, 12), k=3).save(path)
        return path.read_bytes()


@cache
def result(seed: int = 5) -> genpr.Result:
    return genpr.score(features(0, 40).numpy(), features(seed, 40).numpy(), k=3)


def results() -> list[bytes]:
    """Output of `genpr score --json` for one and for several protocols, and of a sweep."""
    record = result().to_dict()
    points = [{"setting": psi, "result": record} for psi in (0.5, 1.0)]
    every = (record, {"results": [record, record]}, {"axis": "psi", "points": points})
    return [json.dumps(each).encode() for each in every]


def log() -> bytes:
    lines = [
        scored_record(name, "0" * 64, result(), recipe={}, seconds=1.0, timestamp=1.0)
        for name in ("s1", "s2")
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
