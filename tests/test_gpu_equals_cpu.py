"""Public functions on a GPU and on the CPU: counts, radii and decisions have equal bits, distances are equal to 1e-6."""

import dataclasses

import numpy as np
import pytest
import torch
from public_calls import FAKE, PUBLIC, REAL, fields_of, of_score

from genpr.metrics.registry import BALLS

pytestmark = pytest.mark.gpu
# Sums in another order; all others are of counts, or of sums in one order.
ROUNDED = {
    "cmmd",
    "extractor",
    "frechet",
    "frechet infinity",
    "images",
    "inception",
    "kernel",
    "mind",
    "moments",
}
ROUNDED |= {"diversity", "reconstruct", "score", "vendi"}


def plain(value):
    """Nested lists of numbers and strings."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist()
    if dataclasses.is_dataclass(value):
        return plain(fields_of(value))
    if isinstance(value, dict):
        return [plain([*item]) for item in value.items()]
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def numbers(value):
    for each in value if isinstance(value, list) else [value]:
        yield from numbers(each) if isinstance(each, list) else [each]


@pytest.mark.parametrize("name", PUBLIC)
def test_gpu_results_equal_cpu_results(name, tmp_path):
    on_cpu = plain(PUBLIC[name]({"device": "cpu"}, tmp_path))
    with torch.autocast("cuda", dtype=torch.bfloat16):  # as in a training step
        on_gpu = plain(PUBLIC[name]({"device": "cuda"}, tmp_path))
    if name not in ROUNDED:
        assert repr(on_gpu) == repr(on_cpu)
    # A feature near zero is a sum of terms as large as the largest feature, and so are its rounding errors.
    scale = max(map(abs, numbers(on_cpu))) if name == "extractor" else 0.0
    for one, other in zip(numbers(on_gpu), numbers(on_cpu), strict=True):
        if isinstance(other, float):
            assert one == pytest.approx(other, rel=1e-6, abs=max(1e-6 * scale, 1e-12), nan_ok=True)
        else:
            assert one == other


def test_intervals_do_not_depend_on_shape_dependent_sums(gpu, tmp_path):
    if gpu is not None:
        gpu.by_shape = True
    call = of_score(REAL, FAKE, metrics=[name for name, metric in BALLS.items() if metric.halves])
    on_cpu, on_gpu = (call({"device": device}, tmp_path) for device in ("cpu", "cuda"))
    assert on_gpu == on_cpu
