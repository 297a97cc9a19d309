"""What several benchmarks share: the machine, records, peak memory, a process per measurement, and features."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import re
import resource
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from genpr.runtime import usable_cores

RESULTS = Path(__file__).parent / "results"
T = TypeVar("T")

# The machine and records.

_PACKAGES = ("genpr", "torch", "numpy", "faiss-cpu", "scikit-learn", "scipy", "prdc", "torch-fidelity")
_VECTOR_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about the machine that are recorded with every measurement; `threads` are those that a case was given."""

    cpu: str
    cores: int
    threads: int
    vector_units: list[str]
    memory_bytes: int
    gpu: str | None
    system: str
    versions: dict[str, str]  # of Python and installed packages
    commit: str
    has_uncommitted_changes: bool

    @property
    def slug(self) -> str:
        """A short name for files."""
        name = self.gpu or f"{self.cpu} {self.threads} threads"
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    @property
    def paragraph(self) -> list[str]:
        """Lines of Markdown: system, versions and commit."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        changed = " with uncommitted changes" if self.has_uncommitted_changes else ""
        return [
            f"{self}, {self.system}.  ",
            f"{versions}; genpr at {self.commit[:12] or 'no commit'}{changed}.  ",
        ]

    def __str__(self) -> str:
        where = f"{self.gpu}, " if self.gpu else ""
        vectors = ", ".join(self.vector_units)
        return f"{where}{self.cpu} ({vectors}), {self.threads} of {self.cores} cores, {self.memory_bytes / 1e9:.0f} GB"


def describe_machine(*, threads: int, device: str = "cpu", also: tuple[str, ...] = ()) -> Machine:
    """Describe this machine; `also` names further packages whose versions are recorded."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    facts = {key.strip(): value.strip() for key, _, value in lines}
    versions = {"python": platform.python_version()}
    for package in (*_PACKAGES, *also):
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return Machine(
        cpu=facts.get("model name", platform.machine()),
        cores=usable_cores(),
        threads=threads,
        vector_units=[flag for flag in _VECTOR_FLAGS if flag in facts.get("flags", "").split()],
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu=torch.cuda.get_device_name() if device == "cuda" else None,
        system=f"{platform.system()} {platform.release()}",
        versions=versions,
        commit=_git("rev-parse", "HEAD"),
        has_uncommitted_changes=bool(_git("status", "--porcelain", "--", "genpr")),
    )


def _git(*arguments: str) -> str:
    """The output of git, empty outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def without_folder(word: str) -> str:
    """A word of a command line; an absolute path is shortened to its file name."""
    return Path(word).name if Path(word).is_absolute() else word


def append_record(out: Path | None, name: str, machine: Machine, **facts: object) -> Path:
    """Append one self-contained line of JSON to `out`, or to results/NAME-DATE-MACHINE.jsonl, and return the path."""
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    path = out or RESULTS / f"{name}-{ended[:10]}-{machine.slug}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        record = {"format": f"genpr.benchmark-{name}/1", "ended": ended, **facts, "machine": asdict(machine)}
        file.write(json.dumps(record) + "\n")
    return path


# Memory.


class PeakMemory:
    """Highest resident memory of this process inside a `with` block, and the level at entry, in bytes.

    A thread samples every 5 ms; where Linux lets a process reset its own high-water mark, that catches what falls between
    two samples. Memory that earlier work freed is returned to the system first. `anonymous` leaves out pages of mapped files.
    """

    def __enter__(self) -> Self:
        gc.collect()
        with suppress(OSError, AttributeError):  # glibc only
            ctypes.CDLL(None).malloc_trim(0)
        self._is_exact = False
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
            self._is_exact = True
        self.level, self.anonymous_level = resident_bytes()
        self.peak, self.anonymous_peak = self.level, self.anonymous_level
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._sampler.join()
        if self._is_exact:
            self.peak = max(self.peak, kib_line("/proc/self/status", "VmHWM"))

    @property
    def above_level(self) -> int:
        """Peak above the level at entry."""
        return self.peak - self.level

    def _sample(self) -> None:
        while not self._stop.wait(0.005):
            resident, anonymous = resident_bytes()
            self.peak, self.anonymous_peak = max(self.peak, resident), max(self.anonymous_peak, anonymous)


def resident_bytes() -> tuple[int, int]:
    """Resident bytes of this process, with and without pages of mapped files and shared memory."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    page = os.sysconf("SC_PAGE_SIZE")
    return resident * page, (resident - shared) * page


def kib_line(path: str, name: str) -> int:
    """Bytes of a line such as "VmHWM: 12 kB" of a file."""
    line = next(line for line in Path(path).read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


class TreeMemory:
    """Peak memory of a process, by default this one, and its descendants inside a `with` block.

    Pages that its processes share count once. Not suitable for blocks that are timed.
    """

    def __init__(self, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid

    def __enter__(self) -> Self:
        self.peak = tree_bytes(self._pid)
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.05):  # reading the page tables of a large process takes milliseconds
            self.peak = max(self.peak, tree_bytes(self._pid))


def tree_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants, of mapped files in the process that has most of them.

    The proportional size of files would depend on other processes that have loaded the same libraries.
    """
    waiting, found, files = [pid], 0, 0
    while waiting:
        process = Path("/proc") / str(waiting.pop())
        try:
            lines = map(str.split, (process / "smaps_rollup").read_text().splitlines())
            found += sum(int(size) * 1024 for name, size, *_ in lines if name in {"Pss_Anon:", "Pss_Shmem:"})
            files = max(files, kib_line(str(process / "status"), "RssFile"))
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, StopIteration):  # it has just ended
            continue
    return found + files


# Processes.

_PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
_ORPHANS_S = 10.0


class CaseFailedError(Exception):
    """The process of a measurement failed; the message states the reason."""


def in_new_process(work: Callable[..., T], *arguments: object, timeout: float | None = None) -> T:
    """Call a function of a module in its own process, so that measurements share no memory, threads or caches.

    Raises:
        CaseFailedError: It raised an error, was killed, or took longer than `timeout` seconds.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, work, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            raise CaseFailedError(f"stopped after {(timeout or 0) / 60:.0f} minutes")
        failure, found = receiver.recv()
    except EOFError:
        process.join()
        raise CaseFailedError(f"exit code {process.exitcode}; -9 is a lack of memory, probably") from None
    finally:
        process.kill()
        process.join()
    if failure:
        raise CaseFailedError(failure)
    result: T = found
    return result


def _send(sender: Connection, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    try:
        sender.send(("", work(*arguments)))
    except Exception as error:  # noqa: BLE001 - of any tool
        sender.send((f"{type(error).__name__}: {error}", None))


@dataclass(frozen=True, slots=True)
class Usage:
    """What a command and all its processes used: processor seconds (user and system), wall seconds, peak bytes or 0."""

    output: str
    processor: float
    wall: float
    peak_bytes: int


def run_command(
    command: Sequence[str], environment: Mapping[str, str], *, measures_memory: bool = False
) -> Usage:
    """Run a command with additional variables of the environment, while this process has no other children.

    Its times are not useful if memory is measured.

    Raises:
        CaseFailedError: It failed, or its processes did not end with it.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = _seconds_of_children()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        start = perf_counter()
        with (
            subprocess.Popen(
                command, stdout=out, stderr=errors, env={**os.environ, **environment}
            ) as process,
            TreeMemory(process.pid) if measures_memory else nullcontext() as memory,
        ):
            code = process.wait()
        wall = perf_counter() - start
        _wait_for_orphans()
        for file in (out, errors):
            file.seek(0)
        if code:
            lines = errors.read().strip().splitlines() or ["no message"]
            raise CaseFailedError(f"exit code {code}: {lines[-1]}")
        return Usage(out.read(), _seconds_of_children() - before, wall, memory.peak if memory else 0)


def _seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _wait_for_orphans() -> None:
    """Wait for processes that no parent waited for, which the subreaper has now, so that their time counts."""
    end = perf_counter() + _ORPHANS_S
    with suppress(ChildProcessError):  # none is left
        while perf_counter() < end:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                sleep(0.01)
        raise CaseFailedError(f"its processes did not end within {_ORPHANS_S:.0f} s after it")


def pin_to_cores(threads: int) -> None:
    """Restrict this process to a number of cores, whatever thread pools its libraries open."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    torch.set_num_threads(threads)


# Features.

_SEED = 20190415
_BLOCK = 1000


def read_features(path: Path) -> NDArray[np.float32]:
    """Features by `genpr features`, (n, d)."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        features: NDArray[np.float32] = file.get_tensor("features").float().numpy()
    return features


def shuffled(features: NDArray[np.float32], *, seed: int) -> NDArray[np.float32]:
    """Shuffle the rows: files list images class by class, and the first rows would be of a few classes only."""
    return features[np.random.default_rng(seed).permutation(len(features))]


def random_rotation(d: int) -> NDArray[np.float32]:
    """A (d, d) orthogonal matrix, the same for the same d."""
    square = torch.from_numpy(np.random.default_rng([_SEED, d]).standard_normal((d, d), dtype=np.float32))
    q, r = torch.linalg.qr(square)
    rotation: NDArray[np.float32] = (q * r.diagonal().sign()).numpy()
    return rotation


def write_gaussian(
    path: Path,
    *,
    rows: int,
    d: int,
    exponent: float,
    scale: float,
    rotation: NDArray[np.float32] | None,
    seed: list[int],
    dtype: type[np.floating[Any]] = np.float32,
) -> None:
    """Write draws of a Gaussian with covariance eigenvalues i^-exponent to a .npy file, the first ones the same for any `rows`.

    Each block has its own seed. Without a rotation the eigenvectors are the axes.
    """
    deviations = (scale * np.arange(1, d + 1, dtype=np.float64) ** (-exponent / 2)).astype(np.float32)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(rows, d))
    for block, start in enumerate(range(0, rows, _BLOCK)):
        draws = np.random.default_rng([*seed, block]).standard_normal((_BLOCK, d), dtype=np.float32)
        draws *= deviations
        rotated = draws if rotation is None else draws @ rotation
        out[start : start + _BLOCK] = rotated[: rows - start]
    out.flush()
