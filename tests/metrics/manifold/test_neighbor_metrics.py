import math
from dataclasses import replace

import ball_metric_oracle
import numpy as np
import oracle
import pytest
import torch
from ball_metric_oracle import Pair

from genpr.evaluation.protocols import find_protocol
from genpr.metrics import neighbor_metrics
from genpr.metrics.neighbor_metrics import NeighborMetrics
from genpr.metrics.registry import BALLS, NEIGHBORS
from genpr.metrics.uncertainty import lower_part
from genpr.neighbors.engine import Tiles
from genpr.neighbors.halves import Halves
from genpr.neighbors.subsets import drawn_subsets

RESAMPLED = [name for name, metric in BALLS.items() if metric.halves]

CPU = torch.device("cpu")
KS = find_protocol("genpr").choose_ks(NEIGHBORS)
SMALL = dict.fromkeys(BALLS, 2) | {"nn_accuracy": 1}
TIES = ("closed", "strict")


def fitted(real, ks, *, ties="closed", intervals=True, seed=0):
    features = torch.from_numpy(np.asarray(real, np.float32))
    return NeighborMetrics(features, ks=ks, ties=ties, intervals=intervals, seed=seed, device=CPU)


def scored(real, fake, ks, **options):
    return fitted(real, ks, **options).score(torch.from_numpy(np.asarray(fake, np.float32)))


def score(real, fake, ks, **options):
    """Values by metric, None where undefined."""
    return scored(real, fake, ks, **options).values


def integers(rng, n, center=0):
    return (center + rng.integers(-4, 5, (n, 3))).astype(np.float32)


def halves_of(real, fake, seed=4):
    """Both sides of every half."""
    masks = [
        Halves.drawn(len(side), seed=seed, stream=stream, count=100, device=CPU).members().numpy()
        for stream, side in enumerate((real, fake))
    ]
    return [(real[x], fake[y]) for x, y in zip(*masks, strict=True)]


@pytest.fixture
def off_center(rng):
    return 3 + rng.normal(0, 1, (62, 4)), 3.2 + rng.normal(0, 1.1, (51, 4))


@pytest.mark.parametrize("name", KS)
def test_values_do_not_depend_on_other_requested_metrics(name, off_center, all_values):
    assert score(*off_center, {name: KS[name]})[name] == all_values[name]


@pytest.fixture(scope="module")
def all_values():
    rng = np.random.default_rng(0)  # as off_center
    found = score(3 + rng.normal(0, 1, (62, 4)), 3.2 + rng.normal(0, 1.1, (51, 4)), KS)
    assert tuple(found) == tuple(KS)
    return found


@pytest.mark.parametrize("ties", TIES)
def test_every_metric_uses_its_ties_and_k(rng, ties):
    real, fake = integers(rng, 44), integers(rng, 37, 1)
    ks = SMALL | {"precision": 4, "recall": 1, "density": 3, "coverage": 5, "clipped_density": 3}
    ks["witnessed_diversity"] = 5
    found = score(real, fake, ks, ties=ties, intervals=False)
    pair = Pair.of(real, fake, ties)
    expected = {
        k: (ball_metric_oracle.values(pair, k), ball_metric_oracle.nulls(pair, k)) for k in {*ks.values()}
    }
    null = score(real, fake, {"recall": 2}, ties=ties, intervals=False)["recall"].null
    expected[2][0]["calibrated_recall"] = expected[2][0]["recall"] / null
    assert {name: value.value for name, value in found.items()} == pytest.approx(
        {name: expected[k][0][name] for name, k in ks.items()}, abs=1e-12
    )
    for name, k in ks.items():
        if name in expected[k][1]:
            assert found[name].null == pytest.approx(expected[k][1][name], abs=1e-12), name
    shares = {"real": 44, "fake": 37, "both": 81}
    assert {name: each.n_counted for name, each in found.items()} == {
        name: shares[BALLS[name].over] for name in ks
    }


class TestNullOfRecall:
    """The null of recall is the mean over parts of as many reals as fakes."""

    def test_null_with_at_least_as_many_fakes_as_reals(self, rng):
        real = rng.normal(size=(50, 8))
        covered_by_others = ball_metric_oracle.covered_by_others(
            Pair.of(*[real.astype(np.float32)] * 2, "closed"), 2
        )
        for m in (50, 51, 90):
            found = score(real, rng.normal(size=(m, 8)), {"recall": 2}, intervals=False)["recall"]
            assert (found.null, found.null_source) == (covered_by_others, "leave-one-out")

    @pytest.mark.parametrize("m", [7, 30])
    def test_null_with_fewer_fakes_than_reals(self, rng, m):
        real, k = rng.normal(size=(50, 16)).astype(np.float32), 3
        fake = rng.normal(size=(m, 16))
        found = [
            score(each, fake, {"recall": k}, intervals=intervals, seed=seed)["recall"].null
            for each, intervals, seed in ((real, False, 0), (real[::-1].copy(), True, 1))
        ]
        shares = [
            ball_metric_oracle.covered_by_others(Pair.of(real[subset], real[subset], "closed"), k)
            for subset in drawn_subsets(torch.from_numpy(real), m)
        ]
        assert found == [pytest.approx(np.mean(shares), abs=1e-12)] * 2
        assert found[0] == found[1], "order, seed and intervals change nothing"

    def test_nulls_of_many_subsets_have_a_small_error(self, rng):
        """Other subsets of the same reals give nearly the same null: the features plus a constant have other hashes."""
        real, fake = rng.normal(size=(600, 8)).astype(np.float32), rng.normal(size=(300, 8))
        nulls = [
            score(real + shift, fake, {"recall": 3}, intervals=False)["recall"].null
            for shift in (0, 1 / 64, 1 / 32, 1 / 16)
        ]
        assert len({*nulls}) == 4
        assert np.std(nulls) < 0.005, "of one part it is .02"

    def test_null_of_open_balls(self, rng):
        equal = np.ones((30, 2))
        for m in (10, 30, 40):
            fake = rng.normal(size=(m, 2))
            nulls = {
                ties: score(equal, fake, {"recall": 2}, ties=ties, intervals=False)["recall"].null
                for ties in TIES
            }
            assert nulls == {"closed": 1, "strict": 0}


class TestIntervals:
    def test_resampled_metrics_have_replicates(self, all_values, off_center):
        lengths = {name: len(each.replicates) for name, each in all_values.items() if each.replicates}
        assert lengths == dict.fromkeys(RESAMPLED, 100)
        for name, value in score(*off_center, KS, intervals=False).items():
            assert value == replace(all_values[name], interval=None, replicates=None)

    @pytest.mark.parametrize(("n", "m"), [(57, 44), (40, 66)])
    @pytest.mark.parametrize("ties", TIES)
    def test_replicates_are_of_halves_of_both_sets(self, rng, n, m, ties):
        real, fake = integers(rng, n), integers(rng, m, 1)
        ks = {name: SMALL[name] for name in RESAMPLED if name != "witnessed_diversity"}
        every = score(real, fake, ks, ties=ties, seed=4)
        lesser = {
            "symmetric_precision": ("precision", "complement_precision"),
            "symmetric_recall": ("recall", "coverage"),
        }
        # Not limited to 1; with open balls, reals are counted in closed ones, which differ if distances are equal.
        uncut = {"clipped_density", "clipped_coverage"} if ties == "closed" else {"clipped_coverage"}
        found = {
            name: value for name, value in every.items() if name not in {*lesser, "clipped_density"} | uncut
        }
        halves = halves_of(real, fake)
        for half in (0, 1, 98):
            x, y = halves[half]
            expected = ball_metric_oracle.values(Pair.of(x, y, ties), 2)
            # Nulls count the reals of a half in closed balls of the others.
            covered_by_others = ball_metric_oracle.covered_by_others(Pair.of(x, x, "closed"), 2)
            for name in ("precision", "recall"):
                expected[f"calibrated_{name}"] = expected[name] / covered_by_others
            assert {name: float(value.replicates[half]) for name, value in found.items()} == pytest.approx(
                {name: expected[name] for name in found}, abs=1e-12
            )
            for name in uncut:
                assert min(1.0, float(every[name].replicates[half])) == pytest.approx(
                    expected[name], abs=1e-12
                )
        for name, pair in lesser.items():  # of two metrics, not of two values of each half
            replicates = [torch.tensor(every[each].replicates, dtype=torch.float64) for each in pair]
            assert list(every[name].replicates) == lower_part(*replicates).tolist()

    def test_replicates_of_witnessed_diversity_are_of_the_part_that_is_lower(self, off_center):
        real, fake = (features.astype(np.float32) for features in off_center)
        found = score(real, fake, {"witnessed_diversity": 8}, seed=4)["witnessed_diversity"]
        parts = [
            ball_metric_oracle.support_and_coverage(Pair.of(*half, "closed"), 8)
            for half in halves_of(real, fake)
        ]
        expected = lower_part(*torch.tensor(parts, dtype=torch.float64).T)
        assert found.replicates == pytest.approx(expected.tolist(), abs=1e-12)
        assert max(found.replicates) > 1, "not limited to 1"

    @pytest.mark.parametrize(
        ("n", "m", "none"),
        [(60, 60, {}), (42, 45, {}), (41, 60, {20}), (60, 41, {20}), (11, 30, {5}), (30, 11, {5})],
    )
    def test_sets_with_too_small_halves_have_no_intervals(self, rng, n, m, none):
        """A ball of k neighbors needs k + 1 images: halves of 21 for k = 20, of 6 for k = 5, of 4 for k = 3."""
        ks = {name: k for name, k in KS.items() if name in RESAMPLED and k < min(n, m)}
        found = scored(rng.normal(size=(n, 2)), rng.normal(size=(m, 2)), ks)
        without = {name for name, value in found.values.items() if value.replicates is None}
        assert without == {name for name, k in ks.items() if k in none}
        assert found.missing_intervals == dict.fromkeys(without, "images")

    def test_density_of_concentrated_fakes_has_no_interval(self, rng):
        real, fake = rng.normal(size=(200, 16)), rng.normal(size=(150, 16))
        for scale, has_replicates in ((1.0, True), (0.6, False)):
            found = score(real, scale * fake, {"density": 5, "coverage": 5})
            assert (found["density"].value > 2) == (not has_replicates)
            assert (found["density"].replicates is not None) == has_replicates
            assert found["coverage"].replicates is not None

    def test_insufficient_memory_loses_only_intervals(self, off_center, all_values, monkeypatch):
        monkeypatch.setattr(neighbor_metrics, "fits", lambda _size, _device: False)
        found = scored(*off_center, KS)
        assert {value.replicates for value in found.values.values()} == {None}
        assert all(each.value == all_values[name].value for name, each in found.values.items())
        assert found.missing_intervals == dict.fromkeys(RESAMPLED, "memory")
        assert not scored(*off_center, KS, intervals=False).missing_intervals


class TestScans:
    """Metrics with a separate search."""

    @pytest.fixture
    def sets(self, rng):
        real = 7 + rng.normal(size=(48, 5))
        # Some at half the distance to a neighbor, some around, some far, and one copy.
        fake = np.concatenate(
            [real[:20] + 0.3 * rng.normal(size=(20, 5)), 7.5 + rng.normal(0, 2, (12, 5)), real[40:41]]
        )
        return real.astype(np.float32), fake.astype(np.float32)

    def test_authenticity_equals_its_definition(self, sets):
        real, fake = sets
        found = score(real, fake, {"authenticity": 1})["authenticity"]
        between, own = oracle.sq_distances(real, fake), oracle.sq_distances(real, real)
        np.fill_diagonal(own, np.inf)
        nearest = between.argmin(axis=0)
        assert found.value == np.mean([between[i, j] > own[i].min() for j, i in enumerate(nearest)])
        assert 0.1 < found.value < 0.9
        partner = own.argmin(axis=1)
        assert found.null == pytest.approx(1 - np.mean(partner[partner] == np.arange(48)))
        assert (found.null_source, found.replicates) == ("leave-one-out", None)

    def test_undefined_metrics_have_no_value(self, rng):
        real = rng.normal(size=(40, 3))
        assert score(real, real[:30] + 100, {"rarity": 3})["rarity"] is None
        assert score(real, real, {"realism": 3})["realism"] is None, "infinite for copies"
        assert score(real, np.repeat(real[:1], 30, axis=0), {"realism": 3})["realism"] is None
        equal = np.ones((30, 2))
        for name, value in score(equal, equal, KS).items():
            assert value is None or math.isfinite(value.value), name


class CountingTiles(Tiles):
    """Tiles that count products, so that costs do not depend on the machine."""

    counted = 0

    def products(self, left, right):
        CountingTiles.counted += len(left) * len(right)
        return Tiles.products(self, left, right)


WITHOUT_RECALL = {name: k for name, k in KS.items() if name in BALLS and BALLS[name].null_ball is None}


class TestWork:
    N, M = 70, 50
    REAL, FAKE, CROSS = 70**2, 50**2, 70 * 50  # all keys of each set, and of both

    @pytest.mark.parametrize(
        ("ks", "fit", "count"),
        [
            ({"precision": 3}, REAL, CROSS),
            ({"complement_precision": 5}, 0, FAKE + CROSS),
            ({"complement_precision": 3, "precision": 3, "symmetric_precision": 5}, REAL, FAKE + CROSS),
            ({"rarity": 3, "precision": 5}, REAL, CROSS),
            (WITHOUT_RECALL, REAL, FAKE + CROSS),
        ],
        ids=lambda ks: " ".join(ks) if isinstance(ks, dict) else "",
    )
    def test_only_required_searches_run(self, ks, fit, count, rng, monkeypatch):
        monkeypatch.setattr("genpr.neighbors.engine.Tiles", CountingTiles)
        monkeypatch.setattr(CountingTiles, "counted", 0)
        side = fitted(rng.normal(size=(self.N, 4)), ks, intervals=False)
        assert CountingTiles.counted == fit
        for _ in range(2):
            CountingTiles.counted = 0
            side.score(torch.from_numpy(rng.normal(size=(self.M, 4))).float())
            assert CountingTiles.counted == count
