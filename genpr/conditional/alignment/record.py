"""The record of an alignment: values, sides, what was noticed, who failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.conditional.alignment.asked import Asked
from genpr.conditional.alignment.ranks import ImageRank
from genpr.evaluation.diagnostics import decoding_notices
from genpr.evaluation.result import (
    AlignmentSummary,
    Identities,
    Misranked,
    Result,
    SideSummary,
    package_versions,
)
from genpr.features.embedder import Embedder
from genpr.features.feature_set import FeatureSet
from genpr.features.text_encoder import TextEncoder
from genpr.metrics.halved import LEAST_UNITS
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice

PROTOCOL = "align"
_MOST_FAILURES = 200


@dataclass(frozen=True, kw_only=True)
class Made:
    """Everything that was computed.

    Attributes:
        values: Metrics by name.
        undefined: Names of those that say nothing here.
        asked: What was asked for.
        origin: Where prompts come from.
        vectors: Of the different texts.
        features: Of the images.
        encoder: Of the texts.
        ranks: One per image.
        asked_for: Distractors that were wanted.
        prefix: In front of every prompt.
        pools: Candidates of an image, and of a prompt; None if prompts ranked nothing.
        seconds: By stage.
    """

    values: Mapping[str, MetricValue]
    undefined: tuple[str, ...]
    asked: Asked
    origin: str
    vectors: Tensor
    features: FeatureSet
    encoder: TextEncoder
    ranks: Sequence[ImageRank]
    asked_for: int
    prefix: str
    pools: tuple[int, int | None]
    seconds: Mapping[str, float]


def result_of_alignment(made: Made, embedder: Embedder) -> Result:
    """The result; prompts are its real side."""
    features, asked = made.features, made.asked
    truncated = made.encoder.truncated([made.prefix + text for text in asked.texts])
    n_truncated = None if truncated is None else sum(truncated)
    info = features.extractor
    return Result(
        metrics=made.values,
        protocol=PROTOCOL,
        ties="expected",
        distances="exact",
        extractor=info,
        extractors={} if info is None else {info.name: info},
        deviations=(),
        real=_prompt_side(made),
        fake=SideSummary.of(features, Identities.of(features)),
        n_shared=0,
        device=str(embedder.device),
        seed=embedder.seed,
        max_images=embedder.max_images,
        seconds=made.seconds,
        versions=package_versions(),
        notices=(*_notices(made, n_truncated), *decoding_notices("fake", features), *features.notices),
        undefined=made.undefined,
        alignment=_summary(made, n_truncated),
    )


def _prompt_side(made: Made) -> SideSummary:
    asked = made.asked
    return SideSummary(
        source=made.origin,
        n=len(asked.texts),
        n_embedded=len(asked.texts),
        n_cached=0,
        n_duplicates=sum(map(len, asked.of_image)) - len(asked.texts),
        skipped=(),
        flags={},
        decoder={},
        seconds=made.seconds["text"],
        content=asked.content,
        order=asked.content,  # halves are of units, whose order is that of their texts
        what="prompts",
    )


def _summary(made: Made, n_truncated: int | None) -> AlignmentSummary:
    failures = worst_first(made.ranks)
    info = made.encoder.info
    return AlignmentSummary(
        pool=made.pools[0],
        n_prompts=len(made.asked.texts),
        n_truncated=n_truncated,
        failures=tuple(
            Misranked(each.image, each.prompt, each.rank, each.score, each.winner, each.winner_score)
            for each in failures[:_MOST_FAILURES]
        ),
        n_failures=len(failures),
        image_pool=made.pools[1],
        n_units=int(made.asked.unit_of_text.max()) + 1,
        captions=max(map(len, made.asked.of_image)),
        prefix=made.prefix,
        tokenizer=info.tokenizer,
        context=info.context,
    )


def worst_first(ranks: Sequence[ImageRank]) -> list[ImageRank]:
    """Images whose own prompt is not alone in front, the lowest first; among equals those that lose by most."""
    failed = [each for each in ranks if each.is_failure]
    return sorted(failed, key=lambda each: (-each.rank, each.score - each.winner_score, each.row))


def _notices(made: Made, n_truncated: int | None) -> list[Notice]:
    """What a reader should know, most important first."""
    found, total, encoder = [], len(made.asked.texts), made.encoder
    if n_truncated:
        facts = {"count": f"{n_truncated:,}", "total": f"{total:,}", "encoder": encoder.name}
        found.append(notice("prompts-truncated", context=encoder.info.context, **facts))
    alike = total - len(torch.unique(made.vectors, dim=0))
    if alike:
        found.append(notice("prompts-alike", count=f"{alike:,}", total=f"{total:,}", encoder=encoder.name))
    for pool, what in zip(made.pools, ("prompts", "images"), strict=True):
        if pool is not None and pool <= made.asked_for:
            found.append(notice("small-pool", pool=pool, asked=made.asked_for + 1, what=what))
    info = made.features.extractor
    if info is not None and not info.comparable:
        found.append(notice("own-encoder", extractor=info.name))
    n_units = int(made.asked.unit_of_text.max()) + 1
    if n_units < LEAST_UNITS:
        found.append(notice("few-prompts", n=n_units, least=LEAST_UNITS))
    return found
