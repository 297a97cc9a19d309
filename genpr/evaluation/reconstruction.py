"""Metrics of reconstructions: values of each pair of images, their means, and the Fréchet distance of all images.

Images are decoded once for the metrics of pixels, a bounded number at a time, and again for each feature extractor.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, compress, pairwise, starmap
from pathlib import Path
from typing import Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import (
    BadImagesError,
    DataError,
    ImageError,
    UsageError,
    WeightsError,
    count_of,
    printable,
    short,
    some,
)
from genpr.evaluation.notices_of_score import SMALL, decoding_notices
from genpr.evaluation.options import FAMILY, DiversityOptions, ReconstructKeywords, ReconstructOptions
from genpr.evaluation.result import ReconstructionSummary, Result, SideSummary, result_of_pairs
from genpr.evaluation.tables import ImageValues
from genpr.features.embed import EmbeddedImages
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.features.networks.lpips import MIN_SIDE, PerceptualDistance, own_weights
from genpr.features.options import EmbedOptions, takes_options
from genpr.features.registry import require_all_weights, weights_of
from genpr.features.resize import as_tensor
from genpr.features.source_features import (
    Embedder,
    OpenedImages,
    check_options_of_ranks,
    open_input,
    source_features,
    with_cpu_fallback,
)
from genpr.features.weights import WeightsFile, find_or_fetch, load_weights
from genpr.images.decode import decoder_versions
from genpr.images.item import INDEX_NAME, ImageSource, SubsetSource, known_length, stem_of
from genpr.images.loading import LoadedImage, Reader
from genpr.images.read_ahead import read_ahead
from genpr.images.source import choose_rows
from genpr.memory import memory_limit
from genpr.metrics.frechet import frechet_distance
from genpr.metrics.metric import MetricValue
from genpr.metrics.paired import WINDOW, cosines, psnr, squared_error, ssim
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import MIN_UNITS, halved_means, with_interval
from genpr.notices import Notice, notice
from genpr.runtime import reused_memory, state_guard
from genpr.unicode_forms import normalize
from genpr.validation import entry_point

Floats = NDArray[np.float64]
PROTOCOL = "reconstruct"
_ROLES = ("original", "reconstruction")
_ORDER_ROWS, _CLOSER = 24, 0.75  # of unrelated images, half are closer
_PIXELS = 2**22  # pixels per batch of one source
_VARIANTS = {
    "psnr": "of uint8 pixels; identical pairs are left out",
    "ssim": "Gaussian window of 11 pixels, sigma 1.5, reflected borders",
}


@dataclass(frozen=True)
class Reconstructed:
    """A result with the names and values of all usable pairs, in the order of the originals."""

    result: Result
    sources: tuple[FeatureSet, FeatureSet]  # names and hashes of both images of each pair, without features
    # (n,) float64 of each metric of pairs, without the prefix; psnr is infinite for identical pairs
    values: Mapping[str, Floats]


@takes_options(ReconstructOptions)
@entry_point
def reconstruct(real: object, reconstructed: object, **options: Unpack[ReconstructKeywords]) -> Result:
    """Compare images with their reconstructions, as in papers about tokenizers and autoencoders.

    Images from files are paired by their names relative to the source, without suffix, or with `pair="order"` by folder and by
    the last number in the name. Images in arrays are paired by order. Both images of a pair must have the same size: see `prepare`.

    Args:
        real: The originals: images as for `genpr.score`, except iterators.
        reconstructed: Their reconstructions, with the same rules.
        **options: The fields of `ReconstructOptions`.

    Returns:
        A result with metrics `reconstruction.*`: means over pairs with 95 % intervals (for at least 10 pairs), and the Fréchet
        distance. `reconstruction` has the numbers of pairs and of identical pairs, and how images were paired.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        BadImagesError: Images without a partner or without a number ("bad-pairs"), or unusable images ("bad-images"), for example
            with another size than their original; `bad` lists them.
        DataError: Sources that are paired by order have different numbers of images ("pair-count").
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
    """Implementation of `reconstruct`, with the values of each pair."""
    check_options_of_ranks(options)
    with memory_limit(options.max_memory):
        sides = (real, "real"), (reconstructed, "reconstructed")
        embedder, opened = Embedder(options), [opened_images(*side, options) for side in sides]
        *parts, paired_by = pair_sources(opened[0].source, opened[1].source, options.pair)
        weights, started = find_weights(options), time.perf_counter()
        of_pairs = _check_order(parts, options) if paired_by == "order" else []
        if options.max_images is not None:
            rows = choose_rows(len(parts[0]), options.max_images, options.seed).tolist()
            parts = [SubsetSource(part.name, part, rows) for part in parts]
        work = partial(_measured, parts=parts, weights=weights, options=options)
        found, notices = with_cpu_fallback(embedder, work, "for the pairs")
        found.seconds["pixels"] = time.perf_counter() - started
        # In order, such as those of several parquet files, the numbers in names may have another order.
        names = [list(part.names() or ()) for part in parts]
        of_order = zip(parts, names, strict=True) if paired_by == "order" and names[0] != names[1] else ()
        notices = (
            *of_pairs,
            *notices,
            *(
                item
                for part, each in of_order
                for item in ImageValues((), part.name, "image").order_notices(each)
            ),
            *_add_features(found, [each.on_disk for each in opened], embedder, options),
        )
        n_identical = int(np.isinf(found.values["psnr"]).sum())
        summary = ReconstructionSummary(len(found.names), n_identical, paired_by)
        return _result(found, notices, summary, embedder, options)


def pair_sources(
    real: ImageSource, fake: ImageSource, pair: Literal["name", "order"] = "name"
) -> tuple[SubsetSource, SubsetSource, Literal["name", "order"]]:
    """Two sources in one order: by relative names without suffix, by `pair` "order" by numbers, and arrays as they are.

    Raises:
        BadImagesError: Names without a partner, several images of one name, or with "order" names without a number, of several
            series or with one number ("bad-pairs"; `bad` has all of them).
        DataError: Different numbers of images ("pair-count"), or only one source has names ("pair-names").
    """
    names = [_names(real), _names(fake)]
    labels = [printable(each.name) for each in (real, fake)]
    numbered = [all(INDEX_NAME.fullmatch(name.rpartition("/")[2]) for name in each) for each in names]
    if numbered[0] is not numbered[1] and pair == "name":
        text = f"{labels[numbered[0]]} has named images and {labels[numbered[1]]} numbered ones, which cannot be paired by name; "
        text += "use --pair order, or write the array as image files that have the names of the folder"
        raise DataError(text, code="pair-names", path=fake.name)
    rows: list[Sequence[int]] = [range(len(each)) for each in names]
    if pair == "name" and not numbered[0]:
        keys = [[normalize("NFC", stem_of(name)) for name in each] for each in names]
        _check_names(names, keys, labels)
        row_of = {key: row for row, key in enumerate(keys[1])}
        rows = [rows[0], [row_of[key] for key in keys[0]]]
    elif len(rows[0]) != len(rows[1]):
        text = f"{labels[1]} has {count_of(len(rows[1]), 'image')}, and {labels[0]} {len(rows[0]):,}; images that are paired by "
        raise DataError(f"{text}order need equal numbers", code="pair-count", path=fake.name)
    else:
        each = zip(rows, numbered, names, labels, strict=True)
        rows = [own if is_array else _numeric_order(known, label) for own, is_array, known, label in each]
    parts = SubsetSource(real.name, real, rows[0]), SubsetSource(fake.name, fake, rows[1])
    return *parts, "name" if pair == "name" and not numbered[0] else "order"


def _numeric_order(names: Sequence[str], label: str) -> list[int]:
    """Rows by folder and by the last number in the name."""
    keys, forms, bad = list[tuple[str, int, str]](), list[tuple[str, str, str]](), []
    for name in names:
        folder, _, file = stem_of(name).rpartition("/")
        *before, number, after = "", *re.split("([0-9]+)", file)
        digits = number.lstrip("0")
        keys.append((folder, len(digits), digits))  # not as `int`, which limits the number of digits
        forms.append(("".join(before), "#" if number else "", after))
    counts = Counter(zip(keys, forms, strict=True))
    series = Counter((key[0], form) for key, form in zip(keys, forms, strict=True))
    usual = {folder: form for (folder, form), _ in reversed(series.most_common())}
    for name, key, form in zip(names, keys, forms, strict=True):
        if not form[1]:
            bad.append((name, "no-number", "no number"))
        elif form != usual[key[0]]:
            bad.append((name, "other-series", f"another form than {short(''.join(usual[key[0]]))!r}"))
        elif counts[key, form] > 1:
            bad.append((name, "repeated-number", "the number of another image"))
    advice = "--pair order sorts by the last number (#) in each name: rename these images, or leave them out"
    _check_none(bad, f"{len(names):,} images of {label}", advice, label)
    return sorted(range(len(names)), key=keys.__getitem__)


def _check_none(bad: Sequence[tuple[str, str, str]], total: str, advice: str, path: str) -> None:
    """Raise an error for images that cannot be paired, by name, code and reason, if there are any."""
    if bad:
        errors = [ImageError(f"{name} has {reason}", code=code, path=name) for name, code, reason in bad]
        shown = some([str(each) for each in errors], 5, longest=100)
        text = f"of {total}, {len(bad):,} cannot be paired: {shown}. {advice}"
        raise BadImagesError(text, bad=errors, code="bad-pairs", path=path)


def _check_order(parts: Sequence[SubsetSource], options: ReconstructOptions) -> list[Notice]:
    """A warning if the first, the last and random originals are closer to the previous or the next reconstruction."""
    n = len(parts[0])
    starts = 0, n - 2, *choose_rows(max(n - 1, 0), _ORDER_ROWS, options.seed).tolist()
    near = sorted({row + offset for row in starts for offset in (0, 1)}.intersection(range(n)))
    read = partial(read_ahead, readers=[Reader()], policy=options.decoding)
    sides = [read(zip(near, part.select(near), strict=True)) for part in parts]
    errors: dict[int, list[list[float]]] = {-1: [], 1: []}  # of another and the own reconstruction, by offset
    for images in pairwise(zip(*sides, strict=True)):
        found = [image for pair in images for [image] in pair]
        pixels = [as_tensor(image.pixels)[None] for image in found if image.pixels is not None]
        is_next, shapes = found[2].position == found[0].position + 1, {each.shape for each in pixels}
        if is_next and len(pixels) == 4 and len(shapes) == 1:
            real, fake, next_real, next_fake = pixels
            for offset, one, others in ((-1, next_real, (fake, next_fake)), (1, real, (next_fake, fake))):
                errors[offset].append([float(squared_error(one, each)) / one.numel() for each in others])
    for offset, pairs in errors.items():
        other, own = np.mean(pairs, axis=0) if pairs else (0.0, 0.0)
        if other < own and sum(each[0] < each[1] for each in pairs) >= _CLOSER * len(pairs):
            which = "previous" if offset < 0 else "next"
            text = f"at offset {offset:+}, where originals are compared with the {which} reconstruction, the mean squared error of "
            text += f"{count_of(len(pairs), 'pair')} is {other:.4g}, and {own:.4g} as paired"
            return [notice("mismatched-pairs", what=text)]
    return []


def _names(source: ImageSource) -> list[str]:
    names, total = source.names(), known_length(source)
    if names is not None:
        return list(names)
    return [f"[{row}]" for row in range(sum(1 for _ in source) if total is None else total)]


def _check_names(
    names: Sequence[Sequence[str]], keys: Sequence[Sequence[str]], labels: Sequence[str]
) -> None:
    """Raise an error for names without a partner, and for names that occur more than once."""
    bad = []
    for side, role in enumerate(("reconstruction", "original")):
        others, counts = set(keys[1 - side]), Counter(keys[side])
        for name, key in zip(names[side], keys[side], strict=True):
            if counts[key] > 1:
                bad.append((name, "ambiguous-name", "the name of another image except for the suffix"))
            elif key not in others:
                bad.append((name, "no-partner", f"no {role} in {labels[1 - side]}"))
    total = f"{len(names[0]):,} originals and {len(names[1]):,} reconstructions"
    advice = "Images are paired by their path relative to the source, without suffix; --pair order takes the numbers in their names"
    _check_none(bad, total, advice, labels[1])


def opened_images(source: object, role: str, options: ReconstructOptions | DiversityOptions) -> OpenedImages:
    """Images of a source; UsageError for features ("needs-images")."""
    if options.bands == "all":
        raise UsageError("pairs are compared in RGB; bands cannot be 'all'", code="bad-option")
    opened = open_input(source, role, options.decoding)
    if isinstance(opened, FeatureSet):
        text = f"{printable(opened.source)} has features, but pairs are compared by pixels; give images"
        raise UsageError(text, code="needs-images", path=opened.source)
    return opened


def find_weights(options: ReconstructOptions | DiversityOptions) -> dict[WeightsFile, Path]:
    """The paths of LPIPS' files; missing and unused weights are reported before any image is read."""
    names = [extractor for extractor in options.extractors.values() if isinstance(extractor, str)]
    weights, offline = options.weights, options.offline
    own = own_weights(options.lpips_net, weights) if "lpips" in options.chosen else {}
    used = [*own.values(), *(weights_of(name, weights) for name in names)]
    if weights is not None and not any(used) and not Path(weights).is_dir():
        given, metrics = os.fspath(weights), ", ".join(options.chosen)
        text = f"weights {given!r} do not belong to a network of the metrics {metrics}; use the file names of `genpr weights list`"
        raise UsageError(text, code="weights-unused")
    try:
        require_all_weights(names, options)
        return {file: find_or_fetch(file, weights=path, offline=offline) for file, path in own.items()}
    except WeightsError as error:
        free = "psnr,ssim" if isinstance(options, ReconstructOptions) else "ms_ssim"
        text = f"{error}. Metrics that need no weights: --metrics {free}"
        raise WeightsError(text, code=error.code, path=error.path) from error


@dataclass
class _Measured:
    """Pairs of usable images with their values, in order."""

    parts: Sequence[SubsetSource]
    seen: Sequence[EmbeddedImages]  # facts of both sources, without features
    names: list[tuple[str, str]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # rows in `parts` of the usable pairs
    # whether a reconstruction is farther from its original than the previous reconstruction is
    is_unlike: list[bool] = field(default_factory=list)
    values: dict[str, Floats] = field(default_factory=dict)
    extractors: dict[str, ExtractorInfo] = field(default_factory=dict)  # by metric
    seconds: dict[str, float] = field(default_factory=dict)


def _measured(
    embedder: Embedder,
    parts: Sequence[SubsetSource],
    weights: Mapping[WeightsFile, Path],
    options: ReconstructOptions,
) -> _Measured:
    """Decode all pairs once, and compute the metrics of pixels; PSNR in any case, to find identical pairs."""
    found = _Measured(parts, [EmbeddedImages(torch.empty(len(part), 0)) for part in parts])
    measures = dict[str, Callable[[Tensor, Tensor], Tensor]]()
    if "ssim" in options.chosen:
        measures["ssim"] = ssim
    if weights:
        measures["lpips"] = distance = perceptual_distance(options.lpips_net, weights, embedder.device)
        found.extractors["lpips"] = distance.info
    columns: dict[str, list[float]] = {name: [] for name in ("psnr", *measures)}
    previous = torch.empty(0)  # the last reconstruction of the previous batch
    with state_guard(), torch.inference_mode(), reused_memory:
        for batch in _batches(found, options):
            real, fake = (torch.stack(each).to(embedder.device) for each in zip(*batch, strict=True))
            error = squared_error(real, fake)
            if previous.shape[1:] != fake.shape[1:]:
                previous = fake[:1]
            others, previous = torch.cat([previous, fake[:-1]]), fake[-1:]
            found.is_unlike += (error > squared_error(real, others)).tolist()
            columns["psnr"] += psnr(error, real[0, 0].numel()).tolist()
            for name, measure in measures.items():
                columns[name] += measure(real, fake).tolist()
    found.values = {name: np.array(column) for name, column in columns.items()}
    return found


def perceptual_distance(
    net: str, weights: Mapping[WeightsFile, Path], device: torch.device
) -> PerceptualDistance:
    """LPIPS with the files of `find_weights`."""
    backbone, linear = starmap(load_weights, weights.items())
    return PerceptualDistance(net, backbone, linear, device)


def _batches(found: _Measured, options: ReconstructOptions) -> Iterator[list[list[Tensor]]]:
    """Batches of usable consecutive pairs of one size; names and facts of the images are recorded in `found`."""
    leasts = {"ssim": WINDOW, "lpips": MIN_SIDE[options.lpips_net]}
    least = max((side for metric, side in leasts.items() if metric in options.chosen), default=1)
    items = enumerate(chain.from_iterable(zip(*found.parts, strict=True)))
    images = (image for [image] in read_ahead(items, [Reader()], options.decoding))
    batch = list[list[Tensor]]()
    for row, (real, fake) in enumerate(zip(images, images, strict=True)):
        if options.progress is not None:
            options.progress("pairs", row + 1, len(found.parts[0]))
        pair = real, checked(real, fake, least, "its original")
        pixels = [as_tensor(image.pixels) for image in pair if image.pixels is not None]
        for seen, image in zip(found.seen, pair, strict=True):
            if len(pixels) == 2 or image.error is not None:
                seen.add(image)
        if len(pixels) < 2:
            continue
        full = min(options.batch_size, _PIXELS // pixels[0][0].numel())
        if batch and (len(batch) >= full or batch[0][0].shape != pixels[0].shape):
            if options.on_bad == "skip" or not any(seen.bad for seen in found.seen):
                yield batch
            batch = []
        batch.append(pixels)
        found.rows.append(row)
        found.names.append((real.name, fake.name))
    for seen, part in zip(found.seen, found.parts, strict=True):
        options.bad_images.check(list(seen.bad.values()), total=len(part), source=part.name)
    if not batch:
        name = found.parts[1].name
        raise DataError(f"no pair of {printable(name)} can be used", code="no-images", path=name)
    yield batch


def checked(first: LoadedImage, image: LoadedImage, least: int, which: str) -> LoadedImage:
    """The image, with an error if it is too small or has not the size of the first, which messages call `which`."""
    if first.pixels is None or image.pixels is None:
        return image
    sizes = [f"{each.shape[1]} x {each.shape[0]}" for each in (first.pixels, image.pixels)]
    if sizes[0] != sizes[1]:
        advice = "--prepare center-crop:N gives all images one size"
        code, reason = "sizes-differ", f"{which} {printable(first.name)} {sizes[0]} ({advice})"
    elif min(image.pixels.shape[:2]) < least:
        code, reason = "image-too-small", f"but the metrics need sides of at least {least}"
    else:
        return image
    text = f"{image.name} has {sizes[1]} pixels, {reason}"
    return replace(image, pixels=None, error=ImageError(text, code=code, path=image.name))


def _add_features(
    found: _Measured, on_disk: Sequence[bool], embedder: Embedder, options: ReconstructOptions
) -> list[Notice]:
    """Add the metrics of features, and return the notices about them."""
    if not options.extractors:
        return []
    started, extractors, sources = time.perf_counter(), list(options.extractors.values()), []
    is_used = any(
        weights_of(extractor, options.weights) for extractor in extractors if isinstance(extractor, str)
    )
    own = embedder.with_options(weights=options.weights if is_used else None)
    for part, is_file, role in zip(found.parts, on_disk, _ROLES, strict=True):
        images = OpenedImages(SubsetSource(part.name, part, found.rows), is_file)
        least = 2 if "rfid" in options.extractors else 1
        sources.append(source_features(images, role, own, extractors, minimum=least))
    notices = [each for source in sources for extractor in extractors for each in source[extractor].notices]
    for name, extractor in options.extractors.items():
        real, fake = (source[extractor].features for source in sources)
        if name == "rfid":
            found.values[name] = np.array([frechet_distance(real, fake, device=embedder.device)])
        else:
            found.values[name] = cosines(real, fake)
        if (info := sources[1][extractor].extractor) is not None:
            found.extractors[name] = info
    found.seconds["features"] = time.perf_counter() - started
    return notices


def mean_value(
    name: str, column: Floats, extractor: ExtractorInfo | None, seed: int, variant: str | None = None
) -> MetricValue:
    """The mean of the finite values of a column, or the only value of a metric of all pairs."""
    is_finite, metric = np.isfinite(column), ALL_METRICS[name]
    replicates = None
    if len(column) >= MIN_UNITS:
        totals = np.where(is_finite, column, 0)[:, None]
        replicates = halved_means(totals, is_finite[:, None], seed=seed)[:, 0]
    value = MetricValue(
        float(column[is_finite].mean()),
        None,
        extractor=None if extractor is None else extractor.name,
        variant=variant,
        n_counted=None if name == f"{FAMILY}rfid" else int(is_finite.sum()),
    )
    value = with_interval(value, replicates, n=None, lower=metric.lower or 0.0, upper=metric.upper)
    return replace(value, value=min(value.value, metric.upper or np.inf))


def seen_images(
    role: str, seen: EmbeddedImages, part: SubsetSource, options: EmbedOptions
) -> tuple[FeatureSet, SideSummary, list[Notice]]:
    """The usable images of a source without features, their summary, and the notices about the source."""
    decoder = decoder_versions() | options.decoding.choices
    found = replace(seen.feature_set(part.name, None), decoder=decoder, passed_over=part.passed_over)
    summary = replace(SideSummary.from_features(found), what=f"{role}s")
    return found, summary, [*decoding_notices(role, found), *part.notices]


def _result(
    found: _Measured,
    notices: Sequence[Notice],
    summary: ReconstructionSummary,
    embedder: Embedder,
    options: ReconstructOptions,
) -> Reconstructed:
    total, own, sources = f"{summary.n_pairs:,}", list[Notice](), list[FeatureSet]()
    names = tuple(zip(*found.names, strict=True))
    if summary.n_identical:
        own.append(notice("identical-pairs", count=f"{summary.n_identical:,}", total=total))
    if unlike := list(compress(names[1], found.is_unlike)):
        text = "reconstructions are farther from their original than the reconstruction of another image"
        own.append(notice("mismatched-pairs", what=f"{len(unlike):,} of {total} {text}: {some(unlike)}"))
    if "rfid" in found.values and summary.n_pairs < SMALL:
        own.append(notice("small-sample", sets=f"{total} pairs"))
    sides = list[SideSummary]()
    for seen, part, shown, role in zip(found.seen, found.parts, names, _ROLES, strict=True):
        source, side, more = seen_images(role, seen, part, options)
        sources.append(replace(source, names=shown))
        sides.append(side)
        own += more
    columns, of, seed = {name: found.values[name] for name in options.chosen}, found.extractors, options.seed
    defined = [name for name, column in columns.items() if np.isfinite(column).any()]
    metrics = {
        FAMILY + name: mean_value(FAMILY + name, columns[name], of.get(name), seed, _VARIANTS.get(name))
        for name in defined
    }
    result = result_of_pairs(PROTOCOL, metrics, of.values(), sides, [*own, *notices], embedder, options)
    undefined = tuple(FAMILY + name for name in columns if name not in defined)
    result = replace(result, seconds=found.seconds, undefined=undefined, reconstruction=summary)
    columns.pop("rfid", None)
    return Reconstructed(result, (sources[0], sources[1]), columns)
