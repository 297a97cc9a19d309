"""Diversity within groups, such as the fakes of one prompt: metrics of pairs of images, averaged over pairs, then groups.

All pairs of a group are compared, of at most `images_per_group` random images, whose activations are in memory together. They are
chosen by a hash of the seed and their names, so that neither the order of files nor other groups matter. Intervals are over groups,
since images of one group are not independent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, groupby, islice
from pathlib import Path
from typing import Literal, Self, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError, printable, some
from genpr.evaluation.labels import LabeledImages, SourceLabels, check_shared
from genpr.evaluation.options import DIVERSITY, DiversityKeywords, DiversityOptions
from genpr.evaluation.reconstruction import (
    checked,
    find_weights,
    mean_value,
    opened_images,
    perceptual_distance,
    seen_images,
)
from genpr.evaluation.result import DiversitySummary, Result, SideSummary, result_of_pairs
from genpr.evaluation.tables import ImageValues
from genpr.features.embed import EmbeddedImages, embed
from genpr.features.extractor import DescribedExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.networks.lpips import MIN_SIDE, PerceptualDistance
from genpr.features.options import takes_options
from genpr.features.resize import as_tensor
from genpr.features.source_features import Embedder, OpenedImages, check_options_of_ranks, with_cpu_fallback
from genpr.features.weights import WeightsFile
from genpr.images.item import ImageSource, SubsetSource, known_length
from genpr.images.loading import LoadedImage, Reader
from genpr.images.read_ahead import read_ahead
from genpr.images.shards import names_sha256
from genpr.images.source import choose_rows
from genpr.memory import memory_limit
from genpr.metrics.paired import MultiScaleSSIM, cosines
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import MIN_UNITS
from genpr.notices import Notice, notice
from genpr.runtime import reused_memory, state_guard
from genpr.validation import entry_point

Role = Literal["real", "fake"]
_PIXELS = 2**20  # per forward pass
_HINT = "put the images of each group into a folder, or give groups (--groups), such as the word all for a single one"


class _CosineDistance:
    def __init__(self, extractor: DescribedExtractor) -> None:
        self.extractor, self.info = extractor, extractor.info

    def activations(self, images: Tensor) -> list[Tensor]:
        return [embed(images.cpu(), self.extractor, batch_size=len(images))]

    def compared(self, layers: Iterable[Sequence[Tensor]]) -> NDArray[np.float64]:
        ((first, second),) = layers
        return 1 - cosines(first, second)


_Measure = PerceptualDistance | MultiScaleSSIM | _CosineDistance
"""A metric of two images by their activations, of which every image has its own."""


@dataclass(frozen=True)
class Diverse:
    """A result with the usable images of each set, without features, and the group of each image, by role."""

    result: Result
    images: Mapping[Role, FeatureSet]
    group_of: Mapping[Role, Sequence[str]]


@takes_options(DiversityOptions)
@entry_point
def diversity(fake: object, **options: Unpack[DiversityKeywords]) -> Result:
    """Compute how different the images of one group are, such as those of one prompt, class or source image.

    Args:
        fake: Images as for `genpr.score`, except iterators.
        **options: The fields of `DiversityOptions`.

    Returns:
        A result with metrics `diversity.*`: means over pairs, then over groups, with 95 % intervals over groups (for at least 10).
        With `real`, means are over groups that both sets have, and the null is that of the reals. `diversity` has the values of
        each group.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        BadImagesError: Unusable images ("bad-images"), for example of another size than their group; `bad` lists them.
        DataError: There are no groups ("no-labels"), none with two images ("single-images"), or reals of other groups
            ("labels-disagree").
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> images = np.random.default_rng(0).integers(0, 255, (4, 176, 176, 3), dtype=np.uint8)
        >>> result = diversity(images, groups=[1, 1, 1, 2], metrics=["ms_ssim"], device="cpu")
        >>> {group: row["pairs"] for group, row in result.diversity.groups.items()}
        {'1': 3}
    """
    return diversity_with(fake, DiversityOptions(**options)).result


def diversity_with(fake: object, options: DiversityOptions) -> Diverse:
    """Implementation of `diversity`, with the images of each group."""
    check_options_of_ranks(options)
    with memory_limit(options.max_memory):
        embedder = Embedder(options)
        sources: dict[Role, object] = {"fake": fake, "real": options.real}
        opened = {
            role: opened_images(each, role, options) for role, each in sources.items() if each is not None
        }
        labeled = {role: _labeled(each, role, options) for role, each in opened.items()}
        if "real" in labeled:
            check_shared(labeled["real"], labeled["fake"])
        work = partial(_measured, opened, labeled, find_weights(options), options)
        started = time.perf_counter()
        found, notices = with_cpu_fallback(embedder, work, "for the pairs")
        return _result(found, labeled, notices, time.perf_counter() - started, embedder, options)


def _labeled(opened: OpenedImages, role: Role, options: DiversityOptions) -> LabeledImages:
    """The images of one set with their groups."""
    source, given = opened.source, options.groups
    if role == "real" and options.groups_of_real is not None:
        given = options.groups_of_real
    if isinstance(given, str) and given == "all":
        given = ImageValues(["all"] * (known_length(source) or 0), "all images", "label", from_source=True)
    images = SourceLabels.open(given, opened, role, options.bad_images, hint=_HINT).named
    if images is None:
        text = f"{printable(source.name)} can be read in order only; give a folder, an archive, an array or a dataset"
        raise UsageError(text, code="source-kind", path=source.name)
    return images


@dataclass
class _Set:
    """The images of one set that are compared, in the order in which they are read, and the values of its groups."""

    part: SubsetSource
    seen: EmbeddedImages  # facts of the images, without features
    group_of: list[str] = field(default_factory=list)
    means: dict[str, dict[str, float]] = field(
        default_factory=dict
    )  # "images", "pairs" and metrics, by group

    @classmethod
    def read(
        cls,
        source: ImageSource,
        images: LabeledImages,
        wanted: Container[str],
        means: Callable[[Sequence[LoadedImage]], dict[str, float]],
        options: DiversityOptions,
    ) -> Self:
        """Read the chosen images of the wanted groups with two or more, one group at a time, and compare them."""
        n, chosen = len(images.names), dict[str, list[int]]()
        usable = {*choose_rows(n, options.max_images or n, options.seed).tolist()}
        for group in filter(wanted.__contains__, images.rows):
            own = usable.intersection(images.rows[group])
            if len(own) > 1:
                shuffled = sorted(own, key=lambda row: names_sha256([str(options.seed), images.names[row]]))
                chosen[group] = sorted(shuffled[: options.images_per_group])
        order = list(chain.from_iterable(chosen.values()))
        found = cls(SubsetSource(source.name, source, order), EmbeddedImages(torch.empty(n, 0)))
        leasts = {"lpips": MIN_SIDE[options.lpips_net], "ms_ssim": MultiScaleSSIM.least}
        least = max(leasts.get(metric, 1) for metric in options.chosen)
        # A group is selected by itself, since a source may have no random access.
        items = enumerate(chain.from_iterable(map(source.select, chosen.values())))
        unread = read_ahead(items, [Reader()], options.decoding)
        for group, rows in chosen.items():
            own_images = list[LoadedImage]()
            for [image] in islice(unread, len(rows)):
                if options.progress is not None:
                    options.progress(images.role, image.position + 1, len(order))
                if least > 1:  # extractors take any size
                    image = checked((own_images or [image])[0], image, least, "another of its group,")
                found.seen.add(image)
                own_images += [image] * (image.pixels is not None)
            found.group_of += [group] * len(own_images)
            if len(own_images) > 1 and (options.on_bad == "skip" or not found.seen.bad):
                found.means[group] = means(own_images)
        options.bad_images.check(list(found.seen.bad.values()), total=len(order), source=source.name)
        return found


def _means(
    images: Sequence[LoadedImage], measures: Mapping[str, _Measure], device: torch.device, batch_size: int
) -> dict[str, float]:
    """The numbers of images and pairs, and the mean of each metric over all pairs; each image passes a network once."""
    pixels = [as_tensor(image.pixels) for image in images if image.pixels is not None]
    known = {name: list[Sequence[Tensor]]() for name in measures}  # layers by image
    for _, run in groupby(pixels, lambda each: each.shape):
        stack = torch.stack(list(run))
        for batch in torch.split(stack, max(1, min(batch_size, _PIXELS // stack[0, 0].numel()))):
            for name, measure in measures.items():
                layers = [torch.split(layer, 1) for layer in measure.activations(batch.to(device))]
                known[name] += zip(*layers, strict=True)
    found: dict[str, float] = {"images": len(images), "pairs": math.comb(len(images), 2)}
    for name, measure in measures.items():
        pairs = combinations(known[name], 2)
        found[name] = float(np.mean([float(measure.compared(zip(*pair, strict=True))[0]) for pair in pairs]))
    return found


def _measured(
    opened: Mapping[Role, OpenedImages],
    labeled: Mapping[Role, LabeledImages],
    weights: Mapping[WeightsFile, Path],
    options: DiversityOptions,
    embedder: Embedder,
) -> tuple[dict[Role, _Set], dict[str, _Measure]]:
    """The fakes and the reals of their groups with the values of their pairs, and the metrics by name."""
    found, measures = dict[Role, _Set](), dict[str, _Measure]()
    if weights:
        measures["lpips"] = perceptual_distance(options.lpips_net, weights, embedder.device)
    if "ms_ssim" in options.chosen:
        measures["ms_ssim"] = MultiScaleSSIM()
    for name, extractor in options.extractors.items():
        measures[name] = _CosineDistance(embedder.load([extractor]))
    means = partial(_means, measures=measures, device=embedder.device, batch_size=options.batch_size)
    with state_guard(), torch.inference_mode(), reused_memory:
        for role, images in labeled.items():
            found[role] = _Set.read(opened[role].source, images, labeled["fake"].rows, means, options)
    return found, measures


def _result(
    measured: tuple[Mapping[Role, _Set], Mapping[str, _Measure]],
    labeled: Mapping[Role, LabeledImages],
    notices: Sequence[Notice],
    seconds: float,
    embedder: Embedder,
    options: DiversityOptions,
) -> Diverse:
    found, measures = measured
    means = {role: each.means for role, each in found.items()}
    reals, own = means.get("real", {}), list[Notice]()
    used = {group: row for group, row in means["fake"].items() if "real" not in means or group in reals}
    if not used:
        text = "no group has two images of each set, so there are no pairs to compare; check the groups"
        raise DataError(text, code="single-images", path=labeled["fake"].source)
    if len(used) < MIN_UNITS:
        own.append(notice("few-groups", n=len(used), least=MIN_UNITS))
    for role, known in means.items():
        if alone := [group for group in labeled["fake"].rows if group not in known]:
            facts = {"count": f"{len(alone):,}", "total": f"{len(labeled['fake'].rows):,}"}
            own.append(notice("groups-without-pairs", role=role, shown=some(alone), **facts))
    metrics, variant = {}, f"all pairs of at most {options.images_per_group:,} images in a group"
    for name, measure in measures.items():
        column = np.array([row[name] for row in used.values()])
        value = mean_value(DIVERSITY + name, column, measure.info, options.seed, variant)
        if reals:
            null = float(np.mean([reals[group][name] for group in used]))
            value = replace(value, null=null, null_source="reals of the same groups")
        metrics[DIVERSITY + name] = value
    images, sides = dict[Role, FeatureSet](), dict[Role, SideSummary]()
    for role, each in found.items():
        images[role], sides[role], more = seen_images(role, each.seen, each.part, options)
        own += [*labeled[role].notices, *more]
    origin, fake = labeled["fake"].origin, sides["fake"]
    whole = replace(fake, source=origin, n=len(used), order="", what="groups")
    real = sides.get("real", whole)
    # Results of other groups are not alike; with equal groups, halves are of the same ones, and differences are paired.
    key = names_sha256([real.order, *used])
    real = replace(real, content=key, order=key)
    first = options.chosen[0]
    is_similarity = ALL_METRICS[DIVERSITY + first].better == "lower"
    groups = {
        group: row | {f"real_{name}": value for name, value in reals.get(group, {}).items()}
        for group, row in sorted(
            means["fake"].items(), key=lambda each: each[1][first], reverse=is_similarity
        )
    }
    infos = [each.info for each in measures.values() if each.info is not None]
    result = result_of_pairs("diversity", metrics, infos, (real, fake), [*own, *notices], embedder, options)
    result = replace(result, diversity=DiversitySummary(origin, groups), seconds={"pairs": seconds})
    return Diverse(result, images, {role: each.group_of for role, each in found.items()})
