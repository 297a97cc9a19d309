"""Matplotlib's SVG made part of an HTML page: its colours follow the page's, its ids are its own."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, QUIET, GRID, PAPER = "#222222", "#666666", "#dddddd", "#fffffe"
THIS, CONTROL, OTHER = "#0060a0", "#b04a00", "#6b6b6c"
_VARIABLES = {
    INK: "var(--ink)",
    QUIET: "var(--quiet)",
    GRID: "var(--rule)",
    PAPER: "var(--paper)",
    THIS: "var(--this)",
    CONTROL: "var(--control)",
    OTHER: "var(--other)",
}
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "svg.fonttype": "none",  # text stays text, in the font of the page
    "svg.hashsalt": "genpr",  # the same result gives the same page
}
"""Matplotlib's settings for all figures of a page; in effect while they are drawn and saved."""


def inline_svg(figure: Figure, *, name: str, label: str) -> str:
    """A figure as an `<svg>` element.

    Args:
        figure: Drawn in the colours of this module, which become the page's own in light and in dark. Text that comes from
            a user must be drawn with `parse_math=False`, or mathtext reads it.
        name: Distinguishes its ids from those of other figures of the page.
        label: What is seen, for those who do not see it.
    """
    from html import escape

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Without its own style sheet, which would hold for the page, and without RDF, which is no HTML.
    for tag in ("metadata", "style"):
        before, *others = text.split(f"<{tag}")
        text = before + "".join(other.partition(f"</{tag}>")[2] for other in others)
    text = re.sub(r"<defs>\s*</defs>", "", text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', text)
    text = re.sub(r"font: (\S+) [^;\"]+", r"font-size: \1; font-family: inherit", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    head, _, body = text.partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    opening = f'<svg {view.group() if view else ""} role="img" aria-label="{escape(label)}"'
    return f"{opening}>{body.strip()}"
