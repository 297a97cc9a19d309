"""Do images show what their prompts say: from images and prompts to one `Result`."""

from __future__ import annotations

import os
from typing import Literal

import torch

from genpr.conditional.alignment.aligned import aligned
from genpr.conditional.alignment.copies import THRESHOLD
from genpr.conditional.alignment.question import DISTRACTORS, Question, copy_question
from genpr.evaluation.result import Result
from genpr.features.embedder import Embedder, StageProgress
from genpr.features.extractor import FeatureExtractor
from genpr.images.policy import MAX_PIXELS
from genpr.memory import memory_limit, parse_size

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
            a list in the order of the images: see `genpr.conditional.prompts.read.open_prompts`.
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
