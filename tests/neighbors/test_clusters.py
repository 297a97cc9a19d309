import feature_cases
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_cases import KINDS, projection_of, sq_distances, with_clusters
from torch import Tensor

from genpr.neighbors import index
from genpr.neighbors.index import Clusters, Projection
from genpr.neighbors.search import row_blocks


def _clustered(coordinates: Tensor, centers: Tensor, loose: list[int] = ()) -> Clusters:
    slack = torch.zeros(len(coordinates), dtype=torch.float64)
    slack[list(loose)] = torch.inf
    return Clusters.from_coordinates(coordinates.float(), slack, centers.double())


def _column(*values: float) -> Tensor:
    return torch.tensor(values)[:, None]


def _blocks(clusters: Clusters, rng: np.random.Generator) -> list[Tensor]:
    """Blocks of all members of each cluster, of some, and of one."""
    blocks = []
    for label in clusters.label.unique():
        members = torch.from_numpy(rng.permutation((clusters.label == label).nonzero()[:, 0].numpy()))
        blocks += [members, members[: len(members) // 2 + 1], members[:1]]
    return blocks


def _assert_nothing_in_reach_is_missed(
    x: Tensor, y: Tensor, clusters_x: Clusters, clusters_y: Clusters, rng
) -> None:
    """Rows of y whose nearest row of a block of x is exactly within reach."""
    distances = torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist")
    for block in _blocks(clusters_x, rng):
        reach = distances[block].amin(dim=0)
        assert clusters_y.within_reach(reach, clusters_x, block).all()


@st.composite
def _clusters(draw):
    """Two sets around the same few centers, which are far from each other or from the origin, or coincide."""
    seed, width = draw(st.integers(0, 2**32)), draw(st.integers(1, 4))
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(draw(st.integers(1, 5)), width)) * 10.0 ** draw(st.integers(-3, 3))
    places += 10.0 ** draw(st.integers(-3, 4))
    spread = 10.0 ** draw(st.integers(-6, 1))
    sets = [
        torch.from_numpy(places[rng.integers(0, len(places), n)] + spread * rng.normal(size=(n, width)))
        for n in (draw(st.integers(1, 40)), draw(st.integers(1, 40)))
    ]
    centers = sets[0][torch.from_numpy(rng.integers(0, len(sets[0]), draw(st.integers(1, 8))))]
    if draw(st.booleans()):
        sets[0][0] = 1e6
    if draw(st.booleans()):
        centers = centers + spread * torch.from_numpy(rng.normal(size=centers.shape))
    loose = [
        [row for row in range(len(x)) if draw(st.booleans())] if draw(st.booleans()) else [] for x in sets
    ]
    return [x.float() for x in sets], centers, loose, rng


@settings(max_examples=150, deadline=None)
@given(_clusters())
def test_no_row_within_reach_of_a_block_is_missed(drawn):
    (x, y), centers, loose, rng = drawn
    clusters_x, clusters_y = _clustered(x, centers, loose[0]), _clustered(y, centers, loose[1])
    _assert_nothing_in_reach_is_missed(x, y, clusters_x, clusters_y, rng)
    _assert_nothing_in_reach_is_missed(x, x, clusters_x, clusters_x, rng)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), offset=st.integers(0, 6))
def test_rounding_on_a_line_with_tight_bounds_misses_nothing(seed, offset):
    rng = np.random.default_rng(seed)
    x, y = (torch.from_numpy(10.0**offset + rng.normal(size=(40, 1))).float() for _ in range(2))
    centers = torch.from_numpy(10.0**offset + rng.normal(size=(4, 1)))
    _assert_nothing_in_reach_is_missed(x, y, _clustered(x, centers), _clustered(y, centers), rng)


@pytest.mark.parametrize("case", feature_cases.names())
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "clusters" in kind])
def test_no_row_with_features_within_reach_is_missed(case, kind):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    projection = projection_of(real, kind)
    x, y = projection.place(real), projection.place(fake)
    distances = sq_distances(real, fake).sqrt() * projection.scale
    for block in row_blocks(x, torch.zeros(len(x.features)).double(), 64):
        assert y.clusters.within_reach(distances[block].amin(dim=0), x.clusters, block).all()


def test_most_distant_rows_are_left_out(rng):
    places = rng.normal(size=(20, 8)) * 10
    member_of = rng.integers(0, 20, 1000)
    x = torch.from_numpy(places[member_of] + rng.normal(size=(1000, 8)) / 4).float()
    clusters = _clustered(x, torch.from_numpy(places))
    assert clusters.label.tolist() == member_of.tolist()
    for block in _blocks(clusters, rng):
        within = clusters.within_reach(torch.full((1000,), 1.5).double(), clusters, block)
        assert within[block].all()
        assert (within & (clusters.label != clusters.label[block[0]])).sum() < 20


def test_planes_exclude_rows_that_balls_do_not():
    x = _column(0, -8, 7, 10)
    clusters = _clustered(x, _column(0, 10))
    block, reach = torch.tensor([0, 1]), torch.full((4,), 0.5).double()
    assert clusters.label.tolist() == [0, 0, 1, 1]
    assert clusters.within_reach(reach, clusters, block).tolist() == [True, True, False, False]
    assert clusters.within_reach(reach + 6.51, clusters, block).tolist() == [True, True, True, False]


def test_balls_exclude_rows_that_planes_do_not():
    x = _column(0, 1, -100, 2)
    clusters = _clustered(x, _column(0, 1000))
    within = clusters.within_reach(torch.full((4,), 1.5).double(), clusters, torch.tensor([0, 1]))
    assert within.tolist() == [True, True, False, True]


def test_rows_without_coordinates_are_within_reach_of_all_rows():
    x = _column(0, 100, 0, 200)
    clusters = _clustered(x, _column(0, 100, 200), loose=[2])
    assert clusters.label.tolist() == [0, 1, 3, 2]
    reach = torch.zeros(4).double()
    assert clusters.within_reach(reach, clusters, torch.tensor([0])).tolist() == [True, False, True, False]
    assert clusters.within_reach(reach, clusters, torch.tensor([3])).tolist() == [False, False, True, True]
    assert clusters.within_reach(reach, clusters, torch.tensor([2])).all()


def test_number_of_clusters_is_limited_by_memory_and_different_clusters_exclude_nothing(monkeypatch):
    monkeypatch.setattr(index, "_MAX_DISTANCES", 12)
    few, many = _column(0, 100, 200), _column(0, 100, 200, 0, 100)
    centers = _column(0, 100, 200)
    of_few, of_many = _clustered(few, centers), _clustered(many, centers)
    assert len(of_few.sq_distances) == 3
    assert len(of_many.sq_distances) == 2
    assert of_many.label.tolist() == [0, 1, 1, 0, 1]
    assert of_many.within_reach(torch.zeros(5).double(), of_few, torch.tensor([0])).all()
    assert of_few.within_reach(torch.zeros(3).double(), of_many, torch.tensor([0])).all()
    assert _clustered(torch.ones(13, 1), centers) is None


def test_blocks_of_large_clusters_have_every_row_once():
    features = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0))
    points = with_clusters(Projection.around(features), features, count=2).place(features)
    blocks = row_blocks(points, torch.rand(4000, dtype=torch.float64), 500)
    assert max(map(len, blocks)) <= 500
    assert torch.equal(torch.cat(blocks).sort().values, torch.arange(4000))
