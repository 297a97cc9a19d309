"""Containers of other libraries, which genpr does not read: errors with the Python that passes their images to `genpr.score`.

A reader of each would need its library, and some of these unpickle what they read.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from fnmatch import filter as matches
from pathlib import Path
from typing import NamedTuple

from genpr.errors import UsageError
from genpr.images.folder import read_start

# Name; patterns of the paths of its files; 0, 1 or 2 if the code takes such a file, its folder, or the folder of that.
_TABLE = """
an LMDB database | *.mdb *.lmdb | 0
import io, lmdb, PIL.Image
entries = lmdb.open({path!r}, subdir=False, readonly=True, lock=False).begin().cursor()
genpr.score("real/", (PIL.Image.open(io.BytesIO(value)) for key, value in entries if key != b"length"))

an HDF5 file | *.h5 *.hdf5 *.hdf | 0
import h5py
images = h5py.File({path!r})["imgs"]  # uint8 (n, 3, h, w)
genpr.score("real/", (image.transpose(1, 2, 0) for image in images))

a shard of MosaicML Streaming (MDS) | *.mds *.mds.* | 1
from streaming import LocalDataset
samples = LocalDataset({path!r})
genpr.score("real/", (sample["image"] for sample in samples))

a chunk of LitData | */chunk-*.bin | 1
from litdata import StreamingDataset
samples = StreamingDataset({path!r})
genpr.score("real/", (sample["image"] for sample in samples))

a batch of CIFAR-10 | */data_batch_[1-5] */test_batch | 2
from torchvision.datasets import CIFAR10
images = CIFAR10({path!r}, train=True)  # False: test_batch
genpr.score("real/", images)

a batch of CIFAR-100 | */cifar-100-python/train */cifar-100-python/test | 2
from torchvision.datasets import CIFAR100
images = CIFAR100({path!r}, train=True)  # False: test
genpr.score("real/", images)

an IDX file | *idx3-ubyte *idx3-ubyte.gz | 0
from torchvision.datasets.mnist import read_image_file
gray = read_image_file({path!r})  # after gunzip, if its name ends in .gz
genpr.score("real/", gray[:, None].expand(-1, 3, -1, -1))
"""
_STARTS = ((0, 16, b"\xde\xc0\xef\xbe"), (1, 0, b"\x89HDF\r\n\x1a\n"), (6, 0, b"\0\0\x08\3"))
"""First bytes of files of other names: the index of the container, the position and the bytes."""


class Container(NamedTuple):
    """A kind of container, with Python for a `path`: the file, its folder, or the folder of that if `level` is 0, 1 or 2."""

    name: str
    patterns: list[str]
    level: int
    code: str


def _parsed(block: str) -> Container:
    head, _, code = block.partition("\n")
    name, patterns, level = head.split(" | ")
    return Container(name, patterns.split(), int(level), code)


CONTAINERS = tuple(map(_parsed, _TABLE.strip().split("\n\n")))


def unread_container(path: Path, names: Iterable[str] | None = None) -> UsageError | None:
    """The error for a file, or a folder with files of these `names`, of a container ("unread-container"); None for others."""
    root = path.absolute()
    files = [str(root)] if names is None else [f"{root}/{name}" for name in names]
    for container in CONTAINERS:
        if found := [each for pattern in container.patterns for each in matches(files, pattern)]:
            return _error(path, container, Path(min(found)))
    with suppress(OSError):
        start = read_start(root.parent, root.name) if names is None else b""
        for index, at, data in _STARTS:
            if start[at : at + len(data)] == data:
                return _error(path, CONTAINERS[index], root)
    return None


def _error(path: Path, container: Container, file: Path) -> UsageError:
    file = file.with_suffix("") if file.suffix == ".gz" else file
    code = container.code.format(path=str([file, *file.parents][container.level]))
    lines = "; ".join(["import genpr", *(line.partition("  #")[0] for line in code.splitlines())])
    text = f"{path} {'is' if path.is_file() else 'has'} {container.name}, which genpr scores in Python only"
    text += f" (https://genpr.github.io/genpr/containers/): {lines}"
    return UsageError(text, code="unread-container", path=str(path))
