from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from placements import sq_distances
from torch import Tensor

from genpr.neighbors import quantized
from genpr.neighbors.bounds import NO_FLOOR, sq_norms_of
from genpr.neighbors.index import Frame
from genpr.neighbors.integers import WIDTH_STEP
from genpr.neighbors.quantized import Coded, Grid, coarse_of

_WIDTHS = [1, 2, 15, 16, 17, 100, 768, 1000, 2048]
_MOST_CODE = 126


def _limits(left: Coded, right: Coded, step: float) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds on scaled squared distances, (n, m), from exact keys."""
    coarse = torch.div(left.codes.long() + 1, 2, rounding_mode="floor")
    products = coarse.double() @ right.codes.double().T  # far below 2^53
    keys = 2 * step**2 * products - left.half_floors[0].double()[:, None] - right.half_floors[1].double()
    return -2 * keys, -2 * keys + 2 * (left.slacks[0][:, None] + right.slacks[1])


def _are_broken(x: Coded, y: Coded, step: float, true: Tensor) -> tuple[bool, bool]:
    """Whether any lower bound fails, and any upper one."""
    lower, upper = _limits(x, y, step)
    assert not (lower.isnan() | upper.isnan()).any()
    return bool((lower > true).any()), bool((upper < true).any())


def _assert_bounds_hold(grid: Grid, frame: Frame, *sets: Tensor) -> list[Coded]:
    coded = [grid.place(features, frame.center, frame.scale) for features in sets]
    for x, one in zip(sets, coded, strict=True):
        for y, other in zip(sets, coded, strict=True):
            true = sq_distances(x.float(), y.float()) * frame.scale**2
            assert _are_broken(one, other, grid.step, true) == (False, False)
    return coded


def _fitted(features: Tensor) -> tuple[Grid, Frame]:
    frame = Frame.around(features)
    return Grid.fitted(torch.sub(features, frame.center) * frame.scale), frame


def _unmoved(d: int) -> Frame:
    return Frame(torch.zeros(d), 1.0, None, torch.empty(0, d, dtype=torch.float64))


def _heavy_tails(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-4, 4, (n, 1))


def _spikes(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    rows = np.zeros((n, d))
    rows[np.arange(n), rng.integers(0, d, n)] = rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-3, 3, n)
    return rows


def _with_long_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    rows = rng.normal(size=(n, d))
    rows[:6] *= np.array([3, 10, 100, 500, 2000, 1e6])[:, None]
    rows[6:9] = 0
    return rows


_FAMILIES = {
    "isotropic": lambda rng, n, d: rng.normal(size=(n, d)),
    "heavy tails": _heavy_tails,
    "spikes": _spikes,
    "offset": lambda rng, n, d: 1e4 + rng.normal(size=(n, d)),
    "long rows": _with_long_rows,
    "signs": lambda rng, n, d: rng.choice([-1.0, 1.0], (n, d)),
    "denormal": lambda rng, n, d: 1e-42 * _with_long_rows(rng, n, d),
    "vanishing beside others": lambda rng, n, d: np.vstack(
        [rng.normal(size=(n // 2, d)), 1e-42 * rng.normal(size=(n - n // 2, d))]
    ),
    "copies": lambda rng, n, d: np.repeat(rng.normal(size=(2, d)), [n - 3, 3], axis=0),
    "zeros": lambda rng, n, d: np.zeros((n, d)),
}


@pytest.mark.parametrize("d", _WIDTHS)
@pytest.mark.parametrize("family", _FAMILIES)
def test_bounds_hold_on_adversarial_rows(d, family, rng):
    x, y = (torch.from_numpy(_FAMILIES[family](rng, n, d)).float() for n in (24, 17))
    grid, frame = _fitted(x)
    _assert_bounds_hold(grid, frame, x, y, torch.zeros(1, d))


@pytest.mark.parametrize("d", [1, 17, 768])
@pytest.mark.parametrize("family", ["isotropic", "spikes", "offset"])
def test_bounds_hold_for_halves(d, family, rng):
    x, y = (torch.from_numpy(_FAMILIES[family](rng, n, d)).half() for n in (24, 17))
    _assert_bounds_hold(*_fitted(x), x, y)


@pytest.mark.parametrize("step", [2.0**-30, 1e-4, 0.01, 0.3, 2.0, 1e3])
@pytest.mark.parametrize("shares", [(1.0, 1.0), (1e-4, 0.5), (3.0, 1e-5)])
def test_bounds_hold_for_every_step_and_all_shares(step, shares, rng):
    x = torch.from_numpy(_with_long_rows(rng, 30, 20)).float()
    grid, frame = _fitted(x)
    _assert_bounds_hold(replace(grid, step=step, shares=shares), frame, x, x.flip(1))


def _plain(width: int, step: float, shares: tuple[float, float], stretch: float = 1.0) -> Grid:
    """Without a rotation: what coordinates are rounded to can be chosen."""
    a = math.isqrt(width)
    return Grid(stretch * torch.eye(a), stretch * torch.eye(width // a), step, shares)


def _with_less_slack(coded: Coded, sq_norms: Tensor, divisor: float) -> Coded:
    slacks = coded.slacks / divisor
    return Coded(coded.codes, slacks, ((sq_norms - slacks) / 2).float())


@pytest.mark.parametrize(
    ("left", "right", "coarse", "fine", "breaks"),
    [
        (124.51, 125.51, 126, 126, (False, True)),  # both rounded away from zero: the product is too large
        (-125.49, -125.49, -124, -125, (True, False)),  # both towards zero
    ],
)
def test_slack_is_no_larger_than_errors_that_add_up(left, right, coarse, fine, breaks):
    # All coordinates alike, so that errors are parallel to rows, and Cauchy-Schwarz is an equality.
    step = 2.0**-7
    x, y = torch.full((1, 16), left * step), torch.full((1, 16), right * step)
    shares = abs(left - coarse) / abs(fine), abs(right - fine) / abs(coarse)
    grid = _plain(16, step, shares)
    one, other = _assert_bounds_hold(grid, _unmoved(16), x, y)
    assert 2 * (int(coarse_of(one.codes)[0, 0]) - quantized.SHIFT) == coarse
    assert other.codes[0, 0] == fine
    less = _with_less_slack(one, sq_norms_of(x), 1.02), _with_less_slack(other, sq_norms_of(y), 1.02)
    assert _are_broken(*less, step, sq_distances(x, y)) == breaks


def test_slack_is_needed_for_ordinary_rows(rng):
    x = torch.from_numpy(rng.normal(size=(400, 16))).float()
    grid, frame = _fitted(x)
    coded = grid.place(x, frame.center, frame.scale)
    sq_norms = sq_norms_of((x - frame.center) * frame.scale)
    true = sq_distances(x, x) * frame.scale**2
    assert _are_broken(_with_less_slack(coded, sq_norms, 1), coded, grid.step, true) == (False, False)
    less = _with_less_slack(coded, sq_norms, 3)
    assert _are_broken(less, less, grid.step, true) == (True, True)


@pytest.mark.parametrize("reach", [127.0, 130.0, 1000.0, 1e5])
@pytest.mark.parametrize("sign", [1, -1])
def test_coordinates_beyond_the_largest_integer_are_clipped_and_paid_for(reach, sign):
    step = 2.0**-12
    rows = torch.zeros(4, 16)
    rows[0, 3], rows[1, :2], rows[2] = sign * reach * step, reach * step, 50 * step
    rows[3, 3] = -rows[0, 3]
    (coded,) = _assert_bounds_hold(_plain(16, step, (0.1, 0.1)), _unmoved(16), rows)
    assert coded.codes[0, 3] == sign * _MOST_CODE
    assert coded.codes.abs().max() == _MOST_CODE
    assert coarse_of(coded.codes).min() >= 1
    assert coarse_of(coded.codes).max() <= 127
    assert (coded.slacks[:, 0] >= ((reach - _MOST_CODE) * step) ** 2).all()


def test_every_code_has_a_coarse_one_of_seven_bits():
    codes = torch.arange(-_MOST_CODE, _MOST_CODE + 1).to(torch.int8)
    before = codes.clone()
    coarse = coarse_of(codes)
    assert torch.equal(codes, before)
    assert coarse.dtype == torch.uint8
    assert coarse.min() == 1
    assert coarse.max() == 127
    rounded_up = 2 * (coarse.long() - quantized.SHIFT) - codes
    assert torch.equal(rounded_up, codes.long() % 2)


@pytest.mark.parametrize("family", ["isotropic", "long rows", "spikes", "signs"])
def test_codes_stay_within_their_range(family, rng):
    x = torch.from_numpy(_FAMILIES[family](rng, 50, 40)).float()
    grid, frame = _fitted(x)
    codes = replace(grid, step=grid.step / 5).place(x, frame.center, frame.scale).codes
    assert codes.dtype == torch.int8
    assert codes.shape == (50, grid.width)
    assert codes.long().abs().max() == _MOST_CODE
    assert coarse_of(codes).min() >= 1
    assert coarse_of(codes).max() <= 127


@pytest.mark.parametrize("value", [2.0**10 * 1.001, 1e6, 1e19, 1e30, 3e38, math.nan])
def test_rows_beyond_the_grid_are_left_to_verification(value, rng):
    x = torch.from_numpy(rng.normal(size=(30, 20))).float()
    x[4], x[9] = 0, 0
    x[4, 0], x[9, 19] = value, -value
    grid, frame = Grid.fitted(x[10:]), _unmoved(20)
    (coded,) = _assert_bounds_hold(grid, frame, x)
    beyond = torch.zeros(30, dtype=torch.bool)
    beyond[[4, 9]] = True
    assert torch.equal(coded.slacks.isinf(), beyond.expand(2, 30))
    assert not coded.codes[beyond].any()
    assert coded.codes[~beyond].any(dim=1).all()
    assert (coded.half_floors[:, beyond] == NO_FLOOR / 2).all()
    assert coded.half_floors.isfinite().all()


def test_the_longest_rows_that_fit_are_on_the_grid(rng):
    x = torch.from_numpy(rng.normal(size=(30, 20))).float()
    x[4] = 0
    x[4, 0] = 2.0**10
    (coded,) = _assert_bounds_hold(Grid.fitted(x[10:]), _unmoved(20), x)
    assert coded.slacks.isfinite().all()
    assert coded.codes[4].any()


def test_rows_that_vanish_have_some_slack():
    grid = _plain(16, 0.01, (0.01, 0.01))
    rows = torch.zeros(3, 16)
    rows[1] = 1e-45
    coded = grid.place(rows, torch.zeros(16), 1.0)
    assert (coded.slacks > 0).all()
    assert coded.slacks.max() < 1e-20


def test_placing_leaves_its_input_alone(rng):
    x = torch.from_numpy(rng.normal(size=(9, 20))).float()
    x[3] = 1e20
    before, center = x.clone(), torch.ones(20)
    grid = Grid.fitted(x)
    grid.place(x, center, 1.0)
    assert torch.equal(x, before)
    assert torch.equal(center, torch.ones(20))


@pytest.mark.parametrize("d", [1, 16, 17, 100, 768, 1000, 2048])
def test_factors_are_nearly_orthogonal_and_hold_all_coordinates(d):
    grid = Grid.fitted(torch.ones(2, d))
    assert grid.width == len(grid.outer) * len(grid.inner)
    assert grid.width % WIDTH_STEP == 0
    assert d <= grid.width < d + WIDTH_STEP
    for factor in (grid.outer, grid.inner):
        size = len(factor)
        assert factor.shape == (size, size)
        assert factor.dtype == torch.float32
        assert (factor.double().T @ factor.double() - torch.eye(size)).abs().max() < 1e-6
    turning, eta = grid._tolerances()
    assert 0 < turning < 2.0**-10
    assert 0 < eta < 2.0**-16


def test_a_rotation_spreads_what_is_in_one_coordinate():
    d = 768
    rows = torch.eye(d)[:50]
    grid = Grid.fitted(rows)
    codes = grid.place(rows, torch.zeros(d), 1.0).codes
    assert (codes != 0).float().mean() > 0.8
    assert (codes.abs() == _MOST_CODE).float().mean() < 0.02


def test_a_row_is_turned_by_the_kronecker_product(rng):
    grid = Grid(*(torch.from_numpy(rng.normal(size=(n, n))).float() for n in (3, 5)), 1.0, (1.0, 1.0))
    rows = torch.from_numpy(rng.normal(size=(7, 13))).float()
    turned = quantized._turned(rows, grid.outer, grid.inner)
    whole = torch.kron(grid.outer.double(), grid.inner.double())
    assert (turned - rows.double() @ whole.T[:13]).abs().max() < 1e-4


@pytest.mark.parametrize("stretch", [0.9, 0.99, 1.01, 1.1])
@pytest.mark.parametrize("d", [16, 100, 768])
def test_factors_that_are_not_orthogonal_are_noticed_and_paid_for(stretch, d, rng):
    x = torch.from_numpy(_with_long_rows(rng, 30, d)).float()
    grid, frame = _fitted(x)
    bent = torch.ones(len(grid.inner))
    bent[::3] = stretch
    for outer, inner in ((grid.outer, grid.inner * stretch), (stretch * grid.outer, grid.inner * bent)):
        _assert_bounds_hold(replace(grid, outer=outer, inner=inner), frame, x)


@pytest.mark.parametrize("stretch", [0.99, 1.01])
def test_what_a_stretch_does_to_products_is_real(stretch, monkeypatch):
    # On the grid after the stretch: there is no other error than that of the stretch.
    step = 2.0**-7
    x = torch.full((1, 16), 126 * step / stretch**2)
    grid, frame = _plain(16, step, (1e-5, 1e-5), stretch), _unmoved(16)
    _assert_bounds_hold(grid, frame, x, -x)
    turning, eta = grid._tolerances()
    assert eta >= abs(stretch**4 - 1)
    monkeypatch.setattr(Grid, "_tolerances", lambda self: (turning, 2.0**-20))
    one, other = (grid.place(rows, frame.center, 1.0) for rows in (x, -x))
    too_long = stretch > 1
    assert _are_broken(one, one, step, sq_distances(x, x)) == (not too_long, too_long)
    assert _are_broken(one, other, step, sq_distances(x, -x)) == (too_long, not too_long)


def _hadamard(size: int) -> Tensor:
    """Orthogonal, exactly so for sizes that are powers of four; its first row is constant."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix / math.sqrt(size)


def _turned_one_term_after_the_other(rows: Tensor, outer: Tensor, inner: Tensor) -> Tensor:
    """The order of summation whose error grows fastest."""
    assert len(outer) == 1
    turned = torch.zeros(len(rows), len(inner))
    for column in range(rows.shape[1]):
        turned = turned + rows[:, column, None] * inner[:, column]
    return turned * outer[0, 0]


def test_the_error_of_turning_is_real_and_paid_for(monkeypatch):
    monkeypatch.setattr(quantized, "_turned", _turned_one_term_after_the_other)
    size = 256
    inner, outer = _hadamard(size), torch.ones(1, 1)
    values = torch.linspace(1, 1.99, 100)
    turned = quantized._turned(values[:, None].expand(100, size), outer, inner)[:, 0]
    for errs in ((turned / values / 16 - 1).argmax(), (turned / values / 16 - 1).argmin()):
        # What is turned is an integer, by mistake, so that rounding it seems to have no error.
        step, x = float(turned[errs]) / _MOST_CODE, values[errs].expand(1, size).contiguous()
        grid, frame = Grid(outer, inner, step, (1e-7, 1e-7)), _unmoved(size)
        _assert_bounds_hold(grid, frame, x, -x)
        with monkeypatch.context() as patch:
            patch.setattr(Grid, "_tolerances", lambda self: (0.0, 2.0**-20))
            one, other = (grid.place(rows, frame.center, 1.0) for rows in (x, -x))
            assert any(_are_broken(one, one, step, sq_distances(x, x)))
            assert any(_are_broken(one, other, step, sq_distances(x, -x)))


def test_fitting_is_deterministic_and_touches_no_random_state(rng):
    rows = torch.from_numpy(rng.normal(size=(50, 100))).float()
    before_rows = rows.clone()
    grid = Grid.fitted(rows)
    torch.manual_seed(12)
    before = torch.get_rng_state()
    again = Grid.fitted(rows.clone())
    assert torch.equal(torch.get_rng_state(), before)
    assert (grid.step, grid.shares) == (again.step, again.shares)
    assert torch.equal(grid.outer, again.outer)
    assert torch.equal(grid.inner, again.inner)
    assert torch.equal(rows, before_rows)


@pytest.mark.parametrize(
    "rows",
    [
        torch.empty(0, 5),
        torch.zeros(4, 5),
        torch.full((4, 5), 3.7),
        torch.full((4, 5), 1e-44),
        torch.full((4, 5), 1e-25),
        torch.full((4, 5), torch.inf),
        torch.full((4, 5), 3e38),
        torch.tensor([[1.0, 2.0], [3e38, 3e38], [torch.inf, 0.0]]),
        torch.eye(1, 20),
    ],
    ids=["none", "zero", "constant", "denormal", "tiny", "infinite", "too far", "some too far", "one"],
)
def test_every_set_has_a_grid(rows):
    grid = Grid.fitted(rows)
    assert 0 < grid.step < math.inf
    assert all(0 < share < math.inf for share in grid.shares)
    finite = rows[rows.isfinite().all(dim=1)]
    _assert_bounds_hold(grid, _unmoved(rows.shape[1]), finite, torch.ones(2, rows.shape[1]))


def test_rows_beyond_the_grid_do_not_shape_it(rng):
    rows = torch.from_numpy(rng.normal(size=(50, 30))).float()
    grid = Grid.fitted(rows)
    more = Grid.fitted(torch.cat([rows, torch.full((3, 30), 1e10), torch.full((3, 30), torch.inf)]))
    assert (grid.step, grid.shares) == (more.step, more.shares)


def _slack_with(grid: Grid, rows: Tensor) -> float:
    return float(grid.place(rows, torch.zeros(rows.shape[1]), 1.0).slacks.sum(dim=0).mean())


def _with_step(grid: Grid, rows: Tensor, step: float) -> Grid:
    """With the shares that suit this step."""
    turned = quantized._turned(rows, grid.outer, grid.inner).double()
    fine = (turned / step).round().clamp(-_MOST_CODE, _MOST_CODE)
    parts = 2 * torch.floor((fine + 1) / 2), fine
    length = turned.norm(dim=1).square().mean().sqrt()
    coarse, fine = (float((turned - step * part).norm(dim=1).mean() / length) for part in parts)
    return replace(grid, step=step, shares=(coarse, fine))


@pytest.mark.parametrize("d", [64, 768])
def test_step_and_shares_leave_little_slack(d, rng):
    rows = torch.from_numpy(rng.normal(size=(200, d)) * np.arange(1, d + 1) ** -0.5).float()
    grid = Grid.fitted(rows)
    coarse, fine = grid.shares
    assert 1.5 * fine < coarse < 3 * fine < 0.1
    slack = _slack_with(grid, rows)
    assert slack <= 1.02 * _slack_with(_with_step(grid, rows, grid.step), rows)
    for factor in (3, 2, 1 / 2, 1 / 3):
        assert slack < 0.8 * _slack_with(_with_step(grid, rows, factor * grid.step), rows), factor
    for factor in (2, 1 / 2):
        assert slack < 0.9 * _slack_with(replace(grid, shares=(factor * coarse, factor * fine)), rows)
    assert slack < 0.95 * _slack_with(replace(grid, shares=(fine, coarse)), rows)
    assert slack < 0.12 * float(sq_norms_of(rows).mean())


def test_the_unit_is_the_product_of_a_coarse_and_a_fine_step():
    assert _plain(16, 0.25, (1.0, 1.0)).unit == 2 * 0.25 * 0.25
