"""Scores and comparisons in plain sentences, by the rules of docs/report.md.

With m = precision over its null the share of good fakes, k neighbors and r fakes per real, that many good fakes cover
1 - (1 + m r)^-k of the reals, up to terms of 1 / n (Naeem et al. 2020, arXiv:2002.09797, with balls of m r times as many
fakes as reals). Coverage is compared with that, so that bad images are not counted as missing variety, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from genpr.checkpoints.rank import Ranking, listed
from genpr.evaluation.compare import Comparison
from genpr.evaluation.result import Result
from genpr.metrics import ball_metrics as metrics
from genpr.metrics.metric import BallMetric
from genpr.metrics.uncertainty import Difference
from genpr.metrics.value import MetricValue
from genpr.report.text import capital, cut, number, percent

SLACK = 0.03
"""A certain loss below this is ignored."""
_WHOLE_AT_LEAST = 0.85
_NONE, _SURELY_NONE = 0.10, 0.25
_WIDE = 0.20
_STANDARD_ERRORS = 3.0  # of binomial shares; those of metrics of neighbors are up to 1.5 times as large


class Grade(Enum):
    """What is known of a share: nothing lost, perhaps more than 15 % lost, certainly some lost, or almost all lost."""

    WHOLE = "whole"
    UNCERTAIN = "uncertain"
    PART = "part"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Share:
    """A metric over its null, with both ends of its 95 % interval, or else three binomial standard errors to both sides."""

    metric: str
    value: float
    low: float
    high: float
    is_measured: bool

    @property
    def grade(self) -> Grade:
        """What may be said of it."""
        if self.high >= 1 - SLACK:
            return Grade.WHOLE if self.low >= _WHOLE_AT_LEAST else Grade.UNCERTAIN
        return Grade.NONE if self.value < _NONE and self.high < _SURELY_NONE else Grade.PART

    @property
    def is_wide(self) -> bool:
        """Whether the ends are far apart."""
        return min(self.high, 1.0) - self.low > _WIDE

    @property
    def lost(self) -> str:
        """The missing part: "about 33 %", or "between 34 % and 63 %" where that is not known well."""
        if self.is_wide:
            return f"between {percent(1 - min(self.high, 1.0))} and {percent(1 - self.low)}"
        return f"about {percent(1 - self.value)}"


def share_of(result: Result, metric: BallMetric, *, expected: float | None = None) -> Share | None:
    """A metric over its null, or over `expected`; None where it was not scored or has no null."""
    found = result.metrics.get(metric.name)
    if found is None or found.relative is None or found.null is None:
        return None
    whole = found.null if expected is None else expected
    if whole <= 0:
        return None
    if found.interval is not None:
        low, high = found.interval
    else:
        n = max(1, result.fake.n if metric.over == "fake" else result.real.n)
        middle = min(max((found.value + found.null) / 2, 0.0), 1.0)
        margin = _STANDARD_ERRORS * math.sqrt(middle * (1 - middle) / n) + 1 / n
        low, high = max(0.0, found.value - margin), found.value + margin
    return Share(metric.name, found.value / whole, low / whole, high / whole, found.interval is not None)


@dataclass(frozen=True, slots=True)
class Interpretation:
    """A score or a comparison in words: the main finding, the numbers that it rests on, and what to keep in mind."""

    summary: str
    evidence: tuple[str, ...]
    caveats: tuple[str, ...]


_CAVEATS = {
    "protocol-not-met": "The protocol was not met, so do not compare these numbers with others of it.",
    "copied-reals": "Some fakes are byte-identical copies of reals, and copies count as perfect.",
    "near-copies": "Some fakes are near-copies of reals, so part of this may be memorization.",
    "copying": "The fakes are nearer to the training images than other reals are, which suggests memorization.",
    "duplicates": "Many images are duplicates, which affects every number.",
    "near-duplicates": "Many images are near-duplicates of others in their own set, which lowers these numbers.",
    "shrinkage": "The fakes are closer together than the reals, which raises precision, density and coverage.",
    "outlier-dominance": "The balls of few unusual reals contain many of the fakes, so fidelity may be overestimated.",
}
_FIDELITY = {
    Grade.WHOLE: "the generated images look like real ones",
    Grade.UNCERTAIN: "the generated images look like real ones, but up to {most_lost} of them may not",
    Grade.PART: "{lost} of the generated images look like no real one",
    Grade.NONE: "almost none of the generated images look like real ones",
}
_DIVERSITY = {
    Grade.WHOLE: "the generator reaches all of the variety",
    Grade.UNCERTAIN: "no variety is certainly missing, but up to {most_lost} may be",
    Grade.PART: "the generator misses {lost} of the variety",
    Grade.NONE: "the generator reaches almost none of the variety",
}


def interpret(result: Result) -> Interpretation:
    """A score in words; little can be said of one without precision, recall and coverage."""
    fidelity, recall = share_of(result, metrics.precision), share_of(result, metrics.recall)
    coverage = share_of(result, metrics.coverage, expected=_expected_coverage(result, fidelity))
    # Stray fakes have large balls, which contain reals that resemble none of them.
    is_stray = recall is not None and coverage is not None and coverage.high < min(recall.low, 1.0) - 0.1
    diversity = coverage if is_stray or recall is None else recall
    codes = {item.code for item in result.notices}
    judged = list(dict.fromkeys(share for share in (fidelity, diversity) if share is not None))
    conditional = _conditional(result)
    caveats = _caveats(judged, recall if is_stray else None, codes)
    if not judged and conditional:
        return Interpretation(conditional[0], tuple(conditional[1:]), caveats)
    contradiction = _contradiction(result)
    summary = " ".join(filter(None, [_summary(fidelity, diversity, codes), contradiction]))
    shares = dict.fromkeys(share for share in (fidelity, recall, diversity) if share is not None)
    evidence = [_evidence(result, share) for share in shares]
    evidence += [text for text in conditional if not contradiction.endswith(text[1:])]
    return Interpretation(summary, tuple(evidence), caveats)


def _expected_coverage(result: Result, fidelity: Share | None) -> float | None:
    """What the good fakes alone would cover if they were a perfect generator's; None where that is the null."""
    found = result.metrics.get(metrics.coverage.name)
    if found is None or found.null is None or found.k is None or fidelity is None or fidelity.value >= 1:
        return None
    ratio = result.fake.n / result.real.n
    good = 1 - (1 + max(fidelity.value, 1 / result.fake.n) * ratio) ** -found.k
    return found.null * good / (1 - (1 + ratio) ** -found.k)


def _summary(fidelity: Share | None, diversity: Share | None, codes: set[str]) -> str:
    if "same-input" in codes:
        return "Both sets hold the same images, so these numbers say nothing about a generator."
    if fidelity is None and diversity is None:
        return "These metrics measure how far apart the two sets are; precision and recall would tell in which way."
    images, variety = (
        "" if share is None else texts[share.grade].format(most_lost=percent(1 - share.low), lost=share.lost)
        for share, texts in ((fidelity, _FIDELITY), (diversity, _DIVERSITY))
    )
    images = capital(images)
    if fidelity is None or diversity is None:
        missing = "fidelity" if fidelity is None else "diversity"
        return capital(f"{images}{variety}; {missing} was not scored.")
    if fidelity.grade is Grade.NONE and diversity.grade is not Grade.NONE:
        return f"{images}; diversity can therefore not be judged."
    if diversity.grade in (Grade.WHOLE, Grade.UNCERTAIN) and "missing-modes" in codes:
        return f"{images}; {variety}, except for certain kinds of images that it leaves out."
    if fidelity.grade is diversity.grade is Grade.WHOLE:
        return f"{images}; {variety}. Precision and recall do not distinguish it from a perfect one."
    return f"{images}; {variety}."


def _evidence(result: Result, share: Share) -> str:
    metric = result.metrics[share.metric]
    ends = f" (95 % interval {percent(share.low)} to {percent(share.high)})" if share.is_measured else ""
    whole = metric.value / share.value if share.value else metric.null or 0.0
    reference = "a perfect generator scores with so many images"
    if metric.null is not None and abs(whole - metric.null) > 1e-9:
        reference = "so many good fakes would score"
    name = capital(share.metric)
    return f"{name} is {metric.value:.3f}, {percent(share.value)} of the {whole:.3f} that {reference}{ends}."


def _caveats(judged: Sequence[Share], stray: Share | None, codes: set[str]) -> tuple[str, ...]:
    """What to keep in mind, the most important first; `stray` is recall where coverage contradicts it."""
    if "same-input" in codes:
        return ()
    found = [text for code, text in _CAVEATS.items() if code in codes]
    if stray is not None:
        found.append(
            f"Recall alone is {percent(stray.value)} of its null, but coverage contradicts it: stray fakes have large "
            "balls, which contain reals that resemble none of them. The summary follows coverage."
        )
    if wide := [share.metric for share in judged if share.is_wide]:
        found.append(
            f"The interval of {' and '.join(wide)} is wide: score more images before you decide on it."
        )
    if any(not share.is_measured for share in judged):
        found.append("Without intervals, three binomial standard errors are used.")
    return tuple(found)


_WORST_NAMED = 3
_FAILS = 2 / 3  # of what could be reached


def _conditional(result: Result) -> list[str]:
    """A sentence per family of labels, prompts and entities that the result has."""
    found = [
        _labels(result),
        _ranked(result, "retrieval.r_precision", "images rank their own prompt"),
        _ranked(result, "retrieval.t2i_r_precision", "prompts rank their own image"),
    ]
    recall, entities = result.metrics.get("entity.recall"), result.entities
    if recall is not None:
        rows = () if entities is None else entities.rows
        worst = _worst([(row.entity, row.n_found / row.n_expected, 1.0) for row in rows if row.n_expected])
        found.append(f"Of the expected entities, {percent(recall.value)} are found on average{worst}.")
    if entities is not None and entities.unreadable:
        bad, total = len(entities.unreadable), entities.n_answers
        found.append(f"{bad:,} of {total:,} answers could not be read, and are in no score.")
    pairs = result.reconstruction
    if pairs is not None:
        shown = [f"{name.partition('.')[2]} is {number(each.value)}" for name, each in result.metrics.items()]
        found.append(f"Over {pairs.n_pairs:,} pairs of originals and reconstructions, {listed(shown)}.")
    return [text for text in found if text]


def _contradiction(result: Result) -> str:
    """What contradicts a good summary of the images: labels or prompts that they do not match."""
    test, ranked = (result.metrics.get(name) for name in ("label.gan_test", "retrieval.r_precision"))
    if test is not None and test.null is not None and not _reaches(test, test.null):
        return f"But a{_labels(result)[1:]}"
    if ranked is not None and _is_chance(ranked):
        return f"But {_ranked(result, 'retrieval.r_precision', 'images rank their own prompt')}"
    return ""


def _labels(result: Result) -> str:
    metric = result.metrics.get("label.gan_test") or result.metrics.get("label.accuracy")
    if metric is None:
        return ""
    rows = () if result.labels is None else result.labels.rows
    worst = _worst([(row.label, row.recall, row.null_recall) for row in rows])
    if metric.null is None:
        return f"{percent(metric.value)} of the labels are correct{worst}."
    worst = "" if _reaches(metric, metric.null) else worst
    correct = f"{percent(metric.value)} of the fakes as requested, and {percent(metric.null)} of reals"
    return f"A classifier of the reals labels {correct}{worst}."


def _ranked(result: Result, name: str, what: str) -> str:
    metric = result.metrics.get(name)
    if metric is None or metric.pool is None:
        return ""
    chance = "" if metric.chance is None else f" (chance: {percent(metric.chance)})"
    no_better = ", no better than chance" * _is_chance(metric)
    return f"{percent(metric.value)} of the {what} first among {metric.pool:,}{no_better}{chance}."


def _reaches(metric: MetricValue, null: float) -> bool:
    high = metric.value if metric.interval is None else metric.interval[1]
    return high >= (1 - SLACK) * null


def _is_chance(metric: MetricValue) -> bool:
    ends, chance = metric.interval, metric.chance
    return ends is not None and chance is not None and ends[0] <= chance <= ends[1]


def _worst(shares: Sequence[tuple[str, float | None, float | None]]) -> str:
    """The worst of those that miss a third or more of their null; `shares` come worst first."""
    failing = [
        f"{cut(name, 40)} ({percent(share)})"
        for name, share, null in shares
        if share is not None and share <= _FAILS * (1.0 if null is None else null)
    ]
    more = f" and {len(failing) - _WORST_NAMED:,} more" if len(failing) > _WORST_NAMED else ""
    return f"; worst: {', '.join(failing[:_WORST_NAMED])}{more}" if failing else ""


def interpret_comparison(comparison: Comparison, ranking: Ranking | None) -> Interpretation:
    """A comparison of at least two results in words, with their ranking, if they could be ranked."""
    first, *others = comparison.results
    known = {
        name: {metric: comparison.contrast(name, metric) for metric in comparison.metrics} for name in others
    }
    found = {name: [each for each in known[name].values() if each is not None] for name in others}
    lines = [_line(name, first, known[name]) for name in others]
    ranked = "" if ranking is None else ranking.summary
    if ranking is not None and not any(ranked.startswith(each.name) for each in ranking.entries):
        ranked = capital(ranked)  # names keep their case
    changed = [name for name in others if any(direction(one) in ("higher", "lower") for one in found[name])]
    if comparison.differences:
        summary = "These results were not scored alike, so differences between them may come from how they were scored."
    elif ranking is not None and ranking.has_bounds and len(others) > 1:
        summary = ranked
    elif not any(found.values()):
        summary = (
            "No interval of a difference is known, so none of these differences can be called significant."
        )
    elif len(lines) == 1:
        summary = lines[0]
    elif not changed:
        summary = f"None of the other {len(lines)} is distinguishable from {first}."
    else:
        summary = f"Distinguishable from {first}: {listed(changed)}."
    evidence = [line for line in [*lines, ranked] if line and line != summary]
    count = sum(map(len, found.values()))
    if count > 1:
        evidence.append(
            f"Each of the {count} differences has a 95 % interval of its own: without any difference, one in twenty would "
            "be found by chance."
        )
    unpaired = [name for name in others if any(one.pairing == "unpaired" for one in found[name])]
    caveat = (
        f"The differences of {listed(unpaired)} are unpaired (other reals, or other halves of them), so the effect of "
        "the reals does not cancel and the intervals are wider."
        if unpaired and not comparison.differences
        else ""
    )
    return Interpretation(summary, tuple(evidence), (caveat,) * bool(caveat))


def direction(contrast: Difference | None) -> str:
    """A difference to the first in words: "higher", "lower", "not distinguishable" or "no interval"."""
    if contrast is None:
        return "no interval"
    if contrast.verdict == "not distinguishable":
        return contrast.verdict
    return "higher" if contrast.value > 0 else "lower"


def _line(name: str, first: str, contrasts: dict[str, Difference | None]) -> str:
    """One other result against the first: the metrics by the direction of their difference."""
    by_direction: dict[str, list[str]] = {
        word: [] for word in ("higher", "lower", "not distinguishable", "no interval")
    }
    for metric, contrast in contrasts.items():
        by_direction[direction(contrast)].append(metric)
    parts = [f"{word} {listed(each)}" for word, each in by_direction.items() if each]
    return f"{name} against {first}: {'; '.join(parts)}."
