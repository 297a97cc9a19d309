"""Imports libraries and lets each do a little work, in a process of its own: what breaks there breaks nobody else.

Run as a file, `python probe.py PATHS NAMES`, and free of genpr: a library may end the process (an instruction that the
processor lacks, two copies of OpenMP), and then the last name that it printed says which one. `PATHS` is the `sys.path`
of whoever asks, as JSON. Each answer is one line of JSON on stdout: `{"begin": name}`, then `{"name", "version", ...}`
or `{"name", "error"}`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, TextIO

Facts = dict[str, Any]


def main(names: list[str]) -> None:
    """Probe libraries one after the other."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    for name in names:
        _answer(answers, {"begin": name})
        _answer(answers, {"name": name, **_probed(name)})


def _answer(answers: TextIO, facts: Facts) -> None:
    """At once: the next library may end the process."""
    answers.write(json.dumps(facts) + "\n")
    answers.flush()


def _probed(name: str) -> Facts:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            module = importlib.import_module(name)
            facts = {"version": _version_of(name, module), **_WORK.get(name, _nothing)(module)}
        except BaseException as error:  # noqa: BLE001 - some libraries even exit when they are imported
            said = " ".join(str(error).split())
            return {
                "error": f"{type(error).__name__}: {said}",
                "is_absent": isinstance(error, ModuleNotFoundError) and error.name == name,
            }
    return {**facts, "warnings": [" ".join(str(each.message).split()) for each in caught]}


def _version_of(name: str, module: Any) -> str:  # noqa: ANN401
    """What the library says itself, with its build; what was installed, where it does not say."""
    said = getattr(module, "__version__", None)
    if isinstance(said, str):
        return said
    found = importlib.metadata.packages_distributions().get(name, [])
    return importlib.metadata.version(found[0]) if found else "?"


def _nothing(_module: Any) -> Facts:  # noqa: ANN401 - any module
    return {}


def _numpy(numpy: Any) -> Facts:  # noqa: ANN401
    _expect(int(numpy.arange(5).sum()) == 10, "0 + 1 + 2 + 3 + 4")
    return {}


def _torch(torch: Any) -> Facts:  # noqa: ANN401
    ones = torch.ones(3, 3)
    _expect(float((ones @ ones).sum()) == 27, "a product of matrices")
    _expect(
        torch.from_numpy(torch.zeros(2).numpy()).tolist() == [0, 0], "numpy arrays"
    )  # fails between major versions
    facts: Facts = {"cuda_build": torch.version.cuda, "hip_build": torch.version.hip, "driver_cuda": None}
    with contextlib.suppress(Exception):  # a build without CUDA does not have it
        facts["driver_cuda"] = torch._C._cuda_getDriverVersion() or None
    facts["is_available"] = torch.cuda.is_available()  # warns where the driver is too old
    facts["devices"] = [_device(torch, index) for index in range(torch.cuda.device_count())]
    return facts


def _device(torch: Any, index: int) -> Facts:  # noqa: ANN401
    """A GPU, and whether it computes: a build need not have code for it."""
    try:
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        ones = torch.ones(3, 3, device=f"cuda:{index}")
        _expect(float((ones @ ones).sum()) == 27, "a product of matrices")
    except Exception as error:  # noqa: BLE001 - whatever a driver raises
        return {
            "error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        }
    capability = f"{properties.major}.{properties.minor}"
    return {"device": properties.name, "capability": capability, "free": free, "total": total}


def _torchvision(torchvision: Any) -> Facts:  # noqa: ANN401
    torch = importlib.import_module("torch")
    ops = importlib.import_module("torchvision.ops")
    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 6, 6]])
    kept = ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5)  # compiled code, of one release of torch
    _expect(kept.tolist() == [0, 2], "torchvision.ops.nms")
    return {"cuda_build": getattr(torchvision.version, "cuda", None), "requires": _torch_required()}


def _torch_required() -> str | None:
    """Which torch this torchvision says it needs, such as "==2.6.0"."""
    for line in importlib.metadata.requires("torchvision") or []:
        name, _, version = line.partition(";")[0].replace("(", " ").replace(")", " ").strip().partition(" ")
        for sign in ("==", ">=", "<", "~=", "!="):
            if name.startswith(f"torch{sign}"):
                return name.removeprefix("torch") + version.strip()
        if name == "torch":
            return version.strip() or None
    return None


def _scipy(_scipy: Any) -> Facts:  # noqa: ANN401
    stats = importlib.import_module("scipy.stats")
    _expect(abs(stats.norm.cdf(0) - 0.5) < 1e-12, "the normal distribution")
    return {}


def _faiss(faiss: Any) -> Facts:  # noqa: ANN401
    numpy = importlib.import_module("numpy")
    rows = numpy.arange(12, dtype=numpy.float32).reshape(4, 3)
    _, index = faiss.knn(rows, rows, 1)
    _expect(index.ravel().tolist() == [0, 1, 2, 3], "a search for four points")
    _expect(hasattr(faiss, "pairwise_indexed_L2sqr"), "pairwise_indexed_L2sqr")
    level = getattr(getattr(faiss, "SIMDConfig", None), "get_level_name", None)
    options = getattr(faiss, "get_compile_options", str)
    return {"simd": level() if level else options().replace("OPTIMIZE", "").strip() or None}


def _pillow(_pil: Any) -> Facts:  # noqa: ANN401
    features = importlib.import_module("PIL.features")
    importlib.import_module("PIL.Image")
    names = ("jpg", "libjpeg_turbo", "zlib", "webp", "avif", "libtiff")
    return {"codecs": {name: features.version(name) for name in names if features.check(name)}}


_WORK: dict[str, Callable[[Any], Facts]] = {
    "numpy": _numpy,
    "torch": _torch,
    "torchvision": _torchvision,
    "scipy": _scipy,
    "faiss": _faiss,
    "PIL": _pillow,
}


def _expect(is_right: bool, what: str) -> None:
    if not is_right:
        raise RuntimeError(f"{what} came out wrong")


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[1])
    main(sys.argv[2:])
