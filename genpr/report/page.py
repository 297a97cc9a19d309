"""Pages from templates: everything is escaped, user strings are made safe to show, and only the page's own script may run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from genpr.report.gallery import Gallery, data_uri, within
from genpr.report.text import shown

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_BYTES = 10_000_000
"""Of a page, unless more is asked for."""
_ASSETS = {
    "report.html": (("report.css", "set_map.css"), ("report.js", "set_map.js")),
    "compare.html": (("report.css", "compare.css"), ("report.js",)),
    "audit.html": (("report.css", "audit.css"), ()),
}
"""Style sheets and scripts of each page."""
_LONGEST = 2000  # of a paragraph; names are cut shorter


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing of a page.

    Attributes:
        title: The heading.
        sentence: What is shown.
        svg: An `<svg>` element, as `genpr.report.drawing.inline_svg` makes it: it enters the page as it is.
        is_broad: Whether it needs all of the page's width.
    """

    title: str
    sentence: str
    svg: str
    is_broad: bool = False


def render_page(
    template: str,
    galleries: Sequence[Gallery] = (),
    most_bytes: int = MOST_BYTES,
    **parts: Any,  # noqa: ANN401 - what the template names
) -> str:
    """A page of the package's templates, in characters that UTF-8 can hold.

    Args:
        template: One that extends `frame.html`.
        galleries: In the order of the page; as many pictures as let the page stay below `most_bytes`.
        most_bytes: Of the whole page.
        **parts: What the template names; `version`, of genpr, is among them.
    """
    # Without pictures, but with their headings.
    bare = [
        replace(each, sentence=" ".join([each.sentence, *(name for name, _ in each.groups)]), pictures=())
        for each in galleries
    ]
    frame = _render(template, galleries=bare, **parts)
    if not galleries:
        return frame
    return _render(template, galleries=within(galleries, most_bytes - len(frame.encode())), **parts)


def _render(template: str, **parts: object) -> str:
    from markupsafe import Markup

    styles, scripts = _ASSETS[template]
    script = "".join(map(_text, scripts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = "".join(map(_text, styles))
    found = _environment().get_template(template)
    page = found.render(style=Markup(style), script=Markup(script), script_hash=digest, **parts)
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
    environment.filters["data_uri"] = lambda data: Markup(
        data_uri(data)
    )  # not to be shortened; base64 is no markup
    environment.filters["short"] = shown
    environment.filters["as_is"] = Markup
    return environment


@cache
def _text(name: str) -> str:
    return files("genpr.report").joinpath("templates", name).read_text(encoding="utf-8")
