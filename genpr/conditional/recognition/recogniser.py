"""What says which entities are in an image: any extractor with a text encoder, or a detector."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from torch import Tensor

from genpr.conditional.entities.vocabulary import Vocabulary
from genpr.conditional.entity_scores.in_images import (
    TEMPLATES,
    ZeroShot,
    classes_of,
    named_vectors,
    of_classes,
)
from genpr.errors import UsageError
from genpr.features.custom import adopt, load_own
from genpr.features.custom_text import CustomTextEncoder
from genpr.features.detecting import DetectingExtractor
from genpr.features.detectors import DETECTORS, Detector, load_detector
from genpr.features.embedder import Embedder, Space
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.lookup import canonical_name
from genpr.features.text import check_has_text
from genpr.features.text_encoder import TextEncoder
from genpr.features.text_pairs import check_pair, is_own, text_encoder_for
from genpr.metrics.entity.presence import zero_shot_scores

By = str | Detector | FeatureExtractor | ZeroShot
"""What recognises entities, as users name or give it."""

CLIP = "clip-vit-b-32"
"""What "clip" stands for."""


@dataclass(frozen=True)
class Recogniser:
    """Scores of entities in images.

    Attributes:
        name: Of the extractor or detector.
        space: What images are embedded with.
        classes: Of a detector; None for a pair of encoders, which knows whatever has a name.
        embedder: How images are embedded with it.
        encoder: Of texts; None for one that belongs to `space`.
        templates: Sentences around the names, for a pair of encoders.
    """

    name: str
    space: Space
    classes: tuple[str, ...] | None
    embedder: Embedder
    encoder: TextEncoder | None = None
    templates: tuple[str, ...] = TEMPLATES

    @property
    def is_detector(self) -> bool:
        """Whether it knows its own classes and no others."""
        return self.classes is not None

    def for_entities(self, vocabulary: Vocabulary) -> EntityScorer:
        """What scores the entities of a vocabulary; loads the text encoder.

        Raises:
            UsageError: A detector has no class for one ("unseen-entities").
            WeightsError: The weights of the text encoder are missing.
            DataError: The text encoder gives no direction for a name.
        """
        if self.classes is not None:
            return EntityScorer(classes=classes_of(vocabulary, self.classes))
        encoder = self.encoder or text_encoder_for(self.space, self.embedder)
        vectors = named_vectors(vocabulary.entities, encoder.encode_text, self.templates)
        return EntityScorer(vectors=vectors, encoder=encoder, entities=vocabulary.entities)


@dataclass(frozen=True)
class EntityScorer:
    """Turns features into scores of entities; of the two ways one is given.

    Attributes:
        classes: Per entity, columns of a detector's scores.
        vectors: (E, d) of the entities' names.
        encoder: What they are made by.
        entities: Their names.
    """

    classes: Sequence[Sequence[int]] | None = None
    vectors: Tensor | None = None
    encoder: TextEncoder | None = None
    entities: Sequence[str] = ()

    def __call__(self, features: FeatureSet) -> Tensor:
        """Scores, float64 (n, E).

        Raises:
            FeatureError: The features are of other weights, or have no direction.
        """
        if self.classes is not None:
            return of_classes(features.features.double(), self.classes)
        assert self.vectors is not None
        assert self.encoder is not None
        check_pair(features, self.encoder, self.vectors, self.entities)
        return zero_shot_scores(features.features, self.vectors)


def load_recogniser(by: By, embedder: Embedder) -> Recogniser:
    """What recognises entities, by its name or from an object.

    Args:
        by: "clip"; a CLIP model; a detector of torchvision; a user's "path/to/file.py:factory", whose object is a pair of
            encoders if it has `encode_text`, and else a detector; or such an object.
        embedder: How it is loaded and run.

    Raises:
        UsageError: It is nothing of the kind.
        WeightsError: The weights of a detector are missing. Those of encoders are looked for when they are needed.
    """
    if isinstance(by, ZeroShot):
        extractor = adopt(by.extractor)
        own = CustomTextEncoder(extractor, by)
        return Recogniser(extractor.name, extractor, None, embedder, own, by.templates)
    if not isinstance(by, str):
        return _of_object(by, type(by).__name__, embedder)
    if by in DETECTORS:
        loaded = load_detector(by, weights=embedder.weights, device=embedder.device, offline=embedder.offline)
        return _detecting(DetectingExtractor(loaded, name=by), embedder)
    name = CLIP if by == "clip" else by
    _check_known(name)
    if is_own(name):
        return _of_object(name, name, embedder)
    name = canonical_name(name)
    return Recogniser(name, name, None, embedder)


def _check_known(name: str) -> None:
    """Refuse a name before anything is loaded."""
    try:
        check_has_text(name)
    except UsageError as error:
        raise UsageError(
            f"{name!r} recognises no entities; needed is a model that embeds texts, too (clip, clip-vit-l-14, "
            f"open_clip:MODEL:PRETRAINED), a detector ({', '.join(DETECTORS)}), or path/to/file.py:factory",
            code=error.code,
        ) from error


def _of_object(by: object, name: str, embedder: Embedder) -> Recogniser:
    """A user's own object, or the place of its factory."""
    if embedder.weights is not None and not Path(embedder.weights).is_dir():
        raise UsageError(
            f"weights {os.fspath(embedder.weights)!r} were given, but recogniser {name!r} takes no weights file",
            code="weights-unused",
        )
    code = None
    if isinstance(by, str):
        by, code = load_own(by, kind="recogniser", device=embedder.device)
    owner = getattr(by, "wrapped", by)
    if callable(getattr(owner, "encode_text", None)):
        extractor = adopt(by, name=name, code=code)
        return Recogniser(extractor.name, extractor, None, embedder)
    own_name = getattr(by, "name", None)
    detector = cast("Detector", by)  # checked next
    shown = own_name if isinstance(own_name, str) else name
    return _detecting(DetectingExtractor(detector, name=shown, code=code), embedder)


def _detecting(extractor: DetectingExtractor, embedder: Embedder) -> Recogniser:
    return Recogniser(extractor.name, extractor, extractor.names, replace(embedder, batch_size=1))
