"""Matplotlib with its own defaults and genpr's settings, whatever else is configured; and its SVG as part of a page.

Matplotlib reads the first `matplotlibrc` of the working directory, `$MATPLOTLIBRC` and the user's configuration when it is
imported, and refuses to be imported where `$MPLBACKEND` names a backend that is not installed. A plot must not depend on
either: `text.usetex`, for one, would start `latex`. Figures are made with `matplotlib.figure.Figure`, never with pyplot,
so no backend is needed.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, QUIET, GRID, PAPER = "#222222", "#666666", "#dddddd", "#fffffe"
THIS, CONTROL, OTHER = "#0060a0", "#b04a00", "#6b6b6c"
_VARIABLES = {
    INK: "ink",
    QUIET: "quiet",
    GRID: "rule",
    PAPER: "paper",
    THIS: "this",
    CONTROL: "control",
    OTHER: "other",
}
"""Colors that become variables of the page's style, for light and for dark."""

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
"""Settings of matplotlib for the figures of pages."""

_BACKEND = "MPLBACKEND"
_reads_no_configuration = False


def ignore_matplotlib_configuration() -> None:
    """Import matplotlib without reading any configuration file or variable, if a plot imports it later.

    For a process that is genpr's own. One that calls genpr may use matplotlib itself, with the user's configuration.
    """
    global _reads_no_configuration
    _reads_no_configuration = True


@contextmanager
def drawing(style: Mapping[Any, Any]) -> Iterator[None]:
    """Draw and save figures in this block with the defaults of matplotlib and `style`; afterwards all is as before.

    Modules of matplotlib are imported inside the block, or below it.
    """
    _import_matplotlib()
    from matplotlib import rc_context, rcParamsDefault

    # The backend is only for pyplot, and reading it may import one.
    defaults = {name: rcParamsDefault[name] for name in rcParamsDefault if not name.startswith("backend")}
    with rc_context({**defaults, **style}):
        yield


def _import_matplotlib() -> None:
    """Import matplotlib, which must not fail because of a backend that is not installed."""
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop(_BACKEND, None)
    try:
        with _matplotlib_folder():
            import matplotlib
    finally:
        if backend is not None:
            os.environ[_BACKEND] = backend
    if backend and not _reads_no_configuration:
        with suppress(ValueError):  # it is not installed
            matplotlib.rcParams["backend"] = backend


@contextmanager
def _matplotlib_folder() -> Iterator[None]:
    """Where no configuration is to be read, work in the folder of the default one, which is then the first that is found."""
    spec = find_spec("matplotlib") if _reads_no_configuration else None
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "mpl-data"
    if folder is None or not (folder / "matplotlibrc").is_file():
        yield
        return
    try:
        before = os.getcwd()  # noqa: PTH109 - to be given back as it is
    except OSError:  # it was removed, and holds no file
        yield
        return
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def inline_svg(figure: Figure, *, name: str, label: str) -> str:
    """A figure as an `<svg>` element.

    Args:
        figure: Drawn in the colors of this module, which become the page's own in light and in dark. Text from users must be
            drawn with `parse_math=False`, or mathtext parses it.
        name: Distinguishes its ids from those of other figures of the page.
        label: Description for screen readers.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Without its own style sheet, which would hold for the page, and without RDF, which is not HTML.
    for tag in ("metadata", "style"):
        before, *others = text.split(f"<{tag}")
        text = before + "".join(other.partition(f"</{tag}>")[2] for other in others)
    text = re.sub(r"<defs>\s*</defs>", "", text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', text)
    text = re.sub(r"font: (\S+) [^;\"]+", r"font-size: \1; font-family: inherit", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    head, _, body = text.partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    opening = f'<svg {view.group() if view else ""} role="img" aria-label="{escape(label)}"'
    return f"{opening}>{body.strip()}"
