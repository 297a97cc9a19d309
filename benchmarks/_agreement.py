"""Compare the counts of a tool with those of genpr."""

from __future__ import annotations

from dataclasses import dataclass

_SHARE_ALLOWED = 0.001  # of n: float32 tools decide a few borderline pairs differently


@dataclass(frozen=True, slots=True)
class Agreement:
    """Differences between the counts of a tool and those of genpr under the same tie rule.

    Attributes:
        differences: Count minus genpr's, by metric.
        agrees: Whether every difference is at most 0.1 % of what that metric divides by, or 1.
    """

    differences: dict[str, int]
    agrees: bool


def counts_of(values: dict[str, float], *, n: int, k: int) -> dict[str, int]:
    """The integers behind metric values of n reals and n fakes."""
    return {metric: round(value * _denominator(metric, n=n, k=k)) for metric, value in values.items()}


def compare_counts(counts: dict[str, int], reference: dict[str, int], *, n: int, k: int) -> Agreement:
    """Compare the counts of the metrics that the tool computes with those of genpr."""
    differences = {metric: count - reference[metric] for metric, count in counts.items()}
    agrees = all(
        abs(difference) <= max(1, _SHARE_ALLOWED * _denominator(metric, n=n, k=k))
        for metric, difference in differences.items()
    )
    return Agreement(differences, agrees)


def _denominator(metric: str, *, n: int, k: int) -> int:
    return n * k if metric == "density" else n
