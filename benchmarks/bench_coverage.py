"""Coverage of 95 % intervals on learned, heavy-tailed and clustered features, and accuracy of nulls.

    python benchmarks/bench_coverage.py --list
    python benchmarks/bench_coverage.py --cell gaussian-64-2000-2000 --jobs 2
    python benchmarks/bench_coverage.py --cell cifar --images train.zip --extractor efficientnet-lite0 --views 2
    python benchmarks/bench_coverage.py --images train.zip --extractor cnn.py:load --device cuda --jobs 10 --cpu-jobs 6 --minutes 6

Each draw of a cell is a set of reals and generators: A and B of one distribution, C a little different in the first draws. The cells on
images need --images and --extractor, or the --population that an earlier run wrote, and are left out otherwise. A file that
exists is continued: draws that it holds are not made again, except for metrics that it lacks.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import torch
from _coverage_draws import CELLS, FORMAT, Cell, run_draw
from _coverage_population import VIEWS, Population, embed_population
from _coverage_sets import DATA_SETS
from _coverage_summary import complete_lines, markdown, read_records
from _shared import RESULTS, describe_machine

from genpr.metrics.registry import METRICS
from genpr.runtime import resolve_device, usable_cores

_MOST_FAILURES = 3  # of a cell


@dataclass(frozen=True, slots=True)
class Task:
    """One draw to make."""

    cell: Cell
    number: int
    metrics: tuple[str, ...]


@dataclass(slots=True)
class Workers:
    """Processes on one device with the draws that they are to make."""

    device: str
    count: int
    tasks: Iterator[Task]
    pool: ProcessPoolExecutor | None = None
    running: dict[Future[dict[str, Any]], Task] = field(default_factory=dict)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--cell", "names", multiple=True, help="Name of a cell, or of a data set; repeatable.")
@click.option("--list", "lists", is_flag=True, help="Print the cells and exit.")
@click.option(
    "--draws",
    default=200,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of each cell: their numbers end before this.",
)
@click.option(
    "--first", default=0, show_default=True, type=click.IntRange(min=0), help="Number of the first draw."
)
@click.option("--metrics", help="Only these of each cell's: names, separated by commas.")
@click.option("--device", default="cpu", show_default=True)
@click.option(
    "--jobs", default=1, show_default=True, type=click.IntRange(min=0), help="Processes on --device."
)
@click.option(
    "--cpu-jobs",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Processes that make further draws of small cells on the CPU, where --device is a GPU.",
)
@click.option("--minutes", type=float, help="Start no draw after so long.")
@click.option("--scale", default=1.0, show_default=True, help="Part of the rows of each cell, for a trial.")
@click.option(
    "--images", type=click.Path(exists=True, path_type=Path), help="ZIP of images in one folder per class."
)
@click.option("--extractor", help="Of --images: FILE.py:FACTORY or a name of genpr.")
@click.option("--max-images", type=click.IntRange(min=100), help="Of --images.")
@click.option(
    "--views",
    default=VIEWS,
    show_default=True,
    type=click.IntRange(min=2),
    help="Augmentations of each of --images; half as many are blurred, too.",
)
@click.option(
    "--population",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Features of --images (.safetensors): read if it exists, else written.",
)
@click.option("--summary", "summarizes", is_flag=True, help="Only write the tables of --out again.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file; Markdown is written next to it.  [default: benchmarks/results/coverage-<date>.jsonl]",
)
def main(
    names: tuple[str, ...],
    lists: bool,
    draws: int,
    first: int,
    metrics: str | None,
    device: str,
    jobs: int,
    cpu_jobs: int,
    minutes: float | None,
    scale: float,
    images: Path | None,
    extractor: str | None,
    max_images: int | None,
    views: int,
    population: Path | None,
    summarizes: bool,
    out: Path | None,
) -> None:
    """Draw, score and append; then write the tables."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    end = None if minutes is None else time.monotonic() + 60 * minutes
    cells = _chosen(names, scale)
    if lists:
        for cell in cells:
            print(f"{cell.name:32} {DATA_SETS[cell.data].meaning}{', small' if cell.is_small else ''}")
        return
    requested = None if metrics is None else tuple(metrics.split(","))
    if unknown := set(requested or ()) - METRICS.keys():
        raise click.BadParameter(f"unknown metrics: {', '.join(sorted(unknown))}", param_hint="--metrics")
    out = out or RESULTS / f"coverage-{started[:10]}.jsonl"
    if cpu_jobs and device == "cpu":
        raise click.UsageError("--cpu-jobs are for a --device that is not the CPU; use --jobs")
    failed = 0
    if not summarizes:
        where = str(resolve_device(device))
        population = _population(images, extractor, population, max_images, views, where)
        _cut_unfinished(out)
        machine = asdict(describe_machine(threads=1, device=torch.device(where).type))
        _append(out, {"format": FORMAT, "started": started, "machine": machine})
        if population is None:
            cells = [cell for cell in cells if not cell.is_of_images]
        failed = _run(out, cells, range(first, draws), requested, where, jobs, cpu_jobs, population, end)
    out.with_suffix(".md").write_text(markdown(*read_records(out)), encoding="utf-8")
    raise SystemExit(failed > 0)


def _chosen(names: Sequence[str], scale: float) -> list[Cell]:
    known = {name for cell in CELLS for name in (cell.name, cell.data)}
    if unknown := set(names) - known:
        raise click.BadParameter(
            f"unknown cells: {', '.join(sorted(unknown))}; see --list", param_hint="--cell"
        )
    chosen = [cell for cell in CELLS if not names or {cell.name, cell.data} & {*names}]
    return chosen if scale == 1 else [cell.scaled(scale) for cell in chosen]


def _population(
    images: Path | None,
    extractor: str | None,
    population: Path | None,
    most: int | None,
    views: int,
    device: str,
) -> Path | None:
    """The file of features of images, written where it is missing; None where no images were given."""
    if population is not None and population.exists():
        return population
    if images is None or extractor is None:
        if images or extractor or population:
            raise click.UsageError(
                "features of images need --images and --extractor, or a --population that exists"
            )
        return None
    if population is None:
        memory = Path("/dev/shm")
        folder = tempfile.mkdtemp(prefix="genpr-coverage-", dir=memory if memory.is_dir() else None)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        population = Path(folder) / "population.safetensors"
    started = time.monotonic()
    embed_population(images, extractor, population, device=torch.device(device), most=most, views=views)
    print(f"features of images: {time.monotonic() - started:.1f} s, {population}", flush=True)
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
    return population


def _run(
    out: Path,
    cells: Sequence[Cell],
    draws: range,
    requested: tuple[str, ...] | None,
    device: str,
    jobs: int,
    cpu_jobs: int,
    population: Path | None,
    end: float | None,
) -> int:
    """Make the draws that the file lacks, and return how many failed."""
    small = [cell for cell in cells if cell.is_small]
    groups = [
        Workers(where, count, _tasks(out, of, draws, requested, where))
        for where, count, of in ((device, jobs, cells), ("cpu", cpu_jobs, small))
        if count and of
    ]
    threads = max(1, usable_cores() // max(1, sum(group.count for group in groups)))
    failures, done, started = Counter[str](), 0, time.monotonic()
    for record, task in _records(groups, threads, population, failures, end):
        if isinstance(record, BaseException):
            failures[task.cell.name] += 1
            print(
                f"{task.cell.name}, draw {task.number} failed", *traceback.format_exception(record), sep="\n"
            )
            continue
        _append(out, record)
        done += 1
        clock = f"{time.monotonic() - started:7.1f} s"
        print(
            f"{clock} {task.cell.name} {task.number}: {record['seconds']} s on {record['device']}", flush=True
        )
    print(f"{done} draws, {failures.total()} failed")
    return failures.total()


def _tasks(
    out: Path, cells: Sequence[Cell], draws: range, requested: tuple[str, ...] | None, device: str
) -> Iterator[Task]:
    """The draws that the file lacks: one of each cell, then the next one, so that all have equally many at any time."""
    known = {
        (draw["cell"], draw["draw"]): draw["requested"]
        for draw in read_records(out)[1]
        if draw["device"] == torch.device(device).type
    }
    for number in draws:
        for cell in cells:
            has = known.get((cell.name, number), ())
            missing = tuple(
                name for name in cell.metrics if (requested is None or name in requested) and name not in has
            )
            if missing:
                yield Task(cell, number, missing)


def _records(
    groups: Sequence[Workers],
    threads: int,
    population: Path | None,
    failures: Counter[str],
    end: float | None,
) -> Iterator[tuple[dict[str, Any] | BaseException, Task]]:
    """Records or errors as they come, from processes; from this one if it is to be the only one."""
    if sum(group.count for group in groups) == 1:
        for task in _until(groups[0].tasks, failures, end):
            try:
                yield _made(task, groups[0].device, population), task
            except Exception as failure:  # noqa: BLE001 - one draw should not end a run
                yield failure, task
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)  # read by processes when they start
    for group in groups:
        group.tasks = _until(group.tasks, failures, end)
        group.pool = ProcessPoolExecutor(
            group.count, get_context("spawn"), initializer=torch.set_num_threads, initargs=(threads,)
        )
    try:
        while True:
            for group in groups:
                assert group.pool is not None
                while len(group.running) < group.count + 1 and (found := next(group.tasks, None)):
                    group.running[group.pool.submit(_made, found, group.device, population)] = found
            everything = [future for group in groups for future in group.running]
            if not everything:
                return
            for future in wait(everything, return_when=FIRST_COMPLETED).done:
                task = next(group.running.pop(future) for group in groups if future in group.running)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    raise error
                yield error or future.result(), task
    finally:
        for group in groups:
            if group.pool is not None:
                group.pool.shutdown(cancel_futures=True)


def _until(tasks: Iterator[Task], failures: Counter[str], end: float | None) -> Iterator[Task]:
    """Tasks until time is over, without those of cells that fail again and again."""
    for task in tasks:
        if end is not None and time.monotonic() > end:
            return
        if failures[task.cell.name] < _MOST_FAILURES:
            yield task


def _made(task: Task, device: str, population: Path | None) -> dict[str, Any]:
    where = torch.device(device)
    features = _loaded(population, where) if task.cell.is_of_images and population else None
    return run_draw(task.cell, task.number, where, names=task.metrics, population=features)


@cache
def _loaded(population: Path, device: torch.device) -> Population:
    return Population.load(population, device)


def _append(out: Path, record: dict[str, Any]) -> None:
    """Add one line in a single write, so that an interruption leaves whole lines."""
    out.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, (json.dumps(record) + "\n").encode())
    finally:
        os.close(file)


def _cut_unfinished(out: Path) -> None:
    """Remove a last line that does not end."""
    if out.exists():
        size = sum(len(line.encode()) + 1 for line in complete_lines(out))
        os.truncate(out, size)


if __name__ == "__main__":
    main()
