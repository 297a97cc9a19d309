"""Scoring leaves no trace in torch or numpy."""

import numpy as np
import pytest
import torch

from genpr.metrics.manifold import KNNManifold, manifold_metrics


def _state():
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002 - the global state is what must not change
        np.geterr(),
    )


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_flags_and_random_streams_are_left_as_they_were(precision, rng):
    real, fake = rng.normal(5, 0.05, (2, 80, 32))
    plain = manifold_metrics(real, fake)
    torch.set_float32_matmul_precision(precision)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    try:
        before = _state()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert manifold_metrics(real, fake) == plain
            KNNManifold.fit(real).contains(fake)
        assert _state() == before
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_inference_mode_gives_the_same(rng):
    real, fake = torch.from_numpy(rng.normal(size=(2, 60, 8)))
    with torch.inference_mode():
        inside = manifold_metrics(real, fake)
    assert inside == manifold_metrics(real, fake)
