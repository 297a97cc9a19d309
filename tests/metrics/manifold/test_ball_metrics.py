import math

import ball_metric_oracle
import numpy as np
import pytest
import torch
from ball_metric_oracle import Pair
from trained_features import features_of_crops

from genpr.metrics.neighbor_metrics import NeighborMetrics, needed_balls
from genpr.metrics.registry import BALLS
from genpr.neighbors.counts import Neighborhood

TIES = ("closed", "strict")
CALIBRATED = ("calibrated_precision", "calibrated_recall")


def column(*values):
    return np.array(values, dtype=np.float64)[:, None]


HAND_A = column(0, 1, 3, 7), column(0.5, 2, 10)
HAND_B = column(0, 1, 2), column(3, 3.5, 5.5)


def counted(real, fake, ks, ties="closed"):
    real_balls, fake_balls = needed_balls(ks)
    reals = torch.from_numpy(np.asarray(real, np.float32))
    side = Neighborhood.from_features(reals, real_balls, ties=ties)
    fakes = side.of_fakes(torch.from_numpy(np.asarray(fake, np.float32)), fake_balls)
    return side.count(fakes, real_balls)


def everything(real, fake, k, ties="closed"):
    """Values and nulls of all metrics."""
    ks = dict.fromkeys(BALLS, k)
    found = counted(real, fake, ks, ties)
    return (
        {name: BALLS[name].value(found, k) for name in BALLS},
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
    "one point": lambda _: (np.full((16, 3), 0.1), np.full((17, 3), 0.1)),
    "the same": lambda _: 2 * (np.random.default_rng(0).normal(size=(40, 4)),),
    "far apart": lambda rng: (rng.normal(size=(30, 4)), rng.normal(100, 1, (32, 4))),
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


FOUR = ("precision", "recall", "density", "coverage")
BOTH = ("symmetric_precision", "symmetric_recall")


@pytest.mark.parametrize(
    ("sets", "ties", "expected"),
    [
        # Radii 1, 1, 1.5, 1.5: .5 lies in two balls and counts once, 2 in the open ball of 3 alone, 10 in none. Among
        # the reals 0 and 1 lie in each other's balls, which are larger without them. With closed balls 2 of 3 fakes and
        # 2 of 4 reals lie in clipped balls of others.
        (
            HAND_A,
            "strict",
            dict.fromkeys((*FOUR, *BOTH, "clipped_density"), 1) | {"density": 4 / 3, "nn_accuracy": 0},
        ),
        (
            HAND_A,
            "closed",
            dict.fromkeys((*FOUR, "clipped_density"), 1) | {"density": 5 / 3, "nn_accuracy": 0},
        ),
        (
            HAND_B,
            "strict",
            dict.fromkeys((*FOUR, *BOTH, "clipped_density", "clipped_coverage"), 0) | {"nn_accuracy": 1},
        ),
        # One of three fakes against all three reals; of the six only 2, with 1 and 3 equally near, is not
        # always classified correctly.
        (
            HAND_B,
            "closed",
            dict.fromkeys((*FOUR, "clipped_density"), 1 / 3)
            | dict.fromkeys(("recall", *BOTH), 0)
            | {"nn_accuracy": 5 / 6},
        ),
    ],
    ids=["A strict", "A closed", "B strict", "B closed"],
)
def test_values_equal_hand_computed_ones(sets, ties, expected):
    expected = expected | {"complement_precision": float(sets is HAND_A)}
    found = counted(*sets, dict.fromkeys(expected, 1), ties)
    assert {name: BALLS[name].value(found, 1) for name in expected} == pytest.approx(expected, abs=1e-15)


def normal(rng):
    return torch.from_numpy(rng.normal(size=(2, 400, 4)).astype(np.float32))


def trained(rng):
    return features_of_crops(400)[rng.permutation(400)].split(200)


@pytest.fixture(
    scope="module",
    params=[("closed", normal, 12), ("strict", normal, 8), ("closed", trained, 24)],
    ids=["closed", "strict", "trained"],
)
def perfect(request):
    """Values and nulls of some draws of reals and equally many fakes of one distribution."""
    ties, draw, count = request.param
    rng, ks = np.random.default_rng(11), dict.fromkeys(BALLS, 3) | {"witnessed_diversity": 20}
    options = {"ks": ks, "ties": ties, "intervals": False, "seed": 0, "device": torch.device("cpu")}
    draws = []
    for _ in range(count):
        real, fake = draw(rng)
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
# The mean of min(X, Y), or of min(X, its mean), is this many of its standard deviations below that of X, for independent normal X
# and Y: 1 / sqrt(pi - 1).
BELOW_BY = (math.pi - 1) ** -0.5


@pytest.mark.parametrize("name", BALLS)
def test_perfect_generator_scores_the_null_on_average(perfect, name):
    values, nulls = perfect[name]
    excess = values - np.array(nulls)
    error = (deviation := excess.std(ddof=1)) / math.sqrt(len(excess))
    if name in BELOW:
        assert -BELOW_BY * deviation - 4 * error < excess.mean() < 3 * error
    else:
        assert abs(excess.mean()) < 4 * error
    assert error < 0.02


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
        value = BALLS[name].value(found, 2)
        assert 0 <= value <= 21 or (name == "witnessed_diversity" and math.isnan(value))
        assert (set(found.real_balls_per_fake), set(found.fake_balls_per_real)) == tuple(map(set, needed))


class TestWitnessed:
    @pytest.mark.parametrize(("n", "m"), [(60, 60), (60, 90), (90, 50), (110, 21)])
    def test_values_of_the_default_k_equal_the_definition(self, n, m, rng):
        real, fake = rng.normal(size=(n, 6)), rng.normal(0.3, 1.1, size=(m, 6))
        pair = Pair.of(real.astype(np.float32), fake.astype(np.float32), "closed")
        found = BALLS["witnessed_diversity"].value(counted(real, fake, {"witnessed_diversity": 20}), 20)
        assert found == pytest.approx(min(1, *ball_metric_oracle.support_and_coverage(pair, 20)), abs=1e-12)
        assert 0.1 < found <= 1
