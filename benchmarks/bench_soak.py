"""Resources of a process that scores many checkpoints, and equality of its numbers with those of fresh processes."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import torch
from _machine import describe_machine
from _soak import Held, fresh_score, numbers_of, write_checkpoints

import genpr

# The first checkpoint fills pools and imports; the next three are what the others are held against.
_FIRST, _BASE = 1, 3


@dataclass(frozen=True, slots=True)
class Scored:
    """Score of one checkpoint, and resources of the process afterwards."""

    name: str
    numbers: dict[str, Any]
    held: Held
    seconds: float


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--checkpoints", default=24, show_default=True, type=click.IntRange(min=6))
@click.option(
    "--images",
    default=5000,
    show_default=True,
    type=click.IntRange(min=50),
    help="Number of images of each set.",
)
@click.option("--extractor", default="gabor", show_default=True, help="Extractor, as in genpr score.")
@click.option(
    "--through",
    default="evaluator",
    show_default=True,
    type=click.Choice(["evaluator", "watch"]),
    help="One genpr.Evaluator in this process, or `genpr watch --once` in another.",
)
@click.option(
    "--fresh",
    type=click.IntRange(min=0),
    help="Checkpoints scored again, each in a fresh process.  [default: all]",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write a page of it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    checkpoints: int,
    images: int,
    extractor: str,
    through: str,
    fresh: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Score checkpoints of an improving generator against one real set, and measure the process after each."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        painter = multiprocessing.get_context("spawn").Process(
            target=write_checkpoints, args=(folder,), kwargs={"checkpoints": checkpoints, "images": images}
        )  # in a separate process, so that its memory does not count
        painter.start()
        painter.join()
        if painter.exitcode:
            sys.exit(painter.exitcode)
        soak = _with_evaluator if through == "evaluator" else _with_watch
        scored = list(soak(folder, extractor=extractor))
        report = _report(scored, images=images, extractor=extractor, through=through)
        for each in _spread(scored, len(scored) if fresh is None else fresh):
            if _is_other(each, folder, extractor):
                report["fresh_different"].append(each.name)
            report["fresh"] += 1
            report["seconds"] = time.perf_counter() - started
    if out is not None:
        out.write_text(_page(report) + "\n", encoding="utf-8")
    click.echo(json.dumps(report) if as_json else _page(report))


def _report(scored: Sequence[Scored], **facts: object) -> dict[str, Any]:
    resident = [each.held.resident for each in scored]
    return {
        **facts,
        "growth": growth(resident),
        "growth_anonymous": growth([each.held.anonymous for each in scored]),
        "trend": trend(resident),
        "files": sorted({each.held.files for each in scored[_FIRST:]}),
        "threads": sorted({each.held.threads for each in scored[_FIRST:]}),
        "fresh": 0,
        "fresh_different": [],
        "seconds": sum(each.seconds for each in scored),
        "checkpoints": [
            {"name": each.name, "seconds": each.seconds, **asdict(each.held), **_values(each)}
            for each in scored
        ],
    }


def _is_other(each: Scored, folder: Path, extractor: str) -> bool:
    """Whether a new process gives a different value in any bit."""
    fake = folder / "samples" / each.name
    fresh = fresh_score(folder / "real", fake, extractor=extractor, cache=folder / "fresh")
    return numbers_of(fresh) != each.numbers


def growth(values: Sequence[int]) -> float:
    """The largest of those after the first few, over their median, less one."""
    base = statistics.median(values[_FIRST : _FIRST + _BASE])
    return max(values[_FIRST + _BASE :]) / base - 1


def trend(values: Sequence[int]) -> float:
    """The median of the last third over that of the same first few, less one: what is left where single ones vary."""
    base = statistics.median(values[_FIRST : _FIRST + _BASE])
    return statistics.median(values[-len(values) // 3 :]) / base - 1


def _with_evaluator(folder: Path, *, extractor: str) -> Iterator[Scored]:
    evaluator = genpr.Evaluator(
        folder / "real", extractor=extractor, device="cpu", cache_dir=folder / "cache"
    )
    for source in sorted((folder / "samples").iterdir()):
        started = time.perf_counter()
        record = json.loads(evaluator.score(source).to_json())
        seconds = time.perf_counter() - started
        gc.collect()
        yield Scored(source.name, numbers_of(record), Held.by(os.getpid()), seconds)


def _with_watch(folder: Path, *, extractor: str) -> Iterator[Scored]:
    """Measured from outside, as soon as each line is written."""
    log = folder / "scores.jsonl"
    command = [
        sys.executable,
        "-m",
        "genpr",
        "watch",
        str(folder / "real"),
        str(folder / "samples"),
        "--once",
        "--settle",
        "0",
    ]
    options = ["--extractor", extractor, "--device", "cpu", "--out", str(log), "--quiet"]
    environment = {**os.environ, "GENPR_CACHE": str(folder / "cache")}
    started, done = time.perf_counter(), 0
    with subprocess.Popen([*command, *options], env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            lines = log.read_text().splitlines() if log.exists() else []
            for line in lines[done:]:
                record = json.loads(line)
                now = time.perf_counter()
                yield Scored(record["name"], numbers_of(record), Held.by(process.pid), now - started)
                started = now
            done = len(lines)
            time.sleep(0.02)


def _spread(scored: Sequence[Scored], count: int) -> list[Scored]:
    """`count` scores, evenly from the first to the last."""
    last = len(scored) - 1
    return [scored[round(number * last / max(1, count - 1))] for number in range(min(count, last + 1))]


def _values(each: Scored) -> dict[str, float]:
    return {name: each.numbers["metrics"][name] for name in ("precision", "recall")}


def _page(report: dict[str, Any]) -> str:
    machine = describe_machine(threads=torch.get_num_threads(), device="cpu")
    rows = [
        f"| {row['name']} | {row['precision']:.4f} | {row['recall']:.4f} | {row['resident'] / 1e6:.1f} | "
        f"{row['anonymous'] / 1e6:.1f} | {row['files']} | {row['threads']} | {row['seconds']:.1f} |"
        for row in report["checkpoints"]
    ]
    others = ", ".join(report["fresh_different"]) or "none"
    base = f"checkpoints {_FIRST + 1} to {_FIRST + _BASE}"
    made = (
        f"Extractor {report['extractor']}, through {report['through']}, intervals and control as usual; on {machine}, "
        f"{datetime.now(UTC).date().isoformat()}, genpr {machine.commit[:12]}, in {report['seconds']:.0f} s in all."
    )
    memory = (
        f"- Resident memory after a checkpoint: at most {report['growth']:+.1%} above the median of {base}; without files that "
        f"are mapped {report['growth_anonymous']:+.1%}. The last third's median: {report['trend']:+.1%}."
    )
    held = (
        f"- Open files from the second checkpoint on: {', '.join(map(str, report['files']))}. "
        f"Threads: {', '.join(map(str, report['threads']))}."
    )
    again = (
        f"- {report['fresh']} scored again by `genpr score --json`, each in a fresh process; those of which a value, an interval "
        f"or a null differs in any bit: {others}."
    )
    head = "| checkpoint | precision | recall | resident, MB | anonymous, MB | files | threads | seconds |"
    title = f"# {len(rows)} checkpoints of {report['images']:,} images in one process"
    return "\n".join([title, "", made, "", memory, held, again, "", head, f"|{'---|' * 8}", *rows])


if __name__ == "__main__":
    main()
