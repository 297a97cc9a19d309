"""`--fail-under` and `--fail-over`: a score as a gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from genpr.cli.console import complain
from genpr.cli.options import Command, threshold, with_options
from genpr.errors import some

if TYPE_CHECKING:
    from genpr.evaluation.result import Result

_THRESHOLD_MISSED = 5

Thresholds = Sequence[tuple[str, float]]
"""Metric and limit of each."""


def threshold_options(command: Command) -> Command:
    """Both of them."""
    return with_options(command, _OPTIONS)


def check_thresholds(computed: Sequence[str], fail_under: Thresholds, fail_over: Thresholds) -> None:
    """Refuse a gate on what is not computed, or on the wrong side: it would always be open.

    Raises:
        click.UsageError: There is one.
    """
    from genpr.metrics.registry import ALL_METRICS

    for option, better, thresholds in (
        ("--fail-under", "higher", fail_under),
        ("--fail-over", "lower", fail_over),
    ):
        for metric, _ in thresholds:
            if metric not in computed:
                names = some(computed, 20)
                raise click.UsageError(f"{option} {metric}=...: not among the computed metrics {names}")
            # What is best in the middle has two wrong sides.
            if ALL_METRICS[metric].better not in (better, "at null"):
                other = "--fail-over" if better == "higher" else "--fail-under"
                raise click.UsageError(
                    f"{option} {metric}=...: of {metric}, {ALL_METRICS[metric].better} is better; use {other}"
                )


def exit_code_of(results: Sequence[Result], fail_under: Thresholds, fail_over: Thresholds) -> int:
    """0, or 5 where a threshold is missed, each of which is told on stderr."""
    missed = [*_missed(results, fail_under, "below"), *_missed(results, fail_over, "above")]
    for line in missed:
        complain(line)
    return _THRESHOLD_MISSED if missed else 0


def _missed(results: Sequence[Result], thresholds: Thresholds, side: str) -> list[str]:
    """One line per threshold on whose wrong `side` a value is."""
    lines = []
    for result in results:
        for metric, limit in thresholds:
            if metric not in result.metrics:
                lines.append(f"missed: {metric} has no value with these images")
            value = result[metric] if metric in result.metrics else limit
            if value < limit if side == "below" else value > limit:
                under = f" under {result.protocol}" if len(results) > 1 else ""
                lines.append(f"missed: {metric} is {value:.4f}{under}, {side} {limit:g}")
    return lines


_OPTIONS = (
    click.option(
        "--fail-under",
        type=threshold,
        metavar="METRIC=X",
        multiple=True,
        help="Exit 5 if the metric is below x; may be repeated.",
    ),
    click.option(
        "--fail-over",
        type=threshold,
        metavar="METRIC=X",
        multiple=True,
        help="Exit 5 if the metric is above x, for those of which less is better, such as fid.",
    ),
)
