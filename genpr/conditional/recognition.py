"""Score what a classifier finds in images against what should be there.

A score counts from a threshold on: a fixed one, one chosen on labeled images, or one chosen on the other half of the scored
images.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack, cast

import torch
from torch import Tensor

from genpr.conditional.classifiers import (
    DETECTED,
    ClassifierSpec,
    EntityClassifier,
    load_classifier,
    presence_matrix,
    present_names,
)
from genpr.conditional.entity_records import CLOSED_VOCABULARY, Expectations, read_expectations
from genpr.conditional.entity_scores import (
    common_fields,
    entity_rows,
    expectations_summary,
    metric_value,
    nothing_expected_notices,
    sha256_of_rows,
)
from genpr.conditional.options import EntityKeywords, EntityOptions
from genpr.conditional.vocabulary import (
    CanonicalNames,
    Vocabulary,
    Words,
    as_vocabulary,
    load_vocabulary,
)
from genpr.errors import DataError, UsageError, short, some
from genpr.evaluation.diagnostics import decoding_notices
from genpr.evaluation.result import (
    ClassifierSummary,
    EntitySummary,
    EntityThreshold,
    Identities,
    Result,
    SideSummary,
)
from genpr.evaluation.tables import names_like
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedInput, image_names, open_input, source_rows
from genpr.features.options import takes_options
from genpr.features.source_features import Embedder, SourceFeatures
from genpr.images.item import known_length, plain_path
from genpr.memory import memory_limit
from genpr.metrics.entities import EntityMetrics, entity_set_metrics
from genpr.metrics.presence import LEAST_EXAMPLES, Calibration, calibrate, present_by_halves
from genpr.notices import Notice, notice

_NO_ANSWERS = "failure_rate"  # the answers of a classifier can all be read
_POOR = 0.75


@takes_options(EntityOptions, without={"by"})
def score_entities_in_images(
    expected: object, images: object, *, by: ClassifierSpec, **options: Unpack[EntityKeywords]
) -> Result:
    """Find the entities of a vocabulary in images, and score them against what should be there.

    Args:
        expected: As in `score_entities`, with the names of images as ids: paths relative to the source, or file names or stems
            where all differ; or without ids in the order of the images.
        images: Anything that `genpr.score` takes: a folder, an archive, an array, a feature file.
        by: What classifies: "clip", a CLIP model, a detector such as "fasterrcnn_resnet50_fpn_v2", a user's
            "path/to/file.py:factory", or an object: a pair of encoders, a detector, or a `ZeroShot`.
        **options: The fields of `EntityOptions` but for `by`.

    Returns:
        A result with metrics `entity.*`; `entities.classifier` says by which thresholds. Its `real` side are the expectations.

    Raises:
        UsageError: A path or name does not exist, an option is impossible, or the classifier has no class for an entity.
        DataError: Images or expectations cannot be used, or do not belong together.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import torch
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
    return score_entities_with(expected, images, EntityOptions(by=by, **options))


def score_entities_with(expected: object, images: object, options: EntityOptions) -> Result:
    """As `score_entities_in_images`."""
    with memory_limit(options.max_memory):
        return _score(expected, images, options, Embedder(options))


def _score(expected: object, images: object, options: EntityOptions, embedder: Embedder) -> Result:
    opened = open_input(images, "fake")
    calibration = None if options.calibrate_on is None else open_input(options.calibrate_on, "real")
    started = time.perf_counter()
    closed, _ = load_vocabulary(options.vocabulary, options.aliases)
    classifier = load_classifier(cast("ClassifierSpec", options.by), embedder)
    vocabulary, what = _vocabulary(closed, options.aliases, classifier)
    expectations = _expectations(expected, options.exclude, vocabulary, what)
    _check_matched(opened, expectations)
    labels = None
    if calibration is not None:
        labels = read_expectations(
            options.calibrate_expected, CanonicalNames(vocabulary), vocabulary, closed=None
        )
        _check_matched(calibration, labels)
    elif not classifier.is_detector:
        _check_halves(expectations, vocabulary, options.seed)
    scorer = classifier.scorer(vocabulary)
    seconds = {"reading": time.perf_counter() - started}
    scored = _scored(opened, "images", expectations, classifier)
    scores = scorer(scored.features)[scored.order]
    labeled = None
    if calibration is not None and labels is not None:
        labeled = _scored(calibration, "calibration", labels, classifier)
        presence = _labeled_thresholds(scores, vocabulary, labeled, scorer(labeled.features)[labeled.order])
    elif classifier.is_detector:
        presence = _fixed_thresholds(scores, vocabulary)
    else:
        second = _check_halves(scored.expectations, vocabulary, options.seed)
        presence = _prompt_thresholds(scores, vocabulary, scored.expectations, second)
    return _result(scored, presence, vocabulary, classifier, labeled, seconds)


def _vocabulary(
    closed: Vocabulary | None, aliases: Words | None, classifier: EntityClassifier
) -> tuple[Vocabulary, str | None]:
    """What is looked for; and what to call it if these are the classes of a detector."""
    if closed is not None:
        return closed, None
    if classifier.classes is None:
        raise UsageError(
            f"{classifier.name} classifies by any name, so it needs a vocabulary (--vocabulary FILE): all entities that could "
            "be there",
            code="no-vocabulary",
        )
    classes, _ = load_vocabulary(Vocabulary.of(classifier.classes, origin="<classes>"), aliases)
    assert classes is not None
    return classes, f"the {len(classes):,} classes of {short(classifier.name, 60)}"


def _expectations(
    expected: object, exclude: Words | None, vocabulary: Vocabulary, what: str | None
) -> Expectations:
    """What should be in each image."""
    closed = CLOSED_VOCABULARY if what is None else f"{what}; leave it out, or give a class as its alias"
    excluded_names = () if exclude is None else as_vocabulary(exclude, "exclude").entities
    names = CanonicalNames(vocabulary)
    expectations = read_expectations(expected, names, vocabulary, excluded_names, closed=closed)
    excluded = dict.fromkeys(name for each in expectations.excluded or () for name in each)
    if unseen := [name for name in excluded if name not in vocabulary]:
        raise UsageError(
            f"{len(unseen):,} entities that must not be there ({some(unseen)}) are not in {what or 'the vocabulary'}, so they are "
            "never looked for; add them there, or leave them out",
            code="unseen-entities",
        )
    return expectations


@dataclass(frozen=True)
class _Scored:
    """Embedded images that are matched with what is expected in them."""

    expectations: Expectations
    features: FeatureSet
    order: Tensor


def _check_matched(opened: OpenedInput, expectations: Expectations) -> None:
    """Refuse ids without an image and images without an id, if names are known without reading images."""
    names = image_names(opened)
    if names is not None:
        _match_images(expectations, names, _name_of(opened))


def _scored(
    opened: OpenedInput, role: str, expectations: Expectations, classifier: EntityClassifier
) -> _Scored:
    """Embed images, and match them with expectations; those of unusable images are left out."""
    side = SourceFeatures(opened, role, classifier.embedder, declared=(classifier.space,))
    side.require([classifier.space], minimum=1)
    features = side[classifier.space]
    names = image_names(opened)
    if names is None:  # only known now, and of the images that could be read
        names = [features.name_of(row) for row in range(len(features))]
        used: Sequence[int] = range(len(names))
    else:
        total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
        used = list(source_rows(opened, features, total))
    matched = _match_images(expectations, names, _name_of(opened))
    # In the order of the expectations: pairs of results are drawn alike, whatever their images are called.
    rows = [matched[row] for row in used]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    return _Scored(expectations.select([rows[row] for row in order]), features, torch.tensor(order))


def _name_of(opened: OpenedInput) -> str:
    return opened.source if isinstance(opened, FeatureSet) else opened.source.name


def _match_images(expectations: Expectations, names: Sequence[str], source: str) -> list[int]:
    """The expectation of each image: by the form of its name that is an id, or in order where there are no ids.

    Args:
        expectations: With ids, or in the order of the images.
        names: Of all images of the source, in its order.
        source: What to call it in messages.

    Raises:
        DataError: Images and ids do not match one to one ("ids-do-not-match").
    """
    ids = [plain_path(name) for name in expectations.ids]
    if expectations.records.ids is None:
        if len(names) == len(ids):
            return list(range(len(names)))
        raise _unmatched(
            expectations,
            f"{expectations.origin} has {len(ids):,} records without ids, and {source} {len(names):,} images; needed are ids, "
            "or one record for each image in their order",
        )
    keys = names_like(names, ids)
    row_of = {name: row for row, name in enumerate(ids)}
    missing = [name for name, key in zip(names, keys, strict=True) if key not in row_of]
    unused = row_of.keys() - keys
    if not missing and not unused and len(row_of) == len(keys):
        return [row_of[key] for key in keys]
    parts = [f"{len(missing):,} of {len(names):,} images have no record ({some(missing)})"] * bool(missing)
    parts += [f"{len(unused):,} ids are of no image ({some(sorted(unused))})"] * bool(unused)
    raise _unmatched(
        expectations,
        f"{expectations.origin} and {source} do not match: {' and '.join(parts) or 'two images have the same name'}. Ids are "
        f"paths relative to the source, or file names or stems where all differ, such as {short(names[0])!r}",
    )


def _unmatched(expectations: Expectations, message: str) -> DataError:
    return DataError(message, code="ids-do-not-match", path=expectations.origin)


@dataclass(frozen=True)
class _Presence:
    """Which entities are in images, and by which thresholds."""

    present: Tensor
    thresholds: tuple[EntityThreshold, ...]
    chosen: str


def _fixed_thresholds(scores: Tensor, vocabulary: Vocabulary) -> _Presence:
    """The threshold of detections, for all."""
    rows = tuple(EntityThreshold(entity, (DETECTED,), False, None, None) for entity in vocabulary.entities)
    return _Presence(scores >= DETECTED, rows, "fixed")


def _labeled_thresholds(
    scores: Tensor, vocabulary: Vocabulary, labeled: _Scored, labeled_scores: Tensor
) -> _Presence:
    """Thresholds from other images with known entities."""
    present = presence_matrix(labeled.expectations.expected, vocabulary.entities)
    _check_both_kinds(present, short(labeled.expectations.origin, 60))
    found = calibrate(labeled_scores, present)
    rates = torch.stack([found.sensitivity, found.false_positive_rate], dim=1)
    return _Presence(found.present(scores), _threshold_rows(vocabulary, [found], rates), "labeled")


def _prompt_thresholds(
    scores: Tensor, vocabulary: Vocabulary, expectations: Expectations, second: Tensor
) -> _Presence:
    """Thresholds from what is expected: each half of the images is classified by those of the other.

    How often these are right is not known: by the same prompts, that would be the score itself.
    """
    expected = presence_matrix(expectations.expected, vocabulary.entities)
    found = present_by_halves(scores, expected, second)
    rates = torch.full((len(vocabulary), 2), torch.nan)
    return _Presence(found.present, _threshold_rows(vocabulary, found.calibrations, rates), "prompts")


def _threshold_rows(
    vocabulary: Vocabulary, calibrations: Sequence[Calibration], rates: Tensor
) -> tuple[EntityThreshold, ...]:
    """One row per entity; `rates` (E, 2) are sensitivity and false positive rate, NaN where they are not known."""
    return tuple(
        EntityThreshold(
            entity,
            tuple(float(each.thresholds[i]) for each in calibrations),
            all(bool(each.is_own[i]) for each in calibrations),
            *(None if rate != rate else rate for rate in rates[i].tolist()),
        )
        for i, entity in enumerate(vocabulary)
    )


def halves_of(groups: Sequence[str], seed: int) -> Tensor:
    """Which images are in the second half, (n,) bool; those of one group are in one half, whatever the order of the images."""
    known = sorted(set(groups))
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed)).tolist()
    second = {known[index] for index in order[: len(known) // 2]}
    return torch.tensor([group in second for group in groups], dtype=torch.bool)


def _check_halves(expectations: Expectations, vocabulary: Vocabulary, seed: int) -> Tensor:
    """Which images are in the second half, (n,) bool."""
    expected = presence_matrix(expectations.expected, vocabulary.entities)
    second = halves_of(expectations.groups, seed)
    for half in (expected[~second], expected[second]):
        _check_both_kinds(half, short(expectations.origin, 60), "half of ")
    return second


def _check_both_kinds(present: Tensor, source: str, part: str = "") -> None:
    if not bool(present.any()) or bool(present.all()):
        what = "none of the entities is" if not bool(present.any()) else "all of the entities are"
        raise DataError(
            f"thresholds cannot be chosen: {what} in all of {part}{source}; needed are images with an entity and images without. "
            "Give labeled images with --calibrate-on and --calibrate-expected, or more prompts",
            code="no-thresholds",
            path=source,
        )


def _result(
    scored: _Scored,
    presence: _Presence,
    vocabulary: Vocabulary,
    classifier: EntityClassifier,
    labeled: _Scored | None,
    seconds: dict[str, float],
) -> Result:
    """The result; expectations are its real side."""
    started = time.perf_counter()
    expectations, features, embedder = scored.expectations, scored.features, classifier.embedder
    entities = vocabulary.entities
    metrics = entity_set_metrics(
        expectations.expected,
        present_names(presence.present, entities),
        vocabulary=entities,
        excluded=expectations.excluded,
        groups=expectations.groups,
        seed=embedder.options.seed,
    )
    # The extractor may be that of published numbers; entities found by it are not.
    info = None if features.extractor is None else replace(features.extractor, comparable=False)
    name, variant = None if info is None else info.name, _variant(presence, classifier, labeled)
    return Result(
        metrics={
            f"entity.{metric}": metric_value(score, extractor=name, variant=variant)
            for metric, score in metrics.scores.items()
            if metric != _NO_ANSWERS
        },
        extractor=info,
        extractors={} if info is None else {info.name: info},
        fake=SideSummary.of(features, Identities.of(features)),
        device=str(embedder.device),
        max_images=embedder.options.max_images,
        seconds={**seconds, "score": time.perf_counter() - started},
        notices=(
            *_notices(presence, metrics, classifier.name),
            *nothing_expected_notices(expectations),
            *decoding_notices("fake", features),
            *_feature_notices(features, classifier),
        ),
        entities=_summary(metrics, presence, vocabulary, classifier, labeled),
        **common_fields(metrics, expectations, vocabulary, vocabulary, seed=embedder.options.seed),
    )


def _summary(
    metrics: EntityMetrics,
    presence: _Presence,
    vocabulary: Vocabulary,
    classifier: EntityClassifier,
    labeled: _Scored | None,
) -> EntitySummary:
    source = "" if labeled is None else f"{labeled.features.source} with {labeled.expectations.origin}"
    return EntitySummary(
        n_answers=metrics.n,
        rows=entity_rows(metrics),
        unreadable=(),
        undefined=tuple((f"entity.{metric}", why) for metric, why in metrics.undefined.items()),
        vocabulary=len(vocabulary),
        classifier=ClassifierSummary(
            name=classifier.name,
            kind="detector" if classifier.is_detector else "zero-shot",
            chosen=presence.chosen,
            source=source,
            templates=() if classifier.is_detector else classifier.templates,
            entities=presence.thresholds,
        ),
    )


def _variant(presence: _Presence, classifier: EntityClassifier, labeled: _Scored | None) -> str:
    """What beside the extractor decides what counts as there: results that differ in it are not comparable."""
    if labeled is not None:
        labels = expectations_summary(labeled.expectations, None, None).content
        digits = sha256_of_rows(Identities.of(labeled.features).content, labels)[:8]
        chosen = f"thresholds by labeled images {digits}"
    elif presence.chosen == "fixed":
        chosen = f"found from a score of {DETECTED:g} on"
    else:
        chosen = "thresholds by prompts, in halves"
    return chosen if classifier.is_detector else f"{chosen}, asked as {' / '.join(classifier.templates)}"


def _feature_notices(features: FeatureSet, classifier: EntityClassifier) -> list[Notice]:
    """Notices from embedding; `genpr features` cannot keep scores of detectors."""
    return [
        replace(item, hint="") if classifier.is_detector and item.code == "extractor-not-cached" else item
        for item in features.notices
    ]


def _notices(presence: _Presence, metrics: EntityMetrics, name: str) -> list[Notice]:
    """What a reader should know of the classification, most important first."""
    found, thresholds = [], presence.thresholds
    if presence.chosen == "prompts":
        found.append(notice("thresholds-by-prompts", classifier=name))
        if guessed := _guessed(metrics):
            count, total = f"{len(guessed):,}", f"{len(thresholds):,}"
            found.append(notice("entities-guessed", count=count, total=total, shown=some(guessed)))
    rates = [
        (each.sensitivity + 1 - each.false_positive_rate) / 2
        for each in thresholds
        if each.sensitivity is not None and each.false_positive_rate is not None
    ]
    poor = sum(rate < _POOR for rate in rates)
    if poor:
        facts = {"classifier": name, "count": f"{poor:,}", "total": f"{len(rates):,}"}
        found.append(notice("poorly-recognized", limit=f"{_POOR:.0%}".replace("%", " %"), **facts))
    shared = sum(not each.is_own for each in thresholds)
    if shared and presence.chosen != "fixed":
        total = f"{len(thresholds):,}"
        found.append(notice("shared-thresholds", count=f"{shared:,}", total=total, least=LEAST_EXAMPLES))
    return found


def _guessed(metrics: EntityMetrics) -> list[str]:
    """Entities that are found where they are expected no more often than elsewhere, by two standard errors.

    A threshold is found for any entity. About half of the images without it pass, whether it is expected or not.
    """
    names = []
    for row in metrics.entities:
        others = metrics.n - row.n_expected
        if not row.n_found or not others or row.n_false is None:
            continue
        there, elsewhere = row.n_found / row.n_expected, row.n_false / others
        variance = there * (1 - there) / row.n_expected + elsewhere * (1 - elsewhere) / others
        if there - elsewhere <= 2 * math.sqrt(variance):
            names.append(row.entity)
    return names
