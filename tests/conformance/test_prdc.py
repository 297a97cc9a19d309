"""`ties="strict"` is what the prdc package computes."""

import numpy as np
import pytest
from peers import Peer

from genpr.metrics.manifold import manifold_metrics

prdc = Peer("prdc")


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize(
    ("n", "m", "d", "shift"),
    [(300, 300, 8, 0.0), (400, 250, 64, 0.3), (150, 500, 2, 1.0), (200, 200, 512, 0.0)],
)
def test_strict_ties_equal_prdc(n, m, d, shift, k, rng):
    # Both must see the same values: float64 that float32 can hold, so that prdc computes in float64.
    real = rng.normal(size=(n, d)).astype(np.float32).astype(np.float64)
    fake = rng.normal(shift, 1.1, (m, d)).astype(np.float32).astype(np.float64)
    expected = prdc.compute_prdc(real, fake, k)
    assert manifold_metrics(real, fake, k=k, ties="strict")._asdict() == pytest.approx(expected, abs=1e-12)
