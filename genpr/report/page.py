"""Pages from templates, with figures and galleries. Everything is escaped, and only the page's own script may run.

Galleries hold images with captions, some next to a partner image. They are chosen by reference, then read and scaled down.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from genpr.errors import GenprError, UsageError, count_of
from genpr.evaluation.compare import notices_of
from genpr.evaluation.result import Result
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import Pictures, pictures_of
from genpr.images.policy import DecodePolicy
from genpr.metrics.metric import MANIFOLD
from genpr.report.text import capital, shown

if TYPE_CHECKING:
    from jinja2 import Environment

Role = Literal["real", "fake"]
ImageRef = tuple[Role, int]
"""An image by its set and row."""

_MAGIC = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}
_EDGE = 128  # pixels of the longest edge of a thumbnail; smaller pictures are not scaled


@dataclass(frozen=True, slots=True)
class Picture:
    """One image of a gallery, alone or next to a partner image."""

    data: bytes | ImageRef  # a whole JPEG or PNG file; or a reference, which `load_images` replaces by one
    caption: str  # may contain any file name
    partner: bytes | ImageRef | None = None  # the image to its right, such as the nearest real
    partner_caption: str = ""  # caption of the partner
    group: str = ""  # heading shared by the pictures of one group


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures under one heading."""

    title: str  # the heading
    sentence: str  # what the pictures show and how they were chosen
    pictures: tuple[Picture, ...]  # in display order
    more: int = 0  # number of pictures that are not included
    is_wide: bool = False  # captions are long, such as prompts, and are shown in full next to the pictures

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
    text = f"pictures must be JPEG or PNG files, found {len(data):,} bytes that start with {data[:8]!r}"
    raise UsageError(text, code="not-a-picture")


def thumbnail(pixels: NDArray[np.uint8]) -> bytes:
    """A picture (h, w, 3) as a JPEG file, scaled down if an edge is longer than 128 pixels."""
    image, buffer = Image.fromarray(pixels), io.BytesIO()
    image.thumbnail((_EDGE, _EDGE), Image.Resampling.LANCZOS)
    image.save(buffer, "JPEG", quality=88, subsampling=0)  # colors of small pictures are detail, too
    return buffer.getvalue()


def open_pictures(
    sources: Mapping[Role, object], sets: Mapping[Role, FeatureSet], policy: DecodePolicy
) -> dict[Role, Pictures]:
    """The sources with images, by role.

    `sets` has the names and, if known, the hashes of their rows, by which images that have changed are left out. None, features,
    and iterables that can be read only once have no images.
    """
    found = dict[Role, Pictures]()
    for role, rows in sets.items():
        names = rows.names or list(map(rows.name_of, range(len(rows))))
        hashes = None if rows.identities is None else rows.identities.numpy()
        given: dict[str, Any] = {"identities": hashes, "policy": policy, "keep": thumbnail}
        opened = None if sources[role] is None else pictures_of(sources[role], names, **given)
        found |= {} if opened is None else {role: opened}
    return found


def load_images(pictures: Mapping[Role, Pictures], galleries: Sequence[Gallery]) -> list[Gallery]:
    """The galleries with files in place of references; images that are missing or have changed are left out and counted."""
    shown_ones = [picture for gallery in galleries for picture in gallery.pictures]
    refs = dict.fromkeys(data for each in shown_ones for data in (each.data, each.partner))
    files: dict[object, bytes] = {}
    for role, source in pictures.items():
        with suppress(GenprError):  # without the source, the page has no pictures of it
            found = source.read(ref[1] for ref in refs if isinstance(ref, tuple) and ref[0] == role)
            files |= {(role, row): data for row, data in found.items()}
    loaded = []
    for gallery in galleries:
        kept = tuple(
            replace(each, data=files[each.data], partner=files.get(each.partner))
            for each in gallery.pictures
            if each.data in files
        )
        gone = len(gallery.pictures) - len(kept)
        text = f" {gone:,} could not be read again: the images are missing or have changed since they were scored."
        loaded.append(replace(gallery, sentence=gallery.sentence + text * (gone > 0), pictures=kept))
    return loaded


_MAX_LENGTH = 2000  # of a paragraph; names are cut shorter


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing of a page."""

    title: str  # the heading
    sentence: str  # caption
    svg: str  # an `<svg>` element from `genpr.report.plots.inline_svg`, inserted without escaping


def render_page(
    template: str,
    results: Mapping[str, Result],
    *,
    title: str,
    record: str,
    caveats: Sequence[str] = (),
    answers: Mapping[str, Sequence[str]] | None = None,
    **parts: object,
) -> str:
    """A page from a template that can be encoded in UTF-8, with the JSON text `record`.

    `title` has names as `shown` gives them; `answers` are parts of the summary by title; `parts` are further variables.
    """
    from markupsafe import Markup

    notices = list(notices_of(results).items())
    warnings, notes = ([each for each in notices if each[0].level == level] for level in ("warning", "note"))
    counts = [count_of(len(found), what) for found, what in ((warnings, "warning"), (notes, "note")) if found]
    lines = [f"{' and '.join(counts)}."] * bool(counts) or ["No warnings."]
    script = _text("report.js")
    page = (
        _environment()
        .get_template(template)
        .render(
            dict.fromkeys(("differences", "details", "figures", "galleries", "legend"), ())
            | {"details_title": ""}
            | parts,
            style=Markup(_text("report.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            title=title,
            result=next(iter(results.values())),
            count=len(results),
            answers={**(answers or {}), "Reliability": lines},
            caveats=caveats,
            warnings=warnings,
            notes=notes,
            provenance=[(name, provenance_of(each)) for name, each in results.items()],
            record=base64.b64encode(record.encode()).decode(),
        )
    )
    return page.encode("utf-8", "replace").decode()


_GROUPS = ("held_out", "reference_statistics", "alignment", "seconds", "versions")
_ELSEWHERE = {"failures", "entities", "name"}
"""Fields that are shown elsewhere on the page."""


def provenance_of(result: Result) -> list[tuple[str, dict[str, str]]]:
    """Everything needed to reproduce the score, as (heading, facts)."""
    names = ["protocol", "deviations", "seed", "max_images", "device", "comparable", "fingerprint"]
    names += ["ties"] * (MANIFOLD in result.families)
    names += ["n_shared"] * (result.real.what == "images")
    record = result.to_dict()
    groups: dict[str, Mapping[str, Any]] = {"how it was scored": {name: record[name] for name in names}}
    groups |= zip(result.roles, (record["real"], record["fake"]), strict=True)
    groups |= {name: record[name] for name in _GROUPS if record[name]}
    if result.entities is not None and (seen := result.entities.classifier) is not None:
        groups["recognition"] = asdict(seen)
    groups |= {f"extractor {name}": info for name, info in record["extractors"].items()}
    return [
        (
            capital(title.replace("_", " ")),
            {
                name.replace("_", " "): value
                if isinstance(value, str)
                else json.dumps(value, ensure_ascii=False)
                for name, value in facts.items()
                if name not in _ELSEWHERE
            },
        )
        for title, facts in groups.items()
    ]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup, escape

    def prose(text: str) -> Markup:
        """A text whose spans in backticks are code elements, and whose percent signs stay on the line of their number."""
        safe = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", str(escape(shown(text, longest=_MAX_LENGTH))))
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", safe))

    def finalize(value: object) -> object:
        """Replace unprintable characters of user strings before they are escaped."""
        return value if hasattr(value, "__html__") else shown(value, longest=_MAX_LENGTH)

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # These must not be shortened; base64 contains no markup.
    environment.filters |= {
        "data_uri": lambda data: Markup(data_uri(data)),
        "short": shown,
        "as_is": Markup,
        "prose": prose,
        "position": lambda value: (
            f"{100 * min(max(value, 0), 1.2):.1f}"
        ),  # on a line of 120 units, which ends at 1.2
    }
    return environment


@cache
def _text(name: str) -> str:
    return files("genpr.report").joinpath("templates", name).read_text(encoding="utf-8")
