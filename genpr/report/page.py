"""Pages from templates, with figures and galleries: everything is escaped, and only the page's own script may run.

Galleries hold images with captions, perhaps each beside another; they are chosen by reference, then read and made small.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from genpr.errors import GenprError, UsageError
from genpr.features.inputs import Pictures, pictures_of
from genpr.images.policy import DecodePolicy
from genpr.report.text import shown

if TYPE_CHECKING:
    from jinja2 import Environment

Pixels = NDArray[np.uint8]
Role = Literal["real", "fake"]
ImageRef = tuple[Role, int]
"""An image by its set and row."""

_MAGIC = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}
_EDGE = 128  # pixels of the longest edge of a thumbnail; smaller pictures stay as they are


@dataclass(frozen=True, slots=True)
class Picture:
    """One image of a gallery, perhaps beside another one."""

    data: bytes | ImageRef  # a whole JPEG or PNG file; or a reference, which `load_images` replaces by one
    caption: str  # what it is; a file name may be part of it, whatever that holds
    partner: bytes | ImageRef | None = None  # the image shown next to it, such as the nearest real
    partner_caption: str = ""  # what that is
    group: str = ""  # the heading below which pictures of one group stand together


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures that show one thing."""

    title: str  # the heading
    sentence: str  # what is shown, and how it was chosen
    pictures: tuple[Picture, ...]  # in display order
    more: int = 0  # how many there are beside these
    is_wide: bool = False  # captions are long, as prompts are: they stand beside the pictures in full

    @property
    def groups(self) -> list[tuple[str, list[Picture]]]:
        """The pictures by group, groups in order of their first picture."""
        found: dict[str, list[Picture]] = {}
        for picture in self.pictures:
            found.setdefault(picture.group, []).append(picture)
        return list(found.items())


def data_uri(data: bytes) -> str:
    """A JPEG or PNG file as a data URI."""
    for magic, form in _MAGIC.items():
        if data.startswith(magic):
            return f"data:image/{form};base64,{base64.b64encode(data).decode()}"
    text = f"a picture of a page is a JPEG or PNG file, not {len(data):,} bytes that start with {data[:8]!r}"
    raise UsageError(text, code="not-a-picture")


def thumbnail(pixels: Pixels) -> bytes:
    """A picture (h, w, 3) as a JPEG file, no edge longer than 128 pixels."""
    buffer = io.BytesIO()
    # Colors of small pictures are detail, too.
    Image.fromarray(made_small(pixels)).save(buffer, "JPEG", quality=88, subsampling=0)
    return buffer.getvalue()


def made_small(pixels: Pixels) -> Pixels:
    """The pixels of a picture with no edge longer than 128; of a smaller picture, its own."""
    image = Image.fromarray(pixels)
    image.thumbnail((_EDGE, _EDGE), Image.Resampling.LANCZOS)
    return np.asarray(image)


def open_pictures(
    sources: Mapping[Role, tuple[object, Sequence[str], Pixels | None]], policy: DecodePolicy | None
) -> dict[Role, Pictures]:
    """Whatever has images of some sources, by role.

    A source (None, features, or an iterable that gives its images once has none) comes with the names of its rows, and (n, 32)
    sha256 of their bytes, where known, to leave out images that have changed.
    """
    opened = {
        role: pictures_of(source, names, identities=hashes, policy=policy, keep=made_small)
        for role, (source, names, hashes) in sources.items()
        if source is not None
    }
    return {role: found for role, found in opened.items() if found is not None}


def load_images(pictures: Mapping[Role, Pictures], galleries: Sequence[Gallery]) -> list[Gallery]:
    """The galleries with files in place of references, read at once; what is gone or has changed is left out and counted."""
    shown_ones = [picture for gallery in galleries for picture in gallery.pictures]
    refs = dict.fromkeys(data for each in shown_ones for data in (each.data, each.partner))
    files: dict[object, bytes] = {}
    for role, source in pictures.items():
        with suppress(GenprError):  # the whole source is gone: the page is made without it
            found = source.read(ref[1] for ref in refs if isinstance(ref, tuple) and ref[0] == role)
            files |= {(role, row): thumbnail(pixels) for row, pixels in found.items()}
    loaded = []
    for gallery in galleries:
        kept = tuple(
            replace(each, data=files[each.data], partner=files.get(each.partner))
            for each in gallery.pictures
            if each.data in files
        )
        gone = len(gallery.pictures) - len(kept)
        text = f" {gone:,} could not be read again: the image is missing or has changed since it was scored."
        loaded.append(replace(gallery, sentence=gallery.sentence + text * (gone > 0), pictures=kept))
    return loaded


_STYLES = {
    "report.html": ("report.css",),
    "compare.html": ("report.css", "compare.css"),
    "panel.html": ("report.css",),
}
"""Style sheets of each page."""
_LONGEST = 2000  # of a paragraph; names are cut shorter


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing of a page."""

    title: str  # the heading
    sentence: str  # what is shown
    svg: str  # an `<svg>` element, as `genpr.report.plots.inline_svg` makes it: it enters the page as it is


def render_page(template: str, galleries: Sequence[Gallery] = (), **parts: object) -> str:
    """A page in characters that UTF-8 can hold; `parts` are what the template names."""
    from markupsafe import Markup

    script = _text("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = "".join(map(_text, _STYLES[template]))
    found = _environment().get_template(template)
    page = found.render(
        style=Markup(style), script=Markup(script), script_hash=digest, galleries=galleries, **parts
    )
    return page.encode("utf-8", "replace").decode()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: object) -> object:
        """User strings are made safe to show before they are escaped."""
        return value if hasattr(value, "__html__") else shown(value, longest=_LONGEST)

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Not to be shortened; base64 is no markup.
    environment.filters |= {"data_uri": lambda data: Markup(data_uri(data)), "short": shown, "as_is": Markup}
    return environment


@cache
def _text(name: str) -> str:
    return files("genpr.report").joinpath("templates", name).read_text(encoding="utf-8")
