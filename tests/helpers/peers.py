"""Packages that a few tests need, imported on first use, since every worker imports all test files."""

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


def by_torch_fidelity(real, fake, k, *, in_parts=False):
    """Precision, recall and F-score; its first input is the fakes."""
    metric_prc = pytest.importorskip("torch_fidelity.metric_prc")
    options = {"prc_neighborhood": k, "prc_batch_size": 128, "save_cpu_ram": in_parts, "verbose": False}
    values = metric_prc.prc_features_to_metric(torch.from_numpy(fake), torch.from_numpy(real), **options)
    return values["precision"], values["recall"], values["f_score"]
