"""The process of one tool."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import _extractor_tools
import numpy as np
import torch
from _extractor_cases import Found, Job
from _extractor_memory import TreeMemory

from genpr.runtime import state_guard


def do(job: Job) -> Found:
    """Load the network, warm up on a few images, then embed the folder."""
    torch.manual_seed(0)
    weights = None if job.weights is None else Path(job.weights)
    load = getattr(_extractor_tools, job.function)
    embed: _extractor_tools.Embed = load(job.extractor, weights, device=job.device, batch_size=job.batch_size)
    embed(Path(job.warm_up))
    if job.mode == "time":
        return Found(seconds=_time(embed, job)[0])
    if job.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    # Peers leave TensorFloat-32 on where a GPU has it, which moves features by 1e-3; they are timed with it.
    with state_guard(), TreeMemory() as memory:
        seconds, features = _time(embed, job)
    np.save(job.features, features.astype(np.float32))
    return Found(
        seconds=seconds,
        peak_bytes=memory.peak,
        level_bytes=memory.level,
        cuda_peak_bytes=torch.cuda.max_memory_allocated() if job.device == "cuda" else None,
    )


def _time(embed: _extractor_tools.Embed, job: Job) -> tuple[float, _extractor_tools.Rows]:
    start = perf_counter()
    features = embed(Path(job.folder))  # the features are on the CPU, so a GPU has finished
    return perf_counter() - start, features
