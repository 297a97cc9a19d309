"""Speed and memory of precision, recall, density and coverage by genpr and its peers."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import torch
from _cases import Case
from _families import FAMILIES
from _machine import describe_machine, without_folder
from _process import CaseFailedError, pin_to_cores
from _report import RunFacts, markdown, show
from _run import Run, settings_of
from _selection import Options, select
from _tools import TOOLS
from _worker import gemm_gflops, measure
from rich.console import Console

from genpr.runtime import usable_cores

_RESULTS = Path(__file__).parent / "results"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--real-features", type=_FILE, help="Features of reals by `genpr features` (.safetensors).")
@click.option("--fake-features", type=_FILE, help="Features of fakes by the same extractor.")
@click.option("--family", "families", multiple=True, type=click.Choice(FAMILIES), help="Default: all four.")
@click.option("--n", "sizes", multiple=True, type=click.IntRange(10), help="Default: 5000, 10000, 20000.")
@click.option("--d", "dims", multiple=True, type=click.IntRange(1), help="Default: 2048.")
@click.option(
    "--tool", "tools", multiple=True, type=click.Choice(list(TOOLS)), help="Default: the usual ones."
)
@click.option("--full", is_flag=True, help="Adds n = 50000, and d = 512 and 4096.")
@click.option(
    "--k", default=5, show_default=True, type=click.IntRange(1), help="Number of neighbors, for all tools."
)
@click.option(
    "--repeats",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum number of repeats per case.",
)
@click.option(
    "--repeat-seconds",
    default=20.0,
    show_default=True,
    help="Start no further repeat after this total time of a case.",
)
@click.option("--threads", type=click.IntRange(1), help="Cores per case.  [default: all]")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--slow-n", default=5_000, show_default=True, help="Largest n of slow tools outside learned.")
@click.option("--max-gib", default=16.0, show_default=True, help="Extrapolate peers that need more memory.")
@click.option("--max-minutes", default=10.0, show_default=True, help="Extrapolate peers that take longer.")
@click.option(
    "--temp-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for temporary features.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for JSON lines, appended to; a table is written next to it.  "
    "[default: benchmarks/results/manifold-<date>-<machine>.jsonl]",
)
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - the fields of Options
    """Time genpr, plain FAISS, plain torch, torch-fidelity (P/R only), scikit-learn and prdc on the same features.

    Each case runs in its own process. Values are compared with those of genpr first. Then times, peak memory and
    ratios are reported. The learned family needs --real-features and --fake-features.

    Slow tools (torch-fidelity, scikit-learn, prdc) run up to --slow-n only outside the learned family, so that
    the default run ends within 30 minutes on two cores. Cases that are not run for that reason, or because they would need
    more than --max-gib or --max-minutes, are extrapolated by n^2 from the largest measured n, and marked.

    With --device cuda, genpr, torch-tiles and torch-cdist run on the GPU and the others are left out.

    Exits with 1 if a value disagrees or a case fails.
    """
    if context.invoked_subcommand is None:
        context.exit(_benchmark(Options(**options)))


def _benchmark(options: Options) -> int:
    """Run, report, and give the exit code."""
    try:
        selection = select(options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if options.device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError(f"--device cuda: torch {torch.__version__} sees no GPU here")
    threads = min(options.threads or usable_cores(), usable_cores())
    facts = RunFacts(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(["bench_manifold.py", *map(without_folder, sys.argv[1:])]),
        k=options.k,
        device=options.device,
        machine=describe_machine(threads=threads, device=options.device),
        left_out=selection.left_out,
    )
    out = options.out or _RESULTS / f"manifold-{facts.started[:10]}-{facts.machine.slug}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    settings = settings_of(options, threads=threads)
    try:
        records = Run(selection, settings, facts, out, options.temp_dir, log=_log).records()
    except CaseFailedError as error:
        raise click.ClickException(f"the matrix product rate could not be measured: {error}") from error
    out.with_suffix(".md").write_text(markdown(records, facts), encoding="utf-8")
    show(records, facts, Console())
    _log(f"wrote {out} and {out.with_suffix('.md').name}")
    return int(any(record.agrees is False or record.status == "failed" for record in records))


def _log(line: str) -> None:
    click.echo(line, err=True)


@main.command("case", hidden=True)
@click.argument("spec")
@click.argument("answer", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--threads", required=True, type=int)
def case_command(spec: str, answer: Path, threads: int) -> None:
    """Measure one case in this process."""
    pin_to_cores(threads)
    answer.write_text(json.dumps(asdict(measure(Case(**json.loads(spec))))))


@main.command("gemm", hidden=True)
@click.argument("device")
@click.argument("answer", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--threads", required=True, type=int)
def gemm_command(device: str, answer: Path, threads: int) -> None:
    """Measure the matrix product rate in this process."""
    pin_to_cores(threads)
    answer.write_text(json.dumps(gemm_gflops(device)))


if __name__ == "__main__":
    main()
