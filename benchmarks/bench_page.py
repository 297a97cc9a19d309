"""Additional cost of the page of a score: seconds, peak memory, and bytes."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import torch
from _shared import append_record, describe_machine, in_new_process, without_folder

import genpr

Figures = dict[str, float]
Options = dict[str, Any]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("real")
@click.argument("fake")
@click.option("--extractor", default="gabor", show_default=True, help="Extractor, as in genpr score.")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file to append to.  [default: benchmarks/results/page-<date>-<machine>.jsonl]",
)
def main(real: str, fake: str, extractor: str, device: str, repeats: int, out: Path | None) -> None:
    """Time a score of FAKE against REAL with and without its page, after the images were embedded.

    Each score runs in its own process, and both alternate.
    """
    options: Options = {"extractor": extractor, "device": device}
    in_new_process(_measured, _score, real, fake, options)  # features enter the cache
    runs = [
        (
            in_new_process(_measured, _score, real, fake, options),
            in_new_process(_measured, _page, real, fake, options),
        )
        for _ in range(repeats)
    ]
    machine = describe_machine(threads=torch.get_num_threads(), device=device)
    facts = {
        "sources": [without_folder(source) for source in (real, fake)],
        "extractor": without_folder(extractor),
        "runs": [{"score": score, "page": page} for score, page in runs],
    }
    out = append_record(out, "page", machine, **facts)
    runs.sort(key=lambda run: run[1]["seconds"] - run[0]["seconds"])
    score, page = runs[len(runs) // 2]
    click.echo(f"{page['n_real']:,.0f} reals, {page['n_fake']:,.0f} fakes, {extractor}, on {machine}")
    click.echo(
        f"score {score['seconds']:.0f} s, {score['peak_gb']:.1f} GB; with its page {page['seconds']:.0f} s, "
        f"{page['peak_gb']:.1f} GB; {page['bytes'] / 1e6:.1f} MB"
    )
    click.echo(f"wrote {out}", err=True)


def _score(real: str, fake: str, options: Options) -> Figures:
    start = perf_counter()
    genpr.Evaluator(real, **options).score(fake)
    return {"seconds": perf_counter() - start}


def _page(real: str, fake: str, options: Options) -> Figures:
    start = perf_counter()
    evidence = genpr.Evaluator(real, **options).evidence(fake)
    found = perf_counter()
    page = genpr.evidence_report(evidence, real, fake, device=options["device"])
    return {
        "seconds": perf_counter() - start,
        "seconds_of_page": perf_counter() - found,
        "bytes": len(page.encode()),
        "n_real": len(evidence.real),
        "n_fake": len(evidence.fake),
    }


def _measured(work: Callable[..., Figures], *arguments: object) -> Figures:
    return {**work(*arguments), "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}


if __name__ == "__main__":
    main()
