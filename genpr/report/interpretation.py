"""Summaries of scores in sentences, by the rules of docs/report.md.

Let m be precision divided by its null (the share of good fakes), k the number of neighbors and r the number of fakes per
real. That many good fakes cover 1 - (1 + m r)^-k of the reals, up to terms of 1 / n (Naeem et al. 2020, arXiv:2002.09797,
with balls of m r times as many fakes as reals). Coverage is compared with this value, so that unrealistic fakes do not also
count as missing variety.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from genpr.evaluation.result import Result
from genpr.metrics import ball_metrics as metrics
from genpr.metrics.metric import BallMetric
from genpr.report.text import capital, percent

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
    def lost(self) -> str:
        """The missing part: "about 33 %", or "between 34 % and 63 %" if the interval up to 1 is wider than 0.2."""
        high = min(self.high, 1.0)
        if high - self.low > _WIDE:
            return f"between {percent(1 - high)} and {percent(1 - self.low)}"
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


def interpret(result: Result) -> tuple[str, list[str]]:
    """A sentence with the main finding, or "", and reasons to trust it less, besides the warnings.

    Fidelity needs precision; diversity needs recall or coverage.
    """
    fidelity = _calibrated(result, metrics.calibrated_precision, metrics.precision)
    recall = _calibrated(result, metrics.calibrated_recall, metrics.recall)
    covered, expected = result.metrics.get(metrics.coverage.name), None
    if (
        covered is not None
        and covered.known_null
        and covered.k
        and fidelity is not None
        and fidelity.value < 1
    ):
        # The coverage of the good fakes alone if a perfect generator had made them.
        ratio = result.fake.n / result.real.n
        good = 1 - (1 + max(fidelity.value, 1 / result.fake.n) * ratio) ** -covered.k
        expected = covered.known_null * good / (1 - (1 + ratio) ** -covered.k)
    coverage = share_of(result, metrics.coverage, expected=expected)
    diversity, caveats = coverage if recall is None else recall, list[str]()
    # Stray fakes have large balls, which contain reals that resemble none of them.
    if recall is not None and coverage is not None and coverage.high < min(recall.low, 1.0) - 0.1:
        diversity = coverage
        caveats.append(
            f"Recall is {percent(recall.value)} of the value of a perfect generator, but coverage contradicts it: outlying "
            "fakes have large balls, which contain reals that do not resemble them. The summary uses coverage."
        )
    if not all(share is None or share.is_measured for share in (fidelity, diversity)):
        caveats.append("Intervals were not computed; the summary allows for three binomial standard errors.")
    if fidelity is None and diversity is None:
        return "", caveats
    return f"{copies_of(result)} {_summary(result, fidelity, diversity)}".strip(), caveats


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
            most_lost=percent(1 - share.low), lost=share.lost, metric=share.metric.replace("_", " ")
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
