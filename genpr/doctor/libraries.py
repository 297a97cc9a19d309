"""Which libraries are there, whether they can be imported and do their work, and whether they are new enough."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from genpr.doctor.finding import Finding

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


def look_at_libraries(libraries: Libraries) -> Iterator[Finding]:
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


def look_at_extras() -> Iterator[Finding]:
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
