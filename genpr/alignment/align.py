"""Do images show what their prompts say: from images and prompts to one `Result`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.alignment.asked import Asked
from genpr.alignment.ranks import ImageRank, image_ranks
from genpr.alignment.record import Made, result_of_alignment
from genpr.alignment.values import Direction, clip_score, named_values, rankings
from genpr.errors import DataError, FeatureError, UsageError
from genpr.features.catalogue import BUILT_IN
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.lookup import canonical_name, family_loader, parse_name
from genpr.features.registry import check_weights_used, weights_of
from genpr.features.text import TextEncoder, check_has_text, load_text_encoder, text_encoder_of
from genpr.images.item import known_length
from genpr.images.policy import MAX_PIXELS
from genpr.memory import limited_memory, parse_size
from genpr.metrics.similarities import FeaturePairs
from genpr.prompts.read import open_prompts
from genpr.prompts.table import Captions, Prompts, short
from genpr.result import Result
from genpr.runtime import resolve_device
from genpr.side_features import Embedder, SideFeatures, Space, StageProgress
from genpr.sides import OpenedSide, open_side
from genpr.source_names import names_of, rows_in_source

DEFAULT_EXTRACTOR = "clip-vit-b-32"
DISTRACTORS = 99


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of images and prompts.

    Attributes:
        distractors: Prompts of other images that each image ranks beside its own.
        text_to_image: Whether prompts rank images, too.
        prefix: Put in front of every prompt before it is embedded.
        seed: Chooses the distractors, and the halves of intervals.
    """

    distractors: int = DISTRACTORS
    text_to_image: bool = True
    prefix: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("distractors", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise UsageError(
                    f"{name} must be an integer of at least {least}, not {value!r}", code="bad-option"
                )
        if not isinstance(self.prefix, str) or "\0" in self.prefix:
            raise UsageError(f"prefix must be a text, not {self.prefix!r}", code="bad-option")


@dataclass(frozen=True)
class Aligned:
    """A result with what is known of each image.

    Attributes:
        result: The numbers.
        ranks: One per image, in their order.
        asked: What each was asked for.
        identities: (n, 32) uint8, sha256 of the images' bytes; None where they are not known.
    """

    result: Result
    ranks: Sequence[ImageRank]
    asked: Asked
    identities: NDArray[np.uint8] | None


def align(
    images: object,
    prompts: object,
    *,
    extractor: str | FeatureExtractor = DEFAULT_EXTRACTOR,
    distractors: int = DISTRACTORS,
    text_to_image: bool = True,
    prefix: str = "",
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
            a list in the order of the images: see `genpr.prompts.read.open_prompts`.
        extractor: A CLIP model, or a user's own that has `encode_text`: see `genpr.load_text_encoder`.
        distractors: How many others each is ranked among; fewer where there are not so many, which is said.
        text_to_image: Whether prompts rank images, too.
        prefix: Put in front of every prompt, as "A photo depicts " for the CLIPScore of its authors.
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
        max_memory: Plan with at most so much, as "8GiB".
        progress: Told (stage, done, total).

    Returns:
        A result with metrics `retrieval.*` and `alignment.clip_score`; `alignment` says which images failed. Its `real` side
        are the prompts.

    Raises:
        UsageError: A path or name does not exist, an option is impossible, or the extractor embeds no texts.
        DataError: Images or prompts cannot be used, or do not belong together.
        ResourceError: Weights, device or memory are missing.
    """
    embedder = Embedder(
        device=resolve_device(device),
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
        progress=progress,
    )
    question = Question(distractors=distractors, text_to_image=text_to_image, prefix=prefix, seed=seed)
    with limited_memory(None if max_memory is None else parse_size(max_memory)):
        return aligned(images, prompts, extractor, question, embedder).result


def aligned(
    images: object, prompts: object, extractor: Space, question: Question, embedder: Embedder
) -> Aligned:
    """As `align`, with what is known of each image."""
    space: Space = extractor
    if isinstance(extractor, str):
        check_has_text(extractor)
        space = canonical_name(extractor)
    opened, table = open_side(images, "fake"), open_prompts(prompts, images)
    _check_before_embedding(opened, table)
    encoder = _text_encoder(space, embedder)
    side = SideFeatures(opened, "images", embedder, own=(space,))
    side.require([space], minimum=1)
    features = side[space]
    asked = _asked(_captions(opened, features, table), table.origin)
    started = time.perf_counter()
    report = None if embedder.progress is None else partial(embedder.progress, "prompts")
    vectors = encoder.encode_text([question.prefix + text for text in asked.texts], progress=report)
    encoded = time.perf_counter()
    _check_pair(features, encoder, vectors, asked)
    pixels = features.features.float()
    to_text, to_image = _directions(asked, pixels, vectors, question, embedder.device)
    similarity = FeaturePairs(pixels, vectors, "cosine")
    name = encoder.name
    variant = f"prompts begin with {question.prefix!r}" if question.prefix else None
    values, undefined = named_values(to_text, "", extractor=name, variant=variant)
    if to_image is not None:
        others, lacking = named_values(to_image, "t2i_", extractor=name, variant=variant)
        values, undefined = values | others, [*undefined, *lacking]
    values |= clip_score(asked, similarity, seed=question.seed, extractor=name, variant=variant)
    names = [features.name_of(row) for row in range(len(features))]
    ranks = image_ranks(names, asked, to_text.pools, to_text.distractors, similarity)
    made = Made(
        values=values,
        undefined=tuple(undefined),
        asked=asked,
        origin=table.origin,
        vectors=vectors,
        features=features,
        encoder=encoder,
        ranks=ranks,
        asked_for=question.distractors,
        prefix=question.prefix,
        pools=(to_text.pool, None if to_image is None else to_image.pool),
        seconds={"text": encoded - started, "ranking": time.perf_counter() - encoded},
    )
    hashes = None if features.identities is None else features.identities.numpy()
    return Aligned(result_of_alignment(made, embedder), ranks, asked, hashes)


def _check_before_embedding(opened: OpenedSide, table: Prompts) -> None:
    """What names alone can tell is told before an image is embedded, which may take hours."""
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


def _text_encoder(space: Space, embedder: Embedder) -> TextEncoder:
    is_own = not isinstance(space, str) or (
        parse_name(space).base not in BUILT_IN and family_loader(space) is None
    )
    if is_own or not isinstance(space, str):
        return text_encoder_of(embedder.load([space]))
    check_weights_used([space], embedder.weights)
    return load_text_encoder(
        space, weights=weights_of(space, embedder.weights), device=embedder.device, offline=embedder.offline
    )


def _check_pair(features: FeatureSet, encoder: TextEncoder, vectors: Tensor, asked: Asked) -> None:
    """Refuse images and texts that are not in one space.

    Raises:
        FeatureError: They are of other weights or widths, or a vector has no direction.
    """
    info, dim = features.extractor, features.features.shape[1]
    hashes = {encoder.info.weights_sha256, info.weights_sha256 if info else None} - {None}
    if dim != vectors.shape[1] or len(hashes) > 1:
        difference = (
            f"features of {dim} numbers against {vectors.shape[1]}"
            if dim != vectors.shape[1]
            else "other weights"
        )
        raise FeatureError(
            f"{short(features.source, 60)} and the text encoder of {encoder.name} do not belong together: {difference}; "
            "embed the images with that extractor",
            code="other-extractor",
            path=features.source,
        )
    for rows, name_of in ((features.features, features.name_of), (vectors, asked.texts.__getitem__)):
        lost = [row for start in range(0, len(rows), 2**16) for row in _without_direction(rows, start)]
        if lost:
            raise FeatureError(
                f"{len(lost):,} of {len(rows):,} embeddings are all zeros, so that no cosine with them is defined; the first "
                f"is of {short(name_of(lost[0]))!r}",
                code="zero-features",
                path=features.source,
            )


def _without_direction(rows: Tensor, start: int) -> list[int]:
    part = rows[start : start + 2**16]
    return [start + row for row in (~part.any(dim=1)).nonzero()[:, 0].tolist()]


def _directions(
    asked: Asked, images: Tensor, texts: Tensor, question: Question, device: torch.device
) -> tuple[Direction, Direction | None]:
    """Images rank texts; and of each pair of image and text, the text ranks images."""
    rank = partial(rankings, distractors=question.distractors, seed=question.seed, device=device)
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
