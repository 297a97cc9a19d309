"""Definitions of the terms on pages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

GLOSSARY: Mapping[str, str] = MappingProxyType(
    {
        "fidelity": "How realistic the generated images are.",
        "diversity": "How much of the variety of the real images is generated.",
        "calibrated": (
            "Divided by the value of a perfect generator: 1 is as good as real images. Scores of a perfect generator scatter "
            "around 1. A value clearly above 1 is a sign of shrinkage, copies or an outlier."
        ),
        "real ball": "The ball around a real image that reaches its k-th nearest other real image, in feature space.",
        "real manifold": "The union of all real balls, an estimate of the region of real images in feature space.",
        "perfect generator": (
            "The expected value if the generated images were new real images, for the same numbers of images. It is below 1 for "
            "most metrics. Scores of a perfect generator scatter around it. A value clearly above it is a sign of shrinkage, copies "
            "or an outlier. In JSON: metrics.NAME.null."
        ),
        "of perfect": "The value divided by that of a perfect generator.",
        "95 % interval": (
            "Confidence interval for the finite numbers of images, estimated from random halves of both sets. A dash: no "
            "valid interval is known."
        ),
        "k": "The number of nearest neighbors that sets the radius of each ball.",
        "real v. real": (
            "Control: the metric of one half of the real images against the other half. In parentheses: the value of a "
            "perfect generator for halves."
        ),
        "chance": "The expected value of random guessing.",
        "pool": "The number of candidates that each item is ranked among.",
        "F1": "The harmonic mean of precision and recall.",
        "Pareto front": "The results that no other result exceeds in both precision and recall.",
        "realism": (
            "How close a generated image is to the real images, relative to the radii of their balls. It is 1 at the edge of the "
            "real manifold and less outside."
        ),
        "mode": "A group of similar images, found by clustering.",
        "protocol": "A named set of choices: features, metrics, k and numbers of images.",
        "settings hash": (
            "A hash of all settings that affect the values: metrics, features, resize rule, k and others, but not the images. "
            "Scores with the same hash were computed with the same settings. In JSON: fingerprint."
        ),
    }
)
"""Definitions by term."""
