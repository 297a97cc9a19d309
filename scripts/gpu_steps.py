"""Measurements of scripts/gpu_check, each in its own process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import torch

import genpr
from genpr.errors import GenprError
from genpr.metrics.manifold import KNNManifold
from genpr.neighbors.engine import plain_arithmetic
from genpr.notices import collect_notices

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))
from _embedding import load_genpr, make_images, write_random_weights
from bench_embedding import rates

CUDA = torch.device("cuda")
Rows: TypeAlias = Iterator[tuple[bool, dict[str, Any]]]
"""Whether a row of the table is correct, and the row."""


def timed(work: Callable[[], object], *, repeats: int = 5) -> float:
    """Return the median seconds of one call, including synchronization with the GPU, after one warm-up call."""
    seconds = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = perf_counter()
        work()
        torch.cuda.synchronize()
        seconds.append(perf_counter() - start)
    return statistics.median(seconds[1:])


def probe(d: int, rows: int) -> Rows:
    """Describe the machine, test the assumptions of the bounds, and measure its rates."""
    free, total = torch.cuda.mem_get_info()
    facts: dict[str, Any] = {
        "GPU": torch.cuda.get_device_name(),
        "memory, free": f"{total / 1e9:.1f} GB, {free / 1e9:.1f} GB",
        "driver, CUDA of torch": f"{_driver()}, {torch.version.cuda}",
        "torch, python": f"{torch.__version__}, {sys.version.split()[0]}",
    }
    torch.backends.cuda.matmul.allow_tf32 = True  # a user's setting, which the guard has to undo
    with plain_arithmetic():
        single, half = _single_error(), _half_error(d, rows)
        facts |= _rates(d, rows)
    yield single <= 1, {"fact": "error of float32 products over the IEEE bound", "value": single}
    is_ok = isinstance(half, str) or half <= 1
    yield is_ok, {"fact": "error of float16 products over their bound", "value": half}
    yield from ((True, {"fact": name, "value": value}) for name, value in facts.items())


def _driver() -> str | None:
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def _single_error() -> float:
    """(1 + 2^-12)^2 has 25 bits; TF32 and float16 factors lose 2^-12 of it."""
    ones = torch.full((256, 256), 1 + 2.0**-12, device=CUDA)
    exact = 256 * (1 + 2.0**-12) ** 2
    return float(((ones @ ones).double() - exact).abs().max()) / (256 * exact * 2.0**-24)


def _half_error(d: int, rows: int) -> float | str:
    """Errors of float32 sums of float16 products, with mixed and equal signs; not available before torch 2.8."""
    gamma = d * 2.0**-22 / (1 - d * 2.0**-22)
    worst = 0.0
    for shift in (0.0, 3.0):
        x, y = ((torch.randn(min(rows, 2048), d, device=CUDA) + shift).half() for _ in range(2))
        try:
            found = torch.mm(x, y.T, out_dtype=torch.float32).double()
        except (TypeError, RuntimeError) as error:
            return f"not there: {' '.join(str(error).split())[:80]}"
        bound = x.abs().double() @ y.abs().double().T * gamma
        worst = max(worst, float(((found - x.double() @ y.double().T).abs() / bound).max()))
    return worst


def _rates(d: int, rows: int) -> dict[str, float]:
    """Rates of products and copies, and milliseconds of operations that may be slow on a GPU."""
    x, y, there = (torch.randn(rows, d, device=CUDA) for _ in range(3))
    half, double, square = (x.half(), y.half()), (x.double(), y.double()), torch.randn(d, d).double()
    pageable, on_gpu, flags = x.cpu(), square.cuda(), torch.rand(rows, rows, device=CUDA) > 0.9999
    pinned, tera, giga = pageable.pin_memory(), 2e-12 * rows**2 * d, 4e-9 * rows * d
    rates: dict[str, tuple[Callable[[], object], float]] = {
        "float32 TFLOP/s": (lambda: x @ y.T, tera),
        "float16 TFLOP/s": (lambda: half[0] @ half[1].T, tera),
        "float64 TFLOP/s": (lambda: double[0] @ double[1].T, tera),
        "to GPU, pinned, GB/s": (lambda: there.copy_(pinned, non_blocking=True), giga),
        "to GPU, pageable, GB/s": (lambda: there.copy_(pageable), giga),
        "to host, pinned, GB/s": (lambda: pinned.copy_(there, non_blocking=True), giga),
    }
    slow: dict[str, Callable[[], object]] = {
        "nonzero, ms": lambda: flags.view(-1).nonzero(),
        "svdvals on the GPU, ms": lambda: torch.linalg.svdvals(on_gpu),
        "svdvals on the CPU, ms": lambda: torch.linalg.svdvals(square),
    }
    found = {name: amount / timed(work) for name, (work, amount) in rates.items()}
    found |= {name: 1e3 * timed(work, repeats=1) for name, work in slow.items()}
    return {name: round(value, 3) for name, value in found.items()}


def hard_sets(n: int, d: int) -> dict[str, np.ndarray]:
    """Features at which shortcuts fail: ties, copies, outliers, extreme scales, far from the origin."""
    rng = np.random.default_rng(0)
    sets = {
        "gaussian": rng.normal(size=(n, 96)),
        "lattice": rng.integers(0, 3, (n, 6)),
        "copies": rng.normal(size=(n // 10, 16)).repeat(10, axis=0),
        "outliers": np.concatenate([rng.normal(size=(n - 10, 32)), 1e6 * rng.normal(size=(10, 32))]),
        "tiny": 1e-20 * rng.normal(size=(n, 24)),
        "huge": 1e15 * rng.normal(size=(n, 24)),
        "wide": rng.normal(size=(n // 2, 4096)),
        f"off-center {5 * n:,} x {d:,}": 5 + 0.05 * rng.normal(size=(5 * n, d)),
    }
    return {name: values.astype(np.float32) for name, values in sets.items()}


def equality(d: int, rows: int) -> Rows:
    """Compare radii, counts and metrics of every hard set on the CPU and on the GPU; all bits must be equal."""
    for name, real in hard_sets(rows, d).items():
        rng = np.random.default_rng(1)
        moved = real + 0.1 * real.std() * (rng.random((len(real), 1)) < 0.5)
        fake = rng.permutation(moved).astype(np.float32)
        on_cpu, on_gpu = (_answers(real, fake, device) for device in ("cpu", "cuda"))
        differ = [key for key, value in on_cpu.items() if not np.array_equal(value, on_gpu[key])]
        yield not differ, {"features": name, "what differs from the CPU": ", ".join(differ) or "nothing"}


def _answers(real: np.ndarray, fake: np.ndarray, device: str) -> dict[str, Any]:
    manifold = KNNManifold.fit(real, k=5, device=device)
    found = {"radii": manifold.sq_radii.cpu().numpy(), "counts": manifold.count(fake).cpu().numpy()}
    for ties in ("closed", "strict"):
        found[ties] = np.array(genpr.manifold_metrics(real, fake, k=3, ties=ties, device=device))
    return found


def memory(d: int, rows: int) -> Rows:
    """Score on a GPU with little free memory: "auto" must give the values of the CPU, "cuda" these or the code `oom`."""
    rng = np.random.default_rng(0)
    real, fake = (rng.normal(size=(5 * rows, d)).astype(np.float32) for _ in range(2))
    expected = _values(real, fake, "cpu")
    for share in (40.0, 4.0, 0.1):
        free, _ = torch.cuda.mem_get_info()
        filler = torch.empty(max(free - int(share * 2 * real.nbytes), 0), dtype=torch.uint8, device=CUDA)
        for device in ("auto", "cuda"):
            outcome, codes = _outcome(real, fake, device, expected)
            row = {"left, x features": share, "device": device, "outcome": outcome, "notices": codes}
            yield outcome in {"equal", "oom"}, row
        del filler
        torch.cuda.empty_cache()


def _values(real: np.ndarray, fake: np.ndarray, device: str) -> dict[str, float]:
    result = genpr.score(real, fake, device=device, intervals=False, control=False)
    return {name: metric.value for name, metric in result.metrics.items()}


def _outcome(real: np.ndarray, fake: np.ndarray, device: str, expected: dict[str, float]) -> tuple[str, str]:
    with collect_notices() as notices:
        try:
            outcome = "equal" if _values(real, fake, device) == expected else "DIFFERENT"
        except GenprError as error:
            outcome = error.code if device == "cuda" else f"{error.code}, though the CPU has memory"
        except Exception as error:  # noqa: BLE001 - a user must not see it
            outcome = f"{type(error).__name__}: {str(error)[:60]}"
    return outcome, ", ".join(sorted({notice.code for notice in notices}))


def embedding(_: int, images: int, *extractors: str) -> Rows:
    """Measure images per second from PNG files to features, and of each part alone, with random weights."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, weights = Path(scratch) / "images", Path(scratch)
        folder.mkdir()
        make_images(folder, count=images, size=256)
        for name in extractors:
            extractor = load_genpr(name, write_random_weights(name, weights), "cuda")
            torch.cuda.reset_peak_memory_stats()
            found = rates(extractor, folder, batch_size=min(64, images), rounds=2)
            peak = torch.cuda.max_memory_allocated() / 1e9
            shown = {f"{part}, images/s": round(rate, 1) for part, rate in found.items()}
            yield True, {"extractor": name, **shown, "peak GB": round(peak, 2)}


def main(step: str, answer: str, d: str, rows: str, *more: str) -> int:
    """Print the rows of a step as they are measured, and return the exit code."""
    table, code = [], 0
    for is_ok, row in globals()[step](int(d), int(rows), *more):
        table.append(row)
        code = code if is_ok else 1
        Path(answer).write_text(json.dumps(table, indent=1))
        print(*row.values(), sep=", ")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
