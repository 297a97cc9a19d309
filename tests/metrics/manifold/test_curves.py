"""Precision-recall curves: closed forms, the definition by brute force, and samples near the truth."""

import math

import feature_cases
import numpy as np
import pytest
import torch
from raising import raising

from genpr.errors import FeatureError, UsageError
from genpr.metrics.curves import Votes, classifier_curve, curve_of_errors, f_scores, pr_curve
from genpr.metrics.manifold import precision_recall


def histogram_curve(real, fake):
    """The curve of two histograms over the same bins, by the classifiers that call the most real bins real."""
    real, fake = np.asarray(real) / np.sum(real), np.asarray(fake) / np.sum(fake)
    real, fake = real[(real > 0) | (fake > 0)], fake[(real > 0) | (fake > 0)]
    with np.errstate(divide="ignore"):
        order = np.argsort(fake / real)
    lost = np.append(np.cumsum(real[order][::-1])[::-1], 0.0)
    passed = np.append(0.0, np.cumsum(fake[order]))
    return curve_of_errors(np.minimum(lost, 1.0), np.minimum(passed, 1.0))


def precision_at(curve, slope):
    """Between the slopes of the curve precision is a straight line."""
    return np.interp(slope, curve.slopes[:-1], curve.precision[:-1])


def test_curve_of_equal_histograms_reaches_1_in_both():
    curve = histogram_curve([0.2, 0.3, 0.5], [2, 3, 5])
    assert precision_at(curve, 1.0) == pytest.approx(1, abs=1e-12)
    assert (curve.max_precision, curve.max_recall) == pytest.approx((1, 1), abs=1e-12)
    assert [curve.f_score(8), curve.f_score(1 / 8), curve.f_score()] == pytest.approx([1, 1, 1], abs=1e-12)


def test_published_f_scores():
    precision, recall = [1, 1, 0, 0, 0.5, 1, 0.5], [1, 0, 1, 0, 0.5, 0.5, 1]
    assert f_scores(precision, recall) == pytest.approx([1, 0, 0, 0, 0.5, 2 / 3, 2 / 3], abs=1e-15)
    assert f_scores(precision, recall, 2) == pytest.approx([1, 0, 0, 0, 0.5, 5 / 9, 5 / 6], abs=1e-15)
    assert f_scores(precision, recall, 0.5) == pytest.approx([1, 0, 0, 0, 0.5, 5 / 6, 5 / 9], abs=1e-15)


@pytest.mark.parametrize(
    ("kept", "f8", "f1_8"), [(5, 0.503876, 0.984848), (1, 0.101404, 0.878378), (9, 0.901387, 0.998294)]
)
def test_curves_of_dropped_and_invented_modes(kept, f8, f1_8):
    share = kept / 10
    all_modes, some = np.ones(10), (np.arange(10) < kept).astype(int)
    dropped, invented = histogram_curve(all_modes, some), histogram_curve(some, all_modes)
    assert dropped.f_score(8) == pytest.approx(65 / (1 + 64 / share), abs=1e-9)
    assert dropped.f_score(1 / 8) == pytest.approx(65 / 64 / (1 + 1 / (64 * share)), abs=1e-9)
    assert (dropped.f_score(8), dropped.f_score(1 / 8)) == pytest.approx((f8, f1_8), abs=6e-7)
    assert (invented.f_score(1 / 8), invented.f_score(8)) == pytest.approx(
        (dropped.f_score(8), dropped.f_score(1 / 8)), abs=1e-12
    )
    assert (dropped.max_precision, dropped.max_recall) == pytest.approx((1, share), abs=1e-12)
    assert (invented.max_precision, invented.max_recall) == pytest.approx((share, 1), abs=1e-12)


def test_curves_are_monotone_and_reproducible(rng):
    curve = histogram_curve(rng.integers(0, 9, 30), rng.integers(0, 9, 30))
    assert curve.slopes[0] == 0
    assert curve.slopes[-1] == np.inf
    assert (np.diff(curve.slopes) > 0).all()
    assert (np.diff(curve.precision) >= -1e-15).all()
    assert (np.diff(curve.recall) <= 1e-15).all()
    with pytest.raises(AttributeError):
        curve.precision = curve.recall
    with pytest.raises(ValueError, match="read-only"):
        curve.precision[0] = 1


def by_definition(of_reals, of_fakes, slopes):
    """Least weighted error over many weights, one by one, by the published rule."""
    (a, b), (c, d) = of_reals, of_fakes
    ratios = [f / r for r, f in zip([*a, *c], [*b, *d], strict=True) if r > 0]
    middles = np.convolve(np.unique([0, *ratios, 1, 1e6]), [0.5, 0.5], mode="valid")
    errors = [(1.0, 0.0), (0.0, 1.0)]
    for weight in {*ratios, *middles, 1e-6, 1e6, 1.0, 1 - 1e-9} - {0.0}:
        called = [
            weight * r > f if weight < 1 else weight * r >= f
            for r, f in ((np.array(a), np.array(b)), (np.array(c), np.array(d)))
        ]
        errors.append((1 - called[0].mean(), called[1].mean()))
    hit_real, hit_fake = np.mean(np.array(c) > 0), np.mean(np.array(b) > 0)
    errors += [(0.0, hit_real), (hit_fake, 0.0)]
    return np.array([min(slope * lost + passed for lost, passed in errors) for slope in slopes])


def random_votes(rng, count, high):
    return Votes(*(torch.from_numpy(rng.integers(0, high, count)) for _ in range(2)))


@pytest.mark.parametrize("high", [2, 4, 30])
def test_curve_equals_minimum_over_all_weights(high, rng):
    slopes = np.geomspace(0.01, 100, 41)
    for _ in range(10):
        of_reals, of_fakes = random_votes(rng, 23, high), random_votes(rng, 37, high)
        curve = classifier_curve(of_reals, of_fakes)
        lists = [[count.tolist() for count in side] for side in (of_reals, of_fakes)]
        expected = by_definition(*lists, slopes)
        assert precision_at(curve, slopes) == pytest.approx(expected, abs=1e-12)
        assert curve.recall[1:-1] == pytest.approx(curve.precision[1:-1] / curve.slopes[1:-1], abs=1e-15)


def test_swapping_the_sets_mirrors_the_curve(rng):
    of_reals, of_fakes = random_votes(rng, 50, 6), random_votes(rng, 31, 6)
    curve = classifier_curve(of_reals, of_fakes)
    mirrored = classifier_curve(Votes(*of_fakes[::-1]), Votes(*of_reals[::-1]))
    slopes = np.geomspace(0.01, 100, 41)
    expected = precision_at(curve, slopes)
    assert precision_at(mirrored, 1 / slopes) * slopes == pytest.approx(expected, abs=1e-12)
    assert mirrored.max_precision == pytest.approx(curve.max_recall, abs=1e-15)
    assert mirrored.f_score(8) == pytest.approx(curve.f_score(1 / 8), abs=1e-12)


@pytest.mark.parametrize("ties", ["closed", "strict"])
@pytest.mark.parametrize("case", ["off_center", "binary_grid_full_of_ties", "near_duplicates"])
def test_ends_of_a_curve_are_manifold_metrics(case, ties):
    real, fake = feature_cases.make(case)
    ipr = pr_curve(real, fake, k=3, ties=ties)
    assert (ipr.max_precision, ipr.max_recall) == precision_recall(real, fake, k=3, ties=ties)


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        ({"k": 0}, UsageError, "bad-k"),
        ({"ties": "open"}, UsageError, "bad-ties"),
        ({"k": 20}, FeatureError, "too-few"),
    ],
)
def test_invalid_options_are_errors(change, error, code, rng):
    with raising(error, code):
        pr_curve(*rng.normal(size=(2, 20, 3)), **{"k": 3, **change})


@pytest.mark.parametrize("beta", [0, -1, math.nan, math.inf])
def test_invalid_betas_are_errors(beta):
    with raising(UsageError, "bad-beta"):
        f_scores([1.0], [1.0], beta)
