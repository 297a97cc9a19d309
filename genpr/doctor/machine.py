"""Cores, memory, limits and environment variables: what genpr plans with, and what changes how it runs."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from genpr.doctor.finding import Finding

_LITTLE_MEMORY = 2**30
_FEW_FILES = 256
_OWN = ("GENPR_ALONE", "GENPR_CACHE", "GENPR_DEBUG", "GENPR_OFFLINE")
_OTHERS = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "KMP_DUPLICATE_LIB_OK",
    "LD_PRELOAD",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TORCH_HOME",
    "XDG_CACHE_HOME",
)
_PREFIXES = ("GENPR_", "PYTORCH_", "TORCH_ALLOW_")


def look_at_versions(genpr: str) -> Iterator[Finding]:
    """The version of genpr and of Python, and the system."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    yield Finding(
        "genpr",
        "ok",
        f"{genpr}, Python {platform.python_version()}, {system}",
        facts={
            "genpr": genpr,
            "python": platform.python_version(),
            "system": system,
            "executable": sys.executable,
        },
    )


def look_at_the_machine() -> Iterator[Finding]:
    """Cores and memory as genpr counts them, and how many files may be open."""
    from genpr.memory import cgroup_memory_left, free_memory
    from genpr.runtime import usable_cores

    cores, free = usable_cores(), free_memory()
    facts = {
        "cores": cores,
        "cores_of_machine": os.cpu_count(),
        "free_memory": free,
        "open_files": _most_open_files(),
    }
    text = f"{cores} of {os.cpu_count()} cores, {free / 1e9:.1f} GB of memory free"
    in_group = cgroup_memory_left()
    if in_group is not None:
        facts["left_in_group"] = in_group
        text += ", as the container or job limits it" if in_group <= free else ""
    if free < _LITTLE_MEMORY:
        yield Finding(
            "machine", "warn", text, "end other programs, or score fewer images (--max-images)", facts
        )
    elif facts["open_files"] is not None and facts["open_files"] < _FEW_FILES:
        text += f"; only {facts['open_files']} files may be open at once"
        yield Finding("machine", "warn", text, "ulimit -n 1024", facts)
    else:
        yield Finding("machine", "ok", text, facts=facts)


def _most_open_files() -> int | None:
    with contextlib.suppress(ImportError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return None if most == resource.RLIM_INFINITY else most
    return None


def look_at_the_environment(environment: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """What is set of the variables that change how genpr runs; those that are wrong have lines of their own."""
    from genpr.runtime import usable_cores

    environment = os.environ if environment is None else environment
    seen = {
        name: value
        for name, value in sorted(environment.items())
        if name in _OTHERS or name.startswith(_PREFIXES)
    }
    text = " ".join(f"{name}={value}" for name, value in seen.items()) or "nothing set that matters"
    yield Finding("environment", "ok", text, facts=seen)
    for name in seen:
        if name.startswith("GENPR_") and name not in _OWN:
            known = ", ".join(_OWN)
            yield Finding(name, "warn", f"genpr knows no such variable; it knows {known}", f"unset {name}")
    if seen.get("KMP_DUPLICATE_LIB_OK", "").upper() in {"1", "TRUE"}:
        yield Finding(
            "KMP_DUPLICATE_LIB_OK",
            "warn",
            "hides that two copies of OpenMP are loaded, which may crash or give wrong results",
            "unset KMP_DUPLICATE_LIB_OK, and install torch and faiss from one place, pip or conda",
        )
    threads = seen.get("OMP_NUM_THREADS", "").split(",")[0]
    if threads.isdigit() and int(threads) > usable_cores():
        yield Finding(
            "OMP_NUM_THREADS",
            "warn",
            f"{threads} threads for {usable_cores()} cores wait for each other",
            f"OMP_NUM_THREADS={usable_cores()}, or unset it",
        )


def mounted_as(path: Path, table: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The kind of file system that holds `path`, such as "ext4"; None where the system does not say."""
    best, kind = -1, None
    with contextlib.suppress(OSError):
        for line in table.read_text(errors="surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            fields = before.split()
            if len(fields) < 5 or not after:
                continue
            place = (
                fields[4].encode("latin-1", "replace").decode("unicode_escape")
            )  # a space is written as \\040
            if path.is_relative_to(place) and len(place) >= best:
                best, kind = len(place), after.split()[0]
    return kind
