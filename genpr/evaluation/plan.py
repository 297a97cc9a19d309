"""The plan of a score: a protocol with the choices of the user, and the features of each metric.

Importing this module does not import torch, so that invalid options are reported immediately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import FeatureError, UsageError, some
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.protocols import EvaluationProtocol, find_protocol
from genpr.features.extractor import FeatureExtractor
from genpr.features.registry import (
    canonical_name,
    dim_of,
    network_module,
    parse_name,
    with_variants_of,
)
from genpr.features.statistics import (
    FeatureMoments,
    ReferenceStatistics,
    find_statistics,
    read_statistics,
)
from genpr.metrics.registry import METRICS, MOMENTS
from genpr.validation import Ties

if TYPE_CHECKING:
    from genpr.features.source_features import ExtractorLike, OpenedInput


@dataclass(frozen=True, kw_only=True)
class SourceNeeds:
    """Requirements of a plan on one source."""

    extractors: tuple[ExtractorLike, ...]  # whose features are needed
    least: int  # minimum number of images of its metrics
    most: int | None  # maximum number of images, if the protocol has one


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """One protocol with all choices resolved."""

    protocol: EvaluationProtocol
    ks: Mapping[str, int]  # k by manifold metric
    ties: Ties  # "closed" or "strict"
    own: ExtractorLike  # the extractor of metrics without fixed features
    extractors: Mapping[str, ExtractorLike]  # the extractor of every metric, in display order
    intervals: bool = True  # whether to compute intervals
    control: bool = True  # whether to score one half of the reals against the other
    k: int | None = None  # as requested; None for that of the protocol
    statistics: ReferenceStatistics | None = None  # mean and covariance of reference images, from a file
    # moments that replace features of reals, by metric
    given: Mapping[str, FeatureMoments] = field(default_factory=dict)

    @classmethod
    def from_options(cls, real: OpenedInput | None, options: ScoreOptions) -> ScorePlan:
        """The plan of a score; without `real`, the reals are assumed to be images."""
        recipe = find_protocol(options.protocol)
        own = _own_extractor(options.extractor, recipe, real)
        statistics = getattr(real, "statistics", None)
        has_reals = statistics is None
        if statistics is not None and options.reference_statistics is not None:
            text = f"{statistics.source} is also a file of statistics; give real images as REAL, or leave one of the two files out"
            raise UsageError(text, code="no-images-in-statistics", path=statistics.source)
        if options.reference_statistics is not None:
            requested_statistics = read_statistics(options.reference_statistics)
            # Without reals, their features are unknown.
            statistics = None if real is None else requested_statistics
        elif statistics is None and real is not None and recipe.reference_statistics:
            statistics = statistics_beside(real)
        requested = options.metrics
        if statistics is not None and not has_reals and requested is None:
            requested = _possible(statistics, recipe, own)
        names = recipe.choose_metrics(requested, held_out=options.held_out is not None)
        ks = recipe.choose_ks(names, options.k)
        extractors = dict(zip(names, map(partial(extractor_of, own=own, recipe=recipe), names), strict=True))
        given = {} if statistics is None else given_moments(statistics, extractors, own, recipe)
        if statistics is not None:
            is_needed = options.reference_statistics is not None or not has_reals
            _check_given(statistics, extractors, given, is_needed=is_needed, has_reals=has_reals)
        if options.extractor is not None and own not in extractors.values():
            used = " and ".join(f"{name} always uses {_name(each)}" for name, each in extractors.items())
            raise UsageError(
                f"--extractor {_name(own)} would have no effect, because {used} features; leave the extractor out, or use fd, "
                "which uses the features of the extractor",
                code="extractor-unused",
            )
        return cls(
            protocol=recipe,
            ks=ks,
            ties=recipe.ties if options.ties is None else recipe.choose_ties(options.ties),
            own=own,
            extractors=extractors,
            intervals=options.intervals,
            control=options.control,
            k=options.k,
            statistics=statistics if given else None,
            given=given,
        )

    @property
    def sample_ks(self) -> Mapping[str, int]:
        """K of the metrics with values of single images."""
        from genpr.metrics.samples import SAMPLE_METRICS  # which imports torch

        return self.protocol.choose_ks(SAMPLE_METRICS, self.k)

    @cached_property
    def needs(self) -> Mapping[str, SourceNeeds]:
        """Requirements on the "real", the "fake" and the "held-out" images."""
        from genpr.metrics.neighbor_metrics import least_images  # which imports torch

        least_real, least_fake = least_images(self.ks)
        compared: dict[ExtractorLike, None] = {}  # in order, each once
        for name, extractor in self.extractors.items():
            least_fake = max(least_fake, METRICS[name].least)
            if METRICS[name].kind != "fakes-only" and name not in self.given:
                least_real = max(least_real, METRICS[name].least)
                compared[extractor] = None
        every = tuple(dict.fromkeys(self.extractors.values()))
        recipe, of_reals = self.protocol, every
        if compared and not self.control:  # reals need features of at least one extractor
            of_reals = tuple(compared)
        return {
            "real": SourceNeeds(extractors=of_reals, least=least_real, most=recipe.n_real or recipe.max_real),
            "fake": SourceNeeds(extractors=every, least=least_fake, most=recipe.n_fake or recipe.max_fake),
            "held-out": SourceNeeds(extractors=(self.own,), least=1, most=None),
        }


def with_pinned(choices: Sequence[ScoreOptions]) -> ScoreOptions:
    """The first of the options of one run, with the preparation of images of its protocols, which must be equal."""
    found = {}
    for each in choices:
        found[each.protocol] = find_protocol(each.protocol).choose_prepare(each.prepare)
    if len(set(found.values())) > 1:
        pinned = ", ".join(f"{prepare} by {name}" for name, prepare in found.items() if prepare)
        text = f"images are embedded once for all protocols, but their preparations differ ({pinned}); score by one protocol at a time"
        raise UsageError(text, code="protocol-pinned")
    return replace(choices[0], prepare=found[choices[0].protocol])


def extractor_of(metric: str, own: ExtractorLike, recipe: EvaluationProtocol) -> ExtractorLike:
    """The extractor of `metric` in a score with extractor `own`, with the same variants if it is the same network."""
    if metric in recipe.extractors:
        return recipe.extractors[metric]
    extractor = METRICS[metric].extractor
    if extractor is None:
        return own
    return with_variants_of(extractor, own) if isinstance(own, str) else extractor


def given_moments(
    statistics: ReferenceStatistics,
    extractors: Mapping[str, ExtractorLike],
    own: ExtractorLike,
    recipe: EvaluationProtocol,
) -> dict[str, FeatureMoments]:
    """The moments of a file by metric, for the metrics in `extractors`; their dimensions are checked if known.

    Moments without a named extractor are taken for the features of `fid`, or without this metric for those of the score.
    """
    primary, found = extractors.get("fid", own), dict[str, FeatureMoments]()
    for name in filter(MOMENTS.__contains__, extractors):
        extractor = extractors[name]
        theirs = recipe.statistics_of.get(name, extractor)
        fitting = [each for each in statistics.moments if each.is_of(theirs, primary)]
        if not fitting and is_custom(
            theirs
        ):  # whose extractor may have any name; it is compared once it is loaded
            custom = [each for each in statistics.moments if each.extractor and is_custom(each.extractor)]
            fitting = custom if len(custom) == 1 else []
        if fitting:
            dim = dim_of(extractor) if isinstance(extractor, str) else extractor.dim
            check_width(statistics, fitting[0], dim, name)
            found[name] = fitting[0]
    return found


def is_custom(extractor: ExtractorLike) -> bool:
    """Whether this is the name of a custom extractor."""
    return isinstance(extractor, str) and network_module(extractor) is None


def check_width(
    statistics: ReferenceStatistics, moments: FeatureMoments, dim: int | None, metric: str
) -> None:
    """Raise an error for moments with another number of dimensions ("statistics-shape")."""
    if dim not in {None, len(moments.mean)}:
        found = f"{moments.key} in {statistics.source} has {len(moments.mean)} entries"
        text = f"{found}, but the features of {metric} have {dim}; choose the extractor of the statistics (--extractor)"
        raise FeatureError(text, code="statistics-shape", path=statistics.source)


def statistics_beside(side: OpenedInput) -> ReferenceStatistics | None:
    """The statistics in the .npz file of images."""
    from genpr.features.source_features import OpenedImages  # which imports torch

    if not isinstance(side, OpenedImages) or not side.on_disk:
        return None
    return find_statistics(Path(side.source.name))


def _possible(statistics: ReferenceStatistics, recipe: EvaluationProtocol, own: ExtractorLike) -> list[str]:
    """The protocol's metrics that can be computed without real images; the distance of the extractor, if there are none."""
    extractors = {name: extractor_of(name, own, recipe) for name in recipe.metrics}
    given = given_moments(statistics, extractors, own, recipe)
    names = [name for name in extractors if name in given or METRICS[name].kind == "fakes-only"]
    if names or "metrics" not in recipe.free:
        return names or list(recipe.metrics)
    return ["fid" if extractor_of("fid", own, recipe) == own else "fd"]


def _check_given(
    statistics: ReferenceStatistics,
    extractors: Mapping[str, ExtractorLike],
    given: Mapping[str, FeatureMoments],
    *,
    is_needed: bool,
    has_reals: bool,
) -> None:
    """Raise an error for statistics of other features, unused statistics, and metrics that need missing images."""
    source, held = statistics.source, statistics.held
    networks = {parse_name(each.extractor).base for each in statistics.moments if each.extractor}
    for name, extractor in extractors.items():
        if name not in MOMENTS or name in given:
            continue
        is_variant = isinstance(extractor, str) and parse_name(extractor).base in networks
        if is_variant or not has_reals or (is_needed and not given):
            text = f"{source} has {held}, but {name} is on {_name(extractor)} features; choose the extractor of the file, or another file"
            raise FeatureError(text, code="other-extractor", path=source)
    lacking = [name for name in extractors if METRICS[name].kind != "fakes-only" and name not in given]
    if lacking and not has_reals:
        features = some(list(dict.fromkeys(_name(extractors[name]) for name in lacking)), longest=200)
        raise UsageError(
            f"{some(lacking)} of {features} features cannot be computed from {source}, which has {held} but no "
            "images; give images as REAL and this file with --reference-statistics",
            code="no-images-in-statistics",
            path=source,
        )
    if is_needed and not given:
        text = f"{source} has {held}, which no metric of this score uses ({some(list(extractors), 5)}); add --metrics fid, or leave it out"
        raise UsageError(text, code="statistics-unused", path=source)


def _name(extractor: ExtractorLike) -> str:
    from genpr.features.custom import extractor_info  # which imports torch, as the next one
    from genpr.features.source_features import FROM_FILE

    if isinstance(extractor, str):
        return "unknown" if extractor == FROM_FILE else extractor

    return extractor_info(extractor).name


def _own_extractor(
    extractor: str | FeatureExtractor | None, recipe: EvaluationProtocol, real: OpenedInput | None
) -> ExtractorLike:
    """The extractor of the metrics without fixed features: the requested one, that of feature files, or the protocol's."""
    if extractor is not None and not isinstance(extractor, str):
        from genpr.features.custom import extractor_info  # which imports torch, as the others below

        info = extractor_info(extractor)
        recipe.check_extractor(info.name, built_in=info.comparable)
        return extractor
    if extractor is not None:
        name = canonical_name(extractor)
        recipe.check_extractor(name)
        return name
    if recipe.panel:
        names = ", ".join(recipe.panel)
        text = f"protocol {recipe.name} has several representations, {names}; use genpr.score_panel, or `genpr score` with this protocol only"
        raise UsageError(text, code="protocol-panel")
    if real is None:
        return recipe.extractor
    from genpr.features.feature_set import FeatureSet
    from genpr.features.source_features import FROM_FILE

    statistics, is_free = getattr(real, "statistics", None), "extractor" in recipe.free
    if not isinstance(real, FeatureSet) or (statistics is not None and not is_free):
        return recipe.extractor
    if statistics is not None:
        # The first extractor in the file; else the protocol's, unless the dimensions differ.
        main = statistics.moments[0]
        if main.extractor is not None:
            is_built_in = dim_of(main.extractor) is not None
            return canonical_name(main.extractor) if is_built_in else main.extractor
        return recipe.extractor if dim_of(recipe.extractor) == len(main.mean) else FROM_FILE
    if real.extractor is None:
        return FROM_FILE
    info = real.extractor
    name = canonical_name(info.name) if info.comparable else info.name
    recipe.check_extractor(name, built_in=info.comparable)
    return name
