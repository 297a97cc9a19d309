"""Float32 bounds on squared distances, with a rounding slack for each row.

**What is bounded.** A projection moves features x to X = (x - center) * scale, scale a power of two, and each row is
represented by float32 coordinates q with a proven error e: |q - f(X)| <= e, where f is either the identity or

    f(X) = (V'X, |X - VV'X|)        V: (d, w - 1), orthonormal columns,

which keeps the leading directions and only the length of the rest. f never lengthens a distance, and what it
loses is known: with D = |X - X'|^2 and r = |X - VV'X| (zero for the identity),

    |f(X) - f(X')|^2  <=  D  <=  |f(X) - f(X')|^2 + 4 r r'.

The first is a Euclidean distance itself, so products of a few columns bound distances of thousands. Put
A = |q|^2, B = |q'|^2, S = A + B. Float32 arithmetic delivers

    key = <q, q'> - floor/2 - floor'/2    with    floor = A - slack,

and the claim is: **-2 key <= D <= -2 key + 2 (slack + slack') + 4 r r'**, whatever the order of summation, for

    slack = 2 gamma(w + 8) A  +  2 e sqrt(A) + e^2/t + t A  +  tiny,      t = 2^-21.

**Derivation**, with u = 2^-24, gamma(m) = m u / (1 - m u), and 2 |q| |q'| <= S, which makes slack separable.

1. The product. A dot product of length m errs by at most gamma(m) times the sum of the absolute terms, in any
   order, fused or not. A key is one dot product of rows that carry -floor/2 and 1 as extra columns: w + 2 terms
   that sum to at most |q| |q'| + A/2 + B/2 <= S in absolute value. So 2 key errs by at most 2 gamma(w + 2) S,
   and by u S more because the floors are rounded to float32; 2 gamma(w + 8) S leaves over 11 u S unused.
2. The coordinates. Let a = |q - q'|, so that sqrt(|f(X) - f(X')|^2) lies within e + e' of a. Then D is at least
   a^2 - 2 a (e + e') and at most (a + e + e')^2 + 4 r r'. With a <= |q| + |q'|, the part 2 a (e + e') is at
   most 2 e |q| + 2 e' |q'| + 2 e |q'| + 2 e' |q|, which 2 e |q'| <= e^2/t + t |q'|^2 makes separable; and
   (e + e')^2 <= 2 e^2 + 2 e'^2 is far less than what 1 left unused.
3. The definition itself, in float64: below 2^-45 S.

Where numbers get so small that float32 rounds absolutely, or flushes to zero, each of the w terms errs by at
most 2^-125 (1 + |q| + |q'|) more; tiny = w 2^-120 and what was left unused cover that. A row that equals the
center has q = 0 without any error and needs no slack, so its copies need no verification.

**How large e is.** Without directions, centring rounds once: e = 1.001 u |q|. With them, it adds 2 u |X| to the
errors of both coordinates and of r, and f is computed in float64: the columns of V are orthonormal up to eta = |V'V - I|, and the products err by gamma64(d) sqrt(w), so
V'X is good to tolerance |X|; the square of r, a difference of squares, is good to 4 tolerance |X|^2, and r
itself to that over r, or to its root where r is small. Rounding q to float32 adds 1.001 u |q|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.distance import (
    of_pairs,
    part_width,
    sq_differences_at,
    sq_differences_by_parts,
    sq_distances,
)
from genpr.neighbors.engine import places

_U = 2.0**-24
_T = 2.0**-21

# Scaled norms above this would overflow when squared and added in float32.
_MAX_NORM = 2.0**60
# Stands for "no lower bound": more than any squared distance of rows within _MAX_NORM, and finite, so that no
# engine ever computes inf - inf.
NO_FLOOR = -(2.0**124)


@dataclass(frozen=True, slots=True)
class Representation:
    """Coordinates of some rows with their slack and residual norms."""

    coordinates: Tensor  # q, (n, w) float32 or float16; zero for rows that it cannot hold
    slack: Tensor  # (n,) float64, infinite for those rows
    residual: Tensor | None  # r, rounded upwards, (n,) float64; None if all is in the coordinates
    half_floors: Tensor  # (n,) float32


def represent(
    features: Tensor,
    center: Tensor,
    scale: float,
    basis: Tensor | None,
    tolerance: float = 0.0,
    out: Tensor | None = None,
    memory: tuple[Tensor, Tensor] | None = None,
) -> Representation:
    """Coordinates of (n, d) `features` relative to `center`, in the directions of `basis` or in all, in `out` (n, w) if given.

    `memory`, (n, d) float32 and float64, is overwritten: fresh memory costs more than the arithmetic.
    """
    if basis is None:
        moved = torch.sub(features, center, out=out).mul_(scale)
        sq_norms = sq_norms_of(moved)
        width, e = moved.shape[1], 1.001 * _U  # error of a row, relative to its norm
        slack = sq_norms * (slack_factor(width + 8) + _T + 2 * e + e**2 / _T) + width * 2.0**-120
        residual = None
    else:
        moved, error, residual = _project(features, center, scale, basis, tolerance, memory)
        moved = moved if out is None else out.copy_(moved)
        sq_norms = sq_norms_of(moved)
        width = moved.shape[1]
        slack = sq_norms * (slack_factor(width + 8) + _T)
        slack += 2 * error * sq_norms.sqrt() + error**2 / _T + width * 2.0**-120
    is_usual = (sq_norms <= _MAX_NORM**2) & (sq_norms > 0) & (slack < torch.inf)
    if not is_usual.all():
        at = places(sq_norms == 0)
        differs = (features[at] != center).any(dim=1)
        too_far = ~((sq_norms <= _MAX_NORM**2) & slack.isfinite())
        slack[at] *= differs
        slack[too_far], sq_norms[too_far], moved[too_far] = torch.inf, 0, 0
        if residual is not None:
            residual[at] *= differs
            residual[too_far] = 0
    return Representation(moved, slack, residual, _half_floors(sq_norms, slack))


def _half_floors(sq_norms: Tensor, slack: Tensor) -> Tensor:
    """Half of |q|^2 - slack."""
    return (sq_norms - slack).clamp_(min=NO_FLOOR).div_(2).float()


_HALF_U = 2.0**-22
_HALF_T = 2.0**-12
_MAX_HALF = 2.0**14  # float16 ends at 65504
_MAX_HALF_NORM = 2.0**24  # squares stay far from where float32 ends


def represent_half(
    features: Tensor, center: Tensor, scale: float, out: Tensor | None = None
) -> Representation:
    """Rows of (n, d) `features` in float16, in `out` if given. Does not wait for the GPU.

    Products of float16 are exact in float32, and summed there.
    X as above, a = float16(X), e >= |X - a| is measured, n = |a|, N = |X|^2. Tensor cores add b > 1 products to a sum at once,
    and truncate each of these, and the result, below 2^-23 of the largest. So a sum of d products errs by at most
    gamma |a| |a'|, gamma of u = 2^-22 >= (b + 2) / b 2^-23, in any order. With P the computed product

        |2 <X, X'> - 2 P|  <=  2 (e n' + e' n + e e') + 2 gamma n n'  <=  slack + slack',
        slack = e^2/t + t n^2 + e^2 + gamma n^2 + 16 u (n^2 + N) + tiny,     t = 2^-12, u = 2^-24,

    and key = P - floor/2 - floor'/2 with floor = N - slack has -2 key <= D <= -2 key + 2 (slack + slack'). The terms with
    16 u cover N itself, floors in float32, and their subtractions in float32; the factor 1 + 2^-16 covers the slack in them.
    """
    moved = torch.sub(features, center).mul_(scale)
    whole = sq_norms_of(moved)
    too_far = ~((whole <= _MAX_HALF_NORM**2) & (moved.abs().amax(dim=1) <= _MAX_HALF))
    moved.masked_fill_(too_far[:, None], 0)
    whole = whole.masked_fill(too_far, 0)
    rounded = moved.half()
    error = sq_norms_of(moved.sub_(rounded)).sqrt_() * (1 + 2.0**-20) + 2 * _U * whole.sqrt()
    sq_norms, d = sq_norms_of(rounded), features.shape[1]
    slack = error.square() * (1 / _HALF_T + 1) + (_HALF_T + slack_factor(d + 8, _HALF_U) / 2) * sq_norms
    slack = (slack + 16 * _U * (sq_norms + whole)) * (1 + 2.0**-16) + d * 2.0**-120
    too_far |= slack.isnan()  # zero times an infinite gamma
    slack.masked_fill_(too_far, torch.inf)
    rounded = rounded if out is None else out.copy_(rounded)
    return Representation(rounded, slack, None, _half_floors(whole, slack))


def _project(
    features: Tensor,
    center: Tensor,
    scale: float,
    basis: Tensor,
    tolerance: float,
    memory: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """f(X) rounded to float32, its error, and the residual norms from above. Only x - center is rounded before, to float32."""
    in_float32, in_float64 = (None, None) if memory is None else (each[: len(features)] for each in memory)
    moved = torch.sub(features, center, out=in_float32)
    norms = sq_norms_of(moved).sqrt_().mul_(scale)
    inside = (moved.double() if in_float64 is None else in_float64.copy_(moved)) @ basis
    inside.mul_(scale)
    rest = (norms.square() - inside.square().sum(dim=1)).clamp_(min=0).sqrt_()
    doubt = 4 * tolerance * norms.square()
    rest_error = torch.minimum(doubt.sqrt(), doubt / rest)  # 0 / 0 gives NaN only where both are zero
    rest_error = rest_error.where(rest > 0, doubt.sqrt()) + norms * (2 * _U)
    coordinates = torch.cat([inside, rest[:, None]], dim=1).float()
    error = (tolerance + 2 * _U) * norms + rest_error
    error += sq_norms_of(coordinates).sqrt_().mul_(1.001 * _U)
    return coordinates, error, (rest + rest_error) * (1 + 2.0**-40)


def basis_tolerance(basis: Tensor) -> float:
    """Error of a projection onto (d, w) `basis`, relative to the norm of what is projected."""
    d, width = basis.shape
    eye = torch.eye(width, dtype=basis.dtype, device=basis.device)
    departure = float(torch.linalg.matrix_norm(basis.T @ basis - eye))
    return departure * (1 + 2.0**-20) + (d + 8) * math.sqrt(width + 1) * 2.0**-53


def sq_norms_of(rows: Tensor) -> Tensor:
    """(b,) float64 of a block of rows (b, w)."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms.square_()


def slack_factor(m: int, unit_roundoff: float = _U) -> float:
    """2 gamma(m): slack of a row relative to its squared norm; infinite where nothing is proven."""
    error = m * unit_roundoff
    return 2 * error / (1 - error) if error < 0.25 else math.inf


# ------------------------------------------------------------------------------------------------------------
# Bounds on single pairs that keys leave undecided
# ------------------------------------------------------------------------------------------------------------

# A pair in a float64 matrix product costs about this many times less than a single pair.
_PAIRS_PER_PRODUCT = 4
# Per feature, more than underflow in float32 takes from a sum of squares; smaller sums may be zero.
_NEXT_TO_NOTHING = 2.0**-124


def bounds_of_pairs(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """Tight bounds on the squared distances between rows `i` of `x` and `j` of `y`: lower and upper, (p,) float64.

    Many pairs among few rows have theirs from one float64 matrix product. The derivation is the module's for plain
    coordinates, with u = 2^-53 and two more errors to cover, relative to S: gamma(d) for norms that are summed in any
    order, and 2 (log2 d + 3) u for the rounding of the definition itself.
    """
    d, (rows, i_among), (columns, j_among) = x.shape[1], _distinct(i, len(x)), _distinct(j, len(y))
    if len(i) * _PAIRS_PER_PRODUCT > len(rows) * len(columns):
        i, j = i_among.index_select(0, i), j_among.index_select(0, j)
        # One of the rows: if they are all copies, everything below is exactly zero.
        origin = x[rows[0]].double()
        left, right = x[rows].double().sub_(origin), y[columns].double().sub_(origin)
        left_sq, right_sq = left.square().sum(dim=1), right.square().sum(dim=1)
        sq = left_sq[i] + right_sq[j] - 2 * (left @ right.T)[i, j]
        slack = (left_sq[i] + right_sq[j]) * slack_factor(d + 8 + d.bit_length(), 2.0**-53)
        return sq - slack, sq + slack
    return _known(x, y, i, j, bounds_of_differences(sq_differences_at(x, y, i, j), d))


def tight_bounds_of_pairs(
    x: Tensor, y: Tensor, i: Tensor, j: Tensor, sq: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Tighter bounds at up to three times the cost. `sq` (p,) are `sq_differences_by_parts`, computed here if None."""
    sq = sq_differences_by_parts(x, y, i, j) if sq is None else sq
    return _known(x, y, i, j, bounds_of_differences(sq, x.shape[1], part_width(x, y)))


def _known(
    x: Tensor, y: Tensor, i: Tensor, j: Tensor, bounds: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Bounds on the distances of pairs, which are verified where nothing is known."""
    lower, upper = bounds
    unknown = places(upper.isinf())
    if len(unknown):
        lower[unknown] = upper[unknown] = of_pairs(sq_distances, x, y, i[unknown], j[unknown])
    return lower, upper


def bounds_of_differences(sq: Tensor, d: int, width: int | None = None) -> tuple[Tensor, Tensor]:
    """Bounds on squared distances from `sq` (p,), the same computed in float32 from the features themselves.

    A sum of squared differences has no cancellation: one rounding in each difference, which counts twice, one in
    each square, d - 1 in the sum, so the sum is exact to a factor 1 + gamma(d + 3), in any order. Underflow takes
    less than 2^-124 per term; after an overflow or inf - inf, nothing is known. If only parts of `width` terms are summed in float32,
    and these sums in float64, the error is that of `width` terms.
    """
    # Twice what is needed: upper bounds divide by 1 - gamma, and sums in float64 err by at most d 2^-53.
    factor = slack_factor((width or d) + 8)
    tiny = d * _NEXT_TO_NOTHING
    sq = sq.double()
    known = (sq * factor).isfinite()  # not for so many features that gamma is infinite
    lower = (sq * (1 - factor) - tiny).where(known, 0.0).clamp_(min=0)
    upper = (sq * (1 + factor) + tiny).where(known, torch.inf)
    return lower, upper


def widened(sq_reach: Tensor, d: int) -> Tensor:
    """A squared reach that contains all rows whose `near_sq_distances` are at most those of rows within `sq_reach`; at least that."""
    factor = (1 + slack_factor(d + 8)) ** 2
    return (sq_reach * factor + 4 * d * _NEXT_TO_NOTHING).nan_to_num_(
        nan=torch.inf, posinf=torch.inf, neginf=-torch.inf
    )


def _distinct(index: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The distinct values of `index`, and a table (n,) of their positions among these."""
    is_there = torch.zeros(n, dtype=torch.bool, device=index.device)
    is_there[index] = True
    values = places(is_there)
    positions = torch.empty(n, dtype=torch.int64, device=index.device)
    positions[values] = torch.arange(len(values), device=index.device)
    return values, positions
