"""Choose the frame of a data set from a measured sample: which coordinates make a search cheapest.

Few coordinates make products cheap but leave many pairs to look at; all of them leave nearly none. How many
pairs would be left is counted on a sample. The choice affects speed, never a result.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genpr.neighbors import integers
from genpr.neighbors.code_view import CodeView
from genpr.neighbors.engine import plain_arithmetic
from genpr.neighbors.float_view import FloatView
from genpr.neighbors.frame import Frame, Placed, evenly_spaced
from genpr.neighbors.grid import Grid
from genpr.neighbors.workers import Workers

_log = logging.getLogger(__name__)

_SAMPLED = 4096  # most rows that directions are fitted to, and as many that they are judged by
_ASKED = 128  # rows whose candidates are counted
_MIN_ROWS = 3000  # below, nothing is worth a choice
_FEWEST = 64  # rows that fit into a sample
_GRID_ROWS = 128  # that a grid is fitted to
_GOOD = 0.15  # of the cost of all coordinates: no more directions are tried

# Costs in nanoseconds, on the 2-core machines that genpr was tuned on; only their ratios matter.
_PER_COORDINATE, _PER_CODE = 0.0125, 0.0068  # of a pair inside a matrix product
_PER_PAIR = 0.9
_PER_CANDIDATE, _PER_CANDIDATE_FEATURE = 400.0, 0.25  # of a pair that is looked at


@dataclass(frozen=True, slots=True)
class _Stage:
    """Numbers of directions to try; more are not, if the last leaves a share of pairs that is hopeless."""

    widths: tuple[int, ...]
    hopeless: float


_STAGES = (_Stage((64, 96, 128), 0.4), _Stage((192, 256, 384, 512), 0.1), _Stage((768, 1024), 0.0))

_ROWS_PER_CELL = 512
_MAX_CELLS = 64
_LLOYD_STEPS = 6


@dataclass(frozen=True, slots=True)
class _Sample:
    """Evenly spaced rows in a frame with all coordinates, and for some of them how far the search must reach.

    Attributes:
        index: (s,) which rows of the set.
        rows: (s, d) float32.
        sq_norms: (s,) float32.
        asked: (a,) positions in `rows`.
        sq_reach: (a,) float32, about the squared distance to the k-th nearest within the whole set.
    """

    index: Tensor
    rows: Tensor
    sq_norms: Tensor
    asked: Tensor
    sq_reach: Tensor

    @classmethod
    def of(cls, features: Tensor, index: Tensor, frame: Frame, k: int) -> _Sample | None:
        """Without rows that are far from the others, whom directions shall not chase; None if few rows are left."""
        rows = torch.sub(features[index], frame.centre).mul_(frame.scale)
        sq_norms = rows.square().sum(dim=1)
        usual = sq_norms.nan_to_num(nan=torch.inf, posinf=torch.inf).median().clamp(min=1e-30)
        fits = sq_norms.isfinite() & (sq_norms <= 1e4 * usual)
        if fits.sum() < _FEWEST:
            return None
        index, rows, sq_norms = index[fits], rows[fits], sq_norms[fits]
        asked = evenly_spaced(len(rows), _ASKED, rows.device)
        rank = max(1, round(k * len(rows) / len(features)))
        sq = _sq_distances(rows, sq_norms, asked)
        return cls(index, rows, sq_norms, asked, sq.sort(dim=1).values[:, min(rank, len(rows) - 1) - 1])

    def left_by(self, coordinates: Tensor) -> float:
        """Share of all pairs that (s, w) `coordinates` of the rows leave to look at."""
        sq = _sq_distances(coordinates, coordinates.square().sum(dim=1), self.asked)
        return self._share(sq)

    def left_by_view(self, view: FloatView | CodeView, rows: Tensor, zoom: float = 1.0) -> float:
        """The same for a view of the whole set, at `zoom` times the scale, whose `rows` (s,) are the sample."""
        keys = view.left(rows[self.asked]) @ view.right(rows).T
        keys[torch.arange(len(keys), device=keys.device), self.asked] = -torch.inf
        return self._share(-2 / zoom**2 * keys)

    def _share(self, sq_lower: Tensor) -> float:
        return float((~(sq_lower > self.sq_reach[:, None])).float().mean())  # so that NaN counts


def _sq_distances(rows: Tensor, sq_norms: Tensor, asked: Tensor) -> Tensor:
    """(a, s), infinite to the row itself. A sample: the rounding of float32 does not matter here."""
    sq = sq_norms[asked, None] + sq_norms - 2 * rows[asked] @ rows.T
    sq[torch.arange(len(asked), device=sq.device), asked] = torch.inf
    return sq


def choose_frame(features: Tensor, k: int) -> Frame:
    """A frame in which the `k` nearest of (n, d) `features` are found at least cost."""
    n, d = features.shape
    frame = Frame.around(features)
    if n < _MIN_ROWS or d < 2 * _STAGES[0].widths[0]:
        return _told(frame, features, "all coordinates, since there is little to save")
    with plain_arithmetic(features.device):
        halves = _halves(features)
        with Workers(features.device) as workers:
            fitted, judged = workers.map(lambda half: _Sample.of(features, half, frame, k), halves)
        if fitted is None or judged is None:
            return _told(frame, features, "all coordinates, since most rows are far from each other")
        basis, cost = _cheapest_basis(fitted, judged)
        grid = _cheaper_grid(features, frame, fitted, judged, cost)
        if grid is not None:
            return _told(replace(frame, grid=grid), features, "8-bit integers for all coordinates")
        if basis is None:
            return _told(frame, features, "all coordinates, since nothing less would be cheaper")
        frame = replace(frame, basis=basis)
        view = FloatView.of(features[fitted.index], frame.centre, frame.scale, basis)
        cells = min(_MAX_CELLS, n // _ROWS_PER_CELL)
        frame = replace(frame, centres=_centres(view.coordinates, cells))
    return _told(frame, features, f"{basis.shape[1]} directions first, in {cells} cells")


def _told(frame: Frame, features: Tensor, what: str) -> Frame:
    _log.info("search within %d x %d features: %s", *features.shape, what)
    return frame


def _cheaper_grid(
    features: Tensor, frame: Frame, fitted: _Sample, judged: _Sample, cost: float
) -> Grid | None:
    """Integers of all coordinates, if they are expected to cost less than `cost`."""
    d = features.shape[1]
    if (
        _PER_CODE * d + _PER_PAIR >= cost
        or d > integers.MOST_WIDTH
        or not integers.are_available(features.device)
    ):
        return None
    grid = Grid.fitted(fitted.rows[:: -(-len(fitted.rows) // _GRID_ROWS)])
    view = CodeView.of(features[judged.index], frame.centre, frame.scale, grid)
    everything = torch.arange(len(judged.index), device=features.device)
    share = judged.left_by_view(view, everything)
    return grid if _PER_CODE * grid.width + _PER_PAIR + share * _cost_of_looking(d) < cost else None


def serves(points: Placed, k: int) -> bool:
    """Whether the frame of `points`, chosen for other data, suits a search for the `k` nearest within them.

    If it leaves so many pairs to look at that products are no longer the larger part, a frame of their own is
    worth its cost; so it is where there is little to pay.
    """
    frame, features = points.frame, points.features
    if (frame.basis is None and frame.grid is None) or len(points) < _MIN_ROWS:
        return False
    with plain_arithmetic(points.device):
        own = Frame.around(features)
        _, judged = _halves(features)
        sample = _Sample.of(features, judged, own, k)
        if sample is None:
            return False
        share = sample.left_by_view(points.view, sample.index, frame.scale / own.scale)
    of_products = (_PER_COORDINATE if frame.grid is None else _PER_CODE) * points.view.width + _PER_PAIR
    return share * _cost_of_looking(features.shape[1]) <= of_products


def _halves(features: Tensor) -> tuple[Tensor, Tensor]:
    """Rows to fit to and others to judge by."""
    n = len(features)
    count = min(_SAMPLED, max(_SAMPLED // 4, n // 8))
    both = evenly_spaced(n, 2 * count, features.device)
    return both[::2], both[1::2]


def _cheapest_basis(fitted: _Sample, judged: _Sample) -> tuple[Tensor | None, float]:
    """Directions, or None for all coordinates, and the cost per pair of rows."""
    d = fitted.rows.shape[1]
    best, best_cost = None, _cost(d, judged.left_by(judged.rows), d)
    good = _GOOD * best_cost
    for stage in _STAGES:
        widths = [width for width in stage.widths if width <= min(d // 2, len(fitted.rows) // 2)]
        if not widths:
            break
        basis = principal_directions(fitted.rows, widths[-1])
        projected = judged.rows @ basis.float()
        for width in widths:
            inside = projected[:, :width]
            rest = (judged.sq_norms - inside.square().sum(dim=1)).clamp(min=0).sqrt()
            share = judged.left_by(torch.cat([inside, rest[:, None]], dim=1))
            cost = _cost(width, share, d)
            if cost < best_cost:
                best, best_cost = basis[:, :width], cost
        if best_cost <= good or share > stage.hopeless:
            break
    return None if best is None else best.contiguous(), best_cost


def _cost(width: int, share: float, d: int) -> float:
    """Nanoseconds per pair of rows."""
    return _PER_COORDINATE * width + _PER_PAIR + share * _cost_of_looking(d)


def _cost_of_looking(d: int) -> float:
    return _PER_CANDIDATE + _PER_CANDIDATE_FEATURE * d


def principal_directions(rows: Tensor, count: int) -> Tensor:
    """Leading principal directions of centred (s, d) `rows`, (d, count) float64, approximately.

    A randomised range finder with two power iterations (Halko, Martinsson & Tropp 2011). Any orthonormal basis
    gives valid bounds; a better one gives tighter bounds.
    """
    generator = torch.Generator().manual_seed(0)
    width = min(count + 16, *rows.shape)
    span = torch.randn(rows.shape[1], width, generator=generator, dtype=torch.float32).to(rows.device)
    for _ in range(3):
        span, _ = torch.linalg.qr(rows.T @ (rows @ span))
    reduced = (rows @ span).double()
    _, rotation = torch.linalg.eigh(reduced.T @ reduced)
    basis: Tensor = torch.linalg.qr(span.double() @ rotation.flip(1)[:, :count])[0]
    return basis


def _centres(coordinates: Tensor, count: int) -> Tensor:
    """Lloyd's algorithm from evenly spaced rows, (count, w) float64."""
    centres = coordinates[evenly_spaced(len(coordinates), count, coordinates.device)].clone()
    for _ in range(_LLOYD_STEPS):
        label = (coordinates @ centres.T - centres.square().sum(dim=1) / 2).argmax(dim=1)
        size = label.bincount(minlength=count)
        total = torch.zeros_like(centres).index_add_(0, label, coordinates)
        centres = torch.where(size[:, None] > 0, total / size.clamp(min=1)[:, None], centres)
    return centres.double()
