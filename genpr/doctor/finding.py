"""What a check found, and how checks run so that one that fails itself is a finding, too.

Nothing here imports anything that may be broken on a machine that needs a doctor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "warn", "broken"]


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    Attributes:
        name: What was looked at, stable.
        state: "ok"; "warn" where a score is right but slower, or something optional is missing; "broken" where a score
            would fail or could not be trusted.
        text: What was seen, in one line.
        remedy: What to do about it, best a command; empty where there is nothing to do.
        facts: The same for programs: plain JSON values by name.
    """

    name: str
    state: State
    text: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """Something to look at.

    Attributes:
        name: Of its finding, or of the first of them.
        look: Looks; it may raise anything.
        needs: Libraries without which it cannot look.
    """

    name: str
    look: Callable[[], Iterable[Finding]]
    needs: tuple[str, ...] = ()

    def run(self, broken: Iterable[str] = ()) -> list[Finding]:
        """What it finds; where it needs one of the `broken` libraries, that it was not made.

        Its own failure is the finding where it raises: what no check foresaw is what a user should report.
        """
        missing = [name for name in self.needs if name in set(broken)]
        if missing:
            return [Finding(self.name, "warn", f"not looked at, since {missing[0]} cannot be imported")]
        try:
            return list(self.look())
        except Exception as error:  # noqa: BLE001 - on a broken machine anything may be raised
            return [Finding(self.name, "broken", f"could not be looked at ({in_words(error)})")]


def in_words(error: BaseException) -> str:
    """An error on one line, cut where it is long."""
    said = " ".join(str(error).split())
    said = said if len(said) <= 200 else f"{said[:200]}..."
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
