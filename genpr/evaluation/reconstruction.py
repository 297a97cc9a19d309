"""Reconstructions against their originals: metrics of each pair, their means, and the Fréchet distance of all.

Images are decoded once for the metrics of pixels, a bounded number at a time, and once more for each network of features.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import BadImagesError, DataError, ImageError, UsageError, WeightsError, printable, some
from genpr.evaluation.diagnostics import decoding_notices
from genpr.evaluation.pairs import OrderedPart, pair_sources
from genpr.evaluation.reconstruction_options import FAMILY, ReconstructKeywords, ReconstructOptions
from genpr.evaluation.result import Identities, ReconstructionSummary, Result, SideSummary, package_versions
from genpr.features.embed import EmbeddedImages, LoadedImage, read_ahead
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages, open_input
from genpr.features.networks.lpips import LEAST_SIDE, PerceptualDistance, find_weights, own_weights
from genpr.features.options import takes_options
from genpr.features.registry import check_weights_used, require_weights, weights_of
from genpr.features.source_features import Embedder, SourceFeatures, with_cpu_fallback
from genpr.images.decode import decoder_versions
from genpr.images.source import choose_rows
from genpr.memory import memory_limit
from genpr.metrics.frechet import frechet_distance
from genpr.metrics.paired import WINDOW, cosines, interval_of_mean, psnr, squared_error, ssim
from genpr.metrics.ranking_values import LEAST_UNITS, halved
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice
from genpr.runtime import state_guard
from genpr.validation import entry_point

Floats = NDArray[np.float64]
PROTOCOL = "reconstruct"
_ROLES = ("originals", "reconstructions")
_PIXELS = 2**22  # of the images of one side that are compared at once
_WAITING_BATCHES = 4  # of pairs of different sizes
_MOST_MISFITS = 100  # pairs that cannot be compared, before the others are not looked at
_SMALL = 1000  # images, below which a Fréchet distance depends strongly on their number
_VARIANTS = {
    "psnr": "of uint8 pixels; identical pairs are left out",
    "ssim": "Gaussian window of 11 pixels, sigma 1.5, reflected borders",
    "lpips": "version 0.1",
}
_Batch = Sequence[tuple[int, Tensor, Tensor]]  # rows of pairs with both images uint8 (3, h, w)


@dataclass(frozen=True)
class Reconstructed:
    """A result with what is known of each pair that could be used, in the order of the originals."""

    result: Result
    sides: tuple[FeatureSet, FeatureSet]  # names and hashes of both images of each pair, without features
    # (n,) float64 of each metric of pairs, without the prefix; psnr is infinite for identical pairs
    values: Mapping[str, Floats]


@takes_options(ReconstructOptions)
@entry_point
def reconstruct(real: object, reconstructed: object, **options: Unpack[ReconstructKeywords]) -> Result:
    """Compare images with their reconstructions, as papers about tokenizers and autoencoders do.

    Images from files are paired by their names relative to the source, without suffix. Images of arrays are paired by their
    order, which cannot be checked; their number is. Both images of a pair must have one size: see `prepare`.

    Args:
        real: The originals: anything with images that `genpr.score` takes, except iterators.
        reconstructed: Their reconstructions, likewise.
        **options: The fields of `ReconstructOptions`.

    Returns:
        A result with metrics `reconstruction.*`: means over pairs with Student's 95 % interval, and the Fréchet distance.
        `reconstruction` says how images were paired, and how many pairs are identical.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        BadImagesError: Images without a partner, of other sizes or too small ("bad-pairs"; `bad` lists them), or unusable.
        DataError: Other numbers of images in arrays ("pair-count").
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> images = np.random.default_rng(0).integers(1, 255, (20, 32, 32, 3), dtype=np.uint8)
        >>> result = reconstruct(images, images + np.uint8(1), metrics=["psnr", "ssim"], device="cpu")
        >>> round(result["reconstruction.psnr"], 4)
        48.1308
        >>> result.reconstruction
        ReconstructionSummary(n_pairs=20, n_identical=0, paired_by='order')
    """
    return reconstruct_with(real, reconstructed, ReconstructOptions(**options)).result


def reconstruct_with(real: object, reconstructed: object, options: ReconstructOptions) -> Reconstructed:
    """As `reconstruct`, with what is known of each pair."""
    with memory_limit(options.max_memory):
        embedder, opened = Embedder(options), (_opened(real, "real"), _opened(reconstructed, "reconstructed"))
        *parts, paired_by = pair_sources(opened[0].source, opened[1].source)
        if options.max_images is not None:
            rows = choose_rows(len(parts[0]), options.max_images, options.seed).tolist()
            parts = [part.at(rows) for part in parts]
        _check_weights(options)
        started = time.perf_counter()
        found, notices = with_cpu_fallback(
            embedder, partial(_measured, parts=parts, options=options), "for the pairs"
        )
        found.seconds["pixels"] = time.perf_counter() - started
        notices = (*notices, *_add_features(found, [each.on_disk for each in opened], embedder, options))
        summary = ReconstructionSummary(len(found.names), int(found.identical.sum()), paired_by)
        return _result(found, notices, summary, embedder, options)


def _opened(source: object, role: str) -> OpenedImages:
    opened = open_input(source, role)
    if isinstance(opened, FeatureSet):
        text = f"{printable(opened.source)} holds features, but pairs are compared by pixels; give images"
        raise UsageError(text, code="needs-images", path=opened.source)
    return opened


def _check_weights(options: ReconstructOptions) -> None:
    """Refuse missing weights before any image is read, and weights that nothing uses."""
    names = [space for space in options.spaces.values() if isinstance(space, str)]
    is_lpips, net = "lpips" in options.chosen, options.lpips_net
    if not (is_lpips and any(own_weights(net, options.weights))):
        check_weights_used(names, options.weights)
    try:
        if is_lpips:
            find_weights(net, options.weights, offline=options.offline)
        for name in names:
            require_weights(name, weights=weights_of(name, options.weights), offline=options.offline)
    except WeightsError as error:
        text = f"{error}. Metrics that need no weights: --metrics psnr,ssim"
        raise WeightsError(text, code=error.code, path=error.path) from error


@dataclass
class _Measured:
    """Pairs of which both images could be used, and what is known of them, in their order."""

    parts: Sequence[OrderedPart]
    seen: Sequence[EmbeddedImages]  # of both sides, without features
    # (n,) bool: of equal pixels; and those whose reconstruction is farther away than that of another pair
    identical: NDArray[np.bool_]
    unlike: NDArray[np.bool_]
    names: list[tuple[str, str]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # in `parts`, of which some could not be used
    values: dict[str, Floats] = field(default_factory=dict)
    extractors: dict[str, ExtractorInfo] = field(default_factory=dict)  # by metric
    seconds: dict[str, float] = field(default_factory=dict)


def _measured(embedder: Embedder, parts: Sequence[OrderedPart], options: ReconstructOptions) -> _Measured:
    """Decode all pairs once, and compute the metrics of pixels."""
    n, chosen, distance = len(parts[0]), options.chosen, None
    seen = [EmbeddedImages(torch.empty(n, 0)) for _ in _ROLES]
    found = _Measured(parts, seen, np.zeros(n, bool), np.zeros(n, bool))
    if "lpips" in chosen:
        paths = find_weights(options.lpips_net, options.weights, offline=options.offline)
        distance = PerceptualDistance.from_files(options.lpips_net, paths, embedder.device)
    columns = {name: np.empty(n) for name in chosen if name in {"psnr", "ssim", "lpips"}}
    with state_guard(), torch.inference_mode():
        for batch in _batches(found, options):
            rows = [row for row, _, _ in batch]
            real, fake = (
                torch.stack(each).to(embedder.device) for each in list(zip(*batch, strict=True))[1:]
            )
            error = squared_error(real, fake)
            found.identical[rows] = (error == 0).cpu()
            found.unlike[rows] = (error > squared_error(real, fake.roll(1, 0))).cpu()
            for name, column in columns.items():
                if name == "psnr":
                    values = psnr(error, real[0, 0].numel())
                else:
                    values = ssim(real, fake) if distance is None or name == "ssim" else distance(real, fake)
                column[rows] = values.cpu()
    found.values = {name: column[: len(found.names)] for name, column in columns.items()}
    if distance is not None:
        found.extractors["lpips"] = distance.info
    return found


def _batches(found: _Measured, options: ReconstructOptions) -> Iterator[_Batch]:
    """Usable pairs, those of one size together; what is known of them is recorded in `found`."""
    total, name = len(found.parts[0]), found.parts[1].name
    items = enumerate(zip(*found.parts, strict=True))
    pairs = chain.from_iterable(((place, item) for item in pair) for place, pair in items)
    images = (image for [image] in read_ahead(pairs, [(None, None)], options.decoding))
    misfits: list[ImageError] = []
    leasts = {"ssim": WINDOW, "lpips": LEAST_SIDE[options.lpips_net]}
    least = max((side for metric, side in leasts.items() if metric in options.chosen), default=1)
    waiting: dict[torch.Size, list[tuple[int, Tensor, Tensor]]] = {}
    for place, (real, fake) in enumerate(zip(images, images, strict=True)):
        if options.progress is not None:
            options.progress("pairs", place + 1, total)
        if real.pixels is None or fake.pixels is None:
            for seen, image in zip(found.seen, (real, fake), strict=True):
                if image.error is not None:
                    seen.add(image)
            continue
        found.places.append(place)
        found.names.append((real.name, fake.name))
        row, _ = found.seen[0].add(real), found.seen[1].add(fake)
        misfits += _misfits(real, fake, least)
        if len(misfits) == _MOST_MISFITS:
            break
        shape = real.pixels.shape
        waiting.setdefault(shape, []).append((row, real.pixels, fake.pixels))
        full = max(1, min(options.batch_size, _PIXELS // shape[1:].numel()))
        if misfits:
            waiting.clear()
        elif len(waiting[shape]) >= full:
            yield waiting.pop(shape)
        elif sum(map(len, waiting.values())) >= _WAITING_BATCHES * full:
            yield waiting.pop(max(waiting, key=lambda key: len(waiting[key])))
    if misfits:
        count = f"{'at least ' * (len(misfits) == _MOST_MISFITS)}{len(misfits):,} of {total:,}"
        text = f"{count} pairs cannot be compared ({some([each.path or '' for each in misfits], 5)}); the first: "
        text += f"{misfits[0]}. --prepare center-crop:N or resize:N gives all images one size"
        raise BadImagesError(text, bad=misfits, code="bad-pairs", path=name)
    for seen, part in zip(found.seen, found.parts, strict=True):
        options.bad_images.check(list(seen.bad.values()), total=total, source=part.name)
    if not found.names:
        raise DataError(f"none of the pairs of {printable(name)} can be used", code="no-images", path=name)
    yield from waiting.values()


def _misfits(real: LoadedImage, fake: LoadedImage, least: int) -> list[ImageError]:
    """Why a pair cannot be compared, if it cannot."""
    assert real.pixels is not None
    assert fake.pixels is not None
    sizes = [f"{each.shape[2]} x {each.shape[1]}" for each in (real.pixels, fake.pixels)]
    code, reason = "sizes-differ", f"its original {printable(real.name)} {sizes[0]}"
    if sizes[0] == sizes[1]:
        code, reason = "image-too-small", f"the metrics need sides of at least {least}"
        if min(fake.pixels.shape[1:]) >= least:
            return []
    return [ImageError(f"{fake.name} has {sizes[1]} pixels, {reason}", code=code, path=fake.name)]


def _add_features(
    found: _Measured, on_disk: Sequence[bool], embedder: Embedder, options: ReconstructOptions
) -> list[Notice]:
    """Add the metrics of features, and give what was noticed."""
    if not options.spaces:
        return []
    started, spaces, sides = time.perf_counter(), list(options.spaces.values()), []
    is_used = any(weights_of(space, options.weights) for space in spaces if isinstance(space, str))
    own = embedder.with_options(max_images=None, weights=options.weights if is_used else None)
    for part, is_file, role in zip(found.parts, on_disk, _ROLES, strict=True):
        side = SourceFeatures(OpenedImages(part.at(found.places), is_file), role, own)
        side.require(spaces, minimum=2 if "rfid" in options.spaces else 1)
        sides.append(side)
    notices = [each for side in sides for space in spaces for each in side[space].notices]
    for name, space in options.spaces.items():
        real, fake = (side[space].features for side in sides)
        if name == "rfid":
            found.values[name] = np.array([frechet_distance(real, fake, device=embedder.device)])
        else:
            found.values[name] = cosines(real, fake)
        if (info := sides[1][space].extractor) is not None:
            found.extractors[name] = info
    found.seconds["features"] = time.perf_counter() - started
    return notices


def _metric_value(name: str, column: Floats, extractor: ExtractorInfo | None, seed: int) -> MetricValue:
    """The mean of a column with a finite value, or the only value of a metric of all pairs."""
    finite, metric = column[np.isfinite(column)], ALL_METRICS[FAMILY + name]
    low, high = metric.lower or 0.0, metric.upper or np.inf
    ends = interval_of_mean(finite)
    return MetricValue(
        min(float(finite.mean()), high),
        None,
        extractor=None if extractor is None else extractor.name,
        variant=_VARIANTS.get(name),
        interval=None if ends is None else (max(ends.low, low), min(ends.high, high)),
        replicates=_replicates(column, seed),
        n_counted=None if name == "rfid" else len(finite),
    )


def _replicates(column: Floats, seed: int) -> tuple[float, ...] | None:
    """Means over halves of the pairs, for comparisons; None where there are too few."""
    if len(column) < LEAST_UNITS:
        return None
    is_finite = np.isfinite(column)
    both = torch.from_numpy(np.stack([np.where(is_finite, column, 0), is_finite], axis=1))
    totals = halved(lambda weights: weights @ both, len(column), seed=seed)
    replicates = totals[:, 0] / totals[:, 1]
    return tuple(replicates.tolist()) if replicates.isfinite().all() else None


def _result(
    found: _Measured,
    notices: Sequence[Notice],
    summary: ReconstructionSummary,
    embedder: Embedder,
    options: ReconstructOptions,
) -> Reconstructed:
    facts, said = {"total": f"{summary.n_pairs:,}"}, list[Notice]()
    if summary.n_identical:
        said.append(notice("identical-pairs", count=f"{summary.n_identical:,}", **facts))
    if found.unlike.any():
        shown = [found.names[row][1] for row in np.flatnonzero(found.unlike)]
        said.append(notice("unlike-pairs", count=f"{len(shown):,}", shown=some(shown), **facts))
    if "rfid" in found.values and summary.n_pairs < _SMALL:
        said.append(notice("small-sample", n=summary.n_pairs))
    sides, summaries = [], []
    for seen, part, names, role in zip(
        found.seen, found.parts, zip(*found.names, strict=True), _ROLES, strict=True
    ):
        decoder = decoder_versions() | options.decoding.choices
        side = replace(seen.feature_set(part.name, (), None), names=names, decoder=decoder)
        said += [*decoding_notices(role, side), *part.notices]
        sides.append(side)
        summaries.append(replace(SideSummary.of(side, Identities.of(side)), what=role))
    columns = {name: found.values[name] for name in options.chosen}
    defined = [name for name, column in columns.items() if np.isfinite(column).any()]
    result = Result(
        metrics={
            FAMILY + name: _metric_value(name, columns[name], found.extractors.get(name), options.seed)
            for name in defined
        },
        protocol=PROTOCOL,
        ties="",
        distances="exact",
        extractor=None,
        extractors={each.name: each for each in found.extractors.values()},
        deviations=(),
        real=summaries[0],
        fake=summaries[1],
        n_shared=0,
        device=str(embedder.device),
        seed=options.seed,
        max_images=options.max_images,
        seconds=found.seconds,
        versions=package_versions(),
        notices=tuple(dict.fromkeys((*said, *notices))),
        undefined=tuple(FAMILY + name for name in columns if name not in defined),
        reconstruction=summary,
    )
    columns.pop("rfid", None)
    return Reconstructed(result, (sides[0], sides[1]), columns)
