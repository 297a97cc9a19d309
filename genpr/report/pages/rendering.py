"""Templates filled: everything is escaped, what users wrote is made safe to show, and only the page's own script may run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from genpr.report.pages.gallery import Gallery, data_uri, within
from genpr.report.safe_text import shown

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST = 2000  # of a paragraph; names are cut shorter


def render_page(
    template: str,
    *,
    styles: tuple[str, ...] = ("report.css",),
    scripts: tuple[str, ...] = ("report.js",),
    **parts: object,
) -> str:
    """A page of the package's templates, in characters that UTF-8 can hold.

    Args:
        template: One that extends `frame.html`.
        styles: Its style sheets, later ones above earlier ones.
        scripts: Its scripts, which become one.
        **parts: What the template names; `version`, of genpr, is among them.
    """
    script = "".join(_text(name) for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = "".join(_text(name) for name in styles)
    page = (
        _environment()
        .get_template(template)
        .render(style=_markup(style), script=_markup(script), script_hash=digest, **parts)
    )
    return page.encode("utf-8", "replace").decode()


def render_with_galleries(
    template: str,
    galleries: Sequence[Gallery],
    most_bytes: int,
    **parts: Any,  # noqa: ANN401 - as `render_page`
) -> str:
    """A page with as many of the pictures as let it stay below `most_bytes`.

    Args:
        template: It shows `galleries`.
        galleries: In the order of the page.
        most_bytes: For the whole page.
        **parts: As of `render_page`.
    """
    bare = [
        replace(each, sentence=" ".join([each.sentence, *(name for name, _ in each.groups)]), pictures=())
        for each in galleries  # without pictures, but with their headings
    ]
    frame = render_page(template, galleries=bare, **parts)
    return render_page(template, galleries=within(galleries, most_bytes - len(frame.encode())), **parts)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = _data_uri_markup
    environment.filters["short"] = shown
    environment.filters["as_is"] = _markup
    return environment


def _data_uri_markup(data: bytes) -> object:
    """The address of a picture, which must not be cut as text of users is; base64 holds nothing that HTML obeys."""
    return _markup(data_uri(data))


def _markup(text: str) -> Any:  # noqa: ANN401 - markupsafe is loaded late
    from markupsafe import Markup

    return Markup(text)


def _finalized(value: object) -> object:
    """Every value that a template shows: what users wrote is made safe before it is escaped."""
    return value if hasattr(value, "__html__") else shown(value, longest=_LONGEST)


@cache
def _text(name: str) -> str:
    return files("genpr.report.pages").joinpath("templates", name).read_text(encoding="utf-8")
