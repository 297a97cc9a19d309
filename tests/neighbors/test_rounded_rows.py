"""Rounded rows of float16 and float32: bounds hold for the worst allowed products, and decisions equal those of the oracle."""

from collections.abc import Callable
from dataclasses import replace

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from practice_cuda import practice_device
from search_cases import ENGINES, SEARCH_KINDS, place, projection_of, sq_distances, sq_radii
from torch import Tensor

from genpr.errors import GenprError
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood, cross_counts
from genpr.neighbors.engine import Engine, Tiles
from genpr.neighbors.engine_cuda import rounding_on
from genpr.neighbors.index import IndexedPoints, choose_projection
from genpr.neighbors.nearest import nearest_between

ROUNDED = [kind for kind in SEARCH_KINDS if "rounded" in kind]
rounded = pytest.mark.parametrize("kind", ROUNDED)


class _Worst(Tiles):
    """Tiles whose float16 products have a one-sided error of almost gamma."""

    side = 1.0

    def products(self, left: Tensor, right: Tensor) -> Tensor:
        sizes = left.double().norm(dim=1)[:, None] * right.double().norm(dim=1)
        error = left.shape[1] * 2.0 ** (-22.01 if left.dtype == torch.float16 else -26)
        return (left.double() @ right.double().T + self.side * error * sizes).float()


class _Below(_Worst):
    side = -1.0


class _WorstEngine(Engine):
    __slots__ = ()

    def tiles(self, width, device, rows, columns, *, whole=False):
        return _Below(64, columns if whole else 50, None)


def _hard() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(90, 30))
    far = normal.copy()
    far[:4] *= 1e6
    vanishing = 2.0**100 * np.eye(30).repeat(3, axis=0)
    vanishing[:30] = 2.0**-53 * rng.integers(0, 2, (30, 30))  # zero on the scale of the others
    beyond = normal.copy()
    beyond[:30] = 60_000 * np.sign(normal[:30])  # next to where float16 ends, behind it once centered
    return {
        "far rows": far,
        "beyond float16": beyond,
        "tiny": 1e-20 * normal,
        "vanishing": vanishing,
        "huge": 1e15 * normal,
        "off center": 5 + 0.05 * normal,
        "near copies": rng.normal(size=(3, 30)).repeat(30, axis=0) + 1e-6 * normal,
        "copies": rng.normal(size=(9, 30)).repeat(10, axis=0),
        "lattice": rng.integers(0, 3, (90, 5)),
        "wide": rng.normal(size=(40, 4096)),
        "one sign": 1 + rng.random((60, 2048)),
        "powers of two": 2.0 ** rng.integers(-30, 12, (90, 20)),
    }


HARD = {name: values.astype(np.float32) for name, values in _hard().items()}


@rounded
@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("tiles", [_Worst, _Below])
def test_bounds_hold_for_the_worst_products(case, kind, tiles):
    features = HARD[case]
    (points,) = place(features, kind=kind)
    true, every = sq_distances(features, features), torch.arange(len(features))
    coordinates, whole = points.coordinates, slice(0, len(features))
    keys = coordinates.keys_of(every, tiles(1, 1, None))(coordinates, every)
    lower = coordinates.sq_lower(keys)
    assert (lower <= true).all()
    assert (lower + coordinates.sq_gap(every[:, None], coordinates, every) >= true).all()
    near, lower, upper = coordinates.nearest(keys, every, coordinates, whole, coordinates.unknown(whole), 5)
    assert (lower <= true.gather(1, near)).all()
    assert (upper >= true.gather(1, near)).all()


@rounded
@pytest.mark.parametrize("case", ["far rows", "tiny", "huge"])
def test_rounded_rows_that_are_not_stored_are_recomputed(case, kind):
    (points,) = place(HARD[case], kind=kind)
    rows = torch.arange(len(points.features)).flip(0)
    again = replace(points.coordinates, rounded_rows=points.coordinates.rounded_rows[:0])
    assert torch.equal(again.at(rows), points.coordinates.at(rows))


def _counted(x: IndexedPoints, y: IndexedPoints, k: int, engine: Engine) -> list[Tensor]:
    own = [Neighborhood.from_points(points, [BallKind(k)], engine=engine, keep=2 * k) for points in (x, y)]
    counts = cross_counts(x, y, real_radii=own[0].radii, fake_radii=own[1].radii, engine=engine)
    index, sq = nearest_between(y, x, k, engine=engine)
    return [
        *(table for each in own for table in (each.sq_radii, each.in_degrees, each.lists.sq)),
        *(counts.real_balls_per_fake, counts.fakes_per_real_ball, counts.fake_balls_per_real),
        *(counts.reals_per_fake_ball, index, sq),
    ]


def _expected(real: np.ndarray, fake: np.ndarray, k: int) -> list[np.ndarray]:
    sq, tables = oracle.sq_distances(real, fake), []
    radii = [oracle.kth_sq_distances(each, [k]) for each in (real, fake)]
    for each, own in zip((real, fake), radii, strict=True):
        among = oracle.sq_distances(each, each)
        ordered = np.sort(np.where(np.eye(len(each), dtype=bool), np.inf, among), axis=1)
        tables += [own, (among <= own[0][:, None]).sum(0)[None] - 1, ordered[:, : 2 * k]]
    in_real, in_fake = sq <= radii[0][0][:, None], sq <= radii[1][0]
    order = sq.T.argsort(axis=1, kind="stable")[:, :k]
    tables += [table[None] for table in (in_real.sum(0), in_real.sum(1), in_fake.sum(1), in_fake.sum(0))]
    return [*tables, order, np.take_along_axis(sq.T, order, axis=1)]


def _assert_equal(found: list[Tensor], expected: list[np.ndarray]) -> None:
    for place_of, (one, other) in enumerate(zip(found, expected, strict=True)):
        if place_of in {2, 5}:  # lists are as good as float32
            np.testing.assert_allclose(one.cpu(), other, rtol=1e-5)
        else:
            np.testing.assert_array_equal(one.cpu(), other)


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize(("kind", "differences_from"), [*zip(ROUNDED, (0, 64), strict=True)])
def test_decisions_equal_those_of_the_oracle(case, kind, differences_from, set_sizes):
    set_sizes(differences_from=differences_from)
    real, fake = HARD[case][::2], np.concatenate([HARD[case][1::2], HARD[case][:9]])
    for engine in (_WorstEngine(), ENGINES["tiles of 7 x 64"]):
        _assert_equal(_counted(*place(real, fake, kind=kind), 4, engine), _expected(real, fake, 4))


@pytest.mark.parametrize("case", feature_cases.names())
def test_rounded_rows_decide_as_coordinates_do(case):
    real, fake = feature_cases.make(case)
    x, y = place(real, fake, kind="rounded to float16")
    k = min(3, len(real) - 1, len(fake) - 1)
    assert torch.equal(sq_radii(x, [k]), torch.from_numpy(oracle.kth_sq_distances(real, [k])))
    _assert_equal(_counted(x, y, k, _WorstEngine())[6:10], _expected(real, fake, k)[6:10])


@pytest.mark.parametrize("limit", [2**18, 2**19, 2**20, 2**23, 2**33])
def test_decisions_on_a_gpu_do_not_depend_on_its_memory(limit):
    rng = np.random.default_rng(1)
    real, fake = rng.normal(5, 1, (2, 600, 24)).astype(np.float32)
    expected = _expected(real, fake, 5)
    with practice_device(limit=limit) as device:
        try:
            sets = [torch.from_numpy(each).cuda() for each in (real, fake)]
            x = choose_projection(sets[0], 5).place(sets[0])
            found = [table.cpu() for table in _counted(x, x.projection.place(sets[1]), 5, Engine())]
        except (torch.OutOfMemoryError, GenprError):
            assert limit < 2**23
            return
        assert x.projection.rounding == torch.float16
        assert not device.refusals
    _assert_equal(found, expected)


def test_rows_that_float16_cannot_distinguish_are_searched_in_float32():
    rng = np.random.default_rng(2)
    clusters = rng.normal(size=(4, 24)).repeat(1000, axis=0) + 1e-5 * rng.normal(size=(4000, 24))
    with practice_device():
        projections = [
            choose_projection(torch.from_numpy(x).float().cuda(), 5) for x in (clusters, clusters[:9])
        ]
    assert [projection.rounding for projection in projections] == [torch.float32, torch.float16]


def test_sets_with_rows_beyond_float16_are_counted_in_float32():
    rng = np.random.default_rng(3)
    real = rng.normal(size=(60, 24)).astype(np.float32)
    fake = 1e6 * real
    projection = replace(projection_of(torch.from_numpy(real)), rounding=torch.float16)
    x, y = (projection.place(torch.from_numpy(each)) for each in (real, fake))
    _assert_equal(_counted(x, y, 4, Engine(16, 16)), _expected(real, fake, 4))


def test_features_beyond_the_proven_length_of_float16_sums_are_exact():
    features = torch.ones(6, 2**20)
    features[3:, 0] = torch.arange(3)
    (points,) = place(features, kind="rounded to float16")
    assert sq_radii(points, [2]).tolist() == [[0, 0, 0, 1, 0, 1]]


def _cutting(bits: int, least: float) -> Callable[..., Tensor]:
    """Products with sums like those of tensor cores: eight terms at a time, truncated below the largest; halves below `least` are zero."""
    matmul = torch.mm

    def mm(left: Tensor, right: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
        if out_dtype is None:
            return matmul(left, right)
        x, y = (each.cpu().double().where(each.cpu().abs() >= least, 0) for each in (left, right.T))
        total = torch.zeros(len(x), len(y), 1).double()
        for parts in zip(x.split(8, dim=1), y.split(8, dim=1), strict=True):
            terms = torch.cat([total, parts[0][:, None] * parts[1]], dim=2)
            unit = 2.0 ** (terms.abs().amax(dim=2, keepdim=True).log2().floor() - bits)
            total = (terms / unit).trunc().sum(dim=2, keepdim=True) * unit
        return total[:, :, 0].float().cuda()

    return mm


@pytest.mark.parametrize(
    ("bits", "least", "expected"),
    [(23, 0, torch.float16), (22, 0, torch.float32), (25, 2.0**-14, torch.float32)],
)
def test_float16_is_used_if_its_sums_are_sufficiently_precise(bits, least, expected, monkeypatch):
    with practice_device():
        monkeypatch.setattr(torch, "mm", _cutting(bits, least))
        assert rounding_on.__wrapped__(torch.device("cuda")) == expected


def test_float32_products_of_reduced_precision_are_an_error():
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    with practice_device():
        matmul.allow_tf32 = True
        try:
            with pytest.raises(GenprError) as caught:
                rounding_on.__wrapped__(torch.device("cuda"))  # what was found elsewhere is kept
        finally:
            matmul.allow_tf32 = before
    assert caught.value.code == "gpu-unusable"
