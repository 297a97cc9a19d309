"""`--fail-under` and `--fail-over`: a score as a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from genpr.cli.console import complain
from genpr.cli.options import threshold
from genpr.errors import some
from genpr.features.options import option

if TYPE_CHECKING:
    from genpr.evaluation.result import Result

_THRESHOLD_MISSED = 5


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Metrics, and the limit of each."""

    fail_under: Sequence[tuple[str, float]] = option(
        (),
        "Exit 5 if the metric is below x; may be repeated.",
        type=threshold,
        metavar="METRIC=X",
        multiple=True,
    )
    fail_over: Sequence[tuple[str, float]] = option(
        (),
        "Exit 5 if the metric is above x, for those of which less is better, such as fid.",
        type=threshold,
        metavar="METRIC=X",
        multiple=True,
    )

    def check(self, computed: Sequence[str]) -> None:
        """Refuse a gate on what is not computed, or on the wrong side: it would always be open.

        Raises:
            click.UsageError: There is one.
        """
        from genpr.metrics.registry import ALL_METRICS

        for flag, better, limits in (
            ("--fail-under", "higher", self.fail_under),
            ("--fail-over", "lower", self.fail_over),
        ):
            for metric, _ in limits:
                if metric not in computed:
                    names = some(computed, 20)
                    raise click.UsageError(f"{flag} {metric}=...: not among the computed metrics {names}")
                # What is best in the middle has two wrong sides.
                if ALL_METRICS[metric].better not in (better, "at null"):
                    other = "--fail-over" if better == "higher" else "--fail-under"
                    raise click.UsageError(
                        f"{flag} {metric}=...: of {metric}, {ALL_METRICS[metric].better} is better; use {other}"
                    )

    def exit_code(self, results: Sequence[Result]) -> int:
        """0, or 5 where a threshold is missed, each of which is reported on stderr."""
        missed = [*_missed(results, self.fail_under, "below"), *_missed(results, self.fail_over, "above")]
        for line in missed:
            complain(line)
        return _THRESHOLD_MISSED if missed else 0


def _missed(results: Sequence[Result], limits: Sequence[tuple[str, float]], side: str) -> list[str]:
    """One line per threshold on whose wrong `side` a value is."""
    lines = []
    for result in results:
        for metric, limit in limits:
            if metric not in result.metrics:
                lines.append(f"missed: {metric} has no value with these images")
            value = result[metric] if metric in result.metrics else limit
            if value < limit if side == "below" else value > limit:
                under = f" under {result.protocol}" if len(results) > 1 else ""
                lines.append(f"missed: {metric} is {value:.4f}{under}, {side} {limit:g}")
    return lines
