"""Cost of the second checkpoint: one Evaluator, two sets of fakes, embedding included."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import torch
from _machine import describe_machine, without_folder

import genpr

_RESULTS = Path(__file__).parent / "results"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("real")
@click.argument("fake")
@click.argument("other_fake")
@click.option("--extractor", default="gabor", show_default=True, help="Extractor, as in genpr score.")
@click.option("--max-images", type=click.IntRange(min=10), help="Size of a random subset of each set.")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file to append to.  [default: benchmarks/results/evaluator-<date>-<machine>.jsonl]",
)
def main(
    real: str,
    fake: str,
    other_fake: str,
    extractor: str,
    max_images: int | None,
    device: str,
    repeats: int,
    out: Path | None,
) -> None:
    """Time genpr.Evaluator(REAL).score(FAKE), then .score(OTHER_FAKE), without a feature cache.

    Images are embedded each time. The second score should cost under 60 % of the first.
    """
    options: dict[str, Any] = {
        "extractor": extractor,
        "max_images": max_images,
        "device": device,
        "cache": False,
    }
    runs = [_run(real, fake, other_fake, options) for _ in range(repeats)]
    runs.sort(key=lambda run: run["second"] / run["first"])
    median = runs[len(runs) // 2]
    machine = describe_machine(threads=torch.get_num_threads(), device=device)
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    out = out or _RESULTS / f"evaluator-{ended[:10]}-{machine.slug}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "sources": [without_folder(source) for source in (real, fake, other_fake)],
        **options,
        "runs": runs,
        "machine": asdict(machine),
    }
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"format": "genpr.benchmark-evaluator/1", "ended": ended, **facts}) + "\n")
    click.echo(f"{median['n_real']:,} reals, {median['n_fake']:,} fakes, {extractor}, on {machine}")
    click.echo(
        f"first {median['first']:.1f} s, second {median['second']:.1f} s: {median['second'] / median['first']:.0%}"
    )
    click.echo(f"wrote {out}", err=True)


def _run(real: str, fake: str, other_fake: str, options: dict[str, Any]) -> dict[str, float]:
    start = perf_counter()
    evaluator = genpr.Evaluator(real, **options)
    first = evaluator.score(fake)
    between = perf_counter()
    second = evaluator.score(other_fake)
    return {
        "first": between - start,
        "second": perf_counter() - between,
        "first_search": first.seconds["fit_real"] + first.seconds["score_fake"],
        "second_search": second.seconds["score_fake"],
        "n_real": first.real.n,
        "n_fake": second.fake.n,
    }


if __name__ == "__main__":
    main()
