"""Expected against found entities as text: the scores, who is missed most, and which answers could not be read."""

from __future__ import annotations

from genpr.evaluation.result import EntityRow, EntitySummary, Result
from genpr.report.remarks import CHOSEN
from genpr.report.text.layout import number, plain_table, render, shortened, wrapped

_MOST_ROWS, _MOST_UNREADABLE, _MOST_FORMS = 10, 5, 5
_WIDEST = 34


def entity_table(result: Result) -> str:
    """The scores with how far unreadable answers could move them, the worst entities, and the first unreadable answers."""
    found = result.entities
    if found is None:
        return ""
    parts = [
        _scores(result, found),
        *_reasons(found),
        *_entities(found),
        *_unreadable(found),
        _footer(result, found),
    ]
    return "\n".join(parts)


def _scores(result: Result, found: EntitySummary) -> str:
    bounds = {each.metric: f"{each.low:.3f} - {each.high:.3f}" for each in found.bounds}
    table = plain_table(
        "metric", "value", "95 % interval", *(["with unreadable"] if bounds else []), "images"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, metric in result.metrics.items():
        interval = "-" if metric.interval is None else " - ".join(f"{end:.3f}" for end in metric.interval)
        counted = "-" if metric.n_counted is None else f"{metric.n_counted:,}"
        table.add_row(
            name, number(metric.value), interval, *([bounds.get(name, "-")] if bounds else []), counted
        )
    return render(table)


def _reasons(found: EntitySummary) -> list[str]:
    """What the columns mean, and why metrics are missing."""
    lines = ["images: how many count, or their prompts where several share one (10 for intervals)"]
    if found.bounds:
        lines.append("with unreadable: if these answers were all wrong, and if they were all right")
    by_reason: dict[str, list[str]] = {}
    for metric, why in found.undefined:
        by_reason.setdefault(why, []).append(metric)
    return [
        *map(wrapped, lines),
        *(wrapped(f"no {', '.join(names)}: {why}") for why, names in by_reason.items()),
    ]


def _entities(found: EntitySummary) -> list[str]:
    """Those that were missed most."""
    if not found.rows:
        return []
    judged = any(row.n_false is not None for row in found.rows)
    known = _sensitivity(found)
    table = plain_table(
        "entity, most missed first",
        *("expected", "found", "recall"),
        *(["wrong"] if judged else []),
        *(["seen"] if known else []),
    )
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for row in found.rows[:_MOST_ROWS]:
        seen = [known.get(row.entity, "-")] if known else []
        table.add_row(shortened(row.entity, _WIDEST), *_cells(row, judged=judged), *seen)
    more = len(found.rows) - _MOST_ROWS
    return [
        "",
        render(table),
        *([f"and {more:,} more (all in --json)"] if more > 0 else []),
        *([wrapped("seen: share of labelled images with it in which it is recognised")] if known else []),
    ]


def _sensitivity(found: EntitySummary) -> dict[str, str]:
    """How much of what is there the recogniser sees, by entity; empty where that is not known of any."""
    known = () if found.recogniser is None else found.recogniser.entities
    return {each.entity: f"{each.sensitivity:.3f}" for each in known if each.sensitivity is not None}


def _cells(row: EntityRow, *, judged: bool) -> list[str]:
    recall = f"{row.n_found / row.n_expected:.3f}" if row.n_expected else "-"
    wrong = "-" if row.n_false is None else f"{row.n_false:,}"
    return [f"{row.n_expected:,}", f"{row.n_found:,}", recall, *([wrong] if judged else [])]


def _unreadable(found: EntitySummary) -> list[str]:
    if not found.unreadable:
        return []
    count = len(found.unreadable)
    lines = [
        "",
        f"{count:,} of {found.n_answers:,} answers could not be read, and are in no score above failure_rate:",
    ]
    for each in found.unreadable[:_MOST_UNREADABLE]:
        begin = f": {shortened(each.answer, 60)}" if each.answer.strip() else ""
        lines.append(
            wrapped(f"{shortened(each.name, _WIDEST)}: {each.reason}{begin}", first="  ", others="    ")
        )
    more = count - _MOST_UNREADABLE
    return [*lines, *([f"  and {more:,} more (all in --json)"] if more > 0 else [])]


def _seen_by(found: EntitySummary) -> list[str]:
    seen = found.recogniser
    if seen is None:
        return []
    source = f" ({seen.source})" if seen.source else ""
    return [f"seen by {seen.name} ({seen.kind}); thresholds: {CHOSEN[seen.chosen]}{source}"]


def _footer(result: Result, found: EntitySummary) -> str:
    forms = ", ".join(f"{how} ({count:,})" for how, count in found.forms[:_MOST_FORMS])
    more = len(found.forms) - _MOST_FORMS
    if found.vocabulary is not None:
        wrong = f"wrong is what is found of {found.vocabulary:,} known entities and not expected"
    else:
        wrong = (
            "wrong is what images exclude"
            if "entity.precision" in result.metrics
            else "nothing is known to be wrong"
        )
    left_out = f", {len(result.fake.skipped):,} left out" if result.fake.skipped else ""
    lines = [
        f"expected  {result.real.n:,} of {result.real.source}",
        f"{result.fake.what:<8}  {result.fake.n:,} of {result.fake.source}{left_out}",
        *_seen_by(found),
        *([f"read as {forms}{f' and {more} more' if more > 0 else ''}"] if forms else []),
        f"{wrong}; fingerprint {result.fingerprint}",
    ]
    return "\n".join(["", *map(wrapped, lines)])
