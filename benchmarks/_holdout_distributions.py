"""Distributions of the hold-out cases: spectra, rectified features, manifolds, mixtures and discrete codes.

A family is a function of a generator that fixes the parameters of one draw (loadings, networks, centers) and returns a
sampler; a sampler is a function of a generator and n that returns rows (n, d).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Sampler = Callable[[np.random.Generator, int], Rows]
Family = Callable[[np.random.Generator], Sampler]

_NOISE = 0.01  # off the random manifolds


def power(d: int, exponent: float, _rng: np.random.Generator) -> Sampler:
    """Gaussian whose covariance has the eigenvalues i^-exponent."""
    deviations = np.arange(1, d + 1) ** (-exponent / 2)
    return lambda rng, n: deviations * rng.standard_normal((n, d))


def gamma(d: int, shape: float, rng: np.random.Generator) -> Sampler:
    """Independent gamma marginals of log-normal scales."""
    scales = np.exp(rng.standard_normal(d))
    return lambda rng, n: scales * rng.gamma(shape, size=(n, d))


def sparse(d: int, rng: np.random.Generator) -> Sampler:
    """Independent rectified log-normal marginals, two thirds of them 0."""
    scales = np.exp(0.5 * rng.standard_normal(d))
    return lambda rng, n: scales * np.maximum(rng.lognormal(size=(n, d)) - 1.5, 0)


def laplace(d: int, rng: np.random.Generator) -> Sampler:
    """Independent Laplace marginals of log-normal scales."""
    scales = np.exp(0.5 * rng.standard_normal(d))
    return lambda rng, n: scales * rng.laplace(size=(n, d))


def blocks(count: int, size: int, _rng: np.random.Generator) -> Sampler:
    """Independent blocks of coordinates with correlation .9, each coordinate a signed square of a Gaussian."""

    def sample(rng: np.random.Generator, n: int) -> Rows:
        common, own = rng.standard_normal((n, count, 1)), rng.standard_normal((n, count, size))
        mixed = np.sqrt(0.9) * common + np.sqrt(0.1) * own
        rows: Rows = (mixed * np.abs(mixed)).reshape(n, -1)
        return rows

    return sample


def relu(d: int, latent: int, rng: np.random.Generator) -> Sampler:
    """Rectified random features of a Gaussian latent, a third of them active."""
    loadings = rng.standard_normal((latent, d)) / np.sqrt(latent)
    return lambda rng, n: np.maximum(rng.standard_normal((n, latent)) @ loadings - 0.4, 0)


@dataclass(frozen=True)
class Manifold:
    """The image of a cube under a random network of two tanh layers, with noise."""

    layers: tuple[Rows, Rows, Rows]

    def __call__(self, rng: np.random.Generator, n: int, *, low: float = -1.0) -> Rows:
        """Rows whose first latent coordinate is at least `low`; the others are uniform in [-1, 1]."""
        first, second, last = self.layers
        latent = rng.uniform(-1, 1, (n, len(first)))
        latent[:, 0] = rng.uniform(low, 1, n)
        rows: Rows = np.tanh(np.tanh(latent @ first) @ second) @ last
        return rows + _NOISE * rng.standard_normal(rows.shape)


def network(latent: int, d: int, rng: np.random.Generator) -> Manifold:
    """A manifold of `latent` dimensions in d."""
    width = 32
    first = 2 * rng.standard_normal((latent, width)) / np.sqrt(latent)
    second = 2 * rng.standard_normal((width, width)) / np.sqrt(width)
    return Manifold((first, second, rng.standard_normal((width, d)) / np.sqrt(width)))


@dataclass(frozen=True)
class Mixture:
    """Modes with weights; the modes beyond the weights are those that only a faulty generator draws."""

    modes: tuple[Sampler, ...]
    weights: Rows

    def __call__(self, rng: np.random.Generator, n: int, *, weights: Rows | None = None) -> Rows:
        """Rows of modes in random order, with these `weights` of the first modes."""
        used = self.weights if weights is None else weights
        counts = np.bincount(rng.choice(len(used), n, p=used / used.sum()), minlength=len(used))
        rows = np.concatenate([mode(rng, int(k)) for mode, k in zip(self.modes, counts, strict=False) if k])
        return rng.permutation(rows)


def zipf(count: int) -> Rows:
    """Weights 1/1, 1/2, 1/3, ... of modes, normalized."""
    weights: Rows = 1 / np.arange(1.0, count + 1)
    weights /= weights.sum()
    return weights


def factors(d: int, count: int, rank: int, rng: np.random.Generator) -> Mixture:
    """Modes of Zipf weights: low-rank Gaussians with noise, of log-normal scales, far apart; as many more unused."""

    def mode() -> Sampler:
        center = 3 * rng.standard_normal(d)
        loadings = rng.standard_normal((rank, d)) * np.exp(0.5 * rng.standard_normal())

        def sample(rng: np.random.Generator, n: int) -> Rows:
            noise: Rows = center + 0.1 * rng.standard_normal((n, d))
            noise += rng.standard_normal((n, rank)) @ loadings
            return noise

        return sample

    return Mixture(tuple(mode() for _ in range(2 * count)), zipf(count))


def fisher(d: int, kappas: tuple[float, ...], rng: np.random.Generator) -> Mixture:
    """Von Mises-Fisher distributions of equal weights on the unit sphere; as many more unused."""
    from scipy.stats import vonmises_fisher

    def mode(kappa: float) -> Sampler:
        center = rng.standard_normal(d)
        found = vonmises_fisher(center / np.linalg.norm(center), kappa)
        return lambda rng, n: np.asarray(found.rvs(n, random_state=rng)).reshape(n, d)

    weights = np.full(len(kappas), 1 / len(kappas))
    return Mixture(tuple(mode(kappa) for kappa in kappas + kappas), weights)


def bits(d: int, count: int, flips: float, rng: np.random.Generator) -> Mixture:
    """Binary code words of equal weights, with flipped bits; as many more unused."""

    def mode() -> Sampler:
        word = rng.random(d) < 0.5
        return lambda rng, n: (word ^ (rng.random((n, d)) < flips)).astype(np.float64)

    return Mixture(tuple(mode() for _ in range(2 * count)), np.full(count, 1 / count))


def counts(d: int, rng: np.random.Generator) -> Sampler:
    """Overdispersed counts: Poisson with rates that a row's gamma-distributed intensity scales."""
    rates = np.exp(rng.standard_normal(d))
    return lambda rng, n: rng.poisson(rates * rng.gamma(4, 0.25, (n, 1))).astype(np.float64)


SPECTRUM_256: Family = partial(power, 256, 1.0)
SPECTRUM_512: Family = partial(power, 512, 1.5)
SPECTRUM_1024: Family = partial(power, 1024, 1.0)
GAMMA: Family = partial(gamma, 256, 0.5)
SPARSE: Family = partial(sparse, 512)
LAPLACE: Family = partial(laplace, 128)
BLOCKS: Family = partial(blocks, 12, 20)
RELU: Family = partial(relu, 512, 12)
NETWORK_2: Callable[[np.random.Generator], Manifold] = partial(network, 2, 128)
NETWORK_4: Callable[[np.random.Generator], Manifold] = partial(network, 4, 128)
NETWORK_8: Callable[[np.random.Generator], Manifold] = partial(network, 8, 128)
FACTORS: Callable[[np.random.Generator], Mixture] = partial(factors, 128, 12, 6)
FISHER: Callable[[np.random.Generator], Mixture] = partial(fisher, 64, (60.0, 120.0, 240.0, 480.0) * 2)
BITS: Callable[[np.random.Generator], Mixture] = partial(bits, 64, 10, 0.05)
COUNTS: Family = partial(counts, 32)

FAMILIES: dict[str, Family] = {
    "spectrum i^-1, d = 256": SPECTRUM_256,
    "spectrum i^-1.5, d = 512": SPECTRUM_512,
    "spectrum i^-1, d = 1024": SPECTRUM_1024,
    "gamma, d = 256": GAMMA,
    "rectified, d = 512": SPARSE,
    "Laplace, d = 128": LAPLACE,
    "correlated blocks, d = 240": BLOCKS,
    "ReLU features, d = 512": RELU,
    "2-manifold, d = 128": NETWORK_2,
    "4-manifold, d = 128": NETWORK_4,
    "8-manifold, d = 128": NETWORK_8,
    "12 Zipf modes, d = 128": FACTORS,
    "8 Fisher modes, d = 64": FISHER,
    "10 code words, d = 64": BITS,
    "counts, d = 32": COUNTS,
}
"""By name."""
