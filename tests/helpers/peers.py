"""Packages that a few tests need, imported on first use, since every worker imports all test files."""

import numpy as np
import pytest
import torch


class Peer:
    """A module; a test that uses one that is not installed is skipped."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("_"):  # pytest asks each name of a file whether it is a fixture
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)


def by_prdc(real, fake, k):
    """Precision, recall, density and coverage."""
    values = pytest.importorskip("prdc").compute_prdc(real, fake, nearest_k=k)
    return tuple(float(values[name]) for name in ("precision", "recall", "density", "coverage"))


def by_piq(real, fake, k):
    """Precision and recall."""
    metric = pytest.importorskip("piq.pr").PR(nearest_k=k)
    return tuple(map(float, metric.compute_metric(torch.from_numpy(real), torch.from_numpy(fake))))


def by_torch_fidelity(real, fake, k):
    """Precision, recall and F-score; its first input is the fakes."""
    metric_prc = pytest.importorskip("torch_fidelity.metric_prc")
    options = {"prc_neighborhood": k, "prc_batch_size": 128, "verbose": False}
    values = metric_prc.prc_features_to_metric(torch.from_numpy(fake), torch.from_numpy(real), **options)
    return values["precision"], values["recall"], values["f_score"]


def by_adm(real, fake, k, dtype):
    """Precision and recall as evaluations/evaluator.py of openai/guided-diffusion at 22e0df8, which uses float16."""
    return _in_closed_balls(real, fake, k, dtype, _adm_distances)


def by_stylegan3(real, fake, k, dtype):
    """Precision and recall as metrics/precision_recall.py of NVlabs/stylegan3 at c233a91, which uses float16."""
    return _in_closed_balls(real, fake, k, dtype, _stylegan3_distances)


def _in_closed_balls(real, fake, k, dtype, distances):
    """Radii are the (k + 1)-th smallest distances of a row, which include that to itself."""
    real, fake = real.astype(dtype), fake.astype(dtype)
    of_real, of_fake = (np.partition(distances(each, each), k, axis=1)[:, k] for each in (real, fake))
    between = distances(real, fake)
    inside = (between <= of_real[:, None]).any(axis=0), (between <= of_fake).any(axis=1)
    return tuple(float(each.mean()) for each in inside)


def _adm_distances(u, v):
    """Squared distances; every operation rounds, while a sum of products rounds once, as on tensor cores."""
    products, (of_u, of_v) = _products(u, v), map(_sq_norms, (u, v))
    return np.maximum(of_u[:, None] - 2 * products + of_v, u.dtype.type(0))


def _stylegan3_distances(u, v):
    """The matrix form of torch.cdist: one product of vectors widened by the norms, and its root."""
    wide_u = np.column_stack([-2 * u, _sq_norms(u), np.ones_like(u[:, 0])])
    wide_v = np.column_stack([v, np.ones_like(v[:, 0]), _sq_norms(v)])
    return np.sqrt(np.maximum(_products(wide_u, wide_v), u.dtype.type(0)))


def _products(u, v):
    return (u.astype(np.float64) @ v.astype(np.float64).T).astype(u.dtype)


def _sq_norms(x):
    return np.square(x).sum(axis=1, dtype=np.float64).astype(x.dtype)
