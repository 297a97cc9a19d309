"""Which GPUs torch sees and computes on, or why it sees none."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from genpr.doctor.finding import Finding
from genpr.doctor.libraries import Facts, Libraries
from genpr.doctor.pair import build_of

_DRIVER = Path("/proc/driver/nvidia/version")
_CPU_INSTEAD = "everything runs on the CPU"


def look_at_devices(libraries: Libraries, *, driver_file: Path = _DRIVER) -> Iterator[Finding]:
    """One line per GPU, or one that says why there is none. Only one that is seen and does not compute is broken."""
    torch = libraries["torch"]
    if "error" in torch:
        return
    driver = _driver_version(driver_file)
    facts = {"driver": driver, "driver_cuda": torch["driver_cuda"], "cuda_build": torch["cuda_build"]}
    if not torch["devices"] or not torch["is_available"]:
        yield _why_none(torch, driver, facts)
        return
    for index, device in enumerate(torch["devices"]):
        name = f"cuda:{index}"
        if "error" in device:
            yield Finding(
                name,
                "broken",
                f"seen, but does not compute ({device['error'][:160]}); this torch ({build_of(torch)}) may lack code for it, or "
                "another process may hold all of it",
                "install a torch built for this GPU (https://pytorch.org/get-started), or use --device cpu",
                {**facts, **device},
            )
        else:
            memory = f"{device['free'] / 1e9:.1f} of {device['total'] / 1e9:.1f} GB free"
            text = f"{device['device']}, {memory}" + (f", driver {driver}" if driver else "")
            yield Finding(name, "ok", text, facts={**facts, **device})


def _why_none(torch: Facts, driver: str | None, facts: dict[str, object]) -> Finding:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    said = " ".join(each for each in torch["warnings"] if "driver" in each.lower() or "cuda" in each.lower())
    if torch["cuda_build"] is None and torch["hip_build"] is None:
        if driver is None:
            return Finding(
                "cuda", "ok", f"none: no NVIDIA driver, and a CPU build of torch; {_CPU_INSTEAD}", facts=facts
            )
        remedy = "pip install --force-reinstall torch torchvision (builds: https://pytorch.org/get-started)"
        return Finding(
            "cuda",
            "warn",
            f"driver {driver} is here, but torch is a CPU build; {_CPU_INSTEAD}",
            remedy,
            facts,
        )
    if hidden is not None and hidden.strip() in {"", "-1"}:
        text = f"none: CUDA_VISIBLE_DEVICES={hidden!r} hides all; {_CPU_INSTEAD}"
        return Finding("cuda", "ok", text, facts=facts)
    if driver is None and torch["driver_cuda"] is None:
        return Finding("cuda", "ok", f"none: no NVIDIA driver; {_CPU_INSTEAD}", facts=facts)
    if "too old" in said:
        found = torch["driver_cuda"]
        knows = f", and knows CUDA {found // 1000}.{found % 1000 // 10} at most" if found else ""
        text = f"driver {driver or '?'} is too old for this torch ({build_of(torch)}){knows}; {_CPU_INSTEAD}"
        return Finding(
            "cuda",
            "warn",
            text,
            "update the NVIDIA driver, or install a torch built for an older CUDA",
            facts,
        )
    reason = f" ({said[:200]})" if said else ""
    return Finding(
        "cuda",
        "warn",
        f"driver {driver or '?'} is here, but torch sees no GPU{reason}; {_CPU_INSTEAD}",
        "look at `nvidia-smi`, at CUDA_VISIBLE_DEVICES, and in a container at --gpus all",
        facts,
    )


def _driver_version(path: Path) -> str | None:
    """Of the kernel module; in a container without GPUs it is usually not to be seen."""
    with contextlib.suppress(OSError):
        line = path.read_text().partition("Kernel Module")[2].partition("\n")[0]
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)(?!\S)", line)
        return found[1] if found else "?"
    return None
