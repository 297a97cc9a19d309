"""Witnessed fidelity and diversity: against a numpy implementation, and on data with known answers."""

import math

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from scipy import stats

from genpr.errors import FeatureError, UsageError
from genpr.metrics import blocks
from genpr.metrics.probabilistic import probabilistic_precision_recall
from genpr.metrics.uncertainty import lower_part
from genpr.metrics.witnessed import (
    HALVES,
    blocks_of_fakes,
    cut_and_uncut,
    local_dimension,
    witnessed,
    witnessed_coverage,
    witnessed_fidelity,
    witnessed_of_halves,
    witnessed_support,
)
from genpr.neighbors.halves import Halves, unpacked


def lists(queries: np.ndarray, points: np.ndarray, *, own: bool = False) -> np.ndarray:
    """Distances to the 20 nearest, without the row itself where `own`."""
    distances = np.sqrt(oracle.sq_distances(queries, points))
    if own:
        np.fill_diagonal(distances, np.inf)
    return np.sort(distances, axis=1)[:, :20]


def lid(distances: np.ndarray) -> float:
    last, nearer = distances[-1], [distance for distance in distances[:-1] if distance > 0]
    if not nearer:
        return 0.0
    mean = np.mean([math.log(distance / last) for distance in nearer])
    return math.inf if mean == 0 else -1 / mean


def witnesses(balls: np.ndarray, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In how many clipped balls each sample lies, and each center in those of others."""
    radii = lists(balls, balls, own=True)[:, -1]
    clipped = np.minimum(radii, np.median(radii))[:, None] * (1 + 1e-12)
    of_samples = (np.sqrt(oracle.sq_distances(balls, samples)) <= clipped).sum(axis=0)
    return of_samples, (np.sqrt(oracle.sq_distances(balls, balls)) <= clipped).sum(axis=0) - 1


def plain_fidelity(real: np.ndarray, fake: np.ndarray) -> float:
    of_fake, of_real = witnesses(real, fake)
    lid_fake, lid_real = (
        np.array([lid(row) for row in lists(rows, real, own=rows is real)]) for rows in (fake, real)
    )
    limit = np.quantile(lid_real, 0.98, method="higher") * (1 + 1e-9)
    accepted = ((of_fake >= 5) & (lid_fake <= limit)).mean()
    return min(1, accepted / ((of_real >= 5) & (lid_real <= limit)).mean())


def plain_support(real: np.ndarray, fake: np.ndarray) -> float:
    of_real, of_fake = witnesses(fake, real)
    return min(1, (of_real >= 5).mean() / (of_fake >= 5).mean())


def plain_coverage(real: np.ndarray, fake: np.ndarray) -> float:
    n, m = len(real), len(fake)
    k = max(20, round(20 * n / m))
    distances = np.sqrt(oracle.sq_distances(real, real))
    radii = np.sort(distances, axis=1)[:, k]
    counts = (np.sqrt(oracle.sq_distances(real, fake)) <= radii[:, None] * (1 + 1e-12)).sum(axis=1)
    expected = sum(stats.hypergeom.pmf(x, n + m - 1, m, k + 3) for x in range(4, k + 4))
    return min(1, (counts >= 4).mean() / expected)


SIZES = [(60, 60), (60, 90), (90, 50), (110, 21), (50, 120), (40, 120), (50, 51)]


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("shift", [0, 0.7])
def test_values_equal_the_numpy_implementation(n, m, shift, rng):
    real = rng.normal(size=(n, 6)).astype(np.float32)
    fake = (shift + rng.normal(0, 1.1, size=(m, 6))).astype(np.float32)
    found = witnessed(real, fake, seed=4)
    blocks = [fake[rows] for rows in blocks_of_fakes(n, m, 4)[0]]
    parts = [(plain_support(real, block), plain_coverage(real, block)) for block in blocks]
    expected = plain_fidelity(real, fake), np.mean([min(part) for part in parts]), *np.mean(parts, axis=0)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", ["off_center", "integers", "fakes_copy_reals", "tight_clumps"])
def test_values_equal_the_numpy_implementation_on_hard_cases(case):
    real, fake = feature_cases.make(case)
    found = witnessed(real, fake)
    support, coverage = plain_support(real, fake), plain_coverage(real, fake)
    assert found == pytest.approx(
        (plain_fidelity(real, fake), min(support, coverage), support, coverage), abs=1e-12
    )


def test_local_dimension_equals_its_definition():
    distances = torch.tensor(
        [[1.0, 2, 4], [1, 1, 1], [0, 1, 2], [0, 0, 0], [3, 3, 4], [0, 0, 3], [0, 2, 2]]
    ).double()
    found = local_dimension(distances.square()).tolist()
    expected = [1 / (1.5 * math.log(2)), math.inf, 1 / math.log(2), 0, 1 / math.log(4 / 3), 0, math.inf]
    assert found == pytest.approx(expected, rel=1e-12)


def test_fidelity_of_counts():
    lid_real, enough = torch.arange(100).double(), torch.full((100,), 5)  # 2 % are above 98, taken from above

    def of(counts, lids):
        return witnessed_fidelity(torch.tensor(counts), torch.tensor(lids), enough, lid_real)

    assert of([5, 6, 4, 0], [0.0, 1, 1, 1]) == pytest.approx(0.5 / 0.99)
    assert of([5, 5, 5, 5], [98.0, 98.1, math.inf, 0]) == pytest.approx(0.5 / 0.99)
    assert of([5, 5], [0.0, 0]) == pytest.approx(1 / 0.99)  # uncut
    few = torch.tensor([5] * 40 + [4] * 60)
    assert witnessed_fidelity(torch.tensor([5, 4, 4, 4]), torch.zeros(4), few, lid_real) == pytest.approx(
        0.25 / 0.4
    )
    assert math.isnan(witnessed_fidelity(enough, lid_real, enough - 1, lid_real))


def test_support_and_coverage_of_counts():
    assert witnessed_support(torch.tensor([5, 9, 4, 0]), torch.tensor([5, 7, 5, 4])) == pytest.approx(
        0.5 / 0.75
    )
    assert math.isnan(witnessed_support(torch.tensor([5]), torch.tensor([4])))
    expected = stats.hypergeom.sf(3, 53, 50, 6)
    found = witnessed_coverage(torch.tensor([4, 3, 0, 2]), n_fake=50, k=3)
    assert found == pytest.approx(0.25 / expected)
    uncut = witnessed_coverage(torch.tensor([4, 4, 9, 5]), n_fake=50, k=3)
    assert uncut == pytest.approx(1 / expected)


@pytest.mark.parametrize(("n", "m", "spread"), [(61, 130, 0.8), (90, 44, 1.5)])
def test_halves_are_scored_as_sets(n, m, spread, rng):
    real, fake = (torch.from_numpy(rng.normal(size=(size, 3)).astype(np.float32)) for size in (n, m))
    fake *= spread
    found = witnessed_of_halves(real, fake, seed=3)
    rows = [
        unpacked(Halves.drawn(size, seed=3, stream=stream, count=100, device=torch.device("cpu")).member).T
        for stream, size in enumerate((n, m))
    ]
    expected = [cut_and_uncut(real[rows[0][b]], fake[rows[1][b]], 3)[1] for b in range(HALVES)]
    for name in ("fidelity", "support", "coverage"):
        assert found[name].tolist() == [getattr(each, name) for each in expected], name
    lower = lower_part(found["support"], found["coverage"])
    assert found["diversity"].tolist() == lower.tolist()
    assert not torch.equal(found["support"], found["coverage"])


@pytest.mark.parametrize(("m", "count"), [(49, 1), (50, 1), (51, 1), (99, 1), (100, 2), (162, 3)])
def test_blocks_are_random_and_have_as_many_fakes_as_reals(m, count):
    blocks, rest = blocks_of_fakes(50, m, 0)
    assert [len(rows) for rows in blocks] == [min(50, m)] * count
    assert torch.cat([*blocks, rest]).sort().values.tolist() == list(range(m)), "each fake once"
    assert rest.tolist() == sorted(rest.tolist())
    again, other = blocks_of_fakes(50, m, 0)[0], blocks_of_fakes(50, m, 1)[0]
    assert all(a.equal(b) for a, b in zip(blocks, again, strict=True))
    assert any(not a.equal(b) for a, b in zip(blocks, other, strict=True)) == (m > 50)


def test_four_outlying_reals_do_not_support_fakes(rng):
    real, fake = rng.normal(size=(600, 64)), rng.normal(6, 1, size=(600, 64))
    real[:4] = 6
    assert witnessed(real, fake).fidelity == 0
    real[:6] = 6 + 0.01 * rng.normal(size=(6, 64))
    assert witnessed(real, fake).fidelity > 0.5  # six reals in a cluster are enough support


def gaussians(rng, spread, d, n=1000):
    return rng.normal(size=(n, d)), spread * rng.normal(size=(n, d))


@pytest.mark.parametrize(
    ("d", "spread", "fidelity", "diversity"),
    [(64, 0.83, 1.00, 0.08), (64, 1.21, 0.06, 0.05), (8, 0.68, 1.00, 0.30)],
)
def test_shrunken_and_widened_fakes(d, spread, fidelity, diversity, rng):
    found = witnessed(*gaussians(rng, spread, d))
    assert found.fidelity == pytest.approx(fidelity, abs=0.04)
    assert found.diversity == pytest.approx(diversity, abs=0.04)
    assert (found.support < found.coverage) == (spread < 1)


def test_points_inside_a_shell_are_not_real(rng):
    def shell(radius):
        points = rng.normal(size=(700, 16))
        return radius * points / np.linalg.norm(points, axis=1, keepdims=True)

    assert witnessed(shell(1), shell(0.1)).fidelity < 0.05
    assert witnessed(shell(1), shell(1)).fidelity > 0.93


def test_invalid_input_is_an_error(rng):
    real = rng.normal(size=(21, 2))
    witnessed(real, real)
    with pytest.raises(FeatureError, match="real needs at least k \\+ 1 = 21 rows"):
        witnessed(real[:20], real)
    with pytest.raises(UsageError, match="seed"):
        witnessed(real, real, seed=-1)


def in_support(of: np.ndarray, samples: np.ndarray, k: int, scale: float) -> float:
    """Mean over the samples, pair by pair."""
    radius = scale * np.sqrt(oracle.kth_sq_distances(of, [k])[0]).mean()
    total = 0.0
    for sample in samples:
        outside = 1.0
        for row in of:
            distance = math.sqrt(oracle.sq_distance(sample, row))
            outside *= min(1.0, distance / radius) if radius > 0 else float(distance > 0)
        total += 1 - outside
    return total / len(samples)


CASES = (
    *("integers", "off_center", "duplicates", "near_duplicates", "fakes_copy_reals", "outlier_in_both"),
    *("all_identical", "collapsed_fakes", "one_column", "tiny_values", "huge_values"),
)


@pytest.mark.parametrize("case", CASES)
def test_probabilistic_metrics_equal_a_double_loop(case, monkeypatch):
    monkeypatch.setattr(blocks, "_TILE_ROWS", 37)
    real, fake = (features[:70] for features in feature_cases.make(case))
    found = probabilistic_precision_recall(real, fake)
    expected = in_support(real, fake, 4, 1.2), in_support(fake, real, 4, 1.2)
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_probabilistic_metrics_use_their_options(rng):
    real, fake = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(0.5, 1, (50, 3)).astype(np.float32)
    found = probabilistic_precision_recall(real, fake, k=2)
    assert found == pytest.approx((in_support(real, fake, 2, 1.2), in_support(fake, real, 2, 1.2)), rel=1e-12)
    exchanged = probabilistic_precision_recall(fake, real, k=2)
    assert exchanged == pytest.approx(found[::-1], rel=1e-12)
    assert abs(found.precision - found.recall) > 0.01


@pytest.mark.parametrize(
    ("d", "published"), [(1, 0.93), (8, 0.74), (64, 0.98)], ids=["1 column", "8 columns", "64 columns"]
)
def test_probabilistic_metrics_of_one_distribution_are_below_1(d, published, rng):
    for value in probabilistic_precision_recall(*rng.normal(size=(2, 1000, d))):
        assert value == pytest.approx(published, abs=0.025)


def test_invalid_probabilistic_input_is_an_error(rng):
    real = rng.normal(size=(9, 2))
    with pytest.raises(UsageError, match="k must be"):
        probabilistic_precision_recall(real, real, k=0)
    with pytest.raises(FeatureError, match="fake needs at least k \\+ 1 = 5 rows"):
        probabilistic_precision_recall(real, real[:4])
    with pytest.raises(FeatureError, match="same extractor"):
        probabilistic_precision_recall(real, real[:, :1])
