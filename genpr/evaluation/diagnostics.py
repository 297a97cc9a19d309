"""Notices about a score: what the two sets, and the searches behind the metrics, reveal about the numbers.

Every diagnostic has a threshold far from what chance does, so that two halves of one data set raise none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from genpr.distributed import current_communicator
from genpr.evaluation.fitted_neighbors import NeighborResult
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import Identities
from genpr.features.feature_set import FeatureSet
from genpr.images.policy import choices_in
from genpr.metrics.ball_metrics import coverage, density, precision, recall
from genpr.metrics.clusters import MissingKind, RealKinds, odd_axes
from genpr.metrics.diagnostics import ManifoldDiagnostics, is_copying
from genpr.metrics.neighbor_metrics import Lack, least_for_interval
from genpr.metrics.registry import C_T
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice

_SMALL = 1000
_UNEQUAL = 1.1
_DUPLICATES_SHARE = 0.01
_COPIES_SHARE = 0.001
_LOW_NULL = 0.9
_COPYING_Z = -3.0
_FLAT = 0.01
_COPIES = {"same-input", "copied-reals"}
_CONCENTRATED = 0.8
_DENSE, _GAP = 1.2, 0.2
_REACHED, _GOOD = (precision.name, recall.name, coverage.name), 0.8  # of the null: what all must reach
_NEAR, _PLAUSIBLE = (precision.name, density.name), 0.5
_SHOWN = 3


def notices_of(
    reals: FeatureSet,
    fakes: FeatureSet,
    identities: tuple[Identities, Identities],
    metrics: Mapping[str, MetricValue],
    *,
    plan: ScorePlan,
    deviations: Sequence[str],
    neighbors: NeighborResult | None,
    kinds: Callable[[], RealKinds],
    seed: int,
) -> tuple[Notice, ...]:
    """Everything worth saying about a score, most important first; the first rank looks, and all get its notices.

    Args:
        reals: The features that stand for the reals.
        fakes: Those that stand for the fakes.
        identities: Of the two.
        metrics: Of the two sets as they are.
        plan: What was computed.
        deviations: Where the protocol was not met, in words.
        neighbors: The neighbor metrics; None if there are none.
        kinds: Gives the clusters of the reals when they are needed.
        seed: Chooses the part of each set whose single features are compared.
    """

    def find() -> list[dict[str, Any]]:
        found = input_notices(reals, fakes, *identities, protocol=plan.protocol.name, deviations=deviations)
        known = {item.code for item in found}
        diagnostics, lacks = (neighbors.diagnostics, neighbors.lacks) if neighbors else (None, {})
        diagnosed = diagnose(
            reals,
            fakes,
            metrics,
            diagnostics,
            kinds=None if diagnostics is None else kinds(),
            seed=seed,
            distinct=identities[1].first_rows,
            known=known,
        )
        notices = (
            *near_duplicate_notices(diagnostics, known),
            *found,
            *diagnosed,
            *interval_notices(lacks, plan.ks, min(len(reals), len(fakes))),
        )
        return [asdict(item) for item in notices]

    return tuple(Notice(**record) for record in current_communicator().broadcast_from_rank0(find))


def input_notices(
    real: FeatureSet,
    fake: FeatureSet,
    real_ids: Identities,
    fake_ids: Identities,
    *,
    protocol: str,
    deviations: Sequence[str],
) -> tuple[Notice, ...]:
    """Everything worth saying about the two sets, most important first."""
    unmet = [notice("protocol-not-met", protocol=protocol, what="; ".join(deviations))] if deviations else []
    notices = [*unmet, *_provenance(real, fake), *_sizes(real, fake), *_identical(real_ids, fake_ids)]
    codecs = real.facts.codec, fake.facts.codec
    if None not in codecs and codecs[0] != codecs[1]:
        notices.append(notice("codec-mismatch", real=codecs[0], fake=codecs[1]))
    for role, features in (("real", real), ("fake", fake)):
        notices += decoding_notices(role, features)
        notices += _file_notices(role, features)
        notices += features.notices
    return tuple(dict.fromkeys(notices))


def _provenance(real: FeatureSet, fake: FeatureSet) -> list[Notice]:
    info, notices = fake.extractor or real.extractor, []
    if info is not None and not info.comparable:
        notices.append(notice("not-comparable", extractor=info.name))
    chosen = [choices_in(side.decoder) for side in (real, fake)]
    if real.decoder and fake.decoder and chosen[0] != chosen[1]:
        ours, theirs = (
            ", ".join(f"{name} {value}" for name, value in each.items()) or "the defaults" for each in chosen
        )
        notices.append(notice("decoded-unlike", real=ours, fake=theirs))
    return notices


def _sizes(real: FeatureSet, fake: FeatureSet) -> list[Notice]:
    n_real, n_fake = len(real), len(fake)
    notices = []
    if min(n_real, n_fake) < _SMALL:
        notices.append(notice("small-sample", n=min(n_real, n_fake)))
    if max(n_real, n_fake) > _UNEQUAL * min(n_real, n_fake):
        notices.append(notice("unequal-n", n_real=f"{n_real:,}", n_fake=f"{n_fake:,}"))
    return notices


def _identical(real: Identities, fake: Identities) -> list[Notice]:
    notices = []
    if real.distinct == fake.distinct:
        return [notice("same-input")]
    shared = fake.n_shared_with(real)
    if shared > _COPIES_SHARE * len(fake.rows):
        notices.append(notice("copied-reals", count=f"{shared:,}", total=f"{len(fake.rows):,}"))
    for role, side in (("real", real), ("fake", fake)):
        if side.n_duplicates > _DUPLICATES_SHARE * len(side.rows):
            facts = {"role": role, "count": f"{side.n_duplicates:,}", "total": f"{len(side.rows):,}"}
            notices.append(notice("duplicates", **facts))
    return notices


def decoding_notices(role: str, features: FeatureSet) -> list[Notice]:
    """What was left out, converted or dropped while the images of a side were read."""
    total = len(features) + len(features.skipped)
    notices = [
        notice(flag, role=role, count=f"{count:,}", total=f"{features.n_decoded or len(features):,}")
        for flag, count in features.flags.items()
    ]
    if features.skipped:
        notices.append(notice("skipped", role=role, count=f"{len(features.skipped):,}", total=f"{total:,}"))
    if features.n_cached and not features.n_embedded:
        notices.append(notice("all-cached", role=role, count=f"{features.n_cached:,}"))
    return notices


def _file_notices(role: str, features: FeatureSet) -> list[Notice]:
    facts, info = features.facts, features.extractor
    notices = []
    if facts.n_sizes > 1:
        notices.append(notice("size-mix", role=role, count=f"{facts.n_sizes:,}", shown=facts.shown_sizes))
    if facts.n_small and info is not None and info.comparable:  # filters and pixels see what is there
        total = features.n_decoded or len(features)
        small = {"count": f"{facts.n_small:,}", "total": f"{total:,}", "extractor": info.name}
        notices.append(notice("upscaled", role=role, **small))
    return notices


def diagnose(
    reals: FeatureSet,
    fakes: FeatureSet,
    metrics: Mapping[str, MetricValue],
    diagnostics: ManifoldDiagnostics | None,
    *,
    kinds: RealKinds | None,
    seed: int,
    distinct: Sequence[int] | None,
    known: Collection[str],
) -> list[Notice]:
    """Notices about one score, the most important first.

    Args:
        reals: The real side.
        fakes: The fake side.
        metrics: Of the two.
        diagnostics: What was found when they were counted; None if no neighbours were.
        kinds: Of the reals; None where no neighbours were counted.
        seed: Chooses the part of each side whose single features are compared.
        distinct: Rows of the fakes without repeats, which are another matter than kinds; None if there are none.
        known: Codes of what is known already, of byte-identical images among others.
    """
    found = _low_null(metrics)
    if diagnostics is None or kinds is None:
        return [*_copying(metrics), *found]
    fake_rows = None if distinct is None else torch.tensor(distinct)
    is_plausible = _are_plausible(metrics)
    shrunk = _shrinkage(metrics, diagnostics) if is_plausible else []
    return [
        *([] if "duplicates" in known else _flat(diagnostics)),
        *([] if _COPIES & {*known} else _copies(reals, fakes, diagnostics)),
        # Shrunken fakes are nearer to all reals, and in many balls, without copying or relying on any.
        *(shrunk or [*_copying(metrics), *_outliers(reals, diagnostics)]),
        *(_kinds(reals, kinds.missing(fakes.features, fake_rows=fake_rows)) if is_plausible else []),
        *_axes(reals, fakes, metrics, seed),
        *found,
    ]


def near_duplicate_notices(diagnostics: ManifoldDiagnostics | None, known: Collection[str]) -> list[Notice]:
    """The notice of near-duplicates within either side, at most one.

    Args:
        diagnostics: What was found when neighbors were counted; None if none were.
        known: Codes of what is known already; "duplicates" accounts for images that are exactly equal.
    """
    if diagnostics is None:
        return []
    found = [
        (role, each)
        for role, each, flat in zip(
            ("real", "fake"), diagnostics.near_duplicates, diagnostics.flat, strict=True
        )
        if each is not None and each.matters(equal="duplicates" not in known and flat <= _FLAT)
    ]
    if not found:
        return []
    sides = " and ".join(f"{each.share:.0%} of the {role} images" for role, each in found)
    sizes = " and ".join(dict.fromkeys(str(each.size) for _, each in found))
    return [notice("near-duplicates", sides=sides, size=sizes)]


def interval_notices(lacks: Mapping[str, Lack], ks: Mapping[str, int], smaller: int) -> list[Notice]:
    """Notices about intervals that were asked for and cannot be had.

    Args:
        lacks: Why, by metric.
        ks: k by metric.
        smaller: Images of the smaller side.
    """
    names: dict[Lack, list[str]] = {
        lack: [name for name, each in lacks.items() if each == lack] for lack in ("images", "memory")
    }
    notices = []
    if few := names["images"]:
        least = max(least_for_interval(name, ks[name]) for name in few)
        notices.append(
            notice(
                "no-intervals",
                names=", ".join(few),
                reason=f"they are found by halves, and half of {smaller:,} images is too few",
                remedy=f"score at least {least:,} images of each side, or choose a smaller k",
            )
        )
    if short := names["memory"]:
        notices.append(
            notice(
                "no-intervals",
                names=", ".join(short),
                reason="memory is too short to list the neighbours of each image",
                remedy="raise --max-memory, free memory, or score fewer images",
            )
        )
    return notices


def _low_null(metrics: Mapping[str, MetricValue]) -> list[Notice]:
    value = metrics.get(precision.name)
    if value is None or value.null is None or value.null >= _LOW_NULL:
        return []
    return [notice("low-null", null=f"{value.null:.2f}")]


def _flat(diagnostics: ManifoldDiagnostics) -> list[Notice]:
    return [
        notice("degenerate-manifold", role=role, share=f"{share:.0%}")
        for role, share in zip(("real", "fake"), diagnostics.flat, strict=True)
        if share > _FLAT
    ]


def _copying(metrics: Mapping[str, MetricValue]) -> list[Notice]:
    z = metrics.get(C_T.name)
    return [] if z is None or z.value >= _COPYING_Z else [notice("copying", z=f"{z.value:.1f}")]


def _copies(reals: FeatureSet, fakes: FeatureSet, diagnostics: ManifoldDiagnostics) -> list[Notice]:
    copies = diagnostics.near_copies
    if copies is None or not is_copying(copies):
        return []
    pairs = list(zip(copies.fakes[:_SHOWN].tolist(), copies.reals[:_SHOWN].tolist(), strict=True))
    shown = ", ".join(f"{fakes.name_of(fake)} ({reals.name_of(real)})" for fake, real in pairs)
    return [
        notice("near-copies", share=_percent(copies.share), expected=_percent(copies.expected), shown=shown)
    ]


def _shrinkage(metrics: Mapping[str, MetricValue], diagnostics: ManifoldDiagnostics) -> list[Notice]:
    """Fakes nearer to each other than reals are; or more reals around each fake than a perfect generator has."""
    ratio = diagnostics.concentration
    if ratio is not None and ratio < _CONCENTRATED:
        return [notice("shrinkage", sign=f"their balls are {ratio:.2f} times as large as those of the reals")]
    found = [metrics.get(metric.name) for metric in (density, recall, coverage)]
    dense, of_recall, of_coverage = found
    if dense is None or of_recall is None or of_coverage is None:
        return []
    reached, covered = of_recall.relative, of_coverage.relative
    if reached is None or covered is None or dense.value <= _DENSE or covered - reached <= _GAP:
        return []
    sign = f"density is {dense.value:.2f} while recall is {reached:.0%} of its null"
    return [notice("shrinkage", sign=sign)]


def _outliers(reals: FeatureSet, diagnostics: ManifoldDiagnostics) -> list[Notice]:
    if not diagnostics.outliers:
        return []
    worst = diagnostics.outliers[0]
    shown = ", ".join(reals.name_of(outlier.row) for outlier in diagnostics.outliers[:_SHOWN])
    return [
        notice("outlier-dominance", count=len(diagnostics.outliers), share=_percent(worst.share), shown=shown)
    ]


def _are_plausible(metrics: Mapping[str, MetricValue]) -> bool:
    """Whether fakes are near reals at all: of noise, low fidelity says all there is to say."""
    seen = [metrics[name].relative for name in _NEAR if name in metrics]
    return not seen or max(value or 0.0 for value in seen) >= _PLAUSIBLE


def _kinds(reals: FeatureSet, kinds: Sequence[MissingKind]) -> list[Notice]:
    if not kinds:
        return []
    return [
        notice(
            "missing-kinds",
            real=_percent(sum(kind.real_share for kind in kinds)),
            fake=_percent(sum(kind.fake_share for kind in kinds)),
            shown=", ".join(reals.name_of(kind.row) for kind in kinds[:_SHOWN]),
        )
    ]


def _axes(
    reals: FeatureSet, fakes: FeatureSet, metrics: Mapping[str, MetricValue], seed: int
) -> list[Notice]:
    """Only where distances see nothing: a blurred or collapsed set differs in single features too."""
    seen = [metrics[name].relative for name in _REACHED if name in metrics]
    if not seen or min(value or 0.0 for value in seen) < _GOOD:
        return []
    odd = odd_axes(reals.features, fakes.features, seed=seed)
    if odd.is_lattice:
        return [notice("lattice")]
    if not odd.axes:
        return []
    shown = ", ".join(map(str, odd.axes[:_SHOWN]))
    return [notice("odd-features", count=len(odd.axes), largest=f"{odd.largest:.2f}", shown=shown)]


def _percent(share: float) -> str:
    return f"{share:.1%}"
