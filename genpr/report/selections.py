"""Select the images of a page by their scores, as galleries of references; no image is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from genpr.evaluation.labels import Label
from genpr.evaluation.modes import sentences_of
from genpr.evaluation.options import FAMILY
from genpr.evaluation.per_image import PerImageScores
from genpr.metrics.ball_metrics import coverage, precision
from genpr.metrics.modes import MIN_IMAGES, modes_of
from genpr.metrics.registry import ALL_METRICS
from genpr.report.page import Gallery, Picture, Role
from genpr.report.text import capital, number, shown

if TYPE_CHECKING:
    from genpr.conditional.align import Aligned
    from genpr.evaluation.diversity import Diverse
    from genpr.evaluation.reconstruction import Reconstructed
    from genpr.features.options import StageProgress
    from genpr.metrics.modes import ModeCluster

Floats = NDArray[np.float64]
KnownLabels = Sequence[Label] | None
"""The class of each image, None for images without one; None if no classes are known."""

_REALISM = 24  # pictures of the least and of the most realistic fakes


def _with_nearest_reals(
    scores: PerImageScores, rows: Sequence[int], caption: str, values: Floats
) -> tuple[Picture, ...]:
    """Fakes with their nearest reals, and a value in the caption."""
    fakes, nearest, reals = scores.fake.names, scores.fake.nearest_real.tolist(), scores.real.names
    return tuple(
        Picture(
            ("fake", row),
            f"{fakes[row]}: {caption}{values[row]:.2f}",
            ("real", nearest[row]),
            reals[nearest[row]],
        )
        for row in rows
    )


def select_by_realism(scores: PerImageScores) -> list[Gallery]:
    """The least and the most realistic fakes, each next to its nearest real."""
    realism = scores.fake.realism
    order = np.argsort(realism, kind="stable")
    finite = order[np.isfinite(realism[order])]
    count = min(_REALISM, (len(finite) + 1) // 2)  # no fake is in both galleries
    least, most = finite[:count].tolist(), finite[::-1][: min(count, len(finite) - count)].tolist()
    copies = len(order) - len(finite)
    left_out = f" {copies:,} with the features of a real image are left out." * bool(copies)
    edge = "Realism is 1 at the edge of the real manifold and less outside. Each fake is next to its nearest real image."
    near = f"Closest to a real image relative to the radius of its ball. Check these for copies.{left_out}"
    return [
        Gallery("Least realistic fakes", edge, _with_nearest_reals(scores, least, "realism ", realism)),
        Gallery("Most realistic fakes", near, _with_nearest_reals(scores, most, "realism ", realism)),
    ]


_MAX_IMAGES = 10_000  # images per set in the search for modes, which takes quadratic time
_MODES, _PER_MODE = 6, 8


def select_modes(
    scores: PerImageScores,
    *,
    labels: tuple[KnownLabels, KnownLabels] = (None, None),
    device: torch.device | str = "auto",
    progress: StageProgress | None = None,
) -> list[Gallery]:
    """Uncovered reals and fakes outside the real manifold by clusters.

    `labels` has the class of each real and of each fake; `progress` is called with "kinds" and percent.
    """
    (reals, fakes), real, fake = scores.sides, scores.real, scores.fake
    uncovered_k, outside_k = scores.k[coverage.name], scores.k[precision.name]
    shares = [
        f"{1 - real.covered.mean():.1%} of the reals are not covered by any fake.",
        f"{1 - fake.inside.mean():.1%} of the fakes are outside the real manifold.",
    ]
    uncovered: tuple[Picture, ...] = ()
    outside: tuple[Picture, ...] = ()
    if min(len(reals), len(fakes)) < max(MIN_IMAGES, uncovered_k + 1, outside_k + 1):
        found = (f"finding clusters needs at least {MIN_IMAGES} images of each set",) * 2
    else:
        modes = modes_of(
            reals.features,
            fakes.features,
            uncovered_k=uncovered_k,
            outside_k=outside_k,
            real_labels=labels[0],
            fake_labels=labels[1],
            most=_MAX_IMAGES,
            seed=scores.result.seed,
            device=device,
            progress=progress and (lambda done, total: progress("kinds", 100 * done // max(total, 1), 100)),
        )
        found = sentences_of(modes)
        uncovered = _of_modes("real", modes.uncovered, real.names, "not covered by any fake")
        outside = _of_modes("fake", modes.outside, fake.names, "outside the real manifold")
    sentences = [f"{share} {capital(text)}." for share, text in zip(shares, found, strict=True)]
    return [
        Gallery("Uncovered clusters: real images that no fake covers", sentences[0], uncovered),
        Gallery("Outside clusters: fakes outside the real manifold", sentences[1], outside),
    ]


def _of_modes(
    role: Role, clusters: Sequence[ModeCluster], names: Sequence[str], what: str
) -> tuple[Picture, ...]:
    """Representative images of each significant cluster under a heading with its counts and classes."""
    pictures = []
    for index, cluster in enumerate([each for each in clusters if each.is_significant][:_MODES], start=1):
        classes = ", ".join(f"{name} {count / cluster.flagged:.0%}" for name, count in cluster.classes[:3])
        counts = (
            f"{cluster.flagged:,} of {cluster.size:,} {role}s are {what} ({cluster.expected:,.0f} expected)"
        )
        group = f"Cluster {index}: {'; '.join(filter(None, [counts, classes]))}"
        pictures += [Picture((role, row), names[row], group=group) for row in cluster.rows[:_PER_MODE]]
    return tuple(pictures)


_FAILURES = 60
_PROMPT = 160  # shown characters of a prompt


def select_by_prompt(aligned: Aligned) -> Gallery:
    """Images that rank another prompt first, each next to an image of that prompt."""
    from genpr.conditional.prompt_ranking import worst_first

    first: dict[str, int] = {}  # an image of each prompt
    for row, texts in enumerate(aligned.assignment.of_image):
        for index in texts:
            first.setdefault(aligned.assignment.texts[index], row)
    failed = worst_first(aligned.ranks)
    failures = [
        Picture(
            ("fake", each.row),
            f"{each.image}: prompt “{shown(each.prompt, longest=_PROMPT)}” ({each.score:.3f}), "
            f"rank {each.rank:g} of {each.pool:,}",
            ("fake", first[each.winner]),
            f"an image of the prompt that it ranks first, “{shown(each.winner, longest=_PROMPT)}” ({each.winner_score:.3f})",
        )
        for each in failed[:_FAILURES]
    ]
    sentence = (
        f"{len(failed):,} of {len(aligned.ranks):,} images do not rank their own prompt first. They are sorted by rank, the "
        "worst first, and each is next to an image of the prompt that it ranks first. In parentheses: cosine similarity."
    )
    more = len(failed) - len(failures)
    return Gallery("Images that match another prompt better", sentence, tuple(failures), more, is_wide=True)


_WORST = 24


def select_worst_pairs(found: Reconstructed, metric: str) -> Gallery:
    """The worst pairs of originals and reconstructions by one metric."""
    values, (real, fake) = found.values[metric], found.sources
    sign = 1 if ALL_METRICS[FAMILY + metric].better == "higher" else -1
    pictures = [
        Picture(
            ("real", row),
            f"{real.name_of(row)}: {metric} {number(float(values[row]))}",
            ("fake", row),
            f"its reconstruction {fake.name_of(row)}",
        )
        for row in np.argsort(sign * values, kind="stable")[:_WORST].tolist()
    ]
    sentence = (
        f"Each original (left) with its reconstruction (right), the worst of {len(values):,} pairs first."
    )
    return Gallery(f"Worst pairs by {metric}", sentence, tuple(pictures))


_GROUPS, _PER_GROUP = 8, 12


def select_groups(found: Diverse, role: Role) -> Gallery:
    """Images of the groups with the least diverse fakes."""
    pictures, summary = list[Picture](), found.result.diversity
    for group, row in list(summary.groups.items() if summary else ())[:_GROUPS]:
        heading = f"{group}: {', '.join(f'{name} {value:.4g}' for name, value in row.items())}"
        rows = [at for at, name in enumerate(found.group_of[role]) if name == group][:_PER_GROUP]
        pictures += [Picture((role, at), found.images[role].name_of(at), group=heading) for at in rows]
    sentence = (
        f"At most {_PER_GROUP} {role} images of each of the {_GROUPS} groups with the least diverse fakes."
    )
    return Gallery(f"{capital(role)} images of the least diverse groups", sentence, tuple(pictures))


_LIKELY = 24


def select_likely_copies(scores: PerImageScores) -> Gallery:
    """Fakes that may be copies, each next to its nearest real, the most likely first.

    The distance of a fake to its nearest real is divided by the distance of that real to its nearest other real, or by the
    median of these distances if that is smaller.
    """
    real, fake = scores.real, scores.fake
    usual = np.quantile(real.other_distance, 0.5, method="lower")  # as for the notice "near-copies"
    scale = np.minimum(real.other_distance[fake.nearest_real], usual)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(fake.nearest_real_distance == 0, 0.0, fake.nearest_real_distance / scale)
    rows = np.argsort(ratio, kind="stable")[:_LIKELY].tolist()
    sentence = (
        "Distance to the nearest real image, divided by the distance of that image to its nearest other real image. 0: equal "
        "features. Below 1: the fake is nearer than any other real image. These are the fakes with the lowest ratios, whether "
        "they are copies or not. Data sets also contain near-duplicates."
    )
    return Gallery("Fakes nearest to real images", sentence, _with_nearest_reals(scores, rows, "", ratio))
