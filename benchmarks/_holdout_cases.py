"""Hold-out cases: reals and fakes whose fidelity and diversity are known, and what a metric should read.

Fidelity is the share of the fakes in the support of the distribution of the reals, diversity the share of this distribution in
the support of that of the fakes; the support of a Gaussian is its region of highest density with nearly all of its mass. All
targets were written down before any draw was measured. `None` means that the answer depends on the definition: the diversity
of fakes of which more than a tenth are wrong, of strongly re-weighted modes and of fakes that are spread too wide.

A value is right if the mean over draws is within `TOLERANCE` of its target, for all metrics and targets.
No distribution is one of metric_checks.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import _holdout_distributions as families
import numpy as np
from _holdout_distributions import FAMILIES, Family, Mixture, Rows, Sampler

Pair = tuple[Rows, Rows]
Draw = Callable[[np.random.Generator], Pair]
Change = Callable[[np.random.Generator, Rows], Rows]

TOLERANCE = 0.05
"""Tolerance of means over draws."""
FEATURES = "features"
"""The group of the cases that need a file."""
SIZE = 600
_SIZES = ((400, 2000), (2000, 400))  # reals and fakes
_MOST_WRONG = 0.1  # share of wrong fakes up to which the diversity of the others should be 1
_TINY, _SMALL = 1e-3, 0.03  # noise of near-duplicates, relative to the deviation of each coordinate


@dataclass(frozen=True, slots=True)
class Case:
    """One pair of sets with a known answer.

    Attributes:
        group: The kind of fault.
        name: In words, distinct.
        draw: From a generator to reals (n, d) and fakes (m, d).
        fidelity: The target of metrics of fidelity; None for nothing.
        diversity: The same of diversity.
    """

    group: str
    name: str
    draw: Draw
    fidelity: float | None
    diversity: float | None

    def rng(self, seed: int, draw: int) -> np.random.Generator:
        """A generator seeded by the name of the draw, so that a subset of the cases gives the same draws."""
        digest = hashlib.sha256(f"{seed}|{self.group}|{self.name}|{draw}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def is_right(value: float, target: float) -> bool:
    """Whether a mean over draws equals its target; false for NaN."""
    return abs(value - target) <= TOLERANCE + 1e-9


def made_up_cases() -> Iterator[Case]:
    """All that need no features."""
    yield from _perfect()
    yield from _sizes()
    yield from _junk()
    yield from _modes()
    yield from _spread()
    yield from _parts()
    yield from _off_support()
    yield from _outliers()
    yield from _copies()
    yield from _near_duplicates()


# Sets and faults ----------------------------------------------------------------------------------------------


def _both(family: Family, n: int = SIZE, m: int = SIZE) -> Draw:
    def draw(rng: np.random.Generator) -> Pair:
        sample = family(rng)
        return sample(rng, n), sample(rng, m)

    return draw


def _changed(draw: Draw, *, real: Change | None = None, fake: Change | None = None) -> Draw:
    """Faults planted into either side."""

    def changed(rng: np.random.Generator) -> Pair:
        reals, fakes = draw(rng)
        return real(rng, reals) if real else reals, fake(rng, fakes) if fake else fakes

    return changed


def _share(share: float, fault: Change) -> Change:
    """The fault in the last rows, which are in random order."""

    def change(rng: np.random.Generator, rows: Rows) -> Rows:
        kept = len(rows) - round(share * len(rows))
        return np.concatenate([rows[:kept], fault(rng, rows[kept:])])

    return change


def shuffled(rng: np.random.Generator, rows: Rows) -> Rows:
    """Permute each coordinate separately: marginals stay, dependence is lost."""
    return rng.permuted(rows, axis=0)


def moved(rng: np.random.Generator, rows: Rows) -> Rows:
    """All rows by the same vector, of four times their root mean square distance from the mean."""
    return rows + 4 * _radius(rows) * _directions(rng, 1, rows.shape[1])


def blended(rng: np.random.Generator, rows: Rows) -> Rows:
    """Means of two random rows."""
    return (rows + rows[rng.permutation(len(rows))]) / 2


def uniform_directions(rng: np.random.Generator, rows: Rows) -> Rows:
    """Uniform on the unit sphere."""
    return _directions(rng, *rows.shape)


def scaled(factor: float, _rng: np.random.Generator, rows: Rows) -> Rows:
    """Distances from the mean times `factor`."""
    center = rows.mean(axis=0)
    changed: Rows = center + factor * (rows - center)
    return changed


def strewn(factor: float, rng: np.random.Generator, rows: Rows) -> Rows:
    """Outliers: in a wide cloud around the mean, each in a different direction."""
    length = factor * _radius(rows) * rng.uniform(0.5, 1.5, (len(rows), 1))
    outliers: Rows = rows.mean(axis=0) + length * _directions(rng, *rows.shape)
    return outliers


def bursts(size: int, noise: float, rng: np.random.Generator, rows: Rows) -> Rows:
    """Every `size` rows become one with noise, as frames of a video are alike."""
    repeated = np.repeat(rows[::size], size, axis=0)[: len(rows)]
    return rng.permutation(repeated + noise * rows.std(axis=0) * rng.standard_normal(rows.shape))


def one_burst(rng: np.random.Generator, rows: Rows) -> Rows:
    """One row with noise."""
    return bursts(len(rows), _TINY, rng, rows)


def noised(noise: float, rng: np.random.Generator, rows: Rows) -> Rows:
    """With noise relative to the deviation of each coordinate."""
    noisy: Rows = rows + noise * rows.std(axis=0) * rng.standard_normal(rows.shape)
    return noisy


def _radius(rows: Rows) -> float:
    return float(np.sqrt(rows.var(axis=0).sum()))


def _directions(rng: np.random.Generator, n: int, d: int) -> Rows:
    rows: Rows = rng.standard_normal((n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


# Cases --------------------------------------------------------------------------------------------------------


def _perfect() -> Iterator[Case]:
    for name, family in FAMILIES.items():
        yield Case("perfect", name, _both(family), 1, 1)


def _sizes() -> Iterator[Case]:
    for name, family in (
        ("spectrum i^-1, d = 256", families.SPECTRUM_256),
        ("ReLU features", families.RELU),
        ("4-manifold", families.NETWORK_4),
        ("12 Zipf modes", families.FACTORS),
    ):
        for n, m in _SIZES:
            yield Case("sizes", f"{name}, {n} reals, {m} fakes", _both(family, n, m), 1, 1)
    for n, m in _SIZES:
        sizes = f"{n} reals, {m} fakes"
        junk = _changed(_both(families.RELU, n, m), fake=_share(0.25, shuffled))
        yield Case("sizes", f"ReLU features, a quarter shuffled, {sizes}", junk, 0.75, None)
        drop = _mixture(families.FISHER, _kept(4), n, m)
        yield Case("sizes", f"Fisher modes, half dropped, {sizes}", drop, 1, 0.5)


def _junk() -> Iterator[Case]:
    kinds: tuple[tuple[str, Family, Change], ...] = (
        ("spectrum i^-1, d = 256, moved away", families.SPECTRUM_256, moved),
        ("gamma, moved away", families.GAMMA, moved),
        ("ReLU features, shuffled", families.RELU, shuffled),
        ("4-manifold, shuffled", families.NETWORK_4, shuffled),
        ("12 Zipf modes, shuffled", families.FACTORS, shuffled),
        ("8 Fisher modes, uniform", families.FISHER, uniform_directions),
    )
    for name, family, fault in kinds:
        for share in (0.05, 0.25, 0.5):
            draw = _changed(_both(family), fake=_share(share, fault))
            diversity = 1 if share <= _MOST_WRONG else None
            yield Case("junk", f"{name}, {share:.0%} of fakes", draw, 1 - share, diversity)


_Mixtures = Callable[[np.random.Generator], Mixture]


def _mixture(family: _Mixtures, weigh: Callable[[Rows], Rows], n: int = SIZE, m: int = SIZE) -> Draw:
    """Fakes with other weights."""

    def draw(rng: np.random.Generator) -> Pair:
        sample = family(rng)
        return sample(rng, n), sample(rng, m, weights=weigh(sample.weights))

    return draw


def _kept(count: int) -> Callable[[Rows], Rows]:
    return lambda weights: weights[:count]


def _invented(share: float, weights: Rows) -> Rows:
    """With the share in modes that the reals do not have."""
    count = max(1, round(share * len(weights)))
    return np.append((1 - share) * weights, np.full(count, share / count))


def _modes() -> Iterator[Case]:
    mixtures: tuple[tuple[str, _Mixtures, Rows, tuple[int, ...]], ...] = (
        ("12 Zipf modes", families.FACTORS, families.zipf(12), (8, 4, 2)),
        ("8 Fisher modes", families.FISHER, np.full(8, 1 / 8), (7, 4, 2)),
        ("10 code words", families.BITS, np.full(10, 1 / 10), (9, 5, 2)),
    )
    group = "modes"
    for name, family, weights, kept in mixtures:
        for count in kept:
            draw = _mixture(family, _kept(count))
            yield Case(group, f"{name}, only {count}", draw, 1, float(weights[:count].sum()))
        for share in (0.1, 0.3):
            draw = _mixture(family, partial(_invented, share))
            diversity = 1 if share <= _MOST_WRONG else None
            yield Case(group, f"{name}, {share:.0%} of fakes in invented ones", draw, 1 - share, diversity)
        yield Case(group, f"{name}, one mode repeated", _mixture(family, _doubled), 1, 1)
        none = _mixture(family, lambda weights: np.append(0 * weights, weights))
        yield Case(group, f"{name}, none but invented ones", none, 0, 0)
    zipf = families.FACTORS
    flattened = _mixture(zipf, np.sqrt)
    yield Case(group, "12 Zipf modes, weights half as uneven", flattened, 1, 1)
    yield Case(group, "12 Zipf modes, weights reversed", _mixture(zipf, lambda w: w[::-1]), 1, None)


def _doubled(weights: Rows) -> Rows:
    """The first mode twice as frequent."""
    return weights * np.where(np.arange(len(weights)) == 0, 2, 1)


def _spread() -> Iterator[Case]:
    gaussian = (
        ("spectrum i^-1, d = 256", families.SPECTRUM_256),
        ("spectrum i^-1, d = 1024", families.SPECTRUM_1024),
        ("spectrum i^-1.5, d = 512", families.SPECTRUM_512),
    )
    group = "spread"
    for name, family in (*gaussian, ("Laplace", families.LAPLACE), ("correlated blocks", families.BLOCKS)):
        narrow, wide = (_changed(_both(family), fake=partial(scaled, factor)) for factor in (0.5, 2))
        yield Case(group, f"{name}, contracted to .5", narrow, 1, 0)
        yield Case(group, f"{name}, expanded to 2", wide, 0, None)
    for name, family in gaussian:
        yield Case(group, f"{name}, the first 16 axes alone", _changed(_both(family), fake=_first_axes), 1, 0)
    for name, family in (
        ("gamma", families.GAMMA),
        ("rectified", families.SPARSE),
        ("ReLU features", families.RELU),
    ):
        narrow = _changed(_both(family), fake=partial(scaled, 0.4))
        yield Case(group, f"{name}, contracted to .4", narrow, None, 0)
    for factor, fidelity, diversity in ((4, 1, 0), (0.25, 0, None)):
        draw = _concentrated(factor)
        yield Case(group, f"one Fisher mode, concentration times {factor:g}", draw, fidelity, diversity)


def _first_axes(_rng: np.random.Generator, rows: Rows) -> Rows:
    kept = rows.copy()
    kept[:, 16:] = 0
    return kept


def _concentrated(factor: float) -> Draw:
    def draw(rng: np.random.Generator) -> Pair:
        # The unused mode of a mixture of one has the same center only if drawn from the same state.
        state = int(rng.integers(2**32))
        real, fake = (
            families.fisher(64, (kappa,), np.random.default_rng(state)) for kappa in (150.0, 150.0 * factor)
        )
        return real(rng, SIZE), fake(rng, SIZE)

    return draw


def _parts() -> Iterator[Case]:
    """Fakes from a part of the distribution, so that each is perfect."""
    group = "parts"
    for name, family in (
        ("spectrum i^-1, d = 256", families.SPECTRUM_256),
        ("gamma", families.GAMMA),
        ("Laplace", families.LAPLACE),
        ("rectified", families.SPARSE),
        ("ReLU features", families.RELU),
    ):
        for words, sign in (("inner", 1), ("outer", -1)):
            yield Case(group, f"{name}, the {words} half", _half(family, partial(_lengths, sign)), 1, 0.5)
    for name, family in (("spectrum i^-1.5, d = 512", families.SPECTRUM_512), ("counts", families.COUNTS)):
        yield Case(group, f"{name}, half along the main axis", _half(family, _main_axis), 1, 0.5)
    for dimension, manifold in ((2, families.NETWORK_2), (4, families.NETWORK_4), (8, families.NETWORK_8)):
        for low, kept in ((0.0, 0.5), (0.5, 0.25)):
            draw = _part_of_manifold(manifold, low)
            yield Case(group, f"{dimension}-manifold, {kept:g} of one latent", draw, 1, kept)


def _lengths(sign: float, rows: Rows) -> Rows:
    """Distances from the mean."""
    lengths: Rows = sign * np.linalg.norm(rows - rows.mean(axis=0), axis=1)
    return lengths


def _main_axis(rows: Rows) -> Rows:
    """Positions along the first principal axis, whose sign is fixed by that of its largest entry."""
    centered = rows - rows.mean(axis=0)
    axis = np.linalg.eigh(centered.T @ centered)[1][:, -1]
    positions: Rows = centered @ axis
    return positions


def _half(family: Family, key: Callable[[Rows], Rows]) -> Draw:
    """Fakes are the half of twice as many draws that comes first by `key`."""

    def draw(rng: np.random.Generator) -> Pair:
        sample = family(rng)
        real, rows = sample(rng, SIZE), sample(rng, 2 * SIZE)
        return real, rng.permutation(rows[np.argsort(key(rows))[:SIZE]])

    return draw


def _part_of_manifold(family: Callable[[np.random.Generator], families.Manifold], low: float) -> Draw:
    def draw(rng: np.random.Generator) -> Pair:
        sample = family(rng)
        return sample(rng, SIZE), sample(rng, SIZE, low=low)

    return draw


def _off_support() -> Iterator[Case]:
    faults: tuple[tuple[str, Family, Change], ...] = (
        ("ReLU features, shuffled", families.RELU, shuffled),
        ("correlated blocks, shuffled", families.BLOCKS, shuffled),
        ("2-manifold, blended", families.NETWORK_2, blended),
        ("4-manifold, shuffled", families.NETWORK_4, shuffled),
        ("8-manifold, shuffled", families.NETWORK_8, shuffled),
        ("rectified, negative", families.SPARSE, lambda _, rows: -rows),
        ("gamma, negative", families.GAMMA, lambda _, rows: -rows),
        ("spectrum i^-1, d = 256, axes reversed", families.SPECTRUM_256, lambda _, rows: rows[:, ::-1]),
        ("spectrum i^-1.5, d = 512, axes reversed", families.SPECTRUM_512, lambda _, rows: rows[:, ::-1]),
        ("Fisher modes, lengths 1.5", families.FISHER, lambda _, rows: 1.5 * rows),
        ("Laplace, moved away", families.LAPLACE, moved),
    )
    for name, family, fault in faults:
        yield Case("off support", name, _changed(_both(family), fake=fault), 0, 0)
    for name, manifold in (("2-manifold", families.NETWORK_2), ("8-manifold", families.NETWORK_8)):
        yield Case("off support", f"{name}, of another network", _two_laws(manifold), 0, 0)


def _two_laws(family: Family) -> Draw:
    return lambda rng: (family(rng)(rng, SIZE), family(rng)(rng, SIZE))


def _outliers() -> Iterator[Case]:
    group = "outliers"
    for name, family in (
        ("spectrum i^-1, d = 256", families.SPECTRUM_256),
        ("gamma", families.GAMMA),
        ("ReLU features", families.RELU),
        ("12 Zipf modes", families.FACTORS),
    ):
        perfect, wide = _both(family), _share(0.02, partial(strewn, 3))
        yield Case(group, f"{name}, 2% of reals strewn", _changed(perfect, real=wide), 1, 0.98)
        yield Case(group, f"{name}, 2% of fakes strewn", _changed(perfect, fake=wide), 0.98, 1)
        wrong = _changed(perfect, fake=moved)
        few = _share(0.01, partial(strewn, 4))
        yield Case(group, f"{name}, wrong fakes, 1% of reals strewn", _changed(wrong, real=few), 0, 0)
        strewn_fakes = _changed(perfect, fake=lambda rng, rows: _moved_but(0.01, rng, rows))
        yield Case(group, f"{name}, wrong fakes, 1% of them strewn", strewn_fakes, 0, 0)
        centered = _changed(perfect, fake=_moved_but_center)
        yield Case(group, f"{name}, wrong fakes, one at the mean", centered, 0, 0)


def _moved_but(share: float, rng: np.random.Generator, rows: Rows) -> Rows:
    """Wrong, and a share in a cloud around the reals that is as wide as their distance."""
    count = round(share * len(rows))
    return np.concatenate([moved(rng, rows[count:]), strewn(4, rng, rows)[:count]])


def _moved_but_center(rng: np.random.Generator, rows: Rows) -> Rows:
    return np.concatenate([moved(rng, rows[1:]), rows.mean(axis=0, keepdims=True)])


def _copies() -> Iterator[Case]:
    group = "copies"
    for name, family in (
        ("spectrum i^-1, d = 256", families.SPECTRUM_256),
        ("ReLU features", families.RELU),
        ("2-manifold", families.NETWORK_2),
    ):
        perfect = _both(family)
        yield Case(group, f"{name}, the reals", _of_reals(family, lambda _, rows: rows), 1, 1)
        yield Case(group, f"{name}, the reals with noise", _of_reals(family, partial(noised, _TINY)), 1, 1)
        few = _of_reals(family, _few)
        yield Case(group, f"{name}, 20 reals 30 times each", few, 1, 0)
        half = _changed(perfect, fake=_share(0.5, one_burst))
        yield Case(group, f"{name}, half of the fakes one image", half, 1, None)
        distinct = _changed(perfect, fake=partial(bursts, 10, _TINY))
        yield Case(group, f"{name}, 60 fakes 10 times each", distinct, 1, None)


def _of_reals(family: Family, change: Change) -> Draw:
    def draw(rng: np.random.Generator) -> Pair:
        real = family(rng)(rng, SIZE)
        return real, rng.permutation(change(rng, real))

    return draw


def _few(rng: np.random.Generator, rows: Rows) -> Rows:
    """Copies of 20 rows, with the noise of near-duplicates."""
    return noised(_TINY, rng, np.repeat(rows[:20], len(rows) // 20, axis=0))


def _near_duplicates() -> Iterator[Case]:
    group = "near-duplicates"
    kinds: tuple[tuple[str, Family, float], ...] = (
        ("spectrum i^-1, d = 256", families.SPECTRUM_256, _SMALL),
        ("ReLU features", families.RELU, _TINY),
        ("gamma", families.GAMMA, _SMALL),
        ("12 Zipf modes", families.FACTORS, _TINY),
    )
    for name, family, noise in kinds:
        perfect, all_of = _both(family), partial(bursts, 4, noise)
        some = _share(0.2, partial(bursts, 5, noise))
        faults = (
            ("all reals in fours", all_of, None),
            ("20% of reals in fives", some, None),
            ("20% of fakes in fives", None, some),
            ("both in fours", all_of, all_of),
        )
        for words, real, fake in faults:
            yield Case(group, f"{name}, {words}", _changed(perfect, real=real, fake=fake), 1, 1)
    for name, family, noise in kinds[:2]:
        junk = _changed(_both(family), fake=_share(0.25, moved))
        reals = _changed(junk, real=partial(bursts, 4, noise))
        yield Case(group, f"{name}, reals in fours, 25% of fakes moved away", reals, 0.75, None)
        alike = _changed(_both(family), fake=_share(0.25, lambda rng, rows: one_burst(rng, moved(rng, rows))))
        yield Case(group, f"{name}, 25% of fakes one wrong image", alike, 0.75, None)
    for name, mixture, count, kept in (
        ("12 Zipf modes", families.FACTORS, 2, float(families.zipf(12)[:2].sum())),
        ("8 Fisher modes", families.FISHER, 4, 0.5),
    ):
        drop = _changed(_mixture(mixture, _kept(count)), real=partial(bursts, 4, _TINY))
        yield Case(group, f"{name}, reals in fours, only {count} modes", drop, 1, kept)


# Cases on features --------------------------------------------------------------------------------------------


def feature_cases(rows: Rows) -> Iterator[Case]:
    """Faults planted in (n, d) features of real images, of which each draw takes other ones."""

    def family(rng: np.random.Generator) -> Sampler:
        order = iter(np.array_split(rng.permutation(len(rows)), 2))
        return lambda rng, n: rows[next(order)[:n]]

    def half(rng: np.random.Generator) -> Pair:
        real, others = np.array_split(rows[rng.permutation(len(rows))], 2)
        inner = others[np.argsort(_main_axis(others))[: len(others) // 2]]
        return real[:SIZE], rng.permutation(inner)[:SIZE]

    perfect = _both(family)
    yield Case(FEATURES, f"other reals, {SIZE} reals, {SIZE} fakes", perfect, 1, 1)
    for share in (0.05, 0.1, 0.25, 0.5):
        draw = _changed(perfect, fake=_share(share, shuffled))
        diversity = 1 if share <= _MOST_WRONG else None
        yield Case(FEATURES, f"{share:.0%} of fakes shuffled", draw, 1 - share, diversity)
    yield Case(FEATURES, "all shuffled", _changed(perfect, fake=shuffled), 0, 0)
    yield Case(FEATURES, "all moved away", _changed(perfect, fake=moved), 0, 0)
    yield Case(FEATURES, "contracted to .5", _changed(perfect, fake=partial(scaled, 0.5)), None, 0)
    yield Case(FEATURES, "expanded to 2", _changed(perfect, fake=partial(scaled, 2)), 0, None)
    yield Case(FEATURES, "half along the main axis", half, 1, 0.5)
    few = _share(0.02, partial(strewn, 3))
    yield Case(FEATURES, "2% of reals strewn", _changed(perfect, real=few), 1, 0.98)
    yield Case(FEATURES, "wrong fakes, one at the mean", _changed(perfect, fake=_moved_but_center), 0, 0)
    yield Case(FEATURES, "20 reals 30 times each", _of_reals(family, _few), 1, 0)
    all_of, some = partial(bursts, 4, _TINY), _share(0.2, partial(bursts, 5, _TINY))
    yield Case(FEATURES, "all reals in fours", _changed(perfect, real=all_of), 1, 1)
    yield Case(FEATURES, "20% of reals in fives", _changed(perfect, real=some), 1, 1)
    yield Case(FEATURES, "20% of fakes in fives", _changed(perfect, fake=some), 1, 1)
    yield Case(FEATURES, "both in fours", _changed(perfect, real=all_of, fake=all_of), 1, 1)
    for n, m in _SIZES:
        yield Case(FEATURES, f"other reals, {n} reals, {m} fakes", _both(family, n, m), 1, 1)
