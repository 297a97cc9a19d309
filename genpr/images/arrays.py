"""Images in one array: numpy arrays and torch tensors in memory, .npy and .npz files. Nothing is ever unpickled.

The header of a file is read before its data, and believed only as far as the file goes: an .npz of 261 kB can
declare 256 MB, and black images do so in earnest. So it is read in batches, and no memory is taken on trust.
"""

from __future__ import annotations

import io
import math
import os
import threading
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from genpr.errors import DataError, some
from genpr.images.damage import DAMAGE, damage_reported
from genpr.images.item import ImageSource, Item, names_of_places, printable
from genpr.images.layout import check_nchw, check_nhwc, pixels_of_tensor
from genpr.images.policy import MAX_PIXELS
from genpr.images.zip_members import open_member
from genpr.storage import open_regular

if TYPE_CHECKING:
    from torch import Tensor

_BATCH_BYTES = 16 * 2**20
_BLOCK_BYTES = 2**20
_PART_BYTES = 2**18  # zipfile holds several times what it is asked for at once
_HEADER_BYTES_MAX = 10_000  # numpy's own limit, which it checks after reading
_IMAGE_BYTES_MAX = 3 * MAX_PIXELS  # a batch holds at least one image, so none may be a bomb
_KEY = "arr_0"


@dataclass(frozen=True)
class ArraySource(ImageSource):
    """Images in a numpy array, uint8 (n, h, w, 3); items are views of it."""

    name: str
    images: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[Item]:
        for index in range(len(self.images)):
            yield Item(f"[{index}]", partial(self.images.__getitem__, index))

    def names(self) -> Iterator[str]:
        """Places in the array."""
        return names_of_places(len(self))


@dataclass(frozen=True)
class TensorSource(ImageSource):
    """Images in a torch tensor, uint8 (n, 3, h, w), on any device."""

    name: str
    images: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[Item]:
        for index in range(len(self.images)):
            yield Item(f"[{index}]", partial(pixels_of_tensor, self.images, index))

    def names(self) -> Iterator[str]:
        """Places in the array."""
        return names_of_places(len(self))


@dataclass(frozen=True)
class Header:
    """What an .npy header says, and how many bytes it took to say it."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    size: int

    @property
    def total_bytes(self) -> int:
        """Bytes of header and data together."""
        return self.size + math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class NpzSource(ImageSource):
    """The images in `arr_0` of an .npz file, in array order.

    A compressed array can only be read from its start, so each iteration streams it in batches of about 16 MB,
    and an item's `read` hands out its own part of a batch.
    """

    name: str
    path: Path
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Item]:
        image_shape = self.shape[1:]
        rows = max(1, _BATCH_BYTES // math.prod(image_shape))
        with (
            _damage_reported(self.path, "npz"),
            zipfile.ZipFile(self.path) as archive,
            open_member(archive, f"{_KEY}.npy", is_streamed=True) as member,
        ):
            read_header(member)
            for start in range(0, len(self), rows):
                batch = read_uint8(member, (min(rows, len(self) - start), *image_shape))
                for row, image in enumerate(batch, start):
                    yield Item(f"[{row}]", partial(np.asarray, image))

    def names(self) -> Iterator[str]:
        """Places in the array."""
        return names_of_places(len(self))


@dataclass(frozen=True)
class NpySource(ImageSource):
    """The images in a .npy file, in array order, read from the file when they are asked for.

    They are not mapped into memory: a file that is cut short meanwhile would end the process without a message.
    """

    name: str
    path: Path
    shape: tuple[int, ...]
    start: int
    state: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Item]:
        rows = max(1, _BLOCK_BYTES // math.prod(self.shape[1:]))
        for start in range(0, len(self), rows):
            block = _Block(self, start, min(rows, len(self) - start))
            for row in range(block.rows):
                yield Item(f"[{start + row}]", partial(block.image, row))

    def names(self) -> Iterator[str]:
        """Places in the array."""
        return names_of_places(len(self))

    def read(self, start: int, rows: int) -> NDArray[np.uint8]:
        """The images (rows, h, w, 3) from `start` on.

        Raises:
            DataError: The file was changed since it was opened ("npy-damaged"), or cannot be read ("unreadable").
        """
        with _damage_reported(self.path, "npy"), open_regular(self.path) as file:
            if _state_of(os.fstat(file.fileno())) != self.state:
                raise DataError(
                    f"{printable(self.name)} was changed or cut short while it was read; score again when it is complete",
                    code="npy-damaged",
                    path=self.name,
                )
            file.seek(self.start + start * math.prod(self.shape[1:]))
            return read_uint8(file, (rows, *self.shape[1:]))


class _Block:
    """Images of a .npy file that are read together, when the first of them is asked for."""

    def __init__(self, source: NpySource, start: int, rows: int) -> None:
        self.rows = rows
        self._source, self._start = source, start
        self._images: NDArray[np.uint8] | None = None
        self._lock = threading.Lock()

    def image(self, row: int) -> NDArray[np.uint8]:
        """One of them, (h, w, 3)."""
        with self._lock:
            if self._images is None:
                self._images = self._source.read(self._start, self.rows)
        return np.asarray(self._images[row])


def _state_of(status: os.stat_result) -> tuple[int, ...]:
    """What differs after a file was written to or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def open_array(images: NDArray[Any], name: str) -> ArraySource:
    """Take a numpy array uint8 (n, h, w, 3) as it is; nothing is converted or copied."""
    check_nhwc(images.shape, images.dtype, name, "array")
    return ArraySource(name, images)


def open_tensor(images: Tensor, name: str) -> TensorSource:
    """Take a torch tensor uint8 (n, 3, h, w) as it is; nothing is converted or copied."""
    check_nchw(images, name)
    return TensorSource(name, images)


def open_npz(path: Path, name: str) -> NpzSource:
    """Check the header of `arr_0`; no pixels are read.

    Raises:
        DataError: The file is damaged, has no `arr_0`, or `arr_0` is not uint8 (n, h, w, 3).
    """
    with _damage_reported(path, "npz"), zipfile.ZipFile(path) as archive:
        if f"{_KEY}.npy" not in archive.namelist():
            raise _wrong_keys(name, archive.namelist())
        info = archive.getinfo(f"{_KEY}.npy")
        with open_member(archive, info, is_streamed=True) as member:
            header = read_header(member)
    _check(header, info.file_size, name, "npz")
    return NpzSource(name, path, header.shape)


def open_npy(path: Path, name: str) -> NpySource:
    """Check the header of a .npy file of images; pixels are read when they are asked for.

    Raises:
        DataError: The file is damaged, or does not hold uint8 (n, h, w, 3).
    """
    with _damage_reported(path, "npy"), open_regular(path) as file:
        header = read_header(file)
        status = os.fstat(file.fileno())
    _check(header, status.st_size, name, "npy")
    return NpySource(name, path, header.shape, header.size, _state_of(status))


def peek_array(path: Path | str) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and dtype of the array in a .npy or .npz file, from its header alone.

    This is how to tell features (2-D float) from images (4-D uint8) before choosing a reader.

    Returns:
        Those of `arr_0`, or of the only array in an .npz; `None` for anything else, damaged files included
        (the reader then says what is wrong).
    """
    path = Path(path)
    try:
        if path.suffix.lower() == ".npy":
            with open_regular(path) as file:
                header = read_header(file)
        elif path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                key = f"{_KEY}.npy" if f"{_KEY}.npy" in names or len(names) != 1 else names[0]
                with open_member(archive, key, is_streamed=True) as member:
                    header = read_header(member)
        else:
            return None
    except (*DAMAGE, KeyError, OSError):
        return None
    return header.shape, header.dtype


def read_header(file: IO[bytes]) -> Header:
    """Read an array's header with numpy's own parser; the file then stands at the data."""
    version = npy.read_magic(cast("BinaryIO", file))
    readers = {(1, 0): (2, npy.read_array_header_1_0), (2, 0): (4, npy.read_array_header_2_0)}
    if version not in readers:
        raise ValueError(f"array format {version} is unknown")  # 3.0 is for named fields, which no image has
    width, parse = readers[version]
    prefix = file.read(width)
    length = int.from_bytes(prefix, "little")
    if length > _HEADER_BYTES_MAX:
        raise ValueError(f"its header claims {length:,} bytes")
    try:
        shape, fortran, dtype = parse(io.BytesIO(prefix + file.read(length)))
    except (SyntaxError, TypeError, TokenError, MemoryError, RecursionError) as error:  # it is no literal
        raise ValueError(f"its header describes no array ({type(error).__name__})") from error
    if any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"shape {shape} is impossible")
    return Header(shape, fortran, dtype, file.tell())


def read_uint8(member: IO[bytes], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The next bytes of `member` as an array, holding little more than that array while reading."""
    batch = np.empty(shape, np.uint8)
    view, done = batch.data.cast("B"), 0
    while done < len(view):
        part = member.read(min(_PART_BYTES, len(view) - done))
        if not part:
            raise EOFError("the array ends before its last value")
        view[done : done + len(part)] = part
        done += len(part)
    return batch


def _check(header: Header, file_bytes: int, name: str, kind: str) -> None:
    """Refuse what is not a plain array of images, or does not fit the file it came in."""
    shown = printable(name)
    if header.dtype.hasobject:
        raise DataError(
            f"{shown} holds Python objects, which only pickle can load and which could then run code; "
            "save the images as one uint8 array (n, h, w, 3)",
            code=f"{kind}-pickle",
            path=name,
        )
    check_nhwc(header.shape, header.dtype, name, kind)
    if header.fortran:
        raise DataError(
            f"{shown} is in Fortran order, which cannot be read image by image; "
            "save np.ascontiguousarray(x) instead",
            code=f"{kind}-shape",
            path=name,
        )
    if header.total_bytes > file_bytes or math.prod(header.shape[1:]) > _IMAGE_BYTES_MAX:
        raise DataError(
            f"{shown} declares shape {header.shape}, {header.total_bytes:,} bytes, but has {file_bytes:,}; "
            "it was cut short, or it is a bomb",
            code="npz-bomb" if kind == "npz" else f"{kind}-damaged",
            path=name,
        )
    if header.total_bytes < file_bytes:
        raise DataError(
            f"{shown} has {file_bytes - header.total_bytes:,} bytes after its last image; its header is damaged",
            code=f"{kind}-damaged",
            path=name,
        )


def _wrong_keys(name: str, members: list[str]) -> DataError:
    keys = [member.removesuffix(".npy") for member in members]
    if {"mu", "sigma"} <= set(keys):
        cause = "these look like FID statistics, from which no precision or recall can be computed"
    else:
        cause = "np.savez(path, images) without a keyword writes it"
    return DataError(
        f"{printable(name)} needs the key {_KEY!r} and has {some(keys, 5) or 'none'}; {cause}",
        code="npz-key",
        path=name,
    )


def _damage_reported(path: Path, kind: str) -> AbstractContextManager[None]:
    return damage_reported(path, f".{kind} file", code=f"{kind}-damaged")
