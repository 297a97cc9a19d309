"""An alignment as a page: the numbers in words, and the images that fit another prompt better than their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from genpr.conditional.align import Aligned
from genpr.conditional.copies import Copies
from genpr.conditional.prompt_ranking import worst_first
from genpr.evaluation.result import Result
from genpr.features.inputs import Pictures, pictures_of
from genpr.images.policy import DecodePolicy
from genpr.report.pages.album import Album
from genpr.report.pages.picks import Pick, Selection, Side
from genpr.report.pages.score_page import MOST_BYTES, html_report
from genpr.report.pages.thumbnails import made_small
from genpr.report.safe_text import shown
from genpr.report.shares import percent

_FAILURES, _BEST, _COPIES = 60, 12, 24
Hashes = NDArray[np.uint8] | None
_PROMPT = 160  # characters of a caption


def align_report(
    aligned: Aligned,
    images: object = None,
    train: object = None,
    *,
    earlier: Mapping[str, Result] | None = None,
    policy: DecodePolicy | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """An alignment as one self-contained page.

    Args:
        aligned: Of `genpr.conditional.align.aligned`.
        images: Where the pictures are: what was aligned. None, features, or an iterable that gives its images once shows none.
        train: Where the training images are, if copies of them were looked for; None shows none of them.
        earlier: As of `genpr.html_report`.
        policy: How pictures are decoded; None for the default limits.
        most_bytes: As of `genpr.html_report`.

    Raises:
        GenprError: The images cannot be opened any more.
    """
    names, copies = [each.image for each in aligned.ranks], aligned.copies
    sides: dict[Side, tuple[object, Sequence[str], Hashes]] = {"fake": (images, names, aligned.identities)}
    if copies is not None:
        sides["real"] = (train, copies.names, copies.identities)
    album = Album(
        {side: _pictures(*known, policy or DecodePolicy()) for side, known in sides.items()},
        {side: known[1] for side, known in sides.items()},
    )
    if not album.has_pictures:
        return html_report(aligned.result, earlier=earlier, most_bytes=most_bytes)
    read = [_failures(aligned), _best(aligned)]
    seen = [] if copies is None else [_copied(names, copies)]
    album.read(image for selection in (*read, *seen) for pick in selection.picks for image in pick.images)
    galleries = [replace(album.gallery(selection), is_wide=True) for selection in read]
    galleries += [album.gallery(selection) for selection in seen]
    return html_report(aligned.result, galleries, earlier=earlier, most_bytes=most_bytes)


def _pictures(
    source: object, names: Sequence[str], identities: Hashes, policy: DecodePolicy
) -> Pictures | None:
    if source is None:
        return None
    return pictures_of(source, names, identities=identities, policy=policy, keep=made_small)


def _failures(aligned: Aligned) -> Selection:
    """Each beside an image of the prompt that it ranked first."""
    failed = worst_first(aligned.ranks)
    first = _first_of_prompt(aligned)
    picks = []
    for each in failed[:_FAILURES]:
        other = first[each.winner]
        picks.append(
            Pick(
                ("fake", each.row),
                f"{each.image} was asked for “{_cut(each.prompt)}” ({each.score:.3f}), which is rank {each.rank:g} of {each.pool:,}",
                ("fake", other),
                f"an image of what it ranked first, “{_cut(each.winner)}” ({each.winner_score:.3f})",
            )
        )
    total = len(aligned.ranks)
    sentence = (
        f"{len(failed):,} of {total:,} images do not rank their own prompt alone in front; the lowest ranks first. Beside each "
        "stands an image that was made from the prompt that it ranked first. In brackets: cosines."
        if failed
        else f"All {total:,} images rank their own prompt first."
    )
    return Selection(
        "Images that fit another prompt better", sentence, tuple(picks), len(failed) - len(picks)
    )


def _best(aligned: Aligned) -> Selection:
    """Those that lead by most, for comparison."""
    right = [each for each in aligned.ranks if not each.is_failure]
    right.sort(key=lambda each: (each.winner_score - each.score, each.row))
    picks = [
        Pick(
            ("fake", each.row),
            f"{each.image} was asked for “{_cut(each.prompt)}” ({each.score:.3f}); the next prompt has {each.winner_score:.3f}",
        )
        for each in right[:_BEST]
    ]
    sentence = "Those whose own prompt leads by most, to compare with." if right else "There are none."
    return Selection("Images that fit their own prompt best", sentence, tuple(picks), len(right) - len(picks))


def _copied(names: Sequence[str], copies: Copies) -> Selection:
    """Those nearest to a training image, each beside it."""
    found = copies.found
    above = int((found.similarity > found.threshold).sum())
    picks = [
        Pick(
            ("fake", row),
            f"{names[row]}: cosine {found.similarity[row]:.3f}",
            ("real", int(found.nearest[row])),
            f"{copies.names[found.nearest[row]]}, the nearest training image",
        )
        for row in np.argsort(-found.similarity, kind="stable")[:_COPIES].tolist()
    ]
    null = (
        ""
        if found.null.value is None
        else f", where {percent(found.null.value)} of the training images are to another one"
    )
    sentence = (
        f"{above:,} of {len(names):,} images have a cosine above {found.threshold:g} to a training image{null}. The nearest "
        "come first, whether above or not."
    )
    return Selection("Images nearest to training images", sentence, tuple(picks), max(0, above - len(picks)))


def _first_of_prompt(aligned: Aligned) -> dict[str, int]:
    """The first image of each prompt."""
    assignment = aligned.assignment
    found: dict[str, int] = {}
    for row, texts in enumerate(assignment.of_image):
        for text in texts:
            found.setdefault(assignment.texts[text], row)
    return found


def _cut(prompt: str) -> str:
    return shown(prompt, longest=_PROMPT)
