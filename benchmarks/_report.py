"""The record of a run: JSON lines for machines, Markdown and a terminal table for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from _cases import Record
from _machine import Machine
from rich.console import Console
from rich.table import Table

_COLUMNS = ("family", "n", "d", "tool", "median s", "min–max s", "runs", "peak GB", "× genpr", "counts off")
_GROUP_COLUMNS = 3
_RIGHT = {"n", "d", "median s", "min–max s", "runs", "peak GB", "× genpr"}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run.

    Attributes:
        started: Date and time, UTC, ISO 8601.
        command: The command line.
        k: Neighbors that set a radius.
        device: "cpu" or "cuda".
        machine: Description of the machine.
        left_out: Cases that were not run, with the reason.
    """

    started: str
    command: str
    k: int
    device: str
    machine: Machine
    left_out: tuple[str, ...] = ()


def append_json_lines(path: Path, records: list[Record], facts: RunFacts) -> None:
    """Append one self-contained line per case."""
    shared = {
        "format": "genpr.benchmark/1",
        "started": facts.started,
        "command": facts.command,
        "k": facts.k,
        "device": facts.device,
        "machine": asdict(facts.machine),
    }
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            fields = asdict(record)
            line = {**shared, **fields.pop("group"), **fields, "median_seconds": record.median_seconds}
            file.write(json.dumps(line) + "\n")


def markdown(records: list[Record], facts: RunFacts) -> str:
    """Return the report as Markdown."""
    lines = [f"# {facts.started[:10]}, {facts.machine.gpu or facts.machine.cpu}", "", *_preamble(facts), ""]
    lines += ["## Answers", "", *(f"- {line}" for line in agreement_lines(records)), ""]
    lines += ["## Times", "", "| " + " | ".join(_COLUMNS) + " |"]
    lines.append("|" + "|".join("--:" if column in _RIGHT else "---" for column in _COLUMNS) + "|")
    lines += ["| " + " | ".join(_cells(record)) + " |" for record in records]
    lines += ["", "## Against the machine's float32 matrix product", ""]
    lines += [f"- {line}" for line in roofline_lines(records)]
    lines += ["", "## Growth", "", *(f"- {line}" for line in growth_lines(records))]
    notes = [*facts.left_out, *note_lines(records)]
    if notes:
        lines += ["", "## Not measured", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def show(records: list[Record], facts: RunFacts, console: Console) -> None:
    """Print the report: agreement, then one table per group."""
    _print_lines(agreement_lines(records), console)
    for group, members in groupby(records, key=lambda record: record.group):
        table = Table(title=str(group), title_justify="left", box=None, pad_edge=False)
        for column in _COLUMNS[_GROUP_COLUMNS:]:
            table.add_column(column, justify="right" if column in _RIGHT else "left", min_width=len(column))
        for record in members:
            table.add_row(*_cells(record)[_GROUP_COLUMNS:])
        console.print(table)
    _print_lines(
        [*roofline_lines(records), *growth_lines(records), *facts.left_out, *note_lines(records)], console
    )


def agreement_lines(records: list[Record]) -> list[str]:
    """Return each disagreement, then one sentence on the other values."""
    wrong = [record for record in records if record.agrees is False]
    agreeing = [record for record in records if record.agrees]
    others = [record for record in records if record.status == "measured" and record.tool != "genpr"]
    unchecked = len(others) - len(wrong) - len(agreeing)
    lines = [f"DISAGREES: {r.tool} on {r.group}: counts off by {_differences(r)}" for r in wrong]
    exact = sum(not any(record.differences.values()) for record in agreeing)
    lines.append(
        f"{len(agreeing)} of {len(others)} answers agree with genpr's, {exact} of them in every count"
        + (f"; {unchecked} were not compared, because genpr gave no answer" if unchecked else "")
    )
    return lines


def roofline_lines(records: list[Record]) -> list[str]:
    """Compare the time of genpr with the matrix products alone."""
    lines = []
    for record in records:
        roof = record.roofline
        if record.tool != "genpr" or roof is None or record.median_seconds is None:
            continue
        lines.append(
            f"{record.group}: genpr {_short(record.median_seconds)} s; at {roof.gemm_gflops:.0f} GFLOP/s three full "
            f"passes take {_short(roof.three_pass_seconds)} s (genpr {roof.over_three_passes:.2f}× that), two, by "
            f"symmetry, {_short(roof.two_pass_seconds)} s ({roof.over_two_passes:.2f}×)"
        )
    return lines


def growth_lines(records: list[Record]) -> list[str]:
    """The constant before n^2: genpr's time per pair of a real and a fake, for each n."""
    measured: dict[tuple[str, int], list[str]] = {}
    for record in records:
        if record.tool == "genpr" and record.median_seconds is not None:
            group, constant = record.group, record.median_seconds / record.group.n**2 * 1e9
            measured.setdefault((group.family, group.d), []).append(f"{constant:.3g} ns at n = {group.n:,}")
    return [f"{family}, d = {d:,}: per n^2 " + ", ".join(times) for (family, d), times in measured.items()]


def note_lines(records: list[Record]) -> list[str]:
    """Return why cases are scaled or missing, once per tool and reason."""
    where: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.note:
            where.setdefault((record.tool, record.note), []).append(str(record.group))
    return [
        f"{tool}: {note} [{groups[0]}{f' and {len(groups) - 1} more' if len(groups) > 1 else ''}]"
        for (tool, note), groups in where.items()
    ]


def _print_lines(lines: list[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _preamble(facts: RunFacts) -> list[str]:
    machine = facts.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    changed = " with uncommitted changes" if machine.has_uncommitted_changes else ""
    return [
        f"{machine}, {machine.system}. k = {facts.k}, {facts.device}.  ",
        f"{versions}; genpr at {machine.commit[:12] or 'no commit'}{changed}.  ",
        f"`{facts.command}`",
    ]


def _cells(record: Record) -> list[str]:
    group, seconds = record.group, record.median_seconds
    runs = str(len(record.seconds)) if record.status == "measured" else ""
    spread = f"{_short(min(record.seconds))}–{_short(max(record.seconds))}" if len(record.seconds) > 1 else ""
    return [
        group.family,
        f"{group.n:,}",
        f"{group.d:,}",
        record.tool,
        _short(seconds) if seconds is not None else record.status,
        spread if record.scaled_from is None else "scaled",
        runs,
        "" if record.peak_bytes is None else f"{record.peak_bytes / 1e9:.2f}",
        "" if record.times_genpr is None else f"{record.times_genpr:.2f}",
        _verdict(record),
    ]


def _verdict(record: Record) -> str:
    if record.tool == "genpr":
        return ""
    if record.agrees is None:
        return "not compared"
    return _differences(record) if record.agrees else f"DISAGREES: {_differences(record)}"


def _differences(record: Record) -> str:
    off = {metric: difference for metric, difference in record.differences.items() if difference}
    return ", ".join(f"{metric} {difference:+,}" for metric, difference in off.items()) or "none"


def _short(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"
