"""Published tools, each called through its own entry point."""

from __future__ import annotations

import importlib
import io
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import Any

import numpy as np
from _cases import Outcome, Ties
from torch import Tensor


def genpr_metrics(real: Tensor, fake: Tensor, k: int, ties: Ties) -> Outcome:
    """`genpr.manifold_metrics`: all four metrics."""
    import genpr

    if find_spec("faiss") is not None:
        importlib.import_module("faiss")  # whether or not the small warm-up needs it
    metrics = genpr.manifold_metrics(real, fake, k=k, ties=ties, device=real.device)
    return Outcome(metrics._asdict())


def prdc(real: Tensor, fake: Tensor, k: int) -> Outcome:
    """`prdc.compute_prdc`: all four metrics from whole n x n distance matrices."""
    compute_prdc = importlib.import_module("prdc").compute_prdc
    with redirect_stdout(io.StringIO()):  # prdc prints the sizes
        values: dict[str, Any] = compute_prdc(real.numpy(), fake.numpy(), k)
    return Outcome({name: float(value) for name, value in values.items()})


def torch_fidelity(real: Tensor, fake: Tensor, k: int) -> Outcome:
    """Compute metrics as `torch_fidelity.calculate_metrics(prc=True)` does with its default settings."""
    return _torch_fidelity(real, fake, k, save_cpu_ram=False)


def torch_fidelity_save_ram(real: Tensor, fake: Tensor, k: int) -> Outcome:
    """The same with its `save_cpu_ram=True`: blocks of 10,000 rows, and a fourth pass."""
    return _torch_fidelity(real, fake, k, save_cpu_ram=True)


def _torch_fidelity(real: Tensor, fake: Tensor, k: int, *, save_cpu_ram: bool) -> Outcome:
    metric_prc = importlib.import_module("torch_fidelity.metric_prc")
    values: dict[str, float] = metric_prc.prc_features_to_metric(
        fake,  # its first argument is the generated set
        real,
        prc_neighborhood=k,
        prc_batch_size=10_000,  # its default
        save_cpu_ram=save_cpu_ram,
        verbose=False,
    )
    return Outcome({name: values[name] for name in ("precision", "recall")})


def scikit_learn(real: Tensor, fake: Tensor, k: int) -> Outcome:
    """Brute-force `NearestNeighbors` for the radii, `pairwise_distances_chunked` for the memberships in balls."""
    x, y = real.numpy(), fake.numpy()
    pairwise_distances_chunked = importlib.import_module("sklearn.metrics").pairwise_distances_chunked
    real_radii, fake_radii = _sklearn_radii(x, k), _sklearn_radii(y, k)
    inside_real, inside_fake = np.zeros(len(y), dtype=np.bool_), np.zeros(len(x), dtype=np.bool_)
    n_pairs = n_covered = start = 0
    for distances in pairwise_distances_chunked(x, y, metric="euclidean", working_memory=256):
        rows = slice(start, start + len(distances))
        inside = distances <= real_radii[rows, None]
        n_pairs += int(np.count_nonzero(inside))
        n_covered += int(np.count_nonzero(inside.any(axis=1)))
        inside_real |= inside.any(axis=0)
        inside_fake[rows] = (distances <= fake_radii).any(axis=1)
        start = rows.stop
    return Outcome(
        {
            "precision": float(inside_real.mean()),
            "recall": float(inside_fake.mean()),
            "density": n_pairs / (k * len(y)),
            "coverage": n_covered / len(x),
        }
    )


def _sklearn_radii(points: Any, k: int) -> Any:  # noqa: ANN401 - scikit-learn has no types
    neighbors = importlib.import_module("sklearn.neighbors")
    search = neighbors.NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points)
    distances, _ = search.kneighbors()  # of the points themselves, each without itself
    return distances[:, -1]
