"""What is asked of images and prompts.

The record of an alignment: values, sides, what was noticed, who failed.

Images and prompts embedded, ranked both ways, and told apart image by image.

Do images show what their prompts say: from images and prompts to one `Result`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.conditional.copies import THRESHOLD, Copies, CopyQuestion, copy_values, find_copies
from genpr.conditional.prompt_ranking import (
    Asked,
    Direction,
    ImageRank,
    clip_score,
    image_ranks,
    named_values,
    rankings,
)
from genpr.conditional.prompts import Captions, Prompts, open_prompts
from genpr.errors import DataError, UsageError, short
from genpr.evaluation.diagnostics import decoding_notices
from genpr.evaluation.result import (
    AlignmentSummary,
    Identities,
    Misranked,
    Result,
    SideSummary,
    package_versions,
)
from genpr.features.cpu_fallback import going_on
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder, Space, StageProgress
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, open_side
from genpr.features.lookup import canonical_name
from genpr.features.row_names import names_of, rows_in_source
from genpr.features.text import check_has_text
from genpr.features.text_encoder import TextEncoder
from genpr.features.text_pairs import check_pair, text_encoder_for
from genpr.images.item import known_length
from genpr.images.policy import MAX_PIXELS
from genpr.memory import memory_limit, parse_size
from genpr.metrics.halved import LEAST_UNITS
from genpr.metrics.similarity import FeaturePairs
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice

DISTRACTORS = 99


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of images and prompts.

    Attributes:
        distractors: Prompts of other images that each image ranks beside its own.
        text_to_image: Whether prompts rank images, too.
        prefix: Put in front of every prompt before it is embedded.
        seed: Chooses the distractors, and the halves of intervals.
        copies: What the images may be copies of; None if that is not asked.
    """

    distractors: int = DISTRACTORS
    text_to_image: bool = True
    prefix: str = ""
    seed: int = 0
    copies: CopyQuestion | None = None

    def __post_init__(self) -> None:
        for name, least in (("distractors", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise UsageError(
                    f"{name} must be an integer of at least {least}, not {value!r}", code="bad-option"
                )
        if not isinstance(self.prefix, str) or "\0" in self.prefix:
            raise UsageError(f"prefix must be a text, not {self.prefix!r}", code="bad-option")


def copy_question(train: object, threshold: float, pairs: object) -> CopyQuestion | None:
    """What is asked about copies; None where no training images are given.

    Raises:
        UsageError: Known copies, and nothing that they are copied from.
    """
    if train is not None:
        return CopyQuestion(train=train, threshold=threshold, pairs=pairs)
    if pairs is not None:
        raise UsageError("pairs name copies of training images, which copies_of must give", code="bad-option")
    return None


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


DEFAULT_EXTRACTOR = "clip-vit-b-32"


def align(
    images: object,
    prompts: object,
    *,
    extractor: str | FeatureExtractor = DEFAULT_EXTRACTOR,
    distractors: int = DISTRACTORS,
    text_to_image: bool = True,
    prefix: str = "",
    copies_of: object = None,
    threshold: float = THRESHOLD,
    pairs: object = None,
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
    """Judge images by the prompts that they were made from.

    Each image ranks its own prompt among those of other images by the cosine of their embeddings, and each prompt its
    image among other images; the share of those that rank their own first is R-precision. Images of one prompt, and
    prompts of one image, never compete.

    Args:
        images: Anything that `genpr.score` takes: a folder, an archive, an array, a feature file.
        prompts: A file (.csv, .tsv, .jsonl, .json, .txt), a folder of .txt files, "beside", a mapping from names to prompts, or
            a list in the order of the images: see `genpr.conditional.prompts.open_prompts`.
        extractor: A CLIP model, or a user's own that has `encode_text`: see `genpr.load_text_encoder`.
        distractors: How many others each is ranked among; fewer where there are not so many, which is said.
        text_to_image: Whether prompts rank images, too.
        prefix: Put in front of every prompt, as "A photo depicts " for the CLIPScore of its authors.
        copies_of: Training images, or their features: adds `retrieval.copy_rate`, the share of images with a cosine above
            `threshold` to one of them, beside what training images score among themselves.
        threshold: The cosine; .5 is meant for features of copy detection (SSCD), so choose it by the null for others.
        pairs: Known copies, as pairs of names or a .csv file of image,training image: adds `retrieval.copy_ap`.
        max_images: Use a random subset of at most so many images.
        seed: Chooses distractors, subset, and the halves of intervals.
        device: "auto", "cpu", "cuda", "cuda:1" or a `torch.device`.
        batch_size: Images per forward pass.
        weights: File that holds the published weights.
        offline: Never download.
        cache: Keep the features of images on disk for the next run.
        cache_dir: Where to keep them.
        on_bad: Unusable images: refuse the source after listing all ("error"), or leave them out ("skip").
        max_bad: The share of unusable images above which "skip" refuses all the same.
        max_pixels: Larger images are refused before decoding.
        alpha: "drop" leaves transparency out; "white", "black" or "#rrggbb" is laid behind it.
        exif: "ignore" takes pixels as stored; "apply" turns them by their EXIF orientation.
        max_memory: Plan with at most so much, as "8GiB".
        progress: Told (stage, done, total).

    Returns:
        A result with metrics `retrieval.*` and `alignment.clip_score`; `alignment` says which images failed. Its `real` side
        are the prompts.

    Raises:
        UsageError: A path or name does not exist, an option is impossible, or the extractor embeds no texts.
        DataError: Images or prompts cannot be used, or do not belong together.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> class Colours:
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
        >>> result = align(images, ["red", "green", "green"], extractor=Colours(), device="cpu")
        >>> round(result["retrieval.r_precision"], 3), result.alignment.pool
        (0.833, 2)
        >>> worst = result.alignment.failures[0]
        >>> worst.image, worst.prompt, worst.rank
        ('[2]', 'green', 1.5)
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
    question = Question(
        distractors=distractors,
        text_to_image=text_to_image,
        prefix=prefix,
        seed=seed,
        copies=copy_question(copies_of, threshold, pairs),
    )
    with memory_limit(None if max_memory is None else parse_size(max_memory)):
        return aligned(images, prompts, extractor, question, embedder).result
