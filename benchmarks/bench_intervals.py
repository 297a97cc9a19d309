"""Coverage of the 95 % intervals of Gaussian sets over many draws, compared with the naive bootstrap."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
import torch
from _interval_cases import (
    BOOTSTRAPPED,
    CASES,
    METRICS,
    IntervalCase,
    Run,
    bootstrap,
    interval_for,
    run_once,
    true_values,
)
from _machine import describe_machine
from numpy.typing import NDArray
from scipy.stats import t as student

_RESULTS = Path(__file__).parent / "results"
_BOOTSTRAP_N = 400  # larger sets take long and fail in the same way
_BATCH = 10
_LEGEND = """\
Truth is the mean of a metric over independent draws of the same sizes, SD its deviation over these. Error: the standard
error that intervals rest on; halves: the deviation over halves without regard to pairs; binomial: that of independent
images. Covered: how many intervals hold the truth (in brackets: with the deviation over halves). Bootstrap: percentile
intervals of resamples with replacement, and how far these are from the truth on average."""
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Record:
    """Result of one metric of one case.

    Attributes:
        case: Description of the case.
        metric: Name of the metric.
        runs: Draws for which an interval was computed.
        truth: Mean over independent draws.
        truth_error: Standard error of this mean.
        deviation: Standard deviation over those draws.
        error: Root mean square of the standard errors of the intervals.
        halves_error: The same of the standard deviation over halves, without regard to pairs.
        binomial_error: Standard error for independent images; None for density.
        width: Mean width of the intervals.
        coverage: Share of intervals that contain the true value.
        halves_coverage: The same if the standard deviation over halves was used.
        bootstrap_runs: Draws that were resampled with replacement.
        bootstrap_bias: Mean of the resamples minus the truth.
        bootstrap_coverage: Share of percentile intervals of the resamples that contain the true value.
    """

    case: str
    metric: str
    runs: int
    truth: float
    truth_error: float
    deviation: float
    error: float
    halves_error: float
    binomial_error: float | None
    width: float
    coverage: float
    halves_coverage: float
    bootstrap_runs: int = 0
    bootstrap_bias: float | None = None
    bootstrap_coverage: float | None = None

    @property
    def fails(self) -> bool:
        """Below 90 %, or above 99 % for a truth that is no extreme."""
        is_usual = 0.05 <= self.truth <= 0.95
        return self.coverage < 0.9 or (is_usual and self.coverage > 0.99)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--runs", default=300, show_default=True, type=click.IntRange(min=2), help="Number of draws at n = 400."
)
@click.option(
    "--large-runs",
    default=200,
    show_default=True,
    type=click.IntRange(min=2),
    help="Number of draws at n = 2,000.",
)
@click.option(
    "--truth-draws",
    default=1000,
    show_default=True,
    type=click.IntRange(min=2),
    help="At n = 400; else as many as runs.",
)
@click.option("--bootstrap-runs", default=40, show_default=True, type=click.IntRange(min=0))
@click.option("--n", "sizes", multiple=True, type=int, help="Only cases of this size; repeatable.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file to append to; Markdown is written next to it.  [default: benchmarks/results/intervals-<date>.jsonl]",
)
def main(
    runs: int,
    large_runs: int,
    truth_draws: int,
    bootstrap_runs: int,
    sizes: tuple[int, ...],
    jobs: int,
    out: Path | None,
) -> None:
    """Simulate, and record how often intervals contain the true value."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    out = out or _RESULTS / f"intervals-{started[:10]}.jsonl"
    machine = asdict(describe_machine(threads=1, device="cpu"))
    shared = {"format": "genpr.intervals/1", "started": started, "machine": machine}
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for case in CASES:
            if sizes and case.n not in sizes:
                continue
            is_small = case.n <= _BOOTSTRAP_N
            counts = (runs, truth_draws, bootstrap_runs) if is_small else (large_runs, large_runs, 0)
            records = _simulated(pool, case, *counts)
            with out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps({**shared, **asdict(record)}) + "\n" for record in records)
            print(*map(_row, records), sep="\n", flush=True)
    everything = list(map(_restored, out.read_text(encoding="utf-8").splitlines()))
    out.with_suffix(".md").write_text(_markdown(everything, started), encoding="utf-8")
    raise SystemExit(any(record.fails for record in everything))


def _restored(line: str) -> Record:
    stored = json.loads(line)
    return Record(**{field.name: stored[field.name] for field in fields(Record)})


def _simulated(
    pool: ProcessPoolExecutor, case: IntervalCase, runs: int, truth_draws: int, boots: int
) -> list[Record]:
    found = list(_mapped(pool, partial(run_once, case), range(runs)))
    truth = true_values(case, truth_draws)
    resampled = list(_mapped(pool, partial(bootstrap, case, resamples=100), range(boots)))
    return [_record(case, name, found, truth[:, at], resampled) for at, name in enumerate(METRICS)]


def _mapped(
    pool: ProcessPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    yield from pool.map(work, items, chunksize=_BATCH)


def _record(
    case: IntervalCase,
    name: str,
    found: list[Run],
    truth: NDArray[np.float64],
    resampled: list[NDArray[np.float64]],
) -> Record:
    at, mean = METRICS.index(name), float(truth.mean())
    values = np.array([run.values[at] for run in found])
    replicates = np.stack([run.replicates[at] for run in found])
    intervals = [interval_for(case, name, value, of) for value, of in zip(values, replicates, strict=True)]
    plain = replicates.std(axis=1, ddof=1)
    quantile = student.ppf(0.975, replicates.shape[1] - 1)
    record = Record(
        case=str(case),
        metric=name,
        runs=len(found),
        truth=mean,
        truth_error=float(truth.std(ddof=1) / len(truth) ** 0.5),
        deviation=float(truth.std(ddof=1)),
        error=_root_mean_square((replicates[:, ::2] - replicates[:, 1::2]) / 2),
        halves_error=_root_mean_square(plain),
        binomial_error=None if name == "density" else (max(mean * (1 - mean), 0.0) / case.n) ** 0.5,
        width=float(np.mean([interval.high - interval.low for interval in intervals])),
        coverage=float(np.mean([mean in interval for interval in intervals])),
        halves_coverage=float(np.mean(abs(values - mean) <= quantile * plain)),
    )
    if not resampled or name not in BOOTSTRAPPED:
        return record
    boots = np.stack(resampled)[:, :, BOOTSTRAPPED.index(name)]
    low, high = np.quantile(boots, [0.025, 0.975], axis=1)
    held = float(np.mean((low <= mean) & (mean <= high)))
    extra: dict[str, Any] = {"bootstrap_runs": len(boots), "bootstrap_bias": float(boots.mean() - mean)}
    return Record(**{**asdict(record), **extra, "bootstrap_coverage": held})


def _root_mean_square(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _markdown(records: list[Record], started: str) -> str:
    fail = sum(record.fails for record in records)
    lines = [
        f"# {started[:10]}, 95 % intervals of Gaussian sets",
        "",
        _LEGEND,
        "",
        f"{fail} of {len(records)} fail: below 90 %, or above 99 % where the truth is within [.05, .95].",
        "",
        "| case | metric | truth | SD | error | halves | binomial | covered | runs | bootstrap covered | its bias |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    return "\n".join([*lines, *map(_row, records)]) + "\n"


def _row(record: Record) -> str:
    cells = [
        record.case,
        record.metric,
        f"{record.truth:.4f}",
        f"{record.deviation:.4f}",
        f"{record.error:.4f}",
        f"{record.halves_error:.4f}",
        "" if record.binomial_error is None else f"{record.binomial_error:.4f}",
        f"{record.coverage:.3f} ({record.halves_coverage:.3f})" + (" FAILS" if record.fails else ""),
        str(record.runs),
        "" if record.bootstrap_coverage is None else f"{record.bootstrap_coverage:.3f}",
        "" if record.bootstrap_bias is None else f"{record.bootstrap_bias:+.3f}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
