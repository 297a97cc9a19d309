from __future__ import annotations

import pytest
import torch
from torch import Tensor

from genpr.neighbors import integers
from genpr.neighbors.engine import TorchTiles
from genpr.neighbors.integers import WIDTH_STEP, are_available, products

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not are_available(CPU), reason="no exact 8-bit products on this CPU")


def _on_gpus(left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
    return integers._by_tensor_cores(left, right).float() + bias


ways = pytest.mark.parametrize("way", [products, _on_gpus], ids=["CPU", "GPU"])


def _random(rng, rows: int, columns: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    left = torch.from_numpy(rng.integers(0, 128, (rows, width))).to(torch.uint8)
    right = torch.from_numpy(rng.integers(-127, 128, (columns, width))).to(torch.int8)
    return left, right, torch.from_numpy(rng.integers(-(2**12), 2**12, columns)).float()


def _reference(left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
    return left.double() @ right.double().T + bias.double()


def _assert_exact(found: Tensor, left: Tensor, right: Tensor, bias: Tensor) -> None:
    expected = _reference(left, right, bias)
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    product = expected - bias
    roundings = (product.abs() + expected.abs()) * 2.0**-24
    roundings[(product.abs() < 2**24) & (expected.abs() < 2**24)] = 0
    assert ((found - expected).abs() <= roundings).all()


@ways
@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 3), (3, 0), (1, 1), (1, 33), (17, 1), (31, 65)])
def test_products_are_exact_whatever_the_number_of_rows(way, rows, columns, rng):
    factors = _random(rng, rows, columns, 48)
    _assert_exact(way(*factors), *factors)


@ways
@pytest.mark.parametrize("width", [16, 32, 48, 240, 1024, 2032, 4096])
def test_products_are_exact_whatever_the_width(way, width, rng):
    factors = _random(rng, 13, 21, width)
    _assert_exact(way(*factors), *factors)


@ways
@pytest.mark.parametrize("width", [16, 2048, 4096])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_products_do_not_saturate(way, width, sign):
    left, right = (
        torch.full((5, width), 127).to(torch.uint8),
        torch.full((9, width), sign * 127).to(torch.int8),
    )
    for bias in (torch.zeros(9), torch.arange(9.0)):
        found = way(left, right, bias)
        _assert_exact(found, left, right, bias)
        assert found[0, 0] == sign * 127**2 * width


@ways
def test_the_bias_is_added_in_float32(way, rng):
    left, right, _ = _random(rng, 6, 4, 32)
    bias = torch.tensor([-(2.0**100), 2.0**100, 0.125, -1e6 - 0.5])
    expected = (left.long() @ right.long().T).float() + bias
    assert torch.equal(way(left, right, bias), expected)


@ways
def test_factors_are_left_alone(way, rng):
    factors = _random(rng, 7, 5, 32)
    before = [factor.clone() for factor in factors]
    way(*factors)
    assert all(torch.equal(factor, old) for factor, old in zip(factors, before, strict=True))


@ways
def test_parts_of_larger_tensors_may_be_multiplied(way, rng):
    left, right, bias = _random(rng, 40, 30, 32)
    factors = left[3:20], right[7:], bias[7:]
    _assert_exact(way(*factors), *factors)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (17, 1), (31, 40), (64, 33)])
def test_tensor_cores_are_given_the_shapes_they_want(rows, columns, rng, monkeypatch):
    multiply = torch._int_mm

    def as_on_a_gpu(left: Tensor, right: Tensor) -> Tensor:
        assert left.dtype == right.dtype == torch.int8
        assert len(left) > 16
        assert left.shape[1] % 8 == 0
        assert right.shape[1] % 8 == 0
        return multiply(left, right)

    monkeypatch.setattr(torch, "_int_mm", as_on_a_gpu)
    factors = _random(rng, rows, columns, WIDTH_STEP)
    _assert_exact(_on_gpus(*factors), *factors)


@pytest.fixture
def asked_anew():
    are_available.cache_clear()
    yield
    are_available.cache_clear()


def _with(monkeypatch, way) -> bool:
    monkeypatch.setattr(integers, "_by_onednn", way)
    return are_available(CPU)


@pytest.mark.usefixtures("asked_anew")
def test_they_are_available_on_every_cpu_that_multiplies_exactly(monkeypatch):
    assert are_available(CPU)
    are_available.cache_clear()
    assert _with(monkeypatch, lambda *factors: _reference(*factors).float())


@pytest.mark.usefixtures("asked_anew")
def test_they_are_tried_once(monkeypatch):
    asked = []
    for _ in range(3):
        assert _with(monkeypatch, lambda *factors: (asked.append(1), _reference(*factors).float())[1])
    assert len(asked) == 1


@pytest.mark.parametrize("error", [RuntimeError, AttributeError, NotImplementedError])
@pytest.mark.usefixtures("asked_anew")
def test_they_are_not_available_where_they_raise(error, monkeypatch):
    def raises(left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
        raise error

    assert not _with(monkeypatch, raises)


@pytest.mark.usefixtures("asked_anew")
def test_they_are_not_available_where_the_operation_is_missing(monkeypatch):
    assert not _with(monkeypatch, lambda *factors: torch.ops.onednn.of_another_version(*factors))


@pytest.mark.usefixtures("asked_anew")
def test_they_are_not_available_where_the_operation_takes_other_arguments(monkeypatch):
    assert not _with(monkeypatch, lambda *factors: torch.ops.onednn.qlinear_pointwise(*factors))


def _in_16_bits(left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
    """Pairs of products of eight bits each saturate; here fours, so that those of seven bits do."""
    terms = (left.long()[:, None] * right.long()).view(len(left), len(right), -1, 4)
    return terms.sum(dim=3).clamp(-(2**15), 2**15 - 1).sum(dim=2) + bias


_INEXACT = {
    "saturated": _in_16_bits,
    "as signed": lambda left, right, bias: _reference(left.view(torch.int8) // 2 * 2, right, bias).float(),
    "in bfloat16": lambda left, right, bias: _reference(left, right, bias).bfloat16().float(),
    "off by one": lambda left, right, bias: _reference(left, right, bias).float() + 1,
    "without bias": lambda left, right, bias: _reference(left, right, 0 * bias).float(),
    "not a number": lambda left, right, bias: _reference(left, right, bias).float() * torch.nan,
    "one of them infinite": lambda left, right, bias: (
        _reference(left, right, bias).float().index_fill(0, torch.tensor(63), torch.inf)
    ),
}


@pytest.mark.parametrize("way", _INEXACT.values(), ids=_INEXACT.keys())
@pytest.mark.usefixtures("asked_anew")
def test_they_are_not_available_where_they_are_inexact(way, monkeypatch):
    assert _with(monkeypatch, way) is False


def _found_by_tiles(left, right, bias, thresholds) -> dict[tuple[int, int], float]:
    i, j, value = TorchTiles.allocate(64, 64, CPU).at_least(left, right, bias, thresholds)
    assert i.dtype == j.dtype == torch.int64
    assert value.dtype == torch.float32
    found = {(row, column): x for row, column, x in zip(i.tolist(), j.tolist(), value.tolist(), strict=True)}
    assert len(found) == len(i)
    return found


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0), (1, 1), (7, 31), (40, 50)])
@pytest.mark.parametrize("of", ["ties", "just above", "extremes"])
def test_exactly_the_pairs_that_reach_the_threshold_of_their_row_are_found(rows, columns, of, rng):
    left, right, bias = _random(rng, rows, columns, 32)
    expected = _reference(left, right, bias)
    ties = expected.sort(dim=1).values[:, columns // 2].float() if columns else torch.zeros(rows)
    thresholds = {
        "ties": ties,
        "just above": ties.nextafter(torch.tensor(torch.inf)),
        "extremes": torch.tensor([-torch.inf, -(2.0**100), 0.0, 2.0**100, torch.inf]).repeat(8)[:rows],
    }[of]
    reached = (expected >= thresholds[:, None]).nonzero().tolist()
    found = _found_by_tiles(left, right, bias, thresholds)
    assert found == {(i, j): expected[i, j].item() for i, j in reached}
    if of == "ties" and columns:
        assert all(any(found.get((i, j)) == ties[i] for j in range(columns)) for i in range(rows))
