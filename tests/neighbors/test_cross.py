import weakref
from dataclasses import replace

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from search_cases import ENGINES, SEARCH_KINDS, combinations, place, projection_of, sq_radii, truth

from genpr.neighbors import counts as counts_module
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import CrossCounts, Neighborhood, Radii, cross_counts
from genpr.neighbors.engine import CPU, Engine

kinds = pytest.mark.parametrize("kind", SEARCH_KINDS)
precise = pytest.mark.parametrize("kind", [kind for kind in SEARCH_KINDS if kind != "rounded to float16"])
cases = pytest.mark.parametrize("case", feature_cases.names())
TIES = ("closed", "strict")


def _assert_counts(counts: CrossCounts, sq, real_sq_radii, fake_sq_radii, ties: str) -> None:
    for row, radii in enumerate(real_sq_radii):
        inside = oracle.memberships(sq, radii, ties)
        assert counts.real_balls_per_fake[row].tolist() == inside.sum(axis=0).tolist()
        assert counts.fakes_per_real_ball[row].tolist() == inside.sum(axis=1).tolist()
    for row, radii in enumerate(fake_sq_radii):
        inside = oracle.memberships(sq.T, radii, ties)
        assert counts.fake_balls_per_real[row].tolist() == inside.sum(axis=0).tolist()
        assert counts.reals_per_fake_ball[row].tolist() == inside.sum(axis=1).tolist()


def _counts(x, y, of_real, of_fake, sq, ties: str, **options) -> CrossCounts:
    """Counts of a search, after an assertion that they match squared distances."""
    real_radii, fake_radii = (Radii(known, known) for known in map(torch.from_numpy, (of_real, of_fake)))
    counts = cross_counts(x, y, real_radii=real_radii, fake_radii=fake_radii, ties=ties, **options)
    _assert_counts(counts, sq, of_real, of_fake, ties)
    return counts


def _check(case: str, kind: str, engine) -> None:
    expected = truth(case)
    x, y = place(expected.real, expected.fake, kind=kind)
    of_real, of_fake = expected.real_sq_radii([1, 3, 5]), expected.fake_sq_radii([2, 3])
    for ties in TIES:
        counts = _counts(x, y, of_real, of_fake, expected.sq, ties, smallest_of=1, engine=engine)
        assert counts.real_balls_per_fake.dtype == torch.int64
        inside = oracle.memberships(expected.sq, of_real[1], ties)
        smallest = np.where(inside, of_real[1][:, None], np.inf).min(axis=0)
        assert counts.smallest_real_ball.tolist() == smallest.tolist()


@pytest.mark.parametrize(("case", "kind", "engine"), combinations(1))
def test_every_count_equals_the_oracle(case, kind, engine):
    _check(case, kind, ENGINES[engine])


@pytest.mark.parametrize("case", ["off_center", "near_duplicates", "fakes_copy_reals"])
def test_number_of_threads_changes_nothing(case):
    torch.set_num_threads(3)  # the fixture for all tests puts the number back
    _check(case, "principal directions and clusters", Engine(40, 64))
    assert torch.get_num_threads() == 3


@cases
def test_points_on_a_sphere_are_only_in_closed_balls(case, rng):
    kind = SEARCH_KINDS[feature_cases.names().index(case) % len(SEARCH_KINDS)]
    expected = truth(case)
    x, y = place(expected.real, expected.fake, kind=kind)
    n, m = expected.sq.shape
    on = rng.integers(0, m, n), rng.integers(0, n, m)
    of_real, of_fake = expected.sq[np.arange(n), on[0]][None], expected.sq[on[1], np.arange(m)][None]
    for ties in TIES:
        _counts(x, y, of_real, of_fake, expected.sq, ties)


@pytest.mark.parametrize(("case", "kind", "engine"), combinations(2))
def test_radii_are_verified_only_where_they_decide(case, kind, engine, rng):
    expected, balls = truth(case), [BallKind(1), BallKind(3)]
    x, y = place(expected.real, expected.fake, kind=kind)
    exact = [of([1, 3]) for of in (expected.real_sq_radii, expected.fake_sq_radii)]
    for ties in TIES:
        sides = [
            Neighborhood.from_points(
                points, balls, ties=ties, keep=4, counts_degrees=False, engine=ENGINES[engine]
            )
            for points in (x, y)
        ]
        radii = [side.radii for side in sides]
        counts = cross_counts(
            x, y, real_radii=radii[0], fake_radii=radii[1], ties=ties, engine=ENGINES[engine]
        )
        _assert_counts(counts, expected.sq, *exact, ties)
        for side, of_side in zip(sides, exact, strict=True):
            assert side.in_degrees is None
            assert (side.radii.lower.numpy() <= of_side).all()
            assert (of_side <= side.radii.upper.numpy()).all()
            rows = torch.from_numpy(rng.integers(0, of_side.shape[1], 9))
            assert side.radii.exact_at(rows).tolist() == of_side[:, rows].tolist()
            assert side.radii.of_balls([1]).exact_at(rows).tolist() == of_side[1:, rows].tolist()
            assert side.sq_radii.tolist() == of_side.tolist()


def test_few_radii_are_verified(rng, verified):
    x, y = place(*rng.normal(size=(2, 600, 256)).astype(np.float32))
    sides = [Neighborhood.from_points(points, [BallKind(5)], counts_degrees=False) for points in (x, y)]
    assert not verified
    cross_counts(x, y, real_radii=sides[0].radii, fake_radii=sides[1].radii)
    assert sum(verified) < 600 / 4


@kinds
def test_without_radii_there_are_no_counts(kind, rng):
    x, y = place(*rng.normal(size=(2, 30, 4)).astype(np.float32), kind=kind)
    counts = cross_counts(x, y)
    assert counts.real_balls_per_fake.shape == (0, 30)
    of_fake = sq_radii(y, [2])
    counts = cross_counts(x, y, fake_radii=Radii(of_fake, of_fake))
    assert counts.fakes_per_real_ball.shape == (0, 30)
    assert counts.fake_balls_per_real.shape == (1, 30)


@kinds
@pytest.mark.parametrize("ties", TIES)
def test_radii_may_have_any_size(kind, ties, rng):
    real, fake = rng.normal(size=(60, 5)).astype(np.float32), rng.normal(size=(50, 5)).astype(np.float32)
    fake[:10] = real[:10]
    of_real = (rng.choice([0, 1e-300, 1e-6, 1, 1e6, np.inf], (2, 60))).astype(np.float64)
    of_fake = (rng.choice([0, 1e-300, 1e-6, 1, 1e6, np.inf], (1, 50))).astype(np.float64)
    x, y = place(real, fake, kind=kind)
    for engine in (Engine(7, 9), Engine()):
        _counts(x, y, of_real, of_fake, oracle.sq_distances(real, fake), ties, engine=engine)


@kinds
def test_float16_features_equal_their_float32_values(kind, rng):
    real, fake = torch.from_numpy(rng.normal(5, 0.1, (2, 90, 40))).half()
    projection = projection_of(real.float(), kind)
    x, y = projection.place(real), projection.place(fake)
    of_real = torch.from_numpy(oracle.kth_sq_distances(real.float().numpy(), [3]))
    counts = cross_counts(x, y, real_radii=Radii(of_real, of_real))
    sq = oracle.sq_distances(real.float().numpy(), fake.float().numpy())
    _assert_counts(counts, sq, of_real.numpy(), [], "closed")


def _no_bounds(x, y, i, j):
    return torch.zeros(len(i)).double(), torch.full((len(i),), torch.inf).double()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bounds._PAIRS_PER_PRODUCT", 0),
        ("counts.tight_bounds_of_pairs", _no_bounds),
        ("engine.CPU", replace(CPU, min_pairs=50)),
    ],
)
@pytest.mark.parametrize(
    "case", ["tight_clumps", "fakes_copy_reals", "scales_no_float32_square_can_hold", "off_center"]
)
def test_shortcuts_change_nothing(name, value, case, monkeypatch):
    monkeypatch.setattr(f"genpr.neighbors.{name}", value)
    for kind in ("all coordinates", "principal directions and clusters"):
        _check(case, kind, Engine(64, 50))


@pytest.mark.parametrize("engine", ["default", "sweep in tiles of 64 x 7"])
def test_few_pairs_are_verified(engine, rng, verified):
    x, y = place(*rng.normal(5, 0.05, (2, 600, 200)).astype(np.float32))
    radii = [Radii(known, known) for known in (sq_radii(points, [5]) for points in (x, y))]
    verified.clear()
    cross_counts(x, y, real_radii=radii[0], fake_radii=radii[1], engine=ENGINES[engine])
    assert sum(verified) < 0.05 * 600


@precise
def test_many_copies_are_counted_without_verification(kind, rng, verified):
    features = np.full((600, 16), 2.5, dtype=np.float32)
    features[::3] += rng.normal(20, 1, size=(200, 16)).astype(np.float32)
    x, y = place(features, features, kind=kind)
    sq_radii = torch.from_numpy(oracle.kth_sq_distances(features, [5]))
    radii = Radii(sq_radii, sq_radii)
    verified.clear()
    counts = cross_counts(x, y, real_radii=radii, fake_radii=radii)
    assert (counts.real_balls_per_fake[0].reshape(-1, 3)[:, 1:] == 400).all()
    assert torch.equal(counts.real_balls_per_fake, counts.fake_balls_per_real)
    # Of 400 x 400 pairs of copies; rows with k copies have no sphere to lie on.
    assert sum(verified) < 3 * 600 * 2


def test_dense_memberships_are_processed_in_portions(rng, set_sizes, monkeypatch):
    sizes, found, alive = [], [], []
    inside = counts_module._inside

    def spy(x, y, pairs, *rest):
        sizes.append(len(pairs.i))
        found.append(weakref.ref(pairs.i))
        alive.append(sum(one() is not None for one in found))
        return inside(x, y, pairs, *rest)

    monkeypatch.setattr(counts_module, "_inside", spy)
    set_sizes(max_pairs=10_000)
    real, fake = rng.normal(size=(128, 8)).astype(np.float32), np.zeros((4000, 8), dtype=np.float32)
    x, y = place(real, fake)
    everything = torch.full((3, 128), 1e9, dtype=torch.float64)
    counts = cross_counts(x, y, real_radii=Radii(everything, everything), engine=Engine(128, 128))
    assert (counts.real_balls_per_fake == 128).all()
    assert (counts.fakes_per_real_ball == 4000).all()
    assert sum(sizes) == 128 * 4000
    assert max(sizes) <= 10_000
    assert max(alive) <= 2  # what was counted is forgotten
