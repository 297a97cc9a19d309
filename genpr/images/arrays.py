"""Images in one array: numpy arrays and torch tensors in memory, .npy and .npz files. Nothing is ever unpickled.

The header of a file is read before its data, and believed only as far as the file goes: an .npz of 261 kB can
declare 256 MB, and black images do so in earnest. So it is read in batches, and no memory is allocated on trust.
"""

from __future__ import annotations

import io
import math
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from numbers import Real
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeGuard, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from genpr.errors import DataError, UsageError, printable, some
from genpr.images.archive import DAMAGE, damage_reported, open_member
from genpr.images.item import Item, NumberedSource
from genpr.images.policy import MAX_PIXELS
from genpr.storage import open_regular

if TYPE_CHECKING:
    from torch import Tensor

ImageRange = tuple[float, float]
"""The floats that are black and white."""
MOST_OUTSIDE = 0.1
"""Share of values outside of the declared range above which it is doubted."""
_BATCH_BYTES = 2**20
_PART_BYTES = 2**18  # zipfile holds several times what is requested at once
_HEADER_BYTES_MAX = 10_000  # numpy's own limit, which it checks after reading
_IMAGE_BYTES_MAX = 3 * MAX_PIXELS  # a batch holds at least one image, so none may be a bomb
_KEY = "arr_0"


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether `value` is a torch tensor. Where torch was never imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_images(images: NDArray[Any] | Tensor, name: str) -> None:
    """Refuse an array that is not uint8 (n, h, w, 3), and a tensor that is not uint8 (n, 3, h, w).

    Raises:
        DataError: With code "array-dtype", "array-shape" or "no-images".
    """
    _check_layout(tuple(images.shape), str(images.dtype), name, "array", channels_first=is_tensor(images))


def pixels_at(images: NDArray[np.uint8] | Tensor, index: int) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) of one image of a checked array or tensor; of an array, a view."""
    if is_tensor(images):
        pixels: NDArray[np.uint8] = images[index].permute(1, 2, 0).contiguous().cpu().numpy()
        return pixels
    return np.asarray(images[index])


def _check_layout(
    shape: tuple[int, ...], dtype: str, name: str, kind: str, *, channels_first: bool = False
) -> None:
    """Refuse what is no array of images. Nothing is converted silently: whether floats run to 1 or 255, only the owner knows.

    Raises:
        DataError: With code `{kind}-dtype`, `{kind}-shape` or "no-images".
    """
    shown = printable(name)
    if dtype not in {"uint8", "torch.uint8"}:
        to_uint8 = ".to(torch.uint8)" if channels_first else ".astype(np.uint8)"
        if "float" in dtype:
            fix = f"for values in 0..1 convert with (x * 255).round(){to_uint8}"
        elif "bool" in dtype:
            fix = f"pass x{to_uint8} * 255"
        else:
            fix = f"pass x{to_uint8} if all values are in 0..255"
        raise DataError(f"{shown} needs uint8 values, got {dtype}; {fix}", code=f"{kind}-dtype", path=name)
    axis, other = (1, 3) if channels_first else (3, 1)
    if len(shape) != 4 or shape[axis] != 3 or 0 in shape[1:]:
        needed = "(n, 3, h, w)" if channels_first else "(n, h, w, 3)"
        if len(shape) == 4 and shape[other] == 3:
            turn = (
                "NHWC; pass x.permute(0, 3, 1, 2)" if channels_first else "NCHW; pass x.transpose(0, 2, 3, 1)"
            )
            fix = f"this looks like {turn}"
        else:
            fix = "one image needs a first axis of length 1, gray images need three equal channels, and alpha is left out"
        raise DataError(f"{shown} needs shape {needed}, got {shape}; {fix}", code=f"{kind}-shape", path=name)
    if not shape[0]:
        raise DataError(f"{shown} has no images (its shape is {shape})", code="no-images", path=name)


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
class ArraySource(NumberedSource):
    """Images in memory: a numpy array, uint8 (n, h, w, 3), or a torch tensor, uint8 (n, 3, h, w), on any device."""

    name: str
    images: NDArray[np.uint8] | Tensor

    def __len__(self) -> int:
        return len(self.images)

    def pick(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices."""
        return (Item(f"[{index}]", partial(pixels_at, self.images, index)) for index in indices)


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
class ArrayFileSource(NumberedSource):
    """The images in a .npy file, or in `arr_0` of an .npz file, in array order.

    They are read in batches of about 1 MB by the iterating thread, and never mapped into memory: a file that is cut short
    meanwhile would end the process without a message.

    Attributes:
        kind: "npy" or "npz".
        start: Where the first image begins in the file or in its member.
        state: What differs after the file was written to or replaced.
    """

    name: str
    path: Path
    kind: str
    shape: tuple[int, ...]
    start: int
    state: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def pick(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; a .npy file is not read where there are none."""
        image_shape = self.shape[1:]
        rows = max(1, _BATCH_BYTES // math.prod(image_shape))
        with _damage_reported(self.path, self.kind), _opened(self.path, self.kind) as file:
            if self.kind == "npz":
                file.read(
                    self.start
                )  # a stored member whose first access is a seek is not checked by its CRC
            for number, group in groupby(indices, key=lambda index: index // rows):
                self._check_state()
                first = number * rows
                file.seek(self.start + first * math.prod(image_shape))
                batch = read_uint8(file, (min(rows, len(self) - first), *image_shape))
                for index in group:
                    yield Item(f"[{index}]", partial(np.asarray, batch[index - first]))

    def _check_state(self) -> None:
        if _state_of(self.path) != self.state:
            raise DataError(
                f"{printable(self.name)} was changed or cut short while it was read; score again when it is complete",
                code=f"{self.kind}-damaged",
                path=self.name,
            )


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[IO[bytes]]:
    """The array in a file, to be read forwards."""
    if kind == "npy":
        with open_regular(path) as file:
            yield file
    else:
        with (
            zipfile.ZipFile(path) as archive,
            open_member(archive, f"{_KEY}.npy", is_streamed=True) as member,
        ):
            yield member


def _state_of(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def open_array(images: NDArray[Any] | Tensor, name: str) -> ArraySource:
    """Take images in memory as they are; nothing is converted or copied.

    Raises:
        DataError: As `check_images`.
    """
    check_images(images, name)
    return ArraySource(name, images)


def open_npz(path: Path, name: str) -> ArrayFileSource:
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
        size = archive.getinfo(f"{_KEY}.npy").file_size
    return _open_array_file(path, name, "npz", size)


def open_npy(path: Path, name: str) -> ArrayFileSource:
    """Check the header of a .npy file of images; pixels are read when they are requested.

    Raises:
        DataError: The file is damaged, or does not hold uint8 (n, h, w, 3).
    """
    with _damage_reported(path, "npy"):
        size = path.stat().st_size
    return _open_array_file(path, name, "npy", size)


def _open_array_file(path: Path, name: str, kind: str, size: int) -> ArrayFileSource:
    """Check the header of an array of so many bytes."""
    with _damage_reported(path, kind), _opened(path, kind) as file:
        header = read_header(file)
        state = _state_of(path)
    _check(header, size, name, kind)
    return ArrayFileSource(name, path, kind, header.shape, header.size, state)


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
    _check_layout(header.shape, str(header.dtype), name, kind)
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
