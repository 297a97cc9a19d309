"""Processor time, wall time and memory of `genpr score` on two folders, and of the commands of peers with the same values."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import click
from _embedding import make_images
from _score_tools import PEERS, Inputs, Peer, Values, write_weights
from _shared import (
    RESULTS,
    CaseFailedError,
    Machine,
    append_record,
    describe_machine,
    run_command,
    without_folder,
)

from genpr.runtime import usable_cores

_SUFFIXES = {"png": ".png", "jpeg": ".jpg"}
_SHARES = ("precision", "recall")  # of images
_TOLERANCE = (
    1e-3  # relative, and of shares absolute but at least one image, which rounding can move over a boundary
)
_PACKAGES = ("torchvision", "pillow", "pytorch-fid", "clean-fid")


@dataclass(slots=True)
class Case:
    """One tool without (cold) or with features from its cache (cached)."""

    tool: str
    cache: str
    values: Values
    peak_bytes: int
    processor: list[float] = field(default_factory=list)  # seconds, by repeat
    wall: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Comparison:
    """genpr and a peer on images of one format."""

    peer: Peer
    format: str
    cases: list[Case] = field(default_factory=list)
    failure: str = ""

    @property
    def pairs(self) -> list[tuple[Case, Case]]:
        """Cases of genpr, each with that of the peer."""
        half = len(self.cases) // 2
        return list(zip(self.cases[:half], self.cases[half:], strict=True))


def measure(comparison: Comparison, inputs: Inputs, *, is_first: bool) -> None:
    """Run both tools, each with an empty cache and then, if both have one, with its features in it."""
    peer = comparison.peer
    states = ("cold", "cached") if peer.has_cache else ("cold",)
    environment = {"TORCH_HOME": str(inputs.folder)}
    if is_first:  # peers are timed with TensorFloat-32, which a GPU uses by default and which moves values
        environment["NVIDIA_TF32_OVERRIDE"] = "0"
    cases = iter(comparison.cases)
    for tool in (peer.genpr, peer):
        with tempfile.TemporaryDirectory(dir=inputs.folder) as cache:
            command = tool.command(inputs, Path(cache))
            for state in states:
                usage = run_command(command, environment, measures_memory=is_first)
                if is_first:
                    found = tool.values(usage.output)
                    comparison.cases.append(Case(tool.name, state, found, usage.peak_bytes))
                else:
                    case = next(cases)
                    case.processor.append(usage.processor)
                    case.wall.append(usage.wall)


def differences(ours: Values, theirs: Values) -> Values:
    """Differences relative to the peer's values, and of shares of images absolute."""
    return {
        name: abs(ours[name] - value) / (1 if name in _SHARES else abs(value))
        for name, value in theirs.items()
    }


def disagreement(comparison: Comparison, images: int) -> str:
    """The values that differ by more than rounding, empty if there are none."""
    found = []
    for ours, theirs in comparison.pairs:
        for name, difference in differences(ours.values, theirs.values).items():
            tolerance = max(_TOLERANCE, 1.01 / images) if name in _SHARES else _TOLERANCE
            if not difference <= tolerance:  # so that NaN disagrees
                both = ", ".join(f"{case.tool} {case.values[name]:.6g}" for case in (ours, theirs))
                found.append(f"{theirs.cache} {name} of {both}")
    return f"DISAGREES: {'; '.join(found)}" if found else ""


def compare(comparisons: Sequence[Comparison], inputs: Inputs, *, images: int, repeats: int) -> None:
    """Compare values and measure memory first, then time the commands, which alternate. A comparison that fails ends."""
    for number in range(repeats + 1):
        for each in comparisons:
            if each.failure:
                continue
            try:
                measure(each, inputs, is_first=number == 0)
            except CaseFailedError as error:
                each.failure = f"FAILED: {error}"
            if number == 0 and not each.failure:
                each.failure = disagreement(each, images)
            progress = each.failure or f"{number} of {repeats} repeats"
            click.echo(f"{each.format}, {each.peer.name}: {progress}", err=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--images", default=500, show_default=True, type=click.IntRange(10), help="Files per folder.")
@click.option(
    "--size", default=256, show_default=True, type=click.IntRange(8), help="Side of the images in pixels."
)
@click.option("--format", "formats", multiple=True, type=click.Choice(list(_SUFFIXES)), help="Default: both.")
@click.option(
    "--tool", "names", multiple=True, type=click.Choice([each.name for each in PEERS]), help="Default: all."
)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option(
    "--workers",
    type=click.IntRange(0),
    help="Loader processes of pytorch-fid and clean-fid.  [default: theirs, the cores up to 8, and 12]",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines; a table is written next to it.",
)
def main(
    images: int,
    size: int,
    formats: tuple[str, ...],
    names: tuple[str, ...],
    repeats: int,
    device: str,
    workers: int | None,
    out: Path | None,
) -> None:
    """Score a folder with `genpr score` and with the commands of torch-fidelity, pytorch-fid and clean-fid.

    Values are compared first, with the same random weights. Then the commands alternate. Imports and start-up count.

    Exits 1 if values disagree or a command fails.
    """
    machine = describe_machine(threads=usable_cores(), device=device, also=_PACKAGES)
    out = out or RESULTS / f"score-{datetime.now(UTC):%Y-%m-%d}-{machine.slug}.jsonl"
    command = shlex.join(["bench_score.py", *map(without_folder, sys.argv[1:])])
    facts = {"command": command, "images": images, "size": size, "device": device, "workers": workers}
    chosen = [peer for peer in PEERS if not names or peer.name in names]
    peers = [peer for peer in chosen if find_spec(peer.module) is not None]
    for peer in chosen:
        if peer not in peers:
            click.echo(f"{peer.name} is not installed and is left out", err=True)
    done = []
    with tempfile.TemporaryDirectory(prefix="genpr-bench-") as scratch:
        folder = Path(scratch)
        weights = write_weights(folder)
        for name in formats or _SUFFIXES:
            real, fake = folder / f"{name}-real", folder / f"{name}-fake"
            for seed, path in enumerate((real, fake)):
                path.mkdir()
                make_images(path, count=images, size=size, seed=seed, suffix=_SUFFIXES[name])
            comparisons = [Comparison(peer, name) for peer in peers]
            inputs = Inputs(real, fake, folder, weights, device=device, workers=workers)
            compare(comparisons, inputs, images=images, repeats=repeats)
            for each in comparisons:
                own = {"images_format": name, "peer": each.peer.name, "options": each.peer.options}
                cases = [asdict(case) for case in each.cases]
                append_record(out, "score", machine, **facts, **own, failure=each.failure, cases=cases)
            done += comparisons
    conditions = f"`{command}`: {images} + {images} images of {size} x {size} pixels, random weights."
    text = markdown(done, machine, conditions)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    click.echo(text)
    sys.exit(any(each.failure for each in done))


_COLUMNS = (
    *("images", "tool", "features", "processor s", "min–max", "wall s", "min–max", "peak GB"),
    *("processor, peer / genpr", "wall, peer / genpr", "memory, peer / genpr", "difference"),
)


def markdown(comparisons: Sequence[Comparison], machine: Machine, conditions: str) -> str:
    """The report; times are medians, and ratios medians of those of each repeat."""
    lines = [
        f"# {datetime.now(UTC):%Y-%m-%d}, score, {machine.gpu or machine.cpu}",
        "",
        *machine.paragraph,
        conditions,
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|---|---|---|{'--:|' * 8}---|",
    ]
    for comparison in comparisons:
        if comparison.failure:
            lines.append(f"| {comparison.format} | {comparison.peer.name} | {comparison.failure} |")
            continue
        for ours, theirs in comparison.pairs:
            lines.append(_row(comparison.format, ours, ["", "", "", ""]))
            moved = differences(ours.values, theirs.values)
            cells = [
                _ratio(theirs.processor, ours.processor),
                _ratio(theirs.wall, ours.wall),
                f"{theirs.peak_bytes / ours.peak_bytes:.2f}",
                ", ".join(f"{name} {value:.1e}" for name, value in moved.items()),
            ]
            lines.append(_row("", theirs, cells))
    return "\n".join(lines) + "\n"


def _row(images: str, case: Case, further: list[str]) -> str:
    cells = [images, case.tool, case.cache]
    for seconds in (case.processor, case.wall):
        cells += [f"{median(seconds):.2f}", f"{min(seconds):.2f}–{max(seconds):.2f}"]
    return f"| {' | '.join([*cells, f'{case.peak_bytes / 1e9:.2f}', *further])} |"


def _ratio(theirs: list[float], ours: list[float]) -> str:
    return f"{median(peer / own for peer, own in zip(theirs, ours, strict=True)):.2f}"


if __name__ == "__main__":
    main()
