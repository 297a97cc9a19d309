"""Sets for the held-out cases of the witnessed pair: reals and fakes of known distributions, or of features.

Every function ends in a generator and the value x that a curve varies, and returns reals (n, d) and fakes (m, d).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating]
Pair = tuple[Rows, Rows]
Draw = Callable[[np.random.Generator, float], Pair]
Surface = Callable[[np.random.Generator], Rows]

SIZE = 1000
WEIGHTS = np.array([0.35, 0.25, 0.15, 0.1, 0.1, 0.05])
"""Weights of the modes of the mixtures."""
_SPREADS = np.array([0.5, 1.0, 2.0, 0.7, 1.5, 1.0])
_AMBIENT = 64  # dimensions in which curved surfaces lie


def normal(d: int, n: int, m: int, rng: np.random.Generator, _: float) -> Pair:
    """A perfect generator of N(0, I)."""
    return rng.standard_normal((n, d)), rng.standard_normal((m, d))


def shifted(d: int, rng: np.random.Generator, x: float) -> Pair:
    """Fakes shifted by a vector of length x in a random direction."""
    real, fake = normal(d, SIZE, SIZE, rng, 0)
    return real, fake + x * _directions(rng, 1, d)


def scaled(d: int, rng: np.random.Generator, x: float) -> Pair:
    """Fakes of standard deviation x."""
    real, fake = normal(d, SIZE, SIZE, rng, 0)
    return real, x * fake


def students(d: int, real_df: int, fake_df: int, rng: np.random.Generator, _: float) -> Pair:
    """Multivariate t laws of unit scale; with 0 degrees of freedom, Gaussians."""

    def draw(df: int) -> Rows:
        rows = rng.standard_normal((SIZE, d))
        return rows * np.sqrt(df / rng.chisquare(df, (SIZE, 1))) if df else rows

    return draw(real_df), draw(fake_df)


def surfaces(reals: Surface, fakes: Surface, noise: float, rng: np.random.Generator, _: float) -> Pair:
    """Two sets of few dimensions, embedded in 64 dimensions by the same rotation, with noise along each axis."""
    real, fake = reals(rng), fakes(rng)
    axes = np.linalg.qr(rng.standard_normal((_AMBIENT, real.shape[1])))[0].T
    noisy = noise * rng.standard_normal((2, SIZE, _AMBIENT))
    return real @ axes + noisy[0], fake @ axes + noisy[1]


def roll(rng: np.random.Generator, *, low: float = 1.5, high: float = 4.5, inwards: float = 0) -> Rows:
    """A Swiss roll of the usual size, angles from `low` to `high` times pi; its layers are 2 pi apart."""
    angle = np.pi * rng.uniform(low, high, SIZE)
    radius = angle - np.pi * inwards
    return np.column_stack([radius * np.cos(angle), 21 * rng.random(SIZE), radius * np.sin(angle)])


half_roll = partial(roll, high=3.0)
gaps = partial(roll, low=3.5, inwards=1)
"""Between the layers."""


def torus(rng: np.random.Generator, *, tube: float = 0.4, part: float = 1.0) -> Rows:
    """The surface of a tube of radius `tube` around a unit circle, or a part of its length."""
    around, along = 2 * np.pi * rng.random((2, SIZE)) * [[1.0], [part]]
    radius = 1 + tube * np.cos(around)
    return np.column_stack([radius * np.cos(along), radius * np.sin(along), tube * np.sin(around)])


def hole(rng: np.random.Generator) -> Rows:
    """In the middle of the torus, where it is not."""
    return 0.1 * rng.standard_normal((SIZE, 3))


def sphere(rng: np.random.Generator, *, k: int, radius: float = 1.0, half: bool = False) -> Rows:
    """A k-sphere, or a half of it."""
    rows = radius * _directions(rng, SIZE, k + 1)
    if half:
        rows[:, 0] = np.abs(rows[:, 0])
    return rows


def dropped(d: int, rng: np.random.Generator, x: float) -> Pair:
    """A mixture of far modes, and the same without its x rarest ones."""
    centers = _centers(rng, d)
    left = np.where(np.arange(len(WEIGHTS)) < len(WEIGHTS) - x, WEIGHTS, 0)
    return _modes(rng, centers, WEIGHTS), _modes(rng, centers, left)


def invented(d: int, rng: np.random.Generator, _: float) -> Pair:
    """A quarter of the fakes in a mode that the reals do not have."""
    centers = _centers(rng, d)
    weights, spreads = np.append(0.75 * WEIGHTS, 0.25), np.append(_SPREADS, 1.0)
    return _modes(rng, centers, WEIGHTS), _modes(rng, centers, weights, spreads)


def reweighted(d: int, rng: np.random.Generator, _: float) -> Pair:
    """Fakes with the frequencies of the modes in reverse order."""
    centers = _centers(rng, d)
    return _modes(rng, centers, WEIGHTS), _modes(rng, centers, WEIGHTS[::-1])


def collapsed(d: int, rng: np.random.Generator, _: float) -> Pair:
    """Fakes whose most frequent mode has a tenth of its spread."""
    centers = _centers(rng, d)
    spreads = np.append(0.1 * _SPREADS[:1], _SPREADS[1:])
    return _modes(rng, centers, WEIGHTS), _modes(rng, centers, WEIGHTS, spreads)


def copied(d: int, rng: np.random.Generator, _: float) -> Pair:
    """The reals themselves."""
    real = rng.standard_normal((SIZE, d))
    return real, real.copy()


def resampled(d: int, rng: np.random.Generator, _: float) -> Pair:
    """The reals drawn with replacement."""
    real = rng.standard_normal((SIZE, d))
    return real, real[rng.integers(SIZE, size=SIZE)]


def repeated(d: int, real_times: int, fake_times: int, rng: np.random.Generator, _: float) -> Pair:
    """1,000 reals and 1,000 fakes, each repeated x times."""
    real, fake = (
        rng.standard_normal((SIZE // times, d)).repeat(times, axis=0) for times in (real_times, fake_times)
    )
    return real, fake


def strays(d: int, count: int, rng: np.random.Generator, _: float) -> Pair:
    """All fakes far from the reals, except that `count` reals are among the fakes."""
    real, fake = normal(d, SIZE, SIZE, rng, 0)
    real[:count] += 5
    return real, fake + 5


class FeaturePool:
    """Features of real images, from which reals and faulty fakes are drawn without a row in common.

    Attributes:
        kept: Share of the rows that is left without 0, 1, 2, ... of ten clusters, in the order they are dropped.
    """

    def __init__(self, rows: NDArray[np.float32], size: int) -> None:
        from scipy.cluster.vq import kmeans2

        self._rows, self._size = rows, size
        self._mean, self._spread = rows.mean(axis=0), rows.std(axis=0)
        covariance = np.cov(rows, rowvar=False) + 1e-6 * np.square(self._spread).mean() * np.eye(
            rows.shape[1]
        )
        self._factor = np.linalg.cholesky(covariance).astype(np.float32)
        self._cluster = kmeans2(rows, 10, minit="++", rng=np.random.default_rng(0))[1]
        counts = np.bincount(self._cluster, minlength=10)
        self.kept = 1 - np.append(0, np.cumsum(counts)) / len(rows)

    def halves(self, rng: np.random.Generator, _: float = 0) -> Pair:
        """Other reals."""
        rows = self._rows[rng.permutation(len(self._rows))[: 2 * self._size]]
        return rows[: self._size], rows[self._size :]

    def gaussian(self, rng: np.random.Generator, x: float) -> Pair:
        """The share x of the fakes from the Gaussian with the mean and covariance of the pool."""
        real, fake = self.halves(rng)
        count = round(x * len(fake))
        noise = rng.standard_normal((count, fake.shape[1]), dtype=np.float32)
        fake[:count] = self._mean + noise @ self._factor.T
        return real, fake

    def without_clusters(self, rng: np.random.Generator, x: float) -> Pair:
        """Fakes without x of ten clusters."""
        order = rng.permutation(len(self._rows))
        later = order[self._size :]
        fake = later[self._cluster[later] >= x][: self._size]
        return self._rows[order[: self._size]], self._rows[fake]

    def noisy(self, rng: np.random.Generator, x: float) -> Pair:
        """Noise of x standard deviations of each coordinate."""
        real, fake = self.halves(rng)
        return real, fake + x * self._spread * rng.standard_normal(fake.shape, dtype=np.float32)

    def shrunken(self, rng: np.random.Generator, x: float) -> Pair:
        """Fakes x times as far from the mean."""
        real, fake = self.halves(rng)
        return real, self._mean + np.float32(x) * (fake - self._mean)

    def copies(self, rng: np.random.Generator, _: float) -> Pair:
        """The reals themselves."""
        real, _fake = self.halves(rng)
        return real, real.copy()


def _modes(rng: np.random.Generator, centers: Rows, weights: Rows, spreads: Rows = _SPREADS) -> Rows:
    mode = rng.choice(len(weights), SIZE, p=weights / weights.sum())
    rows: Rows = centers[mode] + spreads[mode, None] * rng.standard_normal((SIZE, centers.shape[1]))
    return rows


def _centers(rng: np.random.Generator, d: int) -> Rows:
    return 10 * rng.standard_normal((len(WEIGHTS) + 1, d))


def _directions(rng: np.random.Generator, n: int, d: int) -> Rows:
    rows = rng.standard_normal((n, d))
    directions: Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return directions
