"""How much of what a perfect generator scores a metric reaches, and how to say such a share in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from genpr.evaluation.result import Result
from genpr.metrics.metric import BallMetric
from genpr.metrics.value import MetricValue

SLACK = 0.03
"""A loss that is surely smaller than this is not worth a word; it also keeps a perfect generator from being blamed."""
_WHOLE_AT_LEAST = 0.85
_NONE, _SURELY_NONE = 0.10, 0.25
_WIDE = 0.20
_STAND_IN = 3.0  # standard errors; those of neighbours' metrics are up to 1.5 times binomial ones
_FRACTIONS = (
    (1 / 10, "a tenth"),
    (1 / 5, "a fifth"),
    (1 / 4, "a quarter"),
    (1 / 3, "a third"),
    (2 / 5, "two fifths"),
    (1 / 2, "half"),
    (3 / 5, "three fifths"),
    (2 / 3, "two thirds"),
    (3 / 4, "three quarters"),
    (4 / 5, "four fifths"),
    (9 / 10, "nine tenths"),
)


class Grade(Enum):
    """What is known of a share.

    WHOLE: No loss of 3 % or more is certain, and none beyond 15 % is possible.
    UNSETTLED: No loss of 3 % or more is certain, but more than 15 % may be lost.
    PART: Something is lost for certain.
    NONE: Less than a tenth is there, and less than a quarter for certain.
    """

    WHOLE = "whole"
    UNSETTLED = "unsettled"
    PART = "part"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Share:
    """A metric over its null, with both ends of its interval.

    Attributes:
        metric: Its name.
        value: Over the null; may pass 1.
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
            return Grade.WHOLE if self.low >= _WHOLE_AT_LEAST else Grade.UNSETTLED
        is_none = self.value < _NONE and self.high < _SURELY_NONE
        return Grade.NONE if is_none else Grade.PART

    @property
    def is_wide(self) -> bool:
        """Whether the ends are more than a fifth of the whole apart."""
        return min(self.high, 1.0) - self.low > _WIDE

    @property
    def lost(self) -> str:
        """The part that is not there, in words: "about a third", or "between 34 % and 63 %" where that is not known well."""
        if self.is_wide:
            return f"somewhere between {percent(1 - min(self.high, 1.0))} and {percent(1 - self.low)}"
        return about(1 - self.value)

    @property
    def most_lost(self) -> str:
        """The largest part that may be missing."""
        return f"up to {percent(1 - self.low)}"


def share_of(result: Result, metric: BallMetric, *, expected: float | None = None) -> Share | None:
    """A metric of a result over its null; None where it was not scored or has no null to reach.

    Args:
        result: The score.
        metric: One of which more is better.
        expected: What to hold it against instead of its null.
    """
    found = result.metrics.get(metric.name)
    null = None if found is None or found.relative is None else found.null
    whole = null if expected is None else expected
    if found is None or null is None or not whole or whole <= 0:
        return None
    low, high = found.interval or _stand_in(found, null, result, metric.over)
    return Share(metric.name, found.value / whole, low / whole, high / whole, found.interval is not None)


def about(share: float) -> str:
    """A share between 0 and 1 as the nearest simple fraction; percent where none is near."""
    if share < 0.07:
        return f"a small part ({percent(share)})"
    if share > 0.95:
        return "almost all"
    size, words = min(_FRACTIONS, key=lambda fraction: abs(fraction[0] - share))
    return f"about {words}" if abs(size - share) <= 0.06 else f"about {percent(share)}"


def percent(share: float) -> str:
    """Whole percents, never "0 %" of something that is there nor "100 %" of what is not whole."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{share:.0%}".replace("%", " %")


def _stand_in(metric: MetricValue, null: float, result: Result, over: str) -> tuple[float, float]:
    """Ends for a share of images whose interval was not computed."""
    n = result.fake.n if over == "fake" else result.real.n
    middle = min(max((metric.value + null) / 2, 0.0), 1.0)
    arm = _STAND_IN * math.sqrt(middle * (1 - middle) / max(n, 1)) + 1 / max(n, 1)
    return max(0.0, metric.value - arm), metric.value + arm
