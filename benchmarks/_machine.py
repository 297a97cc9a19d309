"""Description of the machine of a measurement: processor, cores, GPU, versions, commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from genpr.runtime import usable_cores

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("genpr", "torch", "numpy", "faiss-cpu", "scikit-learn", "scipy", "prdc", "torch-fidelity")
_VECTOR_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about the machine that are recorded with every time.

    Attributes:
        cpu: Model name.
        cores: Cores this process may use.
        threads: Cores that each case was given.
        vector_units: Which of the vector extensions that matter here the processor has.
        memory_bytes: Of the whole machine.
        gpu: Name of the GPU, where one was used.
        system: Operating system and kernel.
        versions: Python and packages; absent ones are left out.
        commit: Git commit of genpr.
        has_uncommitted_changes: Whether genpr's tree differed from it.
    """

    cpu: str
    cores: int
    threads: int
    vector_units: list[str]
    memory_bytes: int
    gpu: str | None
    system: str
    versions: dict[str, str]
    commit: str
    has_uncommitted_changes: bool

    @property
    def slug(self) -> str:
        """A short name for files."""
        name = self.gpu or f"{self.cpu} {self.threads} threads"
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    def __str__(self) -> str:
        where = f"{self.gpu}, " if self.gpu else ""
        vectors = ", ".join(self.vector_units)
        return f"{where}{self.cpu} ({vectors}), {self.threads} of {self.cores} cores, {self.memory_bytes / 1e9:.0f} GB"


def describe_machine(*, threads: int, device: str, also: tuple[str, ...] = ()) -> Machine:
    """Describe this machine; `also` names further packages whose versions are recorded."""
    model, flags = _processor()
    return Machine(
        cpu=model,
        cores=usable_cores(),
        threads=threads,
        vector_units=[flag for flag in _VECTOR_FLAGS if flag in flags],
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu=_gpu_name() if device == "cuda" else None,
        system=f"{platform.system()} {platform.release()}",
        versions={"python": platform.python_version(), **_installed_versions(also)},
        commit=_git("rev-parse", "HEAD"),
        has_uncommitted_changes=bool(_git("status", "--porcelain", "--", "genpr")),
    )


def without_folder(word: str) -> str:
    """Return a word of a command line; an absolute path is shortened to its file name."""
    return Path(word).name if Path(word).is_absolute() else word


def _processor() -> tuple[str, set[str]]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine(), set()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return facts.get("model name", platform.machine()), set(facts.get("flags", "").split())


def _gpu_name() -> str:
    import torch

    return torch.cuda.get_device_name()


def _installed_versions(also: tuple[str, ...]) -> dict[str, str]:
    versions = {}
    for package in (*_PACKAGES, *also):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _git(*arguments: str) -> str:
    """Return the output of git, empty outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
