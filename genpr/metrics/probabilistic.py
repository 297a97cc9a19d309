"""Probabilistic precision and recall: how likely a sample is in the support of the other set (Park and Kim 2023, arXiv:2309.01590)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genpr.metrics.blocks import Blocks
from genpr.metrics.real_manifold import ENGINE, checked_pair
from genpr.neighbors.balls import Ball
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.distance import sq_distances_at
from genpr.neighbors.engine import plain_arithmetic
from genpr.neighbors.index import Frame, IndexedPoints
from genpr.neighbors.search import Advance, no_advance
from genpr.validation import Features, check_k, choose_device, entry_point

_SCALE = 1.2
# Products in float64 err by about 1e-16 d of the squared norms; distances that are this small next to them are
# computed by the definition, so that each factor is good to about nine digits.
_CANCELLED = 1e-5


class ProbabilisticPrecisionRecall(NamedTuple):
    """The two values of `probabilistic_precision_recall`."""

    precision: float
    recall: float


@entry_point
def probabilistic_precision_recall(
    real: Features,
    fake: Features,
    *,
    k: int = 4,
    device: str | torch.device = "auto",
) -> ProbabilisticPrecisionRecall:
    """P-precision and P-recall.

    All balls of a set have one radius R, 1.2 times the mean distance to the k-th nearest other row, so no outlier
    has a large one. A sample z is in the support of X with probability 1 - prod_i min(1, |z - x_i| / R_X), and
    P-precision is the mean of this over the fakes, with X the reals; P-recall has both sets in exchanged roles.
    A generator that equals the data has values below 1, which depend on dimension and sizes (.73 to .98 for 1,000
    Gaussian samples of 1 to 64 dimensions), and in hundreds of dimensions both are 1 for all samples near the data.

    One scan over all pairs in float64, with memory for a tile of 1024 x 1024 pairs.

    Args:
        real: (n, d) features of real images, n > k.
        fake: (m, d) features of generated images by the same extractor, m > k.
        k: Neighbors that set the radius; the row itself is not counted.
        device: "auto" is the GPU that holds the input, else the best device available.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
        UsageError: k is impossible.

    Example:
        >>> import numpy as np
        >>> real, fake = np.array([[0.0], [1.0], [2.0]]), np.array([[0.6], [9.0], [9.5]])
        >>> precision, recall = probabilistic_precision_recall(real, fake, k=1)
        >>> round(precision, 6), round(recall, 6)  # (1 - 0.6 / 1.2 * 0.4 / 1.2) / 3
        (0.277778, 0.787234)
    """
    k = check_k(k)
    checked_real, checked_fake = checked_pair(real, fake, k=k)
    where = choose_device(real, device)
    return probabilistic_of(checked_real.to(where), checked_fake.to(where), k=k)


def probabilistic_of(
    x: Tensor, y: Tensor, *, k: int, advance: Advance = no_advance
) -> ProbabilisticPrecisionRecall:
    """`probabilistic_precision_recall` of checked features (n, d) and (m, d) on one device.

    `advance` is called with numbers of pairs done, within each set and between the two.
    """
    logs = _log_outside(x, y, _radius(x, k, advance), _radius(y, k, advance), advance)
    precision, recall = (float(torch.expm1(log).mean().abs()) for log in logs)
    return ProbabilisticPrecisionRecall(precision, recall)


def _radius(features: Tensor, k: int, advance: Advance) -> float:
    points = IndexedPoints.from_features(features, k)
    sq = Neighborhood.from_points(points, [Ball(k)], engine=ENGINE, advance=advance).sq_radii[0]
    return _SCALE * float(sq.sqrt().mean())


def _log_outside(
    x: Tensor, y: Tensor, real_radius: float, fake_radius: float, advance: Advance
) -> tuple[Tensor, Tensor]:
    """Logarithms of the probabilities to be outside: of fakes (m,) for the reals' support, of reals (n,)."""
    of_fakes = torch.zeros(len(y), dtype=torch.float64, device=y.device)
    of_reals = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    with plain_arithmetic(x.device):
        center = Frame.around(x).center.double()
        row = 0
        for block in Blocks(x, x.device, is_tile=True):
            rows, column = block - center, 0
            for columns in Blocks(y, y.device, is_tile=True):
                sq = _sq_distances(rows, columns - center, x, y, row, column)
                of_fakes[column : column + len(columns)] += _log_share(sq, real_radius).sum(dim=0)
                of_reals[row : row + len(rows)] += _log_share(sq, fake_radius).sum(dim=1)
                column += len(columns)
                advance(len(rows) * len(columns))
            row += len(rows)
    return of_fakes, of_reals


def _sq_distances(rows: Tensor, columns: Tensor, x: Tensor, y: Tensor, row: int, column: int) -> Tensor:
    """(r, c) float64 between centered `rows` of `x` from `row` on and `columns` of `y` from `column` on."""
    sq_norms = rows.square().sum(dim=1)[:, None] + columns.square().sum(dim=1)
    sq = torch.addmm(sq_norms, rows, columns.T, alpha=-2)
    i, j = (sq < _CANCELLED * sq_norms).nonzero().T
    sq[i, j] = sq_distances_at(x, y, row + i, column + j)
    return sq


def _log_share(sq: Tensor, radius: float) -> Tensor:
    """Logarithm of min(1, distance / radius): -inf for copies, also where all balls are points."""
    if radius == 0:
        return torch.zeros_like(sq).masked_fill_(sq == 0, -torch.inf)
    return (sq / radius**2).clamp_(max=1).log_().div_(2)
