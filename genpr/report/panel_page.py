"""A panel as text and as a page: a row per representation, and below it what its values are compared with."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from genpr.evaluation.compare import notices_of
from genpr.evaluation.panel import RATIO, PanelResult
from genpr.evaluation.result import Result
from genpr.report.detail_tables import DetailTable
from genpr.report.page import render_page
from genpr.report.score_tables import blocks_of, known_null, remarks_of, sides_text, value_text
from genpr.report.text import WIDTH, number, wrapped

_NAMES = 17  # columns of the names of representations
_NULL, _CONTROL, _HELD_OUT = "null", "real v. real", "held-out reals"
_LEGEND = {
    _NULL: "null: what a perfect generator scores with so many images",
    _CONTROL: "real v. real: {control.n_real:,} of the reals against the other {control.n_fake:,}",
    _HELD_OUT: "held-out reals: {held_out.n:,} of them, scored like the fakes against the same reals",
}


def panel_text(panel: PanelResult) -> str:
    """A panel as tables of 80 columns, then what was compared."""
    lines = []
    for name, result in panel.items():
        facts = [f"fingerprint {result.fingerprint}"]
        if result.extractor is not None:
            facts.insert(0, f"{result.extractor.dim}-d, resize {result.extractor.resize}")
        facts += ["not comparable with published numbers"] * (not result.comparable)
        lines.append(wrapped(f"{name}: {', '.join(facts)}"))
    return "\n\n".join([*map(str, panel_tables(panel)), "\n".join([*_sides(panel), *lines])])


def panel_tables(panel: PanelResult, mark: str = "  ") -> list[DetailTable]:
    """The metrics of all representations, in as many tables as they need, then those on features of their own.

    `mark` stands before the names of what a representation is compared with.
    """
    first, ratios = next(iter(panel.values())), panel.ratios
    lines = {name: _lines_of(result, panel.held_out.get(name)) for name, result in panel.items()}
    heads = list(first.metrics)
    if any(ratio is not None for ratio in ratios.values()):
        heads.append(f"{RATIO}/{'held-out' if panel.held_out else 'halves'}")
        for name, ratio in ratios.items():
            lines[name][""][heads[-1]] = number(ratio)
    if panel.fdr6 is not None:
        heads.append("FDr")
        for name, ratio in panel.fdr6.ratios.items():
            lines[name][""]["FDr"] = number(ratio)
    tables = []
    for names in blocks_of(heads, [max(len(each), 6) + 2 for each in heads], WIDTH - _NAMES):
        rows = [
            (f"{mark}{title}" if title else name, *(texts.get(each, "-") for each in names))
            for name, of_result in lines.items()
            for title, texts in of_result.items()
            if not title or not texts.keys().isdisjoint(names)
        ]
        tables.append(DetailTable("By representation", ("representation", *names), tuple(rows)))
    if panel.others is not None:
        lines["others"] = _lines_of(panel.others, panel.others_held_out)
        rows = [
            (name, *(texts.get(name, "-") for texts in lines["others"].values()), metric.extractor or "-")
            for name, metric in panel.others.metrics.items()
        ]
        others = ("metric", *(title or "value" for title in lines["others"]), "features")
        tables.append(DetailTable("On features of their own", others, tuple(rows), texts=(0, -1)))
    titles = dict.fromkeys(title for of_result in lines.values() for title in of_result if title)
    last = tables[-1]
    legend = (*_legend(panel, titles), *_remarks(panel))
    tables[-1] = DetailTable(last.title, last.heads, last.rows, legend, last.texts)
    return tables


def panel_report(panel: PanelResult) -> str:
    """A page of a panel: its tables and notices, and its JSON to be saved; the text of the file."""
    results = panel.every
    notices = list(notices_of(results).items())
    return render_page(
        "panel.html",
        version=next(iter(results.values())).versions.get("genpr", ""),
        names=list(panel),
        sides=_sides(panel),
        tables=panel_tables(panel, "- "),
        warnings=[entry for entry in notices if entry[0].level == "warning"],
        notes=[entry for entry in notices if entry[0].level == "note"],
        n_results=len(results),
        record=base64.b64encode(panel.to_json().encode()).decode(),
    )


def _lines_of(result: Result, held_out: Result | None) -> dict[str, dict[str, str]]:
    """Texts by metric: the values, and below a title what they are compared with, as far as it is known."""
    metrics = result.metrics
    nulls = {name: known_null(metric) for name, metric in metrics.items()}
    control = {} if result.control is None else result.control.values
    kept = {} if held_out is None else held_out.metrics
    lines = {
        "": {name: value_text(metric) for name, metric in metrics.items()},
        _NULL: {name: number(null) for name, null in nulls.items() if null is not None},
        _CONTROL: {name: number(value) for name, value in control.items()},
        _HELD_OUT: {name: value_text(metric) for name, metric in kept.items()},
    }
    return {title: texts for title, texts in lines.items() if texts}


def _legend(panel: PanelResult, titles: Iterable[str]) -> list[str]:
    first = next(iter(panel.values()))
    kept = next(iter(panel.held_out.values())).fake if panel.held_out else None
    lines = [_LEGEND[title].format(control=first.control, held_out=kept) for title in titles]
    if kept is not None and kept.n < first.fake.n:
        lines.append("there are fewer held-out reals than fakes: distances of fewer images are larger")
    if any(ratio is not None for ratio in panel.ratios.values()) and kept is None:
        text = "distances of fewer images are larger, so a perfect generator has a ratio below 1; give held-out reals"
        lines.append(f"{RATIO}/halves: {RATIO} over that of real v. real; {text}")
    if panel.fdr6 is not None:
        found = panel.fdr6
        lines.append(
            f"FDr6 {number(found.mean)}, the mean of FDr: {RATIO} over that of ImageNet's validation to its training images, which is "
            f"published with two decimals, so that FDr6 is {number(found.low)} to {number(found.high)}"
        )
    return lines


def _remarks(panel: PanelResult) -> list[str]:
    """What distinguishes values, each thing once."""
    results = panel.every.values()
    found = {(name, "; ".join(remarks_of(each, name))): None for each in results for name in each.metrics}
    undefined = dict.fromkeys(name for each in results for name in each.undefined)
    lines = [f"{name}: {text}" for name, text in found if text]
    return [*lines, *[f"no value with these images: {', '.join(undefined)}"] * bool(undefined)]


def _sides(panel: PanelResult) -> list[str]:
    first = next(iter(panel.values()))
    sides = dict(zip(first.roles, (first.real, first.fake), strict=True))
    kept = next(iter(panel.held_out.values()), None)
    if kept is not None:
        sides["held-out"] = kept.fake
    lines = sides_text(sides)
    if kept is not None and kept.n_shared:
        lines[-1] += f", {kept.n_shared:,} of which are among the reals"
    return [*lines, f"protocol {first.protocol}, {first.device}"]
