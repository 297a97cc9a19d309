"""Which entities of a vocabulary are in images, without a language model: by a detector, or by CLIP without training.

What says which entities are in an image: any extractor with a text encoder, or a detector.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from genpr.conditional.vocabulary import Vocabulary
from genpr.errors import DataError, UsageError, some
from genpr.features.custom import adopt, load_own
from genpr.features.custom_text import CustomTextEncoder
from genpr.features.detecting import DetectingExtractor
from genpr.features.detectors import DETECTORS, Detector, load_detector
from genpr.features.embed import embed_source
from genpr.features.embedder import Embedder, Space
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.lookup import canonical_name
from genpr.features.text import check_has_text
from genpr.features.text_encoder import TextEncoder
from genpr.features.text_pairs import check_pair, is_own, text_encoder_for
from genpr.images.source import open_source
from genpr.metrics.presence import Calibration, zero_shot_scores

DETECTED = 0.3
"""Least score of a detection that counts, as in GenEval (Ghosh et al. 2023)."""

TEMPLATES = ("a photo of a {}.",)
"""Sentences around a name for CLIP."""


@dataclass(frozen=True)
class ZeroShot:
    """CLIP, or any pair of encoders into one space, as a recogniser of whatever has a name.

    Attributes:
        extractor: Of images, such as `genpr.load_extractor("clip-vit-l14")`.
        encode_text: Turns texts into (texts, d) embeddings of the same model.
        templates: Sentences around a name; their embeddings are averaged.
    """

    extractor: FeatureExtractor
    encode_text: Callable[[list[str]], Tensor]
    templates: tuple[str, ...] = TEMPLATES

    def texts(self, names: Sequence[str]) -> Tensor:
        """(names, d) embeddings, each of length 1."""
        return named_vectors(names, self.encode_text, self.templates)


def named_vectors(
    names: Sequence[str], encode_text: Callable[[list[str]], Tensor], templates: Sequence[str] = TEMPLATES
) -> Tensor:
    """The mean direction of sentences around each name, (names, d) float64 of length 1.

    Raises:
        DataError: The encoder gives NaN or zero ("bad-scores").
    """
    sentences = [template.format(name) for name in names for template in templates]
    encoded = torch.as_tensor(encode_text(sentences)).detach().cpu().double()
    lengths = encoded.norm(dim=1, keepdim=True)
    if not bool((lengths > 0).all()):
        raise DataError("the text encoder gave NaN or zero for a name", code="bad-scores")
    mean = (encoded / lengths).reshape(len(names), len(templates), -1).mean(dim=1)
    unit: Tensor = mean / mean.norm(dim=1, keepdim=True)
    return unit


@dataclass(frozen=True)
class EntitiesInImages:
    """What was recognised.

    Attributes:
        entities: Of the vocabulary, in its order.
        scores: (n, entities) float64, how surely each is in each image.
        present: (n, entities) bool.
        found: By name of the image, the entities in it; what `genpr.score_entities` takes as found.
    """

    entities: tuple[str, ...]
    scores: Tensor
    present: Tensor
    found: Mapping[str, tuple[str, ...]]


def found_entities(
    source: object,
    vocabulary: Vocabulary,
    how: Detector | ZeroShot,
    *,
    thresholds: float | Calibration | None = None,
    batch_size: int = 16,
    progress: Callable[[int, int | None], None] | None = None,
) -> EntitiesInImages:
    """Recognise the entities of a vocabulary in images.

    Args:
        source: What `genpr.score` takes as images.
        vocabulary: What to look for. A detector must have a class for each, by name or alias.
        how: A detector, such as `genpr.load_detector()`, or a pair of encoders.
        thresholds: The least score that counts: one number, or from `genpr.metrics.presence.calibrate`, for entities in the
            order of the vocabulary. None is 0.3 for detectors; cosines have no such number, and need a calibration.
        batch_size: Images at once, for a pair of encoders; a detector sees them one by one.
        progress: Called with the number of images done and the total (None if unknown).

    Raises:
        UsageError: There is no such source, thresholds are missing ("no-thresholds"), or the detector has no class for an
            entity ("unseen-entities"): it would be missed in every image.
        BadImagesError: Images cannot be used.
        DataError: Two images have one name ("duplicate-ids").
    """
    if thresholds is None and isinstance(how, ZeroShot):
        raise UsageError(
            "similarities of images and names have no natural threshold; calibrate one on images of which it is known what "
            "they show (genpr.metrics.presence.calibrate)",
            code="no-thresholds",
        )
    names, scores = presence_scores(source, vocabulary, how, batch_size=batch_size, progress=progress)
    if len(set(names)) < len(names):
        raise DataError(
            "two images have the same name, so answers about them cannot be told apart", code="duplicate-ids"
        )
    if isinstance(thresholds, Calibration):
        present = thresholds.present(scores)
    else:
        present = scores >= (DETECTED if thresholds is None else thresholds)
    entities = vocabulary.entities
    found = {
        name: tuple(entity for entity, is_there in zip(entities, row, strict=True) if is_there)
        for name, row in zip(names, present.tolist(), strict=True)
    }
    return EntitiesInImages(entities, scores, present, found)


def presence_scores(
    source: object,
    vocabulary: Vocabulary,
    how: Detector | ZeroShot,
    *,
    batch_size: int = 16,
    progress: Callable[[int, int | None], None] | None = None,
) -> tuple[tuple[str, ...], Tensor]:
    """Names of the images, and how surely each entity is in each: (n, entities) float64, to be calibrated.

    Raises:
        UsageError, BadImagesError: As `found_entities`.
    """
    opened = open_source(source)
    if isinstance(how, ZeroShot):
        texts = how.texts(vocabulary.entities)
        images = embed_source(opened, how.extractor, batch_size=batch_size, progress=progress)
        return tuple(images.names), zero_shot_scores(images.features, texts)
    columns = classes_of(vocabulary, how.names)
    detecting = DetectingExtractor(how, name=str(getattr(how, "name", type(how).__name__)))
    # One at a time: a detector may make the images of a batch equally large, which moves scores.
    images = embed_source(opened, detecting, batch_size=1, progress=progress)
    return tuple(images.names), of_classes(images.features.double(), columns)


def of_classes(scores: Tensor, classes: Sequence[Sequence[int]]) -> Tensor:
    """Scores of entities, (n, E), from those of a detector's classes: the best, where an entity is several of them."""
    return torch.stack([scores[:, list(each)].amax(dim=1) for each in classes], dim=1)


def named_in(prompts: Iterable[str], vocabulary: Vocabulary) -> Tensor:
    """Which entities prompts name, (prompts, entities) bool: what images made from them should show."""
    found = [set(vocabulary.find(prompt)) for prompt in prompts]
    rows = [[entity in each for entity in vocabulary.entities] for each in found]
    return torch.tensor(rows, dtype=torch.bool).reshape(len(rows), len(vocabulary))


def classes_of(vocabulary: Vocabulary, classes: Sequence[str]) -> list[list[int]]:
    """The places of the classes of a detector that each entity is, such as those of couch and sofa.

    Raises:
        UsageError: There is none for an entity ("unseen-entities"): it would be missed in every image.
    """
    places: dict[str, list[int]] = {entity: [] for entity in vocabulary.entities}
    for place, name in enumerate(classes):
        entity = vocabulary.canonical(name)
        if entity is not None:
            places[entity].append(place)
    if unseen := [entity for entity, found in places.items() if not found]:
        raise UsageError(
            f"the detector has no class for {len(unseen):,} of {len(places):,} entities ({some(unseen)}); it knows "
            f"{some(list(classes), 5)}. Leave them out of the vocabulary, or give a class as their alias",
            code="unseen-entities",
        )
    return list(places.values())


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
