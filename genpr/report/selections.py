"""Which images a page shows, as galleries of references: chosen by their scores, before any image is read."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.evaluation.labels import Label
from genpr.evaluation.modes import FoundModes
from genpr.evaluation.per_image import PerImageScores
from genpr.metrics.ball_metrics import coverage, precision
from genpr.metrics.blocks import Blocks
from genpr.metrics.modes import LEAST_IMAGES, modes_of
from genpr.report.page import Gallery, ImageRef, Picture, Role
from genpr.report.text import capital, percent, shown

if TYPE_CHECKING:
    from genpr.conditional.align import Aligned, Copies
    from genpr.features.options import StageProgress
    from genpr.metrics.modes import ModeCluster

Floats = NDArray[np.float64]
KnownLabels = Sequence[Label] | None
"""Class of each image of a set, None for those without one; None if no classes are known."""

_REALISM = 24  # pictures at either end
_REPEATS = 12


def _beside_nearest(
    scores: PerImageScores, role: Role, row: int, caption: str = "", group: str = ""
) -> Picture:
    """A fake beside its nearest real, or a real beside its nearest fake."""
    fake, real = scores.fake, scores.real
    if role == "fake":
        near: ImageRef = ("real", int(fake.nearest_real[row]))
        return Picture((role, row), fake.names[row] + caption, near, real.names[near[1]], group)
    near = ("fake", int(real.nearest_fake[row]))
    return Picture((role, row), real.names[row] + caption, near, fake.names[near[1]], group)


def _beside_reals(
    scores: PerImageScores, rows: Sequence[int], caption: str, values: Floats
) -> tuple[Picture, ...]:
    """Fakes with a value in their captions."""
    return tuple(_beside_nearest(scores, "fake", row, f": {caption}{values[row]:.2f}") for row in rows)


def select_by_realism(scores: PerImageScores) -> list[Gallery]:
    """The least realistic fakes and the most realistic ones, each beside its nearest real."""
    realism = scores.fake.realism
    order = np.argsort(realism, kind="stable")
    finite = order[np.isfinite(realism[order])]
    count = min(_REALISM, (len(finite) + 1) // 2)  # no fake is at both ends
    least, most = finite[:count].tolist(), finite[::-1][: min(count, len(finite) - count)].tolist()
    copies = len(order) - len(finite)
    left_out = f" {copies:,} that equal a real image are left out." * bool(copies)
    edge = "Realism is 1 at the edge of the real manifold, and less outside. Each fake is shown beside its nearest real."
    near = f"Nearest to a real image relative to the size of its ball: look for copies among them.{left_out}"
    return [
        Gallery("Least realistic fakes", edge, _beside_reals(scores, least, "realism ", realism)),
        Gallery("Most realistic fakes", near, _beside_reals(scores, most, "realism ", realism)),
    ]


def select_repeats(scores: PerImageScores) -> Gallery:
    """Images that occur several times in their set: the first of each, the most frequent first."""
    sets: tuple[tuple[Role, Sequence[str], Tensor], ...] = (
        ("fake", scores.fake.names, scores.sides[1].features),
        ("real", scores.real.names, scores.sides[0].features),
    )
    pictures, sentences, more = [], [], 0
    for role, names, features in sets:
        groups = repeats(features)
        count = sum(len(rows) - 1 for rows in groups)
        sentences.append(f"{count:,} of {len(features):,} {role}s repeat an earlier {role}")
        for rows in groups[:_REPEATS]:
            caption = f"{names[rows[0]]}: {len(rows):,} times"
            pictures.append(Picture((role, rows[0]), caption, group=f"Among the {role}s"))
        more += max(0, len(groups) - _REPEATS)
    sentence = f"{', and '.join(sentences)}, by features that are equal to the last bit."
    return Gallery("Duplicates", sentence, tuple(pictures), more)


def repeats(features: Tensor) -> list[list[int]]:
    """Rows that are equal, in groups: the largest first, equally large ones by their first row."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    row = 0
    for block in Blocks(features, torch.device("cpu")):
        for each in block.numpy() + 0.0:  # so that -0 is 0
            groups[hashlib.blake2b(each.tobytes(), digest_size=16).digest()].append(row)
            row += 1
    found = [rows for rows in groups.values() if len(rows) > 1]
    return sorted(found, key=lambda rows: (-len(rows), rows[0]))


_GROUPS, _IN_GROUP = 6, 8
_LABEL = 60  # characters of a label


def select_mislabeled(scores: PerImageScores) -> list[Gallery]:
    """Of the most frequent confusions the most realistic fakes, each beside its nearest real; none without labels."""
    if scores.labels is None:
        return []
    groups = scores.labels.mistakes()
    realism, count = scores.fake.realism, sum(map(len, groups.values()))
    pictures = []
    for (requested, found), rows in list(groups.items())[:_GROUPS]:
        labels = (shown(label, longest=_LABEL) for label in (requested, found))
        group = "Requested {}, recognized as {} ({:,})".format(*labels, len(rows))
        best = sorted(rows, key=lambda row: (-realism[row], row))[:_IN_GROUP]
        pictures += [_beside_nearest(scores, "fake", row, group=group) for row in best]
    summary = scores.result.labels
    known = {"knn": "the nearest reals", "linear": "a linear classifier of the reals"}
    name = "a classifier" if summary is None else known.get(summary.classifier, summary.classifier)
    sentence = (
        f"{count:,} of {len(scores.fake):,} fakes are recognized as another class than requested, by "
        f"{shown(name, longest=_LABEL)}, which may be wrong itself. Of the most frequent confusions, the most realistic "
        "fakes; each is shown beside its nearest real."
    )
    title, more = "Fakes of another class than requested", count - len(pictures)
    return [Gallery(title, sentence, tuple(pictures), more)]


_MOST = 10_000  # images of a set among which modes are looked for: the search grows with the square
_MODES, _PER_MODE = 6, 8
_SINGLE = 16


def select_modes(
    scores: PerImageScores,
    *,
    labels: tuple[KnownLabels, KnownLabels] = (None, None),
    device: torch.device | str = "auto",
    progress: StageProgress | None = None,
) -> list[Gallery]:
    """Reals that no fake covers, by missed modes; and fakes off the real manifold, by invented modes.

    Where no missed mode is significant, the reals that are farthest from any fake are shown one by one. `labels` has the
    class of each real and of each fake; `progress` is called with "kinds" and percent.
    """
    found = _modes(scores, labels, device, progress)
    missed, invented = ((), ()) if found is None else (found.modes.missed, found.modes.invented)
    summaries = _mode_summaries(found, scores)
    uncovered = _of_modes("real", missed, scores.real.names, "covered by no fake")
    if not uncovered:
        uncovered = _farthest(scores)
        summaries[0] += (
            " Shown are those that are farthest from any fake, relative to the size of their ball."
        )
    outside = _of_modes("fake", invented, scores.fake.names, "off the manifold")
    return [
        Gallery("Missed: real images that no fake covers", summaries[0], uncovered),
        Gallery("Invented: fakes off the real manifold", summaries[1], outside),
    ]


def _modes(
    scores: PerImageScores,
    labels: tuple[KnownLabels, KnownLabels],
    device: torch.device | str,
    progress: StageProgress | None,
) -> FoundModes | None:
    """None where there are too few images."""
    (reals, fakes), uncovered_k, outside_k = scores.sides, scores.k[coverage.name], scores.k[precision.name]
    if min(len(reals), len(fakes)) < max(LEAST_IMAGES, uncovered_k + 1, outside_k + 1):
        return None

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress("kinds", 100 * done // max(total, 1), 100)

    modes = modes_of(
        reals.features,
        fakes.features,
        uncovered_k=uncovered_k,
        outside_k=outside_k,
        real_labels=labels[0],
        fake_labels=labels[1],
        most=_MOST,
        seed=scores.result.seed,
        device=device,
        progress=report,
    )
    info = fakes.extractor or reals.extractor
    return FoundModes(modes, reals.source, fakes.source, reals.names, fakes.names, info, ())


def _mode_summaries(found: FoundModes | None, scores: PerImageScores) -> list[str]:
    """Sentences about missed and about invented modes."""
    shares = [
        f"{1 - scores.real.covered.mean():.1%} of the reals are covered by no fake",
        f"{1 - scores.fake.inside.mean():.1%} of the fakes lie outside",
    ]
    if found is None:
        needed = f"at least {LEAST_IMAGES} images of each set are needed to find modes."
        return [f"{share}; {needed}" for share in shares]
    return [f"{share}. {capital(sentence)}." for share, sentence in zip(shares, found.summary, strict=True)]


def _of_modes(
    role: Role, clusters: Sequence[ModeCluster], names: Sequence[str], what: str
) -> tuple[Picture, ...]:
    """The most typical images of each significant mode, under a heading with its counts and classes."""
    pictures = []
    for number, cluster in enumerate([each for each in clusters if each.is_significant][:_MODES], start=1):
        classes = ", ".join(f"{name} {count / cluster.flagged:.0%}" for name, count in cluster.classes[:3])
        counts = f"{cluster.flagged:,} of {cluster.size:,} {role}s {what}, {cluster.expected:,.0f} expected"
        group = f"Mode {number}: {'; '.join(filter(None, [counts, classes]))}"
        pictures += [Picture((role, row), names[row], group=group) for row in cluster.rows[:_PER_MODE]]
    return tuple(pictures)


def _farthest(scores: PerImageScores) -> tuple[Picture, ...]:
    """Uncovered reals by how many of their radii away the nearest fake is, each beside that fake."""
    real, distance = scores.real, scores.real.nearest_fake_distance
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(distance > 0, distance / real.radius, 0.0)  # on the border of a ball that is a point
    rows = np.argsort(-far, kind="stable")
    rows = rows[~real.covered[rows]][:_SINGLE].tolist()
    away = [f": {far[row]:.2f} radii away" if np.isfinite(far[row]) else ": its radius is 0" for row in rows]
    return tuple(_beside_nearest(scores, "real", row, text) for row, text in zip(rows, away, strict=True))


_FAILURES, _COPIES = 60, 24
_PROMPT = 160  # characters of a caption


def _prompt(text: str) -> str:
    return f"“{shown(text, longest=_PROMPT)}”"


def select_by_prompt(aligned: Aligned) -> Gallery:
    """Images that rank another prompt first, each beside an image of that prompt."""
    from genpr.conditional.prompt_ranking import worst_first

    first: dict[str, int] = {}  # image of each prompt
    for row, texts in enumerate(aligned.assignment.of_image):
        for index in texts:
            first.setdefault(aligned.assignment.texts[index], row)
    failed = worst_first(aligned.ranks)
    failures = [
        Picture(
            ("fake", each.row),
            f"{each.image}: prompt {_prompt(each.prompt)} ({each.score:.3f}), rank {each.rank:g} of {each.pool:,}",
            ("fake", first[each.winner]),
            f"an image of the prompt that it ranks first, {_prompt(each.winner)} ({each.winner_score:.3f})",
        )
        for each in failed[:_FAILURES]
    ]
    sentence = (
        f"{len(failed):,} of {len(aligned.ranks):,} images do not rank their own prompt first; the lowest ranks come first. "
        "Each is shown beside an image of the prompt that it ranks first. In brackets: cosines."
    )
    more = len(failed) - len(failures)
    return Gallery("Images that fit another prompt better", sentence, tuple(failures), more, is_wide=True)


def select_copies(names: Sequence[str], copies: Copies) -> Gallery:
    """The images most similar to a training image, each shown with that training image."""
    found = copies.found
    above = int((found.similarity > found.threshold).sum())
    pictures = []
    for row in np.argsort(-found.similarity, kind="stable")[:_COPIES].tolist():
        nearest: ImageRef = ("real", int(found.nearest[row]))
        caption = f"{names[row]}: cosine {found.similarity[row]:.3f}"
        beside = f"{copies.names[nearest[1]]}, the nearest training image"
        pictures.append(Picture(("fake", row), caption, nearest, beside))
    null = ""
    if found.null.value is not None:
        null = f"; for {percent(found.null.value)} of the training images, another training image is as near"
    sentence = (
        f"{above:,} of {len(names):,} images have a cosine above {found.threshold:g} to a training image{null}. The nearest "
        "come first, whether above or not."
    )
    more = max(0, above - len(pictures))
    return Gallery("Images nearest to training images", sentence, tuple(pictures), more)


_LIKELY = 24


def select_likely_copies(scores: PerImageScores) -> Gallery:
    """Fakes that may be copies, each beside its nearest real, the most likely first.

    A fake is near to a real if it is much nearer than that real's own nearest other real, or, should that one lie far from
    all others, than reals usually are.
    """
    real, fake = scores.real, scores.fake
    scale = np.minimum(real.other_distance[fake.nearest_real], float(np.median(real.other_distance)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(fake.nearest_real_distance == 0, 0.0, fake.nearest_real_distance / scale)
    rows = np.argsort(ratio, kind="stable")[:_LIKELY].tolist()
    sentence = (
        "Fakes that are nearest to a real image, by how near that image's own neighbors are: 0 is equal features, and below "
        "1 the fake is nearer than any real. Compare each with the real beside it; data sets contain repeats, too."
    )
    return Gallery("Likely copies of real images", sentence, _beside_reals(scores, rows, "", ratio))
