"""Fréchet distance between two feature sets seen as Gaussians (FID, FD-DINOv2, ...), and its extrapolation.

    FD = |mu_r - mu_f|^2 + Tr S_r + Tr S_f - 2 Tr (S_r S_f)^(1/2)

With any factors F' F = S, the last trace is the nuclear norm of F_r F_f', so no matrix square root is needed. With fewer
images than features, where covariances are singular, the centered features themselves are the factor.

References:
    Heusel et al. 2017, "GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium".
    Dowson and Landau 1982, "The Fréchet Distance between Multivariate Normal Distributions".
    Chong and Forsyth 2020, "Effectively Unbiased FID and Inception Score and Where to Find Them" (FD-infinity).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import FeatureError
from genpr.metrics.blocks import Blocks, held_on, mean_of
from genpr.validation import (
    Features,
    check_features,
    check_rows,
    check_same_width,
    choose_device,
    entry_point,
)

_EPS = torch.finfo(torch.float64).eps
_SYMMETRY = 1e-6  # of the largest entry; np.cov is symmetric to the last bit, covariances summed elsewhere need not be
_NEGATIVE = 1e-4  # of the largest eigenvalue; float32 covariances have such negative ones
_LEAST_FAKES, _SIZES = 5000, 15  # FD-infinity's smallest subset, and how many there are


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Mean and covariance of a feature set: all that the Fréchet distance knows of it."""

    mean: Tensor  # (d,) float64
    covariance: Tensor  # (d, d) float64, symmetric
    n: int | None = None  # rows they were computed from, which bounds the rank of the covariance by n - 1

    def __post_init__(self) -> None:
        d = len(self.mean) if self.mean.ndim == 1 else 0
        if d == 0 or self.covariance.shape != (d, d):
            shapes = f"{tuple(self.mean.shape)} and {tuple(self.covariance.shape)}"
            raise _gaussian_error(f"a mean (d,) and a covariance (d, d) are needed, not {shapes}")
        if not self.mean.isfinite().all() & self.covariance.isfinite().all():
            raise _gaussian_error("the mean or the covariance holds values that are not finite")
        skew = (self.covariance - self.covariance.T).abs().max()
        if skew > _SYMMETRY * self.covariance.abs().max():
            raise _gaussian_error(f"the covariance is not symmetric: entries differ by up to {skew:.3g}")
        if self.n is not None and self.n < 2:
            raise _gaussian_error(f"a covariance needs at least 2 rows, not n = {self.n}")

    @classmethod
    @entry_point
    def of(
        cls, features: Features, *, name: str = "features", device: str | torch.device = "auto"
    ) -> Gaussian:
        """Mean and unbiased covariance (over n - 1) of features, in two passes over blocks of rows.

        The second pass centers before it multiplies, so that features far from the origin lose nothing.
        Memory is a block and the (d, d) result, however long the set.
        """
        checked = check_features(features, name)
        check_rows(checked, name, k=1)
        where = choose_device(features, device)
        return _moments(held_on(checked, where), None, where)

    @classmethod
    @entry_point
    def from_moments(
        cls, mean: NDArray[Any] | Tensor, covariance: NDArray[Any] | Tensor, *, n: int | None = None
    ) -> Gaussian:
        """Moments computed elsewhere, such as `mu` and `sigma` of the .npz files of pytorch-fid."""
        return cls(_float64(mean), _float64(covariance), n)


@entry_point
def frechet_distance(
    real: Features | Gaussian, fake: Features | Gaussian, *, device: str | torch.device = "auto"
) -> float:
    """Fréchet distance between the Gaussians with the sets' means and unbiased covariances.

    It falls with the number of images (a finite set is a biased estimate), so compare equal numbers only.

    Args:
        real: (n, d) features of real images, n >= 2, or their `Gaussian`.
        fake: (m, d) features of generated images by the same extractor, m >= 2, or their `Gaussian`.
        device: "auto" is where the real tensor is if that is a GPU, else the best device here.

    Returns:
        The squared distance in feature units squared, as everyone reports it; never NaN, at least 0. Identical sets
        give 0 up to rounding, some 1e-14 of their total variance.

    Raises:
        FeatureError: Malformed, non-finite, too few rows, or different widths.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(500, 8))
        >>> round(frechet_distance(real, real + 1), 6)
        8.0
    """
    real, fake = _checked(real, "real"), _checked(fake, "fake")
    check_same_width(_matrix(real), _matrix(fake))
    where = choose_device(_matrix(real), device)
    return max(0.0, _distance(_half(real, where), _half(fake, where)))


@entry_point
def frechet_infinity(
    real: Features | Gaussian, fake: Features, *, device: str | torch.device = "auto"
) -> float:
    """The Fréchet distance extrapolated to infinitely many fakes; it may be negative for near-perfect generators.

    The intercept a of the line a + b / N fitted by least squares to the distances of all reals to subsets of N of the
    m fakes. As in dgm-eval, the 15 sizes N are evenly spaced from min(5000, max(m // 10, 2)) to m, rounded down, and
    the subset of each is `rng.choice(m, N, replace=False)` with one `rng = numpy.random.default_rng(0)` for all, in
    ascending order of size. The reals' own bias stays; and below N of some multiples of d the line is a rough guess.
    """
    rng = np.random.default_rng(0)
    real, checked = _checked(real, "real"), check_features(fake, "fake")
    check_same_width(_matrix(real), checked)
    m = len(checked)
    if m < 3:
        raise FeatureError(f"a line through subsets of fake needs at least 3 rows, found {m}", code="too-few")
    where = choose_device(_matrix(real), device)
    real_half, checked = _half(real, where), held_on(checked, where)
    sizes = np.linspace(min(_LEAST_FAKES, max(m // 10, 2)), m, _SIZES).astype(np.int64)
    distances = []
    for size in sizes:
        rows = torch.from_numpy(np.sort(rng.choice(m, size, replace=False)))  # sorted: disks like it
        distances.append(_distance(real_half, _half_of_rows(checked, rows.to(checked.device), where)))
    x, y = 1 / sizes, np.array(distances)
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    return float(y.mean() - slope * x.mean())


class _Half(NamedTuple):
    """One side of the distance: `factor` (r, d) is such that factor' factor is the covariance."""

    mean: Tensor
    trace: Tensor
    factor: Tensor


def _distance(real: _Half, fake: _Half) -> float:
    # On the CPU also for GPUs: on an H200 it is no faster (0.33 s for 2048 x 2048) and may not converge on singular matrices, and
    # to copy 2048 x 2048 numbers takes milliseconds. A choice by measured time would change the last bits between runs.
    fidelity = torch.linalg.svdvals((real.factor @ fake.factor.T).cpu()).sum()
    rest = (real.mean - fake.mean).square().sum() + real.trace + fake.trace
    return float(rest) - 2 * float(fidelity)


def _checked(side: Features | Gaussian, name: str) -> Tensor | Gaussian:
    if isinstance(side, Gaussian):
        return side
    features = check_features(side, name)
    check_rows(features, name, k=1)
    return features


def _matrix(side: Tensor | Gaussian) -> Tensor:
    """Something as wide as the features, and where they are."""
    return side.covariance if isinstance(side, Gaussian) else side


def _half(side: Tensor | Gaussian, device: torch.device) -> _Half:
    if isinstance(side, Gaussian):
        mean, covariance = (part.to(device, torch.float64) for part in (side.mean, side.covariance))
        return _Half(mean, covariance.trace(), _factor(covariance, side.n))
    return _half_of_rows(held_on(side, device), None, device)


def _half_of_rows(features: Tensor, rows: Tensor | None, device: torch.device) -> _Half:
    n = len(features) if rows is None else len(rows)
    if n > features.shape[1]:
        return _half(_moments(features, rows, device), device)
    held = torch.cat(list(Blocks(features, device, rows=rows)))  # no larger than a covariance
    mean = held.mean(dim=0)
    factor = (held - mean).div_((n - 1) ** 0.5)
    return _Half(mean, factor.square().sum(), factor)


def _moments(features: Tensor, rows: Tensor | None, device: torch.device) -> Gaussian:
    n, d = len(features) if rows is None else len(rows), features.shape[1]
    mean = mean_of(features, device, rows=rows)
    scatter = torch.zeros(d, d, dtype=torch.float64, device=device)
    for block in Blocks(features, device, rows=rows):
        centered = block - mean
        scatter.addmm_(centered.T, centered)
    return Gaussian(mean, (scatter + scatter.T) / (2 * (n - 1)), n)


def _factor(covariance: Tensor, n: int | None) -> Tensor:
    """(r, d) F with F' F = covariance: Cholesky's where it is definite, else from the eigenvalues above noise."""
    d = len(covariance)
    lower: Tensor
    lower, failed = torch.linalg.cholesky_ex(covariance)
    pivots = lower.diagonal().square()
    is_definite = (failed == 0) & (pivots.min() > d * _EPS * pivots.max())
    if (n is None or n > d) and is_definite:
        return lower.T
    values, vectors = torch.linalg.eigh(covariance)
    largest = values.abs().max()
    if values[0] < -_NEGATIVE * largest:
        raise _gaussian_error(f"the covariance has a negative eigenvalue, {float(values[0]):.3g}")
    # A zero eigenvalue comes out as noise of 1e-16 of the largest, whose root would count as 1e-8.
    kept = values > d * _EPS * largest
    if n is not None:
        kept[: max(0, d - (n - 1))] = False
    factor: Tensor = values[kept].sqrt()[:, None] * vectors[:, kept].T
    return factor


def _float64(values: NDArray[Any] | Tensor) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().to(torch.float64)
    return torch.from_numpy(np.array(values, dtype=np.float64))


def _gaussian_error(message: str) -> FeatureError:
    return FeatureError(f"not a Gaussian: {message}", code="bad-gaussian")
