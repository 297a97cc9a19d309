"""`genpr doctor`: checks of an installation and of the cache folder, and a self-test with known answers.

The expected answers of the self-test do not come from genpr: features are whole multiples of one step, so all squared
distances are integers and numpy's int64 has no rounding. Libraries are imported inside the checks because any of them
may be broken.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

from genpr.runtime import folder_risk

State = Literal["ok", "warn", "broken"]


@dataclass(frozen=True)
class Finding:
    """The result of one check: "warn" where scores are right but slower, "broken" where one cannot be trusted."""

    name: str
    state: State
    text: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


Findings = Iterator[Finding]


@dataclass(frozen=True)
class Report:
    """The findings of all checks, in display order."""

    genpr: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_healthy(self) -> bool:
        """Whether nothing that a score needs is broken."""
        return all(finding.state != "broken" for finding in self.findings)

    def to_record(self) -> dict[str, Any]:
        """As plain JSON types."""
        return {**asdict(self), "healthy": self.is_healthy}


def run_checks(genpr: str, *, root: Path) -> Report:
    """Run all checks of the cache folder `root` and of this machine."""
    started = time.monotonic()
    errors = import_errors(_distributions())
    # Libraries that end the process cannot be imported here afterwards.
    sys.modules.update({name: None for name in errors if errors[name].startswith(_ENDS)})  # type: ignore[misc]
    numeric = ("numpy", "torch", "scipy", "faiss", "PIL")
    checks: tuple[tuple[str, Callable[[], Iterable[Finding]], tuple[str, ...]], ...] = (
        ("libraries", lambda: check_libraries(genpr, errors), ()),
        ("torch", check_torch, ("torch", "torchvision")),
        ("cuda", check_gpus, ("torch",)),
        ("environment", check_environment, ()),
        ("cache", lambda: check_cache_folder(root), ()),
        ("directions", check_directions, numeric),
        ("exactness", check_exactness, numeric),
        ("decoding", check_codecs, ("numpy", "PIL")),
        ("same features", check_features, numeric),
    )
    findings = [finding for check in checks for finding in run_check(*check, errors)]
    return Report(genpr, tuple(findings), round(time.monotonic() - started, 2))


def run_check(
    name: str, check: Callable[[], Iterable[Finding]], needs: Iterable[str] = (), broken: Iterable[str] = ()
) -> list[Finding]:
    """The findings of one check; its error as a finding, or that it was skipped since a library is `broken`."""
    if missing := [each for each in needs if each in set(broken)]:
        return [Finding(name, "warn", f"not checked, since {missing[0]} cannot be imported")]
    try:
        return list(check())
    except Exception as error:  # noqa: BLE001 - on a broken machine anything may be raised
        return [Finding(name, "broken", f"could not be checked ({_shown(error)})")]


def _shown(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


_ENDS = "ends the process"
_IMPORTS = """
import importlib, sys
out, sys.stdout = sys.stdout, sys.stderr
for name in sys.argv[1:]:
    print(name, end="\t", file=out, flush=True)
    try:
        importlib.import_module(name)
        error = ""
    except BaseException as caught:
        error = " ".join(f"{type(caught).__name__}: {caught}".split())
    print(error, file=out, flush=True)
"""


def import_errors(names: Iterable[str], *, timeout_s: float = 120.0) -> dict[str, str]:
    """Libraries that cannot be imported, tried in another process; those after one that ends or hangs are not tried."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        command = [sys.executable, "-P", "-c", _IMPORTS, *names]
        try:
            done = subprocess.run(
                command,
                stdout=out,
                stderr=subprocess.DEVNULL,
                env=environment,
                timeout=timeout_s,
                check=False,
            )
            end = f"exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            end = f"no answer within {timeout_s:.0f} s"
        out.seek(0)
        lines = [line.partition("\t") for line in out]
    # Only the last line can be cut short.
    errors = {name: error.strip() if error else f"{_ENDS} ({end})" for name, _, error in lines}
    return {name: error for name, error in errors.items() if error}


_IMPORTED_AS = {"faiss-cpu": "faiss", "pillow": "PIL", "open_clip_torch": "open_clip"}
_FOR_PAGES = ("matplotlib", "jinja2")


def _requirements(package: str) -> list[Requirement]:
    """What a package states it needs; nothing where it is used from a folder of its code."""
    try:
        return [Requirement(line) for line in importlib.metadata.requires(package) or []]
    except importlib.metadata.PackageNotFoundError:
        return []


def _distributions() -> dict[str, str]:
    """Name of each required distribution by the name that it is imported as."""
    names = [each.name for each in _requirements("genpr") if each.marker is None]
    names = names or ["numpy", "torch", "torchvision", "faiss-cpu"]
    return {_IMPORTED_AS.get(name, name): name for name in names}


def check_libraries(genpr: str, errors: Mapping[str, str]) -> Findings:
    """The versions of all libraries against those that genpr and torchvision state, and those that cannot be imported."""
    versions = {"genpr": genpr, "python": platform.python_version(), "system": platform.platform()}
    wrong = []
    needs = [
        *_requirements("genpr"),
        *(each for each in _requirements("torchvision") if each.name == "torch"),
    ]
    for need in needs:
        try:
            version = versions[need.name] = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            continue  # conda may call a library otherwise; whether it can be imported is what counts
        if not need.specifier.contains(version, prereleases=True):
            state: State = "broken" if need.marker is None else "warn"
            remedy = f"pip install --upgrade '{need.name}{need.specifier}'"
            wrong.append(
                Finding(need.name, state, f"{version} is not the {need.specifier} that is needed", remedy)
            )
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield Finding("libraries", "ok", text, facts=versions)
    yield from wrong
    for name, error in errors.items():
        package = _distributions()[name]
        remedy = f"pip install --force-reinstall {package}" + " torchvision" * (package == "torch")
        state = "warn" if name in _FOR_PAGES else "broken"
        yield Finding(name, state, f"cannot be imported ({error[:200]})", remedy, {"error": error})


def check_torch() -> Findings:
    """Whether the compiled code of torchvision works with this torch."""
    import torch
    import torchvision

    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 6, 6]])
    try:
        kept = torchvision.ops.nms(boxes, boxes[:, 2], 0.5).tolist()
        problem = "" if kept == [2, 0] else "wrong result of nms"
    except Exception as error:  # noqa: BLE001 - compiled code of another release
        problem = _shown(error)
    text = f"{torch.__version__} with torchvision {torchvision.__version__}"
    if problem:
        build = torch.__version__.partition("+")[2]
        index = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
        remedy = f"pip install --force-reinstall torch torchvision{index}"
        yield Finding("torch", "broken", f"{text}, which does not work ({problem})", remedy)
    else:
        yield Finding("torch", "ok", text)


def check_gpus() -> Findings:
    """One finding per GPU, or one that says why torch uses none. Only a GPU that does not compute is broken."""
    import torch
    from torch.utils import collect_env

    from genpr.memory import free_memory
    from genpr.runtime import usable_cores

    driver = collect_env.get_nvidia_driver_version(collect_env.run)  # type: ignore[no-untyped-call]
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}
    facts = {
        "driver": driver,
        "cuda_build": torch.version.cuda,
        "cores": usable_cores(),
        "memory": free_memory(),
    }
    text = f"{facts['cores']} of {os.cpu_count()} cores, {facts['memory'] / 1e9:.1f} GB of memory free"
    if not torch.cuda.is_available() and driver is not None and not hidden:
        text += f"; driver {driver} is installed, but torch (CUDA {torch.version.cuda}) finds no GPU"
        remedy = "update the driver, install a CUDA build of torch, or --gpus all in a container"
        yield Finding("machine", "warn", text, remedy, facts)
        return
    yield Finding("machine", "ok", text + f"; {torch.cuda.device_count()} GPUs", facts=facts)
    for index in range(torch.cuda.device_count()):
        device, remedy = f"cuda:{index}", "install a torch built for this GPU, or use --device cpu"
        try:
            ones = torch.ones(3, 3, device=device)
            problem = "" if float((ones @ ones).sum()) == 27 else "wrong matrix product"
            free, total = torch.cuda.mem_get_info(index)
            text = f"{torch.cuda.get_device_name(index)}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        except Exception as error:  # noqa: BLE001 - whatever a driver raises
            problem = _shown(error)
        if problem:
            yield Finding(device, "broken", f"does not compute ({problem})", remedy)
        else:
            yield Finding(device, "ok", text, facts={"free": free, "total": total})


_KNOWN_VARIABLES = ("GENPR_ALONE", "GENPR_CACHE", "GENPR_DEBUG", "GENPR_OFFLINE")
_SHOWN_VARIABLES = re.compile(
    r"(GENPR|PYTORCH|TORCH_ALLOW)_.*|CUDA_VISIBLE_DEVICES|HF_(HOME|HUB_CACHE|HUB_OFFLINE)|KMP_DUPLICATE_LIB_OK"
    r"|LD_PRELOAD|(MKL|OMP|OPENBLAS)_NUM_THREADS|TORCH_HOME|XDG_CACHE_HOME"
)


def check_environment(environment: Mapping[str, str] = os.environ) -> Findings:
    """The variables that change how genpr runs; one finding for each that is wrong."""
    found = {name: value for name, value in sorted(environment.items()) if _SHOWN_VARIABLES.fullmatch(name)}
    text = " ".join(f"{name}={value}" for name, value in found.items()) or "no relevant variable is set"
    yield Finding("environment", "ok", text, facts=found)
    for name in found:
        if name.startswith("GENPR_") and name not in _KNOWN_VARIABLES:
            text = f"unknown variable; genpr reads {', '.join(_KNOWN_VARIABLES)}"
            yield Finding(name, "warn", text, f"unset {name}")
    if found.get("KMP_DUPLICATE_LIB_OK", "").upper() in {"1", "TRUE"}:
        text = "hides that two copies of OpenMP are loaded, which may crash or give wrong results"
        remedy = "unset KMP_DUPLICATE_LIB_OK, and install torch and faiss from one source, pip or conda"
        yield Finding("KMP_DUPLICATE_LIB_OK", "warn", text, remedy)


def check_cache_folder(root: Path) -> Findings:
    """Whether features and weights can be kept in `root`; without it genpr scores, and embeds again each time."""
    parent = next(each for each in (root.absolute(), *root.absolute().parents) if each.is_dir())
    free, problem = shutil.disk_usage(parent).free, ""
    try:
        if root.is_dir() and not (problem := folder_risk(root) or ""):
            with tempfile.TemporaryFile(dir=root) as file:
                file.write(b"genpr doctor")
                file.flush()
        elif root.exists() and not problem:
            problem = "it is not a folder"
        elif not os.access(parent, os.W_OK | os.X_OK):
            problem = f"{parent} cannot be written to"
    except OSError as error:
        problem = f"it cannot be written ({error.strerror or error})"
    facts = {"path": str(root), "exists": root.is_dir(), "free": free}
    text = f"{root}, {free / 1e9:.1f} GB free" + ("" if root.exists() else ", does not exist yet")
    if problem:
        remedy = "set GENPR_CACHE to a folder of your own on a local disk"
        yield Finding("cache", "warn", f"{text}; {problem}, so nothing is kept there", remedy, facts)
    elif free < 10**9:
        yield Finding("cache", "warn", text, "genpr cache prune --max-size 1GB, or free disk space", facts)
    else:
        yield Finding("cache", "ok", text, facts=facts)


def _self_test(name: str, failures: list[str], text: str) -> Finding:
    if not failures:
        return Finding(name, "ok", text)
    remedy = "do not trust scores of this machine; report this output as a bug of genpr"
    return Finding(name, "broken", f"wrong: {', '.join(failures)}", remedy, {"wrong": failures})


def check_directions() -> Findings:
    """Precision and recall are not exchanged: lost modes lower recall alone, noise lowers precision alone."""
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
        "exchanged sets": swapped == lost[::-1],
    }
    pairs = ", ".join(f"{precision:.2f}/{recall:.2f}" for precision, recall in found)
    failures = [f"{name} ({pairs})" for name, is_right in right.items() if not is_right]
    yield _self_test("directions", failures, f"precision/recall are {pairs}")


_STEP = 2.0**-21  # float32 values between 4 and 8 are whole multiples of it


def check_exactness() -> Findings:
    """Counts on the CPU and on each GPU equal those by integers, with ties and copies, and far from the origin."""
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
        text = "every count equals brute force on integers"
        yield _self_test("exactness" if device == "cpu" else f"exactness {device}", wrong, text)


_EXACT, _LOSSY = ("PNG", "GIF", "BMP", "PPM", "TIFF"), ("JPEG", "WEBP", "AVIF")
_LOSSY_ERROR = 24  # gray levels, of a smooth image at quality 90; exchanged channels differ by more than 100


def check_codecs() -> Findings:
    """Each format that genpr reads, from bytes made here; a Pillow without a codec refuses such images."""
    import numpy as np
    from PIL import Image, features

    from genpr.images.decode import decode
    from genpr.images.policy import DecodePolicy

    ramp = np.broadcast_to(np.arange(0, 240, 4, dtype=np.uint8), (60, 60))
    pixels = np.stack([ramp, ramp.T, np.full_like(ramp, 200)], axis=2) // 32 * 32  # 64 colors, as a GIF holds
    wrong: list[str] = []
    for name in (*_EXACT, *_LOSSY):
        buffer = io.BytesIO()
        try:
            Image.fromarray(pixels).save(buffer, format=name, quality=90)
            decoded = decode(buffer.getvalue(), name=f"made.{name.lower()}", policy=DecodePolicy()).pixels
            is_right = np.abs(decoded.astype(np.int16) - pixels).max() <= _LOSSY_ERROR * (name in _LOSSY)
        except Exception:  # noqa: BLE001 - of a broken or absent codec
            is_right = name in _LOSSY and not features.check(name.lower().replace("jpeg", "jpg"))
        wrong += [] if is_right else [name]
    yield _self_test("decoding", wrong, "every format that this Pillow knows is decoded correctly")


def check_features() -> Findings:
    """The same images give the same features, to the bit, embedded together and one by one."""
    import torch

    from genpr.demo import ShapesGenerator, draw_latents
    from genpr.features.embed import embed
    from genpr.features.registry import load_extractor

    images = ShapesGenerator()(draw_latents(24, seed=0))
    gabor = load_extractor("gabor", device="cpu")
    first, *others = [embed(images, gabor, batch_size=size) for size in (24, 24, 1)]
    is_right = all(torch.equal(first, other) for other in others) and bool(first.std(0).max() > 0)
    failures = [] if is_right else ["the same images gave other features (gabor)"]
    yield _self_test("same features", failures, "equal to the bit, embedded together and one by one")
