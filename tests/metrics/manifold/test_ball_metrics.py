import math

import ball_metric_oracle
import numpy as np
import pytest
import torch
from ball_metric_oracle import Pair

from genpr.metrics.manifold import memberships_of
from genpr.metrics.neighbor_metrics import NeighborMetrics
from genpr.metrics.registry import BALLS, needed_balls
from genpr.neighbors.counts import Neighborhood

TIES = ("closed", "strict")
CALIBRATED = ("calibrated_precision", "calibrated_recall")


def column(*values):
    return np.array(values, dtype=np.float64)[:, None]


HAND_A = column(0, 1, 3, 7), column(0.5, 2, 10)
HAND_B = column(0, 1, 2), column(3, 3.5, 5.5)


def counted(real, fake, ks, ties="closed"):
    real_balls, _ = needed_balls(ks)
    reals = torch.from_numpy(np.asarray(real, np.float32))
    side = Neighborhood.from_features(reals, real_balls, ties=ties)
    return memberships_of(side, np.asarray(fake, np.float32), ks=ks)


def everything(real, fake, k, ties="closed"):
    """Values and nulls of all metrics."""
    ks = dict.fromkeys(BALLS, k)
    found = counted(real, fake, ks, ties)
    return (
        {name: BALLS[name](found, k) for name in BALLS},
        {name: metric.null(found, k) for name, metric in BALLS.items()},
    )


def integers(rng, n, center=0):
    return (center + rng.integers(-4, 5, (n, 3))).astype(np.float32)


SETS = {
    "integers": lambda rng: (integers(rng, 47), integers(rng, 38, 1)),
    "more fakes": lambda rng: (integers(rng, 35), integers(rng, 52, 1)),
    "apart": lambda rng: (integers(rng, 32), integers(rng, 37, 2)),
    "few values": lambda rng: (rng.integers(0, 3, (40, 3)), rng.integers(0, 3, (33, 3))),
    "off-center": lambda rng: (5 + rng.normal(0, 0.05, (45, 6)), 5.02 + rng.normal(0, 0.04, (36, 6))),
    "equally many": lambda rng: (rng.normal(size=(40, 3)), rng.normal(0.5, 1.2, (40, 3))),
    "outliers": lambda rng: (
        np.concatenate([rng.normal(size=(38, 3)), np.full((1, 3), 30.0)]),
        np.concatenate([rng.normal(size=(43, 3)), np.full((2, 3), -20.0)]),
    ),
}


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("case", SETS)
def test_every_metric_and_every_null_equals_its_definition(case, k, ties):
    real, fake = (features.astype(np.float32) for features in SETS[case](np.random.default_rng(4)))
    found, nulls = everything(real, fake, k, ties)
    pair = Pair.of(real, fake, ties)
    assert found == pytest.approx(ball_metric_oracle.values(pair, k), abs=1e-12, nan_ok=True)
    assert set(found) == set(BALLS)
    expected = ball_metric_oracle.nulls(pair, k)
    if len(fake) < len(real):  # of a part of the reals
        assert nulls["recall"] is nulls["symmetric_recall"] is None
    known = {name: null for name, null in nulls.items() if null is not None}
    assert known == pytest.approx(expected, abs=1e-12)


BOTH = ("symmetric_precision", "symmetric_recall")


@pytest.mark.parametrize(
    ("sets", "ties", "expected"),
    [
        # Radii 1, 1, 1.5, 1.5: .5 lies in two balls and counts once, 2 in the open ball of 3 alone, 10 in none. Among
        # the reals 0 and 1 lie in each other's balls, which are larger without them. With closed balls 2 of 3 fakes and
        # 2 of 4 reals lie in clipped balls of others.
        (HAND_A, "strict", dict.fromkeys(BOTH, 1) | {"clipped_density": 1, "nn_accuracy": 0}),
        (HAND_A, "closed", {"clipped_density": 1, "nn_accuracy": 0}),
        (
            HAND_B,
            "strict",
            dict.fromkeys((*BOTH, "clipped_density", "clipped_coverage"), 0) | {"nn_accuracy": 1},
        ),
        # One of three fakes against all three reals; of the six only 2, with 1 and 3 equally near, is not
        # always classified correctly.
        (HAND_B, "closed", dict.fromkeys(BOTH, 0) | {"clipped_density": 1 / 3, "nn_accuracy": 5 / 6}),
    ],
    ids=["A strict", "A closed", "B strict", "B closed"],
)
def test_values_equal_hand_computed_ones(sets, ties, expected):
    """Precision, recall, density and coverage are tested in test_manifold.py."""
    expected = expected | {"complement_precision": float(sets is HAND_A)}
    found = counted(*sets, dict.fromkeys(expected, 1), ties)
    assert {name: BALLS[name](found, 1) for name in expected} == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("ties", "value"), [("closed", 1.0), ("strict", 0.0)])
def test_equal_points_are_in_all_closed_and_no_open_balls(ties, value):
    found, _ = everything(np.full((16, 3), 0.1), np.full((17, 3), 0.1), 3, ties)
    undefined = (*CALIBRATED, "witnessed_diversity")
    shares = set(BALLS) - {"density", "nn_accuracy", "clipped_density", *undefined}
    for name in undefined:
        assert found[name] == 1 if ties == "closed" else math.isnan(found[name])
    assert {name: found[name] for name in shares} == dict.fromkeys(shares, value)
    assert found["density"] == (16 / 3 if ties == "closed" else 0)
    assert found["nn_accuracy"] == 1 - value  # every other is equally near
    assert found["clipped_density"] == value


def test_equal_sets_score_1_and_sets_far_apart_0(rng):
    points = rng.normal(size=(60, 4))
    same, _ = everything(points, points, 3)
    far, _ = everything(points, np.concatenate([points, points[:5]]) + 100, 3)
    shares = [name for name in BALLS if name not in {"density", "nn_accuracy", *CALIBRATED}]
    covered_by_others = ball_metric_oracle.covered_by_others(Pair.of(points, points, "closed"), 3)
    assert {same[name] for name in CALIBRATED} == {1 / covered_by_others}
    assert {same[name] for name in shares} == {1.0}
    assert same["density"] == (1 + 3) / 3  # each fake in its double's ball, and in k others' on average
    assert same["nn_accuracy"] == 0
    assert {far[name] for name in (*shares, *CALIBRATED, "density")} == {0.0}
    assert far["nn_accuracy"] == 1


@pytest.mark.parametrize("seed", range(20))
def test_every_value_and_null_is_between_0_and_1(seed):
    rng, k, ties = np.random.default_rng(seed), 1 + seed % 3, TIES[seed % 2]
    d = rng.integers(1, 4)
    real, fake = (rng.integers(-3, 4, (rng.integers(3 * k + 1, 15), d)) for _ in range(2))
    found, nulls = everything(real, fake, k, ties)
    for name, value in found.items():
        is_undefined = name == "calibrated_recall" and len(fake) < len(real)
        is_undefined |= name == "witnessed_diversity" and math.isnan(value)
        most = len(real) / k if name == "density" else len(real) if name in CALIBRATED else 1
        assert math.isnan(value) if is_undefined else 0 <= value <= most, name
        null = nulls[name]
        assert null is None or 0 <= null <= 1, name
    assert found["symmetric_precision"] <= found["precision"]
    assert found["symmetric_recall"] <= found["recall"]
    assert found["density"] >= found["precision"] / k


@pytest.fixture(scope="module", params=TIES)
def perfect(request):
    """Values and nulls of some draws of 400 reals and 400 fakes of one distribution."""
    rng, count = np.random.default_rng(11), 20 if request.param == "closed" else 12
    ks = dict.fromkeys(BALLS, 3) | {"witnessed_diversity": 20}
    options = {"ks": ks, "ties": request.param, "intervals": False, "seed": 0, "device": torch.device("cpu")}
    draws = []
    for _ in range(count):
        real, fake = torch.from_numpy(rng.normal(size=(2, 400, 4)).astype(np.float32))
        draws.append(NeighborMetrics(real, **options).score(fake).values)
    return {
        name: (np.array([draw[name].value for draw in draws]), [draw[name].null for draw in draws])
        for name in BALLS
    }


# A minimum of two random values, and a value that is cut at 1, are below what they are the minimum of.
BELOW = {
    "symmetric_precision",
    "symmetric_recall",
    "clipped_density",
    "clipped_coverage",
    "witnessed_diversity",
}


@pytest.mark.parametrize("name", BALLS)
def test_perfect_generator_scores_the_null_on_average(perfect, name):
    values, nulls = perfect[name]
    excess = values - np.array(nulls)
    error = excess.std(ddof=1) / math.sqrt(len(excess))
    if name in BELOW:
        assert -0.06 < excess.mean() < 3 * error
    else:
        assert abs(excess.mean()) < 4 * error
    assert error < 0.02


class TestClipped:
    def test_outlier_does_not_increase_clipped_metrics(self, rng):
        real = np.concatenate([rng.normal(size=(300, 2)), np.full((1, 2), 25.0)])
        fake = 25 + rng.normal(size=(300, 2))
        found, _ = everything(real, fake, 5)
        assert found["precision"] > 0.99
        assert found["density"] > 0.19
        assert found["clipped_density"] < 0.03
        assert found["clipped_coverage"] < 0.03

    def test_clipped_coverage_is_the_share_of_good_fakes(self):
        """A share of 300 fakes is drawn from the distribution of the reals, and the rest is far away."""
        rng = np.random.default_rng(5)
        for share in (0.2, 0.5, 0.8):
            scores = []
            for _ in range(6):
                real, fake = rng.normal(size=(2, 300, 4))
                fake[round(300 * share) :] += 100
                found = counted(real, fake, {"clipped_coverage": 5, "clipped_density": 5})
                scores.append([BALLS[name](found, 5) for name in ("clipped_coverage", "clipped_density")])
            coverage, density = np.mean(scores, axis=0)
            assert coverage == pytest.approx(share, abs=0.03)
            assert density == pytest.approx(share, abs=0.06)


def test_every_metric_needs_only_its_declared_counts():
    """A missing count would be a KeyError."""
    real, fake = integers(np.random.default_rng(0), 20), integers(np.random.default_rng(1), 21)
    for name, metric in BALLS.items():
        needed = needed_balls({name: 2})
        assert needed == (
            [ball(2) for ball in [metric.real_ball] if ball],
            [ball(2) for ball in [metric.fake_ball] if ball],
        )
        found = counted(real, fake, {name: 2})
        value = BALLS[name](found, 2)
        assert 0 <= value <= 21 or (name == "witnessed_diversity" and math.isnan(value))
        assert (set(found.real_balls_per_fake), set(found.fake_balls_per_real)) == tuple(map(set, needed))


class TestWitnessed:
    @pytest.mark.parametrize(("n", "m"), [(60, 60), (60, 90), (90, 50), (110, 21)])
    def test_values_of_the_default_k_equal_the_definition(self, n, m, rng):
        real, fake = rng.normal(size=(n, 6)), rng.normal(0.3, 1.1, size=(m, 6))
        pair = Pair.of(real.astype(np.float32), fake.astype(np.float32), "closed")
        found = BALLS["witnessed_diversity"](counted(real, fake, {"witnessed_diversity": 20}), 20)
        assert found == pytest.approx(min(1, *ball_metric_oracle.support_and_coverage(pair, 20)), abs=1e-12)
        assert 0.1 < found <= 1

    @pytest.mark.parametrize(("d", "spread", "value"), [(64, 0.83, 0.08), (64, 1.21, 0.05), (8, 0.68, 0.30)])
    def test_shrunken_and_widened_fakes(self, d, spread, value, rng):
        real, fake = rng.normal(size=(1000, d)), spread * rng.normal(size=(1000, d))
        found = counted(real, fake, {"witnessed_diversity": 20})
        assert BALLS["witnessed_diversity"](found, 20) == pytest.approx(value, abs=0.04)
