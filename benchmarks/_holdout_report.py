"""Tables of the hold-out benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from _holdout_cases import TOLERANCE, is_right
from _holdout_metrics import KS, METRICS, VARIANTS, Columns, Kind, Metric

_USUAL_K = 5
"""Of the tables of all cases."""
_KINDS: tuple[Kind, ...] = ("fidelity", "diversity")
_PAIRS = (
    ("precision", "recall"),
    ("calibrated_precision", "calibrated_recall"),
    ("min(1, calibrated_precision)", "min(1, calibrated_recall)"),
    ("density (null 1)", "coverage"),
    ("min(1, density)", "min(1, coverage / null)"),
    ("clipped_density", "clipped_coverage"),
    ("symmetric_precision", "symmetric_recall"),
    ("symmetric_precision / null", "symmetric_recall / null"),
    ("complement_precision / null", "coverage / null"),
    (
        "lesser of calibrated_precision, complement_precision / null, 1",
        "lesser of calibrated_recall, coverage / null, 1",
    ),
    ("min(1, calibrated_precision)", "symmetric_recall / null"),
    ("min(1, calibrated_precision)", "lesser of calibrated_recall, coverage / null, 1"),
    ("lesser of calibrated_precision, clipped_density", "lesser of calibrated_recall, clipped_coverage"),
    ("min(1, calibrated_precision)", "witnessed_diversity"),
)
_LEGEND = f"""\
Cases read correctly: the mean over draws is within {TOLERANCE} of the target, which was written down before any draw was
measured. "null" is the lesser of two nulls for the symmetric pair, and a closed form for the others. Witnessed diversity has a fixed k of 20."""
_RULE = """\
Near-duplicates by the rule of `_holdout_duplicates.py`, which was chosen on other distributions. "reals": without them among the
reals; "weighted": without them in both sets, but with shares of all rows. Won and lost are cases, against all rows."""


@dataclass(frozen=True, slots=True)
class Record:
    """The result of one case; a list of one number applies to all draws.

    Attributes:
        group: The kind of fault.
        case: The case, in words.
        fidelity: What metrics of fidelity should read; None for nothing.
        diversity: The same of diversity.
        draws: How many.
        seed: From which all draws follow.
        values: By variant, then by metric and k, over the draws. Variants equal to "plain" are left out.
        nulls: The same of nulls.
    """

    group: str
    case: str
    fidelity: float | None
    diversity: float | None
    draws: int
    seed: int
    values: dict[str, dict[str, list[float]]]
    nulls: dict[str, dict[str, list[float]]]

    def mean(self, metric: Metric, k: int, variant: str = "plain") -> float:
        """Of a metric over the draws; of "plain" where the variant is equal."""
        used = variant if variant in self.values else "plain"
        return float(metric.compute(Columns(self.values[used], self.nulls[used]), k).mean())

    def target(self, kind: Kind) -> float | None:
        """The target of metrics of this kind."""
        return self.fidelity if kind == "fidelity" else self.diversity

    def is_right(self, metric: Metric, k: int, variant: str = "plain") -> bool | None:
        """Whether a metric meets its target; None without a target."""
        target = self.target(metric.kind)
        return None if target is None else is_right(self.mean(metric, k, variant), target)


def restored(line: str) -> Record:
    """A record from its line of JSON."""
    stored = json.loads(line)
    return Record(**{field.name: stored[field.name] for field in fields(Record)})


def markdown(records: Sequence[Record]) -> str:
    """All tables."""
    groups = list(dict.fromkeys(record.group for record in records))
    parts = ["# Hold-out cases", "", _LEGEND, ""]
    for kind in _KINDS:
        parts += [f"## {kind.capitalize()}: cases read correctly", "", *_counts(records, groups, kind), ""]
    parts += ["## Both numbers right, of the cases with both targets", "", *_pairs(records, groups), ""]
    parts += ["## Without near-duplicates", "", _RULE, "", *_rules(records, groups), ""]
    for kind in _KINDS:
        heading = f"## {kind.capitalize()}: all cases, k = {_USUAL_K}; `!` where it is not right"
        parts += [heading, "", *_cases(records, kind), ""]
    return "\n".join(parts)


def _counts(records: Sequence[Record], groups: Sequence[str], kind: Kind) -> list[str]:
    lines = _table(("metric", "k", "all", *groups))
    for metric, k in _columns(kind):
        hits = _hits(records, groups, (metric,), k)
        every = [hit for each in hits.values() for hit in each]
        cells = (_of(every), *(_of(each) for each in hits.values()))
        lines.append(_line((f"`{metric.name}`", str(k) if metric.has_k else "20", *cells)))
    return lines


def _pairs(records: Sequence[Record], groups: Sequence[str]) -> list[str]:
    metrics = {metric.name: metric for metric in METRICS}
    lines = _table(("pair", "k", "all", *groups))
    for names in _PAIRS:
        fidelity, diversity = (metrics[name] for name in names)
        for k in _ks(fidelity):
            hits = _hits(records, groups, (fidelity, diversity), k)
            every = [hit for found in hits.values() for hit in found]
            title = " and ".join(f"`{name}`" for name in names)
            cells = (_of(every), *(_of(each) for each in hits.values()))
            lines.append(_line((title, str(k) if fidelity.has_k else "20", *cells)))
    return lines


def _rules(records: Sequence[Record], groups: Sequence[str]) -> list[str]:
    lines = _table(("metric", "k", "rule", "won", "lost", "won in", "lost in"))
    for kind in _KINDS:
        for metric, k in _columns(kind):
            if not metric.has_k:
                continue
            for variant in VARIANTS[1:]:
                won: list[str] = []
                lost: list[str] = []
                for record in records:
                    before, after = record.is_right(metric, k), record.is_right(metric, k, variant)
                    if before is not None and before != after:
                        (won if after else lost).append(record.group)
                where = (
                    ", ".join(f"{group} {of.count(group)}" for group in groups if group in of) or "-"
                    for of in (won, lost)
                )
                cells = (f"`{metric.name}`", str(k), variant, str(len(won)), str(len(lost)), *where)
                lines.append(_line(cells))
    return lines


def _cases(records: Iterable[Record], kind: Kind) -> list[str]:
    metrics = [metric for metric in METRICS if metric.kind == kind]
    lines = _table(("group", "case", "target", *(metric.name for metric in metrics)))
    for record in records:
        target = record.target(kind)
        if target is None:
            continue
        means = [record.mean(metric, _USUAL_K) for metric in metrics]
        cells = (f"{mean:.2f}{'' if is_right(mean, target) else ' !'}" for mean in means)
        lines.append(_line((record.group, record.case, f"{target:.3g}", *cells)))
    return lines


def _columns(kind: Kind) -> list[tuple[Metric, int]]:
    return [(metric, k) for metric in METRICS if metric.kind == kind for k in _ks(metric)]


def _ks(metric: Metric) -> tuple[int, ...]:
    return KS if metric.has_k else (_USUAL_K,)


def _hits(
    records: Sequence[Record], groups: Sequence[str], metrics: Sequence[Metric], k: int
) -> dict[str, list[bool]]:
    """For each group, whether all metrics meet their targets on each case that has a target for all of them."""
    found: dict[str, list[bool]] = {group: [] for group in groups}
    for record in records:
        right = [record.is_right(metric, k) for metric in metrics]
        if None not in right:
            found[record.group].append(all(right))
    return found


def _of(hits: Sequence[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}" if hits else "-"


def _table(heads: Sequence[str]) -> list[str]:
    return [_line(heads), _line(["---"] * len(heads))]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
