"""Fréchet distance between two feature sets seen as Gaussians (FID, FD-DINOv2, ...), and its extrapolation.

    FD = |mu_r - mu_f|^2 + Tr S_r + Tr S_f - 2 Tr (S_r S_f)^(1/2)

With any factors F' F = S, the last trace is the nuclear norm of F_r F_f', so no matrix square root is needed. With fewer
images than features, where covariances are singular, the centered features themselves are the factor.

**Influence.** Let F_r F_f' = U S V' and z = U' F_r^-T (x - mu_r) for reals, V' F_f^-T (y - mu_f) for fakes. To first order,
a real x moves the distance by 2 (mu_r - mu_f) . (x - mu_r) + |x - mu_r|^2 - sum s_i z_i^2 less the mean of that, and a fake by
the same with the roles exchanged. The second order is that of the means, |e_r - e_f|^2, plus

    1/2 sum_ij c_ij (w_ij^r - w_ij^f)^2, c_ij = s_i s_j / (s_i + s_j),

where w are the errors of the covariances of z: the mean over rows of z_i z_j less its expectation. For any two covariances,
whether equal or not, this follows from that of the nuclear norm of S + E, sum_{i<j} (E_ij - E_ji)^2 / (2 (s_i + s_j)), and of
the square roots of 1 + w. With K_ij the mean of z_i^2 z_j^2 over the rows of a set (1 + 2 d_ij for normal ones), its mean (the
bias) is that of sum_ij c_ij (K_ij - d_ij) / (2 n), summed over the sets, and its variance (1/n^2 for both sets, and 2 / (n m)
with K of either)

    1/2 sum_ij (2 c_ij^2 K_ij K_ij' [i != j] + c_ii c_jj (K_ij - 1) (K_ij' - 1)),

but for moments of z of three and four different coordinates. The second order also has terms of a row with itself, which
are part of the contribution of each row: it moves the distance by half of h = sum_ij c_ij z_i^2 z_j^2 - 2 sum_i c_ii z_i^2
over n, but the first order, computed at the sample, contains all of it. So half of it is subtracted from phi. S is too
small, since 2 sum s is lower by the bias of the distance; so c is scaled up by 1 / (1 - bias / (2 sum s)).

References:
    Heusel et al. 2017, "GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium".
    Dowson and Landau 1982, "The Fréchet Distance between Multivariate Normal Distributions".
    Chong and Forsyth 2020, "Effectively Unbiased FID and Inception Score and Where to Find Them" (FD-infinity).
    Rippl, Munk and Sturm 2016, "Limit laws of the empirical Wasserstein distance: Gaussian distributions" (the first order).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import FeatureError
from genpr.metrics.blocks import Blocks, held_on, mean_of
from genpr.metrics.influence import Influence, SquaredDistance
from genpr.validation import (
    Features,
    check_features,
    check_moments,
    check_rows,
    check_same_width,
    choose_device,
    entry_point,
)

_EPS = torch.finfo(torch.float64).eps
_NEGATIVE = 1e-4  # of the largest eigenvalue; float32 covariances have such negative ones
_LEAST_FAKES, _SIZES = 5000, 15  # FD-infinity's smallest subset, and how many there are
_COLUMNS, _ROUNDING = 48, 1e-10  # of the matrix c, and of its eigenvalues
_COV = "np.cov(features, rowvar=False)"  # for messages
_ROWS = 4096  # of each set, from which the second order is computed


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Mean and covariance of a feature set, the inputs of the Fréchet distance."""

    mean: Tensor  # (d,) float64
    covariance: Tensor  # (d, d) float64, symmetric
    n: int | None = None  # rows they were computed from, which bounds the rank of the covariance by n - 1
    features: Tensor | None = None  # (n, d) these rows, for the influence of each

    def __post_init__(self) -> None:
        try:
            check_moments(self.mean.cpu().numpy(), self.covariance.cpu().numpy())
        except ValueError as error:
            raise _gaussian_error(f"{error}; use features.mean(0) and {_COV}") from error

    @classmethod
    @entry_point
    def from_features(
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
    def from_moments(cls, mean: NDArray[Any], covariance: NDArray[Any]) -> Gaussian:
        """Moments computed elsewhere, such as `mu` and `sigma` of the .npz files of pytorch-fid."""
        moments = [torch.from_numpy(np.array(each, dtype=np.float64)) for each in (mean, covariance)]
        return cls(moments[0], moments[1])


@entry_point
def frechet_distance(
    real: Features | Gaussian, fake: Features | Gaussian, *, device: str | torch.device = "auto"
) -> float:
    """Fréchet distance between the Gaussians with the sets' means and unbiased covariances.

    It falls with the number of images (a finite set is a biased estimate), so compare equal numbers only.

    Args:
        real: (n, d) features of real images, n >= 2, or their `Gaussian`.
        fake: (m, d) features of generated images by the same extractor, m >= 2, or their `Gaussian`.
        device: "auto" is the GPU that holds the input, else the best device available.

    Returns:
        The squared distance in feature units squared, as usually reported; never NaN, at least 0. Identical sets
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
    return frechet_influence(real, fake, device=device, has_influence=False)[0]


def frechet_influence(
    real: Features | Gaussian,
    fake: Features | Gaussian,
    *,
    device: str | torch.device = "auto",
    has_influence: bool = True,
) -> tuple[float, Influence | None]:
    """`frechet_distance` with the influence of each image; None unless each set has more images than features, not all alike.

    None also if the covariances share no direction. Reals given by their moments alone count as fixed. Fakes given by their
    moments alone have no influence.
    """
    real, fake = _checked(real, "real"), _checked(fake, "fake")
    check_same_width(_matrix(real), _matrix(fake))
    where = choose_device(_matrix(real), device)
    sides = [side if isinstance(side, Gaussian) else held_on(side, where) for side in (real, fake)]
    halves = [_half(side, where) for side in sides]
    value = max(0.0, _distance(*halves))
    reals, fakes = (side.features if isinstance(side, Gaussian) else side for side in sides)
    enough = all(rows is None or len(rows) > rows.shape[1] for rows in (reals, fakes))
    if not (has_influence and enough and min(len(half.factor) for half in halves)) or fakes is None:
        return value, None
    return value, _influence(value, (halves[0], reals), (halves[1], fakes), where)


@entry_point
def frechet_infinity(
    real: Features | Gaussian, fake: Features, *, device: str | torch.device = "auto"
) -> float:
    """The Fréchet distance extrapolated to infinitely many fakes; it may be negative for near-perfect generators.

    The intercept a of the line a + b / N fitted by least squares to the distances of all reals to subsets of N of the
    m fakes. As in dgm-eval, the 15 sizes N are evenly spaced from min(5000, max(m // 10, 2)) to m, rounded down, and
    the subset of each is `rng.choice(m, N, replace=False)` with one `rng = numpy.random.default_rng(0)` for all, in
    ascending order of size. The bias of the reals remains. For N below a few multiples of d the line is a rough estimate.
    """
    rng = np.random.default_rng(0)
    real, checked = _checked(real, "real"), check_features(fake, "fake")
    check_same_width(_matrix(real), checked)
    m = len(checked)
    where = choose_device(_matrix(real), device)
    real_half, checked = _half(real, where), held_on(checked, where)
    sizes = np.linspace(min(_LEAST_FAKES, max(m // 10, 2)), m, _SIZES).astype(np.int64)
    distances = []
    for size in sizes:
        rows = torch.from_numpy(np.sort(rng.choice(m, size, replace=False)))  # sorted for sequential reads
        distances.append(_distance(real_half, _half_of_rows(checked, rows.to(checked.device), where)))
    x, y = 1 / sizes, np.array(distances)
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    return float(y.mean() - slope * x.mean())


def of_reals(real: Tensor | Gaussian, device: torch.device) -> Tensor | Gaussian:
    """What the distance needs of (n, d) reals, once for any number of fake sets: the Gaussian, or few rows, which cost less."""
    if isinstance(real, Gaussian) or len(real) <= real.shape[1]:
        return real
    return replace(Gaussian.from_features(real, device=device), features=real)


class _Half(NamedTuple):
    """One side of the distance: `factor` (r, d) is such that factor' factor is the covariance."""

    mean: Tensor
    trace: Tensor
    factor: Tensor
    squared: Tensor | None = None  # trace of the squared covariance, if there are more rows than columns


class _Whitened(NamedTuple):
    """One side of the distance in the coordinates z."""

    phi: Tensor  # (n,) influence
    squares: Tensor  # (k, k): K
    n: int


def _influence(
    value: float, real: tuple[_Half, Tensor | None], fake: tuple[_Half, Tensor], device: torch.device
) -> Influence | None:
    (real_half, reals), (fake_half, fakes) = real, fake
    both = real_half.factor @ fake_half.factor.T
    squares, right = torch.linalg.eigh(both.T @ both)
    rounding = (real_half.factor.shape[1] * _EPS) ** 2 * real_half.trace * fake_half.trace
    if squares[-1] <= rounding:  # the root in the distance has no derivative at 0
        return None
    right = right[:, squares > len(squares) * _EPS * squares[-1]]
    left = both @ right
    s = torch.linalg.vector_norm(left, dim=0)
    shift = real_half.mean - fake_half.mean
    # F_r^-1 U = F_f' V / S and F_f^-1 V = F_r' U / S: no linear system is solved, and covariances may be singular.
    halves = [fake_half]
    sides = [_whitened(fakes, fake_half.mean, real_half.factor.T @ (left / s.square()), s, -shift, device)]
    if reals is not None:
        halves.append(real_half)
        sides.append(_whitened(reals, real_half.mean, fake_half.factor.T @ (right / s), s, shift, device))
    c = s[:, None] * s / (s[:, None] + s)
    of_covariances = sum(float((c * side.squares).sum() - c.trace()) / (2 * side.n) for side in sides)
    scale = 1 / (1 - min(of_covariances / (2 * float(s.sum())), 0.5))
    of_means = sum(float(half.trace) / side.n for half, side in zip(halves, sides, strict=True))
    second_order = scale**2 * _variance_of_covariances(sides, c) + _variance_of_means(halves, sides, s)
    phis = [side.phi for side in sides]
    bias = of_means + scale * of_covariances
    squared = SquaredDistance(value, value - bias)
    return Influence(
        None if reals is None else phis[1], phis[0], second_order=second_order, bias=bias, squared=squared
    )


def _whitened(
    rows: Tensor, mean: Tensor, transform: Tensor, s: Tensor, shift: Tensor, device: torch.device
) -> _Whitened:
    n, start, phi = len(rows), 0, []
    squares = torch.zeros(len(s), len(s), dtype=torch.float64, device=device)
    total = squares.new_zeros(())
    chosen = torch.zeros(n, dtype=torch.bool)
    chosen[torch.randperm(n, generator=torch.Generator().manual_seed(0))[:_ROWS]] = True
    root = _root(s)
    for block in Blocks(rows, device):
        centered = block - mean
        z = (centered @ transform).square_()
        linear = 2 * (centered @ shift) + centered.square().sum(dim=1) - z @ s
        with_itself = (z @ root).square().sum(dim=1) - z @ s
        phi.append(linear - with_itself / (2 * n))
        some = z[chosen[start : start + len(block)].to(device)]
        # A row takes part in its own whitening, which makes z shorter by this root; K has squares of two factors.
        some = some / (1 - some.sum(dim=1, keepdim=True) / n).clamp_(min=1 / n).sqrt()
        squares.addmm_(some.T, some)
        total += some.sum()
        start += len(block)
    every, rows_seen = torch.cat(phi), min(n, _ROWS)
    mean_square = total / (rows_seen * len(s))
    return _Whitened(every - every.mean(), squares / (rows_seen * mean_square**2), n)


def _root(s: Tensor) -> Tensor:
    """B (k, q) with B B' = c to a few digits: c is smooth, so a few columns approximate the others (Nyström)."""
    logs = s.log()
    grid = torch.linspace(float(logs.min()), float(logs.max()), _COLUMNS, dtype=s.dtype, device=s.device)
    at: Tensor = torch.unique((logs[:, None] - grid).abs().argmin(dim=0))
    c = s[:, None] * s[at] / (s[:, None] + s[at])
    values, vectors = torch.linalg.eigh(c[at])
    kept = values > _ROUNDING * values[-1]
    root: Tensor = c @ (vectors[:, kept] / values[kept].sqrt())
    return root


def _variance_of_covariances(sides: list[_Whitened], c: Tensor) -> float:
    """Variance of the second order of the covariances."""
    own, total = c.diagonal(), 0.0
    for a, b in product(sides, sides):
        second = 2 * (c.square() * a.squares * b.squares).sum()
        second -= 2 * (own * a.squares.diagonal() * b.squares.diagonal() * own).sum()
        second += ((own[:, None] * own) * (a.squares - 1) * (b.squares - 1)).sum()
        total += float(second) / (2 * a.n * b.n)
    return total


def _variance_of_means(halves: list[_Half], sides: list[_Whitened], s: Tensor) -> float:
    """Variance of |e|^2, e normal: twice the trace of the square of its covariance."""
    total = 2 * float(s.square().sum()) / (sides[0].n * sides[1].n) if len(sides) == 2 else 0.0
    for half, side in zip(halves, sides, strict=True):
        assert half.squared is not None
        total += float(half.squared) / side.n**2
    return 2 * total


def _distance(real: _Half, fake: _Half) -> float:
    # On the CPU also for GPUs: on an H200 it is no faster (0.33 s for 2048 x 2048) and may not converge on singular matrices, and
    # to copy 2048 x 2048 numbers takes milliseconds. A choice by measured time would change the last bits between runs.
    fidelity = torch.linalg.svdvals((real.factor @ fake.factor.T).cpu()).sum()
    rest = (real.mean - fake.mean).square().sum() + real.trace + fake.trace
    value = float(rest) - 2 * float(fidelity)
    if not math.isfinite(value):
        raise _gaussian_error("the distance overflows float64; divide the features by a constant")
    return value


def _checked(side: Features | Gaussian, name: str) -> Tensor | Gaussian:
    if isinstance(side, Gaussian):
        return side
    features = check_features(side, name)
    check_rows(features, name, k=1)
    return features


def _matrix(side: Tensor | Gaussian) -> Tensor:
    """A matrix with the width and the device of the features."""
    return side.covariance if isinstance(side, Gaussian) else side


def _half(side: Tensor | Gaussian, device: torch.device) -> _Half:
    if isinstance(side, Gaussian):
        mean, covariance = (moment.to(device, torch.float64) for moment in (side.mean, side.covariance))
        return _Half(mean, covariance.trace(), _factor(covariance, side.n), covariance.square().sum())
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
        text = (
            f"the covariance must not have negative eigenvalues, but the smallest is {float(values[0]):.3g}"
        )
        raise _gaussian_error(f"{text}; compute it in float64 with {_COV}")
    # A zero eigenvalue comes out as noise of 1e-16 of the largest, whose root would count as 1e-8.
    kept = values > d * _EPS * largest
    if n is not None:
        kept[: max(0, d - (n - 1))] = False
    factor: Tensor = values[kept].sqrt()[:, None] * vectors[:, kept].T
    return factor


def _gaussian_error(message: str) -> FeatureError:
    return FeatureError(f"invalid mean and covariance: {message}", code="bad-gaussian")
