"""Score what a recogniser sees in images against what should be there."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from genpr.conditional.entities.expectations import Expectations, read_expectations
from genpr.conditional.entities.names import Names
from genpr.conditional.entities.text_files import some
from genpr.conditional.entities.vocabulary import Vocabulary
from genpr.conditional.entity_scores.recall import Words, tables_of, vocabulary_of
from genpr.conditional.recognition.labelled import Labelled, check_matched, scored
from genpr.conditional.recognition.recogniser import By, Recogniser, load_recogniser
from genpr.conditional.recognition.record import Found, result_of_images
from genpr.conditional.recognition.thresholds import (
    Judged,
    by_fixed,
    by_labelled,
    by_prompts,
    check_halves,
    halves_of,
    presence_of,
)
from genpr.errors import UsageError, short
from genpr.evaluation.result import Result
from genpr.features.embedder import Embedder, StageProgress
from genpr.features.inputs import open_side
from genpr.images.policy import MAX_PIXELS
from genpr.memory import memory_limit, parse_size


@dataclass(frozen=True)
class Wanted:
    """What is looked for, and where thresholds come from.

    Attributes:
        expected: What should be in each image.
        vocabulary: All that could be found.
        aliases: Names that mean the same entity.
        exclude: What must not be in any image.
        calibrate_on: Labelled images; None if there are none.
        calibrate_expected: What is in each of them.
    """

    expected: object
    vocabulary: Words | None = None
    aliases: Words | None = None
    exclude: Words | None = None
    calibrate_on: object = None
    calibrate_expected: object = None

    def __post_init__(self) -> None:
        if (self.calibrate_on is None) != (self.calibrate_expected is None):
            raise UsageError(
                "thresholds are chosen on labelled images: --calibrate-on gives the images and --calibrate-expected what is in "
                "each; needed are both, or neither",
                code="bad-option",
            )


def score_entities_in_images(
    expected: object,
    images: object,
    *,
    by: By,
    vocabulary: Words | None = None,
    aliases: Words | None = None,
    exclude: Words | None = None,
    calibrate_on: object = None,
    calibrate_expected: object = None,
    max_images: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    batch_size: int = 64,
    weights: str | os.PathLike[str] | None = None,
    offline: bool = False,
    cache: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    on_bad: Literal["error", "skip"] = "error",
    max_bad: float = 0.01,
    max_pixels: int = MAX_PIXELS,
    alpha: str = "drop",
    exif: Literal["ignore", "apply"] = "ignore",
    max_memory: str | int | None = None,
    progress: StageProgress | None = None,
) -> Result:
    """Recognise the entities of a vocabulary in images, and score them against what should be there.

    Args:
        expected: As in `score_entities`, with the names of images as ids: paths relative to the source, or file names or stems
            where all differ; or without ids in the order of the images.
        images: Anything that `genpr.score` takes: a folder, an archive, an array, a feature file.
        by: What recognises: "clip", a CLIP model, a detector such as "fasterrcnn_resnet50_fpn_v2", a user's
            "path/to/file.py:factory", or an object: a pair of encoders, a detector, or a `ZeroShot`.
        vocabulary: All that is looked for; None for all classes of a detector.
        aliases: Names that mean the same entity.
        exclude: What must not be in any image; part of the vocabulary.
        calibrate_on: Labelled images that thresholds are chosen on. Without, a detection counts from .3 on; those of a pair of
            encoders are chosen on the judged images by what was asked for, each half's on the other half.
        calibrate_expected: What is in each of them, as `expected`; what is not in its list is not there.
        max_images: Use a random subset of at most so many images.
        seed: Chooses subset, halves of thresholds, and halves of intervals.
        device: "auto", "cpu", "cuda", "cuda:1" or a `torch.device`.
        batch_size: Images per forward pass; detectors see one at a time.
        weights: File that holds the published weights, or a folder of such files.
        offline: Never download.
        cache: Keep the features of images, or the scores of detectors, on disk for the next run.
        cache_dir: Where to keep them.
        on_bad: Unusable images: refuse the source after listing all ("error"), or leave them out ("skip").
        max_bad: The share of unusable images above which "skip" refuses all the same.
        max_pixels: Larger images are refused before decoding.
        alpha: "drop" leaves transparency out; "white", "black" or "#rrggbb" is laid behind it.
        exif: "ignore" takes pixels as stored; "apply" turns them by their EXIF orientation.
        max_memory: Plan with at most so much, as "8GiB".
        progress: Told (stage, done, total).

    Returns:
        A result with metrics `entity.*`; `entities.recogniser` says by which thresholds. Its `real` side are the expectations.

    Raises:
        UsageError: A path or name does not exist, an option is impossible, or an entity cannot be recognised.
        DataError: Images or expectations cannot be used, or do not belong together.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> class Bright:
        ...     names = ("lamp", "night")
        ...
        ...     def __call__(self, images):
        ...         light = torch.stack([image.float().mean() / 255 for image in images])
        ...         return torch.stack([light, 1 - light], dim=1)
        >>> images = torch.tensor([0, 255, 255], dtype=torch.uint8)[:, None, None, None].expand(3, 3, 8, 8)
        >>> result = score_entities_in_images([["night"], ["lamp"], ["lamp", "night"]], images, by=Bright(), device="cpu")
        >>> result["entity.recall"], result.entities.rows[0].entity
        (0.8333333333333334, 'night')
    """
    embedder = Embedder(
        on=device,
        weights=weights,
        offline=offline,
        max_images=max_images,
        seed=seed,
        batch_size=batch_size,
        cache=cache,
        cache_dir=cache_dir,
        on_bad=on_bad,
        max_bad=max_bad,
        max_pixels=max_pixels,
        alpha=alpha,
        exif=exif,
        progress=progress,
    )
    wanted = Wanted(expected, vocabulary, aliases, exclude, calibrate_on, calibrate_expected)
    with memory_limit(None if max_memory is None else parse_size(max_memory)):
        return score_images(wanted, images, by, embedder)


def score_images(wanted: Wanted, images: object, by: By, embedder: Embedder) -> Result:
    """As `score_entities_in_images`."""
    opened = open_side(images, "fake")
    others = None if wanted.calibrate_on is None else open_side(wanted.calibrate_on, "real")
    started = time.perf_counter()
    closed, _ = tables_of(wanted.vocabulary, wanted.aliases)
    recogniser = load_recogniser(by, embedder)
    words, what = _words(closed, wanted, recogniser)
    asked = _asked(wanted, words, what)
    check_matched(opened, asked)
    labels = None
    if others is not None:
        labels = read_expectations(wanted.calibrate_expected, Names(words), words, closed=None)
        check_matched(others, labels)
    elif not recogniser.is_detector:
        check_halves(
            presence_of(asked, words.entities),
            halves_of(asked.groups, embedder.seed),
            short(asked.origin, 60),
        )
    score = recogniser.for_entities(words)
    read = time.perf_counter()
    found = scored(opened, "images", asked, recogniser, score)
    labelled = None
    if others is not None and labels is not None:
        labelled = scored(others, "calibration", labels, recogniser, score)
    judged = _judged(found, labelled, words, recogniser, embedder.seed)
    return result_of_images(
        Found(
            asked=found.asked,
            features=found.features,
            judged=judged,
            vocabulary=words,
            recogniser=recogniser,
            labelled=labelled,
            seconds={"reading": read - started},
        )
    )


def _words(
    closed: Vocabulary | None, wanted: Wanted, recogniser: Recogniser
) -> tuple[Vocabulary, str | None]:
    """What is looked for; and what to call it where that are the classes of a detector."""
    if closed is not None:
        return closed, None
    if recogniser.classes is None:
        raise UsageError(
            f"{recogniser.name} recognises whatever has a name, so it must be told what to look for; needed is a vocabulary "
            "(--vocabulary FILE): all entities that could be there",
            code="no-vocabulary",
        )
    classes, _ = tables_of(Vocabulary.of(recogniser.classes, origin="<classes>"), wanted.aliases)
    assert classes is not None
    return classes, f"the {len(classes):,} classes of {short(recogniser.name, 60)}"


def _asked(wanted: Wanted, words: Vocabulary, what: str | None) -> Expectations:
    """What should be in each image.

    Raises:
        UsageError: Something must not be there that is never looked for ("unseen-entities").
    """
    barred = () if wanted.exclude is None else vocabulary_of(wanted.exclude, "exclude").entities
    names = Names(words)
    if what is None:
        asked = read_expectations(wanted.expected, names, words, barred)
    else:
        hint = f"{what}; leave it out, or give a class as its alias"
        asked = read_expectations(wanted.expected, names, words, barred, closed=hint)
    excluded = dict.fromkeys(name for each in asked.excluded or () for name in each)
    if unseen := [name for name in excluded if name not in words]:
        raise UsageError(
            f"{len(unseen):,} entities that must not be there ({some(unseen)}) are not in {what or 'the vocabulary'}, so nobody "
            "looks for them; add them there, or leave them out",
            code="unseen-entities",
        )
    return asked


def _judged(
    found: Labelled, labelled: Labelled | None, words: Vocabulary, recogniser: Recogniser, seed: int
) -> Judged:
    entities: Sequence[str] = words.entities
    if labelled is not None:
        known = presence_of(labelled.asked, entities)
        origin = short(labelled.asked.origin, 60)
        return by_labelled(found.scores, entities, labelled.scores, known, origin)
    if recogniser.is_detector:
        return by_fixed(found.scores, entities)
    asked, second = presence_of(found.asked, entities), halves_of(found.asked.groups, seed)
    check_halves(asked, second, short(found.asked.origin, 60))
    return by_prompts(found.scores, entities, asked, second)
