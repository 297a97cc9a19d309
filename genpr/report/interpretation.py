"""Scores and comparisons in plain sentences, by written rules.

A score is interpreted by fidelity (precision) and diversity (recall) over their nulls, with their 95 % intervals:

1. The value over the null is the share of what a perfect generator reaches.
2. A loss counts only where the upper end of the interval lies more than 3 % below the null. For a perfect generator that
   happens by chance less often than once in forty times.
3. A loss that counts is given in percent, as a range where the interval spans more than a fifth.
4. Where no loss counts but more than 15 % may be lost, the images are too few to know, and the sentence says so.
5. Recall is believed only as far as coverage supports it. Stray fakes have large balls, which contain reals that resemble
   none of them. So where the interval of coverage, over what as many good fakes as precision counts would cover, lies more
   than a tenth below that of recall, coverage is used instead. Where almost no fake is good, diversity is not judged.
6. Sentences about labels, prompts and entities follow; each gives a share beside chance or what reals score.
7. Warnings that contradict a sentence are part of it: equal sets, copies, missing kinds, odd features.

With m = precision over its null the share of good fakes, k neighbors and r fakes per real, that many good fakes cover
1 - (1 + m r)^-k of the reals, up to terms of 1 / n (Naeem et al. 2020, arXiv:2002.09797, with balls of m r times as many
fakes as reals).

A comparison of results that were not scored alike says only that. Of three or more results with intervals of precision and
recall it gives the ranking, by bounds that hold for all at once; else the differences to the first result by their own 95 %
intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from genpr.checkpoints.rank import Ranking, listed
from genpr.evaluation.compare import Comparison
from genpr.evaluation.result import Result
from genpr.metrics import ball_metrics as metrics
from genpr.metrics.metric import BallMetric
from genpr.metrics.uncertainty import Difference
from genpr.metrics.value import MetricValue
from genpr.report.text import capital, cut, percent

SLACK = 0.03
"""A certain loss below this is ignored."""
_WHOLE_AT_LEAST = 0.85
_NONE, _SURELY_NONE = 0.10, 0.25
_WIDE = 0.20
_STANDARD_ERRORS = 3.0  # of binomial shares; those of metrics of neighbors are up to 1.5 times as large


class Grade(Enum):
    """What is known of a share.

    WHOLE: No loss of 3 % or more is certain, and none beyond 15 % is possible.
    UNCERTAIN: No loss of 3 % or more is certain, but more than 15 % may be lost.
    PART: Something is certainly lost.
    NONE: Less than a tenth is left, and certainly less than a quarter.
    """

    WHOLE = "whole"
    UNCERTAIN = "uncertain"
    PART = "part"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Share:
    """A metric over its null, with both ends of its interval.

    Attributes:
        metric: Its name.
        value: Over the null; may exceed 1.
        low: Lower end over the null.
        high: Upper end over the null.
        is_measured: Whether the ends are of a 95 % interval; else they are three binomial standard errors away.
    """

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
        """Whether the ends are more than a fifth of the whole apart."""
        return min(self.high, 1.0) - self.low > _WIDE

    @property
    def lost(self) -> str:
        """The missing part: "about 33 %", or "between 34 % and 63 %" where that is not known well."""
        if self.is_wide:
            return f"between {percent(1 - min(self.high, 1.0))} and {percent(1 - self.low)}"
        return f"about {percent(1 - self.value)}"


def share_of(result: Result, metric: BallMetric, *, expected: float | None = None) -> Share | None:
    """A metric of a result over its null; None where it was not scored or has no null.

    Args:
        result: The score.
        metric: One of which more is better.
        expected: What to divide by instead of its null.
    """
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
    """A score or a comparison in words.

    Attributes:
        summary: The main finding.
        evidence: The numbers that it rests on, one sentence each.
        caveats: What to keep in mind, the most important first.
    """

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
    Grade.WHOLE: "The generated images look like real ones",
    Grade.UNCERTAIN: "The generated images look like real ones, but up to {most_lost} of them may not",
    Grade.PART: "{Lost} of the generated images look like no real one",
    Grade.NONE: "Almost none of the generated images look like real ones",
}
_DIVERSITY = {
    Grade.WHOLE: "the generator reaches all of the variety",
    Grade.UNCERTAIN: "no variety is certainly missing, but up to {most_lost} may be",
    Grade.PART: "the generator misses {lost} of the variety",
    Grade.NONE: "the generator reaches almost none of the variety",
}


def interpret(result: Result) -> Interpretation:
    """A score in words, by the rules of this module.

    Args:
        result: Any score; little can be said of one without precision, recall and coverage.
    """
    fidelity, recall = share_of(result, metrics.precision), share_of(result, metrics.recall)
    coverage = share_of(result, metrics.coverage, expected=_expected_coverage(result, fidelity))
    diversity = recall or coverage
    if recall is not None and coverage is not None and coverage.high < min(recall.low, 1.0) - 0.1:
        diversity = coverage
    codes = {item.code for item in result.notices}
    shares = dict.fromkeys(share for share in (fidelity, recall, diversity) if share is not None)
    conditional = _conditional(result)
    caveats = tuple(_caveats(result, fidelity, recall, diversity, codes))
    if not shares and conditional:
        return Interpretation(conditional[0], tuple(conditional[1:]), caveats)
    contradiction = _contradiction(result)
    summary = " ".join(filter(None, [_summary(fidelity, diversity, codes), contradiction]))
    evidence = [_evidence(result, share) for share in shares]
    evidence += [text for text in conditional if not contradiction.endswith(text[1:])]
    return Interpretation(summary, tuple(dict.fromkeys(evidence)), caveats)


def _expected_coverage(result: Result, fidelity: Share | None) -> float | None:
    """What the good fakes alone would cover if they were a perfect generator's; None where that is the null."""
    found = result.metrics.get(metrics.coverage.name)
    if found is None or found.null is None or found.k is None or fidelity is None or fidelity.value >= 1:
        return None
    ratio = result.fake.n / result.real.n
    good = 1 - (1 + max(fidelity.value, 1 / result.fake.n) * ratio) ** -found.k
    return found.null * good / (1 - (1 + ratio) ** -found.k)


def _filled(template: str, share: Share) -> str:
    return template.format(most_lost=percent(1 - share.low), lost=share.lost, Lost=capital(share.lost))


def _summary(fidelity: Share | None, diversity: Share | None, codes: set[str]) -> str:
    if "same-input" in codes:
        return "Both sets hold the same images, so these numbers say nothing about a generator."
    if fidelity is None and diversity is None:
        return "These metrics measure how far apart the two sets are; precision and recall would tell in which way."
    images = "" if fidelity is None else _filled(_FIDELITY[fidelity.grade], fidelity)
    variety = "" if diversity is None else _filled(_DIVERSITY[diversity.grade], diversity)
    if fidelity is None or diversity is None:
        missing = "fidelity" if fidelity is None else "diversity"
        return capital(f"{images}{variety}; {missing} was not scored.")
    if fidelity.grade is Grade.NONE and diversity.grade is not Grade.NONE:
        return f"{images}; diversity can therefore not be judged."
    is_complete = diversity.grade in (Grade.WHOLE, Grade.UNCERTAIN)
    if is_complete and "missing-kinds" in codes:
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


def _caveats(
    result: Result, fidelity: Share | None, recall: Share | None, diversity: Share | None, codes: set[str]
) -> list[str]:
    if "same-input" in codes:
        return []
    found = [text for code, text in _CAVEATS.items() if code in codes]
    if recall is not None and diversity is not None and diversity.metric != recall.metric:
        found.append(
            f"Recall alone is {percent(recall.value)} of its null, but coverage contradicts it: stray fakes have large "
            "balls, which contain reals that resemble none of them. The summary follows coverage."
        )
    density = share_of(result, metrics.density)
    if fidelity is not None and fidelity.grade is Grade.WHOLE and density is not None and density.high < 0.8:
        found.append(
            f"Density is only {percent(density.value)} of its null: the fakes lie at the edge of the reals."
        )
    if fidelity is not None and fidelity.low > 1 + SLACK:
        found.append(
            "More fakes are close to reals than of a perfect generator; check for truncation or copies."
        )
    shares = dict.fromkeys(share for share in (fidelity, diversity) if share is not None)
    if wide := [share.metric for share in shares if share.is_wide]:
        found.append(
            f"The interval of {' and '.join(wide)} is wide: score more images before you decide on it."
        )
    if any(not share.is_measured for share in shares):
        found.append("Without intervals, three binomial standard errors are used.")
    return found


_WORST_NAMED = 3
_FAILS = 2 / 3  # of what could be reached


def _conditional(result: Result) -> list[str]:
    """A sentence per family of labels, prompts and entities that the result has."""
    found = [_labels(result), _prompts(result)]
    images = result.metrics.get("retrieval.t2i_r_precision")
    if images is not None and images.pool is not None and images.chance is not None:
        text = f"{percent(images.value)} of the prompts rank their own image first among {images.pool:,}"
        found.append(f"{text}{', no better than chance' * _is_chance(images)}.")
    recall, entities = result.metrics.get("entity.recall"), result.entities
    if recall is not None:
        rows = () if entities is None else entities.rows
        worst = _worst([(row.entity, row.n_found / row.n_expected, 1.0) for row in rows if row.n_expected])
        found.append(f"Of the expected entities, {percent(recall.value)} are found on average{worst}.")
    if entities is not None and entities.unreadable:
        bad, total = len(entities.unreadable), entities.n_answers
        found.append(f"{bad:,} of {total:,} answers could not be read, and are in no score.")
    return [text for text in found if text]


def _contradiction(result: Result) -> str:
    """What contradicts a good summary of the images: labels or prompts that they do not match."""
    test, ranked = (result.metrics.get(name) for name in ("label.gan_test", "retrieval.r_precision"))
    if test is not None and test.null is not None and not _reaches(test, test.null):
        return f"But a{_labels(result)[1:]}"
    return f"But {_prompts(result)}" if ranked is not None and _is_chance(ranked) else ""


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


def _prompts(result: Result) -> str:
    metric = result.metrics.get("retrieval.r_precision")
    if metric is None or metric.pool is None:
        return ""
    text = f"{percent(metric.value)} of the images rank their own prompt first among {metric.pool:,}"
    if metric.chance is None:
        return f"{text}."
    return f"{text}{', no better than chance' * _is_chance(metric)} (chance: {percent(metric.chance)})."


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
    if not failing:
        return ""
    more = f" and {len(failing) - _WORST_NAMED:,} more" if len(failing) > _WORST_NAMED else ""
    return f"; worst: {', '.join(failing[:_WORST_NAMED])}{more}"


def interpret_comparison(comparison: Comparison, ranking: Ranking | None) -> Interpretation:
    """A comparison in words, by the rules of this module.

    Args:
        comparison: At least two results.
        ranking: Of the same; None where they lack what it needs, or were not scored alike.
    """
    first, *others = comparison.results
    found = {name: _contrasts(comparison, name) for name in others}
    lines = [_line(name, first, found[name], comparison.metrics) for name in others]
    ranked = "" if ranking is None else _ranked(ranking)
    changed = [
        name
        for name, each in found.items()
        if any(direction(one) in ("higher", "lower") for one in each.values())
    ]
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
    count = sum(len(each) for each in found.values())
    if count > 1:
        evidence.append(
            f"Each of the {count} differences has a 95 % interval of its own: without any difference, one in twenty would "
            "be found by chance."
        )
    unpaired = [
        name for name, each in found.items() if any(one.pairing == "unpaired" for one in each.values())
    ]
    caveats = []
    if unpaired and not comparison.differences:
        caveats.append(
            f"The differences of {listed(unpaired)} are unpaired (other reals, or other halves of them), so the effect of "
            "the reals does not cancel and the intervals are wider."
        )
    return Interpretation(summary, tuple(evidence), tuple(caveats))


def direction(contrast: Difference | None) -> str:
    """A difference to the first in words: "higher", "lower", "not distinguishable" or "no interval"."""
    if contrast is None:
        return "no interval"
    if contrast.verdict == "not distinguishable":
        return contrast.verdict
    return "higher" if contrast.value > 0 else "lower"


def _contrasts(comparison: Comparison, name: str) -> dict[str, Difference]:
    """Those that are known, by metric."""
    found = {metric: comparison.contrast(name, metric) for metric in comparison.metrics}
    return {metric: each for metric, each in found.items() if each is not None}


def _line(name: str, first: str, found: Mapping[str, Difference], names: Sequence[str]) -> str:
    """One other result against the first: the metrics by the direction of their difference."""
    by_direction: dict[str, list[str]] = {
        "higher": [],
        "lower": [],
        "not distinguishable": [],
        "no interval": [],
    }
    for metric in names:
        by_direction[direction(found.get(metric))].append(metric)
    parts = [f"{word} {listed(each)}" for word, each in by_direction.items() if each]
    return f"{name} against {first}: {'; '.join(parts)}."


def _ranked(ranking: Ranking) -> str:
    """The summary of a ranking as a sentence of its own; names keep their case."""
    is_name = any(ranking.summary.startswith(each.name) for each in ranking.entries)
    return ranking.summary if is_name else capital(ranking.summary)
