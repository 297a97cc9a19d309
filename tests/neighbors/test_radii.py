from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import brute
import feature_cases
import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from placements import (
    ENGINES,
    SEARCH_KINDS,
    combinations,
    frame_of,
    is_beyond,
    place,
    sq_distances,
    truth,
    with_cells,
)

from genpr.neighbors import index as index_module
from genpr.neighbors import nearest, search
from genpr.neighbors.engine import Engine, FaissEngine
from genpr.neighbors.index import Placed
from genpr.neighbors.nearest import kth_sq_distances, nearest_neighbors

engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
cases = pytest.mark.parametrize("case", feature_cases.names())
kinds = pytest.mark.parametrize("kind", SEARCH_KINDS)


@pytest.fixture
def verified(monkeypatch) -> list[int]:
    """How many pairs the definition was asked for, call by call."""
    counts: list[int] = []
    for module in (nearest, search):
        at = module.sq_distances_at
        monkeypatch.setattr(
            module, "sq_distances_at", lambda *args, at=at: (counts.append(len(args[2])), at(*args))[1]
        )
    return counts


def _assert_nearest(features: np.ndarray, points: Placed, k: int, engine=None) -> None:
    index, sq = nearest_neighbors(points, k, engine=engine)
    assert sq.tolist() == oracle.kth_sq_distances(features, list(range(1, k + 1))).T.tolist()
    assert sq_distances(features, features).gather(1, index).tolist() == sq.tolist()
    assert all(len({i, *row}) == k + 1 for i, row in enumerate(index.tolist()))


@pytest.mark.parametrize(("case", "kind", "engine"), combinations(0))
def test_every_bit_is_the_oracles(case, kind, engine):
    expected = truth(case)
    x, y = place(
        expected.real, expected.fake, kind=kind
    )  # the fakes where the reals' frame may serve them badly
    ks_real, ks_fake = [1, 3, 5], [2, 3]
    found = kth_sq_distances(x, ks_real, engine=ENGINES[engine])
    assert found.dtype == torch.float64
    assert found.tolist() == expected.real_sq_radii(ks_real).tolist()
    found = kth_sq_distances(y, ks_fake, engine=ENGINES[engine])
    assert found.tolist() == expected.fake_sq_radii(ks_fake).tolist()


@cases
@pytest.mark.parametrize("kind", ["all coordinates", "principal directions and cells"])
def test_nearest_neighbors_are_the_oracles(case, kind):
    engine = list(ENGINES.values())[feature_cases.names().index(case) % len(ENGINES)]
    expected, k = truth(case), 4
    (x,) = place(expected.real, kind=kind)
    index, sq = nearest_neighbors(x, k, engine=engine)
    assert index.dtype == torch.int64
    assert sq.T.tolist() == expected.real_sq_radii([1, 2, 3, 4]).tolist()
    rows = torch.arange(len(x))[:, None].expand(-1, k)
    assert brute_sq_distances(x.features, rows, index).tolist() == sq.tolist()
    assert all(len({i, *row}) == k + 1 for i, row in enumerate(index.tolist()))


def brute_sq_distances(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return brute.sq_distances(x[i.flatten()], x[j.flatten()]).view(i.shape)


@pytest.mark.parametrize("case", ["off_center", "near_duplicates", "duplicates"])
@pytest.mark.parametrize("masses", [30, 10**9])
def test_threads_change_nothing(case, masses, monkeypatch):
    monkeypatch.setattr(nearest, "_MASSES", masses)
    torch.set_num_threads(3)  # the fixture for all tests puts the number back
    expected = truth(case)
    (x,) = place(expected.real, kind="principal directions and cells")
    found = kth_sq_distances(x, [2, 5], engine=Engine(40, 64))
    assert found.tolist() == expected.real_sq_radii([2, 5]).tolist()
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("engine", [FaissEngine(), Engine(16, 9)], ids=["faiss", "tiles"])
@kinds
def test_ks_in_any_order_up_to_all_others(engine, kind, rng):
    features = rng.integers(0, 4, (40, 3)).astype(np.float32)
    (x,) = place(features, kind=kind)
    expected = oracle.kth_sq_distances(features, list(range(1, 40)))
    for ks in ([1], [5, 3, 5], [20], [39, 1]):
        assert kth_sq_distances(x, ks, engine=engine).tolist() == expected[[k - 1 for k in ks]].tolist()


@kinds
@pytest.mark.parametrize(("n", "copies"), [(2, 1), (7, 1), (2, 3)])
def test_few_rows_and_as_many_neighbors_as_there_are(kind, n, copies, rng):
    features = rng.normal(size=(n, 4)).astype(np.float32).repeat(copies, axis=0)
    for engine in (Engine(2, 3), Engine()):
        (x,) = place(features, kind=kind)
        for k in (1, len(features) - 1):
            expected = oracle.kth_sq_distances(features, [k])
            assert kth_sq_distances(x, [k], engine=engine).tolist() == expected.tolist()
            _assert_nearest(features, x, k, engine)


@kinds
def test_halves_are_measured_as_the_floats_they_stand_for(kind, rng):
    halves = torch.from_numpy(rng.normal(5, 0.1, (150, 40))).half()
    points = frame_of(halves.float(), kind).place(halves)
    expected = oracle.kth_sq_distances(halves.float().numpy(), [1, 4])
    assert kth_sq_distances(points, [1, 4]).tolist() == expected.tolist()


@pytest.mark.parametrize("case", ["off_center", "huge_values", "scales_no_float32_square_can_hold"])
def test_coordinates_that_are_not_kept_change_nothing(case, monkeypatch):
    monkeypatch.setattr(index_module, "_KEPT_BYTES", 0)
    expected = truth(case)
    (x,) = place(expected.real)
    assert x.view.augmented is None
    assert kth_sq_distances(x, [3]).tolist() == expected.real_sq_radii([3]).tolist()


@kinds
def test_rows_at_the_edge_of_what_a_frame_holds(kind, rng):
    usual = torch.from_numpy(rng.normal(size=(110, 6))).float()
    frame = frame_of(usual, kind)
    far = 2.0**60 / frame.scale / np.sqrt(6) * (1 + 0.02 * torch.from_numpy(rng.normal(size=(40, 6)))).float()
    if "cells" in kind:
        inside = with_cells(frame, far, 8).centers
        frame = replace(frame, centers=torch.cat([frame.centers, inside[inside.norm(dim=1) > 0]]))
    features = torch.cat([far, usual])
    points = frame.place(features)
    assert 5 < is_beyond(points.view).sum() <= 35
    expected = oracle.kth_sq_distances(features.numpy(), [1, 5])
    assert kth_sq_distances(points, [1, 5]).tolist() == expected.tolist()


@pytest.mark.parametrize("without", ["bounds by product", "margin", "spread", "portions"])
@pytest.mark.parametrize("case", ["near_duplicates", "scales_no_float32_square_can_hold"])
def test_shortcuts_change_nothing(without, case, monkeypatch):
    if without == "bounds by product":
        monkeypatch.setattr(search, "bounds_by_product", lambda *_: None)
    elif without == "margin":
        monkeypatch.setattr(nearest, "_MARGIN", 1)
    elif without == "spread":
        monkeypatch.setattr(nearest, "_SPREAD_ROWS", 1)
    else:
        monkeypatch.setattr(search, "_HELD_PORTION", 100)
        monkeypatch.setattr(nearest, "_MASSES", 30)
        monkeypatch.setattr(nearest, "_VERIFIED", 7)
    for kind in ("all coordinates", "principal directions and cells"):
        test_every_bit_is_the_oracles(case, kind, "tiles of 7 x 64")


@pytest.mark.parametrize("engine", ["faiss", "torch", "tiles of 64 x 7"])
def test_few_pairs_are_verified(engine, rng, verified):
    (x,) = place(rng.normal(5, 0.05, (600, 200)).astype(np.float32))
    kth_sq_distances(x, [5], engine=ENGINES[engine])
    assert sum(verified) < 1.3 * 600


@kinds
def test_directions_and_cells_leave_no_more_to_verify(kind, rng, verified):
    features = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 60)) + 0.01 * rng.normal(size=(500, 60))
    (x,) = place(features.astype(np.float32), kind=kind)
    kth_sq_distances(x, [5])
    assert sum(verified) < 1.3 * 500


@kinds
def test_masses_of_copies_are_settled_without_verification(kind, rng, verified):
    features = np.full((900, 16), 2.5, dtype=np.float32)
    features[::3] += rng.normal(20, 1, size=(300, 16)).astype(np.float32)
    (x,) = place(features, kind=kind)
    found = kth_sq_distances(x, [5])
    assert sum(verified) < 3 * 900  # of 600 x 600 pairs of copies
    assert (found[0] == 0).tolist() == [i % 3 != 0 for i in range(900)]


@engines
@kinds
def test_k_copies_settle_a_row(engine, kind, rng, verified):
    (x,) = place(rng.normal(size=(6, 50)).astype(np.float32).repeat(20, axis=0), kind=kind)
    assert not kth_sq_distances(x, [5], engine=engine).any()
    index, sq = nearest_neighbors(x, 5, engine=engine)
    assert not sq.any()
    assert (x.features[index] == x.features[:, None]).all()
    assert sum(verified) < 3 * 120 * 7 or engine.direct_elements


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_integer_grids_agree_with_exact_fractions(data):
    d = data.draw(st.integers(1, 4), label="d")
    scale = Fraction(1, 2 ** data.draw(st.integers(0, 3), label="scale"))
    rows = data.draw(st.lists(st.tuples(*[st.integers(-3, 3)] * d), min_size=4, max_size=14), label="rows")
    k = data.draw(st.integers(1, len(rows) - 1), label="k")
    engine = data.draw(st.sampled_from([*ENGINES.values(), Engine(3, 2)]), label="engine")
    kind = data.draw(st.sampled_from(SEARCH_KINDS), label="kind")

    def sq_radius(i):
        others = [row for j, row in enumerate(rows) if j != i]
        sq = [sum(((p - q) * scale) ** 2 for p, q in zip(rows[i], row, strict=True)) for row in others]
        return sorted(sq)[k - 1]

    (x,) = place(np.array(rows, dtype=np.float32) * np.float32(scale), kind=kind)
    found = kth_sq_distances(x, [k], engine=engine)[0]
    assert [Fraction(sq) for sq in found.tolist()] == [sq_radius(i) for i in range(len(rows))]
