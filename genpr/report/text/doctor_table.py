"""What `genpr doctor` found, as text: a line for each finding, and what to do below it."""

from __future__ import annotations

from genpr.doctor import Finding
from genpr.doctor.examine import Examination
from genpr.report.text.layout import wrapped

_NAME = 13


def doctor_table(examination: Examination) -> str:
    """Every finding, then the verdict."""
    return "\n".join([*map(_lines, examination.findings), _verdict(examination)])


def _lines(finding: Finding) -> str:
    head = f"{finding.state:<6} {finding.name:<{_NAME}} "
    lines = wrapped(finding.text, first=head, others=" " * len(head))
    return (
        f"{lines}\n{wrapped(finding.remedy, first=' ' * 7 + 'fix: ', others=' ' * 12)}"
        if finding.remedy
        else lines
    )


def _verdict(examination: Examination) -> str:
    states = [finding.state for finding in examination.findings]
    took = f"looked at {len(states)} things in {examination.seconds:.0f} s"
    if not examination.is_healthy:
        return wrapped(f"broken: mend this before you trust a score; {took}")
    warned = states.count("warn")
    return wrapped(
        f"healthy{f', with {warned} remarks' if warned > 1 else ', with one remark' if warned else ''}; {took}"
    )
