"""Do fakes copy the training images? The data-copying test C_T, and authenticity.

References:
    Meehan, Chaudhuri and Dasgupta 2020, "A Non-Parametric Test to Detect Data-Copying in Generative Models" (C_T).
    Alaa et al. 2022, "How Faithful is your Synthetic Data?" (authenticity).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.real_manifold import PairProgress, choose_engine, tally
from genpr.neighbors.index import Placed
from genpr.neighbors.nearest import nearest_between
from genpr.validation import Features, check_features, check_rows, check_same_width, choose_device


def ct_z(
    train: Features,
    held_out: Features,
    fake: Features,
    *,
    device: str | torch.device = "auto",
    progress: PairProgress | None = None,
) -> float:
    """The three-sample test for data copying: Mann-Whitney between distances to the nearest training image.

    Standard normal if fakes (m, d) are as far from the training images (n, d) as held-out ones (h, d); below -3 they
    are copied, above 3 the generator underfits. It is the test over all images; the published C_T averages it over
    cells of a clustering. dgm-eval takes half a pair off the mean of the statistic, which shifts z up by half over its
    standard deviation, and takes no account of ties in the variance.
    """
    sets = {"train": train, "held_out": held_out, "fake": fake}
    checked = {name: check_features(features, name) for name, features in sets.items()}
    for name, features in checked.items():
        check_same_width(checked["train"], features, names=("train", name))
        check_rows(features, name, k=0)
    where = choose_device(train, device)
    points = Placed.of(checked["train"].to(where), 1)
    engine = choose_engine(points.device)
    others = [checked["fake"].to(where), checked["held_out"].to(where)]
    advance = tally(len(points) * sum(map(len, others)), progress)
    to_train = (
        nearest_between(points.beside(features), points, 1, engine=engine, advance=advance)[1][:, 0]
        for features in others
    )
    return mann_whitney_z(*(sq.cpu().numpy() for sq in to_train))


def authentic(nearest_index: Tensor, nearest_sq: Tensor, nnd1_sq: Tensor) -> Tensor:
    """Which fakes (m,) are farther from their nearest real than that real is from its own nearest other real.

    A perfect generator's share is not a half but depends on dimension and size, see the null of authenticity.
    """
    return nearest_sq > nnd1_sq[nearest_index]


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
