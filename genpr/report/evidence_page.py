"""A score as a page that shows the images behind it: galleries, histograms and classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from genpr.errors import GenprError
from genpr.evidence import Evidence
from genpr.images.likeness import Likeness, likeness
from genpr.images.policy import DecodePolicy
from genpr.pictures import pictures_of
from genpr.report.gallery import Gallery, Picture
from genpr.report.mode_picks import mode_picks
from genpr.report.page import MOST_BYTES, Figure, html_report
from genpr.report.picks import (
    Image,
    Pick,
    Selection,
    Side,
    copy_candidates,
    hub_picks,
    realism_picks,
    repeat_picks,
)
from genpr.report.thumbnails import thumbnail
from genpr.result import Result

if TYPE_CHECKING:
    import torch

    from genpr.side_features import StageProgress

_CANDIDATES = 400  # pairs whose pixels are compared
_COPIES = 100

Pixels = NDArray[np.uint8]


def evidence_report(
    evidence: Evidence,
    real: object = None,
    fake: object = None,
    *,
    earlier: Mapping[str, Result] | None = None,
    policy: DecodePolicy | None = None,
    device: torch.device | str = "auto",
    progress: StageProgress | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """A score as one self-contained page, with the images behind the numbers.

    Args:
        evidence: Of `genpr.Evaluator.evidence`.
        real: Where the pictures of the reals are: the source that was scored. None, a source of features, or an iterable
            that gives its images once shows none.
        fake: Likewise of the fakes.
        earlier: As of `html_report`.
        policy: How pictures are decoded; None for the default limits.
        device: Where kinds of images are looked for.
        progress: Called with a stage ("kinds", "pictures"), what is done, and the total.
        most_bytes: As of `html_report`.

    Returns:
        The text of the file.

    Example:
        >>> import genpr
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(2, 100, 4))
        >>> page = evidence_report(genpr.Evaluator(real, control=False).evidence(fake))
        >>> "k-NN radii" in page
        True
    """
    album = _Album.of(evidence, {"real": real, "fake": fake}, policy or DecodePolicy())
    galleries = [] if album is None else _galleries(evidence, album, device, progress)
    radii = evidence.own_radii
    return html_report(
        evidence.result,
        galleries,
        earlier=earlier,
        realism=evidence.fake.realism,
        real_radii=None if radii is None else radii.real,
        fake_radii=None if radii is None else radii.fake,
        figures=_class_figures(evidence),
        most_bytes=most_bytes,
    )


def _galleries(
    evidence: Evidence, album: _Album, device: torch.device | str, progress: StageProgress | None
) -> list[Gallery]:
    report = progress or (lambda *_: None)
    missed, invented = mode_picks(evidence, device=device, progress=progress)
    least, most = realism_picks(evidence)
    hubs, repeats = hub_picks(evidence), repeat_picks(evidence)
    report("pictures", 0, 1)
    candidates = _candidates(evidence)
    album.read(
        image
        for selection in (missed, invented, least, most, hubs, repeats, candidates)
        for pick in selection.picks
        for image in (pick.image, pick.partner)
        if image is not None
    )
    copies = _copies(candidates, album)
    report("pictures", 1, 1)
    return [album.gallery(each) for each in (missed, invented, least, copies, most, hubs, repeats)]


def _candidates(evidence: Evidence) -> Selection:
    """Fakes that may be copies, beside the real that they may be copies of."""
    fake, real = evidence.fake, evidence.real
    rows = copy_candidates(evidence, _CANDIDATES).tolist()
    pairs = [(row, int(fake.nearest_real[row])) for row in rows]
    picks = tuple(Pick(("fake", a), fake.names[a], ("real", b), real.names[b]) for a, b in pairs)
    return Selection("Near-copies of real images", "", picks)


def _copies(candidates: Selection, album: _Album) -> Selection:
    """Those that are copies by their pixels, the most alike first."""
    alike: list[tuple[Likeness, Pick]] = []
    for pick in candidates.picks:
        assert pick.partner is not None
        pixels = album.pixels.get(pick.image), album.pixels.get(pick.partner)
        if pixels[0] is not None and pixels[1] is not None:
            found = likeness(pixels[0], pixels[1])
            if found.is_same:
                alike.append((found, pick))
    alike.sort(key=lambda each: -min(each[0].detail, each[0].whole))
    picks = tuple(_with_likeness(pick, found) for found, pick in alike[:_COPIES])
    sentence = (
        f"Of the {len(candidates.picks):,} fakes that are nearest to a real image, {len(alike):,} "
        f"{'is' if len(alike) == 1 else 'are'} the same picture by their pixels, perhaps encoded anew, recoloured, "
        "mirrored or shifted a little. Data sets repeat themselves: a few such pairs prove no copying."
    )
    return Selection(candidates.title, sentence, picks, len(alike) - len(picks))


def _with_likeness(pick: Pick, found: Likeness) -> Pick:
    mirrored = ", mirrored" if found.is_mirrored else ""
    caption = f"{pick.caption}: agrees by {min(found.detail, found.whole):.3f}{mirrored}"
    return Pick(pick.image, caption, pick.partner, pick.partner_caption)


class _Album:
    """The pictures of a page, read once."""

    def __init__(self, evidence: Evidence, sources: Mapping[Side, object], policy: DecodePolicy) -> None:
        sides = {"real": evidence.real, "fake": evidence.fake}
        self._pictures = {
            side: pictures_of(source, sides[side].names, identities=sides[side].identities, policy=policy)
            for side, source in sources.items()
            if source is not None
        }
        self.pixels: dict[Image, Pixels] = {}

    @classmethod
    def of(cls, evidence: Evidence, sources: Mapping[Side, object], policy: DecodePolicy) -> _Album | None:
        """None where no side has pictures."""
        album = cls(evidence, sources, policy)
        return album if any(each is not None for each in album._pictures.values()) else None

    def read(self, images: Iterable[Image]) -> None:
        """Read the pictures of these images; those that are gone, or have changed since they were scored, are left out."""
        wanted = dict.fromkeys(images)
        for side, pictures in self._pictures.items():
            if pictures is None:
                continue
            try:
                found = pictures.read(row for each, row in wanted if each == side)
            except GenprError:  # the source as a whole is gone: what was scored is still told
                continue
            self.pixels |= {(side, row): pixels for row, pixels in found.items()}

    def gallery(self, selection: Selection) -> Gallery:
        """With the pictures that could be read."""
        pictures = [found for pick in selection.picks if (found := self._picture(pick)) is not None]
        gone = len(selection.picks) - len(pictures)
        sentence = selection.sentence
        if gone:
            sentence += f" {gone:,} could not be read again: there is no picture, or it has changed since it was scored."
        return Gallery(selection.title, sentence, tuple(pictures), selection.more)

    def _picture(self, pick: Pick) -> Picture | None:
        pixels = self.pixels.get(pick.image)
        if pixels is None:
            return None
        partner = None if pick.partner is None else self.pixels.get(pick.partner)
        return Picture(
            thumbnail(pixels),
            pick.caption,
            None if partner is None else thumbnail(partner),
            pick.partner_caption,
            pick.group,
        )


def _class_figures(evidence: Evidence) -> Sequence[Figure]:
    if evidence.classes is None:
        return ()
    from genpr.report.class_plot import class_heat_map

    found = evidence.classes
    left_out = f" {len(found.left_out):,} with too few images are left out." if found.left_out else ""
    sentence = f"{len(found.classes):,} classes, each scored within itself, the worst first.{left_out}"
    return [Figure("Classes", sentence, class_heat_map(found))]
