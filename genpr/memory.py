"""Memory limits of this process, and arrays that are mapped from a file if they exceed them.

The limit is for the whole process. It includes the limits of the control groups of a container or a job.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from genpr.errors import ResourceError, UsageError
from genpr.runtime import address_space_left, cache_root, machine_shares, malloc_trim, private_folder

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

# Shares of free memory:
_TILE_SHARE = 32  # 1/32 for tiles; tiles larger than the cache gain nothing
_FLOAT32_SHARE = 4  # 1/4 for a float32 copy of float16 features
_HELD_SHARE = 2  # 1/2 for an array in memory
_TILE_BYTES_MAX = 256 * 2**20
_GPU_TILE_SHARE, _GPU_TILE_BYTES_MAX = 8, 2**30  # kernels should run long

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_MIN_LIMIT = 2**28
# Pages of files count as those of libraries (0.25 to 0.45 GB) up to this number of bytes; those of data can be dropped.
_LIBRARIES = 2**29
# The limit, what is used, and the part of it in files that are not in use, of groups of version 2 and 1, by controller.
_GROUP_FILES = {
    "": ("max", "current", "inactive_file"),
    "memory": ("limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
}
_limits: dict[object, int] = {}


def parse_size(size: str | int) -> int:
    """Bytes from a number or a text such as "8GiB", "8G" or "500 MB"."""
    count = parse_bytes(size, "memory size")
    if count < _MIN_LIMIT:
        text = f"a memory size of {size} is too small: at least {_MIN_LIMIT >> 20} MiB"
        raise UsageError(text, code="bad-option")
    return count


def parse_bytes(size: str | int, what: str) -> int:
    """Bytes in the format of `parse_size`, without a minimum; `what` names the value in errors."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmgt]i?)?b?", str(size).strip().lower())
    if match is None or isinstance(size, bool):
        text = f"a {what} is a number of bytes such as 8GiB or 500MB, not {size!r}"
        raise UsageError(text, code="bad-option")
    return int(float(match[1]) * _UNITS[match[2] or ""])


@contextmanager
def memory_limit(limit: str | int | None, *, trim: bool = False) -> Iterator[None]:
    """Limit the memory that this process plans to use in the block to `limit` bytes; None sets no limit."""
    key = object()
    if limit is not None:
        _limits[key] = parse_size(limit)
    try:
        yield
    finally:
        _limits.pop(key, None)
        if trim:
            malloc_trim()


def free_memory(device: torch.device | None = None) -> int:
    """Bytes that this process can still use on `device`, by default in host memory.

    In host memory, it is within the machine, its container or job, and its limit. On a GPU, memory that torch reserved and does
    not use is included.
    """
    if device is not None and device.type == "cuda":
        import torch

        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + held)
    free = _count_in(Path("/proc/meminfo"), "MemAvailable:")
    free = 4 * 2**30 if free is None else 1024 * free  # not Linux: a conservative guess
    in_group = cgroup_memory_left()
    free = free if in_group is None else min(free, in_group)
    free //= machine_shares["memory"]
    mappable = address_space_left()
    free = free if mappable is None else min(free, mappable)
    if _limits:
        malloc_trim()  # or freed memory counts as used
        status = Path("/proc/self/status")
        own, of_files = (1024 * (_count_in(status, f"Rss{kind}:") or 0) for kind in ("Anon", "File"))
        free = min(free, max(min(_limits.values()) - own - min(of_files, _LIBRARIES), 0))
    return free


def cgroup_memory_left(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Bytes that this process can still use within its control groups; None without a limit.

    `root` is the mount point of groups, `own` the file with the groups of the process. Inside a container often only the
    outermost group is visible.
    """
    left = []
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            group = PurePosixPath(path.lstrip("/"))
            for kind in _GROUP_FILES.keys() & {*controllers.split(",")}:
                most, current, of_files = _GROUP_FILES[kind]
                for part in (group, *group.parents):
                    folder = root / kind / part
                    with suppress(OSError, ValueError):  # missing, or "max"
                        limit = int((folder / f"memory.{most}").read_text())
                        used = int((folder / f"memory.{current}").read_text())
                        cached = _count_in(folder / "memory.stat", of_files)  # freed when memory is needed
                        left.append(max(0, limit - used + (cached or 0)))
    return min(left, default=None)


ALWAYS_HELD = 2**26
"""Arrays up to this number of bytes are always held in memory; mapping them, or reading free memory, costs more."""


def fits(count: int, device: torch.device | None = None) -> bool:
    """Whether `count` bytes can be held while a set is in use, on `device` or by default in host memory."""
    return count <= ALWAYS_HELD or count <= free_memory(device) // _HELD_SHARE


def tile_budget(device: torch.device) -> int:
    """Bytes for temporary tiles on `device`: a small share of free memory."""
    is_cuda = device.type == "cuda"
    share, most = (_GPU_TILE_SHARE, _GPU_TILE_BYTES_MAX) if is_cuda else (_TILE_SHARE, _TILE_BYTES_MAX)
    return max(2**20, min(free_memory(device) // share, most))


def empty_rows(n: int, d: int, dtype: torch.dtype) -> Tensor:
    """An uninitialized (n, d) tensor on the CPU, in memory or, if it is too large, in a mapped file."""
    import torch

    count = n * d * dtype.itemsize
    if fits(count):
        return torch.empty(n, d, dtype=dtype)
    folder = private_folder(cache_root(), "scratch")
    try:
        # It has no name, so it is deleted with the last reference.
        with tempfile.TemporaryFile(dir=folder) as file:
            # Writing to a mapped page on a full disk would kill the process.
            os.posix_fallocate(file.fileno(), 0, count)
            array = np.memmap(file, dtype=str(dtype).removeprefix("torch."), mode="r+", shape=(n, d))
    except OSError as error:
        raise ResourceError(
            f"{n:,} x {d:,} features need {count / 1e9:.1f} GB, more than memory allows, and cannot be kept in {folder} "
            f"either ({error.strerror}); set GENPR_CACHE to a folder on a disk with more space",
            code="no-scratch",
            path=str(folder),
        ) from error
    return torch.from_numpy(array)


def copy_of(rows: Tensor) -> Tensor:
    """A copy of (n, d) rows, in memory or in a mapped file."""
    if rows.device.type != "cpu":
        return rows.clone()
    n, d = rows.shape
    return empty_rows(n, d, rows.dtype).copy_(rows)


def part_of(rows: Tensor, index: Tensor) -> Tensor:
    """A copy of the rows at `index` (p,) of (n, d), in memory or in a mapped file."""
    import torch

    if rows.device.type != "cpu":
        return rows[index]
    out = empty_rows(len(index), rows.shape[1], rows.dtype)
    return torch.index_select(rows, 0, index, out=out)


def float_rows(features: NDArray[Any] | Tensor) -> Tensor:
    """(n, d) as contiguous float32, without a copy if possible, in a mapped file if too large for memory."""
    import torch

    if isinstance(features, torch.Tensor) and features.device.type != "cpu":
        return features.to(torch.float32).contiguous()
    n, d = features.shape
    is_half = features.dtype in (torch.float16, np.float16)
    keeps_half = is_half and n * d * 4 > free_memory() // _FLOAT32_SHARE
    kept = torch.float16 if keeps_half else torch.float32
    if isinstance(features, torch.Tensor):
        is_kept = features.dtype == kept and features.is_contiguous()
        return features if is_kept else empty_rows(n, d, kept).copy_(features)
    if features.dtype == (np.float16 if keeps_half else np.float32) and features.flags.c_contiguous:
        return torch.from_numpy(features if features.flags.writeable else np.asarray(_Writable(features)))
    rows = empty_rows(n, d, kept)
    with np.errstate(all="ignore"):
        rows.numpy()[:] = features
    return rows


class _Writable:
    """The memory of a read-only array, marked as writable, since torch warns about read-only arrays."""

    def __init__(self, array: NDArray[Any]) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
        self._keeps_alive = array


def _count_in(path: Path, name: str) -> int | None:
    """The number after a name in a file of names and numbers."""
    with suppress(OSError), path.open() as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1])
    return None
