"""Which expectation belongs to which image: by relative path, else by unique file name or stem.

Images of a source with what should be in each: opened, matched by name, embedded, and scored.

From which score on an entity counts as there: a fixed one, from labelled images, or from the judged images in halves.

The record of entities recognised in images: values, sides, thresholds, what was noticed.

Score what a recogniser sees in images against what should be there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from genpr.conditional.classifiers import DETECTED, By, EntityScorer, Recogniser, load_recogniser
from genpr.conditional.entity_records import Expectations, read_expectations
from genpr.conditional.entity_scores import (
    PROTOCOL,
    Words,
    asked_side,
    hashed,
    metric_of,
    nothing_expected,
    rows_of,
    tables_of,
    vocabulary_of,
)
from genpr.conditional.vocabulary import Names, Vocabulary
from genpr.errors import DataError, UsageError, printable, short, some
from genpr.evaluation.diagnostics import decoding_notices
from genpr.evaluation.result import (
    EntitySummary,
    EntityThreshold,
    Identities,
    RecogniserSummary,
    Result,
    SideSummary,
    package_versions,
)
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder, StageProgress
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, open_side
from genpr.features.row_names import names_of, rows_in_source
from genpr.images.item import known_length
from genpr.images.naming import file_of, plain_path, stem_of
from genpr.images.policy import MAX_PIXELS
from genpr.memory import memory_limit, parse_size
from genpr.metrics.entities import EntityMetrics, entity_set_metrics
from genpr.metrics.presence import LEAST_EXAMPLES, Calibration, calibrate, present_by_halves
from genpr.notices import Notice, notice


def rows_of_images(asked: Expectations, names: Sequence[str], source: str) -> list[int]:
    """The row of each image of a source in the expectations.

    Args:
        asked: What is expected, with ids or in the order of the images.
        names: Of all images of the source, in its order.
        source: What to call it in messages.

    Raises:
        DataError: Images and ids do not match one to one ("ids-do-not-match").
    """
    if not asked.records.has_ids:
        if len(names) == len(asked.ids):
            return list(range(len(names)))
        raise _unmatched(
            asked,
            f"{printable(asked.origin)} has {len(asked.ids):,} records without ids, and {printable(source)} "
            f"{len(names):,} images; needed are ids, or one record for each image in their order",
        )
    ids = [plain_path(name) for name in asked.ids]
    wanted = _named_like(ids, names)
    places = {name: row for row, name in enumerate(ids)}
    known = set(wanted)
    lost = [name for name, each in zip(names, wanted, strict=True) if each not in places]
    unused = [name for name in ids if name not in known]
    if not lost and not unused and len(places) == len(wanted):
        return [places[each] for each in wanted]
    parts = [f"nothing is said of {len(lost):,} of {len(names):,} images ({some(lost)})"] if lost else []
    parts += [f"{len(unused):,} ids are of no image ({some(unused)})"] if unused else []
    parts = parts or ["two images have the same name"]
    raise _unmatched(
        asked,
        f"{printable(asked.origin)} and {printable(source)} do not match: {' and '.join(parts)}. Ids are paths relative to "
        f"the source, or file names or stems where all differ; its images are called such as {short(names[0])!r}",
    )


def _named_like(ids: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names of the images in the form in which most of them are ids; the first of equally good ones."""
    known, best, found = set(ids), -1, list(names)
    for form in (plain_path, stem_of, file_of, _file_stem):
        formed = [form(name) for name in names]
        hits = len(known.intersection(formed))
        # What is not unique would give one expectation to two images.
        if hits > best and (form is plain_path or len(set(formed)) == len(formed)):
            best, found = hits, formed
    return found


def _file_stem(name: str) -> str:
    return stem_of(file_of(name))


def _unmatched(asked: Expectations, message: str) -> DataError:
    return DataError(message, code="ids-do-not-match", path=asked.origin)


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


Presence = Tensor
"""(n, E) bool."""


@dataclass(frozen=True)
class Judged:
    """Which entities are in images, and by which thresholds.

    Attributes:
        present: (n, E) bool.
        entities: One per entity.
        chosen: "fixed", "labelled" or "prompts", as in `RecogniserSummary`.
    """

    present: Presence
    entities: tuple[EntityThreshold, ...]
    chosen: str


def presence_of(asked: Expectations, entities: Sequence[str]) -> Presence:
    """Which of the entities each image should show; whatever else it should is left aside."""
    wanted = [set(each) for each in asked.expected]
    rows = [[entity in each for entity in entities] for each in wanted]
    return torch.tensor(rows, dtype=torch.bool).reshape(len(rows), len(entities))


def by_fixed(scores: Tensor, entities: Sequence[str]) -> Judged:
    """The threshold of detections, for all."""
    rows = tuple(EntityThreshold(entity, (DETECTED,), False, None, None) for entity in entities)
    return Judged(scores >= DETECTED, rows, "fixed")


def by_labelled(
    scores: Tensor, entities: Sequence[str], labelled_scores: Tensor, labelled: Presence, source: str
) -> Judged:
    """Thresholds from other images of which it is known what they show.

    Raises:
        DataError: These have no image with any of the entities, or none without ("no-thresholds").
    """
    _check(labelled, source)
    found = calibrate(labelled_scores, labelled)
    rows = tuple(
        EntityThreshold(
            entity,
            (float(found.thresholds[i]),),
            bool(found.is_own[i]),
            _known(found.sensitivity[i]),
            _known(found.false_positive_rate[i]),
        )
        for i, entity in enumerate(entities)
    )
    return Judged(found.present(scores), rows, "labelled")


def by_prompts(scores: Tensor, entities: Sequence[str], asked: Presence, second: Tensor) -> Judged:
    """Thresholds from what was asked for: each half of the images is judged by those of the other.

    How often these are right is not known: by the same prompts, that would be the score itself.
    """
    found = present_by_halves(scores, asked, second)

    def row(i: int, entity: str) -> EntityThreshold:
        own = all(bool(each.is_own[i]) for each in found.calibrations)
        return EntityThreshold(
            entity, tuple(_threshold(each, i) for each in found.calibrations), own, None, None
        )

    return Judged(found.present, tuple(row(i, entity) for i, entity in enumerate(entities)), "prompts")


def halves_of(groups: Sequence[str], seed: int) -> Tensor:
    """Which images are in the second half, (n,) bool; those of one group are in one half, whatever the order of the images."""
    known = sorted(set(groups))
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed)).tolist()
    second = {known[place] for place in order[: len(known) // 2]}
    return torch.tensor([group in second for group in groups], dtype=torch.bool)


def check_halves(asked: Presence, second: Tensor, source: str) -> None:
    """Refuse images that no thresholds can be chosen on, before they are embedded.

    Raises:
        DataError: In a half, nothing is asked for, or everything ("no-thresholds").
    """
    for half in (asked[~second], asked[second]):
        _check(half, source, "half of ")


def _check(asked: Presence, source: str, part: str = "") -> None:
    if not bool(asked.any()) or bool(asked.all()):
        what = "none of the entities is" if not bool(asked.any()) else "all of the entities are"
        raise DataError(
            f"thresholds cannot be chosen: {what} in all of {part}{source}; needed are images with an entity and images without. "
            "Give labelled images with --calibrate-on and --calibrate-expected, or more prompts",
            code="no-thresholds",
            path=source,
        )


def _threshold(found: Calibration, entity: int) -> float:
    return float(found.thresholds[entity])


def _known(value: Tensor) -> float | None:
    return None if bool(value.isnan()) else float(value)


_NO_ANSWERS = "failure_rate"  # a recogniser's answers can all be read
_POOR = 0.75


@dataclass(frozen=True, kw_only=True)
class Found:
    """Everything that was computed.

    Attributes:
        asked: What is expected.
        features: Of the images.
        judged: What was found, in the order of `asked`.
        vocabulary: What was looked for.
        recogniser: What looked.
        labelled: Images that thresholds were chosen on; None if there are none.
        seconds: By stage.
    """

    asked: Expectations
    features: FeatureSet
    judged: Judged
    vocabulary: Vocabulary
    recogniser: Recogniser
    labelled: Labelled | None
    seconds: Mapping[str, float]


def result_of_images(found: Found) -> Result:
    """The result; expectations are its real side."""
    started = time.perf_counter()
    asked, features, embedder = found.asked, found.features, found.recogniser.embedder
    entities = found.vocabulary.entities
    metrics = entity_set_metrics(
        asked.expected,
        [
            tuple(entity for entity, is_there in zip(entities, row, strict=True) if is_there)
            for row in found.judged.present.tolist()
        ],
        vocabulary=entities,
        excluded=asked.excluded,
        groups=asked.groups,
        seed=embedder.seed,
    )
    # The extractor may be that of published numbers; entities found by it are not.
    info = None if features.extractor is None else replace(features.extractor, comparable=False)
    values = {
        f"entity.{name}": metric_of(
            score, extractor=None if info is None else info.name, variant=variant_of(found)
        )
        for name, score in metrics.scores.items()
        if name != _NO_ANSWERS
    }
    return Result(
        metrics=values,
        protocol=PROTOCOL,
        ties="closed",
        distances="exact",
        extractor=info,
        extractors={} if info is None else {info.name: info},
        deviations=(),
        real=asked_side(asked, found.vocabulary, found.vocabulary),
        fake=SideSummary.of(features, Identities.of(features)),
        n_shared=0,
        device=str(embedder.device),
        seed=embedder.seed,
        max_images=embedder.max_images,
        seconds={**found.seconds, "score": time.perf_counter() - started},
        versions=package_versions(),
        notices=(*_notices(found, metrics), *decoding_notices("fake", features), *_of_features(found)),
        undefined=tuple(f"entity.{name}" for name in metrics.undefined),
        entities=_summary(found, metrics),
    )


def variant_of(found: Found) -> str:
    """What beside the extractor decides what counts as there: results that differ in it are not comparable."""
    chosen = {
        "fixed": f"found from a score of {found.judged.entities[0].thresholds[0]:g} on",
        "prompts": "thresholds by prompts, in halves",
        "labelled": f"thresholds by labelled images {_calibrated_on(found.labelled)}",
    }[found.judged.chosen]
    asked = [] if found.recogniser.is_detector else [" / ".join(found.recogniser.templates)]
    return ", asked as ".join([chosen, *asked])


def _calibrated_on(labelled: Labelled | None) -> str:
    """Eight digits that are equal for the same images with the same labels."""
    if labelled is None:
        return ""
    labels = asked_side(labelled.asked, None, None).content
    return hashed(Identities.of(labelled.features).content, labels)[:8]


def _summary(found: Found, metrics: EntityMetrics) -> EntitySummary:
    labelled, recogniser = found.labelled, found.recogniser
    source = "" if labelled is None else f"{labelled.features.source} with {labelled.asked.origin}"
    return EntitySummary(
        n_answers=metrics.n,
        rows=rows_of(metrics),
        unreadable=(),
        undefined=tuple((f"entity.{name}", why) for name, why in metrics.undefined.items()),
        vocabulary=len(found.vocabulary),
        recogniser=RecogniserSummary(
            name=recogniser.name,
            kind="detector" if recogniser.is_detector else "zero-shot",
            chosen=found.judged.chosen,
            source=source,
            templates=() if recogniser.is_detector else recogniser.templates,
            entities=found.judged.entities,
        ),
    )


def _of_features(found: Found) -> list[Notice]:
    """What was noticed while images were embedded; `genpr features` keeps no scores of detectors."""
    is_vain = found.recogniser.is_detector
    return [
        replace(item, hint="") if is_vain and item.code == "extractor-not-cached" else item
        for item in found.features.notices
    ]


def _guessed(metrics: EntityMetrics) -> list[str]:
    """Entities that are found where they were asked for no more often than elsewhere, by two standard errors.

    A threshold is found for whatever is asked for. Of images without the entity, half or so pass it, asked for or not.
    """
    names = []
    for row in metrics.entities:
        others = metrics.n - row.n_expected
        if not row.n_found or not others or row.n_false is None:
            continue
        there, elsewhere = row.n_found / row.n_expected, row.n_false / others
        spread = there * (1 - there) / row.n_expected + elsewhere * (1 - elsewhere) / others
        if there - elsewhere <= 2 * math.sqrt(spread):
            names.append(row.entity)
    return names


def _notices(found: Found, metrics: EntityMetrics) -> list[Notice]:
    """What a reader should know of what was recognised, most important first."""
    said, judged, name = [], found.judged, found.recogniser.name
    if judged.chosen == "prompts":
        said.append(notice("thresholds-by-prompts", recogniser=name))
        if guessed := _guessed(metrics):
            count, total = f"{len(guessed):,}", f"{len(judged.entities):,}"
            said.append(notice("entities-guessed", count=count, total=total, shown=some(guessed)))
    rates = [
        (each.sensitivity + 1 - each.false_positive_rate) / 2
        for each in judged.entities
        if each.sensitivity is not None and each.false_positive_rate is not None
    ]
    poor = sum(rate < _POOR for rate in rates)
    if poor:
        facts = {"recogniser": name, "count": f"{poor:,}", "total": f"{len(rates):,}"}
        said.append(notice("poorly-recognised", limit=f"{_POOR:.0%}".replace("%", " %"), **facts))
    shared = sum(not each.is_own for each in judged.entities)
    if shared and judged.chosen != "fixed":
        total = f"{len(judged.entities):,}"
        said.append(notice("shared-thresholds", count=f"{shared:,}", total=total, least=LEAST_EXAMPLES))
    return [*said, *nothing_expected(found.asked)]


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
