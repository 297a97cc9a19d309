"""Fakes that are pictures of the real set once more: candidates by their features, and who of them is by the pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from genpr.evidence import Evidence
from genpr.images.likeness import Likeness, likeness
from genpr.report.album import Album
from genpr.report.picks import Pick, Selection

_CANDIDATES = 400  # pairs whose pixels are compared
_MOST = 100  # of them that are shown


def copy_candidates(evidence: Evidence) -> list[Pick]:
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


def copies_among(candidates: list[Pick], album: Album) -> Selection:
    """Those that are copies by their pixels, the most alike first.

    Args:
        candidates: As `copy_candidates` gives them.
        album: Their pictures, as far as they could be read.
    """
    found = [(pick, each) for pick in candidates if (each := _likeness(pick, album)) is not None]
    alike = sorted((each for each in found if each[1].is_same), key=lambda each: -_agreement(each[1]))
    picks = tuple(_with_agreement(pick, each) for pick, each in alike[:_MOST])
    sentence = (
        f"Of the {len(found):,} fakes that are nearest to a real image, {len(alike):,} "
        f"{'is' if len(alike) == 1 else 'are'} the same picture by their pixels, perhaps encoded anew, recoloured, "
        "mirrored or shifted a little. Data sets repeat themselves: a few such pairs prove no copying."
        if found
        else "Pixels could not be compared: this needs the pictures of both sides."
    )
    return Selection("Near-copies of real images", sentence, picks, len(alike) - len(picks))


def _likeness(pick: Pick, album: Album) -> Likeness | None:
    """None where one of both pictures could not be read."""
    one, other = (album.pixels.get(image) for image in pick.images)
    return None if one is None or other is None else likeness(one, other)


def _agreement(found: Likeness) -> float:
    return min(found.detail, found.whole)


def _with_agreement(pick: Pick, found: Likeness) -> Pick:
    mirrored = ", mirrored" if found.is_mirrored else ""
    return replace(pick, caption=f"{pick.caption}: agrees by {_agreement(found):.3f}{mirrored}")
