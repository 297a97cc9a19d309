"""One whole array out of an .npy or .npz file: nothing is unpickled, and no memory is taken on trust.

numpy takes as much memory as a header asks for before it reads the first value. So headers are held against the file first.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from genpr.images.arrays import Header, read_header
from genpr.images.zip_members import open_member
from genpr.storage import open_regular


def read_npy(
    path: Path, *, mapped: bool = False, check: Callable[[Header], None] | None = None
) -> NDArray[Any]:
    """The array of an .npy file.

    Args:
        path: The file.
        mapped: Leave it on disk, and read what is asked for.
        check: Gets the header before any value is read, and raises an error where the array is not wanted.

    Raises:
        ValueError: It holds something else, Python objects among them, or less than its header says.
        OSError: It cannot be read.
    """
    with open_regular(path) as file:
        header = read_header(file)
    if check is not None:
        check(header)
    _check(header, path.stat().st_size)
    array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array


def read_array(
    archive: zipfile.ZipFile, name: str, *, check: Callable[[Header], None] | None = None
) -> NDArray[Any]:
    """One array of an .npz file, by the name of its member ("arr_0.npy").

    Raises:
        ValueError: As `read_npy`; or it is compressed like a bomb. Damaged archives raise `genpr.images.damage.DAMAGE`.
        KeyError: There is no such member.
    """
    with open_member(archive, name) as member:
        header = read_header(member)
    if check is not None:
        check(header)
    _check(header, archive.getinfo(name).file_size)
    with open_member(archive, name) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
    return array


def _check(header: Header, file_bytes: int) -> None:
    if header.dtype.hasobject:
        raise ValueError("it holds Python objects, which only pickle can load and which could then run code")
    if header.total_bytes > file_bytes:
        raise ValueError(
            f"shape {header.shape} needs {header.total_bytes:,} bytes, and it has {file_bytes:,}"
        )
