"""Containers of other libraries are errors with Python that scores their images, which runs here."""

import ast
import gzip
import hashlib
import pickle
import re
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from image_files import encode, noise, write_files
from PIL import Image
from raising import raised
from torchvision.datasets import CIFAR10, CIFAR100

import genpr
from genpr.errors import DataError, UsageError
from genpr.images.containers import CONTAINERS
from genpr.images.source import open_source

COLORS = np.stack([noise(32, 32, seed) for seed in range(20)])
GRAY = np.repeat(COLORS[..., :1], 3, axis=3)
CHEAP = {"extractor": "pixels", "k": 1, "intervals": False, "control": False}
PAGE = (Path(__file__).parents[2] / "docs" / "containers.md").read_text()


def lmdb(folder, *, is_file=False):
    """As LSUN has it; with the number of images, as those of StyleGAN2 in PyTorch."""
    path = folder / "val.lmdb"
    database = pytest.importorskip("lmdb").open(str(path), map_size=2**24, subdir=not is_file)
    with database, database.begin(write=True) as transaction:
        for number, image in enumerate(COLORS):
            transaction.put(b"%05d" % number, encode(image, "WEBP", lossless=True))
        transaction.put(b"length", b"20")
    return path


def hdf5(folder, name="I32.hdf5"):
    """As BigGAN's script writes it."""
    with pytest.importorskip("h5py").File(folder / name, "w") as file:
        file.create_dataset("imgs", data=COLORS.transpose(0, 3, 1, 2))
        file.create_dataset("labels", data=np.arange(20))
    return folder / name


def mds(folder):
    columns = {"image": "png", "label": "int"}
    streaming = pytest.importorskip("streaming")
    with streaming.MDSWriter(out=str(folder / "mds"), columns=columns, size_limit=2**14) as writer:
        for label, image in enumerate(COLORS):
            writer.write({"image": Image.fromarray(image), "label": label})
    return folder / "mds"


def litdata(folder):
    """The chunks that `litdata.optimize` writes in its processes."""
    writer_of = pytest.importorskip("litdata.streaming.writer").BinaryWriter
    (folder / "litdata").mkdir()
    writer = writer_of(str(folder / "litdata"), chunk_bytes=2**14)
    for label, image in enumerate(COLORS):
        writer[label] = {"image": image, "label": label}
    writer.done()
    writer.merge()
    return folder / "litdata"


def cifar(folder, kind, files, monkeypatch):
    """Batches as published, with their digests in torchvision."""
    rows, listed = COLORS.transpose(0, 3, 1, 2).reshape(len(files), -1, 3072), []
    for name, data in zip(files, rows, strict=True):
        batch = {"data": data, "labels": [0] * len(data), "fine_labels": [0] * len(data)}
        write_files(folder / kind.base_folder, name, data=(content := pickle.dumps(batch, protocol=2)))
        listed.append([name, hashlib.md5(content).hexdigest()])
    content = pickle.dumps({kind.meta["key"]: ["airplane"]}, protocol=2)
    write_files(folder / kind.base_folder, kind.meta["filename"], data=content)
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": hashlib.md5(content).hexdigest()})
    for name, is_test in (("train_list", False), ("test_list", True)):
        monkeypatch.setattr(kind, name, [each for each in listed if each[0].startswith("test") == is_test])
    return folder / kind.base_folder


def idx(folder, name="t10k-images-idx3-ubyte"):
    """As MNIST has it; the labels are in another file."""
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, *GRAY.shape[:3])
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 20) + bytes(20)
    write_files(folder / "raw", "a-labels-idx1-ubyte", data=labels)
    return write_files(folder / "raw", name, data=header + GRAY[..., 0].tobytes()) / name


def python_in(error):
    """The code in a message, without `import genpr`."""
    return str(error).partition(": import genpr; ")[2]


WRITTEN = {
    "LMDB": lambda folder, _: lmdb(folder),
    "LMDB data file": lambda folder, _: lmdb(folder) / "data.mdb",
    "LMDB in one file": lambda folder, _: lmdb(folder, is_file=True),
    "LMDB in a file of another name": lambda folder, _: lmdb(folder, is_file=True).rename(folder / "val"),
    "HDF5": lambda folder, _: hdf5(folder),
    "HDF5 in a folder": lambda folder, _: hdf5(folder).parent,
    "HDF5 of another name": lambda folder, _: hdf5(folder, "images.data"),
    "MDS": lambda folder, _: mds(folder),
    "MDS shard": lambda folder, _: mds(folder) / "shard.00000.mds",
    "MDS shards": lambda folder, _: mds(folder) / "shard.*.mds",
    "LitData": lambda folder, _: litdata(folder),
    "LitData chunk": lambda folder, _: litdata(folder) / "chunk-0-0.bin",
    "CIFAR-10": lambda folder, patch: cifar(folder, CIFAR10, [f"data_batch_{n}" for n in range(1, 6)], patch),
    "CIFAR-10 test": lambda folder, patch: cifar(folder, CIFAR10, ["test_batch"], patch) / "test_batch",
    "CIFAR-10 batch": lambda folder, patch: cifar(folder, CIFAR10, ["data_batch_1"], patch) / "data_batch_1",
    "CIFAR-10 root": lambda folder, patch: cifar(folder, CIFAR10, ["data_batch_1"], patch).parent,
    "CIFAR-100": lambda folder, patch: cifar(folder, CIFAR100, ["train"], patch),
    "CIFAR-100 batch": lambda folder, patch: cifar(folder, CIFAR100, ["train"], patch) / "train",
    "IDX": lambda folder, _: idx(folder),
    "IDX in a folder": lambda folder, _: idx(folder).parent,
    "IDX of another name": lambda folder, _: idx(folder, "images"),
}


@pytest.mark.filterwarnings("ignore")  # those of other libraries
@pytest.mark.parametrize("name", WRITTEN)
def test_code_in_the_error_for_a_container_scores_its_images(tmp_path, name, monkeypatch):
    folder = tmp_path / "it's {0} %s"
    folder.mkdir()
    path, images = WRITTEN[name](folder, monkeypatch), GRAY if "IDX" in name else COLORS
    error = raised(UsageError, genpr.score, path, images, **CHEAP)
    assert error.code == "unread-container"
    assert name.split()[0].partition("-")[0] in str(error)
    np.save(tmp_path / "real.npy", images[::-1])
    monkeypatch.chdir(tmp_path)
    code = python_in(error).replace('"real/"', '"real.npy"')
    assert code.count("; ") == 2
    results = []
    scored = partial(genpr.score, **CHEAP)
    monkeypatch.setattr(genpr, "score", lambda real, fake: results.append(scored(real, fake)))
    exec(code, {"genpr": genpr})
    (result,) = results
    assert (result.fake.n, result.n_shared) == (20, 20)


def test_compressed_idx_is_named_without_its_suffix(tmp_path):
    path = idx(tmp_path)
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    for each in (packed, packed.parent):
        error = raised(UsageError, open_source, each)
        assert error.code == "unread-container"
        assert repr(str(path)) in str(error)


def test_page_has_the_same_code():
    shown = [ast.unparse(ast.parse(block)) for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)]
    paths = re.findall(r"\('([^']+)'", "".join(shown))
    for container in CONTAINERS:
        codes = {
            ast.unparse(ast.parse(code))
            for path in paths
            for number in (10, 100)
            for code in [container.code.format(path=path, number=number, is_train=True)]
        }
        assert codes & {*shown}, container.name


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("data.mdb", b"", "unread-container"),
        ("DATA.MDB", b"", "unread-container"),
        (
            "cifar-10-batches-py/data_batch_1",
            b"\x80\x02cos\nsystem\n(S'touch sprung'\ntR.",
            "unread-container",
        ),
        ("images", b"\0\0\x08\3" + b"\xff" * 12, "unread-container"),
        ("x", b"\0\0\x08\1" + bytes(12), "source-kind"),  # labels
        ("x", bytes(16) + b"\xde\xc0\xef", "source-kind"),
        ("chunk.bin", b"", "source-kind"),
        ("lock.mdb", b"", "source-kind"),
        ("data_batch_1", b"", "source-kind"),  # CIFAR10 of torchvision needs the name of its folder
        ("a.mds.old/b.dat", b"", "source-kind"),
    ],
)
def test_containers_are_known_by_name_or_first_bytes_and_not_opened(tmp_path, name, data, code, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, name, data=data)
    assert raised(UsageError, open_source, tmp_path / name).code == code
    assert not (tmp_path / "sprung").exists()


def test_images_next_to_a_container_are_read_and_its_files_counted(tmp_path):
    write_files(tmp_path, "a.png", data=encode(COLORS[0]))
    write_files(tmp_path, "data.mdb", "shard.00000.mds", data=b"")
    source = open_source(tmp_path)
    assert len(source) == 1
    assert source.passed_over == {".mdb": 1, ".mds": 1}
    (tmp_path / "a.png").unlink()
    assert raised(UsageError, open_source, tmp_path).code == "unread-container"
    for path in tmp_path.iterdir():
        path.unlink()
    assert raised(DataError, open_source, tmp_path).code == "no-images"


@pytest.mark.parametrize("name", ["chunk-1.bin", "cifar-10-batches-py/test_batch", "cifar-100-python/train"])
def test_images_with_the_name_of_a_container_are_images(tmp_path, name):
    write_files(tmp_path, name, "b.png", data=encode(COLORS[0]))
    assert len(open_source((tmp_path / name).parent)) >= 1
    assert len(open_source(tmp_path)) == 2
    assert "a single image" in str(raised(UsageError, open_source, tmp_path / name))


def test_code_for_one_of_several_containers_is_reported(tmp_path):
    write_files(tmp_path / "cifar-100-python", "test", "train", data=b"x")
    write_files(tmp_path / "hdf5", "b.H5", "a.hdf5", "c.hdf", data=b"x")
    write_files(tmp_path / "mds", "shard.00000.mds", "shard.00001.mds", data=b"x")
    write_files(tmp_path / "lmdb", "data.mdb", "lock.mdb", data=b"x")
    for name, first, is_one in (
        ("cifar-100-python", "train=False", False),
        ("hdf5", "a.hdf5", False),
        ("mds", repr(str(tmp_path / "mds")), True),
        ("lmdb", "data.mdb", True),
        ("", "data.mdb", False),  # of several kinds
    ):
        error = raised(UsageError, open_source, tmp_path / name)
        assert first in python_in(error)
        assert ("; the first of " not in str(error)) is is_one


def test_archives_next_to_a_container_are_offered_first(tmp_path, pack):
    write_files(tmp_path / "x", "a.h5", "b.mdb", "c.TAR", data=b"x")
    error = raised(DataError, open_source, tmp_path / "x")
    assert error.code == "no-images"
    assert "*.tar" in str(error)
    assert str(error).count("/containers/") == 1
    error = raised(DataError, open_source, pack("zip", {"a.h5": b"x"}))
    assert "/containers/" in str(error)
