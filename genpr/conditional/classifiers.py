"""What finds the entities of a vocabulary in images: detectors, and pairs of image and text encoders (zero-shot)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from genpr.conditional.vocabulary import Vocabulary
from genpr.distributed import current_communicator
from genpr.errors import DataError, UsageError, some
from genpr.features.custom import load_user_object, wrap_extractor
from genpr.features.detectors import DETECTORS, DetectingExtractor, Detector, load_detector
from genpr.features.embed import embed_source
from genpr.features.extractor import FeatureExtractor, TextEncoder
from genpr.features.feature_set import FeatureSet
from genpr.features.registry import canonical_name, check_has_text
from genpr.features.source_features import Embedder, ExtractorKey
from genpr.features.text import CustomTextEncoder, check_pair, is_custom, text_encoder_for
from genpr.images.source import open_source
from genpr.metrics.presence import Calibration, zero_shot_scores

DETECTED = 0.3
"""Least score of a detection that counts, as in GenEval (Ghosh et al. 2023)."""

TEMPLATES = ("a photo of a {}.",)
"""Sentences around a name for CLIP."""


@dataclass(frozen=True)
class ZeroShot:
    """CLIP, or any pair of encoders into one space, which classify by any name.

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
        return name_embeddings(names, self.encode_text, self.templates)


def name_embeddings(
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
    """Entities that were found in images.

    Attributes:
        entities: Of the vocabulary, in its order.
        scores: (n, entities) float64, how surely each is in each image.
        present: (n, entities) bool.
        found: The entities of each image by its name; what `genpr.score_entities` takes as found.
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
    """Recognize the entities of a vocabulary in images.

    Args:
        source: What `genpr.score` takes as images.
        vocabulary: What to look for. A detector must have a class for each, by name or alias.
        how: A detector, such as `genpr.features.detectors.load_detector()`, or a pair of encoders.
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
    found = dict(zip(names, present_names(present, entities), strict=True))
    return EntitiesInImages(entities, scores, present, found)


def present_names(present: Tensor, entities: Sequence[str]) -> list[tuple[str, ...]]:
    """The entities of each row of (n, entities) bool."""
    return [tuple(compress(entities, row)) for row in present.tolist()]


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
    opened = open_source(source, communicator=current_communicator())
    if isinstance(how, ZeroShot):
        texts = how.texts(vocabulary.entities)
        extractor = wrap_extractor(how.extractor)
        images = embed_source(opened, extractor, batch_size=batch_size, progress=progress)
        return tuple(images.names), zero_shot_scores(images.features, texts)
    columns = class_columns(vocabulary, how.names)
    detecting = DetectingExtractor(how, name=str(getattr(how, "name", type(how).__name__)))
    # One at a time: a detector may make the images of a batch equally large, which moves scores.
    images = embed_source(opened, detecting, batch_size=1, progress=progress)
    return tuple(images.names), best_class_scores(images.features, columns)


def best_class_scores(scores: Tensor, classes: Sequence[Sequence[int]]) -> Tensor:
    """Scores of entities, (n, E), from those of a detector's classes: the best, where an entity is several of them."""
    return torch.stack([scores[:, list(each)].amax(dim=1) for each in classes], dim=1).double()


def named_in(prompts: Iterable[str], vocabulary: Vocabulary) -> Tensor:
    """Which entities prompts name, (prompts, entities) bool: what images made from them should show."""
    return presence_matrix((vocabulary.find(prompt) for prompt in prompts), vocabulary.entities)


def presence_matrix(lists: Iterable[Iterable[str]], entities: Sequence[str]) -> Tensor:
    """Which entities each list has, (lists, entities) bool; other names are ignored."""
    rows = [[entity in names for entity in entities] for names in map(set, lists)]
    return torch.tensor(rows, dtype=torch.bool).reshape(len(rows), len(entities))


def class_columns(vocabulary: Vocabulary, classes: Sequence[str]) -> list[list[int]]:
    """The indices of a detector's classes that each entity has, such as those of couch and sofa.

    Raises:
        UsageError: There is none for an entity ("unseen-entities"): it would be missed in every image.
    """
    columns: dict[str, list[int]] = {entity: [] for entity in vocabulary.entities}
    for column, name in enumerate(classes):
        entity = vocabulary.canonical(name)
        if entity is not None:
            columns[entity].append(column)
    if unseen := [entity for entity, found in columns.items() if not found]:
        raise UsageError(
            f"the detector has no class for {len(unseen):,} of {len(columns):,} entities ({some(unseen)}); it knows "
            f"{some(list(classes), 5)}. Leave them out of the vocabulary, or give a class as their alias",
            code="unseen-entities",
        )
    return list(columns.values())


ClassifierSpec = str | Detector | FeatureExtractor | ZeroShot
"""A classifier as users name or give it."""

_CLIP = "clip-vit-b-32"  # what "clip" stands for


@dataclass(frozen=True)
class EntityClassifier:
    """Scores entities in images.

    Attributes:
        name: Of the extractor or detector.
        space: What images are embedded with.
        classes: Of a detector; None for a pair of encoders, which classify by any name.
        embedder: How images are embedded with it.
        encoder: Of texts; None for one that belongs to `space`.
        templates: Sentences around the names, for a pair of encoders.
    """

    name: str
    space: ExtractorKey
    classes: tuple[str, ...] | None
    embedder: Embedder
    encoder: TextEncoder | None = None
    templates: tuple[str, ...] = TEMPLATES

    @property
    def is_detector(self) -> bool:
        """Whether it knows its own classes and no others."""
        return self.classes is not None

    def scorer(self, vocabulary: Vocabulary) -> Callable[[FeatureSet], Tensor]:
        """Turns features into scores of the entities, float64 (n, E); loads the text encoder.

        Raises:
            UsageError: A detector has no class for one ("unseen-entities").
            WeightsError: The weights of the text encoder are missing.
            DataError: The text encoder gives no direction for a name.
        """
        if self.classes is not None:
            columns = class_columns(vocabulary, self.classes)
            return lambda features: best_class_scores(features.features, columns)
        encoder = self.encoder or text_encoder_for(self.space, self.embedder)
        vectors = name_embeddings(vocabulary.entities, encoder.encode_text, self.templates)

        def score(features: FeatureSet) -> Tensor:
            check_pair(features, encoder, vectors, vocabulary.entities)
            return zero_shot_scores(features.features, vectors)

        return score


def load_classifier(by: ClassifierSpec, embedder: Embedder) -> EntityClassifier:
    """A classifier, by its name or from an object.

    Args:
        by: "clip"; a CLIP model; a detector of torchvision; a user's "path/to/file.py:factory", whose object is a pair of
            encoders if it has `encode_text`, and else a detector; or such an object.
        embedder: How it is loaded and run.

    Raises:
        UsageError: It is nothing of the kind.
        WeightsError: The weights of a detector are missing. Those of encoders are looked for when they are needed.
    """
    if isinstance(by, ZeroShot):
        extractor = wrap_extractor(by.extractor)
        encoder = CustomTextEncoder(extractor, by)
        return EntityClassifier(extractor.name, extractor, None, embedder, encoder, by.templates)
    if not isinstance(by, str):
        return _from_object(by, type(by).__name__, embedder)
    if by in DETECTORS:
        loaded = load_detector(
            by, weights=embedder.options.weights, device=embedder.device, offline=embedder.options.offline
        )
        return _from_detector(DetectingExtractor(loaded, name=by), embedder)
    name = _CLIP if by == "clip" else by
    try:
        check_has_text(name)
    except UsageError as error:
        raise UsageError(
            f"{name!r} recognizes no entities; needed is a model that embeds texts, too (clip, clip-vit-l-14, "
            f"open_clip:MODEL:PRETRAINED), a detector ({', '.join(DETECTORS)}), or path/to/file.py:factory",
            code=error.code,
        ) from error
    if is_custom(name):
        return _from_object(name, name, embedder)
    name = canonical_name(name)
    return EntityClassifier(name, name, None, embedder)


def _from_object(by: object, name: str, embedder: Embedder) -> EntityClassifier:
    """A custom object, or the path of its factory."""
    if embedder.options.weights is not None and not Path(embedder.options.weights).is_dir():
        raise UsageError(
            f"weights {os.fspath(embedder.options.weights)!r} were given, but classifier {name!r} takes no weights file",
            code="weights-unused",
        )
    if isinstance(by, str):
        by = load_user_object(by, kind="classifier", device=embedder.device)
    owner = getattr(by, "wrapped", by)
    if callable(getattr(owner, "encode_text", None)):
        extractor = wrap_extractor(by, name=name)
        return EntityClassifier(extractor.name, extractor, None, embedder)
    custom_name = getattr(by, "name", None)
    detector = cast("Detector", by)  # checked next
    name = custom_name if isinstance(custom_name, str) else name
    return _from_detector(DetectingExtractor(detector, name=name), embedder)


def _from_detector(extractor: DetectingExtractor, embedder: Embedder) -> EntityClassifier:
    return EntityClassifier(extractor.name, extractor, extractor.names, embedder.with_options(batch_size=1))
