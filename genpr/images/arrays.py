"""Images in one array: numpy arrays and torch tensors in memory, .npy and .npz files.

Nothing is unpickled. The header of a file is checked against the size of the file before data are read. An .npz file of 261 kB
can hold 256 MB, as files of black images do, so images are read in batches.
"""

from __future__ import annotations

import math
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeGuard, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from genpr.errors import DataError, UsageError, some
from genpr.images.archive import open_member, open_npz, reraise_corrupt
from genpr.images.formats import ARRAY_SUFFIXES
from genpr.images.item import IndexedSource, Item
from genpr.images.policy import DEFAULTS, MAX_BANDS, MAX_PIXELS, DecodePolicy
from genpr.storage import open_regular
from genpr.validation import check_unmasked, is_plain, kind_of

if TYPE_CHECKING:
    from torch import Tensor

ImageRange = tuple[float, float]
"""The values of black and white in float images."""
MAX_OUTSIDE = 0.1
"""Share of values outside of the declared range from which on the range is probably wrong."""
_BATCH_BYTES = 2**20
_BLOCK_BYTES = 2**24  # of a tensor on a CUDA device
_PART_BYTES = 2**18  # zipfile holds several times what is requested at once
_IMAGE_BYTES_MAX = 3 * MAX_PIXELS  # of one image, since a batch holds at least one
_MEMBER = "arr_0.npy"
_MAX_KEYS = 100  # of an .npz file whose headers are all read
_UINT8 = {"uint8", "torch.uint8"}
_OBJECTS = "holds Python objects, which only pickle can load, and pickle can run code"


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether `value` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_images(images: NDArray[Any] | Tensor, name: str, policy: DecodePolicy) -> NDArray[Any] | Tensor:
    """Images (n, h, w, bands) in an array or (n, bands, h, w) in a tensor; refuses those that the policy does not declare."""
    if is_tensor(images) and not is_plain(images):
        needed = "a dense uint8 tensor with data (.to_dense(), .dequantize(), numpy.asarray)"
        raise DataError(f"{name} needs {needed}, got {kind_of(images)}", code="array-type", path=name)
    check_unmasked(images, name)
    dtype = str(getattr(images.dtype, "name", images.dtype))  # without the order of bytes
    _check_layout(tuple(images.shape), dtype, name, policy, channels_first=is_tensor(images))
    gray = images[:, None] if is_tensor(images) else images[..., None]
    return gray if images.ndim == 3 else images


def is_image_array(shape: Sequence[int], dtype: object, policy: DecodePolicy = DEFAULTS) -> bool:
    """Whether an array or tensor has images and not features: it is 4-D, or has gray images without channels.

    (n, d, 1, 1) of another type than uint8 are pooled features that are not flat yet. (n, h, w) of another type are images if
    the policy declares their range of values.
    """
    is_uint8 = str(dtype) in _UINT8
    if len(shape) == 3:
        return is_uint8 or bool(policy.ranges)
    return len(shape) == 4 and (is_uint8 or tuple(shape[2:]) != (1, 1))


def pixels_of(images: NDArray[Any] | Tensor, *, copy: bool = False) -> NDArray[Any]:
    """Pixels (..., h, w, bands) of one or several checked images; unless `copy`, possibly a view."""
    if is_tensor(images):
        import torch

        rows = widened(images.detach()).movedim(-3, -1)
        rows = rows.clone(memory_format=torch.contiguous_format) if copy else rows.contiguous()
        pixels: NDArray[Any] = rows.cpu().resolve_neg().numpy()
        return pixels
    return np.array(images) if copy else np.asarray(images)


def _check_layout(
    shape: tuple[int, ...], dtype: str, name: str, policy: DecodePolicy, *, channels_first: bool = False
) -> None:
    """Refuse anything but an array of images that the policy accepts ("array-dtype", "array-shape", "no-images")."""
    if dtype not in _UINT8 and not (policy.ranges and re.match(r"(torch\.)?(u?int|b?float)\d", dtype)):
        fix = "pass uint8 values in 0..255"
        if "float" in dtype:  # widened, since in half precision the sum and the product lose levels
            x = ("x.float()" if channels_first else "x.astype(np.float32)") if "16" in dtype else "x"
            to_uint8 = ".to(torch.uint8)" if channels_first else ".astype(np.uint8)"
            fix = f"for values in 0..1 convert with ({x} * 255).round(){to_uint8}, for -1..1 with (({x} + 1) * 127.5).round(){to_uint8}"
        fix += ", or declare the values of black and white with --value-range"
        raise DataError(f"{name} needs uint8 values, got {dtype}; {fix}", code="array-dtype", path=name)
    axis, other = (1, 3) if channels_first else (3, 1)
    # (n, h, w) that could be one image, (3, h, w) or (h, w, 3), or a volume (h, w, slices), is refused.
    is_gray = len(shape) == 3 and shape[0] != 3 and shape[2] > MAX_BANDS
    accepted = range(1, MAX_BANDS + 1) if policy.bands else (1, 3)
    if 0 in shape[1:] or not (is_gray or (len(shape) == 4 and shape[axis] in accepted)):
        needed = "(n, 3, h, w) or (n, h, w)" if channels_first else "(n, h, w, 3) or (n, h, w)"
        fix = "one image needs a first axis of length 1, gray ones of up to 16 columns one channel, other bands, such as alpha, --bands"
        if len(shape) == 4 and shape[other] == 3:
            nhwc, nchw = "NHWC; pass x.permute(0, 3, 1, 2)", "NCHW; pass x.transpose(0, 2, 3, 1)"
            fix = f"this looks like {nhwc if channels_first else nchw}"
        raise DataError(f"{name} needs shape {needed}, got {shape}; {fix}", code="array-shape", path=name)
    if not shape[0]:
        raise DataError(f"{name} has no images (its shape is {shape})", code="no-images", path=name)


def checked_range(image_range: Sequence[float] | None) -> ImageRange | None:
    """The declared range of float images as two finite floats, the lower first, or a `UsageError` ("image-range")."""
    if image_range is None:
        return None
    try:
        low, high = map(float, image_range)
    except (OverflowError, TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        needed = "two numbers, black and white, the lower first, such as (-1, 1)"
        raise UsageError(f"image_range must be {needed}, not {image_range!r}", code="image-range")
    return low, high


def widened(images: Tensor) -> Tensor:
    """Floats of fewer than 32 bits as float32, since scaling would lose levels."""
    return images.float() if images.is_floating_point() and images.itemsize < 4 else images


def to_levels(images: Tensor, image_range: Sequence[float]) -> tuple[Tensor, float]:
    """Finite floats as uint8, floor(x * scale + offset + 0.5), and the share of values more than a level out of range.

    Equal to the bit to StyleGAN's `(x * 127.5 + 128).clamp(0, 255).to(uint8)` for -1..1 and to
    `x.mul(255).add(0.5).clamp(0, 255).to(uint8)` of torchvision's `save_image` for 0..1.
    """
    import torch

    low, high = image_range
    scale = 255 / (high - low)
    levels = images * scale + (0.5 - low * scale)
    outside = ((levels < -0.5) | (levels > 256.5)).double().mean().item()
    return levels.clamp(0, 255).to(torch.uint8), outside


@dataclass(frozen=True)
class ArraySource(IndexedSource):
    """Images in memory: a numpy array, (n, h, w, bands), or a torch tensor, (n, bands, h, w), on any device."""

    name: str
    images: NDArray[Any] | Tensor

    def __len__(self) -> int:
        return len(self.images)

    def select(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; a tensor on a CUDA device is copied block by block."""
        images = self.images
        if not is_tensor(images) or images.device.type != "cuda":
            for index in indices:
                yield Item(f"[{index}]", partial(pixels_of, images[index]))
            return
        remaining, length = iter(indices), max(1, _BLOCK_BYTES // images[0].nbytes)
        while block := list(islice(remaining, length)):
            pixels = pixels_of(images[block])
            for index, image in zip(block, pixels, strict=True):
                yield Item(f"[{index}]", partial(np.asarray, image))


def open_array(images: NDArray[Any] | Tensor, name: str, policy: DecodePolicy) -> ArraySource:
    """Open images in memory without converting or copying them."""
    return ArraySource(name, check_images(images, name, policy))


# --- array files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """The content of an .npy header, and its size in bytes."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    size: int

    @property
    def total_bytes(self) -> int:
        """Bytes of header and data."""
        return self.size + math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class ArrayFileSource(IndexedSource):
    """The images in a .npy file, or in one array of an .npz file, in array order; the first begins at `start`.

    `state` changes if the file is written to or replaced. Images are read in batches of about 1 MB by the iterating
    thread. They are not mapped into memory, since truncating a mapped file would kill the process.
    """

    name: str
    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    state: tuple[int, ...]
    policy: DecodePolicy = DEFAULTS

    def __len__(self) -> int:
        return self.shape[0]

    def select(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices."""
        image_shape = self.shape[1:]
        n_bytes = math.prod(image_shape) * self.dtype.itemsize
        rows = max(1, _BATCH_BYTES // n_bytes)
        with _opened(self.path, self.policy) as (file, _):
            # By reading, since zipfile does not check the CRC of a stored member that is first accessed by a seek.
            file.read(self.start)
            for number, group in groupby(indices, key=lambda index: index // rows):
                if _state_of(self.path) != self.state:
                    raise ValueError("it was changed after it was opened")
                first = number * rows
                file.seek(self.start + first * n_bytes)
                batch = _read_values(file, (min(rows, len(self) - first), *image_shape), self.dtype)
                for index in group:
                    yield Item(f"[{index}]", partial(np.asarray, batch[index - first]))


@contextmanager
def _opened(path: Path, policy: DecodePolicy, *, is_any: bool = False) -> Iterator[tuple[IO[bytes], int]]:
    """The array in a file, for sequential reading, and its size in bytes; with `is_any`, the only array of any kind."""
    is_npz = path.suffix.lower() == ".npz"
    with reraise_corrupt(path, "array file", code="array-damaged"):
        if not is_npz:
            with open_regular(path) as file:
                yield file, path.stat().st_size
            return
        with open_npz(path) as archive:
            members = archive.namelist()
            name = members[0] if is_any and len(members) == 1 else _image_member(archive, path, policy)
            with open_member(archive, name, is_streamed=True) as member:
                yield member, archive.getinfo(name).file_size


def _image_member(archive: zipfile.ZipFile, path: Path, policy: DecodePolicy) -> str:
    """The member `arr_0` of an .npz file, or else its only 4-D array of uint8."""
    members = [name for name in archive.namelist() if name.endswith(".npy")]
    if _MEMBER in members:
        return _MEMBER
    keys, images = {name: name.removesuffix(".npy") for name in members}, []
    for name in members if len(members) <= _MAX_KEYS else ():
        with open_member(archive, name, is_streamed=True) as member:
            header = read_header(member)
        keys[name] += f" {header.dtype} {header.shape}"
        is_one = is_image_array(header.shape, header.dtype, policy)
        if is_one and (policy.ranges or (len(header.shape) == 4 and str(header.dtype) in _UINT8)):
            images.append(name)
    if len(images) == 1:
        return images[0]
    found = some([keys[name] for name in images or members], 5) or "none"
    needed = f"'arr_0', or exactly one array of uint8 images (n, h, w, 3) among at most {_MAX_KEYS}"
    text = f"{path} needs the key {needed}, and has {found}; np.savez(path, images) writes 'arr_0'"
    raise DataError(text, code="npz-key", path=str(path))


def open_array_file(path: Path, name: str, policy: DecodePolicy) -> ArrayFileSource:
    """Check the header of a .npy file, or of the images in an .npz file; pixels are read when they are requested."""
    with _opened(path, policy) as (file, size):
        state = _state_of(path)
        header = read_header(file)
        if header.dtype.hasobject:
            text = f"{name} {_OBJECTS}; save the images as one uint8 array (n, h, w, 3)"
            raise DataError(text, code="array-pickle", path=name)
        _check_layout(header.shape, header.dtype.name, name, policy)
        if header.fortran:
            text = f"{name} is in Fortran order, which cannot be read image by image; save np.ascontiguousarray(x)"
            raise DataError(text, code="array-shape", path=name)
        image_bytes = math.prod(header.shape[1:]) * header.dtype.itemsize
        if header.total_bytes != size:
            raise ValueError(f"shape {header.shape} declares {header.total_bytes:,} bytes, not {size:,}")
        if image_bytes > _IMAGE_BYTES_MAX:
            text = f"{name} has images of {image_bytes:,} bytes, and they may have {_IMAGE_BYTES_MAX:,}; divide them into smaller ones"
            raise DataError(text, code="image-too-large", path=name)
    shape = header.shape if len(header.shape) == 4 else (*header.shape, 1)
    return ArrayFileSource(name, path, shape, header.dtype, header.size, state, policy)


def _state_of(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def peek_array(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and dtype of a .npy file, or of the images or the only array in an .npz file; None for other or corrupt files."""
    if path.suffix.lower() not in ARRAY_SUFFIXES:
        return None
    try:
        with _opened(path, DEFAULTS, is_any=True) as (file, _):
            header = read_header(file)
    except DataError:
        return None
    return header.shape, header.dtype


def read_header(file: IO[bytes]) -> Header:
    """Read an array's header with numpy's parser; the file position is then the start of the data."""
    opened = cast("BinaryIO", file)
    version = npy.read_magic(opened)
    if version != (1, 0):  # the others are for structured arrays, and may claim a header of 4 GB
        raise ValueError(f"array format {version} is not read")
    try:
        shape, fortran, dtype = npy.read_array_header_1_0(opened)  # of at most 10,000 bytes
    except (SyntaxError, TypeError, TokenError, MemoryError, RecursionError) as error:  # it is not a literal
        raise ValueError(f"its header describes no array ({type(error).__name__})") from error
    if any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"shape {shape} is impossible")
    return Header(shape, fortran, dtype, file.tell())


def _read_values(member: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The next bytes of `member` as an array, with little memory besides the array."""
    batch = np.empty(shape, dtype)
    view, done = batch.view(np.uint8).data.cast("B"), 0
    while done < len(view):
        part = member.read(min(_PART_BYTES, len(view) - done))
        if not part:
            raise EOFError("the array ends before its last value")
        view[done : done + len(part)] = part
        done += len(part)
    return batch


def read_npy(
    path: Path, *, mapped: bool = False, check: Callable[[Header], None] | None = None
) -> NDArray[Any]:
    """The array of an .npy file, or a `ValueError` or `OSError`; `check` raises for headers that are not accepted."""
    with open_regular(path) as file:
        _check_header(file, path.stat().st_size, check)
    array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array


def read_array(
    archive: zipfile.ZipFile, name: str, *, check: Callable[[Header], None] | None = None
) -> NDArray[Any]:
    """One array of an .npz file by member name ("arr_0.npy"), as `read_npy`; also raises `CORRUPT_FILE_ERRORS`."""
    with open_member(archive, name) as member:
        _check_header(member, archive.getinfo(name).file_size, check)
    with open_member(archive, name) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
    return array


def _check_header(file: IO[bytes], file_bytes: int, check: Callable[[Header], None] | None) -> None:
    header = read_header(file)
    if check is not None:
        check(header)
    if header.dtype.hasobject:
        raise ValueError(f"it {_OBJECTS}")
    if header.total_bytes != file_bytes:
        raise ValueError(f"shape {header.shape} declares {header.total_bytes:,} bytes, not {file_bytes:,}")
