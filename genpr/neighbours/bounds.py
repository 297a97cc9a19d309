"""Cheap float32 bounds on squared distances, with a rounding slack that each row carries for itself.

**What is bounded.** A frame moves features x to X = (x - centre) * scale, scale a power of two, and keeps
z = X rounded to float32. Put A = |z|^2, B = |z'|^2 for the two rows of a pair and S = A + B, and let
D = |X - X'|^2 be the true, scaled squared distance. Float32 arithmetic delivers

    key = <z, z'> - floor/2 - floor'/2    with    floor = A - slack,  slack = 2 gamma(d + 8) A + tiny

and the claim is: **-2 key <= D <= -2 key + 2 (slack + slack')**, whatever the order of summation.

**Derivation**, with u = 2^-24, gamma(m) = m u / (1 - m u), and 2 |z| |z'| <= S, which is what makes the slack
separable. In exact arithmetic -2 key would be |z - z'|^2 - slack - slack', so it remains to show that all
errors of -2 key against D add up to at most slack + slack' = 2 gamma(d + 8) S + tiny.

1. Centring rounds once, in the subtraction; the scaling is exact: |z - X| <= e = 1.001 u |z|. Then
   | D - |z - z'|^2 | <= (e + e') (2 |z - z'| + e + e') <= 4.01 u S.
2. The product. A dot product of length m errs by at most gamma(m) times the sum of the absolute terms, in any
   order, fused or not. Both ways of forming a key are covered: a dot product of d features followed by two
   subtractions, and one dot product of rows that carry floor/2 as extra columns (d + 2 terms). Their
   absolute terms sum to at most |z| |z'| + A/2 + B/2 <= S: the error of 2 key is at most 2 gamma(d + 2) S.
3. Rounding A/2 and the slack in it to float32 once: u S.
4. The definition itself, in float64: below 2^-45 S.

Together 2 gamma(d + 2) S + 6 u S, and 2 gamma(d + 8) S leaves another 6 u S unused. Where numbers get so small
that float32 rounds absolutely instead of relatively, or flushes to zero, each of the d terms errs by at most
2^-125 (1 + |z| + |z'|) more; tiny = d 2^-120 and what was left unused cover that. A row that equals the centre
has z = 0 without any error and needs no slack at all, so copies of it are settled for free.

Where many distances lie inside this slack, as between the images of a collapsed generator, `tight_bounds` does
the same in float64, with a slack 2^29 times smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_SAMPLE = 256
_CHUNK_ELEMENTS = 2**20
# A pair inside a float64 matrix product costs about this many times less than one computed by the definition.
_PAIRS_PER_VERIFIED = 64

# Scaled norms above this would overflow when squared and added in float32.
_MAX_NORM = 2.0**60
# Stands for "no lower bound": more than any squared distance of rows within _MAX_NORM, and finite, so that no
# engine ever computes inf - inf.
_NO_FLOOR = -(2.0**124)


@dataclass(frozen=True, slots=True)
class Placed:
    """Features with their float32 coordinates in a frame, ready for the bounds. See the module's docstring.

    Attributes:
        features: (n, d) float32, the original values, on which every decision rests.
        augmented: (n, d + 1) float32: the coordinates z, and last half the floor. Engines that want one inner
            product per pair search it as it is.
        slack: (n,) float64, infinite for rows that the frame cannot hold; their coordinates are zero.
        scale: Coordinates are features times this power of two.
    """

    features: Tensor
    augmented: Tensor
    slack: Tensor
    scale: float

    def __len__(self) -> int:
        return len(self.features)

    @property
    def coordinates(self) -> Tensor:
        """z, (n, d) float32."""
        return self.augmented[:, :-1]

    @property
    def half_floors(self) -> Tensor:
        """Half of |z|^2 - slack, (n,) float32."""
        return self.augmented[:, -1]

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.features.device

    def select(self, rows: Tensor) -> Placed:
        """The rows with indices (p,)."""
        return Placed(self.features[rows], self.augmented[rows], self.slack[rows], self.scale)

    def sq_lower(self, keys: Tensor) -> Tensor:
        """Lower bounds on squared distances in the unit of the features, float64, from `keys`."""
        return keys.double() * (-2.0 / self.scale**2)

    def sq_slack(self, rows: Tensor) -> Tensor:
        """The slack of `rows` in the same unit: twice its sum over a pair separates the pair's bounds."""
        return self.slack[rows] / self.scale**2


@dataclass(frozen=True, slots=True)
class Frame:
    """Where and at what scale float32 serves a data set best. It affects speed, never a result.

    Attributes:
        centre: (d,) float32. |x|^2 + |y|^2 - 2 <x, y> cancels when a common offset is large next to the spread.
        scale: A power of two that brings typical norms near 1, so that squares neither overflow nor vanish.
    """

    centre: Tensor
    scale: float

    @classmethod
    def fit(cls, features: Tensor) -> Frame:
        """Fit to (n, d) float32 features: the median of evenly spaced rows, which no outlier can move far."""
        count = min(len(features), _SAMPLE)
        rows = torch.arange(count, device=features.device) * len(features) // count
        sample = features[rows]
        # Sorting finds the median without the nondeterministic CUDA kernel of torch.median.
        centre = sample.sort(dim=0).values[(count - 1) // 2]
        norms = (sample.double() - centre).square_().sum(dim=1).sqrt()
        moved = norms[norms > 0]
        typical = moved.sort().values[len(moved) // 2] if len(moved) else centre.double().norm()
        return cls(centre, _power_of_two_near(1.0 / float(typical)) if typical > 0 else 1.0)

    def place(self, features: Tensor) -> Placed:
        """Coordinates and slack of (n, d) float32 `features`, which are kept, not copied."""
        n, d = features.shape
        augmented = torch.empty(n, d + 1, dtype=torch.float32, device=features.device)
        coordinates = augmented[:, :-1]
        torch.sub(features, self.centre, out=coordinates)
        coordinates *= self.scale
        sq_norms = _sq_norms(coordinates)
        factor = _slack_factor(d + 8, 2.0**-24)
        slack = sq_norms * factor + d * 2.0**-120
        at_centre = (sq_norms == 0).nonzero()[:, 0]
        slack[at_centre] *= (features[at_centre] != self.centre).any(dim=1)
        too_far = ~(sq_norms <= (_MAX_NORM**2 if factor < math.inf else -1.0))
        coordinates[too_far] = 0
        slack[too_far] = torch.inf
        floors = sq_norms.masked_fill(too_far, 0) - slack
        augmented[:, -1] = floors.clamp_(min=_NO_FLOOR).div_(2)
        return Placed(features, augmented, slack, self.scale)


def _sq_norms(rows: Tensor) -> Tensor:
    """(n,) float64, chunk by chunk."""
    out = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    step = max(1, _CHUNK_ELEMENTS // rows.shape[1])
    for start in range(0, len(rows), step):
        chunk = slice(start, start + step)
        torch.sum(rows[chunk].double().square_(), dim=1, out=out[chunk])
    return out


def tight_bounds(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor] | None:
    """Float64 bounds on the squared distances between rows `i` of `x` and `j` of `y`, by one matrix product.

    The derivation is the module's, with u = 2^-53 and two more errors to cover, relative to S: gamma(d) for
    norms that are summed in any order, and 2 (log2 d + 3) u for the rounding of the definition itself, now
    that both are of the same precision.

    Returns:
        Lower and upper bounds, each (p,) float64; None where the pairs are so scattered over their rows and
        columns that computing them one by one is cheaper.
    """
    rows, i = torch.unique(i, return_inverse=True)
    columns, j = torch.unique(j, return_inverse=True)
    if len(i) * _PAIRS_PER_VERIFIED <= len(rows) * len(columns):
        return None
    origin = x[rows[0]].double()  # one of the rows: if they are all copies, everything below is exactly zero
    left, right = x[rows].double().sub_(origin), y[columns].double().sub_(origin)
    left_sq, right_sq = left.square().sum(dim=1), right.square().sum(dim=1)
    sq = left_sq[i] + right_sq[j] - 2 * (left @ right.T)[i, j]
    d = x.shape[1]
    factor = _slack_factor(d + 8 + d.bit_length(), 2.0**-53)
    slack = (left_sq[i] + right_sq[j]) * factor
    return sq - slack, sq + slack


def _slack_factor(m: int, unit_roundoff: float) -> float:
    """2 gamma(m): slack of a row relative to its squared norm; infinite where nothing is proven."""
    error = m * unit_roundoff
    return 2 * error / (1 - error) if error < 0.25 else math.inf


def _power_of_two_near(value: float) -> float:
    exponent = round(math.log2(value))
    return 2.0 ** min(max(exponent, -126), 126)  # what float32 can multiply by exactly
