"""Cost of intervals: the four default metrics of learned features with and without them, also on shrunken fakes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time

import click
import torch
from _shared import (
    PeakMemory,
    append_record,
    describe_machine,
    in_new_process,
    pin_to_cores,
    read_features,
    shuffled,
)

from genpr.evaluation.protocols import find_protocol
from genpr.metrics.neighbor_metrics import NeighborMetrics

_WARM = 500  # rows of a first call, before time starts
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement: n rows of each file, fakes drawn towards the mean of the reals by `shrink`."""

    real: Path
    fake: Path
    n: int
    shrink: float
    names: tuple[str, ...]
    intervals: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of processor time, bytes above the level before, and the values."""

    seconds: float
    bytes: int
    values: dict[str, float | None]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("real", type=_FILE)
@click.argument("fake", type=_FILE)
@click.option("--n", "sizes", multiple=True, default=(10_000, 50_000), show_default=True, type=int)
@click.option(
    "--shrink",
    "shrinks",
    multiple=True,
    default=(1.0, 0.3),
    show_default=True,
    type=float,
    help="Spread of the fakes.",
)
@click.option("--metric", "names", multiple=True, default=("precision", "recall", "density", "coverage"))
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file to append to.  [default: benchmarks/results/interval-cost-<date>.jsonl]",
)
def main(
    real: Path,
    fake: Path,
    sizes: tuple[int, ...],
    shrinks: tuple[float, ...],
    names: tuple[str, ...],
    repeats: int,
    out: Path | None,
) -> None:
    """Measure the metrics of REAL and FAKE, two files of `genpr features`, alternately with and without intervals.

    Processor time is compared within each turn. The aim is under 1 at 50,000.
    """
    machine = describe_machine(threads=1)
    for n in sizes:
        for shrink in shrinks:
            turns = [
                [
                    in_new_process(_measure, Job(real, fake, n, shrink, names, intervals))
                    for intervals in (False, True)
                ]
                for _ in range(repeats)
            ]
            if any(cost.values != turns[0][0].values for turn in turns for cost in turn):
                raise SystemExit(f"values differ with and without intervals: {turns}")
            ratio = median(with_them.seconds / without.seconds - 1 for without, with_them in turns)
            runs = [[asdict(cost) for cost in turn] for turn in turns]
            facts = {"n": n, "shrink": shrink, "metrics": names, "extra": ratio, "runs": runs}
            append_record(out, "interval-cost", machine, **facts)
            click.echo(_sentence(n, shrink, ratio, turns))


def _measure(job: Job) -> Cost:
    pin_to_cores(1)  # waiting threads count as processor time, too
    real, fake = (
        torch.from_numpy(shuffled(read_features(path), seed=seed)[: job.n])
        for seed, path in enumerate((job.real, job.fake))
    )
    fake = real.mean(0) + job.shrink * (fake - fake.mean(0)) if job.shrink != 1 else fake
    _score(job, real[:_WARM], fake[:_WARM])
    with PeakMemory() as memory:
        start = process_time()
        values = _score(job, real, fake)
        seconds = process_time() - start
    return Cost(seconds, memory.above_level, values)


def _score(job: Job, real: torch.Tensor, fake: torch.Tensor) -> dict[str, float | None]:
    fitted = NeighborMetrics(
        real,
        ks=find_protocol("genpr").choose_ks(job.names),
        ties="closed",
        intervals=job.intervals,
        seed=0,
        device=torch.device("cpu"),
    )
    return {name: None if each is None else each.value for name, each in fitted.score(fake).values.items()}


def _sentence(n: int, shrink: float, ratio: float, turns: list[list[Cost]]) -> str:
    without, with_them = (
        f"{median(turn[at].seconds for turn in turns):.1f} s and {median(turn[at].bytes for turn in turns) / 1e9:.2f} GB"
        for at in (0, 1)
    )
    return f"{n:,} + {n:,}, spread {shrink:g}: {ratio:.2f} of the metrics more ({without}; with them {with_them})"


if __name__ == "__main__":
    main()
