"""`genpr doctor`: checks of an installation and of the cache folder, and a self-test with known answers.

The expected answers of the self-test are computed without genpr: features are integer multiples of one step, so squared distances
are integers, without rounding. Libraries are imported inside the checks because any of them may be broken.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

from genpr.images.formats import SAFE_PILLOW
from genpr.runtime import folder_risk

State = Literal["ok", "warn", "broken"]


@dataclass(frozen=True)
class Finding:
    """The result of one check: "warn" if scores are correct but slower or an input is refused, "broken" if they cannot be trusted."""

    name: str
    state: State
    text: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


Findings = Iterator[Finding]


def run_checks(genpr: str, *, root: Path) -> list[Finding]:
    """Run all checks of the cache folder `root` and of this machine."""
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "libraries": lambda: check_libraries(genpr),
        "machine": check_gpus,
        "environment": check_environment,
        "cache": lambda: check_cache_folder(root),
        "directions": check_directions,
        "exactness": check_exactness,
    }
    found = list[Finding]()
    for name, check in checks.items():
        try:
            found += list(check())
        except Exception as error:  # noqa: BLE001 - on a broken machine anything may be raised
            found.append(Finding(name, "broken", f"could not be checked ({_shown(error)})"))
    return found


def _shown(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


_IMPORTED_AS = {"faiss-cpu": "faiss", "pillow": "PIL", "open_clip_torch": "open_clip"}
_OPTIONAL = ("matplotlib", "jinja2", "open_clip_torch")


def _requirements(package: str) -> list[Requirement]:
    """The stated requirements of a package; empty if it is not installed."""
    try:
        return [Requirement(line) for line in importlib.metadata.requires(package) or []]
    except importlib.metadata.PackageNotFoundError:
        return []


def check_libraries(genpr: str) -> Findings:
    """Compare the versions of libraries with the requirements of genpr and torchvision, and import each."""
    versions = {"genpr": genpr, "python": platform.python_version(), "system": platform.platform()}
    wrong = []
    for need in [
        *_requirements("genpr"),
        *(each for each in _requirements("torchvision") if each.name == "torch"),
    ]:
        name, is_extra = need.name, need.marker is not None
        state: State = "warn" if is_extra or name in _OPTIONAL else "broken"
        try:
            version = versions[name] = importlib.metadata.version(name)
            if not need.specifier.contains(version, prereleases=True):
                remedy = f"pip install --upgrade '{name}{need.specifier}'"
                text = f"found {version}, but {need.specifier} is required"
                wrong.append(Finding(name, state, text, remedy))
        except importlib.metadata.PackageNotFoundError:
            pass  # conda may use another name; what matters is whether the import works
        try:
            if not is_extra:
                importlib.import_module(_IMPORTED_AS.get(name, name))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken library may raise anything
            remedy = f"pip install --force-reinstall {name}" + " torchvision" * (name == "torch")
            wrong.append(Finding(name, state, f"cannot be imported ({_shown(error)})", remedy))
    if int(versions.get("pillow", str(SAFE_PILLOW)).partition(".")[0]) < SAFE_PILLOW:
        text = f"{versions['pillow']} decodes some TIFF files beyond its buffers, so genpr refuses those"
        remedy = f"pip install 'pillow>={SAFE_PILLOW}', unless another package needs an older one"
        wrong.append(Finding("pillow", "warn", text, remedy))
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield Finding("libraries", "ok", text, facts=versions)
    yield from wrong


def check_gpus() -> Findings:
    """One finding per GPU, or the reason why torch uses none. Only a GPU that fails is broken."""
    import torch
    from torch.utils import collect_env

    from genpr.memory import free_memory
    from genpr.runtime import resolve_device, usable_cores

    driver = collect_env.get_nvidia_driver_version(collect_env.run)  # type: ignore[no-untyped-call]
    cores, memory, count = usable_cores(), free_memory(), torch.cuda.device_count()
    facts = {"driver": driver, "cuda_build": torch.version.cuda, "cores": cores, "memory": memory}
    text = f"{cores} of {os.cpu_count()} cores, {memory / 1e9:.1f} GB of memory free; {count} GPUs"
    if driver is not None and not torch.cuda.is_available():
        text += f", but driver {driver} is installed (torch is built for CUDA {torch.version.cuda})"
        remedy = "update the driver, install a CUDA build of torch, or start the container with --gpus all"
        yield Finding("machine", "warn", text, remedy, facts)
        return
    yield Finding("machine", "ok", text, facts=facts)
    for device in (f"cuda:{index}" for index in range(count)):
        try:
            resolve_device(device)  # tries it
            text = f"{torch.cuda.get_device_name(device)}, {torch.cuda.mem_get_info(device)[0] / 1e9:.1f} GB free"
            yield Finding(device, "ok", text)
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            remedy = "install a build of torch for this GPU, or use --device cpu"
            yield Finding(device, "broken", f"cannot be used ({_shown(error)})", remedy)


_INEXACT = ("CUBLAS_EMULATE_DOUBLE_PRECISION", "CUBLAS_EMULATE_SINGLE_PRECISION", "NVIDIA_TF32_OVERRIDE")
_SHOWN_VARIABLES = re.compile(
    "CUBLAS_|CUDA_VISIBLE|GENPR_|HF_HOME|HF_HUB_|KMP_DUP|LD_PRELOAD|MKL_NUM|NVIDIA_TF32|OMP_|OPENBLAS_|PYTORCH_|TORCH_|XDG_CACHE"
)


def check_environment(environment: Mapping[str, str] = os.environ) -> Findings:
    """The environment variables that affect genpr; one finding for each problem."""
    found = {name: value for name, value in sorted(environment.items()) if _SHOWN_VARIABLES.match(name)}
    text = " ".join(f"{name}={value}" for name, value in found.items()) or "no relevant variable is set"
    yield Finding("environment", "ok", text, facts=found)
    for name in _INEXACT:
        if found.get(name, "0") not in {"", "0"}:
            text = "makes matrix products on GPUs differ from IEEE 754; `auto` does not use a GPU on which this has an effect"
            yield Finding(name, "warn", text, f"unset {name}")


def check_cache_folder(root: Path) -> Findings:
    """Whether features and weights can be stored in `root`. Without a cache, genpr embeds images at every run."""
    parent = next(each for each in (root.absolute(), *root.absolute().parents) if each.exists())
    free = shutil.disk_usage(parent).free
    problem, remedy = "", "set GENPR_CACHE to a private folder on a local disk"
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        problem = f"{parent} is not a folder that can be written to, so nothing is cached"
    elif root.exists() and (risk := folder_risk(root)):
        problem = f"{risk}, so nothing is cached"
    elif free < 10**9:
        problem, remedy = "little space", "genpr cache prune --max-size 1GB, or free disk space"
    facts = {"path": str(root), "exists": root.is_dir(), "free": free}
    text = f"{root}, {free / 1e9:.1f} GB free" + f"; {problem}" * bool(problem)
    yield Finding("cache", "warn" if problem else "ok", text, remedy if problem else "", facts)


def _self_test(name: str, failures: list[str], text: str) -> Finding:
    if not failures:
        return Finding(name, "ok", text)
    remedy = "do not use scores of this machine; report this output as a bug of genpr"
    return Finding(name, "broken", f"wrong: {', '.join(failures)}", remedy, {"wrong": failures})


def check_directions() -> Findings:
    """Check that precision and recall are not swapped: lost modes lower only recall, noise lowers only precision."""
    import numpy as np

    from genpr.evaluation.evaluator import score

    rng = np.random.default_rng(0)
    centers, mode = 6 * rng.normal(size=(6, 8)), np.arange(300) % 6
    real = (centers[mode] + rng.normal(size=(300, 8))).astype(np.float32)
    dropped = (centers[mode % 2] + rng.normal(size=(300, 8))).astype(np.float32)
    noisy = (centers[mode] + 5 * rng.normal(size=(300, 8))).astype(np.float32)
    found = []
    for one, other in ((real, dropped), (real, noisy), (dropped, real)):
        result = score(one, other, device="cpu", control=False, intervals=False)
        found.append((result["precision"], result["recall"]))
    lost, noise, swapped = found
    right = {
        "lost modes": lost[0] > 0.6 > 0.5 > lost[1],
        "noise": noise[1] > 0.6 > 0.4 > noise[0],
        "swapped sets": swapped == lost[::-1],
    }
    pairs = ", ".join(f"{precision:.2f}/{recall:.2f}" for precision, recall in found)
    failures = [f"{name} ({pairs})" for name, is_right in right.items() if not is_right]
    yield _self_test("directions", failures, f"precision/recall are {pairs}")


_STEP = 2.0**-21  # float32 values between 4 and 8 are integer multiples of it


def check_exactness() -> Findings:
    """Check that counts on the CPU and on each GPU equal those of integers, with ties, duplicates and an offset."""
    import numpy as np
    import torch
    from scipy.spatial.distance import cdist

    from genpr.metrics.manifold import KNNManifold

    rng, k = np.random.default_rng(1), 5
    grid = rng.integers(0, 4, (2, 250, 6))  # many ties
    near = np.rint((5 + 0.05 * rng.normal(size=(2, 250, 16))) / _STEP)  # mean 5, deviation 0.05
    for device in ("cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))):
        wrong: list[str] = []
        for name, sets, step in (("ties", grid, 1.0), ("off-center", near, _STEP)):
            sets[1, :40] = sets[0, :40]
            for centers, queries in (sets, sets[::-1]):
                # Sums of squares of integers below 2^53 are exact in float64; the nearest row is the row itself.
                radii = np.sort(cdist(centers, centers, "sqeuclidean"), axis=1)[:, k]
                across = cdist(queries, centers, "sqeuclidean")
                x, y = ((each * step).astype(np.float32) for each in (centers, queries))
                for ties, inside in (("closed", across <= radii), ("strict", across < radii)):
                    manifold = KNNManifold.fit(x, k=k, ties=ties, device=device)  # type: ignore[arg-type]
                    is_right = np.array_equal(manifold.count(y).cpu().numpy(), inside.sum(1))
                    wrong += [] if is_right or name in wrong else [name]
        text = "all counts equal those of integers"
        yield _self_test("exactness" if device == "cpu" else f"exactness {device}", wrong, text)
