"""Integer coordinates after a rotation, with bounds on what they say about distances.

Where no few directions hold a set, as with nearly isotropic features, all d coordinates are needed, but not in
float32: a product of small integers costs half of one or less (`integers`), and is exact. A rotation first spreads
every feature over all coordinates, so that one step size suits them all.

**What is bounded.** Rows X = (x - center) * scale are turned, Z = M X, M nearly orthogonal, and rounded to integers:
z, fine, of eight bits, and (z + 1) >> 1, coarse, of seven, as `integers` wants its left factor. With

    R = step * z    C = 2 step * ((z' + 1) >> 1)    |Z - R| <= e    |Z' - C| <= e'    P = <C, R>,

where C stands for the left row X' and R for the right row X,

    |<X', X> - P|  <=  e |C| + e' |R| + e e' + eta (|X|^2 + |X'|^2) / 2        eta = |M'M - I|.

Since D = |X|^2 + |X'|^2 - 2 <X', X>, the distance lies within the sum of

    coarse slack  =  e'^2 / s' + s |C|^2 + e'^2 + eta |X'|^2        fine slack  =  e^2 / s + s' |R|^2 + e^2 + eta |X|^2

of |X|^2 + |X'|^2 - 2 P, for any s, s' > 0, since 2 e |C| <= e^2 / s + s |C|^2, and so on. The best s is e / |C|.
As in `bounds`, key = P - floor/2 - floor'/2 with floor = |X|^2 - slack, and

    -2 key  <=  D  <=  -2 key + 2 (slack + slack').

**How large e is.** The rounding is measured, row by row. M is a Kronecker product of two small factors, A (a, a)
and B (b, b), whose float32 products err by at most (gamma(a) sqrt(a) + gamma(b) sqrt(b)) |X|; centring by u |X|.
What float32 loses of |X|^2, of floors and of the sum of product and bias is relative to |X|^2, to slack, and to
the sums that an integer product passes through: with left factors of up to 127 and a bias of 64 |z|_1 that takes their
shift back, conversion, bias and sum round numbers of up to 127, 64 and 191 times |z|_1. That is 382 u |z|_1, in units
of 2 step^2, in a key, and twice that in a slack, where step^2 2^-12 |z|_1 stands for 4096 u.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.bounds import NO_FLOOR, slack_factor, sq_norms_of
from genpr.neighbors.distance import pieces_of
from genpr.neighbors.engine import Tiles
from genpr.neighbors.integers import WIDTH_STEP
from genpr.neighbors.workers import Workers

_MOST = 126  # the largest fine coordinate: half of it, rounded up, is 63, and 64 + 63 has seven bits
SHIFT = 64  # makes coarse coordinates positive
# Rows longer than this, in a frame where typical norms are 1, are left to verification.
_MAX_NORM = 2.0**10
_U = 2.0**-24
_ROUNDING = 2.0**-20
_TINY = 2.0**-100  # more than what is lost of a row that vanishes in float32
_MIN_STEP, _MIN_SHARE = 2.0**-30, 2.0**-16
# Step sizes that are tried, as multiples of the root mean square of a coordinate at the largest integer.
_REACHES = (2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0, 12.0)


@dataclass(frozen=True, slots=True)
class Coded:
    """Some rows on a grid.

    Attributes:
        codes: Fine integer coordinates, (n, w) int8, w a multiple of `WIDTH_STEP`.
        slacks: Of the rows as coarse left and as fine right factors, (2, n) float64; infinite for rows too far away.
        half_floors: (2, n) float32.
    """

    codes: Tensor
    slacks: Tensor
    half_floors: Tensor


@dataclass(frozen=True, slots=True)
class Grid:
    """A rotation and a step size.

    Attributes:
        outer: A, (a, a) float32, nearly orthogonal.
        inner: B, (b, b) float32, a b = d.
        step: Of the fine integers.
        shares: s' and s above: errors of coarse and fine coordinates relative to norms, roughly.
    """

    outer: Tensor
    inner: Tensor
    step: float
    shares: tuple[float, float]

    @classmethod
    def fitted(cls, rows: Tensor) -> Grid:
        """To (s, d) float32 `rows`, centered and scaled: the step size that leaves the smallest error."""
        rows = rows[rows.double().square().sum(dim=1) <= _MAX_NORM**2]
        outer, inner = (_rotation(size).to(rows.device) for size in _factors(rows.shape[1]))
        turned = _turned(rows, outer, inner)
        norm = math.sqrt(float(turned.double().square().sum()) / max(1, len(rows))) or 1.0
        candidates = []
        for reach in _REACHES:
            step = max(reach * norm / math.sqrt(turned.shape[1]) / _MOST, _MIN_STEP)
            errors = [
                step / norm * float(_norms(turned / step - part).sum()) / max(1, len(rows))
                for part in _rounded(turned / step)
            ]
            candidates.append((sum(errors), step, tuple(max(error, _MIN_SHARE) for error in errors)))
        _, step, (coarse, fine) = min(candidates)
        return cls(outer, inner, step, (coarse, fine))

    @property
    def width(self) -> int:
        """Coordinates per row, w."""
        return len(self.outer) * len(self.inner)

    @property
    def unit(self) -> float:
        """What an integer product of one stands for."""
        return 2 * self.step**2

    def place(self, features: Tensor, center: Tensor, scale: float) -> Coded:
        """(n, d) float32 or float16 `features` on the grid. Few at once: all is done in one piece."""
        moved = torch.sub(features, center).mul_(scale)
        sq_norms = moved.double().square_().sum(dim=1)
        too_far = ~(sq_norms <= _MAX_NORM**2)
        moved[too_far], sq_norms[too_far] = 0, 0
        turned = _turned(moved, self.outer, self.inner).div_(self.step)
        turning, eta = self._tolerances()
        slacks, (coarse, fine) = sq_norms.new_empty(2, len(features)), _rounded(turned)
        for at, rounded in enumerate((coarse, fine)):
            error = self.step * _norms(turned - rounded) + turning * sq_norms.sqrt()
            slacks[at] = error.square() * (1 / self.shares[at] + 1) + eta * sq_norms
            slacks[at] += self.shares[1 - at] * (self.step * _norms(rounded)).square()
        slacks[1] += self.step**2 * 2.0**-12 * fine.abs().sum(dim=1, dtype=torch.float64)
        slacks += _ROUNDING * slacks + _TINY
        slacks[:, too_far] = torch.inf
        half_floors = (sq_norms - slacks).clamp_(min=NO_FLOOR).div_(2).float()
        return Coded(fine.to(torch.int8), slacks, half_floors)

    def _tolerances(self) -> tuple[float, float]:
        """The error of a turned row before it is rounded, and eta, both relative to norms."""
        rounding, stretch = 2.0 * _U, 1.0
        for turn in (self.outer.double(), self.inner.double()):
            size = len(turn)
            stretch *= 1 + float(
                torch.linalg.matrix_norm(turn.T @ turn - torch.eye(size, device=turn.device))
            )
            rounding += slack_factor(size + 2) * math.sqrt(size)
        return rounding * stretch, stretch - 1 + _ROUNDING


def coarse_of(codes: Tensor) -> Tensor:
    """Fine coordinates, int8, halved and rounded up, and made positive: uint8 of seven bits."""
    return torch.bitwise_right_shift(codes + 1, 1).add_(SHIFT).view(torch.uint8)


def _rounded(steps: Tensor) -> tuple[Tensor, Tensor]:
    """What (n, w) coordinates, in steps, are rounded to: by left factors and by right ones."""
    fine = steps.round().clamp_(-_MOST, _MOST)
    return torch.floor((fine + 1) / 2).mul_(2), fine


def _norms(rows: Tensor) -> Tensor:
    return sq_norms_of(rows).sqrt_()


def _turned(rows: Tensor, outer: Tensor, inner: Tensor) -> Tensor:
    """M X for each row of (n, d) float32, with zeros added up to a b coordinates."""
    n, d = rows.shape
    a, b = len(outer), len(inner)
    square = torch.nn.functional.pad(rows, (0, a * b - d)).view(n, a, b)
    turned: Tensor = outer @ (square @ inner.T)
    return turned.view(n, a * b)


def _factors(d: int) -> tuple[int, int]:
    """Two numbers near each other whose product is the least multiple of `WIDTH_STEP` that holds d."""
    width = -(-d // WIDTH_STEP) * WIDTH_STEP
    a = next(a for a in range(math.isqrt(width), 0, -1) if width % a == 0)
    return a, width // a


def _rotation(size: int) -> Tensor:
    """A random rotation, always the same, (size, size) float32."""
    generator = torch.Generator().manual_seed(size)
    gaussian = torch.randn(size, size, generator=generator, dtype=torch.float64)
    rotation: Tensor = torch.linalg.qr(gaussian)[0]
    return rotation.float()


_MOST_BIAS = 2.0**100  # far above every threshold, and far below what overflows


@dataclass(frozen=True, slots=True)
class CodeView:
    """Integer coordinates of n rows, and their floors as left and as right factors.

    Attributes:
        grid: What they are coordinates of.
        codes: (n, w) int8.
        slacks: (2, n) float64, infinite for rows that the grid cannot hold; their coordinates are zero.
        half_floors: (2, n) float32.
        bias: (n,) float32, in units of the grid: takes the shift of left factors back, and subtracts the half floor.
    """

    grid: Grid
    codes: Tensor
    slacks: Tensor
    half_floors: Tensor
    bias: Tensor

    @classmethod
    def of(cls, features: Tensor, center: Tensor, scale: float, grid: Grid) -> CodeView:
        """Put (n, d) `features` on the grid."""
        n, device = len(features), features.device
        codes = torch.empty(n, grid.width, dtype=torch.int8, device=device)
        slacks = torch.empty(2, n, dtype=torch.float64, device=device)
        half_floors = torch.empty(2, n, dtype=torch.float32, device=device)
        bias = torch.empty(n, dtype=torch.float32, device=device)

        def put(rows: slice) -> None:
            piece = grid.place(features[rows], center, scale)
            codes[rows], slacks[:, rows], half_floors[:, rows] = piece.codes, piece.slacks, piece.half_floors
            shift = SHIFT * piece.codes.sum(dim=1, dtype=torch.int32).double()
            bias[rows] = -shift - (piece.half_floors[1].double() / grid.unit).clamp_(min=-_MOST_BIAS)

        with Workers(device) as workers:
            deque(workers.map(put, pieces_of(features)), maxlen=0)
        return cls(grid, codes, slacks, half_floors, bias)

    def tensors(self) -> dict[str, Tensor]:
        """What `restored` needs beside the grid."""
        return {name: getattr(self, name) for name in ("codes", "slacks", "half_floors", "bias")}

    @classmethod
    def restored(cls, grid: Grid, tensors: dict[str, Tensor]) -> CodeView:
        """From `tensors`."""
        return cls(grid, *(tensors[name] for name in ("codes", "slacks", "half_floors", "bias")))

    @property
    def width(self) -> int:
        """Coordinates per row, w."""
        return self.codes.shape[1]

    def left(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32 for `rows` (p,): its inner products with `right` are keys, as far as float32 goes."""
        coarse = (coarse_of(self.codes[rows]).float() - SHIFT) * self.grid.unit
        floors = self.half_floors[0, rows, None]
        return torch.cat([coarse, -floors, torch.ones_like(floors)], dim=1)

    def right(self, rows: Tensor) -> Tensor:
        """(p, w + 2) float32. See `left`."""
        floors = self.half_floors[1, rows, None]
        return torch.cat([self.codes[rows].float(), torch.ones_like(floors), -floors], dim=1)

    def gap(self, rows: Tensor, others: object, columns: Tensor) -> Tensor:
        """What separates upper from lower bounds: `rows` of this view with `columns` of `others`, (p,) float64."""
        assert isinstance(others, CodeView)
        return 2 * (self.slacks[0, rows] + others.slacks[1, columns])

    def search(self, block: Tensor, tiles: Tiles) -> CodeSearch:
        """Ask which keys of the rows of `block` are large."""
        return CodeSearch(self, block, tiles)


class CodeSearch:
    """Integer products above a threshold per row."""

    def __init__(self, view: CodeView, block: Tensor, tiles: Tiles) -> None:
        self._left, self._unit, self._tiles = coarse_of(view.codes[block]), view.grid.unit, tiles
        self._half_floors = view.half_floors[0, block].double()

    def above(self, lowest: Tensor, columns: object, chunk: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `genpr.neighbors.index.FloatSearch.above`; no doubt is left."""
        assert isinstance(columns, CodeView)
        thresholds = ((lowest + self._half_floors) / self._unit).clamp_(min=-_MOST_BIAS)
        factors = self._left, columns.codes[chunk], columns.bias[chunk]
        i, j, value = self._tiles.at_least(*factors, _rounded_down(thresholds))
        keys = value.double() * self._unit - self._half_floors[i]
        return i, j, keys, torch.zeros_like(keys)


def _rounded_down(values: Tensor) -> Tensor:
    rounded = values.float()
    return rounded.where(rounded <= values, rounded.nextafter(torch.full_like(rounded, -torch.inf)))
