"""Data sets of bench_coverage.py: draws of reals and of several generators from known distributions.

Constants of a data set (centers of clusters, weights of a map) come from a fixed seed on the CPU, draws from a
generator on the device that computes, so that a draw is the same whenever it is made again on a device of one kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

if TYPE_CHECKING:
    from _coverage_population import Population

EQUAL = ("A", "B")  # generators of the same distribution; "C" differs from them a little
_CLUSTERS, _CLUSTER_WIDTH = 20, 64
_LATENT, _HIDDEN, _MANIFOLD_WIDTH = 4, 64, 256


@dataclass(frozen=True, slots=True)
class Sets:
    """One draw."""

    real: Tensor  # (n, d) float32
    fakes: Mapping[str, Tensor]  # (m, d) float32, by generator
    probabilities: Mapping[str, Tensor] | None = None  # (m, classes) of the same fakes, where they are known


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of rows to draw."""

    real: int
    fake: int


Draw = Callable[[Generator, Size], Sets]


@dataclass(frozen=True, slots=True)
class DataSet:
    """A distribution of reals and those of the generators."""

    meaning: str
    is_perfect: bool  # whether A and B have the distribution of the reals
    draw: Draw | None  # None for features of images, which `population` draws
    population: Callable[[Generator, Size, Population], Sets] | None = None
    has_classes: bool = False  # whether draws have probabilities of classes


# Gaussians ----------------------------------------------------------------------------------------------------


def _normal(rng: Generator, n: int, d: int) -> Tensor:
    return torch.randn(n, d, generator=rng, device=rng.device)


def _gaussian(d: int, *, shift: float = 0.0, difference: float) -> Draw:
    """Standard normal reals; fakes are moved by `shift`, those of C by `difference` more, along other axes."""

    def draw(rng: Generator, size: Size) -> Sets:
        real = _normal(rng, size.real, d)
        fakes = {name: _normal(rng, size.fake, d) for name in (*EQUAL, "C")}
        for fake in fakes.values():
            fake[:, 0] += shift
        fakes["C"][:, 1] += difference
        return Sets(real, fakes)

    return draw


def _equal_gaussians(d: int, generators: int) -> Draw:
    def draw(rng: Generator, size: Size) -> Sets:
        real = _normal(rng, size.real, d)
        return Sets(real, {str(number): _normal(rng, size.fake, d) for number in range(generators)})

    return draw


def _spectrum(d: int, *, scale: float = 1.0, shift: float = 0.0, difference: float) -> Draw:
    """Covariance eigenvalues i^-1: few directions dominate, and some rows are neighbors of many (hubs)."""

    def draw(rng: Generator, size: Size) -> Sets:
        deviations = torch.arange(1, d + 1, device=rng.device).rsqrt()
        real = _normal(rng, size.real, d).mul_(deviations)
        fakes = {}
        for name in (*EQUAL, "C"):
            factor = scale * (difference if name == "C" else 1.0)
            fakes[name] = _normal(rng, size.fake, d).mul_(deviations * factor)
            fakes[name][:, :8] += shift
        return Sets(real, fakes)

    return draw


# Heavy tails --------------------------------------------------------------------------------------------------


def _student(d: int, *, freedom: int, difference: float) -> Draw:
    """Multivariate Student t: a common factor makes whole rows large."""

    def rows(rng: Generator, n: int) -> Tensor:
        chi_squared = _normal(rng, n, freedom).square_().sum(dim=1, keepdim=True)
        return _normal(rng, n, d) * (freedom / chi_squared).sqrt_()

    def draw(rng: Generator, size: Size) -> Sets:
        real = rows(rng, size.real)
        fakes = {name: rows(rng, size.fake) for name in (*EQUAL, "C")}
        fakes["C"] *= difference
        return Sets(real, fakes)

    return draw


# Clusters -----------------------------------------------------------------------------------------------------


@cache
def _clusters() -> tuple[Tensor, Tensor, Tensor]:
    """Centers (c, d), deviations (c,) and weights (c,) of the clusters of the reals."""
    rng = Generator().manual_seed(1)
    centers = 2 * _normal(rng, _CLUSTERS, _CLUSTER_WIDTH) / _CLUSTER_WIDTH**0.25
    deviations = 0.5 + torch.rand(_CLUSTERS, generator=rng)
    weights = 1 / torch.arange(1, _CLUSTERS + 1)
    return centers, deviations, weights / weights.sum()


def _cluster_rows(rng: Generator, n: int, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(n, d) rows, and their probabilities (n, c) of belonging to each cluster of the reals."""
    centers, deviations, own = (each.to(rng.device) for each in _clusters())
    which = torch.multinomial(weights.to(rng.device), n, replacement=True, generator=rng)
    rows = centers[which] + _normal(rng, n, _CLUSTER_WIDTH) * deviations[which, None]
    squares = torch.cdist(rows.double(), centers.double()).square_() / deviations.square()
    scores = own.log() - squares / 2 - _CLUSTER_WIDTH * deviations.log()
    return rows, scores.softmax(dim=1).float()


def _mixture(change: Callable[[Tensor], Tensor], difference: Callable[[Tensor], Tensor]) -> Draw:
    """Clusters of unequal weights; `change` gives the weights of the fakes, `difference` those of C from these."""

    def draw(rng: Generator, size: Size) -> Sets:
        weights = _clusters()[2]
        of_fakes = change(weights)
        real, _ = _cluster_rows(rng, size.real, weights)
        found = {name: _cluster_rows(rng, size.fake, of_fakes) for name in EQUAL}
        found["C"] = _cluster_rows(rng, size.fake, difference(of_fakes))
        rows, probabilities = ({name: each[at] for name, each in found.items()} for at in (0, 1))
        return Sets(real, rows, probabilities)

    return draw


def _equal_mixtures(generators: int) -> Draw:
    def draw(rng: Generator, size: Size) -> Sets:
        weights = _clusters()[2]
        real, _ = _cluster_rows(rng, size.real, weights)
        fakes = {str(number): _cluster_rows(rng, size.fake, weights)[0] for number in range(generators)}
        return Sets(real, fakes)

    return draw


def _without(*clusters: int) -> Callable[[Tensor], Tensor]:
    """Some clusters are missing."""

    def changed(weights: Tensor) -> Tensor:
        return weights.index_fill(0, torch.tensor(clusters), 0.0)

    return changed


def _same(weights: Tensor) -> Tensor:
    return weights


# Manifold -----------------------------------------------------------------------------------------------------


@cache
def _map() -> tuple[Tensor, Tensor]:
    """Weights of the two layers of a smooth map from the latent space."""
    rng = Generator().manual_seed(2)
    return _normal(rng, _LATENT, _HIDDEN), _normal(rng, _HIDDEN, _MANIFOLD_WIDTH) / _HIDDEN**0.5


def _on_manifold(rng: Generator, n: int, *, noise: float) -> Tensor:
    first, second = (each.to(rng.device) for each in _map())
    latent = torch.rand(n, _LATENT, generator=rng, device=rng.device) * 2 - 1
    # Sums of products on a GPU may come in another order from one number of rows to another, which is no matter here.
    rows = ((latent @ first).sin_() @ second).tanh_()
    return rows + noise * _normal(rng, n, _MANIFOLD_WIDTH)


def _manifold(*, noise: float, difference: float) -> Draw:
    """Reals on a smooth image of a cube of few dimensions; fakes next to it, those of C by `difference` times the noise."""

    def draw(rng: Generator, size: Size) -> Sets:
        real = _on_manifold(rng, size.real, noise=0.005)
        fakes = {name: _on_manifold(rng, size.fake, noise=noise) for name in EQUAL}
        fakes["C"] = _on_manifold(rng, size.fake, noise=difference * noise)
        return Sets(real, fakes)

    return draw


# Features of images -------------------------------------------------------------------------------------------


def _of_images(*, blurred: float, missing: int, difference: float) -> Callable[..., Sets]:
    """Features of augmented images; a share `blurred` of the fakes is blurred, and `missing` classes are left out.

    No image is used twice in a draw. Of C, a share of `difference` more is blurred.
    """

    def draw(rng: Generator, size: Size, population: Population) -> Sets:
        order = torch.randperm(population.images, generator=rng, device=rng.device)
        real = population.rows(rng, order[: size.real])
        left = order[size.real :]
        if missing:
            labels = population.labels.to(rng.device)
            left = left[labels[left] >= missing]
        if len(left) < 3 * size.fake:
            needed = f"{size.real:,} reals and 3 x {size.fake:,} fakes"
            raise ValueError(f"{needed} need more images than {population.images:,}; draw fewer (--scale)")
        fakes = {}
        for number, name in enumerate((*EQUAL, "C")):
            share = blurred + difference * (name == "C")
            chosen = left[number * size.fake : (number + 1) * size.fake]
            fakes[name] = population.rows(rng, chosen, blurred=share)
        return Sets(real, fakes)

    return draw


GENERATORS = 8
DATA_SETS: Mapping[str, DataSet] = {
    "cifar": DataSet(
        "features of CIFAR-10 images, fakes are other images",
        is_perfect=True,
        draw=None,
        population=_of_images(blurred=0.0, missing=0, difference=0.05),
    ),
    "cifar-degraded": DataSet(
        "the same, fakes without 2 classes and 30 % blurred",
        is_perfect=False,
        draw=None,
        population=_of_images(blurred=0.3, missing=2, difference=0.05),
    ),
    "spectrum": DataSet("eigenvalues 1 / i, d = 2,048", True, _spectrum(2048, difference=0.995)),
    "spectrum-scaled": DataSet(
        "the same, fakes scaled by .95 and moved",
        False,
        _spectrum(2048, scale=0.95, shift=0.1, difference=0.99),
    ),
    "gaussian-512": DataSet("isotropic, d = 512", True, _gaussian(512, difference=1.5)),
    "gaussian-64": DataSet(
        "isotropic, d = 64, fakes moved by 2", False, _gaussian(64, shift=2.0, difference=0.7)
    ),
    "student": DataSet(
        "Student t, 4 degrees of freedom, d = 64", True, _student(64, freedom=4, difference=0.95)
    ),
    "clusters": DataSet(
        "20 clusters of weights 1 / i, d = 64", True, _mixture(_same, _without(9)), has_classes=True
    ),
    "clusters-missing": DataSet(
        "the same, fakes lack 4 clusters",
        False,
        _mixture(_without(2, 7, 12, 17), _without(4)),
        has_classes=True,
    ),
    "manifold": DataSet(
        "4 latent dimensions in 256, fakes with noise", False, _manifold(noise=0.05, difference=1.1)
    ),
    "rank-gaussian": DataSet("8 equal generators, isotropic, d = 16", True, _equal_gaussians(16, GENERATORS)),
    "rank-clusters": DataSet("8 equal generators, 20 clusters", True, _equal_mixtures(GENERATORS)),
}
