"""Fakes that were embedded before, against reals that are images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import genpr
from genpr.errors import DataError
from genpr.features.feature_set import FeatureSet


@pytest.fixture(scope="module")
def sides():
    return np.random.default_rng(0).integers(0, 256, (2, 40, 16, 16, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def evaluator(sides):
    return genpr.Evaluator(sides[0], extractor="pixels", control=False, device="cpu")


def embedded(sides, name):
    extractor = genpr.load_extractor(name)
    features = extractor(torch.from_numpy(sides[1]).permute(0, 3, 1, 2))
    return features, genpr.score(sides[0], sides[1], extractor=name, control=False, device="cpu").extractor


def test_labeled_features_score_as_their_images_do(sides, evaluator):
    features, info = embedded(sides, "pixels")
    found = evaluator.score(FeatureSet(features, "fakes", info))
    assert found.to_flat_dict() == evaluator.score(sides[1]).to_flat_dict()


def test_features_of_nobody_knows_what_are_refused(sides, evaluator):
    features, _ = embedded(sides, "pixels")
    with pytest.raises(DataError, match="images"):
        evaluator.score(FeatureSet(features, "fakes", None))


def test_features_of_another_extractor_are_refused(sides, evaluator):
    features, info = embedded(sides, "gabor")
    with pytest.raises(DataError, match="gabor"):
        evaluator.score(FeatureSet(features, "fakes", info))
