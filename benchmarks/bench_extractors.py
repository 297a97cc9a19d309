"""Images per second from files to features, of every extractor and of the peer that computes the same features."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import torch
from _extractor_cases import COMPARISONS, Job, Record
from _extractor_images import copy_images, make_images
from _extractor_report import RunFacts, append_json_line, markdown
from _extractor_run import Workplace, copy_first, run
from _extractor_worker import do
from _machine import describe_machine, without_folder

from genpr.runtime import usable_cores

_RESULTS = Path(__file__).parent / "results"
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_NAMES = list(dict.fromkeys(comparison.base for comparison in COMPARISONS))
_PACKAGES = ("torchvision", "pillow", "pytorch-fid", "open_clip_torch", "timm")


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, type=click.Choice(_NAMES), help="Default: all but the large DINOv2.")
@click.option("--images", default=256, show_default=True, type=click.IntRange(2))
@click.option(
    "--size",
    default=256,
    show_default=True,
    type=click.IntRange(8),
    help="Side of generated images in pixels.",
)
@click.option(
    "--folder", type=_FOLDER, help="Use the first --images PNG and JPEG files of this folder instead."
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option(
    "--batch-size", default=64, show_default=True, type=click.IntRange(1), help="Batch size of genpr."
)
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--temp-dir", type=_FOLDER, help="Folder for temporary images and weights.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for JSON lines, appended to; a table is written next to it.  "
    "[default: benchmarks/results/extractors-<date>-<machine>.jsonl]",
)
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - the options above
    """Embed a folder with genpr and with torch-fidelity, pytorch-fid, open_clip and dgm-eval's loop.

    Features are compared first. Then the tools alternate, each time in a new process, with their default numbers of
    threads and workers and their default batch size. Both use the same random weights.

    Exits 1 if features disagree or a tool fails.
    """
    if context.invoked_subcommand is None:
        context.exit(_benchmark(options))


def _benchmark(options: dict[str, Any]) -> int:
    """Run, report, and give the exit code."""
    device = options["device"]
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError(f"--device cuda: torch {torch.__version__} sees no GPU here")
    started = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe_machine(threads=usable_cores(), device=device, also=_PACKAGES)
    out = options["out"] or _RESULTS / f"extractors-{started[:10]}-{machine.slug}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="genpr-bench-", dir=options["temp_dir"]) as scratch:
        place, images = _prepare(Path(scratch), options)
        facts = RunFacts(
            started=started,
            command=shlex.join(["bench_extractors.py", *map(without_folder, sys.argv[1:])]),
            images=images,
            rounds=options["rounds"],
            device=device,
            machine=machine,
        )
        records = _run_all(place, facts, out, only=options["only"])
    table = markdown(records, facts)
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    click.echo(table)
    _log(f"wrote {out} and {out.with_suffix('.md').name}")
    return int(any(record.agrees is False or record.has_failure for record in records))


def _prepare(scratch: Path, options: dict[str, Any]) -> tuple[Workplace, str]:
    """Write or copy the images, and return a description of them."""
    folder, warm_up, rest = (scratch / name for name in ("images", "warm-up", "rest"))
    for each in (folder, warm_up, rest):
        each.mkdir()
    count, size, source = options["images"], options["size"], options["folder"]
    if source is None:
        make_images(folder, count=count, size=size)
        words = f"{count:,} PNG files of {size} x {size} pixels"
    else:
        try:
            count = copy_images(source, folder, count=count)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        words = f"{count:,} images of {source.name}"
    copy_first(folder, warm_up)
    place = Workplace(
        folder=folder,
        warm_up=warm_up,
        scratch=rest,
        device=options["device"],
        batch_size=options["batch_size"],
        rounds=options["rounds"],
        log=_log,
    )
    return place, words


def _run_all(place: Workplace, facts: RunFacts, out: Path, *, only: tuple[str, ...]) -> list[Record]:
    """Run all comparisons; each record is written before the next comparison starts."""
    records = []
    for comparison in COMPARISONS:
        if comparison.base in only if only else comparison.default_on:
            records.append(run(comparison, place))
            append_json_line(out, records[-1], facts)
    return records


def _log(line: str) -> None:
    click.echo(line, err=True)


@main.command("job", hidden=True)
@click.argument("spec")
@click.argument("answer", type=click.Path(dir_okay=False, path_type=Path))
def job_command(spec: str, answer: Path) -> None:
    """Do one job in this process."""
    answer.write_text(json.dumps(asdict(do(Job(**json.loads(spec))))))


if __name__ == "__main__":
    main()
