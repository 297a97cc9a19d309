"""The record of entities recognised in images: values, sides, thresholds, what was noticed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from genpr.conditional.entities.expectations import Expectations
from genpr.conditional.entities.text_files import some
from genpr.conditional.entities.vocabulary import Vocabulary
from genpr.conditional.entity_scores.scoring import (
    PROTOCOL,
    asked_side,
    hashed,
    metric_of,
    nothing_expected,
    rows_of,
)
from genpr.conditional.recognition.labelled import Labelled
from genpr.conditional.recognition.recogniser import Recogniser
from genpr.conditional.recognition.thresholds import Judged
from genpr.evaluation.diagnostics import decoding_notices
from genpr.evaluation.result import (
    EntitySummary,
    Identities,
    RecogniserSummary,
    Result,
    SideSummary,
    package_versions,
)
from genpr.features.feature_set import FeatureSet
from genpr.metrics.entity.entities import EntityMetrics, entity_set_metrics
from genpr.metrics.entity.presence import LEAST_EXAMPLES
from genpr.notices import Notice, notice

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
