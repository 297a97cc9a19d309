"""Images of a source with what should be in each: opened, matched by name, embedded, and scored."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.conditional.entities.expectations import Expectations
from genpr.conditional.recognition.matching import rows_of_images
from genpr.conditional.recognition.recogniser import EntityScorer, Recogniser
from genpr.features.embedded_source import SideFeatures
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide
from genpr.features.row_names import names_of, rows_in_source
from genpr.images.item import known_length


@dataclass(frozen=True)
class Labelled:
    """Embedded images in the order of what is expected in them.

    Attributes:
        asked: What is expected, of the images that could be used.
        features: Of the images, in the order of their source.
        scores: (n, E) float64, in the order of `asked`.
    """

    asked: Expectations
    features: FeatureSet
    scores: Tensor


def check_matched(opened: OpenedSide, asked: Expectations) -> None:
    """Refuse ids that are of no image, and images without an id, where names are known without reading images.

    Raises:
        DataError: There are some ("ids-do-not-match").
    """
    names = names_of(opened)
    if names is not None:
        rows_of_images(asked, names, _name_of(opened))


def scored(
    opened: OpenedSide, role: str, asked: Expectations, recogniser: Recogniser, score: EntityScorer
) -> Labelled:
    """Embed images and score entities in them.

    Args:
        opened: The images.
        role: What progress is called.
        asked: What is expected in each of them; of those that are left out, it is left out, too.
        recogniser: Embeds.
        score: Scores.

    Raises:
        DataError: Images cannot be used, or do not match.
        ResourceError: Weights, device or memory are missing.
    """
    side = SideFeatures(opened, role, recogniser.embedder, own=(recogniser.space,))
    side.require([recogniser.space], minimum=1)
    features = side[recogniser.space]
    used = [features.name_of(row) for row in range(len(features))]
    names = names_of(opened)
    total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
    if names is None:  # only now known, and then of all images that could be read
        names, places = used, list(range(len(used)))
    else:
        places = list(rows_in_source(opened, features, total))
    rows = rows_of_images(asked, names, _name_of(opened))
    # In the order of the expectations: pairs of results are drawn alike, whatever their images are called.
    wanted = [rows[place] for place in places]
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    return Labelled(
        asked.select([wanted[row] for row in order]), features, score(features)[torch.tensor(order)]
    )


def _name_of(opened: OpenedSide) -> str:
    return opened.source if isinstance(opened, FeatureSet) else opened.source.name
