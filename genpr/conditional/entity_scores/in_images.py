"""Which entities of a vocabulary are in images, without a language model: by a detector, or by CLIP without training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.conditional.entities.text_files import some
from genpr.conditional.entities.vocabulary import Vocabulary
from genpr.errors import DataError, UsageError
from genpr.features.detecting import DetectingExtractor
from genpr.features.detectors import Detector
from genpr.features.embed import embed_source
from genpr.features.extractor import FeatureExtractor
from genpr.images.source import open_source
from genpr.metrics.entity.presence import Calibration, zero_shot_scores

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
        thresholds: The least score that counts: one number, or from `genpr.metrics.entity.presence.calibrate`, for entities in the
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
            "they show (genpr.metrics.entity.presence.calibrate)",
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
