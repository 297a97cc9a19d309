"""The pictures of a page: read once, and made small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from genpr.errors import GenprError
from genpr.evaluation.per_image import FakeSamples, PerImageScores, RealSamples
from genpr.features.inputs import Pictures, pictures_of
from genpr.images.policy import DecodePolicy
from genpr.report.pages.gallery import Gallery, Picture
from genpr.report.pages.picks import Image, Pick, Selection, Side
from genpr.report.pages.thumbnails import made_small, thumbnail

Pixels = NDArray[np.uint8]


class Album:
    """The pictures of a page, read once.

    Attributes:
        pixels: (h, w, 3) uint8 of every image that could be read, made small: there are thousands.
    """

    def __init__(self, pictures: Mapping[Side, Pictures | None], names: Mapping[Side, Sequence[str]]) -> None:
        self._pictures, self._names = pictures, names
        self.pixels: dict[Image, Pixels] = {}

    @classmethod
    def of(cls, evidence: PerImageScores, sources: Mapping[Side, object], policy: DecodePolicy) -> Album:
        """Of the sources that were scored; without pictures where they are not given, or hold features.

        Raises:
            GenprError: A source cannot be opened any more.
        """
        sides: dict[Side, FakeSamples | RealSamples] = {"real": evidence.real, "fake": evidence.fake}
        pictures = {
            side: None
            if source is None
            else pictures_of(
                source, sides[side].names, identities=sides[side].identities, policy=policy, keep=made_small
            )
            for side, source in sources.items()
        }
        return cls(pictures, {side: rows.names for side, rows in sides.items()})

    @property
    def has_pictures(self) -> bool:
        """Whether a side has any."""
        return any(each is not None for each in self._pictures.values())

    def names_of(self, images: Iterable[Image]) -> list[str]:
        """What images are called."""
        return [self._names[side][row] for side, row in images]

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
        shown = {picture.group for picture in pictures}
        groups = dict.fromkeys(pick.group for pick in selection.picks if pick.group)
        if unseen := [name for name in groups if name not in shown]:  # what was counted is told all the same
            sentence += f" Not seen: {'; '.join(unseen)}."
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
