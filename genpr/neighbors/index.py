"""Index of a set for the search: coordinates and clusters in a projection that sets share, and the choice of the projection.

Few coordinates make products cheap but leave many pairs to verify; all coordinates leave nearly none. The number of pairs
left is estimated on a sample. A projection affects speed, never a result.

A row belongs to the cluster of the nearest of a few centers (a Voronoi cell). Two functions of position with Lipschitz constant 1
bound the distance from a row y to a block of rows of one cluster a: the distance to the center of a, and, for the center c
of the cluster of y, the distance to the plane half-way between a and c.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from genpr.content_order import content_hash
from genpr.memory import free_memory
from genpr.neighbors.coordinates import Coordinates, ProjectedCoordinates, RoundedCoordinates
from genpr.neighbors.distance import blocks_of
from genpr.neighbors.engine import CPU, ENGINE, places, plain_arithmetic, profile_of
from genpr.neighbors.engine_cuda import are_precise, rounding_on

# Maximum number of distances from rows to centers.
_MAX_DISTANCES = 2**24
# Far more than the sum of all errors relative to norms: of float64 distances (their squares are exact to 2^-44, so
# the root of a small one to 2^-22), and of the coordinates (`bounds`: below 2^-16).
_MARGIN = 2.0**-14
# Planes between centers that are closer than this, relative to norms, are not used.
_MIN_GAP = 2.0**-10


@dataclass(frozen=True, slots=True)
class Clusters:
    """The nearest center of each row (Voronoi cells)."""

    label: Tensor  # (n,) int64; c for rows without usable coordinates
    sq_distances: Tensor  # (c, n) float64, from every center to the coordinates of every row
    own: Tensor  # (n,) float64, the squared distance to the row's own center; zero for the label c
    gaps: Tensor  # (c + 1, c) float64, distances between centers; zero for the label c
    norms: Tensor  # (n,) float64, norms of the coordinates, at least that of the farthest center

    @classmethod
    def from_coordinates(cls, coordinates: Tensor, slack: Tensor, centers: Tensor) -> Clusters | None:
        """Clusters of (n, w) `coordinates`; None where there are no centers."""
        n = len(coordinates)
        centers = centers[: _MAX_DISTANCES // max(1, n)]
        if len(centers) == 0:
            return None
        sq_distances = torch.empty(len(centers), n, dtype=torch.float64, device=coordinates.device)
        norms = torch.empty(n, dtype=torch.float64, device=coordinates.device)
        sq_centers = centers.square().sum(dim=1)
        for start in range(0, n, 8192):
            rows = slice(start, start + 8192)
            block = coordinates[rows].double()
            sq_norms = block.square().sum(dim=1)
            products = centers @ block.T
            sq_distances[:, rows] = (sq_norms + sq_centers[:, None] - 2 * products).clamp_(min=0)
            norms[rows] = sq_norms.clamp_(min=sq_centers.max()).sqrt_()
        own, label = sq_distances.min(dim=0)
        label[slack.isinf()] = len(centers)
        gaps = torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")
        return cls(label, sq_distances, own, torch.cat([gaps, torch.zeros_like(gaps[:1])]), norms)

    def within_reach(self, reach: Tensor, others: Clusters, block: Tensor) -> Tensor:
        """Which rows may be within `reach` of a block of `others`: (n,) bool, True wherever that is uncertain."""
        a, count = int(others.label[block[0]]), len(self.sq_distances)
        if a >= count or len(others.sq_distances) != count:
            return torch.ones_like(self.label, dtype=torch.bool)
        norms = torch.maximum(self.norms, others.norms[block].max())
        reach = reach + _MARGIN * norms
        from_a, members = self.sq_distances[a], others.sq_distances[:, block]
        near = from_a <= (reach + members[a].max().sqrt()).square()
        # Twice the gap times the distance to the plane is |y - a|^2 - |y - c|^2, which is at most `extent` for the block.
        extent = (members[a] - members).amax(dim=1)
        extent = torch.cat([extent, extent.new_zeros(1)])[self.label]
        gap = self.gaps[:, a][self.label]
        near &= (from_a - self.own - extent <= 2 * gap * reach) | (gap <= _MIN_GAP * norms)
        return near | (self.label == count)


_SAMPLE = 64
_MAX_SHIFT = 2.0**100  # of a scaled center: sums with it overflow only for rows that are too far away as well


@dataclass(frozen=True, slots=True)
class Projection:
    """An origin, a scale, and optionally a few directions and a partition of space. See `bounds`."""

    center: Tensor  # (d,) float32
    # A power of two that brings typical norms near 1, so that squares neither overflow nor vanish
    scale: float
    basis: Tensor | None  # (d, w - 1) float64, orthonormal columns, or None to keep all d coordinates
    centers: Tensor  # (c, w) float64 coordinates of the centers of clusters, c = 0 for no clusters
    rounding: torch.dtype | None = None  # of all coordinates: float16 or float32, by default float32

    @classmethod
    def around(cls, features: Tensor) -> Projection:
        """A projection with all coordinates, centered at the median of evenly spaced rows of (n, d) `features`.

        The median is robust to outliers.
        """
        sample = features[evenly_spaced(len(features), _SAMPLE, features.device)].float().cpu().numpy()
        middle = (len(sample) - 1) // 2  # torch.median is slower, and not deterministic on a GPU
        center = np.partition(np.ascontiguousarray(sample.T), middle, axis=1)[:, middle].copy()
        norms = np.sqrt(np.square(np.subtract(sample, center, dtype=np.float64)).sum(axis=1))
        moved = np.sort(norms[norms > 0])
        typical = float(moved[len(moved) // 2] if len(moved) else np.linalg.norm(center.astype(np.float64)))
        largest, exponent = float(np.abs(center).max()), 0
        if typical > 0:
            exponent = round(math.log2(min(1 / typical, _MAX_SHIFT / largest if largest else math.inf)))
        scale = 2.0 ** min(max(exponent, -126), 126)  # float32 multiplies by these exactly
        none = torch.empty(0, features.shape[1], dtype=torch.float64, device=features.device)
        return cls(torch.from_numpy(center).to(features.device), scale, None, none)

    def place(self, features: Tensor) -> IndexedPoints:
        """An index of (n, d) float32 or float16 `features` in this projection; they are not copied."""
        clusters = None
        with plain_arithmetic():
            coordinates: Coordinates
            if self.basis is None:
                rounding = self.rounding or torch.float32
                coordinates = RoundedCoordinates.from_features(features, self.center, self.scale, rounding)
            else:
                coordinates = ProjectedCoordinates.from_features(
                    features, self.center, self.scale, self.basis
                )
            if len(self.centers):
                clusters = Clusters.from_coordinates(coordinates.values, coordinates.slack, self.centers)
        return IndexedPoints(features, self, coordinates, clusters)


@dataclass(frozen=True)
class IndexedPoints:
    """Features with their coordinates in a projection, as the bounds need them."""

    features: Tensor  # (n, d) float32 or float16, the original values, on which all decisions are based
    projection: Projection  # what its coordinates are relative to
    coordinates: Coordinates
    clusters: Clusters | None  # of the rows, if the projection has any

    @cached_property
    def content(self) -> str:
        """A checksum of the features."""
        return content_hash(self.features)

    @cached_property
    def earlier_copies(self) -> Tensor:
        """Number of earlier rows that equal each row, (n,) int64.

        Copies are found by equal projections of their coordinates; those whose projections round differently are not counted.
        """
        n, device = len(self.features), self.features.device
        seeded = torch.Generator().manual_seed(0)
        direction = torch.rand(self.coordinates.width, generator=seeded, dtype=torch.float64).to(device)
        blocks = blocks_of(self.features)
        value, order = torch.cat([self.coordinates.at(block).double() @ direction for block in blocks]).sort(
            stable=True
        )
        follows = torch.zeros(n, dtype=torch.bool, device=device)
        same = places(value[1:] == value[:-1])
        for some in blocks_of(self.features, len(same)):
            at = same[some]
            follows[at + 1] = (self.features[order[at]] == self.features[order[at + 1]]).all(dim=1)
        place = torch.arange(n, device=device)
        first = place.where(~follows, torch.zeros_like(place)).cummax(dim=0).values
        return torch.empty_like(place).scatter_(0, order, place - first)


def evenly_spaced(n: int, count: int, device: torch.device) -> Tensor:
    """At most `count` rows of n, as indices."""
    count = min(n, count)
    return torch.arange(count, device=device) * n // count


_log = logging.getLogger(__name__)
_CHOSEN = "search within %d x %d features: %s"

_SAMPLED = 4096  # maximum rows that directions are fitted to, and as many for their evaluation
_SAMPLE_QUERIES = 128  # rows whose candidates are counted
_MIN_ROWS = 2900  # smaller sets use all coordinates, which cost less there (docs/scaling.md)
# Of the mean squared norm, below which coordinates relative to another center are more precise
_MIN_SPREAD = 1 / 16
_MIN_SAMPLE = 64  # rows of a sample that are not outliers

# Nanoseconds of a pair that is verified, of a choice of a projection, and of a row that is placed in it
_PER_CANDIDATE, _PER_CANDIDATE_FEATURE = 400.0, 0.25
_OF_CHOICE, _PER_ROW_PLACED = 1e8, 1e4


# Numbers of directions to try, in stages: those of one are the leading ones of its last
_WIDTHS = (64, 96, 128), (192, 256, 384, 512), (768, 1024)

# If rows are spread over more directions than this, fewer do not tell them apart. In sets of up to `_FEW_ROWS`, the second limit holds.
_MOST_DIMENSIONS, _FEW_DIMENSIONS, _FEW_ROWS = 256, 16, 10_000

# Without clusters, the metrics of 10,000 + 10,000 images take 1.24 times as long, and those of 25,000 + 25,000 take 1.55 times as
# long (features of a CNN trained on CIFAR-10, 2,048 dimensions).
_ROWS_PER_CLUSTER = 512
_MAX_CLUSTERS = 64
_CLUSTERS_SHARE = 8  # 1/8 of free memory for the distances from all rows to the centers
_LLOYD_STEPS = 6


@dataclass(frozen=True, slots=True)
class _Sample:
    """Evenly spaced rows in a projection with all coordinates, and the reach of the search for some of them."""

    index: Tensor  # (s,) which rows of the set
    rows: Tensor  # (s, d) float32
    sq_norms: Tensor  # (s,) float32
    queries: Tensor  # (a,) positions in `rows`
    sq_reach: Tensor  # (a,) float32, about the squared distance to the k-th nearest within the whole set

    @classmethod
    def from_features(cls, features: Tensor, index: Tensor, projection: Projection, k: int) -> _Sample | None:
        """A sample without outliers, to which directions are not to be fitted; None if few rows are left."""
        rows = torch.sub(features[index], projection.center).mul_(projection.scale)
        sq_norms = rows.square().sum(dim=1)
        usual = sq_norms.nan_to_num(nan=torch.inf, posinf=torch.inf).median().clamp(min=1e-30)
        fits = sq_norms.isfinite() & (sq_norms <= 1e4 * usual)
        if fits.sum() < _MIN_SAMPLE:
            return None
        index, rows, sq_norms = index[fits], rows[fits], sq_norms[fits]
        queries = evenly_spaced(len(rows), _SAMPLE_QUERIES, rows.device)
        rank = max(1, round(k * len(rows) / len(features)))
        sq = _sq_distances(rows, sq_norms, queries)
        return cls(index, rows, sq_norms, queries, sq.sort(dim=1).values[:, min(rank, len(rows) - 1) - 1])

    @property
    def dimensions(self) -> float:
        """Number of directions over which rows are spread, about: of d equally likely ones, squared cosines have the mean 1 / d."""
        unit = self.rows / self.sq_norms.sqrt().clamp(min=1e-30)[:, None]
        cosines = unit[self.queries] @ unit.T
        cosines[torch.arange(len(cosines), device=cosines.device), self.queries] = 0
        return float((len(self.rows) - 1) / cosines.square().sum(dim=1).mean().clamp(min=1e-30))

    def candidate_share(self, coordinates: Tensor) -> float:
        """Share of all pairs that (s, w) `coordinates` of the rows leave to verify."""
        sq = _sq_distances(coordinates, coordinates.square().sum(dim=1), self.queries)
        return self._share(sq)

    def candidate_share_in(self, coordinates: ProjectedCoordinates, rows: Tensor, zoom: float = 1.0) -> float:
        """The same for coordinates of the whole set at `zoom` times the scale; `rows` (s,) are the sample."""
        keys = coordinates.queries(rows[self.queries]) @ coordinates.columns(rows).T
        keys[torch.arange(len(keys), device=keys.device), self.queries] = -torch.inf
        return self._share(-2 / zoom**2 * keys)

    def _share(self, sq_lower: Tensor) -> float:
        return float((~(sq_lower > self.sq_reach[:, None])).float().mean())  # so that NaN counts


def _sq_distances(rows: Tensor, sq_norms: Tensor, queries: Tensor) -> Tensor:
    """(a, s), infinite to the row itself; float32 is precise enough for a sample."""
    sq = sq_norms[queries, None] + sq_norms - 2 * rows[queries] @ rows.T
    sq[torch.arange(len(queries), device=sq.device), queries] = torch.inf
    return sq


def choose_projection(features: Tensor, k: int) -> Projection:
    """The projection in which the `k` nearest of (n, d) `features` are found at the lowest cost."""
    n, d = features.shape
    projection = Projection.around(features)
    if not profile_of(features.device).has_directions:
        return _rounded(projection, features, k)
    if n < _MIN_ROWS or d < 2 * _WIDTHS[0][0]:
        _log.info(_CHOSEN, n, d, "all coordinates, since there is little to save")
        return projection
    with plain_arithmetic():
        halves = _halves(features)
        with ENGINE.search(features.device) as search:
            fitted, judged = search.map(
                lambda half: _Sample.from_features(features, half, projection, k), halves
            )
        if fitted is None or judged is None:
            _log.info(_CHOSEN, n, d, "all coordinates, since most rows are far from each other")
            return projection
        most = _FEW_DIMENSIONS if n <= _FEW_ROWS else _MOST_DIMENSIONS
        basis = _cheapest_basis(fitted, judged) if judged.dimensions <= most else None
        if basis is None:
            _log.info(_CHOSEN, n, d, "all coordinates, since nothing less would be cheaper")
            return projection
        some = ProjectedCoordinates.from_features(
            features[fitted.index], projection.center, projection.scale, basis
        )
        most = free_memory(features.device) // (_CLUSTERS_SHARE * n * torch.float64.itemsize)
        clusters = max(1, min(_MAX_CLUSTERS, n // _ROWS_PER_CLUSTER, most))
        projection = replace(projection, basis=basis, centers=_centers(some.values, clusters))
    _log.info(_CHOSEN, n, d, f"{basis.shape[1]} directions first, in {clusters} clusters")
    return projection


def _rounded(projection: Projection, features: Tensor, k: int) -> Projection:
    """With rows in float16 if their products meet the bounds and leave few pairs, else in float32."""
    with plain_arithmetic():
        rounding = rounding_on(features.device)
        if rounding == torch.float16:
            some = features[evenly_spaced(len(features), _SAMPLED, features.device)]
            rounded = RoundedCoordinates.from_features(some, projection.center, projection.scale, rounding)
            rounding = rounding if are_precise(rounded, k) else torch.float32
    _log.info(_CHOSEN, *features.shape, f"all coordinates as {rounding}")
    return replace(projection, rounding=rounding)


def is_suitable(points: IndexedPoints, k: int) -> bool:
    """Whether the projection of `points`, chosen for other data, suits a search for the `k` nearest within them.

    It does not if a new one is worth its cost, since verifying pairs costs more than the products. For small sets in all coordinates it
    does unless these are far from the center, compared with their spread.
    """
    projection, features = points.projection, points.features
    with plain_arithmetic():
        if len(features) < _MIN_ROWS and projection.basis is None and projection.rounding != torch.float16:
            of_mean = points.coordinates.values.mean(dim=0).double().square().sum()
            sq_norm = (2 * points.coordinates.half_floors.double() + points.coordinates.slack).nanmean()
            return bool(of_mean <= (1 - _MIN_SPREAD) * sq_norm)
        if len(features) < _MIN_ROWS:
            return False
        if isinstance(points.coordinates, RoundedCoordinates):
            return projection.rounding == torch.float16 and are_precise(points.coordinates, k)
        assert isinstance(points.coordinates, ProjectedCoordinates)
        own = Projection.around(features)
        _, judged = _halves(features)
        sample = _Sample.from_features(features, judged, own, k)
        if sample is None:
            return False
        share = sample.candidate_share_in(points.coordinates, sample.index, projection.scale / own.scale)
    n, d = features.shape
    of_products = CPU.per_term * points.coordinates.width + CPU.per_pair
    saved = (share * _cost_of_candidates(d) - of_products) * n * (n - 1) / 2
    return bool(saved <= _OF_CHOICE + _PER_ROW_PLACED * n)


def _halves(features: Tensor) -> tuple[Tensor, Tensor]:
    """Rows for fitting and other rows for evaluation."""
    n = len(features)
    count = min(_SAMPLED, max(_SAMPLED // 4, n // 8))
    both = evenly_spaced(n, 2 * count, features.device)
    return both[::2], both[1::2]


def _cheapest_basis(fitted: _Sample, judged: _Sample) -> Tensor | None:
    """The directions with the lowest cost per pair of rows, or None for all coordinates."""
    d = fitted.rows.shape[1]
    best, best_cost = None, _cost(d, judged.candidate_share(judged.rows), d)
    shares = list[tuple[int, float]]()
    for stage in _WIDTHS:
        widths = [width for width in stage if width <= min(d // 2, len(fitted.rows) // 2)]
        if not widths or (shares and _cost(widths[0], _extrapolated(shares, widths[0]), d) >= best_cost):
            break
        basis = principal_directions(fitted.rows, widths[-1])
        projected = judged.rows @ basis.float()
        for width in widths:
            inside = projected[:, :width]
            rest = (judged.sq_norms - inside.square().sum(dim=1)).clamp(min=0).sqrt()
            shares.append((width, judged.candidate_share(torch.cat([inside, rest[:, None]], dim=1))))
            cost = _cost(*shares[-1], d)
            if cost < best_cost:
                best, best_cost = basis[:, :width], cost
    return None if best is None else best.contiguous()


def _extrapolated(shares: list[tuple[int, float]], width: int) -> float:
    """The share of candidates expected with `width` directions: it falls about as a power of their number."""
    (first, one), (last, other) = shares[0], shares[-1]
    if last == first or not one or not other:
        return other
    return float(other * (other / one) ** (math.log(width / last) / math.log(last / first)))


def _cost(width: int, share: float, d: int) -> float:
    """Nanoseconds per pair of rows."""
    return CPU.per_term * width + CPU.per_pair + share * _cost_of_candidates(d)


def _cost_of_candidates(d: int) -> float:
    return _PER_CANDIDATE + _PER_CANDIDATE_FEATURE * d


def principal_directions(rows: Tensor, count: int) -> Tensor:
    """Leading principal directions of centered (s, d) `rows`, (d, count) float64, approximately.

    A randomized range finder with two power iterations (Halko, Martinsson & Tropp 2011). Any orthonormal basis
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


def _centers(coordinates: Tensor, count: int) -> Tensor:
    """Lloyd's algorithm from evenly spaced rows, (count, w) float64; on a GPU, which has no clusters, it would be random."""
    centers = coordinates[evenly_spaced(len(coordinates), count, coordinates.device)].clone()
    for _ in range(_LLOYD_STEPS):
        label = (coordinates @ centers.T - centers.square().sum(dim=1) / 2).argmax(dim=1)
        size = label.bincount(minlength=count)
        total = torch.zeros_like(centers).index_add_(0, label, coordinates)
        centers = torch.where(size[:, None] > 0, total / size.clamp(min=1)[:, None], centers)
    return centers.double()
