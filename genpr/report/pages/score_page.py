"""A score as one HTML file that needs no other: reading, warnings, table, figures, map, galleries and provenance."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genpr.errors import UsageError
from genpr.evaluation.result import Result
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.report.pages.asked_parts import asked_rows, fault_tables
from genpr.report.pages.gallery import Gallery
from genpr.report.pages.rendering import render_with_galleries
from genpr.report.pages.score_parts import provenance_of, rows_of
from genpr.report.pages.set_map import SetMap
from genpr.report.reading import read
from genpr.report.remarks import features_of

MOST_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing of the page.

    Attributes:
        title: The heading.
        sentence: What is seen.
        svg: An `<svg>` element, as `genpr.report.plots.inline_svg` makes it: it enters the page as it is.
        is_broad: Whether it needs all of the page's width.
    """

    title: str
    sentence: str
    svg: str
    is_broad: bool = False


@dataclass(frozen=True, slots=True)
class Earlier:
    """Another result in the plane.

    Attributes:
        number: Beside its point; None where it has no precision and recall.
        name: What to call it.
        precision: As text.
        recall: As text.
        differences: Why it may not be compared; empty if it may.
    """

    number: int | None
    name: str
    precision: str
    recall: str
    differences: tuple[str, ...]


def html_report(
    result: Result,
    galleries: Sequence[Gallery] = (),
    *,
    earlier: Mapping[str, Result] | None = None,
    realism: ArrayLike | None = None,
    real_radii: ArrayLike | None = None,
    fake_radii: ArrayLike | None = None,
    figures: Sequence[Figure] = (),
    set_map: SetMap | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """A result as one self-contained page: no other file, no network, light or dark as the reader likes it.

    Args:
        result: Of `genpr.score`, or an old one of `genpr.load_results`.
        galleries: Pictures to show; as many of each as `most_bytes` allows. One stands for the table of the same title.
        earlier: Other results for the plane of precision and recall, by name; what makes them unlike this one is said.
        realism: (m,) of the fakes, finite or infinite where a fake equals a real; drawn as a histogram.
        real_radii: (n,) distances of reals to their k-th neighbours; drawn as a histogram.
        fake_radii: (m,) the same of the fakes, over the same bins.
        figures: More drawings, after these.
        set_map: Both sets on a plane, as `genpr.report.pages.set_map.set_map` draws it.
        most_bytes: The page stays below that as far as leaving out pictures of galleries can make it, and says how many. A
            map that would take more than half of it loses all of its pictures.

    Returns:
        The text of the file, in characters that UTF-8 can hold.

    Raises:
        UsageError: An array is not one row of numbers ("bad-option"), or fake radii come without those of reals.

    Example:
        >>> import genpr, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(2, 100, 4))
        >>> page = html_report(genpr.score(real, fake, control=False))
        >>> page.startswith("<!doctype html>")
        True
    """
    others = _earlier(result, earlier or {})
    pictured = {each.title for each in galleries if each.pictures}
    drawn = [*_plane(result, earlier or {}), *_histograms(realism, real_radii, fake_radii), *figures]
    parts: dict[str, Any] = {
        "version": result.versions.get("genpr", ""),
        "result": result,
        "made_by": features_of(result),
        "names": {"real": _last_part(result.real.source), "fake": _last_part(result.fake.source)},
        "reading": read(result),
        "warnings": [item for item in result.notices if item.level == "warning"],
        "notes": [item for item in result.notices if item.level == "note"],
        "kicker": "score" if result.real.what == "images" else result.protocol,
        "sides": ("reals", "fakes") if result.real.what == "images" else result.roles,
        "rows": rows_of(result),
        "asked": asked_rows(result),
        "faults": [table for table in fault_tables(result) if table.title not in pictured],
        "figures": drawn,
        "earlier": others,
        "set_map": set_map.without_pictures() if set_map and set_map.size > most_bytes / 2 else set_map,
        "provenance": provenance_of(result),
        "record": base64.b64encode(result.to_json().encode()).decode(),
    }
    return render_with_galleries(
        "report.html",
        galleries,
        most_bytes,
        styles=("report.css", "set_map.css"),
        scripts=("report.js", "set_map.js"),
        **parts,
    )


def _last_part(source: str) -> str:
    """The name of a file or folder without the folders above, for headings."""
    return source.rstrip("/").rsplit("/", 1)[-1] or source


def _plane(result: Result, earlier: Mapping[str, Result]) -> list[Figure]:
    from genpr.report.plots.page_plots import has_plane, plane

    if not has_plane(result):
        return []
    sentence = (
        "Up is better images, right is more variety. Nobody is expected to pass the cross: that is a perfect generator with "
        "so many images."
    )
    if result.control is not None:
        sentence += (
            f" Reals against reals are {result.control.n_real:,} against {result.control.n_fake:,} images."
        )
    return [Figure("Precision and recall", sentence, plane(result, list(earlier.values())))]


def _earlier(result: Result, earlier: Mapping[str, Result]) -> list[Earlier]:
    from genpr.errors import DataError
    from genpr.evaluation.compare import compare
    from genpr.report.plots.page_plots import has_plane

    found = []
    for number, (name, other) in enumerate(earlier.items(), 1):
        try:
            differences = compare({"this result": result, "it": other}, force=True).differences
        except DataError as error:
            differences = (str(error),)
        precision, recall = (
            f"{other[metric]:.3f}" if metric in other.metrics else "–" for metric in F_SCORE_METRICS
        )
        found.append(Earlier(number if has_plane(other) else None, name, precision, recall, differences))
    return found


def _histograms(
    realism: ArrayLike | None, real_radii: ArrayLike | None, fake_radii: ArrayLike | None
) -> list[Figure]:
    from genpr.report.plots.page_plots import histogram

    if fake_radii is not None and real_radii is None:
        raise UsageError("fake_radii are drawn beside real_radii, which are missing", code="bad-option")
    found = []
    if realism is not None:
        values = _row("realism", realism)
        finite, outside = values[np.isfinite(values)], int((~np.isfinite(values)).sum())
        equal = f" {outside:,} equal a real image and have no finite realism." if outside else ""
        if len(finite):
            svg = histogram(
                [("fakes", finite)], name="realism", x_label="realism", mark=(1.0, "edge of the manifold")
            )
            share = float((values >= 1).mean())
            text = (
                f"{share:.1%} of the fakes have a realism of 1 or more: they lie inside the ball of a real image. The larger "
                f"half of the balls is left out here, and counts for precision.{equal}"
            )
            found.append(Figure("Realism", f"{text} {_OUTERMOST}", svg))
    if real_radii is not None:
        samples = [("reals", _finite("real_radii", real_radii))]
        samples += [] if fake_radii is None else [("fakes", _finite("fake_radii", fake_radii))]
        medians = " and ".join(f"{np.median(values):.3g} for {name}" for name, values in samples)
        text = f"Distance of each image to its k-th neighbour in its own set; the median is {medians}. {_OUTERMOST}"
        svg = histogram(samples, name="radii", x_label="k-NN radius")
        found.append(Figure("k-NN radii", text, svg))
    return found


_OUTERMOST = "The outermost half percent on either side is drawn at the edge."


def _row(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """One row of numbers; infinity is one.

    Raises:
        UsageError: It is something else.
    """
    row = np.asarray(values)
    if (
        row.ndim != 1
        or not len(row)
        or row.dtype.kind not in "fiu"
        or bool(np.isnan(row.astype(np.float64)).any())
    ):
        raise UsageError(
            f"{name} needs one number per image, not an array of shape {row.shape} and dtype {row.dtype}"
            f"{' with NaN in it' if row.dtype.kind == 'f' and np.isnan(row).any() else ''}",
            code="bad-option",
        )
    return row.astype(np.float64)


def _finite(name: str, values: ArrayLike) -> NDArray[np.float64]:
    row = _row(name, values)
    if not np.isfinite(row).all():
        raise UsageError(f"{name} needs finite distances, and some are infinite", code="bad-option")
    return row
