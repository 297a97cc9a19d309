"""A panel as text and as a page: the values of each representation, followed by their reference values."""

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
from genpr.report.interpretation import interpret
from genpr.report.page import Answer, look_at, reliability, render_page
from genpr.report.score_tables import (
    blocks_of,
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
    """A panel as tables of 80 columns, followed by the sources and settings."""
    lines = [*_sides(panel), *map(wrapped, _representations(panel))]
    return "\n\n".join([*map(str, panel_tables(panel)), "\n".join(lines)])


def panel_tables(panel: PanelResult, mark: str = "  ") -> list[DetailTable]:
    """The metrics of all representations in as many tables as needed, then those on other features.

    `mark` is put in front of the names of reference values.
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
        tables.append(DetailTable("On other features", others, tuple(rows), texts=(0, -1)))
    titles = {title for of_result in lines.values() for title in of_result}
    tables[-1] = replace(tables[-1], lines=(*_legend(panel, titles, heads), *_remarks(panel)))
    return tables


def panel_report(panel: PanelResult) -> str:
    """A panel as one self-contained page."""
    results = panel.every
    notices = list(notices_of(results).items())
    warnings = [entry for entry in notices if entry[0].level == "warning"]
    notes = [entry for entry in notices if entry[0].level == "note"]
    summary, answers = _answers(panel)
    is_comparable = any(result.comparable for result in panel.values())
    facts = [] if is_comparable else ["These values are not comparable with published ones."]
    return render_page(
        "panel.html",
        version=next(iter(results.values())).versions.get("genpr", ""),
        names=list(panel),
        sides=_sides(panel),
        representations=_representations(panel),
        summary=summary,
        answers=[
            *answers,
            reliability(facts, (), len(warnings), len(notes)),
            look_at([("numbers", "Metrics by representation")], ()),
        ],
        tables=panel_tables(panel, "- "),
        warnings=warnings,
        notes=notes,
        n_results=len(results),
        record=base64.b64encode(panel.to_json().encode()).decode(),
    )


def _answers(panel: PanelResult) -> tuple[str, list[Answer]]:
    """The summary that all representations share, if they do, and parts with the values and caveats of each."""
    found = {name: interpret(result) for name, result in panel.items()}
    summaries = {each.summary for each in found.values()}

    def named(field: str) -> list[str]:
        return [f"{name}: {text}" for name, each in found.items() for text in getattr(each, field)]

    own = [f"{name}: {each.summary}" for name, each in found.items()] * (len(summaries) > 1)
    parts = [
        Answer("By representation", own),
        Answer("Image quality (fidelity)", named("fidelity")),
        Answer("Variety (diversity)", named("diversity")),
        Answer("Caveats", caveats=named("caveats")),
    ]
    return summaries.pop() if len(summaries) == 1 else "", parts


def _lines_of(result: Result, held_out: Result | None) -> dict[str, dict[str, str]]:
    """Texts by metric: the values, and the known reference values under a title each."""
    nulls = {name: metric.known_null for name, metric in result.metrics.items()}
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
    """Explanations of the rows with these titles and of the columns with these heads."""
    first, lines = next(iter(panel.values())), []
    if _NULL in titles:
        lines.append("null: the mean value of a perfect generator with the same numbers of images")
    if _CONTROL in titles and first.control is not None:
        sizes = f"{first.control.n_real:,} of the reals against the other {first.control.n_fake:,}"
        lines.append(f"{_CONTROL}: {sizes}")
    for kept in list(panel.held_out.values())[:1]:
        lines.append(f"{_HELD_OUT}: {kept.fake.n:,} images, scored like the fakes against the same reals")
        if kept.fake.n < first.fake.n:
            lines.append(
                "there are fewer held-out reals than fakes, and distances of fewer images are larger"
            )
    if f"{RATIO}/halves" in heads:
        text = "distances of fewer images are larger, so a perfect generator has a ratio below 1; held-out reals avoid this"
        lines.append(f"{RATIO}/halves: {RATIO} divided by that of {_CONTROL}; {text}")
    if (found := panel.fdr6) is not None:
        lines.append(
            f"FDr6 {number(found.mean)}: the mean of FDr, which is {RATIO} divided by that of ImageNet's validation images. The "
            f"latter is published with two decimals, so FDr6 is between {number(found.low)} and {number(found.high)}"
        )
    return lines


def _remarks(panel: PanelResult) -> list[str]:
    """Remarks on metrics, with the names of representations if the remark is not the same for all."""
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
    """Extractor, dimension, resize rule and settings hash of each representation."""
    lines, none_is_comparable = [], not any(result.comparable for result in panel.values())
    for name, result in panel.items():
        info, facts = result.extractor, [f"settings hash {result.fingerprint}"]
        if info is not None:
            own = [] if info.name == name else [info.name]
            facts = [*own, f"{info.dim}-d", info.resize_text, *facts]
        facts += [_NOT_COMPARABLE] * (not result.comparable and not none_is_comparable)
        lines.append(f"{name}: {', '.join(facts)}")
    return [*lines, *[_NOT_COMPARABLE] * none_is_comparable]


def _sides(panel: PanelResult) -> list[str]:
    """The sources and settings."""
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
