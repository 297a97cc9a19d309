"""Text-image alignment: how well images match their prompts.

Images and prompts are embedded by one model. Each image ranks its own prompt among others, and each prompt its image.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from genpr.conditional.options import AlignKeywords, AlignOptions
from genpr.conditional.prompt_ranking import (
    ImageRank,
    PoolRanking,
    PromptAssignment,
    clip_score,
    image_ranks,
    rank_pools,
    worst_first,
)
from genpr.conditional.prompts import Captions, Prompts, check_number, open_prompts
from genpr.conditional.shared import embed_matched, text_side
from genpr.errors import DataError, short
from genpr.evaluation.notices_of_score import decoding_notices
from genpr.evaluation.result import AlignmentSummary, Result, SideSummary, result_of_pairs
from genpr.features.extractor import TextEncoder
from genpr.features.feature_set import FeatureSet
from genpr.features.options import takes_options
from genpr.features.registry import canonical_name, require_all_weights
from genpr.features.source_features import Embedder, open_input, with_cpu_fallback
from genpr.features.text import check_pair, text_encoder_for
from genpr.memory import memory_limit
from genpr.metrics.metric import MetricValue
from genpr.metrics.similarity import FeaturePairs
from genpr.metrics.uncertainty import MIN_UNITS
from genpr.notices import Notice, notice
from genpr.validation import entry_point

_MAX_FAILURES = 200


@dataclass(frozen=True)
class Aligned:
    """A result with the rank, the prompts and the features of each image."""

    result: Result
    ranks: Sequence[ImageRank]
    assignment: PromptAssignment
    features: FeatureSet


@takes_options(AlignOptions)
@entry_point
def align(images: object, prompts: object, **options: Unpack[AlignKeywords]) -> Result:
    """Score how well images match the prompts that they were generated from.

    Each image ranks its own prompt among those of other images by the cosine of their embeddings, and each prompt its
    image among other images; the share of those that rank their own first is R-precision. Images of one prompt, and
    prompts of one image, never compete.

    Args:
        images: Images as for `genpr.score`: a folder, an archive, an array, a feature file.
        prompts: A file (.csv, .tsv, .jsonl, .json, .txt), a folder of .txt files, a mapping from names to prompts, or
            a list in the order of the images: see `genpr.conditional.prompts.open_prompts`.
        **options: The fields of `AlignOptions`.

    Returns:
        A result with metrics `retrieval.*` and `alignment.clip_score`; `alignment` lists the images that failed. Its `real`
        source is the prompts.

    Raises:
        UsageError: A path or name does not exist, an option is impossible, or the extractor embeds no texts.
        DataError: Images or prompts cannot be used, or do not match.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import torch
        >>> class Colors:
        ...     dim = 3
        ...
        ...     def __call__(self, images):
        ...         return images.float().mean((2, 3))
        ...
        ...     def encode_text(self, texts):
        ...         known = {"red": [1.0, 0, 0], "green": [0, 1.0, 0], "blue": [0, 0, 1.0]}
        ...         return torch.tensor([known[text] for text in texts])
        >>> images = torch.zeros(3, 3, 8, 8, dtype=torch.uint8)
        >>> images[[0, 1, 2], [0, 1, 2]] = 255
        >>> result = align(images, ["red", "green", "green"], extractor=Colors(), prefix="", device="cpu")
        >>> round(result["retrieval.r_precision"], 3), result.alignment.pool
        (0.833, 2)
        >>> worst = result.alignment.failures[0]
        >>> worst.image, worst.prompt, worst.rank
        ('[2]', 'green', 1.5)
    """
    return align_with(images, prompts, AlignOptions(**options)).result


def align_with(images: object, prompts: object, options: AlignOptions) -> Aligned:
    """`align`, with the values of each image."""
    with memory_limit(options.max_memory):
        embedder, extractor = Embedder(options), options.extractor
        if isinstance(extractor, str):
            extractor = canonical_name(extractor)
        opened, table = open_input(images, "fake", options.decoding), open_prompts(prompts)
        check_number(table, options.recipe)
        require_all_weights([extractor], options)
        features, captions = embed_matched(
            opened, "images", table, extractor, embedder, check=lambda captions: _assignment(captions, table)
        )
        assignment = _assignment(captions, table)
        encoder = text_encoder_for(extractor, embedder)
        started = time.perf_counter()
        texts = [options.prefix + text for text in assignment.texts]
        report = None if options.progress is None else partial(options.progress, "prompts")
        vectors = encoder.encode_text(texts, progress=report)
        encoded = time.perf_counter()
        check_pair(features, encoder, vectors, assignment.texts)
        (by_image, by_text, score, ranks), notices = with_cpu_fallback(
            embedder, lambda on: _rank(features, assignment, vectors, options, on), "for the ranking"
        )
    failures, truncated = worst_first(ranks), encoder.truncated(texts)
    summary = AlignmentSummary(
        pool=by_image.pool,
        n_prompts=len(texts),
        n_truncated=None if truncated is None else sum(truncated),
        failures=tuple(each.shown() for each in failures[:_MAX_FAILURES]),
        n_failures=len(failures),
        image_pool=by_text.pool,
        n_units=assignment.n_units,
        captions=max(map(len, assignment.of_image)),
        prefix=options.prefix,
        tokenizer=encoder.info.tokenizer,
        context=encoder.info.context,
    )
    deviations = () if options.recipe is None else options.recipe.deviations(None, len(features))
    own = list(_notices(summary, vectors, encoder, options.distractors + 1, features))
    if deviations:
        own.insert(0, notice("protocol-not-met", protocol=options.protocol, what="; ".join(deviations)))
    # Units are sorted by their texts, so the halves and the hash do not depend on the order of images.
    n, content = len(texts), assignment.content
    side = text_side(table.origin, "prompts", n=n, content=content, order=content)
    n_duplicates = sum(map(len, assignment.of_image)) - n
    (values, undefined), (others, lacking) = by_image.values(""), by_text.values("t2i_")
    values |= others | {"alignment.clip_score": score}
    variant = f"prompts begin with {options.prefix!r}" if options.prefix else None
    metrics = {name: replace(each, variant=variant, extractor=encoder.name) for name, each in values.items()}
    side = replace(side, n_embedded=n, n_duplicates=n_duplicates, seconds=encoded - started)
    sides, infos = (side, SideSummary.from_features(features)), filter(None, [features.extractor])
    result = result_of_pairs(options.protocol, metrics, infos, sides, [*own, *notices], embedder, options)
    result = replace(
        result,
        extractor=features.extractor,
        deviations=deviations,
        ties="expected",
        undefined=(*undefined, *lacking),
        seconds={"text": encoded - started, "ranking": time.perf_counter() - encoded},
        alignment=summary,
    )
    return Aligned(result, ranks, assignment, features)


def _assignment(captions: Sequence[Captions], table: Prompts) -> PromptAssignment:
    """The prompts of each image."""
    assignment = PromptAssignment.from_captions(captions)
    if assignment.n_units == 1:
        message = f"all {len(captions):,} images share one prompt or connected prompts, such as "
        message += f"{short(assignment.texts[0])!r} in {short(table.origin, 60)}; ranking needs at least two"
        raise DataError(message, code="one-prompt", path=table.origin)
    return assignment


def _rank(
    features: FeatureSet, assignment: PromptAssignment, vectors: Tensor, options: AlignOptions, on: Embedder
) -> tuple[PoolRanking, PoolRanking, MetricValue, list[ImageRank]]:
    """Rankings of texts by each image, and of images by the text of each pair of image and text; the CLIPScore; ranks."""
    images = features.features.float()
    rank = partial(rank_pools, options=options, device=on.device)
    units = assignment.unit_of_image, assignment.unit_of_text
    by_image = rank(images, vectors, assignment.of_image, units)
    image, text = assignment.pairs
    own = [[row] for row in image.tolist()]
    by_text = rank(vectors[torch.from_numpy(text)], images, own, (units[1][text], units[0]))
    similarity = FeaturePairs(images, vectors)
    names = [features.name_of(row) for row in range(len(features))]
    ranks = image_ranks(names, assignment.texts, by_image, similarity)
    return by_image, by_text, clip_score(assignment, similarity, seed=options.seed), ranks


def _notices(
    summary: AlignmentSummary, vectors: Tensor, encoder: TextEncoder, requested: int, features: FeatureSet
) -> Iterator[Notice]:
    """Notices about truncated or indistinguishable texts, small pools, too few prompts for intervals, and the images."""
    facts = {"total": f"{len(vectors):,}", "encoder": encoder.name}
    if summary.n_truncated:
        count = f"{summary.n_truncated:,}"
        yield notice("prompts-truncated", context=summary.context, count=count, **facts)
    if alike := len(vectors) - len(torch.unique(vectors, dim=0)):
        yield notice("duplicate-prompts", count=f"{alike:,}", **facts)
    for pool, what in ((summary.pool, "prompts"), (summary.image_pool, "images")):
        if pool is not None and pool < requested:
            yield notice("small-pool", pool=pool, requested=requested, what=what)
    if summary.n_units < MIN_UNITS:
        yield notice("few-prompts", n=summary.n_units, least=MIN_UNITS)
    info = features.extractor
    if info is not None and not info.comparable:
        yield notice("custom-encoder", extractor=info.name)
    yield from (*decoding_notices("fake", features), *features.notices)
