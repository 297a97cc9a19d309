"""Containers of other libraries, which genpr does not read: errors with the Python that passes their images to `genpr.score`.

A reader of each would need its library, and some of these unpickle what they read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from genpr.errors import UsageError
from genpr.images.folder import read_start
from genpr.images.formats import ARRAY_SUFFIXES, SHARD_SUFFIXES
from genpr.images.item import CONTAINERS_PAGE


class Container(NamedTuple):
    """A kind of container, with Python for a `path`: the file, its folder, or the folder of that if `level` is 0, 1 or 2."""

    name: str
    pattern: str
    level: int
    code: str
    start: bytes = b"(?!)"

    def code_for(self, file: str) -> str:
        """The Python for one of its files."""
        found = Path(file.removesuffix(".gz"))
        number, is_train = 100 if found.parent.name.startswith("cifar-100") else 10, found.name[:4] != "test"
        path = str([found, *found.parents][self.level])
        return f"import genpr; {self.code.format(path=path, number=number, is_train=is_train)}"


# The patterns are regular expressions for the end of the absolute path of a file, in any case, and for its first bytes.
CONTAINERS = (
    Container(
        "an LMDB database",
        r"(?<!/lock)\.l?mdb",
        0,
        "import io, lmdb, PIL.Image; entries = lmdb.open({path!r}, subdir=False, readonly=True, lock=False).begin().cursor(); "
        'genpr.score("real/", (PIL.Image.open(io.BytesIO(value)) for key, value in entries if key != b"length"))',
        rb".{16}\xde\xc0\xef\xbe",
    ),
    Container(
        "an HDF5 file",
        r"\.(h5|hdf5?)",
        0,
        'import h5py; images = h5py.File({path!r})["imgs"]; genpr.score("real/", (image.transpose(1, 2, 0) for image in images))',
        rb"\x89HDF\r\n\x1a\n",
    ),
    Container(
        "a shard of MosaicML Streaming (MDS; decompress .mds.zstd and the like first)",
        r"\.mds(\.(br|bz2|gz|snappy|zstd))?",
        1,
        'from streaming import LocalDataset; samples = LocalDataset({path!r}); genpr.score("real/", (sample["image"] for sample in samples))',
    ),
    Container(
        "a chunk of LitData",
        r"/chunk-[^/]*\.bin",
        1,
        'from litdata import StreamingDataset; samples = StreamingDataset({path!r}); genpr.score("real/", (sample["image"] for sample in samples))',
    ),
    Container(
        "a batch of CIFAR",
        "/(cifar-10-batches-py/(data_batch_[1-5]|test_batch)|cifar-100-python/(train|test))",
        2,
        'from torchvision.datasets import CIFAR{number}; images = CIFAR{number}({path!r}, train={is_train}); genpr.score("real/", images)',
    ),
    Container(
        "an IDX file (decompress .gz first)",
        r"idx3-ubyte(\.gz)?",
        0,
        'from torchvision.datasets.mnist import read_image_file; gray = read_image_file({path!r}); genpr.score("real/", gray[:, None].expand(-1, 3, -1, -1))',
        rb"\0\0\x08\x03",
    ),
)


def unread_container(path: Path, names: Iterable[str] | None = None) -> UsageError | None:
    """The error for a file, or a folder with files of these `names`, of a container ("unread-container"); None for others.

    None also for a folder with files that genpr reads one by one, such as tar archives.
    """
    root, start = path.absolute(), b""
    files = [str(root)] if names is None else sorted(f"{root}/{name}" for name in names)
    if names is None:
        with suppress(OSError):
            start = read_start(root.parent, root.name)
    elif any(file.lower().endswith((*SHARD_SUFFIXES, *ARRAY_SUFFIXES)) for file in files):
        return None
    codes = dict[str, str]()
    for container in CONTAINERS:
        is_named = re.compile(rf"{container.pattern}\Z", re.IGNORECASE).search
        has_start = re.match(container.start, start, re.DOTALL) is not None
        codes |= {container.code_for(file): container.name for file in files if has_start or is_named(file)}
    if not codes:
        return None
    code, kind = next(iter(codes.items()))
    count = f"; the first of {len(codes):,}" if len(codes) > 1 else ""
    text = f"{path} {'is' if names is None else 'has'} {kind}, which genpr scores in Python only ({CONTAINERS_PAGE}){count}: {code}"
    return UsageError(text, code="unread-container", path=str(path))
