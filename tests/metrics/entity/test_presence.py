"""Thresholds for scores of entities in images."""

import numpy as np
import pytest
import torch

from genpr import DataError
from genpr.metrics.presence import calibrate


def cases(rng, n=400, offsets=(0.0, 3.0, -5.0), gap=3.0):
    """Cosine-like scores: each entity has a level of its own, and is `gap` higher where it is there."""
    present = rng.random((n, len(offsets))) < 0.4
    scores = rng.normal(size=present.shape) + np.array(offsets) + gap * present
    return torch.tensor(scores), torch.tensor(present)


def test_each_entity_gets_its_own_threshold(rng):
    scores, present = cases(rng, n=2_000)
    found = calibrate(scores, present)
    assert found.is_own.all()
    assert found.thresholds.numpy() == pytest.approx(np.array([1.5, 4.5, -3.5]), abs=0.6)
    ideal = 0.933  # of two normals 3 apart, split midway
    assert found.sensitivity.numpy() == pytest.approx(ideal, abs=0.06)
    assert found.false_positive_rate.numpy() == pytest.approx(1 - ideal, abs=0.06)
    fresh, truth = cases(np.random.default_rng(5), n=4_000)
    assert ((fresh >= found.thresholds) == truth).double().mean() > 0.91


def balanced(scores, present, threshold):
    return float(
        (scores[present] >= threshold).double().mean() + (scores[~present] < threshold).double().mean()
    )


@pytest.mark.parametrize("seed", range(5))
def test_balanced_accuracy_is_the_largest(seed):
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.integers(0, 12, size=(60, 1)).astype(float))  # with ties
    present = torch.tensor(rng.random((60, 1)) < 0.3)
    threshold = float(calibrate(scores, present).thresholds[0])
    best = max(balanced(scores, present, level) for level in np.arange(-0.5, 12.5, 0.5))
    assert balanced(scores, present, threshold) == pytest.approx(best)


def test_entities_with_few_examples_share_a_threshold(rng):
    scores, present = cases(rng, offsets=(0.0, 0.0, 0.0))
    present[:, 2] = False
    present[:3, 2] = True
    found = calibrate(scores, present)
    assert found.is_own.tolist() == [True, True, False]
    assert balanced(scores, present, float(found.thresholds[2])) == pytest.approx(
        max(balanced(scores, present, level) for level in scores.unique().tolist())
    )


@pytest.mark.parametrize("rare", [9, 10])
@pytest.mark.parametrize("kind", [True, False])
def test_ten_examples_of_each_kind_are_enough_for_an_own_threshold(rare, kind):
    present = torch.stack([torch.arange(40) % 2 == 0, (torch.arange(40) < rare) == kind], dim=1)
    assert calibrate(present.double(), present).is_own.tolist() == [True, rare == 10]


def test_rates_are_measured_on_other_images():
    """Noise says nothing: in-sample thresholds would look better than guessing."""
    rng = np.random.default_rng(0)
    accuracies = []
    for _ in range(30):
        found = calibrate(torch.tensor(rng.normal(size=(30, 1))), torch.arange(30)[:, None] % 2 == 0)
        accuracies.append(float(found.sensitivity[0] + 1 - found.false_positive_rate[0]) / 2)
    assert np.mean(accuracies) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(("value", "code"), [(torch.nan, "bad-scores"), (0.0, "no-thresholds")])
def test_impossible_input_is_refused(value, code):
    with pytest.raises(DataError) as caught:
        calibrate(torch.full((3, 2), value), torch.zeros(3, 2, dtype=torch.bool))
    assert caught.value.code == code
