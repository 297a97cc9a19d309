"""Diversity within groups, such as the fakes of one prompt: metrics of pairs of images, averaged over pairs, then groups.

**Pairs.** The images of a group are put in random order, by a hash of the seed and their names, so that neither the order of files
nor other groups matter. Neighbors in this order become pairs: (0, 1), (2, 3), ..., then (1, 2), (3, 4), ..., then those two
apart, and so on. All pairs are equally likely, and few pairs share no image. An image is dropped after the last of its pairs, so
that N pairs need at most some sqrt(2 N) images at once.

**Intervals** are over groups, since images of one group are not independent.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Literal, Unpack

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
    result_of_pairs,
    seen_images,
)
from genpr.evaluation.result import DiversitySummary, Result, SideSummary
from genpr.evaluation.tables import ImageValues
from genpr.features.embed import EmbeddedImages, embed
from genpr.features.extractor import DescribedExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.networks.lpips import MIN_SIDE, PerceptualDistance
from genpr.features.options import takes_options
from genpr.features.resize import as_tensor
from genpr.features.source_features import Embedder, OpenedImages, check_options_of_ranks, with_cpu_fallback
from genpr.features.weights import WeightsFile
from genpr.images.item import ImageSource, Item, SubsetSource, known_length
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


def choose_pairs(n: int, most: int) -> list[tuple[int, int]]:
    """At most `most` pairs of n images in random order, as positions, sorted by the second; see **Pairs** above."""
    every = (
        (first, first + apart)
        for apart in range(1, n)
        for is_odd in (False, True)
        for first in range(n - apart)
        if first // apart % 2 == is_odd
    )
    return sorted(islice(every, most), key=lambda pair: pair[::-1])


class _Set:
    """The images of one set in the order in which they are read, and the values of their pairs by group."""

    def __init__(
        self, source: ImageSource, images: LabeledImages, wanted: Container[str], options: DiversityOptions
    ) -> None:
        n, order, self.pairs = len(images.names), list[int](), list[tuple[int, int]]()
        self.seen, self.role = EmbeddedImages(torch.empty(n, 0)), images.role
        self.groups, self.group_of, self.options = list[str](), list[str](), options
        self.values = defaultdict[str, list[list[float]]](list)  # of each metric, by pair
        chosen = {*choose_rows(n, options.max_images or n, options.seed).tolist()}
        for group in filter(wanted.__contains__, images.rows):
            own = [row for row in images.rows[group] if row in chosen]
            own.sort(key=lambda row: names_sha256([str(options.seed), images.names[row]]))
            pairs = choose_pairs(len(own), options.pairs)
            own = own[: max(pairs, default=(0, -1))[1] + 1]  # those in pairs are the first
            self.pairs += [(len(order) + first, len(order) + second) for first, second in pairs]
            order += own
            self.groups += [group] * len(own)
        self.source = SubsetSource(source.name, source, order)

    def add_pairs(self, measures: Mapping[str, _Measure], device: torch.device) -> None:
        """Compute the activations of each image once, and keep them until the last of its pairs."""
        partners = {
            at: [first for first, _ in each] for at, each in groupby(self.pairs, lambda pair: pair[1])
        }
        last, kept = dict(self.pairs), dict[int, list[list[Tensor]]]()  # by position
        for batch in self._batches():
            pixels = torch.stack([image for _, image in batch]).to(device)
            layers = [list(each.activations(pixels)) for each in measures.values()]
            for row, (at, _) in enumerate(batch):
                kept[at] = [[layer[row : row + 1] for layer in each] for each in layers]
                for other in filter(kept.__contains__, partners.get(at, ())):
                    both = (zip(*each, strict=True) for each in zip(kept[other], kept[at], strict=True))
                    found = zip(measures.values(), both, strict=True)
                    values = [float(measure.compared(each)[0]) for measure, each in found]
                    self.values[self.groups[at]].append(values)
                kept = {each: own for each, own in kept.items() if last.get(each, -1) > at}

    def _batches(self) -> Iterator[list[tuple[int, Tensor]]]:
        """Positions and pixels of usable images, in batches of one size."""
        options = self.options
        for shape, run in groupby(self._images(), lambda each: each[1].shape):
            count = max(1, min(options.batch_size, _PIXELS // shape[1:].numel()))
            while batch := list(islice(run, count)):
                if options.on_bad == "skip" or not self.seen.bad:
                    yield batch
        bad = list(self.seen.bad.values())
        options.bad_images.check(bad, total=len(self.groups), source=self.source.name)

    def _images(self) -> Iterator[tuple[int, Tensor]]:
        """Positions and pixels of usable images, whose facts are recorded."""
        leasts = {"lpips": MIN_SIDE[self.options.lpips_net], "ms_ssim": MultiScaleSSIM.least}
        least = max(leasts.get(metric, 1) for metric in self.options.chosen)
        first = dict[str, LoadedImage]()  # of the current group
        for at, [image] in enumerate(read_ahead(enumerate(self._items()), [Reader()], self.options.decoding)):
            if self.options.progress is not None:
                self.options.progress(self.role, at + 1, len(self.groups))
            group = self.groups[at]
            if least > 1:  # extractors take any size
                image = checked(first.get(group, image), image, least, "another of its group,")
            self.seen.add(image)
            if image.pixels is not None:
                first = {group: first.get(group, image)}
                self.group_of.append(group)
                yield at, as_tensor(image.pixels)

    def _items(self) -> Iterator[Item]:
        """The images; those of a group are read in the order of the source, which may have no random access."""
        rows = self.source.rows
        for _, own in groupby(range(len(rows)), self.groups.__getitem__):
            positions = list(own)
            ordered = sorted(positions, key=rows.__getitem__)
            items = dict(zip(ordered, self.source.select(ordered), strict=True))
            yield from map(items.__getitem__, positions)

    def means(self, names: Iterable[str]) -> dict[str, dict[str, float]]:
        """The numbers of images and pairs and the mean of each metric, by group with pairs."""
        images = Counter(self.group_of)
        return {
            group: {
                "images": images[group],
                "pairs": len(rows),
                **dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True)),
            }
            for group, rows in self.values.items()
        }


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
    with state_guard(), torch.inference_mode(), reused_memory:
        for role, images in labeled.items():
            found[role] = _Set(opened[role].source, images, labeled["fake"].rows, options)
            found[role].add_pairs(measures, embedder.device)
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
    means = {role: each.means(measures) for role, each in found.items()}
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
    metrics, variant = {}, f"at most {options.pairs:,} pairs in a group"
    for name, measure in measures.items():
        column = np.array([row[name] for row in used.values()])
        value = mean_value(DIVERSITY + name, column, measure.info, options.seed, variant)
        if reals:
            null = float(np.mean([reals[group][name] for group in used]))
            value = replace(value, null=null, null_source="reals of the same groups")
        metrics[DIVERSITY + name] = value
    images, sides = dict[Role, FeatureSet](), dict[Role, SideSummary]()
    for role, each in found.items():
        images[role], sides[role], more = seen_images(role, each.seen, each.source, options)
        own += [*labeled[role].notices, *more]
    origin, fake = labeled["fake"].origin, sides["fake"]
    whole = replace(fake, source=origin, n=len(used), order="", what="groups")
    real = sides.get("real", whole)
    # Results of other groups are not alike; with equal groups, halves are of the same ones, and differences are paired.
    key = names_sha256([real.order, *used])
    real = replace(real, content=key, order=key)
    first = options.chosen[0]
    sign = -1 if ALL_METRICS[DIVERSITY + first].better == "lower" else 1
    groups = {
        group: row | {f"real_{name}": value for name, value in reals.get(group, {}).items()}
        for group, row in sorted(means["fake"].items(), key=lambda each: sign * each[1][first])
    }
    infos = [each.info for each in measures.values() if each.info is not None]
    result = result_of_pairs("diversity", metrics, infos, (real, fake), [*own, *notices], embedder, options)
    result = replace(result, diversity=DiversitySummary(origin, groups), seconds={"pairs": seconds})
    return Diverse(result, images, {role: each.group_of for role, each in found.items()})
