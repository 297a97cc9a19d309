"""The record of a run of bench_extractors.py: JSON lines, and a table in Markdown that is also printed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from _extractor_cases import AGREES, GENPR, Record, Side
from _machine import Machine

_COLUMNS = (
    "extractor",
    "tool",
    "batch",
    "median images/s",
    "min–max",
    "genpr / peer",
    "per round",
    "peak GB",
    "before GB",
    "difference",
)
_RIGHT = set(_COLUMNS[2:])


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run.

    Attributes:
        started: Date and time, UTC, ISO 8601.
        command: The command line.
        images: Description of the images.
        rounds: Number of timed rounds of each tool.
        device: "cpu" or "cuda".
        machine: Description of the machine.
    """

    started: str
    command: str
    images: str
    rounds: int
    device: str
    machine: Machine


def append_json_line(path: Path, record: Record, facts: RunFacts) -> None:
    """Append one self-contained line per comparison."""
    line = {"format": "genpr.benchmark-extractors/1", **asdict(facts), **asdict(record)}
    line["source"], line["images"] = facts.images, record.images
    line |= {"agrees": record.agrees, "ratios": record.ratios}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def markdown(records: list[Record], facts: RunFacts) -> str:
    """The whole report."""
    machine = facts.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    changed = " with uncommitted changes" if machine.has_uncommitted_changes else ""
    lines = [
        f"# {facts.started[:10]}, extractors, {machine.gpu or machine.cpu}",
        "",
        f"{machine}, {machine.system}, {facts.device}. {facts.images}; {facts.rounds} rounds; random weights.  ",
        f"{versions}; genpr at {machine.commit[:12] or 'no commit'}{changed}.  ",
        f"`{facts.command}`",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|" + "|".join("--:" if column in _RIGHT else "---" for column in _COLUMNS) + "|",
    ]
    lines += ["| " + " | ".join(cells) + " |" for record in records for cells in _rows(record)]
    return "\n".join([*lines, "", *(f"- {line}" for line in agreement_lines(records))]) + "\n"


def agreement_lines(records: list[Record]) -> list[str]:
    """Extractors whose features differ from the peer, and tools that failed; then a summary of all comparisons."""
    lines = [
        f"DISAGREES: {record.extractor}: features differ by {record.difference:.1e} of their range, and between "
        f"images by {record.spread:.1e}"
        for record in records
        if record.agrees is False
    ]
    lines += [
        f"FAILED: {side.tool} on {record.extractor}: {side.failure}"
        for record in records
        for side in record.sides
        if side.failure
    ]
    compared = [record for record in records if record.agrees is not None]
    agreeing = sum(record.agrees is True for record in compared)
    if compared:
        lines.append(
            f"{agreeing} of {len(compared)} extractors give the features of their peer, within {AGREES:g} of the range"
        )
    return lines


def _rows(record: Record) -> list[list[str]]:
    return [_cells(record, side) for side in record.sides]


def _cells(record: Record, side: Side) -> list[str]:
    rates, is_ours = record.rates(side), side.tool == GENPR
    ratio = record.median_ratio
    return [
        record.extractor if is_ours else "",
        side.tool,
        str(side.batch_size),
        _short(median(rates)) if rates else "failed",
        f"{_short(min(rates))}–{_short(max(rates))}" if len(rates) > 1 else "",
        "" if is_ours or ratio is None else f"{ratio:.2f}",
        "" if is_ours else ", ".join(f"{each:.2f}" for each in record.ratios),
        _gigabytes(side.peak_bytes if side.cuda_peak_bytes is None else side.cuda_peak_bytes),
        _gigabytes(side.level_bytes if side.cuda_peak_bytes is None else None),
        "" if is_ours or record.difference is None else f"{record.difference:.1e}",
    ]


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _gigabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e9:.2f}"
