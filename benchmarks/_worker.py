"""The process of one case."""

from __future__ import annotations

from time import perf_counter

import torch
from _cases import Case, Measurement, Outcome
from _families import read_rows
from _memory import PeakMemory
from _tools import TOOLS, Run, genpr_with

_WARM_UP_ROWS = 500
_GEMM_ROWS, _GEMM_INNER = 4096, 2048


def measure(case: Case) -> Measurement:
    """Load the features, warm up on a few rows, then measure the computation."""
    tool = TOOLS[case.tool]
    real = read_rows(case.real_path, case.n).to(case.device)
    fake = read_rows(case.fake_path, case.n).to(case.device)
    rows = case.n if case.device == "cuda" else _WARM_UP_ROWS  # a GPU also loads kernels and allocates memory
    tool.run(real[:rows], fake[:rows], case.k)  # imports and thread pools are not timed
    cuda_level = _reset_cuda_peak() if case.device == "cuda" else None
    with PeakMemory() as memory:
        seconds, outcomes = _repeat(tool.run, real, fake, case)
    values = {case.ties[0]: outcomes[-1].values}
    for ties in case.ties[1:]:
        values[ties] = genpr_with(ties)(real, fake, case.k).values
    return Measurement(
        seconds=seconds,
        phases=outcomes[seconds.index(min(seconds))].phases,
        peak_bytes=memory.above_level,
        cuda_peak_bytes=None if cuda_level is None else torch.cuda.max_memory_allocated() - cuda_level,
        values=values,
    )


def _repeat(
    run: Run, real: torch.Tensor, fake: torch.Tensor, case: Case
) -> tuple[list[float], list[Outcome]]:
    """Time repeats until there are enough of them or they have taken long enough."""
    seconds: list[float] = []
    outcomes: list[Outcome] = []
    while len(seconds) < case.repeats and sum(seconds) < case.repeat_seconds:
        _wait_for(case.device)
        start = perf_counter()
        outcomes.append(run(real, fake, case.k))
        _wait_for(case.device)
        seconds.append(perf_counter() - start)
    return seconds, outcomes


def _wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _reset_cuda_peak() -> int:
    _wait_for("cuda")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def gemm_gflops(device: str) -> float:
    """float32 matrix product rate: the best of several 4096 x 2048 by 2048 x 4096 products into one buffer."""
    x = torch.randn(_GEMM_ROWS, _GEMM_INNER, device=device)
    y = torch.randn(_GEMM_ROWS, _GEMM_INNER, device=device)
    out = torch.empty(_GEMM_ROWS, _GEMM_ROWS, device=device)
    best = float("inf")
    for _ in range(8):
        start = perf_counter()
        torch.mm(x, y.T, out=out)
        _wait_for(device)
        best = min(best, perf_counter() - start)
    return 2 * _GEMM_ROWS**2 * _GEMM_INNER / best / 1e9
