"""Kinds of images that are missing, and kinds that are invented, as pictures: a group for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from genpr.evaluation.labels import Label
from genpr.evaluation.modes import FoundModes
from genpr.evaluation.per_image import PerImageScores
from genpr.metrics.ball_metrics import coverage, precision
from genpr.metrics.modes import LEAST_IMAGES, modes_of
from genpr.report.pages.picks import Pick, Selection, Side
from genpr.report.reading import capital

if TYPE_CHECKING:
    import torch

    from genpr.features.options import StageProgress
    from genpr.metrics.modes import ModeCluster

KnownLabels = Sequence[Label] | None
"""Class of each image of a side, None for those without one; None if no classes are known."""

_MOST = 10_000  # images of a side among which kinds are looked for: the search grows with the square
_KINDS, _PER_KIND = 6, 8
_SINGLE = 16


def mode_picks(
    evidence: PerImageScores,
    *,
    labels: tuple[KnownLabels, KnownLabels] = (None, None),
    device: torch.device | str = "auto",
    progress: StageProgress | None = None,
) -> list[Selection]:
    """Reals that no fake covers, by missed kinds; and fakes that lie off the reals' manifold, by invented kinds.

    Where no kind stands out, the reals that are farthest from any fake are shown one by one; single fakes far outside are
    among the least realistic ones already.

    Args:
        evidence: Of the score.
        labels: Class of each real and of each fake, as far as they are known.
        device: Where neighbours are searched for.
        progress: Called with "kinds", per cent, and 100.
    """
    found = _found(evidence, labels, device, progress)
    missed, invented = ([], []) if found is None else (found.modes.missed, found.modes.invented)
    uncovered = _kinds("real", missed, evidence.real.names, "covered by no fake")
    outside = _kinds("fake", invented, evidence.fake.names, "off the manifold")
    summary = _summary(found, evidence)
    return [
        Selection("Missed: real images that no fake covers", summary[0], uncovered or _farthest(evidence)),
        Selection("Invented: fakes off the real manifold", summary[1], outside),
    ]


def _found(
    evidence: PerImageScores,
    labels: tuple[KnownLabels, KnownLabels],
    device: torch.device | str,
    progress: StageProgress | None,
) -> FoundModes | None:
    reals, fakes = evidence.sides
    ks = evidence.k
    if min(len(reals), len(fakes)) < max(LEAST_IMAGES, ks[coverage.name] + 1, ks[precision.name] + 1):
        return None
    modes = modes_of(
        reals.features,
        fakes.features,
        uncovered_k=ks[coverage.name],
        outside_k=ks[precision.name],
        real_labels=labels[0],
        fake_labels=labels[1],
        most=_MOST,
        seed=evidence.result.seed,
        device=device,
        progress=None
        if progress is None
        else lambda done, total: progress("kinds", 100 * done // max(total, 1), 100),
    )
    info = fakes.extractor or reals.extractor
    return FoundModes(modes, reals.source, fakes.source, reals.names, fakes.names, info, ())


def _summary(found: FoundModes | None, evidence: PerImageScores) -> tuple[str, str]:
    """What is to be said of missed and of invented kinds."""
    uncovered, outside = 1 - evidence.real.covered.mean(), 1 - evidence.fake.inside.mean()
    shares = f"{uncovered:.1%} of the reals are covered by no fake", f"{outside:.1%} of the fakes lie outside"
    if found is None:
        few = f"at least {LEAST_IMAGES} images of each side are needed to tell kinds apart"
        return f"{shares[0]}; {few}.", f"{shares[1]}; {few}."
    modes = found.modes
    part = (
        f" Kinds were looked for among {modes.n_real:,} reals and {modes.n_fake:,} fakes, drawn at random. "
        "Held against each other anew, these differ a little from all."
        if (modes.n_real, modes.n_fake) != (len(evidence.real), len(evidence.fake))
        else ""
    )
    missed, invented, *classes = (capital(sentence) for sentence in found.summary)
    is_missed = any(each.is_significant for each in modes.missed)
    single = (
        "" if is_missed else " Shown are those that are farthest from any fake, for the size of their ball."
    )
    return (
        " ".join([f"{shares[0]}. {missed}.", *(f"{sentence}." for sentence in classes)]) + part + single,
        f"{shares[1]}. {invented}.{part}",
    )


def _kinds(side: Side, clusters: Sequence[ModeCluster], names: Sequence[str], what: str) -> tuple[Pick, ...]:
    """The most typical images of each kind that chance does not explain, under a heading that says how many there are."""
    picks = []
    for number, cluster in enumerate([each for each in clusters if each.is_significant][:_KINDS], start=1):
        heading = (
            f"Kind {number}: {cluster.flagged:,} of {cluster.size:,} {side}s {what}, "
            f"{cluster.expected:,.0f} expected{_classes(cluster)}"
        )
        picks += [Pick((side, row), names[row], group=heading) for row in cluster.rows[:_PER_KIND]]
    return tuple(picks)


def _classes(cluster: ModeCluster) -> str:
    """The most frequent classes, where they are known."""
    shares = [f"{name} {count / cluster.flagged:.0%}" for name, count in cluster.classes[:3]]
    return f"; {', '.join(shares)}" if shares else ""


def _farthest(evidence: PerImageScores) -> tuple[Pick, ...]:
    """Uncovered reals by how many of its radii away the nearest fake is, each beside that fake."""
    real = evidence.real
    distance = real.nearest_fake_distance
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(distance > 0, distance / real.radius, 0.0)  # on the border of a ball that is a point
    rows = np.argsort(-far, kind="stable")
    rows = rows[~real.covered[rows]][:_SINGLE].tolist()
    return tuple(
        Pick(
            ("real", row),
            f"{real.names[row]}: {f'{far[row]:.2f} radii away' if np.isfinite(far[row]) else 'its ball is a point'}",
            ("fake", int(real.nearest_fake[row])),
            evidence.fake.names[real.nearest_fake[row]],
        )
        for row in rows
    )
