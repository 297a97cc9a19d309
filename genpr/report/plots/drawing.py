"""Matplotlib as every plot uses it: its own defaults and genpr's settings, whatever else is configured.

Matplotlib reads the first `matplotlibrc` of the working directory, `$MATPLOTLIBRC` and the user's configuration when it is
imported, and refuses to be imported where `$MPLBACKEND` names a backend that is not installed. A plot must not depend on
either: `text.usetex`, for one, would start `latex`. Figures are made with `matplotlib.figure.Figure`, never with pyplot,
so no backend is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
