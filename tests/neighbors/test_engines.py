import numpy as np
import pytest
import torch
from search_cases import ENGINES, place, sq_radii
from torch import Tensor

from genpr.neighbors import engine as engine_module
from genpr.neighbors.distance import sq_differences_at
from genpr.neighbors.engine import Engine

engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
CPU = torch.device("cpu")


def _integers(rng: np.random.Generator, *shape: int) -> Tensor:
    """Few enough that every product is exact."""
    return torch.from_numpy(rng.integers(-4, 5, shape)).float()


def _as_dict(found: tuple[Tensor, Tensor, Tensor]) -> dict[tuple[int, int], float]:
    i, j, product = (part.tolist() for part in found)
    assert len(set(zip(i, j, strict=True))) == len(i)
    return {(row, column): value for row, column, value in zip(i, j, product, strict=True)}


def _expected(left: Tensor, right: Tensor) -> dict[tuple[int, int], float]:
    products = left.double() @ right.double().T
    return {(i, j): products[i, j].item() for i, j in (products >= 0).nonzero().tolist()}


@engines
@pytest.mark.parametrize("rows", [0, 1, 7, 15, 16, 17, 40])
def test_exactly_the_non_negative_products_are_found(engine, rows, rng):
    tiles = engine.tiles(6, CPU)
    rows = min(rows, tiles.rows)
    for columns in (0, 1, 7, min(50, tiles.columns)):
        left, right = _integers(rng, rows, 6), _integers(rng, columns, 6)
        right[:1] = 0  # exactly on the threshold
        found = _as_dict(tiles.non_negative(left, right))
        assert found == _expected(left, right)
        assert list(found.values()).count(0) >= rows * min(columns, 1)


@engines
def test_results_are_not_overwritten_by_the_next_tile(engine, rng):
    tiles = engine.tiles(5, CPU)
    left, right = _integers(rng, 7, 5), _integers(rng, 7, 5)
    found = tiles.non_negative(left, right)
    tiles.non_negative(left + 100, right + 100)
    tiles.non_negative(left[:3], right[:2])
    assert _as_dict(found) == _expected(left, right)


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


def test_tiles_follow_the_memory_budget(rng, monkeypatch):
    (x,) = place(rng.normal(size=(100, 4)).astype(np.float32))
    expected = sq_radii(x, [3], engine=Engine())
    for width in (6, 1000):
        budget = 2**16
        monkeypatch.setattr(engine_module, "tile_budget", lambda device, budget=budget: budget)
        tiles = Engine().tiles(width, CPU)
        assert tiles.memory.numel() * 4 <= 2 * budget
        assert tiles.rows * tiles.columns >= budget / 64 / 4
    assert torch.equal(sq_radii(x, [3], engine=Engine()), expected)
