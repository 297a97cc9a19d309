"""Plan of the cases to run, to scale from a smaller n, and to leave out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from _cases import Group, Record
from _memory import available_bytes
from _tools import Tool


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the memory and time of a peer.

    Attributes:
        max_bytes: Memory above the features.
        max_seconds: Time of one computation.
        slow_n: Largest n of slow tools outside the learned family.
    """

    max_bytes: float
    max_seconds: float
    slow_n: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on one tool in one group.

    Attributes:
        action: Run it, scale it from `base`, or leave it out.
        reason: Why it is not run.
        base: The measured record to scale from.
    """

    action: Literal["run", "scale", "skip", "not-installed"]
    reason: str = ""
    base: Record | None = None


def decide(tool: Tool, group: Group, *, earlier: list[Record], limits: Limits) -> Decision:
    """Decide from the memory and time of the tool at smaller n of the same family and d.

    Args:
        tool: The tool.
        group: The group.
        earlier: Records of this run so far.
        limits: Limits of peers; genpr is always run.
    """
    if not tool.installed:
        return Decision("not-installed", f"not installed (pip install {tool.package})")
    if tool.name == "genpr":
        return Decision("run")
    own = [
        record
        for record in earlier
        if record.tool == tool.name and (record.group.family, record.group.d) == (group.family, group.d)
    ]
    failed = next((record for record in own if record.status == "failed"), None)
    if failed is not None:
        return Decision("skip", f"failed at n = {failed.group.n:,}")
    base = max(
        (record for record in own if record.status == "measured"), key=lambda r: r.group.n, default=None
    )
    reason = _too_much(tool, group, base, limits)
    if not reason:
        return Decision("run")
    if base is None:
        return Decision("skip", f"{reason}, and no smaller n was measured to scale from")
    return Decision("scale", reason, base)


def scaled_record(group: Group, decision: Decision, base: Record, tool: Tool) -> Record:
    """Extrapolate the median and peak of the base to the n of the group."""
    seconds = base.median_seconds
    ratio = group.n / base.group.n
    return Record(
        group=group,
        tool=base.tool,
        ties=base.ties,
        status="scaled",
        note=f"{decision.reason}; scaled from n = {base.group.n:,} by n^2",
        seconds=[] if seconds is None else [seconds * ratio**2],
        peak_bytes=_scaled_bytes(base, ratio, tool),
        scaled_from=base.group.n,
    )


def _too_much(tool: Tool, group: Group, base: Record | None, limits: Limits) -> str:
    """Return why the case is not run, or an empty text."""
    if tool.slow and group.family != "learned" and group.n > limits.slow_n:
        return f"slow tools stop at n = {limits.slow_n:,} in this family"
    needed = tool.bytes_per_pair * group.n**2
    seconds = 0.0
    if base is not None:
        ratio = group.n / base.group.n
        needed = max(needed, _scaled_bytes(base, ratio, tool) or 0)
        seconds = (base.median_seconds or 0) * ratio**2
    if needed > limits.max_bytes:
        return f"would need about {needed / 2**30:.3g} GiB, more than {limits.max_bytes / 2**30:.3g}"
    if needed > available_bytes():
        return f"would need about {needed / 2**30:.3g} GiB, more than is free here"
    if seconds > limits.max_seconds:
        return f"would take about {seconds / 60:.2g} minutes, more than {limits.max_seconds / 60:.3g}"
    return ""


def _scaled_bytes(base: Record, ratio: float, tool: Tool) -> int | None:
    """Whole n x n arrays grow with n^2, everything else with n."""
    growth = ratio**2 if tool.bytes_per_pair else ratio
    return None if base.peak_bytes is None else round(base.peak_bytes * growth)
