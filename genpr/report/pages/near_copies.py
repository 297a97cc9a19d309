"""Fakes that are pictures of the real set once more: candidates by their features, and who of them is by the pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from genpr.evaluation.per_image import PerImageScores
from genpr.metrics.samples import nearest_others
from genpr.report.likeness import LEAST_DETAIL, Likeness, likeness
from genpr.report.pages.album import Album
from genpr.report.pages.picks import Pick, Selection

_CANDIDATES = 400  # pairs whose pixels are compared
_MOST = 100  # of them that are shown
_USUAL = 200  # pairs of reals that tell how far different pictures agree
_DEVIATIONS = 4.0
_NEARLY = 1 - 1e-6


def copy_candidates(evidence: PerImageScores) -> list[Pick]:
    """Fakes that may be copies of their nearest real, each beside it, the likeliest first.

    A fake is near to a real if it is much nearer than that real's own nearest other real, or, should that one lie far from
    all others, than reals usually are.
    """
    real, fake = evidence.real, evidence.fake
    usual = float(np.median(real.other_distance))
    scale = np.minimum(real.other_distance[fake.nearest_real], usual)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(fake.nearest_real_distance == 0, 0.0, fake.nearest_real_distance / scale)
    rows = np.argsort(ratio, kind="stable")[:_CANDIDATES].tolist()
    pairs = [(row, int(fake.nearest_real[row])) for row in rows]
    return [Pick(("fake", a), fake.names[a], ("real", b), real.names[b]) for a, b in pairs]


def usual_pairs(evidence: PerImageScores) -> list[Pick]:
    """Some reals, each beside the real that is nearest to it: how far do pictures agree that are no copies?"""
    features = evidence.sides[0].features
    rng = np.random.default_rng(evidence.result.seed)
    rows = torch.from_numpy(rng.permutation(len(features))[:_USUAL])
    names = evidence.real.names
    pairs = zip(rows.tolist(), nearest_others(features, rows).tolist(), strict=True)
    return [Pick(("real", a), names[a], ("real", b), names[b]) for a, b in pairs]


def copies_among(candidates: list[Pick], usual: list[Pick], album: Album) -> Selection:
    """Those that are copies by their pixels, the most alike first.

    Two pictures are one if they agree enough for the eye, and beyond what those of the real set do that are nearest to
    each other: drawings and portraits all agree to some degree.

    Args:
        candidates: As `copy_candidates` gives them.
        usual: As `usual_pairs` gives them.
        album: The pictures of both, as far as they could be read.
    """
    found = [(pick, each) for pick in candidates if (each := _likeness(pick, album)) is not None]
    least = _least_agreement([each for pick in usual if (each := _likeness(pick, album)) is not None])
    alike = [each for each in found if each[1].is_same and each[1].agreement >= least]
    alike.sort(key=lambda each: -each[1].agreement)
    picks = tuple(_with_agreement(pick, each) for pick, each in alike[:_MOST])
    strict = f" Different pictures of this set agree well: only {least:.2f} and more counts." if least else ""
    caution = " Data sets repeat themselves: a few such pairs prove no copying." if alike else ""
    count = "none is" if not alike else "1 is" if len(alike) == 1 else f"{len(alike):,} are"
    sentence = (
        f"Of the {len(found):,} fakes that are nearest to a real image, {count} the same picture by the pixels, perhaps "
        f"encoded anew, recoloured, mirrored or shifted a little.{strict}{caution}"
        if found
        else "Pixels could not be compared: this needs the pictures of both sides."
    )
    return Selection("Near-copies of real images", sentence, picks, len(alike) - len(picks))


def _least_agreement(usual: Sequence[Likeness]) -> float:
    """Four standard deviations above the median of what is usual, on Fisher's scale; 0 where the eye asks for more.

    The deviation is told from the median and the 84th percentile, which copies within the real set do not reach.
    """
    if not usual:
        return 0.0
    scale = np.arctanh(np.clip([each.agreement for each in usual], -_NEARLY, _NEARLY))
    median, upper = np.quantile(scale, [0.5, 0.84])
    least = float(np.tanh(median + _DEVIATIONS * (upper - median)))
    return least if least > LEAST_DETAIL else 0.0


def _likeness(pick: Pick, album: Album) -> Likeness | None:
    """None where one of both pictures could not be read."""
    one, other = (album.pixels.get(image) for image in pick.images)
    return None if one is None or other is None else likeness(one, other)


def _with_agreement(pick: Pick, found: Likeness) -> Pick:
    mirrored = ", mirrored" if found.is_mirrored else ""
    return replace(pick, caption=f"{pick.caption}: agrees by {found.agreement:.3f}{mirrored}")
