"""Run one group: genpr first, then every other tool, each compared with the values of genpr."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from _agreement import compare_counts, counts_of
from _cases import Case, Group, Measurement, Record, Roofline, Status, Ties
from _families import FeaturePair
from _plan import Decision, Limits, decide, scaled_record
from _process import CaseFailedError, measure_in_process
from _tools import Tool

_STATUS_OF: dict[str, Status] = {"skip": "skipped", "not-installed": "not-installed"}
_SLACK_SECONDS = 120  # to import, load and warm up


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all cases of a run.

    Attributes:
        k: Neighbors that set a radius.
        device: "cpu" or "cuda".
        threads: Cores per case.
        repeats: Most repeats per case.
        repeat_seconds: No further repeat starts after this long.
        limits: Memory and time limits of peers.
    """

    k: int
    device: str
    threads: int
    repeats: int
    repeat_seconds: float
    limits: Limits


@dataclass(frozen=True, slots=True)
class GroupRun:
    """One group with its settings.

    Attributes:
        group: What is compared.
        files: Features of the family and d.
        settings: Of the whole run.
        gemm_gflops: Matrix product rate, just measured.
    """

    group: Group
    files: FeaturePair
    settings: Settings
    gemm_gflops: float

    def records(
        self, tools: list[Tool], *, earlier: list[Record], log: Callable[[str], None]
    ) -> list[Record]:
        """Run or scale every tool; genpr must be the first of `tools` for the others to be compared with it.

        Args:
            tools: Tools in the order in which they run.
            earlier: Records of this run so far, to scale from.
            log: Called with progress messages.
        """
        decisions = [decide(t, self.group, earlier=earlier, limits=self.settings.limits) for t in tools]
        tie_rules = {t.ties for t, decision in zip(tools, decisions, strict=True) if decision.action == "run"}
        records: list[Record] = []
        reference: Measurement | None = None
        for tool, decision in zip(tools, decisions, strict=True):
            log(f"{self.group}: {tool.name} {'...' if decision.action == 'run' else decision.reason}")
            if decision.action != "run":
                records.append(self._without_running(tool, decision, reference))
                continue
            other_ties = sorted(tie_rules - {tool.ties}) if tool.name == "genpr" else []
            try:
                found = measure_in_process(self._case(tool, other_ties), timeout=self._timeout(tool))
            except CaseFailedError as error:
                # Of peers that hold whole rows of distances, less memory is to be expected.
                lacks_memory = tool.name != "genpr" and "out of memory" in str(error)
                status: Status = "skipped" if lacks_memory else "failed"
                records.append(Record(self.group, tool.name, tool.ties, status, note=str(error)))
                log(f"{self.group}: {tool.name} failed: {error}")
                continue
            reference = found if tool.name == "genpr" else reference
            records.append(self._measured(tool, found, reference))
        return records

    def _case(self, tool: Tool, other_ties: list[Ties]) -> Case:
        return Case(
            tool=tool.name,
            n=self.group.n,
            real_path=str(self.files.real),
            fake_path=str(self.files.fake),
            k=self.settings.k,
            ties=[tool.ties, *other_ties],
            device=self.settings.device,
            threads=self.settings.threads,
            repeats=self.settings.repeats,
            repeat_seconds=self.settings.repeat_seconds,
        )

    def _timeout(self, tool: Tool) -> float | None:
        limits = self.settings.limits
        return (
            None
            if tool.name == "genpr"
            else 2 * limits.max_seconds + self.settings.repeat_seconds + _SLACK_SECONDS
        )

    def _without_running(self, tool: Tool, decision: Decision, reference: Measurement | None) -> Record:
        if decision.base is None:
            status = _STATUS_OF[decision.action]
            return Record(self.group, tool.name, tool.ties, status, note=decision.reason)
        record = scaled_record(self.group, decision, decision.base, tool)
        return _with_ratio(record, reference)

    def _measured(self, tool: Tool, found: Measurement, reference: Measurement | None) -> Record:
        n, k = self.group.n, self.settings.k
        values = found.values[tool.ties]
        counts = counts_of(values, n=n, k=k)
        agreement = None
        if reference is not None and tool.name != "genpr":
            agreement = compare_counts(counts, counts_of(reference.values[tool.ties], n=n, k=k), n=n, k=k)
        record = Record(
            group=self.group,
            tool=tool.name,
            ties=tool.ties,
            status="measured",
            seconds=found.seconds,
            phases=found.phases,
            peak_bytes=found.peak_bytes if found.cuda_peak_bytes is None else found.cuda_peak_bytes,
            values=values,
            counts=counts,
            differences=agreement.differences if agreement else {},
            agrees=agreement.agrees if agreement else None,
        )
        return _with_ratio(record, reference, roofline=self._roofline(record.median_seconds))

    def _roofline(self, seconds: float | None) -> Roofline | None:
        if seconds is None:
            return None
        one_pass = 2 * self.group.d * self.group.n**2 / (self.gemm_gflops * 1e9)
        return Roofline(
            gemm_gflops=self.gemm_gflops,
            three_pass_seconds=3 * one_pass,
            two_pass_seconds=2 * one_pass,
            over_three_passes=seconds / (3 * one_pass),
            over_two_passes=seconds / (2 * one_pass),
        )


def _with_ratio(record: Record, reference: Measurement | None, *, roofline: Roofline | None = None) -> Record:
    seconds = record.median_seconds
    ratio = None if reference is None or seconds is None else seconds / median(reference.seconds)
    return replace(record, times_genpr=ratio, roofline=roofline)
