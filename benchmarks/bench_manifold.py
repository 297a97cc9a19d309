"""Speed and memory of precision, recall, density and coverage by genpr and its peers."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from _manifold_tools import TOOLS, Ties, Tool, Values, genpr_metrics
from _shared import (
    RESULTS,
    CaseFailedError,
    Machine,
    PeakMemory,
    append_record,
    describe_machine,
    in_new_process,
    kib_line,
    pin_to_cores,
    random_rotation,
    read_features,
    shuffled,
    without_folder,
    write_gaussian,
)

from genpr.runtime import usable_cores

FAMILIES = ("learned", "power-law-1.0", "power-law-1.5", "gaussian")
_SPECTRA = {"power-law-1.0": (1.0, 0.95), "power-law-1.5": (1.5, 0.95), "gaussian": (0.0, 0.995)}
# In an isotropic Gaussian all 2048 directions count: at 0.95 every fake would lie in dozens of real balls and
# hardly any real in a fake one.
_SEED = 20190415
_SHARE_ALLOWED = 0.001  # of n: float32 tools decide a few borderline pairs differently
_COLUMNS = ("family", "n", "d", "tool", "median s", "min–max s", "runs", "peak GB", "× genpr", "counts off")
_RIGHT = set(_COLUMNS[1:3] + _COLUMNS[4:9])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class Case:
    """One tool on the first n rows of two files, as the measuring process receives it."""

    tool: str
    n: int
    real: Path
    fake: Path
    k: int
    ties: list[Ties]  # that values are computed for; only the first is timed
    device: str
    threads: int
    repeats: int
    repeat_seconds: float


@dataclass(slots=True)
class Record:
    """Result of one tool in one group; the note says why it has no time."""

    family: str
    n: int
    d: int
    tool: str
    note: str = ""
    failed: bool = False
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int | None = None  # above the level before, features loaded; of the GPU where that computed
    values: dict[Ties, Values] = field(default_factory=dict)
    differences: dict[str, int] | None = None  # each count minus that of genpr under the same tie rule
    agrees: bool | None = None
    times_genpr: float | None = None

    @property
    def group(self) -> str:
        """What is compared."""
        return f"{self.family}, n = {self.n:,}, d = {self.d:,}"


def measure(case: Case) -> tuple[list[float], int, dict[Ties, Values]]:
    """Load the features, warm up on a few rows, then measure the computation: seconds, bytes and values by tie rule."""
    pin_to_cores(case.threads)
    on_gpu, run = case.device == "cuda", TOOLS[case.tool].run
    real, fake = (_rows(path, case.n).to(case.device) for path in (case.real, case.fake))
    few = case.n if on_gpu else 500  # a GPU also loads kernels and allocates memory
    values = run(real[:few], fake[:few], case.k)  # imports and thread pools are not timed
    level = 0
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        level = torch.cuda.memory_allocated()
    seconds: list[float] = []
    with PeakMemory() as memory:
        while len(seconds) < case.repeats and sum(seconds) < case.repeat_seconds:
            start = perf_counter()
            values = run(real, fake, case.k)
            if on_gpu:
                torch.cuda.synchronize()
            seconds.append(perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() - level if on_gpu else memory.above_level
    others = {ties: genpr_metrics(real, fake, case.k, ties) for ties in case.ties[1:]}
    return seconds, peak, {case.ties[0]: values, **others}


def _rows(path: Path, n: int) -> torch.Tensor:
    return torch.from_numpy(np.array(np.load(path, mmap_mode="r")[:n], dtype=np.float32, order="C"))


def write_pair(family: str, *, d: int, rows: int, folder: Path, learned: list[Path]) -> list[Path]:
    """Write .npy files of reals and fakes; the first rows are the same whatever `rows` is."""
    paths = [folder / f"{family}-{d}-{side}.npy" for side in ("real", "fake")]
    if family == "learned":
        for side, (source, path) in enumerate(zip(learned, paths, strict=True)):
            np.save(path, shuffled(read_features(source), seed=_SEED + side)[:rows])
        return paths
    exponent, scale = _SPECTRA[family]
    rotation = random_rotation(d) if exponent else None
    for side, (path, spread) in enumerate(zip(paths, (1.0, scale), strict=True)):
        seed = [_SEED, FAMILIES.index(family), side]
        write_gaussian(path, rows=rows, d=d, exponent=exponent, scale=spread, rotation=rotation, seed=seed)
    return paths


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--real-features", type=_FILE, help="Features of reals by `genpr features` (.safetensors).")
@click.option("--fake-features", type=_FILE, help="Features of fakes by the same extractor.")
@click.option("--family", "families", multiple=True, type=click.Choice(FAMILIES), help="Default: all four.")
@click.option("--n", "sizes", multiple=True, type=int, default=(5_000, 10_000, 20_000), show_default=True)
@click.option("--d", "dims", multiple=True, type=int, default=(2048,), show_default=True)
@click.option(
    "--tool", "tools", multiple=True, type=click.Choice(list(TOOLS)), help="Default: the usual ones."
)
@click.option("--k", default=5, show_default=True, help="Number of neighbors, for all tools.")
@click.option("--repeats", default=3, show_default=True, help="Maximum number of repeats per case.")
@click.option(
    "--repeat-seconds", default=20.0, show_default=True, help="Start no repeat after this total time."
)
@click.option("--threads", default=usable_cores(), help="Cores per case.  [default: all]")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--slow-n", default=5_000, show_default=True, help="Largest n of slow tools outside learned.")
@click.option("--max-gib", default=16.0, show_default=True, help="Leave out peers that need more memory.")
@click.option("--max-minutes", default=10.0, show_default=True, help="Leave out peers that take longer.")
@click.option(
    "--temp-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="For features."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines; a table is written next to it.",
)
def main(out: Path | None, **options: Any) -> None:  # noqa: ANN401 - the options above
    """Time genpr, plain FAISS, plain torch, torch-fidelity (P/R only), scikit-learn and prdc on the same features.

    Each case runs in its own process. Values are compared with those of genpr first. The learned family needs
    --real-features and --fake-features. With --device cuda, genpr, torch-tiles and torch-cdist run on the GPU and the
    others are left out.

    Slow tools (torch-fidelity, scikit-learn, prdc) run up to --slow-n only outside the learned family, so that
    the default run ends within 30 minutes on two cores.

    Exits with 1 if a value disagrees or a case fails.
    """
    device, threads = options["device"], min(options["threads"], usable_cores())
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError(f"--device cuda: torch {torch.__version__} sees no GPU here")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)  # for the processes of cases
    machine = describe_machine(threads=threads, device=device)
    command = shlex.join(["bench_manifold.py", *map(without_folder, sys.argv[1:])])
    out = out or RESULTS / f"manifold-{datetime.now(UTC):%Y-%m-%d}-{machine.slug}.jsonl"
    records = []
    for record in _run(**{**options, "threads": threads}):
        seconds = f"{median(record.seconds):.3g} s" if record.seconds else record.note
        click.echo(f"{record.group}: {record.tool} {seconds}", err=True)
        records.append(record)
        facts = {name: getattr(record, name) for name in Record.__slots__}
        append_record(out, "manifold", machine, command=command, k=options["k"], device=device, **facts)
    text = markdown(records, machine, command)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    click.echo(text)
    sys.exit(any(record.agrees is False or record.failed for record in records))


def _run(
    *,
    real_features: Path | None,
    fake_features: Path | None,
    families: tuple[str, ...],
    sizes: tuple[int, ...],
    dims: tuple[int, ...],
    tools: tuple[str, ...],
    temp_dir: Path | None,
    **options: Any,  # noqa: ANN401 - those of `_group`
) -> Iterator[Record]:
    """Write the features of each family and d, and run its sizes, smallest first."""
    device = options["device"]
    chosen = [tool for tool in TOOLS.values() if (tool.name in tools if tools else device in tool.default_on)]
    chosen = [tool for tool in chosen if device in tool.devices]
    learned = [path for path in (real_features, fake_features) if path is not None]
    earlier: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="genpr-bench-", dir=temp_dir) as folder:
        for family in families or FAMILIES:
            if family == "learned" and len(learned) < 2:
                continue
            found = [read_features(path).shape for path in learned] if family == "learned" else []
            for d in {shape[1] for shape in found} or dims:
                ns = sorted(n for n in sizes if all(n <= shape[0] for shape in found))
                pair = (
                    write_pair(family, d=d, rows=max(ns), folder=Path(folder), learned=learned) if ns else []
                )
                for n in ns:
                    for record in _group(family, n, d, pair, chosen, earlier, **options):
                        earlier.append(record)
                        yield record
                for path in pair:
                    path.unlink()


def _group(
    family: str,
    n: int,
    d: int,
    pair: list[Path],
    tools: list[Tool],
    earlier: list[Record],
    **options: Any,  # noqa: ANN401
) -> Iterator[Record]:
    """Run genpr, then every other tool, each compared with the values of genpr."""
    reference: Record | None = None
    for tool in tools:
        record = Record(family, n, d, tool.name)
        smaller = [each for each in earlier if (each.family, each.d, each.tool) == (family, d, tool.name)]
        record.note = _too_much(tool, record, smaller, **options)
        if not record.note:
            ties = [tool.ties, *({each.ties for each in tools} - {tool.ties} if tool.name == "genpr" else ())]
            case = Case(
                tool.name,
                n,
                real=pair[0],
                fake=pair[1],
                k=options["k"],
                ties=ties,
                device=options["device"],
                threads=options["threads"],
                repeats=options["repeats"],
                repeat_seconds=options["repeat_seconds"],
            )
            limit = (
                None
                if tool.name == "genpr"
                else 120 * options["max_minutes"] + options["repeat_seconds"] + 120
            )
            try:
                record.seconds, record.peak_bytes, record.values = in_new_process(
                    measure, case, timeout=limit
                )
            except CaseFailedError as error:
                # Of peers that hold whole rows of distances, a lack of memory is to be expected.
                record.note = str(error)
                record.failed = tool.name == "genpr" or "out of memory" not in record.note
        if record.seconds and tool.name == "genpr":
            reference = record
        if record.seconds and reference is not None:
            record.times_genpr = median(record.seconds) / median(reference.seconds)
            if tool.name != "genpr":
                _compare(record, reference, tool.ties, options["k"])
        yield record


def _too_much(tool: Tool, record: Record, smaller: list[Record], **options: Any) -> str:  # noqa: ANN401
    """Why a case is not run, judged by the memory and time at smaller n; an empty text if it is."""
    if not tool.is_installed:
        return "not installed"
    if tool.name == "genpr":
        return ""
    if any(each.failed for each in smaller):
        return "failed at a smaller n"
    if tool.is_slow and record.family != "learned" and record.n > options["slow_n"]:
        return f"slow tools stop at n = {options['slow_n']:,} in this family"
    needed, seconds = tool.bytes_per_pair * record.n**2, 0.0
    if measured := [each for each in smaller if each.seconds]:
        ratio = record.n / measured[-1].n
        growth = ratio**2 if tool.bytes_per_pair else ratio
        needed = max(needed, (measured[-1].peak_bytes or 0) * growth)
        seconds = median(measured[-1].seconds) * ratio**2
    if needed > min(options["max_gib"] * 2**30, kib_line("/proc/meminfo", "MemAvailable")):
        return f"would need about {needed / 2**30:.3g} GiB"
    return f"would take about {seconds / 60:.2g} minutes" if seconds > 60 * options["max_minutes"] else ""


def _compare(record: Record, reference: Record, ties: Ties, k: int) -> None:
    """Compare the counts behind the values; differences of at most 0.1 % of the number of images agree."""
    record.differences, record.agrees = {}, True
    for metric, value in record.values[ties].items():
        whole = record.n * k if metric == "density" else record.n
        difference = round(value * whole) - round(reference.values[ties][metric] * whole)
        record.differences[metric] = difference
        record.agrees &= abs(difference) <= max(1, _SHARE_ALLOWED * whole)


def markdown(records: list[Record], machine: Machine, command: str) -> str:
    """The report."""
    compared = [record for record in records if record.agrees is not None]
    equal = sum(not any((record.differences or {}).values()) for record in compared)
    lines = [
        f"# {datetime.now(UTC):%Y-%m-%d}, {machine.gpu or machine.cpu}",
        "",
        *machine.paragraph,
        f"`{command}`",
    ]
    lines += ["", "## Answers", ""]
    lines += [f"- DISAGREES: {each.tool} on {each.group}" for each in compared if not each.agrees]
    agreeing = sum(bool(each.agrees) for each in compared)
    lines += [f"- {agreeing} of {len(compared)} answers agree with genpr's, {equal} of them in every count"]
    lines += ["", "## Times", "", f"| {' | '.join(_COLUMNS)} |"]
    lines.append("|" + "|".join("--:" if column in _RIGHT else "---" for column in _COLUMNS) + "|")
    lines += [f"| {' | '.join(_cells(record))} |" for record in records]
    return "\n".join(lines) + "\n"


def _cells(record: Record) -> list[str]:
    seconds = record.seconds
    off = ", ".join(f"{name} {count:+,}" for name, count in (record.differences or {}).items() if count)
    return [
        record.family,
        f"{record.n:,}",
        f"{record.d:,}",
        record.tool,
        f"{median(seconds):.3g}" if seconds else record.note,
        f"{min(seconds):.3g}–{max(seconds):.3g}" if len(seconds) > 1 else "",
        str(len(seconds) or ""),
        "" if record.peak_bytes is None else f"{record.peak_bytes / 1e9:.2f}",
        "" if record.times_genpr is None else f"{record.times_genpr:.2f}",
        "" if record.agrees is None else f"{'' if record.agrees else 'DISAGREES: '}{off or 'none'}",
    ]


if __name__ == "__main__":
    main()
