"""Images in one array: numpy arrays and torch tensors in memory, .npy and .npz files. Nothing is ever unpickled.

The header of a file is read before its data, and believed only as far as the file goes: an .npz of 261 kB can
declare 256 MB, and black images do so in earnest. So it is read in batches, and no memory is allocated on trust.
"""

from __future__ import annotations

import io
import math
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeGuard, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from genpr.errors import DataError, UsageError, printable, some
from genpr.images.archive import DAMAGE, damage_reported, open_member
from genpr.images.item import ImageSource, Item, index_names
from genpr.images.policy import MAX_PIXELS
from genpr.storage import open_regular

if TYPE_CHECKING:
    from torch import Tensor

ImageRange = tuple[float, float]
"""The floats that are black and white."""
MOST_OUTSIDE = 0.1
"""Share of values outside of the declared range above which it is doubted."""
_BATCH_BYTES = 16 * 2**20
_BLOCK_BYTES = 2**20
_PART_BYTES = 2**18  # zipfile holds several times what is requested at once
_HEADER_BYTES_MAX = 10_000  # numpy's own limit, which it checks after reading
_IMAGE_BYTES_MAX = 3 * MAX_PIXELS  # a batch holds at least one image, so none may be a bomb
_KEY = "arr_0"


@dataclass(frozen=True)
class _Layout:
    """A layout of image arrays, and how to convert others to it. Nothing is converted silently.

    Whether a float array runs to 1 or to 255, only its owner knows.
    """

    text: str
    channels: int  # axis
    other_channels: int  # axis of the other layout
    from_other: str
    from_gray: str
    from_one_channel: str
    from_rgba: str
    to_uint8: str


_NHWC = _Layout(
    text="(n, h, w, 3)",
    channels=3,
    other_channels=1,
    from_other="this looks like NCHW; pass x.transpose(0, 2, 3, 1)",
    from_gray="np.repeat(x[..., None], 3, axis=-1)",
    from_one_channel="np.repeat(x, 3, axis=-1)",
    from_rgba="x[..., :3]",
    to_uint8=".astype(np.uint8)",
)
_NCHW = _Layout(
    text="(n, 3, h, w)",
    channels=1,
    other_channels=3,
    from_other="this looks like NHWC; pass x.permute(0, 3, 1, 2)",
    from_gray="x[:, None].repeat(1, 3, 1, 1)",
    from_one_channel="x.repeat(1, 3, 1, 1)",
    from_rgba="x[:, :3]",
    to_uint8=".to(torch.uint8)",
)


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether `value` is a torch tensor. Where torch was never imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_nhwc(shape: tuple[int, ...], dtype: np.dtype[Any], name: str, kind: str) -> None:
    """Refuse an array that is not uint8 (n, h, w, 3).

    Raises:
        DataError: With code `{kind}-dtype`, `{kind}-shape` or "no-images".
    """
    _check_layout(_NHWC, shape, str(dtype), name, kind)


def check_nchw(images: Tensor, name: str) -> None:
    """Refuse a tensor that is not uint8 (n, 3, h, w).

    Raises:
        DataError: With code "array-dtype", "array-shape" or "no-images".
    """
    _check_layout(_NCHW, tuple(images.shape), str(images.dtype), name, "array")


def pixels_of_tensor(images: Tensor, index: int) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) of one image of a checked tensor."""
    pixels: NDArray[np.uint8] = images[index].permute(1, 2, 0).contiguous().cpu().numpy()
    return pixels


def _check_layout(layout: _Layout, shape: tuple[int, ...], dtype: str, name: str, kind: str) -> None:
    shown = printable(name)
    if dtype not in {"uint8", "torch.uint8"}:
        if "float" in dtype:
            fix = f"for values in 0..1 convert with (x * 255).round(){layout.to_uint8}"
        elif "bool" in dtype:
            fix = f"pass x{layout.to_uint8} * 255"
        else:
            fix = f"pass x{layout.to_uint8} if all values are in 0..255"
        raise DataError(
            f"{shown} needs uint8 values, got {dtype}; {fix}",
            code=f"{kind}-dtype",
            path=name,
        )
    if len(shape) != 4 or shape[layout.channels] != 3 or 0 in shape[1:]:
        raise DataError(
            f"{shown} needs shape {layout.text}, got {shape}; {_shape_fix(shape, layout)}",
            code=f"{kind}-shape",
            path=name,
        )
    if not shape[0]:
        raise DataError(f"{shown} has no images (its shape is {shape})", code="no-images", path=name)


def _shape_fix(shape: tuple[int, ...], layout: _Layout) -> str:
    if len(shape) == 2:
        return "a 2-D array looks like features, which are float"
    if len(shape) == 3:
        one = shape[layout.channels - 1] == 3
        return "for one image pass x[None]" if one else f"for gray images pass {layout.from_gray}"
    if len(shape) == 4 and 0 not in shape:
        if shape[layout.other_channels] == 3:
            return layout.from_other
        if shape[layout.channels] == 1:
            return f"for gray images pass {layout.from_one_channel}"
        if shape[layout.channels] == 4:
            return f"drop the alpha channel with {layout.from_rgba}"
    return "are these images?"


def checked_range(image_range: Sequence[float] | None) -> ImageRange | None:
    """The declared range of float images as two floats.

    Raises:
        UsageError: It is not two finite numbers, the lower first ("image-range").
    """
    if image_range is None:
        return None
    values = tuple(image_range) if isinstance(image_range, Sequence) else ()
    is_pair = len(values) == 2 and all(_is_number(value) for value in values)
    if not is_pair or not values[0] < values[1]:
        raise UsageError(
            f"image_range must be two numbers, black and white, the lower first, such as (-1, 1), not {image_range!r}",
            code="image-range",
        )
    return float(values[0]), float(values[1])


def levels_of(images: Tensor, image_range: ImageRange) -> tuple[Tensor, float]:
    """Floats of any shape, all finite, as uint8, cut off at both ends of the range.

    Floats are scaled to 0..255 and rounded half up: floor(x * scale + offset + 0.5). That is what the field does when it
    saves images: StyleGAN's `(x * 127.5 + 128).clamp(0, 255).to(uint8)` for -1..1, and torchvision's `save_image`,
    `x.mul(255).add(0.5).clamp(0, 255).to(uint8)` for 0..1. Both are reproduced bit by bit. Networks without a last tanh
    overshoot, so what lies outside of the range is cut off, as both do it too.

    Returns:
        The levels, and the share of values that were more than one level of 255 outside of the range.
    """
    import torch

    if images.dtype in (torch.float16, torch.bfloat16):
        images = images.float()  # in half precision, scaling alone would lose levels
    low, high = image_range
    scale = 255 / (high - low)
    levels = images * scale + (0.5 - low * scale)
    outside = ((levels < -0.5) | (levels > 256.5)).double().mean().item()
    return levels.clamp(0, 255).to(torch.uint8), outside


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


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
        """Indices in the array."""
        return index_names(len(self))


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
        """Indices in the array."""
        return index_names(len(self))


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
        """Indices in the array."""
        return index_names(len(self))


@dataclass(frozen=True)
class NpySource(ImageSource):
    """The images in a .npy file, in array order, read from the file when they are requested.

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
        """Indices in the array."""
        return index_names(len(self))

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
    """Images of a .npy file that are read together, when the first of them is requested."""

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
            keys = [member.removesuffix(".npy") for member in archive.namelist()]
            if {"mu", "sigma"} <= set(keys):
                cause = "these look like FID statistics, from which no precision or recall can be computed"
            else:
                cause = "np.savez(path, images) without a keyword writes it"
            raise DataError(
                f"{printable(name)} needs the key {_KEY!r} and has {some(keys, 5) or 'none'}; {cause}",
                code="npz-key",
                path=name,
            )
        info = archive.getinfo(f"{_KEY}.npy")
        with open_member(archive, info, is_streamed=True) as member:
            header = read_header(member)
    _check(header, info.file_size, name, "npz")
    return NpzSource(name, path, header.shape)


def open_npy(path: Path, name: str) -> NpySource:
    """Check the header of a .npy file of images; pixels are read when they are requested.

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


def _damage_reported(path: Path, kind: str) -> AbstractContextManager[None]:
    return damage_reported(path, f".{kind} file", code=f"{kind}-damaged")


def read_npy(
    path: Path, *, mapped: bool = False, check: Callable[[Header], None] | None = None
) -> NDArray[Any]:
    """The array of an .npy file.

    Args:
        path: The file.
        mapped: Leave it on disk, and read what is accessed.
        check: Gets the header before any value is read, and raises an error where the array must not be read.

    Raises:
        ValueError: It holds something else, Python objects among them, or less than its header says.
        OSError: It cannot be read.
    """
    with open_regular(path) as file:
        header = read_header(file)
    if check is not None:
        check(header)
    _check_header(header, path.stat().st_size)
    array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array


def read_array(
    archive: zipfile.ZipFile, name: str, *, check: Callable[[Header], None] | None = None
) -> NDArray[Any]:
    """One array of an .npz file, by the name of its member ("arr_0.npy").

    Raises:
        ValueError: As `read_npy`; or it is compressed like a bomb. Damaged archives raise `genpr.images.archive.DAMAGE`.
        KeyError: There is no such member.
    """
    with open_member(archive, name) as member:
        header = read_header(member)
    if check is not None:
        check(header)
    _check_header(header, archive.getinfo(name).file_size)
    with open_member(archive, name) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
    return array


def _check_header(header: Header, file_bytes: int) -> None:
    if header.dtype.hasobject:
        raise ValueError("it holds Python objects, which only pickle can load and which could then run code")
    if header.total_bytes > file_bytes:
        raise ValueError(
            f"shape {header.shape} needs {header.total_bytes:,} bytes, and it has {file_bytes:,}"
        )
