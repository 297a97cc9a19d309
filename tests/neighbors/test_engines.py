import numpy as np
import pytest
import torch
from search_cases import ENGINES, place, sq_radii
from torch import Tensor

from genpr.neighbors import engine as engine_module
from genpr.neighbors.distance import sq_differences_at
from genpr.neighbors.engine import Engine, products_with_itself

engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
CPU = torch.device("cpu")


def _integers(rng: np.random.Generator, *shape: int) -> Tensor:
    """Few enough that every product is exact."""
    return torch.from_numpy(rng.integers(-4, 5, shape)).float()


def _as_dict(found: tuple[Tensor, Tensor, Tensor]) -> dict[tuple[int, int], float]:
    i, j, key = (part.tolist() for part in found)
    assert len(set(zip(i, j, strict=True))) == len(i)
    return {(row, column): value for row, column, value in zip(i, j, key, strict=True)}


def _expected(keys: Tensor, of_rows: Tensor, of_columns: Tensor | None) -> dict[tuple[int, int], float]:
    is_above = keys >= of_rows[:, None]
    if of_columns is not None:
        is_above |= keys >= of_columns
    return {(i, j): keys[i, j].item() for i, j in is_above.nonzero().tolist()}


@engines
@pytest.mark.parametrize("rows", [0, 1, 7, 15, 16, 17, 40])
def test_exactly_the_keys_that_reach_a_threshold_are_found(engine, rows, rng):
    tiles = engine.tiles(6, CPU, 40, 50)
    rows = min(rows, tiles.rows)
    for columns in (0, 1, 7, min(50, tiles.columns)):
        left, right = _integers(rng, rows, 6), _integers(rng, columns, 6)
        thresholds = _integers(rng, rows) * 5, _integers(rng, columns) * 5 + 10
        for of_columns in (None, thresholds[1]):
            keys = tiles.products(left, right)
            found = _as_dict(tiles.at_least(keys, thresholds[0], of_columns))
            assert found == _expected((left.double() @ right.double().T), thresholds[0], of_columns)


@engines
def test_results_are_not_overwritten_by_the_next_tile(engine, rng):
    tiles = engine.tiles(5, CPU, 7, 7)
    left, right = _integers(rng, 7, 5), _integers(rng, 7, 5)
    keys, lowest = tiles.products(left, right).clone(), torch.zeros(7)
    found = tiles.at_least(tiles.products(left, right), lowest)
    tiles.at_least(tiles.products(left + 100, right + 100), lowest)
    tiles.at_least(tiles.products(left[:3], right[:2]), lowest[:3])
    assert _as_dict(found) == _expected(keys, lowest, None)


def _layouts(x: Tensor) -> dict[str, Tensor]:
    return {
        "plain": x,
        "columns first": x.T.contiguous().T,
        "every second row": x.repeat_interleave(2, dim=0)[::2],
        "part of the columns": torch.nn.functional.pad(x, (2, 1), value=9)[:, 2:-1],
        "halves": x.half(),
    }


@pytest.mark.parametrize("form_of_x", _layouts(torch.ones(1, 1)))
@pytest.mark.parametrize("d", [1, 37])
def test_differences_have_the_precision_of_float32(form_of_x, d, rng, set_sizes):
    set_sizes(elements=300)
    values = torch.from_numpy(rng.normal(5, 1, (2, 40, d))).half().float()
    i, j = torch.from_numpy(rng.integers(0, 40, (200, 2))).T  # not contiguous either
    true = (values[0][i].double() - values[1][j].double()).square().sum(dim=1)
    for form_of_y, y in _layouts(values[1]).items():
        sq = sq_differences_at(_layouts(values[0])[form_of_x], y, i, j)
        assert sq.dtype == torch.float32
        assert ((sq - true).abs() <= (d + 3) * 2.0**-24 * true).all(), form_of_y


@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 300, 515, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_rows_with_themselves_are_whole(n, dtype, rng):
    rows = torch.from_numpy(rng.integers(-9, 9, (n, 20))).to(dtype)
    expected = rows.numpy() @ rows.numpy().T
    out = torch.full((n, n), torch.nan, dtype=dtype)
    assert products_with_itself(rows, out) is out
    assert out.tolist() == products_with_itself(rows).tolist() == expected.tolist()


def test_tiles_follow_the_memory_budget(rng, monkeypatch):
    (x,) = place(rng.normal(size=(100, 4)).astype(np.float32))
    expected = sq_radii(x, [3], engine=Engine())
    for width in (6, 1000):
        budget = 2**16
        monkeypatch.setattr(engine_module, "tile_budget", lambda device, budget=budget: budget)
        for whole in (False, True):
            tiles = Engine().tiles(width, CPU, 10_000, 3000, whole=whole)
            assert tiles.memory.numel() * 4 <= 2 * budget
            assert tiles.rows * tiles.columns >= budget / 64 / 4
            assert not whole or tiles.columns == 3000
    assert torch.equal(sq_radii(x, [3], engine=Engine()), expected)
