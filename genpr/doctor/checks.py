"""Checks of the machine, the cache and the weights, and a self-test with known answers.

The answers of the self-test do not come from genpr: features are whole multiples of one step, so that all squared
distances are integers and numpy's int64 has no rounding.
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpr.doctor import Finding, State
from genpr.runtime import folder_risk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from genpr.features.cache_files import CacheFile
    from genpr.features.weights.known import WeightsFile

    Integers = NDArray[np.int64]

_LITTLE_MEMORY = 2**30
_FEW_FILES = 256
_KNOWN_VARIABLES = ("GENPR_ALONE", "GENPR_CACHE", "GENPR_DEBUG", "GENPR_OFFLINE")
_OTHER_VARIABLES = (
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


def check_versions(genpr: str) -> Iterator[Finding]:
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


def check_machine() -> Iterator[Finding]:
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


def check_environment(environment: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """What is set of the variables that change how genpr runs; those that are wrong have lines of their own."""
    from genpr.runtime import usable_cores

    environment = os.environ if environment is None else environment
    seen = {
        name: value
        for name, value in sorted(environment.items())
        if name in _OTHER_VARIABLES or name.startswith(_PREFIXES)
    }
    text = " ".join(f"{name}={value}" for name, value in seen.items()) or "nothing set that matters"
    yield Finding("environment", "ok", text, facts=seen)
    for name in seen:
        if name.startswith("GENPR_") and name not in _KNOWN_VARIABLES:
            known = ", ".join(_KNOWN_VARIABLES)
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


_LITTLE_DISK = 10**9
_SAMPLE_FILES, _SAMPLE_BYTES = 8, 100_000_000
_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "afs",
    "9p",
    "panfs",
    "fuse.sshfs",
    "fuse.gcsfuse",
)
_ELSEWHERE = "set GENPR_CACHE to a folder of your own on a local disk"


def check_cache_folder(root: Path) -> Iterator[Finding]:
    """Whether features and weights can be kept in `root`; without it genpr scores, and embeds anew each time."""
    there = _nearest(root)
    kind, free = mounted_as(there), shutil.disk_usage(there).free
    facts = {"path": str(root), "exists": root.is_dir(), "file_system": kind, "free": free}
    text = f"{root}, {free / 1e9:.1f} GB free" + ("" if root.exists() else ", not made yet")
    problem = _problem(root, there)
    if problem:
        yield Finding("cache", "warn", f"{text}; {problem}, so nothing is kept there", _ELSEWHERE, facts)
    elif free < _LITTLE_DISK:
        yield Finding(
            "cache", "warn", text, "genpr cache prune --max-size 1GB, or free space otherwise", facts
        )
    elif kind is not None and kind.startswith(_NETWORK):
        yield Finding(
            "cache", "warn", f"{text}; on a network file system ({kind}), which is slow", _ELSEWHERE, facts
        )
    else:
        yield Finding("cache", "ok", text, facts=facts)


def _nearest(path: Path) -> Path:
    """The folder that is, or that would hold it."""
    path = Path(os.path.realpath(path))
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _problem(root: Path, there: Path) -> str:
    """Why nothing can be kept in `root`; empty if something can. What is written to try that is removed."""
    if root.exists() and not root.is_dir():
        return "it is no folder"
    if not root.is_dir():
        return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written to"
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


def check_cached_features(root: Path, *, full: bool = False) -> Iterator[Finding]:
    """Whether the files of features match their checksums: a few of them, or all if `full`."""
    from genpr.errors import DataError
    from genpr.features.cache_files import find_folders
    from genpr.storage import load_tensors

    if root.exists() and not root.is_dir():
        yield Finding("cached", "ok", "no features, since the cache is no folder", facts={"files": 0})
        return
    files = [file for folder in find_folders(root) for file in folder.files]
    looked_at = files if full else _sample_of(files)
    damaged = []
    for file in looked_at:
        try:
            load_tensors(file.path)
        except DataError:
            if file.path.exists():  # and was not pruned meanwhile
                damaged.append(str(file.path))
    size = sum(file.size for file in files)
    facts = {"files": len(files), "size": size, "looked_at": len(looked_at), "damaged": damaged}
    if not files:
        yield Finding("cached", "ok", "no features yet", facts=facts)
    elif damaged:
        yield Finding(
            "cached",
            "warn",
            f"{len(damaged)} of {len(looked_at)} cached files looked at are damaged, such as {Path(damaged[0]).name}; their "
            "images are embedded anew when they are next needed",
            "check the disk; rm the files that --json lists",
            facts,
        )
    else:
        some = "" if len(looked_at) == len(files) else f" of {len(looked_at)} (--full: all)"
        counted = "1 file" if len(files) == 1 else f"{len(files):,} files"
        text = f"{counted}, {size / 1e9:.2f} GB, none damaged{some}"
        yield Finding("cached", "ok", text, facts=facts)


def _sample_of(files: Sequence[CacheFile]) -> list[CacheFile]:
    """A few, evenly spread from the longest unused to the last used."""
    ordered = sorted(files, key=lambda file: (file.used, file.path))
    step = max(1, -(-len(ordered) // _SAMPLE_FILES))
    chosen: list[CacheFile] = []
    total = 0
    for file in ordered[::-step]:
        total += file.size
        if chosen and total > _SAMPLE_BYTES:
            break
        chosen.append(file)
    return chosen


_HASHED_BYTES = 700_000_000  # two seconds; more with --full
_USUAL = "inception"


@dataclass
class _WeightsSeen:
    """Names of extractors, by what is known of their weights."""

    right: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    not_hashed: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def check_weights(*, full: bool = False) -> Iterator[Finding]:
    """One line for each file that is damaged, and one for all.

    Args:
        full: Hash all that are here, not only the first few hundred megabytes.
    """
    from genpr.errors import WeightsError
    from genpr.features.weights.files import cached_path, known_files, verify_file
    from genpr.features.weights.known import weights_folder
    from genpr.runtime import is_offline

    seen, left = _WeightsSeen(), _HASHED_BYTES
    for entry in sorted(known_files(), key=lambda entry: (_USUAL not in entry.used_by, entry.size or 0)):
        own, name = weights_folder() / entry.name, _extractor_name(entry)
        path = own if own.is_file() else cached_path(entry)
        if path is None:
            seen.absent.append(name)
            continue
        if not full and path.stat().st_size > left:
            seen.not_hashed.append(name)
            continue
        left -= path.stat().st_size
        try:
            verify_file(entry, path)
        except WeightsError as error:
            seen.damaged.append(name)
            yield _damaged_weights(name, path, error, is_own=path == own)
        else:
            seen.right.append(name)
    yield _weights_summary(seen, is_offline=is_offline())


def _damaged_weights(name: str, path: Path, error: Exception, *, is_own: bool) -> Finding:
    """A bad file of genpr's own stops every score with it; a bad one of another program's is not used."""
    state: State = "broken" if is_own else "warn"
    text = str(error) if is_own else f"{error}; it is another program's, and genpr does not use it"
    return Finding(name, state, text, f"rm '{path}' && genpr weights fetch {name}", {"path": str(path)})


def _weights_summary(seen: _WeightsSeen, *, is_offline: bool) -> Finding:
    facts: dict[str, Any] = {**vars(seen), "offline": is_offline}
    parts = [f"{', '.join(seen.right)} hashed and right"] if seen.right else []
    if seen.not_hashed:
        parts.append(f"{', '.join(seen.not_hashed)} here, hashed with --full")
    if seen.absent:
        parts.append(f"{len(seen.absent)} files not here (genpr weights list)")
    if _USUAL not in seen.absent:
        return Finding("weights", "ok", "; ".join(parts), facts=facts)
    parts.append("those of inception, the usual extractor, have to be downloaded")
    remedy = f"genpr weights fetch {_USUAL}"
    if is_offline:
        parts[-1] += ", which GENPR_OFFLINE forbids"
        remedy = f"GENPR_OFFLINE=0 {remedy}"
    return Finding("weights", "warn", "; ".join(parts), remedy, facts)


def _extractor_name(entry: WeightsFile) -> str:
    """What one would type."""
    return entry.used_by[0] if entry.used_by else entry.name


_REPORT = "do not trust scores of this machine; report this output as a bug of genpr"
_STEP = 2.0**-21  # float32 values between 4 and 8 are whole multiples of it
_K = 5
_Kinds = tuple[tuple[str, dict[str, object]], ...]
_LOSSLESS: _Kinds = (
    ("PNG", {}),
    ("WEBP", {"lossless": True}),
    ("GIF", {}),
    ("BMP", {}),
    ("PPM", {}),
    ("TIFF", {}),
)
_LOSSY: _Kinds = (("JPEG", {"quality": 90}), ("WEBP", {"quality": 90}), ("AVIF", {"quality": 90}))
_MOST_OFF = 24  # grey levels, of a smooth image at quality 90; a mix-up of channels is beyond 100


def check_directions() -> Iterator[Finding]:
    """Precision and recall are not exchanged: lost kinds lower recall alone, noise lowers precision alone."""
    import numpy as np

    from genpr.evaluation.evaluator import score

    rng = np.random.default_rng(0)
    centres, kind = 6 * rng.normal(size=(6, 8)), np.arange(300) % 6
    real = (centres[kind] + rng.normal(size=(300, 8))).astype(np.float32)
    dropped = (centres[kind % 2] + rng.normal(size=(300, 8))).astype(np.float32)
    noisy = (centres[kind] + 5 * rng.normal(size=(300, 8))).astype(np.float32)
    found = {}
    for name, fake in (("dropped", dropped), ("noisy", noisy)):
        result = score(real, fake, device="cpu", control=False, intervals=False)
        found[name] = {metric: result[metric] for metric in ("precision", "recall")}
    swapped = score(dropped, real, device="cpu", control=False, intervals=False)
    is_right = (
        found["dropped"]["precision"] > 0.6 > 0.5 > found["dropped"]["recall"]
        and found["noisy"]["recall"] > 0.6 > 0.4 > found["noisy"]["precision"]
        and swapped["recall"] == found["dropped"]["precision"]
        and swapped["precision"] == found["dropped"]["recall"]
    )
    pairs = ", ".join(f"{v['precision']:.2f}/{v['recall']:.2f}" for name, v in found.items())
    yield _self_test_finding(
        "directions", is_right, f"fidelity and diversity are told apart ({pairs})", pairs, found
    )


def check_exactness() -> Iterator[Finding]:
    """Counts by the fast search equal those by integers, with ties and copies, and far from the origin."""
    yield from _exactness("exactness", "cpu")


def check_exactness_on_gpus() -> Iterator[Finding]:
    """As `check_exactness`, on each GPU; nothing where there is none."""
    import torch

    for index in range(torch.cuda.device_count()):
        yield from _exactness(f"exactness cuda:{index}", f"cuda:{index}")


def _exactness(name: str, device: str) -> Iterator[Finding]:
    import numpy as np

    rng = np.random.default_rng(1)
    grid = rng.integers(0, 4, (2, 250, 6))  # ties without end
    grid[1, :40] = grid[0, :40]
    near = np.rint((5 + 0.05 * rng.normal(size=(2, 250, 16))) / _STEP).astype(
        np.int64
    )  # mean 5, deviation 0.05
    near[1, :40] = near[0, :40]
    wrong = [
        what
        for what, sets, step in (("ties", grid, 1.0), ("off-centre", near, _STEP))
        if not _counts_agree(sets, step, device)
    ]
    text = "every count equals brute force on integers"
    yield _self_test_finding(
        name,
        not wrong,
        text,
        f"counts differ from brute force on integers: {', '.join(wrong)}",
        {"wrong": wrong},
    )


def _counts_agree(sets: Integers, step: float, device: str) -> bool:
    """Whether genpr counts as integers do: sets (2, n, d) in units of `step`, both directions, closed and strict balls."""
    import numpy as np

    from genpr.metrics.knn_manifold import KNNManifold

    for centres, queries in (sets, sets[::-1]):
        own, across = _sq_distances(centres, centres), _sq_distances(queries, centres)
        np.fill_diagonal(own, np.iinfo(np.int64).max)
        radii = np.sort(own, axis=1)[:, _K - 1]
        rows = [(side * step).astype(np.float32) for side in (centres, queries)]
        for ties, inside in (("closed", across <= radii), ("strict", across < radii)):
            manifold = KNNManifold.fit(rows[0], k=_K, ties=ties, device=device)  # type: ignore[arg-type]
            if not np.array_equal(manifold.count(rows[1]).cpu().numpy(), inside.sum(1)):
                return False
    return True


def _sq_distances(x: Integers, y: Integers) -> Integers:
    """Between the rows of (n, d) and of (m, d), in units of a squared step: (n, m), exactly."""
    import numpy as np

    return np.stack([np.square(row - y).sum(axis=1) for row in x])


def check_codecs() -> Iterator[Finding]:
    """Each format that genpr reads, from bytes made here; a Pillow without a codec refuses such images."""
    import numpy as np
    from PIL import Image, features

    ramp = np.arange(0, 240, 4, dtype=np.uint8)
    pixels = np.stack(
        [np.broadcast_to(ramp, (60, 60)), np.broadcast_to(ramp[:, None], (60, 60)), np.full((60, 60), 200)],
        axis=2,
    )
    pixels = pixels.astype(np.uint8)
    absent = [name for name in ("WEBP", "AVIF") if not features.check(name.lower())]
    wrong: list[str] = []
    right: list[str] = []
    for most_off, kinds in ((0, _LOSSLESS), (_MOST_OFF, _LOSSY)):
        for name, options in kinds:
            if name in absent:
                continue
            sent = _few_colours(pixels) if name == "GIF" else pixels
            off = _decoded_off(Image.fromarray(sent), sent, name, options)
            (wrong if off is None or off > most_off else right).append(name)
    facts = {"read": sorted(set(right)), "wrong": sorted(set(wrong)), "absent": absent}
    read = ", ".join(dict.fromkeys(right))
    if wrong:
        yield _self_test_finding(
            "decoding", False, "", f"decoded to other pixels than were encoded: {', '.join(wrong)}", facts
        )
    elif absent:
        text = f"{read} are read rightly; this Pillow was built without {' and '.join(absent)}"
        yield Finding(
            "decoding", "warn", text, "pip install --force-reinstall --only-binary :all: pillow", facts
        )
    else:
        yield Finding("decoding", "ok", f"{read} read rightly", facts=facts)


def _few_colours(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """64 colours, which a GIF holds without loss."""
    return pixels // 32 * 32


def _decoded_off(
    image: object, sent: NDArray[np.uint8], name: str, options: Mapping[str, object]
) -> int | None:
    """The largest difference in grey levels after encoding and genpr's decoding; None where either fails."""
    import numpy as np

    from genpr.images.decode import decode
    from genpr.images.policy import DecodePolicy

    buffer = io.BytesIO()
    try:
        image.save(buffer, format=name, **options)  # type: ignore[attr-defined]
        got = decode(buffer.getvalue(), name=f"made.{name.lower()}", policy=DecodePolicy()).pixels
    except Exception:  # noqa: BLE001 - of a broken codec
        return None
    return int(np.abs(got.astype(np.int16) - sent).max()) if got.shape == sent.shape else None


def check_features() -> Iterator[Finding]:
    """The same images give the same features, to the bit, embedded together and one by one."""
    import torch

    from genpr.demo import ShapesGenerator, draw_latents
    from genpr.features.embed import embed
    from genpr.features.registry import load_extractor

    images = ShapesGenerator()(draw_latents(24, seed=0))
    gabor = load_extractor("gabor", device="cpu")
    rows = [embed(images, gabor, batch_size=size) for size in (24, 24, 1)]
    is_right = all(torch.equal(rows[0], other) for other in rows[1:]) and bool(rows[0].std(0).max() > 0)
    text = "equal to the bit, embedded together and one by one"
    yield _self_test_finding(
        "same features", is_right, text, "the same images gave other features (gabor)", {}
    )


def _self_test_finding(
    name: str, is_right: bool, text: str, wrong: str, facts: Mapping[str, object]
) -> Finding:
    state: State = "ok" if is_right else "broken"
    return Finding(name, state, text if is_right else wrong, "" if is_right else _REPORT, facts)
