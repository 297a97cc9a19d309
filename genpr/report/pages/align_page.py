"""An alignment as a page: the numbers in words, and the images that fit another prompt better than their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from genpr.alignment.align import Aligned
from genpr.alignment.record import worst_first
from genpr.images.policy import DecodePolicy
from genpr.pictures import pictures_of
from genpr.report.pages.album import Album
from genpr.report.pages.picks import Pick, Selection
from genpr.report.pages.score_page import MOST_BYTES, html_report
from genpr.report.pages.thumbnails import made_small
from genpr.report.safe_text import shown
from genpr.result import Result

_FAILURES, _BEST = 60, 12
_PROMPT = 160  # characters of a caption


def align_report(
    aligned: Aligned,
    images: object = None,
    *,
    earlier: Mapping[str, Result] | None = None,
    policy: DecodePolicy | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """An alignment as one self-contained page.

    Args:
        aligned: Of `genpr.alignment.align.aligned`.
        images: Where the pictures are: what was aligned. None, features, or an iterable that gives its images once shows none.
        earlier: As of `genpr.html_report`.
        policy: How pictures are decoded; None for the default limits.
        most_bytes: As of `genpr.html_report`.

    Raises:
        GenprError: The images cannot be opened any more.
    """
    names = [each.image for each in aligned.ranks]
    pictures = (
        None
        if images is None
        else pictures_of(
            images, names, identities=aligned.identities, policy=policy or DecodePolicy(), keep=made_small
        )
    )
    album = Album({"fake": pictures}, {"fake": names})
    if not album.has_pictures:
        return html_report(aligned.result, earlier=earlier, most_bytes=most_bytes)
    chosen = [_failures(aligned), _best(aligned)]
    album.read(image for selection in chosen for pick in selection.picks for image in pick.images)
    galleries = [replace(album.gallery(selection), is_wide=True) for selection in chosen]
    return html_report(aligned.result, galleries, earlier=earlier, most_bytes=most_bytes)


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


def _first_of_prompt(aligned: Aligned) -> dict[str, int]:
    """The first image of each prompt."""
    asked = aligned.asked
    found: dict[str, int] = {}
    for row, texts in enumerate(asked.of_image):
        for text in texts:
            found.setdefault(asked.texts[text], row)
    return found


def _cut(prompt: str) -> str:
    return shown(prompt, longest=_PROMPT)
