"""Devices, cores, out-of-memory detection and CPU fallback, malloc settings, folders, and torch's global state.

Light to import: torch is imported only where a function needs it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpr.errors import ResourceError, UsageError

if TYPE_CHECKING:
    import torch

# How libraries report it that raise no specific error: torch on a CPU, cuBLAS, cuDNN, C++ and the dynamic loader.
_OUT_OF_MEMORY = (
    *("can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "ALLOC_FAILED"),
    *("annot allocate memory", "failed to map segment from shared object"),
)
# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's malloc.h, each with its value. The last is set because
# glibc no longer adapts it once the second is set.
_MALLOPT = (-8, 1), (-3, 8 * 2**20), (-1, 32 * 2**20)
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

sharers = {"cores": 1, "memory": 1}  # processes that share this machine with this one and know of each other


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Turn "auto", "cpu", "cuda", "cuda:1" or a `torch.device` into a device that exists here."""
    check_device(device)
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    resolved = torch.device(device)
    if resolved.type not in {"cpu", "cuda"}:
        raise UsageError(f"device {device!r} is not supported; use auto, cpu or cuda", code="unknown-device")
    if resolved.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(str(device).partition(":")[2] or 0) >= count:  # torch keeps 8 bits of it: 256 would be 0
            raise ResourceError(
                f"device {str(device)!r} was asked for, but torch {torch.__version__} (built for CUDA {torch.version.cuda}) "
                f"sees {count} CUDA devices{_cuda_error()}; check the driver with `nvidia-smi`, or use --device cpu",
                code="no-cuda",
            )
    return resolved


def _cuda_error() -> str:
    """What torch reports where it cannot use a GPU."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return f" ({' '.join(str(error).split())})"
    return ""


def check_device(device: object) -> None:
    """Refuse a text that is no name of a device, without importing torch."""
    if isinstance(device, str) and not re.fullmatch(r"auto|(cpu|cuda)(:(0|[1-9][0-9]{0,8}))?", device):
        raise UsageError(f"unknown device {device!r}; use auto, cpu, cuda or cuda:N", code="unknown-device")


def is_launched() -> bool:
    """Whether a launcher such as torchrun started this process as one of several, as its environment says."""
    if os.environ.get("GENPR_ALONE", "0") not in {"", "0"}:
        return False
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    is_one_of_several = rank.isdecimal() and size.isdecimal() and int(rank) < int(size) > 1
    return is_one_of_several and all(name in os.environ for name in LAUNCHER_VARIABLES)


def launched_rank() -> int:
    """The number of this process among those of the launcher."""
    return int(os.environ["RANK"])


def own_cores() -> list[int]:
    """Numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """Cores that this process should use: those it may run on, or its part where others share them (`shared_machine`)."""
    return max(1, len(own_cores()) // sharers["cores"])


@contextmanager
def shared_machine(*, cores: int, memory: int) -> Iterator[None]:
    """Plan with one part of the cores and of the memory of this machine, so many processes share them, for a while."""
    before = dict(sharers)
    sharers.update(cores=cores, memory=memory)
    try:
        yield
    finally:
        sharers.update(before)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let each torch operation use `count` threads for a while."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out, on a GPU or on the machine."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if getattr(error, "code", None) == "oom":  # an error of genpr
        return True
    is_generic = isinstance(error, RuntimeError | ImportError | OSError)
    return is_generic and any(text in str(error) for text in _OUT_OF_MEMORY)


def is_out_of_threads(error: BaseException) -> bool:
    """Whether `error` says that no thread could be started."""
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def is_out_of_files(error: BaseException) -> bool:
    """Whether a library reports that it could open no further file, in an error without an errno."""
    return isinstance(error, RuntimeError) and os.strerror(errno.EMFILE) in str(error)


def empty_device_cache(device_type: str) -> None:
    """Free what torch's allocator caches on a GPU; call it after the error that was caught is gone."""
    if device_type == "cuda":
        import torch

        torch.cuda.empty_cache()


def limit_malloc_arenas() -> bool:
    """Let all threads share one malloc arena, with large blocks mapped apart, unless the user set malloc up.

    An arena per thread and holes of large blocks took 3.9 GB instead of 1.1 to score 100,000 images of 3,072 features.
    Only a program should call this, before it starts threads.
    """
    is_chosen = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    mallopt = _libc_function("mallopt")
    return mallopt is not None and not is_chosen and all(mallopt(*setting) == 1 for setting in _MALLOPT)


def malloc_trim() -> None:
    """Return freed memory to the system; takes some milliseconds."""
    trim = _libc_function("malloc_trim")
    if trim is not None:
        trim(0)


def _libc_function(name: str) -> Callable[..., int] | None:
    """A function that glibc has and other C libraries may lack."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None


def is_offline(offline: bool = False) -> bool:
    """Whether downloads are forbidden, by argument or by GENPR_OFFLINE=1."""
    return offline or os.environ.get("GENPR_OFFLINE", "").lower() in {"1", "true", "yes", "on"}


def cache_root() -> Path:
    """Folder for features and weights: GENPR_CACHE, else XDG_CACHE_HOME/genpr, else ~/.cache/genpr."""
    if explicit := os.environ.get("GENPR_CACHE"):
        return expanded(explicit)
    return user_cache() / "genpr"


def user_cache() -> Path:
    """XDG_CACHE_HOME if it is an absolute path, as its specification demands, else ~/.cache."""
    base = expanded(os.environ.get("XDG_CACHE_HOME", ""))
    return base if base.is_absolute() else expanded("~/.cache")


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path whose `~` or `~name` is written out as shells do it: of a user that nobody knows it stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises of unknown users


def private_folder(root: Path, *parts: str) -> Path:
    """Create a folder that only this user can change, and refuse one that others can change."""
    path = _private(root)
    for part in parts:
        path = _private(path / part)
    return path


def _private(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        risk = folder_risk(path)
    except OSError as error:
        raise ResourceError(
            f"cannot create the folder {path} ({error.strerror}); set GENPR_CACHE to a folder you can write",
            code="cache-unusable",
            path=str(path),
        ) from error
    if risk is not None:
        raise ResourceError(
            f"the folder {path} is not used: {risk}; set GENPR_CACHE to a folder of your own",
            code="cache-unusable",
            path=str(path),
        )
    return path


def folder_risk(path: Path) -> str | None:
    """How other users could change what lies in a folder, in words; None where they cannot."""
    if not hasattr(os, "getuid"):  # Windows
        return None
    status = path.stat()
    if status.st_uid != os.getuid():
        return f"{path} belongs to another user, who could have planted files in it"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        return (
            f"other users can write to {path} (mode {mode:o}) and could have planted files in it; "
            "if you trust what it holds, run chmod go-w on it"
        )
    above = [*Path(os.path.abspath(path)).parents, *Path(os.path.realpath(path)).parents]  # noqa: PTH100 - links kept
    for parent in above:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"it could be exchanged by other users, who can write to {parent} (mode {stat.S_IMODE(mode):o})"
    return None


def is_own_file(path: Path) -> bool:
    """Whether a file, and the link to it where it is one, belong to this user."""
    return not hasattr(os, "getuid") or {path.stat().st_uid, path.lstat().st_uid} == {os.getuid()}


@contextmanager
def all_cores() -> Iterator[None]:
    """Take every core that this process may run on for a while, also those that are the part of others."""
    with shared_machine(cores=1, memory=sharers["memory"]), torch_threads(usable_cores()):
        yield


@contextmanager
def state_guard() -> Iterator[None]:
    """Compute in plain IEEE float32 and deterministically, then leave torch's global state as it was found."""
    import torch

    backends: Any = torch.backends
    settings: list[tuple[object, str, object]] = [
        (backends.cudnn, "benchmark", False),
        (backends.cudnn, "deterministic", True),
    ]
    has_precisions = hasattr(backends.cudnn, "conv")  # torch >= 2.9: one precision per backend and operation
    if has_precisions:
        settings += [
            (backends.cuda.matmul, "fp32_precision", "ieee"),
            (backends.cudnn.conv, "fp32_precision", "ieee"),
            (backends.cudnn.rnn, "fp32_precision", "ieee"),
            (backends.mkldnn.matmul, "fp32_precision", "ieee"),
            (backends.mkldnn.conv, "fp32_precision", "ieee"),
        ]
    else:
        settings.append((backends.cudnn, "allow_tf32", False))
        # Of products only the one name of their precision can be put back: "medium" means bfloat16 on CPUs, too.
        precision = torch.get_float32_matmul_precision()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    before: list[tuple[object, str, object]] = []
    with torch.random.fork_rng(devices=devices):
        try:
            for owner, name, value in settings:
                before.append((owner, name, getattr(owner, name)))
                setattr(owner, name, value)
            if not has_precisions:
                torch.set_float32_matmul_precision("highest")
            yield
        finally:
            if not has_precisions:
                torch.set_float32_matmul_precision(precision)
            for owner, name, value in reversed(before):
                setattr(owner, name, value)
