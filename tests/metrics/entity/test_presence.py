"""Thresholds for scores of entities in images."""

import numpy as np
import pytest
import torch

from genpr import DataError, UsageError
from genpr.metrics.presence import calibrate, zero_shot_scores


def cases(rng, n=400, offsets=(0.0, 3.0, -5.0), gap=3.0):
    """Cosine-like scores: each entity has a level of its own, and is `gap` higher where it is there."""
    present = rng.random((n, len(offsets))) < 0.4
    return rng.normal(size=present.shape) + np.array(offsets) + gap * present, present


def test_each_entity_gets_its_own_threshold(rng):
    scores, present = cases(rng, n=2_000)
    found = calibrate(scores, present)
    assert found.is_own.all()
    assert found.thresholds.numpy() == pytest.approx(np.array([1.5, 4.5, -3.5]), abs=0.6)
    ideal = 0.933  # of two normals 3 apart, split midway
    assert found.sensitivity.numpy() == pytest.approx(ideal, abs=0.06)
    assert found.false_positive_rate.numpy() == pytest.approx(1 - ideal, abs=0.06)
    fresh, truth = cases(np.random.default_rng(5), n=4_000)
    assert (found.present(fresh).numpy() == truth).mean() > 0.91


def balanced(scores, present, threshold):
    return (scores[present] >= threshold).mean() + (scores[~present] < threshold).mean()


@pytest.mark.parametrize("seed", range(5))
def test_balanced_accuracy_is_the_largest(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 12, size=(60, 1)).astype(float)  # with ties
    present = rng.random((60, 1)) < 0.3
    threshold = float(calibrate(scores, present).thresholds[0])
    best = max(balanced(scores, present, level) for level in np.arange(-0.5, 12.5, 0.5))
    assert balanced(scores, present, threshold) == pytest.approx(best)


def test_false_positives_are_as_rare_as_stated(rng):
    scores, present = cases(rng, n=1_000)
    found = calibrate(scores, present, false_positive_rate=0.05)
    passed = [(scores[~present[:, e], e] >= float(found.thresholds[e])).mean() for e in range(3)]
    assert max(passed) <= 0.05
    assert min(passed) > 0.04
    assert found.false_positive_rate.numpy() == pytest.approx(0.05, abs=0.03)


def test_images_without_any_entity_are_enough_for_a_rate(rng):
    scores = rng.normal(size=(200, 2)) + np.array([0, 10])
    found = calibrate(scores, None, false_positive_rate=0.1)
    assert found.is_own.all()
    assert found.thresholds.numpy() == pytest.approx([1.28, 11.28], abs=0.4)
    assert found.sensitivity.isnan().all()


def test_entities_with_few_examples_share_a_threshold(rng):
    scores, present = cases(rng, offsets=(0.0, 0.0, 0.0))
    present[:, 2] = False
    present[:3, 2] = True
    found = calibrate(scores, present)
    assert found.is_own.tolist() == [True, True, False]
    assert float(found.thresholds[2]) == found.shared
    assert found.n_with.tolist()[2] == 3


def test_rates_are_measured_on_other_images():
    """Noise says nothing: in-sample thresholds would look better than guessing."""
    rng = np.random.default_rng(0)
    accuracies = []
    for _ in range(30):
        found = calibrate(rng.normal(size=(30, 1)), np.arange(30)[:, None] % 2 == 0)
        accuracies.append(float(found.sensitivity[0] + 1 - found.false_positive_rate[0]) / 2)
    assert np.mean(accuracies) == pytest.approx(0.5, abs=0.06)


def test_cosines():
    found = zero_shot_scores(np.array([[2.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 3.0]]))
    assert found.numpy() == pytest.approx(np.array([[0.0], [0.5**0.5]]))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: calibrate(np.zeros((3, 2)), np.zeros((3, 1), bool)), DataError),
        (lambda: calibrate(np.full((3, 2), np.nan), np.zeros((3, 2), bool)), DataError),
        (lambda: calibrate(np.zeros(3), np.zeros(3, bool)), DataError),
        (lambda: calibrate(np.zeros((3, 1)), np.zeros((3, 1), bool)), DataError),
        (lambda: calibrate(np.zeros((3, 1)), np.ones((3, 1), bool), false_positive_rate=0.1), DataError),
        (lambda: calibrate(np.zeros((3, 1)), None), UsageError),
        (lambda: calibrate(np.zeros((3, 1)), None, false_positive_rate=1.0), UsageError),
        (lambda: zero_shot_scores(np.zeros((2, 3)), np.ones((2, 3))), DataError),
        (lambda: zero_shot_scores(np.ones((2, 3)), np.ones((2, 4))), DataError),
        (lambda: calibrate(np.eye(4), np.eye(4, dtype=bool), least=1).present(np.zeros((2, 3))), DataError),
    ],
    ids=range(10),
)
def test_impossible_input_is_refused(call, error):
    with pytest.raises(error):
        call()
