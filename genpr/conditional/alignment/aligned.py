"""Images and prompts embedded, ranked both ways, and told apart image by image."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.conditional.alignment.asked import Asked
from genpr.conditional.alignment.copies import Copies, copy_values, find_copies
from genpr.conditional.alignment.question import Question
from genpr.conditional.alignment.ranks import ImageRank, image_ranks
from genpr.conditional.alignment.record import Made, result_of_alignment
from genpr.conditional.alignment.values import Direction, clip_score, named_values, rankings
from genpr.conditional.prompts.read import open_prompts
from genpr.conditional.prompts.table import Captions, Prompts
from genpr.errors import DataError, short
from genpr.evaluation.result import Result
from genpr.features.cpu_fallback import going_on
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder, Space
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, open_side
from genpr.features.lookup import canonical_name
from genpr.features.row_names import names_of, rows_in_source
from genpr.features.text import check_has_text
from genpr.features.text_pairs import check_pair, text_encoder_for
from genpr.images.item import known_length
from genpr.metrics.retrieval.similarities import FeaturePairs
from genpr.metrics.value import MetricValue


@dataclass(frozen=True)
class Aligned:
    """A result with what is known of each image.

    Attributes:
        result: The numbers.
        ranks: One per image, in their order.
        asked: What each was asked for.
        identities: (n, 32) uint8, sha256 of the images' bytes; None where they are not known.
        copies: What they may be copied from; None if that was not asked for.
    """

    result: Result
    ranks: Sequence[ImageRank]
    asked: Asked
    identities: NDArray[np.uint8] | None
    copies: Copies | None = None


@dataclass(frozen=True)
class _Ranked:
    """Everything that rankings gave: metrics, those without value, each image, and candidates both ways."""

    values: dict[str, MetricValue]
    undefined: tuple[str, ...]
    ranks: Sequence[ImageRank]
    pools: tuple[int, int | None]


def aligned(
    images: object, prompts: object, extractor: Space, question: Question, embedder: Embedder
) -> Aligned:
    """As `genpr.align`, with what is known of each image."""
    space: Space = extractor
    if isinstance(extractor, str):
        check_has_text(extractor)
        space = canonical_name(extractor)
    opened, table = open_side(images, "fake"), open_prompts(prompts, images)
    _check_before_embedding(opened, table, question)
    encoder = text_encoder_for(space, embedder)
    side = SideFeatures(opened, "images", embedder, own=(space,))
    side.require([space], minimum=1)
    features = side[space]
    asked = _asked(_captions(opened, features, table), table.origin)
    started = time.perf_counter()
    report = None if embedder.progress is None else partial(embedder.progress, "prompts")
    vectors = encoder.encode_text([question.prefix + text for text in asked.texts], progress=report)
    encoded = time.perf_counter()
    check_pair(features, encoder, vectors, asked.texts)
    ranked, told = going_on(
        embedder,
        lambda where: _ranked(features, asked, vectors, question, where, encoder.name),
        "for the ranking",
    )
    copies, more = going_on(
        embedder,
        lambda where: (
            None if question.copies is None else find_copies(features, question.copies, space, where)
        ),
        "for copies",
    )
    copied = {} if copies is None else copy_values(copies, extractor=encoder.name)
    made = Made(
        values=ranked.values | copied,
        undefined=ranked.undefined,
        asked=asked,
        origin=table.origin,
        vectors=vectors,
        features=features,
        encoder=encoder,
        ranks=ranked.ranks,
        asked_for=question.distractors,
        prefix=question.prefix,
        pools=ranked.pools,
        seconds={"text": encoded - started, "ranking": time.perf_counter() - encoded},
    )
    hashes = None if features.identities is None else features.identities.numpy()
    result = result_of_alignment(made, embedder)
    result = replace(result, notices=tuple(dict.fromkeys((*result.notices, *told, *more))))
    return Aligned(result, ranked.ranks, asked, hashes, copies)


def _ranked(
    features: FeatureSet,
    asked: Asked,
    vectors: Tensor,
    question: Question,
    embedder: Embedder,
    extractor: str,
) -> _Ranked:
    variant = f"prompts begin with {question.prefix!r}" if question.prefix else None
    images = features.features.float()
    to_text, to_image = _directions(asked, images, vectors, question, embedder)
    values, undefined = named_values(to_text, "", extractor=extractor, variant=variant)
    if to_image is not None:
        others, lacking = named_values(to_image, "t2i_", extractor=extractor, variant=variant)
        values, undefined = values | others, [*undefined, *lacking]
    similarity = FeaturePairs(images, vectors, "cosine")
    values |= clip_score(asked, similarity, seed=question.seed, extractor=extractor, variant=variant)
    names = [features.name_of(row) for row in range(len(features))]
    ranks = image_ranks(names, asked, to_text.pools, to_text.distractors, similarity)
    return _Ranked(
        values, tuple(undefined), ranks, (to_text.pool, None if to_image is None else to_image.pool)
    )


def _check_before_embedding(opened: OpenedSide, table: Prompts, question: Question) -> None:
    """What names alone can tell is told before an image is embedded, which may take hours."""
    if question.copies is not None:
        _ = question.copies.opened(), question.copies.named_pairs()
    names = names_of(opened)
    if names is not None:
        table.check_used(names)
        _asked(table.of(names, range(len(names)), len(names)), table.origin)


def _captions(opened: OpenedSide, features: FeatureSet, table: Prompts) -> list[Captions]:
    """The prompts of each embedded image."""
    total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
    names = [features.name_of(row) for row in range(len(features))]
    is_whole = total is None and not features.skipped
    rows = range(len(features)) if is_whole else rows_in_source(opened, features, total)
    return table.of(names, rows, total)


def _asked(captions: Sequence[Captions], origin: str) -> Asked:
    """What the prompts ask for.

    Raises:
        DataError: All ask for the same ("one-prompt").
    """
    asked = Asked.of(captions)
    if int(asked.unit_of_text.max()) == 0:
        raise DataError(
            f"all {len(captions):,} images have one prompt, or prompts that belong together, such as "
            f"{short(asked.texts[0])!r} in {short(origin, 60)}: nothing to tell it from. Ranking needs at least two",
            code="one-prompt",
            path=origin,
        )
    return asked


def _directions(
    asked: Asked, images: Tensor, texts: Tensor, question: Question, embedder: Embedder
) -> tuple[Direction, Direction | None]:
    """Images rank texts; and of each pair of image and text, the text ranks images."""
    progress = None if embedder.progress is None else partial(embedder.progress, "ranking")
    rank = partial(
        rankings,
        distractors=question.distractors,
        seed=question.seed,
        device=embedder.device,
        progress=progress,
    )
    to_text = rank(
        images,
        texts,
        asked.of_image,
        (asked.unit_of_image, asked.unit_of_text),
        grades=asked.grades if asked.is_graded else None,
    )
    if not question.text_to_image:
        return to_text, None
    image, text = asked.pairs
    units = asked.unit_of_text[text], asked.unit_of_image
    return to_text, rank(texts[torch.from_numpy(text)], images, [[row] for row in image.tolist()], units)
