"""Whether torch and torchvision belong together: compiled for one another, and both with or without CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from genpr.doctor.finding import Finding
from genpr.doctor.libraries import Facts, Libraries, numbers

_OFFSET = 15  # torch 2.N came with torchvision 0.(N + 15)
_LAST_PINNED = 13  # until torch 2.13; since then a torchvision serves several releases, and says which
_INDEX = "https://download.pytorch.org/whl/"


def look_at_the_pair(libraries: Libraries) -> Iterator[Finding]:
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
