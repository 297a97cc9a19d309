"""The audited metrics from whole distance matrices: an account of their definitions without any code of genpr."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def sq_distances(x: NDArray, y: NDArray) -> NDArray:
    """(n, m), float64. Distances that products cannot tell apart are summed difference by difference."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    if x.shape[1] <= 3:
        return sum((x[:, c, None] - y[:, c]) ** 2 for c in range(x.shape[1]))
    x_norms, y_norms = (x**2).sum(axis=1), (y**2).sum(axis=1)
    sq = x @ y.T
    sq *= -2
    sq += x_norms[:, None]
    sq += y_norms
    i, j = np.nonzero(sq < 1e-6 * (x_norms.max() + y_norms.max()))
    sq[i, j] = ((x[i] - y[j]) ** 2).sum(axis=1)
    return sq


def own_sq_radii(x: NDArray, ks: list[int]) -> dict[int, NDArray]:
    """By k, to the k-th nearest other row (n,)."""
    sq = sq_distances(x, x)
    np.fill_diagonal(sq, -1)
    sq.partition(max(ks), axis=1)
    near = np.sort(sq[:, : max(ks) + 1], axis=1)
    return {k: near[:, k] for k in ks}


def all_metrics(real: NDArray, fake: NDArray) -> dict[str, float]:
    """All that ship, by name."""
    real_sq = own_sq_radii(real, [3, 4, 5, 15])
    fake_sq = own_sq_radii(fake, [3, 4, 5, 15])
    sq = sq_distances(real, fake)
    in_real = {k: sq <= sq_radii[:, None] for k, sq_radii in real_sq.items()}
    in_fake = {k: sq <= sq_radii for k, sq_radii in fake_sq.items()}
    complement = in_fake[5].any(axis=0).mean()
    return {
        "precision": in_real[3].any(axis=0).mean(),
        "recall": in_fake[3].any(axis=1).mean(),
        "density": in_real[5].sum() / (5 * len(fake)),
        "coverage": in_real[5].any(axis=1).mean(),
        "complement_precision": complement,
        "symmetric_precision": min(in_real[5].any(axis=0).mean(), complement),
        "symmetric_recall": min(in_fake[5].any(axis=1).mean(), in_real[5].any(axis=1).mean()),
        "precision_cover": (in_fake[15].sum(axis=0) >= 5).mean(),
        "recall_cover": (in_real[15].sum(axis=1) >= 5).mean(),
        "clipped_density": _clipped_density(real, sq, real_sq[5]),
        "clipped_coverage": _clipped_coverage(in_real[5], *sq.shape),
        "p_precision": _inside(sq, real_sq[4], axis=0),
        "p_recall": _inside(sq, fake_sq[4], axis=1),
    }


def _clipped_density(real: NDArray, sq: NDArray, sq_radii: NDArray, k: int = 5) -> float:
    radii = np.sqrt(sq_radii)
    clipped = np.minimum(sq_radii, np.median(radii) ** 2)[:, None]
    own = sq_distances(real, real) <= clipped
    np.fill_diagonal(own, val=False)
    of_fakes = np.minimum(1, (sq <= clipped).sum(axis=0) / k).mean()
    of_reals = np.minimum(1, own.sum(axis=0) / k).mean()
    return min(1.0, of_fakes / of_reals)


def _clipped_coverage(inside: NDArray, n: int, m: int, k: int = 5) -> float:
    """The least share of good fakes whose expected value is the one that was seen, in steps of one fake."""
    raw = np.minimum(1, inside.sum(axis=1) / k).mean()
    good = np.arange(m + 1)[:, None]
    expected = stats.hypergeom.sf(np.arange(k), n + good - 1, good, k + np.arange(k)).mean(axis=1)
    return np.searchsorted(expected, raw) / (m + 1)


def _inside(sq: NDArray, sq_radii: NDArray, axis: int) -> float:
    radius = 1.2 * np.sqrt(sq_radii).mean()
    if radius == 0:
        return float((sq == 0).any(axis=axis).mean())
    logs = np.zeros_like(sq)
    with np.errstate(divide="ignore"):
        np.log(sq / radius**2, out=logs, where=sq < radius**2)
    return float(np.mean(1 - np.exp(logs.sum(axis=axis) / 2)))
