"""One array of images as an .npz file, written image by image.

A zip archive knows the size of a member only when it ends, but an array's header, which stands first, holds the
number of images. So a number is written that is expected, and put right in a copy if it turns out otherwise.
"""

from __future__ import annotations

import io
import math
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from genpr.errors import ResourceError
from genpr.images.item import printable
from genpr.storage import atomic_path

_MEMBER = "arr_0.npy"
_COPY_BYTES = 2**20


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report a failure to write `path` as a `ResourceError`; the block must turn those of reading into others."""
    try:
        yield
    except OSError as error:
        shown = printable(str(path))
        raise ResourceError(
            f"{shown} cannot be written ({error.strerror or error}); nothing is left of it",
            code="output-unwritable",
            path=str(path),
        ) from error


def check_room(path: Path, shape: tuple[int, ...], *, compressed: bool) -> None:
    """Refuse at once what the disk cannot take; how small a compressed array gets, nobody knows before."""
    needed, free = math.prod(shape), shutil.disk_usage(path.parent).free
    if needed > free and not compressed:
        raise ResourceError(
            f"{printable(str(path))} needs {needed / 1e6:,.1f} MB, and its disk has {free / 1e6:,.1f} MB free",
            code="disk-full",
            path=str(path),
        )


def _header(shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return header.getvalue()


@contextmanager
def _member(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    """A new .npz file with one array, open for writing; 64-bit sizes, as numpy writes them."""
    compression = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with (
        zipfile.ZipFile(path, "w", compression) as archive,
        archive.open(_MEMBER, "w", force_zip64=True) as file,
    ):
        yield file


def write_rows(
    path: Path, shape: tuple[int, ...], rows: Iterable[NDArray[np.uint8]], *, compressed: bool
) -> int:
    """Write a header for `shape` and all `rows`; how many there were."""
    n = 0
    with _member(path, compressed=compressed) as file:
        file.write(_header(shape))
        for n, pixels in enumerate(rows, 1):  # noqa: B007 - the last is the count
            file.write(pixels.data)
    return n


def correct_count(path: Path, shape: tuple[int, ...], n: int, *, compressed: bool) -> None:
    """Copy the file once more, with `n` in its header instead of `shape[0]`."""
    with (
        atomic_path(path) as corrected,
        zipfile.ZipFile(path) as archive,
        archive.open(_MEMBER) as old,
        _member(corrected, compressed=compressed) as new,
    ):
        old.read(len(_header(shape)))
        new.write(_header((n, *shape[1:])))
        shutil.copyfileobj(old, new, _COPY_BYTES)
