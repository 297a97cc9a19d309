"""Metrics of rankings in bounded memory: time compared with ranx, and agreement of the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from _shared import RESULTS, Machine, PeakMemory, append_record, describe_machine, in_new_process
from numpy.typing import NDArray

import genpr

_KS = (1, 5, 10)
_TOLERANCE = 1e-12
_POOLS = {"mrr": "mrr", "ndcg": "ndcg", "map": "map", "r-precision": "r_precision"}
_AT = {"hit_rate@": "hit_", "precision@": "precision_", "recall@": "recall_", "ndcg@": "ndcg_"}

Facts = dict[str, Any]
Values = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Task:
    """The data to rank.

    Attributes:
        queries: Number of queries; each has one to three relevant candidates, whose mean it is near.
        candidates: Number of candidates, Gaussian.
        d: Features.
        whole: Queries whose whole rankings it gets.
        threads: Cores.
    """

    queries: int
    candidates: int
    d: int
    whole: int
    threads: int

    def made(self) -> tuple[NDArray[np.float32], NDArray[np.float32], list[list[int]]]:
        """Features of queries and of candidates, and what is relevant."""
        rng = np.random.default_rng(0)
        candidates = rng.standard_normal((self.candidates, self.d), dtype=np.float32)
        queries = rng.standard_normal((self.queries, self.d), dtype=np.float32)
        count = rng.integers(1, 4, size=self.queries)
        relevant = rng.integers(0, self.candidates // 3, size=(self.queries, 3)) * 3 + np.arange(3)
        for place in range(3):
            has = count > place
            queries[has] += 0.15 * candidates[relevant[has, place]]
        rows = [row[:n] for row, n in zip(relevant.tolist(), count.tolist(), strict=True)]
        return queries, candidates, rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--queries", default=100_000, show_default=True, type=click.IntRange(min=100))
@click.option("--candidates", default=10_000, show_default=True, type=click.IntRange(min=200))
@click.option("--d", default=512, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--whole", default=500, show_default=True, help="Number of queries whose complete rankings ranx gets."
)
@click.option("--threads", default=2, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file to append to, with a table next to it.  [default: benchmarks/results/retrieval-<date>-cpu.jsonl]",
)
def main(queries: int, candidates: int, d: int, whole: int, threads: int, out: Path | None) -> None:
    """Rank random candidates for random queries; ranx has to be installed.

    Every part runs in its own process. Values are compared before times are printed; the script exits with 1 if they
    disagree.
    """
    task = Task(queries, candidates, d, whole, threads)
    lines = [
        {"part": work.__name__.strip("_"), **in_new_process(_with_threads, work, task)}
        for work in (_scored, _products, _whole)
    ]
    machine = describe_machine(threads=threads, device="cpu", also=("ranx", "numba"))
    ended = f"{datetime.now(UTC):%Y-%m-%d}"
    out = out or RESULTS / f"retrieval-{ended}-cpu.jsonl"
    for line in lines:
        append_record(out, "retrieval", machine, task=asdict(task), **line)
    table = _table(task, machine, lines, ended)
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    click.echo(table)
    click.echo(f"wrote {out}", err=True)
    if not all(line.get("agree", True) for line in lines):
        raise SystemExit(1)


def _scored(task: Task) -> Facts:
    """Metrics from features: similarities in blocks, places, means, intervals, chance."""
    queries, candidates, relevant = task.made()
    genpr.ranking_metrics((queries[:100], candidates), relevant[:100], ks=_KS)
    with PeakMemory() as memory:
        start = perf_counter()
        found = genpr.ranking_metrics((queries, candidates), relevant, ks=_KS)
        seconds = perf_counter() - start
    values = {name: found[name].value for name in found}
    return {"seconds": seconds, "peak_bytes": memory.above_level, "values": values, "text": str(values)}


def _products(task: Task) -> Facts:
    """The float32 products of the same blocks alone: what any search through all pairs takes at least."""
    queries, candidates, _ = task.made()
    right = torch.from_numpy(candidates).T
    start = perf_counter()
    for block in torch.from_numpy(queries).split(2048):  # type: ignore[no-untyped-call]
        block @ right
    return {"seconds": perf_counter() - start}


def _whole(task: Task) -> Facts:
    """Metrics of whole rankings, given as scores to both."""
    ranx: Any = import_module("ranx")
    task = Task(task.whole, task.candidates, task.d, task.whole, task.threads)
    queries, candidates, relevant = task.made()
    queries, candidates = queries.astype(np.float64), candidates.astype(np.float64)
    scores = queries @ candidates.T / np.linalg.norm(candidates, axis=1)
    qrels = {f"q{at:07}": {f"d{one}": 1 for one in row} for at, row in enumerate(relevant)}
    run = {
        f"q{at:07}": {f"d{one}": score for one, score in enumerate(row)}
        for at, row in enumerate(scores.tolist())
    }
    names = [*_POOLS, *(f"{kind}{k}" for kind in _AT for k in _KS)]
    ranx.evaluate(ranx.Qrels(_first(qrels, 20)), ranx.Run(_first(run, 20)), names)
    timed = _timed_ranx(qrels, run, names)
    start = perf_counter()
    ours = genpr.ranking_metrics(scores, relevant, ks=_KS)
    seconds = perf_counter() - start
    mine = {name: ours[name].per_query for name in ours}
    pairs = {name: (timed["values"][name], mine[our_name]) for name, our_name in _POOLS.items()}
    pairs |= _at_cuts(timed["values"], mine)
    return {"seconds": seconds, **_without_values(timed), **_agreement(pairs)}


def _first(table: dict[str, Any], count: int) -> dict[str, Any]:
    return dict(list(table.items())[:count])


def _timed_ranx(qrels: dict[str, Any], run: dict[str, Any], names: list[str]) -> Facts:
    """Seconds of ranx for its objects from dictionaries, for its arrays from these, and for the metrics of the arrays."""
    ranx: Any = import_module("ranx")
    start = perf_counter()
    ours, theirs = ranx.Qrels(qrels), ranx.Run(run)
    built = perf_counter()
    arrays = ours.to_typed_list(), theirs.to_typed_list()
    converted = perf_counter()
    values = ranx.evaluate(*arrays, names, return_mean=False)
    done = perf_counter()
    return {
        "ranx_seconds": {
            "objects": built - start,
            "arrays": converted - built,
            "metrics": done - converted,
        },
        "values": values,
    }


def _without_values(timed: Facts) -> Facts:
    return {name: value for name, value in timed.items() if name != "values"}


def _at_cuts(theirs: Values, ours: Values) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    names = {f"{kind}{k}": f"{mine}{k}" for kind, mine in _AT.items() for k in _KS}
    return {name: (theirs[name], ours[mine]) for name, mine in names.items()}


def _agreement(pairs: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Facts:
    """The largest difference of any query in each metric."""
    worst = {name: float(np.abs(theirs - ours).max()) for name, (theirs, ours) in pairs.items()}
    means = {name: float(np.mean(theirs)) for name, (theirs, _) in pairs.items()}
    return {"largest_difference": worst, "ranx_means": means, "agree": max(worst.values()) <= _TOLERANCE}


def _with_threads(work: Callable[[Task], Facts], task: Task) -> Facts:
    torch.set_num_threads(task.threads)
    return work(task)


def _table(task: Task, machine: Machine, lines: Sequence[Facts], ended: str) -> str:
    scored, products, whole = lines
    pairs = task.queries * task.candidates
    floor = products["seconds"]
    whole_task = f"{task.queries:,} x {task.candidates:,}, d = {task.d}"
    what = f"genpr, from features: scores, places, {len(scored['values'])} metrics, intervals, chance"
    rows = [
        f"| {what} | {whole_task} | {scored['seconds']:.1f} | {scored['peak_bytes'] / 1e9:.2f} |",
        f"| float32 products of all pairs alone | the same | {floor:.1f} | |",
        f"| genpr, matrix of scores | {task.whole:,} x {task.candidates:,} | {whole['seconds']:.2f} | |",
        *_ranx_rows(whole, f"{task.whole:,} x {task.candidates:,}"),
    ]
    agreement = "" if whole["agree"] else ": they DISAGREE"
    largest = max(whole["largest_difference"].values())
    answer = f"{len(whole['largest_difference'])} metrics: largest difference of any query {largest:.1e}"
    note = (
        f"A matrix of {pairs:,} float32 similarities would take {4 * pairs / 1e9:.0f} GB. ranx had been compiled before "
        "time started. It computes means; genpr's times include intervals and, of pools, chance."
    )
    return "\n".join(
        [
            f"# {ended}, {machine.cpu}",
            "",
            *machine.paragraph,
            "",
            "## genpr and ranx on the same rankings",
            "",
            f"{answer}{agreement}.",
            "",
            "## Times",
            "",
            "| what | of | s | peak GB above the features |",
            "|---|---|--:|--:|",
            *rows,
            "",
            note,
            "",
            "```",
            scored["text"],
            "```",
            "",
        ]
    )


def _ranx_rows(line: Facts, what: str) -> list[str]:
    seconds = line["ranx_seconds"]
    return [
        f"| ranx, only the metrics, from its sorted arrays | {what} | {seconds['metrics']:.2f} | |",
        f"| ranx, with Qrels and Run from dictionaries | {what} | {sum(seconds.values()):.1f} | |",
    ]


if __name__ == "__main__":
    main()
