"""Summaries of scores and comparisons in sentences, by the rules of docs/report.md.

Let m be precision divided by its null (the share of good fakes), k the number of neighbors and r the number of fakes per
real. That many good fakes cover 1 - (1 + m r)^-k of the reals, up to terms of 1 / n (Naeem et al. 2020, arXiv:2002.09797,
with balls of m r times as many fakes as reals). Coverage is compared with this value, so that unrealistic fakes do not also
count as missing variety.
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
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import Difference
from genpr.metrics.value import MetricValue
from genpr.report.text import capital, number, percent

SLACK = 0.03
"""A certain loss below this is ignored."""
_WHOLE_AT_LEAST = 0.85
_NONE, _SURELY_NONE = 0.10, 0.25
_WIDE = 0.20
_STANDARD_ERRORS = 3.0  # of binomial shares; those of metrics of neighbors are up to 1.5 times as large


class Grade(Enum):
    """Grade of a share: no loss, possibly more than 15 % lost, a certain loss, or almost everything lost."""

    WHOLE = "whole"
    UNCERTAIN = "uncertain"
    PART = "part"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Share:
    """A metric divided by its null, with its 95 % interval, or three binomial standard errors to both sides without one."""

    metric: str
    value: float
    low: float
    high: float
    is_measured: bool

    @property
    def grade(self) -> Grade:
        """Grade by the interval."""
        if self.high >= 1 - SLACK:
            return Grade.WHOLE if self.low >= _WHOLE_AT_LEAST else Grade.UNCERTAIN
        return Grade.NONE if self.value < _NONE and self.high < _SURELY_NONE else Grade.PART

    @property
    def is_wide(self) -> bool:
        """Whether the interval up to 1 is wider than 0.2."""
        return min(self.high, 1.0) - self.low > _WIDE

    @property
    def lost(self) -> str:
        """The missing part: "about 33 %", or "between 34 % and 63 %" if the interval is wide."""
        if self.is_wide:
            return f"between {percent(1 - min(self.high, 1.0))} and {percent(1 - self.low)}"
        return f"about {percent(1 - self.value)}"


def share_of(result: Result, metric: BallMetric, *, expected: float | None = None) -> Share | None:
    """A metric divided by its null, or by `expected`; None if it was not scored or has no null.

    Without an interval, the standard errors of a calibrated metric are those of a share of one half, the largest ones.
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
        middle = 0.5 if metric.calibrates else min(max((found.value + found.null) / 2, 0.0), 1.0)
        margin = _STANDARD_ERRORS * math.sqrt(middle * (1 - middle) / n) + 1 / n
        low, high = max(0.0, found.value - margin), found.value + margin
    return Share(metric.name, found.value / whole, low / whole, high / whole, found.interval is not None)


def _calibrated(result: Result, calibrated: BallMetric, raw: BallMetric) -> Share | None:
    """The calibrated metric, or the raw one over its null if only that one has an interval or was scored."""
    found, of_raw = share_of(result, calibrated), share_of(result, raw)
    return of_raw if found is None or (of_raw is not None and not found.is_measured) else found


@dataclass(frozen=True, slots=True)
class Interpretation:
    """A score in words."""

    summary: str  # the main finding; empty without any
    caveats: Sequence[str]  # reasons to trust it less, besides the warnings
    others: Sequence[str]  # labels, prompts, entities and pairs


_FIDELITY = {
    Grade.WHOLE: "the generated images look like real ones",
    Grade.UNCERTAIN: "up to {most_lost} of the generated images may not look like real ones",
    Grade.PART: "{lost} of the generated images do not look like any real image",
    Grade.NONE: "almost none of the generated images look like real ones",
}
_DIVERSITY = {
    Grade.WHOLE: "no missing variety was found",
    Grade.UNCERTAIN: "up to {most_lost} of the variety may be missing",
    Grade.PART: "the generator misses {lost} of the variety (by {metric})",
    Grade.NONE: "the generator covers almost none of the variety",
}
_COPIES = {
    "near-copies": "More of the generated images are nearly identical to real images than chance explains",
    "copying": "The generated images are nearer to the training images than other real images are",
}


def interpret(result: Result) -> Interpretation:
    """A score in words. Fidelity needs precision; diversity needs recall or coverage."""
    fidelity, recall, coverage, is_stray = _shares(result)
    diversity = coverage if is_stray or recall is None else recall
    judged = [share for share in (fidelity, diversity) if share is not None]
    conditional, caveats = _conditional(result), list[str]()
    if is_stray and recall is not None:
        caveats.append(
            f"Recall is {percent(recall.value)} of the value of a perfect generator, but coverage contradicts it: outlying "
            "fakes have large balls, which contain reals that do not resemble them. The summary uses coverage."
        )
    if wide := [plain(share.metric) for share in judged if share.is_wide]:
        caveats.append(
            f"The interval of {' and '.join(wide)} is wide; score more images for a firm conclusion."
        )
    if not all(share.is_measured for share in judged):
        caveats.append("Intervals were not computed; the summary allows for three binomial standard errors.")
    if not judged:
        return Interpretation(
            "".join(text for text, _ in conditional[:1]), caveats, [text for text, _ in conditional[1:]]
        )
    contradictions = [f"But {text[0].lower()}{text[1:]}" for text, is_bad in conditional if is_bad]
    parts = [copies_of(result), _summary(result, fidelity, diversity), *contradictions]
    return Interpretation(
        " ".join(filter(None, parts)), caveats, [text for text, is_bad in conditional if not is_bad]
    )


def _shares(result: Result) -> tuple[Share | None, Share | None, Share | None, bool]:
    """Precision, recall and coverage, and whether coverage contradicts recall.

    It does so with stray fakes, which have large balls that contain reals that resemble none of them.
    """
    fidelity = _calibrated(result, metrics.calibrated_precision, metrics.precision)
    recall = _calibrated(result, metrics.calibrated_recall, metrics.recall)
    coverage = share_of(result, metrics.coverage, expected=_expected_coverage(result, fidelity))
    is_stray = recall is not None and coverage is not None and coverage.high < min(recall.low, 1.0) - 0.1
    return fidelity, recall, coverage, is_stray


def _expected_coverage(result: Result, fidelity: Share | None) -> float | None:
    """The coverage of the good fakes alone if a perfect generator had made them; None if that is the null."""
    found = result.metrics.get(metrics.coverage.name)
    if found is None or found.null is None or found.k is None or fidelity is None or fidelity.value >= 1:
        return None
    ratio = result.fake.n / result.real.n
    good = 1 - (1 + max(fidelity.value, 1 / result.fake.n) * ratio) ** -found.k
    return found.null * good / (1 - (1 + ratio) ** -found.k)


def copies_of(result: Result) -> str:
    """A sentence if so many fakes copy reals that high values are not due to quality."""
    codes = {item.code for item in result.notices}
    share = result.n_shared / result.fake.n
    if "copied-reals" in codes and share >= SLACK:
        return f"{percent(share)} of the generated images are copies of real images, so these values do not show quality."
    found = next((text for code, text in _COPIES.items() if code in codes), "")
    return found and f"{found}, so high values may come from memorization."


def _summary(result: Result, fidelity: Share | None, diversity: Share | None) -> str:
    codes = {item.code for item in result.notices}
    if "same-input" in codes:
        return "Both sets hold the same images, so these numbers do not describe a generator."
    images, variety = (
        ""
        if share is None
        else texts[share.grade].format(
            most_lost=percent(1 - share.low), lost=share.lost, metric=plain(share.metric)
        )
        for share, texts in ((fidelity, _FIDELITY), (diversity, _DIVERSITY))
    )
    if fidelity is None or diversity is None:
        missing = "fidelity" if fidelity is None else "diversity"
        return capital(f"{images}{variety}; {missing} was not scored.")
    if fidelity.grade is Grade.NONE and diversity.grade is not Grade.NONE:
        variety = "diversity therefore cannot be assessed"
    elif diversity.grade in (Grade.WHOLE, Grade.UNCERTAIN) and "missing-modes" in codes:
        variety = "the generator leaves out some kinds of images"
    elif fidelity.grade is diversity.grade is Grade.WHOLE and not codes & {"copied-reals", *_COPIES}:
        variety += ". Precision and recall do not distinguish the generator from a perfect one"
    return capital(f"{images}; {variety}.")


def plain(name: str) -> str:
    """The name of a metric as words."""
    return name.replace("_", " ")


def _conditional(result: Result) -> list[tuple[str, bool]]:
    """A sentence for each of labels, prompts, entities and pairs, and whether it contradicts a good summary."""
    found = []
    metric = result.metrics.get("label.gan_test") or result.metrics.get("label.accuracy")
    if metric is not None and metric.null is None:
        found.append((f"{percent(metric.value)} of the labels are correct.", False))
    elif metric is not None and metric.null is not None:
        shares = f"{percent(metric.value)} of the fakes as requested, and {percent(metric.null)} of reals"
        high = metric.value if metric.interval is None else metric.interval[1]
        found.append((f"A classifier of the reals labels {shares}.", high < (1 - SLACK) * metric.null))
    for name, what in (
        ("r_precision", "images rank their own prompt"),
        ("t2i_r_precision", "prompts rank their own image"),
    ):
        metric = result.metrics.get(f"retrieval.{name}")
        if metric is None or metric.pool is None:
            continue
        ends, chance = metric.interval, metric.chance
        is_chance = ends is not None and chance is not None and ends[0] <= chance <= ends[1]
        level = "" if chance is None else f" (chance: {percent(chance)})"
        no_better = ", no better than chance" * is_chance
        text = f"{percent(metric.value)} of the {what} first among {metric.pool:,}{no_better}{level}."
        found.append((text, is_chance and name == "r_precision"))
    if (recall := result.metrics.get("entity.recall")) is not None:
        found.append((f"On average, {percent(recall.value)} of the expected entities are found.", False))
    if (pairs := result.reconstruction) is not None:
        shown = [f"{name.partition('.')[2]} is {number(each.value)}" for name, each in result.metrics.items()]
        found.append(
            (f"For {pairs.n_pairs:,} pairs of originals and reconstructions, {listed(shown)}.", False)
        )
    return found


def interpret_comparison(comparison: Comparison, ranking: Ranking | None) -> str:
    """The main finding about at least two results, with their ranking, if there is one."""
    first, *others = comparison.results
    contrasts = {
        name: [each for metric in comparison.metrics if (each := comparison.contrast(name, metric))]
        for name in others
    }
    changed = [
        name for name in others if any(direction(each) in ("higher", "lower") for each in contrasts[name])
    ]
    if comparison.differences:
        return "These results were not scored alike, so their differences may come from the scoring."
    if ranking is not None and ranking.has_bounds and len(others) > 1:
        summary = f"{ranking.summary} {_quality_of(comparison, ranking.winner)}".strip()
    elif not any(contrasts.values()):
        summary = "No interval of a difference is known, so no difference can be called significant."
    elif len(others) == 1 and (better := _better_of_two(comparison)):
        summary = better
    elif not changed:
        summary = f"No other result is distinguishable from {first}."
    else:
        summary = f"Distinguishable from {first}: {listed(changed)}."
    if copying := [name for name, result in comparison.results.items() if copies_of(result)]:
        which = f"The values of {listed(copying)} are not reliable"
        summary = f"{which}: generated images are copies or near-copies of real images. {summary}"
    return summary


_ASPECTS = {
    "fidelity": (metrics.calibrated_precision, metrics.precision, metrics.density),
    "diversity": (metrics.calibrated_recall, metrics.recall, metrics.coverage),
}
"""Metrics that stand for a property, the first that was scored."""


def _aspects(comparison: Comparison) -> dict[str, str]:
    """The metric that stands for fidelity and for diversity; without any, the first metrics under their own names."""
    scored = comparison.metrics
    found = {
        aspect: next(metric.name for metric in known if metric.name in scored)
        for aspect, known in _ASPECTS.items()
        if any(metric.name in scored for metric in known)
    }
    if metrics.coverage.name in scored and any(_shares(each)[-1] for each in comparison.results.values()):
        found["diversity"] = metrics.coverage.name
    return found or {plain(name): name for name in scored[:_MAX_METRICS]}


_MAX_METRICS = 3


def _level(metric: MetricValue) -> str:
    """The value in percent of that of a perfect generator, or the value if that is unknown."""
    return number(metric.value) if metric.relative is None else f"{100 * metric.relative:.0f} %"


_SCALE = "100 % is a perfect generator."


def _quality_of(comparison: Comparison, name: str) -> str:
    """The fidelity and diversity of one result relative to a perfect generator."""
    result = comparison.results[name]
    found = {label: result.metrics[metric] for label, metric in _aspects(comparison).items()}
    parts = [f"{label} {_level(value)}" for label, value in found.items() if value.relative is not None]
    return f"{name} has {listed(parts)}; {_SCALE}" if parts else ""


def _better_of_two(comparison: Comparison) -> str:
    """Which of two results is better in fidelity and diversity, with the values of both; empty if no interval is known."""
    (first, one), (other, two) = comparison.results.items()
    better, alike, is_relative = dict[str, list[str]](), list[str](), False
    for label, metric in _aspects(comparison).items():
        values, contrast = (one.metrics[metric], two.metrics[metric]), comparison.contrast(other, metric)
        if contrast is None:
            continue
        is_relative |= all(value.relative is not None for value in values)
        levels = list(map(_level, values))
        quality, pair = quality_of(metric, contrast, values[1], values[0]), " and ".join(levels)
        if quality:
            winner, ordered = (other, levels[::-1]) if quality == "better" else (first, levels)
            better.setdefault(winner, []).append(f"{label} ({' against '.join(ordered)})")
        elif direction(contrast) == "not distinguishable":
            alike.append(f"{first} and {other} are not distinguishable in {label} ({pair}).")
        elif ALL_METRICS[metric].better == "at null":
            alike.append(f"{first} and {other} differ in {label} ({pair}).")
        else:
            alike.append(f"{first} and {other} both reach the {label} of a perfect generator ({pair}).")
    verbs = {
        name: "has better values" if copies_of(comparison.results[name]) else "is better" for name in better
    }
    parts = "; ".join(f"{name} {verbs[name]} in {listed(which)}" for name, which in better.items())
    return " ".join([*[f"{parts}."] * bool(parts), *alike, *[_SCALE] * is_relative])


def quality_of(metric: str, contrast: Difference | None, found: MetricValue, first: MetricValue) -> str:
    """Whether `found` is "better" or "worse" than `first`; empty if unknown, or if both exceed that of a perfect generator."""
    better, verdict = ALL_METRICS[metric].better, direction(contrast)
    if verdict not in ("higher", "lower") or better == "at null":
        return ""
    shares = [each.relative for each in (found, first) if each.relative is not None]
    if better == "higher" and len(shares) == 2 and min(shares) >= 1:
        return ""
    return "better" if verdict == better else "worse"


def direction(contrast: Difference | None) -> str:
    """A difference from the first result: "higher", "lower", "not distinguishable" or "no interval"."""
    if contrast is None:
        return "no interval"
    if contrast.verdict == "not distinguishable":
        return contrast.verdict
    return "higher" if contrast.value > 0 else "lower"
