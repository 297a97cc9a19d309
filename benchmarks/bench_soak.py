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
import torch.nn.functional as F
from _shared import describe_machine
from PIL import Image
from torch import Tensor

import genpr
from genpr.demo import ShapesGenerator, draw_latents

_DRAWN_AT_ONCE = 500
# The first checkpoint fills pools and imports; the next three are what the others are held against.
_FIRST, _BASE = 1, 3


@dataclass(frozen=True, slots=True)
class Held:
    """Resources of a process.

    Attributes:
        resident: Bytes of its memory that are in RAM.
        anonymous: Bytes of these that do not belong to files: heap and stacks, without libraries and mapped files.
        files: Open files.
        threads: Threads.
    """

    resident: int
    anonymous: int
    files: int
    threads: int

    @classmethod
    def by(cls, pid: int) -> Held:
        """Return the resources of process `pid` (Linux)."""
        process = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        kilobytes = {name: int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}
        files = [name for name in os.listdir(process / "fd") if _is_open(process / "fd" / name)]  # noqa: PTH208
        return cls(kilobytes["VmRSS"], kilobytes["RssAnon"], len(files), int(status["Threads"]))


def _is_open(link: Path) -> bool:
    """Whether a descriptor is still open; the one that listed the folder is not."""
    try:
        return not os.readlink(link).endswith("/fd")  # noqa: PTH115
    except OSError:
        return False


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
    options = ["--extractor", extractor, "--device", "cpu", "--log", str(log), "--quiet"]
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


def write_checkpoints(folder: Path, *, checkpoints: int, images: int, seed: int = 0) -> None:
    """Write real/ and samples/000, samples/001, ... below `folder`: PNG files of drawings, 32 x 32.

    Early checkpoints have few kinds of images and much noise; the last ones have the distribution of the reals. No two files are equal.
    """
    drawn = _drawings(2 * images, seed=seed)
    real, pool = drawn[:images], drawn[images:]
    _write(folder / "real", real)
    generator = torch.Generator().manual_seed(seed)
    for number in range(checkpoints):
        left = 1 - (number + 1) / checkpoints
        kinds = max(1, round((1 - left) * len(pool)))  # the latents are in no order: fewer drawings, repeated
        chosen = pool[torch.randint(kinds, (images,), generator=generator)]
        noise = torch.randn(chosen.shape, generator=generator) * (2 + 24 * left)
        _write(folder / "samples" / f"{number:03d}", (chosen + noise).clamp(0, 255).round().to(torch.uint8))


def _drawings(count: int, *, seed: int) -> Tensor:
    """uint8 (n, 3, 32, 32)."""
    draw = ShapesGenerator()
    latents = draw_latents(count, seed=seed)
    parts = [draw(latents[start : start + _DRAWN_AT_ONCE]) for start in range(0, count, _DRAWN_AT_ONCE)]
    return torch.cat([F.avg_pool2d(part.float(), 2).round().to(torch.uint8) for part in parts])


def _write(folder: Path, images: Tensor) -> None:
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        pixels = image.permute(1, 2, 0).contiguous().numpy()
        Image.fromarray(pixels).save(folder / f"{number:05d}.png", compress_level=1)


def fresh_score(real: Path, fake: Path, *, extractor: str, cache: Path) -> dict[str, Any]:
    """Return the JSON of `genpr score` from its own process."""
    command = [
        sys.executable,
        "-m",
        "genpr",
        "score",
        str(real),
        str(fake),
        "--extractor",
        extractor,
        "--device",
        "cpu",
    ]
    done = subprocess.run(
        [*command, "--json", "--quiet", "--cache-dir", str(cache)], capture_output=True, text=True, check=True
    )
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def numbers_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers that must not depend on the process: values, intervals and nulls by metric."""
    if "status" in record:  # a line of `genpr watch`
        return {
            name: {key: each for key, each in record[name].items() if key != "f1"}
            for name in ("metrics", "intervals", "nulls")
        }
    metrics = record["metrics"]
    parts = {"metrics": "value", "intervals": "interval", "nulls": "null"}
    return {
        name: {key: each[part] for key, each in metrics.items() if each[part] is not None}
        for name, part in parts.items()
    }


if __name__ == "__main__":
    main()
