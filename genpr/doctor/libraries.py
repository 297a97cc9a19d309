"""Which libraries work and are new enough, whether torch and torchvision match, and which GPUs torch can use."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from genpr.doctor import Finding

Facts = Mapping[str, Any]
Libraries = Mapping[str, Facts]
"""By the name to import: what `genpr.doctor.probe` says; an "error" where it cannot be imported or does not work."""

DISTRIBUTIONS = {
    "numpy": "numpy",
    "torch": "torch",
    "torchvision": "torchvision",
    "scipy": "scipy",
    "faiss": "faiss-cpu",
    "PIL": "pillow",
    "safetensors": "safetensors",
    "filelock": "filelock",
    "open_clip": "open_clip_torch",
    "timm": "timm",
    "click": "click",
    "rich": "rich",
    "matplotlib": "matplotlib",
    "jinja2": "jinja2",
}
"""What genpr requires: how it is imported, and how it is installed; in the order in which they are tried."""

_NAMES = {"PIL": "Pillow", "faiss": "FAISS"}
_SHOWN = ("numpy", "scipy", "faiss", "PIL", "safetensors", "open_clip", "timm")  # torch has a line of its own
_FOR_NETWORKS = ("open_clip", "timm")
_FOR_PAGES = ("matplotlib", "jinja2")
_TIMEOUT_S = 120.0
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")


def probe(
    names: Sequence[str] = tuple(DISTRIBUTIONS), *, timeout_s: float = _TIMEOUT_S
) -> dict[str, dict[str, Any]]:
    """Import each library in a process of its own, and let it do a little work.

    Where one ends that process, or hangs, it is named and the others are tried without it.

    Args:
        names: As they are imported.
        timeout_s: For all of them together.
    """
    script = Path(__file__).with_name("probe.py")
    found: dict[str, dict[str, Any]] = {}
    left = list(names)
    while left:
        command = [sys.executable, "-P", str(script), json.dumps(sys.path), *left]
        try:
            done = subprocess.run(
                command, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout_s, check=False
            )
            out, said, end = done.stdout, done.stderr, _ended(done.returncode)
        except subprocess.TimeoutExpired as error:
            out, said, end = (
                error.stdout or b"",
                error.stderr or b"",
                f"it hangs: no answer within {timeout_s:.0f} s",
            )
        begun = ""
        for answer in map(json.loads, out.decode(errors="replace").splitlines()):
            if "begin" in answer:
                begun = answer["begin"]
            else:
                found[answer.pop("name")] = answer
        if begun not in found:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            begun = begun or left[0]
            found[begun] = {"error": ": ".join([end, *last]), "is_absent": False, "ends_process": True}
        left = [name for name in left if name not in found]
    return found


def _ended(code: int) -> str:
    return f"it ends the process (signal {-code})" if code < 0 else f"it ends the process (exit code {code})"


def broken_among(libraries: Libraries) -> list[str]:
    """Those that cannot be imported or do not work."""
    return [name for name, facts in libraries.items() if "error" in facts]


def check_libraries(libraries: Libraries) -> Iterator[Finding]:
    """One line for those that are well, and one for each that is not."""
    least = _least_versions()
    well = {name: facts["version"] for name, facts in libraries.items() if "error" not in facts}
    plain = [_shown(name, libraries[name]) for name in _SHOWN if name in well]
    yield Finding("libraries", "ok", ", ".join(plain), facts=well)
    for name, facts in libraries.items():
        needed = least.get(DISTRIBUTIONS[name])
        if "error" in facts and name != "torchvision":  # which has a line beside torch
            yield _broken(name, facts, libraries)
        elif "error" not in facts and needed and numbers(facts["version"]) < numbers(needed):
            text = f"{facts['version']} is older than the {needed} that genpr needs"
            yield Finding(name, "broken", text, f"pip install --upgrade '{DISTRIBUTIONS[name]}>={needed}'")


def _shown(name: str, facts: Facts) -> str:
    """Name and version, and what it was built with where that changes how fast or which images."""
    codecs = facts.get("codecs") or {}
    shown = {"libjpeg_turbo": "libjpeg-turbo", "webp": "WebP", "avif": "AVIF"}
    parts = [f"{label} {codecs[key]}" for key, label in shown.items() if codecs.get(key)]
    built = ", ".join(parts) or facts.get("simd")
    return f"{_NAMES.get(name, name)} {facts['version']}" + (f" ({built})" if built else "")


def _broken(name: str, facts: Facts, libraries: Libraries) -> Finding:
    """Pages are no part of a score, and networks not of every one."""
    error, state, what = facts["error"], "broken", ""
    if name in _FOR_PAGES:
        state, what = "warn", "; pages and pictures cannot be made, scores can"
    elif name in _FOR_NETWORKS:
        what = "; extractors that need it do not work, all others do"
    cause = _cause(name, libraries)
    if facts["is_absent"]:
        how, remedy = "is not installed", f"pip install {DISTRIBUTIONS[name]}"
    elif cause:
        how, remedy = f"does not work, because of {cause}", ""
    else:
        how = f"does not work ({error if len(error) <= 160 else error[:160] + '...'})"
        remedy = f"pip install --force-reinstall {DISTRIBUTIONS[name]}" + " torchvision" * (name == "torch")
    return Finding(name, state, how + what, remedy, {"error": error})  # type: ignore[arg-type]


def _cause(name: str, libraries: Libraries) -> str | None:
    """The library that was tried before and failed with the same words."""
    for other, facts in libraries.items():
        if other == name:
            return None
        said = facts.get("error", "").partition(": ")[2]
        if said and said in libraries[name]["error"]:
            return other
    return None


def check_extras() -> Iterator[Finding]:
    """What was installed beside genpr for its optional parts; not imported, which would take seconds."""
    here: dict[str, str] = {}
    absent = []
    for name, (extra, needed) in _extras().items():
        try:
            here[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(f"{name} (genpr[{extra}])")
            continue
        if numbers(here[name]) < numbers(needed):
            text = f"{here[name]} is older than the {needed} that genpr[{extra}] needs"
            yield Finding(name, "warn", text, f"pip install --upgrade '{name}>={needed}'")
    parts = [", ".join(f"{name} {version}" for name, version in here.items())] if here else []
    parts += [f"not installed: {', '.join(absent)}"] if absent else []
    if parts:
        yield Finding("extras", "ok", "; ".join(parts), facts=here)


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("genpr") or []
    except importlib.metadata.PackageNotFoundError:
        return []  # used from a folder of its code


def _least_versions() -> dict[str, str]:
    """By distribution, what genpr states it needs."""
    return {name: version for name, version, extra in map(_parsed, _requirements()) if version and not extra}


def _extras() -> dict[str, tuple[str, str]]:
    """By distribution: which extra of genpr it is for, and the version that it needs; not what developers need."""
    parsed = map(_parsed, _requirements())
    return {name: (extra, version) for name, version, extra in parsed if extra and extra != "dev"}


def _parsed(line: str) -> tuple[str, str, str]:
    """Name, least version and extra of one requirement."""
    requirement, _, marker = line.partition(";")
    name = re.match(r"[\w.-]+", requirement.strip())
    version = re.search(r">=\s*([\w.]+)", requirement)
    extra = _EXTRA.search(marker)
    return name[0] if name else "", version[1] if version else "", extra[1] if extra else ""


def numbers(version: str) -> tuple[int, ...]:
    """Of "2.15.0+cu132": (2, 15), to be compared; from the first part that is no number on, nothing."""
    found: list[int] = []
    for part in version.partition("+")[0].split("."):
        digits = re.match(r"\d+", part)
        if digits is None:
            break
        found.append(int(digits[0]))
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


_OFFSET = 15  # torch 2.N came with torchvision 0.(N + 15)
_LAST_PINNED = 13  # until torch 2.13; since then a torchvision serves several releases, and says which
_INDEX = "https://download.pytorch.org/whl/"


def check_torch_pair(libraries: Libraries) -> Iterator[Finding]:
    """One line for both. That torch cannot be imported is said elsewhere.

    What torchvision says of itself decides, and that its compiled code runs beside this torch; only where it says nothing, the
    numbers of the releases do.
    """
    torch, vision = libraries["torch"], libraries["torchvision"]
    if "error" in torch:
        return
    name = torch["version"] if "+" in torch["version"] else f"{torch['version']} ({build_of(torch)})"
    if vision.get("is_absent"):
        yield Finding(
            "torch",
            "broken",
            f"{name}; without torchvision, which the extractors vgg16, inception-torchvision, timm:... and open_clip:... need",
            install_both(torch),
        )
    elif "error" in vision:
        yield Finding(
            "torch",
            "broken",
            f"{name}; its torchvision does not work ({' '.join(vision['error'].split())[:160]}): the two must be of one release "
            "and one build",
            install_both(torch, again=True),
            {"torchvision_error": vision["error"]},
        )
    else:
        yield _together(name, torch, vision)


def _together(name: str, torch: Facts, vision: Facts) -> Finding:
    both = f"{name} with torchvision {vision['version']}"
    facts = {"torch": torch["version"], "torchvision": vision["version"], "cuda_build": torch["cuda_build"]}
    usual = usual_torchvision(torch["version"])
    if vision["requires"] is not None:
        made_for = "" if _is_met(torch["version"], vision["requires"]) else f"torch {vision['requires']}"
    else:
        is_other = usual is not None and numbers(vision["version"])[:2] != numbers(usual)
        made_for = "another torch, by its release" if is_other else ""
    if made_for:
        text = f"{both}, which was made for {made_for}; it can be imported, but need not do what it should"
        return Finding("torch", "warn", text, install_both(torch, again=True), facts)
    if (torch["cuda_build"] is None) != (vision["cuda_build"] is None):
        text = f"{both}, one built for CUDA and the other for CPUs only"
        return Finding("torch", "warn", text, install_both(torch, again=True), facts)
    return Finding("torch", "ok", both, facts=facts)


def usual_torchvision(torch: str) -> str | None:
    """The release of torchvision that came with a release of torch, such as "0.21" with "2.6.0+cpu"; None if unknown."""
    match = re.match(r"2\.(\d+)\.", torch)
    if match is None or int(match[1]) > _LAST_PINNED:
        return None
    return f"0.{int(match[1]) + _OFFSET}"


def _is_met(version: str, requirement: str) -> bool:
    """Whether a version is such as "==2.6.0" or ">=2.14.0,<3" says; what is not understood is taken as met."""
    have = numbers(version)
    for part in requirement.split(","):
        match = re.fullmatch(r"\s*(==|>=|<)\s*([\d.]+)\s*", part)
        if match is None:
            continue
        sign, needed = match[1], numbers(match[2])
        if not {"==": have == needed, ">=": have >= needed, "<": have < needed}[sign]:
            return False
    return True


def build_of(torch: Facts) -> str:
    """What a torch was built for."""
    if torch["cuda_build"]:
        return f"CUDA {torch['cuda_build']} build"
    return f"ROCm {torch['hip_build']} build" if torch["hip_build"] else "CPU build"


def install_both(torch: Facts, *, again: bool = False) -> str:
    """The command that installs torch and torchvision of one release and of the build that this torch has."""
    _, _, build = torch["version"].partition("+")
    index = f" --index-url {_INDEX}{build}" if re.fullmatch(r"cpu|cu\d+|rocm[\d.]+|xpu", build) else ""
    return f"pip install{' --force-reinstall' * again} torch torchvision{index}"


_DRIVER = Path("/proc/driver/nvidia/version")
_CPU_INSTEAD = "everything runs on the CPU"


def check_gpus(libraries: Libraries, *, driver_file: Path = _DRIVER) -> Iterator[Finding]:
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
