"""Every metric of ball memberships by its published formula: loops over float64 distances, and no code of genpr."""

import math
from dataclasses import dataclass

import numpy as np
import oracle
from null_oracle import clipped_coverage_curve
from numpy.typing import NDArray
from scipy.stats import hypergeom


@dataclass(frozen=True)
class Pair:
    """Two sets and all distances between and within them."""

    between: NDArray  # (n, m) squared distances of reals and fakes
    real: NDArray  # (n, n) of reals
    fake: NDArray  # (m, m) of fakes
    ties: str  # whether balls are closed

    @classmethod
    def of(cls, real: NDArray, fake: NDArray, ties: str) -> "Pair":
        distances = [oracle.sq_distances(*sides) for sides in ((real, fake), (real, real), (fake, fake))]
        return cls(*distances, ties)

    @property
    def sizes(self) -> tuple[int, int]:
        return self.between.shape

    def swapped(self) -> "Pair":
        return Pair(self.between.T, self.fake, self.real, self.ties)

    def inside(self, sq: float, sq_radius: float) -> bool:
        return bool(sq <= sq_radius if self.ties == "closed" else sq < sq_radius)

    def radii(self, k: int) -> list[float]:
        """Squared, of the reals."""
        return [float(np.sort(np.delete(row, i))[k - 1]) for i, row in enumerate(self.real)]

    def median_radius(self, k: int) -> float:
        """Squared; the mean of the two in the middle, not of their squares."""
        ordered = sorted(self.radii(k))
        low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
        return low if low == high else ((math.sqrt(low) + math.sqrt(high)) / 2) ** 2

    def fakes_in(self, radii: list[float]) -> NDArray:
        """(n, m): whether fake j lies in the ball of real i."""
        return oracle.memberships(self.between, np.array(radii), self.ties)

    def reals_in(self, k: int, most: float = math.inf) -> NDArray:
        """(n, n): whether real j lies in the ball that another real i has when j is left out; none larger than `most`."""
        n = self.sizes[0]
        inside = np.zeros((n, n), dtype=bool)
        for i, row in enumerate(self.real):
            others = sorted(np.delete(row, i).tolist())
            for j in range(n):
                if i != j:
                    without = others.copy()
                    without.remove(row[j])
                    radius = without[k - 1] if k <= len(without) else math.inf
                    inside[i, j] = self.inside(row[j], min(radius, most))
        return inside


def precision(pair: Pair, k: int) -> float:
    inside = pair.fakes_in(pair.radii(k))
    return sum(any(column) for column in inside.T) / pair.sizes[1]


def coverage(pair: Pair, k: int) -> float:
    inside = pair.fakes_in(pair.radii(k))
    return sum(any(row) for row in inside) / pair.sizes[0]


def density(pair: Pair, k: int) -> float:
    return pair.fakes_in(pair.radii(k)).sum() / (k * pair.sizes[1])


def clipped_density(pair: Pair, k: int) -> float:
    most = pair.median_radius(k)
    radii = [min(radius, most) for radius in pair.radii(k)]
    of_fakes = np.mean([min(1.0, sum(column) / k) for column in pair.fakes_in(radii).T])
    of_reals = np.mean([min(1.0, sum(column) / k) for column in pair.reals_in(k, most).T])
    return min(1.0, of_fakes / of_reals) if of_reals else 0.0


def clipped_coverage(pair: Pair, k: int) -> float:
    n, m = pair.sizes
    raw = float(np.mean([min(1.0, sum(row) / k) for row in pair.fakes_in(pair.radii(k))]))
    return float(np.interp(raw, clipped_coverage_curve(n, np.arange(m + 1), k), np.arange(m + 1) / m))


def nn_accuracy(pair: Pair, _k: int) -> float:
    """Leave-one-out accuracy; a tie goes to the other set with closed balls, and to the same set with open ones."""

    def right(one: Pair) -> int:
        own = one.radii(1)
        return sum(not any(one.inside(sq, own[i]) for sq in one.between[i]) for i in range(one.sizes[0]))

    return (right(pair) + right(pair.swapped())) / sum(pair.sizes)


def support_and_coverage(pair: Pair, k: int) -> tuple[float, float]:
    """Reals in five clipped fake balls over that share of the fakes, and real balls with four fakes over their expectation."""
    n, m = pair.sizes
    other = pair.swapped()
    most = other.median_radius(k)
    radii = [min(radius, most) for radius in other.radii(k)]
    of_reals = np.mean([sum(column) >= 5 for column in other.fakes_in(radii).T])
    of_fakes = np.mean([sum(column) >= 5 for column in other.reals_in(k, most).T])
    covered = np.mean([sum(row) >= 4 for row in pair.fakes_in(pair.radii(k))])
    return of_reals / of_fakes if of_fakes else math.nan, covered / hit(n, m, k, 4)


def values(pair: Pair, k: int) -> dict[str, float]:
    """Values of all metrics; NaN for calibrated recall if its null needs a part of the reals."""
    other = pair.swapped()
    of_reals = covered_by_others(pair, k)
    calibrated = [
        each / of_reals if of_reals else math.nan for each in (precision(pair, k), precision(other, k))
    ]
    return {
        "calibrated_precision": calibrated[0],
        "calibrated_recall": calibrated[1] if pair.sizes[0] <= pair.sizes[1] else math.nan,
        "precision": precision(pair, k),
        "recall": precision(other, k),
        "density": density(pair, k),
        "coverage": coverage(pair, k),
        "clipped_density": clipped_density(pair, k),
        "clipped_coverage": clipped_coverage(pair, k),
        "symmetric_precision": min(precision(pair, k), coverage(other, k)),
        "symmetric_recall": min(precision(other, k), coverage(pair, k)),
        "complement_precision": coverage(other, k),
        "witnessed_diversity": float(np.min([1.0, *support_and_coverage(pair, k)])),
        "nn_accuracy": nn_accuracy(pair, k),
    }


def hit(n: int, m: int, k: int, at_least: int = 1) -> float:
    """Probability that the k-NN ball of one of n points contains at least t = `at_least` of m others.

    At least t of the first k + t - 1 of n - 1 + m others, in order of distance, are of the m.
    """
    return float(hypergeom.sf(at_least - 1, n + m - 1, m, k + at_least - 1))


def covered_by_others(pair: Pair, k: int) -> float:
    """Share of reals in the ball of another real whose radius is computed without them."""
    return float(pair.reals_in(k).any(axis=0).mean())


def nulls(pair: Pair, k: int) -> dict[str, float]:
    """Nulls that have a closed form or follow from all reals; those of recall do not for fewer fakes than reals."""
    n, m = pair.sizes
    of_reals = covered_by_others(pair, k)
    return {
        "calibrated_precision": 1.0,
        "calibrated_recall": 1.0,
        "precision": of_reals,
        "density": 1.0,
        "coverage": hit(n, m, k),
        "clipped_density": 1.0,
        "clipped_coverage": 1.0,
        "symmetric_precision": min(of_reals, hit(m, n, k)),
        "complement_precision": hit(m, n, k),
        "witnessed_diversity": 1.0,
        "nn_accuracy": (n * (n - 1) + m * (m - 1)) / ((n + m) * (n + m - 1)),
        **({"recall": of_reals, "symmetric_recall": min(of_reals, hit(n, m, k))} if n <= m else {}),
    }
