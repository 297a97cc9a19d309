"""The shipped metrics under audit are those of their definitions, with the published settings."""

from __future__ import annotations

import numpy as np
import pytest
from audit_oracle import all_metrics

from genpr.audit.metrics import families_of, shipped_kinds
from genpr.errors import UsageError
from genpr.metrics.curves import pr_curve
from genpr.metrics.manifold import manifold_metrics
from genpr.metrics.witnessed import witnessed

NOT_IN_ORACLE = {"f8", "f1_8", *(name for name in shipped_kinds() if name.startswith("witnessed"))}


def shipped(real, fake, names=None):
    families = families_of(shipped_kinds() if names is None else names)
    return {name: family.function(real, fake)[name] for family in families for name in family.kinds}


def pair(rng, n, m, d):
    return rng.normal(size=(n, d)).astype(np.float32), (0.3 + 0.8 * rng.normal(size=(m, d))).astype(
        np.float32
    )


def check_against_oracle(real, fake):
    expected = all_metrics(real, fake)
    found = shipped(real, fake, expected)
    assert expected.keys() == shipped_kinds().keys() - NOT_IN_ORACLE
    for name, value in expected.items():
        # Clipped coverage is calibrated between the steps of its published form.
        tolerance = 2 / len(fake) if name == "clipped_coverage" else 1e-9
        assert found[name] == pytest.approx(value, abs=tolerance), name


@pytest.mark.parametrize(("n", "m", "d"), [(300, 300, 1), (220, 340, 8), (340, 150, 64)])
def test_values_are_those_of_whole_distance_matrices(rng, n, m, d):
    check_against_oracle(*pair(rng, n, m, d))


def test_values_of_whole_numbers_with_many_ties(rng):
    real = rng.integers(-40, 41, size=(300, 1)).astype(np.float32)
    fake = rng.integers(-30, 61, size=(260, 1)).astype(np.float32)
    check_against_oracle(real, fake)


def test_metrics_beyond_the_oracle_are_the_public_ones(rng):
    real, fake = pair(rng, 300, 260, 8)
    curve, values = pr_curve(real, fake, k=5, split=False), witnessed(real, fake)
    assert shipped(real, fake, NOT_IN_ORACLE) == {
        "f8": pytest.approx(curve.f8),
        "f1_8": pytest.approx(curve.f1_8),
        "witnessed_fidelity": values.fidelity,
        "witnessed_diversity": values.diversity,
        "witnessed_support": values.support,
        "witnessed_coverage": values.coverage,
    }


def test_roles_are_not_swapped(rng):
    real = rng.normal(size=(200, 2)).astype(np.float32)
    found = shipped(real, 0.1 * real[::-1].copy())
    for name, kind in shipped_kinds().items():
        if name not in {"complement_precision", "symmetric_precision", "precision_cover"}:
            assert (found[name] > 0.5) is (kind == "fidelity"), name


def test_density_and_coverage_have_the_k_of_equal_sets_whatever_the_sizes(rng):
    real, fake = pair(rng, 200, 60, 4)
    public = manifold_metrics(real, fake, k=5)
    found = shipped(real, fake, ["density", "coverage"])
    assert (found["density"], found["coverage"]) == (public.density, public.coverage)
    assert expected_coverage(1000, 1000, 5) > 0.95 >= expected_coverage(1000, 1000, 4)


def expected_coverage(n, m, k):
    return 1 - np.prod([(n - i) / (n + m - i) for i in range(1, k + 1)])


def test_families_keep_what_was_asked_for():
    (family,) = families_of(["coverage", "precision"])
    assert list(family.kinds) == ["precision", "coverage"]
    assert set(family.function(*2 * [np.arange(20, dtype=np.float32)[:, None]])) == {"precision", "coverage"}
    assert families_of([]) == ()
    with pytest.raises(UsageError) as caught:
        families_of(["precision", "nonsense"])
    assert caught.value.code == "unknown-metric"
