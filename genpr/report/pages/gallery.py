"""Pictures for a page: small JPEG or PNG files with a caption each, and perhaps a partner to compare with."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from genpr.errors import UsageError
from genpr.report.safe_text import shown

_MARKUP = 500  # bytes around a picture
_MAGIC = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture.

    Attributes:
        data: A whole JPEG or PNG file; thumbnails, since the page holds all of them.
        caption: What it is; a file name may be part of it, whatever that holds.
        partner: The picture to set beside it, such as the nearest real; None if there is none.
        partner_caption: What that is.
        group: Pictures of one group stand together below this heading; empty for none.
    """

    data: bytes
    caption: str
    partner: bytes | None = None
    partner_caption: str = ""
    group: str = ""

    def __post_init__(self) -> None:
        for data in (self.data, self.partner):
            if data is not None:
                _form(data)

    @property
    def size(self) -> int:
        """Bytes that it takes in the page, or a few more: its data as base64 text, its captions and the markup around."""
        data = sum(4 * ((len(each) + 2) // 3) for each in (self.data, self.partner) if each is not None)
        captions = sum(len(escape(shown(text)).encode()) for text in (self.caption, self.partner_caption))
        return data + 2 * captions + _MARKUP


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures that show one thing.

    Attributes:
        title: The heading.
        sentence: What is seen, and how it was chosen.
        pictures: In the order in which they are shown; empty says that there is nothing to show.
        more: How many there are beside these.
        is_wide: Whether captions are to be read, as prompts are: they stand beside the pictures, and all of them is shown.
    """

    title: str
    sentence: str
    pictures: tuple[Picture, ...]
    more: int = 0
    is_wide: bool = False

    @property
    def groups(self) -> list[tuple[str, list[Picture]]]:
        """The pictures by group, groups in order of their first picture."""
        found: dict[str, list[Picture]] = {}
        for picture in self.pictures:
            found.setdefault(picture.group, []).append(picture)
        return list(found.items())


def within(galleries: Sequence[Gallery], most_bytes: int) -> list[Gallery]:
    """The same galleries with as many pictures as fit, none emptied while another keeps more than its fair part.

    Args:
        galleries: In the order of the page.
        most_bytes: For all pictures together, as text.

    Returns:
        Galleries whose `more` counts what was left out, too.
    """
    if sum(picture.size for gallery in galleries for picture in gallery.pictures) <= most_bytes:
        return list(galleries)
    kept = [0] * len(galleries)
    left = most_bytes
    is_open = [True] * len(galleries)
    while any(is_open):  # a picture each in turn, until none fits
        for place, gallery in enumerate(galleries):
            fits = kept[place] < len(gallery.pictures) and gallery.pictures[kept[place]].size <= left
            is_open[place] = is_open[place] and fits
            if is_open[place]:
                left -= gallery.pictures[kept[place]].size
                kept[place] += 1
    return [
        replace(each, pictures=each.pictures[:count], more=each.more + len(each.pictures) - count)
        for each, count in zip(galleries, kept, strict=True)
    ]


def data_uri(data: bytes) -> str:
    """A picture as an address that needs no other file.

    Raises:
        UsageError: It is neither JPEG nor PNG ("not-a-picture").
    """
    return f"data:image/{_form(data)};base64,{base64.b64encode(data).decode()}"


def _form(data: bytes) -> str:
    for magic, form in _MAGIC.items():
        if data.startswith(magic):
            return form
    raise UsageError(
        f"a picture of a page is a JPEG or PNG file, not {len(data):,} bytes that start with {data[:8]!r}; "
        "was it given as pixels?",
        code="not-a-picture",
    )
