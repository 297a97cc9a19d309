"""Feature files as extractors of any kind would have written them."""

from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet, save_features


def save(path, features, **info):
    facts = {
        "name": "gabor",
        "dim": features.shape[1],
        "resize": "r",
        "weights_sha256": None,
        "comparable": False,
        "cache_key": None,
    } | info
    save_features(path, FeatureSet(features, str(path), ExtractorInfo(**facts)))
    return path
