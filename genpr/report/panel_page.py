"""A panel as text and as a page: a row per representation, and below it what its values are compared with."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import replace

from genpr.errors import some
from genpr.evaluation.compare import notices_of
from genpr.evaluation.panel import RATIO, PanelResult
from genpr.evaluation.result import Result
from genpr.metrics.registry import METRICS
from genpr.report.detail_tables import DetailTable
from genpr.report.page import render_page
from genpr.report.score_tables import (
    blocks_of,
    known_null,
    remarks_of,
    sides_text,
    statistics_lines,
    value_text,
)
from genpr.report.text import WIDTH, head_width, number, wrapped

_NAMES = 17  # columns of the names of representations
_NULL, _CONTROL, _HELD_OUT = "null", "real v. real", "held-out reals"
_NOT_COMPARABLE = "not comparable with published numbers"


def panel_text(panel: PanelResult) -> str:
    """A panel as tables of 80 columns, then what was compared."""
    lines = [*_sides(panel), *map(wrapped, _representations(panel))]
    return "\n\n".join([*map(str, panel_tables(panel)), "\n".join(lines)])


def panel_tables(panel: PanelResult, mark: str = "  ") -> list[DetailTable]:
    """The metrics of all representations, in as many tables as they need, then those on features of their own.

    `mark` stands before the names of what a representation is compared with.
    """
    lines = {name: _lines_of(result, panel.held_out.get(name)) for name, result in panel.items()}
    heads = [name for name in METRICS if any(name in result.metrics for result in panel.values())]
    name_of_ratio = f"{RATIO}/{'held-out' if panel.held_out else 'halves'}"
    ratios_of_fdr6 = {} if panel.fdr6 is None else panel.fdr6.ratios
    for head, found in ((name_of_ratio, panel.ratios), ("FDr", ratios_of_fdr6)):
        if any(ratio is not None for ratio in found.values()):
            heads.append(head)
            for name, ratio in found.items():
                lines[name][""][head] = number(ratio)
    tables = []
    for names in blocks_of(heads, [max(head_width(each), 6) + 2 for each in heads], WIDTH - _NAMES):
        rows = [
            (f"{mark}{title}" if title else name, *(texts.get(each, "-") for each in names))
            for name, of_result in lines.items()
            for title, texts in of_result.items()
            if not title or not texts.keys().isdisjoint(names)
        ]
        tables.append(DetailTable("By representation", ("representation", *names), tuple(rows)))
    if panel.others is not None:
        lines[""] = _lines_of(panel.others, panel.others_held_out)
        rows = [
            (name, *(texts.get(name, "-") for texts in lines[""].values()), metric.extractor or "-")
            for name, metric in panel.others.metrics.items()
        ]
        others = ("metric", *(title or "value" for title in lines[""]), "features")
        tables.append(DetailTable("On features of their own", others, tuple(rows), texts=(0, -1)))
    titles = {title for of_result in lines.values() for title in of_result}
    tables[-1] = replace(tables[-1], lines=(*_legend(panel, titles, heads), *_remarks(panel)))
    return tables


def panel_report(panel: PanelResult) -> str:
    """A page of a panel: its tables and notices, and its JSON to be saved; the text of the file."""
    results = panel.every
    notices = list(notices_of(results).items())
    return render_page(
        "panel.html",
        version=next(iter(results.values())).versions.get("genpr", ""),
        names=list(panel),
        sides=[*_sides(panel), *_representations(panel)],
        tables=panel_tables(panel, "- "),
        warnings=[entry for entry in notices if entry[0].level == "warning"],
        notes=[entry for entry in notices if entry[0].level == "note"],
        n_results=len(results),
        record=base64.b64encode(panel.to_json().encode()).decode(),
    )


def _lines_of(result: Result, held_out: Result | None) -> dict[str, dict[str, str]]:
    """Texts by metric: the values, and below a title what they are compared with, as far as it is known."""
    nulls = {name: known_null(metric) for name, metric in result.metrics.items()}
    control = {} if result.control is None else result.control.values
    kept = {} if held_out is None else held_out.metrics
    lines = {
        _NULL: {name: number(null) for name, null in nulls.items() if null is not None},
        _CONTROL: {name: number(value) for name, value in control.items()},
        _HELD_OUT: {name: value_text(metric) for name, metric in kept.items()},
    }
    values = {name: value_text(metric) for name, metric in result.metrics.items()}
    return {"": values} | {title: texts for title, texts in lines.items() if texts}


def _legend(panel: PanelResult, titles: Collection[str], heads: Sequence[str]) -> list[str]:
    """What the rows with these titles and the columns with these heads show."""
    first, lines = next(iter(panel.values())), []
    if _NULL in titles:
        lines.append("null: what a perfect generator scores with so many images")
    if _CONTROL in titles and first.control is not None:
        sizes = f"{first.control.n_real:,} of the reals against the other {first.control.n_fake:,}"
        lines.append(f"{_CONTROL}: {sizes}")
    for kept in list(panel.held_out.values())[:1]:
        lines.append(f"{_HELD_OUT}: {kept.fake.n:,} of them, scored like the fakes against the same reals")
        if kept.fake.n < first.fake.n:
            lines.append("there are fewer held-out reals than fakes: distances of fewer images are larger")
    if f"{RATIO}/halves" in heads:
        text = "distances of fewer images are larger, so a perfect generator has a ratio below 1; give held-out reals"
        lines.append(f"{RATIO}/halves: {RATIO} over that of {_CONTROL}; {text}")
    if (found := panel.fdr6) is not None:
        lines.append(
            f"FDr6 {number(found.mean)}, the mean of FDr: {RATIO} over that of ImageNet's validation to its training images, which is "
            f"published with two decimals, so that FDr6 is {number(found.low)} to {number(found.high)}"
        )
    return lines


def _remarks(panel: PanelResult) -> list[str]:
    """What distinguishes values, with the names of representations where it is not the same for all."""
    found: dict[str, dict[str, list[str]]] = {}  # names by text by metric
    given = set[str]()
    for label, result in panel.every.items():
        if result.reference_statistics is not None:
            given.update(result.reference_statistics.metrics)
        texts = {name: "; ".join(remarks_of(result, name)) for name in result.metrics}
        for name, text in (texts | dict.fromkeys(result.undefined, "no value with these images")).items():
            found.setdefault(name, {}).setdefault(text, []).append(label)
    return [
        f"{name}: {text}" if len(by_text) == 1 else f"{name} of {some(labels)}: {text}"
        for name, by_text in found.items()
        for text, labels in by_text.items()
        if text and not (len(by_text) > 1 and name in given)  # digests of moments, which JSON has
    ]


def _representations(panel: PanelResult) -> list[str]:
    """How each representation was computed."""
    lines, none_is_comparable = [], not any(result.comparable for result in panel.values())
    for name, result in panel.items():
        info, facts = result.extractor, [f"fingerprint {result.fingerprint}"]
        if info is not None:
            own = [] if info.name == name else [info.name]
            facts = [*own, f"{info.dim}-d", f"resize {info.resize}", *facts]
        facts += [_NOT_COMPARABLE] * (not result.comparable and not none_is_comparable)
        lines.append(f"{name}: {', '.join(facts)}")
    return [*lines, *[_NOT_COMPARABLE] * none_is_comparable]


def _sides(panel: PanelResult) -> list[str]:
    """What was compared."""
    first = next(iter(panel.values()))
    sides = dict(zip(first.roles, (first.real, first.fake), strict=True))
    kept = next(iter(panel.held_out.values()), None)
    if kept is not None:
        sides["held-out"] = kept.fake
    lines = sides_text(sides)
    if kept is not None and kept.n_shared:
        lines[-1] += f", {kept.n_shared:,} of which are among the reals"
    given = [result.reference_statistics for result in panel.every.values() if result.reference_statistics]
    return [
        *lines,
        *(statistics_lines(*given) if given else ()),
        f"protocol {first.protocol}, {first.device}",
    ]
