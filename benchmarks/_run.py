"""Run all groups: write the features of each family, run its groups in order, and append each record."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _cases import Group, Record
from _families import write_features
from _groups import GroupRun, Settings
from _plan import Limits
from _process import gemm_in_process
from _report import RunFacts, append_json_lines
from _selection import Options, Selection


@dataclass(frozen=True, slots=True)
class Run:
    """Settings of a run.

    Attributes:
        selection: Selected tools and groups.
        settings: The same for all cases.
        facts: Facts for the report.
        out: The .jsonl file that records are appended to.
        temp_dir: Folder for features; None for that of the system.
        log: Called with progress messages.
    """

    selection: Selection
    settings: Settings
    facts: RunFacts
    out: Path
    temp_dir: Path | None
    log: Callable[[str], None]

    def records(self) -> list[Record]:
        """Run all groups; the records of each group are written before the next starts."""
        records: list[Record] = []
        with tempfile.TemporaryDirectory(prefix="genpr-bench-", dir=self.temp_dir) as folder:
            for groups in self.selection.by_features():
                self._run_groups(groups, Path(folder), records)
        return records

    def _run_groups(self, groups: list[Group], folder: Path, records: list[Record]) -> None:
        """The sizes of one family and d, smallest first, added to `records`."""
        family, d = groups[0].family, groups[0].d
        self.log(f"{family}, d = {d:,}: writing features")
        files = write_features(family, d=d, rows=groups[-1].n, folder=folder, learned=self.selection.learned)
        gemm_gflops = gemm_in_process(device=self.settings.device, threads=self.settings.threads)
        for group in groups:
            run = GroupRun(group, files, self.settings, gemm_gflops)
            found = run.records(self.selection.tools, earlier=records, log=self.log)
            append_json_lines(self.out, found, self.facts)
            records += found
        files.delete()


def settings_of(options: Options, *, threads: int) -> Settings:
    """Return the settings that all cases share."""
    limits = Limits(
        max_bytes=options.max_gib * 2**30, max_seconds=options.max_minutes * 60, slow_n=options.slow_n
    )
    return Settings(
        k=options.k,
        device=options.device,
        threads=threads,
        repeats=options.repeats,
        repeat_seconds=options.repeat_seconds,
        limits=limits,
    )
