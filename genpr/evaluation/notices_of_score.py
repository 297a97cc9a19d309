"""Notices about a score, derived from the two sets and from the neighbor searches of the metrics.

Every diagnostic has a threshold far from random variation, so that two halves of one data set raise none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import torch
from torch import Tensor

from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import Identities, Result
from genpr.features.feature_set import FeatureSet
from genpr.features.registry import has_weights
from genpr.features.source_features import SourceFeatures
from genpr.features.statistics import ReferenceStatistics
from genpr.images.policy import choices_in, reported
from genpr.metrics.ball_metrics import coverage, density, precision, recall
from genpr.metrics.fakes_only import inception_score
from genpr.metrics.modes import MissingKind, RealKinds
from genpr.metrics.neighbor_metrics import IntervalLimit, NeighborScores, least_images
from genpr.metrics.registry import C_T, INCEPTION_SCORE, VENDI
from genpr.metrics.suspects import ManifoldDiagnostics
from genpr.metrics.uncertainty import MIN_UNITS
from genpr.notices import Notice, notice

SMALL = 1000  # images, below which metrics depend strongly on their number
_UNEQUAL = 1.1
_DUPLICATES_SHARE = 0.01
_COPIES_SHARE = 0.001
_LOW_NULL = 0.9
_COPYING_Z = -3.0
_FLAT = 0.01
_COPIES = {"same-input", "copied-reals"}
_CONCENTRATED = 0.8
_DENSE, _GAP = 1.2, 0.2
_NEAR, _PLAUSIBLE = (precision, density), 0.5
_OVERLAP = (precision, recall, density, coverage)
_SHRUNKEN = {"near-duplicates", "degenerate-manifold"}  # other reasons why no image is in any ball
_CONVERGED = 20_000  # Ospanov and Farnia 2025
# Random orders gave at least .990 in 600 draws of 10,000 and of 50,000 images of each of 10, 100 and 1,000 classes. This
# holds for complete chunks; a small chunk varies more.
_ORDERED = 0.9
_SHOWN = 3


@dataclass(frozen=True)
class Evidence:
    """What a score knows of its two sets beside the result, which is without notices."""

    plan: ScorePlan
    result: Result
    reals: FeatureSet  # the features that identify the two sets in the result
    fakes: FeatureSet
    identities: tuple[Identities, Identities]  # hashes of the rows of both
    fake_source: SourceFeatures  # the features of the fakes by all extractors
    statistics: ReferenceStatistics | None  # mean and covariance in the file of the fakes
    neighbors: NeighborScores | None  # the search behind the metrics of neighbors
    diagnostics: ManifoldDiagnostics | None  # None for a search of parts of the sets
    kinds: Callable[[], RealKinds | None]  # clusters of the reals, computed on first use
    device: torch.device


def notices_of(evidence: Evidence) -> tuple[Notice, ...]:
    """All notices about a score, the most important first."""
    plan, reals, fakes, result = evidence.plan, evidence.reals, evidence.fakes, evidence.result
    metrics, sides, notices = result.metrics, (result.real, result.fake), list[Notice]()
    if result.deviations:
        what = "; ".join(result.deviations)
        notices.append(notice("protocol-not-met", protocol=plan.protocol.name, what=what))
    info = fakes.extractor or reals.extractor
    if info is not None and not info.comparable:
        notices.append(notice("not-comparable", extractor=info.name))
    notices += _decoded_unlike(reals.decoder, fakes.decoder)
    n_real, n_fake = len(reals) or len(fakes), len(fakes)  # reals may be statistics without images
    if few := [f"{n} {role}s" for role, n in (("real", len(reals)), ("fake", n_fake)) if 0 < n < SMALL]:
        notices.append(notice("small-sample", sets=" and ".join(few)))
    if max(n_real, n_fake) > _UNEQUAL * min(n_real, n_fake):
        calibrated = "; with more fakes than reals, calibrated_recall of a perfect generator is below 1"
        facts = {
            "n_real": f"{n_real:,}",
            "n_fake": f"{n_fake:,}",
            "calibrated": calibrated * (n_fake > n_real),
        }
        notices.append(notice("unequal-n", **facts))
    if evidence.identities[0].distinct == evidence.identities[1].distinct:
        notices.append(notice("same-input"))
    elif result.n_shared > _COPIES_SHARE * n_fake:
        notices.append(notice("copied-reals", count=f"{result.n_shared:,}", total=f"{n_fake:,}"))
    for role, side in zip(("real", "fake"), sides, strict=True):
        if side.n_duplicates > _DUPLICATES_SHARE * side.n:
            facts = {"count": f"{side.n_duplicates:,}", "total": f"{side.n:,}"}
            notices.append(notice("duplicates", role=role, **facts))
    notices += image_notices(reals, fakes)
    if plan.statistics is not None:
        notices += _statistics_notices(reals, fakes, plan, plan.statistics)
    copying = []
    if C_T.name in metrics and (z := metrics[C_T.name].value) < _COPYING_Z:
        copying.append(notice("copying", z=f"{z:.1f}"))
    if evidence.diagnostics is None:
        notices += copying
    else:
        notices = _neighbor_notices(evidence, evidence.diagnostics, notices, copying)
    overlap = {each.name: metrics[each.name].value for each in _OVERLAP if each.name in metrics}
    is_explained = not _SHRUNKEN.isdisjoint(map(attrgetter("code"), notices))
    if len(overlap) > 1 and not any(overlap.values()) and not is_explained:
        notices.insert(0, notice("no-overlap", names=", ".join(overlap)))
    of_precision = metrics.get(precision.name)
    if of_precision is not None and (null := of_precision.known_null) is not None and null < _LOW_NULL:
        notices.append(notice("low-null", null=f"{null:.2f}"))
    chunk = plan.protocol.inception_score_split_size
    if chunk is not None and INCEPTION_SCORE.name in metrics:
        probabilities = evidence.fake_source[plan.extractors[INCEPTION_SCORE.name]].features
        score, device = metrics[INCEPTION_SCORE.name].value, evidence.device
        notices += _order_notices(probabilities, score, chunk=chunk, device=device)
    if VENDI.name in metrics and n_fake < _CONVERGED:
        notices.append(notice("vendi-not-converged", n=f"{n_fake:,}", needed=f"{_CONVERGED:,}"))
    for name, choice in choices_in(fakes.decoder).items():  # moments from files are not prepared
        given = [each for each in (plan.statistics, evidence.statistics) if each and not each.decoder]
        rule = f"{name.replace('_', '-')} {choice}"
        notices += [notice("statistics-unprepared", source=each.source, rule=rule) for each in given]
    grouped = [
        f"{side.n:,} {role} images in {side.n_groups:,} groups"
        for role, side in zip(("real", "fake"), sides, strict=True)
        if side.n_groups is not None
    ]
    if grouped:
        notices.append(notice("grouped-images", sides=" and ".join(grouped)))
    if evidence.neighbors is not None and evidence.neighbors.missing_intervals:
        smaller = min(len(reals), n_fake)
        notices += interval_notices(evidence.neighbors.missing_intervals, plan.ks, smaller)
    return tuple(dict.fromkeys(notices))


def _order_notices(probabilities: Tensor, score: float, *, chunk: int, device: torch.device) -> list[Notice]:
    """The notice of an Inception Score in chunks of `chunk` images that is lowered by the order of images, if any."""
    whole = len(probabilities) // chunk * chunk
    if whole < 2 * chunk:
        return []
    of_whole = partial(inception_score, probabilities[:whole], split_size=chunk, device=device)
    in_order = score if whole == len(probabilities) else of_whole(seed=None).mean
    shuffled = of_whole().mean
    if in_order >= _ORDERED * shuffled:
        return []
    facts = {"value": f"{in_order:.4g}", "shuffled": f"{shuffled:.4g}", "chunk": f"{chunk:,}"}
    return [notice("class-ordered-samples", **facts)]


def _statistics_notices(
    reals: FeatureSet, fakes: FeatureSet, plan: ScorePlan, statistics: ReferenceStatistics
) -> tuple[Notice, ...]:
    """Notices about missing facts of reference statistics, and about metrics that they do not allow."""
    source, found = statistics.source, list[Notice]()
    if reals.statistics is not None:
        found.append(notice("statistics-alone", source=source))
    elif reals.decoder != statistics.decoder:
        found += _decoded_unlike(statistics.decoder, fakes.decoder)
    extractors = [plan.extractors[name] for name, each in plan.given.items() if not each.is_labeled]
    if extractors and plan.protocol.reference_statistics != "with images":
        info = fakes.extractor
        names = dict.fromkeys(
            each if isinstance(each, str) and info is not None else "that of the fakes" for each in extractors
        )
        found.append(notice("statistics-unlabeled", source=source, extractor=" and ".join(names)))
    return tuple(found)


def image_notices(real: FeatureSet, fake: FeatureSet) -> list[Notice]:
    """Notices about the image files of two sets."""
    notices = []
    codecs = real.facts.codec, fake.facts.codec
    if None not in codecs and codecs[0] != codecs[1]:
        notices.append(notice("codec-mismatch", real=codecs[0], fake=codecs[1]))
    sizes = real.facts.common_size, fake.facts.common_size
    if None not in sizes and sizes[0] != sizes[1]:
        notices.append(notice("size-mismatch", real=sizes[0], fake=sizes[1]))
    for role, features in (("real", real), ("fake", fake)):
        notices += decoding_notices(role, features)
        facts = features.facts
        if facts.n_sizes > 1:
            notices.append(notice("size-mix", role=role, count=f"{facts.n_sizes:,}", shown=facts.shown_sizes))
        own = features.extractor
        if facts.n_small and own is not None and has_weights(own.name):
            total = f"{features.n_decoded or len(features):,}"
            small = {"count": f"{facts.n_small:,}", "total": total, "extractor": own.name}
            notices.append(notice("upscaled", role=role, **small))
        notices += features.notices
    return notices


def _decoded_unlike(real: Mapping[str, str], fake: Mapping[str, str]) -> list[Notice]:
    """The notice of different decoding options, if both are known."""
    if not real or not fake or choices_in(real) == choices_in(fake):
        return []
    ours, theirs = (
        ", ".join(f"{name} {value}" for name, value in choices_in(each).items()) or "the defaults"
        for each in (real, fake)
    )
    return [notice("decoded-differently", real=ours, fake=theirs)]


def decoding_notices(role: str, features: FeatureSet) -> list[Notice]:
    """Notices about images of one source that were left out, converted or changed during decoding."""
    notices = []
    n_decoded = features.n_decoded or len(features)
    for flag, count in reported(features.flags, n_decoded).items():
        notices.append(notice(flag, role=role, count=f"{count:,}", total=f"{n_decoded:,}"))
    if features.skipped:
        total = f"{len(features) + len(features.skipped):,}"
        notices.append(notice("skipped", role=role, count=f"{len(features.skipped):,}", total=total))
    if features.n_cached and not features.n_embedded:
        notices.append(notice("all-cached", role=role, count=f"{features.n_cached:,}"))
    return notices


def _neighbor_notices(
    evidence: Evidence, diagnostics: ManifoldDiagnostics, of_sets: Sequence[Notice], copying: Sequence[Notice]
) -> list[Notice]:
    """The notices of the two sets with those of the position of the fakes relative to the reals, in their order."""
    reals, fakes, metrics = evidence.reals, evidence.fakes, evidence.result.metrics
    known, notices, groups = set(map(attrgetter("code"), of_sets)), [*of_sets], []
    both = zip(("real", "fake"), diagnostics.near_duplicates, diagnostics.flat, strict=True)
    for role, each, flat in both:
        if each is not None and each.matters(equal="duplicates" not in known and flat <= _FLAT):
            groups.append((role, each))
        if flat > _FLAT and "duplicates" not in known:
            notices.append(notice("degenerate-manifold", role=role, share=f"{flat:.0%}"))
    if groups:
        sides = " and ".join(f"{each.share:.0%} of the {role} images" for role, each in groups)
        sizes = " and ".join(dict.fromkeys(str(each.size) for _, each in groups))
        notices.insert(0, notice("near-duplicates", sides=sides, size=sizes))
    copies = diagnostics.near_copies
    if copies is not None and not _COPIES & known and copies.is_excess:
        pairs = zip(copies.fakes[:_SHOWN].tolist(), copies.reals[:_SHOWN].tolist(), strict=True)
        shown = ", ".join(f"{fakes.name_of(fake)} ({reals.name_of(real)})" for fake, real in pairs)
        shares = {"share": f"{copies.share:.1%}", "expected": f"{copies.expected:.1%}"}
        notices.append(notice("near-copies", **shares, shown=shown))
    # Other diagnostics are not useful for fakes that are far from all reals.
    relative = [metrics[each.name].relative or 0.0 for each in _NEAR if each.name in metrics]
    is_plausible = max(relative, default=1.0) >= _PLAUSIBLE
    sign, ratio = None, diagnostics.concentration
    if is_plausible and ratio is not None and ratio < _CONCENTRATED:
        sign = f"their balls are {ratio:.2f} times as large as those of the reals"
    elif is_plausible and density.name in metrics and recall.name in metrics and coverage.name in metrics:
        dense = metrics[density.name].value
        reached, covered = metrics[recall.name].relative, metrics[coverage.name].relative
        if reached is not None and covered is not None and dense > _DENSE and covered - reached > _GAP:
            sign = f"density is {dense:.2f} while recall is {reached:.0%} of its null"
    # Shrunken fakes are nearer to all reals and in many balls, without copies or outliers.
    if sign is not None:
        notices.append(notice("shrinkage", sign=sign))
    else:
        notices += copying
        if outliers := diagnostics.outliers:
            shown = ", ".join(reals.name_of(outlier.row) for outlier in outliers[:_SHOWN])
            largest = f"{outliers[0].share:.1%}"
            notices.append(notice("outlier-dominance", count=len(outliers), share=largest, shown=shown))
    if is_plausible:
        notices += missing_modes(evidence.kinds(), reals, fakes, evidence.identities[1])[1]
    return notices


def missing_modes(
    kinds: RealKinds | None, reals: FeatureSet, fakes: FeatureSet, fake_ids: Identities
) -> tuple[tuple[MissingKind, ...], list[Notice]]:
    """The missing modes, and the notice of them, if there are any; of equal fakes, one counts."""
    has_duplicates = len(fake_ids.distinct) < len(fake_ids.rows)
    rows = torch.tensor(fake_ids.first_rows()) if has_duplicates else None
    missing = () if kinds is None else kinds.missing(fakes.features, fake_rows=rows)
    if not missing:
        return (), []
    facts = {"shown": ", ".join(reals.name_of(kind.row) for kind in missing[:_SHOWN])}
    facts["real"] = f"{sum(kind.real_share for kind in missing):.1%}"
    facts["fake"] = f"{sum(kind.fake_share for kind in missing):.1%}"
    return missing, [notice("missing-modes", count=len(missing), **facts)]


def interval_notices(
    missing_intervals: Mapping[str, IntervalLimit], ks: Mapping[str, int], smaller: int
) -> list[Notice]:
    """Notices about requested intervals that cannot be computed."""
    reasons: dict[IntervalLimit, tuple[str, str]] = {
        "images": (
            f"intervals need halves, and half of {smaller:,} images is too few",
            "score at least {least:,} images of each side, or choose a smaller k",
        ),
        "memory": (
            "there is too little memory for the neighbor list of each image",
            "raise --max-memory, free memory, or score fewer images",
        ),
        "groups": (
            f"groups of dependent images count as fewer than {MIN_UNITS} of one size",
            "score images of more groups",
        ),
    }
    notices = []
    for limit, (reason, remedy) in reasons.items():
        if names := [name for name, each in missing_intervals.items() if each == limit]:
            least = 2 * max(least_images({name: ks[name] for name in names}))
            facts = {"names": ", ".join(names), "reason": reason, "remedy": remedy.format(least=least)}
            notices.append(notice("no-intervals", **facts))
    return notices
