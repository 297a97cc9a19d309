"""What the numbers may hide: notices about outliers, shrinkage, copies, missing kinds and odd features.

Each comes with a threshold far from what chance does, so that two halves of one data set raise none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from genpr.evaluation.values import MetricValue
from genpr.features.feature_set import FeatureSet
from genpr.metrics.evidence import Evidence, is_copying
from genpr.metrics.modes.kinds import MissingKind, RealKinds, odd_axes
from genpr.metrics.neighbour_metrics import Lack, least_for_interval
from genpr.notices import Notice, notice

_LOW_NULL = 0.9
_COPYING_Z = -3.0
_FLAT = 0.01
_COPIES = {"same-input", "copied-reals"}
_CONCENTRATED = 0.8
_DENSE, _GAP = 1.2, 0.2
_SEEN_BY, _GOOD = ("precision", "recall", "coverage"), 0.8  # of the null: what all must reach
_NEAR, _PLAUSIBLE = ("precision", "density"), 0.5
_SHOWN = 3


def suspicions(
    reals: FeatureSet,
    fakes: FeatureSet,
    metrics: Mapping[str, MetricValue],
    evidence: Evidence | None,
    *,
    kinds: RealKinds | None,
    seed: int,
    distinct: Sequence[int] | None,
    told: Collection[str],
) -> list[Notice]:
    """Notices about one score, the most important first.

    Args:
        reals: The real side.
        fakes: The fake side.
        metrics: Of the two.
        evidence: What was found when they were counted; None if no neighbours were.
        kinds: Of the reals; None where no neighbours were counted.
        seed: Chooses the part of each side whose single features are compared.
        distinct: Rows of the fakes without repeats, which are another matter than kinds; None if there are none.
        told: Codes of what is known already, of byte-identical images among others.
    """
    found = _low_null(metrics)
    if evidence is None or kinds is None:
        return [*_copying(metrics), *found]
    fake_rows = None if distinct is None else torch.tensor(distinct)
    is_plausible = _are_plausible(metrics)
    shrunk = _shrinkage(metrics, evidence) if is_plausible else []
    return [
        *([] if "duplicates" in told else _flat(evidence)),
        *([] if _COPIES & {*told} else _copies(reals, fakes, evidence)),
        # Shrunken fakes are nearer to all reals, and in many balls, without copying or relying on any.
        *(shrunk or [*_copying(metrics), *_outliers(reals, evidence)]),
        *(_kinds(reals, kinds.missing(fakes.features, fake_rows=fake_rows)) if is_plausible else []),
        *_axes(reals, fakes, metrics, seed),
        *found,
    ]


def near_duplicate_notices(evidence: Evidence | None, told: Collection[str]) -> list[Notice]:
    """The notice of near-duplicates within either side, at most one.

    Args:
        evidence: What was found when neighbors were counted; None if none were.
        told: Codes of what is known already; "duplicates" accounts for images that are exactly equal.
    """
    if evidence is None:
        return []
    found = [
        (role, each)
        for role, each, flat in zip(("real", "fake"), evidence.near_duplicates, evidence.flat, strict=True)
        if each is not None and each.matters(equal="duplicates" not in told and flat <= _FLAT)
    ]
    if not found:
        return []
    sides = " and ".join(f"{each.share:.0%} of the {role} images" for role, each in found)
    sizes = " and ".join(dict.fromkeys(str(each.size) for _, each in found))
    return [notice("near-duplicates", sides=sides, size=sizes)]


def no_intervals(lacks: Mapping[str, Lack], ks: Mapping[str, int], smaller: int) -> list[Notice]:
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
    value = metrics.get("precision")
    if value is None or value.null is None or value.null >= _LOW_NULL:
        return []
    return [notice("low-null", null=f"{value.null:.2f}")]


def _flat(evidence: Evidence) -> list[Notice]:
    return [
        notice("degenerate-manifold", role=role, share=f"{share:.0%}")
        for role, share in zip(("real", "fake"), evidence.flat, strict=True)
        if share > _FLAT
    ]


def _copying(metrics: Mapping[str, MetricValue]) -> list[Notice]:
    z = metrics.get("c_t")
    return [] if z is None or z.value >= _COPYING_Z else [notice("copying", z=f"{z.value:.1f}")]


def _copies(reals: FeatureSet, fakes: FeatureSet, evidence: Evidence) -> list[Notice]:
    copies = evidence.near_copies
    if copies is None or not is_copying(copies):
        return []
    pairs = list(zip(copies.fakes[:_SHOWN].tolist(), copies.reals[:_SHOWN].tolist(), strict=True))
    shown = ", ".join(f"{fakes.name_of(fake)} ({reals.name_of(real)})" for fake, real in pairs)
    return [
        notice("near-copies", share=_percent(copies.share), expected=_percent(copies.expected), shown=shown)
    ]


def _shrinkage(metrics: Mapping[str, MetricValue], evidence: Evidence) -> list[Notice]:
    """Fakes nearer to each other than reals are; or more reals around each fake than a perfect generator has."""
    ratio = evidence.concentration
    if ratio is not None and ratio < _CONCENTRATED:
        return [notice("shrinkage", sign=f"their balls are {ratio:.2f} times as large as those of the reals")]
    density = metrics.get("density")
    recall, coverage = (
        None if name not in metrics else metrics[name].relative for name in ("recall", "coverage")
    )
    if density is None or recall is None or coverage is None:
        return []
    if density.value > _DENSE and coverage - recall > _GAP:
        return [
            notice(
                "shrinkage", sign=f"density is {density.value:.2f} while recall is {recall:.0%} of its null"
            )
        ]
    return []


def _outliers(reals: FeatureSet, evidence: Evidence) -> list[Notice]:
    if not evidence.outliers:
        return []
    worst = evidence.outliers[0]
    shown = ", ".join(reals.name_of(outlier.row) for outlier in evidence.outliers[:_SHOWN])
    return [
        notice("outlier-dominance", count=len(evidence.outliers), share=_percent(worst.share), shown=shown)
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
    seen = [metrics[name].relative for name in _SEEN_BY if name in metrics]
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
