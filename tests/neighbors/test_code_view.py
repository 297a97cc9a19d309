from __future__ import annotations

import functools
import json
import logging

import numpy as np
import pytest
import torch
from placements import ENGINES, frame_of, is_beyond, sq_distances
from torch import Tensor

import genpr
from genpr import KNNManifold
from genpr.neighbors import distance, index, integers
from genpr.neighbors.bounds import NO_FLOOR
from genpr.neighbors.engine import TorchTiles
from genpr.neighbors.index import FloatView, Frame, Placed, choose_frame, serves
from genpr.neighbors.nearest import kth_sq_distances
from genpr.neighbors.quantized import CodeView, Grid

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not integers.are_available(CPU), reason="no exact 8-bit products on this CPU")
_NAMES = ("codes", "slacks", "half_floors", "bias")
of_engines = pytest.mark.parametrize("engine", ["faiss", "torch"])


def _rows(rng, n: int, d: int = 40) -> Tensor:
    """Some far longer than others, some beyond every grid, some copies of the center."""
    rows = rng.normal(5, 1, (n, d))
    rows[::10] *= 20
    rows[3], rows[5], rows[11] = 1e6, -1e30, np.median(rows, axis=0)
    return torch.from_numpy(rows).float()


_BEYOND = [3, 5]


def _placed(features: Tensor) -> Placed:
    return frame_of(features, "integers").place(features)


def _products(left: CodeView, right: CodeView) -> Tensor:
    """Exact products of coarse and fine rows, in units of the grid, (n, m) float64."""
    coarse = torch.div(left.codes.long() + 1, 2, rounding_mode="floor")
    return (coarse @ right.codes.long().T).double()


def _exact_keys(left: CodeView, right: CodeView) -> Tensor:
    half_floors = left.half_floors[0].double()[:, None] + right.half_floors[1].double()
    return 2 * left.grid.step**2 * _products(left, right) - half_floors


def _float_error(left: CodeView, right: CodeView) -> Tensor:
    """What float32 may make of the integer keys: what slack pays for."""
    lengths = right.codes.abs().long().sum(dim=1)
    floors = left.half_floors[0].double().abs()[:, None] + right.half_floors[1].double().abs()
    return left.grid.step**2 * 2.0**-13 * lengths + 2.0**-21 * floors


def _everything(n: int) -> Tensor:
    return torch.full((n,), NO_FLOOR, dtype=torch.float64)


def _above(
    left: CodeView, right: CodeView, lowest: Tensor, engine: str = "torch"
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = torch.arange(len(left.codes)), torch.arange(len(right.codes))
    search = left.search(rows, ENGINES[engine].tiles(left.width, CPU))
    i, j, keys, doubts = search.above(lowest, right, columns)
    assert keys.dtype == torch.float64
    assert doubts.shape == keys.shape
    assert not doubts.any()
    return i, j, keys


def _all_keys(left: CodeView, right: CodeView) -> Tensor:
    i, j, keys = _above(left, right, _everything(len(left.codes)))
    found = torch.full((len(left.codes), len(right.codes)), torch.nan, dtype=torch.float64)
    found[i, j] = keys
    return found


def test_rows_are_placed_alike_in_pieces(rng, monkeypatch):
    features = _rows(rng, 50)
    grid = Grid(torch.eye(6), torch.eye(8), 0.03, (0.02, 0.01))  # exact, however rows are multiplied
    whole = CodeView.of(features, features[11], 0.25, grid)
    for elements in (1, 81, 1000):
        monkeypatch.setattr(distance, "_CPU_PIECE", elements)
        in_pieces = CodeView.of(features, features[11], 0.25, grid)
        for name in _NAMES:
            assert torch.equal(getattr(in_pieces, name), getattr(whole, name)), name


def test_a_view_is_what_the_grid_makes_of_rows(rng):
    features = _rows(rng, 30)
    points = _placed(features)
    view, frame = points.view, points.frame
    coded = frame.grid.place(features, frame.center, frame.scale)
    for name in ("codes", "slacks", "half_floors"):
        assert torch.equal(getattr(view, name), getattr(coded, name))
    assert view.width == frame.grid.width
    assert is_beyond(view).nonzero()[:, 0].tolist() == _BEYOND
    assert points.cells is None


def test_the_bias_takes_the_shift_back_and_subtracts_half_floors(rng):
    view = _placed(_rows(rng, 60)).view
    floors = view.half_floors[1].double() / (2 * view.grid.step**2)
    expected = -64.0 * view.codes.long().sum(dim=1) - floors
    assert view.bias.dtype == torch.float32
    assert ((view.bias - expected).abs() <= 2.0**-24 * expected.abs())[~is_beyond(view)].all()
    assert (view.bias[is_beyond(view)] == 2.0**100).all()
    assert (floors.abs() > 1)[~is_beyond(view)].any()


def test_left_and_right_make_integer_keys(rng):
    x = _placed(_rows(rng, 40))
    y = x.frame.place(_rows(rng, 25))
    rows, columns = torch.tensor([0, 39, 7, 7, 11, 20]), torch.tensor([24, 0, 11, 1])
    left, right = x.view.left(rows), y.view.right(columns)
    assert left.dtype == right.dtype == torch.float32
    assert left.shape == (6, x.view.width + 2)
    assert right.shape == (4, x.view.width + 2)
    keys = left.double() @ right.double().T
    expected = _exact_keys(x.view, y.view)[rows[:, None], columns]
    scale = (left.double().abs() @ right.double().abs().T).clamp(min=1e-30)
    assert ((keys - expected).abs() <= 2.0**-22 * scale).all()
    assert ((left @ right.T - expected).abs() <= 2.0**-18 * scale).all()


def test_products_with_rows_beyond_the_grid_say_that_nothing_is_known(rng):
    view = _placed(_rows(rng, 20)).view
    everything, beyond = torch.arange(20), torch.tensor(_BEYOND)
    assert (view.left(beyond) @ view.right(everything).T > 2.0**100).all()
    assert (view.left(everything) @ view.right(beyond).T > 2.0**100).all()


def test_the_gap_is_twice_the_slack_of_a_left_and_a_right_row(rng):
    x = _placed(_rows(rng, 30))
    y = x.frame.place(_rows(rng, 20))
    rows, columns = torch.tensor([0, 29, 3, 0]), torch.tensor([19, 0, 1, 3])
    gap = x.view.gap(rows, y.view, columns)
    assert gap.tolist() == [
        2 * float(x.view.slacks[0, i] + y.view.slacks[1, j]) for i, j in zip(rows, columns, strict=True)
    ]
    assert gap.isinf().tolist() == [False, False, True, True]
    assert torch.equal(x.view.gap(rows[:, None], y.view, columns).diagonal(), gap)


def test_gaps_bound_what_keys_leave_open(rng):
    features, others = _rows(rng, 40), _rows(rng, 30)
    x = _placed(features)
    y = x.frame.place(others)
    for one, other in ((x, y), (y, x), (x, x)):
        true = sq_distances(one.features, other.features)
        lower = one.sq_lower(_all_keys(one.view, other.view))
        upper = lower + one.sq_gap(torch.arange(len(one))[:, None], other, torch.arange(len(other)))
        assert (lower <= true).all()
        assert (true <= upper).all()


def test_what_float32_makes_of_integers_is_real_and_paid_for(rng):
    # Left rows are zero, and right ones nearly on the grid: there is no other error.
    grid = Grid(torch.eye(64), torch.eye(64), 0.5, (2.0**-30, 1.0))
    sizes = torch.from_numpy(rng.uniform(2.0**-11, 2.0**-10, (60, 1)))
    rows, center = (0.5 * (1 + sizes)).float().expand(60, 4096), torch.zeros(4096)
    origin, view = (CodeView.of(features, center, 1.0, grid) for features in (center[None], rows))
    assert (view.codes == 1).all()
    true = sq_distances(center[None], rows)
    lower = -2 * _all_keys(origin, view)
    gap = origin.gap(torch.zeros(60, dtype=torch.int64), view, torch.arange(60))
    assert (lower <= true).all()
    assert (true <= lower + gap).all()
    exact = -2 * _exact_keys(origin, view)
    of_floats = 2.0**-12 * grid.step**2 * 4096
    error = (lower - exact).abs().max()
    assert 0.01 * of_floats < error < of_floats
    assert error > (gap - 2 * of_floats).max()


@pytest.mark.parametrize("with_grid", [True, False])
def test_views_are_restored_from_their_tensors(with_grid, rng):
    features = _rows(rng, 30)
    points = _placed(features) if with_grid else frame_of(features).place(features)
    frame = points.frame
    numbers = json.loads(json.dumps(frame.numbers()))
    again = Frame.restored({name: tensor.clone() for name, tensor in frame.tensors().items()}, numbers)
    assert (again.grid is None) != with_grid
    assert again.scale == frame.scale
    assert torch.equal(again.center, frame.center)
    placed = Placed.restored(again, features, points.view.tensors())
    assert type(placed.view) is type(points.view)
    assert placed.cells is None
    for name, tensor in points.view.tensors().items():
        assert torch.equal(getattr(placed.view, name), tensor), name
    if with_grid:
        assert points.view.tensors().keys() == set(_NAMES)
        assert (again.grid.step, again.grid.shares) == (frame.grid.step, frame.grid.shares)
        assert torch.equal(again.grid.outer, frame.grid.outer)
        assert torch.equal(again.grid.inner, frame.grid.inner)
        for name, tensor in again.place(features).view.tensors().items():
            assert torch.equal(tensor, points.view.tensors()[name]), name


def test_keys_of_a_search_are_the_integer_keys(rng):
    x = _placed(_rows(rng, 40))
    y = x.frame.place(_rows(rng, 70))
    for one, other in ((x.view, y.view), (y.view, x.view), (x.view, x.view)):
        keys = _all_keys(one, other)
        known = ~is_beyond(one)[:, None] & ~is_beyond(other)
        errors = (keys - _exact_keys(one, other)).abs()
        assert (errors <= _float_error(one, other))[known].all()
        assert (keys[~known] > 2.0**80).all()


@of_engines
def test_every_key_that_is_large_enough_is_found(engine, rng):
    x = _placed(_rows(rng, 60))
    y = x.frame.place(_rows(rng, 50))
    exact, keys = _exact_keys(x.view, y.view), _all_keys(x.view, y.view)
    error = _float_error(x.view, y.view)
    some = exact[torch.arange(60), torch.from_numpy(rng.integers(20, 50, 60))]
    some[_BEYOND] = 0
    extremes = torch.tensor([NO_FLOOR, -(2.0**100), -1e9, 0.0, 1e9]).double().repeat(12)
    for lowest in (some, some * (1 + 1e-9), some - 1e-3, extremes, _everything(60)):
        i, j, found = _above(x.view, y.view, lowest, engine)
        is_found = torch.zeros(60, 50, dtype=torch.bool)
        is_found[i, j] = True
        assert is_found.sum() == len(i)
        assert torch.equal(found, keys[i, j])
        assert is_found[exact - error >= lowest[:, None]].all()
        assert not is_found[exact + 2 * error < lowest[:, None]].any()
        assert is_found[_BEYOND].all()
        assert is_found[:, _BEYOND].all()


def test_nothing_is_found_above_infinity(rng):
    view = _placed(_rows(rng, 20)).view
    i, j, keys = _above(view, view, torch.full((20,), torch.inf).double())
    assert len(i) == len(j) == len(keys) == 0


@of_engines
def test_a_pair_is_found_at_its_own_key(engine, rng):
    x = _placed(torch.from_numpy(rng.normal(size=(60, 24))).float())
    keys = _all_keys(x.view, x.view)
    for column in range(60):
        i, j, _ = _above(x.view, x.view, keys[:, column], engine)
        found = set(zip(i.tolist(), j.tolist(), strict=True))
        assert {(row, column) for row in range(60)} <= found


def test_thresholds_are_rounded_down(rng, monkeypatch):
    asked = []
    at_least = TorchTiles.at_least
    monkeypatch.setattr(
        TorchTiles,
        "at_least",
        lambda self, *factors: (asked.append(factors[-1]), at_least(self, *factors))[1],
    )
    view = _placed(torch.from_numpy(rng.normal(size=(60, 24))).float()).view
    lowest = torch.from_numpy(rng.normal(size=60))
    _above(view, view, lowest)
    exact = (lowest + view.half_floors[0].double()) / (2 * view.grid.step**2)
    (thresholds,) = asked
    assert thresholds.dtype == torch.float32
    assert (thresholds <= exact).all()
    assert (thresholds.nextafter(torch.tensor(torch.inf)) > exact).all()


def test_rows_and_columns_may_be_asked_for_in_any_order(rng):
    x = _placed(_rows(rng, 40))
    y = x.frame.place(_rows(rng, 30))
    keys, tiles = _all_keys(x.view, y.view), TorchTiles.allocate(64, 64, CPU)
    block, chunk = torch.tensor([17, 3, 0, 39]), torch.tensor([29, 5, 0, 12, 13])
    i, j, found, _ = x.view.search(block, tiles).above(_everything(4), y.view, chunk)
    assert len(i) == 20
    assert torch.equal(found, keys[block[i], chunk[j]])


N, D = 4000, 512


@functools.cache
def _rotation(d: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(4).normal(size=(d, d)))[0]


@functools.cache
def _power_law(seed: int, n: int = N, d: int = D) -> Tensor:
    """Variances fall off as 1 / i: no few directions hold them."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(
        3 + (rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -0.5) @ _rotation(d).T
    ).float()


@functools.cache
def _frame_of_power_law() -> Frame:
    return choose_frame(_power_law(1), 5)


def test_integers_are_taken_where_no_few_directions_hold_enough(caplog):
    with caplog.at_level(logging.INFO, "genpr"):
        frame = choose_frame(_power_law(1), 5)
    plain = Frame.around(_power_law(1))
    assert frame.grid.width == D
    assert frame.basis is None
    assert len(frame.centers) == 0
    assert torch.equal(frame.center, plain.center)
    assert frame.scale == plain.scale
    (record,) = caplog.records
    assert "8-bit integers" in record.getMessage()
    assert f"{N} x {D}" in record.getMessage()


def test_integers_change_no_radius():
    points, in_floats = (
        frame.place(_power_law(1)) for frame in (_frame_of_power_law(), Frame.around(_power_law(1)))
    )
    assert isinstance(points.view, CodeView)
    radii, expected = (kth_sq_distances(x, [1, 5], engine=ENGINES["torch"]) for x in (points, in_floats))
    assert torch.equal(radii, expected)


def test_integers_are_not_taken_where_they_are_not_available(monkeypatch):
    monkeypatch.setattr(integers, "are_available", lambda device: False)
    assert choose_frame(_power_law(1), 5).grid is None


def test_integers_are_not_taken_where_they_leave_too_many_pairs():
    rows = _power_law(1).clone()
    rows[:, 0] += 30 * torch.arange(N).sin()  # what the steps have to reach, and neighbors differ little in
    assert choose_frame(rows, 5).grid is None


def test_the_choice_of_a_grid_is_deterministic_and_touches_no_random_state():
    frame = _frame_of_power_law()
    torch.manual_seed(12)
    before = torch.get_rng_state()
    again = choose_frame(_power_law(1).clone(), 5)
    assert torch.equal(torch.get_rng_state(), before)
    assert frame.numbers() == again.numbers()
    assert frame.tensors().keys() == again.tensors().keys()
    for name, tensor in frame.tensors().items():
        assert torch.equal(tensor, again.tensors()[name])


def test_rows_that_a_grid_is_fitted_to_may_all_be_beyond_it(rng):
    rows = 1e4 * rng.normal(size=(4096, D))
    rows[::16] /= 1e4  # what the frame looks at
    rows[0], rows[4] = 1e4 * rows[0], 1e8 * rows[4]  # an outlier shifts what the grid is fitted to
    frame = choose_frame(torch.from_numpy(rows).float(), 5)
    assert frame.grid is None or 0 < frame.grid.step < np.inf


def _collapsed(place: float, spread: float) -> Tensor:
    noise = torch.from_numpy(np.random.default_rng(8).normal(size=(N, D))).float()
    return _power_law(1)[:1] + place + spread * noise


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (_power_law(2), True),
        (_power_law(2) + 0.01, True),
        (torch.cat([_power_law(2)[: N // 2], _power_law(1)[: N // 2]]), True),
        (_collapsed(100, 1e-3), False),
        (_collapsed(0, 1e-4), False),
        (1.2 * (_power_law(2) - 3) + 3, False),  # at another scale than that of a frame of their own
        (1000 * _power_law(2), False),  # mostly beyond the grid
        (_power_law(2)[:500], False),
    ],
    ids=[
        "like the reals",
        "near the reals",
        "some of them",
        "far away",
        "near copies",
        "wider",
        "larger",
        "few",
    ],
)
def test_a_grid_of_other_data_serves_what_is_like_it(features, expected):
    assert serves(_frame_of_power_law().place(features), 5) is expected


def test_manifolds_with_integers_are_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_MIN_ROWS", 1000)
    real, fake = _power_law(1)[:2000], _power_law(2)[:500]
    saved = KNNManifold.fit(real, k=3)
    before = saved.side.points
    assert isinstance(before.view, CodeView)
    saved.save(tmp_path / "real.safetensors")
    loaded = KNNManifold.load(tmp_path / "real.safetensors")
    after = loaded.side.points
    assert (after.frame.grid.step, after.frame.grid.shares) == (
        before.frame.grid.step,
        before.frame.grid.shares,
    )
    for name, tensor in before.view.tensors().items():
        assert torch.equal(after.view.tensors()[name], tensor), name
    assert torch.equal(loaded.sq_radii, saved.sq_radii)
    assert torch.equal(loaded.count(fake), saved.count(fake))
    monkeypatch.setattr(integers, "are_available", lambda device: False)  # on another machine
    in_floats = genpr.manifold_metrics(real, fake, k=3)
    assert genpr.manifold_metrics(loaded, fake, k=3) == in_floats
    moved = KNNManifold.load(tmp_path / "real.safetensors")
    assert isinstance(moved.side.points.view, FloatView)
    assert genpr.manifold_metrics(moved, fake, k=3) == in_floats
