"""Precision-recall curves: closed forms, the definition by brute force, and samples near the truth."""

from __future__ import annotations

import math

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from scipy.integrate import trapezoid
from scipy.stats import norm

from genpr.errors import FeatureError, UsageError
from genpr.metrics.curves import (
    Votes,
    classifier_curve,
    curve_of_errors,
    f_scores,
    pr_curve,
    random_halves,
    votes_of,
)
from genpr.metrics.manifold import precision_recall

CLASSIFIERS = ("ipr", "knn")


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


def test_equal_histograms_reach_both_ones():
    curve = histogram_curve([0.2, 0.3, 0.5], [2, 3, 5])
    assert precision_at(curve, 1.0) == pytest.approx(1, abs=1e-12)
    assert (curve.max_precision, curve.max_recall) == pytest.approx((1, 1), abs=1e-12)
    assert [curve.f_score(8), curve.f_score(1 / 8), curve.f_score(), curve.area()] == pytest.approx(
        [1, 1, 1, 1], abs=1e-12
    )


def test_disjoint_histograms_have_nothing():
    curve = histogram_curve([1, 2, 0, 0], [0, 0, 3, 1])
    assert not curve.precision.any()
    assert not curve.recall.any()
    assert [curve.f_score(8), curve.f_score(1 / 8), curve.area()] == [0, 0, 0]


def test_half_of_the_fakes_on_the_only_mode():
    curve = histogram_curve([1, 0], [0.5, 0.5])
    assert precision_at(curve, 1.0) == pytest.approx(0.5, abs=1e-12)
    assert (curve.max_precision, curve.max_recall) == (0.5, 1.0)


def test_published_f_scores():
    precision, recall = [1, 1, 0, 0, 0.5, 1, 0.5], [1, 0, 1, 0, 0.5, 0.5, 1]
    assert f_scores(precision, recall) == pytest.approx([1, 0, 0, 0, 0.5, 2 / 3, 2 / 3], abs=1e-15)
    assert f_scores(precision, recall, 2) == pytest.approx([1, 0, 0, 0, 0.5, 5 / 9, 5 / 6], abs=1e-15)
    assert f_scores(precision, recall, 0.5) == pytest.approx([1, 0, 0, 0, 0.5, 5 / 6, 5 / 9], abs=1e-15)


@pytest.mark.parametrize(
    ("kept", "f8", "f1_8"), [(5, 0.503876, 0.984848), (1, 0.101404, 0.878378), (9, 0.901387, 0.998294)]
)
def test_dropped_and_invented_modes(kept, f8, f1_8):
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
    assert dropped.area() == pytest.approx(share, abs=1e-9)
    # Angles without the knots, as published, come short of the maximum.
    slopes = np.tan(np.linspace(1e-10, np.pi / 2 - 1e-10, 1001))
    precision = np.minimum(slopes * share, 1)
    on_grid = f_scores(precision, precision / slopes, 8).max()
    assert on_grid <= dropped.f_score(8) + 1e-12
    assert on_grid == pytest.approx(dropped.f_score(8), abs=1e-3)


def gaussian_precision(slope, shift):
    """Precision of N(shift, 1) with respect to N(0, 1) at a slope."""
    t = np.log(slope) / shift + shift / 2
    return slope * norm.cdf(-t) + norm.cdf(t - shift)


@pytest.mark.parametrize("shift", [1.0, 2.5])
def test_gaussian_histograms_have_the_curve_of_gaussians(shift):
    edges = np.concatenate([[-np.inf], np.linspace(-8, 8 + shift, 6000), [np.inf]])
    curve = histogram_curve(np.diff(norm.cdf(edges)), np.diff(norm.cdf(edges, shift)))
    slopes = np.geomspace(1e-3, 1e3, 50)
    assert precision_at(curve, slopes) == pytest.approx(gaussian_precision(slopes, shift), abs=1e-5)
    assert precision_at(curve, 1.0) == pytest.approx(2 * norm.cdf(-shift / 2), abs=1e-5)
    assert curve.f_score(8) == pytest.approx(curve.f_score(1 / 8), abs=1e-6)
    fine = np.geomspace(1e-6, 1e6, 200_001)
    precision = gaussian_precision(fine, shift)
    assert curve.area() == pytest.approx(-trapezoid(precision, precision / fine), abs=1e-4)
    if shift == 1:
        assert precision_at(curve, 1.0) == pytest.approx(0.617075, abs=1e-5)
        assert curve.f_score(8) == pytest.approx(0.899149, abs=1e-5)


def test_curves_are_ordered_and_fixed(rng):
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


def by_definition(of_reals, of_fakes, slopes, leave_one_out):
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
    if leave_one_out:
        errors += [(0.0, hit_real), (hit_fake, 0.0)]
    else:
        errors += [(1 - np.mean(np.array(a) > 0), hit_real), (hit_fake, 1 - np.mean(np.array(d) > 0))]
    return np.array([min(slope * lost + passed for lost, passed in errors) for slope in slopes])


def random_votes(rng, count, high):
    return Votes(*(torch.from_numpy(rng.integers(0, high, count)) for _ in range(2)))


@pytest.mark.parametrize("leave_one_out", [True, False])
@pytest.mark.parametrize("high", [2, 4, 30])
def test_every_weight_is_tried(high, leave_one_out, rng):
    slopes = np.geomspace(0.01, 100, 41)
    for _ in range(10):
        of_reals, of_fakes = random_votes(rng, 23, high), random_votes(rng, 37, high)
        curve = classifier_curve(of_reals, of_fakes, leave_one_out=leave_one_out)
        lists = [[count.tolist() for count in side] for side in (of_reals, of_fakes)]
        expected = by_definition(*lists, slopes, leave_one_out)
        assert precision_at(curve, slopes) == pytest.approx(expected, abs=1e-12)
        assert curve.recall[1:-1] == pytest.approx(curve.precision[1:-1] / curve.slopes[1:-1], abs=1e-15)


def test_no_weight_tells_equal_votes_from_no_votes():
    reals = Votes(torch.ones(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64))
    fakes = Votes(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 5, 5]))
    for leave_one_out in (True, False):
        assert precision_at(classifier_curve(reals, fakes, leave_one_out=leave_one_out), 1.0) == 0.5


def test_swapping_the_sets_mirrors_the_curve(rng):
    of_reals, of_fakes = random_votes(rng, 50, 6), random_votes(rng, 31, 6)
    for leave_one_out in (True, False):
        curve = classifier_curve(of_reals, of_fakes, leave_one_out=leave_one_out)
        mirrored = classifier_curve(
            Votes(of_fakes.fake, of_fakes.real),
            Votes(of_reals.fake, of_reals.real),
            leave_one_out=leave_one_out,
        )
        slopes = np.geomspace(0.01, 100, 41)
        assert precision_at(mirrored, 1 / slopes) * slopes == pytest.approx(
            precision_at(curve, slopes), abs=1e-12
        )
        assert mirrored.max_precision == pytest.approx(curve.max_recall, abs=1e-15)
        assert mirrored.f_score(8) == pytest.approx(curve.f_score(1 / 8), abs=1e-12)


@pytest.mark.parametrize("ties", ["closed", "strict"])
@pytest.mark.parametrize("case", ["off_center", "binary_grid_full_of_ties", "near_duplicates"])
def test_ends_without_a_split_are_manifold_metrics(case, ties):
    real, fake = feature_cases.make(case)
    ipr = pr_curve(real, fake, k=3, split=False, ties=ties)
    assert (ipr.max_precision, ipr.max_recall) == precision_recall(real, fake, k=3, ties=ties)


def votes_by_definition(classifier, voters, point, own, k, ties, ball_sq_radii):
    """Real and fake votes on one point; `own` is (kind, row) of the point among the voters, or None."""
    sq = [oracle.sq_distances(point[None], side)[0] for side in voters]
    radii = list(ball_sq_radii)
    if own is not None:
        sq[own[0]] = np.delete(sq[own[0]], own[1])
        radii[own[0]] = np.delete(radii[own[0]], own[1])
    if classifier == "knn":
        radii = [np.sort(np.concatenate(sq))[k - 1]] * 2
    return [
        int((s <= r).sum() if ties == "closed" else (s < r).sum()) for s, r in zip(sq, radii, strict=True)
    ]


def all_votes_by_definition(classifier, voters, judged, own, k, ties):
    """For the judged reals and the judged fakes, the pair of votes on each point."""
    radii = [oracle.kth_sq_distances(side, [k])[0] for side in voters]
    return [
        [
            votes_by_definition(classifier, voters, point, (kind, row) if own else None, k, ties, radii)
            for row, point in enumerate(points)
        ]
        for kind, points in enumerate(judged)
    ]


def _small(case):
    real, fake = feature_cases.make(case)
    return real[:40].astype(np.float32), fake[:29].astype(np.float32)


@pytest.mark.parametrize("ties", ["closed", "strict"])
@pytest.mark.parametrize("classifier", CLASSIFIERS)
@pytest.mark.parametrize(
    "case", ["off_center", "binary_grid_full_of_ties", "near_duplicates", "tight_clumps"]
)
def test_votes_are_the_definition(case, classifier, ties):
    real, fake = _small(case)
    own, held_out = (real, fake), (real[20:], fake[15:])
    for voters, judged in ((own, own), ((real[:20], fake[:15]), held_out)):
        is_own = judged is own
        tensors = [tuple(map(torch.from_numpy, sets)) for sets in (voters, judged)]
        queries = tensors[0] if is_own else tensors[1]
        votes = votes_of(tensors[0], queries, k=3, classifier=classifier, ties=ties)
        lists = [torch.stack(side, dim=1).tolist() for side in votes]
        assert lists == all_votes_by_definition(classifier, voters, judged, is_own, 3, ties)


def test_halves_are_all_rows_once(rng):
    features = torch.arange(21.0)[:, None]
    first, second = random_halves(features, rng)
    assert (len(first), len(second)) == (10, 11)
    assert sorted(torch.cat([first, second])[:, 0].tolist()) == list(range(21))
    assert first[:, 0].tolist() != list(range(10))


def test_the_split_follows_the_seed(rng):
    real, fake = rng.normal(size=(80, 3)), rng.normal(0.5, 1, (70, 3))
    curves = [pr_curve(real, fake, k=5, classifier="knn", seed=seed) for seed in (0, 0, 1)]
    assert (curves[0].precision[1:-1] == precision_at(curves[1], curves[0].slopes[1:-1])).all()
    assert curves[0].area() != curves[2].area()
    whole = pr_curve(real, fake, k=5, classifier="knn", split=False)
    assert whole.area() != curves[0].area()


@pytest.mark.parametrize("split", [True, False])
def test_samples_of_gaussians_come_near_their_curve(split, rng):
    real, fake = rng.normal(size=(1200, 1)), rng.normal(1, 1, (900, 1))
    curve = pr_curve(real, fake, k=40, classifier="knn", split=split)
    slopes = np.tan(np.linspace(0.05, np.pi / 2 - 0.05, 30))
    truth = gaussian_precision(slopes, 1.0)
    shares = np.maximum(1, slopes)  # an error of precision above slope 1 is one of recall below
    assert np.abs((precision_at(curve, slopes) - truth) / shares).max() < 0.05


def test_counts_of_balls_see_supports_and_not_weights(rng):
    real, fake = rng.normal(size=(1500, 1)), rng.normal(1, 1, (1000, 1))
    assert precision_at(pr_curve(real, fake, k=40), 1.0) > gaussian_precision(1.0, 1.0) + 0.15


@pytest.mark.parametrize(("split", "tolerance"), [(False, 0.01), (True, 0.04)])
@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_samples_with_dropped_modes_come_near_their_curve(classifier, split, tolerance, rng):
    modes = 100 * np.array([1, 0])
    real = np.arange(1000)[:, None] % 4 * modes + rng.normal(size=(1000, 2))
    fake = np.arange(800)[:, None] % 2 * modes + rng.normal(size=(800, 2))
    curve = pr_curve(real, fake, k=25, classifier=classifier, split=split)
    assert precision_at(curve, 1.0) == pytest.approx(0.5, abs=tolerance)
    assert curve.f_score(8) == pytest.approx(0.503876, abs=tolerance)
    assert curve.f_score(1 / 8) == pytest.approx(0.984848, abs=0.05)
    mirrored = pr_curve(fake, real, k=25, classifier=classifier, split=split)
    assert mirrored.f_score(1 / 8) == pytest.approx(0.503876, abs=tolerance)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_a_perfect_generator_comes_near_one(classifier, rng):
    curve = pr_curve(*rng.normal(size=(2, 1000, 2)), k=30, classifier=classifier)
    assert precision_at(curve, 1.0) > 0.9
    assert min(curve.f_score(8), curve.f_score(1 / 8)) > 0.97


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        ({"k": 0}, UsageError, "bad-k"),
        ({"ties": "open"}, UsageError, "bad-ties"),
        ({"classifier": "parzen"}, UsageError, "bad-option"),
        ({"classifier": ["ipr"]}, UsageError, "bad-option"),
        ({"seed": -1}, UsageError, "bad-option"),
        ({"k": 10}, FeatureError, "too-few"),
        ({"k": 20, "split": False}, FeatureError, "too-few"),
    ],
)
def test_impossible_options_are_refused(change, error, code, rng):
    with pytest.raises(error) as caught:
        pr_curve(*rng.normal(size=(2, 20, 3)), **{"k": 3, **change})
    assert caught.value.code == code


def test_the_largest_k_works(rng):
    real, fake = rng.normal(size=(2, 20, 3))
    for classifier in CLASSIFIERS:
        assert 0 <= pr_curve(real, fake, k=9, classifier=classifier).area() <= 1
        assert 0 <= pr_curve(real, fake, k=19, classifier=classifier, split=False).area() <= 1


@pytest.mark.parametrize("beta", [0, -1, math.nan, math.inf])
def test_other_betas_are_refused(beta):
    with pytest.raises(UsageError) as caught:
        f_scores([1.0], [1.0], beta)
    assert caught.value.code == "bad-beta"
