"""Devices, cores, out-of-memory detection and CPU fallback, malloc settings, folders, and torch's global state.

Light to import: torch is imported only where a function needs it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import re
import resource
import stat
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, chdir, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from genpr.errors import GenprError, ResourceError, UsageError, short
from genpr.notices import emit_notice

if TYPE_CHECKING:
    import torch

_Item = TypeVar("_Item")

# Messages of libraries without a specific error: torch on a CPU, C++, the dynamic loader, the CUDA driver and its
# libraries, some of which report that they could not be initialized or have no algorithm if a workspace did not fit.
_OUT_OF_MEMORY = (
    *("can't allocate memory", "annot allocate memory", "not enough memory", "out of memory", "bad_alloc"),
    *("failed to map segment from shared object", "OUT_OF_MEMORY", "ALLOC_FAILED", "ALLOCATION_FAILED"),
    *("CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_INTERNAL_ERROR"),
    *("unable to find an engine", "cusolverDnCreate", "CUFFT_INTERNAL_ERROR", "cudaErrorMemoryAllocation"),
)
# Options of glibc's malloc.h. In bytes: blocks from M_MMAP_THRESHOLD on are mapped, free memory from M_TRIM_THRESHOLD on is returned to
# the system, and M_TOP_PAD is requested or kept in addition. Until one of them is set, glibc adapts the first two to the largest block
# that was freed, up to 32 and 64 MiB.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_TOP_PAD, _M_ARENA_MAX = -3, -1, -2, -8
_MIB = 2**20
_PROGRAM_SIZES = 8 * _MIB, 32 * _MIB, _MIB // 8
_ADAPTED_SIZES = 32 * _MIB, 64 * _MIB, _MIB // 8
# The last is the size of a thread's heap, which is unmapped when it is free unless as much is kept.
_KEEPING_SIZES = 1024 * _MIB, 1024 * _MIB, 64 * _MIB
_user_default_device: ContextVar[Any] = ContextVar("_user_default_device", default=None)
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# Number of processes of one run that share the cores and the memory of this machine, and whether "auto" may be a GPU.
machine_shares = {"cores": 1, "memory": 1, "gpus": 1}


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Turn "auto", "cpu", "cuda", "cuda:1" or a `torch.device` into a device that exists here."""
    check_device(device)
    import torch

    if device == "auto":
        has_gpu = machine_shares["gpus"] and torch.cuda.is_available()
        return usable_device(torch.device("cuda")) if has_gpu else torch.device("cpu")
    resolved = torch.device(device)
    if resolved.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(str(device).partition(":")[2] or 0) >= count:  # torch keeps 8 bits of it: 256 would be 0
            raise ResourceError(
                f"device {str(device)!r} is not available: torch {torch.__version__} (built for CUDA {torch.version.cuda}) "
                f"sees {count} CUDA devices; check the driver with `nvidia-smi`, or use --device cpu",
                code="no-cuda",
            )
        if problem := _problem_of(resolved):
            text = f"{resolved} cannot be used: {problem}; install a torch built for it (see `genpr doctor`), or use --device cpu"
            raise ResourceError(text, code="gpu-unusable")
    return resolved


def usable_device(gpu: torch.device) -> torch.device:
    """The GPU, or the CPU with a notice if the GPU does not work."""
    import torch

    if problem := _problem_of(gpu):
        emit_notice("gpu-unusable", device=gpu, reason=problem)
    return torch.device("cpu") if problem else gpu


_problems: dict[int, str | None] = {}  # of tested GPUs, by device index


def _problem_of(device: torch.device) -> str | None:
    """Why a GPU cannot be used, tested once with a matrix product; None if it works, or if memory ran out in the test."""
    import torch

    index = -1
    try:
        index = torch.cuda.current_device() if device.index is None else device.index
        if index not in _problems:
            with state_guard():
                # Sums of products below 2^24 are exact in float32, in any order; TF32 and bfloat16 round the factors.
                left = torch.arange(2**14, dtype=torch.float32, device=device).view(128, 128) % 8191
                right = left.T % 7
                is_exact = torch.equal((left @ right).double(), left.double() @ right.double())
            _problems[index] = None if is_exact else "float32 products do not follow IEEE 754"
    except (RuntimeError, AssertionError) as error:
        if is_out_of_memory(error):
            return None
        _problems[index] = short(" ".join(str(error).split()), 160)
    return _problems[index]


def check_device(device: object) -> None:
    """Refuse what is not a device or its name, without importing torch."""
    if not re.fullmatch(r"auto|(cpu|cuda)(:(0|[1-9][0-9]{0,8}))?", str(device)):
        text = f"unknown device {device!r:.60}; use auto, cpu, cuda or cuda:N"
        raise UsageError(text, code="unknown-device")


def is_launched() -> bool:
    """Whether environment variables show that a launcher such as torchrun started this process as one of several."""
    if os.environ.get("GENPR_ALONE", "0") not in {"", "0"}:
        return False
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    is_one_of_several = rank.isdecimal() and size.isdecimal() and int(rank) < int(size) > 1
    return is_one_of_several and all(name in os.environ for name in LAUNCHER_VARIABLES)


def launched_rank() -> int:
    """The rank that the launcher gave this process."""
    return int(os.environ["RANK"])


def usable_cores() -> int:
    """Number of cores that this process should use: its share of the available ones (`shared_machine`)."""
    return max(1, len(os.sched_getaffinity(0)) // machine_shares["cores"])


@contextmanager
def shared_machine(**by: int) -> Iterator[None]:
    """Change `machine_shares` in the block."""
    before = dict(machine_shares)
    machine_shares.update(by)
    try:
        yield
    finally:
        machine_shares.update(before)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let each torch operation use `count` threads in the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` reports that memory ran out, on a GPU or on the machine."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if getattr(error, "code", None) == "oom":  # an error of genpr
        return True
    is_generic = isinstance(error, RuntimeError | ImportError | OSError)
    return is_generic and any(text in str(error) for text in _OUT_OF_MEMORY)


def is_out_of_handles(error: BaseException) -> bool:
    """Whether an error without an errno reports that no thread could be started, or no file opened."""
    texts = "can't start new thread", os.strerror(errno.EMFILE)
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


def address_space_left() -> int | None:
    """Bytes that this process can still map within its limit (`ulimit -v`); None without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    with Path("/proc/self/statm").open() as file:
        pages = int(file.readline().split()[0])
    return max(0, limit - pages * resource.getpagesize())


def limit_malloc_arenas() -> bool:
    """Use one malloc arena for all threads and map large blocks, unless the user configured malloc.

    With an arena per thread and fragmented large blocks, scoring 100,000 images of 3,072 features took 3.9 GB instead of 1.1.
    To be called by programs only, before they start threads.
    """
    libc = ctypes.CDLL(None)
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    is_chosen = "malloc" in tunables or any(name.startswith("MALLOC_") for name in os.environ)
    if is_chosen or not hasattr(libc, "mallopt"):  # of glibc
        return False
    reused_memory.restored = _PROGRAM_SIZES
    return libc.mallopt(_M_ARENA_MAX, 1) == 1 and _set_sizes(libc, _PROGRAM_SIZES)


def _set_sizes(libc: ctypes.CDLL, sizes: tuple[int, int, int]) -> bool:
    """Set the threshold of mapped blocks, to 32 MiB where more is refused (glibc before 2.35), that of trimming, and the padding."""
    mapped, trimmed, padding = sizes
    is_set = libc.mallopt(_M_MMAP_THRESHOLD, mapped) or libc.mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)
    return bool(is_set and libc.mallopt(_M_TRIM_THRESHOLD, trimmed) and libc.mallopt(_M_TOP_PAD, padding))


@cache
def adapt_malloc() -> None:
    """Let glibc's malloc keep freed blocks, as it does after a block of nearly 32 MiB was freed; sizes set by the user are kept.

    Until then it returns them to the system, which clears them for the next use; in small searches that took most of the time.
    """
    import numpy as np

    np.empty(32 * _MIB - 2**16, dtype=np.uint8)


class _ReusedMemory:
    """Context in which malloc reuses freed blocks of any size; the last of overlapping contexts returns them to the system.

    A network frees its activations layer by layer. By default large blocks are returned to the system, which clears them for the
    next layer; this takes up to two thirds of the processor time. Sizes set by the user are kept. The sizes belong to the process and
    cannot be read: afterwards they are those of `limit_malloc_arenas`, or the largest that glibc adapts itself.
    """

    def __init__(self) -> None:
        self.restored = _ADAPTED_SIZES
        self._lock = threading.Lock()
        self._inside = 0
        self._libc: ctypes.CDLL | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            libc = ctypes.CDLL(None)
            if self._inside == 1 and (self.restored == _PROGRAM_SIZES or _is_adapting(libc)):
                self._libc = libc
                _set_sizes(libc, _KEEPING_SIZES)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._libc is not None:
                _set_sizes(self._libc, self.restored)
                self._libc = None
                malloc_trim()


reused_memory = _ReusedMemory()


def _is_adapting(libc: ctypes.CDLL) -> bool:
    """Whether malloc maps blocks above 32 MiB only, after one of nearly this size was freed: it is glibc's without other thresholds."""
    if not all(hasattr(libc, name) for name in ("mallopt", "malloc_usable_size")):
        return False
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.malloc_usable_size.argtypes, libc.malloc_usable_size.restype = [ctypes.c_void_p], ctypes.c_size_t
    libc.free.argtypes = [ctypes.c_void_p]

    def is_mapped(size: int) -> bool:
        block = libc.malloc(size)  # takes no memory, since nothing is written
        usable: int = libc.malloc_usable_size(block)
        libc.free(block)
        header = 2 * ctypes.sizeof(ctypes.c_size_t)
        return (usable + header) % resource.getpagesize() == 0  # whole pages

    return [is_mapped(size * _MIB) for size in (31, 31, 64)][1:] == [False, True]


def malloc_trim() -> None:
    """Return freed memory to the system, which takes some milliseconds."""
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)


def is_offline(offline: bool = False) -> bool:
    """Whether downloads are forbidden, by argument or by GENPR_OFFLINE=1."""
    return offline or os.environ.get("GENPR_OFFLINE", "").lower() in {"1", "true", "yes", "on"}


def cache_root() -> Path:
    """Folder for features and weights: GENPR_CACHE, else XDG_CACHE_HOME/genpr, else ~/.cache/genpr."""
    return expand_user(os.environ.get("GENPR_CACHE") or user_cache() / "genpr")


def user_cache() -> Path:
    """XDG_CACHE_HOME if it is an absolute path, as its specification requires, else ~/.cache."""
    base = expand_user(os.environ.get("XDG_CACHE_HOME", ""))
    return base if base.is_absolute() else expand_user("~/.cache")


def expand_user(path: str | os.PathLike[str]) -> Path:
    """Expand `~` and `~name` in a path as shells do; `~name` of an unknown user is kept."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises for unknown users


def private_folder(root: Path, *parts: str) -> Path:
    """Create a folder that only this user can change, and refuse one that others can change."""
    path = root
    for part in ("", *parts):
        path = path / part
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            risk = folder_risk(path)
        except OSError as error:
            risk = f"it cannot be created ({error.strerror})"
        if risk is not None:
            text = f"the folder {path} is not used: {risk}; set GENPR_CACHE to a private folder that you can write"
            raise ResourceError(text, code="cache-unusable", path=str(path))
    return path


def folder_risk(path: Path) -> str | None:
    """A description of how other users could change files in a folder; None if they cannot."""
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


def is_owned_by_user(path: Path) -> bool:
    """Whether a file, and the link if the path is one, belong to this user."""
    return {path.stat().st_uid, path.lstat().st_uid} == {os.getuid()}


@contextmanager
def all_cores() -> Iterator[None]:
    """Use all available cores in the block, including those of other processes of the run."""
    with shared_machine(cores=1), torch_threads(usable_cores()):
        yield


@contextmanager
def state_guard() -> Iterator[None]:
    """Compute in a `plain_state`, and restore the states of all random generators afterwards."""
    import numpy as np
    import torch

    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - users draw from it
    try:
        with torch.random.fork_rng(devices=devices), plain_state():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def plain_state() -> Iterator[None]:
    """Compute in IEEE float32, deterministically, on the CPU by default; restore the settings of torch and numpy afterwards."""
    import numpy as np
    import torch

    on_cpu, on_gpu = torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False)
    threads, flushes = torch.get_num_threads(), sys.float_info.min / 2 == 0
    device = torch.empty(0).device  # the user's default
    try:
        with ExitStack() as stack, np.errstate(), on_cpu, on_gpu, plain_settings():
            if device.type != "cpu":
                stack.callback(_user_default_device.reset, _user_default_device.set(device))
                stack.enter_context(torch.device("cpu"))
            if flushes:
                torch.set_flush_denormal(False)
            yield
    finally:
        if flushes:
            torch.set_flush_denormal(True)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


_settings_lock = threading.RLock()
_restorers: list[list[ExitStack]] = []  # of the active blocks of all threads, in order of entry


@contextmanager
def plain_settings() -> Iterator[None]:
    """Torch's settings for IEEE float32 and its default type, which all threads share; the last of overlapping blocks restores them."""
    with _settings_lock:
        _restorers.append(own := [_make_plain()])
    try:
        yield
    finally:
        with _settings_lock:
            at = _restorers.index(own)
            del _restorers[at]
            if at < len(_restorers):
                _restorers[at] += own
            else:
                for each in own:
                    each.close()


def _make_plain() -> ExitStack:
    """Set all of torch's settings for IEEE float32, products and convolutions included; the result restores them.

    Torch has switches for TF32, and since 2.9 also precisions for all operations, for a backend and for `single` operations.
    Reading a switch raises if it differs from a precision. Settings are restored in reverse order.
    """
    import torch

    cudnn, matmul, allowed = torch.backends.cudnn, torch.backends.cuda.matmul, list[bool]()
    families, single = _precisions()
    changes: list[tuple[object, str, object]] = [
        (cudnn, "benchmark", False),
        (cudnn, "deterministic", True),
        (matmul, "allow_fp16_accumulation", False),
        (matmul, "allow_fp16_reduced_precision_reduction", False),
        (matmul, "allow_bf16_reduced_precision_reduction", False),
        *product(families, ["fp32_precision"], ["none"]),
    ]
    with ExitStack() as restored:
        for owner, name, value in changes:
            before = getattr(owner, name, None)
            if before is not None:  # some versions of torch lack it
                # The attribute is set from a pair with this second value:
                split_k = getattr(owner, f"{name}_split_k", None) if name.endswith("reduction") else None
                restored.callback(setattr, owner, name, before if split_k is None else (before, split_k))
                setattr(owner, name, value)
        for owner in single:
            restored.callback(setattr, owner, "fp32_precision", owner.fp32_precision)
        _trigger_deprecation_warning()
        # If reading the switch raises, it can be read after single operations were changed, if it is off.
        for _ in range(2):
            with suppress(RuntimeError):
                allowed.append(cudnn.allow_tf32)
            for owner in single:
                owner.fp32_precision = "ieee"
        restored.callback(setattr, cudnn, "allow_tf32", allowed[0] if allowed else True)
        # For products only the name of their precision can be restored: "medium" also means bfloat16 on CPUs.
        restored.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        for owner in single:
            owner.fp32_precision = "ieee"  # the switches changed it
        restored.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        return restored.pop_all()


@cache
def _precisions() -> tuple[list[Any], list[Any]]:
    """The objects with torch's precisions of all operations or a backend, and of single operations; none before 2.9."""
    import torch

    backends: Any = torch.backends
    both = (backends.cudnn, backends.mkldnn)
    single = [getattr(owner, name, None) for owner in both for name in ("matmul", "conv", "rnn")]
    groups = [backends, *both], [backends.cuda.matmul, *single]
    families, operations = ([each for each in group if hasattr(each, "fp32_precision")] for group in groups)
    return families, operations


@cache
def _trigger_deprecation_warning() -> None:
    """Trigger and suppress the warning about the older switches that torch 2.9 and later give once."""
    import torch

    with warnings.catch_warnings(), suppress(RuntimeError):  # of a precision that cannot be read
        warnings.simplefilter("ignore")
        torch.set_float32_matmul_precision(torch.get_float32_matmul_precision())


@contextmanager
def user_default_device() -> Iterator[None]:
    """Restore the user's default device while their code runs in the same thread."""
    with _user_default_device.get() or nullcontext():
        yield


USER_ERRORS = (Exception, SystemExit, GeneratorExit)
"""What code of a user may raise without ending the program: all but KeyboardInterrupt."""


@contextmanager
def user_errors(who: str, code: str) -> Iterator[None]:
    """Convert what code of the user raises to a UsageError; errors of genpr, and that memory ran out, are kept."""
    try:
        with chdir("."):  # paths are relative to it
            yield
    except USER_ERRORS as error:
        if isinstance(error, GenprError) or is_out_of_memory(error):
            raise
        text = f"{who} failed: {type(error).__name__}: {' '.join(str(error).split())}"
        raise UsageError(text, code=code) from error


def iterate_user_items(items: Iterable[_Item], who: str) -> Iterator[_Item]:
    """The items of an iterable of the user, each created under the user's default device."""
    draw: Any = user_errors(who, "dataset-failed")(user_default_device()(next))
    iterator, end = iter(items), object()
    while (item := draw(iterator, end)) is not end:
        yield item
