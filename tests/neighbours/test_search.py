from __future__ import annotations

from fractions import Fraction

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genpr.neighbours import brute, choose, search, torch_tiles
from genpr.neighbours.bounds import Frame
from genpr.neighbours.faiss_cpu import FaissCpu
from genpr.neighbours.search import cross_counts, kth_sq_distances
from genpr.neighbours.torch_tiles import TorchTiles

ENGINES = {
    "faiss": FaissCpu(TorchTiles(64, 50)),
    "tiles": TorchTiles(),
    "tiles 7 x 64": TorchTiles(7, 64),
    "tiles 64 x 7": TorchTiles(64, 7),
    "one tile": TorchTiles(10**6, 10**6),
}
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
cases = pytest.mark.parametrize("case", feature_cases.names())


def _place(*sets):
    tensors = [torch.from_numpy(features) for features in sets]
    frame = Frame.fit(tensors[0])
    return [frame.place(features) for features in tensors]


def _assert_same_memberships(counts, real, fake, ks_real, ks_fake, ties):
    sq = oracle.sq_distances(real, fake)
    for row, radii in enumerate(oracle.kth_sq_distances(real, ks_real)):
        inside = oracle.memberships(sq, radii, ties)
        assert counts.real_balls_per_fake[row].tolist() == inside.sum(axis=0).tolist()
        assert counts.fakes_per_real_ball[row].tolist() == inside.sum(axis=1).tolist()
    for row, radii in enumerate(oracle.kth_sq_distances(fake, ks_fake)):
        inside = oracle.memberships(sq.T, radii, ties)
        assert counts.fake_balls_per_real[row].tolist() == inside.sum(axis=0).tolist()
        assert counts.reals_per_fake_ball[row].tolist() == inside.sum(axis=1).tolist()


@cases
@engines
def test_every_bit_and_every_count_is_the_oracles(case, engine):
    real, fake = feature_cases.make(case)
    x, y = _place(real, fake)
    ks_real, ks_fake = [1, 3, 5], [2, 3]
    (own_y,) = _place(fake)
    real_sq_radii = kth_sq_distances(x, ks_real, engine=engine)
    fake_sq_radii = kth_sq_distances(own_y, ks_fake, engine=engine)
    assert real_sq_radii.tolist() == oracle.kth_sq_distances(real, ks_real).tolist()
    assert fake_sq_radii.tolist() == oracle.kth_sq_distances(fake, ks_fake).tolist()
    for ties in ("closed", "strict"):
        counts = cross_counts(
            x, y, real_sq_radii=real_sq_radii, fake_sq_radii=fake_sq_radii, ties=ties, engine=engine
        )
        _assert_same_memberships(counts, real, fake, ks_real, ks_fake, ties)


@cases
@engines
def test_a_frame_of_other_data_changes_nothing(case, engine):
    real, fake = feature_cases.make(case)
    ks = [1, 4]
    _, y = _place(real, fake)  # the fakes, where the reals' frame may serve them badly
    assert kth_sq_distances(y, ks, engine=engine).tolist() == oracle.kth_sq_distances(fake, ks).tolist()


@cases
def test_the_plain_definition_is_the_oracles(case):
    real, fake = feature_cases.make(case)
    sq_radii = brute.kth_sq_distances(torch.from_numpy(real), [1, 5])
    assert sq_radii.tolist() == oracle.kth_sq_distances(real, [1, 5]).tolist()
    for ties in ("closed", "strict"):
        inside = brute.inside(
            torch.from_numpy(real), sq_radii[1], torch.from_numpy(fake), closed=ties == "closed"
        )
        expected = oracle.memberships(oracle.sq_distances(real, fake), sq_radii[1].numpy(), ties)
        assert inside.tolist() == expected.T.tolist()


@engines
@pytest.mark.parametrize("ks", [[1], [5, 3, 5], [20], [59]])
def test_ks_in_any_order_up_to_all_others(engine, ks, rng):
    features = rng.integers(0, 4, (60, 3)).astype(np.float32)
    (x,) = _place(features)
    assert kth_sq_distances(x, ks, engine=engine).tolist() == oracle.kth_sq_distances(features, ks).tolist()


@engines
def test_no_ks_and_no_radii_give_nothing(engine, rng):
    x, y = _place(*rng.normal(size=(2, 30, 4)).astype(np.float32))
    assert kth_sq_distances(x, [], engine=engine).shape == (0, 30)
    counts = cross_counts(x, y, engine=engine)
    assert counts.real_balls_per_fake.shape == (0, 30)
    counts = cross_counts(x, y, fake_sq_radii=kth_sq_distances(y, [2]), engine=engine)
    assert counts.fakes_per_real_ball.shape == (0, 30)
    assert counts.fake_balls_per_real.shape == (1, 30)


@engines
def test_uncertified_rows_are_searched_in_full(engine, rng, monkeypatch):
    # Clumps far apart: distances inside a clump drown in the rounding of float32 coordinates.
    clumps = rng.normal(size=(4, 64))[rng.integers(0, 4, 200)]
    features = (clumps + 1e-5 * rng.normal(size=(200, 64))).astype(np.float32)
    (x,) = _place(features)
    searched = []
    kth_within = search._kth_within

    def spy(points, rows, *rest):
        searched.extend(rows.tolist())
        return kth_within(points, rows, *rest)

    monkeypatch.setattr(search, "_kth_within", spy)
    monkeypatch.setattr(search, "_UNCERTIFIED_ROWS", 23)
    assert kth_sq_distances(x, [3], engine=engine).tolist() == oracle.kth_sq_distances(features, [3]).tolist()
    assert len(searched) > 150
    assert len(searched) == len(set(searched))


@pytest.mark.parametrize("without", ["tight_bounds", "margin"])
def test_shortcuts_change_nothing(without, monkeypatch):
    if without == "tight_bounds":
        monkeypatch.setattr(search, "tight_bounds", lambda *_: None)
        monkeypatch.setattr(search, "_TIGHTER", (search._exact_bounds,))
    else:
        monkeypatch.setattr(search, "_MARGIN", 0)
    for case in ("tight_clumps", "near_duplicates", "scales_no_float32_square_can_hold"):
        test_every_bit_and_every_count_is_the_oracles(case, ENGINES["tiles 64 x 7"])


def test_few_pairs_are_verified(rng, monkeypatch):
    verified = []
    at = search.sq_distances_at

    def spy(x, y, i, j):
        verified.append(len(i))
        return at(x, y, i, j)

    monkeypatch.setattr(search, "sq_distances_at", spy)
    x, y = _place(*rng.normal(5, 0.05, (2, 1500, 256)).astype(np.float32))
    radii = [kth_sq_distances(points, [5]) for points in (x, y)]
    assert sum(verified) < 1.2 * 2 * 1500
    verified.clear()
    cross_counts(x, y, real_sq_radii=radii[0], fake_sq_radii=radii[1])
    assert sum(verified) < 0.05 * 1500


def test_masses_of_duplicates_are_settled_without_verification(rng, monkeypatch):
    features = np.full((900, 16), 2.5, dtype=np.float32)
    features[::3] += rng.normal(20, 1, size=(300, 16)).astype(np.float32)
    x, y = _place(features, features)
    verified = []
    at = search.sq_distances_at
    monkeypatch.setattr(search, "sq_distances_at", lambda *a: (verified.append(len(a[2])), at(*a))[1])
    sq_radii = kth_sq_distances(x, [5])
    cross_counts(x, y, real_sq_radii=sq_radii, fake_sq_radii=sq_radii)
    assert sum(verified) < 3 * 900  # of 600 x 600 pairs of copies


@engines
def test_k_copies_settle_a_row(engine, rng, monkeypatch):
    monkeypatch.setattr(search, "_kth_within", lambda *_: pytest.fail("searched in full"))
    (x,) = _place(rng.normal(size=(6, 50)).astype(np.float32).repeat(20, axis=0))
    assert not kth_sq_distances(x, [5], engine=engine).any()


def test_dense_memberships_come_in_portions(rng):
    x, y = _place(rng.normal(size=(1200, 8)).astype(np.float32), np.zeros((1100, 8), dtype=np.float32))
    sizes = [len(pairs) for pairs in TorchTiles().close_pairs(x, y, torch.full((1200,), 1e9), None)]
    assert sum(sizes) == 1200 * 1100
    assert max(sizes) <= torch_tiles._MAX_PAIRS
    counts = cross_counts(x, y, real_sq_radii=torch.full((1, 1200), 1e9, dtype=torch.float64))
    assert (counts.real_balls_per_fake == 1200).all()
    assert (counts.fakes_per_real_ball == 1100).all()


def test_tiles_follow_the_memory_budget(rng, monkeypatch):
    (x,) = _place(rng.normal(size=(100, 4)).astype(np.float32))
    expected = kth_sq_distances(x, [3], engine=TorchTiles())
    monkeypatch.setattr(torch_tiles, "memory_budget", lambda device: torch_tiles._BYTES_PER_PAIR * 9**2)
    rows, columns = TorchTiles()._tiles(x, x)
    assert rows[0] == columns[0] == slice(0, 9)
    assert torch.equal(kth_sq_distances(x, [3], engine=TorchTiles()), expected)


def test_faiss_is_taken_on_cpus_and_tiles_where_it_is_missing(monkeypatch):
    assert isinstance(choose.choose_engine(torch.device("cpu")), FaissCpu)
    assert isinstance(choose.choose_engine(torch.device("cuda")), TorchTiles)
    monkeypatch.setattr(choose, "find_spec", lambda name: None)
    assert isinstance(choose.choose_engine(torch.device("cpu")), TorchTiles)


@engines
def test_users_fast_math_is_off_inside_and_on_again_afterwards(engine, rng):
    x, y = _place(*rng.normal(5, 0.05, (2, 100, 64)).astype(np.float32))
    plain_radii = kth_sq_distances(x, [3], engine=engine)
    plain = cross_counts(x, y, real_sq_radii=plain_radii, engine=engine)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(kth_sq_distances(x, [3], engine=engine), plain_radii)
            counts = cross_counts(x, y, real_sq_radii=plain_radii, engine=engine)
            assert torch.is_autocast_enabled("cpu")
        assert torch.equal(counts.real_balls_per_fake, plain.real_balls_per_fake)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def _matmul_precision(backends):
    if hasattr(backends.cudnn, "conv"):  # torch >= 2.9
        return backends.cuda.matmul.fp32_precision
    return "tf32" if backends.cuda.matmul.allow_tf32 else "ieee"


class _Asks:
    """An engine that looks at the state of torch when it is asked."""

    def __init__(self):
        self.tiles = TorchTiles()
        self.seen = []

    def nearest(self, points, count):
        self._look()
        return self.tiles.nearest(points, count)

    def close_pairs(self, rows, columns, row_sq_reach, column_sq_reach):
        self._look()
        return self.tiles.close_pairs(rows, columns, row_sq_reach, column_sq_reach)

    def _look(self):
        self.seen.append(
            (torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), _matmul_precision(torch.backends))
        )


def test_engines_run_in_plain_float32(rng):
    x, y = _place(*rng.normal(size=(2, 30, 4)).astype(np.float32))
    asks = _Asks()
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            radii = kth_sq_distances(x, [3], engine=asks)
            cross_counts(x, y, real_sq_radii=radii, engine=asks)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert asks.seen == [(False, False, "ieee")] * 2


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_integer_grids_agree_with_exact_fractions(data):
    d = data.draw(st.integers(1, 4), label="d")
    scale = Fraction(1, 2 ** data.draw(st.integers(0, 3), label="scale"))
    rows = st.lists(st.tuples(*[st.integers(-3, 3)] * d), min_size=4, max_size=14)
    real, fake = data.draw(rows, label="real"), data.draw(rows, label="fake")
    k = data.draw(st.integers(1, min(len(real), len(fake)) - 1), label="k")
    ties = data.draw(st.sampled_from(["closed", "strict"]), label="ties")
    engine = data.draw(st.sampled_from([FaissCpu(), TorchTiles(), TorchTiles(3, 2)]), label="engine")

    def sq(a, b):
        return sum(((p - q) * scale) ** 2 for p, q in zip(a, b, strict=True))

    def sq_radius(points, i):
        return sorted(sq(points[i], points[j]) for j in range(len(points)) if j != i)[k - 1]

    x, y = _place(*(np.array(points, dtype=np.float32) * np.float32(scale) for points in (real, fake)))
    sq_radii = kth_sq_distances(x, [k], engine=engine)
    assert [Fraction(r) for r in sq_radii[0].tolist()] == [sq_radius(real, i) for i in range(len(real))]
    counts = cross_counts(x, y, real_sq_radii=sq_radii, ties=ties, engine=engine)
    expected = [
        sum(
            sq(query, real[i]) <= sq_radius(real, i)
            if ties == "closed"
            else sq(query, real[i]) < sq_radius(real, i)
            for i in range(len(real))
        )
        for query in fake
    ]
    assert counts.real_balls_per_fake[0].tolist() == expected
