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
from genpr.metrics.registry import ALL_METRICS, BALLS
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
        """Whether the interval is wider than 0.2."""
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
    """A score or a comparison in words."""

    summary: str  # the main finding
    caveats: tuple[str, ...]  # reasons to trust it less
    fidelity: tuple[str, ...] = ()  # the values behind the statement about fidelity
    diversity: tuple[str, ...] = ()  # the values behind the statement about diversity
    others: tuple[str, ...] = ()  # labels, prompts, entities and pairs; or the differences of a comparison

    @property
    def evidence(self) -> tuple[str, ...]:
        """All values behind the summary."""
        return (*self.fidelity, *self.diversity, *self.others)


def plain(name: str) -> str:
    """The name of a metric as words."""
    return name.replace("_", " ")


_CAVEATS = {
    "protocol-not-met": "The protocol was not met, so these numbers are not comparable with others of this protocol.",
    "copied-reals": "some fakes are byte-identical copies of reals; copies raise every metric.",
    "near-copies": "some fakes are near-copies of reals, which suggests memorization.",
    "copying": "the fakes are nearer to the training images than other reals are, which suggests memorization.",
    "duplicates": "Many images are duplicates, which affects every number.",
    "near-duplicates": "Many images are near-duplicates of others in their own set, which lowers these numbers.",
    "shrinkage": "The fakes are closer together than the reals, which raises precision, density and coverage.",
    "outlier-dominance": "The balls of a few outliers among the reals contain many fakes, so fidelity may be overestimated.",
}
_FIDELITY = {
    Grade.WHOLE: "the generated images look like real ones",
    Grade.UNCERTAIN: "the generated images look like real ones, but up to {most_lost} of them may not",
    Grade.PART: "{lost} of the generated images do not look like any real image",
    Grade.NONE: "almost none of the generated images look like real ones",
}
_DIVERSITY = {
    Grade.WHOLE: "no missing variety was found",
    Grade.UNCERTAIN: "no loss of variety is certain, but up to {most_lost} of it may be missing",
    Grade.PART: "the generator misses {lost} of the variety (by {metric})",
    Grade.NONE: "the generator covers almost none of the variety",
}


def interpret(result: Result) -> Interpretation:
    """A score in words. Fidelity needs precision; diversity needs recall or coverage."""
    fidelity, recall, coverage, is_stray = _shares(result)
    diversity = coverage if is_stray or recall is None else recall
    codes = {item.code for item in result.notices}
    judged = list(dict.fromkeys(share for share in (fidelity, diversity) if share is not None))
    conditional = _conditional(result)
    caveats = _caveats(judged, recall if is_stray else None, codes, copies=_has_many_copies(result))
    if not judged and conditional:
        return Interpretation(conditional[0], caveats, others=tuple(conditional[1:]))
    contradiction = _contradiction(result)
    summary = " ".join(filter(None, [_copies(result), _summary(fidelity, diversity, codes), contradiction]))
    shares = dict.fromkeys(share for share in (recall, diversity) if share is not None)
    return Interpretation(
        summary,
        caveats,
        fidelity=() if fidelity is None else (_evidence(result, fidelity),),
        diversity=tuple(_evidence(result, share) for share in shares),
        others=tuple(text for text in conditional if not contradiction.endswith(text[1:])),
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


_COPIES = ("copied-reals", "near-copies", "copying")


def _has_many_copies(result: Result) -> bool:
    """Whether fakes copy reals, and not only so few that they hardly change a value."""
    codes = {item.code for item in result.notices}
    few = {"copied-reals"} if result.n_shared < SLACK * result.fake.n else set()
    return bool(codes & {*_COPIES} - few)


def _copies(result: Result) -> str:
    """A sentence if the fakes copy reals, which gives high values that are not due to quality."""
    codes = {item.code for item in result.notices}
    count, total = result.n_shared, result.fake.n
    if "copied-reals" in codes and count < SLACK * total:
        copied = "is a copy of a real image" if count == 1 else "are copies of real images"
        return f"{count:,} of {total:,} generated images {copied}."
    if "copied-reals" in codes:
        copied = f"{percent(count / total)} of the generated images are copies of real images"
        return f"{copied}, so these values do not show quality."
    if "near-copies" in codes:
        copied = "More of the generated images are nearly identical to real images than chance explains"
    elif "copying" in codes:
        copied = "The generated images are nearer to the training images than other real images are"
    else:
        return ""
    return f"{copied}, so high values may come from memorization."


def _expected_coverage(result: Result, fidelity: Share | None) -> float | None:
    """The coverage of the good fakes alone if a perfect generator had made them; None if that is the null."""
    found = result.metrics.get(metrics.coverage.name)
    if found is None or found.null is None or found.k is None or fidelity is None or fidelity.value >= 1:
        return None
    ratio = result.fake.n / result.real.n
    good = 1 - (1 + max(fidelity.value, 1 / result.fake.n) * ratio) ** -found.k
    return found.null * good / (1 - (1 + ratio) ** -found.k)


def _summary(fidelity: Share | None, diversity: Share | None, codes: set[str]) -> str:
    if "same-input" in codes:
        return "Both sets hold the same images, so these numbers do not describe a generator."
    if fidelity is None and diversity is None:
        return "These metrics measure the distance between the two sets. Precision and recall would separate fidelity and diversity."
    images, variety = (
        ""
        if share is None
        else texts[share.grade].format(
            most_lost=percent(1 - share.low), lost=share.lost, metric=plain(share.metric)
        )
        for share, texts in ((fidelity, _FIDELITY), (diversity, _DIVERSITY))
    )
    images = capital(images)
    if fidelity is None or diversity is None:
        missing = "fidelity" if fidelity is None else "diversity"
        return capital(f"{images}{variety}; {missing} was not scored.")
    if fidelity.grade is Grade.NONE and diversity.grade is not Grade.NONE:
        return f"{images}; diversity therefore cannot be assessed."
    if diversity.grade in (Grade.WHOLE, Grade.UNCERTAIN) and "missing-modes" in codes:
        return f"{images}; {variety}, except for some kinds of images that the generator leaves out."
    if fidelity.grade is diversity.grade is Grade.WHOLE and not codes & {*_COPIES}:
        return (
            f"{images}; {variety}. Precision and recall do not distinguish the generator from a perfect one."
        )
    return f"{images}; {variety}."


def _evidence(result: Result, share: Share) -> str:
    metric, name = result.metrics[share.metric], share.metric
    if (raw := BALLS[name].calibrates) is not None:
        word = "varied" if "diversity" in BALLS[name].meaning else "good"
        ends = f"95 % interval {share.low:.2f} to {share.high:.2f}; " if share.is_measured else ""
        found = result.metrics.get(raw)
        values = (
            ""
            if found is None or found.null is None
            else f" {capital(raw)} is {found.value:.3f}, and {found.null:.3f} for a perfect generator."
        )
        return f"{capital(plain(name))} is {metric.value:.2f} ({ends}1 is as {word} as real images).{values}"
    ends = f" (95 % interval {percent(share.low)} to {percent(share.high)})" if share.is_measured else ""
    whole = metric.value / share.value if share.value else metric.null or 0.0
    reference = "a perfect generator"
    if metric.null is not None and abs(whole - metric.null) > 1e-9:
        reference = "this number of good fakes"
    return f"{capital(name)} is {metric.value:.3f}, {percent(share.value)} of the value of {reference}, {whole:.3f}{ends}."


def _caveats(
    judged: Sequence[Share], stray: Share | None, codes: set[str], *, copies: bool
) -> tuple[str, ...]:
    """Reasons to trust the summary less, the most important first.

    `stray` is recall where coverage contradicts it, and `copies` means that many fakes copy reals.
    """
    if "same-input" in codes:
        return ()
    found = [
        f"Not reliable: {text}" if copies and code in _COPIES else capital(text)
        for code, text in _CAVEATS.items()
        if code in codes
    ]
    if stray is not None:
        found.append(
            f"Recall is {percent(stray.value)} of the value of a perfect generator, but coverage contradicts it: outlying "
            "fakes have large balls, which contain reals that do not resemble them. The summary uses coverage."
        )
    if wide := [plain(share.metric) for share in judged if share.is_wide]:
        found.append(
            f"The interval of {' and '.join(wide)} is wide; score more images for a firm conclusion."
        )
    if any(not share.is_measured for share in judged):
        found.append("Intervals were not computed; the summary allows for three binomial standard errors.")
    return tuple(found)


_WORST_NAMED = 3
_FAILS = 2 / 3  # of the best possible value


def _conditional(result: Result) -> list[str]:
    """A sentence for each of labels, prompts, entities and pairs that the result has."""
    found = [
        _labels(result),
        _ranked(result, "retrieval.r_precision", "images rank their own prompt"),
        _ranked(result, "retrieval.t2i_r_precision", "prompts rank their own image"),
    ]
    recall, entities = result.metrics.get("entity.recall"), result.entities
    if recall is not None:
        rows = () if entities is None else entities.rows
        worst = _worst([(row.entity, row.n_found / row.n_expected, 1.0) for row in rows if row.n_expected])
        found.append(f"On average, {percent(recall.value)} of the expected entities are found{worst}.")
    if entities is not None and entities.unreadable:
        bad, total = len(entities.unreadable), entities.n_answers
        found.append(f"{bad:,} of {total:,} answers could not be read and are excluded from all scores.")
    pairs = result.reconstruction
    if pairs is not None:
        shown = [f"{name.partition('.')[2]} is {number(each.value)}" for name, each in result.metrics.items()]
        found.append(f"For {pairs.n_pairs:,} pairs of originals and reconstructions, {listed(shown)}.")
    return [text for text in found if text]


def _contradiction(result: Result) -> str:
    """A sentence if the images do not match their labels or prompts, which a good summary would hide."""
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
    """The worst of those that miss a third or more of their null; `shares` are sorted, the worst first."""
    failing = [
        f"{cut(name, 40)} ({percent(share)})"
        for name, share, null in shares
        if share is not None and share <= _FAILS * (1.0 if null is None else null)
    ]
    more = f" and {len(failing) - _WORST_NAMED:,} more" if len(failing) > _WORST_NAMED else ""
    return f"; worst: {', '.join(failing[:_WORST_NAMED])}{more}" if failing else ""


def interpret_comparison(comparison: Comparison, ranking: Ranking | None) -> Interpretation:
    """A comparison of at least two results in words, with their ranking, if there is one."""
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
    best = "" if ranking is None else _quality_of(comparison, ranking.winner)
    if comparison.differences:
        summary = "These results were not scored alike, so their differences may come from the scoring."
    elif ranking is not None and ranking.has_bounds and len(others) > 1:
        summary = f"{ranked} {best}".strip()
    elif not any(found.values()):
        summary = "No interval of a difference is known, so no difference can be called significant."
    elif len(lines) == 1:
        summary = _better_of_two(comparison) or lines[0]
    elif not changed:
        summary = f"None of the {len(lines)} other results is distinguishable from {first}."
    else:
        summary = f"Distinguishable from {first}: {listed(changed)}."
    evidence = [line for line in [*lines, ranked] if line and line not in summary]
    count = sum(map(len, found.values()))
    if count > 1:
        evidence.append(
            f"Each of the {count} differences has a separate 95 % interval. Without any true difference, about one in "
            "twenty would still appear significant."
        )
    copying = [name for name, result in comparison.results.items() if _has_many_copies(result)]
    caveats = []
    if copying and not comparison.differences:
        which = f"The values of {listed(copying)} are not reliable"
        summary = f"{which}: generated images are copies or near-copies of real images. {summary}"
        caveats.append(f"Not reliable: {listed(copying)}, because of copies of reals.")
    unpaired = [name for name in others if any(one.pairing == "unpaired" for one in found[name])]
    if unpaired and not comparison.differences:
        caveats.append(
            f"The differences of {listed(unpaired)} are unpaired (other reals, or other halves of them): the effect of the "
            "reals does not cancel, so the intervals are wider."
        )
    return Interpretation(summary, tuple(caveats), others=tuple(evidence))


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
    better: dict[str, list[str]] = {}
    sentences, is_relative = [], False
    for label, metric in _aspects(comparison).items():
        contrast, values = comparison.contrast(other, metric), (one.metrics[metric], two.metrics[metric])
        if contrast is None:
            continue
        is_relative |= all(value.relative is not None for value in values)
        levels = [_level(value) for value in values]
        pair = f"{label} ({levels[0]} and {levels[1]})"
        match quality_of(metric, contrast, values[1], values[0]):
            case "better":
                better.setdefault(other, []).append(f"{label} ({levels[1]} against {levels[0]})")
            case "worse":
                better.setdefault(first, []).append(f"{label} ({levels[0]} against {levels[1]})")
            case _ if direction(contrast) == "not distinguishable":
                sentences.append(f"{first} and {other} are not distinguishable in {pair}.")
            case _ if ALL_METRICS[metric].better == "at null":
                sentences.append(f"{first} and {other} differ in {pair}.")
            case _:
                sentences.append(
                    f"{first} and {other} both reach the {label} of a perfect generator ({levels[0]} and {levels[1]})."
                )
    parts = [
        f"{name} {'has better values' if _has_many_copies(comparison.results[name]) else 'is better'} in {listed(which)}"
        for name, which in better.items()
    ]
    if parts:
        sentences.insert(0, f"{'; '.join(parts)}.")
    return " ".join([*sentences, *[_SCALE] * is_relative])


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


_ENDINGS = {"no interval": "without an interval"}


def _line(name: str, first: str, contrasts: dict[str, Difference | None]) -> str:
    """Another result compared with the first: the metrics by the direction of their difference."""
    by_direction: dict[str, list[str]] = {
        word: [] for word in ("higher", "lower", "not distinguishable", "no interval")
    }
    for metric, contrast in contrasts.items():
        by_direction[direction(contrast)].append(metric)
    parts = [f"{listed(each)} {_ENDINGS.get(word, word)}" for word, each in by_direction.items() if each]
    return f"{name} against {first}: {'; '.join(parts)}."
