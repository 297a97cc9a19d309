import feature_cases
import numpy as np
import oracle
import pytest
import torch
from emulation import emulated_memberships

from genpr.errors import UsageError
from genpr.metrics.emulated_manifold import EmulatedSide
from genpr.metrics.manifold import memberships_of
from genpr.metrics.real_manifold import RealManifold
from genpr.metrics.registry import BALLS
from genpr.neighbors.balls import Ball
from genpr.neighbors.emulated import EMULATIONS

NAMES = sorted(EMULATIONS)
METRICS = ("precision", "recall", "density", "coverage")
ALL = dict.fromkeys(METRICS, 3)
TABLES = ("real_balls_per_fake", "fakes_per_real_ball", "fake_balls_per_real", "reals_per_fake_ball")


def _inception_like(n, spread, rng, sq_norm=400.0, d=512):
    """Non-negative, curved, about 16 dimensions inside: squared distances reach from some tens to some hundreds."""
    w = np.random.default_rng(99).normal(size=(16, d)) / 4
    x = np.maximum(spread * rng.standard_t(6, (n, 16)) @ w + 0.25 * rng.normal(size=(n, d)), 0)
    return (x * np.sqrt(sq_norm / d * 3)).astype(np.float32)


@pytest.mark.parametrize("emulation", NAMES)
@pytest.mark.parametrize("case", ["integers", "binary_grid_full_of_ties"])
def test_what_float16_can_hold_is_scored_exactly(emulation, case):
    real, fake = feature_cases.make(case)
    real, fake = np.minimum(real, 8), np.minimum(fake, 8)  # 16 squares of differences below 2048
    for k in (1, 3, 5):
        ks = dict.fromkeys(METRICS, k)
        memberships = emulated_memberships(real, fake, ks=ks, emulation=emulation)
        exact = memberships_of(RealManifold.fit(real, balls=[Ball(k)]), fake, ks=ks)
        assert (memberships.n_real, memberships.n_fake) == (len(real), len(fake))
        for table in TABLES:
            assert torch.equal(getattr(memberships, table)[Ball(k)], getattr(exact, table)[Ball(k)])
        values = tuple(BALLS[name](memberships, k) for name in METRICS)
        assert values == oracle.manifold_metrics(real, fake, k)


@pytest.mark.parametrize("emulation", NAMES)
def test_on_features_as_of_networks_rounding_moves_all_values_up_and_none_far(emulation, rng):
    # Published, with the same images in float16 and float32: precision +0.0010, recall +0.0024.
    real, fake = _inception_like(1500, 1, rng), _inception_like(1500, 0.85, rng)
    exact = memberships_of(RealManifold.fit(real, balls=[Ball(3)]), fake, ks=ALL)
    found = emulated_memberships(real, fake, ks=ALL, emulation=emulation)
    assert 0.5 < BALLS["precision"](exact, 3) < 0.97
    assert 0.2 < BALLS["recall"](exact, 3) < 0.9
    assert any(
        not torch.equal(getattr(found, table)[Ball(3)], getattr(exact, table)[Ball(3)]) for table in TABLES
    )
    for name, most in (("precision", 0.004), ("recall", 0.008), ("density", 0.03), ("coverage", 0.004)):
        assert 0 <= BALLS[name](found, 3) - BALLS[name](exact, 3) < most


@pytest.mark.parametrize(
    ("ks", "first", "last"),
    [
        ({"precision": 3}, (900, 900), (30 * 20, 30 * 20)),
        ({"recall": 3}, (400, 1000), (20 * 20 + 30 * 20, 20 * 20 + 30 * 20)),
        (ALL, (900, 900), (20 * 20 + 30 * 20, 20 * 20 + 30 * 20)),
    ],
)
def test_only_what_is_asked_for_is_computed(ks, first, last, rng):
    told, sets = [], (rng.normal(size=(30, 4)), rng.normal(size=(20, 4)))
    emulated_memberships(*sets, ks=ks, emulation=NAMES[0], progress=lambda *pairs: told.append(pairs))
    assert (told[0], told[-1]) == (first, last)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"emulation": "float16"}, "unknown-emulation"),
        ({"ks": {"precision": 0}}, "bad-k"),
        ({"ks": {"recall": 2.0}}, "bad-k"),
        ({"ks": {"fidelity": 3}}, "unknown-metric"),
        ({"device": "tpu"}, "unknown-device"),
    ],
)
def test_impossible_calls_are_refused(change, code, rng):
    options = {"ks": ALL, "emulation": NAMES[0], **change}
    with pytest.raises(UsageError) as caught:
        emulated_memberships(*rng.normal(size=(2, 9, 3)), **options)
    assert caught.value.code == code
    if code == "unknown-emulation":
        assert all(name in str(caught.value) for name in NAMES)


def test_a_k_that_was_not_fitted_is_refused(rng):
    side = EmulatedSide.fit(rng.normal(size=(9, 3)), ks=[3], emulation=NAMES[0])
    with pytest.raises(UsageError, match="k = 5 was not fitted, only"):
        side.memberships(rng.normal(size=(9, 3)), ks={"density": 5})
