"""`genpr doctor`: checks of an installation, of the cache and the weights, and a self-test with known answers.

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
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.requirements import Requirement

from genpr.runtime import folder_risk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

State = Literal["ok", "warn", "broken"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        name: What was checked, stable.
        state: "ok"; "warn" where scores are right but slower, or something optional is missing; "broken" where a score
            would fail or could not be trusted.
        text: What was found, in one line.
        remedy: What to do about it; empty where there is nothing to do.
        facts: The same for programs, as plain JSON values by name.
    """

    name: str
    state: State
    text: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The findings of all checks.

    Attributes:
        genpr: Its version.
        findings: In display order.
        seconds: How long the checks took.
    """

    genpr: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_healthy(self) -> bool:
        """Whether nothing that a score needs is broken."""
        return all(finding.state != "broken" for finding in self.findings)

    def to_record(self) -> dict[str, Any]:
        """As plain JSON types."""
        findings = [asdict(finding) for finding in self.findings]
        return {
            "genpr": self.genpr,
            "healthy": self.is_healthy,
            "seconds": self.seconds,
            "findings": findings,
        }


def run_checks(genpr: str, *, root: Path, full: bool = False) -> Report:
    """Run all checks, whatever is broken. Libraries that end the process cannot be imported here afterwards.

    Args:
        genpr: The version to record.
        root: The cache folder.
        full: Hash all weights and all cached features, which may take minutes.
    """
    started = time.monotonic()
    errors = import_errors(_distributions())
    ending = [name for name, error in errors.items() if error.startswith(_ENDS)]
    sys.modules.update(dict.fromkeys(ending))  # type: ignore[arg-type]
    numeric = ("numpy", "torch", "scipy", "faiss", "PIL")
    checks: tuple[tuple[str, Callable[[], Iterable[Finding]], tuple[str, ...]], ...] = (
        ("genpr", lambda: check_versions(genpr), ()),
        ("torch", check_torch_pair, ("torch", "torchvision")),
        ("libraries", lambda: check_libraries(errors), ()),
        ("cuda", check_gpus, ("torch",)),
        ("machine", check_machine, ("numpy",)),
        ("environment", check_environment, ()),
        ("cache", lambda: check_cache_folder(root), ()),
        ("cached", lambda: check_cached_features(root, full=full), ("torch", "safetensors")),
        ("weights", lambda: check_weights(full=full), ()),
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
    missing = [each for each in needs if each in set(broken)]
    if missing:
        return [Finding(name, "warn", f"not checked, since {missing[0]} cannot be imported")]
    try:
        return list(check())
    except Exception as error:  # noqa: BLE001 - on a broken machine anything may be raised
        return [Finding(name, "broken", f"could not be checked ({format_error(error)})")]


def format_error(error: BaseException) -> str:
    """An error on one line, truncated."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def check_versions(genpr: str) -> Iterator[Finding]:
    """The versions of genpr, Python and the system."""
    facts = {
        "genpr": genpr,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "executable": sys.executable,
    }
    yield Finding("genpr", "ok", f"{genpr}, Python {facts['python']}, {facts['system']}", facts=facts)


_ENDS = "ends the process"
_IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    print("importing", name, flush=True)
    importlib.import_module(name)
"""


def import_errors(names: Iterable[str], *, timeout_s: float = 120.0) -> dict[str, str]:
    """Libraries that cannot be imported, tried in a process of its own; after a failure the others are tried in another."""
    found: dict[str, str] = {}
    left = list(names)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    while left:
        command = [sys.executable, "-P", "-c", _IMPORTS, *left]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                env=environment,
                check=False,
            )
            out, code = done.stdout, done.returncode
            end, last = f"exit code {code}", done.stderr.strip().splitlines()[-1:]
        except subprocess.TimeoutExpired as error:
            out = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
            code, end, last = -1, f"no answer within {timeout_s:.0f} s", []
        if code == 0:
            break
        tried = [line.split()[1] for line in out.splitlines() if line.startswith("importing ")] or left[:1]
        is_error = code == 1 and last and re.match(r"[\w.]+(Error|Exception|Exit)\b", last[0])
        found[tried[-1]] = last[0] if is_error else ": ".join([f"{_ENDS} ({end})", *last])
        left = left[len(tried) :]
    return found


_IMPORTED_AS = {"faiss-cpu": "faiss", "pillow": "PIL", "open_clip_torch": "open_clip"}
_FOR_PAGES = ("matplotlib", "jinja2")


def _requirements() -> list[Requirement]:
    """What genpr states it needs; nothing where it is used from a folder of its code."""
    try:
        return [Requirement(line) for line in importlib.metadata.requires("genpr") or []]
    except importlib.metadata.PackageNotFoundError:
        return []


def _distributions() -> dict[str, str]:
    """Name of each required distribution by the name that it is imported as."""
    names = [each.name for each in _requirements() if each.marker is None]
    names = names or ["numpy", "torch", "torchvision", "faiss-cpu"]
    return {_IMPORTED_AS.get(name, name): name for name in names}


def check_libraries(errors: Mapping[str, str]) -> Iterator[Finding]:
    """The versions of all libraries against those that genpr states, and those that cannot be imported."""
    versions: dict[str, str] = {}
    wrong: list[Finding] = []
    absent = []
    for need in _requirements():
        extras = [] if need.marker is None else re.findall(r"extra == \"(\w+)\"", str(need.marker))
        if "dev" in extras:
            continue
        try:
            versions[need.name] = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            if extras:
                absent.append(f"{need.name} (genpr[{extras[0]}])")
            continue  # conda may call a library otherwise; whether it can be imported is what counts
        if not need.specifier.contains(versions[need.name], prereleases=True):
            text = f"{versions[need.name]} is not the {need.specifier} that genpr needs"
            state: State = "warn" if extras else "broken"
            wrong.append(
                Finding(need.name, state, text, f"pip install --upgrade '{need.name}{need.specifier}'")
            )
    others = [
        name for name in versions if name not in ("torch", "torchvision")
    ]  # which have a line of their own
    text = ", ".join(f"{name} {versions[name]}" for name in others)
    text += f"; not installed: {', '.join(absent)}" if absent else ""
    yield Finding("libraries", "ok", text or "genpr is not installed", facts=versions)
    yield from wrong
    for name, error in errors.items():
        state, what = ("warn", "; scores work, pages do not") if name in _FOR_PAGES else ("broken", "")
        package = _distributions()[name]
        remedy = f"pip install --force-reinstall {package}" + " torchvision" * (package == "torch")
        yield Finding(name, state, f"cannot be imported ({error[:200]}){what}", remedy, {"error": error})


def check_torch_pair() -> Iterator[Finding]:
    """Whether torchvision was made for this torch, by its own metadata, its build and its compiled code."""
    import torch
    import torchvision

    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    text = f"{torch.__version__} with torchvision {torchvision.__version__}"
    facts = {**versions, "cuda_build": torch.version.cuda}
    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 6, 6]])
    try:
        is_right = torchvision.ops.nms(boxes, boxes[:, 2], 0.5).tolist() == [2, 0]
        problem = "" if is_right else "wrong result of nms"
    except Exception as error:  # noqa: BLE001 - compiled code of another release
        problem = format_error(error)
    if problem:
        text += f", which does not work ({problem})"
        yield Finding("torch", "broken", text, _install_both(torch.__version__), facts)
        return
    stated = [Requirement(line) for line in importlib.metadata.requires("torchvision") or []]
    needs = [need for need in stated if need.name == "torch"]
    unmet = [need for need in needs if not need.specifier.contains(torch.__version__, prereleases=True)]
    if unmet:
        text += f", which was made for {unmet[0]}"
    elif (torch.version.cuda is None) != (getattr(torchvision.version, "cuda", None) is None):
        text += "; one is built for CUDA and the other for CPUs only"
    else:
        yield Finding("torch", "ok", text, facts=facts)
        return
    yield Finding("torch", "warn", text, _install_both(torch.__version__), facts)


def _install_both(torch: str) -> str:
    """The command that installs torch and torchvision of one release and of the build that this torch has."""
    build = torch.partition("+")[2]
    index = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
    return f"pip install --force-reinstall torch torchvision{index}"


def check_gpus() -> Iterator[Finding]:
    """One finding per GPU, or one that says why torch uses none. Only a GPU that does not compute is broken."""
    import torch
    from torch.utils import collect_env

    driver = collect_env.get_nvidia_driver_version(collect_env.run)  # type: ignore[no-untyped-call]
    facts = {"driver": driver, "cuda_build": torch.version.cuda}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_available = torch.cuda.is_available()  # warns where the driver is too old
    if not is_available:
        messages = " ".join(" ".join(str(each.message).split()) for each in caught)
        yield _why_no_gpu(torch.version.cuda or torch.version.hip, driver, messages, facts)
        return
    for index in range(torch.cuda.device_count()):
        device = f"cuda:{index}"
        try:
            ones = torch.ones(3, 3, device=device)
            problem = "" if float((ones @ ones).sum()) == 27 else "wrong matrix product"
            free, total = torch.cuda.mem_get_info(index)
        except Exception as error:  # noqa: BLE001 - whatever a driver raises
            problem = format_error(error)
        if problem:
            remedy = (
                "install a torch built for this GPU (https://pytorch.org/get-started), or use --device cpu"
            )
            yield Finding(device, "broken", f"does not compute ({problem})", remedy, facts)
            continue
        name = torch.cuda.get_device_name(index)
        text = f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free, driver {driver or 'unknown'}"
        yield Finding(device, "ok", text, facts={**facts, "device": name, "free": free, "total": total})


def _why_no_gpu(build: str | None, driver: str | None, messages: str, facts: Mapping[str, Any]) -> Finding:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if driver is None:
        return Finding("cuda", "ok", "no NVIDIA driver; everything runs on the CPU", facts=facts)
    if build is None:
        remedy = "pip install --force-reinstall torch torchvision (builds: https://pytorch.org/get-started)"
        return Finding(
            "cuda", "warn", f"driver {driver} is installed, but torch is a CPU build", remedy, facts
        )
    if hidden is not None and hidden.strip() in {"", "-1"}:
        return Finding("cuda", "ok", f"CUDA_VISIBLE_DEVICES={hidden!r} hides all GPUs", facts=facts)
    reason = f" ({messages[:200]})" if messages else ""
    text = f"driver {driver} is installed, but torch ({build}) finds no GPU{reason}"
    remedy = "update the driver, check `nvidia-smi`, or --gpus all in a container"
    return Finding("cuda", "warn", text, remedy, facts)


def check_machine() -> Iterator[Finding]:
    """Cores, and memory within the limit of a container or job."""
    from genpr.memory import cgroup_memory_left, free_memory
    from genpr.runtime import usable_cores

    cores, free, limit = usable_cores(), free_memory(), cgroup_memory_left()
    facts = {"cores": cores, "cores_of_machine": os.cpu_count(), "free_memory": free, "left_in_group": limit}
    text = f"{cores} of {os.cpu_count()} cores, {free / 1e9:.1f} GB of memory free"
    text += ", limited by the container or job" if limit is not None and limit <= free else ""
    if free < 2**30:
        remedy = "end other programs, or score fewer images (--max-images)"
        yield Finding("machine", "warn", text, remedy, facts)
    else:
        yield Finding("machine", "ok", text, facts=facts)


_KNOWN_VARIABLES = ("GENPR_ALONE", "GENPR_CACHE", "GENPR_DEBUG", "GENPR_OFFLINE")
_SHOWN_VARIABLES = re.compile(
    r"(GENPR|PYTORCH|TORCH_ALLOW)_.*|CUDA_VISIBLE_DEVICES|HF_(HOME|HUB_CACHE|HUB_OFFLINE)|KMP_DUPLICATE_LIB_OK"
    r"|LD_PRELOAD|(MKL|OMP|OPENBLAS)_NUM_THREADS|TORCH_HOME|XDG_CACHE_HOME"
)


def check_environment(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """The variables that change how genpr runs; one finding for each that is wrong."""
    from genpr.runtime import usable_cores

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
    threads = found.get("OMP_NUM_THREADS", "").split(",")[0]
    if threads.isdigit() and int(threads) > usable_cores():
        text = f"{threads} threads for {usable_cores()} cores are slow"
        yield Finding("OMP_NUM_THREADS", "warn", text, f"OMP_NUM_THREADS={usable_cores()}, or unset it")


def check_cache_folder(root: Path) -> Iterator[Finding]:
    """Whether features and weights can be kept in `root`; without it genpr scores, and embeds again each time."""
    parent = Path(os.path.realpath(root))
    while not parent.is_dir():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    facts = {"path": str(root), "exists": root.is_dir(), "free": free}
    text = f"{root}, {free / 1e9:.1f} GB free" + ("" if root.exists() else ", does not exist yet")
    problem = _cache_problem(root, parent)
    if problem:
        remedy = "set GENPR_CACHE to a folder of your own on a local disk"
        yield Finding("cache", "warn", f"{text}; {problem}, so nothing is kept there", remedy, facts)
    elif free < 10**9:
        yield Finding("cache", "warn", text, "genpr cache prune --max-size 1GB, or free disk space", facts)
    else:
        yield Finding("cache", "ok", text, facts=facts)


def _cache_problem(root: Path, parent: Path) -> str:
    """Why nothing can be kept in `root`; empty if something can. What is written to try that is removed."""
    if not root.is_dir():
        if root.exists():
            return "it is not a folder"
        return "" if os.access(parent, os.W_OK | os.X_OK) else f"{parent} cannot be written to"
    try:
        if risk := folder_risk(root):
            return risk
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(b"genpr doctor")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"it cannot be written ({error.strerror or error})"
    return ""


_SAMPLE_FILES = 8


def check_cached_features(root: Path, *, full: bool = False) -> Iterator[Finding]:
    """Whether the checksums of cached features match: of eight files from the last used on, or of all if `full`."""
    from genpr.errors import DataError
    from genpr.features.cache_files import find_folders
    from genpr.storage import load_tensors

    found = [file for folder in find_folders(root) for file in folder.files] if root.is_dir() else []
    files = sorted(found, key=lambda file: (file.used, file.path), reverse=True)
    checked = files if full else files[:: max(1, -(-len(files) // _SAMPLE_FILES))]
    damaged = []
    for file in checked:
        try:
            load_tensors(file.path)
        except DataError:
            if file.path.exists():  # and was not pruned meanwhile
                damaged.append(str(file.path))
    size = sum(file.size for file in files)
    facts = {"files": len(files), "size": size, "checked": len(checked), "damaged": damaged}
    if damaged:
        text = f"{len(damaged)} of {len(checked)} checked files are damaged, such as {Path(damaged[0]).name}"
        remedy = "check the disk; delete the files that --json lists; their images are embedded again"
        yield Finding("cached", "warn", text, remedy, facts)
    elif files:
        part = "" if len(checked) == len(files) else f" of {len(checked)} checked (--full: all)"
        text = f"{len(files):,} files, {size / 1e9:.2f} GB, none damaged{part}"
        yield Finding("cached", "ok", text, facts=facts)
    else:
        yield Finding("cached", "ok", "no features yet", facts=facts)


_USUAL = "inception"


def check_weights(*, full: bool = False, most_bytes: int = 700_000_000) -> Iterator[Finding]:
    """One finding for each damaged file, and one for all.

    Args:
        full: Hash all files.
        most_bytes: Hash at most so many bytes unless `full`: two seconds.
    """
    from genpr.errors import WeightsError
    from genpr.features.weights.files import cached_path, known_files, verify_file
    from genpr.features.weights.known import weights_folder
    from genpr.runtime import is_offline

    found: dict[str, list[str]] = {"right": [], "damaged": [], "not_hashed": [], "absent": []}
    for entry in sorted(known_files(), key=lambda entry: (_USUAL not in entry.used_by, entry.size or 0)):
        name = entry.used_by[0] if entry.used_by else entry.name
        own = weights_folder() / entry.name
        path = own if own.is_file() else cached_path(entry)
        if path is None:
            found["absent"].append(name)
            continue
        if not full and path.stat().st_size > most_bytes:
            found["not_hashed"].append(name)
            continue
        most_bytes -= path.stat().st_size
        try:
            verify_file(entry, path)
            found["right"].append(name)
        except WeightsError as error:
            found["damaged"].append(name)
            state: State = (
                "broken" if path == own else "warn"
            )  # genpr does not use damaged files of other programs
            yield Finding(
                name, state, str(error), f"rm '{path}' && genpr weights fetch {name}", {"path": str(path)}
            )
    facts = {**found, "offline": is_offline()}
    text = f"{', '.join(found['right']) or 'none'} verified"
    text += f"; {', '.join(found['not_hashed'])} not verified (--full)" if found["not_hashed"] else ""
    text += f"; {len(found['absent'])} files not downloaded (genpr weights list)" if found["absent"] else ""
    if _USUAL not in found["absent"]:
        yield Finding("weights", "ok", text, facts=facts)
    else:
        remedy = "GENPR_OFFLINE=0 " * is_offline() + f"genpr weights fetch {_USUAL}"
        yield Finding(
            "weights", "warn", f"{text}; those of {_USUAL}, the default, are missing", remedy, facts
        )


def _self_test(name: str, failures: list[str], text: str, facts: Mapping[str, Any]) -> Finding:
    if not failures:
        return Finding(name, "ok", text, facts=facts)
    remedy = "do not trust scores of this machine; report this output as a bug of genpr"
    return Finding(name, "broken", f"wrong: {', '.join(failures)}", remedy, {**facts, "wrong": failures})


def check_directions() -> Iterator[Finding]:
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
    yield _self_test("directions", failures, f"precision/recall are {pairs}", {"pairs": found})


_STEP = 2.0**-21  # float32 values between 4 and 8 are whole multiples of it


def check_exactness() -> Iterator[Finding]:
    """Counts on the CPU and on each GPU equal those by integers, with ties and copies, and far from the origin."""
    import numpy as np
    import torch

    rng = np.random.default_rng(1)
    grid = rng.integers(0, 4, (2, 250, 6))  # many ties
    near = np.rint((5 + 0.05 * rng.normal(size=(2, 250, 16))) / _STEP).astype(
        np.int64
    )  # mean 5, deviation 0.05
    for sets in (grid, near):
        sets[1, :40] = sets[0, :40]
    for device in ("cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))):
        cases = {"ties": (grid, 1.0), "off-center": (near, _STEP)}
        failures = [name for name, (sets, step) in cases.items() if not _counts_agree(sets, step, device)]
        name = "exactness" if device == "cpu" else f"exactness {device}"
        yield _self_test(name, failures, "every count equals brute force on integers", {})


def _counts_agree(sets: Integers, step: float, device: str, k: int = 5) -> bool:
    """Whether genpr counts as integers do: sets (2, n, d) in units of `step`, both directions, closed and strict balls."""
    import numpy as np

    from genpr.metrics.knn_manifold import KNNManifold

    for centers, queries in (sets, sets[::-1]):
        own = np.stack([np.square(row - centers).sum(axis=1) for row in centers])
        across = np.stack([np.square(row - centers).sum(axis=1) for row in queries])
        np.fill_diagonal(own, np.iinfo(np.int64).max)
        radii = np.sort(own, axis=1)[:, k - 1]
        x, y = ((each * step).astype(np.float32) for each in (centers, queries))
        for ties, inside in (("closed", across <= radii), ("strict", across < radii)):
            manifold = KNNManifold.fit(x, k=k, ties=ties, device=device)  # type: ignore[arg-type]
            if not np.array_equal(manifold.count(y).cpu().numpy(), inside.sum(1)):
                return False
    return True


_FORMATS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("PNG", {}),
    ("GIF", {}),
    ("BMP", {}),
    ("PPM", {}),
    ("TIFF", {}),
    ("WEBP", {"lossless": True}),
    ("JPEG", {"quality": 90}),
    ("WEBP", {"quality": 90}),
    ("AVIF", {"quality": 90}),
)
_LOSSY_ERROR = 24  # gray levels, of a smooth image at quality 90; exchanged channels differ by more than 100


def check_codecs() -> Iterator[Finding]:
    """Each format that genpr reads, from bytes made here; a Pillow without a codec refuses such images."""
    import numpy as np
    from PIL import Image, features

    from genpr.images.decode import decode
    from genpr.images.policy import DecodePolicy

    ramp = np.broadcast_to(np.arange(0, 240, 4, dtype=np.uint8), (60, 60))
    pixels = np.stack([ramp, ramp.T, np.full_like(ramp, 200)], axis=2) // 32 * 32  # 64 colors, as a GIF holds
    absent = [name for name in ("WEBP", "AVIF") if not features.check(name.lower())]
    right: list[str] = []
    wrong: list[str] = []
    for name, options in _FORMATS:
        if name in absent:
            continue
        buffer = io.BytesIO()
        try:
            Image.fromarray(pixels).save(buffer, format=name, **options)
            decoded = decode(buffer.getvalue(), name=f"made.{name.lower()}", policy=DecodePolicy()).pixels
            error = np.abs(decoded.astype(np.int16) - pixels).max()
            is_right = bool(error <= _LOSSY_ERROR * ("quality" in options))
        except Exception:  # noqa: BLE001 - of a broken codec
            is_right = False
        (right if is_right else wrong).append(name)
    facts = {"read": sorted(set(right)), "absent": absent}
    text = f"{', '.join(dict.fromkeys(right))} are decoded correctly"
    if absent and not wrong:
        remedy = "pip install --force-reinstall --only-binary :all: pillow"
        yield Finding("decoding", "warn", f"{text}; Pillow lacks {' and '.join(absent)}", remedy, facts)
    else:
        yield _self_test("decoding", wrong, text, facts)


def check_features() -> Iterator[Finding]:
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
    yield _self_test("same features", failures, "equal to the bit, embedded together and one by one", {})
