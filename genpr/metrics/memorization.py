"""Do fakes copy the training images? The data-copying test C_T, and authenticity.

References:
    Meehan, Chaudhuri and Dasgupta 2020, "A Non-Parametric Test to Detect Data-Copying in Generative Models" (C_T).
    Alaa et al. 2022, "How Faithful is your Synthetic Data?" (authenticity).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.blocks import double_blocks
from genpr.metrics.real_manifold import PairProgress, choose_engine, tally
from genpr.neighbors.engine import plain_arithmetic
from genpr.neighbors.index import Placed, evenly_spaced, principal_directions
from genpr.neighbors.nearest import nearest_between
from genpr.neighbors.search import Advance, no_advance
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_rows,
    check_same_width,
    choose_device,
)

_FEWEST_FAKES = 20  # cells with no more say nothing
_MOST_STEPS = 100
_SAMPLED = 8192  # rows that directions and clusters are fitted to


@dataclass(frozen=True, slots=True)
class CTCell:
    """One cell of `CTScore`.

    Attributes:
        n_train: Training images in it.
        n_held_out: Held-out images in it.
        n_fake: Fakes in it.
        z: The test among these alone; NaN where one of the three is missing.
    """

    n_train: int
    n_held_out: int
    n_fake: int
    z: float


@dataclass(frozen=True, slots=True)
class CTScore:
    """Whether fakes are nearer to the training images than other real images are.

    Attributes:
        z: The test over all images: standard normal if fakes are as far from the training images as held-out ones;
            below -3 they are copied, above 3 the generator underfits.
        weighted: The published C_T: the mean over cells, each weighted with its share of the held-out images, that
            hold more than 20 fakes; NaN without any. Copying in one place and underfitting in another do not
            cancel within cells as they do over all. Its standard deviation under the null is below 1.
        cells: The cells, largest first.
    """

    z: float
    weighted: float
    cells: tuple[CTCell, ...]


def ct_score(
    train: Features,
    held_out: Features,
    fake: Features,
    *,
    cells: int = 3,
    dimensions: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
) -> CTScore:
    """The three-sample test for data copying: Mann-Whitney between distances to the nearest training image.

    It differs from dgm-eval's number in three ways: dgm-eval reduces features to 64 dimensions first (as
    `dimensions=64` does here); it takes half a pair off the mean of the statistic, which shifts z up by half over its
    standard deviation, so that the null has no mean of 0; and it takes no account of ties in the variance.

    Args:
        train: (n, d) features of the images that the generator was trained on.
        held_out: (h, d) features of other real images of the same kind. They must not be nearer or farther by
            construction, as a split by time or source may make them.
        fake: (m, d) features of generated images.
        cells: Cells of a k-means clustering of the training images.
        dimensions: Principal directions of the training images to look at; None looks at all features.
        seed: Of the clustering.
        device: "auto" is where the tensors are if that is a GPU, else the best device here.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
        UsageError: cells, dimensions or seed is impossible.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> train, held_out = rng.normal(size=(2, 300, 4))
        >>> ct_score(train, held_out, train + 0.01).z < -3
        True
        >>> ct_score(train, held_out, 3 * rng.normal(size=(300, 4))).z > 3
        True
    """
    cells, seed = check_count(cells, "cells", least=1), check_count(seed, "seed", least=0)
    sets = _checked(train, held_out, fake, device)
    where = sets[0].device
    with plain_arithmetic(where):
        if dimensions is not None:
            sets = _reduced(sets, check_count(dimensions, "dimensions", least=1, most=min(sets[0].shape)))
        center = _mean(sets[0])
        centers = _clustered(sets[0], center, cells, seed)
        labels = [_labels(features, center, centers) for features in sets]
    parts = tuple(
        _cell(*(features[label == cell] for features, label in zip(sets, labels, strict=True)))
        for cell in range(len(centers))
    )
    told = sorted(parts, key=lambda part: -part.n_train)
    return CTScore(_z_of(*sets), _weighted(parts), tuple(told))


def ct_z(
    train: Features,
    held_out: Features,
    fake: Features,
    *,
    device: str | torch.device = "auto",
    progress: PairProgress | None = None,
) -> float:
    """The test of `ct_score` over all images alone, which needs no cells.

    Args:
        train: As in `ct_score`.
        held_out: As in `ct_score`.
        fake: As in `ct_score`.
        device: As in `ct_score`.
        progress: Called with the pairs of rows done with and their number.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
    """
    sets = _checked(train, held_out, fake, device)
    return _z_of(*sets, advance=tally(len(sets[0]) * (len(sets[1]) + len(sets[2])), progress))


def _checked(train: Features, held_out: Features, fake: Features, device: str | torch.device) -> list[Tensor]:
    """The three sets, where to compute.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
    """
    sets = {"train": train, "held_out": held_out, "fake": fake}
    checked = {name: check_features(features, name) for name, features in sets.items()}
    for name, features in checked.items():
        check_same_width(checked["train"], features, names=("train", name))
        check_rows(features, name, k=0)
    where = choose_device(train, device)
    return [features.to(where) for features in checked.values()]


def authentic(nearest_index: Tensor, nearest_sq: Tensor, nnd1_sq: Tensor) -> Tensor:
    """Which fakes are farther from their nearest real than that real is from its own nearest other real.

    A perfect generator's share is not a half but depends on dimension and size, see the null of authenticity.

    Args:
        nearest_index: (m,) int64 row of the real nearest to each fake.
        nearest_sq: (m,) squared distance to it.
        nnd1_sq: (n,) squared distance from each real to the nearest other real.

    Returns:
        (m,) bool.
    """
    return nearest_sq > nnd1_sq[nearest_index]


def _cell(train: Tensor, held_out: Tensor, fake: Tensor) -> CTCell:
    sizes = len(train), len(held_out), len(fake)
    return CTCell(*sizes, _z_of(train, held_out, fake) if all(sizes) else math.nan)


def _weighted(cells: tuple[CTCell, ...]) -> float:
    telling = [cell for cell in cells if cell.n_fake > _FEWEST_FAKES and not math.isnan(cell.z)]
    total = sum(cell.n_held_out for cell in telling)
    return sum(cell.n_held_out * cell.z for cell in telling) / total if total else math.nan


def _z_of(train: Tensor, held_out: Tensor, fake: Tensor, *, advance: Advance = no_advance) -> float:
    points = Placed.of(train, 1)
    engine = choose_engine(points.device)
    to_train = (
        nearest_between(points.beside(features), points, 1, engine=engine, advance=advance)[1][:, 0]
        for features in (fake, held_out)
    )
    return mann_whitney_z(*(sq.cpu().numpy() for sq in to_train))


def mann_whitney_z(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Standardized Mann-Whitney statistic, negative where `first` (m,) tends to be smaller than `second` (h,).

    The variance accounts for ties; if all values are tied it is 0, and so is z.
    """
    from scipy.stats import rankdata

    m, h = len(first), len(second)
    values = np.concatenate([first, second])
    statistic = rankdata(values)[:m].sum() - m * (m + 1) / 2
    ties = np.unique(values, return_counts=True)[1].astype(np.float64)
    total = m + h
    tied = (ties**3 - ties).sum() / (total * (total - 1))
    variance = m * h / 12 * (total + 1 - tied)
    return float((statistic - m * h / 2) / math.sqrt(variance)) if variance > 0 else 0.0


def _mean(features: Tensor) -> Tensor:
    sums = [block.sum(dim=0) for block in double_blocks(features, features.device)]
    return torch.stack(sums).sum(dim=0) / len(features)


def _reduced(sets: list[Tensor], dimensions: int) -> list[Tensor]:
    """Coordinates along principal directions of the first set, (., dimensions) float32 each."""
    train, center = sets[0], _mean(sets[0])
    rows = evenly_spaced(len(train), _SAMPLED, train.device)
    basis = principal_directions((train[rows].double() - center).float(), dimensions)
    return [
        torch.cat([((block - center) @ basis).float() for block in double_blocks(features, features.device)])
        for features in sets
    ]


def _clustered(features: Tensor, center: Tensor, count: int, seed: int) -> Tensor:
    """Centers of at most `count` k-means clusters (Lloyd), (c, d) float64, relative to `center`.

    Fitted to evenly spaced rows in float32: any partition is a valid one, and all rows are labeled by it.
    """
    some = features[evenly_spaced(len(features), _SAMPLED, features.device)]
    rows = (some.double() - center).float()
    centers = _spread_out(rows, count, torch.Generator().manual_seed(seed))
    label = _nearest_of(rows, centers)
    for _ in range(_MOST_STEPS):
        size = label.bincount(minlength=len(centers))
        total = torch.zeros_like(centers).index_add_(0, label, rows)
        centers = (total / size[:, None])[size > 0]
        before, label = label, _nearest_of(rows, centers)
        if torch.equal(before, label):
            break
    return centers.double()


def _spread_out(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Some rows, each drawn with a probability proportional to its squared distance from those before (k-means++)."""
    chosen = [int(torch.randint(len(rows), (), generator=generator))]
    nearest = torch.full((len(rows),), torch.inf, dtype=torch.float64)
    while len(chosen) < count:
        sq = (rows - rows[chosen[-1]]).square_().sum(dim=1)
        nearest = torch.minimum(nearest, sq.double().cpu())
        reached = nearest.cumsum(dim=0)
        if reached[-1] == 0:  # fewer different rows than cells
            break
        drawn = torch.rand((), generator=generator, dtype=torch.float64) * reached[-1]
        chosen.append(min(int(torch.searchsorted(reached, drawn, right=True)), len(rows) - 1))
    return rows[chosen]


def _nearest_of(rows: Tensor, centers: Tensor) -> Tensor:
    """The nearest of `centers` (c, d) to each of the `rows` (n, d) of the same type, (n,) int64."""
    return (rows @ centers.T - centers.square().sum(dim=1) / 2).argmax(dim=1)


def _labels(features: Tensor, center: Tensor, centers: Tensor) -> Tensor:
    """The cell of each row, (n,) int64."""
    blocks = double_blocks(features, features.device)
    return torch.cat([_nearest_of(block - center, centers) for block in blocks])
