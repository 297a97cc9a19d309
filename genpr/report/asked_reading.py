"""What the comparison with labels, prompts and entities says, in plain language, one sentence per family.

The rules: a share is told beside what it is held against, chance or what reals score. It is called no better than guessing
where its 95 % interval holds chance, and as good as that of reals where the interval reaches within 3 % of it. Who is worst is
named where a third or more of what could be is missing. Beside a sentence about the reals, one about labels or prompts is worth telling at
once where it contradicts: images that convince and are not what was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from genpr.evaluation.result import Result
from genpr.metrics.value import MetricValue
from genpr.report.safe_text import cut
from genpr.report.shares import SLACK, percent

_WORST_NAMED = 3
_FAILS = 1 / 3
_WIDEST = 40  # columns of a name


def asked_sentences(result: Result) -> list[str]:
    """One or two sentences per family that the result has."""
    found = [_of_labels(result), _of_prompts(result), _of_images(result), *_of_entities(result)]
    return [sentence for sentence in found if sentence]


def objection(result: Result) -> str:
    """What takes praise of the images back; empty where nothing does."""
    test, ranked = (result.metrics.get(name) for name in ("label.gan_test", "retrieval.r_precision"))
    if test is not None and test.null is not None and not _reaches(test, test.null):
        return f"But a{_of_labels(result).removeprefix('A')}"
    return f"But {_of_prompts(result)}" if ranked is not None and _is_guessing(ranked) else ""


def _of_labels(result: Result) -> str:
    metric = result.metrics.get("label.gan_test") or result.metrics.get("label.accuracy")
    if metric is None:
        return ""
    rows = () if result.labels is None else result.labels.rows
    worst = _named([(row.label, row.recall, row.null_recall) for row in rows])
    if metric.null is None:
        return f"{percent(metric.value)} of the decisions about labels are right{worst}."
    if _reaches(metric, metric.null):
        return (
            f"A classifier of the reals takes the fakes for what they were asked to be as often as it does reals: "
            f"{percent(metric.value)}, reals {percent(metric.null)}."
        )
    return (
        f"A classifier of the reals takes {percent(metric.value)} of the fakes for what they were asked to be, and "
        f"{percent(metric.null)} of reals{worst}."
    )


def _of_prompts(result: Result) -> str:
    metric = result.metrics.get("retrieval.r_precision")
    if metric is None or metric.pool is None:
        return ""
    head = f"{percent(metric.value)} of the images rank their own prompt first among {metric.pool:,}"
    if metric.chance is None:
        return f"{head}."
    if _is_guessing(metric):
        return f"{head}, which is no better than guessing ({percent(metric.chance)})."
    return f"{head}, where guessing would {percent(metric.chance)}."


def _of_images(result: Result) -> str:
    """The other way."""
    metric = result.metrics.get("retrieval.t2i_r_precision")
    if metric is None or metric.pool is None or metric.chance is None:
        return ""
    head = (
        f"The other way, {percent(metric.value)} of the prompts rank their image first among {metric.pool:,}"
    )
    if _is_guessing(metric):
        return f"{head}: no better than guessing."
    return f"{head}."


def _of_entities(result: Result) -> list[str]:
    metric = result.metrics.get("entity.recall")
    found = []
    if metric is not None:
        rows = () if result.entities is None else result.entities.rows
        shares = [(row.entity, row.n_found / row.n_expected, 1.0) for row in rows if row.n_expected]
        found.append(
            f"Of the entities asked for, {percent(metric.value)} are found on average{_named(shares)}."
        )
    if result.entities is not None and result.entities.unreadable:
        bad, total = len(result.entities.unreadable), result.entities.n_answers
        found.append(f"{bad:,} of {total:,} answers cannot be read, and are in no score.")
    return found


def _reaches(metric: MetricValue, held_against: float) -> bool:
    high = metric.value if metric.interval is None else metric.interval[1]
    return high >= (1 - SLACK) * held_against


def _is_guessing(metric: MetricValue) -> bool:
    ends, chance = metric.interval, metric.chance
    return ends is not None and chance is not None and ends[0] <= chance <= ends[1]


def _named(shares: Sequence[tuple[str, float | None, float | None]]) -> str:
    """The worst of those that fail often, by their shares and what these could be; they come worst first."""
    failing = [
        (name, share)
        for name, share, whole in shares
        if share is not None and share <= (1 - _FAILS) * (1.0 if whole is None else whole)
    ]
    if not failing:
        return ""
    named = ", ".join(f"{cut(name, _WIDEST)} ({percent(share)})" for name, share in failing[:_WORST_NAMED])
    more = f" and {len(failing) - _WORST_NAMED:,} more" if len(failing) > _WORST_NAMED else ""
    return f"; worst: {named}{more}"
