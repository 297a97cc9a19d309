import itertools

import numpy as np
import oracle
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from search_cases import ENGINES, SEARCH_KINDS, all_pairs, place, sq_distances
from torch import Tensor

from genpr.neighbors import resample
from genpr.neighbors.balls import BallKind, CountRequest
from genpr.neighbors.counts import Neighborhood, cross_counts, sq_radii_of
from genpr.neighbors.distance import near_sq_distances
from genpr.neighbors.engine import ENGINE, Engine
from genpr.neighbors.halves import Halves, Hits, counted, neighbors_needed, packed, unpacked
from genpr.neighbors.index import IndexedPoints
from genpr.neighbors.nearest import extended_lists as search_again
from genpr.neighbors.resample import ReplicateCounter, ResampledSet
from genpr.neighbors.search import Pairs

CPU = torch.device("cpu")
COUNT = 4
BALLS = (BallKind(1), BallKind(3), BallKind(5), BallKind(3, clipped=True))


def _requests(owners: int, others: int, rows: str) -> list[CountRequest]:
    counts = (("owners", owners), ("others", others), ("pairs", 1))
    kinds = itertools.product(("real", "fake"), BALLS, counts, ("closed", "strict"))
    return [CountRequest(side, ball, *count, ties, rows) for side, ball, count, ties in kinds]


REQUESTS, OWN = _requests(3, 2, "other"), _requests(4, 3, "own")


def whole_numbers(rng: np.random.Generator, n: int, d: int, spread: int = 6, center: int = 0) -> NDArray:
    return (center + rng.integers(-spread, spread + 1, (n, d))).astype(np.float32)


def resampled(points: IndexedPoints, *, stream: int, listed: int = 64, count: int = COUNT) -> ResampledSet:
    lists = Neighborhood.from_points(points, [BallKind(1)], keep=listed).lists
    halves = Halves.drawn(len(lists.sq), seed=5, stream=stream, count=count, device=lists.sq.device)
    return ResampledSet(points, lists, halves)


def both_sides(
    real, fake, listed: int = 64, count: int = COUNT, *, device: str = "cpu", kind: str = "all coordinates"
) -> list[ResampledSet]:
    sets = place(*(torch.as_tensor(each).to(device) for each in (real, fake)), kind=kind)
    return [resampled(each, stream=stream, listed=listed, count=count) for stream, each in enumerate(sets)]


def replicate_counts(
    real: ResampledSet, fake: ResampledSet, requests, *, engine=ENGINE, advance=lambda _pairs: None
):
    counter = ReplicateCounter(real, fake, requests, engine=engine)
    cross_counts(real.points, fake.points, consumers=[counter], engine=engine, advance=advance)
    return counter.counts()


def members(side: ResampledSet, half: int) -> NDArray:
    return unpacked(side.halves.masks)[:, half].numpy().nonzero()[0]


class HalfTruth:
    """Counts of two halves by the definition."""

    def __init__(self, real: NDArray, fake: NDArray) -> None:
        self._cross = oracle.sq_distances(real, fake)
        self._within = {"real": to_others(real), "fake": to_others(fake)}
        self._sorted = {side: np.sort(sq, axis=1) for side, sq in self._within.items()}

    def counts(self, each: CountRequest) -> list[int]:
        sq = self._cross if each.balls == "real" else self._cross.T
        if each.rows == "own":
            sq = self._within[each.balls]
        kth = self._sorted[each.balls][:, each.ball.k - 1].copy()
        radii = sq_radii_of(each.ball, torch.from_numpy(kth)).numpy()
        inside = oracle.memberships(sq, radii, each.ties)
        if each.count == "pairs":
            return [int(inside.sum())]
        hits = inside.sum(axis=1 if each.count == "owners" else 0)
        return [int((hits > t).sum()) for t in range(each.most)]


def to_others(features: NDArray) -> NDArray:
    """Squared distances to the other rows; infinite to the row itself."""
    sq = oracle.sq_distances(features, features).astype(np.float64)
    np.fill_diagonal(sq, np.inf)
    return sq


def truth_of(real: ResampledSet, fake: ResampledSet, half: int) -> HalfTruth:
    return HalfTruth(*(side.points.features.numpy()[members(side, half)] for side in (real, fake)))


def assert_counts(real: ResampledSet, fake: ResampledSet, found: dict[CountRequest, Tensor]) -> None:
    for half in range(real.halves.count):
        truth = truth_of(real, fake, half)
        for each, counts in found.items():
            assert counts[:, half].tolist() == truth.counts(each), (each, half)


def check(
    real: NDArray,
    fake: NDArray,
    requests=(),
    *,
    kind: str = "all coordinates",
    listed: int = 64,
    engine=ENGINE,
) -> None:
    sides = both_sides(real, fake, listed, kind=kind)
    requests = requests or [*REQUESTS, *OWN]
    assert_counts(*sides, replicate_counts(*sides, requests, engine=engine))


@pytest.mark.parametrize(
    ("kind", "engine"), list(zip(SEARCH_KINDS, itertools.cycle(reversed(ENGINES)), strict=False))
)
def test_counts_of_every_half_equal_those_of_separate_sets(rng, kind, engine):
    check(whole_numbers(rng, 61, 4), whole_numbers(rng, 80, 4, 5), kind=kind, engine=ENGINES[engine])


@pytest.mark.parametrize("listed", [1, 2, 6, 11])
def test_lists_may_be_shorter_than_needed(rng, listed):
    check(whole_numbers(rng, 45, 3), whole_numbers(rng, 52, 3), REQUESTS, listed=listed)
    # Of own rows at the very radius, the lists may end before the last: here no two distances of a row are equal.
    check(whole_numbers(rng, 45, 3, 1000), whole_numbers(rng, 52, 3, 1000), OWN, listed=listed)


@pytest.mark.parametrize(
    ("n", "m", "d", "spread", "centers"),
    [(12, 13, 2, 6, (0, 0)), (13, 40, 2, 6, (0, 0)), (41, 12, 2, 6, (0, 0)), (50, 50, 6, 3, (2000, 2001))],
)
def test_small_and_unequal_sets_and_large_integers(rng, n, m, d, spread, centers):
    check(whole_numbers(rng, n, d, spread, centers[0]), whole_numbers(rng, m, d, spread, centers[1]))


def test_counts_of_collapsed_and_copied_fakes(rng):
    real = whole_numbers(rng, 60, 3)
    check(real, real[rng.integers(0, 60, 50)])
    check(real, np.zeros((30, 3), np.float32) + real[0])
    check(np.zeros((30, 3), np.float32), real)


def test_counts_of_fakes_in_the_center_of_all_balls(rng):
    shell = rng.normal(size=(70, 40))
    real = np.round(50 * shell / np.linalg.norm(shell, axis=1, keepdims=True)).astype(np.float32)
    check(real, whole_numbers(rng, 60, 40, 1))


def test_counts_of_floats_off_center(rng):
    """Float32 distances differ from the definition in the last bits, so only pairs with a clear decision are compared."""
    real, fake = (1000 + rng.normal(size=(2, 80, 7))).astype(np.float32)
    sides = both_sides(real, fake, kind="principal directions and clusters")
    found = replicate_counts(*sides, [*REQUESTS, *OWN])
    off = 0
    for half in range(COUNT):
        truth = truth_of(*sides, half)
        off += sum(int(abs(found[each][:, half].numpy() - truth.counts(each)).sum()) for each in found)
    assert off <= 4


def test_tile_size_and_number_of_threads_change_nothing(rng, monkeypatch):
    sides = both_sides(*rng.normal(size=(2, 60, 5)).astype(np.float32), kind="clusters")
    before = replicate_counts(*sides, [*REQUESTS[::5], *OWN[::5]])
    monkeypatch.setattr(resample, "ROWS", 7)
    monkeypatch.setattr(resample, "_MASSES", 3)
    monkeypatch.setattr(resample, "_LISTED", 211)
    torch.set_num_threads(3)  # the fixture for all tests puts the number back
    for engine in (Engine(7, 64), Engine(40, 9)):
        after = replicate_counts(*sides, [*REQUESTS[::5], *OWN[::5]], engine=engine)
        assert all((before[each] == after[each]).all() for each in before)


@pytest.mark.gpu
@pytest.mark.parametrize(("listed", "count", "budget"), [(64, COUNT, 2**28), (6, 70, 2**18)])
def test_gpu_counts_of_every_half_equal_cpu_counts(rng, gpu, monkeypatch, listed, count, budget):
    if gpu is not None:
        gpu.by_shape = True
    monkeypatch.setattr(resample, "tile_budget", lambda _device: budget)
    sets, requests = (whole_numbers(rng, 41, 4), whole_numbers(rng, 50, 4, 5)), [*REQUESTS[::7], *OWN[::11]]
    found, expected = (
        replicate_counts(*both_sides(*sets, listed, count, device=device), requests)
        for device in ("cuda", "cpu")
    )
    assert all(expected[each].tolist() == found[each].tolist() for each in requests)


@pytest.mark.gpu
def test_gpu_counts_many_portions_in_few_operations(rng, gpu):
    sets = whole_numbers(rng, 300, 4), whole_numbers(rng, 90, 4)
    sides, sq = both_sides(*sets, 290, 100, device="cuda"), sq_distances(*sets).double().flatten()
    pairs = Pairs(*(part.cuda() for part in (*all_pairs(300, 90), sq, sq)))
    if gpu is not None:
        gpu.reset()
    counter = ReplicateCounter(*sides, [REQUESTS[2], REQUESTS[14], REQUESTS[28], REQUESTS[-1]])
    for start in range(0, len(pairs.i), 900):
        counter.consume(pairs.at(slice(start, start + 900)))
    found = counter.counts()
    if gpu is not None:  # of every portion by itself they would be ten times as many
        assert gpu.kernels < 700
        assert gpu.synchronizations.total() < 25
    assert_counts(*both_sides(*sets, 290, 100), found)


@pytest.mark.gpu
def test_distance_on_a_gpu_does_not_depend_on_the_number_of_pairs(rng, gpu):
    if gpu is not None:
        gpu.by_shape = True
    x = torch.from_numpy(rng.normal(5, 0.05, (60, 37)).astype(np.float32)).cuda()
    i, j = (each.cuda() for each in all_pairs(60, 60))
    many = near_sq_distances(x, x, i, j)
    assert torch.equal(many.view(60, 60), many.view(60, 60).T)
    assert torch.equal(near_sq_distances(x, x, i[:9], j[:9]), many[:9])


def test_pairs_decided_by_bounds_need_no_distance(rng, recorded):
    shell = rng.normal(size=(300, 30))
    real = (shell / np.linalg.norm(shell, axis=1, keepdims=True)).astype(np.float32)
    sides = both_sides(real, (1e-3 * rng.normal(size=(300, 30))).astype(np.float32))
    looked_at = recorded(2, "resample.near_sq_distances")
    found = replicate_counts(*sides, [CountRequest("real", BallKind(5), "pairs")])
    assert found[CountRequest("real", BallKind(5), "pairs")].tolist() == [[150 * 150] * COUNT]
    assert sum(looked_at) == 0


class Everything:
    """A consumer of all pairs."""

    def __init__(self, n: int, m: int) -> None:
        self.reaches = torch.full((n,), torch.inf).double(), torch.full((m,), torch.inf).double()
        self.seen = 0

    def consume(self, pairs: Pairs) -> None:
        self.seen += len(pairs.i)


def test_pairs_of_other_consumers_are_not_counted(rng):
    sides = both_sides(*rng.normal(size=(2, 60, 3)).astype(np.float32))
    alone = replicate_counts(*sides, [*REQUESTS[::5], *OWN[::5]])
    counter, other = ReplicateCounter(*sides, [*REQUESTS[::5], *OWN[::5]]), Everything(60, 60)
    cross_counts(*(side.points for side in sides), consumers=[other, counter])
    assert other.seen == 3600
    assert all((counter.counts()[each] == counts).all() for each, counts in alone.items())


@pytest.mark.parametrize("k", [1, 3, 5, 20, 1000])
def test_one_row_in_a_hundred_needs_more_than_is_listed(k):
    def short(listed: int) -> float:
        return 50 * stats.binom.cdf(k - 1, listed, 0.5)  # a row belongs to half of the 100 halves

    assert short(neighbors_needed(k)) <= 0.01 < short(neighbors_needed(k) - 1)


@pytest.mark.parametrize("n", [2, 9, 40])
def test_halves_are_complementary_pairs(n):
    halves = Halves.drawn(n, seed=1, stream=0, count=70, device=CPU)
    inside = unpacked(halves.masks)
    assert not inside[:, 70:].any()
    assert (inside[:, :70].sum(dim=0) == n // 2).all()
    assert not (inside[:, 0:70:2] & inside[:, 1:70:2]).any()
    assert halves.size == n // 2


def test_halves_depend_only_on_seed_stream_and_size():
    def drawn(n: int = 30, seed: int = 0, stream: int = 0) -> list:
        return Halves.drawn(n, seed=seed, stream=stream, count=8, device=CPU).masks.tolist()

    assert drawn() == drawn()
    assert all(drawn() != other for other in (drawn(seed=1), drawn(stream=1), drawn(n=31)[:30]))


def test_halves_are_the_same_in_all_versions():
    member = Halves.drawn(7, seed=3, stream=1, count=4, device=CPU).masks
    assert member[:, 0].tolist() == [6, 9, 9, 6, 10, 0, 5]


def test_every_row_is_equally_often_in_a_half():
    inside = unpacked(Halves.drawn(11, seed=0, stream=0, count=2000, device=CPU).masks)[:, :2000].double()
    assert (inside.mean(dim=1) - 5 / 11).abs().max() < 0.05
    together = (inside[:, ::2] @ inside[:, ::2].T / 1000)[~torch.eye(11, dtype=torch.bool)]
    assert (together - 5 * 4 / (11 * 10)).abs().max() < 0.07


@pytest.mark.parametrize("p", [0, 1, 5, 16, 17, 100, 1000])
def test_bits_are_counted(p, rng):
    bits = torch.from_numpy(rng.integers(-(2**63), 2**63, (p, 2)))
    assert counted(bits).tolist() == unpacked(bits).sum(dim=0).tolist()


@pytest.mark.parametrize("most", [1, 2, 5])
def test_hits_saturate_and_merge(rng, most):
    member = packed(torch.from_numpy(rng.random((6, 64)) < 0.7))
    rows = torch.from_numpy(rng.integers(0, 6, 200))
    bits = packed(torch.from_numpy(rng.random((200, 64)) < 0.1))
    parts = [Hits(member, most) for _ in range(2)]
    for start in range(0, 200, 50):
        some = slice(start, start + 50)
        parts[start // 50 % 2].add(rows[some], bits[some])
    parts[0].merge(parts[1].planes)
    total = torch.zeros(6, 64, dtype=torch.int64).index_add_(0, rows, unpacked(bits).long())
    for t, plane in enumerate(parts[0].planes):
        assert ((unpacked(plane) == (total > t)) | ~unpacked(member)).all()


def test_settled_rows_are_skipped():
    member = torch.tensor([[3], [1]])
    hits = Hits(member, 1)
    hits.add(torch.tensor([0, 1]), torch.tensor([[1], [1]]))
    assert hits.settled.tolist() == [False, True]


@pytest.mark.parametrize("kind", SEARCH_KINDS)
@pytest.mark.parametrize("length", [1, 20, 99, 500])
def test_extended_lists_contain_the_nearest_rows(rng, kind, length):
    features = whole_numbers(rng, 100, 4)
    (points,) = place(features, kind=kind)
    rows = torch.tensor([3, 99, 0, 57])
    with Engine(3, 100).search(CPU) as search:
        lists = search_again(points, rows, length, search)
    others = oracle.sq_distances(features, features)[rows.numpy()]
    assert lists.index.shape == (4, min(length, 99))
    assert lists.sq.tolist() == np.take_along_axis(others, lists.index.numpy(), axis=1).tolist()
    assert lists.sq.tolist() == np.sort(others, axis=1)[:, 1 : lists.index.shape[1] + 1].tolist()
    assert all(
        len({int(row), *index}) == lists.index.shape[1] + 1
        for row, index in zip(rows, lists.index.tolist(), strict=True)
    )


def test_only_lists_that_are_too_short_are_extended(rng, recorded):
    (points,) = place(whole_numbers(rng, 60, 4))
    searched = recorded(1, "resample.extended_lists")
    for listed, least, most in ((59, 0, 0), (11, 1, 59)):
        searched.clear()
        side = resampled(points, stream=0, listed=listed)
        replicate_counts(side, side, [CountRequest("real", BallKind(3), "owners")])
        assert least <= sum(searched) <= most


def test_sets_are_counted_again_for_other_requests(rng):
    sides = both_sides(whole_numbers(rng, 60, 4), whole_numbers(rng, 50, 4), 40)
    for requests in ([REQUESTS[0]], [*REQUESTS, *OWN], [REQUESTS[0]]):
        assert_counts(*sides, replicate_counts(*sides, requests))
