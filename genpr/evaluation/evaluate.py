"""From two sources to one `Result`, or to one per protocol."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal

import torch

from genpr.errors import UsageError
from genpr.evaluation.held_out import embedded_held_out
from genpr.evaluation.label_metrics import LabelConfig
from genpr.evaluation.label_options import LabelOptions
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.protocols import find_protocol
from genpr.evaluation.reference import FittedReference
from genpr.evaluation.result import Result
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder
from genpr.features.extractor import FeatureExtractor
from genpr.features.inputs import OpenedSide, check_same_kind, open_side
from genpr.features.options import EmbedOptions, StageProgress
from genpr.images.policy import MAX_PIXELS, BadImagePolicy
from genpr.memory import memory_limit, parse_size
from genpr.validation import check_ties


def score(
    real: object,
    fake: object,
    *,
    extractor: str | FeatureExtractor | None = None,
    protocol: str = "genpr",
    metrics: Sequence[str] | None = None,
    k: int | None = None,
    ties: Literal["closed", "strict"] | None = None,
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
    intervals: bool = True,
    control: bool = True,
    held_out: object = None,
    equal_sizes: bool = False,
    labels: LabelOptions | None = None,
    progress: StageProgress | None = None,
) -> Result:
    """Score one fake set against one real set; `Evaluator` documents every argument.

    Both sources are found and compared in kind before the first image is embedded.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        DataError: A side cannot be used, or the two do not belong together.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(300, 4))
        >>> collapsed = 0.01 * rng.normal(size=(300, 4))
        >>> result = score(real, collapsed)
        >>> result["precision"], result["recall"]
        (1.0, 0.0)
    """
    results = score_protocols(
        real,
        fake,
        protocols=[protocol],
        extractor=extractor,
        metrics=metrics,
        k=k,
        ties=ties,
        max_images=max_images,
        seed=seed,
        device=device,
        batch_size=batch_size,
        weights=weights,
        offline=offline,
        cache=cache,
        cache_dir=cache_dir,
        on_bad=on_bad,
        max_bad=max_bad,
        max_pixels=max_pixels,
        alpha=alpha,
        exif=exif,
        max_memory=max_memory,
        intervals=intervals,
        control=control,
        held_out=held_out,
        equal_sizes=equal_sizes,
        labels=labels,
        progress=progress,
    )
    return results[protocol]


def score_protocols(
    real: object,
    fake: object,
    *,
    protocols: Sequence[str],
    extractor: str | FeatureExtractor | None = None,
    metrics: Sequence[str] | None = None,
    k: int | None = None,
    ties: Literal["closed", "strict"] | None = None,
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
    intervals: bool = True,
    control: bool = True,
    held_out: object = None,
    equal_sizes: bool = False,
    labels: LabelOptions | None = None,
    progress: StageProgress | None = None,
) -> dict[str, Result]:
    """Score the same two sets under several protocols; each image goes through each network once.

    A protocol that wants fewer images than another takes a random part of what is embedded.

    `Evaluator` documents every other argument.

    Returns:
        One result per protocol, in the order of `protocols`.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible or pinned by a protocol.
        DataError: A side cannot be used, or the two do not belong together.
        ResourceError: Weights, device or memory are missing.
    """
    if ties is not None:
        check_ties(ties)
    names = _checked_names(protocols)
    embedder = Embedder(
        EmbedOptions(
            device=device,
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
    )
    with memory_limit(None if max_memory is None else parse_size(max_memory)):
        opened_real, opened_fake = open_side(real, "real"), open_side(fake, "fake")
        check_same_kind(opened_real, opened_fake)
        plans = [
            ScorePlan.of(
                name,
                opened_real,
                extractor=extractor,
                metrics=metrics,
                k=k,
                ties=ties,
                intervals=intervals,
                control=control,
                held_out=held_out is not None,
                equal_sizes=equal_sizes,
            )
            for name in names
        ]
        recipe = LabelConfig.of(labels, opened_real, BadImagePolicy(on_bad, max_bad))
        if recipe is not None:
            recipe.check(opened_fake)
        reals, fakes = _embedded(plans, opened_real, opened_fake, embedder)
        kept = embedded_held_out(held_out, opened_real, plans, embedder)
        return {
            plan.protocol.name: FittedReference(plan, reals, embedder, kept, recipe).score(fakes)
            for plan in plans
        }


def _checked_names(protocols: str | Sequence[str]) -> list[str]:
    names = [protocols] if isinstance(protocols, str) else list(dict.fromkeys(protocols))
    if not names:
        raise UsageError("no protocol was named; at least one is needed", code="no-protocol")
    for name in names:
        find_protocol(name)
    return names


def _embedded(
    plans: Sequence[ScorePlan], real: OpenedSide, fake: OpenedSide, embedder: Embedder
) -> tuple[SideFeatures, SideFeatures]:
    """Both sides in every space that some plan needs of them."""
    own = [plan.own for plan in plans]
    reals = SideFeatures(real, "real", embedder, limit=_most(plan.most_real for plan in plans), own=own)
    reals.require(
        [space for plan in plans for space in plan.real_spaces],
        minimum=max(plan.least_real for plan in plans),
        for_metrics=[space for plan in plans for space in plan.looked_at],
    )
    fakes = SideFeatures(fake, "fake", embedder, limit=_most(plan.most_fake for plan in plans), own=own)
    fakes.require(
        [space for plan in plans for space in plan.spaces.values()],
        minimum=max(plan.least_fake for plan in plans),
    )
    return reals, fakes


def _most(limits: Iterable[int | None]) -> int | None:
    """The largest limit; None where one of them is."""
    found = list(limits)
    return None if None in found else max(limit for limit in found if limit is not None)
